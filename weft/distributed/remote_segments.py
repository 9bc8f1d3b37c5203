"""Large values between tasks of one host: copied once into shared memory, and used there by the receiver.

The sender lends a segment (anonymous memory, `weft.multiprocessing.Segment`) with the value in it. The receiver gets its
descriptor beside the first message that names it, maps it, and makes the array that the step uses on it; when the last view of
that array is gone the segment goes back and is used for the next value of about that size, whose pages are then resident. So a
value costs one copy, where a socket costs two and the pages that the kernel allocates in between.
"""

from __future__ import annotations

import itertools
import struct
import threading
import weakref
from collections import deque

import numpy as np

from ..multiprocessing import SUPPORTED, Segment
from .remote_channel import Channel
from .remote_messages import RELEASE, SHARED, bytes_of, describe_array, pack_array
from .wire import WireError

MIN_BYTES = 1 << 18  # of values that are worth a segment
MAX_FREE = 2  # segments of one size that are kept for the next values
_SEGMENT = struct.Struct("<QQ")  # number and size of the segment


def segment_bytes(nbytes: int) -> int:
    """The size of the segment for a value: rounded up to one of eight steps per power of two."""
    grain = 1 << max(12, nbytes.bit_length() - 4)
    return -(-nbytes // grain) * grain


class Lender:
    """The segments of a process, for the values it sends. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._free: dict[int, list[tuple[int, Segment]]] = {}
        self._lent: dict[tuple[Channel, int], Segment] = {}
        self._known: weakref.WeakKeyDictionary[Channel, set[int]] = weakref.WeakKeyDictionary()

    def send(self, channel: Channel, edge: int, step: int, a: int, array: np.ndarray) -> bool:
        """Send a value through shared memory; False if it must go another way."""
        nbytes = array.nbytes
        if nbytes < MIN_BYTES or channel.signed or not SUPPORTED or not array.flags.c_contiguous:
            return False
        size = segment_bytes(nbytes)
        with self._lock:
            known = self._known.setdefault(channel, set())
            free = self._free.setdefault(size, [])
            at = next((i for i, (number, _) in enumerate(free) if number in known), None)
            found = free.pop(at) if at is not None else free.pop() if free else None
        if found is None:
            try:
                found = (next(self._numbers), Segment.create(size))
            except RuntimeError:  # there is not enough shared memory
                return False
        number, segment = found
        np.copyto(segment.array((nbytes,), np.uint8), np.frombuffer(bytes_of(array), np.uint8))
        with self._lock:
            descriptors = [] if number in known else [segment.fd]
            known.add(number)
            self._lent[channel, number] = segment
        channel.send(SHARED, edge, step, a, _SEGMENT.pack(number, size) + pack_array(array), (), descriptors)
        return True

    def returned(self, channel: Channel, number: int) -> None:
        """A receiver does not need a segment any more."""
        with self._lock:
            segment = self._lent.pop((channel, number), None)
            if segment is None:
                return
            free = self._free.setdefault(len(segment), [])
            if len(free) < MAX_FREE:
                free.append((number, segment))

    def lost(self, channel: Channel) -> None:
        """The receiver is gone, with what it had."""
        with self._lock:
            for key in [k for k in self._lent if k[0] is channel]:
                del self._lent[key]


class Borrower:
    """The segments that came over one connection."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._segments: dict[int, Segment] = {}
        self.unused: deque[int] = deque()  # segments to give back

    def receive(self, head: bytes) -> np.ndarray:
        """The array that a frame names.

        Raises:
            WireError: there is no such segment, or it is too small.
        """
        try:
            number, size = _SEGMENT.unpack_from(head)
        except struct.error:
            raise WireError("a value without a segment") from None
        shape, dtype, nbytes = describe_array(head[_SEGMENT.size :])
        segment = self._segments.get(number)
        if segment is None:
            if not self.channel.descriptors:
                raise WireError("a value in a segment that did not come")
            segment = self._segments[number] = Segment.attach(self.channel.descriptors.popleft())
        if len(segment) != size or nbytes > size:
            raise WireError("a value that does not fit its segment")
        array = segment.array(shape, dtype)
        weakref.finalize(array, self.unused.append, number).atexit = False
        return array

    def give_back(self) -> None:
        """Tell the lender what is not used any more. Not from a finaliser, which may run inside of a send."""
        while self.unused:
            try:
                self.channel.send(RELEASE, 0, 0, self.unused.popleft())
            except OSError:
                self.unused.clear()  # the lender is gone
