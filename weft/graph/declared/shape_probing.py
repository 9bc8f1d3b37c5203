"""Shape probing: find the result specs of a function on tensors of unknown sizes by tracing it with trial sizes.

A node must declare the number and dtypes of its results. Where a function cannot run without known sizes, it is traced on a
scratch graph with trial sizes for the unknown ones, several times. What the successful trials agree on is taken as known;
it is checked when the node is expanded (see `weft.graph.declared.deferred_nodes`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...autocast import autocast
from ...autograd.tape import no_grad
from ...autograd.tree import flatten, unflatten
from ...ops.core.define import Mode, current_modes, installed
from ...ops.core.registry import Op
from ...ops.core.samples import Maker
from ...ops.core.slow_path import call
from ...ops.core.spec import Spec, Symbol
from ...tensor import Tensor, wrap
from ..graph import Graph, refuse_open

SIZES = (8, 24, 2, 1, 6, 12, 4, 3, 16)  # many divisors first, so that heads, groups and halves divide them
RANKS = (2, 3, 4, 1, 5, 0)
MAX_FAILURES = 6000  # trials without a fit before giving up
MAX_SUCCESSES = 4  # fitting trials to compare
MAX_TRIALS_AFTER_SUCCESS = 24
MAX_CHANGES = 16  # unknown sizes that are changed one at a time
_STATE = np.zeros(2, np.int64)


class Drawing(Mode):
    """While entered, draws take their states from `given`; without it they are only counted, by generator."""

    def __init__(self, given: Sequence[Tensor] | None = None) -> None:
        self._given = None if given is None else iter(given)
        self.generators: list[Any] = []

    def random_state(self, generator: Any) -> Tensor:
        self.generators.append(generator)
        return wrap(_STATE) if self._given is None else next(self._given)

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        return call(op, values)


def casts() -> tuple[Any, ...]:
    """The autocast modes of this thread."""
    return tuple([m for m in current_modes() if isinstance(m, autocast)])


class Found:
    """The results of a function: `form` (a structure, and for each leaf whether it is a tensor or None), a Spec per tensor,
    and the generators it draws from.

    `varies`: two trials gave different numbers or dtypes of results.
    """

    __slots__ = ("form", "specs", "generators", "varies")

    def __init__(self, form: Any, specs: list[Spec], generators: list[Any]) -> None:
        self.form, self.specs, self.generators, self.varies = form, specs, generators, False

    def build(self, tensors: Sequence[Any]) -> Any:
        """What the function returns, made of `tensors`."""
        structure, places = self.form
        source = iter(tensors)
        return unflatten(structure, [next(source) if here else None for here in places])


def probe(function: Callable[[list[Tensor]], Any], inputs: Sequence[Any], op: Op | None = None) -> Found | None:
    """The results of `function` for tensors like `inputs` (with shape and dtype); None if no trial sizes fit."""
    best: list[tuple[tuple[Any, ...], Found]] = []
    failed, since = 0, 0
    given = [v.shape for v in inputs]
    for shapes in itertools.chain(_alike(given), _sampled(op, given), _mixed(given)):
        if len(best) == MAX_SUCCESSES or since > MAX_TRIALS_AFTER_SUCCESS or failed > MAX_FAILURES:
            break
        found = _trial(function, [Spec(s, v.dtype) for s, v in zip(shapes, inputs, strict=True)])
        since += bool(best)
        if found is None:
            failed += 1
        else:
            best.append((tuple(shapes), found))
    if not best:
        return None
    first = best[0][1]
    for _, other in best[1:2]:
        if other.form != first.form or [s.dtype for s in other.specs] != [s.dtype for s in first.specs]:
            first.varies = True
            return first
    ranked = all(v.shape is not None for v in inputs)
    for shapes in itertools.islice(_changed(given, best[0][0]), MAX_CHANGES) if ranked else ():
        found = _trial(function, [Spec(s, v.dtype) for s, v in zip(shapes, inputs, strict=True)])
        if found is not None:
            best.append((tuple(shapes), found))
    same = [f for _, f in best if f.form == first.form]
    tried = [shapes for shapes, f in best if f.form == first.form]
    varied = ranked and all(
        isinstance(d, int) or len({shapes[i][a] for shapes in tried}) > 1
        for i, s in enumerate(given)
        for a, d in enumerate(s)
    )
    specs = []
    for i, spec in enumerate(first.specs):
        shape = _agreed([f.specs[i].shape for f in same]) if ranked else None
        specs.append(Spec(shape if varied or shape is None else (None,) * len(shape), spec.dtype))
    return Found(first.form, specs, first.generators)


class _Scratch(Graph):
    """A graph for tracing only."""

    def call(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        refuse_open(op, attrs)
        return super().call(op, tensors, attrs)


def _trial(function: Callable[[list[Tensor]], Any], specs: Sequence[Spec]) -> Found | None:
    graph = _Scratch("probe")
    with installed(casts()), no_grad(), Drawing() as draws:
        stand_ins = [wrap(graph.placeholder(s.shape, s.dtype)) for s in specs]
        try:
            leaves, structure = flatten(function(stand_ins))
        except Exception:  # these sizes do not fit each other: try the next
            return None
    if not all(t is None or isinstance(t, Tensor) for t in leaves):
        return None
    specs = [Spec(t.shape, t.dtype) for t in leaves if t is not None]
    return Found((structure, tuple([t is not None for t in leaves])), specs, draws.generators)


def _agreed(shapes: Sequence[Any]) -> Any:
    """The sizes that all `shapes` share, None for others; None if even their ranks differ."""
    if any(s is None or len(s) != len(shapes[0]) for s in shapes):
        return None
    return tuple([column[0] if len(set(column)) == 1 else None for column in zip(*shapes, strict=True)])


def _ranked(shapes: Sequence[Any], ranks: Sequence[int]) -> list[Any]:
    """`shapes` with the unknown ones as open shapes of these ranks."""
    source = iter(ranks)
    return [(None,) * next(source) if s is None else s for s in shapes]


def _alike(shapes: Sequence[Any]) -> Iterator[list[tuple[int, ...]]]:
    """Complete shapes with one size for all unknown ones, and first with one rank for all unknown ranks."""
    count = sum([s is None for s in shapes])
    same = [(r,) * count for r in RANKS] if count else [()]
    other = [r for r in itertools.islice(itertools.product(RANKS, repeat=count), 300) if len(set(r)) > 1]
    for ranks in (*same, *other):
        given = _ranked(shapes, ranks)
        for size in SIZES:
            yield _filled(given, itertools.repeat(size))


def _mixed(shapes: Sequence[Any]) -> Iterator[list[tuple[int, ...]]]:
    """Complete shapes with all combinations of the known sizes and two others."""
    count = sum([s is None for s in shapes])
    known = [d for s in shapes if s is not None for d in s if isinstance(d, int)]
    pool = [d for d in dict.fromkeys([*known, 8, 2]) if d > 0][:6]
    for ranks in [(r,) * count for r in RANKS] if count else [()]:
        given = _ranked(shapes, ranks)
        holes = sum([not isinstance(d, int) for s in given for d in s])
        for sizes in itertools.islice(itertools.product(pool, repeat=holes), 500):
            yield _filled(given, sizes)


def _filled(shapes: Sequence[Any], sizes: Iterable[int]) -> list[tuple[int, ...]]:
    source = iter(sizes)
    named: dict[Symbol, int] = {}
    return [
        tuple(
            [d if isinstance(d, int) else next(source) if d is None else named.setdefault(d, next(source)) for d in s]
        )
        for s in shapes
    ]


def _changed(shapes: Sequence[Any], fitting: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """The `fitting` shapes with one unknown size tripled, for each unknown size.

    Trials with one size for all unknown ones agree on every function of a difference, such as image minus kernel.
    """
    seen: set[Symbol] = set()
    for i, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            if isinstance(size, int) or size in seen:
                continue
            places = {(i, axis)}
            if size is not None:  # one symbol in several places stands for one size
                seen.add(size)
                places = {(j, a) for j, other in enumerate(shapes) for a, d in enumerate(other) if d == size}
            yield [
                tuple([3 * n if (j, a) in places else n for a, n in enumerate(sizes)])
                for j, sizes in enumerate(fitting)
            ]


def _sampled(op: Op | None, shapes: Sequence[Any]) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of the op's test samples whose ranks match: related sizes that trials would miss (the four gates of an
    LSTM)."""
    for sample in op.samples(Maker()) if op is not None and op.samples is not None else ():
        arrays = list(_arrays([*sample.args, *sample.kwargs.values()]))
        if len(arrays) == len(shapes) and all(
            s is None or len(s) == a.ndim for s, a in zip(shapes, arrays, strict=True)
        ):
            yield [a.shape for a in arrays]


def _arrays(values: Iterable[Any]) -> Iterator[np.ndarray]:
    for v in values:
        if isinstance(v, np.ndarray):
            yield v
        elif isinstance(v, (tuple, list)):
            yield from _arrays(v)
