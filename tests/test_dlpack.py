"""DLPack in and out: zero copy with NumPy for every dtype, strides, read-only memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import weft as wf
from weft import dtypes

PLAIN = [d for d in dtypes.ALL if d is not wf.bfloat16]


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_out_to_numpy_and_in_again_share_memory(dtype):
    t = wf.ones(2, 3, dtype=dtype)
    a = np.from_dlpack(t)
    assert a.dtype == dtype and np.shares_memory(a, t.numpy())
    back = wf.from_dlpack(a)
    assert back.dtype is dtype and np.shares_memory(back.numpy(), a)
    direct = wf.from_dlpack(t)
    assert np.shares_memory(direct.numpy(), t.numpy())
    t[0, 0] = 0
    assert not a[0, 0] and not back[0, 0].item()


def test_bfloat16_between_tensors():
    t = wf.tensor([[1.5, -2.0]], dtype=wf.bfloat16)
    u = wf.from_dlpack(t)
    assert u.dtype is wf.bfloat16 and u.tolist() == [[1.5, -2.0]] and np.shares_memory(u.numpy(), t.numpy())
    u[0, 0] = 7
    assert t[0, 0].item() == 7


@pytest.mark.parametrize("make", [
    lambda t: t.T, lambda t: t[1:, ::2], lambda t: t[:, 1], lambda t: t[::-1],
    lambda t: t[0, 0], lambda t: t[:0], lambda t: t.reshape(-1),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [wf.float32, wf.bfloat16], ids=str)
def test_strided_views(make, dtype):
    t = wf.arange(12).reshape(3, 4).astype(dtype)
    view = make(t)
    got = wf.from_dlpack(view)
    assert got.shape == view.shape and got.strides == view.strides or view.size <= 1 or 0 in view.shape
    np.testing.assert_array_equal(got.numpy(), view.numpy())
    if view.size:
        assert np.shares_memory(got.numpy(), t.numpy())


def test_memory_outlives_the_producer():
    t = wf.arange(1000) * 1
    watch = weakref.ref(t._data)
    u = wf.from_dlpack(t)
    del t
    gc.collect()
    assert watch() is not None and u[999].item() == 999
    del u
    gc.collect()
    assert watch() is None


def test_pooled_memory_travels():
    t = wf.ones(512, 512)
    a = np.from_dlpack(t)
    del t
    assert a.sum() == 512 * 512


def test_gradients_must_be_detached():
    x = wf.ones(2, requires_grad=True)
    with pytest.raises(BufferError, match="__dlpack__: the tensor requires gradients. Export `x.detach\\(\\)`"):
        np.from_dlpack(x)
    assert np.from_dlpack(x.detach()).sum() == 2


def test_read_only_memory_stays_read_only_or_is_copied():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = wf.asarray(a)
    b = np.from_dlpack(t)
    assert not b.flags.writeable
    capsule = t.__dlpack__()  # the old protocol cannot say read-only: a copy
    assert "dltensor" in repr(capsule)
    u = wf.from_dlpack(t)
    with pytest.raises(ValueError, match="read-only"):
        u += 1


def test_copy_and_device_arguments():
    t = wf.ones(3)
    u = wf.from_dlpack(t, copy=True)
    u += 1
    assert t.tolist() == [1, 1, 1]
    assert t.__dlpack_device__() == (1, 0)
    wf.from_dlpack(t, device="cpu")
    with pytest.raises((ValueError, BufferError)):
        wf.from_dlpack(t, device="cuda")
    with pytest.raises((BufferError, ValueError)):
        t.__dlpack__(dl_device=(2, 0))


def test_wrong_producers():
    with pytest.raises(TypeError, match="from_dlpack: expected an object with `__dlpack__`. Got list"):
        wf.from_dlpack([1, 2])

    class Elsewhere:
        def __dlpack__(self, **_):
            raise AssertionError("must not be asked")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(BufferError, match="expected data on the CPU. Got DLPack device \\(2, 0\\)"):
        wf.from_dlpack(Elsewhere())

    class Broken:
        def __dlpack__(self, **_):
            return "no capsule"

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises((TypeError, ValueError, BufferError)):
        wf.from_dlpack(Broken())


def test_asarray_takes_dlpack_producers():
    class Producer:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **options):
            return self.a.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    a = np.arange(4.0, dtype=np.float32)
    t = wf.asarray(Producer(a))
    assert np.shares_memory(t.numpy(), a)


def test_old_producers_without_arguments():
    class Old:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, stream=None):
            return self.a.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    a = np.arange(4.0)
    assert np.shares_memory(wf.from_dlpack(Old(a)).numpy(), a)
