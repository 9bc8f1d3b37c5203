"""Copies between two layouts of one shape, made once per pair of layouts."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...ops import scalar as s
from .. import loops
from ..loops import Buffer, Kernel
from ..nests import grain

Place = tuple[tuple[int, ...], int]
"""Strides and offset, in elements."""


@functools.lru_cache(maxsize=4096)
def copy_kernel(
    shape: tuple[int, ...], dtypes: tuple[np.dtype, np.dtype], source: Place, target: Place
) -> Kernel:
    """copy(source, target): loops in the order of the target's memory, axes that continue each other joined."""
    axes = [a for a in range(len(shape)) if shape[a] != 1]
    axes.sort(key=lambda a: (-abs(target[0][a]), a))
    groups: list[list[int]] = []
    for a in axes:
        if groups and all(st[groups[-1][-1]] == st[a] * shape[a] for st, _ in (source, target)):
            groups[-1].append(a)
        else:
            groups.append([a])
    buffers = [Buffer.of(f"b{i}", dtype, (1 << 40,)) for i, dtype in enumerate(dtypes)]
    read, write = loops.as_index(source[1]), loops.as_index(target[1])
    sizes = []
    for k, group in enumerate(groups):
        size = 1
        for a in group:
            size *= shape[a]
        sizes.append(size)
        read = read + s.index(f"i{k}") * source[0][group[-1]]
        write = write + s.index(f"i{k}") * target[0][group[-1]]
    body: list[Any] = [loops.store(buffers[1][write], buffers[0][read])]
    below = 1
    for k in range(len(groups) - 1, -1, -1):
        kind: Any = "vector" if k == len(groups) - 1 else "serial"
        first = k == 0
        body = [loops.loop(f"i{k}", sizes[k], body, kind, parallel=first, grain=grain(below) if first else 1)]
        below *= sizes[k]
    return Kernel("copy", tuple(buffers), (), tuple(body))
