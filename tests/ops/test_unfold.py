"""Windows as columns: what does not fit is refused, however late its size is known."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F
from weft.ops.core.registry import get
from weft.ops.nn.window import Window


@pytest.mark.parametrize(("shape", "problem"), [((128, 31, 1), "multiple of 4"), ((2, 8, 7), "expected 9 columns")])
def test_columns_that_do_not_fit_are_refused_when_a_step_learns_their_size(shape, problem):
    graph = wf.Graph()
    with graph.as_default():
        x = wf.placeholder(wf.float32, (None, None, None))
        y = F.fold(x, 6, 2, stride=2)
    with wf.Session(graph) as session, pytest.raises(ValueError, match=problem):
        session.run(y, {x: np.ones(shape, np.float32)}, timeout=30)


@pytest.mark.parametrize("window", [((0, 2), (1, 1), (1, 1)), ((2, 2), (-1, 1), (1, 1)), ((2, 2), (1, 1), (0, 1))])
def test_windows_that_would_leave_the_memory_are_refused_by_the_primitive(window):
    """A graph read from a file calls primitives without the functions that users call."""
    kernel, dilation, stride = window
    x = wf.ones((1, 2, 6, 6))
    with pytest.raises(ValueError, match="at least 1"):
        Window(kernel, stride, ((0, 0), (0, 0)), dilation)
    with pytest.raises(TypeError, match="unfold: expected a Window"):
        get("unfold_windows").call(x, window)
