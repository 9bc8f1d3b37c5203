"""Calls of modules with parameters and buffers given by name, and ensembles of modules as stacked tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import weft as wf

from ..nn.module import Module
from ..nn.parameter import Parameter
from ..runtime import epoch
from ..tensor import Tensor


def _places(module: Module) -> dict[str, tuple[Module, str, Tensor]]:
    """Every parameter and buffer by its full name, also those that are shared: its owner, attribute and tensor."""
    found = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        dot = path + "." if path else ""
        for name, value in owner.__dict__.items():
            if isinstance(value, Parameter) or isinstance(value, Tensor) and name in owner._buffers:
                found[dot + name] = owner, name, value
    return found


def _replacements(
    module: Module, given: Mapping[str, Any], tie_weights: bool, strict: bool
) -> list[tuple[Module, str, Tensor, Any]]:
    places = _places(module)
    unknown = [name for name in given if name not in places]
    if unknown:
        raise KeyError(
            f"functional_call: {type(module).__name__} has no parameter or buffer {', '.join(map(repr, unknown))}. "
            f"It has {', '.join(places)}."
        )
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"functional_call: {name!r} must be a tensor. Got {type(value).__name__}.")
    chosen: dict[str, Any] = dict(given)
    if tie_weights:  # a tensor that several names share is replaced under all of them
        shared: dict[int, str] = {}
        for name, value in given.items():
            other = shared.setdefault(id(places[name][2]), name)
            if given[other] is not value:
                raise ValueError(
                    f"functional_call: {other!r} and {name!r} are one tensor in {type(module).__name__}, and two different "
                    "ones are given. Give one of them, or pass `tie_weights=False`."
                )
        for name, (_, _, value) in places.items():
            if id(value) in shared:
                chosen.setdefault(name, given[shared[id(value)]])
    missing = [name for name in places if name not in chosen]
    if strict and missing:
        raise KeyError(f"functional_call: with strict=True every name must be given. Missing: {', '.join(missing)}.")
    return [(*places[name], value) for name, value in chosen.items()]


@contextmanager
def _replaced(replacements: list[tuple[Module, str, Tensor, Any]]) -> Iterator[None]:
    """The attributes replaced; a captured function that is called meanwhile sees another state of its modules."""
    for owner, name, old, new in replacements:
        owner.__dict__[name] = new
        epoch.change(owner, name, id(old), id(new))
    try:
        yield
    finally:
        for owner, name, old, new in replacements:
            owner.__dict__[name] = old
            epoch.change(owner, name, id(new), id(old))


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with the given tensors in place of its parameters and buffers.

    The module itself does not change: what it writes into a buffer that is given is written into the given tensor.

    Args:
        module: the module.
        parameter_and_buffer_dicts: tensors by name, or a tuple of such dicts; names that are absent keep their values.
        args: the argument of the call, or a tuple of arguments.
        kwargs: keyword arguments of the call.
        tie_weights: replace a tensor that several names share under all of them.
        strict: raise unless all names are given.

    >>> layer = nn.Linear(2, 1)
    >>> params = {"weight": wf.ones(1, 2), "bias": wf.zeros(1)}
    >>> wf.func.functional_call(layer, params, wf.tensor([[1.0, 2.0]]))
    tensor([[3.]])
    >>> loss = lambda params, x: wf.func.functional_call(layer, params, (x,)).sum()
    >>> wf.func.grad(loss)(params, wf.tensor([[1.0, 2.0]]))["weight"]
    tensor([[1., 2.]])
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        given = dict(parameter_and_buffer_dicts)
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        given = {}
        for part in parameter_and_buffer_dicts:
            twice = [name for name in part if name in given]
            if twice:
                raise ValueError(f"functional_call: {twice[0]!r} is in several dicts. Give each name once.")
            given.update(part)
    else:
        raise TypeError(
            "functional_call: expected a dict of tensors by name, or a tuple of dicts. "
            f"Got {type(parameter_and_buffer_dicts).__name__}."
        )
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(_replacements(module, given, tie_weights, strict)):
        return module(*positional, **dict(kwargs or {}))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and buffers of several modules of one kind, stacked along a new first axis.

    With `functional_call` and `vmap` it runs an ensemble at once.

    Args:
        models: modules of one class with equal shapes, all in training mode or all in evaluation mode.

    Returns:
        Two dicts, of parameters (leaves that require gradients, if the modules' do) and of buffers.

    >>> models = [nn.Linear(2, 1) for _ in range(3)]
    >>> params, buffers = wf.func.stack_module_state(models)
    >>> call = lambda p, x: wf.func.functional_call(models[0], p, (x,))
    >>> wf.func.vmap(call, in_dims=(0, None))(params, wf.ones(4, 2)).shape
    (3, 4, 1)
    """
    models = list(models)
    if not models:
        raise ValueError("stack_module_state: there are no modules.")
    if any(type(m) is not type(models[0]) for m in models):
        raise ValueError("stack_module_state: the modules must be of one class.")
    if any(m.training != models[0].training for m in models):
        raise ValueError("stack_module_state: the modules must all be in training mode, or all in evaluation mode.")

    def stacked(name: str, tensors: list[Any]) -> Any:
        if any(t.requires_grad != tensors[0].requires_grad for t in tensors):
            raise ValueError(f"stack_module_state: {name} requires gradients in some of the modules only.")
        result = wf.stack([t.detach() for t in tensors])
        return result.requires_grad_() if tensors[0].requires_grad else result

    params = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {name: stacked(name, [p[name] for p in params]) for name in params[0]},
        {name: stacked(name, [b[name] for b in buffers]) for name in buffers[0]},
    )
