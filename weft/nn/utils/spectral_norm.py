"""Spectral normalisation under the names of PyTorch's first form: `<name>_orig`, `<name>_u` and `<name>_v`."""

from __future__ import annotations

from typing import Any

import weft as wf

from ...autograd.tape import no_grad
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter
from .computed import attach, base_class, detach, is_computed
from .parametrizations import _normalized, as_matrix, default_dim, power_iteration

__all__ = ["remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """Computes a weight over its largest singular value; as a hook before `forward`, follows that value while training."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def _parts(self, module: Module) -> tuple[Tensor, Tensor, Tensor]:
        name = self.name
        return getattr(module, f"{name}_orig"), getattr(module, f"{name}_u"), getattr(module, f"{name}_v")

    def __call__(self, module: Module, *inputs: Any) -> Any:
        weight, u, v = self._parts(module)
        if inputs:  # the hook
            if module.training:
                power_iteration(as_matrix(weight.detach(), self.dim), u, v, self.n_power_iterations, self.eps)
            return None
        sigma = wf.sum(u.clone() * (as_matrix(weight, self.dim) @ v.clone()))
        return weight / sigma


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al., 2018), as discriminators of GANs do.

    `nn.utils.parametrizations.spectral_norm` is the same as a parametrization, with other names in the state dict.

    Args:
        module: the module, which is changed: `<name>_orig` is the parameter, `<name>_u` and `<name>_v` are buffers.
        name: the parameter.
        n_power_iterations: steps of power iteration before each call in training mode.
        eps: lower bound of norms.
        dim: the axis of outputs; 0, but 1 for transposed convolutions.

    Returns:
        `module`.

    >>> layer = nn.utils.spectral_norm(nn.Linear(20, 40))
    >>> layer.weight_u.shape
    (40,)
    """
    weight = module.__dict__.get(name)
    if is_computed(module, name):
        raise RuntimeError(f"spectral_norm: {base_class(module).__name__}.{name} is computed already.")
    if not isinstance(weight, Parameter):
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}.")
    if n_power_iterations <= 0:
        raise ValueError(f"spectral_norm: n_power_iterations must be at least 1. Got {n_power_iterations}.")
    axis = default_dim(module, dim)
    with no_grad():
        matrix = as_matrix(weight.detach(), axis)
        u = _normalized(wf.randn(matrix.shape[0], dtype=weight.dtype), eps)
        v = _normalized(wf.randn(matrix.shape[1], dtype=weight.dtype), eps)
        power_iteration(matrix, u, v, 15, eps)
    made = SpectralNorm(name, n_power_iterations, axis, eps)
    attach(module, name, made)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u, reduce="first")
    module.register_buffer(f"{name}_v", v, reduce="first")
    module.register_forward_pre_hook(made)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again, with its present value.

    >>> layer = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 3)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    getter = module.__dict__.get("_computed", {}).get(name, (None,))[0]
    if not isinstance(getter, SpectralNorm):
        raise ValueError(f"remove_spectral_norm: {base_class(module).__name__}.{name} has no spectral normalisation.")
    with no_grad():
        value = getattr(module, name).detach().clone()
        weight = getattr(module, f"{name}_orig")
        weight.copy_(value)
    detach(module, name)
    for part in ("orig", "u", "v"):
        delattr(module, f"{name}_{part}")
    module.__dict__["_forward_pre_hooks"].remove(getter)
    module.register_parameter(name, weight)
    return module
