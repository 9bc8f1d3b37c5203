"""Tensor creation: from data, filled, or from ranges.

Large results are allocated from the pool of `weft.runtime.memory`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...runtime import memory
from ...tensor import Tensor, stacked_dtype, to_array, wrap
from ...typing import DeviceLike, DTypeLike, Scalar, ShapeLike
from ..core import define
from ..core import scalar as s
from ..core.define import constant, primitive
from ..core.registry import NOT_DIFFERENTIABLE
from ..core.samples import Sample
from ..core.slow_path import check_memory
from ..core.spec import Spec, check_integer, check_shape, check_size, is_known

# Functions for users that are not ops; ops are public by their records.
__all__ = [
    "arange", "asarray", "complex_", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tensor", "zeros", "zeros_like",
]  # fmt: skip


def tensor(
    data: Any, *, dtype: DTypeLike | None = None, requires_grad: bool = False, device: DeviceLike | None = None
) -> Tensor:
    """Create a tensor with a copy of `data`.

    Args:
        data: a number, a nested sequence, a NumPy array or a tensor. Python floats become the default dtype (float32),
            Python integers int64.
        dtype: the dtype of the result; inferred from `data` by default.
        requires_grad: record operations on the result. Tensors inside `data` that require gradients keep their history;
            pass `x.detach()` for a new leaf.
        device: only the CPU is supported for eager tensors.

    >>> wf.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    check_device("tensor", device)
    if _holds_tensors(data):
        result = asarray(data, dtype=dtype, copy=True)
        if requires_grad and not result.is_leaf:
            raise RuntimeError(
                "tensor: the data require gradients already, so that the result cannot be a leaf. "
                "Leave out `requires_grad=True` to keep their gradients, or write `x.detach()` for a new leaf."
            )
    else:
        result = constant(to_array(data, dtype, copy=True))
    return result.requires_grad_() if requires_grad else result


def _holds_tensors(data: Any) -> bool:
    """Whether `data` is a tensor or a nested sequence that contains one."""
    if isinstance(data, (list, tuple)):
        return any(_holds_tensors(d) for d in data)
    return isinstance(data, Tensor)


def _stacked(data: Any) -> Tensor:
    """Stack a nested sequence that contains tensors, using ops, so that gradients and captures see it."""
    from .elementwise import astype
    from .shaping import stack

    items = [_stacked(d) if isinstance(d, (list, tuple)) and _holds_tensors(d) else d for d in data]
    tensors = [d if isinstance(d, Tensor) else constant(to_array(d)) for d in items]
    dtype = stacked_dtype(items, tensors)
    return stack([astype(t, dtype) for t in tensors])


def asarray(
    obj: Any, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """Convert `obj` to a tensor, sharing memory where possible.

    Args:
        obj: a number, a nested sequence, a NumPy array, a DLPack object or a tensor. A sequence of tensors is stacked,
            with gradients.
        dtype: the dtype of the result; a cast needs a copy.
        device: only the CPU is supported for eager tensors.
        copy: True always copies, False raises ValueError if a copy is needed, None copies only if needed.

    >>> a = np.zeros(3, np.float32)
    >>> x = wf.asarray(a)
    >>> a[0] = 7
    >>> x
    tensor([7., 0., 0.])
    """
    check_device("asarray", device)
    if isinstance(obj, (list, tuple)) and copy is not False and _holds_tensors(obj):
        obj, copy = _stacked(obj), None
    if isinstance(obj, Tensor):
        if copy:
            from .shaping import clone

            obj = clone(obj)
        if dtype is None or obj.dtype == dtypes.as_dtype(dtype):
            return obj
        if copy is False:
            raise ValueError(f"asarray: a cast from {obj.dtype.name} to {dtypes.as_dtype(dtype).name} needs a copy.")
        from .elementwise import astype

        return astype(obj, dtype)
    array = to_array(obj, dtype, copy)
    # numbers have no memory to share: in a captured function they are part of the program
    return constant(array) if isinstance(obj, (bool, int, float, complex, list, tuple)) else wrap(array)


def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """Create a tensor that shares memory with any object that supports `__dlpack__` (NumPy, PyTorch, JAX …).

    >>> wf.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    check_device("from_dlpack", device)
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: expected an object with `__dlpack__`. Got {type(x).__name__}.")
    from ...dlpack import import_array

    return wrap(to_array(import_array(x), copy=copy))


def check_device(op: str, device: Any) -> None:
    """Raise ValueError unless `device` is None or the CPU, the only device of eager tensors."""
    if device is not None:
        from ...runtime.device import as_device

        if as_device(device).kind != "cpu":
            raise ValueError(f"{op}: eager tensors live on the CPU. Got device {device!r}; expected 'cpu'.")


def _float(dtype: Any) -> np.dtype:
    return dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)


def _size(op: str, shape: Any, sizes: tuple[Any, ...], dtype: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype, given as `zeros(2, 3)`, `zeros((2, 3))` or, as in NumPy, `zeros((2, 3), dtype)`."""
    if not sizes:
        return check_shape(op, shape), dtype
    if len(sizes) == 1 and dtype is None and isinstance(sizes[0], (type, str, np.dtype)):
        return check_shape(op, shape), sizes[0]
    return check_shape(op, (shape, *sizes)), dtype


def _infer_filled(shape: Any, value: Any, dtype: np.dtype) -> Spec:
    return Spec(check_shape("full", shape), dtype)


def _fill(shape: Any, value: Any, dtype: Any) -> np.ndarray:
    if (
        value.__class__ in (int, float, bool)
        and value == 0
        and not (isinstance(value, float) and math.copysign(1, value) < 0)
    ):
        return memory.zeros(shape, dtype)
    out = memory.empty(shape, dtype)
    out.fill(value)
    return out


@primitive(
    accumulate="exact",
    namespace="internal",
    title="full",
    checks_once=True,
    cost="fill",
    infer=_infer_filled,
    element=lambda shape, value, dtype: s.const(value, dtype),
    vjp=NOT_DIFFERENTIABLE,
    batch="source",
    reference=lambda shape, value, dtype: np.full(shape, value, dtype),
    samples=lambda m: [
        Sample((2, 3), 1.5, dtypes.float32),
        Sample((), 7, dtypes.int64),
        Sample((0, 2), True, dtypes.bool_),
    ],
)
def filled(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> Any:
    """A tensor of `shape` with every element `value`: the primitive behind `full`, `zeros` and `ones`."""
    return _fill(shape, value, dtype)


def zeros(
    shape: ShapeLike = (),
    *sizes: Any,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Create a tensor of zeros.

    Args:
        shape: an integer or a tuple of integers.
        sizes: further sizes, if the first is an integer (as in PyTorch), or the dtype (as in NumPy).
        dtype: float32 by default, see `set_default_dtype`.
        device: only the CPU is supported for eager tensors.
        requires_grad: record operations on the result.

    >>> wf.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    check_device("zeros", device)
    size, dtype = _size("zeros", shape, sizes, dtype)
    result = filled(size, 0, _float(dtype))
    return result.requires_grad_() if requires_grad else result


def ones(
    shape: ShapeLike = (),
    *sizes: Any,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Create a tensor of ones. Takes the arguments of `zeros`.

    >>> wf.ones((2, 2), dtype=wf.int64)
    tensor([[1, 1],
            [1, 1]])
    """
    check_device("ones", device)
    size, dtype = _size("ones", shape, sizes, dtype)
    result = filled(size, 1, _float(dtype))
    return result.requires_grad_() if requires_grad else result


def empty(
    shape: ShapeLike = (), *sizes: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Create a tensor without initialising its elements.

    >>> wf.empty(2, 3).shape
    (2, 3)
    """
    check_device("empty", device)
    size, dtype = _size("empty", shape, sizes, dtype)
    if define.current_modes():
        return filled(size, 0, _float(dtype))
    return wrap(memory.empty(size, _float(dtype)))


def full(
    shape: ShapeLike, fill_value: Scalar | Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Create a tensor filled with `fill_value`.

    Args:
        shape: an integer or a tuple of integers.
        fill_value: a number or a tensor that broadcasts to `shape`.
        dtype: inferred from `fill_value` by default.
        device: only the CPU is supported for eager tensors.

    >>> wf.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    check_device("full", device)
    shape = check_shape("full", shape)
    if isinstance(fill_value, Tensor):
        from .elementwise import astype
        from .shaping import broadcast_to

        value = broadcast_to(fill_value, shape)
        return astype(value, value.dtype if dtype is None else dtype, copy=True)
    if not isinstance(fill_value, (bool, int, float, complex, np.generic)):
        raise TypeError(f"full: fill_value must be a number. Got {type(fill_value).__name__}.")
    if isinstance(fill_value, np.generic):
        dtype = fill_value.dtype if dtype is None else dtype
        fill_value = fill_value.item()
    resolved = dtypes.python_scalar_dtype(fill_value) if dtype is None else dtypes.as_dtype(dtype)
    if dtypes.is_integral(resolved) and not isinstance(fill_value, (bool, complex)):
        if fill_value != fill_value or not float(fill_value).is_integer() and not isinstance(fill_value, int):
            raise ValueError(f"full: {fill_value} is not an integer; expected a value that {resolved.name} can hold.")
        info = np.iinfo(resolved)
        if not info.min <= fill_value <= info.max:
            raise OverflowError(
                f"full: {fill_value} does not fit {resolved.name}, which holds {info.min} to {info.max}."
            )
    return filled(shape, fill_value, resolved)


def zeros_like_spec(spec: Spec) -> Tensor:
    """Zeros with the shape and dtype of a Spec, whose sizes may be known only at run time."""
    if is_known(spec.shape):
        return filled(tuple(spec.shape), 0, spec.dtype)
    return zeros_like(wrap(spec.value))


def _like(x: Any, value: Any, dtype: Any) -> Tensor:
    dtype = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    if x.is_symbolic and (not is_known(x.shape) or hasattr(x._data, "level")):  # under vmap: a batch, like `x`
        return filled_like(x, value, dtype)
    return filled(tuple(x.shape), value, dtype)


@primitive(
    accumulate="exact",
    namespace="internal",
    title="full_like",
    cost="fill",
    infer=lambda x, value, dtype: Spec(x.shape, dtype),
    vjp=NOT_DIFFERENTIABLE,
    batch="elementwise",
    reference=lambda x, value, dtype: np.full_like(x, value, dtype),
    samples=lambda m: [Sample(m.normal(2, 3), 1, dtypes.float32)],
)
def filled_like(x: Tensor, value: Any, dtype: np.dtype) -> Any:
    """A tensor shaped like `x` with every element `value`, for graphs whose sizes are known only at run time."""
    return _fill(x.shape, value, dtype)


def zeros_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Create a tensor of zeros with the shape and (unless given) the dtype of `x`.

    >>> wf.zeros_like(wf.tensor([1, 2, 3]))
    tensor([0, 0, 0])
    """
    check_device("zeros_like", device)
    return _like(x, 0, dtype)


def ones_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Create a tensor of ones with the shape and (unless given) the dtype of `x`.

    >>> wf.ones_like(wf.tensor([1.0, 2.0]))
    tensor([1., 1.])
    """
    check_device("ones_like", device)
    return _like(x, 1, dtype)


def empty_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Create an uninitialised tensor with the shape and (unless given) the dtype of `x`."""
    check_device("empty_like", device)
    return empty(tuple(x.shape), dtype=x.dtype if dtype is None else dtype)


def full_like(
    x: Tensor, /, fill_value: Scalar, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Create a tensor filled with `fill_value`, with the shape and (unless given) the dtype of `x`.

    >>> wf.full_like(wf.zeros(3), 0.5)
    tensor([0.5, 0.5, 0.5])
    """
    check_device("full_like", device)
    return full(tuple(x.shape), fill_value, dtype=x.dtype if dtype is None else dtype)


def arange(
    start: float | Tensor,
    /,
    stop: float | Tensor | None = None,
    step: float | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a vector of evenly spaced values from `start` up to, not including, `stop`.

    Args:
        start: the first value; with one argument it is `stop`, and values start at 0.
        stop: the end of the interval, which is not included.
        step: the distance between values; may be negative.
        dtype: int64 if all arguments are integers, else the default floating dtype.
        device: only the CPU is supported for eager tensors.

    >>> wf.arange(4)
    tensor([0, 1, 2, 3])
    >>> wf.arange(1, 2, 0.25)
    tensor([1.  , 1.25, 1.5 , 1.75])
    """
    check_device("arange", device)
    if stop is None:
        start, stop = 0, start
    values: list[Any] = [v.item() if isinstance(v, (Tensor, np.generic)) else v for v in (start, stop, step)]
    for name, v in zip(("start", "stop", "step"), values, strict=True):
        if not isinstance(v, (int, float)) or v != v:
            raise TypeError(f"arange: {name} must be a number. Got {v!r}.")
    first, last, width = values
    if width == 0:
        raise ValueError("arange: step must not be zero.")
    if dtype is None:
        resolved = dtypes.int64 if all(isinstance(v, int) for v in values) else dtypes.get_default_dtype()
    else:
        resolved = dtypes.as_dtype(dtype)
    count = (last - first) / width
    if count == math.inf or count > 2**48:
        raise MemoryError(f"arange: {count:g} values are too many.")
    n = max(0, math.ceil(count))
    check_memory("arange", (n,), resolved, 2 * 8 * n)
    steps = np.arange(n)
    if any(isinstance(v, Tensor) and v._node is not None for v in (start, step)) and dtypes.is_inexact(resolved):
        return _cast(constant(steps.astype(np.float64)) * step + start, resolved)
    return constant(dtypes.convert(np.asarray(steps * width + first), resolved))


def _cast(x: Tensor, dtype: np.dtype) -> Tensor:
    from .elementwise import astype

    return astype(x, dtype)


def linspace(
    start: Scalar | Tensor,
    stop: Scalar | Tensor,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Create `num` evenly spaced values from `start` to `stop`.

    Args:
        start: the first value, a number or a tensor (gradients flow to it).
        stop: the last value, likewise; included unless `endpoint=False`.
        num: the number of values, the size of axis 0 of the result.
        dtype: the default floating dtype by default.
        device: only the CPU is supported for eager tensors.
        endpoint: whether `stop` is the last value.

    >>> wf.linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    check_device("linspace", device)
    num = check_size("linspace", num, "num")
    is_complex = any(_is_complex(end) for end in (start, stop))
    default = dtypes.complex_dtype(dtypes.get_default_dtype()) if is_complex else dtypes.get_default_dtype()
    resolved = default if dtype is None else dtypes.as_dtype(dtype)
    check_memory("linspace", (num,), resolved, 2 * 16 * num)
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        wide = dtypes.complex128 if is_complex else dtypes.float64
        first, last = (_cast(asarray(end), wide) for end in (start, stop))
        if None in (first.ndim, last.ndim):
            raise ValueError("linspace: the ends must have a known number of axes. Got a tensor of unknown rank.")
        shares = np.linspace(0.0, 1.0, num, endpoint=endpoint).reshape(num, *(1,) * max(first.ndim, last.ndim))
        return _cast(first * constant(1 - shares) + last * constant(shares), resolved)
    return constant(np.linspace(start, stop, num, endpoint=endpoint).astype(resolved))


def _is_complex(value: Any) -> bool:
    return dtypes.is_complex(value.dtype) if isinstance(value, Tensor) else isinstance(value, complex)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a matrix with ones on the `k`-th diagonal and zeros elsewhere.

    >>> wf.eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    check_device("eye", device)
    rows = check_size("eye", n_rows, "n_rows")
    cols = rows if n_cols is None else check_size("eye", n_cols, "n_cols")
    check_memory("eye", (rows, cols), _float(dtype))
    return constant(np.eye(rows, cols, k=max(min(check_integer("eye", k, "k"), cols), -rows), dtype=_float(dtype)))


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Build coordinate matrices from coordinate vectors.

    Args:
        arrays: vectors of sizes n1, n2, …
        indexing: "xy" (Cartesian) gives matrices of shape (n2, n1, …), "ij" (matrix) of shape (n1, n2, …).

    Returns:
        One tensor per vector, all of the same shape.

    >>> x, y = wf.meshgrid(wf.arange(3), wf.arange(2))
    >>> x
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    from .shaping import broadcast_to, reshape

    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij'. Got {indexing!r}.")
    if any(a.ndim is None for a in arrays):
        raise ValueError("meshgrid: expected vectors. Got a tensor whose number of axes is not known.")
    vectors = [a if a.ndim else reshape(a, (1,)) for a in arrays]
    for a in vectors:
        if a.ndim != 1:
            raise ValueError(f"meshgrid: expected vectors. Got a tensor with {a.ndim} axes.")
    n = len(vectors)
    axes = list(range(n))
    if indexing == "xy" and n > 1:
        axes[0], axes[1] = 1, 0
    shape = [0] * n
    for a, axis in zip(vectors, axes, strict=True):
        shape[axis] = a.shape[0]
    grids = []
    for a, axis in zip(vectors, axes, strict=True):
        view = [1] * n
        view[axis] = a.shape[0]
        grids.append(broadcast_to(reshape(a, tuple(view)), tuple(shape)))
    return tuple(grids)


def complex_(real: Sequence[Any] | Tensor, imag: Sequence[Any] | Tensor) -> Tensor:
    """Create a complex tensor from its real and imaginary parts.

    >>> wf.complex([1.0, 2.0], [0.0, -1.0]).tolist()
    [(1+0j), (2-1j)]
    """
    from .elementwise import make_complex

    return make_complex(asarray(real), asarray(imag))
