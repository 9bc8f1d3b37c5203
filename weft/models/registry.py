"""Registry of model constructors by name, and loading of trained models.

A function marked with `@constructor` is listed in `constructors()`, can be named in a configuration or on the command
line, and records its name and arguments in the model it returns. A checkpoint stores that record, so `load` can
rebuild the model without executing code from the file.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..io import Checkpoint, CheckpointError, best, open_checkpoint
from ..io.checked import Checked
from ..nn import Module
from ..optim import EMA

F = TypeVar("F", bound=Callable[..., Module])
_constructors: dict[str, Callable[..., Module]] = {}


def constructor(function: F) -> F:
    """Register `function`, which returns a model, under its name."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Module:
        model = function(*args, **kwargs)
        given = dict(signature.bind(*args, **kwargs).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(name, {}))
        try:
            json.dumps(given)
        except TypeError:  # an argument that cannot be serialised, such as a layer
            return model
        # bypasses setattr: captured functions do not depend on the record
        model.__dict__["made_by"] = {"name": function.__name__, "arguments": given}
        return model

    _constructors[function.__name__] = made
    return made  # type: ignore[return-value]


def constructors() -> dict[str, Callable[..., Module]]:
    """Every constructor of `weft.models`, by name."""
    return dict(sorted(_constructors.items()))


def build(name: str, **arguments: Any) -> Module:
    """Build a model with the constructor called `name`."""
    if name not in _constructors:
        import difflib

        close = difflib.get_close_matches(name, _constructors, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"models: there is no {name!r}.{hint} There are {', '.join(constructors())}.")
    return _constructors[name](**arguments)


def load(path: str | os.PathLike[str]) -> Module:
    """Load the model of a training run with its best weights, in evaluation mode.

    Args:
        path: the directory of a run (`weft train` prints it), of its checkpoints, or of one checkpoint.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the checkpoint's model was not made by a constructor of `weft.models`.
        CheckpointError: the checkpoint is damaged, or its weights do not fit the model it names.
    """
    checkpoint = find_checkpoint(path)
    if checkpoint.facts.get("model") is None:
        raise ValueError(
            f"models.load: {checkpoint.path} does not say how its model was made. Make the model yourself and call "
            "`model.load_state_dict(wf.load(path)['model'])`."
        )
    made_by = _facts(checkpoint)["model"]
    name, arguments = made_by["name"].text(_constructors), made_by["arguments"].mapping()
    try:
        model = build(name, **{k: v.value for k, v in arguments.items()})
        restore_weights(model, checkpoint)
    except (TypeError, ValueError, KeyError, IndexError, ArithmeticError, AttributeError) as error:
        raise CheckpointError(f"models.load: {checkpoint.path}: its model {name!r} cannot be made: {error}") from error
    return model.eval()


def _facts(checkpoint: Checkpoint) -> Checked:
    """The record in a checkpoint; each part is validated on use."""
    return Checked(
        dict(checkpoint.facts),
        lambda reason, place: CheckpointError(f"checkpoint: {checkpoint.path} is damaged: facts.{place}: {reason}"),
    )


def find_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The best checkpoint of a run by its monitored score, or the latest if none is monitored."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"models.load: there is no {place}.")
    if (place / "checkpoints").is_dir():
        place = place / "checkpoints"
    newest = open_checkpoint(place)
    if newest.path == place or newest.facts.get("monitor") is None:
        return newest
    monitor = _facts(newest)["monitor"]
    return best(place, monitor["name"].text(), monitor["mode"].text(("min", "max"))) or newest


def restore_weights(model: Module, checkpoint: Checkpoint) -> None:
    """Load a checkpoint's weights into `model`: the moving average if the run kept one."""
    model.load_state_dict(checkpoint.part("model"))
    if "ema" in checkpoint.parts:
        average = EMA(model)
        average.load_state_dict(checkpoint.part("ema"))
        average.copy_to()
