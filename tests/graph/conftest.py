"""What the tests of declared graphs share: a fresh graph, and sessions of every kind that must give the same results."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft.graph.execute.placement import Placement

KINDS = {
    "dataflow": {"executor": "dataflow"},
    "naive": {"executor": "naive"},
    "dataflow on two devices": {"executor": "dataflow", "devices": ["cpu:0", "cpu:1"]},
    "naive on two devices": {"executor": "naive", "devices": ["cpu:0", "cpu:1"]},
}
LOWERED = {
    "routing ops": {"executor": "dataflow", "lower": True},
    "naive routing ops": {"executor": "naive", "lower": True},
    "routing ops on two devices": {"executor": "dataflow", "devices": ["cpu:0", "cpu:1"], "lower": True},
}


def alternate(self: Placement, group: Any, device: Any) -> float:
    """A cost that sends every other group of nodes to the other device, so that values really cross."""
    first = min([n.order for n in group])
    return float(device != self.available[first % len(self.available)])


def maker(kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    settings = {**KINDS, **LOWERED}[kind]
    if "devices" in settings:
        monkeypatch.setattr(Placement, "_cost", alternate)

    def make(*args: Any, **kwargs: Any) -> wf.Session:
        return wf.Session(*args, **{**settings, **kwargs})

    make.kind = kind  # type: ignore[attr-defined]
    return make


@pytest.fixture(params=list(KINDS))
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a session: `session()` or `session(graph)`, on both executors and on one and two devices."""
    return maker(request.param, monkeypatch)


@pytest.fixture(params=[*KINDS, *LOWERED])
def control_session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `session`, and with all structured control flow run as routing ops."""
    return maker(request.param, monkeypatch)


@pytest.fixture(params=["dataflow", "naive"])
def executor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def fresh_graph() -> Any:
    graph = wf.Graph("test")
    with graph.as_default():
        yield graph
