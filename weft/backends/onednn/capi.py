"""oneDNN's C API as ctypes prototypes: enums, signatures and status checks.

Handles (engines, descriptors, primitives, memories) are plain integers here; their owners are the classes of
`descriptors.py` and `primitives/`. Calls that run for long release the GIL (`Library.call`, `Library.execute`);
the call that only sets a field keeps it, which is cheaper (`Library.set_data_handle`).
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from typing import Any

MAX_NDIMS = 12
Dims = c_int64 * MAX_NDIMS


class Unsupported(RuntimeError):
    """oneDNN does not support the request (dtype, shape, layout or missing library): use the plain lowering."""


class Status(enum.IntEnum):
    SUCCESS = 0
    OUT_OF_MEMORY = 1
    INVALID_ARGUMENTS = 2
    UNIMPLEMENTED = 3
    LAST_IMPL_REACHED = 4
    RUNTIME_ERROR = 5
    NOT_REQUIRED = 6


class DataType(enum.IntEnum):
    F16 = 1
    BF16 = 2
    F32 = 3
    S32 = 4
    S8 = 5
    U8 = 6
    F64 = 7


class Prop(enum.IntEnum):
    FORWARD_TRAINING = 64
    FORWARD_INFERENCE = 96
    BACKWARD = 128
    BACKWARD_DATA = 160
    BACKWARD_WEIGHTS = 192


class Alg(enum.IntEnum):
    CONVOLUTION_DIRECT = 0x1
    DECONVOLUTION_DIRECT = 0xA
    ELTWISE_RELU = 0x20
    ELTWISE_TANH = 0x21
    ELTWISE_ELU = 0x22
    ELTWISE_SQUARE = 0x23
    ELTWISE_ABS = 0x24
    ELTWISE_SQRT = 0x25
    ELTWISE_LINEAR = 0x26
    ELTWISE_SOFT_RELU = 0x27
    ELTWISE_HARDSIGMOID = 0x28
    ELTWISE_LOGISTIC = 0x29
    ELTWISE_EXP = 0x2A
    ELTWISE_GELU_TANH = 0x2B
    ELTWISE_SWISH = 0x2C
    ELTWISE_LOG = 0x2D
    ELTWISE_CLIP = 0x2E
    ELTWISE_CLIP_V2 = 0x2F
    ELTWISE_POW = 0x30
    ELTWISE_GELU_ERF = 0x31
    ELTWISE_ROUND = 0x32
    ELTWISE_MISH = 0x33
    ELTWISE_HARDSWISH = 0x34
    POOLING_MAX = 0x1FF
    POOLING_AVG_INCLUDE_PADDING = 0x2FF
    POOLING_AVG_EXCLUDE_PADDING = 0x3FF
    BINARY_ADD = 0x1FFF0
    BINARY_MUL = 0x1FFF1
    BINARY_MAX = 0x1FFF2
    BINARY_MIN = 0x1FFF3
    BINARY_DIV = 0x1FFF4
    BINARY_SUB = 0x1FFF5
    SOFTMAX_ACCURATE = 0x30000
    SOFTMAX_LOG = 0x30001


class NormFlags(enum.IntFlag):
    NONE = 0
    USE_GLOBAL_STATS = 1
    USE_SCALE = 2
    USE_SHIFT = 4
    FUSE_RELU = 8
    FUSE_ADD_RELU = 16


class Direction(enum.IntEnum):
    LEFT_TO_RIGHT = 1
    RIGHT_TO_LEFT = 2
    BIDIRECTIONAL_CONCAT = 3
    BIDIRECTIONAL_SUM = 4


class Arg(enum.IntEnum):
    """Argument indices of `dnnl_exec_arg_t`; the RNN names share numbers with the general ones."""

    SRC = 1
    SRC_1 = 2
    SRC_2 = 3
    DST = 17
    DST_1 = 18
    DST_2 = 19
    WEIGHTS = 33
    WEIGHTS_1 = 34
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    DIFF_SRC = 129
    DIFF_SRC_1 = 130
    DIFF_SRC_2 = 131
    DIFF_DST = 145
    DIFF_DST_1 = 146
    DIFF_DST_2 = 147
    DIFF_WEIGHTS = 161
    DIFF_WEIGHTS_1 = 162
    DIFF_BIAS = 169
    DIFF_SCALE = 255
    DIFF_SHIFT = 256


def post_op_argument(position: int) -> int:
    """Index of the second operand of the binary post-op at this position of the chain."""
    return 32768 * (position + 1) | Arg.SRC_1


class Query(enum.IntEnum):
    IMPL_INFO_STR = 8
    WORKSPACE_MD = 135
    SCRATCHPAD_MD = 136
    EXEC_ARG_MD = 255
    NDIMS = 256
    DIMS = 257
    DATA_TYPE = 258
    SUBMEMORY_OFFSET = 259
    PADDED_DIMS = 260
    PADDED_OFFSETS = 261
    FORMAT_KIND = 262
    INNER_NBLKS = 263
    INNER_BLKS = 264
    INNER_IDXS = 265
    STRIDES = 14


FORMAT_TAG_ANY = 1
SCRATCHPAD_MODE_USER = 1


class ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", c_char_p))


_TYPES: dict[str, Any] = {
    "out": POINTER(c_void_p),  # out-parameter for a new handle
    "engine": c_void_p, "stream": c_void_p, "md": c_void_p, "pd": c_void_p, "attr": c_void_p, "prim": c_void_p,
    "mem": c_void_p, "ops": c_void_p, "pointer": c_void_p, "args": c_void_p, "any": c_void_p,
    "dims": POINTER(c_int64), "int": c_int, "unsigned": c_uint, "float": c_float, "s32": c_int32, "size": c_size_t,
    "text": POINTER(c_char_p), "prop": c_int, "alg": c_int,
}  # fmt: skip

_RNN_FORWARD = "out engine prop int md md md md md md md unsigned attr"
_RNN_BACKWARD = "out engine prop int md md md md md md md md md md md md md md unsigned pd attr"
_CONV_FORWARD = "out engine prop alg md md md md dims dims dims dims attr"
_CONV_BACKWARD_DATA = "out engine alg md md md dims dims dims dims pd attr"
_CONV_BACKWARD_WEIGHTS = "out engine alg md md md md dims dims dims dims pd attr"

# Every function that returns a status: name without the prefix -> argument types.
_PROTOTYPES = {
    "engine_create": "out int size",
    "stream_create": "out engine unsigned",
    "memory_desc_create_with_strides": "out int dims int dims",
    "memory_desc_create_with_tag": "out int dims int int",
    "memory_desc_clone": "out md",
    "memory_desc_destroy": "md",
    "memory_desc_query": "md int any",
    "memory_create": "out md engine pointer",
    "memory_destroy": "mem",
    "primitive_attr_create": "out",
    "primitive_attr_destroy": "attr",
    "primitive_attr_set_scratchpad_mode": "attr int",
    "primitive_attr_set_post_ops": "attr ops",
    "post_ops_create": "out",
    "post_ops_destroy": "ops",
    "post_ops_append_sum": "ops float s32 int",
    "post_ops_append_eltwise": "ops alg float float",
    "post_ops_append_binary": "ops alg md",
    "primitive_desc_destroy": "pd",
    "primitive_desc_query": "pd int int any",
    "primitive_desc_next_impl": "pd",
    "primitive_create": "out pd",
    "primitive_destroy": "prim",
    "reorder_primitive_desc_create": "out md engine md engine attr",
    "binary_primitive_desc_create": "out engine alg md md md attr",
    "eltwise_forward_primitive_desc_create": "out engine prop alg md md float float attr",
    "eltwise_backward_primitive_desc_create": "out engine alg md md md float float pd attr",
    "softmax_forward_primitive_desc_create": "out engine prop alg md md int attr",
    "softmax_backward_primitive_desc_create": "out engine alg md md md int pd attr",
    "matmul_primitive_desc_create": "out engine md md md md attr",
    "convolution_forward_primitive_desc_create": _CONV_FORWARD,
    "convolution_backward_data_primitive_desc_create": _CONV_BACKWARD_DATA,
    "convolution_backward_weights_primitive_desc_create": _CONV_BACKWARD_WEIGHTS,
    "deconvolution_forward_primitive_desc_create": _CONV_FORWARD,
    "deconvolution_backward_data_primitive_desc_create": _CONV_BACKWARD_DATA,
    "deconvolution_backward_weights_primitive_desc_create": _CONV_BACKWARD_WEIGHTS,
    "pooling_forward_primitive_desc_create": "out engine prop alg md md dims dims dims dims dims attr",
    "pooling_backward_primitive_desc_create": "out engine alg md md dims dims dims dims dims pd attr",
    "batch_normalization_forward_primitive_desc_create": "out engine prop md md float unsigned attr",
    "batch_normalization_backward_primitive_desc_create": "out engine prop md md md float unsigned pd attr",
    "layer_normalization_forward_primitive_desc_create": "out engine prop md md md float unsigned attr",
    "layer_normalization_backward_primitive_desc_create": "out engine prop md md md md float unsigned pd attr",
    "lstm_forward_primitive_desc_create": "out engine prop int md md md md md md md md md md md unsigned attr",
    "lstm_backward_primitive_desc_create":
        "out engine prop int " + "md " * 22 + "unsigned pd attr",
    "lbr_gru_forward_primitive_desc_create": _RNN_FORWARD,
    "lbr_gru_backward_primitive_desc_create": _RNN_BACKWARD,
}  # fmt: skip


def _status_text(status: int) -> str:
    try:
        return Status(status).name.lower()
    except ValueError:
        return f"status {status}"


class Library:
    """One loaded libdnnl with its engine and stream. Immutable; every method may be called from any thread.

    A CPU engine and an in-order CPU stream hold no state of a call, so that one of each serves all threads.
    """

    def __init__(self, path: str) -> None:
        self._dll = ctypes.CDLL(path)
        self._quick = ctypes.PyDLL(path)
        self.path = _file_of(self._dll, path)
        self._dll.dnnl_version.restype = POINTER(_Version)
        version = self._dll.dnnl_version().contents
        self.version: tuple[int, int, int] = (version.major, version.minor, version.patch)
        self._functions: dict[str, Any] = {}
        for name, signature in _PROTOTYPES.items():
            function = getattr(self._dll, "dnnl_" + name)
            function.argtypes = [_TYPES[word] for word in signature.split()]
            function.restype = c_int
            self._functions[name] = function
        self._dll.dnnl_memory_desc_get_size.argtypes = [c_void_p]
        self._dll.dnnl_memory_desc_get_size.restype = c_size_t
        self._dll.dnnl_memory_desc_equal.argtypes = [c_void_p, c_void_p]
        self._dll.dnnl_primitive_desc_query_md.argtypes = [c_void_p, c_int, c_int]
        self._dll.dnnl_primitive_desc_query_md.restype = c_void_p
        self._dll.dnnl_cpu_isa2str.restype = c_char_p

        #: dnnl_primitive_execute(primitive, stream, nargs, args) -> status, with the GIL released.
        self.execute = self._dll.dnnl_primitive_execute
        self.execute.argtypes = [c_void_p, c_void_p, c_int, c_void_p]
        #: The address of dnnl_primitive_execute, for jitted code.
        self.execute_address: int = ctypes.cast(self.execute, c_void_p).value or 0
        #: dnnl_memory_set_data_handle(memory, pointer) -> status; keeps the GIL.
        self.set_data_handle = self._quick.dnnl_memory_set_data_handle
        self.set_data_handle.argtypes = [c_void_p, c_void_p]
        #: The address of dnnl_memory_set_data_handle, for jitted code that moves buffers.
        self.set_data_handle_address: int = ctypes.cast(self.set_data_handle, c_void_p).value or 0

        self.engine: int = self.create("engine_create", 1, 0)
        self.stream: int = self.create("stream_create", self.engine, 1)

    @property
    def isa(self) -> str:
        text: bytes = self._dll.dnnl_cpu_isa2str(self._dll.dnnl_get_effective_cpu_isa())
        return text.decode().removeprefix("cpu_isa_")

    def call(self, name: str, *arguments: Any, what: object = "") -> None:
        """Calls `dnnl_<name>` and turns a bad status into `Unsupported`, `MemoryError` or `RuntimeError`.

        `what` is for the error's text; a function is called only on errors, because describing memory takes time.
        """
        status = self._functions[name](*arguments)
        if status:
            raise failure(f"dnnl_{name}", status, what() if callable(what) else what)

    def create(self, name: str, *arguments: Any, what: object = "") -> int:
        """Calls `dnnl_<name>(&handle, ...)` and returns the new handle."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle), *arguments, what=what)
        assert handle.value is not None
        return handle.value

    def desc_size(self, desc: int) -> int:
        return int(self._dll.dnnl_memory_desc_get_size(desc))

    def desc_equal(self, left: int, right: int) -> bool:
        return bool(self._dll.dnnl_memory_desc_equal(left, right))

    def query_desc(self, primitive_desc: int, what: int, index: int = 0) -> int:
        """A memory descriptor that belongs to the primitive descriptor; 0 if it has none of that kind."""
        return self._dll.dnnl_primitive_desc_query_md(primitive_desc, what, index) or 0


def failure(call: str, status: int, what: object) -> Exception:
    """The exception for a call that returned a status other than success."""
    text = f"{call}: {_status_text(status)}" + (f". Got {what}." if what != "" else ".")
    if status == Status.UNIMPLEMENTED or status == Status.LAST_IMPL_REACHED:
        return Unsupported(text)
    if status == Status.OUT_OF_MEMORY:
        return MemoryError(text)
    return RuntimeError(text)


def dims(values: tuple[int, ...]) -> Any:
    """`values` as a `dnnl_dims_t`; `Unsupported` for values that do not fit, whose upper bits would be lost silently."""
    if any(not -(1 << 63) <= value < 1 << 63 for value in values):
        raise Unsupported(f"oneDNN: sizes have 64 bits. Got {values}.")
    return Dims(*values)


def window_dims(values: tuple[int, ...]) -> Any:
    """Strides, paddings, dilations and kernel sizes as a `dnnl_dims_t`; oneDNN's kernels compute with 32 bits of them."""
    if any(not -(1 << 31) < value < 1 << 31 for value in values):
        raise Unsupported(f"oneDNN: windows move by numbers of 32 bits. Got {values}.")
    return Dims(*values)


class _DlInfo(ctypes.Structure):
    _fields_ = (("file", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("address", c_void_p))


def _file_of(dll: ctypes.CDLL, fallback: str) -> str:
    """The path at which the dynamic loader found the library, given as a bare file name."""
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (AttributeError, OSError, TypeError):
        return fallback
    dladdr.argtypes = [c_void_p, POINTER(_DlInfo)]
    info = _DlInfo()
    if dladdr(ctypes.cast(dll.dnnl_version, c_void_p), ctypes.byref(info)) and info.file:
        return bytes(info.file).decode()
    return fallback
