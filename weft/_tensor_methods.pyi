"""The operators and methods of Tensor that come from the op table.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

import builtins
from typing import Any
from .ops.array.cumulative import CumulativeExtreme as CumulativeExtreme
from .ops.array.sorting import KthValue as KthValue
from .ops.array.sorting import TopK as TopK
from .ops.array.statistics import Histogram as Histogram
from .tensor import Tensor as Tensor
from .typing import ArrayLike
from .typing import Axis
from .typing import DTypeLike
from .typing import DeviceLike
from .typing import Index
from .typing import Operand
from .typing import ShapeLike

class TensorMethods:
    def __add__(self, other: Operand) -> Tensor: ...
    def __radd__(self, other: Operand) -> Tensor: ...
    def __iadd__(self, other: Operand) -> Tensor: ...
    def __sub__(self, other: Operand) -> Tensor: ...
    def __rsub__(self, other: Operand) -> Tensor: ...
    def __isub__(self, other: Operand) -> Tensor: ...
    def __mul__(self, other: Operand) -> Tensor: ...
    def __rmul__(self, other: Operand) -> Tensor: ...
    def __imul__(self, other: Operand) -> Tensor: ...
    def __truediv__(self, other: Operand) -> Tensor: ...
    def __rtruediv__(self, other: Operand) -> Tensor: ...
    def __itruediv__(self, other: Operand) -> Tensor: ...
    def __floordiv__(self, other: Operand) -> Tensor: ...
    def __rfloordiv__(self, other: Operand) -> Tensor: ...
    def __ifloordiv__(self, other: Operand) -> Tensor: ...
    def __mod__(self, other: Operand) -> Tensor: ...
    def __rmod__(self, other: Operand) -> Tensor: ...
    def __imod__(self, other: Operand) -> Tensor: ...
    def __pow__(self, other: Operand) -> Tensor: ...
    def __rpow__(self, other: Operand) -> Tensor: ...
    def __ipow__(self, other: Operand) -> Tensor: ...
    def __matmul__(self, other: Operand) -> Tensor: ...
    def __rmatmul__(self, other: Operand) -> Tensor: ...
    def __imatmul__(self, other: Operand) -> Tensor: ...
    def __and__(self, other: Operand) -> Tensor: ...
    def __rand__(self, other: Operand) -> Tensor: ...
    def __iand__(self, other: Operand) -> Tensor: ...
    def __or__(self, other: Operand) -> Tensor: ...
    def __ror__(self, other: Operand) -> Tensor: ...
    def __ior__(self, other: Operand) -> Tensor: ...
    def __xor__(self, other: Operand) -> Tensor: ...
    def __rxor__(self, other: Operand) -> Tensor: ...
    def __ixor__(self, other: Operand) -> Tensor: ...
    def __lshift__(self, other: Operand) -> Tensor: ...
    def __rlshift__(self, other: Operand) -> Tensor: ...
    def __ilshift__(self, other: Operand) -> Tensor: ...
    def __rshift__(self, other: Operand) -> Tensor: ...
    def __rrshift__(self, other: Operand) -> Tensor: ...
    def __irshift__(self, other: Operand) -> Tensor: ...
    def __lt__(self, other: Operand) -> Tensor: ...
    def __le__(self, other: Operand) -> Tensor: ...
    def __gt__(self, other: Operand) -> Tensor: ...
    def __ge__(self, other: Operand) -> Tensor: ...
    def __eq__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __getitem__(self, index: Index) -> Tensor: ...
    def __setitem__(self, index: Index, value: Operand) -> None: ...
    @property
    def H(self) -> Tensor:
        """The complex conjugate of `x` with its last two axes exchanged."""
    @property
    def T(self) -> Tensor:
        """`x` with its axes in reverse order (a matrix's transpose)."""
    def abs(self) -> Tensor:
        """The absolute value; for complex numbers the modulus."""
    def abs_(self) -> Tensor:
        """`abs`, in place: the result takes the place of this tensor's value."""
    def acos(self) -> Tensor:
        """The angle in [0, π] whose cosine is x."""
    def acos_(self) -> Tensor:
        """`acos`, in place: the result takes the place of this tensor's value."""
    def acosh(self) -> Tensor:
        """The inverse hyperbolic cosine."""
    def acosh_(self) -> Tensor:
        """`acosh`, in place: the result takes the place of this tensor's value."""
    def add(self, x2: Operand) -> Tensor:
        """`x1 + x2`, elementwise."""
    def add_(self, x2: Operand) -> Tensor:
        """`add`, in place: the result takes the place of this tensor's value."""
    def all(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Whether all elements over `axis` are true (non-zero)."""
    def allclose(
        self,
        x2: ArrayLike,
        /,
        rtol: builtins.float = 1e-05,
        atol: builtins.float = 1e-08,
        *,
        equal_nan: builtins.bool = False,
    ) -> Tensor:
        """Whether all elements are close (see `isclose`), as a 0-d bool tensor."""
    def angle(self) -> Tensor:
        """The phase of a complex number, in [-π, π]."""
    def any(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Whether at least one element over `axis` is true (non-zero)."""
    def argmax(self, axis: builtins.int | None = None, keepdims: builtins.bool = False) -> Tensor:
        """The index of the largest element along `axis` (of the flattened tensor by default); of equal
        ones the first.
        """
    def argmin(self, axis: builtins.int | None = None, keepdims: builtins.bool = False) -> Tensor:
        """The index of the smallest element along `axis` (of the flattened tensor by default); of equal
        ones the first.
        """
    def argsort(
        self,
        axis: builtins.int = -1,
        *,
        descending: builtins.bool = False,
        stable: builtins.bool = True,
    ) -> Tensor:
        """The indices that sort `x` along `axis`; equal elements keep their order."""
    def argwhere(self) -> Tensor:
        """The indices of the non-zero elements, one row per element."""
    def array_equal(self, x2: ArrayLike, /, *, equal_nan: builtins.bool = False) -> Tensor:
        """Whether two tensors have the same shape and equal elements, as a 0-d bool tensor."""
    def asin(self) -> Tensor:
        """The angle in [-π/2, π/2] whose sine is x."""
    def asin_(self) -> Tensor:
        """`asin`, in place: the result takes the place of this tensor's value."""
    def asinh(self) -> Tensor:
        """The inverse hyperbolic sine."""
    def asinh_(self) -> Tensor:
        """`asinh`, in place: the result takes the place of this tensor's value."""
    def astype(
        self,
        dtype: DTypeLike,
        /,
        *,
        copy: builtins.bool = False,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """`x` converted to `dtype`."""
    def atan(self) -> Tensor:
        """The angle in (-π/2, π/2) whose tangent is x."""
    def atan2(self, x2: Operand) -> Tensor:
        """The angle of the point (x2, x1), in [-π, π]."""
    def atan2_(self, x2: Operand) -> Tensor:
        """`atan2`, in place: the result takes the place of this tensor's value."""
    def atan_(self) -> Tensor:
        """`atan`, in place: the result takes the place of this tensor's value."""
    def atanh(self) -> Tensor:
        """The inverse hyperbolic tangent."""
    def atanh_(self) -> Tensor:
        """`atanh`, in place: the result takes the place of this tensor's value."""
    def bfloat16(self) -> Tensor:
        """`x` as bfloat16."""
    def bincount(self, weights: ArrayLike | None = None, minlength: builtins.int = 0) -> Tensor:
        """How often each of 0, 1, 2 … occurs in a vector of integers; with `weights`, their sum per value."""
    def bitwise_and(self, x2: Operand) -> Tensor:
        """The bits set in both."""
    def bitwise_and_(self, x2: Operand) -> Tensor:
        """`bitwise_and`, in place: the result takes the place of this tensor's value."""
    def bitwise_invert(self) -> Tensor:
        """All bits flipped; for bools, not."""
    def bitwise_invert_(self) -> Tensor:
        """`bitwise_invert`, in place: the result takes the place of this tensor's value."""
    def bitwise_left_shift(self, x2: Operand) -> Tensor:
        """x1 shifted left by x2 bits."""
    def bitwise_left_shift_(self, x2: Operand) -> Tensor:
        """`bitwise_left_shift`, in place: the result takes the place of this tensor's value."""
    def bitwise_or(self, x2: Operand) -> Tensor:
        """The bits set in either."""
    def bitwise_or_(self, x2: Operand) -> Tensor:
        """`bitwise_or`, in place: the result takes the place of this tensor's value."""
    def bitwise_right_shift(self, x2: Operand) -> Tensor:
        """x1 shifted right by x2 bits."""
    def bitwise_right_shift_(self, x2: Operand) -> Tensor:
        """`bitwise_right_shift`, in place: the result takes the place of this tensor's value."""
    def bitwise_xor(self, x2: Operand) -> Tensor:
        """The bits set in exactly one."""
    def bitwise_xor_(self, x2: Operand) -> Tensor:
        """`bitwise_xor`, in place: the result takes the place of this tensor's value."""
    def bool(self) -> Tensor:
        """`x` as bool."""
    def broadcast_to(self, shape: tuple[builtins.int, ...]) -> Tensor:
        """`x` repeated, without copying, to `shape`; a read-only view."""
    def ceil(self) -> Tensor:
        """The smallest integer that is not below x."""
    def ceil_(self) -> Tensor:
        """`ceil`, in place: the result takes the place of this tensor's value."""
    def chunk(self, chunks: builtins.int, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """`x` cut along `axis` into at most `chunks` pieces of equal size (the last may be smaller)."""
    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`x` limited to the interval [min, max]; either end may be None, a number or a tensor that
        broadcasts.
        """
    def clamp_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clip`, in place: the result takes the place of this tensor's value."""
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`x` limited to the interval [min, max]; either end may be None, a number or a tensor that
        broadcasts.
        """
    def clip_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clip`, in place: the result takes the place of this tensor's value."""
    def clone(self) -> Tensor:
        """A copy of `x` in memory of its own; gradients flow through."""
    def conj(self) -> Tensor:
        """The complex conjugate; real tensors are returned as they are."""
    def contiguous(self) -> Tensor:
        """`x` in C order: itself if it is so already, else a copy."""
    def copy(self) -> Tensor:
        """A copy of `x` in memory of its own; gradients flow through."""
    def copy_(self, source: Operand) -> Tensor:
        """Copy the elements of `source` (broadcast) into this tensor, in place."""
    def copysign(self, x2: Operand) -> Tensor:
        """The magnitude of x1 with the sign of x2."""
    def copysign_(self, x2: Operand) -> Tensor:
        """`copysign`, in place: the result takes the place of this tensor's value."""
    def cos(self) -> Tensor:
        """The cosine of x (radians)."""
    def cos_(self) -> Tensor:
        """`cos`, in place: the result takes the place of this tensor's value."""
    def cosh(self) -> Tensor:
        """The hyperbolic cosine."""
    def cosh_(self) -> Tensor:
        """`cosh`, in place: the result takes the place of this tensor's value."""
    def count_nonzero(
        self,
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
        keepdims: builtins.bool = False,
    ) -> Tensor:
        """How many elements over `axis` (all by default) are not zero."""
    def cpu(self) -> Tensor:
        """`x` itself: eager tensors live on the CPU."""
    def cross(self, x2: ArrayLike, /, *, axis: builtins.int = -1) -> Tensor:
        """The cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
    def cummax(self, axis: builtins.int | None = None) -> CumulativeExtreme:
        """The running maximum along `axis` and the index of the element it comes from (the latest of equal
        ones).
        """
    def cummin(self, axis: builtins.int | None = None) -> CumulativeExtreme:
        """The running minimum along `axis` and the index of the element it comes from (the latest of equal
        ones).
        """
    def cumprod(self, axis: builtins.int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """`cumulative_prod` under its short name."""
    def cumsum(self, axis: builtins.int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """`cumulative_sum` under its short name."""
    def cumulative_prod(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        include_initial: builtins.bool = False,
    ) -> Tensor:
        """The running product along `axis` (needed unless `x` is a vector); small integers are multiplied
        in 64 bits.
        """
    def cumulative_sum(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        include_initial: builtins.bool = False,
    ) -> Tensor:
        """The running sum along `axis` (needed unless `x` is a vector); small integers are summed in 64
        bits.
        """
    def diag(self, k: builtins.int = 0) -> Tensor:
        """A vector as the `k`-th diagonal of a square matrix, or the `k`-th diagonal of a matrix as a
        vector.
        """
    def diag_embed(self, *, offset: builtins.int = 0) -> Tensor:
        """Square matrices of zeros with the last axis of `x` on their `offset`-th diagonal."""
    def diagonal(self, *, offset: builtins.int = 0) -> Tensor:
        """The `offset`-th diagonal of a (stack of) matrices, as the last axis; a copy."""
    def diff(
        self,
        axis: builtins.int = -1,
        *,
        n: builtins.int = 1,
        prepend: ArrayLike | None = None,
        append: ArrayLike | None = None,
    ) -> Tensor:
        """The difference of neighbours along `axis`, taken `n` times; `prepend` and `append` are joined to
        `x` first.
        """
    def div(self, x2: Operand) -> Tensor:
        """`x1 / x2`, elementwise; integers become the default float."""
    def div_(self, x2: Operand) -> Tensor:
        """`divide`, in place: the result takes the place of this tensor's value."""
    def divide(self, x2: Operand) -> Tensor:
        """`x1 / x2`, elementwise; integers become the default float."""
    def divide_(self, x2: Operand) -> Tensor:
        """`divide`, in place: the result takes the place of this tensor's value."""
    def dot(self, x2: ArrayLike, /) -> Tensor:
        """The matrix product; leading axes are batches and broadcast; vectors are rows on the left,
        columns on the right.
        """
    def double(self) -> Tensor:
        """`x` as float64."""
    def equal(self, x2: Operand) -> Tensor:
        """`x1 == x2`, elementwise."""
    def equal_(self, x2: Operand) -> Tensor:
        """`equal`, in place: the result takes the place of this tensor's value."""
    def erf(self) -> Tensor:
        """The error function."""
    def erf_(self) -> Tensor:
        """`erf`, in place: the result takes the place of this tensor's value."""
    def erfc(self) -> Tensor:
        """The complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
    def erfc_(self) -> Tensor:
        """`erfc`, in place: the result takes the place of this tensor's value."""
    def exp(self) -> Tensor:
        """e to the power of x."""
    def exp2(self) -> Tensor:
        """2 to the power of x."""
    def exp2_(self) -> Tensor:
        """`exp2`, in place: the result takes the place of this tensor's value."""
    def exp_(self) -> Tensor:
        """`exp`, in place: the result takes the place of this tensor's value."""
    def expand(self, *shape: ShapeLike) -> Tensor:
        """PyTorch's expand: broadcast; -1 keeps a size."""
    def expand_as(self, other: ArrayLike) -> Tensor:
        """`x` broadcast to the shape of `other`."""
    def expand_dims(self, axis: builtins.int | tuple[builtins.int, ...] = 0) -> Tensor:
        """`x` with new axes of size 1 at `axis`; a view."""
    def expm1(self) -> Tensor:
        """exp(x) - 1, exact near zero."""
    def expm1_(self) -> Tensor:
        """`expm1`, in place: the result takes the place of this tensor's value."""
    def fill_(self, value: Operand) -> Tensor:
        """Set every element to `value`, in place."""
    def flatten(self, start_axis: builtins.int = 0, end_axis: builtins.int = -1) -> Tensor:
        """`x` with the axes from `start_axis` to `end_axis` joined into one."""
    def flip(self, axis: builtins.int | tuple[builtins.int, ...] | None = None) -> Tensor:
        """`x` with the order of elements along `axis` (all axes by default) reversed; a copy."""
    def fliplr(self) -> Tensor:
        """`x` with the order of its second axis reversed."""
    def flipud(self) -> Tensor:
        """`x` with the order of its first axis reversed."""
    def float(self) -> Tensor:
        """`x` as float32."""
    def floor(self) -> Tensor:
        """The largest integer that is not above x."""
    def floor_(self) -> Tensor:
        """`floor`, in place: the result takes the place of this tensor's value."""
    def floor_divide(self, x2: Operand) -> Tensor:
        """The floor of `x1 / x2`."""
    def floor_divide_(self, x2: Operand) -> Tensor:
        """`floor_divide`, in place: the result takes the place of this tensor's value."""
    def gather(self, axis: builtins.int, index: ArrayLike) -> Tensor:
        """PyTorch's gather: `out[i][j] = x[index[i][j]][j]` for axis 0."""
    def greater(self, x2: Operand) -> Tensor:
        """`x1 > x2`, elementwise."""
    def greater_(self, x2: Operand) -> Tensor:
        """`greater`, in place: the result takes the place of this tensor's value."""
    def greater_equal(self, x2: Operand) -> Tensor:
        """`x1 >= x2`, elementwise."""
    def greater_equal_(self, x2: Operand) -> Tensor:
        """`greater_equal`, in place: the result takes the place of this tensor's value."""
    def half(self) -> Tensor:
        """`x` as float16."""
    def histogram(
        self,
        bins: Any = 10,
        range: Any = None,
        *,
        weights: ArrayLike | None = None,
        density: builtins.bool = False,
    ) -> Histogram:
        """How many elements fall into each of `bins` (a number of equal bins, or the edges); the last bin
        includes its end.
        """
    def hypot(self, x2: Operand) -> Tensor:
        """sqrt(x1² + x2²) without overflow."""
    def hypot_(self, x2: Operand) -> Tensor:
        """`hypot`, in place: the result takes the place of this tensor's value."""
    @property
    def imag(self) -> Tensor:
        """The imaginary part (zeros for a real tensor)."""
    def imag_part(self) -> Tensor:
        """The imaginary part (zeros for a real tensor)."""
    def index_add(self, index: ArrayLike, source: ArrayLike, axis: builtins.int = 0) -> Tensor:
        """A copy of `x` with the slices of `source` added to the slices of `x` at `index` along `axis`."""
    def int(self) -> Tensor:
        """`x` as int32."""
    def isclose(
        self,
        x2: ArrayLike,
        /,
        rtol: builtins.float = 1e-05,
        atol: builtins.float = 1e-08,
        *,
        equal_nan: builtins.bool = False,
    ) -> Tensor:
        """Whether two values differ by at most `atol + rtol * abs(x2)`."""
    def isfinite(self) -> Tensor:
        """Whether x is neither infinite nor NaN."""
    def isfinite_(self) -> Tensor:
        """`isfinite`, in place: the result takes the place of this tensor's value."""
    def isin(self, x2: ArrayLike, /, *, invert: builtins.bool = False) -> Tensor:
        """Whether each element of `x1` is among the elements of `x2` (or is not, with `invert`)."""
    def isinf(self) -> Tensor:
        """Whether x is infinite."""
    def isinf_(self) -> Tensor:
        """`isinf`, in place: the result takes the place of this tensor's value."""
    def isnan(self) -> Tensor:
        """Whether x is not a number."""
    def isnan_(self) -> Tensor:
        """`isnan`, in place: the result takes the place of this tensor's value."""
    def kron(self, x2: ArrayLike, /) -> Tensor:
        """The Kronecker product: `x2` repeated for every element of `x1` and multiplied by it."""
    def kthvalue(
        self,
        k: builtins.int,
        axis: builtins.int = -1,
        *,
        keepdims: builtins.bool = False,
    ) -> KthValue:
        """The `k`-th smallest element along `axis` (counting from 1) and its index."""
    def lerp(self, end: ArrayLike, weight: Operand, /) -> Tensor:
        """`start + weight * (end - start)`: from `start` (weight 0) to `end` (weight 1) in a straight
        line.
        """
    def less(self, x2: Operand) -> Tensor:
        """`x1 < x2`, elementwise."""
    def less_(self, x2: Operand) -> Tensor:
        """`less`, in place: the result takes the place of this tensor's value."""
    def less_equal(self, x2: Operand) -> Tensor:
        """`x1 <= x2`, elementwise."""
    def less_equal_(self, x2: Operand) -> Tensor:
        """`less_equal`, in place: the result takes the place of this tensor's value."""
    def linear_recurrence(
        self,
        b: ArrayLike,
        /,
        axis: builtins.int = 0,
        reverse: builtins.bool = False,
    ) -> Tensor:
        """`h[i] = a[i] * h[i - 1] + b[i]` along `axis`, starting from zero (from the far end with
        `reverse`).
        """
    def log(self) -> Tensor:
        """The natural logarithm."""
    def log10(self) -> Tensor:
        """The logarithm to base 10."""
    def log10_(self) -> Tensor:
        """`log10`, in place: the result takes the place of this tensor's value."""
    def log1p(self) -> Tensor:
        """log(1 + x), exact near zero."""
    def log1p_(self) -> Tensor:
        """`log1p`, in place: the result takes the place of this tensor's value."""
    def log2(self) -> Tensor:
        """The logarithm to base 2."""
    def log2_(self) -> Tensor:
        """`log2`, in place: the result takes the place of this tensor's value."""
    def log_(self) -> Tensor:
        """`log`, in place: the result takes the place of this tensor's value."""
    def log_softmax(self, axis: builtins.int = -1) -> Tensor:
        """log(softmax(x)) along `axis`, numerically stable."""
    def logaddexp(self, x2: Operand) -> Tensor:
        """log(exp(x1) + exp(x2)), stable for large values."""
    def logaddexp_(self, x2: Operand) -> Tensor:
        """`logaddexp`, in place: the result takes the place of this tensor's value."""
    def logcumsumexp(self, axis: builtins.int | None = None) -> Tensor:
        """log of the running sum of exp(x) along `axis`, stable for large and small values."""
    def logical_and(self, x2: Operand) -> Tensor:
        """Whether both are true (non-zero)."""
    def logical_and_(self, x2: Operand) -> Tensor:
        """`logical_and`, in place: the result takes the place of this tensor's value."""
    def logical_not(self) -> Tensor:
        """Whether x is false (zero)."""
    def logical_not_(self) -> Tensor:
        """`logical_not`, in place: the result takes the place of this tensor's value."""
    def logical_or(self, x2: Operand) -> Tensor:
        """Whether at least one is true (non-zero)."""
    def logical_or_(self, x2: Operand) -> Tensor:
        """`logical_or`, in place: the result takes the place of this tensor's value."""
    def logical_xor(self, x2: Operand) -> Tensor:
        """Whether exactly one is true (non-zero)."""
    def logical_xor_(self, x2: Operand) -> Tensor:
        """`logical_xor`, in place: the result takes the place of this tensor's value."""
    def logsumexp(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """log(sum(exp(x))) over `axis`, stable for large values."""
    def long(self) -> Tensor:
        """`x` as int64."""
    @property
    def mT(self) -> Tensor:
        """`x` with its last two axes exchanged."""
    def make_complex(self, imag: ArrayLike) -> Tensor:
        """The complex tensor with these real and imaginary parts."""
    def masked_fill(self, mask: ArrayLike, value: Operand) -> Tensor:
        """`x` with `value` where `mask` is true."""
    def masked_fill_(self, mask: ArrayLike, value: Operand) -> Tensor:
        """`masked_fill`, in place: the result takes the place of this tensor's value."""
    def masked_select(self, mask: ArrayLike, /) -> Tensor:
        """The elements of `x` where `mask` is true, in row-major order, as a vector."""
    def matmul(self, x2: ArrayLike, /) -> Tensor:
        """The matrix product; leading axes are batches and broadcast; vectors are rows on the left,
        columns on the right.
        """
    def matrix_transpose(self) -> Tensor:
        """`x` with its last two axes exchanged; a view."""
    def max(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """The largest element over `axis` (all by default); NaN if one is NaN."""
    def maximum(self, x2: Operand) -> Tensor:
        """The larger of two values; NaN if one is NaN."""
    def maximum_(self, x2: Operand) -> Tensor:
        """`maximum`, in place: the result takes the place of this tensor's value."""
    def mean(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """The arithmetic mean over `axis` (all by default); integers become the default float."""
    def median(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """The middle element over `axis` (all by default) in order of size; the mean of the two middle
        ones if they are two.
        """
    def min(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """The smallest element over `axis` (all by default); NaN if one is NaN."""
    def minimum(self, x2: Operand) -> Tensor:
        """The smaller of two values; NaN if one is NaN."""
    def minimum_(self, x2: Operand) -> Tensor:
        """`minimum`, in place: the result takes the place of this tensor's value."""
    def mm(self, x2: ArrayLike, /) -> Tensor:
        """The matrix product; leading axes are batches and broadcast; vectors are rows on the left,
        columns on the right.
        """
    def moveaxis(self, source: Any, destination: Any, /) -> Tensor:
        """`x` with the axes `source` moved to the places `destination`; the others keep their order."""
    def mul(self, x2: Operand) -> Tensor:
        """`x1 * x2`, elementwise."""
    def mul_(self, x2: Operand) -> Tensor:
        """`multiply`, in place: the result takes the place of this tensor's value."""
    def multiply(self, x2: Operand) -> Tensor:
        """`x1 * x2`, elementwise."""
    def multiply_(self, x2: Operand) -> Tensor:
        """`multiply`, in place: the result takes the place of this tensor's value."""
    def nan_to_num(
        self,
        nan: builtins.float = 0.0,
        posinf: builtins.float | None = None,
        neginf: builtins.float | None = None,
    ) -> Tensor:
        """`x` with NaN and infinities replaced by numbers (0 and the largest and smallest finite ones by
        default).
        """
    def neg(self) -> Tensor:
        """`-x`, elementwise."""
    def neg_(self) -> Tensor:
        """`negative`, in place: the result takes the place of this tensor's value."""
    def negative(self) -> Tensor:
        """`-x`, elementwise."""
    def negative_(self) -> Tensor:
        """`negative`, in place: the result takes the place of this tensor's value."""
    def nextafter(self, x2: Operand) -> Tensor:
        """The next representable number after x1 in the direction of x2, in float32 or float64."""
    def nextafter_(self, x2: Operand) -> Tensor:
        """`nextafter`, in place: the result takes the place of this tensor's value."""
    def nonzero(self) -> tuple[Tensor, ...]:
        """The indices of the non-zero elements: one tensor per axis, in row-major order."""
    def not_equal(self, x2: Operand) -> Tensor:
        """`x1 != x2`, elementwise."""
    def not_equal_(self, x2: Operand) -> Tensor:
        """`not_equal`, in place: the result takes the place of this tensor's value."""
    def outer(self, x2: ArrayLike, /) -> Tensor:
        """The matrix of products of every element of the vector `x1` with every element of the vector
        `x2`.
        """
    def pad(self, pad_width: Any, mode: str = 'constant', value: builtins.float = 0) -> Tensor:
        """`x` with values around it."""
    def permute(self, *axes: ShapeLike) -> Tensor:
        """`x` with its axes in another order: `x.permute(2, 0, 1)` or `x.permute((2, 0, 1))`."""
    def permute_dims(self, axes: tuple[builtins.int, ...]) -> Tensor:
        """`x` with its axes in another order; a view."""
    def positive(self) -> Tensor:
        """`+x`: a copy of `x`."""
    def positive_(self) -> Tensor:
        """`positive`, in place: the result takes the place of this tensor's value."""
    def pow(self, x2: Operand) -> Tensor:
        """`x1 ** x2`, elementwise."""
    def pow_(self, x2: Operand) -> Tensor:
        """`pow`, in place: the result takes the place of this tensor's value."""
    def prod(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """The product of elements over `axis` (all by default)."""
    def quantile(
        self,
        q: Operand,
        *,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        method: str = 'linear',
    ) -> Tensor:
        """The values below which a share `q` (0 to 1, a number or a tensor) of the elements over `axis`
        lie.
        """
    def ravel(self) -> Tensor:
        """The elements of `x` as a vector, in row-major order."""
    @property
    def real(self) -> Tensor:
        """The real part."""
    def real_part(self) -> Tensor:
        """The real part."""
    def reciprocal(self) -> Tensor:
        """`1 / x`."""
    def reciprocal_(self) -> Tensor:
        """`reciprocal`, in place: the result takes the place of this tensor's value."""
    def relu(self) -> Tensor:
        """max(x, 0)."""
    def remainder(self, x2: Operand) -> Tensor:
        """The rest of the floor division `x1 // x2`; it has the sign of `x2`."""
    def remainder_(self, x2: Operand) -> Tensor:
        """`remainder`, in place: the result takes the place of this tensor's value."""
    def repeat(self, *repeats: ShapeLike) -> Tensor:
        """The whole tensor repeated along its axes: `[a, b]` becomes `[a, b, a, b]` for 2."""
    def repeat_interleave(
        self,
        repeats: builtins.int | ArrayLike,
        axis: builtins.int | None = None,
    ) -> Tensor:
        """Each element repeated in place: `[a, b]` becomes `[a, a, b, b]` for 2."""
    def reshape(self, *shape: ShapeLike) -> Tensor:
        """The elements of `x` in another shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    def reshape_as(self, like: ArrayLike) -> Tensor:
        """`x` with the shape of `like`; in a graph the shape may be known only at run time."""
    def roll(
        self,
        shift: builtins.int | tuple[builtins.int, ...],
        *,
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
    ) -> Tensor:
        """`x` with elements shifted along `axis` (the flattened tensor by default); what falls off comes
        back in front.
        """
    def round(self) -> Tensor:
        """The nearest integer; halves go to the even one."""
    def round_(self) -> Tensor:
        """`round`, in place: the result takes the place of this tensor's value."""
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
    def rsqrt_(self) -> Tensor:
        """`rsqrt`, in place: the result takes the place of this tensor's value."""
    def scatter(self, index: ArrayLike, src: ArrayLike, axis: builtins.int = 0) -> Tensor:
        """A copy of `x` with the elements at `index` along `axis` replaced by `src`; of repeated places
        one wins.
        """
    def scatter_add(self, index: ArrayLike, src: ArrayLike, axis: builtins.int = 0) -> Tensor:
        """A copy of `x` with `src` added at `index` along `axis`; repeated places add up."""
    def searchsorted(
        self,
        x2: ArrayLike | builtins.int | builtins.float,
        /,
        *,
        side: str = 'left',
        sorter: ArrayLike | None = None,
    ) -> Tensor:
        """Where the elements of `x2` (a tensor or a number) must be inserted into the sorted vector `x1`
        to keep it sorted.
        """
    def sigmoid(self) -> Tensor:
        """The logistic function 1 / (1 + exp(-x))."""
    def sigmoid_(self) -> Tensor:
        """`sigmoid`, in place: the result takes the place of this tensor's value."""
    def sign(self) -> Tensor:
        """-1, 0 or 1 by the sign of x; x / |x| for complex numbers; NaN stays NaN."""
    def sign_(self) -> Tensor:
        """`sign`, in place: the result takes the place of this tensor's value."""
    def signbit(self) -> Tensor:
        """Whether the sign bit of x is set (true for -0.0)."""
    def signbit_(self) -> Tensor:
        """`signbit`, in place: the result takes the place of this tensor's value."""
    def sin(self) -> Tensor:
        """The sine of x (radians)."""
    def sin_(self) -> Tensor:
        """`sin`, in place: the result takes the place of this tensor's value."""
    def sinh(self) -> Tensor:
        """The hyperbolic sine."""
    def sinh_(self) -> Tensor:
        """`sinh`, in place: the result takes the place of this tensor's value."""
    def softmax(self, axis: builtins.int = -1) -> Tensor:
        """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one."""
    def sort(
        self,
        axis: builtins.int = -1,
        *,
        descending: builtins.bool = False,
        stable: builtins.bool = True,
    ) -> Tensor:
        """The elements of `x` in ascending (or `descending`) order along `axis`; NaN counts as the
        largest.
        """
    def split(self, split_size_or_sections: Any, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """`x` cut along `axis` into pieces of a given size (the last may be smaller), or of given sizes."""
    def sqrt(self) -> Tensor:
        """The square root; NaN for negative real numbers."""
    def sqrt_(self) -> Tensor:
        """`sqrt`, in place: the result takes the place of this tensor's value."""
    def square(self) -> Tensor:
        """`x * x`."""
    def square_(self) -> Tensor:
        """`square`, in place: the result takes the place of this tensor's value."""
    def squeeze(self, axis: Axis = None) -> Tensor:
        """`x` without its axes of size 1 (all of them, or those in `axis`)."""
    def std(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        correction: builtins.int | builtins.float = 0.0,
    ) -> Tensor:
        """The standard deviation over `axis` (all by default): the square root of `var`."""
    def stop_gradient(self) -> Tensor:
        """`x` as a constant: no gradient flows through."""
    def sub(self, x2: Operand) -> Tensor:
        """`x1 - x2`, elementwise."""
    def sub_(self, x2: Operand) -> Tensor:
        """`subtract`, in place: the result takes the place of this tensor's value."""
    def subtract(self, x2: Operand) -> Tensor:
        """`x1 - x2`, elementwise."""
    def subtract_(self, x2: Operand) -> Tensor:
        """`subtract`, in place: the result takes the place of this tensor's value."""
    def sum(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """The sum of elements over `axis` (all by default)."""
    def swapaxes(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """`x` with two axes exchanged; a view."""
    def take(self, indices: ArrayLike, /, *, axis: builtins.int | None = None) -> Tensor:
        """Elements of `x` along `axis` at `indices`."""
    def take_along_axis(self, indices: ArrayLike, /, *, axis: builtins.int = -1) -> Tensor:
        """`out[i, j] = x[i, indices[i, j]]` for the last axis, and likewise for others."""
    def tan(self) -> Tensor:
        """The tangent of x (radians)."""
    def tan_(self) -> Tensor:
        """`tan`, in place: the result takes the place of this tensor's value."""
    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
    def tanh_(self) -> Tensor:
        """`tanh`, in place: the result takes the place of this tensor's value."""
    def tensordot(self, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
        """The sum over pairs of axes: the last `axes` of x1 with the first of x2, or the given (x1 axes,
        x2 axes).
        """
    def tile(self, *repeats: ShapeLike) -> Tensor:
        """The whole tensor repeated along its axes: `[a, b]` becomes `[a, b, a, b]` for 2."""
    def to(
        self,
        *args: Any,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        copy: builtins.bool = False,
    ) -> Tensor:
        """`x.to(wf.float64)`: cast; a device must be the CPU."""
    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
        """`x` on `device`; eager tensors live on the CPU."""
    def topk(
        self,
        k: builtins.int,
        axis: builtins.int = -1,
        *,
        largest: builtins.bool = True,
        sorted: builtins.bool = True,
    ) -> TopK:
        """The `k` largest elements along `axis` (the smallest with `largest=False`) and their indices, in
        order.
        """
    def trace(self, *, offset: builtins.int = 0, dtype: DTypeLike | None = None) -> Tensor:
        """The sum along the `offset`-th diagonal of a (stack of) matrices; small integers are summed in 64
        bits.
        """
    def transpose(self, *axes: builtins.int) -> Tensor:
        """`x.transpose(0, 1)` exchanges two axes, as in PyTorch; without arguments all axes are reversed,
        as in NumPy.
        """
    def tril(self, *, k: builtins.int = 0) -> Tensor:
        """The elements of a (stack of) matrices on and below the `k`-th diagonal; zero above."""
    def triu(self, *, k: builtins.int = 0) -> Tensor:
        """The elements of a (stack of) matrices on and above the `k`-th diagonal; zero below."""
    def trunc(self) -> Tensor:
        """x without its fraction."""
    def trunc_(self) -> Tensor:
        """`trunc`, in place: the result takes the place of this tensor's value."""
    def type(
        self,
        dtype: DTypeLike,
        /,
        *,
        copy: builtins.bool = False,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """`x` converted to `dtype`."""
    def unbind(self, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """The slices of `x` along `axis`, as a tuple."""
    def unflatten(self, axis: builtins.int, sizes: tuple[builtins.int, ...]) -> Tensor:
        """`x` with the axis `axis` split into several of `sizes`, one of which may be -1: the inverse of
        `flatten`.
        """
    def unique(self) -> Tensor:
        """The distinct values of `x`, in ascending order."""
    def unsqueeze(self, axis: builtins.int | tuple[builtins.int, ...] = 0) -> Tensor:
        """`x` with new axes of size 1 at `axis`; a view."""
    def unstack(self, *, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """The slices of `x` along `axis`, as views."""
    def var(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        correction: builtins.int | builtins.float = 0.0,
    ) -> Tensor:
        """The variance over `axis` (all by default): the mean squared distance from the mean."""
    def vecdot(self, x2: ArrayLike, /, *, axis: builtins.int = -1) -> Tensor:
        """The sum of `conj(x1) * x2` over `axis`."""
    def view(self, *shape: ShapeLike) -> Tensor:
        """The elements of `x` in another shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    def view_as(self, other: ArrayLike) -> Tensor:
        """`x` in the shape of `other`."""
    def where(self, x1: Operand, x2: Operand) -> Tensor:
        """`x1` where `condition` is true, else `x2`; the three broadcast together."""
    def where_(self, x1: Operand, x2: Operand) -> Tensor:
        """`where`, in place: the result takes the place of this tensor's value."""
    def zero_(self) -> Tensor:
        """Set every element to zero, in place."""
