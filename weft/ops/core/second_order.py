"""Second derivatives of ops that are themselves backward passes.

The backward pass of a normalisation or attention is a separate op (`layer_norm_backward`), so that native code can
implement it. That op is differentiable because the same computation is also written with public ops: its gradient
rule runs this composition on the tape and differentiates it. Only higher derivatives pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import dtypes
from ...autograd.tape import enable_grad, grad_mode
from ...tensor import Tensor, as_leaf
from .registry import Joint, joint


def composed(fn: Callable[..., Any], *attributes: str) -> Joint:
    """The gradient rule of an op whose computation `fn(*tensors, **attributes)` writes with public ops.

    `fn` takes all tensors of the op in order, and the attributes named here.
    """

    def rule(gradients: Any, *values: Any) -> list[Any]:
        split = len(values) - 1 - len(attributes)
        composition = partial(fn, **dict(zip(attributes, values[split:-1], strict=True)))
        if not isinstance(gradients, (tuple, list)):
            gradients = (gradients,)
        return composed_vjp(composition, values[:split], values[-1], gradients)

    return joint(rule, fill=False, with_all=attributes)


def composed_vjp(
    fn: Callable[..., Any], inputs: Sequence[Any], needs: Sequence[bool], gradients: Sequence[Any]
) -> list[Any]:
    """The gradients of `inputs` given those of the outputs of `fn(*inputs)`; None for inputs that need none.

    `fn` is written with public ops. Further derivatives flow through the result if they are being recorded.
    """
    from ...autograd.engine import run_backward
    from ..array.shaping import clone

    create_graph = grad_mode.enabled
    with enable_grad():
        watched: list[Any] = []
        for x, need in zip(inputs, needs, strict=True):
            if not isinstance(x, Tensor) or not dtypes.is_inexact(x.dtype):
                watched.append(x)
            elif not need:
                watched.append(x)
            elif x._node is not None:  # a separate tape node, still linked to the history of x
                watched.append(clone(x))
            else:
                watched.append(as_leaf(x.detach()))
        outputs = fn(*watched)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        pairs = [
            (o, g)
            for o, g in zip(outputs, gradients, strict=True)
            if o is not None and g is not None and o.requires_grad
        ]
        wanted = [i for i, need in enumerate(needs) if need]
        results: list[Any] = [None] * len(watched)
        if pairs and wanted:
            found = run_backward(
                [o for o, _ in pairs],
                [g for _, g in pairs],
                create_graph=create_graph,
                inputs=[watched[i] for i in wanted],
                transposed=True,
            )
            for i, g in zip(wanted, found or (), strict=True):
                results[i] = g
    return results
