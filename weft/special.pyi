"""Special functions: gamma, error and Bessel functions.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

from .tensor import Tensor as Tensor
from .typing import ArrayLike
from .typing import Axis
from .typing import Operand

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf",
    "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "laguerre_polynomial_l",
    "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri",
    "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]

def airy_ai(x: Operand) -> Tensor:
    """Airy function Ai: the solution of y'' = x y that decays for large x."""
def bessel_j0(x: Operand) -> Tensor:
    """Bessel function of the first kind, order 0."""
def bessel_j1(x: Operand) -> Tensor:
    """Bessel function of the first kind, order 1."""
def bessel_y0(x: Operand) -> Tensor:
    """Bessel function of the second kind, order 0; -inf at 0, NaN below."""
def bessel_y1(x: Operand) -> Tensor:
    """Bessel function of the second kind, order 1; -inf at 0, NaN below."""
def chebyshev_polynomial_t(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Chebyshev polynomial of the first kind of degree `n` at `x`."""
def chebyshev_polynomial_u(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Chebyshev polynomial of the second kind of degree `n` at `x`."""
def chebyshev_polynomial_v(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Chebyshev polynomial of the third kind of degree `n` at `x`."""
def chebyshev_polynomial_w(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Chebyshev polynomial of the fourth kind of degree `n` at `x`."""
def digamma(x: Operand) -> Tensor:
    """Derivative of `lgamma`; -inf at 0, NaN at negative integers."""
def entr(x: Operand) -> Tensor:
    """-x log(x): the elementwise entropy; 0 at 0, -inf below."""
def erf(x: Operand) -> Tensor:
    """Error function."""
def erfc(x: Operand) -> Tensor:
    """Complementary error function 1 - erf(x), accurate where erf(x) is near 1."""
def erfcx(x: Operand) -> Tensor:
    """exp(x²) erfc(x), without underflow for large x."""
def erfinv(x: Operand) -> Tensor:
    """Inverse of the error function; infinite at -1 and 1, NaN outside."""
def exp2(x: Operand) -> Tensor:
    """2^x, elementwise."""
def expit(x: Operand) -> Tensor:
    """Logistic function 1 / (1 + exp(-x))."""
def expm1(x: Operand) -> Tensor:
    """exp(x) - 1, accurate near zero."""
def gammainc(a: ArrayLike, x: ArrayLike) -> Tensor:
    """Regularized lower incomplete gamma function P(a, x): the gamma distribution function of
    concentration `a`.
    """
def gammaincc(a: ArrayLike, x: ArrayLike) -> Tensor:
    """Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), accurate where it is small."""
def gammaln(x: Operand) -> Tensor:
    """Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 …"""
def hermite_polynomial_h(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Hermite polynomial of the physicists of degree `n` at `x`."""
def hermite_polynomial_he(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Hermite polynomial of probability theory of degree `n` at `x`."""
def i0(x: Operand) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def i0e(x: Operand) -> Tensor:
    """exp(-|x|) i0(x)."""
def i1(x: Operand) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""
def i1e(x: Operand) -> Tensor:
    """exp(-|x|) i1(x)."""
def laguerre_polynomial_l(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Laguerre polynomial of degree `n` at `x`."""
def legendre_polynomial_p(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Legendre polynomial of degree `n` at `x`."""
def log1p(x: Operand) -> Tensor:
    """log(1 + x), accurate near zero."""
def log_ndtr(x: Operand) -> Tensor:
    """Logarithm of `ndtr`, accurate in both tails."""
def log_softmax(x: ArrayLike, axis: int = -1, *, dim: int = ...) -> Tensor:
    """log(softmax(x)) along `axis`, numerically stable."""
def logit(x: ArrayLike, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)): the inverse of `sigmoid`."""
def logsumexp(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dim: Axis = ...,
    keepdim: bool = ...,
) -> Tensor:
    """log(sum(exp(x))) over `axis` (all by default), without overflow."""
def modified_bessel_i0(x: Operand) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def modified_bessel_i1(x: Operand) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""
def modified_bessel_k0(x: Operand) -> Tensor:
    """Modified Bessel function of the second kind, order 0; infinite at 0, NaN below."""
def modified_bessel_k1(x: Operand) -> Tensor:
    """Modified Bessel function of the second kind, order 1; infinite at 0, NaN below."""
def multigammaln(x: ArrayLike, p: int) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension `p`, for x > (p - 1) / 2."""
def ndtr(x: Operand) -> Tensor:
    """Distribution function of the standard normal distribution."""
def ndtri(x: Operand) -> Tensor:
    """Quantile of the standard normal distribution: the inverse of `ndtr`."""
def polygamma(n: int, x: ArrayLike) -> Tensor:
    """The n-th derivative of `digamma`."""
def psi(x: Operand) -> Tensor:
    """Derivative of `lgamma`; -inf at 0, NaN at negative integers."""
def round(x: Operand) -> Tensor:
    """Round to the nearest integer, ties to even."""
def scaled_modified_bessel_k0(x: Operand) -> Tensor:
    """exp(x) modified_bessel_k0(x)."""
def scaled_modified_bessel_k1(x: Operand) -> Tensor:
    """exp(x) modified_bessel_k1(x)."""
def shifted_chebyshev_polynomial_t(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Shifted Chebyshev polynomial of the first kind, of 2 x - 1, of degree `n` at `x`."""
def shifted_chebyshev_polynomial_u(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Shifted Chebyshev polynomial of the second kind, of 2 x - 1, of degree `n` at `x`."""
def shifted_chebyshev_polynomial_v(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Shifted Chebyshev polynomial of the third kind, of 2 x - 1, of degree `n` at `x`."""
def shifted_chebyshev_polynomial_w(x: ArrayLike, n: ArrayLike) -> Tensor:
    """Shifted Chebyshev polynomial of the fourth kind, of 2 x - 1, of degree `n` at `x`."""
def sinc(x: Operand) -> Tensor:
    """sin(πx) / (πx), and 1 at 0."""
def softmax(x: ArrayLike, axis: int = -1, *, dim: int = ...) -> Tensor:
    """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one."""
def spherical_bessel_j0(x: Operand) -> Tensor:
    """Spherical Bessel function of the first kind, order 0: sin(x) / x, and 1 at 0."""
def xlog1py(x1: Operand, x2: Operand) -> Tensor:
    """x1 · log(1 + x2), and 0 where x1 is 0 (unless x2 is NaN)."""
def xlogy(x1: Operand, x2: Operand) -> Tensor:
    """x1 · log(x2), and 0 where x1 is 0 (unless x2 is NaN)."""
def zeta(x1: Operand, x2: Operand) -> Tensor:
    """Hurwitz zeta function: the sum of 1 / (k + x2)^x1 over k = 0, 1, 2 …; `zeta(x, 1)` is Riemann's."""
