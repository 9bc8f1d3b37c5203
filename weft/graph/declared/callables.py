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
        "argwhere asarray astype broadcast_arrays complex concat cummax cummin cumprod cumsum dynamic_stitch empty_like full "
        "full_like linspace logcumsumexp masked_select mean meshgrid nonzero ones_like prod repeat searchsorted sum take tensor "
        "tensordot topk unique_all unique_counts unique_inverse unique_values zeros_like bernoulli multinomial normal "
        "rand_like randn_like uniform one_hot addbmm addcdiv addcmul addmm addmv addr amax amin aminmax as_strided as_tensor "
        "atleast_1d atleast_2d atleast_3d baddbmm binomial block_diag bmm broadcast_tensors bucketize cartesian_prod cdist "
        "chain_matmul cholesky cholesky_inverse cholesky_solve clamp_max clamp_min column_stack combinations corrcoef "
        "cosine_similarity cov cumulative_trapezoid deg2rad det detach diag_embed diagflat dist div dot dsplit dstack fliplr "
        "flipud float_power fmax fmin fmod frac frexp gcd ger gradient heaviside histc hsplit hstack igamma igammac index_add "
        "index_copy index_fill index_put index_select inner inverse isneginf isposinf isreal istft kron lcm ldexp logaddexp2 "
        "logdet logspace masked_scatter matrix_power max median min mm mode movedim msort mv nanmean nanmedian nanquantile "
        "nanstd nansum nanvar narrow norm pdist pinverse poisson polar qr rad2deg randint_like renorm rot90 round row_stack "
        "rsub scatter scatter_add scatter_reduce select select_scatter sgn slogdet sort std std_mean stft svd t "
        "take_along_dim tensor_split threshold trapezoid trapz true_divide type_as unfold unique unique_consecutive unsqueeze "
        "vander var var_mean vdot view_as_complex view_as_real vsplit vstack"
    ),
    "weft.fft": "fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftn",
    "weft.linalg": "cond eig eigh lstsq matrix_rank multi_dot norm pinv qr slogdet solve_triangular svd",
    "weft.nn.functional": (
        "alpha_dropout convolution dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax "
        "multi_head_attention_forward"
    ),
    "Tensor": (
        "__getitem__ T astype bernoulli bfloat16 bool byte cdouble cfloat char contiguous cpu double expand expand_as flatten "
        "float half igamma igammac int long new_empty new_full new_ones new_tensor new_zeros permute polygamma ravel repeat "
        "repeat_interleave reshape short squeeze tile to to_device transpose type unbind view_as"
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
