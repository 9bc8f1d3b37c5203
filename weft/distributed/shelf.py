"""The shelf: weights, optimiser state and buffers of a run in shared memory, twice, and room for gradients.

Parameters with the same settings lie one after the other in one flat array (a *family*); so do their gradients and each kind
of optimiser state, at the same offsets. An elementwise optimiser then updates any range of a family with one kernel, whatever
the parameters are. A *slice* is such a range, or a whole parameter for other optimisers; the cuts are fixed for the run.

There are two buffers. Step t reads one and writes the other, so until the commit everything needed to repeat the step is
untouched. `bind(buffer)` makes the tensors of model and optimiser views of a buffer.
"""

from __future__ import annotations

import dataclasses
import hashlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..multiprocessing import ALIGNMENT, Segment
from ..ops.array.row_sparse import RowSparse
from ..runtime import epoch
from ..tensor import Tensor, wrap

AVERAGE = "moving average"  # the kind of state that an EMA keeps
MIN_SLICE = 16384  # elements; below this the call costs more than the update

_shelves: weakref.WeakSet[Shelf] = weakref.WeakSet()  # of this process: a program with two optimisers has two


class Flat:
    """Named arrays, each aligned to a cache line, in one piece of memory."""

    def __init__(self) -> None:
        self.fields: dict[Any, tuple[np.dtype, int, int]] = {}  # name -> dtype, length, byte offset
        self.nbytes = 0

    def add(self, name: Any, dtype: Any, length: int) -> None:
        dtype = np.dtype(dtype)
        self.fields[name] = (dtype, length, self.nbytes)
        self.nbytes += _aligned(length * dtype.itemsize)

    def views(self, segment: Segment, offset: int) -> dict[Any, np.ndarray]:
        """The arrays, in the memory that begins at `offset`."""
        return {name: segment.array((length,), dtype, offset + at) for name, (dtype, length, at) in self.fields.items()}


@dataclasses.dataclass
class Family:
    """Parameters that are updated alike, and where each begins in the flat arrays."""

    group: int
    params: list[Tensor]
    starts: list[int]
    length: int
    keys: list[str]
    """the kinds of optimiser state that have a parameter's shape"""
    counter: Tensor | None
    """the shared count of updates"""
    whole: bool
    """the one parameter is updated in its shape and never cut"""


@dataclasses.dataclass(frozen=True)
class Slice:
    """A range of a family that one member updates at a time; `family` -1 is the last one: counters and buffers."""

    family: int
    start: int
    stop: int


class Shelf:
    """See the module's docstring. Every worker builds the same shelf; `digest` tells whether they did.

    Args:
        optimizer: whose parameters are trained; its state is created now.
        buffers: (name, tensor) of the model's buffers.
        extra: (name, tensor) of other values that all workers start with, such as frozen parameters.
        pieces: into how many slices a large family is cut.
        averages: an `EMA` of the parameters, or None.
    """

    def __init__(
        self,
        optimizer: Any,
        buffers: Iterable[tuple[str, Tensor]],
        extra: Iterable[tuple[str, Tensor]],
        pieces: int,
        averages: Any = None,
    ) -> None:
        self.optimizer = optimizer
        self.averages: dict[int, Tensor] = {}
        self.average_steps: Tensor | None = None if averages is None else averages.steps
        if averages is not None:
            self.averages = {id(s): a for s, a in zip(averages.sources, averages.averages, strict=True)}
        self.families = list(_families(optimizer, self.averages))
        self.buffers = [(name, b) for name, b in buffers if b.size]
        self.extra = [(name, t) for name, t in extra if not any(other.holds(t) for other in _shelves)]
        self.state, self.slot = Flat(), Flat()
        self._lay_out()
        self.slices = [*_cut(self.families, pieces), Slice(-1, 0, 0)]
        self._bound: int | None = None
        self._newer: list[tuple[np.ndarray, np.ndarray]] = []
        _shelves.add(self)

    def holds(self, tensor: Tensor) -> bool:
        """Whether this shelf trains a parameter."""
        return any(tensor is p for family in self.families for p in family.params)

    def _lay_out(self) -> None:
        for i, family in enumerate(self.families):
            dtype = family.params[0].dtype
            self.state.add((i, ""), dtype, family.length)
            self.slot.add((i, ""), dtype, family.length)
            for key in family.keys:
                self.state.add((i, key), self.tensor_of(family.params[0], key).dtype, family.length)
        self.counters = _unique([*[f.counter for f in self.families], self.average_steps])
        self.state.add("counters", np.float32, len(self.counters))
        self._buffer_kinds: dict[np.dtype, list[tuple[Tensor, int]]] = {}
        for _, buffer in self.buffers:
            members = self._buffer_kinds.setdefault(buffer.dtype, [])
            members.append((buffer, sum(_round(b.size, b.dtype.itemsize) for b, _ in members)))
        for dtype, members in self._buffer_kinds.items():
            last, start = members[-1]
            length = start + _round(last.size, dtype.itemsize)
            self.state.add(("buffers", dtype.name), dtype, length)
            self.slot.add(("buffers", dtype.name), dtype, length)
            if all(id(b) in self.averages for b, _ in members):
                self.state.add(("averages", dtype.name), self.averages[id(members[0][0])].dtype, length)
        self.shared = Flat()
        for name, tensor in self.extra:
            self.shared.add(name, tensor.dtype, tensor.size)

    def tensor_of(self, p: Tensor, key: str) -> Tensor:
        """A parameter (""), its moving average, or a tensor of its optimiser state."""
        if key == "":
            return p
        if key == AVERAGE:
            return self.averages[id(p)]
        found: Tensor = self.optimizer.state[p][key]
        return found

    def digest(self) -> str:
        """A short text that differs if shapes, dtypes, order or settings do."""
        text = repr((
            list(self.state.fields.items()), list(self.slot.fields.items()), list(self.shared.fields.items()),
            [[(tuple(p.shape), s) for p, s in zip(f.params, f.starts)] for f in self.families],
            type(self.optimizer).__name__,
        ))  # fmt: skip
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # Memory ---------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of the two buffers and of what is shared once."""
        return 2 * self.state.nbytes + self.shared.nbytes

    def attach(self, segment: Segment) -> None:
        """Use this memory for the state."""
        self.memory = [self.state.views(segment, i * self.state.nbytes) for i in range(2)]
        self.shared_memory = self.shared.views(segment, 2 * self.state.nbytes)
        self._tensors = [(t, _read_only(a), _read_only(b)) for t, a, b in self._placed()]
        self.scratch = {name: np.empty_like(self.memory[0][name]) for name in self._buffer_fields()}
        self._buffer_views = [
            (b, self.scratch["buffers", dtype.name][start : start + b.size].reshape(b.shape))
            for dtype, members in self._buffer_kinds.items()
            for b, start in members
        ]

    def _buffer_fields(self) -> list[Any]:
        return [("buffers", dtype.name) for dtype in self._buffer_kinds]

    def _placed(self) -> Iterator[tuple[Tensor, np.ndarray, np.ndarray]]:
        """Every tensor of parameters and optimiser state with its two views."""
        for i, family in enumerate(self.families):
            for p, start in zip(family.params, family.starts):
                for key in ("", *family.keys):
                    a, b = (m[i, key][start : start + p.size].reshape(p.shape) for m in self.memory)
                    yield self.tensor_of(p, key), a, b
        for dtype, members in self._buffer_kinds.items():
            for buffer, start in members if ("averages", dtype.name) in self.state.fields else ():
                a, b = (
                    m["averages", dtype.name][start : start + buffer.size].reshape(buffer.shape) for m in self.memory
                )
                yield self.averages[id(buffer)], a, b
        for i, counter in enumerate(self.counters):
            a, b = (m["counters"][i : i + 1].reshape(()) for m in self.memory)
            yield counter, a, b

    def initialise(self) -> None:
        """Write the values that this worker has into buffer 0."""
        for tensor, a, _ in self._placed():
            a[...] = tensor._data
        for buffer, view in self._buffer_views:
            view[...] = buffer._data
        for name, value in self.scratch.items():
            self.memory[0][name][...] = value
        for name, tensor in self.extra:
            self.shared_memory[name][...] = tensor._data.reshape(-1)

    def adopt(self) -> None:
        """Take over what is shared once, after another worker wrote it."""
        for name, tensor in self.extra:
            tensor._data[...] = self.shared_memory[name].reshape(tensor.shape)
        for buffer, view in self._buffer_views:
            buffer._data = view
        epoch.bump()

    def bind(self, buffer: int) -> None:
        """Make the tensors of model and optimiser show the state in `buffer`."""
        if buffer != self._bound:
            for entry in self._tensors:
                entry[0]._data = entry[1 + buffer]
            self._bound = buffer
        self.take_buffers()
        self._newer = []
        self.load_buffers(buffer)

    def take_buffers(self) -> None:
        """Before a step: make the model's buffers those of this shelf.

        A buffer that the step of another optimiser changed since keeps the value that was committed there: each member
        calls the steps in the same order, so all begin with the same value.
        """
        for tensor, view in self._buffer_views:
            if tensor._data is not view:
                self._newer.append((view, tensor._data.copy()))
                tensor._data = view

    def load_buffers(self, buffer: int) -> None:
        """Copy the committed values of the model's buffers to where the model reads and writes them."""
        for name, scratch in self.scratch.items():
            np.copyto(scratch, self.memory[buffer][name])
        for view, value in self._newer:
            np.copyto(view, value)

    # Gradients ------------------------------------------------------------------------------------------------------

    def slot_tensors(self, slot: dict[Any, np.ndarray]) -> list[np.ndarray]:
        """Where the gradient of each parameter goes in a slot, in the order of `parameters`."""
        return [
            slot[i, ""][start : start + p.size].reshape(p.shape)
            for i, family in enumerate(self.families)
            for p, start in zip(family.params, family.starts)
        ]

    @property
    def parameters(self) -> list[Tensor]:
        return [p for family in self.families for p in family.params]

    def store_buffers(self, slot: dict[Any, np.ndarray], weight: float) -> None:
        """Put this shard's buffers into its slot: floating ones times the weight of the shard, others as they are."""
        for name, value in self.scratch.items():
            if value.dtype.kind in "fc":
                np.multiply(value, value.dtype.type(weight), out=slot[name])
            else:
                np.copyto(slot[name], value)

    def add(self, into: dict[Any, np.ndarray], other: dict[Any, np.ndarray]) -> None:
        """Add one partial sum to another."""
        for name, value in into.items():
            if value.dtype.kind in "fc":
                np.add(value, other[name], out=value)
            elif not np.array_equal(value, other[name]):
                raise disagreement(self, value.dtype)


def disagreement(shelf: Shelf, dtype: np.dtype) -> RuntimeError:
    names = ", ".join(name for name, b in shelf.buffers if b.dtype == dtype)
    return RuntimeError(
        f"distributed: shards disagree about buffers of dtype {dtype}: one of {names}. Integer buffers must have the same "
        "value on every shard; keep what depends on the data in a floating buffer, which is averaged."
    )


def _families(optimizer: Any, averages: dict[int, Tensor]) -> Iterator[Family]:
    elementwise = getattr(optimizer, "elementwise", False)
    made: dict[Any, Family] = {}
    for number, group in enumerate(optimizer.param_groups):
        missing = [p for p in group.params if p not in optimizer.state and p.requires_grad]
        if missing:
            optimizer._create(missing, group)
        for p in group.params:
            if not p.requires_grad:
                continue
            state = optimizer.state[p]
            counter = state.get("step")
            keys = [k for k in state if k != "step"]
            odd = [k for k in keys if not isinstance(state[k], Tensor) or state[k].shape != p.shape]
            if odd:
                raise TypeError(
                    f"distributed: {type(optimizer).__name__} keeps {odd[0]!r}, which does not have the shape of its parameter. "
                    "Expected state tensors of the parameter's shape (SGD, Adam, AdamW, RMSprop, Adagrad, Lion …)."
                )
            kinds = tuple((k, state[k].dtype) for k in keys)
            if id(p) in averages:
                keys = [*keys, AVERAGE]
                kinds = (*kinds, (AVERAGE, averages[id(p)].dtype))
            key = (number, p.dtype, id(counter), kinds) if elementwise else id(p)
            family = made.get(key)
            if family is None:
                family = made[key] = Family(number, [], [], 0, keys, counter, not elementwise)
            family.params.append(p)
            family.starts.append(family.length)
            family.length += _round(p.size, p.dtype.itemsize)
    yield from made.values()


def _cut(families: list[Family], pieces: int) -> Iterator[Slice]:
    total = sum(f.length for f in families)
    most = max(MIN_SLICE, -(-total // max(pieces, 1)))
    for i, family in enumerate(families):
        if family.whole:
            yield Slice(i, 0, family.length)
            continue
        count = max(1, round(family.length / most))
        size = _round(-(-family.length // count), family.params[0].dtype.itemsize)
        for start in range(0, family.length, size):
            yield Slice(i, start, min(start + size, family.length))


def _read_only(array: np.ndarray) -> np.ndarray:
    """A view through which the user's code cannot write: the weights of a run change by commits alone."""
    view = array.view()
    view.flags.writeable = False
    return view


def _unique(tensors: Iterable[Tensor | None]) -> list[Tensor]:
    return list({id(t): t for t in tensors if t is not None}.values())


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _round(length: int, itemsize: int) -> int:
    """`length` elements, rounded up to whole cache lines."""
    return _aligned(length * itemsize) // itemsize


def gradient_into(target: Tensor, gradient: Any) -> None:
    """Write a gradient, or zeros if there is none, into its slot."""
    if gradient is None:
        target.zero_()
    else:
        target.copy_(gradient.to_dense() if isinstance(gradient, RowSparse) else gradient)


__all__ = ["Family", "Flat", "Shelf", "Slice", "gradient_into", "wrap"]
