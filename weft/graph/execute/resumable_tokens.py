"""The token engine for one part of a step over several processes: it keeps no thread while it waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph import Node, Value
from .resumable import resume
from .run import Run
from .tokens import TokenEngine, TokenPart
from .transport import Tag


class Idle(NamedTuple):
    """What a part that has nothing to do has sent to and taken from each of the others."""

    number: int
    """of the report: a higher one is newer"""
    sent: dict[Any, int]
    received: dict[Any, int]
    expects: bool
    """whether a node has some of its tokens, so that more must come"""


class ResumableTokens(TokenEngine):
    """A token engine that keeps no thread while it waits, for one part of a step over several processes.

    Other parts send it tokens (`deliver`) and it sends them tokens (`emit`). No part can know that all are done, so each
    says when it has nothing to do (`idle`), and counts the tokens it has sent to and taken from every other part: the
    step is over when all are idle and the two counts of every pair agree.

    Args:
        plan, part, run, env: as for `TokenEngine`.
        emit: sends (destination, edge, tag, array, dead) to another part.
        idle: called when there is nothing to do but to wait for tokens; the calls of two threads may overtake each other.
        finished, wake: as for `ResumableEngine`; `finished(None)` follows `stop()`.
    """

    def __init__(
        self, plan: Any, part: TokenPart, run: Run, env: dict[Value, Any], emit: Callable[..., None],
        idle: Callable[[Idle], None], finished: Callable[[BaseException | None], None],
        wake: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(plan, part, run, env, None, None)
        self.emit, self.idle, self.ended, self.wake = emit, idle, finished, wake
        self.sent: dict[Any, int] = {}
        self.received: dict[Any, int] = {}
        self.error: BaseException | None = None
        self._events = 1  # what has happened and was not handled yet; at first the beginning of the step
        self._stop_asked: tuple[BaseException | None] | None = None
        self._begun = self._driven = self._stopped = self._over = False
        self._idles = 0

    @property
    def has_events(self) -> bool:
        """Whether something is to be done that no thread does."""
        return bool(self._events) and not self._driven

    def waiting(self) -> list[Node]:
        return [item.node for item in list(self.started.values())]

    def deliver(self, source: Any, edge: Any, tag: Tag, array: Any, dead: bool) -> None:  # type: ignore[override]
        """A token from another part, on any thread."""
        with self.run_state.changed:
            self.inbox.append((source, (edge, tag, array, dead)))
            self._events += 1
        resume(self)

    def _report(self, key: Any, item: Any, tag: Tag, error: BaseException | None, outputs: Sequence[Any]) -> None:
        with self.run_state.changed:
            self.finished.append((key, item, tag, error, outputs))
            self._events += 1
        resume(self)

    def _emit(self, device: Any, edge: str, tag: Tag, array: Any, dead: bool) -> None:
        destination, number = device
        self.sent[destination] = self.sent.get(destination, 0) + 1
        self.emit(destination, number, tag, array, dead)

    def drain(self, todo: deque[Any]) -> None:
        """Handle events and fire nodes until there are none, unless another thread does."""
        changed = self.run_state.changed
        with changed:
            if self._driven or not self._events or self._over:
                return
            self._driven = True
        while True:
            with changed:
                self._events = 0
                came, self.inbox = self.inbox, deque()
                finished, self.finished = self.finished, deque()
                asked = self._stop_asked
            try:
                if asked is not None and not self._stopped:
                    self._halt(asked[0])
                self._handle(came, finished)
            except BaseException as error:  # kept, and given to `finished`
                self._halt(error)
            with changed:
                if self._events:
                    continue
                self._driven = False
                idle = not self.pending and not self._stopped
                over = self._stopped and not any(w is None for w in self.pending.values())
                ends = over and not self._over
                self._over = self._over or over
                if idle:
                    self._idles += 1
                    report = Idle(self._idles, dict(self.sent), dict(self.received), bool(self.slots))
            if ends:
                self.ended(self.error)
            elif idle:
                self.idle(report)
            return

    def _handle(self, came: Any, finished: Any) -> None:
        if self._stopped:
            for report in finished:
                self.pending.pop(report[0], None)
            return
        if not self._begun:
            self._begun = True
            self._begin_step()
        for source, (edge, tag, array, dead) in came:
            self.received[source] = self.received.get(source, 0) + 1
            self._take(edge, tag, array, dead)
        self._collect(finished)
        while self.ready:
            self.run_state.check_start()
            self._fire(*self.ready.popleft())

    def _halt(self, error: BaseException | None) -> None:
        if self.error is None:
            self.error = error
        self._stopped = True
        self.ready.clear()
        for key, withdraw in list(self.pending.items()):
            if withdraw is not None:
                self.pending.pop(key, None)
                withdraw()

    def forget(self) -> None:
        """As `ResumableEngine.forget`."""
        self.made, self.given = {}, {}
        self.slots.clear()
        self.loop_constants.clear()

    def stop(self, error: BaseException | None = None) -> None:
        """Fire nothing more, withdraw what waits, and end with `error` once no node runs. From any thread."""
        with self.run_state.changed:
            if self._stop_asked is None:
                self._stop_asked = (error,)
            self._events += 1
        resume(self)
