"""Ready-made parametrizations: weight normalisation, spectral normalisation, orthogonal matrices."""

from __future__ import annotations

import weft as wf

from ...autograd.tape import no_grad
from ...errors import format_shape
from ...tensor import Tensor
from ..module import Module
from . import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(value: Tensor, dim: int | None) -> Tensor:
    """The Euclidean norm over all axes but `dim`, which keeps its size; over all axes for None."""
    axes = None if dim is None else tuple(a for a in range(value.ndim) if a != dim % value.ndim)
    if axes == ():
        return wf.abs(value)
    norm = wf.sqrt(wf.sum(value * value, axis=axes, keepdims=dim is not None))
    return norm


class _WeightNorm(Module):
    """g · v / ‖v‖."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train length and direction of a weight apart: weight = g · v / ‖v‖ (Salimans and Kingma, 2016).

    Args:
        module: the module, which is changed; its parameter becomes `parametrizations.<name>.original0` (g) and
            `original1` (v).
        name: the parameter.
        dim: the axis that keeps its own lengths; None for one length.

    Returns:
        `module`.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(20, 40))
    >>> layer.parametrizations.weight.original0.shape
    (40, 1)
    """
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def power_iteration(matrix: Tensor, u: Tensor, v: Tensor, steps: int, eps: float) -> None:
    """Improve the singular vectors `u` and `v` of the largest singular value, in place."""
    with no_grad():
        for _ in range(steps):
            v.copy_(_normalized(matrix.mT @ u, eps))
            u.copy_(_normalized(matrix @ v, eps))


def _normalized(x: Tensor, eps: float) -> Tensor:
    return x / wf.clip(wf.sqrt(wf.sum(x * x)), eps, None)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix whose rows are the axis `dim`."""
    moved = weight if dim % weight.ndim == 0 else wf.moveaxis(weight, dim, 0)
    return moved.reshape(moved.shape[0], -1)


class _SpectralNorm(Module):
    """A weight over its largest singular value, which power iteration follows while training."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be at least 1. Got {n_power_iterations}.")
        self.dim, self.eps, self.n_power_iterations = dim, eps, n_power_iterations
        self.vector = weight.ndim == 1
        if not self.vector:
            matrix = as_matrix(weight.detach(), dim)
            self.register_buffer("_u", _normalized(wf.randn(matrix.shape[0], dtype=weight.dtype), eps), reduce="first")
            self.register_buffer("_v", _normalized(wf.randn(matrix.shape[1], dtype=weight.dtype), eps), reduce="first")
            power_iteration(matrix, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if self.vector:
            return weight / wf.clip(wf.sqrt(wf.sum(weight * weight)), self.eps, None)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iteration(matrix, self._u, self._v, self.n_power_iterations, self.eps)
        sigma = wf.sum(self._u.clone() * (matrix @ self._v.clone()))
        return weight / sigma

    def right_inverse(self, value: Tensor) -> Tensor:
        return value  # not an inverse, as the length is lost; it makes assignments possible


def default_dim(module: Module, dim: int | None) -> int:
    """The axis of the outputs of a layer's weight."""
    if dim is not None:
        return dim
    return 1 if "ConvTranspose" in parametrize.type_before_parametrizations(module).__name__ else 0


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al., 2018), as discriminators of GANs do.

    Args:
        module: the module, which is changed; its parameter becomes `parametrizations.<name>.original`.
        name: the parameter.
        n_power_iterations: steps of power iteration whenever the weight is read in training mode.
        eps: lower bound of norms.
        dim: the axis of outputs; 0, but 1 for transposed convolutions.

    Returns:
        `module`.

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 40))
    >>> round(wf.linalg.matrix_norm(layer.weight, ord=2).item(), 1)
    1.0
    """
    weight = _weight_of("spectral_norm", module, name)
    made = _SpectralNorm(weight, n_power_iterations, default_dim(module, dim), eps)
    return parametrize.register_parametrization(module, name, made)


def _weight_of(action: str, module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{action}: {type(module).__name__} has no parameter {name!r}.")
    return weight


class _Orthogonal(Module):
    """Orthogonal matrices from unconstrained ones."""

    def __init__(self, weight: Tensor, method: str, use_trivialization: bool) -> None:
        super().__init__()
        self.method = method
        self.tall = weight.shape[-2] >= weight.shape[-1]
        if use_trivialization:
            self.register_buffer("base", _orthonormal(weight.detach() if self.tall else weight.detach().mT))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.tall else x.mT
        n, k = x.shape[-2:]
        if self.method == "householder":
            q = _householder(x)
        else:
            square = wf.tril(x, k=-1)
            if n != k:
                square = wf.concat([square, wf.zeros((*x.shape[:-1], n - k), dtype=x.dtype)], axis=-1)
            skew = square - square.mT
            q = wf.linalg.matrix_exp(skew) if self.method == "matrix_exp" else _cayley(skew)
            q = q[..., :k]
        base = self.__dict__.get("base")
        if base is not None:
            q = base @ q[..., :k, :] if n == k else _full(base) @ q
        return q if self.tall else q.mT

    def right_inverse(self, value: Tensor) -> Tensor:
        q = value if self.tall else value.mT
        if self.__dict__.get("base") is None:
            if self.method != "householder":
                raise NotImplementedError(
                    "orthogonal: assigning needs `use_trivialization=True` or orthogonal_map='householder'."
                )
            found = _reflections(_orthonormal(q))
            return found if self.tall else found.mT
        self.base.copy_(_orthonormal(q))
        return wf.zeros_like(value)


def _orthonormal(x: Tensor) -> Tensor:
    """The orthonormal columns of a QR decomposition with a positive diagonal of R."""
    q, r = wf.linalg.qr(x)
    sign = wf.sign(wf.linalg.diagonal(r))
    return q * wf.where(sign == 0, 1.0, sign)[..., None, :]


def _full(base: Tensor) -> Tensor:
    """A square orthogonal matrix whose first columns are `base`."""
    n, k = base.shape[-2:]
    rest = wf.eye(n, dtype=base.dtype) - base @ base.mT
    u = wf.linalg.svd(rest)[0][..., : n - k]
    return wf.concat([base, u], axis=-1)


def _cayley(a: Tensor) -> Tensor:
    """(I + A / 2) (I - A / 2)⁻¹."""
    eye = wf.eye(a.shape[-1], dtype=a.dtype)
    return wf.linalg.solve(eye - a * 0.5, eye + a * 0.5)


def _householder(x: Tensor) -> Tensor:
    """The first columns of the product of reflections at the columns of the lower triangle of `x` (with a unit diagonal)."""
    n, k = x.shape[-2:]
    q = wf.eye(n, dtype=x.dtype)[:, :k]
    vectors = wf.tril(x, k=-1) + wf.eye(n, dtype=x.dtype)[:, :k]
    for j in reversed(range(k)):
        v = vectors[..., :, j : j + 1]
        q = q - (2 / wf.sum(v * v, axis=(-2, -1), keepdims=True)) * v * (v.mT @ q)
    return q


def _reflections(q: Tensor) -> Tensor:
    """Vectors whose `_householder` is `q`, up to the signs of its columns."""
    n, k = q.shape[-2:]
    columns = []
    for j in range(k):
        x = q[..., :, j : j + 1]
        below = wf.astype(wf.arange(n) >= j, q.dtype)[:, None]
        x = x * below
        length = wf.sqrt(wf.sum(x * x, axis=(-2, -1), keepdims=True))
        head = x[..., j : j + 1, :]
        sign = wf.where(head >= 0, 1.0, -1.0)
        v = x + sign * length * wf.eye(n, dtype=q.dtype)[:, j : j + 1]
        v = v / v[..., j : j + 1, :]
        q = q - (2 / wf.sum(v * v, axis=(-2, -1), keepdims=True)) * v * (v.mT @ q)
        columns.append(v)
    return wf.concat(columns, axis=-1)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a weight orthogonal: its columns (or rows, if they are fewer) have length 1 and are perpendicular.

    Args:
        module: the module, which is changed; its parameter becomes `parametrizations.<name>.original`.
        name: a parameter of two or more axes; the last two are the matrix.
        orthogonal_map: how unconstrained numbers become an orthogonal matrix: "matrix_exp" (the default for square
            matrices), "cayley", or "householder" (the default for others).
        use_trivialization: multiply by a fixed orthogonal matrix, the one nearest to the present weight, and start from it.

    Returns:
        `module`.

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 3))
    >>> bool(((layer.weight @ layer.weight.T - wf.eye(3)).abs() < 1e-5).all())
    True
    """
    weight = _weight_of("orthogonal", module, name)
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: expected a matrix. Got {name} of shape {format_shape(weight.shape)}.")
    maps = ("matrix_exp", "cayley", "householder")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in maps:
        raise ValueError(f"orthogonal: orthogonal_map must be one of {', '.join(maps)}. Got {orthogonal_map!r}.")
    if use_trivialization and orthogonal_map == "householder":
        use_trivialization = False  # its own inverse gives the start
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
