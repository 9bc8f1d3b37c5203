"""`wf.profile()`: record ops and kernels as a trace for Perfetto or chrome://tracing.

    with wf.profile("trace.json"):
        step(x, y)

Eager ops and the steps of captured programs become spans, one per op or kernel, with the user's lines. Profiling runs a
program step by step: the total is slightly longer than usual, the spans are not.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from .errors import user_location
from .ops.core.define import Mode
from .ops.core.registry import Op
from .waterfall import waterfall


class profile(Mode):
    """Context manager that records a span for every op and kernel of this thread.

    Args:
        path: the trace file to write on exit, in Chrome's trace format; None: only `spans` and `summary()`.

    >>> x = wf.ones(2)
    >>> with wf.profile() as p:
    ...     y = (x + 1).exp()
    >>> [span["name"] for span in p.spans]
    ['add', 'exp']
    """

    allows_programs = True  # their steps become spans

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.spans: list[dict[str, Any]] = []

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        start = time.perf_counter_ns()
        result = op.run(op.call, values)
        where = user_location(2)
        self._add(op.name, "op", start, time.perf_counter_ns(), [] if where is None else [where.short])
        return result

    def span(self, step: Any, start: int, end: int) -> None:
        """One step of a captured program (called by the runtime)."""
        from .compiler.explain import lines_of

        self._add(step.label, step.kind, start, end, lines_of(step.nodes))

    def _add(self, name: str, kind: str, start: int, end: int, lines: list[str]) -> None:
        self.spans.append({
            "name": name, "cat": kind, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, "pid": os.getpid(),
            "tid": threading.get_native_id(), "args": {"lines": lines},
        })  # fmt: skip

    def __enter__(self) -> profile:
        from .runtime import program

        super().__enter__()
        program._profilers.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        from .runtime import program

        program._profilers.remove(self)
        super().__exit__(*exc)
        if self.path is not None:
            self.path.write_text(json.dumps({"traceEvents": self.spans, "displayTimeUnit": "ms"}))

    def summary(self, top: int = 20) -> str:
        """The `top` names by total time, one per line with their number of calls."""
        totals: dict[str, list[float]] = {}
        for s in self.spans:
            entry = totals.setdefault(f"{s['cat']}: {s['name']}", [0.0, 0])
            entry[0] += s["dur"]
            entry[1] += 1
        rows = sorted(totals.items(), key=lambda kv: -kv[1][0])[:top]
        return "\n".join(f"{us / 1e3:10.3f} ms {int(n):6d}×  {name}" for name, (us, n) in rows)

    def draw(self, path: str | os.PathLike[str], limit: int = 30) -> Path:
        """Draw the spans to an .svg file, one row each from start to end, the longest highlighted.

        Args:
            path: the file.
            limit: the number of rows; the longest spans are drawn, and the others summed up.

        Returns:
            The path.

        Raises:
            ValueError: the name does not end in .svg.
        """
        target = Path(path)
        if target.suffix != ".svg":
            raise ValueError(f"profile: expected a file name ending in .svg. Got {target.name!r}.")
        target.write_text(waterfall(self.spans, limit), encoding="utf-8")
        return target
