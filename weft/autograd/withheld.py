"""Track gradients that stayed inside a captured program, because the function updated their tensors itself.

An eager `step()` or clip after such a call would find no gradient and silently do nothing; it calls `refuse` first.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

_by_tensor: dict[int, tuple[Any, Any]] = {}  # id of a tensor -> weak references to it and to the program


def note(tensor: Any, program: Any) -> None:
    """Record that calls of `program` compute a gradient of `tensor` but leave `tensor.grad` None."""
    key = id(tensor)

    def forget(_: Any) -> None:
        _by_tensor.pop(key, None)

    _by_tensor[key] = (weakref.ref(tensor, forget), weakref.ref(program))


def refuse(action: str, tensors: Iterable[Any]) -> None:
    """`action` found no gradient in any of `tensors`: raise if a captured function withheld them."""
    for tensor in tensors:
        found, program = _by_tensor.get(id(tensor), (None, None))
        if found is not None and found() is tensor and (trace := program()) is not None:
            raise RuntimeError(
                f"{action}: no parameter has a gradient. The captured function {trace.owner.__name__} updates these parameters "
                "itself, so their gradients stay inside its program. Capture it with `wf.function(..., keep_grads=True)` to "
                f"have them in `.grad`, or leave {action.split('(')[0]} to the captured function."
            )
