"""Parameters as one vector, and their number."""

from __future__ import annotations

from collections.abc import Iterable

from ...autograd.tape import no_grad
from ...ops.array.shaping import concat
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate all parameters into one vector, differentiably.

    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    flat = [p.reshape(-1) for p in parameters]
    if not flat:
        raise ValueError("parameters_to_vector: there are no parameters.")
    return concat(flat)


def vector_to_parameters(vector: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy consecutive slices of `vector` into the parameters, in order.

    >>> layer = nn.Linear(2, 1)
    >>> nn.utils.vector_to_parameters(wf.tensor([1.0, 2.0, 3.0]), layer.parameters())
    >>> layer.weight.tolist(), layer.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    """
    tensors = list(parameters)
    total = sum(p.size for p in tensors)
    if vector.ndim != 1 or vector.shape[0] != total:
        raise ValueError(f"vector_to_parameters: expected a vector of {total} numbers. Got shape {vector.shape}.")
    start = 0
    with no_grad():
        for p in tensors:
            p.copy_(vector[start : start + p.size].reshape(p.shape))
            start += p.size


def count_parameters(module: Module, trainable_only: bool = False) -> int:
    """Number of elements in a module's parameters; with `trainable_only`, of those that require gradients.

    >>> nn.utils.count_parameters(nn.Linear(2, 3))
    9
    """
    found: Iterable[Parameter] = module.parameters()
    return sum(p.size for p in found if p.requires_grad or not trainable_only)
