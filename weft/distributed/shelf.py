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

from ..autograd.tape import memory_of, mutations, note_mutation, renew, tick
from ..multiprocessing import Segment
from ..optim.group import update_dtype
from ..runtime import epoch, owned_memory
from ..tensor import Tensor, wrap
from .buffers import Buffer, Buffers
from .flat import Flat, round_up
from .rows import RowField

AVERAGE = "moving average"  # the kind of state that an EMA keeps
PRESENT = "present"  # of a slot: in how many shards each parameter has a gradient
MIN_SLICE = 16384  # elements; below this the call costs more than the update

_ADVICE = (
    "the weights, buffers and optimiser state of a distributed run change by its steps alone. To change them yourself, do it in "
    "`with wf.distributed.writing():`, on all workers."
)

_shelves: weakref.WeakSet[Shelf] = weakref.WeakSet()  # of this process: a program with two optimisers has two


@dataclasses.dataclass
class Family:
    """Parameters that are updated alike, and where each begins in the flat arrays."""

    group: int
    params: list[Tensor]
    starts: list[int]
    length: int
    keys: list[str]
    """the kinds of optimiser state that have a parameter's shape"""
    whole: bool
    """the one parameter is updated in its shape and never cut"""
    first: int = 0
    """the number of its first parameter among all of the shelf"""
    rows: RowField | None = None
    """of a table whose gradients are row-sparse: only the rows of a gradient are updated"""


@dataclasses.dataclass(frozen=True)
class Slice:
    """A range of a family that one member updates at a time; `family` -1 is the last one: counters and buffers."""

    family: int
    start: int
    stop: int
    number: int = 0
    """of the slice among those of its family"""


class Shelf:
    """See the module's docstring. Every worker builds the same shelf; `digest` tells whether they did.

    Args:
        optimizer: whose parameters are trained; its state is created now.
        buffers: the model's buffers.
        extra: (name, tensor) of other values that all workers start with, such as frozen parameters.
        pieces: into how many slices a large family is cut.
        averages: an `EMA` of the parameters, or None.
        copies: 2, or 1 to keep the state once and update it in place.
    """

    def __init__(
        self,
        optimizer: Any,
        buffers: Iterable[Buffer],
        extra: Iterable[tuple[str, Tensor]],
        pieces: int,
        averages: Any = None,
        copies: int = 2,
    ) -> None:
        self.optimizer, self.copies = optimizer, copies
        self.averages: dict[int, Tensor] = {}
        self.average_steps: Tensor | None = None if averages is None else averages.steps
        if averages is not None:
            self.averages = {id(s): a for s, a in zip(averages.sources, averages.averages, strict=True)}
        self.families = list(_families(optimizer, self.averages))
        for p in self.parameters:
            if any(other.holds(p) for other in _shelves):
                raise RuntimeError(
                    f"distributed: a parameter of shape {tuple(p.shape)} is trained by two steps. Each parameter belongs to "
                    "one optimiser, and each optimiser to one step or Trainer; make one step that does both."
                )
        _refuse_shared_memory(self.parameters)
        self.counted = _count_separately(optimizer, self.parameters)
        self.buffers = Buffers(buffers)
        self.extra = [(name, t) for name, t in extra if not any(other.holds(t) for other in _shelves)]
        self.state, self.small, self.slot = Flat(), Flat(), Flat()
        if copies == 2:
            self.small = self.state
        self._lay_out()
        self.slices = [*_cut(self.families, pieces), Slice(-1, 0, 0)]
        self._bound: int | None = None
        self._writes: dict[
            tuple[int, int], tuple[int, Any]
        ] = {}  # (buffer, family) -> (memory, write that the tape knows)
        _shelves.add(self)

    def holds(self, tensor: Tensor) -> bool:
        """Whether this shelf trains a parameter."""
        return any(tensor is p for p in self.parameters)

    def _lay_out(self) -> None:
        first = 0
        for i, family in enumerate(self.families):
            family.first, first = first, first + len(family.params)
            p = family.params[0]
            self.state.add((i, ""), p.dtype, family.length)
            for key in family.keys:
                self.state.add((i, key), self.tensor_of(p, key).dtype, family.length)
            # 16-bit gradients are summed in single precision
            self.slot.add((i, ""), p.dtype if p.dtype.kind == "c" else update_dtype(p.dtype), family.length)
            if family.rows is not None:
                self.slot.add(family.rows.indices, np.int64, family.rows.length)
        self.slot.add(PRESENT, np.float32, first)
        # What other slices read while it is updated is there twice, also if the rest of the state is not.
        self.small.add("counters", np.float32, first + 1)  # updates of each parameter, and of the moving averages
        self.small.add("updates", np.int64, 1)
        for i, family in enumerate(self.families):
            if family.rows is not None:  # see `updates`: two words per slice, and its rows
                self.small.add(("changed", i), np.int64, family.rows.rows + 2 * MAX_ROW_SLICES)
        self.buffers.lay_out(self.small, self.slot, self.averages)
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
            [list(f.fields.items()) for f in (self.state, self.small, self.slot, self.shared)],
            [[(tuple(p.shape), s) for p, s in zip(f.params, f.starts)] for f in self.families],
            type(self.optimizer).__name__,
        ))  # fmt: skip
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # Memory ---------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of the state, in all its copies, and of what is shared once."""
        return self._at_shared + self.shared.nbytes

    @property
    def _at_shared(self) -> int:
        """Where begins what is shared once."""
        return 2 * self.state.nbytes if self.copies == 2 else self.state.nbytes + 2 * self.small.nbytes

    def attach(self, segment: Segment) -> None:
        """Use this memory for the state."""
        owned_memory.claim(segment.array((self.nbytes,), np.uint8), _ADVICE)
        self._segment = segment
        if self.copies == 2:
            self.memory = [self.state.views(segment, i * self.state.nbytes) for i in range(2)]
        else:
            large = self.state.views(segment, 0)
            smalls = [self.small.views(segment, self.state.nbytes + i * self.small.nbytes) for i in range(2)]
            self.memory = [{**large, **small} for small in smalls]
        self.shared_memory = self.shared.views(segment, self._at_shared)
        places = zip(*(self._placed_in(m) for m in self.memory), strict=True)
        self._tensors = [(t, _read_only(a), _read_only(b)) for (t, a), (_, b) in places]
        self.buffers.attach()
        for array in self.buffers.scratch.values():
            owned_memory.claim(array, _ADVICE)

    def _placed_in(self, memory: dict[Any, np.ndarray]) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Every tensor of parameters and optimiser state with its place in a buffer."""
        for i, family in enumerate(self.families):
            for number, (p, start) in enumerate(zip(family.params, family.starts), family.first):
                for key in ("", *family.keys):
                    yield self.tensor_of(p, key), memory[i, key][start : start + p.size].reshape(p.shape)
                if "step" in self.optimizer.state[p]:
                    yield self.optimizer.state[p]["step"], memory["counters"][number : number + 1].reshape(())
        if self.average_steps is not None:
            yield self.average_steps, memory["counters"][-1:].reshape(())
        yield from self.buffers.averaged(self.averages, memory)

    def initialise(self) -> None:
        """Write the values that this worker has into buffer 0."""
        for tensor, a in self._placed_in(self.memory[0]):
            a[...] = tensor._data
        self.buffers.write(self.memory[0])
        for name, tensor in self.extra:
            self.shared_memory[name][...] = tensor._data.reshape(-1)

    def adopt(self) -> None:
        """Take over what is shared once, after another worker wrote it."""
        for name, tensor in self.extra:
            tensor._data[...] = self.shared_memory[name].reshape(tensor.shape)
        for buffer, view in self.buffers.views:
            buffer._data = view
        epoch.bump()

    def bind(self, buffer: int) -> None:
        """Make the tensors of model and optimiser show the state in `buffer`."""
        if buffer != self._bound:
            for entry in self._tensors:
                entry[0]._data = entry[1 + buffer]
            self._bound = buffer
            for i in range(len(self.families)):  # frozen functions must know that the memory has new contents
                self._note_write(buffer, i)
        self.buffers.bind(self.memory[buffer])

    def _note_write(self, buffer: int, family: int) -> None:
        """Tell the tape that the weights of a family changed; a write that it knows already gets another date."""
        key, write = self._writes.get((buffer, family), (0, None))
        if write is None or not any([w is write for w in mutations.get(key, ())]):  # noqa: C419 (quicker)
            array = self.memory[buffer][family, ""]
            note_mutation(array, "a distributed step")
            key = id(memory_of(array))
            self._writes[buffer, family] = (key, mutations[key][-1])
        else:
            renew(write.moment, tick())

    def rebind(self, buffer: int) -> None:
        """As `bind`, also after other code has given the tensors other memory."""
        self._bound = None
        self.bind(buffer)

    def open(self, state: dict[Any, np.ndarray]) -> dict[Any, np.ndarray]:
        """Let the tensors show a copy of a state, which may be written; returns the copy."""
        values = {name: array.copy() for name, array in state.items()}
        for tensor, array in self._placed_in(values):
            tensor._data = array
        self.buffers.show(values)
        return values

    def release(self) -> None:
        """Leave the run: the tensors keep their values, in memory of this process."""
        for array in (self._segment.array((self.nbytes,), np.uint8), *self.buffers.scratch.values()):
            owned_memory.release(array)
        for tensor, *_ in self._tensors:
            tensor._data = tensor._data.copy()
        for buffer, _ in self.buffers.views:
            buffer._data = buffer._data.copy()
        if self.counted:
            _count_together(self.optimizer)
        _shelves.discard(self)
        epoch.bump()

    def check_bound(self) -> None:
        """Raise if other code has given a parameter other memory: its changes would be lost."""
        if self._bound is not None:
            for tensor, a, b in self._tensors:
                if tensor._data is not a and tensor._data is not b:
                    raise RuntimeError(
                        f"distributed: a tensor of shape {tuple(tensor.shape)} of the run's state was given other memory (by "
                        "`model.to(dtype)`, `share_memory()` or an assignment to `.data`), so changes to it would be lost. Do "
                        "that before the first step; to change values use `with wf.distributed.writing():`."
                    )

    # Gradients ------------------------------------------------------------------------------------------------------

    def slot_tensors(self, slot: dict[Any, np.ndarray]) -> list[np.ndarray]:
        """Where the gradient of each parameter goes in a slot, in the order of `parameters`, and where it says which have one.

        None for tables: their gradients are row-sparse.
        """
        found = [
            slot[i, ""][start : start + p.size].reshape(p.shape)
            for i, family in enumerate(self.families)
            for p, start in zip(family.params, family.starts)
        ]
        return [*found, slot[PRESENT]]

    @property
    def parameters(self) -> list[Tensor]:
        return [p for family in self.families for p in family.params]

    def add(self, into: dict[Any, np.ndarray], other: dict[Any, np.ndarray]) -> None:
        """Add one partial sum to another."""
        self.add_gradients(into, other)
        self.buffers.add(into, other)

    def add_gradients(self, into: dict[Any, np.ndarray], other: dict[Any, np.ndarray]) -> None:
        for i, family in enumerate(self.families):
            if family.rows is not None:
                family.rows.add(into, other)
            else:
                np.add(into[i, ""], other[i, ""], out=into[i, ""])
        np.add(into[PRESENT], other[PRESENT], out=into[PRESENT])


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
            _undefer(p, optimizer.state[p])
            state = optimizer.state[p]
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
            settings = group.settings(update_dtype(p.dtype))
            table = elementwise and getattr(p, "sparse_grad", False) and optimizer.updates_rows(settings)
            key = (number, p.dtype, kinds) if elementwise and not table else id(p)
            family = made.get(key)
            if family is None:
                family = made[key] = Family(number, [], [], 0, keys, not elementwise)
            family.params.append(p)
            family.starts.append(family.length)
            family.length += round_up(p.size, p.dtype.itemsize)
            if table:
                family.rows = RowField(len(made) - 1, p.shape[0], p.size // max(p.shape[0], 1))
    yield from made.values()


def _refuse_shared_memory(parameters: list[Tensor]) -> None:
    """Two parameters in the same memory would be separated."""
    places = sorted((p._data.__array_interface__["data"][0], p._data.nbytes, i) for i, p in enumerate(parameters))
    for (start, size, i), (after, more, j) in zip(places, places[1:]):
        if size and more and start + size > after:
            raise RuntimeError(
                f"distributed: two parameters, of shapes {tuple(parameters[i].shape)} and {tuple(parameters[j].shape)}, share "
                "memory, and would be updated apart. Tie weights by using one Parameter in both places: `b.weight = a.weight`."
            )


def _undefer(p: Tensor, state: dict[str, Any]) -> None:
    """Make a table whose rows are updated late (`Adam(deferred=True)`) an ordinary parameter: the result is the same."""
    if "history" in state:
        p._data = p._data.copy()  # reading brings it up to date, new memory ends the deferral
        del state["last"], state["history"]


def _count_separately(optimizer: Any, parameters: list[Tensor]) -> bool:
    """Give each parameter a counter of its own: one without a gradient is not updated. Returns whether there are counters."""
    states = [optimizer.state[p] for p in parameters]
    counted = [state for state in states if "step" in state]
    for state in counted:
        own = wrap(np.array(state["step"]._data, np.float32))
        optimizer._sharing[id(own)] = 1
        state["step"] = own
    return bool(counted)


def _count_together(optimizer: Any) -> None:
    """Let parameters share a counter again where they were updated equally often."""
    counters: dict[float, Tensor] = {}
    optimizer._sharing.clear()
    for state in optimizer.state.values():
        if "step" in state:
            counter = counters.setdefault(float(state["step"]), state["step"])
            optimizer._sharing[id(counter)] = optimizer._sharing.get(id(counter), 0) + 1
            state["step"] = counter


MAX_ROW_SLICES = 64


def _cut(families: list[Family], pieces: int) -> Iterator[Slice]:
    total = sum(f.length for f in families)
    most = max(MIN_SLICE, -(-total // max(pieces, 1)))
    for i, family in enumerate(families):
        if family.whole:
            yield Slice(i, 0, family.length)
            continue
        count = max(1, round(family.length / most))
        if family.rows is not None:
            rows, width = family.rows.rows, family.rows.width
            size = -(-rows // min(count, MAX_ROW_SLICES)) * width
            length = rows * width
        else:
            size = round_up(-(-family.length // count), family.params[0].dtype.itemsize)
            length = family.length
        for number, start in enumerate(range(0, length, max(size, 1))):
            yield Slice(i, start, min(start + size, length), number)


def _read_only(array: np.ndarray) -> np.ndarray:
    """A view through which the user's code cannot write: the weights of a run change by commits alone."""
    view = array.view()
    view.flags.writeable = False
    return view


__all__ = ["AVERAGE", "PRESENT", "Family", "Shelf", "Slice"]
