"""NumPy functions on tensors: the op of the same meaning, else arrays, and never lost gradients."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft.ops import numpy_functions

RNG = np.random.default_rng(0)
M = RNG.normal(size=(3, 4))
S = np.array([[4.0, 1.0], [1.0, 3.0]])
V = np.array([3.0, 1.0, 2.0, 1.0])
CUBE = RNG.normal(size=(2, 3, 4))
I = np.array([2, 0])

# Each is called with arrays and with tensors, and must give the same numbers; `_` is the array or tensor.
CALLS = {
    "sum": [lambda _: np.sum(_(M)), lambda _: np.sum(_(M), 1, keepdims=True), lambda _: np.sum(_(M), axis=(0, 1))],
    "prod": [lambda _: np.prod(_(M), axis=0)],
    "mean": [lambda _: np.mean(_(M), 1), lambda _: np.mean(_(M), dtype=np.float64)],
    "max": [lambda _: np.max(_(M), 1)],
    "min": [lambda _: np.min(_(M), axis=0)],
    "amax": [lambda _: np.amax(_(M), 1)],
    "amin": [lambda _: np.amin(_(M))],
    "any": [lambda _: np.any(_(M) > 1, axis=1)],
    "all": [lambda _: np.all(_(M) > -9)],
    "argmax": [lambda _: np.argmax(_(M), 1), lambda _: np.argmax(_(M))],
    "argmin": [lambda _: np.argmin(_(M), axis=0)],
    "median": [lambda _: np.median(_(M), axis=1), lambda _: np.median(_(V))],
    "count_nonzero": [lambda _: np.count_nonzero(_(M) > 0, axis=0)],
    "nanmean": [lambda _: np.nanmean(_(np.where(M > 1, np.nan, M)))],
    "nansum": [lambda _: np.nansum(_(np.where(M > 1, np.nan, M)), axis=0)],
    "nanmedian": [lambda _: np.nanmedian(_(np.where(M > 1, np.nan, M)))],
    "std": [lambda _: np.std(_(M)), lambda _: np.std(_(M), axis=1, ddof=1)],
    "var": [lambda _: np.var(_(M), 0), lambda _: np.var(_(M), ddof=1, keepdims=True)],
    "cumsum": [lambda _: np.cumsum(_(M)), lambda _: np.cumsum(_(M), axis=1)],
    "cumprod": [lambda _: np.cumprod(_(M), 0)],
    "quantile": [lambda _: np.quantile(_(M), 0.3, axis=1), lambda _: np.quantile(_(V), [0.1, 0.9])],
    "percentile": [lambda _: np.percentile(_(M), 30, axis=1)],
    "concatenate": [lambda _: np.concatenate([_(M), _(M)], axis=1), lambda _: np.concatenate((_(M), M))],
    "concat": [lambda _: np.concat([_(M), _(M)])],
    "stack": [lambda _: np.stack([_(M), _(M)], axis=-1)],
    "vstack": [lambda _: np.vstack([_(V), _(V)])],
    "hstack": [lambda _: np.hstack([_(M), _(M)])],
    "dstack": [lambda _: np.dstack([_(M), _(M)])],
    "column_stack": [lambda _: np.column_stack([_(V), _(V)])],
    "split": [lambda _: np.split(_(V), 2)[1], lambda _: np.split(_(M), [1, 3], axis=1)[1]],
    "hsplit": [lambda _: np.hsplit(_(M), 2)[0]],
    "vsplit": [lambda _: np.vsplit(_(M), 3)[2]],
    "dsplit": [lambda _: np.dsplit(_(CUBE), 2)[1]],
    "reshape": [lambda _: np.reshape(_(M), (2, 6)), lambda _: np.reshape(_(M), -1)],
    "ravel": [lambda _: np.ravel(_(M))],
    "transpose": [lambda _: np.transpose(_(M)), lambda _: np.transpose(_(CUBE), (1, 0, 2))],
    "permute_dims": [lambda _: np.permute_dims(_(CUBE), (2, 0, 1))],
    "swapaxes": [lambda _: np.swapaxes(_(CUBE), 0, 2)],
    "moveaxis": [lambda _: np.moveaxis(_(CUBE), 0, -1)],
    "squeeze": [lambda _: np.squeeze(_(M[None])), lambda _: np.squeeze(_(M[None]), axis=0)],
    "expand_dims": [lambda _: np.expand_dims(_(M), 1)],
    "broadcast_to": [lambda _: np.broadcast_to(_(V), (2, 4))],
    "flip": [lambda _: np.flip(_(M)), lambda _: np.flip(_(M), 1)],
    "fliplr": [lambda _: np.fliplr(_(M))],
    "flipud": [lambda _: np.flipud(_(M))],
    "roll": [lambda _: np.roll(_(M), 1), lambda _: np.roll(_(M), 1, axis=1)],
    "rot90": [lambda _: np.rot90(_(M)), lambda _: np.rot90(_(M), 2)],
    "tile": [lambda _: np.tile(_(V), 2), lambda _: np.tile(_(V), (2, 2))],
    "repeat": [lambda _: np.repeat(_(V), 2), lambda _: np.repeat(_(M), 2, axis=1)],
    "pad": [lambda _: np.pad(_(V), 1), lambda _: np.pad(_(M), ((0, 1), (2, 0)), constant_values=5.0)],
    "tril": [lambda _: np.tril(_(M)), lambda _: np.tril(_(M), 1)],
    "triu": [lambda _: np.triu(_(M), k=-1)],
    "diag": [lambda _: np.diag(_(V)), lambda _: np.diag(_(M), 1)],
    "diagonal": [lambda _: np.diagonal(_(M)), lambda _: np.diagonal(_(CUBE), 1, 1, 2)],
    "trace": [lambda _: np.trace(_(M))],
    "take": [lambda _: np.take(_(M), I), lambda _: np.take(_(M), I, axis=1)],
    "where": [lambda _: np.where(_(M) > 0, _(M), 0.0), lambda _: np.where(M > 0, _(M), M), lambda _: np.where(_(V) > 1)[0]],
    "nonzero": [lambda _: np.nonzero(_(V) > 1)[0]],
    "argwhere": [lambda _: np.argwhere(_(M) > 1)],
    "take_along_axis": [lambda _: np.take_along_axis(_(M), np.argsort(M, 1), 1)],
    "sort": [lambda _: np.sort(_(M), 0), lambda _: np.sort(_(M), axis=None)],
    "argsort": [lambda _: np.argsort(_(M)), lambda _: np.argsort(_(V), kind="stable")],
    "clip": [lambda _: np.clip(_(M), -0.5, 0.5), lambda _: np.clip(_(M), 0, None)],
    "round": [lambda _: np.round(_(M), 1)],
    "around": [lambda _: np.around(_(M))],
    "isclose": [lambda _: np.isclose(_(M), M)],
    "allclose": [lambda _: np.allclose(_(M), M + 1)],
    "array_equal": [lambda _: np.array_equal(_(M), M), lambda _: np.array_equal(_(M), V)],
    "dot": [lambda _: np.dot(_(V), _(V)), lambda _: np.dot(_(M), V), lambda _: np.dot(_(CUBE), _(M.T)),
            lambda _: np.dot(2.0, _(V))],
    "inner": [lambda _: np.inner(_(M), _(V)), lambda _: np.inner(_(V), _(V))],
    "outer": [lambda _: np.outer(_(M), _(V))],
    "einsum": [lambda _: np.einsum("ij,kj->ik", _(M), M)],
    "vdot": [lambda _: np.vdot(_(M), _(M))],
    "tensordot": [lambda _: np.tensordot(_(CUBE), _(CUBE), axes=([0, 1], [0, 1])), lambda _: np.tensordot(_(M), _(M.T), 1)],
    "kron": [lambda _: np.kron(_(S), _(S))],
    "diff": [lambda _: np.diff(_(V)), lambda _: np.diff(_(M), n=2, axis=1)],
    "real": [lambda _: np.real(_(M))],
    "imag": [lambda _: np.imag(_(M + 1j))],
    "copy": [lambda _: np.copy(_(M))],
    "zeros_like": [lambda _: np.zeros_like(_(M))],
    "ones_like": [lambda _: np.ones_like(_(M), dtype=np.int32)],
    "empty_like": [lambda _: np.empty_like(_(M)) * 0],
    "full_like": [lambda _: np.full_like(_(M), 7)],
    "linalg.norm": [lambda _: np.linalg.norm(_(M)), lambda _: np.linalg.norm(_(M), axis=1), lambda _: np.linalg.norm(_(M), 1)],
    "linalg.det": [lambda _: np.linalg.det(_(S))],
    "linalg.inv": [lambda _: np.linalg.inv(_(S))],
    "linalg.cholesky": [lambda _: np.linalg.cholesky(_(S))],
    "linalg.slogdet": [lambda _: np.linalg.slogdet(_(S))[1]],
    "linalg.pinv": [lambda _: np.linalg.pinv(_(M))],
    "linalg.eigvalsh": [lambda _: np.linalg.eigvalsh(_(S))],
    "linalg.eigh": [lambda _: np.linalg.eigh(_(S))[0]],
    "linalg.matrix_rank": [lambda _: np.linalg.matrix_rank(_(M))],
    "linalg.solve": [lambda _: np.linalg.solve(_(S), _(S)), lambda _: np.linalg.solve(S, _(S))],
    "linalg.matrix_power": [lambda _: np.linalg.matrix_power(_(S), 3)],
    **{f"fft.{n}": [lambda _, n=n: getattr(np.fft, n)(_(M)), lambda _, n=n: getattr(np.fft, n)(_(M), axis=0, norm="ortho")]
       for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{n}": [lambda _, n=n: getattr(np.fft, n)(_(M))] for n in ("fftn", "ifftn", "rfftn", "irfftn")},
}  # fmt: skip


def test_numpy_functions_give_tensors_with_numpys_numbers():
    assert set(CALLS) == set(numpy_functions.FUNCTIONS)

    def check(name, call):
        expected = call(lambda a: a)
        found = call(wf.asarray)
        if name in ("allclose", "array_equal"):
            assert found is expected
            return
        assert isinstance(found, wf.Tensor), type(found)
        assert found.shape == np.shape(expected) and found.dtype.kind == np.asarray(expected).dtype.kind
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)

    each(check, {f"{name} {i}": (name, call) for name, calls in CALLS.items() for i, call in enumerate(calls)})


def test_ufuncs_give_tensors():
    positive = np.abs(M) + 0.1
    skipped = {"isnat", "bitwise_count", "cbrt", "spacing", "matvec", "vecmat", "frexp", "modf", "ldexp", "nextafter"}
    cases = {}
    for name in dir(np):
        ufunc = getattr(np, name)
        if isinstance(ufunc, np.ufunc) and name not in skipped:
            a, b = (positive, positive * 0.5) if "d" in "".join(ufunc.types) else (I, I + 1)
            if name in ("matmul", "vecdot"):
                a, b = S, S
            a = np.minimum(a, 0.9) if name in ("arcsin", "arccos", "arctanh", "asin", "acos", "atanh") else a
            a = a + 1 if name in ("arccosh", "acosh") else a
            cases[name] = (ufunc, (a, b)[: ufunc.nin])

    def check(ufunc, operands):
        expected = ufunc(*operands)
        found = ufunc(*[wf.asarray(v) for v in operands])
        for f, e in zip(found, expected, strict=True) if ufunc.nout > 1 else [(found, expected)]:
            assert isinstance(f, wf.Tensor), type(f)
            np.testing.assert_allclose(f.numpy(), e, rtol=1e-9)

    each(check, cases)
    t = wf.asarray(M)
    for found, expected in (
        (np.add.reduce(t), np.add.reduce(M)),
        (np.maximum.reduce(t, axis=1), np.maximum.reduce(M, axis=1)),
        (np.add.accumulate(t, axis=1), np.add.accumulate(M, axis=1)),
        (np.subtract.outer(wf.asarray(V), V), np.subtract.outer(V, V)),
        (np.sum(t, where=None), np.sum(M)),
        (M + t, M + M),
        (np.float64(2.0) * t, 2 * M),
    ):
        assert isinstance(found, wf.Tensor)
        np.testing.assert_allclose(found.numpy(), expected)


def test_gradients_are_kept_or_the_call_is_refused():
    x = wf.asarray(M).requires_grad_()
    for y in (
        np.floor(x),
        np.concatenate([x, x]),
        np.sum(np.where(x > 0, x, 0.0)),
        np.linalg.norm(x),
        np.add.reduce(x),
    ):
        assert y.requires_grad
    np.sum(np.stack([x, 2 * x])).backward()
    assert x.grad.tolist() == np.full(M.shape, 3.0).tolist()
    assert np.shape(x) == (3, 4) and np.ndim(x) == 2 and np.size(x) == 12 and np.shares_memory(x, x.detach())
    refused = {
        "partition": lambda: np.partition(x, 1),
        "cbrt": lambda: np.cbrt(x),
        "out": lambda: np.sin(x, out=np.empty((3, 4))),
        "array": lambda: np.asarray(x),
        "savez": lambda: np.apply_along_axis(np.sum, 0, x),
        "in a list": lambda: np.block([[x], [x]]),
    }

    def check(call):
        with pytest.raises(RuntimeError, match="the tensor requires gradients.*x.detach"):
            call()

    each(check, {name: (call,) for name, call in refused.items()})


def test_other_functions_give_arrays():
    t = wf.asarray(M)
    for found, expected in (
        (np.partition(t, 1), np.partition(M, 1)),
        (np.cbrt(t), np.cbrt(M)),
        (np.block([[t], [t]]), np.block([[M], [M]])),
        (np.interp(wf.asarray(V), np.arange(5.0), np.arange(5.0)), V),
    ):
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, expected)
    out = np.empty_like(M)
    assert np.sin(t, out=out) is out and np.array_equal(out, np.sin(M))  # NumPy writes into NumPy's memory


def test_arguments_without_a_meaning_are_refused():
    t = wf.asarray(M)
    cases = {
        "tensor as out": (lambda: np.sin(t, out=t), "NumPy cannot write into a tensor"),
        "out": (lambda: np.sum(t, out=np.empty(())), "np.sum: `out=` cannot be given with a tensor"),
        "where": (lambda: np.sum(t, where=M > 0), "np.sum: `where=` cannot be given"),
        "ufunc dtype": (lambda: np.add(t, t, dtype=np.float32), "np.add: `dtype=` cannot be given with a tensor"),
        "order": (lambda: np.reshape(t, (4, 3), order="F"), "np.reshape: `order=` cannot be given"),
    }

    def check(call, text):
        with pytest.raises(TypeError, match=text):
            call()

    each(check, cases)


def test_captured_functions_see_numpy_functions():
    fn = wf.function(lambda x: np.concatenate([np.floor(x), np.exp(x)]).sum())
    x = wf.tensor([0.5, 1.5])
    assert fn(x).item() == pytest.approx(float(np.floor(x.numpy()).sum() + np.exp(x.numpy()).sum()), rel=1e-6)
