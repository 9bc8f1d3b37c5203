"""Matrices and vectors taken apart: what must have a certain size is checked when the size is known."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf


def test_cross_checks_its_vectors_when_a_step_learns_their_size():
    graph = wf.Graph()
    with graph.as_default():
        x = wf.placeholder(wf.float64, (None, None))
        y = wf.linalg.cross(x, x + 1)
    a = np.arange(6.0).reshape(2, 3)
    with wf.Session(graph) as session:
        np.testing.assert_allclose(session.run(y, {x: a}, timeout=30).numpy(), np.cross(a, a + 1))
        with pytest.raises(ValueError, match="3 elements"):
            session.run(y, {x: np.ones((2, 64))}, timeout=30)
