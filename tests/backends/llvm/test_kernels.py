"""Registered kernels serve the op table: the same results as the NumPy bodies, through the public functions."""

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm import kernels
from weft.nn import functional as F
from weft.ops.core import registry


@pytest.fixture(autouse=True, scope="module")
def registered():
    assert kernels.register()
    assert kernels.register()  # a second time changes nothing


def tensor(*shape, seed=0):
    return wf.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


X = (150, 200)
OPS = {
    "sum": lambda x: wf.sum(x),
    "sum0": lambda x: wf.sum(x, axis=0),
    "sum1": lambda x: wf.sum(x, axis=-1, keepdims=True),
    "mean": lambda x: wf.mean(x, axis=(0, 1), keepdims=True),
    "prod": lambda x: wf.prod(x * 0.01 + 1, axis=1),
    "max": lambda x: wf.max(x, axis=1),
    "min": lambda x: wf.min(x, axis=0, keepdims=True),
    "any": lambda x: wf.any(x > 3, axis=1),
    "all": lambda x: wf.all(x > -3, axis=0),
    "argmax": lambda x: wf.argmax(x, axis=1, keepdims=True),
    "argmin": lambda x: wf.argmin(x),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, 200),
    "rms_norm": lambda x: F.rms_norm(x, 200),
}


@pytest.mark.parametrize("name", OPS)
def test_same_results_as_numpy(name):
    x = tensor(*X)
    got = OPS[name](x)
    with kernels.disabled():
        want = OPS[name](x)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "sum1", "max"])
def test_same_gradients_as_numpy(name):
    def gradient():
        x = tensor(*X).requires_grad_()
        y = OPS[name](x)
        (y * tensor(*y.shape, seed=1)).sum().backward()
        return x.grad.numpy()

    got = gradient()
    with kernels.disabled():
        want = gradient()
    np.testing.assert_allclose(got, want, rtol=5e-5, atol=5e-5)


def test_weights_of_norms_get_gradients():
    def gradients():
        w, b = (tensor(200, seed=s).requires_grad_() for s in (1, 2))
        (F.layer_norm(tensor(*X), 200, w, b) * tensor(*X, seed=3)).sum().backward()
        return w.grad.numpy(), b.grad.numpy()

    got = gradients()
    with kernels.disabled():
        want = gradients()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_cross_entropy_with_ignored_rows():
    labels = np.random.default_rng(0).integers(0, 200, 150)
    labels[::7] = -100

    def run():
        x = tensor(*X).requires_grad_()
        loss = F.cross_entropy(x, wf.asarray(labels))
        loss.backward()
        return loss.detach().numpy(), x.grad.numpy()

    got = run()
    with kernels.disabled():
        want = run()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_rows_of_infinities_agree():
    x = np.zeros((200, 100), np.float32)
    x[0] = -np.inf
    x[1, 3] = np.inf
    x[2, 5] = np.nan
    x[3, :50] = -np.inf
    for f in (F.softmax, F.log_softmax):
        got = f(wf.asarray(x), 1).numpy()
        with kernels.disabled():
            want = f(wf.asarray(x), 1).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_small_arrays_stay_with_numpy_where_it_has_one_function():
    op = registry.get("reduce_sum")
    small = np.zeros((3, 4), np.float32)
    assert not any(k.when(small, 1) for k in op.kernels if k.name.startswith("llvm"))


def test_ops_that_numpy_has_no_function_for_run_natively_from_the_first_element():
    several = [op for op in registry.table.values() if op.several_calls]
    assert {"softmax", "log_softmax", "layer_norm_forward", "cross_entropy_forward"} <= {op.name for op in several}
    few = np.ones((2, 3), np.float32)
    for op in several:
        values = [few if "Tensor" in str(op.fn.__annotations__[p]) else 1 for p in op.parameters]
        assert any(k.name.startswith("llvm") and op.run(k.when, values) for k in op.kernels), op.name


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float32", "float64", "complex64"])
def test_large_clones_are_copies_in_the_same_order(dtype):
    base = np.random.default_rng(0).integers(0, 2, (150, 220)).astype(dtype)
    for a in (base, base.T, base[:, ::-1], np.repeat(base, 2, 0)[::2]):
        x = wf.asarray(a)
        y = x.clone()
        np.testing.assert_array_equal(y.numpy(), a)
        assert y.numpy().strides == np.array(a).strides and not np.shares_memory(y.numpy(), x.numpy())


def test_clones_of_large_tensors_are_made_by_native_code_bit_by_bit():
    bits = np.array([0x7FC00001, 0x7F800001, 0xFFC12345, 0x80000000] * 8192, np.uint32)  # NaNs with something to say
    x = wf.asarray(bits.view(np.float32))
    assert any(k.name == "llvm clone" and k.when(x.numpy()) for k in registry.get("clone").kernels)
    np.testing.assert_array_equal(x.clone().numpy().view(np.uint32), bits)
