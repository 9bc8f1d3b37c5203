"""Automatic differentiation as the papers describe it: tape, functional gradients, mutation, custom functions, memory."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn


def leaf(*values: float, dtype: Any = None) -> wf.Tensor:
    return wf.tensor(list(values), dtype=dtype or wf.float64).requires_grad_()


def test_gradients_are_recorded_while_the_program_runs() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3 if x.sum().item() > 2 else x * x  # the branch that ran is the one that is differentiated
    assert y.grad_fn is not None and (wf.ones(2) * 2).grad_fn is None, "only what needs gradients is recorded"
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3]


def test_the_rnn_cell_of_the_paper_accumulates_into_grad() -> None:
    W_h, W_x = wf.randn(20, 20, requires_grad=True), wf.randn(20, 10, requires_grad=True)
    x, prev_h = wf.randn(1, 10), wf.randn(1, 20)

    def cell() -> wf.Tensor:
        i2h = wf.mm(W_x, x.t())
        h2h = wf.mm(W_h, prev_h.t())
        next_h = (i2h + h2h).tanh()
        return next_h.sum()

    cell().backward()
    assert W_h.grad is not None
    once = W_h.grad.numpy().copy()
    h = np.tanh(W_x.detach().numpy() @ x.numpy().T + W_h.detach().numpy() @ prev_h.numpy().T)
    np.testing.assert_allclose(once, (1 - h**2) @ prev_h.numpy(), rtol=1e-3, atol=1e-5)
    cell().backward()
    np.testing.assert_allclose(W_h.grad, 2 * once, rtol=1e-5)


def test_grad_returns_what_is_asked_for_and_leaves_dot_grad_alone() -> None:
    x, y, z = leaf(2.0), leaf(3.0), leaf(5.0)
    out = (x * y * z).sum()
    gradients = wf.grad(out, (x, y))
    assert isinstance(gradients, tuple) and [g.item() for g in gradients] == [15.0, 10.0]
    assert x.grad is y.grad is z.grad is None


def test_only_the_requested_part_of_the_graph_is_differentiated() -> None:
    visited: list[str] = []
    x, y = leaf(2.0), leaf(3.0)
    a, b = x * 2, y * 3
    a.register_hook(lambda g: visited.append("a"))
    b.register_hook(lambda g: visited.append("b"))
    wf.grad((a * b).sum(), (x,))
    assert visited == ["a"]


def test_independent_graphs_mix_without_synchronisation() -> None:
    """Threads record at the same time; no tape is shared, so none of them waits for, or sees, another one's ops."""
    barrier, results = threading.Barrier(4), {}

    def work(n: int) -> None:
        x = leaf(float(n))
        y = x
        for _ in range(30):
            barrier.wait(30)
            y = y * x
        results[n] = wf.grad(y.sum(), (x,))[0].item()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {n: pytest.approx(31.0 * n**30) for n in range(1, 5)}


def test_dead_parts_of_the_graph_are_freed_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0)
        kept = x * 2
        dead = wf.exp(kept)
        reference = weakref.ref(dead)
        other = kept + 1
        del dead
        assert reference() is None, "an op whose result nobody holds is not kept by a global tape"
        other.sum().backward()
    finally:
        gc.enable()
    assert x.grad is not None and x.grad.item() == 2.0


def test_a_saved_output_makes_no_reference_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(0.5)
        y = wf.tanh(x)  # its rule saves its own output
        node, value = weakref.ref(y.grad_fn), weakref.ref(y)
        del y
        assert node() is None and value() is None
    finally:
        gc.enable()


def test_vector_jacobian_products_of_a_function_with_several_outputs() -> None:
    x = wf.tensor([1.0, 2.0, 3.0], dtype=wf.float64)
    vectors = (wf.tensor([1.0, 0.0, 2.0], dtype=wf.float64), wf.tensor(3.0, dtype=wf.float64))
    _, pull = wf.vjp(lambda x: (x * x, x.sum()), x)
    got = pull(vectors)
    (got,) = got if isinstance(got, tuple) else (got,)
    assert got.tolist() == [2 * 1 + 3, 3, 2 * 2 * 3 + 3]


def test_forward_and_reverse_mode_agree() -> None:
    def f(x: wf.Tensor) -> wf.Tensor:
        return wf.sin(x) * x.sum()

    x, v = wf.tensor([0.3, -1.0, 2.0], dtype=wf.float64), wf.tensor([1.0, 2.0, -1.0], dtype=wf.float64)
    jacobian = wf.jacobian(f, x)
    _, forward = wf.jvp(f, (x,), (v,))
    np.testing.assert_allclose(forward, jacobian.numpy() @ v.numpy(), rtol=1e-12)


def test_excluded_subgraphs_cost_nothing() -> None:
    model, head = nn.Linear(4, 4), nn.Linear(4, 1)
    for p in model.parameters():
        p.requires_grad_(False)  # frozen layers
    features = model(wf.ones(2, 4))
    assert features.grad_fn is None, "nothing was recorded for them"
    head(features).sum().backward()
    assert model.weight.grad is None and head.weight.grad is not None
    x = leaf(3.0)
    with wf.no_grad():
        assert (x * x).grad_fn is None
    ((x * x).detach() * x).sum().backward()
    assert x.grad is not None and x.grad.item() == 9.0


def test_a_custom_function_is_a_forward_and_a_backward() -> None:
    class Clipped(wf.autograd.Function):
        """exp whose gradient is clipped."""

        @staticmethod
        def forward(ctx: Any, x: wf.Tensor) -> wf.Tensor:
            y = wf.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: wf.Tensor) -> wf.Tensor:
            (y,) = ctx.saved_tensors
            return wf.clip(g * y, -1.0, 1.0)

    x = leaf(0.0, 5.0, -2.0)
    (Clipped.apply(x) * 1.0).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad, [1.0, 1.0, np.exp(-2)])


def test_in_place_mutation_is_differentiated() -> None:
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y[1] = 0.0
    y += x
    y.mul_(3.0)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [9, 3, 9]


def test_a_version_counter_refuses_a_saved_value_that_was_overwritten() -> None:
    x = leaf(1.0, 2.0)
    y = wf.exp(x)  # saves y
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="in place|overwritten|modified"):
        y.sum().backward()


def test_derivatives_are_exact_where_differences_are_not() -> None:
    x, step = 1e3, 1e-6
    (slope,) = wf.grad(wf.sin(v := leaf(x)).sum() * 1e6, (v,))
    exact = np.cos(x) * 1e6
    differences = (np.sin(x + step) - np.sin(x - step)) / (2 * step) * 1e6
    assert abs(slope.item() - exact) <= 1e-9 * abs(exact) < abs(differences - exact)


def test_gradients_are_tensors_that_can_be_differentiated() -> None:
    x = leaf(2.0)
    (first,) = wf.grad((x**4).sum(), (x,), create_graph=True)
    (second,) = wf.grad(first.sum(), (x,))
    assert (first.item(), second.item()) == (32.0, 48.0)


def test_core_ops_have_gradient_formulas_that_match_differences() -> None:
    x = wf.randn(4, 5, dtype=wf.float64)
    w = wf.randn(5, 3, dtype=wf.float64)
    image, kernel = wf.randn(1, 2, 5, 5, dtype=wf.float64), wf.randn(3, 2, 3, 3, dtype=wf.float64)
    for fn, inputs in (
        (lambda x, w: wf.softmax(x @ w, axis=1), (x, w)),
        (lambda x: wf.relu(x).sum(axis=0), (x,)),
        (lambda image, kernel: wf.conv2d(image, kernel), (image, kernel)),
        (lambda x: nn.functional.batch_norm(x, None, None, training=True), (x,)),
        (lambda x: wf.clip(x, -0.5, 0.5) * x, (x,)),
    ):
        assert wf.gradcheck(fn, tuple(v.detach().requires_grad_() for v in inputs))


def test_gradient_clipping_bounds_the_norm() -> None:
    model = nn.Linear(3, 1)
    (model(wf.full((2, 3), 100.0)) ** 2).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norm = sum(float((p.grad**2).sum().item()) for p in model.parameters() if p.grad is not None) ** 0.5
    assert norm == pytest.approx(1.0, rel=1e-4)
