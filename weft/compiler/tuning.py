"""Chooses between the lowerings of a node: by a short measurement, which is remembered, or by a heuristic.

A rule that knows several *ways* to compute a node calls `lower_tuned`. The way is, in this order: the one a test forces;
the one a checkpoint brought (`adopt`); the one chosen before, in this process or on disk; the fastest in a trial, if the
program being compiled has time left for trials; else the rule's own preference. A backend keeps choices on disk
(`weft.backends.llvm.choices`); they belong to one machine and version.

`WEFT_TUNE=0` switches trials off and ignores remembered choices, so that every process chooses alike. The choice affects
rounding: programs read it when they are compiled, `export` reports what was chosen, and a run that continues from a
checkpoint adopts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .. import settings
from ..graph.graph import Node, Value
from ..runtime import epoch, forks

if TYPE_CHECKING:
    from .lowering.lower import Lowering

Way = Callable[[Any, Node], bool]
"""`way(lowering, node)` adds the steps for a node, or returns False where it cannot."""

PROGRAM_SECONDS = 2.0
"""Time limit for all trials of one program."""
NODE_SECONDS = 0.04
"""Target time for the trials of one node."""
MAX_TIME_RATIO, BUSY_MAX_TIME_RATIO = 0.97, 0.8
"""Maximum time relative to the preferred way, on an idle and on a busy machine: noise should not decide."""
MAX_BUSY_TRIES = 3
"""How often later processes repeat a measurement taken on a busy machine; minimum times count."""
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """A smaller node with the same kind of work, which trials run instead of the node itself.

    `shapes` are those of the inputs (None where there is no input) and of the outputs; `scale` is the ratio of
    the node's work to the sample's. Steps for which `fixed(label)` holds cost the same in both; with `once` they do not count,
    since they run before the first call only (see `weft.compiler.lowering.frozen`).
    """

    inputs: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[tuple[int, ...], ...]
    attrs: tuple[Any, ...]
    scale: float
    fixed: Callable[[str], bool]
    once: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """`way` was chosen for the node that `key` describes. `seconds` holds the trial times, by way."""

    key: str
    title: str
    way: str
    source: str  # "measured", "remembered", "adopted", "forced", "as for the first size" or "rule"
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        if len(self.seconds) < 2:
            return f"{self.title}: {self.way} ({self.source})"
        others = ", ".join(f"{1e3 * t:.2f} ms {w}" for w, t in self.seconds.items() if w != self.way)
        return f"{self.title}: {self.way}, {1e3 * self.seconds[self.way]:.2f} ms vs {others} ({self.source})"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds by way; the time spent measuring; and whether the machine was idle meanwhile."""

    seconds: dict[str, float]
    spent: float
    calm: bool


class Store(Protocol):
    """Where measurements are remembered between processes: bytes by key, for one machine and version."""

    def machine(self) -> str: ...
    def read(self, key: str, /) -> bytes | None: ...
    def write(self, key: str, content: bytes, /) -> None: ...


Measure = Callable[[Node, Mapping[str, Way], Sample, float], Measurement]
"""`measure(node, ways, sample, limit)`."""


@dataclass(slots=True)
class ProgramTuning:
    """The tuning of one program while it is compiled: its choices, and the seconds left for trials.

    Without `measure` there are no trials; without `store` later processes do not know their results.
    """

    measure: Measure | None = None
    store: Store | None = None
    seconds: float = PROGRAM_SECONDS
    choices: dict[str, Choice] = field(default_factory=dict)
    like: ProgramTuning | None = None
    """the tuning of the function's first program; a program for another size takes the ways of that one, without trials"""
    ways: dict[str, list[str]] = field(default_factory=dict)
    """the ways of nodes, by what these have in common for all sizes, in order"""

    def first_way(self, node: Node) -> str | None:
        """The way of the corresponding node of the first program: of those that differ in sizes alone, that in the same place."""
        kind = _kind(node)
        known = [] if self.like is None else self.like.ways.get(kind, [])
        place = len(self.ways.get(kind, []))
        return known[place] if place < len(known) else known[-1] if known else None


_current: ContextVar[ProgramTuning | None] = ContextVar("weft_tuning", default=None)
_lock = forks.held_over_fork()
_known: dict[str, Choice] = {}  # of this process
_used: dict[str, str] = {}  # ways by key, of every program compiled in this process
_adopted: dict[str, str] = {}
_forced: str | None = None
_owner = object()  # stands for this module's state in `weft.runtime.epoch`


@contextmanager
def choosing(
    measure: Measure | None, store: Store | None = None, like: ProgramTuning | None = None
) -> Iterator[ProgramTuning]:
    """Choices made inside belong to one program, and may be measured with `measure` (`weft.compiler.trials.measure`), unless
    they are those of the program `like`."""
    own = ProgramTuning(measure if enabled() else None, store, like=like)
    token = _current.set(own)
    try:
        yield own
    finally:
        _current.reset(token)


@contextmanager
def forced(way: str) -> Iterator[None]:
    """Force a way for every node that supports it, in programs captured meanwhile: for tests and comparisons."""
    global _forced
    before = _forced
    epoch.change(_owner, "forced", before, way)
    _forced = way
    try:
        yield
    finally:
        _forced = before
        epoch.change(_owner, "forced", way, before)


def enabled() -> bool:
    """Whether trials may run and remembered choices are used."""
    return settings.TUNE()


# Choosing ------------------------------------------------------------------------------------------------------------


def lower_tuned(
    lowering: Lowering,
    node: Node,
    ways: Mapping[str, Way],
    preferred: str,
    title: str = "",
    sample: Callable[[], Sample | None] | None = None,
    tried: Iterable[str] | None = None,
    variant: str = "",
) -> bool:
    """Lower `node` in one of `ways`, all of which give the same result up to rounding.

    Args:
        preferred: the way to take without a measurement.
        title: the node in a few words, for `explain()`.
        sample: makes the sample for trials; with None (or a `sample` that returns None) the preferred way is taken.
        tried: the ways worth a trial (default: all).
        variant: what else the fastest way depends on.
    """
    if len(ways) == 1:
        return ways[preferred](lowering, node)
    return ways[choose(node, ways, preferred, title, sample, tried, variant).way](lowering, node)


def choose(
    node: Node,
    ways: Mapping[str, Way],
    preferred: str,
    title: str,
    sample: Callable[[], Sample | None] | None = None,
    tried: Iterable[str] | None = None,
    variant: str = "",
) -> Choice:
    """The way for a node, recorded for the program being compiled."""
    key = f"{variant} {describe(node)}" if variant else describe(node)
    current = _current.get()
    choice = current.choices.get(key) if current is not None else None
    if choice is None or choice.way not in ways:
        candidates = ways if tried is None else {w: ways[w] for w in tried}
        choice = _choose(key, node, ways, candidates, preferred, title or node.op.name, sample, current)
        if current is not None:
            current.choices[key] = choice
            current.ways.setdefault(_kind(node), []).append(choice.way)
            if choice.source != "forced":
                _used[key] = choice.way
    return choice


def _choose(
    key: str,
    node: Node,
    ways: Mapping[str, Way],
    candidates: Mapping[str, Way],
    preferred: str,
    title: str,
    sample: Any,
    current: ProgramTuning | None,
) -> Choice:
    if _forced is not None and _forced in ways:
        return Choice(key, title, _forced, "forced")
    with _lock:
        if _adopted.get(key) in ways:
            return Choice(key, title, _adopted[key], "adopted")
        if current is not None and current.measure is not None:
            known = _known.get(key) or _remembered(current.store, key, title, ways)
            if (known is None or known.way not in ways) and current.like is not None:
                first = current.first_way(node)
                if first is None or first not in ways:
                    return Choice(key, title, preferred, "rule")
                return Choice(key, title, first, "as for the first size")
            if known is None or known.way not in ways:
                known = _measured(key, node, candidates, preferred, title, sample, current)
            if known is not None:
                _known[key] = known
                return known
    return Choice(key, title, preferred, "rule")


def _measured(
    key: str, node: Node, ways: Mapping[str, Way], preferred: str, title: str, sample: Any, current: ProgramTuning
) -> Choice | None:
    if current.measure is None or current.seconds <= 0 or sample is None:
        return None
    small = sample()
    if small is None:
        return None
    with _not_choosing():
        found = current.measure(node, ways, small, min(NODE_SECONDS, current.seconds))
    current.seconds -= found.spent
    seconds, tries = found.seconds, 1
    if not found.calm:
        earlier = _entry(current.store, key)
        if earlier is not None and earlier.seconds.keys() == seconds.keys():
            seconds = {w: min(t, earlier.seconds[w]) for w, t in seconds.items()}
            tries = earlier.tries + 1
    if len(seconds) < 2 or preferred not in seconds:
        return None
    handicap = MAX_TIME_RATIO if found.calm else BUSY_MAX_TIME_RATIO
    way = min(seconds, key=lambda w: seconds[w] * (handicap if w == preferred else 1.0))
    _remember(current.store, key, _Entry(way, seconds, found.calm, tries))
    return Choice(key, title, way, "measured", seconds)


@contextmanager
def _not_choosing() -> Iterator[None]:
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def describe(node: Node) -> str:
    """The key of a node: op, shapes, dtypes and attributes. The same text in every process."""
    inputs = [[v.dtype.name, *v.shape] if isinstance(v, Value) else None for v in node.inputs]
    outputs = [list(v.shape) for v in node.outputs]
    return json.dumps([node.op.name, inputs, outputs, repr(node.attrs)])


def _kind(node: Node) -> str:
    """What a node has in common with its counterparts for other sizes."""
    inputs = [[v.dtype.name, len(v.shape)] if isinstance(v, Value) else None for v in node.inputs]
    return json.dumps([node.op.name, inputs, repr(node.attrs)])


# On disk -------------------------------------------------------------------------------------------------------------


def _file_key(store: Store, key: str) -> str:
    text = f"tuning {FORMAT}\0{store.machine()}\0{key}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry of one node on disk."""

    way: str
    seconds: Mapping[str, float]
    calm: bool
    tries: int


def _entry(store: Store | None, key: str) -> _Entry | None:
    content = None if store is None else store.read(_file_key(store, key))
    if content is None:
        return None
    try:
        found = json.loads(content)
        seconds = {str(w): float(t) for w, t in found["seconds"].items()}
        entry = _Entry(str(found["way"]), seconds, bool(found["calm"]), int(found["tries"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if entry.way in seconds else None


def _remembered(store: Store | None, key: str, title: str, ways: Iterable[str]) -> Choice | None:
    entry = _entry(store, key)
    if entry is None or entry.way not in ways or not (entry.calm or entry.tries >= MAX_BUSY_TRIES):
        return None
    return Choice(key, title, entry.way, "remembered", entry.seconds)


def _remember(store: Store | None, key: str, entry: _Entry) -> None:
    if store is not None:
        content = {"way": entry.way, "seconds": dict(entry.seconds), "calm": entry.calm, "tries": entry.tries}
        store.write(_file_key(store, key), json.dumps(content).encode())


# In checkpoints ------------------------------------------------------------------------------------------------------


def export(choices: Iterable[Choice] | None = None) -> dict[str, Any]:
    """Choices as JSON-able values: the given ones, or those of all programs compiled in this process.

    A run that `adopt`s them computes with the same kernels, hence the same bits.
    """
    with _lock:
        ways = dict(_used) if choices is None else {c.key: c.way for c in choices}
    return {"format": 1, "ways": ways}


def adopt(exported: Mapping[str, Any]) -> None:
    """Take over the choices of `export`, for programs captured from now on; other nodes are chosen as usual.

    Raises:
        ValueError: if `exported` does not come from `export`.
    """
    ways = exported.get("ways") if isinstance(exported, Mapping) else None
    if not isinstance(ways, Mapping) or not all(isinstance(x, str) for pair in ways.items() for x in pair):
        raise ValueError(
            "tuning.adopt: expected what tuning.export returned. "
            f"Got {type(exported).__name__}{'' if ways is None else ' with ways of another form'}."
        )
    with _lock:
        _adopted.update(ways)
        for key, way in ways.items():
            if key in _known and _known[key].way != way:
                del _known[key]
        if any(_used.get(key, way) != way for key, way in ways.items()):
            epoch.bump()  # programs with other choices are captured again


def forget() -> None:
    """Forget what this process has chosen or adopted; what is on disk stays."""
    with _lock:
        for table in (_known, _used, _adopted):
            table.clear()
        epoch.bump()
