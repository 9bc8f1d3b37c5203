"""Captured functions that need values in the middle run in segments, with the results and effects of eager code."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from tests.each import each
from weft import nn, optim
from weft.graph.capture import segment_programs


def _same(a, b):
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), (a, b)
        for x, y in zip(a, b, strict=True):
            _same(x, y)
    elif isinstance(a, dict):
        _same(list(a.items()), list(b.items()))
    elif isinstance(a, (wf.Tensor, np.ndarray, float, int)):
        x, y = (v.detach().numpy() if isinstance(v, wf.Tensor) else np.asarray(v) for v in (a, b))
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5)
    else:
        assert a == b


def _x(*shape, seed=0, grad=False):
    made = wf.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f"))
    return made.requires_grad_() if grad else made


# Programs: each takes what makes a function (nothing, or `wf.function`) and returns what it did in several calls.


def logged_step(capture):
    wf.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    log = []

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        log.append(loss.item())
        loss.backward()
        optimizer.step()
        return loss

    step = capture(step)
    x, y = _x(16, 6), wf.tensor(np.arange(16) % 3)
    losses = [step(x, y) for _ in range(4)]
    return log, losses, list(model.parameters()), wf.rand(2)


def logged_at_the_end(capture):
    model = nn.Linear(3, 1)
    with wf.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    steps = []

    def step(x):
        steps.append(len(steps))
        loss = (model(x) ** 2).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
        optimizer.step()
        optimizer.zero_grad()
        return norm, loss.item(), float(model.weight.sum())

    step = capture(step)
    return [step(_x(5, 3, seed=i)) for i in range(4)], steps, list(model.parameters())


def early_exit(capture):
    def newton(x):
        for i in range(50):  # noqa: B007
            step = (x * x - 2.0) / (2.0 * x)
            x = x - step
            if step.abs().max().item() < 1e-6:
                break
        return x, i

    newton = capture(newton)
    return [newton(wf.tensor([1.0, s])) for s in (3.0, 1.5, 40.0)]


def branch_with_gradients(capture):
    w = _x(4, grad=True)

    def f(x):
        y = (x * w).sum()
        if y > 0:
            return (y * 2).exp() * 0.1
        z = y.abs() + 1
        if z.item() > 3:
            raise ValueError("too large")
        return z.log()

    f = capture(f)
    results = []
    for seed in range(6):
        w.grad = None
        try:
            out = f(_x(4, seed=seed))
        except ValueError as error:
            results.append(str(error))
            continue
        out.backward()
        results.append((out, w.grad))
    return results


def numpy_in_the_middle(capture):
    a = _x(3, 3, seed=1, grad=True)

    def f(x):
        h = (x @ a).tanh()
        order = np.argsort(h.detach().numpy().sum(0))
        picked = h[:, wf.tensor(order.copy())]
        scale = float(np.linalg.norm(h.detach().numpy()))
        return (picked * wf.arange(3) / scale).sum() + picked.max()

    f = capture(f)
    results = []
    for seed in range(4):
        a.grad = None
        out = f(_x(2, 3, seed=seed))
        out.backward()
        results.append((out, a.grad))
    return results


def in_place_around_the_cut(capture):
    count, table = wf.zeros(()), wf.zeros(4, 3)

    def f(x, i):
        count.add_(1)
        row = table[i]
        row += x
        before = count.item()
        table[0] = table[0] * 2 + before
        x *= 2
        seen = x.sum().item()
        x += seen
        flat = table.reshape(-1)
        flat[1:3] -= 1
        inside = flat.numpy()
        flat.mul_(0.5)
        inside[5] += 1
        y = wf.zeros(3)
        part = y[1:]
        part.add_(seen)
        total = float(y.sum())
        part *= 3
        return y, total, float(inside.sum()), row

    f = capture(f)
    results = []
    for k in range(4):
        x = _x(3, seed=k)
        results.append((f(x, k % 3), x.clone(), count.clone(), table.clone()))
    return results


def recorded_writes(capture):
    def f(x):
        y = x * 2
        part = y[0]
        part.mul_(3.0)
        top = y.max().item()
        y[1] = y[1] * top
        z = y.T
        z.add_(1.0)
        shown = y.detach()
        if shown.sum() > -1000:
            shown += 0.5
        return (y * y).sum() + part.sum()

    f = capture(f)
    results = []
    for seed in range(3):
        x = _x(3, 2, seed=seed, grad=True)
        out = f(x)
        out.backward()
        results.append((out, x.grad))
    return results


def sizes_from_data(capture):
    def f(x):
        positive = x[x > 0]
        places = wf.nonzero(x > 0.5)
        return positive.sum(), positive.shape[0], places, (positive * 2).mean() + x.mean()

    f = capture(f)
    return [f(_x(20, seed=s)) for s in range(3)]


def python_objects(capture):
    history, best, state = [], {}, {"n": 0}

    class Meter:
        total = 0.0

    meter = Meter()

    def f(x, scale=1.0):
        state["n"] += 1
        y = (x * scale).softmax(-1)
        history.append(y)
        meter.total += y.max().item()
        meter.last = y * 2
        if state["n"] % 2:
            best["value"] = y.sum() + meter.total
        return {"y": y, "rest": [y + state["n"], meter.total]}

    f = capture(f)
    results = [f(_x(2, 4, seed=s), scale=s + 0.5) for s in range(4)]
    return results, history, best, state, meter.total, meter.last


def stored_without_a_value(capture):
    history = []

    def f(x):
        y = x.exp() + 1
        history.append(y)
        return y.sum()

    f = capture(f)
    return [f(_x(3, seed=s)) for s in range(3)], history


def changing_numbers(capture):
    def f(x, n):
        for i in range(n):
            x = x * (1.0 + 0.1 * i) + x.mean().item() * 0.01 - i
        return x

    f = capture(f)
    return [f(_x(6, seed=s), 3) for s in range(3)]


def backward_outside(capture):
    w = _x(3, 3, seed=2, grad=True)

    def f(x):
        h = (x @ w).relu()
        if h.sum().item() > 0:
            h = h * 2
        return h, (h @ w).sum()

    f = capture(f)
    results = []
    for seed in range(3):
        x = _x(2, 3, seed=seed, grad=True)
        h, out = f(x)
        out.backward()
        results.append((h, w.grad, x.grad))
        w.grad = None
    return results


def second_order(capture):
    def f(x):
        y = (x**3).sum()
        y.item()
        x.grad = None
        y.backward(create_graph=True)
        g = x.grad
        size = float((g * g).sum())
        x.grad = None
        (g * g).sum().backward()
        return size, x.grad

    f = capture(f)
    return [f(_x(3, seed=s, grad=True)) for s in range(2)]


def modules_that_print(capture):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
            self.register_buffer("calls", wf.zeros(()))

        def forward(self, x):
            self.calls += 1
            h = self.first(x).relu()
            print("mean", f"{h.mean():.3f}", self.calls)
            return self.second(h)

    wf.manual_seed(3)
    net = Net()
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = capture(step)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        losses = [step(_x(5, 4, seed=s)) for s in range(3)]
    return losses, list(net.parameters()), net.calls, out.getvalue().split()


def transforms_and_control_flow(capture):
    def f(x):
        total = x.sum()
        total.item()
        y = wf.cond(total > 0, lambda: x * 2, lambda: x - 1)
        n, z = wf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), (wf.tensor(0), y))
        rows = wf.vmap(lambda r: (r * r).sum())(x)
        slope = wf.grad(lambda v: (v**2).sum())(x)
        draw = wf.rand(3) * wf.randn(3).abs().max().item()
        return y, z, rows, slope, draw

    wf.manual_seed(5)
    f = capture(f)
    return [f(_x(3, 2, seed=s)) for s in range(3)], wf.rand(2)


def views_that_were_there_before(capture):
    base = wf.arange(6.0)
    window = base[2:4]

    def f(x):
        base.add_(x)
        a = window.sum().item()
        window.mul_(2)
        b = float(base.sum())
        base[3] = 0
        return a, b, window + 1

    f = capture(f)
    return [f(wf.tensor(float(k))) for k in range(3)], base, window


def settings_and_schedulers(capture):
    p = nn.Parameter(wf.ones(3))
    optimizer = optim.SGD([p], lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step():
        loss = (p * p).sum()
        optimizer.zero_grad()
        loss.backward()
        value = loss.item()
        optimizer.step()
        scheduler.step()
        return value, optimizer.param_groups[0]["lr"]

    step = capture(step)
    return [step() for _ in range(4)], p


PROGRAMS = [
    logged_step, logged_at_the_end, early_exit, branch_with_gradients, numpy_in_the_middle, in_place_around_the_cut,
    recorded_writes, sizes_from_data, python_objects, stored_without_a_value, changing_numbers, backward_outside,
    second_order, modules_that_print, transforms_and_control_flow, views_that_were_there_before, settings_and_schedulers,
]  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["short", "compiled"])
def test_functions_with_cuts_do_what_eager_ones_do(compiled, monkeypatch):
    if compiled:
        monkeypatch.setattr(segment_programs, "MIN_OPS", 1)
        monkeypatch.setattr(segment_programs, "MIN_ELEMENTS", 0)
    each(_compare, {program.__name__: (program,) for program in PROGRAMS})


def _compare(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _same(program(wf.function), program(lambda f: f))


def test_one_note_names_the_line_and_fullgraph_makes_it_an_error():
    def f(x):
        y = x * 2
        return y * y.sum().item()

    captured = wf.function(f)
    with pytest.warns(
        UserWarning, match=r"f: cut at .*test_graph_breaks.py:\d+ in f: `return y \* y.sum\(\).item"
    ) as notes:
        for n in (2, 2, 3):
            captured(wf.ones(n))
    assert len(notes) == 1 and "fullgraph=True" in str(notes[0].message) and notes[0].filename == __file__
    assert "cut at" in captured.explain() and len(captured.signatures) == 2
    for options in ({"fullgraph": True}, {"freeze": True}):
        with pytest.raises(wf.CaptureError, match=r"item\(\): the value of this tensor is not known"):
            wf.function(f, **options)(wf.ones(2))


def test_segments_are_compiled_once_and_numbers_that_change_become_inputs():
    def f(x):
        for i in range(4):
            x = (x * (1.0 + i) + 2).tanh()
            x = x - x.mean().item()
        return x

    captured = wf.function(f)
    x = wf.randn(200, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            np.testing.assert_allclose(captured(x).numpy(), f(x).numpy(), rtol=1e-4, atol=1e-5)
            count = captured._segments.compilations
        captured(x + 1)
    assert captured._segments.compilations == count <= 5  # not one per number or call
    assert all(compiled for _, compiled in captured.traces[-1].parts[:4])


def test_functions_of_small_tensors_run_eagerly_after_the_first_call():
    captured = wf.function(lambda x: x + x.sum().item())
    with pytest.warns(UserWarning, match="too short to compile"):
        captured(wf.ones(2))
    assert captured(wf.ones(2)).tolist() == [3, 3] and captured.traces[-1].short
    assert captured._segments.compilations == 0


def test_debuggers_show_values_and_leave_nothing_behind(monkeypatch):
    frames, shown = [], []

    def debugger():
        frame = sys._getframe(1)
        frames.append(frame)  # a debugger keeps frames
        shown.append({name: repr(value) for name, value in frame.f_locals.items()})

    monkeypatch.setattr(sys, "breakpointhook", debugger)

    @wf.function
    def f(x):
        y = x + 1
        breakpoint()
        return y * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            assert f(wf.tensor([float(k)])).tolist() == [2 * (k + 1)]
    assert [s["y"] for s in shown] == ["tensor([1.])", "tensor([2.])", "tensor([3.])"]

    def watch(frame, event, arg):  # as a debugger that steps through the lines does
        if frame.f_code.co_name == "g":
            frames.append(frame)
            repr(frame.f_locals.keys())
        return watch

    def g(x):
        y = x * 3
        return y + 1

    previous = sys.gettrace()
    captured = wf.function(g)
    sys.settrace(watch)
    try:
        assert captured(wf.ones(2)).tolist() == [4, 4]
    finally:
        sys.settrace(previous)
    assert captured(wf.ones(2)).tolist() == [4, 4]


def test_prints_and_files_appear_at_every_call_and_python_runs_once_per_call(tmp_path, capsys):
    calls = []

    @wf.function
    def f(x):
        calls.append(len(calls))
        y = x * 2
        print("y is", y)
        with open(tmp_path / "log", "a") as file:
            file.write(f"{float(y.sum())}\n")
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            f(wf.tensor([float(k)]))
    assert capsys.readouterr().out.splitlines() == ["y is tensor([0.])", "y is tensor([2.])", "y is tensor([4.])"]
    assert (tmp_path / "log").read_text().split() == ["0.0", "2.0", "4.0"]
    assert calls[-3:] == list(range(len(calls)))[-3:] and len(calls) <= 4
