"""Lowers loop IR to LLVM IR with explicit vector code.

Statements are emitted in order. The emitter decides what LLVM's vectoriser would have to guess:

* the *lanes* of a vector loop follow from the target's register width and the widest element type in the loop;
* the loop runs in whole vectors (unrolled when the body is light, so that reductions have independent accumulators), and
  the tail under a mask with the same instructions: an element's result never depends on where a loop was split, hence
  not on the number of threads;
* every memory access is classified by its stride along the vector index: 0 (scalar load and broadcast), 1 (vector load
  or store), or other (gather, scatter);
* a parallel loop becomes a function of an iteration range; threads take ranges until all are done (`parallel.py`).

Register allocation, common subexpressions, loop-invariant code motion and instruction selection are left to LLVM.

Note [Fused products]. `a * b + c` becomes one instruction that rounds once, wherever an expression or a sum has that form.
LLVM could decide that (`contract`), but it does not fuse a product that is used elsewhere too, and whether it is depends on
what else has been written out: the same expression would have other bits in a kernel for constant sizes than in one for
many sizes.

Note [One lane]. On x86, LLVM turns a masked store with exactly one known active lane into a scalar store, but uses the
width of the value before truncation: a one-element bfloat16 tail is written as four bytes, over its neighbour or past the
end. So such tails are emitted as scalar stores here, and counts that LLVM could infer are hidden from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ...compiler.loop_ir import ir as loops
from ...compiler.loop_ir.ir import (
    SQUARE,
    Accumulator,
    Buffer,
    Kernel,
    Let,
    Local,
    Loop,
    Prefetch,
    Statement,
    Store,
    Transpose,
    Update,
)
from ...compiler.target import Target
from ...ops.core import scalar as s
from ...ops.core.scalar import Expr
from . import instructions, mathlib, parallel, reductions
from .ir import FunctionBuilder, Module, Value, is_literal, literal, mangle, memory_type
from .schedule import Schedule, reduces, schedule_loop

ZERO = Value("0", "i64")


class _Lanes(NamedTuple):
    """The vector loop being emitted: lane 0 is at index `base`; `mask` selects the active lanes (None: all)."""

    var: str
    width: int
    base: Value
    mask: Value | None
    copy: int


class KernelEmitter:
    """Emits the statements of one function (the kernel's body, or the body of a parallel loop)."""

    def __init__(self, kernel: Kernel, target: Target, module: Module, function: FunctionBuilder) -> None:
        self.kernel = kernel
        self.target = target
        self.module = module
        self.f = function
        self.memo: dict[Expr, Value] = {}
        self.base_memo: dict[Expr, Value] = {}
        self.reads: dict[Expr, frozenset[object]] = {}
        self.named: dict[Expr, frozenset[str]] = {}
        self.pointers: dict[Buffer, Value] = {}
        self.locals: dict[Buffer, Buffer] = {}  # local buffers, with their rows padded to whole vectors
        self.names: dict[str, Value] = {}  # params, loop variables and lets
        self.accumulators: dict[str, reductions.State] = {}
        self.lanes: _Lanes | None = None
        self.schedules: dict[Loop, Schedule] = {}
        self.strides: dict[tuple[Expr, str], Expr | None] = {}
        self.offsets: dict[tuple[Buffer, tuple[Expr, ...]], Expr] = {}
        self.streaming = False  # whether streaming stores are emitted as non-temporal
        self.streamed = False

    # ------------------------------------------------------------------------------------------ expressions

    def value(self, expr: Expr) -> Value:
        """Emit an expression, reusing values already emitted. Iterative: long chains do not exhaust the stack."""
        memo = self.memo
        if expr in memo:
            return memo[expr]
        stack = [expr]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            needed = () if node.fn == "load" else (node.args[0], node.args[2]) if node.fn == "rarely" else node.args
            missing = [x for x in needed if x not in memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            result = self.node(node)
            self.reads[node] = self.sources(node)
            memo = self.memo
            memo[node] = result
        return memo[expr]

    def evaluate(self, expr: Expr, leaves: dict[Expr, Value]) -> Value:
        """Emit an expression of these leaves alone, outside the memo: the same leaves mean other values elsewhere."""
        kept = self.memo, self.base_memo
        self.memo, self.base_memo = dict(leaves), {}
        try:
            return self.value(expr)
        finally:
            self.memo, self.base_memo = kept

    def sources(self, node: Expr) -> frozenset[object]:
        """Buffers and accumulators a value depends on: it is recomputed once one of them changes."""
        known = self.reads.get(node)
        if known is None:
            own: frozenset[object] = frozenset((node.payload,)) if node.fn in ("load", "var") else frozenset()
            known = self.reads[node] = own.union(*(self.sources(x) for x in node.args)) if node.args else own
        return known

    def forget(self, *changed: object) -> None:
        """Drop values that read one of these buffers or accumulators."""
        gone = set(changed)
        if gone:
            reads = self.reads
            self.memo = {e: v for e, v in self.memo.items() if gone.isdisjoint(reads[e])}
            self.base_memo = {e: v for e, v in self.base_memo.items() if gone.isdisjoint(reads[e])}

    def node(self, e: Expr) -> Value:
        f = self.f
        match e.fn:
            case "const":
                return instructions.constant(f, e)
            case "param":
                return self.names[e.payload]
            case "index":
                if self.lanes is not None and e.payload == self.lanes.var:
                    first = f.splat(self.lanes.base, self.lanes.width)
                    return f.binary("add", first, f.iota("i64", self.lanes.width)) if first.lanes > 1 else first
                return self.names[e.payload]
            case "var":
                return self.variable(e.payload)
            case "load":
                return self.load(e)
            case "rarely":
                return self.rarely(e)
        lowered = mathlib.lower(e)
        if lowered is None:
            lowered = self.fused(e)
        if lowered is not None:
            return self.value(lowered)
        operands = [self.memo[x] for x in e.args]
        lanes = max(v.lanes for v in operands)
        operands = [f.splat(v, lanes) for v in operands]
        if e.fn == "library":
            return instructions.library_call(f, e.payload, operands)
        if e.fn == "scale":
            scaled = instructions.scale(f, self.target, operands)
            return scaled if scaled is not None else self.value(mathlib.scale_in_steps(e.args[0], e.args[1]))
        return instructions.EMITTERS[e.fn](f, e, operands)

    def fused(self, e: Expr) -> Expr | None:
        """A sum or difference with a product as one expression, Note [Fused products]; None if it has none."""
        if e.fn not in ("add", "sub") or s.kind(e.dtype) != "f" or not self.target.fma:
            return None
        (x, y), minus = e.args, e.fn == "sub"
        if (factors := product_of(x)) is not None:
            return s.make("fma", (*factors, s.make("neg", (y,), y.dtype) if minus else y), e.dtype)
        if (factors := product_of(y)) is not None:
            a, b = factors
            return s.make("fma", (s.make("neg", (a,), a.dtype) if minus else a, b, x), e.dtype)
        return None

    def variable(self, name: str) -> Value:
        if name in self.names:
            return self.names[name]
        owner = name.removesuffix(".index")
        value, index = self.accumulators[owner].read(self.f)
        if owner != name:
            assert index is not None
            return index
        return value

    def differs(self, name: str) -> bool:
        """Whether a named value differs between lanes."""
        if name in self.names:
            return self.names[name].lanes > 1
        return self.accumulators[name.removesuffix(".index")].lanes > 1

    def rarely(self, e: Expr) -> Value:
        """`where(condition, slow, fast)` with a branch around `slow` when no lane needs it."""
        f = self.f
        condition, fast = self.memo[e.args[0]], self.memo[e.args[2]]
        lanes = max(condition.lanes, fast.lanes)
        fast = f.splat(fast, lanes)
        before = f.block
        slow, done = f.label("slow"), f.label("common")
        f.branch(f.any_lane(condition), slow, done)
        f.start(slow)
        kept = self.memo, self.base_memo
        self.memo, self.base_memo = dict(self.memo), dict(self.base_memo)
        other = f.splat(self.value(e.args[1]), lanes)
        merged = f.select(f.splat(condition, lanes), other, fast)
        self.memo, self.base_memo = kept
        last = f.block
        f.jump(done)
        f.start(done)
        return f.op(f"phi {fast.full} [ {fast.ref}, %{before} ], [ {merged.ref}, %{last} ]", fast.type, lanes)

    # ----------------------------------------------------------------------------------------------- memory

    def stride(self, offset: Expr) -> Expr | None:
        """The stride of an address along the vector index; None if it is not constant."""
        assert self.lanes is not None
        key = (offset, self.lanes.var)
        if key not in self.strides:
            uneven = any(node.fn == "var" and self.differs(node.payload) for node in s.topological([offset]))
            self.strides[key] = None if uneven else loops.coefficient(offset, self.lanes.var)
        return self.strides[key]

    def base(self, expr: Expr) -> Value:
        """A scalar: the expression at lane 0 of the vector loop."""
        lanes = self.lanes
        if lanes is None:
            return self.value(expr)
        kept, self.memo = self.memo, self.base_memo
        self.names[lanes.var] = lanes.base
        self.lanes = None
        try:
            return self.value(expr)
        finally:
            self.base_memo, self.memo, self.lanes = self.memo, kept, lanes
            del self.names[lanes.var]

    def offset(self, buffer: Buffer, indices: Sequence[Expr]) -> Expr:
        key = (buffer, tuple(indices))
        if key not in self.offsets:
            self.offsets[key] = self.locals.get(buffer, buffer).offset(indices)
        return self.offsets[key]

    def mask_for(self, buffer: Buffer, indices: Sequence[Expr]) -> Value | None:
        """The loop's mask, or None for an access to a row of local memory, which is padded for all lanes.

        Without masks LLVM keeps the buffer in registers.
        """
        assert self.lanes is not None
        if buffer in self.locals and indices[-1] is s.index(self.lanes.var):
            return None
        return self.lanes.mask

    def address(self, buffer: Buffer, offset: Value) -> Value:
        pointer = self.pointers[buffer]
        if offset.lanes == 1 and offset.ref == "0":
            return pointer
        element = memory_type(buffer.dtype)
        return self.f.op(f"getelementptr {element}, ptr {pointer.ref}, {offset}", "ptr", offset.lanes)

    def load(self, e: Expr) -> Value:
        f, lanes = self.f, self.lanes
        buffer: Buffer = e.payload
        offset = self.offset(buffer, e.args)
        t, align = memory_type(buffer.dtype), 1  # views may lie anywhere; costs nothing on CPUs of today
        step = loops.as_index(0) if lanes is None else self.stride(offset)
        constant = loops.constant(step) if step is not None else None
        if lanes is None or lanes.width == 1 or constant == 0:
            return instructions.from_memory(
                f, f.load(self.address(buffer, self.base(offset)), t, 1, align), buffer.dtype
            )
        if constant == 1:
            pointer = self.address(buffer, self.base(offset))
            mask = self.mask_for(buffer, e.args)
            if mask is None:
                loaded = f.load(pointer, t, lanes.width, align)
                if lanes.mask is not None:  # lanes past the end of a local row are undefined
                    loaded = f.op(f"freeze {loaded}", t, lanes.width)
            else:
                name = f"llvm.masked.load.{mangle(t, lanes.width)}.p0"
                rest = Value("zeroinitializer", t, lanes.width)
                loaded = f.call(name, t, lanes.width, pointer, literal("i32", align), mask, rest)
        else:
            pointers = self.address(buffer, f.splat(self.value(offset), lanes.width))
            name = f"llvm.masked.gather.{mangle(t, lanes.width)}.{mangle('ptr', lanes.width)}"
            mask = lanes.mask or f.const("i1", 1, lanes.width)
            rest = Value("zeroinitializer", t, lanes.width)
            loaded = f.call(name, t, lanes.width, pointers, literal("i32", align), mask, rest)
        return instructions.from_memory(f, loaded, buffer.dtype)

    def store(self, statement: Store) -> None:
        f, lanes, buffer = self.f, self.lanes, statement.buffer
        value = statement.value
        # Storing rounds; a rounding cast just before it would do the same work twice.
        if (
            value.fn == "cast"
            and value.dtype.itemsize == 2
            and s.kind(value.dtype) == "f"
            and value.args[0].dtype == s.FLOAT32
        ):
            value = value.args[0]
        computed = self.value(value)
        offset = self.offset(buffer, statement.indices)
        t, align = memory_type(buffer.dtype), 1  # views may lie anywhere; costs nothing on CPUs of today
        if lanes is None or lanes.width == 1:
            place = self.address(buffer, self.base(offset))
            f.store(instructions.to_memory(f, computed, buffer.dtype), place, align)
        else:
            stored = f.splat(instructions.to_memory(f, computed, buffer.dtype), lanes.width)
            step = self.stride(offset)
            if step is not None and loops.constant(step) == 1:
                pointer = self.address(buffer, self.base(offset))
                mask = self.mask_for(buffer, statement.indices)
                if mask is None and statement.streaming and self.streaming:
                    f.do(f"store {stored}, ptr {pointer.ref}, align {self.target.vector_bytes}, !nontemporal !0")
                elif mask is None:
                    f.store(stored, pointer, align)
                elif mask.ref.count("i1 true") == 1:  # a constant one, Note [One lane]
                    f.store(f.op(f"extractelement {stored}, i64 0", t), pointer, align)
                else:
                    name = f"llvm.masked.store.{mangle(t, lanes.width)}.p0"
                    f.call_void(name, stored, pointer, literal("i32", align), mask)
            else:
                pointers = self.address(buffer, f.splat(self.value(offset), lanes.width))
                name = f"llvm.masked.scatter.{mangle(t, lanes.width)}.{mangle('ptr', lanes.width)}"
                mask = lanes.mask or f.const("i1", 1, lanes.width)
                f.call_void(name, stored, pointers, literal("i32", align), mask)
        self.forget(buffer)

    # ------------------------------------------------------------------------------------------- statements

    def body(self, statements: Sequence[Statement]) -> None:
        for position, statement in enumerate(statements):
            match statement:
                case Store():
                    self.store(statement)
                case Let(name, value):
                    self.names[name] = self.value(value)
                    self.memo[statement.var] = self.names[name]
                    self.reads[statement.var] = frozenset()  # a let keeps its value
                case Accumulator():
                    self.declare(statement, statements[position + 1 :])
                case Update():
                    self.update(statement)
                case Local(buffer):
                    self.local(buffer)
                case Prefetch():
                    self.prefetch(statement)
                case Transpose():
                    self.transpose(statement)
                case Loop():
                    self.loop(statement)

    def prefetch(self, statement: Prefetch) -> None:
        place = self.address(statement.buffer, self.value(self.offset(statement.buffer, statement.indices)))
        most_local, data = literal("i32", 3), literal("i32", 1)
        self.f.call_void("llvm.prefetch.p0", place, literal("i32", int(statement.write)), most_local, data)

    def transpose(self, statement: Transpose) -> None:
        """Transpose in registers, in parts whose rows are vectors of the target."""
        size = min(SQUARE, self.target.vector_bytes // statement.source.dtype.itemsize)
        f, kind = self.f, memory_type(statement.source.dtype)
        source = self.value(self.offset(statement.source, statement.source_at))
        target = self.value(self.offset(statement.target, statement.target_at))

        def places(buffer: Buffer, first: Value, step: loops.Dim, row: int, column: int) -> list[Value]:
            if isinstance(step, int):
                rows = [literal("i64", (row + i) * step + column) for i in range(size)]
            else:
                each, beside = self.value(step), literal("i64", column)
                rows = [f.binary("add", f.binary("mul", each, literal("i64", row + i)), beside) for i in range(size)]
            return [self.address(buffer, f.binary("add", first, r)) for r in rows]

        parts = [(row, column) for row in range(0, SQUARE, size) for column in range(0, SQUARE, size)]
        loaded = [
            [f.load(p, kind, size, 1) for p in places(statement.source, source, statement.source_step, row, column)]
            for row, column in parts
        ]  # all loads precede all stores
        for (row, column), held in zip(parts, loaded, strict=True):
            made = self.transposed(held)
            for value, place in zip(
                made, places(statement.target, target, statement.target_step, column, row), strict=True
            ):
                f.store(value, place, 1)
        self.forget(statement.target)

    def transposed(self, rows: list[Value]) -> list[Value]:
        """A square of vectors transposed: halves, quarters, … of pairs of rows are swapped in log2(n) rounds of shuffles."""
        held, size = list(rows), len(rows)
        lanes, half = range(size), size // 2
        while half:
            upper = [size + n - half if n & half else n for n in lanes]
            lower = [size + n if n & half else n + half for n in lanes]
            for i in lanes:
                if not i & half:
                    pair = held[i], held[i + half]
                    held[i], held[i + half] = self.f.shuffle(*pair, upper), self.f.shuffle(*pair, lower)
            half //= 2
        return held

    def local(self, buffer: Buffer) -> None:
        """Stack memory; each row is padded so that a vector may run past its end."""
        sizes = [loops.constant(dim) or 0 for dim in buffer.shape]
        lanes = max(1, self.target.vector_bytes // buffer.dtype.itemsize)
        if s.kind(buffer.dtype) in "iu" and buffer.dtype.itemsize == 8:
            lanes = self.target.vector_bytes  # 64-bit indices use the lane count of the loop's data
        if sizes:
            sizes[-1] = -(-max(sizes[-1], 1) // lanes) * lanes
        self.locals[buffer] = Buffer.of(buffer.name, buffer.dtype, sizes)
        self.pointers[buffer] = self.f.slot(memory_type(buffer.dtype), 1, max(prod(sizes), 1))

    def declare(self, a: Accumulator, following: Sequence[Statement]) -> None:
        lanes = self.lanes.width if self.lanes else 1
        state = reductions.State(a, lanes, self.f, self.evaluate)
        if self.lanes is None:
            for statement in loops.walk(following):
                if isinstance(statement, Loop) and statement.kind == "vector":
                    inner = loops.walk(statement.body)
                    if any(isinstance(x, Update) and x.accumulator == a for x in inner):
                        schedule = self.schedule(statement)
                        extent = loops.constant(statement.extent) if schedule.static else None
                        used = schedule.unroll if extent is None else -(-max(extent, 1) // schedule.lanes)
                        state.prepare(self.f, schedule.lanes, min(used, schedule.unroll), schedule.unroll)
        state.reset(self.f)
        self.accumulators[a.name] = state
        self.forget(a.name, a.name + ".index")

    def update(self, statement: Update) -> None:
        state = self.accumulators[statement.accumulator.name]
        factors = product_of(statement.value) if state.sums and self.target.fma else None
        value = self.value(statement.value if factors is None else factors[0])
        factor = None if factors is None else self.value(factors[1])
        index = None if statement.index is None else self.value(statement.index)
        lanes = self.lanes
        if lanes is None:
            state.update(self.f, 1, 0, value, index, None, factor)
        else:
            state.update(self.f, lanes.width, lanes.copy, value, index, lanes.mask, factor)
        name = statement.accumulator.name
        self.forget(name, name + ".index")

    def schedule(self, statement: Loop) -> Schedule:
        if statement not in self.schedules:
            self.schedules[statement] = schedule_loop(statement, self.target)
        return self.schedules[statement]

    # ------------------------------------------------------------------------------------------------ loops

    def changed_in(self, statement: Loop) -> set[object]:
        changed: set[object] = set()
        for inner in loops.walk(statement.body):
            if isinstance(inner, Store):
                changed.add(inner.buffer)
            elif isinstance(inner, Transpose):
                changed.add(inner.target)
            elif isinstance(inner, (Update, Accumulator)):
                name = inner.accumulator.name if isinstance(inner, Update) else inner.name
                changed |= {name, name + ".index"}
        return changed

    def loop(self, statement: Loop) -> None:
        if statement.parallel:
            parallel.emit(self, statement)
            return
        extent = self.value(statement.extent)
        changed = self.changed_in(statement)
        self.forget(*changed)
        self.hoist(statement, changed)
        outer = self.memo, self.base_memo, dict(self.names)
        self.range(statement, ZERO, extent)
        written_out = statement.kind == "vector" and self.schedule(statement).static and is_literal(extent)
        survivors = self.memo if written_out else outer[0]
        self.memo, self.base_memo, self.names = survivors, outer[1], outer[2]
        self.forget(*changed)

    def hoist(self, statement: Loop, changed: set[object]) -> None:
        """Read finished accumulators before the loop, not in every iteration."""
        if not self.accumulators:
            return
        for inner in loops.walk([statement]):
            for expr in loops.expressions(inner):
                for node in s.topological([expr]):
                    if node.fn == "var" and node.payload not in changed and node.payload not in self.names:
                        owner = node.payload.removesuffix(".index")
                        if owner in self.accumulators:
                            self.value(node)

    def inside(self) -> None:
        """Values computed in a block that may not run must not be used after it."""
        self.memo, self.base_memo = dict(self.memo), dict(self.base_memo)

    def range(self, statement: Loop, start: Value, end: Value) -> None:
        """Emit the loop's iterations from `start` to `end`."""
        if statement.kind == "vector":
            self.vector_range(statement, start, end)
        elif statement.kind == "unroll":
            count = loops.constant(statement.extent) or 0
            for i in range(count):
                self.iteration(statement, literal("i64", i))
        else:
            self.counted(statement.var, start, end, 1, lambda i: self.iteration(statement, i))

    def iteration(self, statement: Loop, i: Value) -> None:
        outer_names = dict(self.names)
        kept = self.memo, self.base_memo
        self.inside()
        self.names[statement.var] = i
        self.body(statement.body)
        self.names = outer_names
        survivors = self.memo, self.base_memo
        if statement.kind == "unroll":
            self.memo, self.base_memo = (
                self.still_valid(statement, m, k) for m, k in zip(survivors, kept, strict=True)
            )
        else:
            self.memo, self.base_memo = kept

    def still_valid(self, statement: Loop, known: dict[Expr, Value], before: dict[Expr, Value]) -> dict[Expr, Value]:
        """Iterations of an unrolled loop share values that do not depend on the loop's own names."""
        own = {statement.var} | {x.name for x in loops.walk(statement.body) if isinstance(x, (Let, Accumulator))}
        return {e: v for e, v in known.items() if e in before or own.isdisjoint(self.named_in(e))}

    def named_in(self, expr: Expr) -> frozenset[str]:
        """The loop variables, lets and accumulators that an expression names. Iterative, like `value`."""
        named = self.named
        if expr not in named:
            for node in s.topological([expr]):
                own = frozenset((node.payload,)) if node.fn in ("index", "var") else frozenset()
                named[node] = own.union(*[named[x] for x in node.args])
        return named[expr]

    def counted(self, hint: str, start: Value, end: Value, step: int, emit: Callable[[Value], None]) -> None:
        """`for i in range(start, end, step)`: emits a loop whose body `emit(i)` writes."""
        f = self.f
        head, done = f.label(f"loop.{hint}."), f.label(f"done.{hint}.")
        before = f.block
        f.branch(f.compare("slt", start, end), head, done)
        f.start(head)
        i = Value(f.fresh("i"), "i64")
        place = len(f.lines)
        f.lines.append("")
        emit(i)
        following = f.op(f"add nuw nsw {i}, {step}", "i64")
        f.branch(f.compare("slt", following, end), head, done)
        f.lines[place] = f"  {i.ref} = phi i64 [ {start.ref}, %{before} ], [ {following.ref}, %{f.block} ]"
        f.start(done)

    def vector_range(self, statement: Loop, start: Value, end: Value) -> None:
        f = self.f
        schedule = self.schedule(statement)
        lanes = schedule.lanes
        if schedule.static and is_literal(start) and is_literal(end):
            count = int(end.ref) - int(start.ref)
            for copy, base in enumerate(range(int(start.ref), int(end.ref), lanes)):
                left = count - copy * lanes
                mask = None
                if left < lanes:
                    bits = ", ".join(f"i1 {'true' if lane < left else 'false'}" for lane in range(lanes))
                    mask = Value(f"<{bits}>", "i1", lanes)
                self.vector_iteration(statement, literal("i64", base), mask, copy % schedule.unroll)
            return
        step = lanes * schedule.unroll
        whole = f.binary("and", f.binary("sub", end, start), literal("i64", -step))
        middle = f.binary("add", start, whole)

        def main(i: Value) -> None:
            for copy in range(schedule.unroll):
                base = f.binary("add", i, literal("i64", copy * lanes))
                self.vector_iteration(statement, base, None, copy)

        def rest(i: Value, copy: int = 0) -> None:
            left = f.binary("sub", end, i)
            limit = literal("i64", lanes)
            left = f.select(f.compare("slt", left, limit), left, limit)
            if self.target.triple.startswith(("x86", "i386", "i686")):  # Note [One lane]
                left = f.op(f'call i64 asm "", "=r,0"({left})', "i64")
            narrow = "i32" if lanes <= 16 else "i8"
            count = f.splat(f.convert("trunc", left, narrow), lanes)
            mask = f.compare("ult", f.iota(narrow, lanes), count) if lanes > 1 else None
            self.vector_iteration(statement, i, mask, copy)

        if schedule.masked_only:
            self.counted(statement.var, start, end, lanes, rest)
            return
        aligned = self.streams(statement, start, lanes)
        if aligned is None:
            self.counted(statement.var, start, middle, step, main)
        else:
            past, usual, done = f.label("streaming"), f.label("usual"), f.label("joined")
            f.branch(aligned, past, usual)
            f.start(past)
            self.streaming = True
            self.counted(statement.var, start, middle, step, main)
            self.streaming = False
            self.streamed = True
            f.jump(done)
            f.start(usual)
            self.counted(statement.var, start, middle, step, main)
            f.jump(done)
            f.start(done)
        if schedule.unroll == 1 or not reduces(statement):
            self.counted(f"{statement.var}.rest", middle, end, lanes, rest)
            return
        done = f.label("reduced")  # each vector of the rest has its own partial result, Note [Order of a reduction]
        for copy in range(schedule.unroll):
            first = f.binary("add", middle, literal("i64", copy * lanes))
            here = f.label("rest")
            f.branch(f.compare("slt", first, end), here, done)
            f.start(here)
            rest(first, copy)
        f.jump(done)
        f.start(done)

    def streams(self, statement: Loop, start: Value, lanes: int) -> Value | None:
        """Whether the loop's streaming stores write whole, aligned vectors (a run-time test); None: it has none."""
        f = self.f
        misaligned: Value | None = None
        for store in statement.body:
            if not isinstance(store, Store) or not store.streaming:
                continue
            if store.buffer.dtype.itemsize * lanes != self.target.vector_bytes:
                return None
            self.lanes = _Lanes(statement.var, lanes, start, None, 0)
            offset = self.offset(store.buffer, store.indices)
            step = self.stride(offset)
            if step is None or loops.constant(step) != 1:
                self.lanes = None
                return None
            kept = self.base_memo
            self.base_memo = dict(self.memo)
            pointer = self.address(store.buffer, self.base(offset))
            self.base_memo, self.lanes = kept, None
            low = f.binary("and", f.convert("ptrtoint", pointer, "i64"), literal("i64", self.target.vector_bytes - 1))
            misaligned = low if misaligned is None else f.binary("or", misaligned, low)
        return None if misaligned is None else f.compare("eq", misaligned, ZERO)

    def finish(self) -> None:
        """End the function. Streaming stores are weakly ordered: other threads must see them when it returns."""
        if self.streamed:
            self.f.do("fence seq_cst")
        self.f.do("ret void")

    def vector_iteration(self, statement: Loop, base: Value, mask: Value | None, copy: int) -> None:
        outer = self.memo, self.base_memo, dict(self.names)
        self.memo = dict(self.memo)
        self.base_memo = dict(self.memo)  # outside values are scalars, the same in both functions
        self.lanes = _Lanes(statement.var, self.schedule(statement).lanes, base, mask, copy)
        self.body(statement.body)
        self.lanes = None
        scalars = self.base_memo
        self.memo, self.base_memo, self.names = outer
        if is_literal(base):
            self.memo = self.still_valid(statement, scalars, self.memo)


def product_of(e: Expr) -> tuple[Expr, Expr] | None:
    """The factors of a floating-point product."""
    if s.kind(e.dtype) != "f":
        return None
    return (e.args[0], e.args[1]) if e.fn == "mul" else (e.args[0], e.args[0]) if e.fn == "square" else None


def emit_kernel(kernel: Kernel, target: Target, entry: str, object_data_offset: int | None = None) -> str:
    """LLVM IR of a module that exports `entry(buffers..., params...)`.

    With `object_data_offset`, also `entry.objects`, which takes array *objects* in place of data pointers and
    reads each pointer at that offset of the object: the eager path saves the look-up in Python.
    """
    module = Module(target.triple, target.vector_bytes, target.fma)
    args = [Value(f"%b.{b.name}", "ptr") for b in kernel.buffers] + [Value(f"%p.{p}", "i64") for p in kernel.params]
    function = FunctionBuilder(module, f'"{entry}"', args)
    emitter = KernelEmitter(kernel, target, module, function)
    for buffer, value in zip(kernel.buffers, args, strict=False):
        emitter.pointers[buffer] = value
    for name, value in zip(kernel.params, args[len(kernel.buffers) :], strict=True):
        emitter.names[name] = value
    emitter.body(kernel.body)
    emitter.finish()
    module.functions.append(function)
    if object_data_offset is not None:
        thunk = FunctionBuilder(module, f'"{entry}.objects"', args)
        passed = []
        for value in args:
            if value.type == "ptr":
                field = thunk.op(f"getelementptr i8, ptr {value.ref}, i64 {object_data_offset}", "ptr")
                value = thunk.load(field, "ptr", 1, 8)
            passed.append(str(value))
        thunk.do(f'call void @"{entry}"({", ".join(passed)})')
        thunk.do("ret void")
        module.functions.append(thunk)
    return module.text()
