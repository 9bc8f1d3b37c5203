"""Einsum: contraction order by cost, no giant intermediates, and lowering to matrix products."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.ops.array.einsum import _order
from weft.ops.core import define


class _Count(define.Mode):
    def __init__(self):
        self.names = []

    def handle(self, op, values):
        self.names.append(op.name)
        return op.call(*values)


def test_order_follows_the_cost():
    # (A B) v costs n³, A (B v) only 2 n²
    sizes = (("i", 100), ("j", 100), ("k", 100))
    assert _order(("ij", "jk", "k"), "i", sizes)[0] == (1, 2)


def test_a_long_chain_takes_the_cheap_way():
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal((2, 2)) for _ in range(10)]
    letters = "abcdefghijk"
    equation = ",".join(letters[i : i + 2] for i in range(10)) + "->ak"
    expected = np.linalg.multi_dot(operands)
    np.testing.assert_allclose(wf.einsum(equation, *map(wf.asarray, operands)).numpy(), expected, rtol=1e-10)


def test_attention_is_one_matrix_product():
    q, k = wf.ones((2, 3, 4, 5)), wf.ones((2, 3, 6, 5))
    with _Count() as seen:
        out = wf.einsum("bhqd,bhkd->bhqk", q, k)
    assert out.shape == (2, 3, 4, 6)
    assert seen.names.count("matmul") == 1 and "multiply" not in seen.names


def test_mixed_dtypes_promote():
    assert wf.einsum("i,i->", wf.ones(3), wf.ones(3, dtype=wf.float64)).dtype == wf.float64
    assert wf.einsum("i,i->", wf.arange(3), wf.arange(3)).item() == 5


def test_sizes_of_one_broadcast():
    x, y = np.arange(6.0).reshape(2, 3), np.ones((1, 3))
    np.testing.assert_allclose(wf.einsum("ij,ij->", wf.asarray(x), wf.asarray(y)).numpy(), np.einsum("ij,ij->", x, y))
    np.testing.assert_allclose(wf.einsum("ij,ij->i", wf.asarray(x), wf.asarray(y)).numpy(), x.sum(1))


@pytest.mark.parametrize("equation", ["i->->i", "i,->", "i..j->i", "...i...->i", "->", "i->...j", " ", "ij->i j k"])
def test_equations_that_make_no_sense_are_refused(equation):
    with pytest.raises((ValueError, TypeError), match="einsum: "):
        wf.einsum(equation, wf.ones((2, 2)))


@pytest.mark.parametrize("equation", ["ijkl,kl->ij", "ijkl,kl,l->i", "ijkl,ml->im"])
def test_sizes_that_are_not_known_yet_do_not_count_as_broadcast(equation):
    rng = np.random.default_rng(0)
    shapes = [tuple({"i": 2, "j": 3, "k": 4, "l": 5, "m": 6}[c] for c in t) for t in equation.split("->")[0].split(",")]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    for hidden in range(len(shapes)):
        graph = wf.Graph()
        with graph.as_default():
            open_ = [(None,) * len(s) if i == hidden else s for i, s in enumerate(shapes)]
            xs = [wf.placeholder(wf.float64, s) for s in open_]
            y = wf.einsum(equation, *xs)
        with wf.Session(graph) as session:
            got = session.run(y, dict(zip(xs, arrays, strict=True)), timeout=30)
        np.testing.assert_allclose(got.numpy(), np.einsum(equation, *arrays), rtol=1e-10)
