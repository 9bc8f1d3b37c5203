"""The type stubs are what `python -m tools.stubs` writes now."""

from __future__ import annotations

import pytest

from tools.stubs import ROOT, stubs


@pytest.mark.parametrize("path", sorted(stubs()), ids=lambda path: str(path.relative_to(ROOT)))
def test_stub_is_up_to_date(path):
    assert path.read_text() == stubs()[path], "run `make stubs` and commit the result"
