"""`wf.gradients`: partial gradients over all paths, in the dtypes of what they belong to."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf

WAIT = 60


@pytest.mark.parametrize("shape", [(2, 2), (None, None), None], ids=["known", "sizes", "rank"])
def test_each_operand_of_a_mixed_op_gets_its_gradient_in_its_own_dtype(session, fresh_graph, shape):
    x, y = wf.placeholder(wf.float32, shape), wf.placeholder(wf.float64, shape)
    product = x @ y + x * y
    gx, gy = wf.gradients(wf.sum(product * product), [x, y])
    second = wf.gradients(wf.sum(gx * gx), x)
    assert [g.dtype for g in (gx, gy, second)] == [wf.float32, wf.float64, wf.float32]
    a, b = np.arange(4.0).reshape(2, 2), np.arange(4.0).reshape(2, 2) / 3 - 0.5
    with session(fresh_graph) as sess:
        got = sess.run([gx, gy, second], {x: a.astype(np.float32), y: b}, timeout=WAIT)
    ex, ey = wf.tensor(a.astype(np.float32), requires_grad=True), wf.tensor(b, requires_grad=True)
    product = ex @ ey + ex * ey
    first = wf.grad(wf.sum(product * product), [ex, ey], create_graph=True)
    expected = [*first, *wf.grad(wf.sum(first[0] * first[0]), [ex])]
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g.numpy(), e.detach().numpy(), rtol=1e-4)


def test_a_tensor_that_is_used_and_asked_for_twice(session, fresh_graph):
    x = wf.placeholder(wf.float32, ())
    y = x * x
    z = y + x * 3.0 + y
    gx, gy = wf.gradients([z, z], [x, y])
    itself, scaled = wf.gradients(z, z), wf.gradients(z, x, grad_ys=wf.constant(2.0))
    assert wf.gradients(z, wf.placeholder(wf.float32)) is None
    with session(fresh_graph) as sess:
        assert [float(v) for v in sess.run([gx, gy, itself, scaled], {x: 2.0}, timeout=WAIT)] == [22.0, 4.0, 1.0, 22.0]


@pytest.mark.parametrize("shape", [(2,), None], ids=["known", "open"])
def test_what_was_dequeued_has_a_gradient(session, fresh_graph, tmp_path, shape):
    queue = wf.FIFOQueue(2, wf.float32, shape)
    taken = queue.dequeue()
    gradient = wf.gradients(wf.sum(taken * taken), taken)
    queue.put(np.array([1.0, 3.0], np.float32), timeout=WAIT)
    with session(fresh_graph) as sess:
        assert sess.run(gradient, timeout=WAIT).tolist() == [2.0, 6.0]
    fresh_graph.save(tmp_path / "queue")
    loaded = wf.Graph.load(tmp_path / "queue")
    again = loaded.tensor(taken._data.name)
    assert wf.gradients(wf.sum(again * again), again) is not None


@pytest.mark.parametrize("shape", [(None, 3), None], ids=["sizes", "rank"])
def test_a_length_that_is_not_known_is_refused_in_words(fresh_graph, shape):
    x = wf.placeholder(wf.float32, shape)
    for action in (len, list):
        with pytest.raises(TypeError, match="the size of axis 0 is known only when a step runs"):
            action(x)
