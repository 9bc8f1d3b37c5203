"""Kernels for many sizes: two kernels that differ only in numbers, as one kernel that takes these numbers as parameters.

Lowering writes kernels for known sizes: extents, strides and offsets are constants. The kernels of one function for two
batch sizes are then the same text with other numbers in a few places. `generalise` compares two kernels, expression by
expression, and replaces by a parameter every number in which they differ; numbers that agree stay constants, because they
belong to what does not vary, and constants are what makes loops fast. The result computes what either kernel does when it
is given that kernel's numbers::

    kernel k(b0: float32, b1: float32):          and the same with 20 for 17
      parallel for i < 17:
        vector for j < 64: b1[i * 64 + j] = exp(b0[j * 17 + i])

    kernel k(b0: float32, b1: float32, open0, open1, open2):
      parallel for i < open0 (grain open1):
        vector for j < 64: b1[i * 64 + j] = exp(b0[j * open2 + i])

* Extents of serial loops, grains and the numbers from which a task finds its place are always parameters: they cost
  nothing at run time, and two sizes may happen to agree in the number of their blocks. What must be a constant (the
  extent of an unrolled loop, the shape of a local buffer) must agree, except that the first dimension of a local buffer
  may be larger than needed.
* Names of loops and values may differ: builders put positions into them.
* A divisor stays a constant inside loops: a division by a parameter is slow. It may differ where a task finds its place.
* A floating-point number may differ, too (the reciprocal of a mean's size); its bits are passed.
* Two different expressions of the general kernel may be one expression of a kernel in which two sizes happen to agree.

The bits of results are the same in all forms; see Note [Order of a reduction] in `weft.backends.llvm.schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...ops.core import scalar as s
from ...ops.core.scalar import INT32, INT64, Expr
from . import ir as loops
from .ir import Accumulator, Buffer, Kernel, Let, Local, Loop, Prefetch, Statement, Store, Transpose, Update

LOCAL_BYTES = 16 * 1024
"""Minimum size of a local buffer whose size varies: it lies on the stack, where only what is used costs time."""
PREFIX = "open"
"""Parameters that stand for numbers are named `open0`, `open1`, …"""

# Functions that are compiled alike whether a floating-point argument is a constant or not.
_PLAIN = frozenset("add sub mul div fma neg minimum maximum where lt le gt ge eq ne".split())

_DIVISIONS = ("floor_divide", "remainder")

Varies = Callable[[int | float], bool]
Order = Callable[[Kernel], Any]
"""In which order a kernel's reductions add: kernels that agree in it have equal results."""


@dataclass(frozen=True, slots=True)
class General:
    """A kernel for many sizes, and the `values` of its `open…` parameters for one of them.

    `fresh` counts what the kernel did not have before; 0: it was general enough. `opened` counts the numbers that differ,
    besides extents of serial loops and grains.
    """

    kernel: Kernel
    values: tuple[int, ...]
    fresh: int
    opened: int


class _Different(Exception):
    """The kernels differ in more than numbers."""


def own_params(kernel: Kernel) -> tuple[str, ...]:
    """The parameters that do not stand for numbers."""
    return tuple([p for p in kernel.params if not p.startswith(PREFIX)])


def form(kernel: Kernel) -> Any:
    """What kernels must share to be compared at all: buffers, parameters and the tree of statements."""

    def forms(body: Sequence[Statement]) -> tuple[Any, ...]:
        return tuple([of(st) for st in body])

    def of(st: Statement) -> Any:
        if isinstance(st, Loop):
            return st.kind, st.parallel, st.workers, forms(st.body)
        if isinstance(st, Accumulator):
            return st.op, st.dtype
        if isinstance(st, Store):
            return Store, st.value.fn, st.streaming
        return type(st)

    dtypes = tuple([b.dtype for b in kernel.buffers])
    return kernel.name, dtypes, own_params(kernel), forms(kernel.body)


def generalise(known: Kernel, other: Kernel, order: Order) -> General | None:
    """A kernel that computes what `known` does, which may be general already, and what `other` does; None if they differ in
    more than numbers. `other` is a kernel for known sizes. If `known` serves, it is returned itself."""
    walk = _Walk(known)
    try:
        made = walk.kernel(known, other)
    except _Different:
        return None
    if walk.coincident() and order(made) != order(other):
        return None
    values = tuple([walk.values[p] for p in made.params if p.startswith(PREFIX)])
    return General(made, values, walk.fresh, walk.opened)


def generalise_alone(kernel: Kernel, varies: Varies, order: Order) -> General:
    """A general form of a kernel that has no counterpart yet: the numbers of which `varies` holds are taken to differ."""
    walk = _Walk(kernel, varies)
    try:
        made = walk.kernel(kernel, kernel)
    except _Different:
        return General(kernel, (), 0, 0)
    if order(made) != order(kernel):
        return General(kernel, (), 0, 0)
    values = tuple([walk.values[p] for p in made.params if p.startswith(PREFIX)])
    return General(made, values, walk.fresh, walk.opened)


class _Walk:
    """One comparison. Names and expressions of the result are those of the first kernel."""

    def __init__(self, known: Kernel, varies: Varies | None = None) -> None:
        self.varies = varies
        self.names: dict[str, str] = {}  # of the first kernel -> of the second
        self.plain = varies is None  # so far, names, buffers and numbers are the same in all three kernels
        self.outer: set[str] = set()  # names that are known where a task begins
        self.buffers: dict[Buffer, tuple[Buffer, Buffer]] = {}  # -> that of the second, that of the result
        self.memo: dict[tuple[Expr, Expr], Expr] = {}
        self.kept: dict[tuple[Expr, Expr], Expr] = {}  # of statements before, where each has its own
        self.places = 0
        self.place: int | None = None  # the statement whose numbers have parameters of their own
        self.task = False  # whether it is the place of a task
        self.values: dict[str, int] = {}  # of parameters, for the second kernel
        self.keys: dict[Any, str] = {}  # what a parameter stands for -> its name
        self.number = 1 + max([int(p[len(PREFIX) :]) for p in known.params if p.startswith(PREFIX)], default=-1)
        self.general = self.number > 0  # whether the first kernel was general before
        self.fresh = self.opened = 0

    # Parameters -----------------------------------------------------------------------------------------------------------

    def param(self, key: Any, value: int, wanted: str | None = None) -> Expr:
        """The parameter that stands for `key`; `wanted` is the name it has in the first kernel."""
        name = self.keys.get(key)
        if name is None:
            if wanted is not None and wanted not in self.values:
                name = wanted
            else:
                name = f"{PREFIX}{self.number}"
                self.number += 1
                self.fresh += 1
            self.keys[key] = name
            self.values[name] = value
        return s.param(name)

    def always(self, a: Expr, b: Expr, key: Any) -> Expr:
        """A number that is a parameter even where both kernels agree."""
        value = loops.constant(b)
        if value is None or not (a.fn == "const" or _is_open(a)):
            return self.pair(a, b)
        return self.param(key, value, a.payload if _is_open(a) else None)

    def numbers(self, a: Expr, b: Expr) -> Expr | None:
        """The result for a number in the second kernel; None if the first has neither a number nor a parameter there."""
        value = b.payload.item()
        everything = self.task and b.dtype == INT64 and not 0 <= value <= 1
        if a is b and not everything and (self.varies is None or not self.varies(value)):
            return a
        known = _opened(a)
        if known is None and a.fn != "const":
            return None
        if a.dtype != b.dtype:
            raise _Different
        value, wrap = _encoded(b)
        self.opened += not everything
        return wrap(self.param((self.place, a, value), value, known))

    # Expressions ----------------------------------------------------------------------------------------------------------

    def pair(self, a: Expr, b: Expr) -> Expr:
        """The general form of two expressions. Iterative: long chains do not exhaust the stack."""
        memo = self.memo
        stack = [(a, b)]
        while stack:
            both = stack[-1]
            if both in memo:
                stack.pop()
                continue
            x, y = both
            if x is y and self.plain and not self.task and x.fn != "param":
                memo[stack.pop()] = x
                continue
            if y.fn == "const" and (made := self.numbers(x, y)) is not None:
                memo[stack.pop()] = made
                continue
            if x.fn != y.fn or x.dtype != y.dtype or len(x.args) != len(y.args):
                raise _Different
            missing = [p for p in zip(x.args, y.args, strict=True) if p not in memo]
            if missing:
                stack.extend(missing)
                continue
            memo[stack.pop()] = self.node(x, y)
        return memo[a, b]

    def node(self, x: Expr, y: Expr) -> Expr:
        args = tuple([self.memo[p] for p in zip(x.args, y.args, strict=True)])
        payload = x.payload
        match x.fn:
            case "load":
                payload = self.buffer(payload, y.payload)
            case "index" | "var":
                if self.names.get(payload) != y.payload:
                    raise _Different
            case _:
                if payload != y.payload:
                    raise _Different
                if x.fn not in _PLAIN and any(
                    s.kind(q.dtype) == "f" and q.fn == "const" and p is not q
                    for p, q in zip(x.args, y.args, strict=True)
                ):
                    raise _Different
                if (
                    x.fn in _DIVISIONS
                    and args[1].fn != "const"
                    and y.args[1].fn == "const"
                    and not self.begins(x.args[0])
                ):
                    raise _Different
        return x if args == x.args and payload is x.payload else s.make(x.fn, args, x.dtype, payload)

    def begins(self, expr: Expr) -> bool:
        """Whether an expression is known where a task begins, and so computed once per task."""
        return all(node.payload in self.outer for node in s.topological([expr]) if node.fn in ("index", "var"))

    def buffer(self, a: Buffer, b: Buffer) -> Buffer:
        found = self.buffers.get(a)
        if found is None or found[0] != b:
            raise _Different
        return found[1]

    def coincident(self) -> bool:
        """Whether one expression of the second kernel has two counterparts in the result: then it may be scheduled otherwise."""
        inner = [(made, b) for (_, b), made in (*self.memo.items(), *self.kept.items()) if b.args]
        return len({b for _, b in inner}) < len({made for made, _ in inner})

    # Statements -----------------------------------------------------------------------------------------------------------

    def kernel(self, known: Kernel, other: Kernel) -> Kernel:
        if own_params(known) != other.params or len(known.buffers) != len(other.buffers):
            raise _Different
        buffers = [self.declared(a, b) for a, b in zip(known.buffers, other.buffers, strict=True)]
        body = self.body(known.body, other.body)
        if any(loops.constant(st.extent) is None for st in _shared_reductions(body)):
            raise _Different
        if not self.fresh:
            return known
        names = sorted(self.values, key=lambda name: int(name[len(PREFIX) :]))
        return Kernel(known.name, tuple(buffers), (*own_params(known), *names), body)

    def declared(self, a: Buffer, b: Buffer) -> Buffer:
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            raise _Different
        shape = tuple([self.pair(p, q) for p, q in zip(a.shape, b.shape, strict=True)])
        strides = tuple([self.pair(p, q) for p, q in zip(a.strides, b.strides, strict=True)])
        return self.map(
            a, b, a if (shape, strides) == (a.shape, a.strides) else replace(a, shape=shape, strides=strides)
        )

    def map(self, a: Buffer, b: Buffer, made: Buffer) -> Buffer:
        self.buffers[a] = (b, made)
        if not a == b == made:
            self.plain = False
        return made

    def local(self, a: Buffer, b: Buffer) -> Buffer:
        """Scratch memory: of a size that many sizes need at most."""
        if a.dtype != b.dtype or a.shape[1:] != b.shape[1:] or len(a.shape) != len(b.shape):
            raise _Different
        sizes = [loops.constant(d) or 0 for d in a.shape]
        needed = loops.constant(b.shape[0]) if b.shape else None
        if needed is None or a.shape == b.shape and (self.varies is None or not self.varies(needed)):
            return self.map(a, b, a)
        if needed > sizes[0] or not self.general:
            row = a.dtype.itemsize * prod(sizes[1:])
            sizes[0] = max(1 << (max(needed, sizes[0]) - 1).bit_length(), LOCAL_BYTES // row)
            if row * sizes[0] > loops.MAX_LOCAL_BYTES:
                raise _Different
            self.fresh += 1
        return self.map(a, b, Buffer.of(a.name, a.dtype, sizes))

    def named(self, a: str, b: str) -> None:
        self.names[a] = b
        if a != b:
            self.plain = False

    def body(self, a: Sequence[Statement], b: Sequence[Statement]) -> tuple[Statement, ...]:
        if len(a) != len(b):
            raise _Different
        return tuple([self.statement(p, q) for p, q in zip(a, b, strict=True)])

    def all(self, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
        if len(a) != len(b):
            raise _Different
        return tuple([self.pair(p, q) for p, q in zip(a, b, strict=True)])

    def statement(self, a: Statement, b: Statement) -> Statement:
        if type(a) is not type(b):
            raise _Different
        self.task = isinstance(a, Let) and a.value.dtype == INT64 and self.begins(a.value)
        if not (self.task or self.varies is not None):
            return self.general_form(a, b)
        # A number of a size that is taken to vary may also occur for another reason: statements do not share parameters.
        self.places += 1
        outer, self.memo, self.place = self.memo, {}, self.places
        made = self.general_form(a, b)
        self.kept |= self.memo
        self.memo, self.place, self.task = outer, None, False
        return made

    def general_form(self, a: Statement, b: Statement) -> Statement:
        match a, b:
            case Loop(), Loop():
                return self.loop(a, b)
            case Store(), Store():
                if a.streaming != b.streaming:
                    raise _Different
                indices, value = self.all(a.indices, b.indices), self.pair(a.value, b.value)
                return Store(self.buffer(a.buffer, b.buffer), indices, value, a.streaming)
            case Let(), Let():
                made = Let(a.name, self.pair(a.value, b.value))
                self.named(a.name, b.name)
                if self.begins(a.value):
                    self.outer.add(a.name)
                return made
            case Accumulator(), Accumulator():
                if (a.op, a.dtype) != (b.op, b.dtype):
                    raise _Different
                self.named(a.name, b.name)
                self.names[f"{a.name}.index"] = f"{b.name}.index"
                return a
            case Update(), Update():
                if self.names.get(a.accumulator.name) != b.accumulator.name or (a.index is None) != (b.index is None):
                    raise _Different
                index = None if a.index is None or b.index is None else self.pair(a.index, b.index)
                return Update(a.accumulator, self.pair(a.value, b.value), index)
            case Local(), Local():
                return Local(self.local(a.buffer, b.buffer))
            case Prefetch(), Prefetch():
                if a.write != b.write:
                    raise _Different
                return Prefetch(self.buffer(a.buffer, b.buffer), self.all(a.indices, b.indices), a.write)
            case Transpose(), Transpose():
                ends = [
                    (self.buffer(p, q), self.all(i, j), self.pair(loops.as_index(m), loops.as_index(n)))
                    for p, q, i, j, m, n in (
                        (a.target, b.target, a.target_at, b.target_at, a.target_step, b.target_step),
                        (a.source, b.source, a.source_at, b.source_at, a.source_step, b.source_step),
                    )
                ]
                (target, at, step), (source, source_at, source_step) = ends
                return Transpose(target, at, _step(step), source, source_at, _step(source_step))
        raise _Different

    def loop(self, a: Loop, b: Loop) -> Loop:
        if (a.kind, a.parallel, a.workers) != (b.kind, b.parallel, b.workers):
            raise _Different
        if a.kind == "unroll":
            if a.extent is not b.extent:
                raise _Different
            extent = a.extent
        elif a.kind == "serial":
            extent = self.always(a.extent, b.extent, ("extent", a.var))
        else:
            extent = self.pair(a.extent, b.extent)
        grain = self.always(a.grain, b.grain, ("grain", a.var)) if a.parallel else self.pair(a.grain, b.grain)
        self.named(a.var, b.var)
        if a.workers is not None:
            self.names[loops.worker(a.var).payload] = loops.worker(b.var).payload
        if a.parallel and a.kind == "serial":
            self.outer |= {a.var, loops.worker(a.var).payload}
        return Loop(a.var, extent, self.body(a.body, b.body), a.kind, a.parallel, grain, a.workers)


def _step(step: Expr) -> int | Expr:
    constant = loops.constant(step)
    return step if constant is None else constant


def _is_open(x: Expr) -> bool:
    return x.fn == "param" and x.payload.startswith(PREFIX)


def _opened(x: Expr) -> str | None:
    """The parameter whose value or bits `x` is."""
    while x.fn in ("cast", "bitcast"):
        x = x.args[0]
    return x.payload if _is_open(x) else None


def _encoded(b: Expr) -> tuple[int, Callable[[Expr], Expr]]:
    """A constant as an int64, and how a kernel gets the constant back from it."""
    dtype, kind = b.dtype, s.kind(b.dtype)
    if dtype == INT64:
        return int(b.payload), lambda p: p
    if kind in "iu" and not (kind == "u" and dtype.itemsize == 8):
        return int(b.payload), lambda p: s.cast(p, dtype)
    if dtype == s.FLOAT32:
        return int(np.asarray(b.payload).view(np.int32)), lambda p: s.bitcast(s.cast(p, INT32), dtype)
    if dtype == s.FLOAT64:
        return int(np.asarray(b.payload).view(np.int64)), lambda p: s.bitcast(p, dtype)
    raise _Different


def _shared_reductions(body: Sequence[Statement]) -> list[Loop]:
    """Vector loops that update an accumulator which another vector loop updates too: with fewer lanes in one of them, the
    partial results would be combined in another order."""
    users: dict[str, list[Loop]] = {}
    for st in loops.walk(body):
        if isinstance(st, Loop) and st.kind == "vector":
            inner = list(loops.walk(st.body))
            own = {x.name for x in inner if isinstance(x, Accumulator)}
            for name in {x.accumulator.name for x in inner if isinstance(x, Update)} - own:
                users.setdefault(name, []).append(st)
    return [st for found in users.values() if len(found) > 1 for st in found]
