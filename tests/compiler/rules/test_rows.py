"""Kernels on rows of a table: sums of repeated rows, rows that catch up, blocks of wide rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.ops.internal.table_rows import row_chain, row_places

ROWS = 40


def table_of(width: int, dtype: Any) -> nn.Embedding:
    table = nn.Embedding(ROWS, width, sparse=True, dtype=dtype)
    with wf.no_grad():
        table.weight.copy_(wf.asarray(np.random.default_rng(0).standard_normal((ROWS, width)).astype(dtype)))
    return table


def training(table: nn.Embedding, opt: Any, joined: bool = False) -> Any:
    def step(index: wf.Tensor, goal: wf.Tensor) -> wf.Tensor:
        rows = table(index)
        if joined:  # the gradient arrives as a slice of wider rows
            rows = wf.concat([rows, rows[:, :3] * 2], axis=1)
        loss = ((rows - goal[:, : rows.shape[1]]) ** 2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step


def batches(n: int, width: int, dtype: Any) -> list[tuple[wf.Tensor, wf.Tensor]]:
    rng = np.random.default_rng(1)
    return [
        (wf.asarray(rng.integers(0, ROWS // 2, 16)), wf.asarray(rng.standard_normal((16, width)).astype(dtype)))
        for _ in range(n)
    ]


@pytest.mark.parametrize("width,joined", [(1, False), (3, True), (64, False), (64, True), (70, False), (200, True)])
def test_rows_that_are_named_several_times_get_the_sum_of_their_gradients(width: int, joined: bool) -> None:
    found = []
    for captured in (False, True):
        table = table_of(width, np.float64)
        step = training(table, optim.SparseAdam(table.parameters(), lr=0.05), joined)
        run = wf.function(step) if captured else step
        for batch in batches(5, width + 3, np.float64):
            run(*batch)
        found.append(table.weight.detach().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("width", [1, 64, 70, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_deferred_rows_of_any_width_have_the_bits_of_the_dense_update(width: int, dtype: Any) -> None:
    found = []
    for deferred in (False, True):
        table = table_of(width, dtype)
        opt = optim.Adam(table.parameters(), lr=0.05, deferred=deferred)
        step = wf.function(training(table, opt))
        for batch in batches(12, width, dtype):
            step(*batch)
        state = opt.state_dict()["state"][0]
        found.append([x.detach().numpy().copy() for x in (table.weight, state["exp_avg"], state["exp_avg_sq"])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_updates_in_one_program_each_start_from_where_the_table_is() -> None:
    found = []
    for deferred in (False, True):
        table = table_of(4, np.float32)
        opt = optim.Adam(table.parameters(), lr=0.05, deferred=deferred)
        once = training(table, opt)

        @wf.function
        def twice(index: wf.Tensor, goal: wf.Tensor, once: Any = once) -> wf.Tensor:
            return once(index, goal) + once(index, goal * 2)

        for batch in batches(6, 4, np.float32):
            twice(*batch)
        found.append(table.weight.detach().numpy().copy())
    np.testing.assert_array_equal(*found)


def test_chains_go_through_the_positions_of_a_row_in_order() -> None:
    index = np.random.default_rng(3).integers(0, 9, 50)

    @wf.function
    def chain(x: wf.Tensor) -> Any:
        return row_chain(row_places(x, 9))

    times, following = (x.numpy() for x in chain(wf.asarray(index)))
    for row in np.unique(index):
        positions = list(np.flatnonzero(index == row))
        assert times[positions[0]] == len(positions)
        assert not times[positions[1:]].any()
        np.testing.assert_array_equal(following[positions], [*positions[1:], 50])
