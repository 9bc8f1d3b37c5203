"""Programs that all workers of a run compile alike."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..autograd.tree import flatten
from ..compiler import tuning
from ..graph.capture.bound import MISSED, Bound, bound
from ..graph.capture.function import function
from ..graph.capture.tracing import CaptureError
from ..tensor import Tensor

MAX_BINDINGS = 64  # of weights and gradients: those are in one of two buffers, these in one of several slots


class Program:
    """A captured function whose kernels are the same in all workers; it runs eagerly if it cannot be captured.

    The first worker that compiles it chooses among the candidate kernels, the others do as it did: another choice may give
    other bits.

    Args:
        fn: the function.
        directory: of the run, on this host.
        name: for the warning that it cannot be captured.
        capture: False runs it eagerly from the start.
    """

    def __init__(self, fn: Callable[..., Any], directory: str, name: str, capture: bool = True) -> None:
        self._fn, self._directory, self._name = fn, Path(directory), name
        self._captured: Any = None
        if capture:
            captured = self._captured = function(fn, fullgraph=True)
            captured.bindings, captured.notes_writes = MAX_BINDINGS, False
        self._compiled: dict[Any, Bound | None] = {}  # by the signature of arguments

    def __call__(self, *args: Any) -> Any:
        if self._captured is None:
            return self._fn(*args)
        key = _signature(args)
        known = self._compiled.get(key)
        if known is not None:
            found = known(args) if all(a.__class__ is Tensor for a in args) else MISSED
            return self._captured(*args) if found is MISSED else found
        if key in self._compiled:
            return self._captured(*args)
        try:
            found = self._compile(args)
        except CaptureError as error:
            self._captured = None
            warnings.warn(
                f"{self._name}: this step cannot be captured and runs eagerly, which is slower: {error}", stacklevel=5
            )
            return self._fn(*args)
        self._compiled[key] = bound(self._captured)
        return found

    def _compile(self, args: tuple[Any, ...]) -> Any:
        with locked(self._directory / "tuning.lock"):
            file = self._directory / "tuning.json"
            if file.exists():
                tuning.adopt(json.loads(file.read_text()))
            found = self._captured(*args)
            temporary = self._directory / f"tuning.{os.getpid()}"
            temporary.write_text(json.dumps(tuning.export()))
            os.replace(temporary, file)
            return found


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among the workers of a host. The system releases it when its holder dies."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _signature(args: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves = args if all(a.__class__ is Tensor for a in args) else flatten(args)[0]
    return tuple([(t._data.shape, t._data.dtype) if isinstance(t, Tensor) else type(t) for t in leaves])
