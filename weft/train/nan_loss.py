"""A loss that is NaN ends training before the update, with the line where the NaN was made.

The training step checks its loss (`wf.debug.check`), which fails before a weight is written, so the step can be repeated
eagerly under `wf.detect_anomaly()` with the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import weft as wf

from .. import debug
from ..tensor import Tensor
from .metrics import tensors_in

if TYPE_CHECKING:
    from .trainer import Trainer

MESSAGE = "Trainer: the loss is NaN"
NAMED = 3  # parameters that the message lists


def check(loss: Tensor) -> None:
    """Fail with `MESSAGE` if the loss is NaN; also in a captured step."""
    debug.check(loss.detach() == loss.detach(), MESSAGE)


def is_nan_loss(error: BaseException) -> bool:
    """Whether `error` was raised by `check`."""
    return isinstance(error, AssertionError) and MESSAGE in str(error)  # the program adds its node


def explained(trainer: Trainer, batch: Any) -> FloatingPointError:
    """The error for a NaN loss of `batch`, with what is known about its origin."""
    where = f"at step {trainer.step + 1} (epoch {trainer.epoch + 1})"
    return FloatingPointError(f"Trainer: the loss is nan {where}. {_origin(trainer, batch)}")


def _origin(trainer: Trainer, batch: Any) -> str:
    for number, tensor in enumerate(tensors_in(batch)):
        bad = _bad_rows(tensor)
        if bad is not None:
            return (
                f"Tensor {number} of the batch holds NaN or infinities, first in sample {bad} of the batch: clean the data, "
                "or look for a division by a zero spread where it is normalised."
            )
    broken = [n for n, p in trainer.model.named_parameters() if not np.isfinite(p.detach().numpy()).all()]
    if broken:
        names = ", ".join(broken[:NAMED]) + (f" and {len(broken) - NAMED} more" if len(broken) > NAMED else "")
        return (
            f"The update before this step made weights NaN or infinite ({names}), so its gradients were. Lower the learning "
            "rate or clip gradients (`Trainer(clip_grad_norm=1.0)`); `capture=False` and `with wf.detect_anomaly():` around "
            "`fit` raise at the line whose gradient it is."
        )
    try:
        with wf.detect_anomaly(), wf.no_grad():
            trainer._steps._forward(batch)
    except RuntimeError as error:
        return f"It was made here: {error}"
    return (
        "The same batch gives a finite loss when it is computed again, so random numbers (dropout) or another thread decide. "
        "`capture=False` and `with wf.detect_anomaly():` around `fit` raise at the line that makes it."
    )


def _bad_rows(tensor: Any) -> int | None:
    """The first row of a tensor or array with a value that is not finite."""
    values = tensor.detach().numpy() if isinstance(tensor, Tensor) else tensor
    if values.dtype.kind not in "fc" or np.isfinite(values).all():
        return None
    rows = np.isfinite(values).reshape(len(values) if values.ndim else 1, -1).all(axis=1)
    return int(np.argmin(rows))
