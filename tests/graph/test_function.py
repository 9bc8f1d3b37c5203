"""wf.function: a captured function behaves like the function it was made from."""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
import pytest

import weft as wf


def _parameters(seed=0):
    rng = np.random.default_rng(seed)
    return [
        wf.tensor(rng.standard_normal(s).astype("f") * 0.3, requires_grad=True) for s in ((8, 5), (8,), (3, 8), (3,))
    ]


def _model(ps, x):
    return wf.maximum(x @ ps[0].T + ps[1], 0.0) @ ps[2].T + ps[3]


def _make_step(ps, momentum):
    def step(x, y):
        loss = ((_model(ps, x) - y) ** 2).mean()
        for p in ps:
            p.grad = None
        loss.backward()
        with wf.no_grad():
            for p, m in zip(ps, momentum, strict=True):
                m *= 0.9
                m += p.grad
                p -= 0.1 * m
        return loss

    return step


def _batch(n=16, seed=1):
    rng = np.random.default_rng(seed)
    return wf.tensor(rng.standard_normal((n, 5)).astype("f")), wf.tensor(rng.standard_normal((n, 3)).astype("f"))


def test_training_step_gives_the_eager_numbers():
    eager, captured = _parameters(), _parameters()
    m1, m2 = ([wf.zeros(*p.shape) for p in eager] for _ in range(2))
    x, y = _batch()
    a, b = _make_step(eager, m1), wf.function(_make_step(captured, m2))
    for _ in range(6):
        np.testing.assert_allclose(a(x, y).item(), b(x, y).item(), rtol=1e-5)
    for p, q in zip([*eager, *m1], [*captured, *m2], strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_outside_tensors_changed_in_place_are_seen_by_the_next_call():
    w = wf.ones(3)
    f = wf.function(lambda x: x * w)
    x = wf.ones(3)
    assert f(x).tolist() == [1.0, 1.0, 1.0]
    w *= 5
    assert f(x).tolist() == [5.0, 5.0, 5.0]
    w[1] = 0.0
    assert f(x).tolist() == [5.0, 0.0, 5.0]


def test_in_place_updates_happen_in_program_order():
    counter = wf.zeros(())

    def fn(x):
        before = counter * 1
        counter.add_(1.0)
        middle = counter * 10
        counter.mul_(2.0)
        return before, middle, counter + x

    eager, captured = [], []
    for out, f in ((eager, fn), (captured, wf.function(fn))):
        counter.zero_()
        for _ in range(3):
            out.append([t.item() for t in f(wf.ones(()))])
        out.append(counter.item())
    assert eager == captured


def test_writes_through_views_reach_the_base():
    def fn(x):
        y = x * 1
        y[1:3] += 10.0
        row = y[0]
        row *= 3.0
        y[-1] = x.sum()
        return y, row

    x = wf.tensor([1.0, 2.0, 3.0, 4.0])
    for a, b in zip(fn(x), wf.function(fn)(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy())


def test_structures_go_in_and_come_out():
    @wf.function
    def fn(batch, scale, *, names):
        return {"sum": batch["x"] + batch["ys"][0] * scale, "names": names, "pair": (batch["x"], 3)}

    out = fn({"x": wf.ones(2), "ys": [wf.ones(2)]}, 2.0, names="abc")
    assert out["sum"].tolist() == [3.0, 3.0] and out["names"] == "abc" and out["pair"][1] == 3
    assert fn({"x": wf.ones(2), "ys": [wf.ones(2)]}, 4.0, names="abc")["sum"].tolist() == [5.0, 5.0]
    assert len(fn.signatures) == 2


def test_results_can_be_differentiated_outside():
    ps = _parameters()
    x, y = _batch()
    loss = ((wf.function(lambda x: _model(ps, x))(x) - y) ** 2).mean()
    loss.backward()
    got = [p.grad.numpy().copy() for p in ps]
    for p in ps:
        p.grad = None
    ((_model(ps, x) - y) ** 2).mean().backward()
    for g, p in zip(got, ps, strict=True):
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_gradients_accumulate_when_they_existed_before():
    w = wf.ones(2, requires_grad=True)
    w.grad = wf.ones(2)
    wf.function(lambda x: (w * x).sum().backward())(wf.tensor([3.0, 4.0]))
    assert w.grad.tolist() == [4.0, 5.0]


def test_gradients_are_kept_if_asked_for():
    w = wf.ones(2, requires_grad=True)
    wf.function(lambda x: (w * x).sum().backward(), keep_grads=True)(wf.tensor([3.0, 4.0]))
    assert w.grad.tolist() == [3.0, 4.0]


def test_escaping_tensor_is_an_error_with_the_line():
    class Box:
        value = None

    def fn(x):
        Box.value = x * 2
        return x

    with pytest.raises(wf.CaptureError, match=r"stored outside of it.*Box.value = x \* 2"):
        wf.function(fn)(wf.ones(2))


def test_truth_of_a_symbolic_tensor_shows_what_to_write():
    with pytest.raises(wf.CaptureError, match="wf.cond"):
        wf.function(lambda x: x if bool(x.sum() > 0) else -x, fullgraph=True)(wf.ones(2))


def test_error_while_tracing_keeps_the_users_traceback():
    def fn(x):
        return x @ wf.ones(7, 2)

    with pytest.raises(ValueError, match="matmul: inner dimensions differ") as info:
        wf.function(fn)(wf.ones(2, 3))
    assert any(entry.name == "fn" for entry in info.traceback)


def test_index_out_of_range_leaves_variables_as_they_were():
    table, count = wf.ones(4, 2), wf.zeros(())

    def fn(i):
        count.add_(1.0)
        rows = wf.take(table, i, axis=0)
        table.mul_(2.0)
        return rows

    f = wf.function(fn)
    f(wf.tensor([0, 3]))
    with pytest.raises(IndexError, match="out of range"):
        f(wf.tensor([0, 4]))
    assert count.item() == 1.0 and table.tolist() == [[2.0, 2.0]] * 4


def test_new_signatures_are_captured_and_many_are_reported_once():
    f = wf.function(lambda x: x + 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 14):
            assert f(wf.ones(n)).shape == (n,)
    assert len(f.signatures) == 13
    assert sum("signature" in str(w.message) for w in caught) == 1


def test_threads_may_call_one_function_at_once():
    w = wf.tensor(np.random.default_rng(0).standard_normal((64, 64)).astype("f"))
    f = wf.function(lambda x: wf.tanh(x @ w).sum(axis=1))
    inputs = [wf.tensor(np.full((32, 64), i, "f")) for i in range(4)]
    expected = [f(x).numpy().copy() for x in inputs]
    wrong = []

    def work(i):
        for _ in range(50):
            if not np.array_equal(f(inputs[i]).numpy(), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong and not any(t.is_alive() for t in threads)


def test_random_numbers_are_the_eager_ones_and_new_in_every_call():
    def fn(x):
        return x + wf.rand(4)

    wf.manual_seed(7)
    eager = [fn(wf.zeros(4)).tolist() for _ in range(3)]
    wf.manual_seed(7)
    f = wf.function(fn)
    assert [f(wf.zeros(4)).tolist() for _ in range(3)] == eager


def test_explain_draw_and_profile(tmp_path):
    ps = _parameters()
    f = wf.function(_make_step(ps, [wf.zeros(*p.shape) for p in ps]))
    f(*_batch())
    text = f.explain()
    for word in ("nodes:", "steps:", "GFLOP", "memory:", "host calls", "test_function.py:"):
        assert word in text
    assert f.graph.draw(tmp_path / "step.svg").read_text().startswith("<svg")
    with wf.profile(tmp_path / "trace.json") as p:
        f(*_batch())
    assert len(p.spans) == len(f.traces[0].compiled.program.steps)


def test_memory_budget_is_refused_before_anything_runs():
    w = wf.ones(64, 64)
    f = wf.function(lambda x: wf.exp(x @ w) @ w, memory_budget=64)
    with pytest.raises(MemoryError, match="memory_budget"):
        f(wf.ones(256, 64))


def test_nested_captured_functions_are_one_program():
    inner = wf.function(lambda x: x * 2)
    outer = wf.function(lambda x: inner(x) + 1)
    assert outer(wf.ones(2)).tolist() == [3.0, 3.0]
    assert inner.signatures == []


def test_a_leaf_made_inside_has_separate_gradients():
    w = wf.ones(2).requires_grad_()

    def slope_penalty(x):
        leaf = (x * 1.0).requires_grad_()
        (slope,) = wf.grad((leaf**3 * w).sum(), [leaf], create_graph=True)
        loss = (slope**2).sum()
        w.grad = None
        loss.backward()  # also reaches `leaf`, whose gradient is not used
        return loss, w.grad * 1

    x = wf.tensor([1.0, 2.0])
    for got, expected in zip(wf.function(slope_penalty)(x), slope_penalty(x), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-6)


def test_a_constant_index_out_of_range_is_an_error_too():
    x = wf.arange(3.0)
    assert wf.function(lambda x: wf.take(x, wf.tensor([0, -3]), axis=0))(x).tolist() == [0.0, 0.0]
    for bad in ([1, 3], [-4, 0]):
        f = wf.function(lambda x, bad=tuple(bad): wf.take(x, wf.tensor(bad), axis=0) * 2)
        with pytest.raises(IndexError, match="out of range for an axis of size 3"):
            f(x)


def test_argument_on_a_written_variables_memory_sees_the_write():
    v = wf.arange(4.0)
    with pytest.warns(UserWarning, match="runs eagerly.*share memory"):
        ordered, plain = wf.function(lambda x: (v.add_(1.0), wf.sort(x) + 0 * v, x * 1.0)[1:])(v)
    assert ordered.tolist() == plain.tolist() == v.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_adding_zero_keeps_the_sign_rules_of_zero():
    assert wf.function(lambda x: 1.0 / (x + 0.0))(wf.tensor([-0.0])).tolist() == [float("inf")]


@pytest.mark.parametrize("shape", [(1,), (3,)])
def test_outside_tensors_that_get_another_array_with_equal_numbers_are_read_there(shape):
    w = wf.ones(*shape)
    double = wf.function(lambda x: x * w)
    x = wf.ones(*shape)
    double(x)
    w._data = w._data.copy()
    double(x)
    w.numpy()[...] = 3.0
    assert double(x).tolist() == [3.0] * shape[0]


def test_a_cleared_function_is_captured_again():
    scale = np.array([2.0], np.float32)  # arrays are constants
    times = wf.function(lambda x: x * float(scale[0]))
    x = wf.ones(2)
    assert times(x).tolist() == [2.0, 2.0]
    scale[0] = 3.0
    assert times(x).tolist() == [2.0, 2.0]
    times.clear()
    assert times(x).tolist() == [3.0, 3.0]


# How many programs are kept ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is taken when the function is captured")
def test_the_program_used_longest_ago_is_dropped_and_captured_again():
    traced = []

    @wf.function(max_programs=3)
    def double(x):
        traced.append(x.shape[0])
        return x * 2.0

    for n in (1, 2, 3, 1):
        double(wf.ones(n))
    with pytest.warns(UserWarning, match="double: captured for more than 3 signatures.*max_programs"):
        double(wf.ones(4))
    assert traced == [1, 2, 3, 4] and len(double.signatures) == 3
    for n in (1, 3, 4):  # kept
        assert double(wf.ones(n)).tolist() == [2.0] * n
    assert traced == [1, 2, 3, 4]
    assert double(wf.ones(2)).tolist() == [2.0, 2.0]
    assert traced == [1, 2, 3, 4, 2]


def test_a_dropped_program_and_its_code_are_freed():
    from weft.backends.llvm import jit, native
    from weft.runtime import program

    w = wf.ones((5, 5))

    @wf.function(max_programs=2)
    def step(x):
        return wf.exp(x @ w).sum(axis=1) * 3.0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        native._recent.clear()
        gc.collect()
        step(wf.ones((3, 5)))
        programs, code = len(program.alive), jit.loaded()
        for n in range(4, 4 + 40):
            step(wf.ones((n, 5)))
    gc.collect()
    assert len(program.alive) <= programs + 1
    assert jit.loaded() <= code + native.MAX_RECENT_MODULES + 8
    native._recent.clear()
    step.clear()
    gc.collect()
    step(wf.ones((2, 5)))  # loads code, and before that unloads what nothing refers to
    assert jit.loaded() <= code + 8


def test_memory_for_temporaries_is_bounded_over_all_programs(monkeypatch):
    from weft.runtime import limits, program

    w = wf.ones((64, 64))

    @wf.function
    def step(x):
        return wf.exp(x @ w) @ w

    gc.collect()
    limit = program.idle_bytes() + 3_000_000
    monkeypatch.setattr(limits, "program_bytes", lambda: limit)
    for n in (*range(2000, 2009), 2000, 2008):
        np.testing.assert_allclose(step(wf.zeros((n, 64))).numpy()[[0, -1]], 64.0)
        assert program.idle_bytes() <= limit
    assert len(step.signatures) == 9, "programs stay, their memory does not"
    recent, oldest = step.traces[-1].compiled.program, step.traces[1].compiled.program
    assert recent.arena > 400_000 and len(recent._free) == 1 and not oldest._free


def test_threads_drop_each_others_programs():
    @wf.function(max_programs=2)
    def total(x):
        return (x * 3.0).sum()

    errors = []

    def work(start):
        try:
            for i in range(25):
                n = 1 + (start + i) % 5
                assert total(wf.ones(n)).item() == 3.0 * n
        except BaseException as error:
            errors.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not errors and len(total.signatures) <= 2


@pytest.mark.parametrize("bad", [0, -1, True, 2.5, "many"])
def test_max_programs_must_be_a_positive_integer(bad):
    with pytest.raises(ValueError, match="max_programs must be an integer of at least 1"):
        wf.function(lambda x: x, max_programs=bad)


def test_a_region_of_a_declared_graph_keeps_a_bounded_number_of_programs(monkeypatch):
    from weft.graph.execute import regions

    monkeypatch.setattr(regions, "max_programs", lambda: 3)
    graph = wf.Graph("open sizes")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (None,), name="x")
        y = wf.exp(x).sum() * 2.0
    with wf.Session(graph) as session:
        for n in (*range(40, 50), 40, 45):
            assert session.run(y, {x: np.zeros(n, np.float32)}).item() == 2.0 * n
        (step,) = session._steps.values()
        assert max(len(unit.region._made) for unit in step.plan.units if unit.region is not None) <= 3
