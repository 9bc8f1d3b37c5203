"""`weft summary`: a table of a model's parts."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

import weft as wf

from .. import models
from .config import load_config, recipes, suggestion
from .errors import CommandError

# Shapes to try for a model that is given by name alone: what its constructor is made for.
_IMAGE = (1, 3, 224, 224)


def run(arguments: argparse.Namespace) -> int:
    """`weft summary …`"""
    model, shape = _model(arguments.model)
    if arguments.input:
        shape = _shape(arguments.input)
    example: Any = wf.zeros(shape)
    if any(isinstance(m, wf.nn.Embedding) for m in model.modules()):
        example = wf.zeros(shape, dtype=wf.int64)
    try:
        print(model.eval().summary(example, depth=arguments.depth))
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise CommandError(
            f"{arguments.model}: does not take an input of shape {tuple(shape)}: {error} Give one with --input 1,3,224,224."
        ) from None
    return 0


def _model(name: str) -> tuple[Any, tuple[int, ...]]:
    """The model of that name, of a configuration or of a run; and the shape of an input."""
    found = models.constructors()
    if name in found:
        model = found[name]()
        return model, _default_shape(found[name], model)
    if name in recipes() or name.endswith(".toml"):
        from .train import make_model, make_task

        config = load_config(name)
        _, task = make_task(config)
        return make_model(config, task), (1, *task.example_shape)
    if Path(name).is_dir():
        from ..models.registry import find_checkpoint

        shape = find_checkpoint(name).facts.get("task", {}).get("shape", [])
        return models.load(name), (1, *shape)
    raise CommandError(
        f"{name}: neither a model, a recipe, a file nor a run.{suggestion(name, [*found, *recipes()])}"
    )


def _default_shape(constructor: Any, model: Any) -> tuple[int, ...]:
    defaults = {n: p.default for n, p in inspect.signature(constructor).parameters.items()}
    if "in_features" in defaults:
        return (1, defaults["in_features"])
    if "block_size" in defaults:
        return (1, min(128, defaults["block_size"]))
    if "image_size" in defaults and isinstance(defaults["image_size"], int):
        return (1, defaults.get("in_channels", 3), defaults["image_size"], defaults["image_size"])
    return _IMAGE


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(",") if part.strip())
    except ValueError:
        raise CommandError(f"--input: expected sizes such as 1,3,224,224. Got {text!r}.") from None
    if not shape or min(shape) < 1:
        raise CommandError(f"--input: expected positive sizes such as 1,3,224,224. Got {text!r}.")
    return shape
