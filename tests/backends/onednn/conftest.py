"""Everything here needs oneDNN; the tests of its absence start new processes."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.onednn import library
from weft.runtime import threads


@pytest.fixture(autouse=True)
def _two_threads() -> object:
    if not library.available():
        pytest.skip("oneDNN is not available on this machine")
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
