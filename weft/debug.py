"""Print and check tensor values, eagerly and inside captured functions.

Python's own `print` shows a symbolic tensor's shape while a function is captured, once; `wf.debug.print` shows its values
every time the program runs. `wf.debug.check` (and an `assert` on a tensor in a captured function) fails when the program
runs, before any variable is written.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from .ops.core.define import primitive
from .ops.core.registry import NOT_DIFFERENTIABLE
from .ops.core.samples import Bad, Sample
from .ops.core.spec import Spec
from .tensor import Tensor, wrap


@primitive(
    infer=lambda x, text: Spec(x.shape, x.dtype),
    vjp=lambda g: g,
    namespace="internal",
    effects=("print", "host"),
    cost="move",
    reference=lambda x, text: x,
    samples=lambda m: [Sample(m.normal(2), "{}")],
)
def print_value(x: Tensor, text: str) -> Any:
    """Print `x` into `text` and return `x`."""
    builtins.print(_filled(text, str(wrap(np.asarray(x)))))
    return x


def _filled(text: str, value: str) -> str:
    """`text` with `{}` replaced. Not `str.format`: text from a graph file could reach attributes of objects."""
    parts = [part.split("{}") for part in text.split("{{")]
    if any("{" in piece or "}" in piece.replace("}}", "") for part in parts for piece in part):
        raise ValueError(f"print: only `{{}}` stands for the value in the text. Got {text!r}.")
    return "{".join([value.join([piece.replace("}}", "}") for piece in part]) for part in parts])


def print(text: str, x: Tensor) -> Tensor:
    """Print `text` with `{}` replaced by the value of `x`, every time the program runs, and return `x`.

    >>> @wf.function
    ... def double(x):
    ...     return 2 * wf.debug.print("x is {}", x)
    >>> y = double(wf.tensor(1.5))
    x is tensor(1.5)
    """
    return print_value(x, text if "{" in text else text + " {}")


def _infer_check(condition: Any, message: str) -> Spec:
    return Spec((), np.dtype(bool))


@primitive(
    name="check_true",
    check_error=AssertionError,
    infer=_infer_check,
    vjp=NOT_DIFFERENTIABLE,
    namespace="internal",
    effects=("check",),
    cost="each",
    reference=lambda condition, message: np.all(condition),
    samples=lambda m: [Sample(np.array([True, True]), "all right")],
    errors=lambda m: [Bad(AssertionError, "not all right", np.array([True, False]), "not all right")],
)
def check_true(condition: Tensor, message: str) -> Any:
    """Raise AssertionError with `message` unless every element of `condition` is true."""
    if not np.all(condition):
        raise AssertionError(message)
    return np.asarray(True)


def check(condition: Any, message: str = "a check failed") -> None:
    """Raise AssertionError with `message` unless `condition` holds; also inside captured functions.

    Args:
        condition: a bool tensor, of which every element must be true, or any Python value.

    >>> wf.debug.check(wf.tensor([1.0, 2.0]) > 0, "must be positive")
    """
    if isinstance(condition, Tensor):
        check_true(condition, message)
    elif not condition:
        raise AssertionError(message)
