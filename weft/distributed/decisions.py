"""Decisions: what the lead alone determines, told to all members, each exactly once.

Every member asks for decision number n at the same point of its program. The lead makes it and writes it to a file of the run;
the others wait for the file. If the lead dies, its successor makes the decision. A member that comes late reads them all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from .failpoints import reach
from .team import Team

POLL_SECONDS = 0.001


_made: dict[str, int] = {}  # directory -> the decisions that earlier parts of this program have asked for


class Decisions:
    """The decisions of one part of a run, such as a call of `Trainer.fit`, in the directory `path` of the run."""

    def __init__(self, team: Team, path: str) -> None:
        self._team, self._path = team, path
        self._first = self._next = _made.get(path, 0)
        os.makedirs(path, exist_ok=True)

    def file(self, number: int, suffix: str) -> str:
        """A file that belongs to a decision; it is written before the decision itself."""
        return os.path.join(self._path, f"{number}.{suffix}")

    def latest(self, suffix: str) -> str | None:
        """The newest of the files that belong to the decisions made so far.

        A lead may have been killed after it wrote such a file and before it made the decision; then it does not count.
        """
        numbers = (n for n in range(self._next - 1, self._first - 1, -1) if os.path.exists(self.file(n, "json")))
        return next((f for f in (self.file(n, suffix) for n in numbers) if os.path.exists(f)), None)

    @property
    def current(self) -> int:
        """The number of the decision that is being made."""
        return self._next - 1

    @property
    def begun(self) -> bool:
        """Whether a decision has been made."""
        return os.path.exists(self.file(self._first, "json"))

    def make(self, decide: Callable[[], Any]) -> Any:
        """The next decision: what `decide` returned on the lead (plain values, as for JSON)."""
        file = self.file(self._next, "json")
        self._next += 1
        _made[self._path] = self._next
        polls = 0
        while not os.path.exists(file):
            if self._team.peers.lead():
                value = decide()
                temporary = f"{file}.{os.getpid()}"
                with open(temporary, "w") as out:
                    json.dump(value, out)
                reach("decision written")
                os.replace(temporary, file)
                reach("decision made")
                break
            time.sleep(POLL_SECONDS)
            polls += 1
            if polls % 20 == 0:
                self._team.nap()
        with open(file) as found:
            return json.load(found)
