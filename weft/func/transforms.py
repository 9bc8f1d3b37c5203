"""Function transforms over nested arguments: `grad`, `vjp`, `jvp`, Jacobians, `hessian`, `vmap`, under PyTorch's names.

They differ from the functions in `weft` in their signatures (`in_dims`, `has_aux`, `argnums`) and like them take trees of tensors
(`weft.tree`), such as the dict of a model's parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import weft as wf

from ..autograd import functional
from ..autograd.tree import flatten, map_tensors, unflatten
from ..autograd.vmap import vmap as _vmap
from ..tensor import Tensor


def grad_and_value(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that computes the gradient of `func` and its value.

    Args:
        func: returns a tensor with one element, or with `has_aux` a pair of it and anything.
        argnums: the position of the argument to differentiate, or several, which gives a tuple of gradients. The
            arguments are tensors or nested dicts, lists and tuples of them; the gradients are nested like them.
        has_aux: the result is (gradient, (value, aux)).

    >>> wf.func.grad_and_value(lambda x: (x * x).sum())(wf.tensor([1.0, 2.0]))
    (tensor([2., 4.]), tensor(5.))
    """

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        value, gradients = functional.value_and_grad(func, argnums, has_aux)(*args, **kwargs)
        return gradients, value

    return both


def grad(func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that computes the gradient of `func`; arguments as for `grad_and_value`.

    With `has_aux` the result is (gradient, aux).

    >>> wf.func.grad(wf.sin)(wf.tensor(0.0))
    tensor(1.)
    >>> wf.func.grad(lambda p: (p["w"] * p["w"]).sum())({"w": wf.tensor([1.0, 2.0])})
    {'w': tensor([2., 4.])}
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def _without_aux(name: str, fn: Callable[..., Any], has_aux: bool, kept: list[Any]) -> Callable[..., Any]:
    """`fn` returning its output alone; aux is put into `kept`."""
    if not has_aux:
        return fn

    @functools.wraps(fn)
    def output(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"{name}: with has_aux the function must return a pair (output, aux).")
        kept[:] = [result[1]]
        return result[0]

    return output


def _detached(tree: Any) -> Any:
    return map_tensors(lambda v: v.detach(), tree)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`func(*primals)` and the function that maps a cotangent of its output to gradients of the primals.

    Args:
        func: a function of tensors, or of nested values of tensors.
        primals: its arguments.
        has_aux: `func` returns (output, aux), and the result is (output, pullback, aux).

    >>> y, pullback = wf.func.vjp(lambda x: x * x, wf.tensor([1.0, 2.0]))
    >>> pullback(wf.tensor([1.0, 10.0]))
    (tensor([ 2., 40.]),)
    """
    kept: list[Any] = []
    output, pullback = functional.vjp(_without_aux("vjp", func, has_aux, kept), *primals)
    return (output, pullback, _detached(kept[0])) if has_aux else (output, pullback)


def jvp(
    func: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """`func(*primals)` and its directional derivative along `tangents`.

    Args:
        func: a function of tensors, or of nested values of tensors.
        primals: a tuple of its arguments.
        tangents: a tuple of directions, nested like the primals.
        strict: accepted and ignored: an output that does not depend on the primals has a derivative of zeros.
        has_aux: `func` returns (output, aux), and the result is (output, derivative, aux).

    >>> wf.func.jvp(lambda x: x * x, (wf.tensor(3.0),), (wf.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    kept: list[Any] = []
    output, derivative = functional.jvp(_without_aux("jvp", func, has_aux, kept), primals, tangents)
    return (output, derivative, _detached(kept[0])) if has_aux else (output, derivative)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func(*primals)` and the function that maps tangents of the primals to the derivative of the output.

    >>> y, derivative = wf.func.linearize(lambda x: x * x, wf.tensor(3.0))
    >>> derivative(wf.tensor(2.0))
    tensor(12.)
    """
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """A function that computes the Jacobian of `func`, by reverse mode.

    Args:
        func: returns tensors, possibly nested; the Jacobian of an output is of shape `(*output.shape, *input.shape)`.
        argnums: the position of the argument to differentiate, or several, which gives a tuple per output.
        has_aux: `func` returns (output, aux), and the result is (Jacobian, aux).
        chunk_size: how many rows are computed at once; all by default.

    >>> wf.func.jacrev(lambda x: x * x)(wf.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = functional.positions("jacrev", argnums, args)
        kept: list[Any] = []
        inner = _without_aux("jacrev", func, has_aux, kept)

        @functools.wraps(func)
        def of_chosen(*values: Any) -> Any:
            full = list(args)
            for i, value in zip(chosen, values, strict=True):
                full[i] = value
            return inner(*full, **kwargs)

        output, pull = functional.vjp(of_chosen, *[args[i] for i in chosen])
        outs, structure = flatten(output)
        leaves, input_structure = flatten(tuple([args[i] for i in chosen]))
        rows = []
        for k, out in enumerate(outs):
            count = out.size
            eye = wf.eye(count, dtype=out.dtype).reshape((count, *out.shape))
            zeros = [wf.zeros_like(o) for o in outs]

            def row(seed: Any, k: int = k, zeros: list[Any] = zeros) -> Any:
                return flatten(pull(unflatten(structure, [*zeros[:k], seed, *zeros[k + 1 :]])))[0]

            found = vmap(row, chunk_size=chunk_size)(eye) if count else [wf.zeros((0, *x.shape)) for x in leaves]
            shaped = [g.reshape((*out.shape, *x.shape)) for g, x in zip(found, leaves, strict=True)]
            trees = unflatten(input_structure, shaped)
            rows.append(trees[0] if isinstance(argnums, int) else trees)
        result = unflatten(structure, rows)
        return (result, _detached(kept[0])) if has_aux else result

    return jacobian


def jacfwd(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """A function that computes the Jacobian of `func`: the same as `jacrev`.

    Forward mode is derived from reverse mode here, so it would cost more and give the same numbers.

    Args:
        func, argnums, has_aux: as for `jacrev`.
        randomness: accepted and ignored: `func` runs once.

    >>> wf.func.jacfwd(lambda x: x * x)(wf.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that computes the second derivatives of `func`: the Jacobian of its Jacobian.

    >>> wf.func.hessian(lambda x: x[0] * x[0] * x[1])(wf.tensor([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """
    return jacrev(jacrev(func, argnums), argnums)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Vectorize `func`, written for one example, over a batch axis.

    Args:
        func: a function of tensors, or of nested values of tensors.
        in_dims: the batch axis of every argument: an integer, None (the same for all examples), or a tuple with one entry
            per argument, nested like the argument.
        out_dims: where the batch axis goes in the results.
        randomness: what random functions inside do: "error", "same" or "different" numbers in the examples.
        chunk_size: how many examples are computed at once; all by default.

    >>> dot = lambda a, b: (a * b).sum()
    >>> wf.func.vmap(dot, in_dims=(0, None))(wf.ones(3, 2), wf.ones(2))
    tensor([2., 2., 2.])
    """
    mapped = _vmap(func, in_dims, out_dims, randomness=randomness)
    if chunk_size is None:
        return mapped
    if chunk_size < 1:
        raise ValueError(f"vmap: chunk_size must be at least 1. Got {chunk_size}.")

    @functools.wraps(func)
    def chunked(*args: Any, **kwargs: Any) -> Any:
        from ..autograd.vmap import _batch_size, _spread

        dims = in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        leaves, structure = flatten(args)
        places = _spread("in_dims", tuple(dims), args)
        size = _batch_size(leaves, places, structure, func)
        results = []
        for start in range(0, max(size, 1), chunk_size):
            part = [_slice(x, axis, start, start + chunk_size) for x, axis in zip(leaves, places, strict=True)]
            results.append(mapped(*unflatten(structure, part), **kwargs))
        flat = [flatten(r) for r in results]
        axes = _spread("out_dims", out_dims, results[0])
        joined = [
            parts[0] if axis is None else wf.concat(list(parts), axis=axis)
            for axis, *parts in zip(axes, *[leaves for leaves, _ in flat], strict=True)
        ]
        return unflatten(flat[0][1], joined)

    return chunked


def _slice(x: Any, axis: int | None, start: int, stop: int) -> Any:
    if axis is None or not isinstance(x, Tensor):
        return x
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop),)]
