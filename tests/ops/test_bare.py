"""Functions that compute small unrecorded work at once agree with the ops they stand for, and refuse what those refuse."""

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F
from weft.ops.core import small_arrays


def recorded(fn, x, *rest, **named):
    """What the ops give: a gradient is wanted, so nothing takes the short way."""
    return fn(x.clone().requires_grad_(), *rest, **named).detach()


def numbers(*shape, dtype=np.float32):
    return wf.asarray(np.random.standard_normal(shape).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (16, 10), (5, 70), (100, 33)])
def test_mean_cross_entropy_at_once(shape, dtype):
    x = numbers(*shape, dtype=dtype)
    labels = np.random.randint(0, shape[1], shape[0])
    if shape[0] > 3:
        labels[2] = -100
    target = wf.asarray(labels)
    got = F.cross_entropy(x, target)
    assert got.shape == () and got.dtype == x.dtype
    np.testing.assert_allclose(got.numpy(), recorded(F.cross_entropy, x, target).numpy(), rtol=2e-6)
    some = wf.asarray(np.abs(labels) % shape[1])
    got = F.cross_entropy(x, some, ignore_index=0)
    np.testing.assert_allclose(got.numpy(), recorded(F.cross_entropy, x, some, ignore_index=0).numpy(), rtol=2e-6)


def test_mean_cross_entropy_of_infinities_and_of_nothing():
    x = wf.tensor([[1.0, -float("inf"), 2.0], [0.0, 1e4, -1e4], [float("nan"), 0.0, 0.0]])
    for labels in ([0, 1, -100], [1, 1, -100], [0, 2, -100], [0, 1, 2], [-100, -100, -100]):
        target = wf.tensor(labels)
        np.testing.assert_allclose(
            F.cross_entropy(x, target).numpy(), recorded(F.cross_entropy, x, target).numpy(), rtol=2e-6
        )


def test_wrong_labels_are_refused_as_ever():
    x = numbers(4, 3)
    F.cross_entropy(x, wf.tensor([0, 1, 2, 0]))
    with pytest.raises(IndexError, match="cross_entropy: target holds 3; expected classes 0 to 2"):
        F.cross_entropy(x, wf.tensor([0, 1, 3, 0]))
    with pytest.raises(IndexError, match="cross_entropy: target holds -1"):
        F.cross_entropy(x, wf.tensor([0, -1, 2, 0]))
    with pytest.raises(ValueError, match=r"target has shape \(3,\); expected \(4,\)"):
        F.cross_entropy(x, wf.tensor([0, 1, 2]))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 4)])
@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)])
def test_batch_norm_at_once_gives_the_bits_of_its_ops(shape, affine):
    x, mean, var = numbers(*shape), numbers(3), numbers(3) ** 2
    weight, bias = (numbers(3) if wanted else None for wanted in affine)
    got = F.batch_norm(x, mean, var, weight, bias)
    np.testing.assert_array_equal(got.numpy(), recorded(F.batch_norm, x, mean, var, weight, bias).numpy())
    assert F.batch_norm(x, mean, var, weight, bias, eps=1).dtype == wf.float32


def test_batch_norm_refuses_as_ever():
    with pytest.raises(ValueError, match=r"batch_norm: running_mean has shape \(2,\)"):
        F.batch_norm(numbers(2, 3), numbers(2), numbers(3))
    with pytest.raises(ValueError, match="batch_norm: running_mean and running_var are needed"):
        F.batch_norm(numbers(2, 3), None, None)


def test_what_is_recorded_seen_or_mixed_goes_the_long_way():
    x = numbers(2, 3)
    assert small_arrays.arrays(x, None)[0] is x._data
    assert small_arrays.arrays(x, x.astype(wf.float64)) is None
    assert small_arrays.arrays(x.astype(wf.int64)) is None
    assert small_arrays.arrays(wf.zeros(1 << 16)) is None
    leaf = x.clone().requires_grad_()
    assert small_arrays.arrays(leaf) is None
    with wf.no_grad():
        assert small_arrays.arrays(leaf) is not None
    with wf.detect_anomaly():
        assert small_arrays.arrays(x) is None
    assert not np.shares_memory(F.batch_norm(x, numbers(3), numbers(3) ** 2).numpy(), x.numpy())


def test_captured_functions_record_their_ops():
    x, target = numbers(4, 3), wf.tensor([0, 1, 2, 0])
    np.testing.assert_allclose(
        wf.function(F.cross_entropy)(x, target).numpy(), F.cross_entropy(x, target).numpy(), rtol=2e-6
    )


@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm_at_once_gives_the_bits_of_its_op(affine):
    x = numbers(4, 3, 6)
    for shape in ((6,), (3, 6)):
        weight, bias = (numbers(*shape) if wanted else None for wanted in affine)
        for _ in range(2):
            got = F.layer_norm(x, shape, weight, bias)
            np.testing.assert_array_equal(got.numpy(), recorded(F.layer_norm, x, shape, weight, bias).numpy())
    with pytest.raises(ValueError, match=r"layer_norm: weight has shape \(2,\); expected \(6,\)"):
        F.layer_norm(x, (6,), numbers(2))


def test_a_keyword_for_the_second_argument_is_as_good_as_its_place():
    x = numbers(3, 4)
    np.testing.assert_array_equal(F.softmax(x, axis=0).numpy(), F.softmax(x, 0).numpy())
    np.testing.assert_array_equal(wf.flip(x, axis=1).numpy(), x.numpy()[:, ::-1])
    np.testing.assert_array_equal(F.softmax(x, dim=0).numpy(), F.softmax(x, 0).numpy())
    with pytest.raises(TypeError, match="softmax: unexpected argument 'dimension'"):
        F.softmax(x, dimension=1)
    with pytest.raises(TypeError, match="two values for argument 'x'"):
        F.softmax(x, x=x)
