"""What the families share: parameters as tensors of one shape, draws of noise, checks of values, logits and probabilities."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft as wf

from .. import dtypes
from ..autograd.tape import enable_grad
from ..errors import describe
from ..nn import functional as F
from ..ops.array import random_families
from ..ops.array.check_values import check_values
from ..ops.core import modes
from ..ops.core.spec import is_known
from ..random import default_generator
from ..tensor import Tensor

EULER = 0.57721566490153286061
"""Euler's constant"""

Shape = tuple[int, ...]
Value = Tensor | float


def as_shape(what: str, shape: Any) -> Shape:
    """`shape` as a tuple of integers."""
    if isinstance(shape, (int, np.integer)):
        raise TypeError(f"{what} must be a tuple of integers. Got {shape}; write `({shape},)`.")
    try:
        return tuple(d if d is None or not hasattr(d, "__index__") else d.__index__() for d in shape)
    except TypeError:
        raise TypeError(f"{what} must be a tuple of integers. Got {describe(shape)}.") from None


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as floating tensors of one shape; numbers take the dtype of the tensors.

    >>> a, b = wf.distributions.utils.broadcast_all(wf.zeros(2), 1)
    >>> b
    tensor([1., 1.])
    """
    tensors = [_tensor(v) for v in values]
    given = [t.dtype for t in tensors if t is not None]
    dtype = dtypes.float_for(dtypes.result_type(*given)) if given else dtypes.get_default_dtype()
    made = [
        wf.asarray(v, dtype=dtype) if t is None else t if dtypes.is_floating(t.dtype) else t.astype(dtype)
        for v, t in zip(values, tensors, strict=True)
    ]
    shape = common_shape(*[t.shape for t in made])
    if is_known(shape):
        return tuple([spread(t, shape) for t in made])
    return tuple([_like_all(t, made) for t in made])


def _like_all(t: Tensor, others: list[Tensor]) -> Tensor:
    """`t` broadcast against `others`, whose sizes are known only when a graph runs."""
    for other in others:
        if other is not t and other.ndim:
            t = wf.where(wf.ones_like(other, dtype=wf.bool), t, other)
    return t


def spread(t: Tensor, shape: Shape) -> Tensor:
    """`t` broadcast to `shape`, if it has another."""
    return t if t.shape == shape else wf.broadcast_to(t, shape)


def common_shape(*shapes: Any) -> Shape:
    """The shape to which these shapes broadcast."""
    shape: Any = wf.broadcast_shapes(*shapes)
    return shape


def _tensor(value: Any) -> Tensor | None:
    """A tensor or array as a tensor; None for a number."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return wf.asarray(value)
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        return None
    raise TypeError(
        f"distributions: parameters must be numbers or tensors. Got {describe(value)}; use `wf.tensor(...)`."
    )


class lazy_property(property):  # PyTorch's name
    """A property that is computed once, with gradients, and then kept in the instance.

    A value that a captured function computes is not kept: the instance may outlive the trace.
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        super().__init__(wrapped)
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]
        self.wrapped = wrapped

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        name = self.wrapped.__name__
        if name in instance.__dict__:
            return instance.__dict__[name]
        with enable_grad():
            value = self.wrapped(instance)
        if not isinstance(value, Tensor) or type(value._data) is np.ndarray and not _recording():
            instance.__dict__[name] = value
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.wrapped.__name__] = value


def _recording() -> bool:
    return bool(modes.active) and any(mode.takes_writes for mode in modes.current_modes())


def ensure(value: Tensor, valid: Tensor, message: Callable[[], str]) -> Tensor:
    """`value`; raises ValueError with `message()` unless all of `valid` is true.

    A captured function checks when it runs; batched values (vmap) are not checked.
    """
    data, recording = valid._data, _recording()
    if type(data) is np.ndarray and not recording:
        if not data.all():
            raise ValueError(message())
    elif type(data) is np.ndarray or hasattr(data, "node"):
        passed = check_values(valid, message())
        if not recording:  # a session runs only what its fetches depend on
            return wf.where(passed, value, value)
    return value


def describe_values(value: Tensor, valid: Tensor | None = None) -> str:
    """Shape and range of a tensor for a message, and how many events in it are invalid."""
    if value.is_symbolic:
        return f"a tensor of shape {tuple(value.shape)}"
    array = value.detach().numpy()
    if array.size == 1:
        return f"{array.reshape(-1)[0]:g}"
    counts = ""
    if valid is not None and not valid.is_symbolic and valid.size:
        bad = int(np.size(valid.numpy()) - np.count_nonzero(valid.numpy()))
        counts = f", {bad} of {valid.size} invalid"
    span = f" from {np.nanmin(array):g} to {np.nanmax(array):g}" if array.size and not np.isnan(array).all() else ""
    nans = ", with NaN" if np.isnan(array.astype(np.float64)).any() else ""
    return f"values{span} of shape {tuple(value.shape)}{counts}{nans}"


# Noise ----------------------------------------------------------------------------------------------------------------


def standard_normal(shape: Shape, like: Tensor) -> Tensor:
    """Standard normal numbers in the dtype of `like`."""
    if is_known(shape):
        return wf.randn(shape, dtype=like.dtype)
    return wf.randn_like(spread(like.detach(), shape))


def standard_uniform(shape: Shape, like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) in the dtype of `like`."""
    if is_known(shape):
        return wf.rand(shape, dtype=like.dtype)
    return wf.rand_like(spread(like.detach(), shape))


def open_uniform(shape: Shape, like: Tensor) -> Tensor:
    """Uniform numbers in (0, 1): their logarithms, and those of one minus them, are finite."""
    info = wf.finfo(like.dtype)
    return wf.clip(standard_uniform(shape, like), float(info.smallest_normal), 1.0 - float(info.eps))


def standard_gamma(concentration: Tensor, log: bool = False) -> Tensor:
    """Gamma variables of rate 1 (their logarithms with `log`), with implicit gradients to the concentration."""
    return random_families.random_gamma(concentration, default_generator.next_state(), log)


def poisson(rate: Tensor) -> Tensor:
    """Poisson variables."""
    return random_families.random_poisson(rate.detach(), default_generator.next_state())


def binomial(count: Tensor, probs: Tensor) -> Tensor:
    """Binomial variables; parameters of one shape."""
    return random_families.random_binomial(count.detach(), probs.detach(), default_generator.next_state())


def von_mises(concentration: Tensor) -> Tensor:
    """Angles around 0."""
    return random_families.random_von_mises(concentration.detach(), default_generator.next_state())


# Probabilities --------------------------------------------------------------------------------------------------------


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities moved into the open interval (0, 1), by the spacing of the dtype.

    >>> wf.distributions.utils.clamp_probs(wf.tensor([0.0, 0.5]))
    tensor([1.19209...e-07, 5.0000...e-01])
    """
    eps = float(wf.finfo(probs.dtype).eps)
    return wf.clip(probs, eps, 1.0 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities, or with `is_binary` their log odds.

    >>> wf.distributions.utils.probs_to_logits(wf.tensor(0.5), is_binary=True)
    tensor(0.)
    """
    inside = clamp_probs(probs)
    return wf.log(inside) - wf.log1p(-inside) if is_binary else wf.log(inside)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of unnormalised logarithms along the last axis, or with `is_binary` of log odds.

    >>> wf.distributions.utils.logits_to_probs(wf.zeros(2))
    tensor([0.5, 0.5])
    """
    return wf.sigmoid(logits) if is_binary else F.softmax(logits, -1)


def one_of(owner: str, **given: Any) -> str:
    """The name of the argument that is not None; exactly one must be."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        listed = " or ".join(f"`{name}`" for name in given)
        raise ValueError(f"{owner}: pass either {listed}. Got {' and '.join(names) if names else 'neither'}.")
    return names[0]


# Shapes and matrices --------------------------------------------------------------------------------------------------


def sum_rightmost(value: Any, count: int) -> Any:
    """Sum over the last `count` axes.

    >>> wf.distributions.utils.sum_rightmost(wf.ones(2, 3), 1)
    tensor([3., 3.])
    """
    return value if count == 0 else wf.sum(value, axis=tuple(range(-count, 0)))


def sized(n: int, diag: int) -> int:
    """The number of elements of the lower triangle of an n × n matrix, up to the diagonal `diag` <= 0."""
    return max(n + diag, 0) * max(n + diag + 1, 0) // 2


def _triangle(n: int, diag: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tril_indices(n, diag)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of matrices (…, n, n), row by row, as vectors.

    >>> wf.distributions.utils.tril_matrix_to_vec(wf.tensor([[1.0, 9.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: diag must be from {-n} to {n - 1}. Got {diag}.")
    rows, columns = _triangle(n, diag)
    flat = mat.reshape((*mat.shape[:-2], n * n))
    return wf.take(flat, wf.asarray(rows * n + columns), axis=-1)


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices from vectors of their elements, row by row: the inverse of `tril_matrix_to_vec`.

    >>> wf.distributions.utils.vec_to_tril_matrix(wf.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 0.],
            [2., 3.]])
    """
    size = vec.shape[-1]
    n = round((-(1 + 2 * diag) + math.sqrt((1 + 2 * diag) ** 2 + 8 * size + 4 * abs(diag) * (diag + 1))) / 2)
    rows, columns = _triangle(n, diag)
    if len(rows) != size:
        raise ValueError(
            f"vec_to_tril_matrix: {size} elements do not fill a lower triangle with diag={diag}. Expected "
            f"{len(rows)}, those of a {n} × {n} matrix."
        )
    place = np.full(n * n, size)  # outside of the triangle: an element 0 after the last
    place[rows * n + columns] = np.arange(size)
    padded = wf.concat([vec, wf.zeros((*vec.shape[:-1], 1), dtype=vec.dtype)], axis=-1)
    return wf.take(padded, wf.asarray(place), axis=-1).reshape((*vec.shape[:-1], n, n))


def add_identity(matrix: Tensor) -> Tensor:
    """`matrix` plus the identity."""
    return matrix + wf.eye(matrix.shape[-1], dtype=matrix.dtype)


def inverse_tril(tril: Tensor) -> Tensor:
    """The inverse of lower triangular matrices."""
    return wf.tril(wf.linalg.inv(tril))


def half_log_det(tril: Tensor) -> Tensor:
    """The logarithm of the determinant of lower triangular matrices with positive diagonals."""
    return wf.sum(wf.log(wf.linalg.diagonal(tril)), axis=-1)


def batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices (…, m, n) and vectors (…, n); leading axes broadcast."""
    return wf.matmul(matrix, vector[..., None])[..., 0]


def infinite_where(condition: Tensor, value: Tensor) -> Tensor:
    """Infinity where `condition` holds, else `value`."""
    return wf.where(condition, wf.full((), math.inf, dtype=value.dtype), value)


def join(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
