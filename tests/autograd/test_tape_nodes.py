"""The fast path makes tape nodes inline: slot by slot they equal those that `make_node` makes for the same call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.autograd.tape import Node, Output
from weft.ops.core import fast_path, slow_path
from weft.ops.core.registry import Op, table
from weft.ops.core.samples import Maker
from weft.ops.core.spec import Spec, spec_of

COMPARED = set(Node.__slots__) - {"__weakref__", "since", "seq", "specs"}  # the last two: see `_same`


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs a call and returns its result, or None if its node was not made inline."""
    left: list[str] = []
    for name in ("call", "make_node", "finish"):
        original = getattr(fast_path, name)

        def spy(*args: Any, name: str = name, original: Any = original) -> Any:
            left.append(name)
            return original(*args)

        monkeypatch.setattr(fast_path, name, spy)

    def run(op: Op, args: Any, kwargs: Any) -> Any:
        op.call(*args, **kwargs)  # checks the signature, once
        left.clear()
        result = op.call(*args, **kwargs)
        return None if left else result

    return run


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if isinstance(a, Spec):
        return isinstance(b, Spec) and (a.shape, a.dtype) == (b.shape, b.dtype)
    return a is b or type(a) is type(b) and bool(a == b)


def _compare(fast: wf.Tensor, slow: wf.Tensor) -> None:
    a, b = fast._node, slow._node
    assert type(a) is type(b) is Node, (a, b)
    assert {s for s in Node.__slots__ if hasattr(a, s)} == {s for s in Node.__slots__ if hasattr(b, s)}
    for slot in COMPARED:
        assert _same(getattr(a, slot), getattr(b, slot)), (a, slot, getattr(a, slot), getattr(b, slot))
    assert a.seq < b.seq  # numbers of one clock
    # `specs` say what gradients are fitted to; without them the result's own shape and dtype
    result = spec_of(fast._data)
    for i, edge in enumerate(a.edges):
        if edge is not None and a.op.broadcasts:
            assert _same((a.specs or {i: result})[i], (b.specs or {i: result})[i]), (a, i, a.specs, b.specs)
    if not a.op.broadcasts:
        assert _same(a.specs, b.specs)


def _tensor(value: Any, dtype: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    t = wf.asarray(value.astype(dtype) if value.dtype.kind == "f" else value.copy())
    return t.requires_grad_() if value.dtype.kind in "fc" else t


@pytest.mark.parametrize("dtype", [wf.float32, wf.float16], ids=["float32", "float16"])
def test_inline_nodes_equal_those_of_make_node(dtype: Any, inline: Any) -> None:
    found: set[str] = set()
    for op in table.values():
        if op.composite or op.samples is None or op.variadic or not op.differentiable:
            continue
        for sample in op.samples(Maker(len(op.name))):
            args = [_tensor(a, dtype) for a in sample.args]
            kwargs = {k: _tensor(v, dtype) for k, v in sample.kwargs.items()}
            try:
                fast = inline(op, args, kwargs)
            except TypeError:
                continue  # not for this dtype
            if isinstance(fast, wf.Tensor) and fast._node is not None:
                _compare(fast, slow_path.call(op, op.bind(tuple(args), kwargs)))
                found.add(op.name)
    if dtype == wf.float32:  # one op for each place in the fast path that makes nodes, and most others
        assert {"exp", "multiply", "softmax"} <= found and len(found) > 60, sorted(found)


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (3,)), ((1,), (2, 3))])
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum"])
def test_inline_nodes_of_two_operands(name: str, shapes: Any, needs: Any, inline: Any) -> None:
    op = table[name]
    values = [wf.ones(*s).requires_grad_(need) for s, need in zip(shapes, needs, strict=True)]
    for given in (values, [values[0], 2.0] if needs[0] else values):
        fast = inline(op, given, {})
        assert fast is not None
        _compare(fast, slow_path.call(op, tuple(given)))


def test_link_gives_a_place_to_results_whose_dtype_has_gradients() -> None:
    x = wf.tensor([3.0, 1.0], requires_grad=True)
    results = (wf.zeros(2), wf.zeros(2, dtype=wf.int64), wf.zeros(2))
    node = Node("op", (x._node,), outputs=tuple([spec_of(r._data) for r in results]))
    node.link(results)
    assert [r._node.__class__ for r in results] == [Output, type(None), Output]
    assert [r._node.index for r in results if r._node is not None] == [0, 2]
    assert node.seq < results[0]._node.seq < results[2]._node.seq
