"""The operators and methods of Tensor that come from the op table.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

import builtins
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import overload
from .ops.aliases.statistics import MinMax as MinMax
from .ops.array.cumulative import CumulativeExtreme as CumulativeExtreme
from .ops.array.dialects import ValuesAndIndices as ValuesAndIndices
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
    def absolute(self) -> Tensor:
        """Absolute value; the modulus of complex numbers."""
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
    def addbmm(
        self,
        batch1: ArrayLike,
        batch2: ArrayLike,
        *,
        beta: builtins.float = 1,
        alpha: builtins.float = 1,
    ) -> Tensor:
        """`beta * x + alpha *` the sum of the products of two batches of matrices."""
    def addcdiv(self, tensor1: ArrayLike, tensor2: Operand, *, value: builtins.float = 1) -> Tensor:
        """`x + value * tensor1 / tensor2`."""
    def addcdiv_(self, tensor1: ArrayLike, tensor2: Operand, *, value: builtins.float = 1) -> Tensor:
        """`addcdiv`, in place: replaces the value of this tensor."""
    def addcmul(self, tensor1: ArrayLike, tensor2: Operand, *, value: builtins.float = 1) -> Tensor:
        """`x + value * tensor1 * tensor2`."""
    def addcmul_(self, tensor1: ArrayLike, tensor2: Operand, *, value: builtins.float = 1) -> Tensor:
        """`addcmul`, in place: replaces the value of this tensor."""
    def addmm(
        self,
        mat1: ArrayLike,
        mat2: ArrayLike,
        *,
        beta: builtins.float = 1,
        alpha: builtins.float = 1,
    ) -> Tensor:
        """`beta * x + alpha * (mat1 @ mat2)`."""
    def addmv(
        self,
        mat: ArrayLike,
        vec: ArrayLike,
        *,
        beta: builtins.float = 1,
        alpha: builtins.float = 1,
    ) -> Tensor:
        """`beta * x + alpha * (mat @ vec)`."""
    def addr(
        self,
        vec1: ArrayLike,
        vec2: ArrayLike,
        *,
        beta: builtins.float = 1,
        alpha: builtins.float = 1,
    ) -> Tensor:
        """`beta * x + alpha * outer(vec1, vec2)`."""
    def all(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
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
    def amax(self, dim: Axis = None, keepdim: builtins.bool = False) -> Tensor:
        """Maximum over an axis or several; ties share the gradient."""
    def amin(self, dim: Axis = None, keepdim: builtins.bool = False) -> Tensor:
        """Minimum over an axis or several; ties share the gradient."""
    def aminmax(self, *, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> MinMax:
        """Minimum and maximum over an axis, or of all elements."""
    def angle(self) -> Tensor:
        """Phase of complex numbers, in [-π, π]."""
    def any(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Whether any element over `axis` (all by default) is true (non-zero)."""
    def apply_(self, callable: Callable[[Any], Any]) -> Tensor:
        """Replace every element by what a Python function makes of it, in place."""
    def arccos(self) -> Tensor:
        """Inverse cosine, in [0, π]."""
    def arccosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""
    def arcsin(self) -> Tensor:
        """Inverse sine, in [-π/2, π/2]."""
    def arcsinh(self) -> Tensor:
        """Inverse hyperbolic sine."""
    def arctan(self) -> Tensor:
        """Inverse tangent, in [-π/2, π/2]."""
    def arctan2(self, x2: Operand) -> Tensor:
        """Angle of the point (x2, x1), in [-π, π]."""
    def arctanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""
    def argmax(
        self,
        axis: builtins.int | None = None,
        keepdims: builtins.bool = False,
        *,
        dim: builtins.int | None = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Index of the maximum along `axis` (of the flattened tensor by default); the first of equal ones."""
    def argmin(
        self,
        axis: builtins.int | None = None,
        keepdims: builtins.bool = False,
        *,
        dim: builtins.int | None = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Index of the minimum along `axis` (of the flattened tensor by default); the first of equal ones."""
    def argsort(
        self,
        axis: builtins.int = -1,
        descending: builtins.bool = False,
        *,
        stable: builtins.bool = True,
        dim: builtins.int = ...,
    ) -> Tensor:
        """Indices that sort `x` along `axis`; the sort is stable."""
    def argwhere(self) -> Tensor:
        """Indices of the non-zero elements, one row per element."""
    def array_equal(self, x2: ArrayLike, /, *, equal_nan: builtins.bool = False) -> Tensor:
        """Whether two tensors have the same shape and equal elements, as a 0-d bool tensor."""
    def as_strided(self, size: ShapeLike, stride: ShapeLike, storage_offset: builtins.int = 0) -> Tensor:
        """A copy of the elements of a contiguous tensor that a view with these strides would show."""
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
    def atleast_1d(self) -> Any:
        """Give numbers one axis."""
    def atleast_2d(self) -> Any:
        """Give numbers and vectors two axes: a vector becomes a row."""
    def atleast_3d(self) -> Any:
        """Give numbers, vectors and matrices three axes: a matrix gets a last one."""
    def baddbmm(
        self,
        batch1: ArrayLike,
        batch2: ArrayLike,
        *,
        beta: builtins.float = 1,
        alpha: builtins.float = 1,
    ) -> Tensor:
        """`beta * x + alpha * (batch1 @ batch2)` for batches of matrices."""
    def bernoulli(self, *, generator: Any = None) -> Tensor:
        """1 with the probability that each element says, else 0."""
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
    def bitwise_not(self) -> Tensor:
        """Bitwise not; logical not for bools."""
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
    def block_diag(self) -> Tensor:
        """A matrix with the given matrices along its diagonal."""
    def bmm(self, mat2: ArrayLike) -> Tensor:
        """The products of two batches of matrices."""
    def bool(self) -> Tensor:
        """`x` as bool."""
    def broadcast_tensors(self) -> tuple[Tensor, ...]:
        """The tensors broadcast to one shape."""
    def broadcast_to(self, shape: tuple[builtins.int, ...]) -> Tensor:
        """Broadcast `x` to `shape`; a read-only view."""
    def bucketize(self, boundaries: ArrayLike, *, right: builtins.bool = False) -> Tensor:
        """The number of the interval between `boundaries` (ascending) in which each element is."""
    def byte(self) -> Tensor:
        """`x` as uint8."""
    def cartesian_prod(self) -> Tensor:
        """All combinations of one element of each vector, a row each."""
    def cauchy_(
        self,
        median: builtins.float = 0.0,
        sigma: builtins.float = 1.0,
        *,
        generator: Any = None,
    ) -> Tensor:
        """Fill with numbers of the Cauchy distribution, in place."""
    def cdist(self, x2: ArrayLike, p: builtins.float = 2.0) -> Tensor:
        """The distances between all pairs of rows of two (batches of) matrices."""
    def cdouble(self) -> Tensor:
        """`x` as complex128."""
    def ceil(self) -> Tensor:
        """Smallest integer not below x."""
    def ceil_(self) -> Tensor:
        """`ceil`, in place: replaces the value of this tensor."""
    def cfloat(self) -> Tensor:
        """`x` as complex64."""
    def chain_matmul(self) -> Tensor:
        """The product of matrices, in the order that needs the fewest multiplications."""
    def char(self) -> Tensor:
        """`x` as int8."""
    def cholesky(self, upper: builtins.bool = False) -> Tensor:
        """The Cholesky factor of positive definite matrices: lower, or upper if asked for."""
    def cholesky_inverse(self, upper: builtins.bool = False) -> Tensor:
        """The inverse of a matrix from its Cholesky factor."""
    def cholesky_solve(self, factor: ArrayLike, upper: builtins.bool = False) -> Tensor:
        """Solve `A @ y = x` from the Cholesky factor of A."""
    def chunk(
        self,
        chunks: builtins.int,
        axis: builtins.int = 0,
        *,
        dim: builtins.int = ...,
    ) -> tuple[Tensor, ...]:
        """Split `x` along `axis` into at most `chunks` pieces of equal size (the last may be smaller);
        views.
        """
    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit `x` to the interval [min, max]."""
    def clamp_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clip`, in place: replaces the value of this tensor."""
    def clamp_max(self, max: Operand) -> Tensor:
        """Elements, but at most `max`."""
    def clamp_max_(self, max: Operand) -> Tensor:
        """`clamp_max`, in place: replaces the value of this tensor."""
    def clamp_min(self, min: Operand) -> Tensor:
        """Elements, but at least `min`."""
    def clamp_min_(self, min: Operand) -> Tensor:
        """`clamp_min`, in place: replaces the value of this tensor."""
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit `x` to the interval [min, max]."""
    def clip_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clip`, in place: replaces the value of this tensor."""
    def clone(self) -> Tensor:
        """Copy `x`; gradients flow through the copy."""
    def combinations(self, r: builtins.int = 2, with_replacement: builtins.bool = False) -> Tensor:
        """All ways to choose `r` elements of a vector, a row each."""
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
    def corrcoef(self) -> Tensor:
        """The correlation matrix of variables (rows) from observations (columns)."""
    def cos(self) -> Tensor:
        """Cosine of x in radians."""
    def cos_(self) -> Tensor:
        """`cos`, in place: replaces the value of this tensor."""
    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""
    def cosh_(self) -> Tensor:
        """`cosh`, in place: replaces the value of this tensor."""
    def cosine_similarity(self, x2: ArrayLike, dim: builtins.int = 1, eps: builtins.float = 1e-08) -> Tensor:
        """The cosine of the angles between vectors along `dim`."""
    def count_nonzero(
        self,
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
        keepdims: builtins.bool = False,
        *,
        dim: builtins.int | tuple[builtins.int, ...] | None = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Number of non-zero elements over `axis` (all by default)."""
    def cov(
        self,
        *,
        correction: builtins.int = 1,
        fweights: ArrayLike | None = None,
        aweights: ArrayLike | None = None,
    ) -> Tensor:
        """The covariance matrix of variables (rows) from observations (columns)."""
    def cpu(self) -> Tensor:
        """The tensor itself: eager tensors are on the CPU."""
    def cross(self, x2: ArrayLike, /, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
        """Cross product of vectors of 3 elements along `axis`; the other axes broadcast."""
    def cummax(
        self,
        axis: builtins.int | None = None,
        *,
        dim: builtins.int | None = ...,
    ) -> CumulativeExtreme:
        """Cumulative maximum along `axis` and the index of each maximum (the last of equal ones)."""
    def cummin(
        self,
        axis: builtins.int | None = None,
        *,
        dim: builtins.int | None = ...,
    ) -> CumulativeExtreme:
        """Cumulative minimum along `axis` and the index of each minimum (the last of equal ones)."""
    def cumprod(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        dim: builtins.int | None = ...,
    ) -> Tensor:
        """Cumulative product along `axis`, which may be left out for a vector."""
    def cumsum(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        dim: builtins.int | None = ...,
    ) -> Tensor:
        """Cumulative sum along `axis`, which may be left out for a vector."""
    def cumulative_prod(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        include_initial: builtins.bool = False,
        dim: builtins.int | None = ...,
    ) -> Tensor:
        """Cumulative product along `axis`."""
    def cumulative_sum(
        self,
        axis: builtins.int | None = None,
        *,
        dtype: DTypeLike | None = None,
        include_initial: builtins.bool = False,
        dim: builtins.int | None = ...,
    ) -> Tensor:
        """Cumulative sum along `axis`."""
    def cumulative_trapezoid(
        self,
        x: ArrayLike | None = None,
        *,
        dx: builtins.float = 1,
        dim: builtins.int = -1,
    ) -> Tensor:
        """The integrals up to each sample but the first, by the trapezoidal rule."""
    @property
    def data(self) -> Tensor:
        """The values without their history: a tensor that shares the memory and needs no gradients."""
    @data.setter
    def data(self, value: Tensor) -> None: ...
    def data_ptr(self) -> builtins.int:
        """The address of the first element."""
    def deg2rad(self) -> Tensor:
        """Degrees as radians."""
    def det(self) -> Tensor:
        """The determinants of (a batch of) square matrices."""
    def diag(self, k: builtins.int = 0) -> Tensor:
        """Matrix with the vector `x` on its `k`-th diagonal, or the `k`-th diagonal of the matrix `x`."""
    def diag_embed(
        self,
        offset: builtins.int = 0,
        dim1: builtins.int = -2,
        dim2: builtins.int = -1,
    ) -> Tensor:
        """Matrices with the last axis of `x` on a diagonal, in the axes `dim1` and `dim2` of the result."""
    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """A matrix with all elements of `x` on a diagonal."""
    def diagonal(self, *, offset: builtins.int = 0) -> Tensor:
        """The `offset`-th diagonal of (batches of) matrices as the last axis; a copy."""
    def diff(
        self,
        axis: builtins.int = -1,
        *,
        n: builtins.int = 1,
        prepend: ArrayLike | None = None,
        append: ArrayLike | None = None,
        dim: builtins.int = ...,
    ) -> Tensor:
        """Differences of neighbouring elements along `axis`."""
    def digamma(self) -> Tensor:
        """Derivative of `lgamma`; -inf at 0, NaN at negative integers."""
    def digamma_(self) -> Tensor:
        """`digamma`, in place: replaces the value of this tensor."""
    def dist(self, other: ArrayLike, p: builtins.float = 2) -> Tensor:
        """The `p`-norm of the difference."""
    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        """`x / other`, elementwise."""
    def div_(self, x2: Operand) -> Tensor:
        """`divide`, in place: replaces the value of this tensor."""
    def divide(self, x2: Operand) -> Tensor:
        """`x1 / x2`, elementwise; integers become the default float."""
    def divide_(self, x2: Operand) -> Tensor:
        """`divide`, in place: replaces the value of this tensor."""
    def dot(self, other: ArrayLike) -> Tensor:
        """The product of two vectors, or NumPy's `dot` of two tensors."""
    def double(self) -> Tensor:
        """`x` as float64."""
    def dsplit(self, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """`tensor_split` along the third axis."""
    def dynamic_partition(self, partitions: ArrayLike, num_partitions: builtins.int) -> tuple[Tensor, ...]:
        """Part the rows of `data` by number: part i has the rows whose entry in `partitions` is i, in
        their order.
        """
    def eq(self, x2: Operand) -> Tensor:
        """`x1 == x2`, elementwise."""
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
    def erfinv(self) -> Tensor:
        """Inverse of the error function; infinite at -1 and 1, NaN outside."""
    def erfinv_(self) -> Tensor:
        """`erfinv`, in place: replaces the value of this tensor."""
    def exp(self) -> Tensor:
        """Exponential function e^x."""
    def exp2(self) -> Tensor:
        """2^x, elementwise."""
    def exp2_(self) -> Tensor:
        """`exp2`, in place: replaces the value of this tensor."""
    def exp_(self) -> Tensor:
        """`exp`, in place: replaces the value of this tensor."""
    def expand(self, *shape: ShapeLike) -> Tensor:
        """Broadcast to `shape`; -1 keeps a size."""
    def expand_as(self, other: ArrayLike) -> Tensor:
        """Broadcast to the shape of `other`."""
    def expand_dims(
        self,
        axis: builtins.int | tuple[builtins.int, ...] = 0,
        *,
        dim: builtins.int | tuple[builtins.int, ...] = ...,
    ) -> Tensor:
        """Insert axes of size 1 at the positions `axis` of the result; a view."""
    def expm1(self) -> Tensor:
        """exp(x) - 1, accurate near zero."""
    def expm1_(self) -> Tensor:
        """`expm1`, in place: replaces the value of this tensor."""
    def exponential_(self, lambd: builtins.float = 1.0, *, generator: Any = None) -> Tensor:
        """Fill with numbers of the exponential distribution, in place."""
    def fill_(self, value: Operand) -> Tensor:
        """Set every element to `value`, in place."""
    def fill_diagonal_(self, fill_value: Operand, wrap: builtins.bool = False) -> Tensor:
        """Fill the main diagonal of a matrix, in place; `wrap` starts again below a tall one."""
    def fix(self) -> Tensor:
        """Round towards zero."""
    def flatten(self, start_axis: builtins.int = 0, end_axis: builtins.int = -1) -> Tensor:
        """Join the axes from `start_axis` to `end_axis` into one."""
    def flip(
        self,
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
        *,
        dim: builtins.int | tuple[builtins.int, ...] | None = ...,
    ) -> Tensor:
        """Reverse the order of elements along `axis` (all axes by default); a copy."""
    def fliplr(self) -> Tensor:
        """Reverse the order of the columns."""
    def flipud(self) -> Tensor:
        """Reverse the order of the rows."""
    def float(self) -> Tensor:
        """`x` as float32."""
    def float_power(self, exponent: Operand) -> Tensor:
        """`x ** exponent` in float64."""
    def floor(self) -> Tensor:
        """Largest integer not above x."""
    def floor_(self) -> Tensor:
        """`floor`, in place: replaces the value of this tensor."""
    def floor_divide(self, x2: Operand) -> Tensor:
        """Floor of `x1 / x2`; an integer divided by zero is 0, as in NumPy."""
    def floor_divide_(self, x2: Operand) -> Tensor:
        """`floor_divide`, in place: replaces the value of this tensor."""
    def fmax(self, other: ArrayLike) -> Tensor:
        """The larger of two elements; a number wins against NaN."""
    def fmin(self, other: ArrayLike) -> Tensor:
        """The smaller of two elements; a number wins against NaN."""
    def fmod(self, other: Operand) -> Tensor:
        """The rest of a division rounded towards zero: it has the sign of `x`."""
    def fmod_(self, other: Operand) -> Tensor:
        """`fmod`, in place: replaces the value of this tensor."""
    def frac(self) -> Tensor:
        """What is behind the point, with the sign of `x`."""
    def frac_(self) -> Tensor:
        """`frac`, in place: replaces the value of this tensor."""
    def frexp(self) -> tuple[Tensor, Tensor]:
        """Mantissas between 0.5 and 1 and exponents of 2, so that `x = mantissa * 2 ** exponent`."""
    def gather(self, axis: builtins.int, index: ArrayLike) -> Tensor:
        """Gather elements along `axis`: `out[i][j] = x[index[i][j]][j]` for axis 0, as in PyTorch."""
    def gcd(self, other: ArrayLike) -> Tensor:
        """The greatest common divisor of integers."""
    def ge(self, x2: Operand) -> Tensor:
        """`x1 >= x2`, elementwise."""
    def geometric_(self, p: builtins.float, *, generator: Any = None) -> Tensor:
        """Fill with numbers of trials up to the first success, of probability `p`, in place."""
    def ger(self, vec2: ArrayLike) -> Tensor:
        """`outer`."""
    def get_device(self) -> builtins.int:
        """-1: the tensor is in the memory of the CPU."""
    def gradient(self, *, spacing: builtins.float = 1, dim: Axis = None, edge_order: builtins.int = 1) -> Any:
        """Derivatives from samples on a grid by central differences, one-sided at the edges."""
    def greater(self, x2: Operand) -> Tensor:
        """`x1 > x2`, elementwise."""
    def greater_(self, x2: Operand) -> Tensor:
        """`greater`, in place: replaces the value of this tensor."""
    def greater_equal(self, x2: Operand) -> Tensor:
        """`x1 >= x2`, elementwise."""
    def greater_equal_(self, x2: Operand) -> Tensor:
        """`greater_equal`, in place: replaces the value of this tensor."""
    def gt(self, x2: Operand) -> Tensor:
        """`x1 > x2`, elementwise."""
    def half(self) -> Tensor:
        """`x` as float16."""
    def heaviside(self, values: ArrayLike) -> Tensor:
        """0 for negative numbers, 1 for positive ones, `values` at zero."""
    def heaviside_(self, values: ArrayLike) -> Tensor:
        """`heaviside`, in place: replaces the value of this tensor."""
    def histc(self, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
        """How many elements are in each of `bins` equal intervals between `min` and `max` (by default
        those of `x`).
        """
    def histogram(
        self,
        bins: Any = 10,
        range: Any = None,
        *,
        weights: ArrayLike | None = None,
        density: builtins.bool = False,
    ) -> Histogram:
        """Count the elements that fall into each bin."""
    def hsplit(self, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """`tensor_split` along the second axis, for a vector along the first."""
    def hypot(self, x2: Operand) -> Tensor:
        """sqrt(x1² + x2²) without overflow."""
    def hypot_(self, x2: Operand) -> Tensor:
        """`hypot`, in place: replaces the value of this tensor."""
    def i0(self) -> Tensor:
        """Modified Bessel function of the first kind, order 0."""
    def i0_(self) -> Tensor:
        """`i0`, in place: replaces the value of this tensor."""
    def igamma(self, other: ArrayLike) -> Tensor:
        """The regularized lower incomplete gamma function P(x, other)."""
    def igammac(self, other: ArrayLike) -> Tensor:
        """The regularized upper incomplete gamma function Q(x, other)."""
    @property
    def imag(self) -> Tensor:
        """Imaginary part; zeros for a real tensor."""
    def imag_part(self) -> Tensor:
        """Imaginary part; zeros for a real tensor."""
    def index_add(
        self,
        dim: Any,
        index: Any = None,
        source: Any = None,
        *,
        alpha: builtins.float = 1,
        axis: builtins.int | None = None,
    ) -> Tensor:
        """A copy of `x` to which the slices of `source`, times `alpha`, are added at `index` along `dim`."""
    def index_add_(
        self,
        dim: Any,
        index: Any = None,
        source: Any = None,
        *,
        alpha: builtins.float = 1,
        axis: builtins.int | None = None,
    ) -> Tensor:
        """`index_add`, in place: replaces the value of this tensor."""
    def index_copy(self, dim: builtins.int, index: ArrayLike, source: ArrayLike) -> Tensor:
        """A copy of `x` with the slices of `source` at `index` along `dim`."""
    def index_copy_(self, dim: builtins.int, index: ArrayLike, source: ArrayLike) -> Tensor:
        """`index_copy`, in place: replaces the value of this tensor."""
    def index_fill(self, dim: builtins.int, index: ArrayLike, value: Operand) -> Tensor:
        """A copy of `x` whose slices at `index` along `dim` are filled with `value`."""
    def index_fill_(self, dim: builtins.int, index: ArrayLike, value: Operand) -> Tensor:
        """`index_fill`, in place: replaces the value of this tensor."""
    def index_put(self, indices: Any, values: ArrayLike, accumulate: builtins.bool = False) -> Tensor:
        """A copy of `x` with `x[indices] = values`, or with `values` added there."""
    def index_put_(self, indices: Any, values: ArrayLike, accumulate: builtins.bool = False) -> Tensor:
        """`index_put`, in place: replaces the value of this tensor."""
    def index_select(self, dim: builtins.int, index: ArrayLike) -> Tensor:
        """The slices of `x` along `dim` with the numbers in `index`."""
    def inner(self, other: ArrayLike) -> Tensor:
        """Sums of products over the last axes of both."""
    def int(self) -> Tensor:
        """`x` as int32."""
    def inverse(self) -> Tensor:
        """The inverses of (a batch of) square matrices."""
    @property
    def is_cuda(self) -> builtins.bool:
        """False: tensors are in the memory of the CPU."""
    @property
    def is_sparse(self) -> builtins.bool:
        """False: sparse tensors are of another class, see `weft.sparse`."""
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
    def isneginf(self) -> Tensor:
        """Whether elements are negative infinity."""
    def isposinf(self) -> Tensor:
        """Whether elements are positive infinity."""
    def isreal(self) -> Tensor:
        """Whether elements have no imaginary part."""
    def kron(self, other: ArrayLike) -> Tensor:
        """The Kronecker product."""
    def kthvalue(
        self,
        k: builtins.int,
        axis: builtins.int = -1,
        keepdims: builtins.bool = False,
        *,
        dim: builtins.int = ...,
        keepdim: builtins.bool = ...,
    ) -> KthValue:
        """The `k`-th smallest element along `axis` (counting from 1) and its index."""
    @property
    def layout(self) -> str:
        """How elements are stored: always "strided"."""
    def lcm(self, other: ArrayLike) -> Tensor:
        """The least common multiple of integers."""
    def ldexp(self, other: Operand) -> Tensor:
        """`x * 2 ** other`."""
    def le(self, x2: Operand) -> Tensor:
        """`x1 <= x2`, elementwise."""
    def lerp(self, end: ArrayLike, weight: Operand, /) -> Tensor:
        """Linear interpolation `start + weight * (end - start)`."""
    def lerp_(self, end: ArrayLike, weight: Operand, /) -> Tensor:
        """`lerp`, in place: replaces the value of this tensor."""
    def less(self, x2: Operand) -> Tensor:
        """`x1 < x2`, elementwise."""
    def less_(self, x2: Operand) -> Tensor:
        """`less`, in place: replaces the value of this tensor."""
    def less_equal(self, x2: Operand) -> Tensor:
        """`x1 <= x2`, elementwise."""
    def less_equal_(self, x2: Operand) -> Tensor:
        """`less_equal`, in place: replaces the value of this tensor."""
    def lgamma(self) -> Tensor:
        """Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 …"""
    def lgamma_(self) -> Tensor:
        """`lgamma`, in place: replaces the value of this tensor."""
    def linear_recurrence(
        self,
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
    def log_normal_(
        self,
        mean: builtins.float = 1.0,
        std: builtins.float = 2.0,
        *,
        generator: Any = None,
    ) -> Tensor:
        """Fill with numbers whose logarithms are normal, in place."""
    def log_softmax(self, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
        """log(softmax(x)) along `axis`, numerically stable."""
    def logaddexp(self, x2: Operand) -> Tensor:
        """log(exp(x1) + exp(x2)), without overflow."""
    def logaddexp2(self, other: ArrayLike) -> Tensor:
        """`log2(2 ** x + 2 ** other)`."""
    def logaddexp_(self, x2: Operand) -> Tensor:
        """`logaddexp`, in place: replaces the value of this tensor."""
    def logcumsumexp(self, axis: builtins.int | None = None, *, dim: builtins.int | None = ...) -> Tensor:
        """Logarithm of the cumulative sum of exp(x) along `axis`, without overflow."""
    def logdet(self) -> Tensor:
        """The logarithms of determinants; NaN for negative ones."""
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
    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """log(x / (1 - x)): the inverse of `sigmoid`."""
    def logsumexp(
        self,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """log(sum(exp(x))) over `axis` (all by default), without overflow."""
    def long(self) -> Tensor:
        """`x` as int64."""
    def lt(self, x2: Operand) -> Tensor:
        """`x1 < x2`, elementwise."""
    @property
    def mH(self) -> Tensor:
        """The conjugate transpose of the last two axes."""
    @property
    def mT(self) -> Tensor:
        """The transpose of the last two axes."""
    def make_complex(self, imag: ArrayLike) -> Tensor:
        """Complex tensor with the given real and imaginary parts."""
    def map_(self, other: ArrayLike, callable: Callable[[Any, Any], Any]) -> Tensor:
        """Replace every element by what a Python function makes of it and that of `other`, in place."""
    def masked_fill(self, mask: ArrayLike, value: Operand) -> Tensor:
        """Replace the elements of `x` where `mask` is true by `value`; 0 and 1 stand for False and True in
        a bool tensor.
        """
    def masked_fill_(self, mask: ArrayLike, value: Operand) -> Tensor:
        """`masked_fill`, in place: replaces the value of this tensor."""
    def masked_scatter(self, mask: ArrayLike, source: ArrayLike) -> Tensor:
        """A copy of `x` with the first elements of `source` where `mask` is True, in row-major order."""
    def masked_scatter_(self, mask: ArrayLike, source: ArrayLike) -> Tensor:
        """`masked_scatter`, in place: replaces the value of this tensor."""
    def masked_select(self, mask: ArrayLike, /) -> Tensor:
        """Elements of `x` where `mask` is true, as a vector in row-major order; the two broadcast."""
    def matmul(self, x2: ArrayLike, /) -> Tensor:
        """Matrix product; leading axes are batch axes and broadcast."""
    def matrix_power(self, n: builtins.int) -> Tensor:
        """Square matrices multiplied `n` times by themselves."""
    def matrix_transpose(self) -> Tensor:
        """Transpose the last two axes; a view."""
    @overload
    def max(
        self,
        other: ArrayLike | builtins.int | None = None,
        /,
        *,
        axis: Axis = None,
        keepdims: builtins.bool = False,
    ) -> Tensor:
        """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or
        of two tensors.
        """
    @overload
    def max(self, /, *, dim: builtins.int, keepdim: builtins.bool | None = None) -> ValuesAndIndices:
        """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or
        of two tensors.
        """
    @overload
    def max(self, other: builtins.int, /, *, keepdim: builtins.bool) -> ValuesAndIndices:
        """Maximum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or
        of two tensors.
        """
    def maximum(self, x2: Operand) -> Tensor:
        """Elementwise maximum; NaN if either value is NaN."""
    def maximum_(self, x2: Operand) -> Tensor:
        """`maximum`, in place: replaces the value of this tensor."""
    def mean(
        self,
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
        self,
        position: builtins.int | None = None,
        /,
        *,
        axis: Axis = None,
        keepdims: builtins.bool = False,
    ) -> Tensor:
        """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch."""
    @overload
    def median(self, /, *, dim: builtins.int, keepdim: builtins.bool | None = None) -> ValuesAndIndices:
        """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch."""
    @overload
    def median(self, position: builtins.int, /, *, keepdim: builtins.bool) -> ValuesAndIndices:
        """Median of the elements: over `axis` as in NumPy, or along `dim` with its indices as in PyTorch."""
    @overload
    def min(
        self,
        other: ArrayLike | builtins.int | None = None,
        /,
        *,
        axis: Axis = None,
        keepdims: builtins.bool = False,
    ) -> Tensor:
        """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or
        of two tensors.
        """
    @overload
    def min(self, /, *, dim: builtins.int, keepdim: builtins.bool | None = None) -> ValuesAndIndices:
        """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or
        of two tensors.
        """
    @overload
    def min(self, other: builtins.int, /, *, keepdim: builtins.bool) -> ValuesAndIndices:
        """Minimum of the elements: over `axis` as in NumPy, along `dim` with its indices as in PyTorch, or
        of two tensors.
        """
    def minimum(self, x2: Operand) -> Tensor:
        """Elementwise minimum; NaN if either value is NaN."""
    def minimum_(self, x2: Operand) -> Tensor:
        """`minimum`, in place: replaces the value of this tensor."""
    def mm(self, mat2: ArrayLike) -> Tensor:
        """The product of two matrices."""
    def mode(self, dim: builtins.int = -1, keepdim: builtins.bool = False) -> ValuesAndIndices:
        """The most frequent element along `dim`, the smallest of several, and the index of its last
        occurrence.
        """
    def moveaxis(self, source: Any, destination: Any, /) -> Tensor:
        """Move the axes `source` to the positions `destination`; the others keep their order."""
    def movedim(self, source: Any, destination: Any) -> Tensor:
        """Move axes to other places; the others keep their order."""
    def msort(self) -> Tensor:
        """Sort along the first axis."""
    def mul(self, x2: Operand) -> Tensor:
        """`x1 * x2`, elementwise."""
    def mul_(self, x2: Operand) -> Tensor:
        """`multiply`, in place: replaces the value of this tensor."""
    def multiply(self, x2: Operand) -> Tensor:
        """`x1 * x2`, elementwise."""
    def multiply_(self, x2: Operand) -> Tensor:
        """`multiply`, in place: replaces the value of this tensor."""
    def mv(self, vec: ArrayLike) -> Tensor:
        """The product of a matrix and a vector."""
    def mvlgamma(self, p: builtins.int) -> Tensor:
        """Logarithm of the multivariate gamma function of dimension `p`, for x > (p - 1) / 2."""
    def nan_to_num(
        self,
        nan: builtins.float = 0.0,
        posinf: builtins.float | None = None,
        neginf: builtins.float | None = None,
    ) -> Tensor:
        """Replace NaN and infinities by finite numbers: 0 and the largest and smallest finite ones by
        default.
        """
    def nanmean(self, dim: Axis = None, keepdim: builtins.bool = False) -> Tensor:
        """The mean of the elements that are not NaN."""
    def nanmedian(self, axis: builtins.int | None = None, *, dim: builtins.int | None = ...) -> Tensor:
        """The median of the elements that are not NaN; of an even number the mean of the middle two, as in
        NumPy.
        """
    def nanquantile(
        self,
        q: Operand,
        dim: builtins.int | None = None,
        keepdim: builtins.bool = False,
    ) -> Tensor:
        """Quantiles of the elements that are not NaN, with linear interpolation."""
    def nanstd(
        self,
        axis: Axis = None,
        *,
        correction: builtins.float = 0,
        keepdims: builtins.bool = False,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """The standard deviation of the elements that are not NaN, over `axis`."""
    def nansum(self, dim: Axis = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """The sum of the elements that are not NaN."""
    def nanvar(
        self,
        axis: Axis = None,
        *,
        correction: builtins.float = 0,
        keepdims: builtins.bool = False,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """The variance of the elements that are not NaN, over `axis`."""
    def narrow(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """The `length` slices from `start` on along `dim`; a view."""
    def ndimension(self) -> builtins.int:
        """The number of axes."""
    def ne(self, x2: Operand) -> Tensor:
        """`x1 != x2`, elementwise."""
    def neg(self) -> Tensor:
        """`-x`, elementwise."""
    def neg_(self) -> Tensor:
        """`negative`, in place: replaces the value of this tensor."""
    def negative(self) -> Tensor:
        """`-x`, elementwise."""
    def negative_(self) -> Tensor:
        """`negative`, in place: replaces the value of this tensor."""
    def nelement(self) -> builtins.int:
        """The number of elements."""
    def new_empty(
        self,
        *size: ShapeLike,
        dtype: DTypeLike | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """A tensor of a shape with any values, in the dtype of `x`."""
    def new_full(self, size: ShapeLike, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
        """A tensor of a shape filled with a value, in the dtype of `x`."""
    def new_ones(
        self,
        *size: ShapeLike,
        dtype: DTypeLike | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Ones of a shape, in the dtype of `x`."""
    def new_tensor(
        self,
        data: Any,
        dtype: DTypeLike | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """A tensor made of `data`, in the dtype of `x`."""
    def new_zeros(
        self,
        *size: ShapeLike,
        dtype: DTypeLike | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Zeros of a shape, in the dtype of `x`."""
    def nextafter(self, x2: Operand) -> Tensor:
        """Next representable number after x1 towards x2, in float32 or float64."""
    def nextafter_(self, x2: Operand) -> Tensor:
        """`nextafter`, in place: replaces the value of this tensor."""
    def nonzero(self, *, as_tuple: builtins.bool = True) -> Any:
        """Indices of the elements that are not zero: one tensor per axis, or a matrix with a row per
        element.
        """
    def norm(
        self,
        p: Any = 'fro',
        dim: Axis = None,
        keepdim: builtins.bool = False,
        *,
        dtype: Any = None,
        **words: Any,
    ) -> Tensor:
        """The norm of all elements, or of vectors or matrices along axes."""
    def not_equal(self, x2: Operand) -> Tensor:
        """`x1 != x2`, elementwise."""
    def not_equal_(self, x2: Operand) -> Tensor:
        """`not_equal`, in place: replaces the value of this tensor."""
    def outer(self, x2: ArrayLike, /) -> Tensor:
        """Outer product of two vectors: `out[i, j] = x1[i] * x2[j]`."""
    def pad(self, pad_width: Any, mode: str = 'constant', value: builtins.float = 0) -> Tensor:
        """Pad a tensor on the sides of its axes."""
    def pdist(self, p: builtins.float = 2.0) -> Tensor:
        """The distances between all pairs of different rows of a matrix, as a vector."""
    def permute(self, *axes: Any) -> Tensor:
        """Bring the axes into an order: `permute(x, 2, 0, 1)` or `permute(x, (2, 0, 1))`."""
    def permute_dims(self, axes: tuple[builtins.int, ...]) -> Tensor:
        """Permute the axes; a view."""
    def pinverse(self) -> Tensor:
        """The pseudo-inverse of (a batch of) matrices."""
    def polygamma(self, n: builtins.int) -> Tensor:
        """The n-th derivative of `digamma`: `wf.polygamma(n, x)`."""
    def positive(self) -> Tensor:
        """`+x`: a copy of `x`."""
    def positive_(self) -> Tensor:
        """`positive`, in place: replaces the value of this tensor."""
    def pow(self, x2: Operand) -> Tensor:
        """`x1 ** x2`, elementwise."""
    def pow_(self, x2: Operand) -> Tensor:
        """`pow`, in place: replaces the value of this tensor."""
    def power(self, x2: Operand) -> Tensor:
        """`x1 ** x2`, elementwise."""
    def prod(
        self,
        axis: Axis = None,
        *,
        dtype: DTypeLike | None = None,
        keepdims: builtins.bool = False,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Product of the elements over `axis` (all by default); small integers are multiplied in 64 bits."""
    def qr(self, some: builtins.bool = True) -> Any:
        """The QR decomposition: orthonormal columns Q and an upper triangle R."""
    def quantile(
        self,
        q: Operand,
        axis: Axis = None,
        keepdims: builtins.bool = False,
        *,
        method: str = 'linear',
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Quantiles of the elements over `axis`; NaN if any element is NaN."""
    def rad2deg(self) -> Tensor:
        """Radians as degrees."""
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
    def renorm(self, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
        """Scale the slices along `dim` whose `p`-norm is larger than `maxnorm` down to it."""
    def repeat(self, *repeats: ShapeLike) -> Tensor:
        """Repeat the whole tensor along its axes: `[a, b]` becomes `[a, b, a, b]` for 2."""
    def repeat_interleave(
        self,
        repeats: Any,
        dim: builtins.int | None = None,
        *,
        output_size: builtins.int | None = None,
    ) -> Tensor:
        """Repeat each element: `[a, b]` becomes `[a, a, b, b]` for 2."""
    def reshape(self, *shape: ShapeLike) -> Tensor:
        """Change the shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    def reshape_as(self, like: ArrayLike) -> Tensor:
        """Reshape to the shape of `like`, which in a graph may be known only at run time."""
    def roll(
        self,
        shift: builtins.int | tuple[builtins.int, ...],
        axis: builtins.int | tuple[builtins.int, ...] | None = None,
        *,
        dim: builtins.int | tuple[builtins.int, ...] | None = ...,
    ) -> Tensor:
        """Shift elements along `axis` cyclically (the flattened tensor by default)."""
    def rot90(self, k: builtins.int = 1, dims: Sequence[builtins.int] = ...) -> Tensor:
        """Turn by 90 degrees `k` times in the plane of two axes, from the first towards the second."""
    def round(self, decimals: builtins.int = 0) -> Tensor:
        """Round to the nearest integer, or to a number of decimals; halves go to the even neighbour."""
    def round_(self) -> Tensor:
        """`round`, in place: replaces the value of this tensor."""
    def rsqrt(self) -> Tensor:
        """Reciprocal square root 1 / sqrt(x)."""
    def rsqrt_(self) -> Tensor:
        """`rsqrt`, in place: replaces the value of this tensor."""
    def rsub(self, other: Operand, *, alpha: builtins.float = 1) -> Tensor:
        """`other - alpha * x`."""
    def scatter(
        self,
        dim: Any,
        index: Any = None,
        src: Any = None,
        *,
        reduce: str | None = None,
        **words: Any,
    ) -> Tensor:
        """A copy of `x` with elements of `src` at `index` along `dim`: `out[index[i][j], j] = src[i][j]`
        for `dim=0`.
        """
    def scatter_(
        self,
        dim: Any,
        index: Any = None,
        src: Any = None,
        *,
        reduce: str | None = None,
        **words: Any,
    ) -> Tensor:
        """`scatter`, in place: replaces the value of this tensor."""
    def scatter_add(
        self,
        dim: Any,
        index: Any = None,
        src: Any = None,
        *,
        axis: builtins.int | None = None,
    ) -> Tensor:
        """A copy of `x` to which elements of `src` are added at `index` along `dim`."""
    def scatter_add_(
        self,
        dim: Any,
        index: Any = None,
        src: Any = None,
        *,
        axis: builtins.int | None = None,
    ) -> Tensor:
        """`scatter_add`, in place: replaces the value of this tensor."""
    def scatter_reduce(
        self,
        dim: builtins.int,
        index: ArrayLike,
        src: ArrayLike,
        reduce: str,
        *,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """A copy of `x` in which the elements of `src` with one index along `dim` are combined."""
    def scatter_reduce_(
        self,
        dim: builtins.int,
        index: ArrayLike,
        src: ArrayLike,
        reduce: str,
        *,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """`scatter_reduce`, in place: replaces the value of this tensor."""
    def searchsorted(
        self,
        x2: ArrayLike | builtins.int | builtins.float,
        /,
        *,
        side: str = 'left',
        sorter: ArrayLike | None = None,
    ) -> Tensor:
        """Indices at which to insert `x2` into the sorted vector `x1` to keep it sorted."""
    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """The slice number `index` along `dim`; a view."""
    def select_scatter(self, src: ArrayLike, dim: builtins.int, index: builtins.int) -> Tensor:
        """A copy of `x` with `src` as slice number `index` along `dim`."""
    def sgn(self) -> Tensor:
        """The sign, of complex numbers `x / |x|`."""
    def sgn_(self) -> Tensor:
        """`sgn`, in place: replaces the value of this tensor."""
    def short(self) -> Tensor:
        """`x` as int16."""
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
    def sinc(self) -> Tensor:
        """sin(πx) / (πx), and 1 at 0."""
    def sinc_(self) -> Tensor:
        """`sinc`, in place: replaces the value of this tensor."""
    def sinh(self) -> Tensor:
        """Hyperbolic sine."""
    def sinh_(self) -> Tensor:
        """`sinh`, in place: replaces the value of this tensor."""
    def slogdet(self) -> Any:
        """Sign and logarithm of the absolute value of determinants."""
    def softmax(self, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
        """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one."""
    @overload
    def sort(
        self,
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
        self,
        /,
        *,
        descending: builtins.bool = False,
        stable: builtins.bool = True,
        dim: builtins.int,
    ) -> ValuesAndIndices:
        """Sort along an axis: `axis` gives the values as in NumPy, `dim` values and indices as in PyTorch."""
    def split(
        self,
        split_size_or_sections: Any,
        axis: builtins.int = 0,
        *,
        dim: builtins.int = ...,
    ) -> tuple[Tensor, ...]:
        """Split `x` along `axis` into pieces; views."""
    def sqrt(self) -> Tensor:
        """Square root; NaN for negative real numbers."""
    def sqrt_(self) -> Tensor:
        """`sqrt`, in place: replaces the value of this tensor."""
    def square(self) -> Tensor:
        """`x * x`, elementwise."""
    def square_(self) -> Tensor:
        """`square`, in place: replaces the value of this tensor."""
    def squeeze(self, position: Axis = None, /, *, axis: Axis = None, dim: Axis = None) -> Tensor:
        """Remove axes of size 1: all of them, those in `axis`, or those in `dim` that have size 1."""
    def std(
        self,
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
        self,
        dim: Axis = None,
        *,
        correction: builtins.float = 0.0,
        keepdim: builtins.bool = False,
        unbiased: builtins.bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Standard deviation of a sample and mean over `dim`, as in PyTorch."""
    def stop_gradient(self) -> Tensor:
        """Return `x` as a constant: no gradient flows through."""
    def storage_offset(self) -> builtins.int:
        """How many elements the first one is away from the begin of the memory that the tensor shares."""
    def stride(self, dim: builtins.int | None = None) -> Any:
        """How many elements the next one along each axis is away, or along one axis."""
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
        *,
        dtype: DTypeLike | None = None,
        keepdims: builtins.bool = False,
        dim: Axis = ...,
        keepdim: builtins.bool = ...,
    ) -> Tensor:
        """Sum of the elements over `axis`."""
    def svd(self, some: builtins.bool = True, compute_uv: builtins.bool = True) -> Any:
        """The singular value decomposition `U @ diag(S) @ V.mH`, as PyTorch's `svd` returns it: U, S and
        V.
        """
    def swapaxes(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """Swap two axes; a view."""
    def swapdims(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """Swap two axes; a view."""
    def t(self) -> Tensor:
        """The transpose of a matrix; a vector or number is returned as it is."""
    def take(
        self,
        index: ArrayLike,
        *,
        axis: builtins.int | None = None,
        dim: builtins.int | None = None,
    ) -> Tensor:
        """Elements by number: of the flattened tensor, or slices along an axis."""
    def take_along_axis(
        self,
        indices: ArrayLike,
        /,
        axis: builtins.int = -1,
        *,
        dim: builtins.int = ...,
    ) -> Tensor:
        """Gather one element per index: `out[i, j] = x[i, indices[i, j]]` along the last axis, likewise
        for others.
        """
    def take_along_dim(self, indices: ArrayLike, dim: builtins.int | None = None) -> Tensor:
        """Elements at `indices` along `dim`; without it of the flattened tensor."""
    def tan(self) -> Tensor:
        """Tangent of x in radians."""
    def tan_(self) -> Tensor:
        """`tan`, in place: replaces the value of this tensor."""
    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
    def tanh_(self) -> Tensor:
        """`tanh`, in place: replaces the value of this tensor."""
    def tensor_split(self, indices_or_sections: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Split into parts of nearly equal size, or before given positions."""
    def tensordot(self, x2: ArrayLike, /, *, axes: Any = 2) -> Tensor:
        """Contract two tensors over pairs of axes."""
    def threshold(self, threshold: builtins.float, value: builtins.float) -> Tensor:
        """Elements above `threshold`; `value` instead of the others."""
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
        dim: builtins.int = ...,
    ) -> TopK:
        """The `k` largest elements along `axis` and their indices."""
    def trace(self, *, offset: builtins.int = 0, dtype: DTypeLike | None = None) -> Tensor:
        """Sum along the `offset`-th diagonal of (batches of) matrices; small integers are summed in 64
        bits.
        """
    def transpose(
        self,
        *axes: Any,
        dim0: builtins.int | None = None,
        dim1: builtins.int | None = None,
    ) -> Tensor:
        """Exchange two axes, as in PyTorch; reverse all axes or bring them into an order, as in NumPy."""
    def trapezoid(
        self,
        x: ArrayLike | None = None,
        *,
        dx: builtins.float = 1,
        dim: builtins.int = -1,
    ) -> Tensor:
        """The integral of samples along `dim` by the trapezoidal rule."""
    def trapz(self, x: ArrayLike | None = None, *, dx: builtins.float = 1, dim: builtins.int = -1) -> Tensor:
        """`trapezoid`."""
    def tril(self, *, k: builtins.int = 0) -> Tensor:
        """Lower triangle of (batches of) matrices: zero above the `k`-th diagonal."""
    def triu(self, *, k: builtins.int = 0) -> Tensor:
        """Upper triangle of (batches of) matrices: zero below the `k`-th diagonal."""
    def true_divide(self, other: Operand) -> Tensor:
        """`x / other`."""
    def trunc(self) -> Tensor:
        """Round towards zero."""
    def trunc_(self) -> Tensor:
        """`trunc`, in place: replaces the value of this tensor."""
    def type(self, dtype: DTypeLike | None = None, non_blocking: builtins.bool = False) -> Any:
        """Cast to a dtype; without one, PyTorch's name of the tensor's type."""
    def type_as(self, other: ArrayLike) -> Tensor:
        """`x` in the dtype of `other`."""
    def unbind(self, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """The slices along `dim`."""
    def unflatten(self, axis: builtins.int, sizes: tuple[builtins.int, ...]) -> Tensor:
        """Split one axis into several of the given `sizes`, one of which may be -1: the inverse of
        `flatten`.
        """
    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """All windows of `size` neighbours along an axis, as a new last axis."""
    def unique(
        self,
        sorted: builtins.bool = True,
        return_inverse: builtins.bool = False,
        return_counts: builtins.bool = False,
        dim: builtins.int | None = None,
        *,
        return_index: builtins.bool = False,
    ) -> Any:
        """The different elements, in ascending order."""
    def unique_consecutive(
        self,
        return_inverse: builtins.bool = False,
        return_counts: builtins.bool = False,
        dim: builtins.int | None = None,
    ) -> Any:
        """The first element of every run of equal neighbours."""
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """Insert an axis of size 1 before axis `dim`."""
    def unstack(self, axis: builtins.int = 0, *, dim: builtins.int = ...) -> tuple[Tensor, ...]:
        """Split `x` into its slices along `axis`; views."""
    def vander(self, N: builtins.int | None = None, increasing: builtins.bool = False) -> Tensor:
        """The matrix of powers of a vector's elements: a row per element, the highest power first unless
        `increasing`.
        """
    def var(
        self,
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
        self,
        dim: Axis = None,
        *,
        correction: builtins.float = 0.0,
        keepdim: builtins.bool = False,
        unbiased: builtins.bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Variance of a sample and mean over `dim`, as in PyTorch."""
    def vdot(self, other: ArrayLike) -> Tensor:
        """The product of two vectors, the first one conjugated."""
    def vecdot(self, x2: ArrayLike, /, axis: builtins.int = -1, *, dim: builtins.int = ...) -> Tensor:
        """Sum of `conj(x1) * x2` over `axis`."""
    def view(self, *shape: ShapeLike) -> Tensor:
        """Change the shape: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    def view_as(self, other: ArrayLike) -> Tensor:
        """Reshape to the shape of `other`."""
    def view_as_complex(self) -> Tensor:
        """Pairs (real, imaginary) in the last axis as complex numbers."""
    def view_as_real(self) -> Tensor:
        """Complex numbers as pairs (real, imaginary) in a new last axis."""
    def vsplit(self, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """`tensor_split` along the first axis."""
    def where(self, x1: Operand, x2: Operand) -> Tensor:
        """Choose `x1` where `condition` is true and `x2` elsewhere; the three broadcast."""
    def where_(self, x1: Operand, x2: Operand) -> Tensor:
        """`where`, in place: replaces the value of this tensor."""
    def xlogy(self, x2: Operand) -> Tensor:
        """x1 · log(x2), and 0 where x1 is 0 (unless x2 is NaN)."""
    def xlogy_(self, x2: Operand) -> Tensor:
        """`xlogy`, in place: replaces the value of this tensor."""
    def zero_(self) -> Tensor:
        """Set every element to zero, in place."""
