"""Memory planning: places every temporary of a program in one arena; values with disjoint lifetimes share memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..program.layout import Storage
from ..program.steps import Step, all_steps, nested_flags

ALIGNMENT = 64


def plan(steps: Sequence[Step], storages: Sequence[Storage]) -> int:
    """Set the lifetime and offset of every arena storage; returns the size of the arena in bytes.

    Largest first, each at the lowest offset that is free during its lifetime; a result that may overwrite a dead operand
    takes its place. Per-thread scratch, which lives for one step, has a separate region that all steps share, so that it
    stays in the caches of the threads that write it.
    """
    for storage in storages:
        storage.first = storage.last = -1  # of an earlier plan
    end = _lifetimes(steps, 0)
    # read when a branch or loop has failed: must not be overwritten
    for flag in nested_flags(steps):
        flag.first, flag.last = 0, end
    used = [st for st in storages if st.kind == "arena" and st.first >= 0]
    live = _in_turns(steps, [st for st in used if not st.scratch])
    live.sort(key=lambda turns: (-turns[0].nbytes, turns[0].first))
    n = len(live)
    first, last = np.empty(n, np.int64), np.empty(n, np.int64)
    start, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    total = 0
    for k, turns in enumerate(live):
        size = -(-turns[0].nbytes // ALIGNMENT) * ALIGNMENT
        begins, stops = turns[0].first, turns[-1].last
        clash = np.nonzero((first[:k] <= stops) & (last[:k] >= begins))[0]
        offset = 0
        if clash.size:
            order = clash[np.argsort(start[clash], kind="stable")]
            for s, e in zip(start[order].tolist(), ends[order].tolist(), strict=True):
                if s - offset >= size:
                    break
                if e > offset:
                    offset = e
        for storage in turns:
            storage.offset = offset
        first[k], last[k], start[k], ends[k] = begins, stops, offset, offset + size
        total = max(total, offset + size)
    scratches = [st for st in used if st.scratch]
    for scratch in scratches:
        scratch.offset = total
    return total + max([-(-st.nbytes // ALIGNMENT) * ALIGNMENT for st in scratches], default=0)


def _in_turns(steps: Sequence[Step], storages: Sequence[Storage]) -> list[list[Storage]]:
    """Chains of storages that share memory: each but the first is written by the last step that reads its predecessor."""
    known = {id(st) for st in storages}
    after: dict[int, Storage] = {}
    followers: set[int] = set()
    for written, read in (pair for step in all_steps(steps) for pair in step.overwrites):
        if (
            id(written) in known and id(read) in known and id(written) not in followers and id(read) not in after
            and read.last == written.first and read.nbytes == written.nbytes
        ):  # fmt: skip
            after[id(read)] = written
            followers.add(id(written))
    made = []
    for storage in storages:
        if id(storage) not in followers:
            turns = [storage]
            while id(turns[-1]) in after:
                turns.append(after[id(turns[-1])])
            made.append(turns)
    return made


def _lifetimes(steps: Sequence[Step], position: int) -> int:
    """Number steps, including nested ones, and record lifetimes; returns the next number.

    Operands of a loop or branch are alive throughout it; temporaries of an iteration are not.
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
