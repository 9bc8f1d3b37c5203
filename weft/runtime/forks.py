"""Fork safety: acquires Weft's locks before a fork, so that the child inherits consistent state.

A forked child has one thread. An operation that another thread of the parent had started never completes in the child: a
lock it held stays locked, and a module it was importing stays incomplete, because Python's import lock of that module
belongs to a thread that does not exist. So a fork waits until

* every lock made by `held_over_fork` is free (they guard compilations and table updates: milliseconds), and
* no other thread is importing a module. Weft imports its backends on first use, and so may a user's thread.

Per-object locks (`renewed_in_child`) are not waited for: the child's object gets a new one.

There is no lock order: when a lock is taken, the forking thread releases all others before it waits, so it cannot be part
of a deadlock. The locks are re-entrant, so a thread may fork while it holds some.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Protocol

MAX_IMPORT_SECONDS = 10.0  # seconds; an import that takes longer may be waiting for the forking thread itself


class _Lock(Protocol):
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


class _Imports:
    """The imports of other threads as a lock, which is free when there are none."""

    deadline: float | None = None

    def acquire(self, blocking: bool = True) -> bool:
        while self._busy():
            now = time.monotonic()
            self.deadline = self.deadline or now + MAX_IMPORT_SECONDS
            if now >= self.deadline:
                return True
            if not blocking:
                return False
            time.sleep(0.001)
        return True

    def release(self) -> None:
        return

    def _busy(self) -> bool:
        # There is no public API for this; without the expected table, do not wait.
        locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
        me = threading.get_ident()
        owners = [getattr(reference(), "owner", None) for reference in list(locks.values())]
        return any(owner not in (None, me) for owner in owners)


_table = threading.RLock()  # guards the list of locks and is one of them
_imports = _Imports()
_held: list[_Lock] = [_table, _imports]
_taken: list[list[_Lock]] = []  # one entry per fork in progress; all locks are held while it is modified
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def held_over_fork() -> Any:
    """A new re-entrant lock that is held during every fork of this process. It is never freed."""
    lock = threading.RLock()
    with _table:
        _held.append(lock)
    return lock


def renewed_in_child(owner: Any) -> None:
    """Replace `owner._lock` by a new lock in a forked child; it must guard nothing that a fork can leave inconsistent."""
    _owners.add(owner)


def _acquire_all() -> None:
    _imports.deadline = None
    wait_for: _Lock = _table
    while True:
        wait_for.acquire()
        taken = [wait_for]
        for lock in [_table, *_held]:  # re-read: the awaited thread may have added locks
            if not lock.acquire(blocking=False):
                break
            taken.append(lock)
        else:
            _taken.append(taken)
            return
        for held in taken:
            held.release()
        wait_for = lock


def _release_all() -> None:
    for lock in _taken.pop():
        lock.release()


def _renew() -> None:
    for owner in list(_owners):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all)
    os.register_at_fork(after_in_child=_renew)
