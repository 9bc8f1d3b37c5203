"""`weft summary`: a table of a model's layers."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

import weft as wf

from .. import models
from ..tensor import Tensor
from .config import load_config, recipes, suggestion
from .errors import CommandError


def run(arguments: argparse.Namespace) -> int:
    """`weft summary …`"""
    model, shape = _model(arguments.model)
    if arguments.input:
        shape = _shape(arguments.input)
    wanted, problem = examples(model, shape), None
    for inputs in wanted:
        try:
            print(model.eval().summary(*inputs, depth=arguments.depth))
            return 0
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            problem = problem or error  # of the likeliest input, which the message names
    raise CommandError(
        f"{arguments.model}: does not take an input of shape {tuple(wanted[0][0].shape)}: {problem} Give another with "
        "--input 1,3,224,224."
    )


def examples(model: Any, shape: tuple[int, ...] | None) -> list[tuple[Tensor, ...]]:
    """Candidate inputs, most likely first: token ids for a model with an embedding, else images."""
    signature = inspect.signature(model.forward).parameters.values()
    n = sum(1 for p in signature if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    looks_up = any(isinstance(m, wf.nn.Embedding) for m in model.modules())
    shapes = [shape] if shape is not None else [(1, 16), (1,)] if looks_up else [(1, 3, 224, 224), (1, 3, 32, 32)]
    dtype = wf.int64 if looks_up else wf.float32
    return [tuple(wf.zeros(each, dtype=dtype) for _ in range(n)) for each in shapes]


def _model(name: str) -> tuple[Any, tuple[int, ...] | None]:
    """The model of that name, of a configuration or of a run; and the shape of an input, if that is known."""
    found = models.constructors()
    if name in found:
        model = found[name]()
        return model, _default_shape(found[name])
    if name in recipes() or name.endswith(".toml"):
        from .train import make_model, make_task

        config = load_config(name)
        _, task = make_task(config)
        return make_model(config, task), (1, *task.example_shape)
    if Path(name).is_dir():
        from ..models.registry import find_checkpoint

        shape = find_checkpoint(name).facts.get("task", {}).get("shape", [])
        return models.load(name), (1, *shape)
    raise CommandError(f"{name}: neither a model, a recipe, a file nor a run.{suggestion(name, [*found, *recipes()])}")


def _default_shape(constructor: Any) -> tuple[int, ...] | None:
    """The shape of an input, where the constructor's own settings tell."""
    defaults = {n: p.default for n, p in inspect.signature(constructor).parameters.items()}
    if "in_features" in defaults:
        return (1, defaults["in_features"])
    if "block_size" in defaults:
        return (1, min(128, defaults["block_size"]))
    side = defaults.get("image_size", defaults.get("size"))
    if isinstance(side, int):
        return (1, defaults.get("in_channels", 3), side, side)
    return None


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(",") if part.strip())
    except ValueError:
        raise CommandError(f"--input: expected sizes such as 1,3,224,224. Got {text!r}.") from None
    if not shape or min(shape) < 1:
        raise CommandError(f"--input: expected positive sizes such as 1,3,224,224. Got {text!r}.")
    return shape
