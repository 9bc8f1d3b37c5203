"""Gradient hooks: functions that observe, and may replace, a gradient during backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..tensor import current_grad_hook
from .tape import Leaf, note_relink

if TYPE_CHECKING:
    from ..tensor import Tensor


class HookHandle:
    """Removes a hook: call `remove()`, or use it as a context manager."""

    __slots__ = ("_hooks", "_hook")

    def __init__(self, hooks: list[Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
            note_relink()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def _note(what: str, tensor: Tensor) -> None:
    """Called before a tensor gets a hook: captured functions decide what that means for them."""
    capture = current_grad_hook()
    if capture is not None:
        capture.hook(what, tensor)
    if not tensor.is_symbolic:
        note_relink()


def add_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> HookHandle:
    """Call `hook` with the gradient of `tensor` during backward."""
    _note("register_hook", tensor)
    node = tensor._node
    if node is None:
        raise RuntimeError("register_hook: this tensor does not require gradients.")
    if node.hooks is None:
        node.hooks = []
    kept = bool(node.hooks) and isinstance(node.hooks[-1], _Keeper)
    node.hooks.insert(len(node.hooks) - kept, hook)
    return HookHandle(node.hooks, hook)


class _Keeper:
    """The hook behind `retain_grad`. It stays last, so that it sees the gradient that is propagated."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)

    def __call__(self, g: Tensor) -> None:
        tensor = self._tensor()
        if tensor is not None:
            have = tensor.grad
            tensor._grad = (
                g.clone() if have is None else have + g
            )  # a copy: the engine may hand the same array to a leaf


def hooks_of(node: Any) -> tuple[Any, ...]:
    """The hooks that a backward pass which ends at `node` runs."""
    return () if node is None else (*(node.hooks or ()), *(getattr(node, "after", None) or ()))


def retains_gradient(tensor: Tensor) -> bool:
    """Whether `retain_grad` was called on this interior tensor."""
    hooks = None if tensor._node is None else tensor._node.hooks
    return hooks is not None and len(hooks) > 0 and isinstance(hooks[-1], _Keeper)


def keep_gradient(tensor: Tensor) -> None:
    """Accumulate the gradient of an interior tensor in its `.grad` from now on; idempotent."""
    _note("retain_grad", tensor)
    node = tensor._node
    if node is None:
        raise RuntimeError("retain_grad: this tensor does not require gradients.")
    if node.hooks is None:
        node.hooks = []
    if not node.hooks or not isinstance(node.hooks[-1], _Keeper):
        node.hooks.append(_Keeper(tensor))


def add_accumulate_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> HookHandle:
    """Call `hook(tensor)` after backward added to the `.grad` of this leaf."""
    _note("register_post_accumulate_grad_hook", tensor)
    node = tensor._node
    if not isinstance(node, Leaf):
        raise RuntimeError("register_post_accumulate_grad_hook: only a leaf that requires gradients accumulates them.")
    if node.after is None:
        node.after = []
    node.after.append(hook)
    return HookHandle(node.after, hook)
