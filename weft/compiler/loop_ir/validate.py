"""Structural checks of loop IR: every rule of `weft.compiler.loop_ir.ir` that can be checked without running."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.core import reductions
from ...ops.core import scalar as s
from ...ops.core.scalar import INT64, Expr
from . import ir as loops
from .ir import Accumulator, Buffer, Kernel, Let, Local, Loop, Prefetch, Statement, Store, Transpose, Update


class _Scope:
    """The names visible at a point of the kernel."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.outer = outer
        self.indices: set[str] = set(outer.indices) if outer else set()
        self.vars: dict[str, Expr] = dict(outer.vars) if outer else {}
        self.buffers: set[Buffer] = set(outer.buffers) if outer else set()
        self.accumulators: dict[str, tuple[Accumulator, _Scope]] = dict(outer.accumulators) if outer else {}
        self.vector: str | None = outer.vector if outer else None
        self.varying: set[str] = set(outer.varying) if outer else set()  # names that differ between lanes
        self.parallel_root: bool = False

    def inside(self, other: _Scope) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope is other:
                return True
            scope = scope.outer
        return False


class _Line:
    """The first line of a statement, formatted lazily for messages."""

    __slots__ = ("statement",)

    def __init__(self, statement: Statement) -> None:
        self.statement = statement

    def __str__(self) -> str:
        return loops.format_kernel(Kernel("k", (), (), (self.statement,))).splitlines()[1].strip()


class _Validator:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names: set[str] = set()

    def fail(self, where: object, problem: str) -> None:
        raise ValueError(f"kernel {self.kernel.name}: {problem}. Got {where}.")

    def define(self, name: str, where: object) -> None:
        if name in self.names:
            self.fail(where, f"the name {name!r} is defined twice")
        self.names.add(name)

    def run(self) -> None:
        scope = _Scope()
        for buffer in self.kernel.buffers:
            self.define(buffer.name, buffer.name)
            scope.buffers.add(buffer)
        for name in self.kernel.params:
            self.define(name, name)
        for buffer in self.kernel.buffers:
            self.check_buffer(buffer, scope)
        self.body(self.kernel.body, scope, top=True)

    def check_buffer(self, buffer: Buffer, scope: _Scope) -> None:
        if len(buffer.shape) != len(buffer.strides):
            self.fail(buffer.name, "a buffer has one stride per dimension")
        for dim in (*buffer.shape, *buffer.strides):
            self.expr(dim, scope, buffer.name, integer=True, uniform=True)

    def varies(self, expr: Expr, scope: _Scope) -> bool:
        return any(
            (node.fn == "index" and node.payload == scope.vector)
            or (node.fn == "var" and node.payload in scope.varying)
            for node in s.topological([expr])
        )

    def expr(self, expr: Expr, scope: _Scope, where: object, integer: bool = False, uniform: bool = False) -> None:
        for node in s.topological([expr]):
            name = node.payload
            if node.fn == "arg":
                self.fail(where, f"the argument x{name} was not replaced by a load or a value")
            elif node.fn == "index" and name not in scope.indices:
                self.fail(where, f"the loop variable {name!r} is not in scope")
            elif node.fn == "param" and name not in self.kernel.params:
                self.fail(where, f"the parameter {name!r} is not declared")
            elif node.fn == "var" and (name not in scope.vars or scope.vars[name] is not node):
                self.fail(where, f"the value {name!r} is not in scope with dtype {node.dtype}")
            elif node.fn == "load":
                self.place(name, node.args, scope, where)
            elif node.args and node.fn not in s.FUNCTIONS and node.fn not in ("where", "cast", "bitcast", "rarely"):
                self.fail(where, f"no such scalar function as {node.fn!r}")
        if integer and expr.dtype != INT64:
            self.fail(where, f"expected an int64 expression, not {expr.dtype}")
        if uniform and self.varies(expr, scope):
            self.fail(where, "an extent or dimension must not differ between the lanes of a vector loop")

    def place(self, buffer: Buffer, indices: Sequence[Expr], scope: _Scope, where: object) -> None:
        if buffer not in scope.buffers:
            self.fail(where, f"the buffer {buffer.name!r} is not declared here")
        if len(indices) != len(buffer.shape):
            self.fail(where, f"{buffer.name!r} has {len(buffer.shape)} dimensions, not {len(indices)}")

    def body(self, statements: Sequence[Statement], scope: _Scope, top: bool = False) -> None:
        for statement in statements:
            line = _Line(statement)
            match statement:
                case Loop():
                    self.loop(statement, scope, line, top)
                case Store(buffer, indices, value):
                    self.place(buffer, indices, scope, line)
                    for i in indices:
                        self.expr(i, scope, line, integer=True)
                    self.expr(value, scope, line)
                    if value.dtype != buffer.dtype:
                        self.fail(line, f"stores {value.dtype} into {buffer.dtype}")
                    if scope.vector and not any(self.varies(i, scope) for i in indices):
                        self.fail(line, "every lane of the vector loop stores to one element; use an accumulator")
                case Prefetch(buffer, indices):
                    self.apart(buffer, indices, scope, line)
                case Transpose():
                    self.apart(statement.target, statement.target_at, scope, line)
                    self.apart(statement.source, statement.source_at, scope, line)
                case Let(name, value):
                    self.expr(value, scope, line)
                    self.define(name, line)
                    scope.vars[name] = statement.var
                    if self.varies(value, scope):
                        scope.varying.add(name)
                case Accumulator():
                    self.accumulator(statement, scope, line)
                case Update():
                    self.update(statement, scope, line)
                case Local(buffer):
                    self.local(buffer, scope, line)

    def apart(self, buffer: Buffer, indices: Sequence[Expr], scope: _Scope, line: _Line) -> None:
        """The element of a statement that must be outside vector loops."""
        self.place(buffer, indices, scope, line)
        for i in indices:
            self.expr(i, scope, line, integer=True)
        if scope.vector:
            self.fail(line, "a prefetch or transpose stands outside vector loops")

    def loop(self, statement: Loop, scope: _Scope, line: _Line, top: bool) -> None:
        self.expr(statement.extent, scope, line, integer=True, uniform=True)
        self.expr(statement.grain, scope, line, integer=True, uniform=True)
        self.define(statement.var, line)
        if statement.parallel and not top:
            self.fail(line, "a parallel loop must stand at the top of the kernel")
        if statement.kind == "vector" and scope.vector:
            self.fail(line, "vector loops do not nest")
        if statement.kind == "unroll" and loops.constant(statement.extent) is None:
            self.fail(line, "an unrolled loop needs a constant extent")
        if statement.kind == "unroll" and statement.parallel:
            self.fail(line, "an unrolled loop cannot be parallel")
        if statement.workers is not None and not (statement.parallel and statement.workers > 0):
            self.fail(line, "only a parallel loop has workers, at least one")
        inner = _Scope(scope)
        inner.parallel_root = statement.parallel
        inner.indices.add(statement.var)
        if statement.workers is not None:
            number = loops.worker(statement.var)
            self.define(number.payload, line)
            inner.vars[number.payload] = number
        if statement.kind == "vector":
            inner.vector = statement.var
        self.body(statement.body, inner)

    def accumulator(self, statement: Accumulator, scope: _Scope, line: _Line) -> None:
        self.define(statement.name, line)
        if not statement.indexed and statement.op not in reductions.table:
            self.fail(line, f"no such reduction as {statement.op!r}")
        elif statement.reduction.boolean != (statement.dtype == s.BOOL):
            self.fail(line, "any and all, and only they, accumulate bools")
        scope.vars[statement.name] = statement.value
        if statement.indexed:
            self.define(statement.name + ".index", line)
            scope.vars[statement.name + ".index"] = statement.index
        if scope.vector:
            scope.varying |= {statement.name, statement.name + ".index"}
        scope.accumulators[statement.name] = (statement, scope)

    def update(self, statement: Update, scope: _Scope, line: _Line) -> None:
        declared, home = scope.accumulators.get(statement.accumulator.name, (None, None))
        if declared != statement.accumulator or home is None:
            self.fail(line, f"the accumulator {statement.accumulator.name!r} is not in scope")
            return
        walk: _Scope | None = scope
        while walk is not None and walk is not home:
            if walk.parallel_root:
                self.fail(line, "an accumulator declared outside a parallel loop cannot be updated inside")
            walk = walk.outer
        self.expr(statement.value, scope, line)
        if statement.value.dtype != statement.accumulator.dtype:
            self.fail(line, f"updates {statement.accumulator.dtype} with {statement.value.dtype}")
        if (statement.index is not None) != statement.accumulator.indexed:
            self.fail(line, "argmax and argmin, and only they, take an index")
        if statement.index is not None:
            self.expr(statement.index, scope, line, integer=True)

    def local(self, buffer: Buffer, scope: _Scope, line: _Line) -> None:
        self.define(buffer.name, line)
        size = buffer.dtype.itemsize
        for dim in buffer.shape:
            extent = loops.constant(dim)
            if extent is None:
                self.fail(line, "a local buffer needs a constant shape")
                return
            size *= extent
        if size > loops.MAX_LOCAL_BYTES:
            self.fail(line, f"a local buffer holds at most {loops.MAX_LOCAL_BYTES} bytes, not {size}")
        if scope.vector:
            self.fail(line, "a local buffer cannot be declared inside a vector loop")
        if not any(True for _ in scope.indices) and any(isinstance(x, Loop) and x.parallel for x in self.kernel.body):
            self.fail(line, "a local buffer must be declared inside the parallel loop that uses it")
        scope.buffers.add(buffer)


def validate(kernel: Kernel) -> Kernel:
    """Return `kernel` if it is well formed.

    Raises:
        ValueError: a rule of the loop IR is broken; the message names the kernel, the rule and the statement.
    """
    _Validator(kernel).run()
    return kernel
