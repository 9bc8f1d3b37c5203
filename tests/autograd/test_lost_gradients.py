"""Nothing loses gradients silently: making tensors of tensors keeps them, what cannot keep them raises."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F


def _x(value=1.5):
    return wf.tensor(value, dtype=wf.float64, requires_grad=True)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize(("make", "value", "slopes"), [
    (lambda x: wf.asarray([x, 2 * x]), [1.5, 3.0], [1, 2]),
    (lambda x: wf.asarray((x, 4.0)), [1.5, 4.0], [1, 0]),
    (lambda x: wf.asarray([[x, 1], [2, x * x]]), [[1.5, 1], [2, 2.25]], [[1, 0], [0, 3]]),
    (lambda x: wf.asarray([wf.stack([x, x]), np.ones(2)]), [[1.5, 1.5], [1, 1]], [[1, 1], [0, 0]]),
    (lambda x: wf.asarray([x, x], copy=True), [1.5, 1.5], [1, 1]),
    (lambda x: wf.tensor([x, 2 * x]), [1.5, 3.0], [1, 2]),
    (lambda x: wf.tensor([[x], [x * x]]), [[1.5], [2.25]], [[1], [3]]),
    (lambda x: wf.tensor(x), 1.5, 1),
    (lambda x: wf.asarray(x, copy=True), 1.5, 1),
    (lambda x: wf.linspace(x, 2 * x, 3, dtype=wf.float64), [1.5, 2.25, 3.0], [1, 1.5, 2]),
    (lambda x: wf.linspace(0.0, x, 3, dtype=wf.float64), [0, 0.75, 1.5], [0, 0.5, 1]),
    (lambda x: wf.linspace(x, 9.5, 4, endpoint=False, dtype=wf.float64), [1.5, 3.5, 5.5, 7.5], [1, 0.75, 0.5, 0.25]),
    (lambda x: wf.linspace(wf.stack([x, x]), 3.5, 2, dtype=wf.float64), [[1.5, 1.5], [3.5, 3.5]], [[1, 1], [0, 0]]),
    (lambda x: wf.logspace(x - 1.5, 2.0, 2, base=1.0, dtype=wf.float64), [1.0, 1.0], [0, 0]),
    (lambda x: wf.full((2,), x), [1.5, 1.5], [1, 1]),
    (lambda x: wf.full_like(wf.ones(2, dtype=wf.float64), x), [1.5, 1.5], [1, 1]),
    (lambda x: _assigned(wf.zeros(2, dtype=wf.float64), [x, 2 * x]), [1.5, 3], [1, 2]),
])  # fmt: skip
def test_tensors_made_of_tensors_keep_their_gradients(make, value, slopes, captured):
    x = _x()
    got = (wf.function(make) if captured else make)(x)
    assert got.requires_grad and got.dtype == wf.float64
    np.testing.assert_allclose(got.detach().numpy(), value)
    slope = lambda v: wf.jacobian(make, v)
    assert (wf.function(slope) if captured else slope)(x).tolist() == slopes


def _assigned(y, values):
    y[:] = values
    return y


def test_ranges_keep_the_gradients_of_start_and_step():
    assert wf.jacobian(lambda x: wf.arange(x, 5 * x, x, dtype=wf.float64), _x(1.0)).tolist() == [1, 2, 3, 4]
    assert wf.jacobian(lambda x: wf.arange(x, 4.0), _x(1.0)).tolist() == [1, 1, 1]
    assert not wf.arange(0.0, _x(3.0)).requires_grad  # the derivative with respect to the end is zero
    assert not wf.arange(_x(1.0), 3.0, dtype=wf.int64).requires_grad
    assert wf.arange(_x(1.0), 3.0).tolist() == wf.arange(1.0, 3.0).tolist()


def test_sequences_of_tensors_promote_as_before():
    assert wf.asarray([wf.tensor([1]), wf.tensor([2.5])]).dtype == wf.float32
    assert wf.asarray([wf.tensor(1, dtype=wf.int32), 2]).dtype == wf.int32
    assert wf.asarray([_x(), wf.ones(())]).dtype == wf.float64
    assert wf.asarray([_x(), 1.0], dtype=wf.float32).dtype == wf.float32
    with pytest.raises(ValueError, match=r"asarray: cannot stack shapes \[\(\), \(2,\)\] into one tensor"):
        wf.asarray([_x(), wf.ones(2)])
    with pytest.raises(ValueError, match="needs a copy"):
        wf.asarray([_x()], copy=False)
    with wf.no_grad():
        assert not wf.asarray([_x(), _x()]).requires_grad


def test_numbers_of_linspace_do_not_depend_on_how_the_ends_are_given():
    for dtype in (wf.float32, wf.float64, wf.int64):
        a = wf.linspace(-1.3, 7.1, 23, dtype=dtype)
        b = wf.linspace(wf.tensor(-1.3, dtype=wf.float64), wf.tensor(7.1, dtype=wf.float64), 23, dtype=dtype)
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=0)
    assert wf.linspace(wf.tensor(1j), 2.0, 2).tolist() == [1j, 2]
    assert wf.linspace(_x(), 2.0, 0).shape == (0,) and wf.linspace(_x(), 2.0, 1).tolist() == [1.5]


def test_a_leaf_is_not_made_of_tensors_that_require_gradients():
    for data in (_x(), [_x(), 1.0]):
        with pytest.raises(
            RuntimeError, match="tensor: the data require gradients already.*`x.detach\\(\\)` for a new leaf"
        ):
            wf.tensor(data, requires_grad=True)
    assert wf.tensor(_x().detach(), requires_grad=True).is_leaf
    with pytest.raises(RuntimeError, match="Tensor: the tensor requires gradients. `wf.asarray\\(x\\)` keeps them"):
        wf.Tensor(_x())
    with pytest.raises(
        RuntimeError, match="tensor: the tensor requires gradients. `wf.asarray` or `wf.stack` keeps them"
    ):
        wf.Tensor([_x(), _x()])


V = wf.ones(3, requires_grad=True)


@pytest.mark.parametrize("convert", [
    lambda: V.numpy(), lambda: np.asarray(V), lambda: np.array(V), lambda: np.array([V, V]), lambda: np.asarray([_x(), _x()]),
    lambda: np.add(np.ones(3), V, out=np.ones(3)), lambda: np.ones(3).__iadd__(V), lambda: np.ones(3).__setitem__(slice(None), V),
    lambda: np.float32(_x()), lambda: np.testing.assert_allclose(V, np.ones(3)),
])  # fmt: skip
def test_numpy_refuses_tensors_that_require_gradients(convert):
    with pytest.raises(RuntimeError, match=r": the tensor requires gradients\..*Write `x.detach\(\)"):
        convert()


@pytest.mark.parametrize(("compute", "slopes"), [
    (lambda v: np.concatenate([v, np.ones(3)]).sum(), [1, 1, 1]), (lambda v: np.stack([v, v]).sum(), [2, 2, 2]),
    (lambda v: np.where(np.array([True, False, True]), v, 0).sum(), [1, 0, 1]), (lambda v: np.dot(v, v), [3, 4, 6]),
    (lambda v: np.linalg.norm(v[:1]), [1, 0, 0]), (lambda v: np.sort(v)[0], [1, 0, 0]), (lambda v: np.add.reduce(v), [1, 1, 1]),
    (lambda v: np.add.accumulate(v).sum(), [3, 2, 1]), (lambda v: np.einsum("i->", v), [1, 1, 1]),
])  # fmt: skip
def test_numpy_functions_of_arrays_and_tensors_keep_gradients(compute, slopes):
    v = wf.tensor([1.5, 2.0, 3.0], requires_grad=True)
    compute(v).backward()
    assert v.grad.tolist() == slopes


@pytest.mark.parametrize("call", [
    lambda: np.sin(V), lambda: np.ones(3, np.float32) + V, lambda: np.ones((2, 3), np.float32) @ V, lambda: np.sum(V),
    lambda: np.mean(V), lambda: np.clip(V, 0, 1),
])  # fmt: skip
def test_numpy_functions_that_are_ops_keep_gradients(call):
    got = call()
    assert isinstance(got, wf.Tensor) and got.requires_grad


M = wf.ones(2, 3)


@pytest.mark.parametrize("call", [
    lambda s: wf.pad(M, ((1, 1), (0, 0)), value=s), lambda s: F.pad(M, (1, 1), value=s), lambda s: F.layer_norm(M, (3,), eps=s),
    lambda s: F.rms_norm(M, (3,), eps=s), lambda s: F.group_norm(wf.ones(1, 2, 3), 1, eps=s),
    lambda s: F.huber_loss(M, M + 1, delta=s),
    lambda s: F.smooth_l1_loss(M, M + 1, beta=s), lambda s: F.cross_entropy(M, wf.tensor([0, 1]), label_smoothing=s),
    lambda s: F.scaled_dot_product_attention(M, M, M, scale=s),
    lambda s: F.lp_pool1d(wf.ones(1, 1, 4), s, 2), lambda s: F.instance_norm(wf.ones(1, 2, 3), eps=s),
    lambda s: F.batch_norm(wf.ones(2, 3), None, None, training=True, eps=s),
])  # fmt: skip
def test_attributes_refuse_tensors_that_require_gradients(call):
    s = wf.tensor(0.5, requires_grad=True)
    for _ in range(2):
        with pytest.raises(
            TypeError, match="must be a number. Got a tensor that requires gradients, which would be lost"
        ):
            call(s)
    plain, number = call(s.detach()), call(0.5)
    np.testing.assert_array_equal(plain.numpy(), number.numpy())


def test_tensors_made_inside_a_captured_function_are_new_in_every_call():
    def total(x):
        c = wf.asarray(0.0)
        d = wf.asarray([0.0, 1.0])
        c += x.sum()
        d += x
        return c, d

    captured = wf.function(total)
    for _ in range(3):
        c, d = captured(wf.ones(2))
        assert c.item() == 2 and d.tolist() == [1, 2]
