"""Infer the results of nodes that are read from untrusted graph files, and compare them with the file.

Compiled programs plan memory by the shapes and dtypes of values. So when a node is read from a file its results are inferred
again by the rules that declare such a node, and what the file says of them only has to agree. Errors are ValueErrors and
TypeErrors (and whatever a shape rule raises); the reader of the file adds the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...autograd.tree import flatten
from ...ops.core.define import check_kind, elementwise_dtypes
from ...ops.core.registry import Op
from ...ops.core.spec import Spec, same_size
from ..capture.control_flow import ControlOp
from ..capture.subgraph import Sub
from ..graph import CONSTANT, PLACEHOLDER, Value, ndarray
from .building import NO_OP, IterationNumbers
from .deferred_nodes import DeferredCall, DeferredGradient, DeferredOp, DeferredRule, Place
from .queues import _BarrierOp, _QueueOp
from .routing import RoutingOp
from .variables import ReadOp, WriteOp

_OPERANDS = {"assign": 1, "assign_add": 1, "assign_sub": 1, "scatter_add": 2}


def results(op: Any, inputs: Sequence[Any], attrs: tuple[Any, ...], stored: Sequence[Spec]) -> list[Spec]:
    """The specs of the results of a node with these inputs; `stored` is what the file says of them."""
    found = _results(op, inputs, attrs, stored)
    if len(found) != len(stored):
        raise ValueError(f"it has {len(found)} results, the file says {len(stored)}.")
    for i, (made, said) in enumerate(zip(found, stored, strict=True)):
        if made.dtype != said.dtype or not may_be(made.shape, said.shape):
            raise ValueError(f"result {i} is {made}, the file says {said}.")
    return found


def _results(op: Any, inputs: Sequence[Any], attrs: tuple[Any, ...], stored: Sequence[Spec]) -> list[Spec]:
    if isinstance(op, Op):
        return _inferred(op, inputs, attrs)
    if op is CONSTANT:
        _count(inputs, 0)
        if len(attrs) != 1 or not isinstance(attrs[0], ndarray):
            raise ValueError("a constant is one array.")
        return [Spec(attrs[0].shape, attrs[0].dtype)]
    if attrs:
        raise ValueError(f"expected no attributes. Got {len(attrs)}.")
    if isinstance(op, DeferredOp):
        _check_deferred(op, inputs)
        return list(op.specs)
    if any(not isinstance(v, Value) for v in inputs):
        raise ValueError("expected results of nodes as inputs.")
    if op is PLACEHOLDER:
        _count(inputs, 0)
        if len(stored) != 1:
            raise ValueError("a placeholder has one result.")
        return list(stored)
    if isinstance(op, IterationNumbers):
        _count(inputs, 1)
        _fits(Spec((), dtypes.int64), inputs[0])
        return [Spec((None,), dtypes.int64)]
    if isinstance(op, (ReadOp, WriteOp)):
        if isinstance(op, WriteOp):
            _check_write(op, inputs)
        else:
            _count(inputs, 0)
        return [Spec(op.state.tensor.shape, op.state.tensor.dtype)]
    if isinstance(op, ControlOp):
        return _CONTROL[op.kind](op, inputs)
    if isinstance(op, RoutingOp):
        return _routing(op, inputs)
    if isinstance(op, _QueueOp):
        return _queue(op, inputs)
    if (rule := getattr(op, "results_of", None)) is not None:  # ops of steps, which no graph file has
        found: list[Spec] = rule([Spec(v.shape, v.dtype) for v in inputs], stored)
        return found
    if not (op is NO_OP or isinstance(op, _BarrierOp) or op.name in ("save_variables", "restore_variables")):
        raise ValueError(f"{op.name}: no rule says what it gives.")
    _count(inputs, 0)
    return []


def may_be(a: Any, b: Any) -> bool:
    """Whether two shapes, with perhaps unknown sizes, may be the same."""
    return a is None or b is None or len(a) == len(b) and all(map(same_size, a, b))


def _covers(general: Any, shape: Any) -> bool:
    """Whether every array of `shape` is one of `general`."""
    if general is None:
        return True
    if shape is None or len(general) != len(shape):
        return False
    return all(d is None or d == e for d, e in zip(general, shape, strict=True))


def _fits(wanted: Any, given: Any) -> None:
    if wanted.dtype != given.dtype or not _covers(wanted.shape, given.shape):
        raise ValueError(f"expected {Spec(wanted.shape, wanted.dtype)}. Got {Spec(given.shape, given.dtype)}.")


def _count(inputs: Sequence[Any], expected: int) -> None:
    if len(inputs) != expected:
        raise ValueError(f"expected {expected} inputs. Got {len(inputs)}.")


# Ops of the table -----------------------------------------------------------------------------------------------------


def _inferred(op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> list[Spec]:
    """As `Graph.emit`, which has cast the operands already."""
    if op.infer is None and op.expression is None:
        raise ValueError(f"op {op.name!r} is composed of others and is no node.")
    if len(attrs) != len(op.attr_names):
        raise ValueError(f"op {op.name!r} has {len(op.attr_names)} attributes. Got {len(attrs)}.")
    if not op.variadic:
        _count(inputs, len(op.tensor_slots))
    for i, v in enumerate(inputs):
        if not isinstance(v, Value) and not (v is None and i in op.optional):
            raise ValueError(f"op {op.name!r} needs a tensor as input {i}.")
    wanted: Sequence[Any] = [None] * len(inputs)
    if op.expression is not None:
        wanted = elementwise_dtypes(op, inputs)
    elif op.promote is not None:
        wanted = [check_kind(op, op.promote, dtypes.result_type(*[v for v in inputs if v is not None]))] * len(inputs)
    for i, (v, dtype) in enumerate(zip(inputs, wanted, strict=True)):
        if v is not None and dtype is not None and v.dtype != dtype:
            raise TypeError(f"op {op.name!r} needs {dtype.name} as input {i}. Got {v.dtype.name}.")
    assert op.infer is not None
    found = op.run(op.infer, op.merge(inputs, attrs))
    return [Spec(s.shape, s.dtype) for s in (found if isinstance(found, (tuple, list)) else (found,))]


# Deferred nodes -----------------------------------------------------------------------------------------------------------


def _check_deferred(op: DeferredOp, inputs: Sequence[Any]) -> None:
    """Check the operands of a deferred node; its results are checked when it is expanded."""
    count = len(inputs)
    while isinstance(op, DeferredGradient):
        count -= len(op.of.specs)
        _check_wanted(op, inputs, count)
        op = op.of
    if isinstance(op, DeferredRule):
        rest = count - op.count  # outputs and their gradients
        wrong = rest < 2 or rest % 2 if op.op.num_outputs is None else rest != 2 * op.op.num_outputs
        if wrong or len(op.op_attrs) != len(op.op.attr_names):
            raise ValueError(f"the gradient of {op.op.name!r} does not have these inputs and attributes.")
        if not op.op.differentiable or op.op.composite:
            raise ValueError(f"op {op.op.name!r} has no gradient rule.")
        _check_wanted(op, inputs, op.count)
        return
    assert isinstance(op, DeferredCall)
    places = [v.index for v in flatten(op.arguments)[0] if isinstance(v, Place)]
    if op.draws > count or any(i >= count - op.draws for i in places):
        raise ValueError("an argument stands for an input that is not there.")


def _check_wanted(op: DeferredRule | DeferredGradient, inputs: Sequence[Any], count: int) -> None:
    if len(op.wanted) != len(op.specs) or len(set(op.wanted)) != len(op.wanted):
        raise ValueError(f"expected one result for each wanted gradient. Got {len(op.specs)} for {len(op.wanted)}.")
    for i in op.wanted:
        if i >= count or not isinstance(inputs[i], Value) or not dtypes.is_inexact(inputs[i].dtype):
            raise ValueError(f"there is no gradient with respect to input {i}.")


# Subgraphs ------------------------------------------------------------------------------------------------------------


def check_sub(sub: Sub, captured: Sequence[Any]) -> None:
    """Check that a subgraph's placeholders are its formals and captured values, each once."""
    entries = [*sub.formals, *sub.graph.entries]
    if len({id(v) for v in entries}) != len(entries) or any(v.node.op is not PLACEHOLDER for v in entries):
        raise ValueError("formals and captured values must be placeholders, each once.")
    if sum(n.op is PLACEHOLDER for n in sub.graph.nodes) != len(entries):
        raise ValueError("a placeholder is neither a formal nor a captured value.")
    if len(sub.graph.entries) != len(captured):
        raise ValueError(f"it captures {len(captured)} values, for which it has {len(sub.graph.entries)} placeholders.")
    for entry, outer in zip(sub.graph.entries, captured, strict=True):
        _fits(entry, outer)


def _check_write(op: WriteOp, inputs: Sequence[Any]) -> None:
    if op.sub is None:
        _count(inputs, _OPERANDS[op.kind])
        return
    if len(op.sub.formals) != 1 or len(op.sub.outputs) != 1:
        raise ValueError("assign_fn needs a function of one value with one result.")
    _count(inputs, len(op.sub.captured))
    _fits(op.sub.formals[0], Spec(op.state.tensor.shape, op.state.tensor.dtype))


def _operands(op: ControlOp, inputs: Sequence[Any], first: int, count: int) -> list[Any]:
    """The inputs that a control-flow node gives to its subgraphs, and that these take them."""
    _count(inputs, first + count + len(op.facts["outer"]))
    given = list(inputs[first : first + count])
    for sub in op.subs:
        if len(sub.formals) != count:
            raise ValueError(f"a branch or body takes {len(sub.formals)} values. Got {count}.")
    return given


def _cond(op: ControlOp, inputs: Sequence[Any]) -> list[Spec]:
    given = _operands(op, inputs, 1, op.facts["operands"])
    _fits(Spec((), dtypes.bool_), inputs[0])
    yes, no = op.subs
    for sub in (yes, no):
        for formal, value in zip(sub.formals, given, strict=True):
            _fits(formal, value)
    if len(yes.outputs) != len(no.outputs):
        raise ValueError("the branches have different numbers of results.")
    return [_common(a, b) for a, b in zip(yes.outputs, no.outputs, strict=True)]


def _common(a: Any, b: Any) -> Spec:
    if a.dtype != b.dtype:
        raise ValueError(f"the branches give {a.dtype.name} and {b.dtype.name}.")
    if a.shape is None or b.shape is None:
        return Spec(None, a.dtype)
    if not may_be(a.shape, b.shape):
        raise ValueError(f"the branches give {Spec(a.shape, a.dtype)} and {Spec(b.shape, b.dtype)}.")
    return Spec(tuple([d if d == e else None for d, e in zip(a.shape, b.shape, strict=True)]), a.dtype)


def _while(op: ControlOp, inputs: Sequence[Any]) -> list[Spec]:
    given = _operands(op, inputs, 0, op.facts["operands"])
    condition, body = op.subs
    if len(condition.outputs) != 1 or condition.outputs[0].size not in (1, None):
        raise ValueError("the condition of a loop must give one truth.")
    if len(body.outputs) != len(given):
        raise ValueError(f"the body gives {len(body.outputs)} values for a state of {len(given)}.")
    for test, formal, value, new in zip(condition.formals, body.formals, given, body.outputs, strict=True):
        for source in (value, new):
            _fits(test, source)
            _fits(formal, source)
    return [Spec(v.shape, v.dtype) for v in body.formals]


def _scan(op: ControlOp, inputs: Sequence[Any]) -> list[Spec]:
    facts = op.facts
    carry, n = facts["carry"], facts["n"]
    given = _operands(op, inputs, 0, carry + facts["xs"])
    (body,) = op.subs
    if len(body.outputs) != carry + facts["ys"]:
        raise ValueError(f"the body gives {len(body.outputs)} values. Expected {carry + facts['ys']}.")
    if n is None and not facts["xs"]:
        raise ValueError("nothing says how often the body runs.")
    for formal, value, new in zip(body.formals[:carry], given[:carry], body.outputs[:carry], strict=True):
        _fits(formal, value)
        _fits(formal, new)
    for formal, value in zip(body.formals[carry:], given[carry:], strict=True):
        shape = value.shape
        if shape is not None and (not shape or not same_size(shape[0], n)):
            raise ValueError(f"{Spec(shape, value.dtype)} has no {n} slices.")
        _fits(formal, Spec(None if shape is None else shape[1:], value.dtype))
    carried = [Spec(v.shape, v.dtype) for v in body.formals[:carry]]
    rows = [*body.outputs[carry:], *(carried if facts["keep"] else ())]
    return [*carried, *[Spec(None if v.shape is None else (n, *v.shape), v.dtype) for v in rows]]


_CONTROL = {"cond": _cond, "while": _while, "scan": _scan}


# Routing ops and queues ------------------------------------------------------------------------------------------------


def _routing(op: RoutingOp, inputs: Sequence[Any]) -> list[Spec]:
    if op.routes == "merge":
        if not inputs:
            raise ValueError("merge needs an input.")
        found = Spec(inputs[0].shape, inputs[0].dtype)
        for v in inputs[1:]:
            if v.dtype != found.dtype:
                raise ValueError(f"merge needs inputs of one dtype. Got {found.dtype.name} and {v.dtype.name}.")
            found = _common(found, v) if may_be(found.shape, v.shape) else Spec(_merged(found.shape, v.shape), v.dtype)
        return [found, Spec((), dtypes.int32)]
    _count(inputs, 2 if op.routes == "switch" else 1)
    spec = Spec(inputs[0].shape, inputs[0].dtype)
    if op.routes == "switch":
        if inputs[1].dtype != dtypes.bool_ or inputs[1].size not in (1, None):
            raise ValueError("switch needs one bool.")
        return [spec, spec]
    return [spec]


def _merged(a: Any, b: Any) -> Any:
    return None if len(a) != len(b) else tuple([d if d == e else None for d, e in zip(a, b, strict=True)])


def check_loop(inputs: Sequence[Any], value: Any) -> None:
    """Check that the values `next_iteration` sends to a `merge` match the entered ones."""
    for v in inputs:
        if v.dtype != value.dtype or not may_be(v.shape, value.shape):
            raise ValueError(f"the loop's value is {Spec(value.shape, value.dtype)}. Got {Spec(v.shape, v.dtype)}.")


def _queue(op: _QueueOp, inputs: Sequence[Any]) -> list[Spec]:
    queue, many = op.queue, op.method.endswith(("_many", "_up_to"))
    if op.method.startswith("enqueue"):
        _count(inputs, len(queue.dtypes))
        for v, dtype in zip(inputs, queue.dtypes, strict=True):
            if v.dtype != dtype:
                raise ValueError(f"the queue holds {dtype.name}. Got {v.dtype.name}.")
        return []
    _count(inputs, 0)
    if op.method == "size":
        return [Spec((), dtypes.int64)]
    if not op.method.startswith("dequeue"):
        return []
    if many != (op.count is not None):
        raise ValueError(f"{op.method} of {op.count} elements.")
    size = (None if op.method == "dequeue_up_to" else op.count,) if many else ()
    return [Spec(None if s is None else (*size, *s), d) for s, d in zip(queue.shapes, queue.dtypes, strict=True)]
