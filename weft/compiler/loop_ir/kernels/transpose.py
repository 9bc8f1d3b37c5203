"""Transposing copies: a matrix with contiguous columns is copied to one with contiguous rows, 16 x 16 in registers."""

from __future__ import annotations

from collections.abc import Callable

from ....ops.core import scalar as s
from ....ops.core.scalar import Expr
from ...target import Target
from .. import ir as loops
from ..ir import SQUARE, Statement

Element = Callable[[Expr, Expr], Expr]


def transposing_copy(
    tag: str, size: tuple[int, int], target: tuple[Element, int], source: tuple[Element, int], machine: Target
) -> list[Statement]:
    """Statements that do `target(r, c) = source(r, c)` for `size` rows and columns, whole squares in registers.

    Args:
        target: the element (r, c), contiguous along c, and the row stride.
        source: the element (r, c), contiguous along r, and the column stride.
    """
    rows, columns = size
    (to, to_step), (of, of_step) = target, source
    whole_r, whole_c = rows // SQUARE, columns // SQUARE
    done_r, done_c = whole_r * SQUARE, whole_c * SQUARE
    made: list[Statement] = []
    if whole_r and whole_c:
        block, line = s.index(f"{tag}b") * SQUARE, s.index(f"{tag}l")
        other = s.index(f"{tag}o") * SQUARE
        if rows >= columns:  # down the columns, all of them side by side
            soon = loops.loop(f"{tag}l", columns, [loops.prefetch(of(block + machine.prefetch.squares * SQUARE, line))])
            r, c, count = block, other, whole_c
        else:
            lines = [loops.prefetch(of(loops.as_index(n), block + 2 * SQUARE + line)) for n in range(0, rows, SQUARE)]
            soon = loops.loop(f"{tag}l", SQUARE, lines)
            r, c, count = other, block, whole_r
        squares = loops.loop(f"{tag}o", count, [loops.transpose(to(r, c), to_step, of(r, c), of_step)])
        made.append(loops.loop(f"{tag}b", whole_r if rows >= columns else whole_c, [soon, squares]))
    if not (whole_r and whole_c):
        done_r = done_c = 0
    return [
        *made,
        *plain_copy(f"{tag}x", (0, done_r), (done_c, columns - done_c), to, of),
        *plain_copy(f"{tag}y", (done_r, rows - done_r), (0, columns), to, of),
    ]


def plain_copy(tag: str, rows: tuple[int, int], columns: tuple[int, int], to: Element, of: Element) -> list[Statement]:
    """Statements that copy a part element by element; `rows` and `columns` are (first, count)."""
    if not rows[1] or not columns[1]:
        return []
    r, c = s.index(f"{tag}r") + rows[0], s.index(f"{tag}c") + columns[0]
    across = loops.loop(f"{tag}c", columns[1], [loops.store(to(r, c), of(r, c))], "vector")
    return [loops.loop(f"{tag}r", rows[1], [across])]
