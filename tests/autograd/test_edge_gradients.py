"""Every row of the table in docs/edge-gradients.md, eagerly and captured: the page is the specification."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.nn import functional as F

PAGE = Path(__file__).parents[2] / "docs" / "edge-gradients.md"
ROW = re.compile(r"\| `(?P<call>.+?)` \| \[(?P<x>[^]]*)\] \| (?P<gradient>[^|]*) \|")


def _numbers(text):
    return [float(v) for v in text.strip().strip("[]").split(",")]


def _table():
    """From each call to its points and the gradient (or the name of the error) at each."""
    found: dict[str, list] = {}
    for line in PAGE.read_text().splitlines():
        if row := ROW.match(line):
            gradient = row["gradient"].strip()
            expected = _numbers(gradient) if gradient.startswith("[") else gradient
            found.setdefault(row["call"], []).append((_numbers(row["x"]), expected))
    return found


TABLE = _table()
ERRORS = {"LinAlgError": wf.linalg.LinAlgError}


def test_the_page_has_its_table():
    assert sum(len(points) for points in TABLE.values()) > 200


@pytest.mark.parametrize("call", TABLE)
@pytest.mark.filterwarnings("ignore")
def test_gradient_at_the_edge_is_the_documented_one(call):
    fn = eval(f"lambda x: {call}", {"wf": wf, "F": F})

    def eager(x):
        x = x.requires_grad_()
        fn(x).sum().backward()
        return x.grad

    captured = wf.function(wf.grad_fn(lambda x: fn(x).sum()))
    for way in (eager, captured):
        for point, expected in TABLE[call]:
            x = wf.asarray(np.array(point))
            if isinstance(expected, str):
                with pytest.raises(ERRORS[expected]):
                    way(x)
                continue
            got = way(x).numpy()
            message = f"{call} at {point}, {'eager' if way is eager else 'captured'}"
            np.testing.assert_allclose(got, expected, rtol=2e-3, atol=1e-5, equal_nan=True, err_msg=message)
