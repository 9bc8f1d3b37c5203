"""Making tensors, and asking about them, under PyTorch's names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import no_grad
from ...errors import describe
from ...tensor import Tensor
from ...typing import DTypeLike
from ..array import creation
from ..array.elementwise import astype

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
    "LongTensor", "ShortTensor", "as_tensor", "binomial", "detach", "from_numpy", "inference_mode", "is_complex",
    "is_floating_point", "is_nonzero", "is_tensor", "logspace", "numel",
    "poisson", "polar", "promote_types", "randint_like", "set_printoptions",
]  # fmt: skip


def as_tensor(data: Any, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor: itself, or sharing its memory, where possible.

    >>> wf.as_tensor([1.0, 2.0])
    tensor([1., 2.])
    """
    return creation.asarray(data, dtype=dtype, device=device)


def _typed(name: str, dtype: np.dtype) -> Any:
    def make(*data: Any) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], int):
            return creation.tensor(data[0], dtype=dtype)
        return creation.empty(data, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A {dtype.name} tensor made of data, or of a shape with any values, as in PyTorch."
    return make


FloatTensor, DoubleTensor = _typed("FloatTensor", dtypes.float32), _typed("DoubleTensor", dtypes.float64)
HalfTensor, BFloat16Tensor = _typed("HalfTensor", dtypes.float16), _typed("BFloat16Tensor", dtypes.bfloat16)
LongTensor, IntTensor = _typed("LongTensor", dtypes.int64), _typed("IntTensor", dtypes.int32)
ShortTensor, CharTensor = _typed("ShortTensor", dtypes.int16), _typed("CharTensor", dtypes.int8)
ByteTensor, BoolTensor = _typed("ByteTensor", dtypes.uint8), _typed("BoolTensor", dtypes.bool_)


def detach(x: Tensor) -> Tensor:
    """The values of a tensor without their history.

    >>> wf.detach(wf.ones(1, requires_grad=True)).requires_grad
    False
    """
    return x.detach()


def randint_like(x: Tensor, low: int, high: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Random integers in [low, high), or in [0, low), in the shape and dtype of `x`.

    >>> wf.randint_like(wf.zeros(3), 1).tolist()
    [0.0, 0.0, 0.0]
    """
    from ... import random

    low, high = (0, low) if high is None else (low, high)
    return astype(random.randint(low, high, tuple(x.shape)), x.dtype if dtype is None else dtypes.as_dtype(dtype))


def poisson(x: Tensor, generator: Any = None) -> Tensor:
    """Random numbers of Poisson distributions with the rates in `x`.

    >>> wf.poisson(wf.zeros(2))
    tensor([0., 0.])
    """
    from ... import random
    from ..array.check_values import require
    from ..array.random_families import random_poisson

    rates = require(x.detach(), lambda v: v >= 0, "poisson: rates must not be negative.")
    return random_poisson(rates, random._next("poisson", generator))


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Random numbers of successes in `count` trials, each with the probability `prob`.

    Args:
        count: numbers of trials, floating.
        prob: probabilities, which broadcast against `count`.
        generator: the source of random numbers; the default generator by default.

    >>> wf.binomial(wf.tensor([4.0, 4.0]), wf.tensor([0.0, 1.0]))
    tensor([0., 4.])
    """
    from ... import random
    from ..array.check_values import require
    from ..array.random_families import random_binomial
    from ..array.shaping import broadcast_arrays

    count, prob = broadcast_arrays(count.detach(), prob.detach())
    count = require(count, lambda v: (v >= 0) & (v % 1 == 0), "binomial: count must be integers, 0 or more.")
    prob = require(prob, lambda v: (v >= 0) & (v <= 1), "binomial: prob must be between 0 and 1.")
    return random_binomial(count, prob, random._next("binomial", generator))


def from_numpy(array: np.ndarray) -> Tensor:
    """The tensor that shares the memory of a NumPy array.

    >>> import numpy as np
    >>> wf.from_numpy(np.zeros(2)).dtype.name
    'float64'
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected a NumPy array. Got {type(array).__name__}; `wf.tensor` takes anything.")
    return creation.asarray(array)


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.

    >>> wf.is_tensor(wf.zeros(1)), wf.is_tensor([0.0])
    (True, False)
    """
    return isinstance(obj, Tensor)


def is_floating_point(x: Tensor) -> bool:
    """Whether a tensor holds floating-point numbers.

    >>> wf.is_floating_point(wf.zeros(1))
    True
    """
    return x.is_floating_point()


def is_complex(x: Tensor) -> bool:
    """Whether a tensor holds complex numbers.

    >>> wf.is_complex(wf.zeros(1))
    False
    """
    return x.is_complex()


def is_nonzero(x: Tensor) -> bool:
    """Whether the one element of a tensor is not zero.

    >>> wf.is_nonzero(wf.tensor(0.5))
    True
    """
    return bool(x)


def numel(x: Tensor) -> int:
    """The number of elements.

    >>> wf.numel(wf.zeros(2, 3))
    6
    """
    return x.numel()


def logspace(
    start: float,
    end: float,
    steps: int = 100,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Tensor:
    """Powers of `base` with equally spaced exponents from `start` to `end`.

    >>> wf.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    values = base ** creation.linspace(start, end, steps, dtype=dtypes.float64, device=device)
    return astype(values, dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype))


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from absolute values and angles.

    >>> wf.polar(wf.tensor([1.0]), wf.tensor([0.0]))
    tensor([1.+0.j])
    """
    from ..array.elementwise import cos, sin

    return creation.complex_(abs * cos(angle), abs * sin(angle))


def promote_types(type1: DTypeLike, type2: DTypeLike) -> np.dtype:
    """The dtype that results from two dtypes.

    >>> wf.promote_types(wf.int32, wf.float32).name
    'float32'
    """
    return dtypes.result_type(dtypes.as_dtype(type1), dtypes.as_dtype(type2))


@contextlib.contextmanager
def inference_mode(mode: bool = True) -> Iterator[None]:
    """A context, or decorator, without gradients: `no_grad`.

    >>> with wf.inference_mode():
    ...     (wf.ones(1, requires_grad=True) * 2).requires_grad
    False
    """
    if mode:
        with no_grad():
            yield
    else:
        yield


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    sci_mode: bool | None = None,
    profile: str | None = None,
) -> None:
    """How tensors and arrays are printed: NumPy's options, under PyTorch's names.

    Args:
        precision: digits behind the point.
        threshold: how many elements are printed before the middle is left out.
        edgeitems: how many are then printed at each end of an axis.
        linewidth: characters in a line.
        sci_mode: False never uses scientific notation.
        profile: "default" or "full" (everything).

    >>> wf.set_printoptions(precision=8)
    """
    given: dict[str, Any] = {
        "precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise TypeError(f"set_printoptions: {name} must be an integer of at least 0. Got {describe(value)}.")
    if sci_mode is not None and not isinstance(sci_mode, bool):
        raise TypeError(f"set_printoptions: sci_mode must be True, False or None. Got {describe(sci_mode)}.")
    if profile == "full":
        given["threshold"] = 2**62
    elif profile == "default":
        given = {"precision": 8, "threshold": 1000, "edgeitems": 3, "linewidth": 75, **given}
    elif profile is not None:
        raise ValueError(f"set_printoptions: profile must be 'default' or 'full'. Got {profile!r}.")
    if sci_mode is not None:
        given["suppress"] = not sci_mode
    np.set_printoptions(**{name: value for name, value in given.items() if value is not None})
