"""`each` runs every case and names those that failed."""

from __future__ import annotations

import pytest

from tests.each import each


def test_every_case_runs_and_those_that_fail_are_named():
    seen = []

    def check(x):
        seen.append(x)
        if x == 4:
            with pytest.raises(ValueError):
                int("4")
        assert x % 2, f"{x} is even"

    each(check, {"one": (1,), "three": (3,)})
    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed: two; four") as caught:
        each(check, {"one": (1,), "two": (2,), "four": (4,), "five": (5,)})
    assert seen == [1, 3, 1, 2, 4, 5]
    first, second = caught.value.exceptions
    assert str(first).startswith("2 is even") and first.__notes__ == ["in the case two"]
    assert "DID NOT RAISE" in str(second)


def test_a_test_that_should_end_at_once_does():
    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each(check, {"one": ()})
