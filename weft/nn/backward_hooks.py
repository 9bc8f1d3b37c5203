"""Full backward hooks: observe the gradients entering and leaving a module in the backward pass.

Inputs and outputs that need gradients pass through an identity op, so a hook sees only the gradient of this call even if
the caller uses the same tensor elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ops.array.elementwise import positive
from ..tensor import Tensor

if TYPE_CHECKING:
    from .module import Module


def watch(
    module: Module, hooks: list[Callable[..., Any]], args: tuple[Any, ...]
) -> tuple[tuple[Any, ...], Callable[[Any], Any]]:
    """The arguments to run `forward` with, and the function to pass its result through."""
    grad_input: list[Any] = [None] * len(args)
    inputs = frozenset([i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad])
    waiting = set(inputs)
    several = len(inputs) > 1
    grad_output: list[Any] = []

    def run() -> Any:
        try:
            return call_hooks()
        finally:  # the tape holds this closure: drop the gradients, so that a second backward starts clean
            grad_input[:], grad_output[:] = [None] * len(grad_input), [None] * len(grad_output)
            waiting.update(inputs)

    def call_hooks() -> Any:
        replaced = None
        for hook in hooks:
            answer = hook(module, tuple(grad_input), tuple(grad_output))
            if answer is None:
                continue
            given = answer if isinstance(answer, tuple) else (answer,)
            chosen = [g for g in given if g is not None]
            if several or len(chosen) != 1:
                raise RuntimeError(
                    f"backward hook of {type(module).__name__}: a hook may replace the gradient of a module with one "
                    f"differentiable input only. Got {len(chosen)} gradients for {len(grad_input)} inputs."
                )
            replaced = chosen[0]
            grad_input[:] = [replaced if g is not None else None for g in grad_input]
        return replaced

    def input_hook(i: int) -> Callable[[Tensor], Any]:
        def seen(g: Tensor) -> Any:
            grad_input[i] = g
            waiting.discard(i)
            return run() if not waiting else None

        return seen

    passed = []
    for i, a in enumerate(args):
        if i in inputs:
            a = positive(a)
            a.register_hook(input_hook(i))
        passed.append(a)

    def finish(result: Any) -> Any:
        several_results = isinstance(result, (tuple, list))
        items = list(result) if several_results else [result]
        grad_output[:] = [None] * len(items)
        outputs = [j for j, y in enumerate(items) if isinstance(y, Tensor) and y.requires_grad]
        open_outputs = set(outputs)

        def output_hook(j: int) -> Callable[[Tensor], Any]:
            def seen(g: Tensor) -> None:
                grad_output[j] = g
                open_outputs.discard(j)
                if not inputs and not open_outputs:
                    open_outputs.update(outputs)
                    run()

            return seen

        for j in outputs:
            items[j] = positive(items[j])
            items[j].register_hook(output_hook(j))
        if not several_results:
            return items[0]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)

    return tuple(passed), finish
