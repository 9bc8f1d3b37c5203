"""What the tests of rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft as wf
from weft.runtime import threads


@pytest.fixture
def at_widths() -> Iterator[Callable[[Callable[[], Any]], list[Any]]]:
    """`at_widths(run)`: the results of `run()` with one thread and with two."""
    before = threads.get_num_threads()

    def results(run: Callable[[], Any]) -> list[Any]:
        found = []
        for width in (1, 2):
            wf.set_num_threads(width)
            found.append(run())
        return found

    yield results
    wf.set_num_threads(before)
