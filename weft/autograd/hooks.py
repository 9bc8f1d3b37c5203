"""Hooks on gradients: functions that see, and may replace, a gradient on its way through the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .tape import Leaf

if TYPE_CHECKING:
    from ..tensor import Tensor


class HookHandle:
    """Takes a hook off again: `handle.remove()`, or use it as a context manager."""

    __slots__ = ("_hooks", "_hook")

    def __init__(self, hooks: list[Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def add_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> HookHandle:
    """Call `hook` with the gradient of `tensor` during backward."""
    node = tensor._node
    if node is None:
        raise RuntimeError("register_hook: this tensor does not require gradients.")
    if node.hooks is None:
        node.hooks = []
    node.hooks.append(hook)
    return HookHandle(node.hooks, hook)


def add_accumulate_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> HookHandle:
    """Call `hook(tensor)` after backward added to the `.grad` of this leaf."""
    node = tensor._node
    if not isinstance(node, Leaf):
        raise RuntimeError("register_post_accumulate_grad_hook: only a leaf that requires gradients accumulates them.")
    if node.after is None:
        node.after = []
    node.after.append(hook)
    return HookHandle(node.after, hook)
