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
        """The conjugate transpose of the last two axes."""
    @property
    def T(self) -> Tensor:
        """The tensor with its axes in reverse order (the transpose of a matrix)."""
    def abs(self) -> Tensor:
        """Absolute value; the modulus of complex numbers."""
    def abs_(self) -> Tensor:
        """`abs`, in place: replaces the value of this tensor."""
    def acos(self) -> Tensor:
        """Inverse cosine, in [0, π]."""
    def acos_(self) -> Tensor:
        """`acos`, in place: replaces the value of this tensor."""
    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""
    def acosh_(self) -> Tensor:
        """`acosh`, in place: replaces the value of this tensor."""
    def add(self, x2: Operand) -> Tensor:
        """`x1 + x2`, elementwise."""
    def add_(self, x2: Operand) -> Tensor:
        """`add`, in place: replaces the value of this tensor."""
    def all(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Whether all elements over `axis` (all by default) are true (non-zero)."""
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
        """Phase of complex numbers, in [-π, π]."""
    def any(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Whether any element over `axis` (all by default) is true (non-zero)."""
    def argmax(self, axis: builtins.int | None = None, keepdims: builtins.bool = False) -> Tensor:
        """Index of the maximum along `axis` (of the flattened tensor by default); the first of equal ones."""
    def argmin(self, axis: builtins.int | None = None, keepdims: builtins.bool = False) -> Tensor:
        """Index of the minimum along `axis` (of the flattened tensor by default); the first of equal ones."""
    def argsort(
        self,
        axis: builtins.int = -1,
        *,
        descending: builtins.bool = False,
        stable: builtins.bool = True,
    ) -> Tensor:
        """Indices that sort `x` along `axis`; the sort is stable."""
    def argwhere(self) -> Tensor:
        """Indices of the non-zero elements, one row per element."""
    def array_equal(self, x2: ArrayLike, /, *, equal_nan: builtins.bool = False) -> Tensor:
        """Whether two tensors have the same shape and equal elements, as a 0-d bool tensor."""
    def asin(self) -> Tensor:
        """Inverse sine, in [-π/2, π/2]."""
    def asin_(self) -> Tensor:
        """`asin`, in place: replaces the value of this tensor."""
    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""
    def asinh_(self) -> Tensor:
        """`asinh`, in place: replaces the value of this tensor."""
    def astype(
        self,
        dtype: DTypeLike,
        /,
        *,
        copy: builtins.bool = False,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """Convert `x` to `dtype`; returns `x` itself if nothing changes and `copy` is false."""
    def atan(self) -> Tensor:
        """Inverse tangent, in [-π/2, π/2]."""
    def atan2(self, x2: Operand) -> Tensor:
        """Angle of the point (x2, x1), in [-π, π]."""
    def atan2_(self, x2: Operand) -> Tensor:
        """`atan2`, in place: replaces the value of this tensor."""
    def atan_(self) -> Tensor:
        """`atan`, in place: replaces the value of this tensor."""
    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""
    def atanh_(self) -> Tensor:
        """`atanh`, in place: replaces the value of this tensor."""
    def bfloat16(self) -> Tensor:
        """`x` as bfloat16."""
    def bincount(self, weights: ArrayLike | None = None, minlength: builtins.int = 0) -> Tensor:
        """Count the occurrences of 0, 1, 2, … in a vector of integers."""
    def bitwise_and(self, x2: Operand) -> Tensor:
        """Bitwise and."""
    def bitwise_and_(self, x2: Operand) -> Tensor:
        """`bitwise_and`, in place: replaces the value of this tensor."""
    def bitwise_invert(self) -> Tensor:
        """Bitwise not; logical not for bools."""
    def bitwise_invert_(self) -> Tensor:
        """`bitwise_invert`, in place: replaces the value of this tensor."""
    def bitwise_left_shift(self, x2: Operand) -> Tensor:
        """x1 shifted left by x2 bits."""
    def bitwise_left_shift_(self, x2: Operand) -> Tensor:
        """`bitwise_left_shift`, in place: replaces the value of this tensor."""
    def bitwise_or(self, x2: Operand) -> Tensor:
        """Bitwise or."""
    def bitwise_or_(self, x2: Operand) -> Tensor:
        """`bitwise_or`, in place: replaces the value of this tensor."""
    def bitwise_right_shift(self, x2: Operand) -> Tensor:
        """x1 shifted right by x2 bits."""
    def bitwise_right_shift_(self, x2: Operand) -> Tensor:
        """`bitwise_right_shift`, in place: replaces the value of this tensor."""
    def bitwise_xor(self, x2: Operand) -> Tensor:
        """Bitwise exclusive or."""
    def bitwise_xor_(self, x2: Operand) -> Tensor:
        """`bitwise_xor`, in place: replaces the value of this tensor."""
    def bool(self) -> Tensor:
        """`x` as bool."""
    def broadcast_to(self, shape: tuple[builtins.int, ...]) -> Tensor:
        """Broadcast `x` to `shape`; a read-only view."""
    def ceil(self) -> Tensor:
        """Smallest integer not below x."""
    def ceil_(self) -> Tensor:
        """`ceil`, in place: replaces the value of this tensor."""
    def chunk(self, chunks: builtins.int, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split `x` along `axis` into at most `chunks` pieces of equal size (the last may be smaller);
        views.
        """
    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit `x` to the interval [min, max]."""
    def clamp_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clip`, in place: replaces the value of this tensor."""
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit `x` to the interval [min, max]."""
    def clip_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clip`, in place: replaces the value of this tensor."""
    def clone(self) -> Tensor:
        """Copy `x`; gradients flow through the copy."""
    def conj(self) -> Tensor:
        """Complex conjugate; real values are unchanged."""
    def contiguous(self) -> Tensor:
        """The tensor in row-major order: itself if contiguous, else a copy."""
    def copy(self) -> Tensor:
        """Copy `x`; gradients flow through the copy."""
    def copy_(self, source: Operand) -> Tensor:
        """Copy the elements of `source` (broadcast) into this tensor, in place."""
    def copysign(self, x2: Operand) -> Tensor:
        """Magnitude of x1 with the sign of x2."""
    def copysign_(self, x2: Operand) -> Tensor:
        """`copysign`, in place: replaces the value of this tensor."""
    def cos(self) -> Tensor:
        """Cosine of x in radians."""
    def cos_(self) -> Tensor:
        """`cos`, in place: replaces the value of this tensor."""
    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""
    def cosh_(self) -> Tensor:
        """`cosh`, in place: replaces the value of this tensor."""
    def count_nonzero(
        self,
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
        keepdims: builtins.bool = False,
    ) -> Tensor:
        """Number of non-zero elements over `axis` (all by default)."""
    def cpu(self) -> Tensor:
        """The tensor itself: eager tensors are on the CPU."""
    def cross(self, x2: ArrayLike, /, *, axis: builtins.int = -1) -> Tensor:
        """Cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
    def cummax(self, axis: builtins.int | None = None) -> CumulativeExtreme:
        """Cumulative maximum along `axis` and the index of each maximum (the last of equal ones)."""
    def cummin(self, axis: builtins.int | None = None) -> CumulativeExtreme:
        """Cumulative minimum along `axis` and the index of each minimum (the last of equal ones)."""
    def cumprod(self, axis: builtins.int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """Cumulative product along `axis`, which may be left out for a vector."""
    def cumsum(self, axis: builtins.int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """Cumulative sum along `axis`, which may be left out for a vector."""
    def cumulative_prod(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        include_initial: builtins.bool = False,
    ) -> Tensor:
        """Cumulative product along `axis`."""
    def cumulative_sum(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        include_initial: builtins.bool = False,
    ) -> Tensor:
        """Cumulative sum along `axis`."""
    def diag(self, k: builtins.int = 0) -> Tensor:
        """Matrix with the vector `x` on its `k`-th diagonal, or the `k`-th diagonal of the matrix `x`."""
    def diag_embed(self, *, offset: builtins.int = 0) -> Tensor:
        """Square matrices with the last axis of `x` on their `offset`-th diagonal and zeros elsewhere."""
    def diagonal(self, *, offset: builtins.int = 0) -> Tensor:
        """The `offset`-th diagonal of (batches of) matrices as the last axis; a copy."""
    def diff(
        self,
        axis: builtins.int = -1,
        *,
        n: builtins.int = 1,
        prepend: ArrayLike | None = None,
        append: ArrayLike | None = None,
    ) -> Tensor:
        """Differences of neighbouring elements along `axis`."""
    def div(self, x2: Operand) -> Tensor:
        """`x1 / x2`, elementwise; integers become the default float."""
    def div_(self, x2: Operand) -> Tensor:
        """`divide`, in place: replaces the value of this tensor."""
    def divide(self, x2: Operand) -> Tensor:
        """`x1 / x2`, elementwise; integers become the default float."""
    def divide_(self, x2: Operand) -> Tensor:
        """`divide`, in place: replaces the value of this tensor."""
    def dot(self, x2: ArrayLike, /) -> Tensor:
        """Matrix product; leading axes are batch axes and broadcast."""
    def double(self) -> Tensor:
        """`x` as float64."""
    def equal(self, x2: Operand) -> Tensor:
        """`x1 == x2`, elementwise."""
    def equal_(self, x2: Operand) -> Tensor:
        """`equal`, in place: replaces the value of this tensor."""
    def erf(self) -> Tensor:
        """Error function."""
    def erf_(self) -> Tensor:
        """`erf`, in place: replaces the value of this tensor."""
    def erfc(self) -> Tensor:
        """Complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
    def erfc_(self) -> Tensor:
        """`erfc`, in place: replaces the value of this tensor."""
    def exp(self) -> Tensor:
        """Exponential function e^x."""
    def exp2(self) -> Tensor:
        """2^x, elementwise."""
    def exp2_(self) -> Tensor:
        """`exp2`, in place: replaces the value of this tensor."""
    def exp_(self) -> Tensor:
        """`exp`, in place: replaces the value of this tensor."""
    def expand(self, *shape: ShapeLike) -> Tensor:
        """Broadcast to `shape`, as in PyTorch; -1 keeps a size."""
    def expand_as(self, other: ArrayLike) -> Tensor:
        """Broadcast to the shape of `other`."""
    def expand_dims(self, axis: builtins.int | tuple[builtins.int, ...] = 0) -> Tensor:
        """Insert axes of size 1 at the positions `axis` of the result; a view."""
    def expm1(self) -> Tensor:
        """exp(x) - 1, accurate near zero."""
    def expm1_(self) -> Tensor:
        """`expm1`, in place: replaces the value of this tensor."""
    def fill_(self, value: Operand) -> Tensor:
        """Set every element to `value`, in place."""
    def flatten(self, start_axis: builtins.int = 0, end_axis: builtins.int = -1) -> Tensor:
        """Join the axes from `start_axis` to `end_axis` into one."""
    def flip(self, axis: builtins.int | tuple[builtins.int, ...] | None = None) -> Tensor:
        """Reverse the order of elements along `axis` (all axes by default); a copy."""
    def fliplr(self) -> Tensor:
        """Reverse the order along the second axis."""
    def flipud(self) -> Tensor:
        """Reverse the order along the first axis."""
    def float(self) -> Tensor:
        """`x` as float32."""
    def floor(self) -> Tensor:
        """Largest integer not above x."""
    def floor_(self) -> Tensor:
        """`floor`, in place: replaces the value of this tensor."""
    def floor_divide(self, x2: Operand) -> Tensor:
        """Floor of `x1 / x2`; an integer divided by zero is 0, as in NumPy."""
    def floor_divide_(self, x2: Operand) -> Tensor:
        """`floor_divide`, in place: replaces the value of this tensor."""
    def gather(self, axis: builtins.int, index: ArrayLike) -> Tensor:
        """Gather elements along `axis`: `out[i][j] = x[index[i][j]][j]` for axis 0, as in PyTorch."""
    def greater(self, x2: Operand) -> Tensor:
        """`x1 > x2`, elementwise."""
    def greater_(self, x2: Operand) -> Tensor:
        """`greater`, in place: replaces the value of this tensor."""
    def greater_equal(self, x2: Operand) -> Tensor:
        """`x1 >= x2`, elementwise."""
    def greater_equal_(self, x2: Operand) -> Tensor:
        """`greater_equal`, in place: replaces the value of this tensor."""
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
        """Count the elements that fall into each bin."""
    def hypot(self, x2: Operand) -> Tensor:
        """sqrt(x1² + x2²) without overflow."""
    def hypot_(self, x2: Operand) -> Tensor:
        """`hypot`, in place: replaces the value of this tensor."""
    @property
    def imag(self) -> Tensor:
        """Imaginary part; zeros for a real tensor."""
    def imag_part(self) -> Tensor:
        """Imaginary part; zeros for a real tensor."""
    def index_add(self, index: ArrayLike, source: ArrayLike, axis: builtins.int = 0) -> Tensor:
        """Copy `x` and add the slices of `source` to the slices of `x` at `index` along `axis`."""
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
        """Whether elements differ by at most `atol + rtol * abs(x2)`."""
    def isfinite(self) -> Tensor:
        """Whether x is neither infinite nor NaN."""
    def isfinite_(self) -> Tensor:
        """`isfinite`, in place: replaces the value of this tensor."""
    def isin(self, x2: ArrayLike, /, *, invert: builtins.bool = False) -> Tensor:
        """Whether each element of `x1` is an element of `x2` (with `invert`, is not)."""
    def isinf(self) -> Tensor:
        """Whether x is infinite."""
    def isinf_(self) -> Tensor:
        """`isinf`, in place: replaces the value of this tensor."""
    def isnan(self) -> Tensor:
        """Whether x is NaN."""
    def isnan_(self) -> Tensor:
        """`isnan`, in place: replaces the value of this tensor."""
    def kron(self, x2: ArrayLike, /) -> Tensor:
        """Kronecker product: every element of `x1` multiplied by the whole of `x2`."""
    def kthvalue(
        self,
        k: builtins.int,
        axis: builtins.int = -1,
        *,
        keepdims: builtins.bool = False,
    ) -> KthValue:
        """The `k`-th smallest element along `axis` (counting from 1) and its index."""
    def lerp(self, end: ArrayLike, weight: Operand, /) -> Tensor:
        """Linear interpolation `start + weight * (end - start)`."""
    def less(self, x2: Operand) -> Tensor:
        """`x1 < x2`, elementwise."""
    def less_(self, x2: Operand) -> Tensor:
        """`less`, in place: replaces the value of this tensor."""
    def less_equal(self, x2: Operand) -> Tensor:
        """`x1 <= x2`, elementwise."""
    def less_equal_(self, x2: Operand) -> Tensor:
        """`less_equal`, in place: replaces the value of this tensor."""
    def linear_recurrence(
        self,
        b: ArrayLike,
        /,
        axis: builtins.int = 0,
        reverse: builtins.bool = False,
    ) -> Tensor:
        """Linear recurrence `h[i] = a[i] * h[i - 1] + b[i]` along `axis`, from zero; from the last element
        with `reverse`.
        """
    def log(self) -> Tensor:
        """Natural logarithm; NaN for negative real numbers."""
    def log10(self) -> Tensor:
        """Base-10 logarithm."""
    def log10_(self) -> Tensor:
        """`log10`, in place: replaces the value of this tensor."""
    def log1p(self) -> Tensor:
        """log(1 + x), accurate near zero."""
    def log1p_(self) -> Tensor:
        """`log1p`, in place: replaces the value of this tensor."""
    def log2(self) -> Tensor:
        """Base-2 logarithm."""
    def log2_(self) -> Tensor:
        """`log2`, in place: replaces the value of this tensor."""
    def log_(self) -> Tensor:
        """`log`, in place: replaces the value of this tensor."""
    def log_softmax(self, axis: builtins.int = -1) -> Tensor:
        """log(softmax(x)) along `axis`, numerically stable."""
    def logaddexp(self, x2: Operand) -> Tensor:
        """log(exp(x1) + exp(x2)), without overflow."""
    def logaddexp_(self, x2: Operand) -> Tensor:
        """`logaddexp`, in place: replaces the value of this tensor."""
    def logcumsumexp(self, axis: builtins.int | None = None) -> Tensor:
        """Logarithm of the cumulative sum of exp(x) along `axis`, without overflow."""
    def logical_and(self, x2: Operand) -> Tensor:
        """Logical and of truth values (non-zero is true)."""
    def logical_and_(self, x2: Operand) -> Tensor:
        """`logical_and`, in place: replaces the value of this tensor."""
    def logical_not(self) -> Tensor:
        """Logical not of truth values (non-zero is true)."""
    def logical_not_(self) -> Tensor:
        """`logical_not`, in place: replaces the value of this tensor."""
    def logical_or(self, x2: Operand) -> Tensor:
        """Logical or of truth values (non-zero is true)."""
    def logical_or_(self, x2: Operand) -> Tensor:
        """`logical_or`, in place: replaces the value of this tensor."""
    def logical_xor(self, x2: Operand) -> Tensor:
        """Logical exclusive or of truth values (non-zero is true)."""
    def logical_xor_(self, x2: Operand) -> Tensor:
        """`logical_xor`, in place: replaces the value of this tensor."""
    def logsumexp(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """log(sum(exp(x))) over `axis` (all by default), without overflow."""
    def long(self) -> Tensor:
        """`x` as int64."""
    @property
    def mT(self) -> Tensor:
        """The transpose of the last two axes."""
    def make_complex(self, imag: ArrayLike) -> Tensor:
        """Complex tensor with the given real and imaginary parts."""
    def masked_fill(self, mask: ArrayLike, value: Operand) -> Tensor:
        """Replace the elements of `x` where `mask` is true by `value`; 0 and 1 stand for False and True in
        a bool tensor.
        """
    def masked_fill_(self, mask: ArrayLike, value: Operand) -> Tensor:
        """`masked_fill`, in place: replaces the value of this tensor."""
    def masked_select(self, mask: ArrayLike, /) -> Tensor:
        """Elements of `x` where `mask` is true, as a vector in row-major order; the two broadcast."""
    def matmul(self, x2: ArrayLike, /) -> Tensor:
        """Matrix product; leading axes are batch axes and broadcast."""
    def matrix_transpose(self) -> Tensor:
        """Transpose the last two axes; a view."""
    def max(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Maximum over `axis` (all by default); NaN if any element is NaN."""
    def maximum(self, x2: Operand) -> Tensor:
        """Elementwise maximum; NaN if either value is NaN."""
    def maximum_(self, x2: Operand) -> Tensor:
        """`maximum`, in place: replaces the value of this tensor."""
    def mean(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """Arithmetic mean of the elements over `axis` (all by default); NaN if there are none."""
    def median(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Median over `axis` (all by default); the mean of the two middle elements of an even number."""
    def min(self, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
        """Minimum over `axis` (all by default); NaN if any element is NaN."""
    def minimum(self, x2: Operand) -> Tensor:
        """Elementwise minimum; NaN if either value is NaN."""
    def minimum_(self, x2: Operand) -> Tensor:
        """`minimum`, in place: replaces the value of this tensor."""
    def mm(self, x2: ArrayLike, /) -> Tensor:
        """Matrix product; leading axes are batch axes and broadcast."""
    def moveaxis(self, source: Any, destination: Any, /) -> Tensor:
        """Move the axes `source` to the positions `destination`; the others keep their order."""
    def mul(self, x2: Operand) -> Tensor:
        """`x1 * x2`, elementwise."""
    def mul_(self, x2: Operand) -> Tensor:
        """`multiply`, in place: replaces the value of this tensor."""
    def multiply(self, x2: Operand) -> Tensor:
        """`x1 * x2`, elementwise."""
    def multiply_(self, x2: Operand) -> Tensor:
        """`multiply`, in place: replaces the value of this tensor."""
    def nan_to_num(
        self,
        nan: builtins.float = 0.0,
        posinf: builtins.float | None = None,
        neginf: builtins.float | None = None,
    ) -> Tensor:
        """Replace NaN and infinities by finite numbers: 0 and the largest and smallest finite ones by
        default.
        """
    def neg(self) -> Tensor:
        """`-x`, elementwise."""
    def neg_(self) -> Tensor:
        """`negative`, in place: replaces the value of this tensor."""
    def negative(self) -> Tensor:
        """`-x`, elementwise."""
    def negative_(self) -> Tensor:
        """`negative`, in place: replaces the value of this tensor."""
    def nextafter(self, x2: Operand) -> Tensor:
        """Next representable number after x1 towards x2, in float32 or float64."""
    def nextafter_(self, x2: Operand) -> Tensor:
        """`nextafter`, in place: replaces the value of this tensor."""
    def nonzero(self) -> tuple[Tensor, ...]:
        """Indices of the non-zero elements, one tensor per axis, in row-major order."""
    def not_equal(self, x2: Operand) -> Tensor:
        """`x1 != x2`, elementwise."""
    def not_equal_(self, x2: Operand) -> Tensor:
        """`not_equal`, in place: replaces the value of this tensor."""
    def outer(self, x2: ArrayLike, /) -> Tensor:
        """Outer product of two vectors: `out[i, j] = x1[i] * x2[j]`."""
    def pad(self, pad_width: Any, mode: str = 'constant', value: builtins.float = 0) -> Tensor:
        """Pad a tensor on the sides of its axes."""
    def permute(self, *axes: ShapeLike) -> Tensor:
        """Permute the axes: `x.permute(2, 0, 1)` or `x.permute((2, 0, 1))`."""
    def permute_dims(self, axes: tuple[builtins.int, ...]) -> Tensor:
        """Permute the axes; a view."""
    def positive(self) -> Tensor:
        """`+x`: a copy of `x`."""
    def positive_(self) -> Tensor:
        """`positive`, in place: replaces the value of this tensor."""
    def pow(self, x2: Operand) -> Tensor:
        """`x1 ** x2`, elementwise."""
    def pow_(self, x2: Operand) -> Tensor:
        """`pow`, in place: replaces the value of this tensor."""
    def prod(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """Product of the elements over `axis` (all by default); small integers are multiplied in 64 bits."""
    def quantile(
        self,
        q: Operand,
        *,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        method: str = 'linear',
    ) -> Tensor:
        """Quantiles of the elements over `axis`; NaN if any element is NaN."""
    def ravel(self) -> Tensor:
        """Flatten to a vector, in row-major order."""
    @property
    def real(self) -> Tensor:
        """Real part."""
    def real_part(self) -> Tensor:
        """Real part."""
    def reciprocal(self) -> Tensor:
        """`1 / x`, elementwise."""
    def reciprocal_(self) -> Tensor:
        """`reciprocal`, in place: replaces the value of this tensor."""
    def relu(self) -> Tensor:
        """Rectified linear unit: max(x, 0)."""
    def remainder(self, x2: Operand) -> Tensor:
        """Remainder of the floor division `x1 // x2`, with the sign of `x2`; 0 for an integer divided by
        zero, as in NumPy.
        """
    def remainder_(self, x2: Operand) -> Tensor:
        """`remainder`, in place: replaces the value of this tensor."""
    def repeat(self, *repeats: ShapeLike) -> Tensor:
        """Repeat the whole tensor along its axes: `[a, b]` becomes `[a, b, a, b]` for 2."""
    def repeat_interleave(
        self,
        repeats: builtins.int | ArrayLike,
        axis: builtins.int | None = None,
    ) -> Tensor:
        """Repeat each element: `[a, b]` becomes `[a, a, b, b]` for 2."""
    def reshape(self, *shape: ShapeLike) -> Tensor:
        """Change the shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    def reshape_as(self, like: ArrayLike) -> Tensor:
        """Reshape to the shape of `like`, which in a graph may be known only at run time."""
    def roll(
        self,
        shift: builtins.int | tuple[builtins.int, ...],
        *,
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
    ) -> Tensor:
        """Shift elements along `axis` cyclically (the flattened tensor by default)."""
    def round(self) -> Tensor:
        """Round to the nearest integer, ties to even."""
    def round_(self) -> Tensor:
        """`round`, in place: replaces the value of this tensor."""
    def rsqrt(self) -> Tensor:
        """Reciprocal square root 1 / sqrt(x)."""
    def rsqrt_(self) -> Tensor:
        """`rsqrt`, in place: replaces the value of this tensor."""
    def scatter(self, index: ArrayLike, src: ArrayLike, axis: builtins.int = 0) -> Tensor:
        """Copy `x` and replace the elements at `index` along `axis` by `src`; of duplicate indices one
        wins.
        """
    def scatter_add(self, index: ArrayLike, src: ArrayLike, axis: builtins.int = 0) -> Tensor:
        """Copy `x` and add `src` at `index` along `axis`; duplicate indices accumulate."""
    def searchsorted(
        self,
        x2: ArrayLike | builtins.int | builtins.float,
        /,
        *,
        side: str = 'left',
        sorter: ArrayLike | None = None,
    ) -> Tensor:
        """Indices at which to insert `x2` into the sorted vector `x1` to keep it sorted."""
    def sigmoid(self) -> Tensor:
        """Logistic function 1 / (1 + exp(-x))."""
    def sigmoid_(self) -> Tensor:
        """`sigmoid`, in place: replaces the value of this tensor."""
    def sign(self) -> Tensor:
        """Sign of x: -1, 0 or 1; x / |x| for complex numbers; NaN for NaN."""
    def sign_(self) -> Tensor:
        """`sign`, in place: replaces the value of this tensor."""
    def signbit(self) -> Tensor:
        """Whether the sign bit of x is set (true for -0.0)."""
    def signbit_(self) -> Tensor:
        """`signbit`, in place: replaces the value of this tensor."""
    def sin(self) -> Tensor:
        """Sine of x in radians."""
    def sin_(self) -> Tensor:
        """`sin`, in place: replaces the value of this tensor."""
    def sinh(self) -> Tensor:
        """Hyperbolic sine."""
    def sinh_(self) -> Tensor:
        """`sinh`, in place: replaces the value of this tensor."""
    def softmax(self, axis: builtins.int = -1) -> Tensor:
        """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one."""
    def sort(
        self,
        axis: builtins.int = -1,
        *,
        descending: builtins.bool = False,
        stable: builtins.bool = True,
    ) -> Tensor:
        """Sort along `axis`, NaN last."""
    def split(self, split_size_or_sections: Any, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split `x` along `axis` into pieces; views."""
    def sqrt(self) -> Tensor:
        """Square root; NaN for negative real numbers."""
    def sqrt_(self) -> Tensor:
        """`sqrt`, in place: replaces the value of this tensor."""
    def square(self) -> Tensor:
        """`x * x`, elementwise."""
    def square_(self) -> Tensor:
        """`square`, in place: replaces the value of this tensor."""
    def squeeze(self, axis: Axis = None) -> Tensor:
        """Remove the axes of size 1 (all of them, or those in `axis`)."""
    def std(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        correction: builtins.int | builtins.float = 0.0,
    ) -> Tensor:
        """Standard deviation over `axis` (all by default): the square root of `var`."""
    def stop_gradient(self) -> Tensor:
        """Return `x` as a constant: no gradient flows through."""
    def sub(self, x2: Operand) -> Tensor:
        """`x1 - x2`, elementwise."""
    def sub_(self, x2: Operand) -> Tensor:
        """`subtract`, in place: replaces the value of this tensor."""
    def subtract(self, x2: Operand) -> Tensor:
        """`x1 - x2`, elementwise."""
    def subtract_(self, x2: Operand) -> Tensor:
        """`subtract`, in place: replaces the value of this tensor."""
    def sum(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """Sum of the elements over `axis`."""
    def swapaxes(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """Swap two axes; a view."""
    def take(self, indices: ArrayLike, /, *, axis: builtins.int | None = None) -> Tensor:
        """Take the slices of `x` along `axis` at `indices`."""
    def take_along_axis(self, indices: ArrayLike, /, *, axis: builtins.int = -1) -> Tensor:
        """Gather one element per index: `out[i, j] = x[i, indices[i, j]]` along the last axis, likewise
        for others.
        """
    def tan(self) -> Tensor:
        """Tangent of x in radians."""
    def tan_(self) -> Tensor:
        """`tan`, in place: replaces the value of this tensor."""
    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
    def tanh_(self) -> Tensor:
        """`tanh`, in place: replaces the value of this tensor."""
    def tensordot(self, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
        """Contract two tensors over pairs of axes."""
    def tile(self, *repeats: ShapeLike) -> Tensor:
        """Repeat the whole tensor along its axes: `[a, b]` becomes `[a, b, a, b]` for 2."""
    def to(
        self,
        *args: Any,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        copy: builtins.bool = False,
    ) -> Tensor:
        """Cast to a dtype; returns the tensor itself if nothing changes."""
    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
        """Move to `device`; only the CPU is supported for eager tensors."""
    def topk(
        self,
        k: builtins.int,
        axis: builtins.int = -1,
        *,
        largest: builtins.bool = True,
        sorted: builtins.bool = True,
    ) -> TopK:
        """The `k` largest elements along `axis` and their indices."""
    def trace(self, *, offset: builtins.int = 0, dtype: DTypeLike | None = None) -> Tensor:
        """Sum along the `offset`-th diagonal of (batches of) matrices; small integers are summed in 64
        bits.
        """
    def transpose(self, *axes: builtins.int) -> Tensor:
        """Swap two axes, as in PyTorch; without arguments reverse all axes, as in NumPy."""
    def tril(self, *, k: builtins.int = 0) -> Tensor:
        """Lower triangle of (batches of) matrices: zero above the `k`-th diagonal."""
    def triu(self, *, k: builtins.int = 0) -> Tensor:
        """Upper triangle of (batches of) matrices: zero below the `k`-th diagonal."""
    def trunc(self) -> Tensor:
        """Round towards zero."""
    def trunc_(self) -> Tensor:
        """`trunc`, in place: replaces the value of this tensor."""
    def type(
        self,
        dtype: DTypeLike,
        /,
        *,
        copy: builtins.bool = False,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """Convert `x` to `dtype`; returns `x` itself if nothing changes and `copy` is false."""
    def unbind(self, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split into slices along `axis`."""
    def unflatten(self, axis: builtins.int, sizes: tuple[builtins.int, ...]) -> Tensor:
        """Split one axis into several of the given `sizes`, one of which may be -1: the inverse of
        `flatten`.
        """
    def unique(self) -> Tensor:
        """Distinct values of `x`, ascending."""
    def unsqueeze(self, axis: builtins.int | tuple[builtins.int, ...] = 0) -> Tensor:
        """Insert axes of size 1 at the positions `axis` of the result; a view."""
    def unstack(self, *, axis: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split `x` into its slices along `axis`; views."""
    def var(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        correction: builtins.int | builtins.float = 0.0,
    ) -> Tensor:
        """Variance over `axis` (all by default): the mean squared deviation from the mean."""
    def vecdot(self, x2: ArrayLike, /, *, axis: builtins.int = -1) -> Tensor:
        """Sum of `conj(x1) * x2` over `axis`."""
    def view(self, *shape: ShapeLike) -> Tensor:
        """Change the shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    def view_as(self, other: ArrayLike) -> Tensor:
        """Reshape to the shape of `other`."""
    def where(self, x1: Operand, x2: Operand) -> Tensor:
        """Choose `x1` where `condition` is true and `x2` elsewhere; the three broadcast."""
    def where_(self, x1: Operand, x2: Operand) -> Tensor:
        """`where`, in place: replaces the value of this tensor."""
    def zero_(self) -> Tensor:
        """Set every element to zero, in place."""
