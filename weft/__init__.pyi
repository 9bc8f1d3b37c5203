"""Weft: a deep-learning framework in Python.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

import builtins
import numpy
import numpy as np
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import overload
from . import backends as backends
from . import cuda as cuda
from . import data as data
from . import debug as debug
from . import distributed as distributed
from . import distributions as distributions
from . import fft as fft
from . import func as func
from . import io as io
from . import jit as jit
from . import linalg as linalg
from . import models as models
from . import multiprocessing as multiprocessing
from . import nn as nn
from . import optim as optim
from . import random as random
from . import sparse as sparse
from . import special as special
from . import testing as testing
from . import train as train
from . import transforms as transforms
from . import tree as tree
from . import utils as utils
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
from .graph.capture.function import function as compile
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
from .graph.declared.queues import FIFOQueue as FIFOQueue
from .graph.declared.queues import PriorityQueue as PriorityQueue
from .graph.declared.queues import QueueClosedError as QueueClosedError
from .graph.declared.queues import RandomShuffleQueue as RandomShuffleQueue
from .graph.declared.queues import StagingArea as StagingArea
from .graph.declared.routing import enter as enter
from .graph.declared.routing import exit as exit
from .graph.declared.routing import merge as merge
from .graph.declared.routing import next_iteration as next_iteration
from .graph.declared.routing import switch as switch
from .graph.declared.runners import Coordinator as Coordinator
from .graph.declared.runners import QueueRunner as QueueRunner
from .graph.declared.serialize import restore_variables as restore_variables
from .graph.declared.serialize import save_variables as save_variables
from .graph.declared.variables import Variable as Variable
from .graph.execute.placement import configure_devices as configure_devices
from .graph.execute.placement import devices as devices
from .graph.execute.run import CancelledError as CancelledError
from .graph.execute.session import Session as Session
from .io import load as load
from .io import save as save
from .ops.aliases.statistics import MinMax as MinMax
from .ops.array.cumulative import CumulativeExtreme as CumulativeExtreme
from .ops.array.dialects import ValuesAndIndices as ValuesAndIndices
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
from .sparse.torch_style import sparse_coo_tensor as sparse_coo_tensor
from .sparse.torch_style import sparse_csr_tensor as sparse_csr_tensor
from .tensor import Tensor as Tensor
from .tensor_array import TensorArray as TensorArray
from .train import Trainer as Trainer
from .tree import flatten as tree_flatten
from .tree import leaves as tree_leaves
from .tree import map as tree_map
from .tree import reduce as tree_reduce
from .tree import register_dataclass as register_dataclass
from .tree import register_pytree_node as register_pytree_node
from .tree import register_pytree_node_class as register_pytree_node_class
from .tree import structure as tree_structure
from .tree import transpose as tree_transpose
from .tree import unflatten as tree_unflatten
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
    "BFloat16Tensor", "Barrier", "BoolTensor", "ByteTensor", "CancelledError", "CaptureError", "CharTensor",
    "Coordinator", "DoubleTensor", "FIFOQueue", "FileError", "FloatTensor", "Function", "Generator", "Graph",
    "HalfTensor", "IntTensor", "LongTensor", "PriorityQueue", "QueueClosedError", "QueueRunner",
    "RandomShuffleQueue", "RowSparse", "Session", "ShortTensor", "Size", "StagingArea", "Tensor",
    "TensorArray", "Trainer", "Variable", "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv",
    "addcmul", "addmm", "addmv", "addr", "all", "allclose", "amax", "amin", "aminmax", "angle", "any",
    "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
    "argsort", "argwhere", "array", "array_equal", "as_strided", "as_tensor", "asarray", "asin", "asinh",
    "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "autocast", "backends",
    "backward", "baddbmm", "bartlett_window", "batch_norm", "bernoulli", "bfloat16", "bilinear", "bincount",
    "binomial", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "blackman_window", "block_diag", "bmm", "bool", "broadcast_arrays",
    "broadcast_shapes", "broadcast_tensors", "broadcast_to", "bucketize", "can_cast", "cartesian_prod",
    "case", "cat", "cdist", "cdouble", "ceil", "celu", "cfloat", "chain_matmul", "checkpoint", "cholesky",
    "cholesky_inverse", "cholesky_solve", "chunk", "clamp", "clamp_max", "clamp_min", "clip", "clone",
    "colocate_with", "column_stack", "combinations", "compile", "complex", "complex128", "complex64",
    "concat", "concatenate", "cond", "configure_devices", "conj", "constant", "control_dependencies",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "copysign",
    "corrcoef", "cos", "cosh", "cosine_similarity", "count_nonzero", "cov", "cross", "ctc_loss", "cuda",
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "cumulative_trapezoid",
    "data", "debug", "default_generator", "deg2rad", "det", "detach", "detect_anomaly", "device", "devices",
    "diag", "diag_embed", "diagflat", "diagonal", "diff", "digamma", "dist", "distributed", "distributions",
    "div", "divide", "dot", "double", "dsplit", "dstack", "dtype", "dynamic_partition", "dynamic_stitch", "e",
    "einsum", "embedding", "embedding_bag", "empty", "empty_like", "enable_grad", "enter", "eq", "equal",
    "erf", "erfc", "erfinv", "exit", "exp", "exp2", "expand", "expand_dims", "expm1", "eye", "fft", "finfo",
    "fix", "flatten", "flip", "fliplr", "flipud", "float", "float16", "float32", "float64", "float_power",
    "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "frexp", "from_dlpack", "from_numpy", "full",
    "full_like", "func", "function", "gather", "gcd", "ge", "ger", "get_default_dtype", "get_default_graph",
    "get_num_threads", "get_rng_state", "grad", "grad_fn", "gradcheck", "gradgradcheck", "gradient",
    "gradients", "greater", "greater_equal", "group", "group_norm", "gt", "half", "hamming_window",
    "hann_window", "heaviside", "hessian", "histc", "histogram", "hsplit", "hstack", "hypot", "i0", "igamma",
    "igammac", "iinfo", "imag", "index_add", "index_copy", "index_fill", "index_put", "index_select", "inf",
    "inference_mode", "info", "initial_seed", "inner", "instance_norm", "int", "int16", "int32", "int64",
    "int8", "inverse", "io", "is_autocast_enabled", "is_complex", "is_floating_point", "is_grad_enabled",
    "is_nonzero", "is_tensor", "isclose", "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf",
    "isposinf", "isreal", "istft", "jacobian", "jit", "jvp", "kron", "kthvalue", "layer_norm", "lcm", "ldexp",
    "le", "lerp", "less", "less_equal", "lgamma", "linalg", "linear_recurrence", "linspace", "load", "log",
    "log10", "log1p", "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logdet",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logspace", "logsumexp", "long", "lt",
    "make_complex", "manual_seed", "map", "masked_fill", "masked_scatter", "masked_select", "matmul",
    "matrix_power", "matrix_transpose", "max", "maximum", "mean", "median", "memory", "merge", "meshgrid",
    "min", "minimize", "minimum", "mm", "mode", "models", "moveaxis", "movedim", "msort", "mul",
    "multinomial", "multiply", "multiprocessing", "mv", "mvlgamma", "name_scope", "nan", "nan_to_num",
    "nanmean", "nanmedian", "nanquantile", "nanstd", "nansum", "nanvar", "narrow", "ne", "neg", "negative",
    "newaxis", "next_iteration", "nextafter", "nn", "no_grad", "no_op", "nonzero", "norm", "normal",
    "not_equal", "numel", "one_hot", "ones", "ones_like", "optim", "outer", "outside_capture", "pad", "pdist",
    "permute", "permute_dims", "pi", "pinverse", "pixel_shuffle", "pixel_unshuffle", "placeholder", "poisson",
    "polar", "polygamma", "positive", "pow", "power", "prelu", "prod", "profile", "promote_types", "qr",
    "quantile", "rad2deg", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random",
    "randperm", "ravel", "real", "reciprocal", "register_dataclass", "register_kernel",
    "register_pytree_node", "register_pytree_node_class", "relu", "remainder", "renorm", "repeat",
    "repeat_interleave", "reset_default_graph", "reshape", "reshape_as", "restore_variables", "result_type",
    "roll", "rot90", "round", "row_stack", "rsqrt", "rsub", "save", "save_variables", "scan", "scatter",
    "scatter_add", "scatter_reduce", "searchsorted", "seed", "select", "select_scatter", "selu",
    "set_default_dtype", "set_detect_anomaly", "set_grad_enabled", "set_num_threads", "set_printoptions",
    "set_rng_state", "sgn", "short", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "slice_axis",
    "slogdet", "softmax", "sort", "sparse", "sparse_coo_tensor", "sparse_csr_tensor", "special", "split",
    "sqrt", "square", "squeeze", "stack", "std", "std_mean", "stft", "stop_gradient", "sub", "subtract",
    "sum", "svd", "swapaxes", "swapdims", "switch", "t", "take", "take_along_axis", "take_along_dim", "tan",
    "tanh", "tensor", "tensor_split", "tensordot", "testing", "threshold", "tile", "topk", "trace", "train",
    "transforms", "transpose", "trapezoid", "trapz", "tree", "tree_flatten", "tree_leaves", "tree_map",
    "tree_reduce", "tree_structure", "tree_transpose", "tree_unflatten", "tril", "tril_indices", "triu",
    "triu_indices", "true_divide", "trunc", "type_as", "uint16", "uint32", "uint64", "uint8", "unbind",
    "unflatten", "unfold", "uniform", "unique", "unique_all", "unique_consecutive", "unique_counts",
    "unique_inverse", "unique_values", "unsqueeze", "unstack", "utils", "value_and_grad", "vander", "var",
    "var_mean", "vdot", "vecdot", "view_as_complex", "view_as_real", "vjp", "vmap", "vsplit", "vstack",
    "where", "while_loop", "xlogy", "zeros", "zeros_like",
]

def BFloat16Tensor(*data: Any) -> Tensor:
    """A bfloat16 tensor made of data, or of a shape with any values, as in PyTorch."""
def BoolTensor(*data: Any) -> Tensor:
    """A bool tensor made of data, or of a shape with any values, as in PyTorch."""
def ByteTensor(*data: Any) -> Tensor:
    """A uint8 tensor made of data, or of a shape with any values, as in PyTorch."""
def CharTensor(*data: Any) -> Tensor:
    """A int8 tensor made of data, or of a shape with any values, as in PyTorch."""
def DoubleTensor(*data: Any) -> Tensor:
    """A float64 tensor made of data, or of a shape with any values, as in PyTorch."""
def FloatTensor(*data: Any) -> Tensor:
    """A float32 tensor made of data, or of a shape with any values, as in PyTorch."""
def HalfTensor(*data: Any) -> Tensor:
    """A float16 tensor made of data, or of a shape with any values, as in PyTorch."""
def IntTensor(*data: Any) -> Tensor:
    """A int32 tensor made of data, or of a shape with any values, as in PyTorch."""
def LongTensor(*data: Any) -> Tensor:
    """A int64 tensor made of data, or of a shape with any values, as in PyTorch."""
def ShortTensor(*data: Any) -> Tensor:
    """A int16 tensor made of data, or of a shape with any values, as in PyTorch."""
Size = builtins.tuple
__version__: str
def abs(x: Operand) -> Tensor:
    """Absolute value; the modulus of complex numbers."""
def absolute(x: Operand) -> Tensor:
    """Absolute value; the modulus of complex numbers."""
def acos(x: Operand) -> Tensor:
    """Inverse cosine, in [0, π]."""
def acosh(x: Operand) -> Tensor:
    """Inverse hyperbolic cosine."""
def add(x1: Operand, x2: Operand) -> Tensor:
    """`x1 + x2`, elementwise."""
def addbmm(
    x: ArrayLike,
    batch1: ArrayLike,
    batch2: ArrayLike,
    *,
    beta: builtins.float = 1,
    alpha: builtins.float = 1,
) -> Tensor:
    """`beta * x + alpha *` the sum of the products of two batches of matrices."""
def addcdiv(x: ArrayLike, tensor1: ArrayLike, tensor2: Operand, *, value: builtins.float = 1) -> Tensor:
    """`x + value * tensor1 / tensor2`."""
def addcmul(x: ArrayLike, tensor1: ArrayLike, tensor2: Operand, *, value: builtins.float = 1) -> Tensor:
    """`x + value * tensor1 * tensor2`."""
def addmm(
    x: ArrayLike,
    mat1: ArrayLike,
    mat2: ArrayLike,
    *,
    beta: builtins.float = 1,
    alpha: builtins.float = 1,
) -> Tensor:
    """`beta * x + alpha * (mat1 @ mat2)`."""
def addmv(
    x: ArrayLike,
    mat: ArrayLike,
    vec: ArrayLike,
    *,
    beta: builtins.float = 1,
    alpha: builtins.float = 1,
) -> Tensor:
    """`beta * x + alpha * (mat @ vec)`."""
def addr(
    x: ArrayLike,
    vec1: ArrayLike,
    vec2: ArrayLike,
    *,
    beta: builtins.float = 1,
    alpha: builtins.float = 1,
) -> Tensor:
    """`beta * x + alpha * outer(vec1, vec2)`."""
def all(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: builtins.bool = False,
    *,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Whether all elements over `axis` (all by default) are true (non-zero)."""
def allclose(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    rtol: builtins.float = 1e-05,
    atol: builtins.float = 1e-08,
    *,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """Whether all elements are close (see `isclose`), as a 0-d bool tensor."""
def amax(x: ArrayLike, dim: Axis = None, keepdim: builtins.bool = False) -> Tensor:
    """Maximum over an axis or several; ties share the gradient."""
def amin(x: ArrayLike, dim: Axis = None, keepdim: builtins.bool = False) -> Tensor:
    """Minimum over an axis or several; ties share the gradient."""
def aminmax(x: ArrayLike, *, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> MinMax:
    """Minimum and maximum over an axis, or of all elements."""
def angle(x: ArrayLike) -> Tensor:
    """Phase of complex numbers, in [-π, π]."""
def any(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: builtins.bool = False,
    *,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Whether any element over `axis` (all by default) is true (non-zero)."""
def arange(
    start: builtins.float | ArrayLike,
    /,
    stop: builtins.float | ArrayLike | None = None,
    step: builtins.float | ArrayLike = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a vector of evenly spaced values from `start` up to, not including, `stop`."""
def arccos(x: Operand) -> Tensor:
    """Inverse cosine, in [0, π]."""
def arccosh(x: Operand) -> Tensor:
    """Inverse hyperbolic cosine."""
def arcsin(x: Operand) -> Tensor:
    """Inverse sine, in [-π/2, π/2]."""
def arcsinh(x: Operand) -> Tensor:
    """Inverse hyperbolic sine."""
def arctan(x: Operand) -> Tensor:
    """Inverse tangent, in [-π/2, π/2]."""
def arctan2(x1: Operand, x2: Operand) -> Tensor:
    """Angle of the point (x2, x1), in [-π, π]."""
def arctanh(x: Operand) -> Tensor:
    """Inverse hyperbolic tangent."""
def argmax(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    keepdims: builtins.bool = False,
    *,
    dim: builtins.int | None = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Index of the maximum along `axis` (of the flattened tensor by default); the first of equal ones."""
def argmin(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    keepdims: builtins.bool = False,
    *,
    dim: builtins.int | None = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Index of the minimum along `axis` (of the flattened tensor by default); the first of equal ones."""
def argsort(
    x: ArrayLike,
    /,
    axis: builtins.int = -1,
    descending: builtins.bool = False,
    *,
    stable: builtins.bool = True,
    dim: builtins.int = ...,
) -> Tensor:
    """Indices that sort `x` along `axis`; the sort is stable."""
def argwhere(x: ArrayLike, /) -> Tensor:
    """Indices of the non-zero elements, one row per element."""
def array(
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    requires_grad: builtins.bool = False,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a tensor with a copy of `data`."""
def array_equal(x1: ArrayLike, x2: ArrayLike, /, *, equal_nan: builtins.bool = False) -> Tensor:
    """Whether two tensors have the same shape and equal elements, as a 0-d bool tensor."""
def as_strided(x: ArrayLike, size: ShapeLike, stride: ShapeLike, storage_offset: builtins.int = 0) -> Tensor:
    """A copy of the elements of a contiguous tensor that a view with these strides would show."""
def as_tensor(data: Any, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor: itself, or sharing its memory, where possible."""
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
def atleast_1d(*tensors: ArrayLike) -> Any:
    """Give numbers one axis."""
def atleast_2d(*tensors: ArrayLike) -> Any:
    """Give numbers and vectors two axes: a vector becomes a row."""
def atleast_3d(*tensors: ArrayLike) -> Any:
    """Give numbers, vectors and matrices three axes: a matrix gets a last one."""
def backward(
    tensors: Any,
    grad_tensors: Any = None,
    *,
    retain_graph: builtins.bool | None = None,
    create_graph: builtins.bool = False,
) -> None:
    """Add the gradients of the sum of `tensors` to the `.grad` of the leaves."""
def baddbmm(
    x: ArrayLike,
    batch1: ArrayLike,
    batch2: ArrayLike,
    *,
    beta: builtins.float = 1,
    alpha: builtins.float = 1,
) -> Tensor:
    """`beta * x + alpha * (batch1 @ batch2)` for batches of matrices."""
def bartlett_window(
    window_length: builtins.int,
    periodic: builtins.bool = True,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The Bartlett (triangular) window."""
def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: builtins.bool = False,
    momentum: builtins.float = 0.1,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Batch normalisation: each channel normalised, then scaled by `weight` and shifted by `bias`."""
def bernoulli(
    p: builtins.float | ArrayLike,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw 1 with probability `p` and 0 otherwise."""
bfloat16: np.dtype[Any]
def bilinear(x1: ArrayLike, x2: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """Bilinear map: Σᵢⱼ x1ᵢ weightₖᵢⱼ x2ⱼ + biasₖ."""
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: builtins.int = 0) -> Tensor:
    """Count the occurrences of 0, 1, 2, … in a vector of integers."""
def binomial(count: ArrayLike, prob: ArrayLike, generator: Any = None) -> Tensor:
    """Random numbers of successes in `count` trials, each with the probability `prob`."""
def bitwise_and(x1: Operand, x2: Operand) -> Tensor:
    """Bitwise and."""
def bitwise_invert(x: Operand) -> Tensor:
    """Bitwise not; logical not for bools."""
def bitwise_left_shift(x1: Operand, x2: Operand) -> Tensor:
    """x1 shifted left by x2 bits."""
def bitwise_not(x: Operand) -> Tensor:
    """Bitwise not; logical not for bools."""
def bitwise_or(x1: Operand, x2: Operand) -> Tensor:
    """Bitwise or."""
def bitwise_right_shift(x1: Operand, x2: Operand) -> Tensor:
    """x1 shifted right by x2 bits."""
def bitwise_xor(x1: Operand, x2: Operand) -> Tensor:
    """Bitwise exclusive or."""
def blackman_window(
    window_length: builtins.int,
    periodic: builtins.bool = True,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The Blackman window."""
def block_diag(*tensors: ArrayLike) -> Tensor:
    """A matrix with the given matrices along its diagonal."""
def bmm(x: ArrayLike, mat2: ArrayLike) -> Tensor:
    """The products of two batches of matrices."""
bool: np.dtype[np.bool]
def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """Broadcast tensors against each other."""
def broadcast_shapes(*shapes: tuple[builtins.int | None, ...]) -> tuple[builtins.int | None, ...]:
    """The shape to which `shapes` broadcast; unknown sizes are None."""
def broadcast_tensors(*tensors: ArrayLike) -> tuple[Tensor, ...]:
    """The tensors broadcast to one shape."""
def broadcast_to(x: ArrayLike, /, shape: tuple[builtins.int, ...]) -> Tensor:
    """Broadcast `x` to `shape`; a read-only view."""
def bucketize(x: ArrayLike, boundaries: ArrayLike, *, right: builtins.bool = False) -> Tensor:
    """The number of the interval between `boundaries` (ascending) in which each element is."""
def can_cast(from_: DTypeLike | ArrayLike, to: DTypeLike, /) -> builtins.bool:
    """Whether `from_` (a tensor or a dtype) can be cast to `to` by the promotion rules."""
def cartesian_prod(*tensors: ArrayLike) -> Tensor:
    """All combinations of one element of each vector, a row each."""
def cat(
    arrays: Sequence[ArrayLike],
    /,
    axis: builtins.int | None = 0,
    *,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Concatenate tensors along an existing axis."""
def cdist(x1: ArrayLike, x2: ArrayLike, p: builtins.float = 2.0) -> Tensor:
    """The distances between all pairs of rows of two (batches of) matrices."""
cdouble: np.dtype[np.complex128]
def ceil(x: Operand) -> Tensor:
    """Smallest integer not below x."""
def celu(x: Operand, alpha: Operand = 1.0) -> Tensor:
    """`x` where positive, else alpha · (exp(x / alpha) - 1): an `elu` that is smooth for every alpha."""
cfloat: np.dtype[np.complex64]
def chain_matmul(*matrices: ArrayLike) -> Tensor:
    """The product of matrices, in the order that needs the fewest multiplications."""
def checkpoint(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn(*args, **kwargs)` and recompute its intermediate values in backward instead of storing
    them.
    """
def cholesky(x: ArrayLike, upper: builtins.bool = False) -> Tensor:
    """The Cholesky factor of positive definite matrices: lower, or upper if asked for."""
def cholesky_inverse(x: ArrayLike, upper: builtins.bool = False) -> Tensor:
    """The inverse of a matrix from its Cholesky factor."""
def cholesky_solve(x: ArrayLike, factor: ArrayLike, upper: builtins.bool = False) -> Tensor:
    """Solve `A @ y = x` from the Cholesky factor of A."""
def chunk(
    x: ArrayLike,
    chunks: builtins.int,
    axis: builtins.int = 0,
    *,
    dim: builtins.int = ...,
) -> tuple[Tensor, ...]:
    """Split `x` along `axis` into at most `chunks` pieces of equal size (the last may be smaller); views."""
def clamp(x: ArrayLike, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit `x` to the interval [min, max]."""
def clamp_max(x: ArrayLike, max: Operand) -> Tensor:
    """Elements, but at most `max`."""
def clamp_min(x: ArrayLike, min: Operand) -> Tensor:
    """Elements, but at least `min`."""
def clip(x: ArrayLike, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit `x` to the interval [min, max]."""
def clone(x: ArrayLike) -> Tensor:
    """Copy `x`; gradients flow through the copy."""
def column_stack(tensors: Sequence[ArrayLike]) -> Tensor:
    """Concatenate along the second axis; vectors are columns."""
def combinations(x: ArrayLike, r: builtins.int = 2, with_replacement: builtins.bool = False) -> Tensor:
    """All ways to choose `r` elements of a vector, a row each."""
def complex(real: Sequence[Any] | ArrayLike, imag: Sequence[Any] | ArrayLike) -> Tensor:
    """Create a complex tensor from its real and imaginary parts."""
complex128: np.dtype[np.complex128]
complex64: np.dtype[np.complex64]
def concat(
    arrays: Sequence[ArrayLike],
    /,
    axis: builtins.int | None = 0,
    *,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Concatenate tensors along an existing axis."""
def concatenate(
    arrays: Sequence[ArrayLike],
    /,
    axis: builtins.int | None = 0,
    *,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Concatenate tensors along an existing axis."""
def conj(x: ArrayLike) -> Tensor:
    """Complex conjugate; real values are unchanged."""
def conv1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike | str = 0,
    dilation: ShapeLike = 1,
    groups: builtins.int = 1,
) -> Tensor:
    """Convolution over one axis."""
def conv2d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike | str = 0,
    dilation: ShapeLike = 1,
    groups: builtins.int = 1,
) -> Tensor:
    """Convolution over two axes: y[o] = bias[o] + Σ over c and kernel positions of weight[o, c] · x[c]."""
def conv3d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike | str = 0,
    dilation: ShapeLike = 1,
    groups: builtins.int = 1,
) -> Tensor:
    """Convolution over three axes."""
def conv_transpose1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike = 0,
    output_padding: ShapeLike = 0,
    groups: builtins.int = 1,
    dilation: ShapeLike = 1,
) -> Tensor:
    """Transposed convolution over one axis."""
def conv_transpose2d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike = 0,
    output_padding: ShapeLike = 0,
    groups: builtins.int = 1,
    dilation: ShapeLike = 1,
) -> Tensor:
    """Transposed convolution over two axes: it maps the shape of a `conv2d` result back to that of its
    input.
    """
def conv_transpose3d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike = 0,
    output_padding: ShapeLike = 0,
    groups: builtins.int = 1,
    dilation: ShapeLike = 1,
) -> Tensor:
    """Transposed convolution over three axes."""
def copysign(x1: Operand, x2: Operand) -> Tensor:
    """Magnitude of x1 with the sign of x2."""
def corrcoef(x: ArrayLike) -> Tensor:
    """The correlation matrix of variables (rows) from observations (columns)."""
def cos(x: Operand) -> Tensor:
    """Cosine of x in radians."""
def cosh(x: Operand) -> Tensor:
    """Hyperbolic cosine."""
def cosine_similarity(
    x1: ArrayLike,
    x2: ArrayLike,
    dim: builtins.int = 1,
    eps: builtins.float = 1e-08,
) -> Tensor:
    """The cosine of the angles between vectors along `dim`."""
def count_nonzero(
    x: ArrayLike,
    /,
    axis: builtins.int | tuple[builtins.int, ...] | None = None,
    keepdims: builtins.bool = False,
    *,
    dim: builtins.int | tuple[builtins.int, ...] | None = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Number of non-zero elements over `axis` (all by default)."""
def cov(
    x: ArrayLike,
    *,
    correction: builtins.int = 1,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
) -> Tensor:
    """The covariance matrix of variables (rows) from observations (columns)."""
def cross(x1: ArrayLike, x2: ArrayLike, /, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
    """Cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: builtins.int = 0,
    reduction: str = 'mean',
    zero_infinity: builtins.bool = False,
) -> Tensor:
    """The connectionist temporal classification loss: -log of the probability of `targets`, wherever they
    are in time.
    """
def cummax(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    *,
    dim: builtins.int | None = ...,
) -> CumulativeExtreme:
    """Cumulative maximum along `axis` and the index of each maximum (the last of equal ones)."""
def cummin(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    *,
    dim: builtins.int | None = ...,
) -> CumulativeExtreme:
    """Cumulative minimum along `axis` and the index of each minimum (the last of equal ones)."""
def cumprod(
    x: ArrayLike,
    axis: builtins.int | None = None,
    *,
    dtype: DTypeLike | None = None,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Cumulative product along `axis`, which may be left out for a vector."""
def cumsum(
    x: ArrayLike,
    axis: builtins.int | None = None,
    *,
    dtype: DTypeLike | None = None,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Cumulative sum along `axis`, which may be left out for a vector."""
def cumulative_prod(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    *,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Cumulative product along `axis`."""
def cumulative_sum(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    *,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Cumulative sum along `axis`."""
def cumulative_trapezoid(
    y: ArrayLike,
    x: ArrayLike | None = None,
    *,
    dx: builtins.float = 1,
    dim: builtins.int = -1,
) -> Tensor:
    """The integrals up to each sample but the first, by the trapezoidal rule."""
default_generator: Generator
def deg2rad(x: ArrayLike) -> Tensor:
    """Degrees as radians."""
def det(x: ArrayLike) -> Tensor:
    """The determinants of (a batch of) square matrices."""
def detach(x: ArrayLike) -> Tensor:
    """The values of a tensor without their history."""
def diag(x: ArrayLike, /, k: builtins.int = 0) -> Tensor:
    """Matrix with the vector `x` on its `k`-th diagonal, or the `k`-th diagonal of the matrix `x`."""
def diag_embed(
    x: ArrayLike,
    offset: builtins.int = 0,
    dim1: builtins.int = -2,
    dim2: builtins.int = -1,
) -> Tensor:
    """Matrices with the last axis of `x` on a diagonal, in the axes `dim1` and `dim2` of the result."""
def diagflat(x: ArrayLike, offset: builtins.int = 0) -> Tensor:
    """A matrix with all elements of `x` on a diagonal."""
def diagonal(x: ArrayLike, /, *, offset: builtins.int = 0) -> Tensor:
    """The `offset`-th diagonal of (batches of) matrices as the last axis; a copy."""
def diff(
    x: ArrayLike,
    /,
    axis: builtins.int = -1,
    *,
    n: builtins.int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
    dim: builtins.int = ...,
) -> Tensor:
    """Differences of neighbouring elements along `axis`."""
def digamma(x: Operand) -> Tensor:
    """Derivative of `lgamma`; -inf at 0, NaN at negative integers."""
def dist(x: ArrayLike, other: ArrayLike, p: builtins.float = 2) -> Tensor:
    """The `p`-norm of the difference."""
def div(x: ArrayLike, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """`x / other`, elementwise."""
def divide(x1: Operand, x2: Operand) -> Tensor:
    """`x1 / x2`, elementwise; integers become the default float."""
def dot(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The product of two vectors, or NumPy's `dot` of two tensors."""
double: np.dtype[np.float64]
def dsplit(x: ArrayLike, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the third axis."""
def dstack(tensors: Sequence[ArrayLike]) -> Tensor:
    """Concatenate along the third axis."""
dtype = numpy.dtype
def dynamic_partition(
    data: ArrayLike,
    partitions: ArrayLike,
    num_partitions: builtins.int,
) -> tuple[Tensor, ...]:
    """Part the rows of `data` by number: part i has the rows whose entry in `partitions` is i, in their
    order.
    """
def dynamic_stitch(indices: Sequence[ArrayLike], data: Sequence[ArrayLike]) -> Tensor:
    """Put rows together: row `data[k][i]` becomes row `indices[k][i]` of the result."""
e: builtins.float
def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum of products over named indices (Einstein summation)."""
def embedding(
    indices: ArrayLike,
    weight: ArrayLike,
    padding_idx: builtins.int | None = None,
    max_norm: builtins.float | None = None,
    norm_type: builtins.float = 2.0,
    sparse: builtins.bool = False,
    scale_grad_by_freq: builtins.bool = False,
) -> Tensor:
    """Look up rows of `weight`."""
def embedding_bag(
    indices: ArrayLike,
    weight: ArrayLike,
    offsets: ArrayLike | None = None,
    mode: str = 'mean',
    per_sample_weights: ArrayLike | None = None,
    padding_idx: builtins.int | None = None,
    include_last_offset: builtins.bool = False,
    sparse: builtins.bool = False,
    max_norm: builtins.float | None = None,
    norm_type: builtins.float = 2.0,
    scale_grad_by_freq: builtins.bool = False,
) -> Tensor:
    """Sum, mean or maximum of the rows of `weight` for each bag of indices."""
def empty(
    shape: ShapeLike = (),
    *sizes: Any,
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
def eq(x1: Operand, x2: Operand) -> Tensor:
    """`x1 == x2`, elementwise."""
def equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 == x2`, elementwise."""
def erf(x: Operand) -> Tensor:
    """Error function."""
def erfc(x: Operand) -> Tensor:
    """Complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
def erfinv(x: Operand) -> Tensor:
    """Inverse of the error function; infinite at -1 and 1, NaN outside."""
def exp(x: Operand) -> Tensor:
    """Exponential function e^x."""
def exp2(x: Operand) -> Tensor:
    """2^x, elementwise."""
def expand(x: ArrayLike, *shape: ShapeLike) -> Tensor:
    """Broadcast to `shape`; -1 keeps a size."""
def expand_dims(
    x: ArrayLike,
    /,
    axis: builtins.int | tuple[builtins.int, ...] = 0,
    *,
    dim: builtins.int | tuple[builtins.int, ...] = ...,
) -> Tensor:
    """Insert axes of size 1 at the positions `axis` of the result; a view."""
def expm1(x: Operand) -> Tensor:
    """exp(x) - 1, accurate near zero."""
def eye(
    n_rows: builtins.int,
    n_cols: builtins.int | None = None,
    /,
    *,
    k: builtins.int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Create a matrix with ones on the `k`-th diagonal and zeros elsewhere."""
def finfo(type: DTypeLike, /) -> FloatLimits:
    """Limits of a floating dtype (or of a tensor's dtype): bits, eps, max, min, smallest_normal, dtype."""
def fix(x: Operand) -> Tensor:
    """Round towards zero."""
def flatten(x: ArrayLike, start_axis: builtins.int = 0, end_axis: builtins.int = -1) -> Tensor:
    """Join the axes from `start_axis` to `end_axis` into one."""
def flip(
    x: ArrayLike,
    /,
    axis: builtins.int | tuple[builtins.int, ...] | None = None,
    *,
    dim: builtins.int | tuple[builtins.int, ...] | None = ...,
) -> Tensor:
    """Reverse the order of elements along `axis` (all axes by default); a copy."""
def fliplr(x: ArrayLike) -> Tensor:
    """Reverse the order of the columns."""
def flipud(x: ArrayLike) -> Tensor:
    """Reverse the order of the rows."""
float: np.dtype[np.float32]
float16: np.dtype[np.float16]
float32: np.dtype[np.float32]
float64: np.dtype[np.float64]
def float_power(x: ArrayLike, exponent: Operand) -> Tensor:
    """`x ** exponent` in float64."""
def floor(x: Operand) -> Tensor:
    """Largest integer not above x."""
def floor_divide(x1: Operand, x2: Operand) -> Tensor:
    """Floor of `x1 / x2`; an integer divided by zero is 0, as in NumPy."""
def fmax(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The larger of two elements; a number wins against NaN."""
def fmin(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The smaller of two elements; a number wins against NaN."""
def fmod(x: ArrayLike, other: Operand) -> Tensor:
    """The rest of a division rounded towards zero: it has the sign of `x`."""
def frac(x: ArrayLike) -> Tensor:
    """What is behind the point, with the sign of `x`."""
def frexp(x: ArrayLike) -> tuple[Tensor, Tensor]:
    """Mantissas between 0.5 and 1 and exponents of 2, so that `x = mantissa * 2 ** exponent`."""
def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: builtins.bool | None = None) -> Tensor:
    """Create a tensor that shares memory with any object that supports `__dlpack__` (NumPy, PyTorch, JAX
    …).
    """
def from_numpy(array: np.ndarray) -> Tensor:
    """The tensor that shares the memory of a NumPy array."""
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
def gather(x: ArrayLike, axis: builtins.int, index: ArrayLike) -> Tensor:
    """Gather elements along `axis`: `out[i][j] = x[index[i][j]][j]` for axis 0, as in PyTorch."""
def gcd(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The greatest common divisor of integers."""
def ge(x1: Operand, x2: Operand) -> Tensor:
    """`x1 >= x2`, elementwise."""
def ger(x: ArrayLike, vec2: ArrayLike) -> Tensor:
    """`outer`."""
def get_default_dtype() -> np.dtype:
    """The default floating dtype: that of Python floats and of true division of integers."""
def get_rng_state() -> Tensor:
    """A copy of the default generator's state."""
def grad(
    outputs: Any,
    inputs: Any = None,
    grad_outputs: Any = None,
    *,
    retain_graph: builtins.bool | None = None,
    create_graph: builtins.bool = False,
    allow_unused: builtins.bool = False,
    has_aux: builtins.bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of the sum of `outputs` with respect to each of `inputs`; no `.grad` changes."""
def grad_fn(
    fn: Callable[..., Any],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the gradient of `fn`, which must return a tensor with one element."""
def gradient(
    x: ArrayLike,
    *,
    spacing: builtins.float = 1,
    dim: Axis = None,
    edge_order: builtins.int = 1,
) -> Any:
    """Derivatives from samples on a grid by central differences, one-sided at the edges."""
def greater(x1: Operand, x2: Operand) -> Tensor:
    """`x1 > x2`, elementwise."""
def greater_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 >= x2`, elementwise."""
def group_norm(
    x: ArrayLike,
    num_groups: builtins.int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Group normalisation: each group of channels of each sample normalised, then a scale and a shift per
    channel.
    """
def gt(x1: Operand, x2: Operand) -> Tensor:
    """`x1 > x2`, elementwise."""
half: np.dtype[np.float16]
def hamming_window(
    window_length: builtins.int,
    periodic: builtins.bool = True,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The Hamming window."""
def hann_window(
    window_length: builtins.int,
    periodic: builtins.bool = True,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The Hann window."""
def heaviside(x: ArrayLike, values: ArrayLike) -> Tensor:
    """0 for negative numbers, 1 for positive ones, `values` at zero."""
def hessian(fn: Callable[..., Any], inputs: Any) -> Any:
    """Return the second derivatives of a scalar function, of shape `(*inputs.shape, *inputs.shape)` for
    one tensor.
    """
def histc(x: ArrayLike, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
    """How many elements are in each of `bins` equal intervals between `min` and `max` (by default those of
    `x`).
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
def hsplit(x: ArrayLike, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the second axis, for a vector along the first."""
def hstack(tensors: Sequence[ArrayLike]) -> Tensor:
    """Concatenate along the second axis, vectors along the first."""
def hypot(x1: Operand, x2: Operand) -> Tensor:
    """sqrt(x1² + x2²) without overflow."""
def i0(x: Operand) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def igamma(a: ArrayLike, x: ArrayLike) -> Tensor:
    """`weft.special.gammainc`: the regularized lower incomplete gamma function."""
def igammac(a: ArrayLike, x: ArrayLike) -> Tensor:
    """`weft.special.gammaincc`: the regularized upper incomplete gamma function."""
def iinfo(type: DTypeLike, /) -> Any:
    """Limits of an integer dtype (or of a tensor's dtype): bits, max, min, dtype."""
def imag(x: ArrayLike) -> Tensor:
    """Imaginary part; zeros for a real tensor."""
def index_add(
    x: ArrayLike,
    dim: Any,
    index: Any = None,
    source: Any = None,
    *,
    alpha: builtins.float = 1,
    axis: builtins.int | None = None,
) -> Tensor:
    """A copy of `x` to which the slices of `source`, times `alpha`, are added at `index` along `dim`."""
def index_copy(x: ArrayLike, dim: builtins.int, index: ArrayLike, source: ArrayLike) -> Tensor:
    """A copy of `x` with the slices of `source` at `index` along `dim`."""
def index_fill(x: ArrayLike, dim: builtins.int, index: ArrayLike, value: Operand) -> Tensor:
    """A copy of `x` whose slices at `index` along `dim` are filled with `value`."""
def index_put(x: ArrayLike, indices: Any, values: ArrayLike, accumulate: builtins.bool = False) -> Tensor:
    """A copy of `x` with `x[indices] = values`, or with `values` added there."""
def index_select(x: ArrayLike, dim: builtins.int, index: ArrayLike) -> Tensor:
    """The slices of `x` along `dim` with the numbers in `index`."""
inf: builtins.float
def inference_mode(mode: builtins.bool = True) -> Iterator[None]:
    """A context, or decorator, without gradients: `no_grad`."""
def initial_seed() -> builtins.int:
    """The seed of the default generator."""
def inner(x: ArrayLike, other: ArrayLike) -> Tensor:
    """Sums of products over the last axes of both."""
def instance_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: builtins.bool = True,
    momentum: builtins.float = 0.1,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Instance normalisation: each channel of each sample normalised, then a scale and a shift per
    channel.
    """
int: np.dtype[np.int32]
int16: np.dtype[np.int16]
int32: np.dtype[np.int32]
int64: np.dtype[np.int64]
int8: np.dtype[np.int8]
def inverse(x: ArrayLike) -> Tensor:
    """The inverses of (a batch of) square matrices."""
def is_autocast_enabled() -> builtins.bool:
    """Whether ops of this thread are being cast."""
def is_complex(x: ArrayLike) -> builtins.bool:
    """Whether a tensor holds complex numbers."""
def is_floating_point(x: ArrayLike) -> builtins.bool:
    """Whether a tensor holds floating-point numbers."""
def is_grad_enabled() -> builtins.bool:
    """Whether ops are being recorded in this thread."""
def is_nonzero(x: ArrayLike) -> builtins.bool:
    """Whether the one element of a tensor is not zero."""
def is_tensor(obj: Any) -> builtins.bool:
    """Whether an object is a tensor."""
def isclose(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    rtol: builtins.float = 1e-05,
    atol: builtins.float = 1e-08,
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
def isneginf(x: ArrayLike) -> Tensor:
    """Whether elements are negative infinity."""
def isposinf(x: ArrayLike) -> Tensor:
    """Whether elements are positive infinity."""
def isreal(x: ArrayLike) -> Tensor:
    """Whether elements have no imaginary part."""
def istft(
    x: ArrayLike,
    n_fft: builtins.int,
    hop_length: builtins.int | None = None,
    win_length: builtins.int | None = None,
    window: ArrayLike | None = None,
    center: builtins.bool = True,
    normalized: builtins.bool = False,
    onesided: builtins.bool = True,
    length: builtins.int | None = None,
) -> Tensor:
    """The real signals whose short-time Fourier transform is `x`: the inverse of `stft` with the same
    arguments.
    """
def jacobian(fn: Callable[..., Any], inputs: Any, *, create_graph: builtins.bool = False) -> Any:
    """Return the Jacobian of `fn` at `inputs`, of shape `(*output.shape, *input.shape)`."""
def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return `fn(*primals)` and its directional derivative along `tangents` (by double reverse mode)."""
def kron(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The Kronecker product."""
def kthvalue(
    x: ArrayLike,
    /,
    k: builtins.int,
    axis: builtins.int = -1,
    keepdims: builtins.bool = False,
    *,
    dim: builtins.int = ...,
    keepdim: builtins.bool = ...,
) -> KthValue:
    """The `k`-th smallest element along `axis` (counting from 1) and its index."""
def layer_norm(
    x: ArrayLike,
    normalized_shape: builtins.int | tuple[builtins.int, ...],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Layer normalisation: mean 0 and variance 1 over the last axes, then a scale and a shift."""
def lcm(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The least common multiple of integers."""
def ldexp(x: ArrayLike, other: Operand) -> Tensor:
    """`x * 2 ** other`."""
def le(x1: Operand, x2: Operand) -> Tensor:
    """`x1 <= x2`, elementwise."""
def lerp(start: ArrayLike, end: ArrayLike, weight: Operand, /) -> Tensor:
    """Linear interpolation `start + weight * (end - start)`."""
def less(x1: Operand, x2: Operand) -> Tensor:
    """`x1 < x2`, elementwise."""
def less_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 <= x2`, elementwise."""
def lgamma(x: Operand) -> Tensor:
    """Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 …"""
def linear_recurrence(
    a: ArrayLike,
    b: ArrayLike,
    /,
    axis: builtins.int = 0,
    reverse: builtins.bool = False,
    *,
    dim: builtins.int = ...,
) -> Tensor:
    """Linear recurrence `h[i] = a[i] * h[i - 1] + b[i]` along `axis`, from zero; from the last element
    with `reverse`.
    """
def linspace(
    start: Scalar | ArrayLike,
    stop: Scalar | ArrayLike,
    /,
    num: builtins.int,
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
def log_softmax(x: ArrayLike, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
    """log(softmax(x)) along `axis`, numerically stable."""
def logaddexp(x1: Operand, x2: Operand) -> Tensor:
    """log(exp(x1) + exp(x2)), without overflow."""
def logaddexp2(x: ArrayLike, other: ArrayLike) -> Tensor:
    """`log2(2 ** x + 2 ** other)`."""
def logcumsumexp(
    x: ArrayLike,
    /,
    axis: builtins.int | None = None,
    *,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Logarithm of the cumulative sum of exp(x) along `axis`, without overflow."""
def logdet(x: ArrayLike) -> Tensor:
    """The logarithms of determinants; NaN for negative ones."""
def logical_and(x1: Operand, x2: Operand) -> Tensor:
    """Logical and of truth values (non-zero is true)."""
def logical_not(x: Operand) -> Tensor:
    """Logical not of truth values (non-zero is true)."""
def logical_or(x1: Operand, x2: Operand) -> Tensor:
    """Logical or of truth values (non-zero is true)."""
def logical_xor(x1: Operand, x2: Operand) -> Tensor:
    """Logical exclusive or of truth values (non-zero is true)."""
def logit(x: ArrayLike, eps: builtins.float | None = None) -> Tensor:
    """log(x / (1 - x)): the inverse of `sigmoid`."""
def logspace(
    start: builtins.float,
    end: builtins.float,
    steps: builtins.int = 100,
    base: builtins.float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Tensor:
    """Powers of `base` with equally spaced exponents from `start` to `end`."""
def logsumexp(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: builtins.bool = False,
    *,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """log(sum(exp(x))) over `axis` (all by default), without overflow."""
long: np.dtype[np.int64]
def lt(x1: Operand, x2: Operand) -> Tensor:
    """`x1 < x2`, elementwise."""
def make_complex(real: ArrayLike, imag: ArrayLike) -> Tensor:
    """Complex tensor with the given real and imaginary parts."""
def manual_seed(seed: builtins.int) -> Generator:
    """Seed the default generator, used by every draw without an explicit `generator`."""
def masked_fill(x: ArrayLike, mask: ArrayLike, value: Operand) -> Tensor:
    """Replace the elements of `x` where `mask` is true by `value`; 0 and 1 stand for False and True in a
    bool tensor.
    """
def masked_scatter(x: ArrayLike, mask: ArrayLike, source: ArrayLike) -> Tensor:
    """A copy of `x` with the first elements of `source` where `mask` is True, in row-major order."""
def masked_select(x: ArrayLike, mask: ArrayLike, /) -> Tensor:
    """Elements of `x` where `mask` is true, as a vector in row-major order; the two broadcast."""
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Matrix product; leading axes are batch axes and broadcast."""
def matrix_power(x: ArrayLike, n: builtins.int) -> Tensor:
    """Square matrices multiplied `n` times by themselves."""
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Transpose the last two axes; a view."""
@overload
def max(
    x: ArrayLike,
    other: ArrayLike | builtins.int | None = None,
    /,
    *,
    axis: Axis = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of
    two tensors.
    """
@overload
def max(x: ArrayLike, /, *, dim: builtins.int, keepdim: builtins.bool | None = None) -> ValuesAndIndices:
    """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of
    two tensors.
    """
@overload
def max(x: ArrayLike, other: builtins.int, /, *, keepdim: builtins.bool) -> ValuesAndIndices:
    """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of
    two tensors.
    """
def maximum(x1: Operand, x2: Operand) -> Tensor:
    """Elementwise maximum; NaN if either value is NaN."""
def mean(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Arithmetic mean of the elements over `axis` (all by default); NaN if there are none."""
@overload
def median(
    x: ArrayLike,
    position: builtins.int | None = None,
    /,
    *,
    axis: Axis = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch."""
@overload
def median(x: ArrayLike, /, *, dim: builtins.int, keepdim: builtins.bool | None = None) -> ValuesAndIndices:
    """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch."""
@overload
def median(x: ArrayLike, position: builtins.int, /, *, keepdim: builtins.bool) -> ValuesAndIndices:
    """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch."""
def meshgrid(*arrays: ArrayLike, indexing: str = 'xy') -> tuple[Tensor, ...]:
    """Build coordinate matrices from coordinate vectors."""
@overload
def min(
    x: ArrayLike,
    other: ArrayLike | builtins.int | None = None,
    /,
    *,
    axis: Axis = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of
    two tensors.
    """
@overload
def min(x: ArrayLike, /, *, dim: builtins.int, keepdim: builtins.bool | None = None) -> ValuesAndIndices:
    """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of
    two tensors.
    """
@overload
def min(x: ArrayLike, other: builtins.int, /, *, keepdim: builtins.bool) -> ValuesAndIndices:
    """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or of
    two tensors.
    """
def minimum(x1: Operand, x2: Operand) -> Tensor:
    """Elementwise minimum; NaN if either value is NaN."""
def mm(x: ArrayLike, mat2: ArrayLike) -> Tensor:
    """The product of two matrices."""
def mode(x: ArrayLike, dim: builtins.int = -1, keepdim: builtins.bool = False) -> ValuesAndIndices:
    """The most frequent element along `dim`, the smallest of several, and the index of its last
    occurrence.
    """
def moveaxis(x: ArrayLike, source: Any, destination: Any, /) -> Tensor:
    """Move the axes `source` to the positions `destination`; the others keep their order."""
def movedim(x: ArrayLike, source: Any, destination: Any) -> Tensor:
    """Move axes to other places; the others keep their order."""
def msort(x: ArrayLike) -> Tensor:
    """Sort along the first axis."""
def mul(x1: Operand, x2: Operand) -> Tensor:
    """`x1 * x2`, elementwise."""
def multinomial(
    probabilities: ArrayLike,
    num_samples: builtins.int,
    replacement: builtins.bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Draw category indices with the given probabilities."""
def multiply(x1: Operand, x2: Operand) -> Tensor:
    """`x1 * x2`, elementwise."""
def mv(x: ArrayLike, vec: ArrayLike) -> Tensor:
    """The product of a matrix and a vector."""
def mvlgamma(x: ArrayLike, p: builtins.int) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension `p`, for x > (p - 1) / 2."""
nan: builtins.float
def nan_to_num(
    x: ArrayLike,
    /,
    nan: builtins.float = 0.0,
    posinf: builtins.float | None = None,
    neginf: builtins.float | None = None,
) -> Tensor:
    """Replace NaN and infinities by finite numbers: 0 and the largest and smallest finite ones by default."""
def nanmean(x: ArrayLike, dim: Axis = None, keepdim: builtins.bool = False) -> Tensor:
    """The mean of the elements that are not NaN."""
def nanmedian(x: ArrayLike, axis: builtins.int | None = None, *, dim: builtins.int | None = ...) -> Tensor:
    """The median of the elements that are not NaN; of an even number the mean of the middle two, as in
    NumPy.
    """
def nanquantile(
    x: ArrayLike,
    q: Operand,
    dim: builtins.int | None = None,
    keepdim: builtins.bool = False,
) -> Tensor:
    """Quantiles of the elements that are not NaN, with linear interpolation."""
def nanstd(
    x: ArrayLike,
    axis: Axis = None,
    *,
    correction: builtins.float = 0,
    keepdims: builtins.bool = False,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """The standard deviation of the elements that are not NaN, over `axis`."""
def nansum(x: ArrayLike, dim: Axis = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of the elements that are not NaN."""
def nanvar(
    x: ArrayLike,
    axis: Axis = None,
    *,
    correction: builtins.float = 0,
    keepdims: builtins.bool = False,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """The variance of the elements that are not NaN, over `axis`."""
def narrow(x: ArrayLike, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
    """The `length` slices from `start` on along `dim`; a view."""
def ne(x1: Operand, x2: Operand) -> Tensor:
    """`x1 != x2`, elementwise."""
def neg(x: Operand) -> Tensor:
    """`-x`, elementwise."""
def negative(x: Operand) -> Tensor:
    """`-x`, elementwise."""
newaxis: None
def nextafter(x1: Operand, x2: Operand) -> Tensor:
    """Next representable number after x1 towards x2, in float32 or float64."""
def nonzero(x: ArrayLike, /, *, as_tuple: builtins.bool = True) -> Any:
    """Indices of the elements that are not zero: one tensor per axis, or a matrix with a row per element."""
def norm(
    x: ArrayLike,
    p: Any = 'fro',
    dim: Axis = None,
    keepdim: builtins.bool = False,
    *,
    dtype: Any = None,
    **words: Any,
) -> Tensor:
    """The norm of all elements, or of vectors or matrices along axes."""
def normal(
    mean: builtins.float | ArrayLike = 0.0,
    std: builtins.float | ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers with the given mean and standard deviation."""
def not_equal(x1: Operand, x2: Operand) -> Tensor:
    """`x1 != x2`, elementwise."""
def numel(x: ArrayLike) -> builtins.int:
    """The number of elements."""
def one_hot(x: ArrayLike, num_classes: builtins.int = -1) -> Tensor:
    """Encode class indices as int64 vectors with a single 1 along a new last axis."""
def ones(
    shape: ShapeLike = (),
    *sizes: Any,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Create a tensor of ones."""
def ones_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Create a tensor of ones with the shape and (unless given) the dtype of `x`."""
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Outer product of two vectors: `out[i, j] = x1[i] * x2[j]`."""
def pad(x: ArrayLike, /, pad_width: Any, mode: str = 'constant', value: builtins.float = 0) -> Tensor:
    """Pad a tensor on the sides of its axes."""
def pdist(x: ArrayLike, p: builtins.float = 2.0) -> Tensor:
    """The distances between all pairs of different rows of a matrix, as a vector."""
def permute(x: ArrayLike, *axes: Any) -> Tensor:
    """Bring the axes into an order: `permute(x, 2, 0, 1)` or `permute(x, (2, 0, 1))`."""
def permute_dims(x: ArrayLike, /, axes: tuple[builtins.int, ...]) -> Tensor:
    """Permute the axes; a view."""
pi: builtins.float
def pinverse(x: ArrayLike) -> Tensor:
    """The pseudo-inverse of (a batch of) matrices."""
def pixel_shuffle(x: ArrayLike, upscale_factor: builtins.int) -> Tensor:
    """Channels into space: (…, C·r², H, W) as (…, C, H·r, W·r)."""
def pixel_unshuffle(x: ArrayLike, downscale_factor: builtins.int) -> Tensor:
    """Space into channels, the inverse of `pixel_shuffle`: (…, C, H·r, W·r) as (…, C·r², H, W)."""
def poisson(x: ArrayLike, generator: Any = None) -> Tensor:
    """Random numbers of Poisson distributions with the rates in `x`."""
def polar(abs: ArrayLike, angle: ArrayLike) -> Tensor:
    """Complex numbers from absolute values and angles."""
def polygamma(n: builtins.int, x: ArrayLike) -> Tensor:
    """The n-th derivative of `digamma`."""
def positive(x: Operand) -> Tensor:
    """`+x`: a copy of `x`."""
def pow(x1: Operand, x2: Operand) -> Tensor:
    """`x1 ** x2`, elementwise."""
def power(x1: Operand, x2: Operand) -> Tensor:
    """`x1 ** x2`, elementwise."""
def prelu(x: ArrayLike, weight: ArrayLike) -> Tensor:
    """`x` where positive, else `x * weight`, with one learned weight or one per channel (axis 1)."""
def prod(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Product of the elements over `axis` (all by default); small integers are multiplied in 64 bits."""
def promote_types(type1: DTypeLike, type2: DTypeLike) -> np.dtype:
    """The dtype that results from two dtypes."""
def qr(x: ArrayLike, some: builtins.bool = True) -> Any:
    """The QR decomposition: orthonormal columns Q and an upper triangle R."""
def quantile(
    x: ArrayLike,
    /,
    q: Operand,
    axis: Axis = None,
    keepdims: builtins.bool = False,
    *,
    method: str = 'linear',
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Quantiles of the elements over `axis`; NaN if any element is NaN."""
def rad2deg(x: ArrayLike) -> Tensor:
    """Radians as degrees."""
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
    low: builtins.int,
    high: builtins.int | ShapeLike | None = None,
    shape: ShapeLike = (),
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random integers in [low, high)."""
def randint_like(
    x: ArrayLike,
    low: builtins.int,
    high: builtins.int | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Random integers in [low, high), or in [0, low), in the shape and dtype of `x`."""
def randn(
    *shape: ShapeLike,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Standard normal random numbers."""
def randn_like(x: ArrayLike, *, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Tensor:
    """Standard normal random numbers with the shape and (unless given) the dtype of `x`."""
def randperm(
    n: builtins.int,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random permutation of the integers 0 to n - 1."""
def ravel(x: ArrayLike) -> Tensor:
    """Flatten to a vector, in row-major order."""
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
def relu(x: Operand) -> Tensor:
    """Rectified linear unit: max(x, 0)."""
def remainder(x1: Operand, x2: Operand) -> Tensor:
    """Remainder of the floor division `x1 // x2`, with the sign of `x2`; 0 for an integer divided by zero,
    as in NumPy.
    """
def renorm(x: ArrayLike, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
    """Scale the slices along `dim` whose `p`-norm is larger than `maxnorm` down to it."""
def repeat(
    x: ArrayLike,
    repeats: Any,
    /,
    axis: builtins.int | None = None,
    *,
    dim: builtins.int | None = ...,
) -> Tensor:
    """Repeat each element along `axis` (of the flattened tensor by default)."""
def repeat_interleave(
    x: ArrayLike,
    repeats: Any,
    dim: builtins.int | None = None,
    *,
    output_size: builtins.int | None = None,
) -> Tensor:
    """Repeat each element: `[a, b]` becomes `[a, a, b, b]` for 2."""
def reshape(
    x: ArrayLike,
    /,
    shape: builtins.int | tuple[builtins.int, ...],
    *,
    copy: builtins.bool | None = None,
) -> Tensor:
    """Change the shape, keeping the elements in row-major order."""
def reshape_as(x: ArrayLike, like: ArrayLike) -> Tensor:
    """Reshape to the shape of `like`, which in a graph may be known only at run time."""
def result_type(*operands: Any) -> np.dtype:
    """The dtype to which tensors, dtypes and (weak) Python scalars promote."""
def roll(
    x: ArrayLike,
    /,
    shift: builtins.int | tuple[builtins.int, ...],
    axis: builtins.int | tuple[builtins.int, ...] | None = None,
    *,
    dim: builtins.int | tuple[builtins.int, ...] | None = ...,
) -> Tensor:
    """Shift elements along `axis` cyclically (the flattened tensor by default)."""
def rot90(x: ArrayLike, k: builtins.int = 1, dims: Sequence[builtins.int] = ...) -> Tensor:
    """Turn by 90 degrees `k` times in the plane of two axes, from the first towards the second."""
def round(x: ArrayLike, decimals: builtins.int = 0) -> Tensor:
    """Round to the nearest integer, or to a number of decimals; halves go to the even neighbour."""
def row_stack(tensors: Sequence[ArrayLike]) -> Tensor:
    """`vstack`."""
def rsqrt(x: Operand) -> Tensor:
    """Reciprocal square root 1 / sqrt(x)."""
def rsub(x: ArrayLike, other: Operand, *, alpha: builtins.float = 1) -> Tensor:
    """`other - alpha * x`."""
def scatter(
    x: ArrayLike,
    dim: Any,
    index: Any = None,
    src: Any = None,
    *,
    reduce: str | None = None,
    **words: Any,
) -> Tensor:
    """A copy of `x` with elements of `src` at `index` along `dim`: `out[index[i][j], j] = src[i][j]` for
    `dim=0`.
    """
def scatter_add(
    x: ArrayLike,
    dim: Any,
    index: Any = None,
    src: Any = None,
    *,
    axis: builtins.int | None = None,
) -> Tensor:
    """A copy of `x` to which elements of `src` are added at `index` along `dim`."""
def scatter_reduce(
    x: ArrayLike,
    dim: builtins.int,
    index: ArrayLike,
    src: ArrayLike,
    reduce: str,
    *,
    include_self: builtins.bool = True,
) -> Tensor:
    """A copy of `x` in which the elements of `src` with one index along `dim` are combined."""
def searchsorted(
    x1: ArrayLike,
    x2: ArrayLike | builtins.int | builtins.float,
    /,
    *,
    side: str = 'left',
    sorter: ArrayLike | None = None,
) -> Tensor:
    """Indices at which to insert `x2` into the sorted vector `x1` to keep it sorted."""
def seed() -> builtins.int:
    """Seed the default generator from the operating system and return the seed."""
def select(x: ArrayLike, dim: builtins.int, index: builtins.int) -> Tensor:
    """The slice number `index` along `dim`; a view."""
def select_scatter(x: ArrayLike, src: ArrayLike, dim: builtins.int, index: builtins.int) -> Tensor:
    """A copy of `x` with `src` as slice number `index` along `dim`."""
def selu(x: Operand) -> Tensor:
    """The scaled `elu` whose constants keep mean 0 and variance 1 from layer to layer."""
def set_default_dtype(dtype: DTypeLike) -> None:
    """Set the default floating dtype of this process (float32 or float64)."""
def set_detect_anomaly(mode: builtins.bool) -> None:
    """Switch anomaly detection on or off for this thread; `detect_anomaly` is the context manager."""
def set_printoptions(
    precision: builtins.int | None = None,
    threshold: builtins.int | None = None,
    edgeitems: builtins.int | None = None,
    linewidth: builtins.int | None = None,
    sci_mode: builtins.bool | None = None,
    profile: str | None = None,
) -> None:
    """How tensors and arrays are printed: NumPy's options, under PyTorch's names."""
def set_rng_state(state: Any) -> None:
    """Restore the default generator to a state returned by `get_rng_state`."""
def sgn(x: ArrayLike) -> Tensor:
    """The sign, of complex numbers `x / |x|`."""
short: np.dtype[np.int16]
def sigmoid(x: Operand) -> Tensor:
    """Logistic function 1 / (1 + exp(-x))."""
def sign(x: Operand) -> Tensor:
    """Sign of x: -1, 0 or 1; x / |x| for complex numbers; NaN for NaN."""
def signbit(x: Operand) -> Tensor:
    """Whether the sign bit of x is set (true for -0.0)."""
def sin(x: Operand) -> Tensor:
    """Sine of x in radians."""
def sinc(x: Operand) -> Tensor:
    """sin(πx) / (πx), and 1 at 0."""
def sinh(x: Operand) -> Tensor:
    """Hyperbolic sine."""
def slice_axis(
    x: ArrayLike,
    axis: builtins.int,
    start: builtins.int | None,
    stop: builtins.int | None,
    step: builtins.int | None = None,
) -> Tensor:
    """Slice `x[..., start:stop:step, ...]` along one axis; a view."""
def slogdet(x: ArrayLike) -> Any:
    """Sign and logarithm of the absolute value of determinants."""
def softmax(x: ArrayLike, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
    """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one."""
@overload
def sort(
    x: ArrayLike,
    position: builtins.int | None = None,
    /,
    *,
    axis: builtins.int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> Tensor:
    """Sort along an axis: `axis` gives the values as in NumPy, `dim` values and indices as in PyTorch."""
@overload
def sort(
    x: ArrayLike,
    /,
    *,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
    dim: builtins.int,
) -> ValuesAndIndices:
    """Sort along an axis: `axis` gives the values as in NumPy, `dim` values and indices as in PyTorch."""
def split(
    x: ArrayLike,
    split_size_or_sections: Any,
    axis: builtins.int = 0,
    *,
    dim: builtins.int = ...,
) -> tuple[Tensor, ...]:
    """Split `x` along `axis` into pieces; views."""
def sqrt(x: Operand) -> Tensor:
    """Square root; NaN for negative real numbers."""
def square(x: Operand) -> Tensor:
    """`x * x`, elementwise."""
def squeeze(x: ArrayLike, position: Axis = None, /, *, axis: Axis = None, dim: Axis = None) -> Tensor:
    """Remove axes of size 1: all of them, those in `axis`, or those in `dim` that have size 1."""
def stack(arrays: Sequence[ArrayLike], /, axis: builtins.int = 0, *, dim: builtins.int = ...) -> Tensor:
    """Join tensors of the same shape along a new axis at position `axis`."""
def std(
    x: ArrayLike,
    position: builtins.int | None = None,
    /,
    *,
    axis: Axis = None,
    correction: builtins.float = 0.0,
    keepdims: builtins.bool = False,
    dim: Axis = None,
    keepdim: builtins.bool | None = None,
    unbiased: builtins.bool | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Standard deviation: of a population over `axis` as in NumPy, or of a sample over `dim` as in
    PyTorch.
    """
def std_mean(
    x: ArrayLike,
    dim: Axis = None,
    *,
    correction: builtins.float = 0.0,
    keepdim: builtins.bool = False,
    unbiased: builtins.bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation of a sample and mean over `dim`, as in PyTorch."""
def stft(
    x: ArrayLike,
    n_fft: builtins.int,
    hop_length: builtins.int | None = None,
    win_length: builtins.int | None = None,
    window: ArrayLike | None = None,
    center: builtins.bool = True,
    pad_mode: str = 'reflect',
    normalized: builtins.bool = False,
    onesided: builtins.bool = True,
    return_complex: builtins.bool = True,
) -> Tensor:
    """The short-time Fourier transform of real signals."""
def stop_gradient(x: ArrayLike) -> Tensor:
    """Return `x` as a constant: no gradient flows through."""
def sub(x1: Operand, x2: Operand) -> Tensor:
    """`x1 - x2`, elementwise."""
def subtract(x1: Operand, x2: Operand) -> Tensor:
    """`x1 - x2`, elementwise."""
def sum(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    dim: Axis = ...,
    keepdim: builtins.bool = ...,
) -> Tensor:
    """Sum of the elements over `axis`."""
def svd(x: ArrayLike, some: builtins.bool = True, compute_uv: builtins.bool = True) -> Any:
    """The singular value decomposition `U @ diag(S) @ V.mH`, as PyTorch's `svd` returns it: U, S and V."""
def swapaxes(x: ArrayLike, /, axis1: builtins.int, axis2: builtins.int) -> Tensor:
    """Swap two axes; a view."""
def swapdims(x: ArrayLike, /, axis1: builtins.int, axis2: builtins.int) -> Tensor:
    """Swap two axes; a view."""
def t(x: ArrayLike) -> Tensor:
    """The transpose of a matrix; a vector or number is returned as it is."""
def take(
    x: ArrayLike,
    index: ArrayLike,
    *,
    axis: builtins.int | None = None,
    dim: builtins.int | None = None,
) -> Tensor:
    """Elements by number: of the flattened tensor, or slices along an axis."""
def take_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    /,
    axis: builtins.int = -1,
    *,
    dim: builtins.int = ...,
) -> Tensor:
    """Gather one element per index: `out[i, j] = x[i, indices[i, j]]` along the last axis, likewise for
    others.
    """
def take_along_dim(x: ArrayLike, indices: ArrayLike, dim: builtins.int | None = None) -> Tensor:
    """Elements at `indices` along `dim`; without it of the flattened tensor."""
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
def tensor_split(x: ArrayLike, indices_or_sections: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """Split into parts of nearly equal size, or before given positions."""
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
    """Contract two tensors over pairs of axes."""
def threshold(x: ArrayLike, threshold: builtins.float, value: builtins.float) -> Tensor:
    """Elements above `threshold`; `value` instead of the others."""
def tile(x: ArrayLike, repetitions: tuple[builtins.int, ...], /) -> Tensor:
    """Repeat the whole tensor `repetitions` times along each axis."""
def topk(
    x: ArrayLike,
    /,
    k: builtins.int,
    axis: builtins.int = -1,
    *,
    largest: builtins.bool = True,
    sorted: builtins.bool = True,
    dim: builtins.int = ...,
) -> TopK:
    """The `k` largest elements along `axis` and their indices."""
def trace(x: ArrayLike, /, *, offset: builtins.int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Sum along the `offset`-th diagonal of (batches of) matrices; small integers are summed in 64 bits."""
def transpose(
    x: ArrayLike,
    *axes: Any,
    dim0: builtins.int | None = None,
    dim1: builtins.int | None = None,
) -> Tensor:
    """Exchange two axes, as in PyTorch; reverse all axes or bring them into an order, as in NumPy."""
def trapezoid(
    y: ArrayLike,
    x: ArrayLike | None = None,
    *,
    dx: builtins.float = 1,
    dim: builtins.int = -1,
) -> Tensor:
    """The integral of samples along `dim` by the trapezoidal rule."""
def trapz(
    y: ArrayLike,
    x: ArrayLike | None = None,
    *,
    dx: builtins.float = 1,
    dim: builtins.int = -1,
) -> Tensor:
    """`trapezoid`."""
def tril(x: ArrayLike, /, *, k: builtins.int = 0) -> Tensor:
    """Lower triangle of (batches of) matrices: zero above the `k`-th diagonal."""
def tril_indices(row: builtins.int, col: builtins.int, offset: builtins.int = 0) -> Tensor:
    """The indices of the elements on and below a diagonal of a matrix: rows and columns."""
def triu(x: ArrayLike, /, *, k: builtins.int = 0) -> Tensor:
    """Upper triangle of (batches of) matrices: zero below the `k`-th diagonal."""
def triu_indices(row: builtins.int, col: builtins.int, offset: builtins.int = 0) -> Tensor:
    """The indices of the elements on and above a diagonal of a matrix: rows and columns."""
def true_divide(x: ArrayLike, other: Operand) -> Tensor:
    """`x / other`."""
def trunc(x: Operand) -> Tensor:
    """Round towards zero."""
def type_as(x: ArrayLike, other: ArrayLike) -> Tensor:
    """`x` in the dtype of `other`."""
uint16: np.dtype[np.uint16]
uint32: np.dtype[np.uint32]
uint64: np.dtype[np.uint64]
uint8: np.dtype[np.uint8]
def unbind(x: ArrayLike, dim: builtins.int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`."""
def unflatten(x: ArrayLike, axis: builtins.int, sizes: tuple[builtins.int, ...]) -> Tensor:
    """Split one axis into several of the given `sizes`, one of which may be -1: the inverse of `flatten`."""
def unfold(x: ArrayLike, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
    """All windows of `size` neighbours along an axis, as a new last axis."""
def uniform(
    low: builtins.float | ArrayLike = 0.0,
    high: builtins.float | ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random numbers in [low, high)."""
def unique(
    x: ArrayLike,
    sorted: builtins.bool = True,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: builtins.int | None = None,
    *,
    return_index: builtins.bool = False,
) -> Any:
    """The different elements, in ascending order."""
def unique_all(x: ArrayLike, /) -> UniqueAll:
    """Distinct values of `x`, ascending, with first indices, inverse indices and counts."""
def unique_consecutive(
    x: ArrayLike,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: builtins.int | None = None,
) -> Any:
    """The first element of every run of equal neighbours."""
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Distinct values of `x`, ascending, and how often each occurs."""
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Distinct values of `x`, ascending, and for every element of `x` the index of its value."""
def unique_values(x: ArrayLike, /) -> Tensor:
    """Distinct values of `x`, ascending."""
def unsqueeze(x: ArrayLike, dim: builtins.int) -> Tensor:
    """Insert an axis of size 1 before axis `dim`."""
def unstack(x: ArrayLike, /, axis: builtins.int = 0, *, dim: builtins.int = ...) -> tuple[Tensor, ...]:
    """Split `x` into its slices along `axis`; views."""
def value_and_grad(
    fn: Callable[..., Any],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the scalar value of `fn` and its gradient."""
def vander(x: ArrayLike, N: builtins.int | None = None, increasing: builtins.bool = False) -> Tensor:
    """The matrix of powers of a vector's elements: a row per element, the highest power first unless
    `increasing`.
    """
def var(
    x: ArrayLike,
    position: builtins.int | None = None,
    /,
    *,
    axis: Axis = None,
    correction: builtins.float = 0.0,
    keepdims: builtins.bool = False,
    dim: Axis = None,
    keepdim: builtins.bool | None = None,
    unbiased: builtins.bool | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Variance: of a population over `axis` as in NumPy, or of a sample over `dim` as in PyTorch."""
def var_mean(
    x: ArrayLike,
    dim: Axis = None,
    *,
    correction: builtins.float = 0.0,
    keepdim: builtins.bool = False,
    unbiased: builtins.bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance of a sample and mean over `dim`, as in PyTorch."""
def vdot(x: ArrayLike, other: ArrayLike) -> Tensor:
    """The product of two vectors, the first one conjugated."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
    """Sum of `conj(x1) * x2` over `axis`."""
def view_as_complex(x: ArrayLike) -> Tensor:
    """Pairs (real, imaginary) in the last axis as complex numbers."""
def view_as_real(x: ArrayLike) -> Tensor:
    """Complex numbers as pairs (real, imaginary) in a new last axis."""
def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """Return `fn(*primals)` and the function that maps cotangents of its outputs to gradients of the
    primals.
    """
def vmap(fn: F, in_axes: Any = 0, out_axes: Any = 0, *, randomness: str = 'error') -> F:
    """Vectorize `fn`, written for one example, over a batch axis."""
def vsplit(x: ArrayLike, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along the first axis."""
def vstack(tensors: Sequence[ArrayLike]) -> Tensor:
    """Concatenate along the first axis; vectors are rows."""
def where(condition: Operand, x1: Operand, x2: Operand) -> Tensor:
    """Choose `x1` where `condition` is true and `x2` elsewhere; the three broadcast."""
def xlogy(x1: Operand, x2: Operand) -> Tensor:
    """x1 · log(x2), and 0 where x1 is 0 (unless x2 is NaN)."""
def zeros(
    shape: ShapeLike = (),
    *sizes: Any,
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
