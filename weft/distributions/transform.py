"""Transform: the base class of invertible functions with a known Jacobian, and transforms made of others.

A transform maps its `domain` to its `codomain`. An elementwise one has constraints with event_dim 0, one that mixes the last
axes has as many event axes; `log_abs_det_jacobian` gives one number per event.
"""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import weft as wf

from ..errors import format_shape
from ..tensor import Tensor
from . import constraints
from .utils import Shape, as_shape, lazy_property, sum_rightmost


class Transform:
    """An invertible function with a computable Jacobian.

    Subclass and define `_call` and `_inverse`; a bijective transform also defines `log_abs_det_jacobian`.

    Args:
        cache_size: 1 keeps the latest pair, so that the inverse of a result is exactly its argument, also where the inverse
            is inaccurate; 0 keeps nothing.

    Attributes:
        domain, codomain: constraints on arguments and results.
        bijective: whether the inverse is one on both sides.
        sign: 1 or -1 for increasing and decreasing functions of numbers.

    >>> from weft.distributions.transforms import ExpTransform
    >>> t = ExpTransform()
    >>> t(wf.tensor(0.0)).item(), t.inv(wf.tensor(1.0)).item()
    (1.0, 0.0)
    """

    bijective: Any = False
    domain: Any
    codomain: Any
    sign: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1. Got {cache_size}.")
        self._cache_size = cache_size
        self._inv: Transform | None = None
        self._cached: tuple[Any, Any] | None = None  # (x, weak reference to y)

    def __getattr__(self, name: str) -> Any:
        if name == "sign":
            raise NotImplementedError(f"{type(self).__name__}: it has no sign, being no monotonic function of numbers.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inv": None, "_cached": None}

    @property
    def event_dim(self) -> int:
        """The number of axes of an event, if it is that of domain and codomain."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(
                f"{type(self).__name__}: it changes the number of axes of an event. Use `domain.event_dim` "
                "or `codomain.event_dim`."
            )
        return self.domain.event_dim

    @property
    def inv(self) -> Any:
        """The inverse transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        """This transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self).__name__}: define `with_cache(self, cache_size=1)`.")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Any) -> Any:
        """The value of the transform at `x`."""
        if self._cached is not None and self._cached[0] is x:
            y = self._cached[1]()
            if y is not None:
                return y
        y = self._call(x)
        self._remember(x, y)
        return y

    def _inv_call(self, y: Any) -> Any:
        if self._cached is not None and self._cached[1]() is y:
            return self._cached[0]
        x = self._inverse(y)
        self._remember(x, y)
        return x

    def _remember(self, x: Any, y: Any) -> None:
        """Keep the pair for as long as `y` lives: a captured function's tensors must not outlive the trace."""
        if self._cache_size and x is not y:
            owner = weakref.ref(self)

            def forget(reference: Any) -> None:
                transform = owner()
                if transform is not None and transform._cached is not None and transform._cached[1] is reference:
                    transform._cached = None

            self._cached = (x, weakref.ref(y, forget))

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: define `_call(self, x)`.")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: it has no inverse.")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The logarithm of |dy/dx| for an argument and its result, one number per event."""
        raise NotImplementedError(f"{type(self).__name__}: its Jacobian is not defined.")

    def forward_shape(self, shape: Any) -> Shape:
        """The shape of the result for an argument of this shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Any) -> Shape:
        """The shape of the argument for a result of this shape."""
        return tuple(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of a transform."""

    _inv: Any

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None}

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> bool:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Any:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Shape:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Shape:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"InverseTransform({self._inv!r})"


def _widened(constraint: Any, event_dim: int) -> Any:
    """`constraint` with at least `event_dim` event axes."""
    missing = event_dim - constraint.event_dim
    return constraints.independent(constraint, missing) if missing > 0 else constraint


class ComposeTransform(Transform):
    """Transforms applied one after the other.

    Args:
        parts: the transforms, the first one first.
        cache_size: as for `Transform`, of every part.

    >>> from weft.distributions.transforms import AffineTransform, ComposeTransform, ExpTransform
    >>> t = ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])
    >>> t(wf.tensor(-0.5)).item()
    1.0
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        axes = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            axes = max(axes + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _widened(self.parts[0].domain, axes)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        axes = self.parts[0].domain.event_dim
        for part in self.parts:
            axes = max(axes + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _widened(self.parts[-1].codomain, axes)

    @lazy_property
    def bijective(self) -> bool:
        """Whether all parts are bijective."""
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        return functools.reduce(operator.mul, [p.sign for p in self.parts], 1)

    @property
    def inv(self) -> Any:
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return wf.zeros_like(x)
        points = [x]
        for part in self.parts[:-1]:
            points.append(part(points[-1]))
        points.append(y)
        terms, axes = [], self.domain.event_dim
        for part, before, after in zip(self.parts, points[:-1], points[1:], strict=True):
            terms.append(sum_rightmost(part.log_abs_det_jacobian(before, after), axes - part.domain.event_dim))
            axes += part.codomain.event_dim - part.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> Shape:
        return functools.reduce(lambda s, part: part.forward_shape(s), self.parts, tuple(shape))

    def inverse_shape(self, shape: Any) -> Shape:
        return functools.reduce(lambda s, part: part.inverse_shape(s), reversed(self.parts), tuple(shape))

    def __repr__(self) -> str:
        inner = "".join(f"\n    {p!r}," for p in self.parts)
        return f"ComposeTransform({inner}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose Jacobian is summed over more axes at the right.

    Args:
        base_transform: the transform.
        reinterpreted_batch_ndims: how many axes at the right become part of an event.
        cache_size: as for `Transform`.

    >>> from weft.distributions.transforms import ExpTransform, IndependentTransform
    >>> x = wf.ones(2, 3)
    >>> t = IndependentTransform(ExpTransform(), 1)
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([3., 3.])
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IndependentTransform)
            and self.base_transform == other.base_transform
            and self.reinterpreted_batch_ndims == other.reinterpreted_batch_ndims
        )

    __hash__ = Transform.__hash__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _check(self, value: Any, axes: int) -> None:
        if value.ndim < axes:
            raise ValueError(f"IndependentTransform: expected at least {axes} axes. Got {value.ndim}.")

    def _call(self, x: Any) -> Any:
        self._check(x, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        self._check(y, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Shape:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Reshape the last axes; the Jacobian is 1.

    Args:
        in_shape: the shape of an event before.
        out_shape: its shape after, with as many elements.
        cache_size: as for `Transform`.

    >>> from weft.distributions.transforms import ReshapeTransform
    >>> ReshapeTransform((6,), (2, 3))(wf.zeros(5, 6)).shape
    (5, 2, 3)
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = as_shape("in_shape", in_shape), as_shape("out_shape", out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(
                "ReshapeTransform: in_shape and out_shape must have equally many elements. Got "
                f"{format_shape(self.in_shape)} and {format_shape(self.out_shape)}."
            )
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, ReshapeTransform) and self.in_shape == other.in_shape
        return same and self.out_shape == other.out_shape  # type: ignore[attr-defined]

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return wf.zeros(x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype)

    def forward_shape(self, shape: Any) -> Shape:
        return self._replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Shape:
        return self._replaced(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _replaced(shape: Any, old: Shape, new: Shape) -> Shape:
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != old:
            raise ValueError(
                f"ReshapeTransform: expected a shape that ends with {format_shape(old)}. Got {format_shape(shape)}."
            )
        return tuple(shape[:cut]) + new


class CatTransform(Transform):
    """Transforms of consecutive parts along one axis.

    Args:
        tseq: the transforms.
        dim: the axis.
        lengths: the length of each part; 1 by default.
        cache_size: as for `Transform`.

    >>> from weft.distributions.transforms import CatTransform, ExpTransform, identity_transform
    >>> CatTransform([ExpTransform(), identity_transform], 0, [1, 2])(wf.zeros(3))
    tensor([1., 0., 0.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.dim = dim
        if len(self.lengths) != len(self.transforms):
            raise ValueError(
                f"CatTransform: expected {len(self.transforms)} lengths, one per transform. Got {len(self.lengths)}."
            )

    @lazy_property
    def event_dim(self) -> int:
        """The largest number of event axes of the transforms."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The length of all parts."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, value: Tensor) -> list[Any]:
        if not -value.ndim <= self.dim < value.ndim or value.shape[self.dim] != self.length:
            raise ValueError(
                f"CatTransform: expected {self.length} elements along axis {self.dim}. "
                f"Got shape {format_shape(value.shape)}."
            )
        parts, start = [], 0
        for n in self.lengths:
            parts.append(value[(slice(None),) * (self.dim % value.ndim) + (slice(start, start + n),)])
            start += n
        return parts

    def _call(self, x: Any) -> Any:
        return wf.concat([t(v) for t, v in zip(self.transforms, self._parts(x), strict=True)], axis=self.dim)

    def _inverse(self, y: Any) -> Any:
        return wf.concat([t.inv(v) for t, v in zip(self.transforms, self._parts(y), strict=True)], axis=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        terms = [
            sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        ]
        axis = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return wf.concat(terms, axis=axis) if axis < 0 else functools.reduce(operator.add, terms)

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(Transform):
    """Transforms of the slices along one axis.

    Args:
        tseq: the transforms, one per slice.
        dim: the axis.
        cache_size: as for `Transform`.

    >>> from weft.distributions.transforms import ExpTransform, StackTransform, identity_transform
    >>> StackTransform([ExpTransform(), identity_transform], 1)(wf.zeros(2, 2)).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _parts(self, value: Tensor) -> list[Any]:
        count = len(self.transforms)
        if not -value.ndim <= self.dim < value.ndim or value.shape[self.dim] != count:
            raise ValueError(
                f"StackTransform: expected {count} slices along axis {self.dim}. Got shape {format_shape(value.shape)}."
            )
        return [value[(slice(None),) * (self.dim % value.ndim) + (i,)] for i in range(count)]

    def _call(self, x: Any) -> Any:
        return wf.stack([t(v) for t, v in zip(self.transforms, self._parts(x), strict=True)], axis=self.dim)

    def _inverse(self, y: Any) -> Any:
        return wf.stack([t.inv(v) for t, v in zip(self.transforms, self._parts(y), strict=True)], axis=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return wf.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], axis=self.dim)

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
