"""TensorArray: written and read by index, eagerly, captured, declared and in loops, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import TensorArray


def _powers(x, n=4):
    """The elements x, 2x, 4x … of a loop that carries a TensorArray."""

    def body(i, x, a):
        return i + 1, x * 2, a.write(i, x)

    return wf.while_loop(lambda i, x, a: i < n, body, (wf.tensor(0), x, TensorArray(wf.float32, n, (2,))))[2]


EXPECTED = [[1.0, 2.0], [2.0, 4.0], [4.0, 8.0], [8.0, 16.0]]
WEIGHTS = wf.tensor([[1.0], [10.0], [100.0], [1000.0]])


def test_a_loop_carries_it_eagerly_captured_and_declared_with_gradients():
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    with wf.Graph().as_default() as graph:
        p, i = wf.placeholder(wf.float32, (2,)), wf.placeholder(wf.int64, ())
        made = _powers(p)
        results = made.stack(), wf.gradients(wf.sum(made.stack() * WEIGHTS), p), made.read(i), made.gather([3, 0])

    def loss(x):
        made = _powers(x)
        return wf.sum(made.stack() * WEIGHTS), made.stack(), made.read(2), made.gather(wf.tensor([3, 0]))

    for run in (loss, wf.function(loss)):
        total, stacked, element, some = run(x)
        assert stacked.tolist() == EXPECTED
        assert (element.tolist(), some.tolist()) == (EXPECTED[2], [EXPECTED[3], EXPECTED[0]])
        assert wf.grad(total, [x])[0].tolist() == [8421.0, 8421.0]
    for executor in ("dataflow", "naive"):
        with wf.Session(graph, executor=executor) as sess:
            stacked, slope, element, some = sess.run(results, feed_dict={p: [1.0, 2.0], i: 3})
        assert (stacked.tolist(), slope.tolist()) == (EXPECTED, [8421.0, 8421.0])
        assert (element.tolist(), some.tolist()) == (EXPECTED[3], [EXPECTED[3], EXPECTED[0]])


def test_it_is_an_argument_and_a_result_of_a_captured_function():
    made = TensorArray(wf.float32, 3).unstack(wf.tensor([[1.0], [2.0], [3.0]]))
    changed = wf.function(lambda a, i: a.write(i, wf.tensor([9.0])))(made, wf.tensor(1))
    assert isinstance(changed, TensorArray)
    assert changed.stack().tolist() == [[1.0], [9.0], [3.0]]
    assert made.stack().tolist() == [[1.0], [2.0], [3.0]]  # a write makes a new one


def test_whole_arrays():
    made = (
        TensorArray(wf.float32, 3).unstack(wf.tensor([[1.0], [2.0], [3.0]])).scatter([2, 0], wf.tensor([[9.0], [8.0]]))
    )
    assert made.stack().tolist() == [[8.0], [2.0], [9.0]]
    assert made.concat().tolist() == [8.0, 2.0, 9.0]
    assert (len(made), made.size(), made.element_shape) == (3, 3, (1,))
    assert repr(made) == "TensorArray(size=3, dtype=float32, element_shape=(1,))"
    parts = TensorArray(wf.int64, 2).split(wf.arange(4), [2, 2])
    assert parts.stack().tolist() == [[0, 1], [2, 3]]
    grown = TensorArray(wf.int64, 0, dynamic_size=True).write(2, 5)
    assert grown.stack().tolist() == [0, 0, 5]


def test_reads_of_one_element_add_up_in_the_gradient():
    x = wf.tensor(np.float32([1, 2, 3]), requires_grad=True)
    made = TensorArray(wf.float32, 3).unstack(x)
    (made.read(1) * 2 + made.read(1) * 3 + made.read(0)).backward()
    assert x.grad.tolist() == [1.0, 5.0, 0.0]


def test_what_it_refuses():
    def refused(kind, words, action):
        with pytest.raises(kind, match=words):
            action()

    each(refused, {
        "empty": (ValueError, "nothing was written", lambda: TensorArray(wf.float32, 2).read(0)),
        "place": (IndexError, "index 5 is outside of 2 elements", lambda: TensorArray(wf.float32, 2).write(5, 1.0)),
        "negative": (IndexError, "index -1 is outside", lambda: TensorArray(wf.float32, 2).write(-1, 1.0)),
        "shape": (ValueError, r"elements have shape \(\)", lambda: TensorArray(wf.float32, 2, ()).write(0, wf.ones(1))),
        "dtype": (TypeError, "expected float32", lambda: TensorArray(wf.float32, 2, ()).write(0, wf.tensor(1))),
        "rows": (ValueError, "expected 2 rows", lambda: TensorArray(wf.float32, 2).unstack(wf.ones(3))),
        "lengths": (ValueError, "must be equal", lambda: TensorArray(wf.float32, 2).split(wf.ones(3), [1, 2])),
        "size": (ValueError, "size must be an integer", lambda: TensorArray(wf.float32, -1)),
        "index": (TypeError, "expected an integer", lambda: TensorArray(wf.float32, 2, ()).read(wf.tensor(1.0))),
    })  # fmt: skip
