"""Weight averaging: exponential moving average (EMA) and stochastic weight averaging (SWA)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.tape import no_grad
from ..runtime import epoch, owned_memory
from ..tensor import Tensor, to_array, wrap
from .group import update_dtype

if TYPE_CHECKING:
    from ..nn.module import Module


class EMA:
    """Exponential moving average s ← decay · s + (1 - decay) · p of every parameter; call `update()` after each step.

    Args:
        source: a module (its floating buffers are averaged too) or an iterable of tensors.
        decay: decay rate of the average.
        warmup: start with smaller decays, (1 + t) / (10 + t), so that initial weights are forgotten quickly.

    `with ema.applied(): …` swaps the averages into the model temporarily; `copy_to()` copies them permanently.

    >>> p = nn.Parameter(wf.zeros(1)); ema = optim.EMA([p], decay=0.5)
    >>> with wf.no_grad(): _ = p.fill_(1.0)
    >>> ema.update(); ema.averages[0].tolist()
    [0.5]
    """

    def __init__(self, source: Module | Iterable[Tensor], decay: float = 0.999, *, warmup: bool = False) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"EMA: decay must be between 0 and 1. Got {decay}.")
        self.decay, self.warmup = float(decay), warmup
        self.sources = _sources(type(self).__name__, source)
        self.averages: list[Tensor] = [
            wrap(
                s.detach()._array("EMA").astype(update_dtype(s.dtype))
                if s.is_floating_point()
                else s._array("EMA").copy()
            )
            for s in self.sources
        ]
        self.steps = wrap(np.zeros((), np.float32))

    def update(self) -> None:
        """Update the averages with the current parameters. May be part of a captured step."""
        if owned_memory.advice(self.sources[0]._data) is not None:
            raise RuntimeError(
                f"{type(self).__name__}.update(): in a distributed run the averages are part of its state and move with the "
                "weights. Use `distributed.step(optimizer, ema=ema)` or `Trainer(ema=…)`."
            )
        with no_grad():
            self.steps += 1.0
            rate = self.rate()
            for average, source in zip(self.averages, self.sources, strict=True):
                if source.is_floating_point():
                    average += (source.detach() - average) * rate
                else:
                    average.copy_(source)

    def rate(self, steps: Any = None) -> Any:
        """The weight of the new value in this step, or in the update with the number `steps`."""
        if not self.warmup:
            return 1.0 - self.decay
        steps = self.steps if steps is None else steps
        return (9.0 / (9.0 + steps + 1.0)).maximum(wrap(np.asarray(1.0 - self.decay, np.float32)))

    def copy_to(self) -> None:
        """Copy the averages into the parameters."""
        with no_grad():
            for average, source in zip(self.averages, self.sources, strict=True):
                source.copy_(average.to(source.dtype))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager in which the parameters hold the averages; restores them on exit."""
        if any(owned_memory.advice(s._data) is not None for s in self.sources):
            with self._shown():
                yield
            return
        kept = [s.detach()._array("applied").copy() for s in self.sources]
        self.copy_to()
        try:
            yield
        finally:
            with no_grad():
                for source, value in zip(self.sources, kept, strict=True):
                    source.copy_(wrap(value))

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """As `applied`, for parameters whose memory must not be written: they get other memory for a while."""
        kept = [s._data for s in self.sources]
        for source, average in zip(self.sources, self.averages, strict=True):
            source._data = average._array("applied").astype(source.dtype)
        try:
            yield
        finally:
            for source, array in zip(self.sources, kept, strict=True):
                source._data = array

    def state_dict(self) -> dict[str, Any]:
        """The averages and the number of updates."""
        return {"averages": list(self.averages), "steps": self.steps, "decay": self.decay}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        values = [to_array(v) for v in state["averages"]]
        expected = [tuple(a.shape) for a in self.averages]
        if [v.shape for v in values] != expected:
            raise ValueError(
                f"{type(self).__name__}: expected averages of shapes {expected}. Got {[v.shape for v in values]}."
            )
        for average, value in zip(self.averages, values, strict=True):
            average._array("load_state_dict")[...] = value
        self.steps._array("load_state_dict")[...] = to_array(state["steps"])
        if self.decay != float(state["decay"]):
            self.decay = float(state["decay"])
            epoch.bump()


class SWA(EMA):
    """Stochastic weight averaging: the mean of the parameters over all calls of `update()`.

    >>> p = nn.Parameter(wf.zeros(1)); swa = optim.SWA([p])
    >>> swa.update()
    >>> with wf.no_grad(): _ = p.fill_(1.0)
    >>> swa.update(); swa.averages[0].tolist()
    [0.5]
    """

    def __init__(self, source: Module | Iterable[Tensor]) -> None:
        super().__init__(source, decay=0.0)

    def rate(self, steps: Any = None) -> Any:
        return 1.0 / (self.steps if steps is None else steps)


def _sources(name: str, source: Any) -> list[Tensor]:
    if hasattr(source, "parameters"):
        found = [*source.parameters(), *source.buffers()]
    else:
        found = list(source) if isinstance(source, Iterable) else []
    if not found or not all(isinstance(s, Tensor) for s in found):
        raise TypeError(f"{name}: expected a module or tensors. Got {type(source).__name__} with {len(found)} tensors.")
    return found
