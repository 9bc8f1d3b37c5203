"""`PrimitiveCall`: a computation split into shares that eager code calls with addresses; and the bounded cache of them.

Python overhead around the native call, one thread: 4 to 5 µs for a matmul, 12 µs for a convolution, which runs two
primitives (its weights are reordered first).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from weft.runtime import forks, memory, threads

from .. import capi, library
from ..addresses import address
from ..capi import Arg
from ..primitives.base import Execution, Primitive
from ..shares import Shares, share_words, whole

_Call = TypeVar("_Call")
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
        _scratch.block = None  # before allocating more, so that the pool may reuse it
        _scratch.nbytes = 0
        _scratch.block = memory.empty((size,), np.uint8)
        _scratch.address = -(-address(_scratch.block) // 64) * 64
        _scratch.nbytes = size - 64
    return _scratch.address


class PrimitiveCall:
    """A computation with a pool of reusable argument sets. Thread-safe.

    Call it with the addresses of `work.arguments` in their order, without the scratchpad. The caller keeps the arrays
    alive and has checked that each holds at least as many bytes as all shares together want.
    """

    __slots__ = ("_idle", "_run", "_scratch_nbytes", "_several", "work")

    def __init__(self, work: Primitive | Shares) -> None:
        self.work = work if isinstance(work, Shares) else whole(work)
        self._scratch_nbytes = self.work.scratchpad_nbytes
        if self._scratch_nbytes:
            assert self.work.arguments[-1].index == Arg.SCRATCHPAD
        self._several = self.work.exact or len(self.work.shares) > 1
        self._idle: list[_Exact | _Prepared] = []
        self._run = _Exact if self.work.exact else _Prepared

    def __call__(self, *pointers: int) -> None:
        try:
            prepared = self._idle.pop()
        except IndexError:
            prepared = self._run(self.work)
        if self._scratch_nbytes:
            pointers = (*pointers, _scratch_address(self._scratch_nbytes))
        if threads.ensure_width() > 1:
            if not threads.openmp_usable():
                raise capi.Unsupported("oneDNN: this forked process must not enter OpenMP.")
            if self._several:
                with threads.compute_token:
                    status = prepared.run(pointers)
            else:
                status = prepared.run(pointers)
        else:
            status = prepared.run(pointers)
        self._idle.append(prepared)
        if status:
            raise capi.failure("dnnl_primitive_execute", status, repr(self.work))


class _Exact:
    """The arguments of a primitive that is created for the process's width."""

    __slots__ = ("_execute", "_execution", "_set_data_handle", "_stream")

    def __init__(self, work: Shares) -> None:
        lib = library.require()
        self._execution = Execution(work.shares[0].primitive)
        self._execute, self._stream, self._set_data_handle = lib.execute, lib.stream, lib.set_data_handle

    def run(self, pointers: tuple[int, ...]) -> int:
        execution = self._execution
        last = execution.last
        for i, pointer in enumerate(pointers):
            if last[i] != pointer:
                self._set_data_handle(execution.memories[i], pointer)
                last[i] = pointer
        status: int = self._execute(execution.primitive.handle, self._stream, execution.nargs, execution.address)
        return status


class _Prepared:
    """The arguments of shares, as the block that `weft_shares` reads (see `weft.backends.llvm.routines`)."""

    __slots__ = ("_address", "_call", "_keep", "_slots")

    def __init__(self, work: Shares) -> None:
        self._slots = (ctypes.c_int64 * max(len(work.arguments), 1))()
        start = ctypes.addressof(self._slots)
        slots = {argument.index: start + 8 * i for i, argument in enumerate(work.arguments)}
        self._keep: list[Any] = []
        scratch = slots.get(int(Arg.SCRATCHPAD), 0)
        words = share_words(work, self._keep.append, lambda execution, index, offset: (slots[index], offset), scratch)
        self._address = _words(words, self._keep)
        self._call = _shares_routine()

    def run(self, pointers: tuple[int, ...]) -> int:
        self._slots[: len(pointers)] = pointers  # type: ignore[call-overload]
        status: int = self._call(self._address)
        return status


def _words(words: Sequence[Any], keep: list[Any]) -> int:
    """The address of words in memory; a nested list of words is replaced by its address."""
    made = (ctypes.c_int64 * len(words))(*[_words(w, keep) if isinstance(w, list) else w for w in words])
    keep.append(made)
    return ctypes.addressof(made)


@lru_cache(1)
def _shares_routine() -> Any:
    from ...llvm import native

    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(native.routine("weft_shares"))


def sum_parts(parts: np.ndarray) -> np.ndarray:
    """The sum of a matrix's rows, in order."""
    if len(parts) == 1:
        return parts[0]
    from ...llvm.eager_reduce import reduce

    total = reduce("sum", parts, (0,))
    assert total is not None
    return total


class Cache:
    """Prepared calls by everything that distinguishes them, bounded: the oldest entry is evicted.

    The width is in the keys because copies are created for it (Note [One thread per primitive]).

    A look-up is a plain dictionary access; a missing entry is created outside the lock, so two threads may both create it,
    and one of the results is kept. `Unsupported` is cached too.
    """

    def __init__(self, capacity: int = 2048) -> None:
        if capacity < 1:
            raise ValueError(f"Cache: capacity must be positive. Got {capacity}.")
        self.capacity = capacity
        self._entries: dict[Hashable, Any] = {}
        self._lock = forks.held_over_fork()
        self.lookup = self._entries.get

    def make(self, key: Hashable, prepare: Callable[[], _Call]) -> _Call:
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
    """Negative cache entry for a call that oneDNN does not support."""

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def raise_it(self) -> None:
        raise capi.Unsupported(self._reason)

    def __call__(self, *_: object) -> Any:
        raise capi.Unsupported(self._reason)


cache = Cache()


def is_reference(primitive: Primitive | Shares) -> bool:
    """Whether oneDNN has only its reference loops for this, which are hundreds of times slower."""
    return "ref" in primitive.implementation.split(":")[0]


def reject_reference(primitive: Shares) -> Shares:
    """`primitive`, unless it is a reference implementation: then `Unsupported`, since the plain lowering is faster."""
    if is_reference(primitive):
        raise capi.Unsupported(f"oneDNN: only a slow reference implementation exists for {primitive}.")
    return primitive
