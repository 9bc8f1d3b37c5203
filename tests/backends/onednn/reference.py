"""Convolution, pooling and normalisation in float64 with plain NumPy loops: slow, short, obviously right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Ints = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]


def _taps(kernel: Ints, sizes: Ints, stride: Ints, dilation: Ints) -> Iterator[tuple[Ints, tuple[slice, ...]]]:
    """For each kernel position, the part of the padded input that it meets, as slices of the spatial axes."""
    for position in np.ndindex(*kernel):
        yield (
            position,
            tuple(
                slice(k * d, k * d + (size - 1) * s + 1, s)
                for k, d, size, s in zip(position, dilation, sizes, stride, strict=True)
            ),
        )


def output_sizes(sizes: Ints, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> Ints:
    return tuple(
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    )


def _padded(x: np.ndarray, padding: Padding, value: float = 0.0) -> np.ndarray:
    return np.pad(x.astype(np.float64), ((0, 0), (0, 0), *padding), constant_values=value)


def _unpadded(x: np.ndarray, padding: Padding) -> np.ndarray:
    inner = (slice(p[0], n - p[1]) for p, n in zip(padding, x.shape[2:], strict=True))
    return x[(slice(None), slice(None), *inner)]


def _groups(array: np.ndarray, groups: int, axis: int) -> list[np.ndarray]:
    return np.split(array, groups, axis=axis)


def conv(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> np.ndarray:
    sizes = output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    parts = []
    for xg, wg in zip(_groups(_padded(x, padding), groups, 1), _groups(w.astype(np.float64), groups, 0), strict=True):
        y = np.zeros((x.shape[0], wg.shape[0], *sizes))
        for position, window in _taps(w.shape[2:], sizes, stride, dilation):
            y += np.einsum("nc...,oc->no...", xg[(..., *window)], wg[(..., *position)])
        parts.append(y)
    y = np.concatenate(parts, axis=1)
    return y if bias is None else y + bias.astype(np.float64).reshape(-1, *(1,) * len(sizes))


def conv_backward_data(
    g: np.ndarray, w: np.ndarray, x_shape: Ints, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> np.ndarray:
    padded = tuple(n + sum(p) for n, p in zip(x_shape[2:], padding, strict=True))
    parts = []
    for gg, wg in zip(_groups(g.astype(np.float64), groups, 1), _groups(w.astype(np.float64), groups, 0), strict=True):
        dx = np.zeros((x_shape[0], w.shape[1], *padded))
        for position, window in _taps(w.shape[2:], g.shape[2:], stride, dilation):
            dx[(..., *window)] += np.einsum("no...,oc->nc...", gg, wg[(..., *position)])
        parts.append(dx)
    return _unpadded(np.concatenate(parts, axis=1), padding)


def conv_backward_weights(
    x: np.ndarray, g: np.ndarray, w_shape: Ints, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> np.ndarray:
    parts = []
    for xg, gg in zip(_groups(_padded(x, padding), groups, 1), _groups(g.astype(np.float64), groups, 1), strict=True):
        dw = np.zeros((w_shape[0] // groups, *w_shape[1:]))
        for position, window in _taps(w_shape[2:], g.shape[2:], stride, dilation):
            tile = xg[(..., *window)]
            pixels = (tile.shape[0], tile.shape[1], -1)
            dw[(..., *position)] = np.einsum(
                "ncp,nop->oc", tile.reshape(pixels), gg.reshape(gg.shape[0], gg.shape[1], -1)
            )
        parts.append(dw)
    return np.concatenate(parts, axis=0)


def max_pool(x: np.ndarray, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints) -> np.ndarray:
    sizes = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    padded = _padded(x, padding, -np.inf)
    return np.max([padded[(..., *window)] for _, window in _taps(kernel, sizes, stride, dilation)], axis=0)


def max_pool_backward(
    x: np.ndarray, g: np.ndarray, kernel: Ints, stride: Ints, padding: Padding, dilation: Ints
) -> np.ndarray:
    """Each gradient goes to the first largest element of its window."""
    padded = _padded(x, padding, -np.inf)
    dx = np.zeros_like(padded)
    open_ = np.ones(g.shape, bool)
    best = max_pool(x, kernel, stride, padding, dilation)
    for _, window in _taps(kernel, g.shape[2:], stride, dilation):
        hit = open_ & (padded[(..., *window)] == best)
        dx[(..., *window)] += np.where(hit, g, 0.0)
        open_ &= ~hit
    return _unpadded(dx, padding)


def _counts(shape: Ints, kernel: Ints, stride: Ints, padding: Padding, include: bool) -> np.ndarray | float:
    if include:
        return float(np.prod(kernel))
    ones = (1,) * len(kernel)
    return conv(np.ones((1, 1, *shape[2:])), np.ones((1, 1, *kernel)), None, stride, padding, ones, 1)


def avg_pool(x: np.ndarray, kernel: Ints, stride: Ints, padding: Padding, include: bool) -> np.ndarray:
    ones = (1,) * len(kernel)
    sums = conv(x, np.ones((x.shape[1], 1, *kernel)), None, stride, padding, ones, x.shape[1])
    return sums / _counts(x.shape, kernel, stride, padding, include)


def avg_pool_backward(
    g: np.ndarray, x_shape: Ints, kernel: Ints, stride: Ints, padding: Padding, include: bool
) -> np.ndarray:
    ones = (1,) * len(kernel)
    share = g.astype(np.float64) / _counts(x_shape, kernel, stride, padding, include)
    return conv_backward_data(share, np.ones((x_shape[1], 1, *kernel)), x_shape, stride, padding, ones, x_shape[1])
