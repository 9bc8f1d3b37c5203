"""Methods and properties of Tensor that PyTorch programs use and that are not functions of `weft`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import no_grad
from ...errors import format_shape
from ...tensor import Tensor
from ...typing import DTypeLike, Operand, ShapeLike
from ..array import creation, subscripts
from ..array.elementwise import astype
from ..core import error_names
from ..core.spec import number

PROPERTIES: dict[str, property] = {}
METHODS: dict[str, Callable[..., Any]] = {}


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    METHODS[function.__name__] = function
    return function


def _get_data(x: Tensor) -> Tensor:
    """The values without their history: a tensor that shares the memory and needs no gradients."""
    return x.detach()


def _set_data(x: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"data: expected a tensor. Got {type(value).__name__}.")
    if value.shape != x.shape:
        raise ValueError(
            f"data: the new values must have the shape {format_shape(x.shape)}. Got {format_shape(value.shape)}. Make a new "
            "Parameter for another shape: optimisers and compiled functions know this one's memory."
        )
    with no_grad():
        x.copy_(value)


def _is_cuda(x: Tensor) -> bool:
    """False: tensors are in the memory of the CPU."""
    return False


def _is_sparse(x: Tensor) -> bool:
    """False: sparse tensors are of another class, see `weft.sparse`."""
    return False


def _mh(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two axes."""
    return x.H


def _layout(x: Tensor) -> str:
    """How elements are stored: always "strided"."""
    return "strided"


PROPERTIES["data"] = property(_get_data, _set_data, doc=_get_data.__doc__)
PROPERTIES |= {
    "is_cuda": property(_is_cuda),
    "is_sparse": property(_is_sparse),
    "mH": property(_mh),
    "layout": property(_layout),
}


@_method
def nelement(x: Tensor) -> int:
    """The number of elements."""
    return x.numel()


@_method
def ndimension(x: Tensor) -> int:
    """The number of axes."""
    return x.ndim


@_method
def stride(x: Tensor, dim: int | None = None) -> Any:
    """How many elements the next one along each axis is away, or along one axis.

    >>> wf.zeros(2, 3).stride()
    (3, 1)
    """
    steps = tuple([s // x.itemsize for s in x.strides])
    return steps if dim is None else steps[dim]


@_method
def storage_offset(x: Tensor) -> int:
    """How many elements the first one is away from the begin of the memory that the tensor shares."""
    array: Any = x._array("storage_offset")
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return int((array.ctypes.data - base.ctypes.data) // x.itemsize)


@_method
def data_ptr(x: Tensor) -> int:
    """The address of the first element."""
    return int(x._array("data_ptr").ctypes.data)


@_method
def get_device(x: Tensor) -> int:
    """-1: the tensor is in the memory of the CPU."""
    return -1


def _caster(name: str, dtype: np.dtype) -> None:
    def method(x: Tensor) -> Tensor:
        return astype(x, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`x` as {dtype.name}."
    METHODS[name] = method


for _name, _dtype in (
    ("short", dtypes.int16), ("char", dtypes.int8), ("byte", dtypes.uint8), ("cfloat", dtypes.complex64),
    ("cdouble", dtypes.complex128),
):  # fmt: skip
    _caster(_name, _dtype)


@_method
def type(x: Tensor, dtype: DTypeLike | None = None, non_blocking: bool = False) -> Any:
    """Cast to a dtype; without one, PyTorch's name of the tensor's type.

    >>> wf.zeros(1).type(), wf.zeros(1).type(wf.int64).dtype.name
    ('torch.FloatTensor', 'int64')
    """
    if dtype is None:
        return f"torch.{_TYPES.get(x.dtype, x.dtype.name)}{'Tensor' if x.dtype in _TYPES else ''}"
    if isinstance(dtype, str) and dtype.startswith("torch."):
        names = {f"torch.{name}Tensor": found for found, name in _TYPES.items()}
        dtype = names.get(dtype, dtype)
    return astype(x, dtype)


_TYPES = {
    dtypes.float32: "Float", dtypes.float64: "Double", dtypes.float16: "Half", dtypes.bfloat16: "BFloat16",
    dtypes.int64: "Long", dtypes.int32: "Int", dtypes.int16: "Short", dtypes.int8: "Char", dtypes.uint8: "Byte",
    dtypes.bool_: "Bool",
}  # fmt: skip


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else given


@_method
def new_zeros(x: Tensor, *size: ShapeLike, dtype: DTypeLike | None = None, requires_grad: bool = False) -> Tensor:
    """Zeros of a shape, in the dtype of `x`.

    >>> wf.ones(1, dtype=wf.int64).new_zeros(2)
    tensor([0, 0])
    """
    return creation.zeros(_sizes(size), dtype=x.dtype if dtype is None else dtype, requires_grad=requires_grad)


@_method
def new_ones(x: Tensor, *size: ShapeLike, dtype: DTypeLike | None = None, requires_grad: bool = False) -> Tensor:
    """Ones of a shape, in the dtype of `x`."""
    return creation.ones(_sizes(size), dtype=x.dtype if dtype is None else dtype, requires_grad=requires_grad)


@_method
def new_empty(x: Tensor, *size: ShapeLike, dtype: DTypeLike | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor of a shape with any values, in the dtype of `x`."""
    made = creation.empty(_sizes(size), dtype=x.dtype if dtype is None else dtype)
    return made.requires_grad_() if requires_grad else made


@_method
def bernoulli(x: Tensor, *, generator: Any = None) -> Tensor:
    """1 with the probability that each element says, else 0."""
    from ... import random

    return random.bernoulli(x, generator=generator)


@_method
def new_full(x: Tensor, size: ShapeLike, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of a shape filled with a value, in the dtype of `x`."""
    return creation.full(_sizes((size,)), fill_value, dtype=x.dtype if dtype is None else dtype)


@_method
def new_tensor(x: Tensor, data: Any, dtype: DTypeLike | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor made of `data`, in the dtype of `x`."""
    return creation.tensor(data, dtype=x.dtype if dtype is None else dtype, requires_grad=requires_grad)


@_method
def fill_diagonal_(x: Tensor, fill_value: Operand, wrap: bool = False) -> Tensor:
    """Fill the main diagonal of a matrix, in place; `wrap` starts again below a tall one.

    >>> wf.ones(2, 2).fill_diagonal_(0).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ValueError(f"fill_diagonal_: expected a matrix, or equal sizes. Got shape {format_shape(x.shape)}.")
    if x.ndim == 2 and wrap:
        rows = np.arange(x.shape[0])
        columns = rows % (x.shape[1] + 1)
        rows, columns = rows[columns < x.shape[1]], columns[columns < x.shape[1]]
        key: tuple[Any, ...] = (Tensor(rows), Tensor(columns))
    else:
        key = (Tensor(np.arange(min(x.shape))),) * x.ndim
    subscripts.tensor_setitem(x, key, fill_value)
    return x


@_method
def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with numbers of the exponential distribution, in place."""
    from ... import random
    from ..array.elementwise import log1p

    number("exponential_", "lambd", lambd, above=0)
    uniform = random.rand(*x.shape, dtype=x.dtype, generator=generator)
    return x.copy_(-log1p(-uniform) / lambd)


@_method
def geometric_(x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with numbers of trials up to the first success, of probability `p`, in place."""
    from ... import random
    from ..array.elementwise import log1p
    from ..array.elementwise.arithmetic import floor

    number("geometric_", "p", p, above=0)
    uniform = random.rand(*x.shape, dtype=dtypes.float64, generator=generator)
    trials = floor(log1p(-uniform) / float(np.log1p(-p)) + 1.0) if p < 1 else uniform * 0.0 + 1.0
    return x.copy_(astype(trials, x.dtype))


@_method
def polygamma(x: Tensor, n: int) -> Tensor:
    """The n-th derivative of `digamma`: `wf.polygamma(n, x)`."""
    from ..array.special_functions import polygamma as function

    return function(n, x)


@_method
def igamma(x: Tensor, other: Tensor) -> Tensor:
    """The regularized lower incomplete gamma function P(x, other)."""
    from ..array.incomplete_gamma import gammainc

    return gammainc(x, other)


@_method
def igammac(x: Tensor, other: Tensor) -> Tensor:
    """The regularized upper incomplete gamma function Q(x, other)."""
    from ..array.incomplete_gamma import gammaincc

    return gammaincc(x, other)


@_method
def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Fill with numbers whose logarithms are normal, in place."""
    from ... import random
    from ..array.elementwise import exp

    number("log_normal_", "std", std, above=0)
    return x.copy_(exp(random.randn(*x.shape, dtype=x.dtype, generator=generator) * std + mean))


@_method
def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with numbers of the Cauchy distribution, in place."""
    from ... import random
    from ..array.elementwise import tan

    number("cauchy_", "sigma", sigma, above=0)
    uniform = random.rand(*x.shape, dtype=x.dtype, generator=generator)
    return x.copy_(tan((uniform - 0.5) * float(np.pi)) * sigma + median)


@_method
def apply_(x: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it, in place. Slow: for small tensors."""
    array = x._array("apply_")
    flat = [callable(v) for v in array.reshape(-1).tolist()]
    return x.copy_(Tensor(np.array(flat, array.dtype).reshape(array.shape)))


@_method
def map_(x: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it and that of `other`, in place."""
    array, second = x._array("map_"), np.broadcast_to(other._array("map_"), x.shape)
    flat = [callable(a, b) for a, b in zip(array.reshape(-1).tolist(), second.reshape(-1).tolist())]
    return x.copy_(Tensor(np.array(flat, array.dtype).reshape(array.shape)))


def _in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form of a function: its result is copied into the tensor."""

    def method(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x.copy_(function(x, *args, **kwargs))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{function.__name__}`, in place: replaces the value of this tensor."
    method.__wrapped__ = function  # type: ignore[attr-defined]  # for inspect.signature
    return method


def attach(functions: dict[str, Callable[..., Any]], in_place: dict[str, Callable[..., Any]]) -> None:
    """Make functions methods of Tensor, in addition to those that are listed here."""
    for name, function in functions.items():
        first = next(iter(function.__annotations__.items()), ("", ""))
        if "Tensor" in str(first[1]) and "Sequence" not in str(first[1]):
            setattr(Tensor, name, error_names.guarded(function, name))
    for name, function in in_place.items():
        setattr(Tensor, f"{name}_", _in_place(f"{name}_", error_names.guarded(function, name)))
    for name, function in METHODS.items():
        setattr(Tensor, name, error_names.guarded(function, name))
    for name, value in PROPERTIES.items():
        setattr(Tensor, name, value)
