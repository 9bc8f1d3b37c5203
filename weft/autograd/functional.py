"""Differentiation as functions: gradients of outputs, of functions, Jacobians and products with them.

Forward mode (`jvp`) is derived from double reverse: differentiating the vector–Jacobian product with respect to its
vector gives the Jacobian–vector product, for every op that has a gradient rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..tensor import Tensor
from .engine import run_backward
from .tape import enable_grad
from .tree import flatten
from .vmap import on_any_tape


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """The gradients of (the sum of) `outputs` with respect to each of `inputs`, without touching any `.grad`.

    Only the part of the graph between outputs and inputs is run. An input that the outputs do not depend on is an
    error unless `allow_unused`, which makes its gradient None.

    >>> import weft as wf
    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> wf.grad(x * x, x)[0].item()
    6.0
    """
    outs, ins = _listed(outputs), _listed(inputs)
    seeds = [None] * len(outs) if grad_outputs is None else _listed(grad_outputs)
    if len(seeds) != len(outs):
        raise ValueError(f"grad: expected {len(outs)} grad_outputs, one per output. Got {len(seeds)}.")
    results = run_backward(outs, seeds, retain_graph=retain_graph, create_graph=create_graph, inputs=ins)
    assert results is not None
    if not allow_unused:
        for i, g in enumerate(results):
            if g is None:
                raise RuntimeError(
                    f"grad: output does not depend on input {i}. Pass `allow_unused=True` to get None for it."
                )
    return tuple(results)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _tensors(name: str, value: Any) -> list[Any]:
    """What a function returned, as a list of tensors."""
    outs = _listed(value)
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{name}: the function must return tensors. Got {type(o).__name__}.")
    return outs


def backward(tensors: Any, grad_tensors: Any = None, *, retain_graph: bool | None = None, create_graph: bool = False) -> None:
    """Add the gradients of several outputs at once to the `.grad` of the leaves."""
    outs = _listed(tensors)
    run_backward(
        outs, [None] * len(outs) if grad_tensors is None else _listed(grad_tensors),
        retain_graph=retain_graph, create_graph=create_graph,
    )  # fmt: skip


def _watched(args: Sequence[Any], argnums: Sequence[int], keep_graph: bool) -> list[Any]:
    """The arguments with those to differentiate as fresh leaves (or, for higher order, linked to the outer tape)."""
    watched = list(args)
    for i in argnums:
        x = watched[i]
        if not isinstance(x, Tensor):
            x = Tensor(x)
        if keep_graph and x._node is not None:
            from ..ops.shaping import clone

            watched[i] = clone(x)
        else:
            watched[i] = x.detach().requires_grad_()
    return watched


def value_and_grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns `fn`'s (scalar) value and its gradient with respect to the arguments `argnums`.

    With `has_aux`, `fn` returns (value, anything) and the result is ((value, anything), gradient).
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        outer = any(on_any_tape(a) for a in flatten((args, kwargs))[0])
        with enable_grad():
            watched = _watched(args, numbers, outer)
            result = fn(*watched, **kwargs)
            value = result[0] if has_aux else result
            if not isinstance(value, Tensor) or value.size != 1:
                raise ValueError("value_and_grad: the function must return a tensor with one element.")
            if value._node is None:
                gradients: tuple[Any, ...] = (None,) * len(numbers)
            else:
                higher = outer or _inside_transform()
                gradients = grad(value, [watched[i] for i in numbers], create_graph=higher, allow_unused=True)
        gradients = tuple(
            _zeros(watched[i]) if g is None else g for i, g in zip(numbers, gradients, strict=True)
        )
        answer = gradients[0] if isinstance(argnums, int) else gradients
        if not outer and not _inside_transform():
            value = value.detach()
        return ((value, result[1]) if has_aux else value), answer

    return differentiated


class _Depth(threading.local):
    level = 0


_depth = _Depth()


def _inside_transform() -> bool:
    return _depth.level > 0


class _Nested:
    """While a transform differentiates a function, inner transforms keep their graph."""

    def __enter__(self) -> None:
        _depth.level += 1

    def __exit__(self, *_: Any) -> None:
        _depth.level -= 1


def _zeros(x: Tensor) -> Tensor:
    from ..ops.creation import zeros_like

    return zeros_like(x)


def grad_fn(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of `fn`, which must return a tensor with one element."""
    both = value_and_grad(fn, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, answer = both(*args, **kwargs)
        return (answer, value[1]) if has_aux else answer

    return gradient


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """The value of `fn(*primals)` and a function from a cotangent to the gradients of the primals."""
    with enable_grad():
        watched = _watched(primals, range(len(primals)), True)
        out = fn(*watched)
    outs = _tensors("vjp", out)

    def pullback(*cotangents: Any) -> tuple[Any, ...]:
        differentiable = [(o, c) for o, c in zip(outs, cotangents, strict=True) if o._node is not None]
        if not differentiable:
            return tuple([_zeros(w) for w in watched])
        higher = any(on_any_tape(c) for c in cotangents)
        gradients = grad(
            [o for o, _ in differentiable], watched, [c for _, c in differentiable],
            retain_graph=True, create_graph=higher or _inside_transform(), allow_unused=True,
        )  # fmt: skip
        return tuple([_zeros(w) if g is None else g for w, g in zip(watched, gradients, strict=True)])

    return out, pullback


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of `fn(*primals)` and the derivative in the direction `tangents` (by double reverse)."""
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: expected one tangent per primal. Got {len(primals)} primals and {len(tangents)} tangents.")
    with enable_grad():
        watched = _watched(primals, range(len(primals)), True)
        out = fn(*watched)
        outs = _tensors("jvp", out)
        duals = [_zeros(o).requires_grad_() if o._node is not None else None for o in outs]
        live = [(o, d) for o, d in zip(outs, duals, strict=True) if d is not None]
        tangents_out: list[Any] = [_zeros(o) for o in outs]
        if live:
            gradients = grad([o for o, _ in live], watched, [d for _, d in live], create_graph=True, allow_unused=True)
            pairs = [
                (g, Tensor(t) if not isinstance(t, Tensor) else t)
                for g, t in zip(gradients, tangents, strict=True)
                if g is not None and g._node is not None
            ]
            if pairs:
                results = grad(
                    [g for g, _ in pairs],
                    [d for _, d in live],
                    [t for _, t in pairs],
                    create_graph=_inside_transform(),
                    allow_unused=True,
                )
                position = 0
                for i, d in enumerate(duals):
                    if d is not None:
                        if results[position] is not None:
                            tangents_out[i] = results[position]
                        position += 1
    if isinstance(out, (list, tuple)):
        return out, type(out)(tangents_out)
    return out, tangents_out[0]


def jacobian(fn: Callable[..., Any], inputs: Any, *, create_graph: bool = False) -> Any:
    """The Jacobian of `fn` at `inputs` (a tensor or a tuple): shape of the output followed by that of the input.

    One row per output element is computed by reverse mode.
    """
    from ..ops.creation import zeros
    from ..ops.shaping import reshape, stack

    single = not isinstance(inputs, (list, tuple))
    primals = [inputs] if single else list(inputs)
    with enable_grad():
        watched = _watched(primals, range(len(primals)), create_graph or _inside_transform())
        out = fn(*watched)
        if not isinstance(out, Tensor):
            raise TypeError(f"jacobian: the function must return one tensor. Got {type(out).__name__}.")
        flat = reshape(out, (-1,))
        rows: list[list[Tensor]] = [[] for _ in watched]
        for i in range(flat.shape[0]):
            if flat._node is None:
                gradients: Sequence[Any] = [None] * len(watched)
            else:
                gradients = grad(
                    flat[i], watched, retain_graph=True, create_graph=create_graph or _inside_transform(), allow_unused=True
                )
            for column, g, w in zip(rows, gradients, watched, strict=True):
                column.append(_zeros(w) if g is None else g)
    results = tuple([
        reshape(stack(column), (*out.shape, *w.shape)) if column else zeros((*out.shape, *w.shape), dtype=w.dtype)
        for column, w in zip(rows, watched, strict=True)
    ])  # fmt: skip
    return results[0] if single else results


def hessian(fn: Callable[..., Any], inputs: Tensor) -> Tensor:
    """The matrix of second derivatives of a scalar function of one tensor."""

    def gradient(x: Tensor) -> Tensor:
        out = fn(x)
        if not isinstance(out, Tensor) or out.size != 1:
            raise ValueError("hessian: the function must return a tensor with one element.")
        g = grad(out, x, create_graph=True, allow_unused=True)[0] if out._node is not None else None
        return _zeros(x) if g is None else g

    with _Nested():
        result = jacobian(gradient, inputs)
    return result.detach()
