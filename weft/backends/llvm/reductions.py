"""Accumulators in LLVM IR: partial results, and the fixed tree that combines them."""

from __future__ import annotations

from collections.abc import Callable

from ...compiler.loop_ir.ir import Accumulator
from ...ops.core import scalar as s
from ...ops.core.reductions import MAX, SUM
from ...ops.core.scalar import Expr
from .ir import FunctionBuilder, Value, compute_type

_LAST = 2**63 - 1


Evaluate = Callable[[Expr, dict[Expr, Value]], Value]
"""Emits an expression whose leaves have these values."""


Partial = tuple[Value, Value | None] | None
"""A partial result and, for argmax and argmin, its position; None if no element was added to it."""


class State:
    """The storage of an accumulator: one slot of its lane count, and one per unrolled vector of the reducing loop.

    Slots are stack memory in the entry block; LLVM turns them into registers.
    """

    def __init__(self, a: Accumulator, lanes: int, f: FunctionBuilder, evaluate: Evaluate) -> None:
        self.a = a
        self.evaluate = evaluate
        self.operands = s.arg(0, a.dtype), s.arg(1, a.dtype)
        self.combined = s.cast(a.reduction.combine(*self.operands), a.dtype)
        self.sums = a.reduction is SUM and s.kind(a.dtype) == "f"  # a product is added without rounding it first
        self.type = compute_type(a.dtype)
        self.lanes = lanes
        self.pairs = a.indexed
        self.slots: dict[tuple[int, int], tuple[Value, Value | None]] = {}
        self.orders: dict[int, int] = {}  # by lanes: how many partial results the tree combines
        self.prepare(f, lanes, 1, 1)

    def prepare(self, f: FunctionBuilder, lanes: int, copies: int, order: int) -> None:
        """Make slots for the first `copies` of `order` independent partial results of `lanes` lanes each."""
        self.orders[lanes] = max(order, self.orders.get(lanes, 1))
        for copy in range(copies):
            if (lanes, copy) not in self.slots:
                index = f.slot("i64", lanes) if self.pairs else None
                self.slots[lanes, copy] = (f.slot(self.type, lanes), index)

    def reset(self, f: FunctionBuilder) -> None:
        for (lanes, _), (slot, index) in self.slots.items():
            f.store(f.const(self.type, self.a.reduction.identity_of(self.a.dtype), lanes), slot)
            if index is not None:
                f.store(f.const("i64", _LAST, lanes), index)

    def _get(self, f: FunctionBuilder, lanes: int, copy: int) -> tuple[Value, Value | None]:
        slot, index = self.slots[lanes, copy]
        return f.load(slot, self.type, lanes), None if index is None else f.load(index, "i64", lanes)

    def update(
        self,
        f: FunctionBuilder,
        lanes: int,
        copy: int,
        value: Value,
        index: Value | None,
        mask: Value | None,
        factor: Value | None = None,
    ) -> None:
        """Combine a value, or its product with `factor` into a sum, into the partial result of this lane count; masked-off
        lanes keep what they had."""
        key = (lanes, copy) if (lanes, copy) in self.slots else (lanes, 0)
        old, old_index = self._get(f, *key)
        new_index = None
        if factor is not None:
            a, b = f.splat(value, lanes), f.splat(factor, lanes)
            terms = (*self.operands, s.arg(2, self.a.dtype))
            fused = s.fma(terms[1], terms[2], terms[0])
            new = self.evaluate(fused, dict(zip(terms, (old, a, b), strict=True)))
        else:
            index = None if index is None else f.splat(index, lanes)
            new, new_index = self.combine(f, old, old_index, f.splat(value, lanes), index)
        # Per-lane accumulators (declared inside the vector loop) need no mask: inactive lanes are never read.
        if mask is not None and self.lanes == 1:
            new = f.select(mask, new, old)
            new_index = None if new_index is None or old_index is None else f.select(mask, new_index, old_index)
        slot, index_slot = self.slots[key]
        f.store(new, slot)
        if index_slot is not None and new_index is not None:
            f.store(new_index, index_slot)

    def read(self, f: FunctionBuilder) -> tuple[Value, Value | None]:
        """All partial results combined, in a fixed order."""
        result, index = self._get(f, self.lanes, 0)
        widths = sorted({lanes for lanes, _ in self.slots})
        for lanes in widths:
            parts = [
                None if (lanes, c) == (self.lanes, 0) or (lanes, c) not in self.slots else self._get(f, lanes, c)
                for c in range(self.orders[lanes])
            ]  # those that stay the identity are left out: that changes no bit
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [self._joined(f, parts[i], parts[i + half]) for i in range(half)] + parts[2 * half :]
            part = parts[0]
            if part is None:
                continue
            if lanes != self.lanes:
                part = self.join_lanes(f, *part)
            result, index = self.combine(f, result, index, *part)
        return result, index

    def _joined(self, f: FunctionBuilder, a: Partial, b: Partial) -> Partial:
        return a if b is None else b if a is None else self.combine(f, *a, *b)

    def join_lanes(self, f: FunctionBuilder, value: Value, index: Value | None) -> tuple[Value, Value | None]:
        """Reduce a vector to a scalar by halves."""
        lanes = value.lanes

        def half(v: Value, first: int, count: int) -> Value:
            mask = ", ".join(f"i32 {first + i}" for i in range(count))
            return f.op(f"shufflevector {v}, {v.full} poison, <{count} x i32> <{mask}>", v.type, count)

        while lanes > 1:
            lanes //= 2
            if lanes == 1:
                pick = [f.op(f"extractelement {value}, i64 {i}", value.type) for i in (0, 1)]
                where = [None if index is None else f.op(f"extractelement {index}, i64 {i}", "i64") for i in (0, 1)]
                value, index = self.combine(f, pick[0], where[0], pick[1], where[1])
            else:
                low, high = half(value, 0, lanes), half(value, lanes, lanes)
                low_index = None if index is None else half(index, 0, lanes)
                high_index = None if index is None else half(index, lanes, lanes)
                value, index = self.combine(f, low, low_index, high, high_index)
        return value, index

    def combine(
        self, f: FunctionBuilder, a: Value, a_index: Value | None, b: Value, b_index: Value | None
    ) -> tuple[Value, Value | None]:
        if a_index is None or b_index is None:
            return self.evaluate(self.combined, dict(zip(self.operands, (a, b), strict=True))), None
        better = self._better(f, s.kind(self.a.dtype), self.a.reduction is MAX, a, a_index, b, b_index)
        return f.select(better, b, a), f.select(better, b_index, a_index)

    def _better(
        self, f: FunctionBuilder, kind: str, greatest: bool, a: Value, a_index: Value, b: Value, b_index: Value
    ) -> Value:
        """Whether b replaces a: more extreme, or equal and earlier; nan replaces numbers, the earlier nan the later."""
        earlier = f.compare("slt", b_index, a_index)
        prefix = "o" if kind == "f" else "s" if kind == "i" else "u"
        beats = f.compare(prefix + ("gt" if greatest else "lt"), b, a)
        same = f.compare("oeq" if kind == "f" else "eq", b, a)
        result = f.binary("or", beats, f.binary("and", same, earlier))
        if kind != "f":
            return result
        a_nan, b_nan = f.compare("uno", a, a), f.compare("uno", b, b)
        number = f.binary("xor", a_nan, f.const("i1", 1, a.lanes))
        return f.binary("or", result, f.binary("and", b_nan, f.binary("or", number, earlier)))
