"""Direct reads: large arrays are read from the memory of the other ranks' processes, through the kernel, without staging.

Staging buffers need a round for every chunk, and a round waits for the slowest rank: on a machine with other work, an
all-reduce of 100 MB in chunks took five times as long as on an idle one. A direct read needs three rounds, whatever the
size. The kernel must allow it: ranks of one host, one user, and no security module against it. The ranks find out
together, at the first large call; if one of them may not read, all use staging buffers.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

import numpy as np

from .communicator import Call, Communicator

PIECE_BYTES = 1 << 20
"""read at once before it is combined: it is still in the cache then"""
_PR_SET_PTRACER = 0x59616D61
_WORDS = 3  # of a rank's announcement: its process, and the addresses of its values and of its result


class _Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.process_vm_readv.restype = ctypes.c_ssize_t
    word, address = ctypes.c_ulong, ctypes.c_void_p
    library.process_vm_readv.argtypes = [ctypes.c_int, address, word, address, word, word]
    return library


def _read(process: int, source: int, target: np.ndarray) -> None:
    """Copy memory of another process.

    Raises:
        OSError: it is gone, or does not allow it.
    """
    done, nbytes, start = 0, target.nbytes, address_of(target)
    while done < nbytes:
        here, there = _Range(start + done, nbytes - done), _Range(source + done, nbytes - done)
        count = _library().process_vm_readv(process, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
        if count <= 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        done += count


def address_of(array: np.ndarray) -> int:
    """Where the memory of an array begins."""
    found: int = array.__array_interface__["data"][0]
    return found


class Direct:
    """The ranks' values and results, as they have announced them for one call.

    Args:
        group: the ranks, on one host.
        call: the call they are in.
        values, result: contiguous arrays of this rank that live until `close`.
    """

    def __init__(self, group: Communicator, call: Call, values: np.ndarray, result: np.ndarray) -> None:
        self.group, self.call, self.values, self.result = group, call, values, result
        _allow()
        group.put(call, np.array([os.getpid(), address_of(values), address_of(result)], np.int64))
        chunks = [group.chunk(q, np.dtype(np.int64), _WORDS) for q in range(group.world)]
        self._places = [tuple(int(v) for v in chunk) for chunk in chunks]

    def meet(self) -> None:
        """Wait until all ranks are here: what they wrote can be read, what they read can be written."""
        self.group.arrive(self.call, 0)

    def read_values(self, rank: int, start: int, target: np.ndarray) -> None:
        """Copy values of a rank from element `start` on."""
        process, values, _ = self._places[rank]
        self._copy(process, values + start * target.itemsize, target)

    def read_result(self, rank: int, start: int, target: np.ndarray) -> None:
        """Copy a part of a rank's result from element `start` on."""
        process, _, result = self._places[rank]
        self._copy(process, result + start * target.itemsize, target)

    def _copy(self, process: int, source: int, target: np.ndarray) -> None:
        try:
            _read(process, source, target)
        except ProcessLookupError:
            self.meet()  # says that the rank was killed
            raise

    def combine(
        self, start: int, stop: int, target: np.ndarray, fold: Callable[[list[np.ndarray], np.ndarray], None]
    ) -> None:  # fmt: skip
        """Combine the values of all ranks from element `start` to `stop`; `target` may be the memory of this rank's values."""
        size = PIECE_BYTES // target.itemsize
        buffers = [np.empty(min(size, stop - start), target.dtype) for _ in range(self.group.world + 1)]
        for first in range(start, stop, size):
            last = min(first + size, stop)
            parts = [buffer[: last - first] for buffer in buffers]
            for q in range(self.group.world):
                if q == self.group.rank:
                    parts[q] = self.values[first:last]
                else:
                    self.read_values(q, first, parts[q])
            if self.group.world == 2:
                fold(parts[:2], target[first - start : last - start])
            else:  # the values of this rank must not be overwritten before they are combined
                fold(parts[:-1], parts[-1])
                np.copyto(target[first - start : last - start], parts[-1])


def _allow() -> None:
    """Let the processes that the driver of the run started read this one's memory, where a security module asks for it."""
    _library().prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getppid()), 0, 0, 0)


def possible(group: Communicator, call: Call) -> bool:
    """Whether all ranks can read each other's memory; all ranks ask, in a call that is not logged."""
    if group.direct is None:
        word = np.array([group.rank], np.int64)
        found = group.run.hosts == 1
        if found:
            window = Direct(group, call, word, word)
            copy = np.empty(1, np.int64)
            try:
                for q in range(group.world):
                    if q != group.rank:
                        window.read_values(q, 0, copy)
                        found = found and int(copy[0]) == q
            except OSError:
                found = False
            group.put(call, np.array([found], np.int64))
            found = all(int(group.chunk(q, np.dtype(np.int64), 1)[0]) for q in range(group.world))
        group.direct = found
    return group.direct
