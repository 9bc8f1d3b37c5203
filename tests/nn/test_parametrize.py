"""Parametrizations, weight and spectral normalisation, orthogonal weights."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft as wf
import weft.nn.utils.parametrize as P
from tests.each import each
from weft import nn, optim
from weft.nn.utils import parametrizations


class Symmetric(nn.Module):
    def forward(self, x):
        return wf.triu(x) + wf.triu(x, k=1).mT

    def right_inverse(self, value):
        return wf.triu(value)


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


class Polar(nn.Module):
    """A value from its length and its direction."""

    def forward(self, length, direction):
        return length * direction

    def right_inverse(self, value):
        length = wf.sqrt(wf.sum(value * value))
        return length, value / length


def test_registered_parametrizations_compute_the_attribute():
    wf.manual_seed(0)
    layer = nn.Linear(3, 3)
    before = layer.weight
    assert P.register_parametrization(layer, "weight", Symmetric()) is layer
    np.testing.assert_array_equal(layer.weight.detach().numpy(), layer.weight.detach().numpy().T)
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert sorted(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert layer.parametrizations.weight.original is before  # optimisers made before still hold it
    assert isinstance(layer, nn.Linear) and type(layer).__name__ == "ParametrizedLinear"
    assert P.is_parametrized(layer) and P.is_parametrized(layer, "weight") and not P.is_parametrized(layer, "bias")
    assert P.type_before_parametrizations(layer) is nn.Linear
    P.register_parametrization(layer, "weight", Double())
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * Symmetric()(before.detach()).numpy())
    x = wf.randn(2, 3)
    np.testing.assert_allclose(layer(x).detach().numpy(), (x @ layer.weight.T + layer.bias).detach().numpy(), rtol=1e-5)
    layer(x).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None


def test_assignment_goes_through_the_right_inverse():
    layer = P.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    layer.weight = wf.tensor([[1.0, 2.0], [2.0, 3.0]])
    assert layer.weight.tolist() == [[1, 2], [2, 3]]
    assert layer.parametrizations.weight.original.tolist() == [[1, 2], [0, 3]]
    P.register_parametrization(layer, "weight", Double())
    with pytest.raises(RuntimeError, match="Double: it has no `right_inverse`"):
        layer.weight = wf.eye(2)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(2, 2\)"):
        P.register_parametrization(nn.Linear(2, 2), "weight", Symmetric()).weight = wf.eye(3)


def test_several_tensors_and_buffers_are_parametrized():
    layer = nn.Linear(3, 2)
    value = layer.weight.detach().clone()
    P.register_parametrization(layer, "weight", Polar())
    names = [n for n, _ in layer.named_parameters()]
    assert names == ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    np.testing.assert_allclose(layer.weight.detach().numpy(), value.numpy(), rtol=1e-6)
    norm = nn.BatchNorm1d(2)
    P.register_parametrization(norm, "running_var", Double(), unsafe=True)
    assert norm.running_var.tolist() == [2, 2]
    assert "parametrizations.running_var.original" in dict(norm.named_buffers())


def test_removal_leaves_an_ordinary_parameter():
    for leave in (True, False):
        layer = P.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
        original, value = layer.parametrizations.weight.original, layer.weight.detach().clone()
        stored = original.detach().clone()
        P.remove_parametrizations(layer, "weight", leave_parametrized=leave)
        assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter) and layer.weight is original
        expected = value if leave else stored
        np.testing.assert_array_equal(layer.weight.detach().numpy(), expected.numpy())
        assert sorted(layer.state_dict()) == ["bias", "weight"]
    two = P.register_parametrization(nn.Linear(3, 2), "weight", Polar())
    P.register_parametrization(two, "bias", Double())
    with pytest.raises(ValueError, match="there is no single original"):
        P.remove_parametrizations(two, "weight", leave_parametrized=False)
    P.remove_parametrizations(two, "weight")
    assert P.is_parametrized(two, "bias") and isinstance(two.weight, nn.Parameter)
    with pytest.raises(ValueError, match="Linear has no parametrization of 'weight'"):
        P.remove_parametrizations(two, "weight")


def test_wrong_parametrizations_are_refused_and_change_nothing():
    class Shape(nn.Module):
        def forward(self, x):
            return x.reshape(-1)

    class Nothing(nn.Module):
        def forward(self, x):
            return None

    class Narrow(nn.Module):
        def forward(self, x):
            return x.to(wf.float16)

    cases = {
        "shape": (Shape(), ValueError, r"changes the shape from \(2, 2\) to \(4,\). Pass `unsafe=True`"),
        "dtype": (Narrow(), ValueError, "changes the dtype from float32 to float16"),
        "nothing": (Nothing(), TypeError, "must return a tensor. Got NoneType"),
    }

    def check(parametrization, error, text):
        layer = nn.Linear(2, 2)
        with pytest.raises(error, match=text):
            P.register_parametrization(layer, "weight", parametrization)
        assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)

    each(check, cases)
    with pytest.raises(ValueError, match="Linear has no parameter or buffer 'w'. It has weight, bias"):
        P.register_parametrization(nn.Linear(2, 2), "w", Double())
    layer = P.register_parametrization(nn.Linear(2, 2), "weight", Shape(), unsafe=True)
    assert layer.weight.shape == (4,)


def test_cached_values_are_computed_once():
    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return x * 1.0

    layer = P.register_parametrization(nn.Linear(2, 2), "weight", Counting())
    Counting.calls = 0
    with P.cached():
        first = layer.weight
        with P.cached():
            assert layer.weight is first
        assert layer.weight is first and Counting.calls == 1
    assert layer.weight is not first
    captured = wf.function(layer)
    with P.cached():
        expected = layer(wf.ones(1, 2))
        np.testing.assert_allclose(captured(wf.ones(1, 2)).detach().numpy(), expected.detach().numpy(), rtol=1e-6)


def test_captured_training_steps_train_the_originals():
    def run(captured):
        wf.manual_seed(0)
        model = nn.Sequential(
            parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), parametrizations.spectral_norm(nn.Linear(4, 1))
        )
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        x, y = wf.randn(8, 3), wf.randn(8, 1)

        def step(x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        step = wf.function(step) if captured else step
        losses = [step(x, y).item() for _ in range(6)]
        return losses, {k: v.numpy().copy() for k, v in model.state_dict().items()}

    (eager, state), (captured, other) = run(False), run(True)
    assert eager[-1] < eager[0]
    np.testing.assert_allclose(captured, eager, rtol=1e-4)
    for name, value in state.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_copies_pickles_and_transfers():
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other.weight.detach().numpy(), layer.weight.detach().numpy())
        assert P.is_parametrized(other, "weight") and other.parametrizations is not layer.parametrizations
        P.remove_parametrizations(other, "weight")
        assert type(other) is nn.Linear and P.is_parametrized(layer)
    target = P.transfer_parametrizations_and_params(layer, nn.Linear(3, 2))
    np.testing.assert_allclose(target.weight.detach().numpy(), layer.weight.detach().numpy(), rtol=1e-6)
    fresh = parametrizations.weight_norm(nn.Linear(3, 2))
    fresh.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(fresh.weight.detach().numpy(), layer.weight.detach().numpy())


def test_weight_norm_has_pytorchs_names_and_numbers():
    wf.manual_seed(0)
    for make, names in (
        (nn.utils.weight_norm, ["bias", "weight_g", "weight_v"]),
        (
            parametrizations.weight_norm,
            ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"],
        ),
    ):
        layer = nn.Linear(3, 2)
        value = layer.weight.detach().numpy().copy()
        assert [n for n, _ in make(layer).named_parameters()] == names
        np.testing.assert_allclose(layer.weight.detach().numpy(), value, rtol=1e-6)
        g = dict(layer.named_parameters())[names[1]]
        np.testing.assert_allclose(g.detach().numpy(), np.linalg.norm(value, axis=1, keepdims=True), rtol=1e-6)
        with wf.no_grad():
            g.mul_(3.0)
        np.testing.assert_allclose(layer.weight.detach().numpy(), 3 * value, rtol=1e-6)
    layer = nn.utils.weight_norm(nn.Conv2d(2, 4, 3), dim=None)
    assert layer.weight_g.shape == () and layer(wf.ones(1, 2, 5, 5)).shape == (1, 4, 3, 3)
    assert nn.utils.weight_norm(nn.Conv1d(2, 4, 3), dim=1).weight_g.shape == (1, 2, 1)
    value = layer.weight.detach().numpy().copy()
    nn.utils.remove_weight_norm(layer)
    assert type(layer) is nn.Conv2d and sorted(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_array_equal(layer.weight.detach().numpy(), value)
    recurrent = nn.utils.weight_norm(nn.GRU(2, 3), "weight_hh_l0")
    y, _ = recurrent(wf.ones(4, 1, 2))
    y.sum().backward()
    assert recurrent.weight_hh_l0_g.grad is not None
    assert copy.deepcopy(recurrent).weight_hh_l0.shape == (9, 3)


def test_normalisations_refuse_what_they_cannot_do():
    cases = {
        "weight_norm, unknown": (
            lambda: nn.utils.weight_norm(nn.Linear(2, 2), "w"),
            ValueError,
            "has no parameter 'w'",
        ),
        "weight_norm, twice": (
            lambda: nn.utils.weight_norm(nn.utils.weight_norm(nn.Linear(2, 2))),
            RuntimeError,
            "is computed already",
        ),
        "assignment": (
            lambda: setattr(nn.utils.weight_norm(nn.Linear(2, 2)), "weight", wf.eye(2)),
            AttributeError,
            "is computed and cannot be assigned",
        ),
        "remove weight_norm": (
            lambda: nn.utils.remove_weight_norm(nn.Linear(2, 2)),
            ValueError,
            "has no weight normalisation",
        ),
        "remove spectral_norm": (
            lambda: nn.utils.remove_spectral_norm(nn.Linear(2, 2)),
            ValueError,
            "has no spectral normalisation",
        ),
        "iterations": (lambda: nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError, "at least 1"),
        "spectral_norm, unknown": (
            lambda: parametrizations.spectral_norm(nn.Linear(2, 2), "w"),
            ValueError,
            "has no parameter 'w'",
        ),
        "orthogonal vector": (
            lambda: parametrizations.orthogonal(nn.Linear(2, 2), "bias"),
            ValueError,
            "expected a matrix",
        ),
        "orthogonal map": (
            lambda: parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="x"),
            ValueError,
            "must be one of matrix_exp",
        ),
    }

    def check(call, error, text):
        with pytest.raises(error, match=text):
            call()

    each(check, cases)


def test_spectral_norm_divides_by_the_largest_singular_value():
    wf.manual_seed(0)
    for make in (nn.utils.spectral_norm, parametrizations.spectral_norm):
        layer = make(nn.Linear(6, 4))
        x = wf.randn(2, 6)
        for _ in range(20):
            layer(x)
        layer.eval()
        weight = layer.weight.detach().numpy()
        assert np.linalg.svd(weight, compute_uv=False)[0] == pytest.approx(1, abs=1e-3)
        np.testing.assert_array_equal(layer.weight.detach().numpy(), weight)
        layer(x).sum().backward()
        transposed = make(nn.ConvTranspose2d(3, 5, 2))
        assert transposed(wf.randn(1, 3, 4, 4)).shape == (1, 5, 5, 5)
    old = nn.utils.spectral_norm(nn.Linear(6, 4))
    assert sorted(old.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    u = old.weight_u.numpy().copy()
    old.weight  # reading does not iterate
    np.testing.assert_array_equal(old.weight_u.numpy(), u)
    old(wf.randn(1, 6))
    assert (old.weight_u.numpy() != u).any()
    nn.utils.remove_spectral_norm(old)
    assert sorted(old.state_dict()) == ["bias", "weight"] and old(wf.randn(1, 6)).shape == (1, 4)
    new = parametrizations.spectral_norm(nn.Linear(6, 4))
    assert sorted(new.state_dict()) == [
        "bias", "parametrizations.weight.0._u", "parametrizations.weight.0._v", "parametrizations.weight.original",
    ]  # fmt: skip
    assert wf.linalg.vector_norm(parametrizations.spectral_norm(nn.Linear(2, 3), "bias").bias).item() == pytest.approx(
        1
    )


def test_orthogonal_weights_stay_orthogonal_while_they_are_trained():
    def check(shape, how, trivial):
        wf.manual_seed(0)
        layer = nn.Linear(shape[1], shape[0], dtype=wf.float64)
        parametrizations.orthogonal(layer, orthogonal_map=how, use_trivialization=trivial)
        optimizer = optim.SGD(layer.parameters(), lr=0.5)
        x, y = wf.randn(8, shape[1], dtype=wf.float64), wf.randn(8, shape[0], dtype=wf.float64)
        weights = []
        for _ in range(4):
            weight = layer.weight.detach().numpy()
            product = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
            np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-8)
            weights.append(weight)
            optimizer.zero_grad()
            ((layer(x) - y) ** 2).mean().backward()
            optimizer.step()
        assert np.abs(weights[-1] - weights[0]).max() > 1e-3

    cases = {}
    for shape in ((4, 4), (5, 3), (3, 5)):
        for how in ("matrix_exp", "cayley", "householder"):
            for trivial in (True, False):
                cases[f"{shape} {how} {trivial}"] = (shape, how, trivial)
    each(check, cases)
    layer = parametrizations.orthogonal(nn.Linear(3, 3))
    turned = wf.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    layer.weight = turned
    np.testing.assert_allclose(layer.weight.detach().numpy(), turned.numpy(), atol=1e-6)
