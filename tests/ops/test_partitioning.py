"""`dynamic_partition` and `dynamic_stitch`: eager, in declared graphs, under vmap, with gradients; captured, a clear error."""

import numpy as np
import pytest

import weft as wf
from weft.graph.capture.tracing import CaptureError


def _looked_up(table, ids, servers):
    """A look-up in a table whose rows are spread over servers by row % servers."""
    shards = [table[s::servers] for s in range(servers)]
    parts = wf.dynamic_partition(ids, ids % servers, servers)
    places = wf.dynamic_partition(wf.arange(ids.shape[0]), ids % servers, servers)
    return wf.dynamic_stitch(places, [wf.take(t, p // servers, axis=0) for t, p in zip(shards, parts, strict=True)])


def test_parts_put_together_again_are_the_whole_eager_and_declared():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((11, 3)).astype(np.float32)
    numbers = np.array([3, 0, 10, 3, 7, 7, 1])
    weights = rng.standard_normal((7, 3)).astype(np.float32)
    for servers in (1, 2, 4):
        table = wf.tensor(values, requires_grad=True)
        found = _looked_up(table, wf.tensor(numbers), servers)
        assert np.array_equal(found.detach().numpy(), values[numbers])
        (found * wf.tensor(weights)).sum().backward()
        expected = np.zeros_like(values)
        np.add.at(expected, numbers, weights)
        assert np.allclose(wf.asarray(table.grad).numpy(), expected)

        graph = wf.Graph()
        with graph.as_default():
            t, i = wf.placeholder(wf.float32, (11, 3)), wf.placeholder(wf.int64, (7,))
            out = _looked_up(t, i, servers)
            (gradient,) = wf.gradients((out * wf.tensor(weights)).sum(), [t])
        with wf.Session(graph) as session:
            got, got_gradient = session.run([out, gradient], {t: values, i: numbers})
        assert np.array_equal(got.numpy(), values[numbers]) and np.allclose(got_gradient.numpy(), expected)


def test_the_last_row_for_a_place_stays_and_gets_the_gradient():
    first, second = wf.tensor([1.0, 2.0], requires_grad=True), wf.tensor([3.0, 4.0], requires_grad=True)
    out = wf.dynamic_stitch([wf.tensor([0, 2]), wf.tensor([2, 4])], [first, second])
    assert out.tolist() == [1.0, 0.0, 3.0, 0.0, 4.0]
    (out * wf.tensor([1.0, 10.0, 100.0, 1000.0, 10000.0])).sum().backward()
    assert first.grad.tolist() == [1.0, 0.0] and second.grad.tolist() == [100.0, 10000.0]


def test_stitching_batches_over_data_and_refuses_indices_per_example():
    data, places = wf.randn(4, 3, 2), wf.tensor([2, 0, 1])
    batched = wf.vmap(lambda d: wf.dynamic_stitch([places], [d]))(data)
    assert np.array_equal(batched.numpy(), data.numpy()[:, [1, 2, 0]])
    with pytest.raises(ValueError, match="the indices must be the same for all examples"):
        wf.vmap(lambda i, d: wf.dynamic_stitch([i], [d]))(wf.tensor([[0, 1], [1, 0]]), wf.ones(2, 2))


def test_captured_functions_say_that_the_sizes_depend_on_values():
    for name, call in (
        ("dynamic_partition", lambda i: wf.dynamic_partition(i, i % 2, 2)),
        ("dynamic_stitch", lambda i: wf.dynamic_stitch([i], [i])),
    ):
        with pytest.raises(CaptureError, match=f"{name}: the size of its result depends on the data"):
            wf.function(call, fullgraph=True)(wf.tensor([0, 1]))


def test_bad_arguments_of_stitching_are_named():
    row = wf.ones(1)
    for error, text, indices, data in (
        (ValueError, "expected one tensor of data for each", [wf.tensor([0])], []),
        (ValueError, "expected at least one", [], []),
        (ValueError, "the shape of data must begin", [wf.tensor([0, 1])], [row]),
        (IndexError, "must not be negative. Got -1", [wf.tensor([-1])], [row]),
        (TypeError, "indices must be integers", [row], [row]),
        (TypeError, "expected a list or tuple", wf.tensor([0]), [row]),
    ):
        with pytest.raises(error, match=f"dynamic_stitch: .*{text}"):
            wf.dynamic_stitch(indices, data)
