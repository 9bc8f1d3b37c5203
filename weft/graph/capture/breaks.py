"""Cuts: what a function that needs values in the middle says, how it runs, and how such functions are found early.

A function is traced as a whole first. If the trace meets something that needs a value, prints or does other I/O, the function
runs in segments from then on (Note [Segments]). Where the source shows that it will happen (`.item()`, `.numpy()`,
`breakpoint()`), the first call runs in segments at once, so that what it does besides happens once.
"""

from __future__ import annotations

import functools
import gc
import sys
from types import CodeType, FrameType
from typing import Any

from ...errors import Location
from .python_reads import _reachable
from .segment_programs import SegmentPrograms
from .segments import LazyGraph, Segments
from .tracing import GraphBreak

_DEMANDS = frozenset(("item", "numpy", "tolist", "breakpoint", "set_trace"))
_OUTPUT = frozenset(
    ("print", "input", "open", "write", "read", "log", "info", "debug", "warning", "error", "exception", "breakpoint")
)
_BUILTIN = type(print)
_CALLS = {print: "print", input: "input", open: "open", breakpoint: "breakpoint"}


@functools.lru_cache(maxsize=4096)
def _words(code: CodeType) -> frozenset[str]:
    return frozenset(code.co_names)


def demands_values(fn: Any) -> bool:
    """Whether the source of `fn`, or of functions that it calls, asks for values by name."""
    return any(_words(code) & _DEMANDS for code, _ in _reachable(fn))


class output_cuts:
    """Context manager around a trace in which printing and other I/O of the user's code raise `GraphBreak`."""

    def __init__(self, fn: Any, enabled: bool) -> None:
        self._codes: set[CodeType] = set()
        if enabled and sys.getprofile() is None:  # a profiler of the user's has precedence
            codes = {code for code, _ in _reachable(fn)}
            if any(_words(code) & _OUTPUT for code in codes):
                self._codes = codes

    def __enter__(self) -> None:
        if self._codes:
            sys.setprofile(self._look)

    def __exit__(self, *_: Any) -> None:
        if self._codes:
            sys.setprofile(None)

    def _look(self, frame: Any, event: str, arg: Any) -> None:
        if event == "c_call":
            if frame.f_code not in self._codes:
                return
            what = _CALLS.get(arg) if arg.__class__ is _BUILTIN else None
            if what is None:
                owner = getattr(arg, "__self__", None)
                if type(owner).__module__ != "_io" or arg.__name__ not in ("write", "writelines", "read", "readline"):
                    return
                what = f"{arg.__name__} of a file"
        elif event == "call":
            if frame.f_back is None or frame.f_back.f_code not in self._codes:
                return
            what = frame.f_globals.get("__name__")
            if what not in ("logging", "pdb", "bdb"):
                return
            frame = frame.f_back
        else:
            return
        raise GraphBreak(what, Location(frame.f_code, frame.f_lineno))


class Cut:
    """In the place of a trace: calls with this signature run in segments. `known` is False if no cut was met so far."""

    reads, guards, variants, relinked, links, reason = None, (), (), -1, (), None
    capture = compiled = None

    def __init__(self, owner: Any, signature: str, programs: SegmentPrograms, error: GraphBreak | None = None) -> None:
        self.owner, self.signature, self.programs = owner, signature, programs
        self.known = error is not None
        self.where = None if error is None else error.at
        self.action = None if error is None else error.action
        self.short = False  # whether all segments were too short to pay, so that calls run eagerly
        self.parts: list[tuple[int, bool]] = []

    def holds(self, tensors: Any) -> bool:
        return True

    def run(self, tensors: Any) -> Cut:
        return self

    def refresh(self) -> None:
        """Nothing is frozen."""

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function with Python, and what lies between cuts as programs."""
        if self.short:
            return fn(*args, **kwargs)
        mode = Segments(self.owner.__name__, self.programs)
        with mode:
            result = fn(*args, **kwargs)
        self._finish(mode.graph)
        return result

    def _finish(self, graph: LazyGraph) -> None:
        self.parts = graph.parts
        if graph.first_cut is not None and self.where is None:
            self.action, self.where = graph.first_cut
        if self.known or graph.first_cut is not None:
            self.known = True
            self.short = not any(compiled for _, compiled in graph.parts)
            self.owner._tell_cut(self)

    def note(self) -> str:
        """What the user is told once."""
        line = f" at {self.where}" if self.where is not None else ""
        start = f"{self.owner.__name__}: cut{line}, where Python needs a value or does I/O ({self.action}). "
        end = "For one program, return the value and look at it outside; with `wf.function(fullgraph=True)` a cut is an error."
        compiled = [ops for ops, ran in self.parts if ran]
        short = len(self.parts) - len(compiled)
        if not compiled:
            return f"{start}Its parts are too short to compile, so it runs eagerly. {end}"
        what = f"{len(compiled)} compiled part{'s' * (len(compiled) != 1)} ({sum(compiled)} ops)"
        if short:
            what += f" and {short} too short to compile"
        return (
            f"{start}It runs as {what}, with its Python code in between, at every call, which costs about as much Python time "
            f"as an eager call. {end}"
        )


def forget(tensors: list[Any]) -> bool:
    """Take symbolic tensors that a given-up trace has appended to lists out of them again, as the call is going to be repeated.

    Returns False if something else holds one: what an attribute or a variable was before cannot be restored.
    """
    holders: list[list[Any]] = []
    for number in range(len(tensors)):  # no variable of this function is a holder
        for holder in gc.get_referrers(tensors[number]):
            if holder is tensors or isinstance(holder, FrameType):
                continue
            if type(holder) is not list:
                return False
            holders.append(holder)
    gone = set(map(id, tensors))
    for holder in holders:
        holder[:] = [v for v in holder if id(v) not in gone]
    return True
