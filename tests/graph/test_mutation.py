"""Captured functions do to memory that their caller sees what they do eagerly."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import weft as wf
from tests.graph.random_programs import World, function, program

# random programs have counters of Python, which advance when they are traced
pytestmark = pytest.mark.filterwarnings("ignore:.*is taken when the function is captured")


def _outcome(seed, instructions, captured, relinks):
    """Everything that the caller of a random program can see after two calls and a backward pass."""
    world = World(seed)
    order = tuple(sorted(world.arguments))
    rng = random.Random(seed + 7)
    fn = function(instructions, world.closed, [rng.random() for _ in range(3)])
    run = wf.function(fn) if captured else fn
    seen, results = [], []
    try:
        for _ in range(2):
            results = run(world.nested(), order)
            seen += [r.detach().numpy().copy() for r in results]
            seen += [a.copy() for a in world.arrays]
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return type(error).__name__, seen, None
    if relinks:
        known = [*results, *world.arguments.values(), *world.closed.values(), *world.leaves]
        seen += [[(t.requires_grad, t.is_leaf) for t in known]]
    shares = [np.shares_memory(r.detach().numpy(), a) for r in results for a in world.arrays]
    total = sum((r.sum() for r in results), wf.zeros((), dtype=wf.float64))
    total = total + sum(t.sum() for t in (*world.arguments.values(), *world.closed.values()))
    try:
        total.backward()
    except RuntimeError:
        return None, [*seen, shares], None
    return None, [*seen, shares], [None if w.grad is None else w.grad.numpy() for w in world.leaves]


def check(seed, relinks=False):
    instructions = program(seed, relinks)
    error, seen, gradients = _outcome(seed, instructions, False, relinks)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*runs eagerly")
        captured_error, captured_seen, captured_gradients = _outcome(seed, instructions, True, relinks)
    assert captured_error == error
    if error is not None:
        return
    for i, (a, b) in enumerate(zip(captured_seen, seen, strict=True)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=f"item {i}")
    if gradients is not None:
        assert captured_gradients is not None
        for a, b in zip(captured_gradients, gradients, strict=True):
            if a is None or b is None:  # backward from one of several results: the others have gradient zero
                assert b is None and not np.any(0.0 if a is None else a)
            else:
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


FOUND = [1253, 1428, 1723]  # programs that once differed
MORE = [pytest.param(n, marks=pytest.mark.slow) for n in range(25, 200)]


@pytest.mark.parametrize("seed", [*range(25), *FOUND, *MORE])
def test_random_programs_agree_in_results_memory_and_gradients(seed):
    check(seed)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_that_change_requires_grad_agree(seed):
    check(seed, relinks=True)


def _both(fn, make, calls=2):
    """What `make` made after calls of `fn` on it, eagerly and captured; a program must have run."""
    seen = []
    for captured in (False, True):
        tensors = make()
        run = wf.function(fn) if captured else fn
        results = [run(*tensors) for _ in range(calls)]
        seen.append(([_numbers(r) for r in results], [_numbers(t) for t in tensors]))
        assert not captured or all(t.reason is None for t in run.traces)
    assert seen[0] == seen[1]


def _numbers(value):
    if isinstance(value, wf.Tensor):
        return value.detach().tolist()
    return [_numbers(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_writes_to_arguments_reach_the_caller():
    def put(c, v):
        c[0] = v
        c[1:] *= 2.0
        return c.sum()

    _both(put, lambda: [wf.ones(3), wf.tensor(5.0)])


def test_writes_to_views_of_arguments_reach_the_caller():
    def fn(c):
        row, turned, flat = c[1], c.T, c.reshape(-1)
        row += 1.0
        turned[0].mul_(3.0)
        flat[-1] = 9.0
        c.detach().sub_(0.5)
        wf.stop_gradient(c)[0].add_(0.25)
        return row, turned * 1.0

    _both(fn, lambda: [wf.arange(6.0).reshape(2, 3)])


@pytest.mark.parametrize("show", [lambda a: a[::2], lambda a: a.T, lambda a: a[1:], lambda a: a[:, 1:]])
def test_arguments_of_any_layout_are_written(show):
    def make():
        array = np.arange(12.0).reshape(4, 3)
        return [wf.asarray(show(array)), wf.asarray(array)]

    def fn(c, unused):
        c += 1.0
        return c.sum()

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*runs eagerly")
        seen = []
        for captured in (False, True):
            shown, array = make()
            (wf.function(fn) if captured else fn)(shown, array.clone())
            seen.append(array.tolist())
    assert seen[0] == seen[1]


def test_a_reshape_that_copies_is_not_written_through():
    def fn(c):
        flat = c.T.reshape(-1)  # a copy
        flat.add_(1.0)
        return flat

    _both(fn, lambda: [wf.arange(6.0).reshape(2, 3)])
    fn = wf.function(lambda c: (c.reshape(-1).add_(1.0), c.sum())[1])
    plain, turned = wf.zeros(2, 3), wf.zeros(3, 2).T
    fn(plain)
    with pytest.warns(UserWarning, match="runs eagerly"):
        fn(turned)  # of this one, reshape makes a copy
    assert plain.sum().item() == 6.0 and turned.sum().item() == 0.0


RESHAPES = {  # branches and bodies that write to a reshape, which is a view of some layouts and a copy of others
    "branch": lambda t: wf.cond(t.sum() > 0, lambda: t.reshape(-1).add_(1.0).sum(), lambda: t.sum()),
    "operand": lambda t: wf.cond(t.sum() > 0, lambda u: u.reshape(-1).add_(1.0).sum(), lambda u: u.sum(), t),
    "transposed": lambda t: wf.cond(t.sum() > 0, lambda: t.T.reshape(-1).add_(1.0).sum(), lambda: t.sum()),
    "outside of a loop": lambda t: wf.while_loop(
        lambda i: i < 2, lambda i: (t.reshape(-1).add_(1.0), i + 1)[1], wf.asarray(0)
    ),
    "state": lambda t: wf.while_loop(
        lambda i, s: i < 2, lambda i, s: (s.reshape(-1).add_(1.0), (i + 1, s))[1], (wf.asarray(0), t)
    )[1],
    "new state": lambda t: wf.while_loop(
        lambda i, s: i < 2, lambda i, s: (s.reshape(-1).add_(1.0), (i + 1, s * 2))[1], (wf.asarray(0), t)
    )[1],
    "carry": lambda t: wf.scan(lambda s, x: (s.reshape(-1).add_(x), (s, x))[1], t, wf.ones(2))[0],
    "new carry": lambda t: wf.scan(lambda s, x: (s.reshape(-1).add_(x), (s + 1, x))[1], t, wf.ones(2))[0],
}


@pytest.mark.parametrize("name", RESHAPES)
@pytest.mark.filterwarnings("ignore:.*runs eagerly")
def test_a_reshape_in_a_branch_or_body_shares_memory_as_eagerly(name):
    for show in (lambda a: a, lambda a: a.T, lambda a: a[:, 1:]):
        seen = []
        for way in (RESHAPES[name], wf.function(RESHAPES[name])):
            t = wf.asarray(show(np.arange(12.0).reshape(4, 3)))
            seen.append((way(t).tolist(), t.tolist()))
        assert seen[0] == seen[1]


def test_results_of_control_flow_require_gradients_if_they_depend_on_what_does():
    w, x = wf.tensor(2.0, requires_grad=True), wf.tensor(3.0)

    def fn(w, x):
        one = wf.cond(x > 0, lambda: (w * x, x + 1, x * 2), lambda: (x, x, w))
        two = wf.while_loop(lambda i, a, b, c: i < 2, lambda i, a, b, c: (i + 1, a * w, b + 1, c * a), (0, x, x, x))
        three, rows = wf.scan(lambda c, e: ((c[0] * e, c[1] + e), (c[1], c[0] * w)), (x, x), wf.ones(2))
        return (*one, *two[1:], *three, *rows)

    expected = [True, False, True, True, False, True, False, False, False, True]
    assert [t.requires_grad for t in wf.function(fn)(w, x)] == expected
    eager = [t.requires_grad for t in fn(w, x)]
    assert eager == [*expected[:2], False, *expected[3:]]  # the branch that is not taken would need it


def test_numpy_arguments_are_written():
    array = np.zeros(3, np.float32)
    wf.function(lambda a: a.add_(1.0))(array)
    assert array.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("shared", ["same tensor", "view", "numpy", "dlpack", "closed over"])
def test_arguments_that_share_memory_see_each_others_writes(shared):
    def world():
        a = wf.arange(4.0)
        others = {
            "same tensor": lambda: a,
            "view": lambda: a[1:],
            "numpy": lambda: wf.asarray(a.numpy()[::-1]),
            "dlpack": lambda: wf.from_dlpack(np.from_dlpack(a.numpy())),
            "closed over": lambda: wf.zeros(4),
        }
        return a, others[shared]()

    seen = []
    for captured in (False, True):
        a, b = world()

        def fn(x, y, a=a):
            x.add_(1.0)
            if shared == "closed over":
                a.mul_(2.0)
            total = y.sum()
            y.mul_(3.0)
            return total + x.sum()

        run = wf.function(fn) if captured else fn
        run(wf.ones(4), wf.ones(b.shape[0]))  # separate memory: a program
        with pytest.warns(UserWarning, match="share memory") if captured else warnings.catch_warnings():
            seen.append((run(a, b).item(), a.tolist(), b.tolist()))
    assert seen[0] == seen[1]


def test_parts_of_one_array_that_do_not_overlap_are_written_by_a_program():
    buffer = wf.zeros(6)
    swap = wf.function(lambda a, b: (a.add_(1.0), b.add_(2.0))[0])
    swap(buffer[:3], buffer[3:])
    assert buffer.tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0] and swap.traces[0].reason is None


def test_tensors_in_containers_and_objects_are_written():
    class Box:
        def __init__(self):
            self.state = wf.zeros(2)

    def fn(tree, box):
        tree["pair"][1].add_(tree["x"])
        box.state.copy_(tree["x"] * 2.0)
        return tree["pair"][0].mul_(3.0)

    seen = []
    for captured in (False, True):
        tree, box = {"pair": (wf.ones(2), wf.ones(2)), "x": wf.arange(2.0)}, Box()
        (wf.function(fn) if captured else fn)(tree, box)
        seen.append([_numbers(list(tree["pair"])), box.state.tolist()])
    assert seen[0] == seen[1]


def test_a_container_that_the_function_changes_is_changed():
    def fn(state, log):
        state["h"] = state["h"] * 2.0
        log.append(state["h"].sum())
        return state["h"]

    state, log = {"h": wf.ones(2)}, []
    with pytest.warns(UserWarning, match="changes a container argument"):
        wf.function(fn)(state, log)
    assert state["h"].tolist() == [2.0, 2.0] and log[0].item() == 4.0


def test_arguments_that_cannot_be_written_are_refused_as_eagerly():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    leaf = wf.ones(3, requires_grad=True)
    add = lambda x: x.add_(1.0)
    captured = wf.function(add)
    captured(wf.zeros(3))
    for run in (add, captured):
        with pytest.raises(ValueError, match="read-only"):
            run(wf.asarray(array))
        with pytest.raises(RuntimeError, match="leaf tensor that requires gradients is written"):
            run(leaf)
        with pytest.raises(RuntimeError, match="view of a leaf"):
            run(leaf[1:])
        with pytest.raises(ValueError, match="read-only|cannot write through"):
            run(wf.broadcast_to(wf.ones(1), (3,)))
    assert array.tolist() == [0.0] * 3 and leaf.tolist() == [1.0] * 3

    @wf.function
    def under_no_grad(x):
        with wf.no_grad():
            x.add_(1.0)

    under_no_grad(leaf)
    assert leaf.tolist() == [2.0] * 3 and leaf.is_leaf


def test_a_failed_check_leaves_arguments_as_they_were():
    def fn(table, i):
        table.add_(1.0)
        return wf.take(table, i, axis=0)

    table = wf.zeros(3)
    run = wf.function(fn)
    run(table, wf.tensor([0, 2]))
    with pytest.raises(IndexError, match="out of range"):
        run(table, wf.tensor([0, 3]))
    assert table.tolist() == [1.0, 1.0, 1.0]


def test_results_share_the_memory_that_they_share_eagerly():
    x, w = wf.zeros(2, 3), wf.zeros(3)
    itself, row, outside, copy = wf.function(lambda x: (x, x[1], w[1:], x * 1.0))(x)
    assert itself is x
    row.add_(1.0)
    outside.add_(2.0)
    copy.add_(5.0)
    assert x.tolist() == [[0.0] * 3, [1.0] * 3] and w.tolist() == [0.0, 2.0, 2.0]


def test_recorded_writes_go_on_the_tape_of_the_caller():
    for outer in (False, True):
        seen = []
        for captured in (False, True):
            w = wf.tensor([2.0, 3.0], requires_grad=True)
            y = w * 5.0 if outer else wf.ones(2)
            fn = lambda y, w=w: y.mul_(w)
            run = wf.function(fn) if captured else fn
            part = y[:1]
            for _ in range(2):
                run(y)
            (y.sum() + part.sum()).backward()
            seen.append((y.tolist(), w.grad.tolist()))
        assert seen[0] == seen[1]


def test_what_reads_an_overwritten_argument_in_backward_raises():
    x, w = wf.ones(2), wf.ones(2, requires_grad=True)
    y = x * w
    wf.function(lambda x: x.add_(1.0))(x)
    with pytest.raises(RuntimeError, match="overwritten in place"):
        y.sum().backward()


@pytest.mark.parametrize("write", [lambda c: c.add_(1.0), lambda c: c[1:].add_(1.0), lambda c: c.__setitem__(0, 5.0)])
@pytest.mark.parametrize("kind", ["leaf", "read-only"])
def test_a_refused_write_to_a_closed_over_tensor_names_the_op_as_eagerly(write, kind):
    array = np.zeros(3, np.float32)
    array.flags.writeable = kind == "leaf"
    c = wf.asarray(array).requires_grad_(kind == "leaf")
    messages = []
    for run in (lambda: write(c), wf.function(lambda: write(c))):
        with pytest.raises((RuntimeError, ValueError), match=kind) as caught:
            run()
        messages.append((caught.type, str(caught.value).partition(".")[0]))
    assert messages[0] == messages[1]


def _overwrites_a_square(x, c):
    y = x * 1.0
    z = y * y
    y[0] = 5.0
    z.sum().backward()
    return x.grad


def _overwrites_an_argument(x, c):
    z = x * c
    c[0] = 7.0
    z.sum().backward()
    return x.grad


@pytest.mark.parametrize(("fn", "exact"), [(_overwrites_a_square, [4.0, 6.0]), (_overwrites_an_argument, [0.5, 0.25])])
def test_a_saved_value_survives_a_write_in_the_same_captured_function(fn, exact):
    # documented in docs/guarantees.md: eagerly the saved bits are gone, so backward() raises
    def arguments():
        return wf.tensor([2.0, 3.0], requires_grad=True), wf.tensor([0.5, 0.25])

    with pytest.raises(RuntimeError, match="overwritten in place by setitem"):
        fn(*arguments())
    captured = wf.function(fn)
    for _ in range(2):
        assert captured(*arguments()).tolist() == exact


@pytest.mark.parametrize("captured", [False, True])
def test_an_argument_overwritten_before_an_outer_backward_raises(captured):
    x, c = wf.tensor([2.0, 3.0], requires_grad=True), wf.ones(2)
    z = (wf.function(lambda x, c: (x * c).sum()) if captured else lambda x, c: (x * c).sum())(x, c)
    c[0] = 9.0
    with pytest.raises(RuntimeError, match="overwritten in place by setitem"):
        z.backward()


@pytest.mark.parametrize("store", [lambda o: o.detach(), lambda o: o, lambda o: o.detach()[0]])
def test_a_hook_that_stores_a_symbolic_tensor_is_an_error_at_once(store):
    from weft import nn

    model, kept = nn.Linear(2, 2), []
    model.register_forward_hook(lambda module, inputs, output: kept.append(store(output)))
    with pytest.raises(wf.CaptureError, match="stored outside of it"):
        wf.function(lambda x: model(x).sum(), fullgraph=True)(wf.ones(1, 2))


def test_storing_an_argument_or_what_a_branch_made_is_an_error_at_once():
    kept = []
    with pytest.raises(wf.CaptureError, match="stored outside of it"):
        wf.function(lambda x: (kept.append(x), x.sum())[1], fullgraph=True)(wf.ones(2))

    def fn(x):
        return wf.cond(x.sum() > 0, lambda: (kept.append(x * 2.0), x * 3.0)[1], lambda: x * 1.0)

    with pytest.raises(wf.CaptureError, match="stored outside of it"):
        wf.function(fn, fullgraph=True)(wf.ones(2))
