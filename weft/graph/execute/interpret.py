"""Run nodes one at a time on arrays, without compiling them: the reference for compiled programs.

Serves the naive executor, steps too small to be worth a program, and nodes whose sizes depend on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.core import define
from ...runtime.interrupts import watched
from ...tensor import wrap
from ..capture.control_flow import ControlOp
from ..capture.subgraph import Sub
from ..declared.building import NO_OP
from ..declared.deferred_nodes import DeferredOp
from ..declared.variables import ReadOp, WriteOp, locked
from ..graph import Node, Value, replay
from .leases import note_effects

ndarray = np.ndarray
Arrays = tuple[Any, ...]
_PLAIN = (ValueError, TypeError, IndexError, RuntimeError, OverflowError, ZeroDivisionError, NotImplementedError)


def located(error: BaseException, node: Node) -> BaseException:
    """`error` with the node's name and the user's line in its message (once)."""
    if getattr(error, "located", False):
        return error
    text = f"In node {node.name!r}, made at {node.where}."
    if type(error) in _PLAIN or isinstance(error, RuntimeError) and type(error).__module__.startswith("weft.graph"):
        made: BaseException = type(error)(f"{error} {text}")
        made.__cause__ = error.__cause__
    else:
        error.add_note(text)
        made = error
    made.located = True  # type: ignore[attr-defined]
    return made


def run_node(node: Node, inputs: Sequence[Any], reference: bool = False) -> Arrays:
    """The outputs of one node on arrays (None for a missing optional input); `reference`: by NumPy kernels only."""
    op = node.op
    try:
        if isinstance(op, ControlOp):
            return _control(op, inputs)
        if isinstance(op, DeferredOp):
            return op.run(inputs, reference)
        if hasattr(op, "run") and not hasattr(op, "merge"):
            outputs: Arrays = op.run(inputs)
            if op.effects:
                note_effects([op])
            return outputs
        with define.suspended():
            out = (reference_kernel if reference else define.compute)(op, inputs, node.attrs)
    except Exception as error:
        raise located(error, node) from error.__cause__
    return out if isinstance(out, tuple) else (out,)


def run_alone(node: Node, inputs: Sequence[Any], reference: bool = False) -> Sequence[Any]:
    """The outputs of one node that is a unit by itself; reads and writes take the locks of their state."""
    op = node.op
    if op is NO_OP:
        return ()
    if op.__class__ is ReadOp:
        with locked([op.state], []):
            return [np.array(op.state.tensor._data)]
    if op.__class__ is WriteOp:
        with locked([op.state], [op.state]), define.suspended():
            try:
                new = op.apply(wrap(np.array(op.state.tensor._data)), [wrap(a) for a in inputs])._data
            except Exception as error:
                raise located(error, node) from error.__cause__
            op.state.store(new)  # everything that can fail has been computed
            note_effects([op])
            return [np.array(new)]
    return run_node(node, inputs, reference)


def reference_kernel(op: Any, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    if op.expression is not None:
        wanted = define.elementwise_dtypes(op, inputs)
        return define.plain_elementwise(op, [define.cast_data(a, w) for a, w in zip(inputs, wanted, strict=True)])
    arrays = define.promoted(op, inputs)
    if op.widens and define.any_short(arrays):
        return define.run_in_float32(op, arrays, attrs, lambda wide: reference_kernel(op, wide, attrs))
    values = op.merge(arrays, attrs)
    if op.infer is not None:
        op.run(op.infer, values)
    with np.errstate(all="ignore"):
        return define.as_arrays(op.run(op.fn, values))


def run_sub(sub: Sub, formals: Sequence[Any], captured: Sequence[Any]) -> list[Any]:
    """The results of a subgraph on arrays."""
    env: dict[Value, Any] = dict(zip([*sub.formals, *sub.graph.entries], [*formals, *captured], strict=True))
    replay(sub.graph.nodes, env, lambda array: array, run_node)
    return [env[v] for v in sub.outputs]


def _captured(op: ControlOp, sub: Sub, arrays: Sequence[Any]) -> list[Any]:
    """Of the arrays of all surrounding tensors, those that `sub` uses."""
    at = {id(t): a for t, a in zip(op.facts["outer"], arrays, strict=True)}
    return [at[id(t)] for t in sub.captured]


def _control(op: ControlOp, inputs: Sequence[Any]) -> Arrays:
    if op.kind == "cond":
        count = 1 + op.facts["operands"]
        sub = op.subs[0] if bool(inputs[0]) else op.subs[1]
        return tuple(run_sub(sub, inputs[1:count], _captured(op, sub, inputs[count:])))
    if op.kind == "while":
        count = op.facts["operands"]
        test, body = op.subs
        outer_test, outer_body = _captured(op, test, inputs[count:]), _captured(op, body, inputs[count:])
        state = list(inputs[:count])
        run = watched.by
        while bool(np.all(run_sub(test, state, outer_test)[0])):
            if run is not None:
                run.check()
            state = run_sub(body, state, outer_body)
        return tuple(state)
    return _scan(op, inputs)


def _scan(op: ControlOp, inputs: Sequence[Any]) -> Arrays:
    (body,) = op.subs
    facts = op.facts
    carries = facts["carry"]
    carry, xs = list(inputs[:carries]), inputs[carries : carries + facts["xs"]]
    n = scan_length(facts["n"], [len(x) for x in xs])
    outer = _captured(op, body, inputs[carries + facts["xs"] :])
    ys: list[list[Any]] = [[None] * n for _ in range(facts["ys"])]
    kept: list[list[Any]] = [[None] * n for _ in range(carries)]
    for t in reversed(range(n)) if facts["reverse"] else range(n):
        for row, c in zip(kept, carry, strict=True):
            row[t] = c
        results = run_sub(body, [*carry, *[x[t] for x in xs]], outer)
        carry = results[:carries]
        for row, y in zip(ys, results[carries:], strict=True):
            row[t] = y
    rows = [*body.outputs[carries:], *(body.formals[:carries] if facts["keep"] else [])]
    stacked = [stack_rows(r) if n else _no_rows(v) for r, v in zip([*ys, *kept], rows, strict=False)]
    return (*carry, *stacked)


def stack_rows(rows: Sequence[ndarray]) -> ndarray:
    """The rows of a scan as one array."""
    shapes = {r.shape for r in rows}
    if len(shapes) > 1:
        raise ValueError(
            "scan: what is stacked, or kept for the gradient of a loop, must have one shape in all iterations. "
            f"Got shapes {sorted(shapes)}."
        )
    return np.stack(rows)


def scan_length(n: int | None, lengths: Sequence[int]) -> int:
    """The number of iterations of a scan, which may be known only now."""
    found = {*lengths, *([n] if n is not None else [])}
    if len(found) != 1:
        raise ValueError(f"scan: all xs must be equally long along axis 0. Got lengths {sorted(found)}.")
    return found.pop()


def _no_rows(row: Value) -> ndarray:
    return np.empty((0, *[d if isinstance(d, int) else 0 for d in row.shape or ()]), row.dtype)
