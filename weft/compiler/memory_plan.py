"""The memory plan: every temporary of a program gets a place in one arena; values that are never alive at the same
time share it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .layout import Storage
from .lower import Step

ALIGNMENT = 64


def plan(steps: Sequence[Step], storages: Sequence[Storage]) -> int:
    """Set the lifetime and offset of every arena storage; returns the size of the arena in bytes.

    Largest first, each at the lowest place that is free during its whole life.
    """
    for storage in storages:
        storage.first = storage.last = -1  # of an earlier plan
    end = _lifetimes(steps, 0)
    # looked at when a branch or loop has failed, so nobody may write over them
    for flag in nested_flags(steps):
        flag.first, flag.last = 0, end
    live = [st for st in storages if st.kind == "arena" and st.first >= 0]
    live.sort(key=lambda st: (-st.nbytes, st.first))
    n = len(live)
    first, last = np.empty(n, np.int64), np.empty(n, np.int64)
    start, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    total = 0
    for k, storage in enumerate(live):
        size = -(-storage.nbytes // ALIGNMENT) * ALIGNMENT
        clash = np.nonzero((first[:k] <= storage.last) & (last[:k] >= storage.first))[0]
        offset = 0
        if clash.size:
            order = clash[np.argsort(start[clash], kind="stable")]
            for s, e in zip(start[order].tolist(), ends[order].tolist(), strict=True):
                if s - offset >= size:
                    break
                if e > offset:
                    offset = e
        storage.offset = offset
        first[k], last[k], start[k], ends[k] = storage.first, storage.last, offset, offset + size
        total = max(total, offset + size)
    return total


def nested_flags(steps: Sequence[Step]) -> list[Storage]:
    """The flags of the checks inside branches and loops."""
    found = []
    for step in steps:
        for part in step.parts:
            found += [inner.storages[0] for inner in part if inner.kind == "check"] + nested_flags(part)
    return found


def _lifetimes(steps: Sequence[Step], position: int) -> int:
    """Number steps, those inside branches and loops too, and note who is alive when; returns the next number.

    What a loop or branch itself reads and writes is alive throughout it; what only an iteration uses is not.
    """
    for step in steps:
        start = position
        for part in step.parts:
            position = _lifetimes(part, position)
        for storage in (*step.reads, *step.writes):
            storage.first = start if storage.first < 0 else min(storage.first, start)
            storage.last = max(storage.last, position)
        position += 1
    return position
