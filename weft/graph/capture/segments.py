"""Segments: run a function that needs values in the middle as recorded parts with Python in between.

Note [Segments]. A function that reads values (`.item()`, `print`, `if` on data that cannot be rewritten, sizes that depend on
data) is run by Python at every call. Ops are not computed when they are called but recorded; where a value is needed, all that
was recorded (a *segment*) is computed at once, and recording begins anew.

* A recorded tensor has a `Value` without memory. When its segment has run, it has an array, like any other tensor: only values
  that something still refers to are computed. Views become views of the memory of their base again.
* The tape is recorded at once and refers to values; those that it saved are computed with the segment. So a backward pass may
  follow in another segment, or outside of the function.
* Tensors from outside are inputs. A write in place to one of them is recorded and stored when the segment runs. If other
  tensors or arrays may show the same memory, the segment runs first and the write is an eager one.
* Segments are recognised by their structure (ops, attributes, shapes, dtypes, what is read of them), see
  `weft.graph.capture.segment_programs`. Constants in the code belong to it; a number that changes is an input.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.tape import Leaf, Output, enable_grad, memory_of, no_grad, note_mutation, tick
from ...autograd.tape import Node as TapeNode
from ...errors import Location, user_location
from ...ops.core import inplace, recording
from ...ops.core.define import Mode, finish, operand, suspended
from ...ops.core.registry import Op
from ...ops.core.spec import is_known
from ...tensor import Tensor, set_settler, wrap
from ..graph import Graph, Node, Source, Value
from .tracing import CapturedGraph, _Again

if TYPE_CHECKING:
    from .segment_programs import SegmentPrograms

ndarray = np.ndarray
_SEGMENT = Source("segment")
_EXPORTS = (
    "numpy()",
    "conversion to a NumPy array",
    "conversion to Arrow",
    "memoryview",
    "__dlpack__",
)  # actions after which others know the memory
MAX_SNAPSHOT_ELEMENTS = 1 << 16  # of memory that Python may write to: up to this size it is copied when an op reads it
_specs: dict[Any, Any] = {}  # (op, attributes, operands) -> shapes and dtypes of the results, None: must run at once
_MAX_SPECS = 8192


class Resolved:
    """Stands for the node of a value whose segment has run: whatever still refers to the value finds its array here."""

    __slots__ = ("array",)
    name, where, device, dynamic, separates, is_lazy, open_sizes = "value", None, None, False, False, True, False
    outputs = (None,)

    def __init__(self, array: ndarray) -> None:
        self.array = array

    @property
    def graph(self) -> Resolved:
        return self

    def call(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        for t in tensors:
            heal(t)
        return op.run(op.call, op.merge(tensors, attrs))

    def refuse(self, value: Value, action: str) -> ndarray:
        return self.array

    def truth(self, value: Value, tensor: Tensor) -> bool:
        heal(tensor)
        return bool(tensor)

    def describe(self, value: Value, tensor: Tensor) -> str:
        heal(tensor)
        return repr(tensor)

    def assign(self, x: Tensor, value: Tensor) -> None:
        heal(value)

    def note_detached(self, tensor: Tensor, made: Tensor) -> None:
        heal(tensor)
        heal(made)

    def compute(self, tensor: Tensor) -> None:
        heal(tensor)

    def twin(self, g: Tensor) -> Tensor:
        return wrap(self.array.copy(), g._node)

    def deferred_call(self, *_: Any) -> None:
        return None


def heal(t: Any) -> None:
    """Give a tensor whose value was computed the array."""
    if isinstance(t, Tensor):
        node: Any = getattr(t._data, "node", None)
        if node.__class__ is Resolved:
            t._data = node.array


class Slot:
    """An array from outside that a segment reads or writes: its value on entry and, if it was written, its last value."""

    __slots__ = ("array", "source", "entry", "final")

    def __init__(self, array: ndarray, source: ndarray, entry: Value) -> None:
        self.array, self.source, self.entry = array, source, entry
        self.final: Value | None = None


class LazyGraph(CapturedGraph):
    """The segment that is being recorded. It is one object for all segments of a call; `node` belongs to one of them."""

    is_lazy = True

    def __init__(self, name: str, programs: SegmentPrograms) -> None:
        super().__init__(name)
        self.programs = programs
        self.exported: dict[int, ndarray] = {}  # owners of memory that arrays of the user show, by identity
        self.first_cut: tuple[str, Location | None] | None = None  # the action that needed a value first, and its line
        self.parts: list[tuple[int, bool]] = []  # (number of ops, whether it was compiled) of the segments so far
        self.running = False
        self.derived: dict[int, tuple[ndarray, ndarray, Op, tuple[Any, ...]]] = {}
        """arrays that are views of others, by identity: (array, the other one, how it was made)"""
        self._begin()

    def _begin(self) -> None:
        self.node = Node(self, _SEGMENT, (), (), "segment")
        self.start = tick()
        self.calls: list[tuple[Any, ...]] = []  # (op, attributes, their types, operands)
        self.scalars: list[Any] = []  # Python numbers among the operands, in order
        self.values: list[Value] = []
        self.slots: dict[int, Slot] = {}  # by identity of the array
        self.owners: dict[int, int] = {}  # identity of a memory's owner -> the number of slots in it
        self.written: dict[int, Slot] = {}  # likewise -> the slot that is written
        self.touched_nodes: list[Tensor] = []  # outside tensors that were written: their place on the tape may be new
        self.aliases: dict[int, tuple[Op, tuple[Any, ...], int]] = {}  # values that show the memory of another one
        self.work = 0
        self.alive.clear()
        self.strides.clear()
        self.families.clear()

    # Recording ---------------------------------------------------------------------------------------------------------

    def call(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        if op.observes or op.effects or self.running:
            return self.eagerly(op, tensors, attrs)
        if self.written or self.exported:
            for t in tensors:
                if isinstance(t, Tensor) and type(t._data) is ndarray:
                    owner = id(memory_of(t._data))
                    if owner in self.exported:
                        return self.eagerly(op, tensors, attrs)
                    if owner in self.written and id(t._data) not in self.slots:
                        self.flush()
                        break
        datas: list[Any] = []
        refs: list[Any] = []
        facts: list[Any] = []
        scalars: list[Any] = []
        for t in tensors:
            if isinstance(t, Tensor):
                v = t._data
                if v.__class__ is not Value or v.node is not self.node:
                    v = self.operand(t)
                datas.append(v)
                refs.append(v.index)
                facts.append((v.shape, v.dtype))
            elif t is None:
                datas.append(None)
                refs.append(None)
                facts.append(None)
            else:
                datas.append(t)
                kind = t.__class__
                if kind is float or kind is int:
                    scalars.append(t)
                    refs.append(kind)
                    facts.append(kind if kind is float else (kind, t))
                else:
                    refs.append((kind, t))
                    facts.append((kind, t))
        types = tuple(map(type, attrs))
        key = (op, attrs, types, tuple(facts))
        try:
            specs = _specs.get(key, _specs)
            if specs is _specs:
                if len(_specs) >= _MAX_SPECS:
                    _specs.clear()
                specs = _specs[key] = _infer(op, datas, attrs)
        except TypeError:  # an attribute without a hash
            return self.eagerly(op, tensors, attrs)
        if specs is None:
            return self.eagerly(op, tensors, attrs)
        self._record(op, attrs, types, tuple(refs), specs)
        outs = self.values[-len(specs) :]
        self.scalars += scalars
        result = finish(op, tensors, datas, attrs, tuple(outs) if op.num_outputs != 1 else outs[0])
        self.made(result)
        self.follow_layout(op, list(tensors), result)
        if op.name == "stop_gradient":  # the memory of its operand, like `detach`
            recording.link_symbolic(inplace.DETACH, tensors[0], (), result, recording.DETACHED)
        return result

    def _record(self, op: Op, attrs: tuple[Any, ...], types: Any, refs: tuple[Any, ...], specs: Any) -> None:
        node, values = self.node, self.values
        if op.alias is not None and len(specs) == 1 and refs[0].__class__ is int and len(refs) == 1:
            self.aliases[len(values)] = (op, attrs, refs[0])
        for shape, dtype, size in specs:
            values.append(Value(node, len(values), shape, dtype))
            self.work += size
        self.calls.append((op, attrs, types, refs))

    def eagerly(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Run an op at once, on what was recorded before."""
        self.flush()
        for t in tensors:
            heal(t)
        with _without(self):
            return op.run(op.call, op.merge(tensors, attrs))

    def operand(self, tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        heal(tensor)
        data = tensor._data
        if type(data) is ndarray:
            return self.outside(tensor)
        if data.__class__ is not Value or data.node is not self.node:
            self.foreign(data)
        return data

    def outside(self, tensor: Tensor) -> Value:
        data = tensor._data
        slot = self.slots.get(id(data))
        if slot is None:
            made = self.derived.get(id(data))
            if made is not None and made[0] is data:  # the same op on the array that it shows
                _, base, op, attrs = made
                base_value = self.outside(wrap(base))
                specs = [(data.shape, data.dtype, data.size)]
                self._record(op, attrs, tuple(map(type, attrs)), (base_value.index,), specs)
                self._note_strides(self.values[-1], data)
                return self.values[-1]
            entry = Value(self.node, len(self.values), data.shape, data.dtype)
            self.values.append(entry)
            self.calls.append((None, data.shape, data.dtype, ()))  # the place of an input in the structure
            self._note_strides(entry, data)
            owner = memory_of(data)
            source = data
            if (
                data.size <= MAX_SNAPSHOT_ELEMENTS
                and tensor._node.__class__ is not Leaf
                and _known_elsewhere(data, owner)
            ):
                source = data.copy()  # Python may write to it before the segment runs
            slot = self.slots[id(data)] = Slot(data, source, entry)
            self.owners[id(owner)] = self.owners.get(id(owner), 0) + 1
        return slot.final if slot.final is not None else slot.entry

    def takes(self, x: Tensor) -> bool:
        """Whether a write to `x` is recorded. If not, what was recorded before has run."""
        heal(x)
        view = getattr(x, "_view", None)
        if type(x._data) is not ndarray:  # a view that was recorded writes to what it shows
            return view.__class__ is not recording.View or type(view.base._data) is not ndarray or self.takes(view.base)
        owner = memory_of(x._data)
        shown = view is not None and (not isinstance(view, recording.Base) or any(r() is not None for r in view.views))
        known = self.owners.get(id(owner), 0) - (id(x._data) in self.slots)
        foreign = owner.base is not None and not getattr(
            owner.base, "pooled", False
        )  # others may know it by another array
        if shown or known or id(owner) in self.exported or foreign:
            self.flush()
            return False
        return x._data.flags.writeable

    def store(self, x: Tensor, value: Tensor) -> None:
        """Record that the outside tensor `x` gets a new value."""
        heal(value)
        final = self.operand(value)
        self.outside(x)
        slot = self.slots[id(x._data)]
        slot.final = final
        self.written[id(memory_of(x._data))] = slot
        self.touched_nodes.append(x)

    def assign(self, x: Tensor, value: Tensor) -> None:
        """An eager in-place op computes with recorded values: they must be known."""
        self.flush()

    def touch(self, x: Tensor) -> None:
        pass

    def compare_links(self, operands: list[Any], result: Any) -> None:
        pass

    def twin(self, g: Tensor) -> Tensor:
        """Another tensor with the value of `g`, in memory of its own."""
        made = wrap(g._data, g._node)
        self.made(made)
        return made

    # Demands -----------------------------------------------------------------------------------------------------------

    def cut(self, action: str) -> None:
        """Python needs a value: run what was recorded."""
        if self.first_cut is None:
            self.first_cut = (action, user_location(2))
        self.flush()

    def compute(self, tensor: Tensor) -> None:
        """Let `tensor` have its values."""
        self.cut("control flow")
        heal(tensor)

    def refuse(self, value: Value, action: str) -> Any:
        self.cut(action)
        return value.node.array  # type: ignore[attr-defined]

    def export(self, array: ndarray) -> None:
        owner = memory_of(array)
        self.exported[id(owner)] = owner

    def settle(self, array: ndarray | None, action: str) -> None:
        """The memory of `array` (None: any) is looked at: what is recorded to be written to it must be there."""
        if self.running:
            return
        if action in _EXPORTS and array is not None:
            self.cut(action)
            self.export(array)
        elif array is None or id(memory_of(array)) in self.written:
            self.cut(action)

    def truth(self, value: Value, tensor: Tensor) -> bool:
        self.cut("if/while")
        heal(tensor)
        return bool(tensor)

    def describe(self, value: Value, tensor: Tensor) -> str:
        self.cut("print")
        heal(tensor)
        return repr(tensor)

    def foreign(self, value: Any) -> Any:
        if value.__class__ is Value and value.node.op is _SEGMENT:
            raise RuntimeError(f"{self.name}: a value of another captured function is not known yet.")
        return super().foreign(value)

    # Running -----------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Compute what was recorded, and begin a new segment."""
        if self.running or not self.calls:
            return
        self.running = True
        try:
            with _without(self), no_grad():
                self._flush()
        finally:
            self.running = False

    def _flush(self) -> None:
        slots = list(self.slots.values())
        tensors = [t for t in (r() for r in self.alive) if t is not None and self._is_pending(t)]
        views, plain = _split_views(tensors)
        held: dict[int, int] = {}  # references to a value that need no memory of their own
        for t, *_ in views:
            held[id(t._data)] = held.get(id(t._data), 0) + 1
        for slot in slots:
            for v in (slot.entry, slot.final):
                if v is not None:
                    held[id(v)] = held.get(id(v), 0) + 1
        self.strides, strides = {}, {v.index: s for v, s in self.strides.items()}
        entries = {slot.entry.index: slot for slot in slots}
        arrays: dict[int, ndarray] = {}
        wanted: list[int] = []
        live: list[Value] = []
        values = self.values
        own = {t._data.index for t in plain}  # these need memory of their own
        for i in range(len(values)):
            if sys.getrefcount(values[i]) - 2 > held.get(id(values[i]), 0):
                live.append(values[i])
        needed = {v.index for v in live}
        hidden: set[int] = set()  # those that show the memory of another value
        for i in range(len(values) - 1, -1, -1):
            if i in needed and i in self.aliases and i not in own:
                source = self.aliases[i][2]
                given = entries.get(source)
                if given.final is None if given is not None else values[source].size == values[i].size:
                    hidden.add(i)
                    needed.add(source)
        for i in sorted(needed - hidden):
            given = entries.get(i)
            if given is not None and given.final is None:
                arrays[i] = given.array
            elif (before := self._before(i, entries)) is not None:
                arrays[i] = before
            else:
                wanted.append(i)
        numbers = {slot.entry.index: n for n, slot in enumerate(slots)}
        writes = [
            (numbers[s.entry.index], s.final.index) for s in slots if s.final is not None and s.final is not s.entry
        ]
        outs, compiled = self.programs.run(self, slots, tuple(wanted), tuple(writes))
        self.parts.append((sum(c[0] is not None for c in self.calls), compiled))
        # only what is shown by a view must have the memory order that it has eagerly
        bases = {base._data.index for _, base, _, _ in views if base._data.__class__ is Value}
        for i, array in zip(wanted, outs, strict=True):
            arrays[i] = _with_strides(array, strides[i]) if i in bases and i in strides and array.size else array
        for i in sorted(hidden):
            op, attrs, source = self.aliases[i]
            below = arrays[source]
            arrays[i] = array = op.run(op.fn, op.merge([below], attrs))
            if memory_of(array) is memory_of(below):
                self.derived[id(array)] = (array, below, op, attrs)
        for n, _ in writes:
            note_mutation(slots[n].array, self.name)
        for v in live:
            v.node = Resolved(arrays[v.index])  # type: ignore[assignment]
        taken = {id(slot.array) for slot in slots}
        for t in plain:
            array = arrays[t._data.index]
            if id(array) in taken:  # another tensor with the same value, in memory of its own
                array = array.copy()
            taken.add(id(array))
            t._data = array
        for t, base, steps, kind in views:
            _show(t, base, steps, kind)
        start = self.start
        roots = [*tensors, *self.touched_nodes]
        self._begin()
        _resolve_tape([t._node for t in roots if t._node is not None], start)

    def _before(self, i: int, entries: dict[int, Slot]) -> ndarray | None:
        """A copy of value `i` if it shows memory that this segment writes, as that is now; else None."""
        steps = []
        while i in self.aliases:
            op, attrs, i = self.aliases[i]
            steps.append((op, attrs))
        slot = entries.get(i)
        if slot is None:
            return None
        array = slot.array
        for op, attrs in reversed(steps):
            array = op.run(op.fn, op.merge([array], attrs))
        return array.copy()

    def _is_pending(self, t: Tensor) -> bool:
        data: Any = t._data
        return data.__class__ is Value and data.node is self.node


def _infer(op: Op, datas: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """The (shape, dtype, number of elements) of the results; None if that needs values, or raises: eagerly it says why."""
    graph = Graph("shapes")
    try:
        given = [graph.placeholder(d.shape, d.dtype) if isinstance(d, Value) else d for d in datas]
        outs = graph.emit(op, given, attrs).outputs
    except Exception:
        return None
    if not all(is_known(v.shape) for v in outs):
        return None
    return [(v.shape, v.dtype, int(v.size)) for v in outs]


def _known_elsewhere(data: ndarray, owner: ndarray) -> bool:
    """Whether something else than tensors may refer to an array: the user, who may write to it."""
    # a tensor, the variable of the caller, two parameters and the argument of getrefcount
    return sys.getrefcount(data) > 5 or owner is not data and sys.getrefcount(owner) > 4


def _with_strides(array: ndarray, strides: tuple[int, ...]) -> ndarray:
    """`array` in the memory order that it has eagerly, which decides what is a view of it."""
    order = sorted(range(array.ndim), key=lambda a: -abs(strides[a]))
    made = np.empty([array.shape[a] for a in order], array.dtype).transpose(np.argsort(order))
    made[...] = array
    return made


_VIEW, _UNRECORDED, _DETACHED = "view", "unrecorded", "detached"


def _split_views(tensors: list[Tensor]) -> tuple[list[tuple[Tensor, Tensor, Any, str]], list[Tensor]]:
    """Recorded tensors that show the memory of another one, as (tensor, that one, steps, kind), bases first; the others."""
    views: list[tuple[Tensor, Tensor, Any, str]] = []
    plain: list[Tensor] = []
    for t in tensors:
        view = getattr(t, "_view", None)
        if view.__class__ is not recording.View:
            plain.append(t)
        elif view.cut is recording.DETACHED:
            views.append((t, view.base, view.steps, _DETACHED))
        elif view.cut is recording.UNRECORDED:
            views.append((t, view.base, view.steps, _UNRECORDED))
        elif view.root is not None:
            views.append((t, view.root, view.steps_after(view.root._view), _VIEW))
        else:
            views.append((t, view.base, view.steps, _VIEW))
    return views, plain


def _show(t: Tensor, base: Tensor, steps: Any, kind: str) -> None:
    """Make `t` a view of the memory of `base`, with the relation to it that it has eagerly."""
    heal(base)
    registered = getattr(t._view.base, "_view", None)
    if isinstance(registered, recording.Base):
        registered.views = [r for r in registered.views if r() is not t]
    with enable_grad():
        fresh = inplace.derive(wrap(base._data) if kind is not _VIEW else base, steps)
    t._data = fresh._data
    if kind is _DETACHED:
        t._view = None
    elif kind is _UNRECORDED:
        t._view = recording.UNTRACKED
    else:
        t._view = view = getattr(fresh, "_view", None)
        if view.__class__ is recording.View and view.base._node.__class__ is not Leaf:
            register = getattr(view.base, "_view", None)
            if isinstance(register, recording.Base):
                register.add(t)


def _resolve_tape(nodes: list[Any], since: int) -> None:
    """Replace the values that the tape saved since `since` by their arrays."""
    stack, seen = nodes, set()
    while stack:
        node = stack.pop()
        if node is None or node in seen or node.seq < since or node.__class__ is Leaf:
            continue
        seen.add(node)
        if node.__class__ is Output:
            stack.append(node.parent)
            continue
        if node.__class__ is TapeNode:
            if node.saved.__class__ is tuple:
                node.saved = tuple([_resolved(v) for v in node.saved])
            stack.extend(node.edges)


def _resolved(value: Any) -> Any:
    node: Any = getattr(value, "node", None) if value.__class__ is Value else None
    if node.__class__ is Resolved:
        return node.array
    if value.__class__ is tuple:
        return tuple([_resolved(v) for v in value])
    return value


class Segments(Mode):
    """The mode in which a function with cuts runs, see Note [Segments]."""

    takes_writes = True

    def __init__(self, name: str, programs: SegmentPrograms) -> None:
        self.graph = LazyGraph(name, programs)

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        tensors = [operand(op, i, v.copy() if isinstance(v, ndarray) else v) for i, v in enumerate(op.tensors(values))]
        foreign = None
        for t in tensors:
            priority = getattr(getattr(t, "_data", None), "priority", 0)
            if priority > 1 and (foreign is None or priority > foreign.priority):
                foreign = t._data
        if foreign is not None:  # a batched value: vmap unpacks it and calls the op again
            with _Again(self):  # type: ignore[arg-type]
                return foreign.apply(op, tensors, op.attrs(values))
        return self.graph.call(op, tensors, op.attrs(values))

    def takes(self, x: Tensor) -> bool:
        return self.graph.takes(x)

    def assign(self, x: Tensor, value: Tensor) -> None:
        self.graph.store(x, value)

    def views_of(self, base: Tensor) -> recording.Base | None:
        return self.graph.views_of(base)

    def in_layout_of(self, x: Tensor, value: Tensor) -> Tensor:
        heal(value)
        return self.graph.in_layout_of(x, value)

    def __enter__(self) -> Segments:
        super().__enter__()
        self._settler = set_settler(self.graph.settle)
        return self

    def __exit__(self, *exc: Any) -> None:
        try:
            self.graph.flush()  # also after an error: what ran before it has had its effects
        finally:
            set_settler(self._settler)
            super().__exit__(*exc)


class _without:
    """Context manager in which ops are not recorded by `graph`, but by the modes outside of it."""

    def __init__(self, graph: LazyGraph) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        from ...ops.core.define import current_modes

        stack = current_modes()
        keep = len(stack)
        for i, mode in enumerate(stack):
            if isinstance(mode, Segments) and mode.graph is self._graph:
                keep = i
                break
        self._suspended = suspended(keep)
        self._suspended.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._suspended.__exit__(*exc)
