"""A function that is captured again and again says once which argument varies, and what to do."""

from __future__ import annotations

import warnings
from typing import Any

import weft as wf
from tests.each import each
from weft.graph.capture.function import WARN_AFTER


def test_many_signatures_are_reported_once_with_the_argument_that_varies():
    def check(arguments: Any, said: str) -> None:
        @wf.function
        def scaled(x: Any, factor: Any) -> Any:
            return x * (factor[0] if isinstance(factor, tuple) else factor)

        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for n in range(1, WARN_AFTER + 6):
                scaled(*arguments(n))
        texts = [str(w.message) for w in found if "th signature" in str(w.message)]
        assert len(texts) == 1 and said in texts[0], texts

    two = wf.tensor(2.0)
    each(
        check,
        {
            "a shape": (lambda n: (wf.ones(n), two), "shape of `x` varies: (10,), then (11,)"),
            "a number": (
                lambda n: (two, n),
                "value of `factor` varies: 10, then 11. Each value is a program of its own: pass a",
            ),
            "in a container": (lambda n: (two, (n,)), "value of leaf 1 of its arguments varies"),
            "a structure": (lambda n: (two, (1,) * n), "structure of its arguments varies"),
        },
    )
