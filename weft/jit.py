"""`weft.jit`: PyTorch's names for what `wf.function` does.

`script(f)` and `trace(f, example)` are `wf.function(f)`: the function is traced, compiled for the shapes it is called with, and
captured again for others. Python control flow on tensors is rewritten, so there is no difference between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .graph.capture.function import function
from .ops.core import define

__all__ = ["export", "ignore", "is_scripting", "is_tracing", "script", "trace", "unused"]

F = TypeVar("F", bound=Callable[..., Any])


def script(obj: Any, **options: Any) -> Any:
    """`wf.function(obj)`.

    Args:
        obj: a function or a module. A class is returned as it is.
        options: PyTorch's other arguments; accepted and ignored.

    >>> @wf.jit.script
    ... def double(x):
    ...     return x * 2
    >>> double(wf.ones(2))
    tensor([2., 2.])
    """
    return obj if isinstance(obj, type) else function(obj)


def trace(func: Any, example_inputs: Any = None, **options: Any) -> Any:
    """`wf.function(func)`, called once with the example so that its program is ready.

    Args:
        func: a function or a module.
        example_inputs: a tensor, or a tuple of arguments.
        options: PyTorch's other arguments; accepted and ignored.

    >>> wf.jit.trace(lambda x: x + 1, wf.ones(2))(wf.zeros(2))
    tensor([1., 1.])
    """
    captured: Any = function(func)
    if example_inputs is not None:
        captured(*(example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)))
    return captured


def is_scripting() -> bool:
    """Whether the code is compiled from its text: never, it is traced.

    >>> wf.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Whether a function is being captured.

    >>> wf.jit.is_tracing()
    False
    """
    return bool(define.current_modes())


def ignore(fn: F) -> F:
    """The function itself: what is called while tracing is traced.

    >>> wf.jit.ignore(len) is len
    True
    """
    return fn


def unused(fn: F) -> F:
    """The function itself, as `ignore`.

    >>> wf.jit.unused(len) is len
    True
    """
    return fn


def export(fn: F) -> F:
    """The function itself: every method of a captured module can be called.

    >>> wf.jit.export(len) is len
    True
    """
    return fn
