"""Weight normalisation under the names of PyTorch's first form: parameters `<name>_g` and `<name>_v`."""

from __future__ import annotations

from ...autograd.tape import no_grad
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter
from .computed import attach, base_class, detach, is_computed
from .parametrizations import norm_except_dim

__all__ = ["remove_weight_norm", "weight_norm"]


class WeightNorm:
    """Computes a weight from its length and direction."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def __call__(self, module: Module) -> Tensor:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return v * (g / norm_except_dim(v, self.dim))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train length and direction of a weight apart: weight = g · v / ‖v‖ (Salimans and Kingma, 2016).

    `nn.utils.parametrizations.weight_norm` is the same as a parametrization, with other names in the state dict.

    Args:
        module: the module, which is changed: parameters `<name>_g` and `<name>_v` replace `<name>`.
        name: the parameter.
        dim: the axis that keeps its own lengths; None for one length.

    Returns:
        `module`.

    >>> layer = nn.utils.weight_norm(nn.Linear(20, 40))
    >>> layer.weight_g.shape, layer.weight_v.shape
    ((40, 1), (40, 20))
    """
    weight = module.__dict__.get(name)
    if is_computed(module, name):
        raise RuntimeError(f"weight_norm: {base_class(module).__name__}.{name} is computed already.")
    if not isinstance(weight, Parameter):
        raise ValueError(f"weight_norm: {type(module).__name__} has no parameter {name!r}.")
    with no_grad():
        length = norm_except_dim(weight.detach(), dim)
    attach(module, name, WeightNorm(name, dim))
    module.register_parameter(f"{name}_g", Parameter(length, requires_grad=weight.requires_grad))
    module.register_parameter(f"{name}_v", weight)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again, with its present value.

    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 3)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    getter = module.__dict__.get("_computed", {}).get(name, (None,))[0]
    if not isinstance(getter, WeightNorm):
        raise ValueError(f"remove_weight_norm: {base_class(module).__name__}.{name} has no weight normalisation.")
    with no_grad():
        value = getattr(module, name).detach().clone()
        weight = getattr(module, f"{name}_v")
        weight.copy_(value)
    detach(module, name)
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    module.register_parameter(name, weight)
    return module
