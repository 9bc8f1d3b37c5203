"""Many small cases in one test: all of them run, and the failure names every case that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest


def each(check: Callable[..., Any], cases: Mapping[str, tuple[Any, ...]]) -> None:
    """`check(*arguments)` for every case. The errors of all cases that fail are raised together, each with its name."""
    failed: dict[str, Exception] = {}
    for name, arguments in cases.items():
        try:
            check(*arguments)
        except pytest.fail.Exception as error:  # `pytest.raises` that saw no exception
            failed[name] = AssertionError(error.msg)
        except Exception as error:
            failed[name] = error
    for name, error in failed.items():
        error.add_note(f"in the case {name}")
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(cases)} cases failed: {'; '.join(failed)}", list(failed.values()))
