"""`Kernel`: a primitive that eager code calls with addresses; and the bounded cache of prepared calls.

Processor time of Python around the native call, one thread: 4 to 5 µs for a matmul, 12 µs for a convolution, which
calls two kernels (its weights are reordered first).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from weft.runtime import forks, memory, threads

from .. import capi, library
from ..addresses import address
from ..capi import Arg
from ..primitives.base import Execution, Primitive

_Prepared = TypeVar("_Prepared")
_SCRATCH_STEP = 4096


class _Scratch(threading.local):
    """Scratchpad memory of this thread: one block that grows, used by one primitive at a time."""

    nbytes = 0
    address = 0
    block: np.ndarray | None = None


_scratch = _Scratch()


def _scratch_address(nbytes: int) -> int:
    if _scratch.nbytes < nbytes:
        size = -(-nbytes // _SCRATCH_STEP) * _SCRATCH_STEP + 64
        _scratch.block = None  # before asking for more, so that the pool may reuse it
        _scratch.nbytes = 0
        _scratch.block = memory.empty((size,), np.uint8)
        _scratch.address = -(-address(_scratch.block) // 64) * 64
        _scratch.nbytes = size - 64
    return _scratch.address


class Kernel:
    """A primitive plus argument sets that wait to be used again. Any number of threads may call it at once.

    `alone` says that the primitive was created inside `threads.alone` and runs so: on the calling thread only.
    Call it with the addresses of `primitive.arguments` in their order, without the scratchpad. The caller keeps the
    arrays alive and has checked that each holds at least as many bytes as the descriptor says.
    """

    __slots__ = (
        "_alone",
        "_execute",
        "_handle",
        "_idle",
        "_nargs",
        "_scratch_nbytes",
        "_set_data_handle",
        "_stream",
        "primitive",
    )

    def __init__(self, primitive: Primitive, alone: bool = False) -> None:
        lib = library.require()
        self._alone = alone
        self.primitive = primitive
        self._handle = primitive.handle
        self._nargs = len(primitive.arguments)
        self._scratch_nbytes = primitive.scratchpad_nbytes
        if self._scratch_nbytes:
            assert primitive.arguments[-1].index == Arg.SCRATCHPAD
        self._idle: list[Execution] = []
        self._execute, self._stream, self._set_data_handle = lib.execute, lib.stream, lib.set_data_handle

    def __call__(self, *pointers: int) -> None:
        try:
            execution = self._idle.pop()
        except IndexError:
            execution = Execution(self.primitive)
        if self._scratch_nbytes:
            pointers = (*pointers, _scratch_address(self._scratch_nbytes))
        last = execution.last
        for i, pointer in enumerate(pointers):
            if last[i] != pointer:
                self._set_data_handle(execution.memories[i], pointer)
                last[i] = pointer
        if threads.ensure_width() > 1:
            if not threads.openmp_usable():
                raise capi.Unsupported("oneDNN: this forked process must not enter OpenMP.")
            with threads.alone if self._alone else threads.compute_token:
                status = self._execute(self._handle, self._stream, self._nargs, execution.address)
        else:
            status = self._execute(self._handle, self._stream, self._nargs, execution.address)
        self._idle.append(execution)
        if status:
            raise capi.failure("dnnl_primitive_execute", status, repr(self.primitive))


class Cache:
    """Prepared calls by everything that distinguishes them, bounded: the oldest entry makes room for a new one.

    Looking up is a plain dictionary access; making a missing entry runs outside the lock, so that two threads may
    both make it, and one of the two results is kept. An entry whose making raised `Unsupported` is remembered too.
    """

    def __init__(self, capacity: int = 2048) -> None:
        if capacity < 1:
            raise ValueError(f"Cache: capacity must be positive. Got {capacity}.")
        self.capacity = capacity
        self._entries: dict[Hashable, Any] = {}
        self._lock = forks.held_over_fork()
        self.lookup = self._entries.get

    def make(self, key: Hashable, prepare: Callable[[], _Prepared]) -> _Prepared:
        """Prepares the call for `key` and stores it; raises what `prepare` raises."""
        try:
            prepared: Any = prepare()
        except capi.Unsupported as refusal:
            prepared = _Refused(str(refusal))
        with self._lock:
            while len(self._entries) >= self.capacity:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = prepared
        if isinstance(prepared, _Refused):
            prepared.raise_it()
        return prepared

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class _Refused:
    """Stands in the cache for a call that oneDNN cannot do: asking again costs a look-up, not a creation."""

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def raise_it(self) -> None:
        raise capi.Unsupported(self._reason)

    def __call__(self, *_: object) -> Any:
        raise capi.Unsupported(self._reason)


cache = Cache()


def is_reference(primitive: Primitive) -> bool:
    """Whether oneDNN only has its plain loops for this, hundreds of times slower than anything else."""
    return "ref" in primitive.implementation.split(":")[0]


def reject_reference(primitive: Primitive) -> Primitive:
    """`primitive`, unless it is a reference implementation: then `Unsupported`, since our own lowering is faster."""
    if is_reference(primitive):
        raise capi.Unsupported(f"oneDNN: only a slow reference implementation exists for {primitive}.")
    return primitive
