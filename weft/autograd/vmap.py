"""`wf.vmap`: vectorize a function of one example over a batch.

Inside, a mapped tensor's data is a `Batched` value: a tensor that has the batch axis in front, shown to the user without
it. An op on such values reaches `Batched.apply` (the foreign-data protocol of `weft.ops.core.define.call`), which applies
the op's batching rule to the tensors behind them. The tape works on both sides: ops on the tensors behind are recorded
if *they* require gradients (a gradient of a vmap), and the op as the user called it is recorded if the tensors inside
do (a vmap of a gradient).

A batching rule is the fact `batch` of an op's record: "elementwise" (line up the other axes and call the op), or
`rule(axes, tensors, attrs)` on tensors whose batch axis, if `axes[i]` is 0, comes first. An op without a rule raises.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import format_shape
from ..ops.core import define
from ..ops.core.registry import Op
from ..tensor import Tensor, wrap
from ..typing import F
from .tree import flatten, kind_of, leaves_like, paths, unflatten


class _Depth(threading.local):
    level = 0


_depth = _Depth()


class Batched:
    """The data of a tensor inside vmap: `tensor`, whose axis 0 is the batch axis of `level`, seen without that axis."""

    __slots__ = ("tensor", "level", "shape", "dtype", "ndim", "priority")
    __array_ufunc__ = None

    def __init__(self, tensor: Tensor, level: int) -> None:
        self.tensor, self.level = tensor, level
        self.shape, self.dtype = tuple(tensor.shape[1:]), tensor.dtype
        self.ndim = len(self.shape)
        self.priority = 1000 + level  # inner vmaps first, and all before symbolic values

    @property
    def size(self) -> Any:
        n: Any = 1
        for d in self.shape:
            n = None if d is None else n * d
        return n

    def apply(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Run `op` by its batching rule, and record it for the gradients of the function inside."""
        outs = batch_call(op, tensors, attrs, self.level)
        datas = [t._data if isinstance(t, Tensor) else t for t in tensors]
        if isinstance(outs, tuple):
            return define.finish(op, tensors, datas, attrs, tuple([Batched(o, self.level) for o in outs]))
        return define.finish(op, tensors, datas, attrs, Batched(outs, self.level))

    def no_array(self, action: str) -> NoReturn:
        raise RuntimeError(
            f"{action}: inside vmap a tensor stands for a whole batch of values, so it has no single one. "
            "Return it and look at it outside."
        )

    def truth(self, tensor: Tensor) -> NoReturn:
        raise RuntimeError(
            "if/while: inside vmap a tensor stands for a whole batch of values, which need not agree. "
            "Use `wf.where(condition, x, y)`."
        )

    def describe(self, tensor: Tensor) -> str:
        grad = ", requires_grad=True" if tensor._node is not None else ""
        return (
            f"tensor(<batch of {self.tensor.shape[0]}, vmap level {self.level}>, shape={format_shape(self.shape)}, "
            f"dtype={self.dtype.name}{grad})"
        )


def batch_call(op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...], level: int) -> Any:
    """`op` on tensors of which some are batched at `level`: the result(s), with the batch axis in front."""
    inner: list[Any] = []
    axes: list[int | None] = []
    for t in tensors:
        data = getattr(t, "_data", None)
        if data.__class__ is Batched and data.level == level:
            inner.append(data.tensor)
            axes.append(0)
        else:
            inner.append(t)
            axes.append(None)
    rule = op.batch
    if rule == "elementwise":
        out = _call(op, _lined_up(inner, axes), attrs)
    elif callable(rule):
        out = rule(tuple(axes), inner, attrs)
    else:
        raise NotImplementedError(
            f"vmap: {op.name} has no batching rule. Write this part without vmap, or give the op one "
            "(`batch=` in its record)."
        )
    return tuple(out) if isinstance(out, list) else out


def _call(op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    return op.run(op.call, op.merge(tensors, attrs))


def _lined_up(tensors: list[Any], axes: list[int | None]) -> list[Any]:
    """Tensors whose other axes broadcast as they would without the batch axis: new axes of size 1 go after it."""
    from ..ops.array.shaping import reshape

    rank = max([t.ndim - (a is not None) for t, a in zip(tensors, axes, strict=True) if isinstance(t, Tensor)])
    result = []
    for t, a in zip(tensors, axes, strict=True):
        missing = 0 if a is None else rank - (t.ndim - 1)
        result.append(reshape(t, (t.shape[0], *(1,) * missing, *t.shape[1:])) if missing else t)
    return result


# Random ops ----------------------------------------------------------------------------------------------------------


class _Drawing(threading.local):
    keys = False


_drawing = _Drawing()


@contextlib.contextmanager
def keyed() -> Iterator[None]:
    """While entered, this thread's draws are from keys, so `vmap` need not be told what they mean."""
    before, _drawing.keys = _drawing.keys, True
    try:
        yield
    finally:
        _drawing.keys = before


class _Randomness(define.Mode):
    """Decides what drawing random numbers means while a function is mapped, see `vmap`."""

    def __init__(self, how: str, size: int, level: int) -> None:
        self.how, self.size, self.level = how, size, level

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        if "state" not in op.tensor_names or op.tensors(values)[op.tensor_names.index("state")] is None:
            return define.call(op, values)  # nothing is drawn
        if _drawing.keys:  # a key says which numbers, in every example
            own = [getattr(t, "_data", None) for t in op.tensors(values)]
            if not any(d.__class__ is Batched and d.level == self.level for d in own):
                return define.call(op, values)
            return self._stacked(op, values, vary=False)
        if self.how == "error":
            raise RuntimeError(
                f"vmap: {op.name} draws random numbers. Pass `randomness='different'` for other numbers in every example, "
                "or `randomness='same'` for the same in all."
            )
        return self._stacked(op, values, vary=self.how == "different")

    def _examples(self, op: Op, values: tuple[Any, ...]) -> list[list[Any]]:
        """The tensor arguments of the call for every example."""
        rows: list[list[Any]] = []
        for i in range(self.size):
            row = []
            for t in op.tensors(values):
                data = getattr(t, "_data", None)
                row.append(data.tensor[i] if data.__class__ is Batched and data.level == self.level else t)
            rows.append(row)
        return rows

    def _stacked(self, op: Op, values: tuple[Any, ...], vary: bool) -> Any:
        """The op run example by example; `vary` gives each example a separate random stream."""
        from ..ops.array.shaping import stack

        attrs = op.attrs(values)
        place = op.tensor_names.index("state")
        batched = any(getattr(t, "_data", None).__class__ is Batched for t in op.tensors(values))
        if not vary and not batched:
            return define.call(op, values)
        results = []
        for i, row in enumerate(self._examples(op, values)):
            if vary:
                row[place] = row[place] + define.constant(np.array([_stream(i), 0], np.int64))
            results.append(_call(op, row, attrs))
        if isinstance(results[0], tuple):
            return tuple([wrap(Batched(stack(outs), self.level)) for outs in zip(*results)])
        return wrap(Batched(stack(results), self.level))


def _stream(i: int) -> int:
    """The seed offset of example `i`: far apart, so that the streams of two examples never overlap."""
    return ((0x9E3779B97F4A7C15 * (i + 1) + 2**63) % 2**64) - 2**63


# The transform ---------------------------------------------------------------------------------------------------------


def vmap(fn: F, in_axes: Any = 0, out_axes: Any = 0, *, randomness: str = "error") -> F:
    """Vectorize `fn`, written for one example, over a batch axis.

    Args:
        fn: a function of tensors, or of trees of them (`weft.tree`), that is written for one example.
        in_axes: the batch axis of every argument: an integer, None (the same value for all examples), or a tuple with
            one entry per argument, which may be nested like the argument.
        out_axes: where the batch axis goes in the results, likewise.
        randomness: what random ops inside do: "error" (the default), "same" numbers for all examples, or "different".

    Composes with `grad_fn`, `jacobian`, `wf.function` and itself. Keyword arguments are not mapped.

    >>> dot = lambda a, b: (a * b).sum()
    >>> wf.vmap(dot, in_axes=(0, None))(wf.ones(3, 2), wf.ones(2)).tolist()
    [2.0, 2.0, 2.0]
    """
    if randomness not in ("error", "same", "different"):
        raise ValueError(f"vmap: randomness must be 'error', 'same' or 'different'. Got {randomness!r}.")

    @functools.wraps(fn)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if not args:
            raise ValueError(
                "vmap: the function was called without positional arguments, so there is nothing to map over."
            )
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise ValueError(
                f"vmap: in_axes has {len(axes)} entries for {len(args)} arguments. Expected one per argument."
            )
        leaves, structure = flatten(args)
        places = _spread("in_axes", tuple(axes), args)
        size = _batch_size(leaves, places, structure, fn)
        _depth.level += 1
        level = _depth.level
        try:
            with _Randomness(randomness, size, level):
                inside = [_enter(x, a, level) for x, a in zip(leaves, places, strict=True)]
                result = fn(*unflatten(structure, inside), **kwargs)
                outs, out_structure = flatten(result)
                out_places = _spread("out_axes", out_axes, result)
                outside = [_leave(y, a, level, size) for y, a in zip(outs, out_places, strict=True)]
        finally:
            _depth.level -= 1
        return unflatten(out_structure, outside)

    return mapped  # type: ignore[return-value]


def _spread(name: str, axes: Any, tree: Any) -> list[int | None]:
    """One axis per leaf of `tree`: `axes` is a single axis, or nested like (the upper part of) the tree."""
    if axes is None or isinstance(axes, (int, np.integer)) and not isinstance(axes, bool):
        return [None if axes is None else int(axes)] * len(flatten(tree)[0])
    own, given = kind_of(tree.__class__), kind_of(axes.__class__)
    if own is not None and given is not None:
        structure = (tree.__class__, own.split(tree)[0], (None,) * len(own.split(tree)[1]))
        parts = leaves_like(structure, axes, f"vmap: {name}", name, exact=False)
        return [a for part, sub in zip(parts, own.split(tree)[1], strict=True) for a in _spread(name, part, sub)]
    raise ValueError(f"vmap: {name} must be integers or None, nested like the values they describe. Got {axes!r}.")


def _batch_size(leaves: list[Any], places: list[int | None], structure: Any, fn: Callable[..., Any]) -> int:
    sizes: dict[int, tuple[int, Any]] = {}
    for i, (x, axis) in enumerate(zip(leaves, places, strict=True)):
        if axis is None or not hasattr(x, "shape"):
            if axis is not None and not isinstance(x, (bool, int, float, complex, str)):
                raise TypeError(
                    f"vmap: expected tensors to map over. Got {type(x).__name__} in {_leaf_name(structure, i, fn)}; "
                    "use None in in_axes."
                )
            continue
        if not -len(x.shape) <= axis < len(x.shape):
            raise ValueError(
                f"vmap: in_axes names axis {axis} of {_leaf_name(structure, i, fn)}, a tensor of shape "
                f"{format_shape(x.shape)}, which has no such axis. Use None for arguments that are not mapped."
            )
        sizes.setdefault(x.shape[axis], (i, x.shape))
    if not sizes:
        raise ValueError("vmap: no argument has a batch axis; in_axes must name at least one.")
    if len(sizes) > 1:
        shapes = " and ".join(f"{format_shape(s)} ({_leaf_name(structure, i, fn)})" for i, s in sizes.values())
        raise ValueError(f"vmap: the batch axes differ in size: {', '.join(map(str, sizes))}, of shapes {shapes}.")
    return next(iter(sizes))


def _leaf_name(structure: Any, leaf: int, fn: Callable[..., Any]) -> str:
    """The path of a leaf of the arguments of `fn`, whose structure is that of their tuple."""
    from .functional import argument_name

    number = 0
    for argument in structure[2]:
        names = paths(argument, argument_name(fn, number))
        if leaf < len(names):
            return names[leaf]
        leaf, number = leaf - len(names), number + 1
    raise AssertionError("no such leaf")


def _enter(x: Any, axis: int | None, level: int) -> Any:
    """An argument as the mapped function sees it."""
    if axis is None or not hasattr(x, "shape"):
        return x
    from ..ops.array.shaping import moveaxis

    tensor = x if isinstance(x, Tensor) else Tensor(x)
    return wrap(Batched(moveaxis(tensor, axis, 0) if axis % tensor.ndim else tensor, level))


def _leave(y: Any, axis: int | None, level: int, size: int) -> Any:
    """A result as the caller sees it, with the batch axis at `axis`."""
    from ..ops.array.shaping import broadcast_to, moveaxis

    if not isinstance(y, Tensor):
        if isinstance(y, (bool, int, float, complex, np.ndarray, np.generic)):
            y = Tensor(y)
        elif y is None:
            return None
        else:
            raise TypeError(f"vmap: the function must return tensors. Got {type(y).__name__}.")
    data = y._data
    if data.__class__ is Batched and data.level == level:
        tensor = data.tensor
        if axis is None:
            raise ValueError(
                "vmap: out_axes is None for a result that differs from example to example. Give it an axis."
            )
    elif axis is None:
        return y
    else:
        tensor = broadcast_to(y, (size, *y.shape))
    place = axis + tensor.ndim if axis < 0 else axis
    if not 0 <= place < tensor.ndim:
        raise ValueError(
            f"vmap: out_axes {axis} is out of range for a result of shape {format_shape(y.shape)} and a batch axis."
        )
    return moveaxis(tensor, 0, place) if place else tensor


def is_batched(value: Any) -> bool:
    """Whether `value` is a tensor that stands for a batch inside vmap."""
    return getattr(value, "_data", None).__class__ is Batched


def tape_nodes(value: Any) -> Iterator[Any]:
    """The nodes that `value` has on the tape: its own and, inside vmap, those of the tensors behind it."""
    while isinstance(value, Tensor):
        if value._node is not None:
            yield value._node
        value = getattr(value._data, "tensor", None)


def detached(x: Tensor) -> Tensor:
    """`x` without history, also without that of the tensors behind it inside vmap."""
    data = x._data
    return wrap(Batched(detached(data.tensor), data.level) if data.__class__ is Batched else data)


__all__ = ["Batched", "vmap"]
