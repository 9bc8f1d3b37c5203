"""Look-ups and updates of the same rows, by the operands of the update after the pass."""

from __future__ import annotations

from typing import Any

import weft as wf
from weft import nn, optim
from weft.compiler.check_flow import check_flow
from weft.compiler.passes.catch_up_once import catch_up_once
from weft.compiler.passes.merge import merge


def updates(fn: Any) -> list[Any]:
    """What the updates of a captured function know of their rows, after the pass."""
    step = wf.function(fn)
    step(wf.tensor([1, 2, 1]))
    flow = check_flow(catch_up_once(merge(step.traces[0].flow)))
    return [n.inputs[11] for n in flow.nodes if n.op.name == "adam_rows"]


def make() -> tuple[nn.Embedding, Any]:
    table = nn.Embedding(30, 4, sparse=True)
    return table, optim.Adam(table.parameters(), deferred=True)


def learn(opt: Any, loss: wf.Tensor) -> wf.Tensor:
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss


def test_rows_that_were_looked_up_are_known_to_the_update() -> None:
    table, opt = make()
    (known,) = updates(lambda i: learn(opt, (table(i) ** 2).sum()))
    assert known.node.op.name == "caught_up" and known.index == 0 and tuple(known.shape) == (3, 4)


def test_an_update_whose_gradient_comes_from_two_look_ups_finds_its_rows_itself() -> None:
    table, opt = make()
    assert updates(lambda i: learn(opt, (table(i) * table(i + 1)).sum())) == [None]


def test_every_update_gets_the_rows_of_the_look_up_before_it() -> None:
    table, opt = make()
    first, second = updates(lambda i: learn(opt, (table(i) ** 2).sum()) + learn(opt, (table(i) ** 3).sum()))
    assert first is not None and second is not None and first.node is not second.node


def test_checks_of_one_index_are_made_once() -> None:
    table, other = make()[0], make()[0]
    step = wf.function(lambda i: table(i) + other(i))
    step(wf.tensor([1, 2, 1]))
    names = [n.op.name for n in merge(step.traces[0].flow).nodes]
    assert names.count("checked_indices") == 1
