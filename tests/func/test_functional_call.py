"""Calls of modules with other parameters, and ensembles."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import func, nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def test_given_tensors_replace_parameters_for_the_call_only():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    x = wf.randn(4, 2)
    before = model(x).detach().numpy()
    params = {k: wf.zeros_like(v) for k, v in model.named_parameters()}
    assert func.functional_call(model, params, x).tolist() == [[0.0]] * 4
    np.testing.assert_array_equal(model(x).detach().numpy(), before)
    partly = func.functional_call(model, {"2.bias": wf.tensor([5.0])}, (x,))
    np.testing.assert_allclose(partly.detach().numpy(), before - model[2].bias.item() + 5, rtol=1e-4)
    with pytest.raises(ValueError):
        func.functional_call(model, params, (wf.randn(4, 9),))
    np.testing.assert_array_equal(model(x).detach().numpy(), before)


def test_gradients_flow_to_the_given_tensors():
    model = nn.Linear(2, 1)
    params = {k: v.detach().clone().requires_grad_() for k, v in model.named_parameters()}
    func.functional_call(model, params, (wf.ones(3, 2),)).sum().backward()
    assert params["weight"].grad.tolist() == [[3.0, 3.0]] and model.weight.grad is None
    loss = lambda p, x, y: ((func.functional_call(model, p, (x,)) - y) ** 2).sum()
    per_sample = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(
        dict(model.named_parameters()), wf.randn(5, 2), wf.randn(5, 1)
    )
    assert per_sample["weight"].shape == (5, 1, 2) and per_sample["bias"].shape == (5, 1)
    captured = wf.function(func.grad(loss))
    args = {k: v.detach() for k, v in model.named_parameters()}, wf.ones(1, 2), wf.zeros(1, 1)
    np.testing.assert_allclose(captured(*args)["bias"].numpy(), func.grad(loss)(*args)["bias"].numpy(), rtol=1e-5)


def test_buffers_and_keyword_arguments():
    norm = nn.BatchNorm1d(2, affine=False)
    state = {k: v.detach().clone() for k, v in norm.named_buffers()}
    func.functional_call(norm, state, wf.ones(4, 2) * 7)
    assert norm.running_mean.tolist() == [0, 0]
    np.testing.assert_allclose(state["running_mean"].numpy(), [0.7, 0.7], rtol=1e-6)

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = nn.Parameter(wf.ones(()))

        def forward(self, x, factor=1.0):
            return x * self.s * factor

    assert func.functional_call(Scale(), {"s": wf.tensor(2.0)}, wf.tensor(3.0), {"factor": 5.0}).item() == 30
    assert func.functional_call(Scale(), ({"s": wf.tensor(2.0)}, {}), (wf.tensor(3.0),)).item() == 6


def test_tied_weights():
    model, x, eye = Tied(), wf.tensor([[1.0, 2.0]]), wf.eye(2)
    assert func.functional_call(model, {"a.weight": 2 * eye}, x).tolist() == [[4, 8]]
    assert func.functional_call(model, {"b.weight": 2 * eye}, x).tolist() == [[4, 8]]
    untied = func.functional_call(model, {"a.weight": eye, "b.weight": 3 * eye}, x, tie_weights=False)
    assert untied.tolist() == [[3, 6]]
    with pytest.raises(ValueError, match="'a.weight' and 'b.weight' are one tensor"):
        func.functional_call(model, {"a.weight": eye, "b.weight": 3 * eye}, x)


def test_wrong_names_are_refused():
    model, x = nn.Linear(2, 1), wf.ones(1, 2)
    with pytest.raises(KeyError, match="Linear has no parameter or buffer 'w'. It has weight, bias"):
        func.functional_call(model, {"w": wf.ones(1, 2)}, x)
    with pytest.raises(KeyError, match="Missing: bias"):
        func.functional_call(model, {"weight": wf.ones(1, 2)}, x, strict=True)
    with pytest.raises(TypeError, match="'weight' must be a tensor. Got list"):
        func.functional_call(model, {"weight": [[1.0, 1.0]]}, x)
    with pytest.raises(ValueError, match="'bias' is in several dicts"):
        func.functional_call(model, ({"bias": wf.ones(1)}, {"bias": wf.ones(1)}), x)
    with pytest.raises(TypeError, match="expected a dict of tensors by name"):
        func.functional_call(model, 3, x)


def test_a_captured_function_sees_the_replaced_parameters():
    model = nn.Linear(2, 1, bias=False)
    captured = wf.function(model)
    x = wf.ones(1, 2)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return captured(x)

    before = captured(x).item()
    assert func.functional_call(Outer(), {"inner.weight": wf.ones(1, 2)}, x).item() == 2
    assert captured(x).item() == before


def test_ensembles_run_at_once():
    models = [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval() for _ in range(4)]
    params, buffers = func.stack_module_state(models)
    assert params["0.weight"].shape == (4, 3, 2) and params["0.weight"].requires_grad and params["0.weight"].is_leaf
    assert buffers["1.running_mean"].shape == (4, 3)
    x = wf.randn(5, 2)
    call = lambda p, b, x: func.functional_call(models[0], (p, b), (x,))
    together = func.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    for i, model in enumerate(models):
        np.testing.assert_allclose(together[i].detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="there are no modules"):
        func.stack_module_state([])
    with pytest.raises(ValueError, match="must be of one class"):
        func.stack_module_state([nn.Linear(2, 2), nn.Tanh()])
    with pytest.raises(ValueError, match="all be in training mode"):
        func.stack_module_state([nn.Linear(2, 2), nn.Linear(2, 2).eval()])
    frozen = nn.Linear(2, 2)
    frozen.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="weight requires gradients in some"):
        func.stack_module_state([nn.Linear(2, 2), frozen])
