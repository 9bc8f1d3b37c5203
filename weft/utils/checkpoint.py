"""Gradient checkpointing under the names of `torch.utils.checkpoint`; the same as `wf.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.checkpoint import checkpoint as _checkpoint
from ..nn.containers import Sequential

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Any = None,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Run `function` without keeping what its gradient needs: it is run again in the backward pass.

    Args:
        function: the function, or a module.
        args, kwargs: its arguments.
        use_reentrant, preserve_rng_state, determinism_check, debug, context_fn, early_stop: accepted and ignored: random
            numbers are the same in both runs in any case.

    >>> x = wf.ones(2, requires_grad=True)
    >>> wf.utils.checkpoint.checkpoint(lambda x: (x * x).sum(), x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2., 2.])
    """
    return _checkpoint(function, *args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run modules one after the other in `segments` checkpointed parts; the last part is run as usual.

    Args:
        functions: a `Sequential`, or a sequence of modules or functions.
        segments: the number of parts.
        input: the argument of the first.
        use_reentrant: accepted and ignored.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> wf.utils.checkpoint.checkpoint_sequential(model, 2, wf.ones(3, 2), use_reentrant=False).shape
    (3, 1)
    """
    parts = list(functions.children()) if isinstance(functions, Sequential) else list(functions)
    if not 1 <= segments <= max(len(parts), 1):
        raise ValueError(f"checkpoint_sequential: segments must be from 1 to {len(parts)}. Got {segments}.")
    size = len(parts) // segments
    for k in range(segments - 1):
        input = _checkpoint(_Run(parts[k * size : (k + 1) * size]), input)
    return _Run(parts[(segments - 1) * size :])(input)


class _Run:
    """Functions one after the other."""

    def __init__(self, parts: Sequence[Callable[[Any], Any]]) -> None:
        self.parts = parts

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x
