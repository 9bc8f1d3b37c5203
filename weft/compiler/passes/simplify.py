"""Algebraic simplification: folds constants, removes neutral elements and inverse pairs, joins reshapes and transposes.

%b = multiply(%a, 1.0); %c = permute_dims(permute_dims(%b, (1, 0)), (1, 0))      before
%a                                                                               after
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import dtypes
from ...graph.graph import CONSTANT, Node, Value
from ...ops.array.indexing import Slice
from ...ops.core import define
from ...ops.core.registry import Op, get
from ...ops.core.short_floats import is_short
from ...ops.core.spec import Spec
from ..flow import FILLED, Flow, filled_with, rebuild
from ..fusion import is_view

FOLD_LIMIT = 4096  # elements of a folded constant

_ADD, _CAST, _LESS, _MULTIPLY, _NOT_EQUAL, _WHERE = map(get, ("add", "cast", "less", "multiply", "not_equal", "where"))
_CONCAT, _GETITEM, _INDEX_ADD, _MATMUL, _SETITEM = map(
    get, ("concat_axis", "getitem", "index_add", "matmul", "setitem")
)
_BROADCAST, _PERMUTE, _RESHAPE, _FILLED_LIKE = map(get, ("broadcast_to", "permute_dims", "reshape", "filled_like"))
_RESHAPES = (_RESHAPE, *map(get, ("reshape_as", "expand_dims", "squeeze")))


def simplify(flow: Flow) -> Flow:
    """Apply algebraic identities and fold constants."""
    uses = flow.uses()

    def rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
        return (
            _transposed_product(new, node, args, uses)
            or _outer_product(new, node, args, uses)
            or _product_beside_zeros(new, node, args)
            or _rule(new, node, args)
        )

    return rebuild(flow, rule)


def _transposed_product(new: Flow, node: Node, args: tuple[Any, ...], uses: dict[Value, int]) -> Any:
    """(x @ y).T = y.T @ x.T: the gradient of a weight used as `w.T` is then computed in the weight's own layout."""
    if node.op is not _PERMUTE or len(node.attrs[0]) != 2 or args[0].node.op is not _MATMUL:
        return None
    x, y = args[0].node.inputs
    if uses.get(node.inputs[0]) != 1 or len(x.shape) != 2 or len(y.shape) != 2 or node.attrs[0][0] % 2 != 1:
        return None
    left, right = (
        _emit(new, _PERMUTE, (v,), ((1, 0),), Value(node, 0, tuple(v.shape[::-1]), v.dtype))[0] for v in (y, x)
    )
    return _emit(new, _MATMUL, (left, right), (), node.outputs[0])


def _outer_product(new: Flow, node: Node, args: tuple[Any, ...], uses: dict[Value, int]) -> Any:
    """Compute a reshaped outer product directly in the new shape, where it fuses with its readers."""
    if node.op is not _RESHAPE or args[0].node.op is not _MULTIPLY or uses.get(node.inputs[0]) != 1:
        return None
    inputs, shape, wanted = args[0].node.inputs, tuple(args[0].shape), tuple(node.outputs[0].shape)
    if not all(isinstance(v, Value) for v in inputs) or len(shape) != 2 or wanted[-1:] != shape[1:] or len(wanted) < 3:
        return None
    column, row = inputs if inputs[0].shape[-1:] == (1,) else inputs[::-1]
    if tuple(column.shape) != (shape[0], 1) or tuple(row.shape) not in ((1, shape[1]), shape[1:]) or 1 in shape:
        return None
    tall = (*wanted[:-1], 1)
    column = _emit(new, _RESHAPE, (column,), (tall, None), Value(node, 0, tall, column.dtype))[0]
    return _emit(new, _MULTIPLY, (column, row), args[0].node.attrs, node.outputs[0])


def _product_beside_zeros(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
    """x @ concat([zeros, y]) = x[:, n:] @ y: the weight gradient of a recurrent layer that starts from zeros, which then
    avoids copying its states."""
    if node.op is not _MATMUL or len(args[0].shape) != 2 or len(args[1].shape) != 2:
        return None
    joined = args[1].node.inputs[0] if args[1].node.op is _RESHAPE else args[1]
    parts = joined.node.inputs
    along_rows = joined.node.op is _CONCAT and joined.node.attrs[0] == 0
    if not along_rows or len(parts) != 2 or joined.shape[-1] != args[1].shape[-1]:
        return None
    zero = next((i for i, part in enumerate(parts) if _scalar(part) == 0), None)
    if zero is None or not parts[1 - zero].shape[0] or parts[1 - zero].dtype != joined.dtype:
        return None
    rows, width = args[1].shape
    kept = rows * parts[1 - zero].shape[0] // joined.shape[0]
    span = Slice(rows - kept, rows, None) if zero == 0 else Slice(0, kept, None)
    columns, matrix = (args[0].shape[0], kept), (kept, width)
    index = (Slice(None, None, None), span)
    left = _emit(new, _GETITEM, (args[0],), (index,), Value(node, 0, columns, args[0].dtype))[0]
    right = _emit(new, _RESHAPE, (parts[1 - zero],), (matrix, None), Value(node, 0, matrix, args[1].dtype))[0]
    return _emit(new, _MATMUL, (left, right), (), node.outputs[0])


def _scalar(value: Any) -> Any:
    """The value of a uniform constant, or None."""
    if not isinstance(value, Value):
        return None
    node = value.node
    if node.op is CONSTANT and node.attrs[0].size == 1:
        return node.attrs[0].item()
    return _scalar(node.inputs[0]) if is_view(node) else filled_with(value)


def _rule(new: Flow, node: Node, args: tuple[Any, ...]) -> Any:
    op, out = node.op, node.outputs[0]
    if op.effects or len(node.outputs) != 1 or op.subs:
        return None
    if op.identity == "always" or op.identity == "same spec" and _matches(args[0], out):
        return (args[0],)
    for position, neutral in op.neutral:
        other = args[1 - position]
        if _matches(other, out) and _is_neutral(_scalar(args[position]), neutral, out.dtype):
            return (other,)
    if op is _INDEX_ADD:  # native loops handle negative indices
        plain = _unwrapped_index(args[1], args[0].shape[node.attrs[0] % len(args[0].shape)])
        if plain is not None:
            return _emit(new, _INDEX_ADD, (args[0], plain, args[2]), node.attrs, out)
    if op is _CAST and args[0].node.op is _CAST and args[0].dtype == dtypes.float32:
        source = args[0].node.inputs[0]  # to float32 and back is exact
        if source.dtype == out.dtype and is_short(out.dtype):
            return (source,)
    if op in _RESHAPES and args[0].node.op is _RESHAPE:
        return _emit(new, _RESHAPE, (args[0].node.inputs[0],), (out.shape, None), out)
    if op is _PERMUTE:
        axes = tuple([a % len(out.shape) for a in node.attrs[0]])
        if axes == tuple(range(len(axes))):
            return (args[0],)
        inner = args[0].node
        if inner.op is _PERMUTE:
            first = [a % len(axes) for a in inner.attrs[0]]
            joined = tuple([first[a] for a in axes])
            if joined == tuple(range(len(axes))):
                return (inner.inputs[0],)
            return _emit(new, _PERMUTE, (inner.inputs[0],), (joined,), out)
    if op.reduction is not None and args[0].size == out.size and out.size:  # only axes of size 1 are reduced
        x = args[0]
        if x.dtype != out.dtype:
            zero = new.constant(np.zeros((), x.dtype))
            x = _emit(new, _NOT_EQUAL, (x, zero), (), Value(node, 0, x.shape, out.dtype))[0]
        return (x,) if x.shape == out.shape else _emit(new, _RESHAPE, (x,), (tuple(out.shape), None), out)
    if op is _SETITEM and _is_everything(node.attrs[0], out.shape):
        return _spread(new, args[1], out)
    if op is _BROADCAST and (number := filled_with(args[0])) is not None:
        return _emit(new, FILLED, (), (tuple(out.shape), number, out.dtype), out)
    if op is _FILLED_LIKE:
        return _emit(new, FILLED, (), (tuple(out.shape), node.attrs[0], out.dtype), out)
    if all(isinstance(a, Value) and a.node.op is CONSTANT for a in args) and args and (out.size or 0) <= FOLD_LIMIT:
        result = define.compute(op, [a.node.attrs[0] for a in args], node.attrs)
        if isinstance(result, np.ndarray):
            return (new.constant(np.asarray(result, order="C")),)
    return None


def _is_everything(index: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Whether a basic index selects a whole array, in its own order: `...`, `:`, `0:n`."""
    if any(not (item is Ellipsis or isinstance(item, Slice)) for item in index):
        return False
    places = [item for item in index if isinstance(item, Slice)]
    if Ellipsis in index:
        before = index.index(Ellipsis)
        sizes = (*shape[:before], *shape[len(shape) - (len(places) - before) :])
    else:
        sizes = shape[: len(places)]
    return all(slice(p.start, p.stop, p.step).indices(n) == (0, n, 1) for p, n in zip(places, sizes, strict=True))


def _spread(new: Flow, value: Value, out: Value) -> tuple[Value, ...]:
    """`value` in the dtype and shape of `out`."""
    if value.dtype != out.dtype:
        value = _emit(new, _CAST, (value,), (out.dtype,), Value(out.node, 0, value.shape, out.dtype))[0]
    if len(value.shape) > len(out.shape):  # leading axes of size 1
        shape = tuple(value.shape[len(value.shape) - len(out.shape) :])
        value = _emit(new, _RESHAPE, (value,), (shape, None), Value(out.node, 0, shape, out.dtype))[0]
    if tuple(value.shape) != tuple(out.shape):
        return _emit(new, _BROADCAST, (value,), (tuple(out.shape),), out)
    return (value,)


def _unwrapped_index(index: Any, size: int) -> Any:
    """`i` for `where(i < 0, i + size, i)`, else None."""
    if index.node.op is not _WHERE:
        return None
    test, shifted, plain = index.node.inputs
    if test.node.op is not _LESS or shifted.node.op is not _ADD:
        return None
    same = test.node.inputs[0] is plain and shifted.node.inputs[0] is plain
    known = _scalar(test.node.inputs[1]) == 0 and _scalar(shifted.node.inputs[1]) == size
    return plain if same and known else None


def _matches(value: Any, out: Value) -> bool:
    return isinstance(value, Value) and value.shape == out.shape and value.dtype == out.dtype


def _is_neutral(number: Any, neutral: float, dtype: np.dtype) -> bool:
    """Whether a number is a neutral element; of floats the sign of zero counts: -0.0 + 0.0 is 0.0."""
    if number is None or number != neutral:
        return False
    return not dtypes.is_inexact(dtype) or math.copysign(1.0, number.real) == math.copysign(1.0, neutral)


def _emit(new: Flow, op: Op, inputs: tuple[Any, ...], attrs: tuple[Any, ...], out: Value) -> tuple[Value, ...]:
    return new.add(op, inputs, attrs, (Spec(out.shape, out.dtype),)).outputs
