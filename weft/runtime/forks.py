"""What a fork waits for, so that a child never inherits something that nobody will finish.

A forked child has one thread. What another thread of the parent was in the middle of stays in the middle for ever: a
lock it held never opens, and a module it was importing never becomes complete, because Python's own lock of that module
belongs to a thread that does not exist. So a fork waits until

* every lock made by `held_over_fork` is free (they guard compilations and changes of tables: milliseconds), and
* no other thread is importing a module. Weft imports its backends on first use, and so may a user's thread.

A lock that belongs to one object of many (`renewed_in_child`) is not waited for: the child's object gets a new one.

The forking thread takes the locks without an order of its own: when one is taken, it lets go of all the others before it
waits, so it can never be part of a cycle. The locks are re-entrant, so a thread may fork while it holds some.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Protocol

PATIENCE = 10.0  # seconds; an import that takes longer may be waiting for the forking thread itself


class _Lock(Protocol):
    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


class _Imports:
    """The imports of other threads, seen as a lock that is free when there are none."""

    deadline: float | None = None

    def acquire(self, blocking: bool = True) -> bool:
        while self._busy():
            now = time.monotonic()
            self.deadline = self.deadline or now + PATIENCE
            if now >= self.deadline:
                return True
            if not blocking:
                return False
            time.sleep(0.001)
        return True

    def release(self) -> None:
        return

    def _busy(self) -> bool:
        # Python offers no public look at this; where the table is not what we know, we do not wait.
        locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
        me = threading.get_ident()
        owners = [getattr(reference(), "owner", None) for reference in list(locks.values())]
        return any(owner not in (None, me) for owner in owners)


_table = threading.RLock()  # guards the list of locks and is one of them
_imports = _Imports()
_held: list[_Lock] = [_table, _imports]
_taken: list[list[_Lock]] = []  # one entry per fork under way; all locks are held while it is changed
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def held_over_fork() -> Any:
    """A new re-entrant lock that every fork of this process takes before and releases after. It lives for ever."""
    lock = threading.RLock()
    with _table:
        _held.append(lock)
    return lock


def renewed_in_child(owner: Any) -> None:
    """Say that `owner._lock` guards nothing that a fork could leave half done: a forked child gets a new, open one."""
    _owners.add(owner)


def _acquire_all() -> None:
    _imports.deadline = None
    wait_for: _Lock = _table
    while True:
        wait_for.acquire()
        taken = [wait_for]
        for lock in [_table, *_held]:  # anew every time: what we waited for may have made more
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
