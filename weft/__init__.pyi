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
from . import distributed as distributed
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
from .graph.declared.routing import enter as enter
from .graph.declared.routing import exit as exit
from .graph.declared.routing import merge as merge
from .graph.declared.routing import next_iteration as next_iteration
from .graph.declared.routing import switch as switch
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
    "detect_anomaly", "device", "devices", "diag", "diag_embed", "diagonal", "diff", "distributed", "divide",
    "e", "einsum", "empty", "empty_like", "enable_grad", "enter", "equal", "erf", "erfc", "exit", "exp",
    "exp2", "expand_dims", "expm1", "eye", "fft", "finfo", "flatten", "flip", "fliplr", "flipud", "float16",
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
    """Absolute value; the modulus of complex numbers."""
def acos(x: Operand) -> Tensor:
    """Inverse cosine, in [0, π]."""
def acosh(x: Operand) -> Tensor:
    """Inverse hyperbolic cosine."""
def add(x1: Operand, x2: Operand) -> Tensor:
    """`x1 + x2`, elementwise."""
def all(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all elements over `axis` (all by default) are true (non-zero)."""
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
    """Phase of complex numbers, in [-π, π]."""
def any(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether any element over `axis` (all by default) is true (non-zero)."""
def arange(
    start: float | ArrayLike,
    /,
    stop: float | ArrayLike | None = None,
    step: float | ArrayLike = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a vector of evenly spaced values from `start` up to, not including, `stop`."""
def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Index of the maximum along `axis` (of the flattened tensor by default); the first of equal ones."""
def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """Index of the minimum along `axis` (of the flattened tensor by default); the first of equal ones."""
def argsort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Tensor:
    """Indices that sort `x` along `axis`; the sort is stable."""
def argwhere(x: ArrayLike, /) -> Tensor:
    """Indices of the non-zero elements, one row per element."""
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
    """Convert `obj` to a tensor, sharing memory where possible."""
def asin(x: Operand) -> Tensor:
    """Inverse sine, in [-π/2, π/2]."""
def asinh(x: Operand) -> Tensor:
    """Inverse hyperbolic sine."""
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
    """Inverse tangent, in [-π/2, π/2]."""
def atan2(x1: Operand, x2: Operand) -> Tensor:
    """Angle of the point (x2, x1), in [-π, π]."""
def atanh(x: Operand) -> Tensor:
    """Inverse hyperbolic tangent."""
def backward(
    tensors: Any,
    grad_tensors: Any = None,
    *,
    retain_graph: builtins.bool | None = None,
    create_graph: builtins.bool = False,
) -> None:
    """Add the gradients of the sum of `tensors` to the `.grad` of the leaves."""
def bernoulli(
    p: float | ArrayLike,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw 1 with probability `p` and 0 otherwise."""
bfloat16: np.dtype[Any]
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Tensor:
    """Count the occurrences of 0, 1, 2, … in a vector of integers."""
def bitwise_and(x1: Operand, x2: Operand) -> Tensor:
    """Bitwise and."""
def bitwise_invert(x: Operand) -> Tensor:
    """Bitwise not; logical not for bools."""
def bitwise_left_shift(x1: Operand, x2: Operand) -> Tensor:
    """x1 shifted left by x2 bits."""
def bitwise_or(x1: Operand, x2: Operand) -> Tensor:
    """Bitwise or."""
def bitwise_right_shift(x1: Operand, x2: Operand) -> Tensor:
    """x1 shifted right by x2 bits."""
def bitwise_xor(x1: Operand, x2: Operand) -> Tensor:
    """Bitwise exclusive or."""
bool: np.dtype[np.bool]
def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """Broadcast tensors against each other."""
def broadcast_shapes(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The shape to which `shapes` broadcast; unknown sizes are None."""
def broadcast_to(x: ArrayLike, /, shape: tuple[int, ...]) -> Tensor:
    """Broadcast `x` to `shape`; a read-only view."""
def can_cast(from_: DTypeLike | ArrayLike, to: DTypeLike) -> builtins.bool:
    """Whether `from_` (a tensor or a dtype) can be cast to `to` by the promotion rules."""
def ceil(x: Operand) -> Tensor:
    """Smallest integer not below x."""
def checkpoint(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn(*args, **kwargs)` and recompute its intermediate values in backward instead of storing
    them.
    """
def chunk(x: ArrayLike, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along `axis` into at most `chunks` pieces of equal size (the last may be smaller); views."""
def clip(x: ArrayLike, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit `x` to the interval [min, max]."""
def clone(x: ArrayLike) -> Tensor:
    """Copy `x`; gradients flow through the copy."""
def complex(real: Sequence[Any] | ArrayLike, imag: Sequence[Any] | ArrayLike) -> Tensor:
    """Create a complex tensor from its real and imaginary parts."""
complex128: np.dtype[np.complex128]
complex64: np.dtype[np.complex64]
def concat(arrays: Sequence[ArrayLike], /, *, axis: int | None = 0) -> Tensor:
    """Concatenate tensors along an existing axis."""
def conj(x: ArrayLike) -> Tensor:
    """Complex conjugate; real values are unchanged."""
def copysign(x1: Operand, x2: Operand) -> Tensor:
    """Magnitude of x1 with the sign of x2."""
def cos(x: Operand) -> Tensor:
    """Cosine of x in radians."""
def cosh(x: Operand) -> Tensor:
    """Hyperbolic cosine."""
def count_nonzero(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Number of non-zero elements over `axis` (all by default)."""
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
def cummax(x: ArrayLike, /, axis: int | None = None) -> CumulativeExtreme:
    """Cumulative maximum along `axis` and the index of each maximum (the last of equal ones)."""
def cummin(x: ArrayLike, /, axis: int | None = None) -> CumulativeExtreme:
    """Cumulative minimum along `axis` and the index of each minimum (the last of equal ones)."""
def cumprod(x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative product along `axis`, which may be left out for a vector."""
def cumsum(x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative sum along `axis`, which may be left out for a vector."""
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Cumulative product along `axis`."""
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Cumulative sum along `axis`."""
default_generator: Generator
def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Matrix with the vector `x` on its `k`-th diagonal, or the `k`-th diagonal of the matrix `x`."""
def diag_embed(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """Square matrices with the last axis of `x` on their `offset`-th diagonal and zeros elsewhere."""
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The `offset`-th diagonal of (batches of) matrices as the last axis; a copy."""
def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """Differences of neighbouring elements along `axis`."""
def divide(x1: Operand, x2: Operand) -> Tensor:
    """`x1 / x2`, elementwise; integers become the default float."""
e: float
def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum of products over named indices (Einstein summation)."""
def empty(
    *sizes: ShapeLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a tensor without initialising its elements."""
def empty_like(
    x: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create an uninitialised tensor with the shape and (unless given) the dtype of `x`."""
def equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 == x2`, elementwise."""
def erf(x: Operand) -> Tensor:
    """Error function."""
def erfc(x: Operand) -> Tensor:
    """Complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
def exp(x: Operand) -> Tensor:
    """Exponential function e^x."""
def exp2(x: Operand) -> Tensor:
    """2^x, elementwise."""
def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Insert axes of size 1 at the positions `axis` of the result; a view."""
def expm1(x: Operand) -> Tensor:
    """exp(x) - 1, accurate near zero."""
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a matrix with ones on the `k`-th diagonal and zeros elsewhere."""
def finfo(type: DTypeLike, /) -> FloatLimits:
    """Limits of a floating dtype (or of a tensor's dtype): bits, eps, max, min, smallest_normal, dtype."""
def flatten(x: ArrayLike, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Join the axes from `start_axis` to `end_axis` into one."""
def flip(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Reverse the order of elements along `axis` (all axes by default); a copy."""
def fliplr(x: ArrayLike, /) -> Tensor:
    """Reverse the order along the second axis."""
def flipud(x: ArrayLike, /) -> Tensor:
    """Reverse the order along the first axis."""
float16: np.dtype[np.float16]
float32: np.dtype[np.float32]
float64: np.dtype[np.float64]
def floor(x: Operand) -> Tensor:
    """Largest integer not above x."""
def floor_divide(x1: Operand, x2: Operand) -> Tensor:
    """Floor of `x1 / x2`; an integer divided by zero is 0, as in NumPy."""
def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: builtins.bool | None = None) -> Tensor:
    """Create a tensor that shares memory with any object that supports `__dlpack__` (NumPy, PyTorch, JAX
    …).
    """
def full(
    shape: ShapeLike,
    fill_value: Scalar | ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a tensor filled with `fill_value`."""
def full_like(
    x: ArrayLike,
    /,
    fill_value: Scalar,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a tensor filled with `fill_value`, with the shape and (unless given) the dtype of `x`."""
def gather(x: ArrayLike, axis: int, index: ArrayLike) -> Tensor:
    """Gather elements along `axis`: `out[i][j] = x[index[i][j]][j]` for axis 0, as in PyTorch."""
def get_default_dtype() -> np.dtype:
    """The default floating dtype: that of Python floats and of true division of integers."""
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
    """Return the gradients of the sum of `outputs` with respect to each of `inputs`; no `.grad` changes."""
def grad_fn(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the gradient of `fn`, which must return a tensor with one element."""
def greater(x1: Operand, x2: Operand) -> Tensor:
    """`x1 > x2`, elementwise."""
def greater_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 >= x2`, elementwise."""
def hessian(fn: Callable[..., Any], inputs: ArrayLike) -> Tensor:
    """Return the second derivatives of a scalar function of one tensor, of shape `(*inputs.shape,
    *inputs.shape)`.
    """
def histogram(
    x: ArrayLike,
    /,
    bins: Any = 10,
    range: Any = None,
    *,
    weights: ArrayLike | None = None,
    density: builtins.bool = False,
) -> Histogram:
    """Count the elements that fall into each bin."""
def hypot(x1: Operand, x2: Operand) -> Tensor:
    """sqrt(x1² + x2²) without overflow."""
def iinfo(type: DTypeLike, /) -> Any:
    """Limits of an integer dtype (or of a tensor's dtype): bits, max, min, dtype."""
def imag(x: ArrayLike) -> Tensor:
    """Imaginary part; zeros for a real tensor."""
def index_add(x: ArrayLike, index: ArrayLike, source: ArrayLike, axis: int = 0) -> Tensor:
    """Copy `x` and add the slices of `source` to the slices of `x` at `index` along `axis`."""
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
    """Whether elements differ by at most `atol + rtol * abs(x2)`."""
def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> builtins.bool:
    """Whether `dtype` is of `kind`: a dtype, one of the array API's kind names, or a tuple of those."""
def isfinite(x: Operand) -> Tensor:
    """Whether x is neither infinite nor NaN."""
def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: builtins.bool = False) -> Tensor:
    """Whether each element of `x1` is an element of `x2` (with `invert`, is not)."""
def isinf(x: Operand) -> Tensor:
    """Whether x is infinite."""
def isnan(x: Operand) -> Tensor:
    """Whether x is NaN."""
def jacobian(fn: Callable[..., Any], inputs: Any, *, create_graph: builtins.bool = False) -> Any:
    """Return the Jacobian of `fn` at `inputs`, of shape `(*output.shape, *input.shape)`."""
def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return `fn(*primals)` and its directional derivative along `tangents` (by double reverse mode)."""
def kron(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Kronecker product: every element of `x1` multiplied by the whole of `x2`."""
def kthvalue(x: ArrayLike, /, k: int, axis: int = -1, *, keepdims: builtins.bool = False) -> KthValue:
    """The `k`-th smallest element along `axis` (counting from 1) and its index."""
def lerp(start: ArrayLike, end: ArrayLike, weight: Operand, /) -> Tensor:
    """Linear interpolation `start + weight * (end - start)`."""
def less(x1: Operand, x2: Operand) -> Tensor:
    """`x1 < x2`, elementwise."""
def less_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 <= x2`, elementwise."""
def linear_recurrence(a: ArrayLike, b: ArrayLike, /, axis: int = 0, reverse: builtins.bool = False) -> Tensor:
    """Linear recurrence `h[i] = a[i] * h[i - 1] + b[i]` along `axis`, from zero; from the last element
    with `reverse`.
    """
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
    """Create `num` evenly spaced values from `start` to `stop`."""
def log(x: Operand) -> Tensor:
    """Natural logarithm; NaN for negative real numbers."""
def log10(x: Operand) -> Tensor:
    """Base-10 logarithm."""
def log1p(x: Operand) -> Tensor:
    """log(1 + x), accurate near zero."""
def log2(x: Operand) -> Tensor:
    """Base-2 logarithm."""
def logaddexp(x1: Operand, x2: Operand) -> Tensor:
    """log(exp(x1) + exp(x2)), without overflow."""
def logcumsumexp(x: ArrayLike, /, axis: int | None = None) -> Tensor:
    """Logarithm of the cumulative sum of exp(x) along `axis`, without overflow."""
def logical_and(x1: Operand, x2: Operand) -> Tensor:
    """Logical and of truth values (non-zero is true)."""
def logical_not(x: Operand) -> Tensor:
    """Logical not of truth values (non-zero is true)."""
def logical_or(x1: Operand, x2: Operand) -> Tensor:
    """Logical or of truth values (non-zero is true)."""
def logical_xor(x1: Operand, x2: Operand) -> Tensor:
    """Logical exclusive or of truth values (non-zero is true)."""
def logsumexp(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis` (all by default), without overflow."""
def make_complex(real: ArrayLike, imag: ArrayLike) -> Tensor:
    """Complex tensor with the given real and imaginary parts."""
def manual_seed(seed: int) -> Generator:
    """Seed the default generator, used by every draw without an explicit `generator`."""
def masked_fill(x: ArrayLike, mask: ArrayLike, value: Operand) -> Tensor:
    """Replace the elements of `x` where `mask` is true by `value`; 0 and 1 stand for False and True in a
    bool tensor.
    """
def masked_select(x: ArrayLike, mask: ArrayLike, /) -> Tensor:
    """Elements of `x` where `mask` is true, as a vector in row-major order; the two broadcast."""
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Matrix product; leading axes are batch axes and broadcast."""
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Transpose the last two axes; a view."""
def max(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Maximum over `axis` (all by default); NaN if any element is NaN."""
def maximum(x1: Operand, x2: Operand) -> Tensor:
    """Elementwise maximum; NaN if either value is NaN."""
def mean(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Arithmetic mean of the elements over `axis` (all by default); NaN if there are none."""
def median(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Median over `axis` (all by default); the mean of the two middle elements of an even number."""
def meshgrid(*arrays: ArrayLike, indexing: str = 'xy') -> tuple[Tensor, ...]:
    """Build coordinate matrices from coordinate vectors."""
def min(x: ArrayLike, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Minimum over `axis` (all by default); NaN if any element is NaN."""
def minimum(x1: Operand, x2: Operand) -> Tensor:
    """Elementwise minimum; NaN if either value is NaN."""
def moveaxis(x: ArrayLike, source: Any, destination: Any, /) -> Tensor:
    """Move the axes `source` to the positions `destination`; the others keep their order."""
def multinomial(
    probabilities: ArrayLike,
    num_samples: int,
    replacement: builtins.bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Draw category indices with the given probabilities."""
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
    """Replace NaN and infinities by finite numbers: 0 and the largest and smallest finite ones by default."""
def negative(x: Operand) -> Tensor:
    """`-x`, elementwise."""
newaxis: None
def nextafter(x1: Operand, x2: Operand) -> Tensor:
    """Next representable number after x1 towards x2, in float32 or float64."""
def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Indices of the non-zero elements, one tensor per axis, in row-major order."""
def normal(
    mean: float | ArrayLike = 0.0,
    std: float | ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers with the given mean and standard deviation."""
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
    """Create a tensor of ones."""
def ones_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Create a tensor of ones with the shape and (unless given) the dtype of `x`."""
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Outer product of two vectors: `out[i, j] = x1[i] * x2[j]`."""
def pad(x: ArrayLike, /, pad_width: Any, mode: str = 'constant', value: float = 0) -> Tensor:
    """Pad a tensor on the sides of its axes."""
def permute_dims(x: ArrayLike, /, axes: tuple[int, ...]) -> Tensor:
    """Permute the axes; a view."""
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
    """Product of the elements over `axis` (all by default); small integers are multiplied in 64 bits."""
def quantile(
    x: ArrayLike,
    /,
    q: Operand,
    *,
    axis: Axis = None,
    keepdims: builtins.bool = False,
    method: str = 'linear',
) -> Tensor:
    """Quantiles of the elements over `axis`; NaN if any element is NaN."""
def rand(
    *shape: ShapeLike,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Uniform random numbers in [0, 1)."""
def rand_like(x: ArrayLike, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Uniform random numbers in [0, 1) with the shape and (unless given) the dtype of `x`."""
def randint(
    low: int,
    high: int | ShapeLike | None = None,
    shape: ShapeLike = (),
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random integers in [low, high)."""
def randn(
    *shape: ShapeLike,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Standard normal random numbers."""
def randn_like(x: ArrayLike, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Standard normal random numbers with the shape and (unless given) the dtype of `x`."""
def randperm(n: int, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Random permutation of the integers 0 to n - 1."""
def real(x: ArrayLike) -> Tensor:
    """Real part."""
def reciprocal(x: Operand) -> Tensor:
    """`1 / x`, elementwise."""
def register_kernel(
    name: str,
    *,
    device: str = 'cpu',
    when: Callable[..., builtins.bool] | None = None,
    label: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a kernel for the op `name`: a function over arrays with the op's parameters."""
def remainder(x1: Operand, x2: Operand) -> Tensor:
    """Remainder of the floor division `x1 // x2`, with the sign of `x2`; 0 for an integer divided by zero,
    as in NumPy.
    """
def repeat(x: ArrayLike, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along `axis` (of the flattened tensor by default)."""
def reshape(x: ArrayLike, /, shape: int | tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """Change the shape, keeping the elements in row-major order."""
def reshape_as(x: ArrayLike, like: ArrayLike) -> Tensor:
    """Reshape to the shape of `like`, which in a graph may be known only at run time."""
def result_type(*operands: Any) -> np.dtype:
    """The dtype to which tensors, dtypes and (weak) Python scalars promote."""
def roll(
    x: ArrayLike,
    /,
    shift: int | tuple[int, ...],
    *,
    axis: int | tuple[int, ...] | None = None,
) -> Tensor:
    """Shift elements along `axis` cyclically (the flattened tensor by default)."""
def round(x: Operand) -> Tensor:
    """Round to the nearest integer, ties to even."""
def rsqrt(x: Operand) -> Tensor:
    """Reciprocal square root 1 / sqrt(x)."""
def scatter(x: ArrayLike, index: ArrayLike, src: ArrayLike, axis: int = 0) -> Tensor:
    """Copy `x` and replace the elements at `index` along `axis` by `src`; of duplicate indices one wins."""
def scatter_add(x: ArrayLike, index: ArrayLike, src: ArrayLike, axis: int = 0) -> Tensor:
    """Copy `x` and add `src` at `index` along `axis`; duplicate indices accumulate."""
def searchsorted(
    x1: ArrayLike,
    x2: ArrayLike | int | float,
    /,
    *,
    side: str = 'left',
    sorter: ArrayLike | None = None,
) -> Tensor:
    """Indices at which to insert `x2` into the sorted vector `x1` to keep it sorted."""
def seed() -> int:
    """Seed the default generator from the operating system and return the seed."""
def set_default_dtype(dtype: DTypeLike) -> None:
    """Set the default floating dtype of this process (float32 or float64)."""
def set_detect_anomaly(mode: builtins.bool) -> None:
    """Switch anomaly detection on or off for this thread; `detect_anomaly` is the context manager."""
def set_rng_state(state: Any) -> None:
    """Restore the default generator to a state returned by `get_rng_state`."""
def sigmoid(x: Operand) -> Tensor:
    """Logistic function 1 / (1 + exp(-x))."""
def sign(x: Operand) -> Tensor:
    """Sign of x: -1, 0 or 1; x / |x| for complex numbers; NaN for NaN."""
def signbit(x: Operand) -> Tensor:
    """Whether the sign bit of x is set (true for -0.0)."""
def sin(x: Operand) -> Tensor:
    """Sine of x in radians."""
def sinh(x: Operand) -> Tensor:
    """Hyperbolic sine."""
def slice_axis(
    x: ArrayLike,
    axis: int,
    start: int | None,
    stop: int | None,
    step: int | None = None,
) -> Tensor:
    """Slice `x[..., start:stop:step, ...]` along one axis; a view."""
def sort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Tensor:
    """Sort along `axis`, NaN last."""
def split(x: ArrayLike, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along `axis` into pieces; views."""
def sqrt(x: Operand) -> Tensor:
    """Square root; NaN for negative real numbers."""
def square(x: Operand) -> Tensor:
    """`x * x`, elementwise."""
def squeeze(x: ArrayLike, /, axis: int | tuple[int, ...]) -> Tensor:
    """Remove the axes `axis`, which must have size 1; a view."""
def stack(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Tensor:
    """Join tensors of the same shape along a new axis at position `axis`."""
def std(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    correction: int | float = 0.0,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Standard deviation over `axis` (all by default): the square root of `var`."""
def stop_gradient(x: ArrayLike) -> Tensor:
    """Return `x` as a constant: no gradient flows through."""
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
    """Sum of the elements over `axis`."""
def swapaxes(x: ArrayLike, /, axis1: int, axis2: int) -> Tensor:
    """Swap two axes; a view."""
def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int | None = None) -> Tensor:
    """Take the slices of `x` along `axis` at `indices`."""
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Gather one element per index: `out[i, j] = x[i, indices[i, j]]` along the last axis, likewise for
    others.
    """
def tan(x: Operand) -> Tensor:
    """Tangent of x in radians."""
def tanh(x: Operand) -> Tensor:
    """Hyperbolic tangent."""
def tensor(
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    requires_grad: builtins.bool = False,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a tensor with a copy of `data`."""
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
    """Contract two tensors over pairs of axes."""
def tile(x: ArrayLike, repetitions: tuple[int, ...], /) -> Tensor:
    """Repeat the whole tensor `repetitions` times along each axis."""
def topk(
    x: ArrayLike,
    /,
    k: int,
    axis: int = -1,
    *,
    largest: builtins.bool = True,
    sorted: builtins.bool = True,
) -> TopK:
    """The `k` largest elements along `axis` and their indices."""
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Sum along the `offset`-th diagonal of (batches of) matrices; small integers are summed in 64 bits."""
def tril(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """Lower triangle of (batches of) matrices: zero above the `k`-th diagonal."""
def triu(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """Upper triangle of (batches of) matrices: zero below the `k`-th diagonal."""
def trunc(x: Operand) -> Tensor:
    """Round towards zero."""
uint16: np.dtype[np.uint16]
uint32: np.dtype[np.uint32]
uint64: np.dtype[np.uint64]
uint8: np.dtype[np.uint8]
def unflatten(x: ArrayLike, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """Split one axis into several of the given `sizes`, one of which may be -1: the inverse of `flatten`."""
def uniform(
    low: float | ArrayLike = 0.0,
    high: float | ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random numbers in [low, high)."""
def unique_all(x: ArrayLike, /) -> UniqueAll:
    """Distinct values of `x`, ascending, with first indices, inverse indices and counts."""
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Distinct values of `x`, ascending, and how often each occurs."""
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Distinct values of `x`, ascending, and for every element of `x` the index of its value."""
def unique_values(x: ArrayLike, /) -> Tensor:
    """Distinct values of `x`, ascending."""
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` into its slices along `axis`; views."""
def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the scalar value of `fn` and its gradient."""
def var(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    correction: int | float = 0.0,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Variance over `axis` (all by default): the mean squared deviation from the mean."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Sum of `conj(x1) * x2` over `axis`."""
def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """Return `fn(*primals)` and the function that maps cotangents of its outputs to gradients of the
    primals.
    """
def vmap(fn: F, in_axes: Any = 0, out_axes: Any = 0, *, randomness: str = 'error') -> F:
    """Vectorize `fn`, written for one example, over a batch axis."""
def where(condition: Operand, x1: Operand, x2: Operand) -> Tensor:
    """Choose `x1` where `condition` is true and `x2` elsewhere; the three broadcast."""
def zeros(
    *sizes: ShapeLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Create a tensor of zeros."""
def zeros_like(
    x: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a tensor of zeros with the shape and (unless given) the dtype of `x`."""
