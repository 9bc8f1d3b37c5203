"""Weft: a deep-learning framework in Python.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

import builtins
import numpy as np
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from . import data as data
from . import debug as debug
from . import fft as fft
from . import io as io
from . import linalg as linalg
from . import models as models
from . import multiprocessing as multiprocessing
from . import nn as nn
from . import optim as optim
from . import random as random
from . import sparse as sparse
from . import train as train
from .autocast import autocast as autocast
from .autograd.anomaly import detect_anomaly as detect_anomaly
from .autograd.function import Function as Function
from .autograd.gradcheck import gradcheck as gradcheck
from .autograd.gradcheck import gradgradcheck as gradgradcheck
from .autograd.tape import enable_grad as enable_grad
from .autograd.tape import no_grad as no_grad
from .autograd.tape import set_grad_enabled as set_grad_enabled
from .dtypes import FloatLimits as FloatLimits
from .errors import FileError as FileError
from .graph.capture.control_flow import case as case
from .graph.capture.control_flow import cond as cond
from .graph.capture.control_flow import map as map
from .graph.capture.control_flow import scan as scan
from .graph.capture.control_flow import while_loop as while_loop
from .graph.capture.function import function as function
from .graph.capture.tracing import CaptureError as CaptureError
from .graph.capture.tracing import outside as outside_capture
from .graph.declared.building import DeclaredGraph as Graph
from .graph.declared.building import colocate_with as colocate_with
from .graph.declared.building import constant as constant
from .graph.declared.building import control_dependencies as control_dependencies
from .graph.declared.building import device as device
from .graph.declared.building import get_default_graph as get_default_graph
from .graph.declared.building import group as group
from .graph.declared.building import name_scope as name_scope
from .graph.declared.building import no_op as no_op
from .graph.declared.building import placeholder as placeholder
from .graph.declared.building import reset_default_graph as reset_default_graph
from .graph.declared.control_primitives import enter as enter
from .graph.declared.control_primitives import exit as exit
from .graph.declared.control_primitives import merge as merge
from .graph.declared.control_primitives import next_iteration as next_iteration
from .graph.declared.control_primitives import switch as switch
from .graph.declared.gradients import gradients as gradients
from .graph.declared.python_calls import minimize as minimize
from .graph.declared.queues import Barrier as Barrier
from .graph.declared.queues import Coordinator as Coordinator
from .graph.declared.queues import FIFOQueue as FIFOQueue
from .graph.declared.queues import PriorityQueue as PriorityQueue
from .graph.declared.queues import QueueClosedError as QueueClosedError
from .graph.declared.queues import QueueRunner as QueueRunner
from .graph.declared.queues import RandomShuffleQueue as RandomShuffleQueue
from .graph.declared.queues import StagingArea as StagingArea
from .graph.declared.serialize import restore_variables as restore_variables
from .graph.declared.serialize import save_variables as save_variables
from .graph.declared.variables import Variable as Variable
from .graph.execute.placement import configure_devices as configure_devices
from .graph.execute.placement import devices as devices
from .graph.execute.run import CancelledError as CancelledError
from .graph.execute.session import Session as Session
from .io import load as load
from .io import save as save
from .ops.array.cumulative import CumulativeExtreme as CumulativeExtreme
from .ops.array.row_sparse import RowSparse as RowSparse
from .ops.array.sets import UniqueAll as UniqueAll
from .ops.array.sets import UniqueCounts as UniqueCounts
from .ops.array.sets import UniqueInverse as UniqueInverse
from .ops.array.sorting import KthValue as KthValue
from .ops.array.sorting import TopK as TopK
from .ops.array.statistics import Histogram as Histogram
from .profiler import profile as profile
from .random import Generator as Generator
from .runtime import memory as memory
from .runtime.info import info as info
from .runtime.threads import get_num_threads as get_num_threads
from .runtime.threads import set_num_threads as set_num_threads
from .tensor import Tensor as Tensor
from .train import Trainer as Trainer
from .typing import ArrayLike
from .typing import Axis
from .typing import DTypeLike
from .typing import DeviceLike
from .typing import F
from .typing import Operand
from .typing import P
from .typing import R
from .typing import Scalar
from .typing import ShapeLike

__all__ = [
    "Barrier", "CancelledError", "CaptureError", "Coordinator", "FIFOQueue", "FileError", "Function",
    "Generator", "Graph", "PriorityQueue", "QueueClosedError", "QueueRunner", "RandomShuffleQueue",
    "RowSparse", "Session", "StagingArea", "Tensor", "Trainer", "Variable", "abs", "acos", "acosh", "add",
    "all", "allclose", "angle", "any", "arange", "argmax", "argmin", "argsort", "argwhere", "array_equal",
    "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "autocast", "backward", "bernoulli",
    "bfloat16", "bincount", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "can_cast", "case", "ceil", "checkpoint", "chunk", "clip", "clone", "colocate_with", "complex",
    "complex128", "complex64", "concat", "cond", "configure_devices", "conj", "constant",
    "control_dependencies", "copysign", "cos", "cosh", "count_nonzero", "cross", "cummax", "cummin",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "data", "debug", "default_generator",
    "detect_anomaly", "device", "devices", "diag", "diag_embed", "diagonal", "diff", "divide", "e", "einsum",
    "empty", "empty_like", "enable_grad", "enter", "equal", "erf", "erfc", "exit", "exp", "exp2",
    "expand_dims", "expm1", "eye", "fft", "finfo", "flatten", "flip", "fliplr", "flipud", "float16",
    "float32", "float64", "floor", "floor_divide", "from_dlpack", "full", "full_like", "function", "gather",
    "get_default_dtype", "get_default_graph", "get_num_threads", "get_rng_state", "grad", "grad_fn",
    "gradcheck", "gradgradcheck", "gradients", "greater", "greater_equal", "group", "hessian", "histogram",
    "hypot", "iinfo", "imag", "index_add", "inf", "info", "initial_seed", "int16", "int32", "int64", "int8",
    "io", "is_autocast_enabled", "is_grad_enabled", "isclose", "isdtype", "isfinite", "isin", "isinf",
    "isnan", "jacobian", "jvp", "kron", "kthvalue", "lerp", "less", "less_equal", "linalg",
    "linear_recurrence", "linspace", "load", "log", "log10", "log1p", "log2", "logaddexp", "logcumsumexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "make_complex", "manual_seed",
    "map", "masked_fill", "masked_select", "matmul", "matrix_transpose", "max", "maximum", "mean", "median",
    "memory", "merge", "meshgrid", "min", "minimize", "minimum", "models", "moveaxis", "multinomial",
    "multiply", "multiprocessing", "name_scope", "nan", "nan_to_num", "negative", "newaxis", "next_iteration",
    "nextafter", "nn", "no_grad", "no_op", "nonzero", "normal", "not_equal", "one_hot", "ones", "ones_like",
    "optim", "outer", "outside_capture", "pad", "permute_dims", "pi", "placeholder", "positive", "pow",
    "prod", "profile", "quantile", "rand", "rand_like", "randint", "randn", "randn_like", "random",
    "randperm", "real", "reciprocal", "register_kernel", "remainder", "repeat", "reset_default_graph",
    "reshape", "reshape_as", "restore_variables", "result_type", "roll", "round", "rsqrt", "save",
    "save_variables", "scan", "scatter", "scatter_add", "searchsorted", "seed", "set_default_dtype",
    "set_detect_anomaly", "set_grad_enabled", "set_num_threads", "set_rng_state", "sigmoid", "sign",
    "signbit", "sin", "sinh", "slice_axis", "sort", "sparse", "split", "sqrt", "square", "squeeze", "stack",
    "std", "stop_gradient", "subtract", "sum", "swapaxes", "switch", "take", "take_along_axis", "tan", "tanh",
    "tensor", "tensordot", "tile", "topk", "trace", "train", "tril", "triu", "trunc", "uint16", "uint32",
    "uint64", "uint8", "unflatten", "uniform", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "value_and_grad", "var", "vecdot", "vjp", "vmap", "where", "while_loop",
    "zeros", "zeros_like",
]

__version__: str
def abs(x: Operand) -> Tensor:
    """The absolute value; for complex numbers the modulus."""
def acos(x: Operand) -> Tensor:
    """The angle in [0, π] whose cosine is x."""
def acosh(x: Operand) -> Tensor:
    """The inverse hyperbolic cosine."""
def add(x1: Operand, x2: Operand) -> Tensor:
    """`x1 + x2`, elementwise."""
def all(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all elements over `axis` are true (non-zero)."""
def allclose(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    *,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """Whether all elements are close (see `isclose`), as a 0-d bool tensor."""
def angle(x: ArrayLike) -> Tensor:
    """The phase of a complex number, in [-π, π]."""
def any(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether at least one element over `axis` is true (non-zero)."""
def arange(
    start: float | ArrayLike,
    /,
    stop: float | ArrayLike | None = None,
    step: float | ArrayLike = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Evenly spaced values `start, start + step, …` below `stop`; `arange(n)` counts from 0."""
def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the largest element along `axis` (of the flattened tensor by default); of equal ones
    the first.
    """
def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the smallest element along `axis` (of the flattened tensor by default); of equal ones
    the first.
    """
def argsort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Tensor:
    """The indices that sort `x` along `axis`; equal elements keep their order."""
def argwhere(x: ArrayLike, /) -> Tensor:
    """The indices of the non-zero elements, one row per element."""
def array_equal(x1: ArrayLike, x2: ArrayLike, /, *, equal_nan: builtins.bool = False) -> Tensor:
    """Whether two tensors have the same shape and equal elements, as a 0-d bool tensor."""
def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: builtins.bool | None = None,
) -> Tensor:
    """`obj` as a tensor, sharing memory with it where that is possible (NumPy arrays, DLPack) unless
    `copy=True`.
    """
def asin(x: Operand) -> Tensor:
    """The angle in [-π/2, π/2] whose sine is x."""
def asinh(x: Operand) -> Tensor:
    """The inverse hyperbolic sine."""
def astype(
    x: ArrayLike,
    dtype: DTypeLike,
    /,
    *,
    copy: builtins.bool = True,
    device: DeviceLike | None = None,
) -> Tensor:
    """`x` converted to `dtype`: a new tensor, or `x` itself if nothing changes and `copy` is False."""
def atan(x: Operand) -> Tensor:
    """The angle in (-π/2, π/2) whose tangent is x."""
def atan2(x1: Operand, x2: Operand) -> Tensor:
    """The angle of the point (x2, x1), in [-π, π]."""
def atanh(x: Operand) -> Tensor:
    """The inverse hyperbolic tangent."""
def backward(
    tensors: Any,
    grad_tensors: Any = None,
    *,
    retain_graph: builtins.bool | None = None,
    create_graph: builtins.bool = False,
) -> None:
    """Add the gradients of several outputs at once to the `.grad` of the leaves."""
def bernoulli(
    p: float | ArrayLike,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """1 with probability `p` (a tensor of probabilities, or a number with a `shape`), else 0."""
bfloat16: np.dtype[Any]
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2 … occurs in a vector of integers; with `weights`, their sum per value."""
def bitwise_and(x1: Operand, x2: Operand) -> Tensor:
    """The bits set in both."""
def bitwise_invert(x: Operand) -> Tensor:
    """All bits flipped; for bools, not."""
def bitwise_left_shift(x1: Operand, x2: Operand) -> Tensor:
    """x1 shifted left by x2 bits."""
def bitwise_or(x1: Operand, x2: Operand) -> Tensor:
    """The bits set in either."""
def bitwise_right_shift(x1: Operand, x2: Operand) -> Tensor:
    """x1 shifted right by x2 bits."""
def bitwise_xor(x1: Operand, x2: Operand) -> Tensor:
    """The bits set in exactly one."""
bool: np.dtype[np.bool]
def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """The tensors broadcast against each other."""
def broadcast_shapes(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The shape to which `shapes` broadcast; a size may be None (unknown)."""
def broadcast_to(x: ArrayLike, /, shape: tuple[int, ...]) -> Tensor:
    """`x` repeated, without copying, to `shape`; a read-only view."""
def can_cast(from_: DTypeLike | ArrayLike, to: DTypeLike) -> builtins.bool:
    """Whether promotion leads from `from_` (a tensor or a dtype) to `to`."""
def ceil(x: Operand) -> Tensor:
    """The smallest integer that is not below x."""
def checkpoint(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`fn(*args, **kwargs)`, whose intermediate values are computed again in backward instead of being
    kept.
    """
def chunk(x: ArrayLike, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along `axis` into at most `chunks` pieces of equal size (the last may be smaller)."""
def clip(x: ArrayLike, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """`x` limited to the interval [min, max]; either end may be None, a number or a tensor that
    broadcasts.
    """
def clone(x: ArrayLike) -> Tensor:
    """A copy of `x` in memory of its own; gradients flow through."""
def complex(real: Sequence[Any] | ArrayLike, imag: Sequence[Any] | ArrayLike) -> Tensor:
    """The complex tensor with these real and imaginary parts."""
complex128: np.dtype[np.complex128]
complex64: np.dtype[np.complex64]
def concat(arrays: Sequence[ArrayLike], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an existing `axis`; with `axis=None` they are flattened first."""
def conj(x: ArrayLike) -> Tensor:
    """The complex conjugate; real tensors are returned as they are."""
def copysign(x1: Operand, x2: Operand) -> Tensor:
    """The magnitude of x1 with the sign of x2."""
def cos(x: Operand) -> Tensor:
    """The cosine of x (radians)."""
def cosh(x: Operand) -> Tensor:
    """The hyperbolic cosine."""
def count_nonzero(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """How many elements over `axis` (all by default) are not zero."""
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
def cummax(x: ArrayLike, /, axis: int | None = None) -> CumulativeExtreme:
    """The running maximum along `axis` and the index of the element it comes from (the latest of equal
    ones).
    """
def cummin(x: ArrayLike, /, axis: int | None = None) -> CumulativeExtreme:
    """The running minimum along `axis` and the index of the element it comes from (the latest of equal
    ones).
    """
def cumprod(x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """`cumulative_prod` under its short name."""
def cumsum(x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """`cumulative_sum` under its short name."""
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The running product along `axis` (needed unless `x` is a vector); small integers are multiplied in
    64 bits.
    """
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The running sum along `axis` (needed unless `x` is a vector); small integers are summed in 64 bits."""
default_generator: Generator
def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A vector as the `k`-th diagonal of a square matrix, or the `k`-th diagonal of a matrix as a vector."""
def diag_embed(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """Square matrices of zeros with the last axis of `x` on their `offset`-th diagonal."""
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The `offset`-th diagonal of a (stack of) matrices, as the last axis; a copy."""
def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """The difference of neighbours along `axis`, taken `n` times; `prepend` and `append` are joined to `x`
    first.
    """
def divide(x1: Operand, x2: Operand) -> Tensor:
    """`x1 / x2`, elementwise; integers become the default float."""
e: float
def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products over indices: `einsum("ij,jk->ik", a, b)` is the matrix product."""
def empty(
    *sizes: ShapeLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """A tensor whose elements are not set to anything in particular."""
def empty_like(
    x: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """A tensor with the shape of `x` whose elements are not set to anything in particular."""
def equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 == x2`, elementwise."""
def erf(x: Operand) -> Tensor:
    """The error function."""
def erfc(x: Operand) -> Tensor:
    """The complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
def exp(x: Operand) -> Tensor:
    """e to the power of x."""
def exp2(x: Operand) -> Tensor:
    """2 to the power of x."""
def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """`x` with new axes of size 1 at `axis`; a view."""
def expm1(x: Operand) -> Tensor:
    """exp(x) - 1, exact near zero."""
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Ones on the `k`-th diagonal, zeros elsewhere."""
def finfo(type: DTypeLike, /) -> FloatLimits:
    """Limits of a floating dtype (or of a tensor's dtype): bits, eps, max, min, smallest_normal, dtype."""
def flatten(x: ArrayLike, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """`x` with the axes from `start_axis` to `end_axis` joined into one."""
def flip(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """`x` with the order of elements along `axis` (all axes by default) reversed; a copy."""
def fliplr(x: ArrayLike, /) -> Tensor:
    """`x` with the order of its second axis reversed."""
def flipud(x: ArrayLike, /) -> Tensor:
    """`x` with the order of its first axis reversed."""
float16: np.dtype[np.float16]
float32: np.dtype[np.float32]
float64: np.dtype[np.float64]
def floor(x: Operand) -> Tensor:
    """The largest integer that is not above x."""
def floor_divide(x1: Operand, x2: Operand) -> Tensor:
    """The floor of `x1 / x2`."""
def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor on the memory of any object with `__dlpack__` (NumPy, torch, jax …), without a copy."""
def full(
    shape: ShapeLike,
    fill_value: Scalar | ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """A tensor of `shape` with every element `fill_value`, whose kind decides the dtype unless given."""
def full_like(
    x: ArrayLike,
    /,
    fill_value: Scalar,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """`fill_value` everywhere, with the shape (and dtype, unless given) of `x`."""
def gather(x: ArrayLike, axis: int, index: ArrayLike) -> Tensor:
    """PyTorch's gather: `out[i][j] = x[index[i][j]][j]` for axis 0."""
def get_default_dtype() -> np.dtype:
    """The dtype that Python floats and true division of integers become."""
def get_rng_state() -> Tensor:
    """A copy of the default generator's state."""
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    retain_graph: builtins.bool | None = None,
    create_graph: builtins.bool = False,
    allow_unused: builtins.bool = False,
) -> tuple[Any, ...]:
    """The gradients of (the sum of) `outputs` with respect to each of `inputs`, without touching any
    `.grad`.
    """
def grad_fn(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `fn`, which must return a tensor with one element."""
def greater(x1: Operand, x2: Operand) -> Tensor:
    """`x1 > x2`, elementwise."""
def greater_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 >= x2`, elementwise."""
def hessian(fn: Callable[..., Any], inputs: ArrayLike) -> Tensor:
    """The matrix of second derivatives of a scalar function of one tensor."""
def histogram(
    x: ArrayLike,
    /,
    bins: Any = 10,
    range: Any = None,
    *,
    weights: ArrayLike | None = None,
    density: builtins.bool = False,
) -> Histogram:
    """How many elements fall into each of `bins` (a number of equal bins, or the edges); the last bin
    includes its end.
    """
def hypot(x1: Operand, x2: Operand) -> Tensor:
    """sqrt(x1² + x2²) without overflow."""
def iinfo(type: DTypeLike, /) -> Any:
    """Limits of an integer dtype (or of a tensor's dtype): bits, max, min, dtype."""
def imag(x: ArrayLike) -> Tensor:
    """The imaginary part (zeros for a real tensor)."""
def index_add(x: ArrayLike, index: ArrayLike, source: ArrayLike, axis: int = 0) -> Tensor:
    """A copy of `x` with the slices of `source` added to the slices of `x` at `index` along `axis`."""
inf: float
def initial_seed() -> int:
    """The seed of the default generator."""
int16: np.dtype[np.int16]
int32: np.dtype[np.int32]
int64: np.dtype[np.int64]
int8: np.dtype[np.int8]
def is_autocast_enabled() -> builtins.bool:
    """Whether ops of this thread are being cast."""
def is_grad_enabled() -> builtins.bool:
    """Whether ops are being recorded in this thread."""
def isclose(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    *,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """Whether two values differ by at most `atol + rtol * abs(x2)`."""
def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> builtins.bool:
    """Whether `dtype` is `kind`: a dtype, one of the array API's kind names, or a tuple of those."""
def isfinite(x: Operand) -> Tensor:
    """Whether x is neither infinite nor NaN."""
def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: builtins.bool = False) -> Tensor:
    """Whether each element of `x1` is among the elements of `x2` (or is not, with `invert`)."""
def isinf(x: Operand) -> Tensor:
    """Whether x is infinite."""
def isnan(x: Operand) -> Tensor:
    """Whether x is not a number."""
def jacobian(fn: Callable[..., Any], inputs: Any, *, create_graph: builtins.bool = False) -> Any:
    """The Jacobian of `fn` at `inputs` (a tensor or a tuple): shape of the output followed by that of the
    input.
    """
def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of `fn(*primals)` and the derivative in the direction `tangents` (by double reverse)."""
def kron(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The Kronecker product: `x2` repeated for every element of `x1` and multiplied by it."""
def kthvalue(x: ArrayLike, /, k: int, axis: int = -1, *, keepdims: builtins.bool = False) -> KthValue:
    """The `k`-th smallest element along `axis` (counting from 1) and its index."""
def lerp(start: ArrayLike, end: ArrayLike, weight: Operand, /) -> Tensor:
    """`start + weight * (end - start)`: from `start` (weight 0) to `end` (weight 1) in a straight line."""
def less(x1: Operand, x2: Operand) -> Tensor:
    """`x1 < x2`, elementwise."""
def less_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 <= x2`, elementwise."""
def linear_recurrence(a: ArrayLike, b: ArrayLike, /, axis: int = 0, reverse: builtins.bool = False) -> Tensor:
    """`h[i] = a[i] * h[i - 1] + b[i]` along `axis`, starting from zero (from the far end with `reverse`)."""
def linspace(
    start: Scalar | ArrayLike,
    stop: Scalar | ArrayLike,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """`num` evenly spaced values from `start` to `stop`, including `stop` unless `endpoint=False`."""
def log(x: Operand) -> Tensor:
    """The natural logarithm."""
def log10(x: Operand) -> Tensor:
    """The logarithm to base 10."""
def log1p(x: Operand) -> Tensor:
    """log(1 + x), exact near zero."""
def log2(x: Operand) -> Tensor:
    """The logarithm to base 2."""
def logaddexp(x1: Operand, x2: Operand) -> Tensor:
    """log(exp(x1) + exp(x2)), stable for large values."""
def logcumsumexp(x: ArrayLike, /, axis: int | None = None) -> Tensor:
    """log of the running sum of exp(x) along `axis`, stable for large and small values."""
def logical_and(x1: Operand, x2: Operand) -> Tensor:
    """Whether both are true (non-zero)."""
def logical_not(x: Operand) -> Tensor:
    """Whether x is false (zero)."""
def logical_or(x1: Operand, x2: Operand) -> Tensor:
    """Whether at least one is true (non-zero)."""
def logical_xor(x1: Operand, x2: Operand) -> Tensor:
    """Whether exactly one is true (non-zero)."""
def logsumexp(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis`, stable for large values."""
def make_complex(real: ArrayLike, imag: ArrayLike) -> Tensor:
    """The complex tensor with these real and imaginary parts."""
def manual_seed(seed: int) -> Generator:
    """Seed the default generator, from which every draw comes that is given no other."""
def masked_fill(x: ArrayLike, mask: ArrayLike, value: Operand) -> Tensor:
    """`x` with `value` where `mask` is true."""
def masked_select(x: ArrayLike, mask: ArrayLike, /) -> Tensor:
    """The elements of `x` where `mask` is true, in row-major order, as a vector."""
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The matrix product; leading axes are batches and broadcast; vectors are rows on the left, columns on
    the right.
    """
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """`x` with its last two axes exchanged; a view."""
def max(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest element over `axis` (all by default); NaN if one is NaN."""
def maximum(x1: Operand, x2: Operand) -> Tensor:
    """The larger of two values; NaN if one is NaN."""
def mean(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The arithmetic mean over `axis` (all by default); integers become the default float."""
def median(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The middle element over `axis` (all by default) in order of size; the mean of the two middle ones if
    they are two.
    """
def meshgrid(*arrays: ArrayLike, indexing: str = 'xy') -> tuple[Tensor, ...]:
    """Coordinate matrices from coordinate vectors; `indexing` is "xy" (Cartesian) or "ij" (matrix)."""
def min(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest element over `axis` (all by default); NaN if one is NaN."""
def minimum(x1: Operand, x2: Operand) -> Tensor:
    """The smaller of two values; NaN if one is NaN."""
def moveaxis(x: ArrayLike, source: Any, destination: Any, /) -> Tensor:
    """`x` with the axes `source` moved to the places `destination`; the others keep their order."""
def multinomial(
    probabilities: ArrayLike,
    num_samples: int,
    replacement: builtins.bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`num_samples` category numbers per row, drawn with the given probabilities (which need not sum to
    one).
    """
def multiply(x1: Operand, x2: Operand) -> Tensor:
    """`x1 * x2`, elementwise."""
nan: float
def nan_to_num(
    x: ArrayLike,
    /,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """`x` with NaN and infinities replaced by numbers (0 and the largest and smallest finite ones by
    default).
    """
def negative(x: Operand) -> Tensor:
    """`-x`, elementwise."""
newaxis: None
def nextafter(x1: Operand, x2: Operand) -> Tensor:
    """The next representable number after x1 in the direction of x2, in float32 or float64."""
def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """The indices of the non-zero elements: one tensor per axis, in row-major order."""
def normal(
    mean: float | ArrayLike = 0.0,
    std: float | ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers with this mean and standard deviation, which may be tensors; gradients flow to them."""
def not_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 != x2`, elementwise."""
def one_hot(x: ArrayLike, num_classes: int = -1) -> Tensor:
    """Encode class indices as int64 vectors with a single 1 along a new last axis."""
def ones(
    *sizes: ShapeLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A tensor of ones (float32 unless `dtype` says otherwise)."""
def ones_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Ones with the shape (and dtype, unless given) of `x`."""
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The matrix of products of every element of the vector `x1` with every element of the vector `x2`."""
def pad(x: ArrayLike, /, pad_width: Any, mode: str = 'constant', value: float = 0) -> Tensor:
    """`x` with values around it."""
def permute_dims(x: ArrayLike, /, axes: tuple[int, ...]) -> Tensor:
    """`x` with its axes in another order; a view."""
pi: float
def positive(x: Operand) -> Tensor:
    """`+x`: a copy of `x`."""
def pow(x1: Operand, x2: Operand) -> Tensor:
    """`x1 ** x2`, elementwise."""
def prod(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The product of elements over `axis` (all by default)."""
def quantile(
    x: ArrayLike,
    /,
    q: Operand,
    *,
    axis: Axis = None,
    keepdims: builtins.bool = False,
    method: str = 'linear',
) -> Tensor:
    """The values below which a share `q` (0 to 1, a number or a tensor) of the elements over `axis` lie."""
def rand(
    *shape: ShapeLike,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Numbers uniform in [0, 1): `rand(2, 3)` or `rand((2, 3))`."""
def rand_like(x: ArrayLike, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Numbers uniform in [0, 1) with the shape (and dtype, unless given) of `x`."""
def randint(
    low: int,
    high: int | ShapeLike | None = None,
    shape: ShapeLike = (),
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers uniform in [low, high): `randint(0, 10, (2, 3))`; with one bound, `randint(10, (2, 3))`,
    low is 0.
    """
def randn(
    *shape: ShapeLike,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Standard normal numbers: `randn(2, 3)` or `randn((2, 3))`."""
def randn_like(x: ArrayLike, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Standard normal numbers with the shape (and dtype, unless given) of `x`."""
def randperm(n: int, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
def real(x: ArrayLike) -> Tensor:
    """The real part."""
def reciprocal(x: Operand) -> Tensor:
    """`1 / x`."""
def register_kernel(
    name: str,
    *,
    device: str = 'cpu',
    when: Callable[..., builtins.bool] | None = None,
    label: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a kernel for the op `name`: a function over arrays with the op's own parameters."""
def remainder(x1: Operand, x2: Operand) -> Tensor:
    """The rest of the floor division `x1 // x2`; it has the sign of `x2`."""
def repeat(x: ArrayLike, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated along `axis` (of the flattened tensor by default): `repeats` times, or as
    often as the matching element of `repeats` says.
    """
def reshape(x: ArrayLike, /, shape: int | tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """The same elements in the same order with another shape; one size may be -1."""
def reshape_as(x: ArrayLike, like: ArrayLike) -> Tensor:
    """`x` with the shape of `like`; in a graph the shape may be known only at run time."""
def result_type(*operands: Any) -> np.dtype:
    """The dtype that promotion gives for tensors, dtypes and (weak) Python scalars together."""
def roll(
    x: ArrayLike,
    /,
    shift: int | tuple[int, ...],
    *,
    axis: int | tuple[int, ...] | None = None,
) -> Tensor:
    """`x` with elements shifted along `axis` (the flattened tensor by default); what falls off comes back
    in front.
    """
def round(x: Operand) -> Tensor:
    """The nearest integer; halves go to the even one."""
def rsqrt(x: Operand) -> Tensor:
    """1 / sqrt(x)."""
def scatter(x: ArrayLike, index: ArrayLike, src: ArrayLike, axis: int = 0) -> Tensor:
    """A copy of `x` with the elements at `index` along `axis` replaced by `src`; of repeated places one
    wins.
    """
def scatter_add(x: ArrayLike, index: ArrayLike, src: ArrayLike, axis: int = 0) -> Tensor:
    """A copy of `x` with `src` added at `index` along `axis`; repeated places add up."""
def searchsorted(
    x1: ArrayLike,
    x2: ArrayLike | int | float,
    /,
    *,
    side: str = 'left',
    sorter: ArrayLike | None = None,
) -> Tensor:
    """Where the elements of `x2` (a tensor or a number) must be inserted into the sorted vector `x1` to
    keep it sorted.
    """
def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
def set_default_dtype(dtype: DTypeLike) -> None:
    """Make `dtype` (float32 or float64) the default floating dtype of this process."""
def set_detect_anomaly(mode: builtins.bool) -> None:
    """Switch NaN tracing on or off for this thread until further notice."""
def set_rng_state(state: Any) -> None:
    """Continue the default generator from a state that `get_rng_state` returned."""
def sigmoid(x: Operand) -> Tensor:
    """The logistic function 1 / (1 + exp(-x))."""
def sign(x: Operand) -> Tensor:
    """-1, 0 or 1 by the sign of x; x / |x| for complex numbers; NaN stays NaN."""
def signbit(x: Operand) -> Tensor:
    """Whether the sign bit of x is set (true for -0.0)."""
def sin(x: Operand) -> Tensor:
    """The sine of x (radians)."""
def sinh(x: Operand) -> Tensor:
    """The hyperbolic sine."""
def slice_axis(
    x: ArrayLike,
    axis: int,
    start: int | None,
    stop: int | None,
    step: int | None = None,
) -> Tensor:
    """`x[..., start:stop:step, ...]` along one axis; a view."""
def sort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Tensor:
    """The elements of `x` in ascending (or `descending`) order along `axis`; NaN counts as the largest."""
def split(x: ArrayLike, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along `axis` into pieces of a given size (the last may be smaller), or of given sizes."""
def sqrt(x: Operand) -> Tensor:
    """The square root; NaN for negative real numbers."""
def square(x: Operand) -> Tensor:
    """`x * x`."""
def squeeze(x: ArrayLike, /, axis: int | tuple[int, ...]) -> Tensor:
    """`x` without the axes `axis`, which must have size 1; a view."""
def stack(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
def std(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    correction: int | float = 0.0,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The standard deviation over `axis` (all by default): the square root of `var`."""
def stop_gradient(x: ArrayLike) -> Tensor:
    """`x` as a constant: no gradient flows through."""
def subtract(x1: Operand, x2: Operand) -> Tensor:
    """`x1 - x2`, elementwise."""
def sum(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The sum of elements over `axis` (all by default)."""
def swapaxes(x: ArrayLike, /, axis1: int, axis2: int) -> Tensor:
    """`x` with two axes exchanged; a view."""
def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> Tensor:
    """Elements of `x` along `axis` at `indices`."""
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """`out[i, j] = x[i, indices[i, j]]` for the last axis, and likewise for others."""
def tan(x: Operand) -> Tensor:
    """The tangent of x (radians)."""
def tanh(x: Operand) -> Tensor:
    """The hyperbolic tangent."""
def tensor(
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    requires_grad: builtins.bool = False,
    device: DeviceLike | None = None,
) -> Tensor:
    """A new tensor with a copy of `data` (numbers, nested sequences, arrays, tensors)."""
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
    """The sum over pairs of axes: the last `axes` of x1 with the first of x2, or the given (x1 axes, x2
    axes).
    """
def tile(x: ArrayLike, repetitions: tuple[int, ...], /) -> Tensor:
    """`x` repeated whole, `repetitions` times along each axis."""
def topk(
    x: ArrayLike,
    /,
    k: int,
    axis: int = -1,
    *,
    largest: builtins.bool = True,
    sorted: builtins.bool = True,
) -> TopK:
    """The `k` largest elements along `axis` (the smallest with `largest=False`) and their indices, in
    order.
    """
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum along the `offset`-th diagonal of a (stack of) matrices; small integers are summed in 64
    bits.
    """
def tril(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The elements of a (stack of) matrices on and below the `k`-th diagonal; zero above."""
def triu(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The elements of a (stack of) matrices on and above the `k`-th diagonal; zero below."""
def trunc(x: Operand) -> Tensor:
    """x without its fraction."""
uint16: np.dtype[np.uint16]
uint32: np.dtype[np.uint32]
uint64: np.dtype[np.uint64]
uint8: np.dtype[np.uint8]
def unflatten(x: ArrayLike, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """`x` with the axis `axis` split into several of `sizes`, one of which may be -1: the inverse of
    `flatten`.
    """
def uniform(
    low: float | ArrayLike = 0.0,
    high: float | ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers uniform in [low, high)."""
def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct values of `x` in ascending order, their first places in the flattened `x`, the index of
    its value for every element, and how often each value occurs.
    """
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct values of `x` in ascending order and how often each occurs."""
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct values of `x` in ascending order and, for every element, the index of its value among
    them.
    """
def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct values of `x`, in ascending order."""
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of `x` along `axis`, as views."""
def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[..., Any]:
    """A function that returns `fn`'s (scalar) value and its gradient with respect to the arguments
    `argnums`.
    """
def var(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    correction: int | float = 0.0,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The variance over `axis` (all by default): the mean squared distance from the mean."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The sum of `conj(x1) * x2` over `axis`."""
def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """The value of `fn(*primals)` and a function from a cotangent to the gradients of the primals."""
def vmap(fn: F, in_axes: Any = 0, out_axes: Any = 0, *, randomness: str = 'error') -> F:
    """A function that applies `fn` to every example of a batch at once."""
def where(condition: Operand, x1: Operand, x2: Operand) -> Tensor:
    """`x1` where `condition` is true, else `x2`; the three broadcast together."""
def zeros(
    *sizes: ShapeLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A tensor of zeros (float32 unless `dtype` says otherwise)."""
def zeros_like(
    x: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Zeros with the shape (and dtype, unless given) of `x`."""
