"""Special functions: values against SciPy over their whole domain, limits, and the gradients the op table does not test."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as sp
import scipy.stats

import weft as wf
from tests.each import each
from weft.ops.array.incomplete_gamma import gamma_quantile_slope

REAL = np.concatenate([np.linspace(-20.3, 30, 997), np.logspace(-20, 20, 101)])
POSITIVE = np.concatenate([np.linspace(0.01, 40, 997), np.logspace(-10, 2, 101)])
PROBABILITY = np.concatenate([np.linspace(0, 1, 501), np.logspace(-300, -1, 30)])


def _agrees(name, reference, x, tolerance=4e-13, scale=0.0):
    """float64 within `tolerance`, float32 within 4e-6, relative to the value or, where that is smaller, to `scale`."""
    for dtype, allowed in ((np.float64, tolerance), (np.float32, 4e-6)):
        given = x.astype(dtype)
        with np.errstate(all="ignore"):
            expected = reference(given.astype(np.float64))
            fits = (np.abs(expected) < 1e37) & ((np.abs(expected) > 1e-36) | (expected == 0))
            result = getattr(wf.special, name)(wf.asarray(given))
            assert result.dtype == given.dtype
            got = result.numpy().astype(np.float64)[fits]
            error = np.abs(got - expected[fits]) / np.maximum(np.abs(expected[fits]), max(scale, 1e-300))
        worst = np.nanargmax(error)
        assert error[worst] <= allowed, f"{name}({given[fits][worst]}) in {np.dtype(dtype)}: {got[worst]}"


def test_functions_of_one_argument_agree_with_scipy():
    each(
        _agrees,
        {
            "gammaln": ("gammaln", sp.gammaln, REAL[REAL > 0], 4e-13, 0.1),
            "digamma": ("digamma", sp.digamma, np.concatenate([POSITIVE, np.linspace(-9.6, -0.4, 47)]), 4e-13, 0.5),
            "erfinv": ("erfinv", sp.erfinv, 2 * PROBABILITY[:501] - 1),
            "ndtri": ("ndtri", sp.ndtri, PROBABILITY),
            "ndtr": ("ndtr", sp.ndtr, np.linspace(-5, 8, 501)),
            "log_ndtr": ("log_ndtr", sp.log_ndtr, np.linspace(-100, 4, 501)),
            "erfcx": ("erfcx", sp.erfcx, np.linspace(-4, 200, 501)),
            "entr": ("entr", sp.entr, POSITIVE, 4e-13, 0.1),
            "expit": ("expit", sp.expit, REAL),
            "sinc": ("sinc", np.sinc, np.linspace(-5, 5, 501), 4e-13, 0.1),
            "i0": ("i0", sp.i0, REAL[:997]),
            "i0e": ("i0e", sp.i0e, REAL),
            "i1": ("i1", sp.i1, REAL[:997]),
            "i1e": ("i1e", sp.i1e, REAL),
            "modified_bessel_k0": ("modified_bessel_k0", sp.k0, POSITIVE),
            "modified_bessel_k1": ("modified_bessel_k1", sp.k1, POSITIVE),
            "scaled_modified_bessel_k0": ("scaled_modified_bessel_k0", sp.k0e, POSITIVE),
            "scaled_modified_bessel_k1": ("scaled_modified_bessel_k1", sp.k1e, POSITIVE),
            "bessel_j0": ("bessel_j0", sp.j0, np.linspace(-40, 40, 501), 4e-13, 0.1),
            "bessel_j1": ("bessel_j1", sp.j1, np.linspace(-40, 40, 501), 4e-13, 0.1),
            "bessel_y0": ("bessel_y0", sp.y0, POSITIVE, 4e-13, 0.1),
            "bessel_y1": ("bessel_y1", sp.y1, POSITIVE, 4e-13, 0.1),
            "airy_ai": ("airy_ai", lambda x: sp.airy(x)[0], np.linspace(-12, 12, 501), 4e-13, 0.5),
            "spherical_bessel_j0": ("spherical_bessel_j0", lambda x: sp.spherical_jn(0, x), np.linspace(0, 20, 99), 4e-13, 0.1),
        },
    )  # fmt: skip


def test_functions_of_two_arguments_agree_with_scipy():
    a, x = np.logspace(-3, 5, 40)[:, None], np.linspace(0.001, 3, 41)
    s, q = np.linspace(1.1, 30, 30)[:, None], np.logspace(-2, 2, 30)
    n, z = np.arange(8)[:, None], np.linspace(-1.5, 1.5, 21)

    def check(name, reference, first, second, tolerance=1e-10):
        got = getattr(wf.special, name)(wf.asarray(first), wf.asarray(second)).numpy()
        np.testing.assert_allclose(got, reference(*np.broadcast_arrays(first, second)), rtol=tolerance, atol=1e-13)

    each(
        check,
        {
            "gammainc": ("gammainc", sp.gammainc, a, a * x),
            "gammaincc": ("gammaincc", sp.gammaincc, a, a * x),
            "zeta": ("zeta", sp.zeta, s, q),
            "zeta left of 0": ("zeta", sp.zeta, np.array([[2.0], [3.0], [6.0]]), np.linspace(-7.3, -0.2, 19)),
            "xlogy": ("xlogy", sp.xlogy, np.array([0.0, 1.0, 0.0]), np.array([0.0, 2.0, np.nan])),
            "xlog1py": ("xlog1py", sp.xlog1py, np.array([0.0, 1.0]), np.array([-1.0, 2.0])),
            "chebyshev_polynomial_t": ("chebyshev_polynomial_t", lambda x, n: sp.eval_chebyt(n, x), z, n),
            "chebyshev_polynomial_u": ("chebyshev_polynomial_u", lambda x, n: sp.eval_chebyu(n, x), z, n),
            "shifted_chebyshev_polynomial_t": (
                "shifted_chebyshev_polynomial_t",
                lambda x, n: sp.eval_sh_chebyt(n, x),
                z,
                n,
            ),
            "hermite_polynomial_h": ("hermite_polynomial_h", lambda x, n: sp.eval_hermite(n, x), z, n),
            "hermite_polynomial_he": ("hermite_polynomial_he", lambda x, n: sp.eval_hermitenorm(n, x), z, n),
            "laguerre_polynomial_l": ("laguerre_polynomial_l", lambda x, n: sp.eval_laguerre(n, x), z, n),
            "legendre_polynomial_p": ("legendre_polynomial_p", lambda x, n: sp.eval_legendre(n, x), z, n),
        },
    )
    for order in range(5):
        points = np.linspace(0.2, 5, 19)
        np.testing.assert_allclose(
            wf.polygamma(order, wf.asarray(points)).numpy(), sp.polygamma(order, points), rtol=1e-12
        )
    np.testing.assert_allclose(
        wf.special.multigammaln(wf.asarray(points + 2), 3).numpy(),
        [sp.multigammaln(v, 3) for v in points + 2],
        rtol=1e-12,
    )
    np.testing.assert_allclose(wf.logit(wf.asarray(points / 6)).numpy(), sp.logit(points / 6), rtol=1e-12)


def test_limits():
    nan, inf = np.nan, np.inf

    def check(got, expected):
        np.testing.assert_array_equal(got.numpy(), expected)

    t = lambda *values: wf.asarray(np.array(values))
    each(
        check,
        {
            "lgamma": (wf.lgamma(t(0.0, -1.0, inf)), [inf, inf, inf]),
            "digamma": (wf.digamma(t(0.0, -0.0, -1.0, inf)), [-inf, inf, nan, inf]),
            "erfinv": (wf.erfinv(t(-1.0, 1.0, 1.5, 0.0)), [-inf, inf, nan, 0]),
            "ndtri": (wf.special.ndtri(t(0.0, 1.0, -0.1)), [-inf, inf, nan]),
            "entr": (wf.special.entr(t(0.0, -1.0, nan)), [0, -inf, nan]),
            "zeta": (wf.special.zeta(t(1.0, 0.5, 2.0, 2.5), t(2.0, 2.0, -3.0, -0.5)), [inf, nan, inf, nan]),
            "gammainc": (
                wf.special.gammainc(t(0.0, 0.0, 2.0, 2.0, -1.0, inf), t(0.0, 1.0, 0.0, inf, 1.0, 1.0)),
                [nan, 1, 0, 1, nan, 0],
            ),
            "gammaincc": (wf.igammac(t(2.0, 2.0), t(0.0, inf)), [1, 0]),
            "k0": (wf.special.modified_bessel_k0(t(0.0, -1.0)), [inf, nan]),
            "y1": (wf.special.bessel_y1(t(0.0, -1.0)), [-inf, nan]),
            "j1 is odd": (wf.special.bessel_j1(t(-3.0)) + wf.special.bessel_j1(t(3.0)), [0]),
        },
    )


def test_aliases_are_the_same_functions():
    x = wf.tensor([0.5, 1.5])
    pairs = {"psi": "digamma", "modified_bessel_i0": "i0", "modified_bessel_i1": "i1"}
    for alias, name in pairs.items():
        assert getattr(wf.special, alias)(x).tolist() == getattr(wf.special, name)(x).tolist()
    assert wf.igamma(x, x).tolist() == wf.special.gammainc(x, x).tolist()


def test_gradients_that_exist_for_one_argument_only():
    q = wf.tensor([0.3, 2.0], dtype=wf.float64, requires_grad=True)
    assert wf.gradcheck(lambda q: wf.special.zeta(wf.tensor(2.5, dtype=wf.float64), q), [q])
    a = wf.tensor([0.4, 2.0, 130.0], dtype=wf.float64)
    y = wf.tensor([-1.0, 1.5, 4.9], dtype=wf.float64, requires_grad=True)
    assert wf.gradcheck(lambda y: gamma_quantile_slope(a, y), [y])
    with pytest.raises(NotImplementedError, match="zeta: the gradient with respect to its first argument"):
        exponent = wf.tensor(2.5, requires_grad=True)
        wf.special.zeta(exponent, wf.tensor(1.0)).backward()
    with pytest.raises(NotImplementedError, match="second derivative with respect to the concentration"):
        a = wf.tensor(2.0, requires_grad=True)
        (first,) = wf.grad(wf.special.gammainc(a, wf.tensor(1.0)), a, create_graph=True)
        first.backward()


def test_incomplete_gamma_gradient_with_respect_to_the_concentration():
    for a in (0.02, 0.7, 5.0, 99.0, 101.0, 3000.0):
        x = scipy.stats.gamma.ppf(np.array([1e-3, 0.2, 0.5, 0.9, 0.9999]), a)
        t = wf.tensor(np.full(5, a), requires_grad=True)
        (got,) = wf.grad(wf.special.gammainc(t, wf.asarray(x)).sum(), t)
        eps = a * 1e-5
        numeric = (sp.gammainc(a + eps, x) - sp.gammainc(a - eps, x)) / (2 * eps)
        np.testing.assert_allclose(got.numpy(), numeric, rtol=1e-5, err_msg=str(a))
