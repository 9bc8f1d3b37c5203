"""Updates of the rows a gradient names: PyTorch's numbers, native when captured, and nothing of the rest of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim

INDICES = [[0, 2, 2], [1, 0, 0], [2, 3, 1], [4, 4, 4], [0, 2, 2]]

# Optimiser, settings, and the table PyTorch 2.13 has after twenty steps in double precision.
CASES: dict[str, tuple[str, dict[str, Any], list[list[float]]]] = {
    "sgd": (
        "SGD", {"lr": 0.05},
        [[0.071537498112, -0.297477438464], [-0.018575238, -0.2387223805], [0.259270391808, -0.145328099328],
         [0.45609, 0.406715], [0.3913, 0.199325], [1.5, 1.75]],
    ),
    "adagrad": (
        "Adagrad", {"lr": 0.1, "lr_decay": 0.1},
        [[-0.641978670836, -0.452208766797], [-0.242936762266, -0.214499857671], [0.199077553993, -0.055232259509],
         [0.495055343285, 0.592954420044], [0.863240517722, 1.090692913151], [1.5, 1.75]],
    ),
    "sparse adam": (
        "SparseAdam", {"lr": 0.05},
        [[-0.463393108793, -0.271145578626], [-0.168892358905, -0.206760674445], [0.308139632133, -0.21180121386],
         [0.470982611841, 0.607057950477], [0.866122381811, 1.107847056075], [1.5, 1.75]],
    ),
    "sparse adam maximize": (
        "SparseAdam", {"lr": 0.05, "betas": (0.8, 0.9), "maximize": True},
        [[-1.567470126991, -1.316851265128], [-0.864122220066, -0.416840684979], [-0.467386987628, 0.821591385572],
         [0.531040691267, 0.909651809809], [1.151972266492, 1.408918403274], [1.5, 1.75]],
    ),
}  # fmt: skip


def make(kind: str, settings: dict[str, Any], rows: int = 6, **more: Any) -> tuple[nn.Embedding, Any, Any]:
    """A table, its optimiser and a training step."""
    table = nn.Embedding(rows, 2, sparse=True, dtype=wf.float64)
    with wf.no_grad():
        table.weight.copy_(wf.arange(2.0 * rows, dtype=wf.float64).reshape(rows, 2) / 4 - 1)
    opt = getattr(optim, kind)(table.parameters(), **settings)

    def step(indices: wf.Tensor, goal: wf.Tensor) -> wf.Tensor:
        loss = ((table(indices) - goal) ** 2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return table, opt, step


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", CASES)
def test_twenty_steps_on_rows_end_where_pytorch_ends(name: str, captured: bool) -> None:
    kind, settings, expected = CASES[name]
    table, _, step = make(kind, settings)
    run = wf.function(step) if captured else step
    goal = np.array([[0.3, -0.2]])
    for t in range(20):
        run(wf.tensor(INDICES[t % 5]), wf.asarray(goal * (t % 3)))
    np.testing.assert_allclose(table.weight.detach().numpy(), expected, rtol=1e-9, atol=1e-11)


def test_a_captured_row_update_has_no_host_calls_and_no_sweep_over_the_table() -> None:
    rows = 5000
    table, _, step = make("SparseAdam", {}, rows)
    other = nn.Embedding(rows, 2, sparse=True)
    dense = nn.Linear(2, 2)
    both = [optim.SparseAdam(other.parameters()), optim.Adam(dense.parameters())]

    @wf.function
    def run(indices: wf.Tensor, goal: wf.Tensor) -> wf.Tensor:
        loss = dense(other(indices)).sum() + step(indices, goal).detach()
        for o in both:
            o.zero_grad()
        loss.backward()
        for o in both:
            o.step()
        return loss

    run(wf.tensor([1, 3, 1]), wf.zeros(1, 2, dtype=wf.float64))
    text = run.explain()
    assert "host calls (NumPy inside the program): none" in text
    large = [line for line in text.splitlines() if f"[{rows}, 2]" in line]
    assert len(large) == 2 and all("adam rows" in line for line in large), text


def test_other_optimisers_touch_only_their_rows_too() -> None:
    rows = 5000
    _, _, step = make("Adagrad", {}, rows)
    run = wf.function(step)
    run(wf.tensor([1, 3, 1]), wf.zeros(1, 2, dtype=wf.float64))
    text = run.explain()
    assert "host calls (NumPy inside the program): none" in text
    large = [line for line in text.splitlines() if f"[{rows}, 2]" in line]
    assert large and all("put rows" in line for line in large), text


def test_a_table_that_is_read_again_after_its_update_shows_the_new_rows() -> None:
    results = []
    for captured in (False, True):
        table, opt, step = make("SparseAdam", {"lr": 0.1})

        def run(indices: wf.Tensor, goal: wf.Tensor, step: Any = step, table: Any = table) -> Any:
            before = table.weight.detach().sum()
            step(indices, goal)
            return before, table.weight.detach() * 2, table(indices).detach()

        call = wf.function(run) if captured else run
        goal = wf.zeros(1, 2, dtype=wf.float64)
        out = [t.numpy().copy() for _ in range(2) for t in call(wf.tensor([5, 0, 5]), goal)]
        results.append([*out, table.weight.detach().numpy().copy()])
    for eager, captured_value in zip(*results, strict=True):
        np.testing.assert_allclose(captured_value, eager, rtol=1e-12)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_repeated_rows_count_once_in_the_norm_that_clips(captured: bool) -> None:
    table = nn.Embedding(4, 2, sparse=True)

    def norm(indices: wf.Tensor) -> wf.Tensor:
        table.weight.grad = None
        (table(indices) * 3.0).sum().backward()
        return nn.utils.clip_grad_norm_(table.parameters(), 1.0)

    run = wf.function(norm) if captured else norm
    # row 1 is named twice: its gradient is (6, 6), that of row 2 is (3, 3)
    assert float(run(wf.tensor([1, 2, 1]))) == pytest.approx((36 + 36 + 9 + 9) ** 0.5)


def test_a_table_looked_up_twice_gathers_both_gradients() -> None:
    results = []
    for captured in (False, True):
        wf.manual_seed(0)
        table = nn.Embedding(6, 3, sparse=True)
        opt = optim.SparseAdam(table.parameters(), lr=0.1)

        def step(a: wf.Tensor, b: wf.Tensor, table: Any = table, opt: Any = opt) -> None:
            opt.zero_grad()
            (table(a) * table(b)).sum().backward()
            opt.step()

        run = wf.function(step) if captured else step
        for _ in range(3):
            run(wf.tensor([0, 1, 1]), wf.tensor([1, 5, 5]))
        results.append(table.weight.detach().numpy().copy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_a_gradient_that_names_a_row_the_table_lacks_is_an_error(captured: bool) -> None:
    p = nn.Parameter(wf.zeros(4, 2), sparse_grad=True)
    opt = optim.SGD([p], lr=1.0)

    def step(indices: wf.Tensor) -> None:
        p.grad = wf.RowSparse(indices, wf.ones(2, 2), (4, 2), keep=True)
        opt.step()

    run = wf.function(step) if captured else step
    run(wf.tensor([0, 3]))
    with pytest.raises(IndexError):
        run(wf.tensor([0, 4]))
    np.testing.assert_array_equal(p.detach().numpy(), [[-1, -1], [0, 0], [0, 0], [-1, -1]])


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_an_embedding_has_no_row_minus_one(captured: bool) -> None:
    table = nn.Embedding(4, 2)
    run = wf.function(table) if captured else table
    run(wf.tensor([0, 3]))
    for bad in (-1, 4):
        with pytest.raises(IndexError):
            run(wf.tensor([0, bad]))
