"""Einstein summation, lowered to transposes, reshapes and batched matrix products.

Each operand is first simplified: repeated indices become diagonals, and indices that occur nowhere else are summed.
Then operands are contracted in pairs. Up to 6 operands, all contraction orders are compared; beyond that, a greedy
search contracts the pair that shrinks the intermediate result most. A contraction is one batched matrix product:
shared indices that are still needed are batch axes, other shared indices are contracted, the rest are rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import format_shape, type_name
from ...tensor import Tensor
from ..core.define import composite
from ..core.samples import Bad, Sample
from ..core.spec import is_known, same_size
from .elementwise import astype
from .linalg_structure import diagonal
from .products import matmul
from .reduction import reduce_sum
from .shaping import broadcast_to, expand_dims, permute_dims, reshape

_EXHAUSTIVE_MAX_OPERANDS = 6  # operands up to which all contraction orders are compared
_GREEDY_MAX_TERMS = 24  # terms up to which the greedy search is used


def _error(problem: str, equation: str) -> ValueError:
    return ValueError(f"einsum: {problem} Got equation {equation!r}.")


@lru_cache(maxsize=1024)
def _parse(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Parse the equation into one string of indices per operand and one for the result, without ellipses."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise _error(
            f"expected {len(terms)} operands, one per comma-separated term, but {len(ranks)} were given.", equation
        )
    free = [chr(c) for c in range(ord("A"), ord("Z") + 1)] + [chr(c) for c in range(0x100, 0x200)]
    extra = [c for c in free if c not in text]  # letters for the axes that `...` stands for
    found: list[str] = []
    longest = 0
    for i, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = term.replace("...", "", 1)
        if not all(c.isascii() and c.isalpha() for c in letters):
            raise _error(f"term {term!r} must consist of letters and at most one '...'.", equation)
        if letters != term:
            count = rank - len(letters)
            if count < 0:
                raise _error(f"term {term!r} names more axes than operand {i}, which has {rank}.", equation)
            longest = max(longest, count)
        elif rank != len(letters):
            raise _error(f"term {term!r} must name all {rank} axes of operand {i}.", equation)
        found.append(term)
    dots = "".join(extra[:longest])

    def fill(term: str, rank: int) -> str:
        count = rank - len(term.replace("...", "", 1))
        return term.replace("...", dots[longest - count :], 1)

    inputs = tuple([fill(t, r) for t, r in zip(found, ranks, strict=True)])
    if arrow:
        letters = right.replace("...", "", 1)
        if not all(c.isascii() and c.isalpha() for c in letters):
            raise _error(f"the result {right!r} must consist of letters and at most one '...'.", equation)
        if len(set(letters)) != len(letters):
            raise _error(f"an index occurs twice in the result {right!r}.", equation)
        unknown = [c for c in letters if not any(c in t for t in found)]
        if unknown:
            raise _error(f"index {unknown[0]!r} of the result occurs in no operand.", equation)
        output = right.replace("...", dots, 1)
    else:
        counts = "".join(found)
        output = dots + "".join(sorted(c for c in set(counts) - {"."} if counts.count(c) == 1))
    return inputs, output


def _sizes(equation: str, inputs: Sequence[str], shapes: Sequence[Any]) -> dict[str, Any]:
    """The size of every index; sizes of 1 broadcast."""
    sizes: dict[str, Any] = {}
    for i, (term, shape) in enumerate(zip(inputs, shapes, strict=True)):
        for letter, d in zip(term, shape, strict=True):
            have = sizes.get(letter, 1)
            if have is None or isinstance(have, int) and have == 1:
                sizes[letter] = d if letter not in sizes or d != 1 else have
            elif isinstance(d, int) and d not in (1, have) and isinstance(have, int):
                raise _error(
                    f"index {letter!r} has size {have} and, in operand {i} of shape {format_shape(shape)}, {d}.",
                    equation,
                )
    return sizes


def _pair_result(a: str, b: str, needed: set[str]) -> str:
    """The indices that remain after contracting two terms: those that the result or other operands need."""
    return "".join([c for c in dict.fromkeys(a + b) if c in needed])


@lru_cache(maxsize=1024)
def _order(terms: tuple[str, ...], output: str, sizes: tuple[tuple[str, int], ...]) -> tuple[tuple[int, int], ...]:
    """The contraction order, as pairs of positions in the shrinking operand list; each result is appended."""
    size = dict(sizes)

    def flops(a: str, b: str) -> int:
        return prod(size[c] for c in set(a) | set(b))

    def contract(now: tuple[str, ...], i: int, j: int) -> tuple[str, ...]:
        rest = tuple([t for k, t in enumerate(now) if k not in (i, j)])
        needed = set(output).union(*map(set, rest)) if rest else set(output)
        return (*rest, _pair_result(now[i], now[j], needed))

    if len(terms) <= _EXHAUSTIVE_MAX_OPERANDS:
        best: dict[tuple[str, ...], tuple[int, tuple[tuple[int, int], ...]]] = {}

        def search(now: tuple[str, ...]) -> tuple[int, tuple[tuple[int, int], ...]]:
            if len(now) == 1:
                return 0, ()
            if now not in best:
                options = []
                for i in range(len(now)):
                    for j in range(i + 1, len(now)):
                        cost, path = search(contract(now, i, j))
                        options.append((cost + flops(now[i], now[j]), ((i, j), *path)))
                best[now] = min(options)
            return best[now]

        return search(terms)[1]

    if len(terms) > _GREEDY_MAX_TERMS:  # a search over all pairs would take longer than the products
        return ((0, 1), *[(0, n - 1) for n in range(len(terms) - 1, 1, -1)])

    def gain(now: tuple[str, ...], i: int, j: int) -> tuple[int, int, tuple[int, int]]:
        result = contract(now, i, j)[-1]
        grown = prod(size[c] for c in result) - prod(size[c] for c in now[i]) - prod(size[c] for c in now[j])
        return grown, flops(now[i], now[j]), (i, j)

    path: list[tuple[int, int]] = []
    now = terms
    while len(now) > 1:
        *_, chosen = min(gain(now, i, j) for i in range(len(now)) for j in range(i + 1, len(now)))
        path.append(chosen)
        now = contract(now, *chosen)
    return tuple(path)


def _diagonals(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Replace repeated indices of one operand by one, along their diagonal."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            i = term.index(letter)
            j = term.index(letter, i + 1)
            rest = tuple([k for k in range(len(term)) if k not in (i, j)])
            if x.shape[i] != x.shape[j]:  # one of them is 1 and broadcasts
                size = max(x.shape[i], x.shape[j])
                x = broadcast_to(x, tuple([size if k in (i, j) else d for k, d in enumerate(x.shape)]))
            x = diagonal(permute_dims(x, (*rest, i, j)))
            term = "".join([term[k] for k in rest]) + letter
    return x, term


def _sum_out(x: Tensor, term: str, needed: set[str]) -> tuple[Tensor, str]:
    axes = tuple([i for i, c in enumerate(term) if c not in needed])
    if not axes:
        return x, term
    return reduce_sum(x, axes, False), "".join([c for c in term if c in needed])


def _arranged(x: Tensor, term: str, groups: Sequence[Sequence[str]], sizes: dict[str, Any]) -> Tensor:
    """`x` with the axes of each group adjacent, in order; a missing index becomes an axis of size 1."""
    missing = [c for g in groups for c in g if c not in term]
    if missing:
        x = expand_dims(x, tuple(range(x.ndim, x.ndim + len(missing))))
        term += "".join(missing)
    order = tuple([term.index(c) for g in groups for c in g])
    return x if order == tuple(range(len(order))) else permute_dims(x, order)


def _contract(a: Tensor, ta: str, b: Tensor, tb: str, output: str, sizes: dict[str, Any]) -> Tensor:
    """Contract two operands over the indices missing from `output`, whose order the result has."""
    both = [c for c in ta if c in tb]
    batch = [c for c in both if c in output]
    summed = [c for c in both if c not in output]
    # A size of 1 that meets a larger one broadcasts: it is a separate factor, not contracted. Sizes that
    # are not known may be equal: they are left to the product with broadcasting below.
    for c in list(summed):
        if not same_size(a.shape[ta.index(c)], b.shape[tb.index(c)]):
            if a.shape[ta.index(c)] == 1:
                b, tb = _sum_out(b, tb, set(tb) - {c})
                a, ta = reduce_sum(a, (ta.index(c),), False), ta.replace(c, "")
            else:
                a, ta = _sum_out(a, ta, set(ta) - {c})
                b, tb = reduce_sum(b, (tb.index(c),), False), tb.replace(c, "")
            summed.remove(c)
    rows = [c for c in ta if c not in both]
    cols = [c for c in tb if c not in both]
    if not summed or not is_known(a.shape) or not is_known(b.shape):
        letters = [*batch, *rows, *cols, *summed]
        product = _arranged(a, ta, [letters], sizes) * _arranged(b, tb, [letters], sizes)
        product, found = _sum_out(product, "".join(letters), set(output))
        return _arranged(product, found, [list(output)], sizes)
    a = _arranged(a, ta, (batch, rows, summed), sizes)
    b = _arranged(b, tb, (batch, summed, cols), sizes)
    nb, ns = len(batch), len(summed)
    left = (*a.shape[:nb], prod(a.shape[nb : a.ndim - ns]), prod(a.shape[a.ndim - ns :]))
    right = (*b.shape[:nb], prod(b.shape[nb : nb + ns]), prod(b.shape[nb + ns :]))
    row_shape, col_shape = a.shape[nb : a.ndim - ns], b.shape[nb + ns :]
    out = matmul(reshape(a, left), reshape(b, right))
    out = reshape(out, (*out.shape[:-2], *row_shape, *col_shape))
    return _arranged(out, "".join([*batch, *rows, *cols]), [list(output)], sizes)


def _reference(equation: str, *operands: Any) -> np.ndarray:
    return np.asarray(np.einsum(equation, *operands))


@composite(
    reference=_reference,
    samples=lambda m: [
        Sample("ij,jk->ik", m.normal(2, 3), m.normal(3, 4)),
        Sample("ij,jk", m.normal(2, 3), m.normal(3, 4)),
        Sample("ii", m.normal(3, 3)),
        Sample("ii->i", m.normal(3, 3)),
        Sample("iij->ji", m.normal(3, 3, 2)),
        Sample("ij->", m.normal(2, 3)),
        Sample("ij->ji", m.normal(2, 3)),
        Sample("i,j->ij", m.normal(2), m.normal(3)),
        Sample("bij,bjk->bik", m.normal(2, 2, 3), m.normal(2, 3, 2)),
        Sample("...ij,...jk->...ik", m.normal(2, 2, 3), m.normal(3, 2)),
        Sample("bhqd,bhkd->bhqk", m.normal(2, 2, 3, 2), m.normal(2, 2, 4, 2)),
        Sample("ij,jk,kl->il", m.normal(2, 3), m.normal(3, 4), m.normal(4, 2)),
        Sample("ij,kj,k,i->", m.normal(2, 3), m.normal(4, 3), m.normal(4), m.normal(2)),
        Sample("ijk,ijk->i", m.normal(2, 3, 2), m.normal(2, 3, 2)),
        Sample("i...,i...->...", m.normal(3, 2), m.normal(3, 2)),
        Sample("ab,ab,ab->a", m.normal(2, 3), m.normal(2, 3), m.normal(2, 3)),
        Sample("ijkl,kl->ij", m.normal(2, 2, 2, 3), m.normal(2, 3)),
        Sample("i,i->i", m.normal(3), m.normal(3)),
        Sample(",i->i", m.normal(), m.normal(3)),
        Sample("ij,jk->ik", m.normal(2, 0), m.normal(0, 3)),
        Sample("a,b,c,d,e,f,g->ag", *[m.normal(2) for _ in range(7)]),
    ],
    errors=lambda m: [
        Bad(ValueError, "einsum: expected 2 operands", "ij,jk->ik", m.normal(2, 3)),
        Bad(ValueError, "einsum: term 'ij' must name all 3 axes of operand 0", "ij->i", m.normal(2, 3, 4)),
        Bad(ValueError, "einsum: index 'j' has size 3 and, in operand 1", "ij,jk->ik", m.normal(2, 3), m.normal(4, 2)),
        Bad(ValueError, "einsum: index 'z' of the result", "ij->iz", m.normal(2, 3)),
        Bad(ValueError, "einsum: an index occurs twice in the result", "ij->ii", m.normal(2, 3)),
        Bad(ValueError, "einsum: term 'i1' must consist of letters", "i1->i", m.normal(2, 3)),
        Bad(TypeError, "einsum: equation must be a string", m.normal(2), m.normal(2)),
        Bad(TypeError, "einsum: operand 0 must be a tensor. Got str", "i->i", "abc"),
    ],
)
def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum of products over named indices (Einstein summation).

    Args:
        equation: one term of indices per operand, for example "ij,jk->ik" for the matrix product. Indices missing from
            the result are summed; an index repeated within a term takes the diagonal; `...` stands for batch axes
            that broadcast. Without `->` the result has the axes of `...`, then the indices that occur once, in
            alphabetical order.
        operands: one tensor per term.

    >>> a, b = wf.ones(2, 3), wf.ones(3, 4)
    >>> wf.einsum("ij,jk->ik", a, b).shape
    (2, 4)
    """
    if not isinstance(equation, str):
        raise TypeError(f"einsum: equation must be a string such as 'ij,jk->ik'. Got {type(equation).__name__}.")
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors: list[Tensor] = []
    for i, x in enumerate(operands):
        if isinstance(x, np.ndarray):
            x = Tensor(x)
        if not isinstance(x, Tensor):
            raise TypeError(f"einsum: operand {i} must be a tensor. Got {type_name(x)}.")
        tensors.append(x)
    inputs, output = _parse(equation, tuple([x.ndim for x in tensors]))
    sizes = _sizes(equation, inputs, [x.shape for x in tensors])
    dtype = dtypes.result_type(*[x.dtype for x in tensors])
    if dtypes.is_bool(dtype):
        raise TypeError("einsum: expected numbers. Got bool; use `x.astype(wf.int64)`.")
    now = [_diagonals(astype(x, dtype), t) for x, t in zip(tensors, inputs, strict=True)]
    for i, (x, t) in enumerate(now):
        others = set(output).union(*[set(o[1]) for k, o in enumerate(now) if k != i])
        now[i] = _sum_out(x, t, others)
    if len(now) > 1:
        fixed = tuple(sorted((c, d if isinstance(d, int) else 64) for c, d in sizes.items()))
        for i, j in _order(tuple([t for _, t in now]), output, fixed):
            (a, ta), (b, tb) = now[i], now[j]
            now = [o for k, o in enumerate(now) if k not in (i, j)]
            needed = set(output).union(*[set(t) for _, t in now])
            result = _pair_result(ta, tb, needed) if now else output
            now.append((_contract(a, ta, b, tb, result, sizes), result))
    x, term = now[0]
    return _arranged(x, term, [list(output)], sizes)
