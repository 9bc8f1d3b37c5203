"""Functionalize writes inside branches and loop bodies.

A subgraph cannot write to memory: the number of its runs is not known at trace time. So control flow first traces its
functions unchanged and collects their writes. If there are any, it is traced again with functions that take every written
tensor as a further operand (of a loop: as part of the state) and return its last value, which then replaces the tensor's
value in the surrounding graph. Gradients need nothing more: these functions are pure.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.tape import no_grad
from ...autograd.tree import unflatten
from ...ops.core.define import View
from ...ops.core.inplace import refresh_views, replace, writer_of
from ...tensor import Tensor, wrap
from .subgraph import Sub
from .tracing import Uncapturable, capturing, undoing


class Effects:
    """The writes of one control-flow op: to operands (by number, `written`) and outer tensors (`tensors`)."""

    def __init__(self, what: str, subs: Sequence[Sub], leaves: Sequence[Any]) -> None:
        self.what, self.leaves = what, list(leaves)
        found = {id(e): e for sub in subs for e in sub.effects}
        self.tensors: list[Tensor] = list(found.values())
        self.written = sorted({i for sub in subs for i in sub.writes})
        self._recorded = {i for sub in subs for i in sub.recorded_effects}
        self._recorded_writes = {i for sub in subs for i in sub.recorded_writes}
        if self:
            self._check_names(subs)

    def __bool__(self) -> bool:
        return bool(self.tensors or self.written)

    def _check_names(self, subs: Sequence[Sub]) -> None:
        """Check that a written tensor is reached in one way only: as an operand or as an outer tensor."""
        operands = [id(root_of(t)) for t in self.leaves if isinstance(t, Tensor)]
        written = {id(t) for t in self.tensors}
        outer = {id(root_of(t)) for sub in subs for t in sub.captured} | written
        for i in self.written:
            t = self.leaves[i]
            if isinstance(t, Tensor) and (operands.count(id(root_of(t))) > 1 or id(root_of(t)) in outer):
                written.add(id(root_of(t)))
                operands.append(id(root_of(t)))
                break
        if written.intersection(operands):
            raise Uncapturable(f"a {self.what} writes to an operand that it also knows by another name", "")

    def operands(self) -> list[Tensor]:
        """The outer tensors, with their current values."""
        return copies(self.tensors)

    def pure(self, fn: Callable[..., Any], structure: Any, finals: bool = True) -> Callable[..., Any]:
        """`fn` of leaves and outer tensors, without effects: returns (its result, last values of tensors and of operands)."""
        count = len(self.leaves)

        def run(*values: Any) -> Any:
            mode = capturing()
            assert mode is not None
            with undoing(mode.graph):
                own = list(values[:count])
                for i in self.written:
                    own[i] = wrap(own[i]._data, own[i]._node)
                for e, t in zip(self.tensors, values[count:], strict=True):
                    _assume(e, t, mode)
                result = fn(*unflatten(structure, own)) if structure is not None else fn(*own)
                if not finals:
                    return result
                last = [wrap(mode.graph.current(e), e._node) for e in self.tensors]
                return result, last, [wrap(own[i]._data, own[i]._node) for i in self.written]

        return run

    def apply(self, tensors: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        """Write the results into the surrounding program."""
        for e, new in zip(self.tensors, tensors, strict=True):
            _write(e, new, id(e) in self._recorded)
        for i, new in zip(self.written, operands, strict=True):
            if isinstance(self.leaves[i], Tensor):
                _write(self.leaves[i], new, i in self._recorded_writes)


def _assume(e: Tensor, t: Tensor, mode: Any) -> None:
    """Let `e` and its views stand for the value of `t`, as if it had been written."""
    mode.graph.touch(e)
    mode.graph.copy_layout(e._data, t._data)
    if e.is_symbolic:
        e._data = t._data
    else:
        mode.graph.hold_value(e, t._data)
    e._node = t._node
    refresh_views(e, mode, e, e)


def _write(e: Tensor, new: Tensor, recorded: bool) -> None:
    writer = writer_of(e)
    assert writer is not None  # `e` is symbolic, or a capture is in progress
    if recorded:
        replace(e, new, writer)
        return
    with no_grad():
        replace(e, wrap(new._data), writer)


def root_of(t: Tensor) -> Tensor:
    view = getattr(t, "_view", None)
    return view.base if view.__class__ is View and t.is_symbolic else t


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors with the values and histories that `tensors` have now, and will keep."""
    graph = capturing().graph  # type: ignore[union-attr]
    return [wrap(graph.current(t), t._node) for t in tensors]


def restore_aliases(results: list[Tensor], subs: Sequence[Sub], leaves: Sequence[Any]) -> list[Any]:
    """Replace results that are an operand or outer tensor itself, in every branch, by that tensor.

    For others that may share memory with one, the graph records that sharing depends on data.
    """
    sources = [[_outer(s, leaves) for s in sub.sources] for sub in subs]
    made: list[Any] = []
    for k, result in enumerate(results):
        found = [per_sub[k] for per_sub in sources]
        tensors = {id(s[0]) for s in found if s is not None}
        if all(s is not None and s[1] for s in found) and len(tensors) == 1:
            made.append(found[0][0])
            continue
        for s in found:
            if s is not None:
                entangle(result, s[0])
        made.append(result)
    return made


def _outer(source: Any, leaves: Sequence[Any]) -> Any:
    if source is None or not isinstance(source[0], int):
        return source
    leaf = leaves[source[0]]
    return (leaf, source[1]) if isinstance(leaf, Tensor) else None


def entangle(result: Any, source: Any) -> None:
    """Remember that `result` may be memory of `source`."""
    mode = capturing()
    if mode is not None and mode.graph.separates and isinstance(result, Tensor) and isinstance(source, Tensor):
        mode.graph.entangled.append((weakref.ref(result), weakref.ref(root_of(source))))


class values_at_recording:
    """While entered, outer tensors stand for the values they had when a control-flow op was recorded.

    Its gradient runs its functions again (Note [Recomputation]); the program may have written to the tensors since.
    """

    def __init__(self, pinned: Sequence[tuple[Tensor, Any, Any]]) -> None:
        self._pinned = pinned
        self._undoing: Any = None

    def __enter__(self) -> None:
        mode = capturing()
        if mode is None:
            return
        changed = [
            (t, v, n) for t, v, n in self._pinned if mode.graph.current(t) is not v and v.node.graph is mode.graph
        ]
        if changed:
            self._undoing = undoing(mode.graph)
            self._undoing.__enter__()
            for t, value, node in changed:
                mode.graph.pin(t, value)
                t._node = node

    def __exit__(self, *exc: Any) -> None:
        if self._undoing is not None:
            self._undoing.__exit__(*exc)
