"""Parametrizations: parameters computed by modules from other parameters, such as symmetric or normalised weights.

>>> import weft.nn.utils.parametrize as P
>>> class Symmetric(nn.Module):
...     def forward(self, x):
...         return wf.triu(x) + wf.triu(x, k=1).mT
>>> layer = P.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
>>> bool((layer.weight == layer.weight.mT).all())
True
>>> [name for name, _ in layer.named_parameters()]
['bias', 'parametrizations.weight.original']

The original parameter is trained; the attribute is computed from it whenever it is read (Note [Computed attributes] in
`weft.nn.utils.computed`), or once within `cached()`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...autograd.tape import no_grad
from ...errors import format_shape
from ...tensor import Tensor
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter
from .computed import attach, base_class, detach

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip


class _Cache(threading.local):
    depth = 0

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], Any] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Within this context a parametrized attribute is computed once and then kept.

    It saves work where an attribute is read several times, as the weights of a recurrent cell in a loop are.

    >>> import weft.nn.utils.parametrize as P
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    >>> with P.cached():
    ...     layer.weight is layer.weight
    True
    """
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one attribute, applied one after the other, and its original value.

    The value is `original`, or `original0`, `original1` … if the first parametrization has a `right_inverse` that returns
    several tensors.

    Args:
        modules: the parametrizations.
        original: the parameter or buffer they replace.
        unsafe: allow another shape or dtype than that of `original`.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList: there must be at least one parametrization.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            start: Any = original.detach()
            for module in reversed(list(modules)):
                if hasattr(module, "right_inverse"):
                    try:
                        start = _inverse(module, start)
                    except NotImplementedError:  # none with these settings: the original stays as it is
                        continue
        self.is_tensor = isinstance(start, Tensor)
        parts = [start] if self.is_tensor else list(start)
        self.ntensors = len(parts)
        for name, part in zip(self._names(), parts, strict=True):
            _register(self, name, part, original, same=self.is_tensor and part.shape == original.shape)

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals such that the attribute becomes `value`, by the `right_inverse` of the parametrizations."""
        with no_grad():
            start: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"{type(module).__name__}: it has no `right_inverse`, so the attribute cannot be assigned. "
                        "Define `right_inverse(self, value)` in the parametrization."
                    )
                start = _inverse(module, start)
            parts = [start] if self.is_tensor else list(start)
            for name, part in zip(self._names(), parts, strict=True):
                own = self.__dict__[name]
                if part.shape != own.shape:
                    raise ValueError(
                        f"right_inverse: expected a tensor of shape {format_shape(own.shape)}. Got {format_shape(part.shape)}."
                    )
                own.copy_(part)

    def forward(self) -> Any:
        """The value of the attribute."""
        originals = [self.__dict__[name] for name in self._names()]
        first, *rest = list(self)
        value = first(*originals)
        for module in rest:
            value = module(value)
        return value


def _inverse(module: Any, value: Any) -> Any:
    found = module.right_inverse(value) if isinstance(value, Tensor) else module.right_inverse(*value)
    if not isinstance(found, Tensor) and not (
        isinstance(found, Sequence) and all(isinstance(part, Tensor) for part in found)
    ):
        raise TypeError(
            f"{type(module).__name__}.right_inverse: must return a tensor or a sequence of them. "
            f"Got {type(found).__name__}."
        )
    return found


def _register(owner: Module, name: str, value: Tensor, original: Tensor, same: bool) -> None:
    """Keep `value` as a parameter or buffer as `original` is one; in its memory, if it has the same shape."""
    if not isinstance(original, Parameter):
        owner.register_buffer(name, value)
        return
    if same:  # the same object, so that optimisers made before keep working
        with no_grad():
            original.copy_(value)
        owner.register_parameter(name, original)
        return
    array = value.detach().numpy()
    owner.register_parameter(name, Parameter(np.array(array), requires_grad=original.requires_grad))


class _Get:
    """Computes a parametrized attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module) -> Any:
        parametrization = module.__dict__["parametrizations"][self.name]
        if not _cache.depth:
            return parametrization()
        key = id(module), self.name
        value = _cache.values.get(key)
        if value is None:
            value = parametrization()
            if not value.is_symbolic:  # a captured function's value must not outlive its trace
                _cache.values[key] = value
        return value


class _Set:
    """Assigns to a parametrized attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, value: Tensor) -> None:
        module.__dict__["parametrizations"][self.name].right_inverse(value)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a parameter or buffer of `module` by `parametrization`, a module, from the original one.

    Several may be registered for one name; each is applied to the result of the one before. If the parametrization has a
    method `right_inverse`, it gives the original for a value, so that the present value is kept and the attribute can be
    assigned; it may return several tensors, which `forward` then takes.

    Args:
        module: the module, which is changed.
        tensor_name: the name of the parameter or buffer.
        parametrization: maps the original to the value.
        unsafe: allow a value of another shape or dtype.

    Returns:
        `module`.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
        return module
    original = module.__dict__.get(tensor_name)
    if not isinstance(original, Tensor):
        names = [n for n, _ in module.named_parameters(recurse=False)] + [
            n for n, _ in module.named_buffers(recurse=False)
        ]
        raise ValueError(
            f"register_parametrization: {type(module).__name__} has no parameter or buffer {tensor_name!r}. "
            f"It has {', '.join(names) or 'none'}."
        )
    before = original.detach().clone()
    try:
        made = ParametrizationList([parametrization], original, unsafe)
        _check(module, tensor_name, made(), before, unsafe)
    except Exception:
        with no_grad():
            original.copy_(before)
        raise
    attach(module, tensor_name, _Get(tensor_name), _Set(tensor_name))
    if "parametrizations" not in module.__dict__:
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    return module


def _append(module: Module, name: str, parametrization: Module, unsafe: bool) -> None:
    parametrizations = module.parametrizations[name]
    value = getattr(module, name)
    parametrizations.append(parametrization)
    try:
        _check(module, name, parametrization(value), value, unsafe)
        if hasattr(parametrization, "right_inverse") and all(hasattr(p, "right_inverse") for p in parametrizations):
            parametrizations.right_inverse(value.detach())
    except Exception:
        parametrizations.pop()
        raise


def _check(module: Module, name: str, value: Any, before: Tensor, unsafe: bool) -> None:
    where = f"register_parametrization: the parametrization of {type(module).__name__}.{name}"
    if not isinstance(value, Tensor):
        raise TypeError(f"{where} must return a tensor. Got {type(value).__name__}.")
    if unsafe:
        return
    if value.dtype != before.dtype:
        raise ValueError(
            f"{where} changes the dtype from {before.dtype.name} to {value.dtype.name}. Pass `unsafe=True` to allow that."
        )
    if value.shape != before.shape:
        raise ValueError(
            f"{where} changes the shape from {format_shape(before.shape)} to {format_shape(value.shape)}. "
            "Pass `unsafe=True` to allow that."
        )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrization, or with a name, whether that attribute has one.

    >>> import weft.nn.utils.parametrize as P
    >>> P.is_parametrized(nn.Linear(2, 2))
    False
    """
    parametrizations = module.__dict__.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict) or "_computed" not in module.__dict__:
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized attribute an ordinary parameter or buffer again.

    Args:
        module: the module, which is changed.
        tensor_name: the name of the attribute.
        leave_parametrized: keep the computed value; otherwise go back to the original.

    Returns:
        `module`.

    >>> import weft.nn.utils.parametrize as P
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    >>> [name for name, _ in P.remove_parametrizations(layer, "weight").named_parameters()]
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"remove_parametrizations: {base_class(module).__name__} has no parametrization of {tensor_name!r}."
        )
    parametrizations = module.parametrizations[tensor_name]
    if not leave_parametrized and not parametrizations.is_tensor:
        raise ValueError(
            "remove_parametrizations: there is no single original to go back to, because the parametrization computes the "
            "attribute from several tensors. Use `leave_parametrized=True`."
        )
    with no_grad():
        value = parametrizations().clone()
    first = parametrizations.__dict__[parametrizations._names()[0]]
    detach(module, tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module.parametrizations
    if not isinstance(first, Parameter):
        module.register_buffer(tensor_name, value if leave_parametrized else first)
        return module
    if not leave_parametrized or parametrizations.is_tensor and first.shape == value.shape:
        if leave_parametrized:
            with no_grad():
                first.copy_(value)
        module.register_parameter(tensor_name, first)
    else:
        module.register_parameter(tensor_name, Parameter(value, requires_grad=first.requires_grad))
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module without its parametrizations.

    >>> import weft.nn.utils.parametrize as P
    >>> P.type_before_parametrizations(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))).__name__
    'Linear'
    """
    return base_class(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize `to_module` as `from_module` is, with its parametrizations and original values.

    Args:
        from_module: the source.
        to_module: the module, which is changed.
        tensor_name: one attribute only; all parametrized ones by default.

    Returns:
        `to_module`.
    """
    if not is_parametrized(from_module):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations.keys())
    for name in names:
        source = from_module.parametrizations[name]
        if name not in to_module.__dict__ and not is_parametrized(to_module, name):
            to_module.register_parameter(name, Parameter(source().detach().clone()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization, unsafe=source.unsafe)
        with no_grad():
            for part in source._names():
                to_module.parametrizations[name].__dict__[part].copy_(source.__dict__[part])
    return to_module
