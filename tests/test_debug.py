"""`wf.debug`: checks fail with the user's words, eagerly as in a captured function."""

from __future__ import annotations

import pytest

import weft as wf


def test_a_failed_check_is_an_assertion_error_in_the_users_words() -> None:
    def positive(x: wf.Tensor) -> wf.Tensor:
        wf.debug.check(x > 0, "x must be positive")
        return wf.sqrt(x)

    for run in (positive, wf.function(positive)):
        assert run(wf.tensor([4.0])).tolist() == [2.0]
        with pytest.raises(AssertionError, match="x must be positive"):
            run(wf.tensor([-4.0]))
