"""Lowering: storage of results, reuse of operands' memory, and the order of steps."""

import time

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F


def labels(f):
    return [(s.kind, s.label) for s in f.traces[0].compiled.program.steps]


def same(fn, *args, calls=1):
    """Run `fn` eagerly and captured on copies of its state; returns the captured function."""
    f = wf.function(fn)
    for _ in range(calls):
        a, b = fn(*args), f(*args)
        a, b = (x if isinstance(x, tuple) else (x,) for x in (a, b))
        for p, q in zip(a, b, strict=True):
            np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=2e-5, atol=1e-6)
    return f


def test_update_is_written_over_the_variable():
    v = wf.zeros(1000)

    @wf.function
    def f(x):
        v.mul_(0.5)
        v.add_(x)

    f(wf.ones(1000))
    f(wf.ones(1000))
    assert labels(f) == [("kernel", "multiply+add")] and v.tolist() == [1.5] * 1000
    assert f.traces[0].compiled.program.arena == 0


def test_variable_read_in_another_order_is_not_written_over_at_once():
    v = wf.tensor(np.arange(9, dtype="f").reshape(3, 3))
    expected = v.numpy() + v.numpy().T
    f = wf.function(lambda: v.copy_(v + v.T))
    f()
    np.testing.assert_array_equal(v.numpy(), expected)
    assert ("kernel", "copy") in labels(f)


def test_two_variables_are_swapped():
    a, b = wf.zeros(5), wf.ones(5)

    @wf.function
    def swap():
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    for _ in range(3):
        swap()
    assert a.tolist() == [1.0] * 5 and b.tolist() == [0.0] * 5


def test_old_value_is_read_after_the_write_in_program_order():
    v = wf.ones(4)

    @wf.function
    def f(x):
        old = v * 1.0
        v.add_(x)
        return wf.sort(old) + v

    assert f(wf.ones(4)).tolist() == [3.0] * 4
    assert f(wf.ones(4)).tolist() == [5.0] * 4


def test_shifted_window_of_a_variable():
    """v[1:] = v[:-1] reads what it writes, one element apart."""
    v = wf.tensor(np.arange(64, dtype="f"))

    @wf.function
    def f():
        v[1:] = v[:-1] + 0.0
        return v.sum()

    f()
    assert v.tolist() == [0.0, *np.arange(63, dtype="f").tolist()]


def test_indices_that_the_step_changes_are_read_before():
    i, x = wf.tensor([0, 1]), wf.tensor(np.eye(3, dtype="f")[:2] * 3)

    def fn():
        loss = F.cross_entropy(x, i)
        i.add_(1)
        return loss

    expected = F.cross_entropy(x, wf.tensor([0, 1])).item()
    one_rounding = float(np.spacing(np.float32(3)))  # of the log-sum-exp, from which 3 is subtracted
    assert wf.function(fn)().item() == pytest.approx(expected, abs=one_rounding)
    assert i.tolist() == [1, 2]


def test_ops_without_a_lowering_run_on_the_host_and_are_listed():
    f = same(lambda x: wf.exp(wf.linalg.inv(x)), wf.eye(3) * 2.0)
    assert ("host", "inv") in labels(f)
    assert "host calls (NumPy inside the program): inv" in f.explain()


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "complex64", "complex128", "bfloat16", "float16"])
def test_dtypes(dtype):
    x = wf.tensor(np.arange(1, 7).reshape(2, 3)).astype(getattr(wf, dtype))

    def fn(x):
        y = x * 2 + x
        return y.sum(axis=0), y.T, (y @ y.T)

    f = wf.function(fn)
    for a, b in zip(fn(x), f(x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(
            b.numpy().astype("complex128"), a.numpy().astype("complex128"), rtol=2e-2 if "16" in dtype else 1e-5
        )


def test_scalars_empties_and_unused_arguments():
    same(lambda x: x + 1, wf.tensor(2.0))
    same(lambda x: (x.sum(), x * 2, x.sum(axis=0)), wf.zeros(0, 3))
    same(lambda x, y: x * 2, wf.ones(2), wf.ones(3))
    same(lambda x: (x, x), wf.ones(2))
    assert wf.function(lambda x: 3)(wf.ones(2)) == 3
    same(lambda: wf.arange(3.0))


def test_strided_arguments_are_read_as_they_are_or_copied():
    x = wf.tensor(np.arange(24, dtype="f").reshape(4, 6))
    f = wf.function(lambda x: wf.exp(x * 0.1).sum(axis=1))
    for view in (x, x.T.reshape(4, 6), wf.flip(x, 0), x[:, ::1]):
        np.testing.assert_allclose(f(view).numpy(), np.exp(view.numpy() * 0.1).sum(1), rtol=1e-5)
    for view in (x[:, ::2], x[::2, :3], x.T[:2, :3]):
        g = wf.function(lambda x: wf.exp(x * 0.1).sum(axis=1))
        for _ in range(2):
            np.testing.assert_allclose(g(view).numpy(), np.exp(view.numpy() * 0.1).sum(1), rtol=1e-5)


def test_a_changed_layout_of_an_argument_gives_the_same_numbers():
    f = wf.function(lambda x: (x * 2, x.sum(axis=0), x @ x.T))
    base = np.random.default_rng(0).standard_normal((6, 8)).astype("f")
    for array in (base, np.asfortranarray(base), np.repeat(base, 2, 1)[:, ::2], base[::-1][::-1]):
        doubled, total, product = f(array)
        np.testing.assert_allclose(doubled.numpy(), base * 2)
        np.testing.assert_allclose(total.numpy(), base.sum(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(product.numpy(), base @ base.T, rtol=1e-4, atol=1e-5)


def test_a_chain_of_two_thousand_ops():
    def fn(x):
        for i in range(1000):
            x = x * 0.999
            x = x + (0.001 if i % 2 else 0.002)
        return x

    x = wf.tensor(np.linspace(-1, 1, 8, dtype="f"))
    f = wf.function(fn)
    start = time.perf_counter()
    got = f(x)
    assert time.perf_counter() - start < 30
    # a product and a sum in one kernel are rounded once
    np.testing.assert_allclose(got.numpy(), fn(x).numpy(), rtol=1e-4)
    assert len(labels(f)) <= 20


def test_a_chain_that_cannot_be_one_nest_shares_its_kernels():
    """Products and sums alternate: thousands of steps, of a handful of kernels that are each made once."""

    def fn(x):
        for _ in range(600):
            x = wf.tanh(x @ x)
        return x

    x = wf.tensor(np.random.default_rng(0).normal(0, 0.5, (4, 4)).astype("f"))
    f = wf.function(fn)
    np.testing.assert_allclose(f(x).numpy(), fn(x).numpy(), rtol=1e-3, atol=1e-4)
    steps = f.traces[0].compiled.program.steps
    assert len(steps) >= 1200
    assert len({id(s.kernel) for s in steps if s.label in ("matmul", "copy")}) <= 4


def test_a_chain_of_small_reductions():
    def fn(x):
        for i in range(700):
            x = x - x.sum() * 0.01 if i % 2 else x * 1.001
        return x

    x = wf.tensor(np.linspace(-1, 2, 16, dtype="f"))
    f = wf.function(fn)
    np.testing.assert_allclose(f(x).numpy(), fn(x).numpy(), rtol=1e-4, atol=1e-5)
    assert len(labels(f)) <= 60


@pytest.mark.parametrize(("shape", "axis"), [((1 << 19, 3), 0), ((2_000_000,), 0), ((3, 400_000), 1)])
def test_long_sums_keep_their_digits(shape, axis):
    """Half a million equal numbers added one after another in float32 would be off in the third digit."""
    x = wf.full(shape, 0.1)
    got = wf.function(lambda x: (x * 1.5).sum(axis=axis))(x)
    expected = (x.numpy() * np.float32(1.5)).astype("f8").sum(axis)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)


def test_of_a_variable_only_the_part_that_changes_is_written():
    v = wf.zeros((100, 100))

    @wf.function
    def f(x):
        v[3:5] = x

    f(wf.ones(100))
    f(wf.ones(100) * 2)
    assert v.sum().item() == 400 and v[3, 7].item() == 2
    assert labels(f) == [("kernel", "copy")] and f.traces[0].compiled.program.arena == 0


def test_a_part_of_a_variable_moves_over_itself():
    v = wf.arange(10, dtype=wf.float32)
    f = wf.function(lambda: v.__setitem__(slice(1, None), v[:-1]))
    f()
    assert v.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    g = wf.function(lambda: v.copy_(wf.flip(v)))
    g()
    assert v.tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0, 0]


def test_the_old_value_of_a_variable_with_a_new_part_can_still_be_read():
    v = wf.zeros(6)

    @wf.function
    def f():
        old = v + 0.0
        v[:2] = 5.0
        return old, v * 1.0

    old, new = f()
    assert old.tolist() == [0] * 6 and new.tolist() == v.tolist() == [5, 5, 0, 0, 0, 0]
