"""The tests that start processes run one after the other."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.xdist_group("distributed")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one test process")
def test_the_tests_of_a_group_share_a_process(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@distributed"), (
        "pytest and pytest-xdist do not fit: groups are not kept together"
    )
