"""Prefix errors raised in `forward` with the path of the module.

An exception that leaves `forward` passes through the `__call__` of every enclosing module. Each one prepends
the attribute name of the child that the error came from: `encoder.layers.3.attn: matmul: inner dimensions …`.
There is no cost unless an error is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops.core.error_names import wrong_tensor

if TYPE_CHECKING:
    from .module import Module


class _Trail:
    """Location of a propagating error: the path of its origin relative to `module`."""

    __slots__ = ("module", "path", "message", "noted")

    def __init__(self, module: Module, message: Any) -> None:
        self.module, self.path, self.message = module, "", message
        self.noted = False


def argument_error(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], error: AttributeError) -> Exception:
    """What to raise for `error` in a call of `module`, located: a TypeError if an argument should have been a tensor."""
    function = type(module).forward
    found: Exception | None = None
    if hasattr(function, "__code__") and any(error.obj is a for a in (*args, *kwargs.values())):
        found = wrong_tensor(type(module).__name__, function, (module, *args), kwargs)
    locate(found or error, module)
    return found or error


def locate(error: Exception, module: Module) -> None:
    """Record that `error` leaves the `forward` of `module` and prepend the path so far to its message."""
    trail = getattr(error, "_weft_trail", None)
    if trail is None:
        try:
            error._weft_trail = _Trail(module, error.args[0] if error.args else None)  # type: ignore[attr-defined]
        except AttributeError:
            return  # an exception class with slots keeps its message as it is
        return
    if trail.module is module:
        return
    name = _name_of(trail.module, module)
    trail.module = module
    if not name:
        return
    trail.path = f"{name}.{trail.path}" if trail.path else name
    if _speaks_by_first_argument(error) and isinstance(trail.message, str):
        error.args = (f"{trail.path}: {trail.message}", *error.args[1:])
        return
    notes = getattr(error, "__notes__", [])
    if trail.noted:
        notes.pop()
    error.add_note(f"In module {trail.path}.")
    trail.noted = True


def _name_of(inner: Module, outer: Module) -> str:
    for name, module in outer.named_modules():
        if module is inner:
            return name
    return ""


def _speaks_by_first_argument(error: Exception) -> bool:
    """Whether `str(error)` is its only argument, so that a longer argument is a longer message."""
    return len(error.args) == 1 and type(error).__str__ in (BaseException.__str__, KeyError.__str__)
