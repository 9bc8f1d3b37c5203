"""Graph files that Weft 0.1 wrote still load and give the numbers they gave then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import weft as wf

FIXTURES = Path(__file__).parent / "fixtures"
RESULTS = json.loads((FIXTURES / "results.json").read_text())


@pytest.mark.parametrize("name", RESULTS)
def test_a_graph_file_of_0_1_loads_and_runs_as_before(name, executor):
    graph = wf.Graph.load(FIXTURES / name)
    feeds = {k: np.array(v, dtype) for k, (dtype, v) in RESULTS[name]["feeds"].items()}
    with wf.Session(graph, executor) as session:
        for fetches, expected in RESULTS[name]["steps"]:
            for value, before in zip(session.run(fetches, feeds, timeout=60), expected, strict=True):
                if before is None:
                    assert value is None
                else:
                    np.testing.assert_allclose(value.numpy().astype(np.float64), before, rtol=1e-4, atol=1e-5)
