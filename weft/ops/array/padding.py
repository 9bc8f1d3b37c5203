"""Padding: `weft.pad` takes widths as in NumPy, `weft.nn.functional.pad` as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import format_shape
from ...runtime import memory
from ...tensor import Tensor
from ..core.define import composite, primitive
from ..core.samples import Bad, Sample
from ..core.spec import Spec, as_integer
from .indexing import Slice, getitem

Pairs = tuple[tuple[int, int], ...]
MODES = ("constant", "reflect", "replicate", "circular")
_NUMPY_MODES: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _widths(pad_width: Any, ndim: int | None) -> Pairs:
    """Normalise widths (a number, (before, after) or one pair per axis) to one pair per axis."""
    try:
        if isinstance(pad_width, (tuple, list)):
            if len(pad_width) == 2 and not any(isinstance(p, (tuple, list)) for p in pad_width):
                pairs: Any = ((as_integer(pad_width[0]), as_integer(pad_width[1])),)
            else:
                pairs = tuple([(as_integer(lo), as_integer(hi)) for lo, hi in pad_width])
        else:
            pairs = ((as_integer(pad_width),) * 2,)
    except (TypeError, ValueError):
        raise TypeError(
            f"pad: pad_width must be a number, (before, after) or one such pair per axis. Got {pad_width!r}."
        ) from None
    if ndim is None:
        return pairs
    if len(pairs) == 1 and ndim != 1:
        pairs = pairs * ndim
    if len(pairs) != ndim:
        raise ValueError(f"pad: expected one pair per axis, {ndim} here. Got {len(pairs)} pairs: {pad_width!r}.")
    return pairs


def _padded(size: Any, pair: tuple[int, int], axis: int, mode: str, shape: Any) -> Any:
    """The size after padding; raises if the mode cannot pad that far."""
    lo, hi = pair
    if not isinstance(size, (int, np.integer)):
        return None if lo or hi else size
    if lo + size < 0 or hi + size < 0 or lo + hi + size < 0:
        raise ValueError(
            f"pad: more is cut off than there is. Got widths {pair} along axis {axis} of shape {format_shape(shape)}."
        )
    if mode != "constant" and (lo or hi):
        if lo < 0 or hi < 0:
            raise ValueError(f"pad: mode {mode!r} takes no negative widths. Got {pair} along axis {axis}.")
        most = size - 1 if mode == "reflect" else size if mode == "circular" else None
        if size == 0 or most is not None and max(lo, hi) > most:
            bound = "a size above 0" if most is None else f"at most {max(most, 0)}"
            raise ValueError(
                f"pad: mode {mode!r} has too few values to pad with. Got widths {pair} along axis {axis} of size {size} in shape "
                f"{format_shape(shape)}; expected {bound}."
            )
    return int(size) + lo + hi


def _infer(x: Any, pad_width: Any, mode: str, value: Any) -> Spec:
    if mode not in MODES:
        raise ValueError(f"pad: mode must be one of {', '.join(map(repr, MODES))}. Got {mode!r}.")
    pairs = _widths(pad_width, x.ndim)
    if x.shape is None:
        return Spec(None, x.dtype)
    return Spec(
        tuple([_padded(d, p, i, mode, x.shape) for i, (d, p) in enumerate(zip(x.shape, pairs, strict=True))]), x.dtype
    )


def _order(x: np.ndarray) -> tuple[int, ...]:
    """The axes of `x` from outermost to innermost in memory, so that results keep channels-last strides."""
    return tuple(sorted(range(x.ndim), key=lambda i: (-abs(x.strides[i]), i)))


def _inside(pairs: Pairs) -> tuple[Slice, ...]:
    """The index that removes the padding."""
    return tuple([Slice(max(lo, 0), -hi if hi > 0 else None, None) for lo, hi in pairs])


def _rule(g: Tensor, pad_width: Any, mode: str) -> Tensor:
    pairs = _widths(pad_width, g.ndim)
    if mode != "constant":
        return pad_backward(g, pairs, mode)
    if any(lo < 0 or hi < 0 for lo, hi in pairs):  # cropped elements have zero gradient
        return pad(g, tuple([(-lo, -hi) for lo, hi in pairs]), "constant", 0)
    return getitem(g, _inside(pairs))


def _batch(axes: Any, tensors: Any, attrs: Any) -> Tensor:
    pairs = _widths(attrs[0], tensors[0].ndim - 1)
    return pad(tensors[0], ((0, 0), *pairs), *attrs[1:])


def _reference(x: Any, pad_width: Any, mode: str = "constant", value: Any = 0) -> np.ndarray:
    pairs = _widths(pad_width, x.ndim)
    if not pairs:
        return x
    if mode != "constant":
        return np.pad(x, pairs, mode=_NUMPY_MODES[mode])
    cut = tuple(slice(max(-lo, 0), n - max(-hi, 0)) for (lo, hi), n in zip(pairs, x.shape, strict=True))
    return np.pad(x[cut], [(max(lo, 0), max(hi, 0)) for lo, hi in pairs], constant_values=value)


@primitive(
    accumulate="exact",
    checks_once=True,
    cost="move",
    infer=_infer,
    vjp=_rule,
    batch=_batch,
    reference=_reference,
    samples=lambda m: [
        Sample(m.normal(2, 3), 1),
        Sample(m.normal(2, 3), (1, 2), value=1.5),
        Sample(m.normal(2, 3), ((0, 1), (2, 0))),
        Sample(m.normal(4, 5), ((1, -1), (-2, 0)), value=3.0),
        Sample(m.normal(4, 3), ((3, 2), (0, 1)), "reflect"),
        Sample(m.normal(2, 3), ((3, 2), (1, 4)), "replicate"),
        Sample(m.normal(4, 3), ((3, 4), (0, 1)), "circular"),
        Sample(m.normal(), ()),
        Sample(m.normal(0, 2), ((1, 1), (0, 0))),
    ],
    errors=lambda m: [
        Bad(ValueError, "pad: mode must be one of", m.normal(2, 3), 1, "wrap"),
        Bad(TypeError, "pad: pad_width must be a number", m.normal(2, 3), 1.5),
        Bad(ValueError, "pad: expected one pair per axis, 2 here. Got 3", m.normal(2, 3), ((1, 1),) * 3),
        Bad(ValueError, r"pad: mode 'reflect' has too few values.*at most 1", m.normal(2, 3), 2, "reflect"),
        Bad(ValueError, "pad: mode 'circular' has too few values", m.normal(2, 3), 3, "circular"),
        Bad(ValueError, "pad: mode 'replicate' has too few values", m.normal(0, 3), 3, "replicate"),
        Bad(ValueError, "pad: mode 'reflect' takes no negative widths", m.normal(2, 3), -1, "reflect"),
        Bad(ValueError, "pad: more is cut off than there is", m.normal(2, 3), -2),
    ],
)
def pad(x: Tensor, /, pad_width: Any, mode: str = "constant", value: float = 0) -> Any:
    """Pad a tensor on the sides of its axes.

    Args:
        x: any shape.
        pad_width: a number, (before, after), or one pair (before, after) per axis. In mode "constant" a negative
            width crops.
        mode: "constant" (`value`), "reflect" (mirrored at the border element), "replicate" (the border element) or
            "circular" (wrapped around).
        value: the constant of mode "constant".

    >>> wf.pad(wf.arange(3), 2, mode="reflect")
    tensor([2, 1, 0, 1, 2, 1, 0])
    """
    pairs = _widths(pad_width, x.ndim)
    shape = _infer(x, pad_width, mode, value).shape
    assert shape is not None
    out = memory.empty(shape, x.dtype, _order(x))  # type: ignore[arg-type]
    if mode == "constant":
        if any(lo > 0 or hi > 0 for lo, hi in pairs):
            out.fill(value)
        source = tuple([slice(max(-lo, 0), n - max(-hi, 0)) for (lo, hi), n in zip(pairs, x.shape, strict=True)])
        target = tuple([slice(max(lo, 0), n - max(hi, 0)) for (lo, hi), n in zip(pairs, out.shape, strict=True)])
        out[target] = x[source]
        return out
    out[tuple([slice(lo, lo + n) for (lo, _), n in zip(pairs, x.shape, strict=True)])] = x
    for axis, ((lo, hi), n) in enumerate(zip(pairs, x.shape, strict=True)):
        # earlier axes are complete; the padding of later axes is overwritten when they are processed
        for side in _sides(axis, lo, hi, n, mode):
            out[side[0]] = out[side[1]]
    return out


def _sides(axis: int, lo: int, hi: int, n: int, mode: str) -> list[tuple[Any, Any]]:
    """For both ends of an axis that have padding: (where it is, the inner elements it repeats)."""
    ahead = (slice(None),) * axis
    if mode == "reflect":
        before, after = (
            slice(2 * lo, lo, -1),
            slice(lo + n - 2, lo + n - 2 - hi if lo + n - 2 - hi >= 0 else None, -1),
        )
    elif mode == "replicate":
        before, after = slice(lo, lo + 1), slice(lo + n - 1, lo + n)
    else:
        before, after = slice(n, n + lo), slice(lo, lo + hi)
    sides = [((*ahead, slice(0, lo)), (*ahead, before))] if lo else []
    return sides + ([((*ahead, slice(lo + n, None)), (*ahead, after))] if hi else [])


def _infer_backward(g: Any, pad_width: Any, mode: str) -> Spec:
    if g.shape is None:
        return Spec(None, g.dtype)
    shape = [
        d - lo - hi if isinstance(d, (int, np.integer)) else None
        for d, (lo, hi) in zip(g.shape, pad_width, strict=True)
    ]
    _infer(Spec(tuple(shape), g.dtype), pad_width, mode, 0)
    return Spec(tuple(shape), g.dtype)


def _reference_backward(g: Any, pad_width: Any, mode: str) -> np.ndarray:
    shape = tuple(d - lo - hi for d, (lo, hi) in zip(g.shape, pad_width, strict=True))
    places = np.pad(np.arange(int(np.prod(shape))).reshape(shape), pad_width, mode=_NUMPY_MODES[mode])
    out = np.zeros(int(np.prod(shape)))
    np.add.at(out, places, g)
    return out.reshape(shape)


@primitive(
    checks_once=True,
    cost="reduce",
    infer=_infer_backward,
    vjp=lambda g, pad_width, mode: pad(g, pad_width, mode, 0),
    namespace="internal",
    batch=lambda axes, tensors, attrs: pad_backward(tensors[0], ((0, 0), *attrs[0]), attrs[1]),
    reference=_reference_backward,
    samples=lambda m: [
        Sample(m.normal(9, 4), ((3, 2), (0, 1)), "reflect"),
        Sample(m.normal(7, 8), ((3, 2), (1, 4)), "replicate"),
        Sample(m.normal(11, 4), ((3, 4), (0, 1)), "circular"),
    ],
)
def pad_backward(g: Tensor, pad_width: Pairs, mode: str) -> Any:
    """Gradient of `pad` in the modes that repeat elements: sums over the copies of each element."""
    total = np.array(g, g.dtype, order="K")
    sizes = [d - lo - hi for d, (lo, hi) in zip(g.shape, pad_width, strict=True)]
    for axis in reversed(range(g.ndim)):
        (lo, hi), n = pad_width[axis], sizes[axis]
        for place, source in _sides(axis, lo, hi, n, mode):
            border = total[place]
            total[source] += border.sum(axis, keepdims=True) if mode == "replicate" else border
    inner = total[tuple([slice(lo, lo + n) for (lo, _), n in zip(pad_width, sizes, strict=True)])]
    return inner.copy(order="K")


def _pairs_reference(x: Any, pad: Any, mode: str = "constant", value: Any = 0) -> np.ndarray:
    pairs = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        pairs[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    return _reference(x, tuple(pairs), mode, 0 if value is None else value)


@composite(
    name="functional_pad",
    namespace="internal",
    reference=_pairs_reference,
    samples=lambda m: [
        Sample(m.normal(2, 3), (1, 2), value=2.0),
        Sample(m.normal(2, 3, 4), (0, 1, 2, 0), "reflect"),
        Sample(m.normal(2, 3), (-1, 0, 1, 1)),
        Sample(m.normal(2, 3), [1, 1]),
    ],
    errors=lambda m: [
        Bad(ValueError, "pad: pad must be pairs", m.normal(2, 3), (1, 2, 3)),
        Bad(ValueError, "pad: pad names 3 axes, but x has 2", m.normal(2, 3), (1, 1) * 3),
        Bad(TypeError, "pad: pad must be integers", m.normal(2, 3), (0.5, 1)),
    ],
)
def functional_pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad from the last axis backwards, as in PyTorch.

    Args:
        x: any shape.
        pad: (before, after) of the last axis, then of the one before it, and so on.
        mode: see `weft.pad`.
        value: the constant of mode "constant"; 0 by default.

    >>> F.pad(wf.ones(1, 2), (1, 0)).tolist()
    [[0.0, 1.0, 1.0]]
    """
    try:
        widths = [as_integer(p) for p in pad]
    except TypeError:
        raise TypeError(f"pad: pad must be integers, two per axis, last axis first. Got {pad!r}.") from None
    if len(widths) % 2:
        raise ValueError(
            f"pad: pad must be pairs (before, after), last axis first. Got {len(widths)} numbers: {pad!r}."
        )
    if len(widths) // 2 > x.ndim:
        raise ValueError(
            f"pad: pad names {len(widths) // 2} axes, but x has {x.ndim}. Got x of shape {format_shape(x.shape)}."
        )
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + [
        (widths[2 * i], widths[2 * i + 1]) for i in reversed(range(len(widths) // 2))
    ]
    return pad_op(x, tuple(pairs), mode, 0 if value is None else value)


pad_op = pad
