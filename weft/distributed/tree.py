"""The order in which the values of logical shards are summed: a binary tree that depends on the shards alone.

Node (level, index) covers the shards from ``index << level`` to ``(index + 1) << level``. A sum of shards that is a node of
the tree may be formed by any worker, at any time: the result is the same, bit by bit. Shards that are absent (a batch with
fewer samples than shards) vanish from the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

Node = tuple[int, int]


def bounds(samples: int, shards: int, shard: int) -> tuple[int, int]:
    """The samples of a batch that belong to a shard: from, to. Sizes differ by at most one.

    >>> [bounds(10, 4, s) for s in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    return shard * samples // shards, (shard + 1) * samples // shards


def present(samples: int, shards: int) -> list[int]:
    """The shards of a batch that have samples.

    >>> present(3, 8)
    [2, 5, 7]
    """
    if samples >= shards:
        return list(range(shards))
    return [s for s in range(shards) if s * samples // shards < (s + 1) * samples // shards]


def block(shards: int, position: int, workers: int) -> range:
    """The contiguous shards that worker number `position` of `workers` computes unless others are faster."""
    return range(position * shards // workers, (position + 1) * shards // workers)


def push(stack: list[Node], shard: int) -> int:
    """Add a shard to a worker's stack of partial sums; returns how many times its two topmost sums must then be added.

    >>> stack = []; [push(stack, s) for s in range(4)], stack
    ([0, 1, 0, 2], [(2, 0)])
    """
    node, sums = (0, shard), 0
    while stack and node[1] & 1 and stack[-1] == (node[0], node[1] - 1):
        stack.pop()
        node, sums = (node[0] + 1, node[1] >> 1), sums + 1
    stack.append(node)
    return sums


def plan(shards: int, leaves: Collection[int], held: Iterable[Node]) -> Any:
    """How to sum all `leaves` from the partial sums `held`: a nested pair of nodes, or one node.

    Raises:
        ValueError: the partial sums do not cover the leaves exactly.

    >>> plan(4, range(4), [(1, 0), (0, 2), (0, 3)])
    ((1, 0), ((0, 2), (0, 3)))
    """
    have, wanted = set(held), sorted(leaves)
    height = max(shards - 1, 0).bit_length()
    used: set[Node] = set()

    def visit(node: Node, inside: Sequence[int]) -> Any:
        level, index = node
        if node in have:
            used.add(node)
            return node
        if level == 0:
            raise ValueError(f"tree: shard {index} is in no partial sum. Got {sorted(have)} for {shards} shards.")
        middle = ((index << 1) + 1) << (level - 1)
        left, right = [s for s in inside if s < middle], [s for s in inside if s >= middle]
        if not right:
            return visit((level - 1, index << 1), left)
        if not left:
            return visit((level - 1, (index << 1) + 1), right)
        return visit((level - 1, index << 1), left), visit((level - 1, (index << 1) + 1), right)

    if not wanted:
        raise ValueError("tree: there are no shards to sum.")
    made = visit((height, 0), wanted)
    if used != have:
        raise ValueError(f"tree: partial sums {sorted(have - used)} belong to no place in the tree.")
    return made


def total(values: Sequence[Any]) -> Any:
    """The sum of values in the order of the tree, for numbers that every worker sums itself.

    >>> total([1.0, 2.0, 3.0])
    6.0
    """
    row = list(values)
    while len(row) > 1:
        row = [row[i] + row[i + 1] if i + 1 < len(row) else row[i] for i in range(0, len(row), 2)]
    return row[0]
