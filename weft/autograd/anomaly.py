"""Anomaly detection: the first NaN or Inf raises at the line that produced it.

`detect_anomaly` is a mode: it sees every op of its thread. Forward, an op that turns finite inputs into Inf, or inputs
without NaN into NaN, raises at once, in the user's own call. Backward, the tape nodes carry the user's line, so a gradient
that blows up raises with the line of the *forward* op it belongs to. Infinities that a program uses on purpose, such as a mask of
`-inf`, pass: infinite inputs may give infinite outputs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import format_shape, user_location
from ..ops.core import define
from ..ops.core.registry import Op
from ..tensor import Tensor
from .tape import Node

ndarray = np.ndarray


class detect_anomaly(define.Mode):
    """Context manager under which the first NaN or Inf of this thread raises a RuntimeError with op and user line.

    Every op is checked, so everything is slower; it is a tool for finding a bug, not for training.

    >>> with wf.detect_anomaly():
    ...     wf.log(wf.tensor(-1.0))
    Traceback (most recent call last):
    RuntimeError: log: made NaN ...
    """

    def __enter__(self) -> detect_anomaly:
        define.trace_lines(True)
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        define.trace_lines(False)

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        out = define.call(op, values)
        problem = _problem(op.tensors(values), op.attrs(values), out)
        if problem is not None:
            where = user_location(1)
            raise RuntimeError(f"{op.title}: {problem}. At {where}.")
        return out

    def wrote(self, op: str, x: Tensor, operands: Sequence[Any]) -> None:
        """An in-place op wrote to `x` without recording anything."""
        what = _non_finite(x._data)
        others = [_non_finite(getattr(v, "_data", v)) for v in operands if v is not x]
        if what == "NaN" or what and not any(others):
            raise RuntimeError(
                f"{op}: made {what} in place, in a tensor of shape {format_shape(x.shape)}. At {user_location(1)}."
            )

    def around_backward(self, node: Node, run: Any) -> Sequence[Any]:
        """Run one step of backward; errors name the line of the forward op."""
        try:
            results = run()
        except RuntimeError as error:
            raise RuntimeError(f"backward of {node.op.title}: {error}{_made_at(node)}") from error
        for i, g in enumerate(results):
            data = getattr(getattr(g, "values", g), "_data", None)
            what = _non_finite(data)
            if what:
                raise RuntimeError(f"backward of {node.op.title}: the gradient of input {i} is {what}.{_made_at(node)}")
        return results


def _made_at(node: Node) -> str:
    return f" The forward op was called at {node.where}." if node.where is not None else ""


def _problem(tensors: Sequence[Any], attrs: Sequence[Any], out: Any) -> str | None:
    """Describe the anomaly an op introduced; None if its results are no worse than its arguments."""
    worst, shape = "", ()
    for t in out if isinstance(out, (tuple, list)) else (out,):
        what = _non_finite(getattr(t, "_data", None))
        if what and worst != "NaN":
            worst, shape = what, t.shape
    if not worst:
        return None
    inputs = [_non_finite(getattr(t, "_data", t)) for t in tensors] + [_non_finite(a) for a in attrs]
    if worst == "Inf" and any(inputs):
        return None
    if "NaN" in inputs:
        return (
            f"its argument {inputs.index('NaN')} held NaN already, which no op under this switch made, and passed it on"
        )
    return f"made {worst} in its result of shape {format_shape(shape)}"


def _non_finite(value: Any) -> str:
    """ "NaN", "Inf" or "" for an array or a number."""
    if isinstance(value, (float, complex)):
        if value != value:
            return "NaN"
        return "" if math.isfinite(abs(value)) else "Inf"
    if type(value) is not ndarray or value.dtype.kind not in "fcV":
        return ""
    if np.isfinite(value).all():
        return ""
    return "NaN" if np.isnan(value).any() else "Inf"


class _Permanent(threading.local):
    mode: detect_anomaly | None = None


_permanent = _Permanent()


def set_detect_anomaly(mode: bool) -> None:
    """Switch anomaly detection on or off for this thread; `detect_anomaly` is the context manager.

    >>> wf.set_detect_anomaly(True)
    >>> wf.set_detect_anomaly(False)
    """
    if mode and _permanent.mode is None:
        _permanent.mode = detect_anomaly()
        _permanent.mode.__enter__()
    elif not mode and _permanent.mode is not None:
        _permanent.mode.__exit__(None, None, None)
        _permanent.mode = None
