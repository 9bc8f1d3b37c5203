"""Bound: repeated calls of a captured function on memory of its caller, without the checks of an ordinary call.

An ordinary call finds the program by the signature of its arguments, looks for memory that arguments and outside tensors share,
and tells the tape what was written: 50 µs for a training step with ten tensors. A caller that passes tensors of the same shapes
each time, in memory that nothing else refers to, needs none of this; what may change between calls (gradients that the trace
looked at, Python variables that it read, modules) is still checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from ... import dtypes
from ...autograd.tape import grad_mode, relinked
from ...autograd.tree import unflatten
from ...runtime import epoch
from ...tensor import Tensor, wrap

if TYPE_CHECKING:
    from .function import CapturedFunction
    from .trace import Trace

_data_of = attrgetter("_data")
MISSED = object()
"""the result of a call that must be an ordinary one"""


class Bound:
    """A program of a captured function. Made by `bound`.

    Args:
        trace: of the latest call.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace, self._compiled = trace, trace.compiled
        self._count = len(trace.values)
        self._written = [i for i, _ in trace.written_arguments]
        self._modes = self._now()

    @staticmethod
    def _now() -> tuple[Any, ...]:
        return grad_mode.enabled, epoch.current(), dtypes._default_float

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """What the function returns for tensors of the shapes and dtypes of the first call, or `MISSED`."""
        trace, compiled = self._trace, self._compiled
        if self._now() != self._modes:
            return MISSED
        if (trace.guards or trace.reads is not None or relinked.clock != trace.relinked) and not trace.holds(
            tensors  # type: ignore[arg-type]
        ):
            return MISSED
        arguments = [compiled.fit(i, t._data) for i, t in enumerate(tensors)]
        for i in self._written:
            if arguments[i] is not tensors[i]._data:
                return MISSED  # it would have to be copied back
        variables = compiled.seen
        if not all(map(is_, map(_data_of, trace.variables), variables)):
            variables = trace._rebind()
        outputs = compiled.program(arguments, variables)
        for tensor in trace.cleared:
            tensor._grad = None
        if not trace.returns:
            return None
        results = [wrap(a) for a in outputs[: self._count]]
        made = [trace._make(r, results, tensors) for r in trace.returns]  # type: ignore[arg-type]
        return made[0] if trace.structure is None else unflatten(trace.structure, made)


def bound(captured: CapturedFunction[..., Any]) -> Bound | None:
    """The program of the latest call of a captured function; None if it does more than compute with its arguments' memory."""
    trace: Trace | None = captured._last[1]
    if trace is None or trace.reason is not None or trace.relinks is not None or trace.gradient_owners:
        return None
    if trace.backward is not None or trace.gradients or trace._frozen or trace.inner_gradients:
        return None
    return Bound(trace)
