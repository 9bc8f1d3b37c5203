"""Function transforms for differentiation: `grad`, `vjp`, `jvp`, `jacobian` and `hessian`.

Arguments and results may be trees of tensors (`weft.tree`): dicts, lists, tuples, dataclasses …

Forward mode (`jvp`) is derived from double reverse: differentiating the vector–Jacobian product with respect to its
vector gives the Jacobian–vector product, for every op that has a gradient rule.

Note [Nested differentiation]. There is one tape, without levels. A transform differentiates with respect to tensors that
it makes itself (`_Pass`), so its gradients never mix with those of another one, however they are nested. Its results stay
on the tape exactly if they depend on something that its caller recorded, be it an argument or a closed-over tensor: then
its backward pass is recorded too, and an enclosing transform, `grad` or `backward` differentiates through it. Everything
else it returns is detached. A caller under `no_grad` records nothing and gets detached results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from .. import dtypes
from ..errors import format_shape, type_name
from ..ops.core.spec import is_known
from ..tensor import Tensor, as_leaf
from .engine import parents, run_backward
from .tape import Leaf, grad_mode
from .tree import count_leaves, flatten, is_container, leaves_like, map_tree, paths, unflatten
from .vmap import detached, tape_nodes


def grad(
    outputs: Any,
    inputs: Any = None,
    grad_outputs: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of the sum of `outputs` with respect to each of `inputs`; no `.grad` changes.

    Only the part of the tape between outputs and inputs is run.

    Args:
        outputs: a tensor or a sequence of tensors. A function instead gives `grad_fn` of it, as in JAX: `wf.grad(f)(x)`.
        inputs: the tensors to differentiate with respect to: one, a sequence, or any tree of tensors.
        grad_outputs: the cotangent of each output, of its shape; ones for an output with one element by default.
        retain_graph: keep saved values for another backward pass; defaults to `create_graph`.
        create_graph: record the backward pass, so that the gradients can be differentiated again.
        allow_unused: return None for an input that no output depends on, instead of raising.
        has_aux: for a function, as in `grad_fn`.

    Returns:
        One gradient per input, as a tuple; for a tree other than a list or tuple of tensors, a tree like it.

    Raises:
        RuntimeError: no output depends on one of the inputs and `allow_unused` is False.

    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> wf.grad(x * x, x)[0].item()
    6.0
    >>> wf.grad(x * x, {"x": x})
    {'x': tensor(6.)}
    """
    if callable(outputs) and not isinstance(outputs, Tensor):
        return grad_fn(outputs, 0 if inputs is None else inputs, has_aux)  # type: ignore[return-value]
    outs, (ins, structure) = _listed(outputs), flatten(inputs)
    seeds = [None] * len(outs) if grad_outputs is None else _listed(grad_outputs)
    if len(seeds) != len(outs):
        raise ValueError(f"grad: expected {len(outs)} grad_outputs, one per output. Got {len(seeds)}.")
    results = run_backward(outs, seeds, retain_graph=retain_graph, create_graph=create_graph, inputs=ins)
    assert results is not None
    if not allow_unused:
        for i, g in enumerate(results):
            if g is None:
                name = f"input {i}" if _is_listed(structure) else paths(structure, "inputs")[i]
                raise RuntimeError(
                    f"grad: output does not depend on {name}. Pass `allow_unused=True` to get None for it."
                )
    return tuple(results) if _is_listed(structure) else unflatten(structure, results)


def _is_listed(structure: Any) -> bool:
    """Whether a structure is one leaf, or a list or tuple of leaves."""
    return structure is None or structure[0] in (list, tuple) and not any(structure[2])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _tensors(name: str, value: Any) -> tuple[list[Any], Any]:
    """The tensors in what a function returned, and its structure."""
    outs, structure = flatten(value)
    for i, o in enumerate(outs):
        if not isinstance(o, Tensor):
            where = f" in its {paths(structure, 'result')[i]}" if structure is not None else ""
            raise TypeError(f"{name}: the function must return tensors. Got {type(o).__name__}{where}.")
    if not outs:
        raise TypeError(f"{name}: the function must return tensors. Got {value!r}.")
    return outs, structure


def backward(
    tensors: Any, grad_tensors: Any = None, *, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Add the gradients of the sum of `tensors` to the `.grad` of the leaves.

    Args:
        tensors: the outputs: a tensor or a sequence of tensors.
        grad_tensors: the cotangent of each output; ones for an output with one element by default.
        retain_graph: keep saved values for another backward pass; defaults to `create_graph`.
        create_graph: record the backward pass, so that the gradients can be differentiated again.

    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> wf.backward([x * x, 2 * x])
    >>> x.grad.item()
    8.0
    """
    outs = _listed(tensors)
    run_backward(
        outs, [None] * len(outs) if grad_tensors is None else _listed(grad_tensors),
        retain_graph=retain_graph, create_graph=create_graph,
    )  # fmt: skip


# Transforms ------------------------------------------------------------------------------------------------------------


class _Pass:
    """One differentiation; entered while it records.

    `args` are the arguments with those to differentiate replaced by fresh tensors, which `watched` lists. `is_linked` and
    `released` decide which results stay on the caller's tape, see Note [Nested differentiation].
    """

    def __init__(self, name: str, fn: Callable[..., Any], args: Sequence[Any], argnums: Sequence[int]) -> None:
        self.recorded = grad_mode.enabled  # by the caller
        self.leaves: set[Leaf] = set()
        self.args = list(args)
        self.structures: list[Any] = []
        self.watched: list[Tensor] = []
        for i in argnums:
            leaves, structure = flatten(args[i])
            for k, leaf in enumerate(leaves):
                self.watched.append(self._watch(leaf, partial(_place, name, fn, i, structure, k)))
            self.structures.append(structure)
            self.args[i] = unflatten(structure, self.watched[len(self.watched) - len(leaves) :])

    def rebuilt(self, values: Sequence[Any]) -> list[Any]:
        """One tree per argument, from one value per tensor in them."""
        rest = iter(values)
        return [unflatten(s, [next(rest) for _ in range(count_leaves(s))]) for s in self.structures]

    def __enter__(self) -> None:
        grad_mode.enabled = True

    def __exit__(self, *_: Any) -> None:
        grad_mode.enabled = self.recorded
        for leaf in self.leaves:
            leaf.is_over = True

    def _watch(self, x: Any, place: Callable[[], str]) -> Tensor:
        if not isinstance(x, Tensor):
            if isinstance(x, str) or not hasattr(x, "__array__") and not isinstance(x, (bool, int, float, complex)):
                raise TypeError(f"{place()} must be a tensor, to be differentiated. Got {type_name(x)}.")
            x = Tensor(x)
        if not dtypes.is_inexact(x.dtype):
            raise TypeError(
                f"{place()} has no gradient: only floating and complex tensors have. Got {x.dtype.name}; "
                "use `x.astype(wf.float32)` first."
            )
        if self.recorded and x._node is not None:
            from ..ops.array.shaping import clone

            return clone(x)  # a new node in front of the caller's tape
        return self.leaf(x.detach())

    def leaf(self, x: Tensor) -> Tensor:
        """`x` as a variable of this differentiation."""
        self.leaves.add(as_leaf(x)._node)
        return x

    def is_linked(self, values: Iterable[Any]) -> bool:
        """Whether one of `values` depends on what the caller recorded."""
        if not self.recorded:
            return False
        stack = [node for v in values for node in tape_nodes(v)]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if node.__class__ is Leaf:
                if node not in self.leaves and not node.is_over and (node.tensor() is not None or node.hooks):
                    return True
            elif id(node) not in seen:
                seen.add(id(node))
                stack.extend([p for p in parents(node) if p is not None])
        return False

    def released(self, tree: Any) -> Any:
        """`tree` as returned to the caller: tensors that do not depend on the caller's tape are detached."""
        return map_tree(self._released, tree)

    def _released(self, value: Any) -> Any:
        recorded = next(tape_nodes(value), None) is not None
        return detached(value) if recorded and not self.is_linked([value]) else value


def _place(name: str, fn: Callable[..., Any], number: int, structure: Any, leaf: int) -> str:
    """Which leaf of which argument of `fn` an error of the transform `name` is about: `grad: params["w"]`."""
    return f"{name}: {paths(structure, argument_name(fn, number))[leaf]}"


def argument_name(fn: Callable[..., Any], number: int) -> str:
    """The name of a positional parameter of `fn`, or `argument 0` if it has none."""
    try:
        names = [p.name for p in inspect.signature(fn).parameters.values() if p.kind < p.VAR_POSITIONAL]
    except (TypeError, ValueError):  # a builtin
        names = []
    return names[number] if number < len(names) else f"argument {number}"


def positions(name: str, argnums: int | Sequence[int], args: Sequence[Any]) -> list[int]:
    """The numbers of the arguments to differentiate, counted from 0."""
    chosen = [argnums] if isinstance(argnums, int) else list(argnums)
    for n in chosen:
        if not isinstance(n, int):
            raise TypeError(f"{name}: argnums must be an integer or several. Got {argnums!r}.")
        if not -len(args) <= n < len(args):
            raise ValueError(f"{name}: argnums {n} is out of range for {len(args)} positional arguments.")
    return [n % len(args) for n in chosen]


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the scalar value of `fn` and its gradient.

    Transforms nest: results that depend on arguments or closed-over tensors that require gradients can be differentiated
    again.

    Args:
        fn: a function that returns a tensor with one element.
        argnums: the position of the argument to differentiate, or several, which gives a tuple of gradients. An argument is
            a tensor or a tree of tensors, and its gradient is nested like it.
        has_aux: `fn` returns (value, aux), and the result is ((value, aux), gradient).

    >>> value, gradient = wf.value_and_grad(lambda w: (w * w).sum())(wf.tensor([1.0, 2.0]))
    >>> value.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    >>> wf.grad_fn(lambda x: x * wf.grad_fn(lambda y: x * y)(wf.asarray(2.0)))(wf.asarray(1.5)).item()
    3.0
    """

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        inner = _Pass("grad", fn, args, positions("grad", argnums, args))
        with inner:
            result = fn(*inner.args, **kwargs)
            value = result[0] if has_aux else result
            if not isinstance(value, Tensor) or value.size != 1:
                raise ValueError("value_and_grad: the function must return a tensor with one element.")
            linked = inner.is_linked(flatten(result)[0])
            gradients = _gradients([value], inner.watched, [None], create_graph=linked)
        trees = inner.rebuilt(gradients)
        answer = inner.released(trees[0] if isinstance(argnums, int) else tuple(trees))
        value = inner.released(value)
        return ((value, inner.released(result[1])) if has_aux else value), answer

    return differentiated


def _gradients(
    outs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    seeds: Sequence[Any],
    *,
    create_graph: bool,
    retain_graph: bool = False,
) -> list[Tensor]:
    """The gradients of `outs`, with zeros where there is no dependence."""
    differentiable = [(o, s) for o, s in zip(outs, seeds, strict=True) if o._node is not None]
    found: Sequence[Any] = [None] * len(inputs)
    if differentiable:
        found = grad(
            [o for o, _ in differentiable], list(inputs), [s for _, s in differentiable],
            retain_graph=retain_graph or create_graph, create_graph=create_graph, allow_unused=True,
        )  # fmt: skip
    return [_zeros(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def _direction(what: str, value: Any, of: str, like: Tensor) -> Tensor:
    """A tangent or cotangent as a tensor of the shape of what it belongs to."""
    direction = value if isinstance(value, Tensor) else Tensor(value)
    if direction.shape != like.shape and is_known(direction.shape) and is_known(like.shape):
        raise ValueError(
            f"{what} must have the shape of its {of}. Got {format_shape(direction.shape)}; "
            f"expected {format_shape(like.shape)}."
        )
    return direction


def _zeros(x: Tensor) -> Tensor:
    from ..ops.array.creation import zeros_like

    return zeros_like(x)


def grad_fn(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of `fn`, which must return a tensor with one element.

    Args:
        fn, argnums: as in `value_and_grad`.
        has_aux: `fn` returns (value, aux), and the result is (gradient, aux).

    >>> cube = lambda x: x**3
    >>> wf.grad_fn(cube)(wf.tensor(2.0)).item(), wf.grad_fn(wf.grad_fn(cube))(wf.tensor(2.0)).item()
    (12.0, 12.0)
    """
    both = value_and_grad(fn, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, answer = both(*args, **kwargs)
        return (answer, value[1]) if has_aux else answer

    return gradient


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """Return `fn(*primals)` and the function that maps cotangents of its outputs to gradients of the primals.

    Primals and outputs are tensors or trees of tensors. The cotangent is nested like the output, or there is one argument per
    output; the gradients are a tuple with one per primal, nested like it.

    >>> y, pullback = wf.vjp(lambda x: x * x, wf.tensor([1.0, 2.0]))
    >>> pullback(wf.tensor([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    inner = _Pass("vjp", fn, primals, range(len(primals)))
    with inner:
        out = fn(*inner.args)
    outs, structure = _tensors("vjp", out)

    def pullback(*cotangents: Any) -> tuple[Any, ...]:
        given = _cotangents(cotangents, structure, len(outs))
        names = [f" {i}" for i in range(len(outs))] if _is_listed(structure) else paths(structure)
        seeds = [_direction(f"vjp: cotangent{n}", c, "output", o) for n, c, o in zip(names, given, outs, strict=True)]
        inner.recorded = grad_mode.enabled
        linked = inner.is_linked([*outs, *seeds])
        gradients = _gradients(outs, inner.watched, seeds, create_graph=linked, retain_graph=True)
        return inner.released(tuple(inner.rebuilt(gradients)))

    return inner.released(out), pullback


def _cotangents(given: tuple[Any, ...], structure: Any, count: int) -> list[Any]:
    """The cotangents of a pullback, which are nested like the output, or are one argument per output tensor."""
    if len(given) == 1 and structure is not None and is_container(given[0]):
        return leaves_like(structure, given[0], "vjp", "cotangent")
    leaves = flatten(given)[0]
    if len(leaves) != count:
        raise ValueError(f"vjp: expected {count} cotangents, one per output. Got {len(leaves)}.")
    return leaves


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return `fn(*primals)` and its directional derivative along `tangents` (by double reverse mode).

    Args:
        fn: a function of tensors, or trees of them, that returns a tensor or a tree of tensors.
        primals: the point: a sequence with one entry per argument.
        tangents: the direction: one entry per primal, nested like it, of its shapes.

    >>> y, dy = wf.jvp(lambda x: x * x, [wf.tensor(3.0)], [wf.tensor(1.0)])
    >>> y.item(), dy.item()
    (9.0, 6.0)
    """
    if len(primals) != len(tangents):
        raise ValueError(
            f"jvp: expected one tangent per primal. Got {len(primals)} primals and {len(tangents)} tangents."
        )
    inner = _Pass("jvp", fn, primals, range(len(primals)))
    named = [
        (place, leaf)
        for i, (t, s) in enumerate(zip(tangents, inner.structures, strict=True))
        for place, leaf in zip(paths(s, f"tangent {i}"), leaves_like(s, t, "jvp", f"tangent {i}"), strict=True)
    ]
    directions = [_direction(f"jvp: {n}", t, "primal", x) for (n, t), x in zip(named, inner.watched, strict=True)]
    with inner:
        out = fn(*inner.args)
        outs, structure = _tensors("jvp", out)
        linked = inner.is_linked([*outs, *directions])
        duals = [inner.leaf(_zeros(o)) if dtypes.is_inexact(o.dtype) else _zeros(o) for o in outs]
        gradients = _gradients(outs, inner.watched, duals, create_graph=True)  # linear in the duals
        live = [d for d in duals if d._node is not None]
        found = iter(_gradients(gradients, live, directions, create_graph=linked))
        derivatives = [next(found) if d._node is not None else d for d in duals]
    return inner.released(out), inner.released(unflatten(structure, derivatives))


def jacobian(fn: Callable[..., Any], inputs: Any, *, create_graph: bool = False) -> Any:
    """Return the Jacobian of `fn` at `inputs`, of shape `(*output.shape, *input.shape)`.

    Rows are computed by reverse mode, one per output element.

    Args:
        fn: a function that returns a tensor, or a tree of tensors, which gives a tree of Jacobians.
        inputs: the argument, a tensor or a tree; a plain tuple or list is several arguments, and gives a tuple of Jacobians.
            The Jacobian of one output with respect to a tree is nested like the tree.
        create_graph: accepted for compatibility; the result can always be differentiated again where it depends on tensors
            that require gradients.

    >>> wf.jacobian(lambda x: x * x, wf.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return _jacobian("jacobian", fn, inputs)


def _jacobian(name: str, fn: Callable[..., Any], inputs: Any) -> Any:
    from ..ops.array.creation import zeros
    from ..ops.array.shaping import reshape, stack

    single = inputs.__class__ not in (list, tuple)
    primals = [inputs] if single else list(inputs)
    inner = _Pass(name, fn, primals, range(len(primals)))
    with inner:
        outs, structure = _tensors(name, fn(*inner.args))
        linked = inner.is_linked(outs)
        results = []
        for out in outs:
            flat = reshape(out, (-1,))
            rows = [
                _gradients([flat[i]], inner.watched, [None], create_graph=linked, retain_graph=True)
                for i in range(flat.shape[0])
            ]
            found = inner.rebuilt([
                reshape(stack([row[k] for row in rows]), (*out.shape, *w.shape))
                if rows else zeros((*out.shape, *w.shape), dtype=w.dtype)
                for k, w in enumerate(inner.watched)
            ])  # fmt: skip
            results.append(found[0] if single else tuple(found))
    return inner.released(unflatten(structure, results))


def hessian(fn: Callable[..., Any], inputs: Any) -> Any:
    """Return the second derivatives of a scalar function, of shape `(*inputs.shape, *inputs.shape)` for one tensor.

    Args:
        fn: a function that returns a tensor with one element.
        inputs: as in `jacobian`. For a tree the result is a tree of trees: `h["a"]["b"]` is the derivative of the gradient with
            respect to `a`, with respect to `b`.

    >>> wf.hessian(lambda x: x[0] * x[0] * x[1], wf.tensor([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    >>> wf.hessian(lambda p: p["a"] * p["b"], {"a": wf.tensor(2.0), "b": wf.tensor(3.0)})["a"]
    {'a': tensor(0.), 'b': tensor(1.)}
    """
    single = inputs.__class__ not in (list, tuple)

    def gradient(*args: Any) -> Any:
        out = fn(*args)
        if not isinstance(out, Tensor) or out.size != 1:
            raise ValueError("hessian: the function must return a tensor with one element.")
        leaves, structure = flatten(args[0] if single else args)
        return unflatten(structure, _gradients([out], leaves, [None], create_graph=True))

    return _jacobian("hessian", gradient, inputs)
