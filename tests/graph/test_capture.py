"""What a captured function may contain: transforms, layers with state, optimisers, hooks, functions with own gradients."""

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.nn import functional as F

X = np.random.default_rng(0).standard_normal((6, 5)).astype("f")
W = np.random.default_rng(1).standard_normal((5, 3)).astype("f")


def close(a, b, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol, atol=atol)


def row(x):
    """A number from a row."""
    return (wf.tanh(x @ wf.tensor(W)) ** 2).sum() + F.softmax(x).max()


def test_captured_vmap_is_the_loop():
    expected = wf.stack([row(x) for x in wf.tensor(X)])
    f = wf.function(wf.vmap(row))
    close(f(wf.tensor(X)), expected)
    close(f(wf.tensor(X)), expected)


def test_captured_gradient_is_the_eager_one():
    x = wf.tensor(X[0])
    close(wf.function(wf.grad_fn(row))(x), wf.grad_fn(row)(x))


def test_vmap_of_gradients_eager_and_captured_is_the_loop():
    expected = wf.stack([wf.grad_fn(row)(x) for x in wf.tensor(X)])
    close(wf.vmap(wf.grad_fn(row))(wf.tensor(X)), expected)
    close(wf.function(wf.vmap(wf.grad_fn(row)))(wf.tensor(X)), expected)


def test_vmap_and_gradient_of_a_captured_function():
    f = wf.function(row)
    expected = wf.stack([wf.grad_fn(row)(x) for x in wf.tensor(X)])
    close(wf.vmap(f)(wf.tensor(X)), wf.stack([row(x) for x in wf.tensor(X)]))
    close(wf.grad_fn(f)(wf.tensor(X[0])), expected[0])


def test_second_order_captured():
    def fn(x):
        return (wf.grad_fn(lambda v: (wf.tanh(v) ** 3).sum())(x) ** 2).sum()

    x = wf.tensor(X[0])
    close(wf.function(wf.grad_fn(fn))(x), wf.grad_fn(fn)(x), rtol=1e-4)


def pair(make):
    """Two equal models."""
    wf.manual_seed(0)
    a = make()
    b = make()
    b.load_state_dict(a.state_dict())
    return a, b


def step_of(model, opt):
    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step


def batch(n=12, seed=0):
    rng = np.random.default_rng(seed)
    return wf.tensor(rng.standard_normal((n, 5)).astype("f")), wf.tensor(rng.standard_normal((n, 2)).astype("f"))


def states(model):
    return [*model.parameters(), *model.buffers()]


def test_dropout_captured_is_eager_dropout():
    a, b = pair(lambda: nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.Linear(16, 2)))
    eager, captured = (step_of(a, optim.SGD(a.parameters(), lr=0.1)), step_of(b, optim.SGD(b.parameters(), lr=0.1)))
    captured = wf.function(captured)
    wf.manual_seed(5)
    expected = [eager(*batch()).item() for _ in range(4)]
    wf.manual_seed(5)
    got = [captured(*batch()).item() for _ in range(4)]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert len(set(got)) == 4
    for p, q in zip(states(a), states(b), strict=True):
        close(q, p)


def test_running_statistics_captured_are_the_eager_ones():
    a, b = pair(lambda: nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    eager = step_of(a, optim.Adam(a.parameters(), lr=0.01))
    captured = wf.function(step_of(b, optim.Adam(b.parameters(), lr=0.01)))
    for i in range(5):
        np.testing.assert_allclose(captured(*batch(seed=i)).item(), eager(*batch(seed=i)).item(), rtol=1e-4)
    for (name, p), (_, q) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        close(q, p, rtol=1e-3, atol=1e-5)
        if "running" in name:
            assert np.abs(q.numpy()).sum() > 0


def test_train_and_eval_are_two_captures():
    net = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5))
    f = wf.function(lambda x: net(x))
    x = batch()[0]
    net.train()
    f(x)
    trained = net[0].running_mean.numpy().copy()
    net.eval()
    close(f(x), net(x))
    np.testing.assert_array_equal(net[0].running_mean.numpy(), trained)
    assert len(f.traces) == 2
    net.train()
    f(x)
    assert len(f.traces) == 2 and (net[0].running_mean.numpy() != trained).any()


def test_grad_mode_is_part_of_the_signature():
    w = wf.ones(3, requires_grad=True)
    f = wf.function(lambda x: x * w)
    assert f(wf.ones(3)).requires_grad
    with wf.no_grad():
        assert not f(wf.ones(3)).requires_grad
    assert len(f.traces) == 2


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_learning_rate_changed_between_calls_is_seen(kind):
    a, b = pair(lambda: nn.Linear(5, 2))
    one, two = (getattr(optim, kind)(m.parameters(), lr=0.1) for m in (a, b))
    eager, captured = step_of(a, one), wf.function(step_of(b, two))
    for lr in (0.1, 0.01, 0.5, 0.0):
        for opt in (one, two):
            for group in opt.param_groups:
                group["lr"] = lr
        before = b.weight.detach().numpy().copy()
        eager(*batch())
        captured(*batch())
        close(b.weight, a.weight, rtol=1e-4)
        assert (lr == 0.0) == np.array_equal(before, b.weight.detach().numpy())
        assert lr == 0.0 or len(captured.traces) == 1


def test_scheduler_between_calls():
    a, b = pair(lambda: nn.Linear(5, 2))
    one, two = (optim.SGD(a.parameters(), lr=0.5, momentum=0.9), optim.SGD(b.parameters(), lr=0.5, momentum=0.9))
    schedules = [optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.1) for o in (one, two)]
    eager, captured = step_of(a, one), wf.function(step_of(b, two))
    for _ in range(6):
        eager(*batch())
        captured(*batch())
        for s in schedules:
            s.step()
    close(b.weight, a.weight, rtol=1e-4)
    assert len(captured.traces) == 1


class Clipped(wf.Function):
    """The identity with a custom gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return wf.clip(g, -0.5, 0.5) * wf.sign(x)


def test_function_with_its_own_gradient_inside_a_captured_step():
    def fn(x):
        return wf.grad_fn(lambda v: (Clipped.apply(v) * wf.tensor([1.0, -3.0, 0.25])).sum())(x)

    x = wf.tensor([2.0, -1.0, 3.0])
    close(fn(x), wf.tensor([0.5, 0.5, 0.25]))
    close(wf.function(fn)(x), fn(x))


def test_hooks_inside_a_captured_step():
    a, b = pair(lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)))
    for m in (a, b):
        m[0].register_forward_hook(lambda module, args, out: out * 2.0)
        m[2].weight.register_hook(lambda g: g * 0.5)
    eager = step_of(a, optim.SGD(a.parameters(), lr=0.1))
    captured = wf.function(step_of(b, optim.SGD(b.parameters(), lr=0.1)))
    for _ in range(3):
        np.testing.assert_allclose(captured(*batch()).item(), eager(*batch()).item(), rtol=1e-5)
    for p, q in zip(states(a), states(b), strict=True):
        close(q, p)


def test_hook_on_a_value_inside():
    def fn(w, x):
        h = w * x
        h.register_hook(lambda g: g * 10.0)
        return wf.grad((h * h).sum(), w)

    args = wf.tensor([1.0, 2.0], requires_grad=True), wf.tensor([3.0, 4.0])
    close(wf.function(fn)(*args)[0], fn(*args)[0])


def test_gradient_accumulation_over_micro_batches():
    a, b = pair(lambda: nn.Linear(5, 2))

    def make(model):
        opt = optim.Adam(model.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            for k in range(3):
                ((model(x[4 * k : 4 * k + 4]) - y[4 * k : 4 * k + 4]) ** 2).mean().backward()
            opt.step()

        return step

    eager, captured = make(a), wf.function(make(b))
    for i in range(3):
        eager(*batch(seed=i))
        captured(*batch(seed=i))
    close(b.weight, a.weight, rtol=1e-4)


def test_lists_and_dicts_and_nested_modules():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a": nn.Linear(5, 4), "b": nn.Linear(5, 4)})
            self.scale = nn.Parameter(wf.ones(4))

        def forward(self, batch):
            return {k: m(batch["x"]) * self.scale for k, m in self.parts.items()}

    net = Net()
    x = batch()[0]
    got, expected = wf.function(net)({"x": x}), net({"x": x})
    assert set(got) == {"a", "b"}
    for k in got:
        close(got[k], expected[k])


@pytest.mark.parametrize("write", ["copy_", "setitem", "iadd"])
def test_a_tensor_and_what_was_detached_from_it_are_one_variable(write: str) -> None:
    def step(p: wf.Tensor, x: wf.Tensor) -> tuple[wf.Tensor, ...]:
        before = p.detach().sum()
        with wf.no_grad():
            if write == "copy_":
                p.copy_(x)
            elif write == "setitem":
                p[wf.tensor([0, 2])] = x[:2]
            else:
                p += x
        return before, p.detach() * 2, p.detach().sum()

    results = []
    for captured in (False, True):
        p = wf.zeros(3).requires_grad_()

        def run(x: wf.Tensor, p: wf.Tensor = p) -> tuple[wf.Tensor, ...]:
            return step(p, x)

        call = wf.function(run) if captured else run
        results.append([t.tolist() for _ in range(2) for t in call(wf.ones(3))])
    assert results[0] == results[1]


def test_a_tensor_that_is_returned_and_stored_too_has_escaped():
    class Counter(wf.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = wf.zeros(2)

        def forward(self, x):
            self.seen = self.seen + x
            return self.seen

    with pytest.raises(wf.CaptureError, match=r"stored outside of it.*self.seen = self.seen \+ x"):
        wf.function(Counter())(wf.ones(2))
