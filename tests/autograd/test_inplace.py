"""Writing in place under gradients: every program here must have the gradients of what it computes.

The oracle is `gradcheck`: differences are taken of the same program run without recording, where in-place ops are plain
memory writes (and those are compared with NumPy), so a tape that misses a write or sees it twice disagrees.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def _matrix(seed=0, shape=(3, 4)):
    return wf.asarray(np.random.default_rng(seed).uniform(0.5, 2.0, shape)).requires_grad_()


def base_then_view(x):
    y = x * 1
    v = y[1]
    y *= 3
    return v * v


def view_then_base(x):
    y = x * 1
    v = y[1]
    v *= 3
    return y * y


def view_of_view(x):
    y = x * 1
    v = y[1:]
    w = v[:, 2]
    w *= w
    return (y * y).sum() + (v * 2).sum() + w.sum()


def two_views_overlap(x):
    y = x * 1
    a, b = y[0:2], y[1:3]
    a += 1
    b *= 2
    return y.sin().sum() + (a * b).sum()


def transposed_view(x):
    y = x * 1
    t = y.T
    t[0] = 5.0
    t[1] *= t[2]
    return (y * y).sum() + t.exp().sum()


def reshape_view(x):
    y = x * 1
    flat = y.reshape(-1)
    flat[3:7] *= flat[0:4]
    return (y**2).sum() + flat.sum()


def expand_and_squeeze(x):
    y = x * 1
    u = wf.expand_dims(y, 1)
    s = u[:, 0]
    s[0, 0] = s[1, 1] * 2
    return (u**3).sum() + (y * s).sum()


def swapaxes_of_slice(x):
    y = x * 1
    v = y[:2, 1:].swapaxes(0, 1)
    v += v.clone().sum()
    return (y * y).sum() + v.sum()


def setitem_value_requires_grad(x):
    y = wf.zeros(5, 4, dtype=wf.float64)
    y[1:4] = x
    y[0] = x[0] * x[1]
    return (y * y).sum()


def setitem_broadcasts_value(x):
    y = x * 1
    y[:, 1:3] = x[:, :1] * 2
    y[1] = x[0, 0]
    return (y**2).sum()


def setitem_scalar(x):
    y = x * x
    y[1, 2] = 0.0
    y[-1] = 7
    return (y * x).sum()


def setitem_mask(x):
    y = x * 1
    y[x > 1.2] = 0.25
    return (y * y).sum()


def setitem_mask_value(x):
    y = x * 1
    mask = x.detach() > 1.2
    y[mask] = (x * x)[mask]
    return (y * x).sum()


def setitem_index_tensor(x):
    y = x * 1
    y[wf.tensor([2, 0])] = x[:2] * x[1:]
    return (y**2).sum()


def setitem_two_index_tensors(x):
    y = x * 1
    y[wf.tensor([2, 0]), wf.tensor([1, 3])] = x[0, :2] * 3
    return (y**2).sum()


def setitem_index_through_view(x):
    y = x * 1
    v = y[1:]
    v[wf.tensor([1]), 2] = x[0, 0]
    v[:, wf.tensor([0, 3])] *= 2.0
    return (y**2).sum() + v.sum()


def iadd_on_getitem(x):
    y = x * 1
    y[0] += y[1].clone() * y[2].clone()
    y[1] -= 1
    y[2] /= y[0]
    return y.sum() + (y * y).sum()


def parts_that_do_not_overlap(x):
    y = x * 1
    y[0] = y[1] * y[2]  # saves rows 1 and 2, writes row 0
    y[0, 1:] *= y[1, 1:].sum()
    return (y[0] * 2).sum() + y[1:, 0].exp().sum()


def multiply_by_itself(x):
    y = x * 1
    y *= y
    return y.sum()


def multiply_view_by_its_own_part(x):
    y = x * 1
    y[0:2] *= y[1:3]
    return (y * y).sum()


def in_place_function(x):
    y = x * 1
    y.exp_()
    y.sqrt_()
    y.clip_(1.0, 2.5)
    return (y * x).sum()


def chain_of_writes(x):
    y = x * 1
    for i in range(3):
        y[i] = y[(i + 1) % 3].clone().sin() + y[i]
    return (y * y).sum()


def writes_between_reads(x):
    y = x * 1
    a = (y * 2).sum()
    y += 1
    b = (y[0] * 3).sum()
    y.mul_(2)
    return a * b + y.sum()


def fill_and_zero(x):
    y = x * 1
    y[0].fill_(2.0)
    y[1].zero_()
    return (y * x).sum()


def copy_from_expression(x):
    y = wf.zeros_like(x)
    y.copy_(x * x)
    y[1].copy_(x[2])
    return (y * x).sum()


def view_made_under_no_grad_is_apart(x):
    y = x * 1
    with wf.no_grad():
        v = y[0] * 1
        v += 1
    return (y * y).sum()


def clone_is_apart(x):
    y = x * 1
    c = y.clone()
    c *= 2
    return (y * c).sum()


def iterate_and_write(x):
    y = x * 1
    for row in y:
        row *= 2
    return (y * y).sum()


def unstack_and_write(x):
    y = x * 1
    a, b, _ = wf.unstack(y)
    a += b
    b *= a
    return (y * y).sum()


def split_and_write(x):
    y = x * 1
    left, right = wf.split(y, 2, axis=1)
    left *= right
    return (y * y).sum() + left.sum()


def flatten_then_write_base(x):
    y = x * 1
    flat = y.flatten()
    y[0] = 1.0
    return (flat * flat).sum()


def negative_step_view(x):
    y = x * 1
    v = y[:, ::-2]
    v *= 3
    return (y * y * x).sum()


def newaxis_view(x):
    y = x * 1
    v = y[None, :, 0]
    v += 2
    return (y * y).sum()


def zero_d_view(x):
    y = x * 1
    v = y[1, 1]
    v *= 4
    return (y * y).sum() + v


def ellipsis_write(x):
    y = x * 1
    y[...] = x * x
    y[..., 0] += 1
    return (y * x).sum()


def float32_value_into_float64(x):
    y = x * 1
    y[0] = wf.ones(4, dtype=wf.float32)
    return (y * y).sum()


PROGRAMS = [
    v
    for v in list(globals().values())
    if callable(v) and getattr(v, "__module__", None) == __name__ and not v.__name__.startswith("_")
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradient_of_a_program_that_writes_in_place(program):
    assert wf.gradcheck(program, _matrix())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_recorded_and_unrecorded_runs_agree(program):
    x = _matrix(3)
    recorded = program(x).detach().numpy()
    with wf.no_grad():
        plain = program(x.detach()).numpy()
    np.testing.assert_array_equal(recorded, plain)


@pytest.mark.parametrize(
    "program",
    [view_then_base, view_of_view, setitem_mask, iadd_on_getitem, multiply_by_itself, in_place_function],
    ids=lambda p: p.__name__,
)
def test_second_order_through_writes(program):
    assert wf.gradgradcheck(program, _matrix(1, (3, 4)))


def test_large_views_of_pooled_memory():
    """Memory from the pool has a base that is no array; a view must be recognised there too."""
    x = wf.ones(512, 512, requires_grad=True)
    y = wf.zeros(512, 512) + x
    flat = y.reshape(-1)
    flat[:512] *= 3
    y.T[1] = 0.0
    flat.sum().backward()
    expected = np.ones((512, 512))
    expected[0] = 3
    expected[:, 1] = 0
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_writes_reach_numpy_and_the_base():
    a = np.zeros((3, 4), np.float32)
    t = wf.asarray(a)
    t[1:3, 2] = 5
    t.T[0] += 1
    t.reshape(-1)[3] = 9
    assert a[1, 2] == 5 and a[0, 0] == 1 and a[0, 3] == 9 and t.numpy() is a


def test_leaf_cannot_be_written_under_recording():
    x = wf.ones(3, requires_grad=True)
    for write in (lambda: x.add_(1), lambda: x.__setitem__(0, 1.0), lambda: x[0:2].mul_(2), lambda: x.zero_()):
        with pytest.raises(RuntimeError, match="leaf.*requires gradients is written in place.*no_grad"):
            write()
    with wf.no_grad():
        x += 1
        x[0] = 5
        x[1:].mul_(2)
    assert x.tolist() == [5, 4, 4] and x.is_leaf and x.requires_grad


def test_view_of_leaf_made_under_no_grad_may_be_written():
    x = wf.ones(3, requires_grad=True)
    with wf.no_grad():
        v = x[0:2]
    assert not v.requires_grad
    v += 1
    assert x.tolist() == [2, 2, 1]


def test_recorded_write_to_a_view_made_under_no_grad_is_refused():
    x = wf.ones(2, requires_grad=True)
    base = wf.zeros(3, 2)
    with wf.no_grad():
        views = [base[0], base.T, base.reshape(-1), base[1:][0]]
    views.append(views[0][:1])
    for v in views:
        with pytest.raises(RuntimeError, match="a view that was made under no_grad.*Make the view again"):
            v += x.sum()
        v += 1  # nothing to record: an ordinary write
    with wf.no_grad():
        views[0].copy_(x)
    apart = views[0].clone()
    apart += x
    assert apart.requires_grad


def test_overwritten_saved_value_names_op_tensor_and_line():
    x = wf.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y += 1  # the line to be named
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    text = str(caught.value)
    assert "backward of multiply" in text and "'x2'" in text or "'x1'" in text
    assert "overwritten in place by add" in text and "test_inplace.py" in text and "the line to be named" in text


@pytest.mark.parametrize("write", [
    lambda y: y.__setitem__(0, 1.0), lambda y: y[1:].add_(1), lambda y: y.reshape(-1).mul_(2), lambda y: y.T.zero_(),
    lambda y: y.detach().add_(1), lambda y: y.__setitem__(wf.tensor([0]), 3.0), lambda y: y.clip_(0, 1), lambda y: y.exp_(),
])  # fmt: skip
def test_every_kind_of_overwriting_is_noticed(write):
    x = wf.ones(3, requires_grad=True)
    y = x * 2
    z = wf.sin(y)
    with wf.no_grad():
        write(y)
    with pytest.raises(RuntimeError, match="backward of sin.*overwritten in place"):
        z.sum().backward()


def test_overwriting_after_backward_or_before_saving_is_fine():
    x = wf.ones(3, requires_grad=True)
    y = x * 2
    y += 1
    z = (y * y).sum()
    z.backward()
    y += 1
    assert x.grad.tolist() == [12, 12, 12]


def test_overwriting_another_tensor_is_fine():
    x = wf.ones(6, requires_grad=True)
    w = wf.ones(6)
    z = (x * w).sum()
    other = wf.ones(6)
    other += 1
    z.backward()
    assert x.grad.tolist() == [1] * 6


def test_saved_output_that_is_overwritten_is_noticed():
    x = wf.ones(3, requires_grad=True)
    y = x.exp()
    with wf.no_grad():
        y *= 2
    with pytest.raises(RuntimeError, match="backward of exp: its saved tensor 'out'"):
        y.sum().backward()


def test_in_place_result_must_keep_shape_and_kind():
    x = wf.ones(3)
    with pytest.raises(ValueError, match=r"add: .*keep the shape \(3,\). Got \(2, 3\)"):
        x += wf.ones(2, 3)
    n = wf.tensor([1, 2])
    with pytest.raises(
        TypeError, match="divide: a result of dtype float32 cannot be stored in place in a tensor of int64"
    ):
        n /= 2
    with pytest.raises(TypeError, match="setitem: .*float32.*int64"):
        n[0] = 0.5
    n += 1
    n[0] = True
    assert n.tolist() == [1, 3]


def test_read_only_memory_is_refused():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = wf.asarray(a)
    for write in (lambda: t.add_(1), lambda: t.__setitem__(0, 1.0)):
        with pytest.raises(ValueError, match="read-only.*clone"):
            write()
    b = wf.ones(3).expand(2, 3)
    with pytest.raises(ValueError, match="read-only"):
        b += 1
    x = wf.ones(3, requires_grad=True)
    with pytest.raises((ValueError, RuntimeError), match="read-only|several of its elements"):
        (x * 1).expand(2, 3).add_(1)


def test_infinities_are_written_once_and_without_warnings():
    for write in (lambda t: t.div_(0.0), lambda t: t.mul_(3e38), lambda t: t.pow_(200.0)):
        plain = wf.tensor([1.0, 2.0, 3e30])
        with wf.no_grad():
            write(plain)
        recorded = wf.tensor([1.0, 2.0, 3e30], requires_grad=True) * 1
        write(recorded)
        assert plain.tolist() == recorded.tolist() and np.inf in plain.tolist()
    with np.errstate(all="raise"), wf.no_grad():
        t = wf.tensor([1.0, 2.0])
        t /= 0.0
    assert t.tolist() == [np.inf, np.inf]


def test_hooks_and_retain_grad_survive_later_writes():
    x = wf.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    z = y * 1
    z[0] = 0.0
    z.sum().backward()
    assert y.grad.tolist() == [0, 1, 1] and x.grad.tolist() == [0, 2, 2]


def test_detach_shares_memory_without_history():
    x = wf.ones(3, requires_grad=True)
    y = x * 2
    d = y.detach()
    d[0] = 9
    assert y.tolist() == [9, 2, 2] and not d.requires_grad


def test_operators_return_the_same_object():
    x = y = wf.ones(3)
    y += 1
    assert x is y and x.tolist() == [2, 2, 2]
    for name in ("add_", "mul_", "sub_", "div_", "clip_", "fill_", "zero_", "copy_"):
        args = {"clip_": (0, 1), "zero_": ()}.get(name, (2,))
        assert getattr(x, name)(*args) is x
