"""Adam(deferred=True): the bits of the dense update, although a captured step touches few rows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.optim import deferred as module

ROWS, WIDTH = 60, 5


def make(deferred: bool, dtype: Any = np.float32, **settings: Any) -> tuple[nn.Embedding, optim.Adam, Any]:
    """A table, its optimiser and a captured training step."""
    rng = np.random.default_rng(0)
    table = nn.Embedding(ROWS, WIDTH, sparse=True, dtype=dtype)
    with wf.no_grad():
        table.weight.copy_(wf.asarray(rng.standard_normal((ROWS, WIDTH)).astype(dtype)))
    opt = optim.Adam(table.parameters(), lr=0.05, deferred=deferred, **settings)

    @wf.function
    def step(index: wf.Tensor) -> wf.Tensor:
        rows = table(index)
        loss = ((rows - 0.3) ** 2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return rows.detach()

    return table, opt, step


def batches(n: int, seed: int = 1) -> list[wf.Tensor]:
    rng = np.random.default_rng(seed)
    return [wf.asarray(rng.integers(0, ROWS, 4)) for _ in range(n)]


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.fixture(autouse=True)
def short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD", 16)  # so that the ring goes around several times


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_tables_and_means_have_the_bits_of_the_dense_update(dtype: Any) -> None:
    (dense, dense_opt, dense_step), (table, opt, step) = make(False, dtype), make(True, dtype)
    for t, index in enumerate(batches(50)):
        for o in (dense_opt, opt):
            o.param_groups[0]["lr"] = 0.05 / (1 + t)
            if t == 20:
                o.param_groups[0]["betas"] = (0.8, 0.99)
        same(step(index), dense_step(index))  # what a look-up sees
        if t in (7, 30):
            same(table.weight, dense.weight)  # a full read in between
    same(table.weight, dense.weight)
    for a, b in zip(opt.state_dict()["state"], dense_opt.state_dict()["state"], strict=True):
        assert sorted(a) == sorted(b)
        for key in a:
            same(a[key], b[key])


def test_a_captured_step_has_no_host_calls_and_no_sweep_over_the_table() -> None:
    _, _, step = make(True)
    step(wf.tensor([1, 2, 1]))
    text = step.explain()
    assert "host calls (NumPy inside the program): none" in text
    large = [line for line in text.splitlines() if f"float32[{ROWS}, {WIDTH}]" in line]
    assert len(large) == 1 and "adam rows" in large[0], text


def test_several_tables_are_all_updated_in_place() -> None:
    tables = [nn.Embedding(ROWS, WIDTH, sparse=True) for _ in range(3)]
    head = nn.Linear(WIDTH, 1)
    opt = optim.Adam([*(t.weight for t in tables), *head.parameters()], deferred=True)

    @wf.function
    def step(index: wf.Tensor) -> wf.Tensor:
        loss = head(tables[0](index) * tables[1](index) + tables[2](index)).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    step(wf.tensor([1, 2, 1]))
    text = step.explain()
    large = [line for line in text.splitlines() if f"float32[{ROWS}, {WIDTH}]" in line]
    assert len(large) == 3 and all("adam rows" in line for line in large), text


def test_every_way_to_read_the_table_sees_all_steps() -> None:
    (dense, _, dense_step), (table, _, step) = make(False), make(True)
    score, dense_score = (wf.function(lambda t=t: (t.weight @ wf.ones(WIDTH, 1)).sum(axis=1)) for t in (table, dense))
    find, dense_find = (wf.function(lambda i, t=t: t(i) * 2) for t in (table, dense))
    reads = [
        lambda t: t.weight.detach(),
        lambda t: t.weight[3:5] + 0,
        lambda t: t.state_dict()["weight"],
        lambda t: t(wf.tensor([[0, 59]])),
        lambda t: copy.deepcopy(t).weight,
        lambda t: wf.asarray(np.asarray(t.weight.detach())),
        lambda t: (score if t is table else dense_score)(),
        lambda t: (find if t is table else dense_find)(wf.tensor([7, 8])),
    ]
    for read, index in zip(reads, batches(len(reads)), strict=True):
        for s in (step, dense_step):
            s(index)
            s(wf.tensor([0]))
        same(read(table), read(dense))


def test_a_captured_step_may_read_the_whole_table_too() -> None:
    found = []
    for deferred in (False, True):
        table, opt, _ = make(deferred)
        ema = optim.EMA(table, 0.9)

        @wf.function
        def step(index: wf.Tensor, table: Any = table, opt: Any = opt, ema: Any = ema) -> wf.Tensor:
            logits = table(index) @ table.weight.T  # tied: a dense gradient beside the row-sparse one
            loss = (logits**2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            ema.update()
            return loss

        for index in batches(6):
            step(index)
        found.append((table.weight.detach().numpy().copy(), ema.averages[0].numpy().copy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_eager_steps_in_between_are_the_dense_ones() -> None:
    (dense, dense_opt, dense_step), (table, opt, step) = make(False), make(True)
    for t, index in enumerate(batches(30)):
        for layer, o, s in ((dense, dense_opt, dense_step), (table, opt, step)):
            if t % 7 == 3:
                o.zero_grad()
                ((layer(index) - 0.3) ** 2).sum().backward()
                o.step()
            else:
                s(index)
    same(table.weight, dense.weight)


def test_writing_to_the_table_starts_from_all_steps() -> None:
    (dense, _, dense_step), (table, _, step) = make(False), make(True)

    def halve(layer: nn.Embedding) -> Any:
        def run() -> None:
            with wf.no_grad():
                layer.weight.mul_(0.5)

        return run

    captured, dense_captured = wf.function(halve(table)), wf.function(halve(dense))
    for t, index in enumerate(batches(24)):
        step(index)
        dense_step(index)
        if t % 5 == 1:
            halve(table)()
            halve(dense)()
        if t % 5 == 3:
            captured()
            dense_captured()
    same(table.weight, dense.weight)


def test_a_run_resumes_from_its_state_dicts() -> None:
    whole, whole_opt, whole_step = make(True)
    table, opt, step = make(True)
    for index in batches(9):
        whole_step(index)
        step(index)
    fresh, fresh_opt, fresh_step = make(True)
    fresh.load_state_dict(table.state_dict())
    fresh_opt.load_state_dict(opt.state_dict())
    for index in batches(12, seed=4):
        whole_step(index)
        fresh_step(index)
    same(fresh.weight, whole.weight)
    same(fresh_opt.state_dict()["state"][0]["exp_avg"], whole_opt.state_dict()["state"][0]["exp_avg"])


def test_another_memory_makes_it_an_ordinary_parameter() -> None:
    (dense, _, dense_step), (table, _, step) = make(False), make(True)
    for index in batches(5):
        step(index)
        dense_step(index)
    table.share_memory()
    assert type(table.weight) is nn.Parameter
    for index in batches(5, seed=3):
        step(index)
        dense_step(index)
    same(table.weight, dense.weight)


def test_another_optimiser_and_a_copy_start_from_all_steps() -> None:
    dense, _, dense_step = make(False)
    table, opt, step = make(True)
    for index in batches(5):
        step(index)
        dense_step(index)
    twin, twin_opt = copy.deepcopy((table, opt))
    same(twin.weight, dense.weight)
    same(twin_opt.state_dict()["state"][0]["exp_avg"], opt.state_dict()["state"][0]["exp_avg"])
    for layer in (table, dense):
        other = optim.Adam(layer.parameters(), lr=0.1, deferred=layer is table)

        @wf.function
        def go(index: wf.Tensor, layer: Any = layer, other: Any = other) -> None:
            other.zero_grad()
            (layer(index) ** 2).sum().backward()
            other.step()

        for index in batches(5, seed=8):
            go(index)
    same(table.weight, dense.weight)


def test_what_it_is_not_for_is_an_error() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    for settings in ({"weight_decay": 0.1}, {"amsgrad": True}, {"lazy": True}):
        with pytest.raises(ValueError, match="deferred needs weight_decay=0, amsgrad=False and lazy=False"):
            optim.Adam(table.parameters(), deferred=True, **settings)
    with pytest.raises(ValueError, match="deferred is for embeddings with sparse=True"):
        optim.Adam(nn.Linear(2, 2).parameters(), deferred=True)
