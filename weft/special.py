"""Special functions: gamma, error and Bessel functions and their relatives, orthogonal polynomials; those of `torch.special`.

All but `softmax`, `log_softmax` and `logsumexp` are elementwise and broadcast.

>>> wf.special.expit(wf.tensor(0.0)).item(), wf.special.gammaln(wf.tensor(1.0)).item()
(0.5, 0.0)
"""

from __future__ import annotations

from .ops.array.elementwise.arithmetic import round as round
from .ops.array.elementwise.bessel import airy_ai as airy_ai
from .ops.array.elementwise.bessel import bessel_j0 as bessel_j0
from .ops.array.elementwise.bessel import bessel_j1 as bessel_j1
from .ops.array.elementwise.bessel import bessel_y0 as bessel_y0
from .ops.array.elementwise.bessel import bessel_y1 as bessel_y1
from .ops.array.elementwise.bessel import i0 as i0
from .ops.array.elementwise.bessel import i0 as modified_bessel_i0
from .ops.array.elementwise.bessel import i0e as i0e
from .ops.array.elementwise.bessel import i1 as i1
from .ops.array.elementwise.bessel import i1 as modified_bessel_i1
from .ops.array.elementwise.bessel import i1e as i1e
from .ops.array.elementwise.bessel import modified_bessel_k0 as modified_bessel_k0
from .ops.array.elementwise.bessel import modified_bessel_k1 as modified_bessel_k1
from .ops.array.elementwise.bessel import scaled_modified_bessel_k0 as scaled_modified_bessel_k0
from .ops.array.elementwise.bessel import scaled_modified_bessel_k1 as scaled_modified_bessel_k1
from .ops.array.elementwise.bessel import spherical_bessel_j0 as spherical_bessel_j0
from .ops.array.elementwise.special import digamma as digamma
from .ops.array.elementwise.special import digamma as psi
from .ops.array.elementwise.special import entr as entr
from .ops.array.elementwise.special import erfcx as erfcx
from .ops.array.elementwise.special import erfinv as erfinv
from .ops.array.elementwise.special import lgamma as gammaln
from .ops.array.elementwise.special import log_ndtr as log_ndtr
from .ops.array.elementwise.special import ndtr as ndtr
from .ops.array.elementwise.special import ndtri as ndtri
from .ops.array.elementwise.special import sinc as sinc
from .ops.array.elementwise.special import xlog1py as xlog1py
from .ops.array.elementwise.special import xlogy as xlogy
from .ops.array.elementwise.special import zeta as zeta
from .ops.array.elementwise.transcendental import erf as erf
from .ops.array.elementwise.transcendental import erfc as erfc
from .ops.array.elementwise.transcendental import exp2 as exp2
from .ops.array.elementwise.transcendental import expm1 as expm1
from .ops.array.elementwise.transcendental import log1p as log1p
from .ops.array.elementwise.transcendental import sigmoid as expit
from .ops.array.incomplete_gamma import gammainc as gammainc
from .ops.array.incomplete_gamma import gammaincc as gammaincc
from .ops.array.orthogonal_polynomials import chebyshev_polynomial_t as chebyshev_polynomial_t
from .ops.array.orthogonal_polynomials import chebyshev_polynomial_u as chebyshev_polynomial_u
from .ops.array.orthogonal_polynomials import chebyshev_polynomial_v as chebyshev_polynomial_v
from .ops.array.orthogonal_polynomials import chebyshev_polynomial_w as chebyshev_polynomial_w
from .ops.array.orthogonal_polynomials import hermite_polynomial_h as hermite_polynomial_h
from .ops.array.orthogonal_polynomials import hermite_polynomial_he as hermite_polynomial_he
from .ops.array.orthogonal_polynomials import laguerre_polynomial_l as laguerre_polynomial_l
from .ops.array.orthogonal_polynomials import legendre_polynomial_p as legendre_polynomial_p
from .ops.array.orthogonal_polynomials import shifted_chebyshev_polynomial_t as shifted_chebyshev_polynomial_t
from .ops.array.orthogonal_polynomials import shifted_chebyshev_polynomial_u as shifted_chebyshev_polynomial_u
from .ops.array.orthogonal_polynomials import shifted_chebyshev_polynomial_v as shifted_chebyshev_polynomial_v
from .ops.array.orthogonal_polynomials import shifted_chebyshev_polynomial_w as shifted_chebyshev_polynomial_w
from .ops.array.reduction import logsumexp as logsumexp
from .ops.array.special_functions import logit as logit
from .ops.array.special_functions import mvlgamma as multigammaln
from .ops.array.special_functions import polygamma as polygamma
from .ops.core.error_names import public as _public
from .ops.nn.softmax import log_softmax as log_softmax
from .ops.nn.softmax import softmax as softmax

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit",
    "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri",
    "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc", "softmax",
    "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

# What users call names errors and takes arrays, see Note [Named errors].
globals().update({name: _public(globals()[name]) for name in __all__})
