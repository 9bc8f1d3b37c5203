"""The training, evaluation and prediction steps of a `Trainer`, captured on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import weft as wf

from ..autocast import autocast
from ..autograd.tree import map_tensors
from ..nn.utils import clip_grad_norm_
from ..runtime import epoch
from ..tensor import Tensor
from . import nan_loss

if TYPE_CHECKING:
    from .trainer import Trainer


class MaybeCaptured:
    """A function of a batch that runs captured, or eagerly after one warning if it cannot be captured."""

    def __init__(self, function: Callable[[Any], Any], capture: bool) -> None:
        def unpacked(*items: Any) -> Any:
            return function(items if len(items) > 1 else items[0])

        unpacked.__name__ = "Trainer: the step"  # in warnings
        self.function = function
        self.captured: Any = wf.function(unpacked) if capture else None

    def __call__(self, batch: Any) -> Any:
        if self.captured is None:
            return self.function(batch)
        try:
            if type(batch) in (tuple, list) and len(batch) > 1:
                return self.captured(*batch)  # separate tensor arguments have a shorter dispatch path than a tuple
            return self.captured(batch)
        except wf.CaptureError as error:
            self.captured = None
            warnings.warn(
                f"Trainer: this model cannot be captured and runs eagerly, which is slower: {error} "
                "(`capture=False` says so from the start.)",
                stacklevel=4,
            )
            return self.function(batch)

    def graph(self) -> Any:
        """The captured graph; None if there is none."""
        return self.captured.graph if self.captured is not None and self.captured.signatures else None


class Steps:
    """The steps of one trainer. They return tensors: the loss and the statistics of each metric."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        capture = trainer.capture
        self.train = MaybeCaptured(self._train, capture)
        self.accumulate = MaybeCaptured(self._accumulate, capture)
        self.update = MaybeCaptured(self._update, capture)
        self.evaluate = MaybeCaptured(self._evaluate, capture)
        self.predict = MaybeCaptured(self._predict, capture)
        self._sums: list[Tensor] = []  # of gradients, while they are accumulated
        self._reached: set[int] = set()  # the parameters that have had a gradient; the others are not updated

    def _measured(self, loss: Tensor, output: Any, target: Any) -> tuple[Tensor, ...]:
        with wf.no_grad():
            shown = _detached(output)
            return (loss.detach(), *[m.measure(shown, target) for m in self.trainer.metrics])

    def _forward(self, batch: Any) -> tuple[Tensor, Any, Any]:
        trainer = self.trainer
        if trainer.autocast is None:
            return trainer.forward(batch)
        with autocast(trainer.autocast):
            return trainer.forward(batch)

    def _train(self, batch: Any) -> tuple[Tensor, ...]:
        trainer = self.trainer
        loss, output, target = self._forward(batch)
        if trainer.stop_on_nan:
            nan_loss.check(loss)
        trainer.optimizer.zero_grad()
        loss.backward()
        self._apply()
        return self._measured(loss, output, target)

    def _apply(self) -> None:
        """Clip the gradients if asked to and update the weights."""
        trainer = self.trainer
        if trainer.clip_grad_norm is not None:
            clip_grad_norm_(trainer.parameters, trainer.clip_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        if trainer.ema is not None:
            trainer.ema.update()

    # Gradient accumulation: gradients of several batches are summed into separate tensors, which a captured function
    # updates in place like other state.

    def prepare_accumulation(self) -> None:
        """Allocate the sums; must run before the capture."""
        self._sums = [wf.zeros_like(p.detach()) for p in self.trainer.parameters]

    def _accumulate(self, batch: Any) -> tuple[Tensor, ...]:
        trainer = self.trainer
        loss, output, target = self._forward(batch)
        if trainer.stop_on_nan:
            nan_loss.check(loss)
        trainer.optimizer.zero_grad()
        loss.backward()
        with wf.no_grad():
            for number, (total, parameter) in enumerate(zip(self._sums, trainer.parameters)):
                gradient = parameter.grad
                if gradient is not None:
                    total += gradient.to_dense() if hasattr(gradient, "to_dense") else gradient
                    if number not in self._reached:
                        self._reached.add(number)
                        epoch.bump()
        trainer.optimizer.zero_grad()
        return self._measured(loss, output, target)

    def _update(self, scale: Tensor) -> Tensor:
        """One update with the mean of the gradients: their sum times `scale`."""
        with wf.no_grad():
            for number, (total, parameter) in enumerate(zip(self._sums, self.trainer.parameters)):
                if number in self._reached:
                    parameter.grad = total * wf.astype(scale, total.dtype)
        self._apply()
        with wf.no_grad():
            for total in self._sums:
                total.zero_()
        return scale

    def _evaluate(self, batch: Any) -> tuple[Tensor, ...]:
        with wf.no_grad():
            loss, output, target = self._forward(batch)
            return self._measured(loss, output, target)

    def _predict(self, inputs: Any) -> Any:
        with wf.no_grad():
            return _detached(self.trainer.model(*inputs))


def _detached(tree: Any) -> Any:
    return map_tensors(lambda t: t.detach(), tree)
