"""The allow-list of functions that a graph file may name.

A deferred node (Note [Deferred nodes] in `weft.graph.declared.deferred_nodes`) calls an op of the table or a public
function that is composed of ops. Ops are stored by name and version. Composed functions are stored in the same way, by
their public name, and only those listed here: each is a pure function of its tensors and plain arguments, which touches no
file, changes no setting and calls none of its arguments. Nothing else in a graph file becomes a call; see
`docs/security.md`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

_VERSION = 1  # of every function below; one whose meaning changes gets its own number in `_VERSIONS`
_VERSIONS: dict[str, int] = {}

# By the module or class that users find them in; the first name of a function is the one that is written.
_NAMES = {
    "weft": (
        "argwhere asarray astype broadcast_arrays complex concat cummax cummin cumprod cumsum empty_like full full_like linspace "
        "logcumsumexp masked_select mean meshgrid nonzero ones_like prod repeat searchsorted sum take tensor tensordot topk "
        "unique_all unique_counts unique_inverse unique_values zeros_like bernoulli multinomial normal rand_like randn_like "
        "uniform one_hot"
    ),
    "weft.fft": "fft fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftn",
    "weft.linalg": "eig eigh matrix_rank pinv qr slogdet svd",
    "weft.nn.functional": (
        "alpha_dropout convolution dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax "
        "multi_head_attention_forward"
    ),
    "Tensor": (
        "__getitem__ T astype bfloat16 bool contiguous cpu double expand expand_as flatten float half int long permute ravel "
        "repeat repeat_interleave reshape squeeze tile to to_device transpose unbind view_as"
    ),
}


_RENAMED_FILES = {"methods": "tensor_methods", "linalg": "linalg_functions", "elementwise": "conversion"}  # since 0.1


class Stored(NamedTuple):
    """A function of the list, as files name it."""

    name: str
    version: int
    function: Callable[..., Any]


@functools.cache
def _table() -> dict[str, Stored]:
    from ...ops import tensor_methods
    from ...tensor import Tensor

    found = {}
    for home, names in _NAMES.items():
        owner: Any = Tensor if home == "Tensor" else importlib.import_module(home)
        prefix = home.removeprefix("weft").removeprefix(".")
        for short in names.split():
            name = f"{prefix}.{short}" if prefix else short
            function = tensor_methods._transpose if name == "Tensor.T" else getattr(owner, short)
            found[name] = Stored(name, _VERSIONS.get(name, _VERSION), getattr(function, "__wrapped__", function))
    return found


@functools.cache
def _by_function() -> dict[int, Stored]:
    return {id(c.function): c for c in reversed(_table().values())}


@functools.cache
def _by_place() -> dict[tuple[str, str], Stored]:
    """As Weft 0.1 stored them: by the file and the name of their definition."""
    plain = [c for c in reversed(_table().values()) if c.function.__qualname__ == c.function.__name__]
    return {(c.function.__module__.rpartition(".")[2], c.function.__name__): c for c in plain}


def stored_name(function: Callable[..., Any]) -> tuple[str, int] | None:
    """Name and version of `function` if it is on the list."""
    found = _by_function().get(id(function))
    return None if found is None else (found.name, found.version)


def named(name: str) -> Stored | None:
    """The function that is stored as `name`; None if it is not on the list."""
    return _table().get(name)


def placed(module: str, name: str) -> Stored | None:
    """The function that Weft 0.1 stored by the place of its definition; None if it is not on the list."""
    file = module.removeprefix("weft.").removeprefix("ops.")  # the folders below `ops` are younger
    return _by_place().get((_RENAMED_FILES.get(file, file), name))
