"""Parallel loops: one function for a range of iterations, and threads that take ranges from a shared counter.

How many threads run is read from the process's width cell at each loop (see `weft.runtime.threads`); with one, or
with little work, the calling thread does everything. Ranges change nothing in the result: an iteration is the same
code wherever it runs. `GOMP_parallel` is the OpenMP library that oneDNN uses, so both share one team of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...compiler import loops
from ...compiler.loops import Loop
from ...ops import scalar as s
from .ir import Function, Value, literal

if TYPE_CHECKING:
    from .emit import KernelEmitter

WIDTH = "weft_width"
START = "GOMP_parallel"

# job: { next iteration (atomic), iterations, block, captured values ... }
_RUN = f"""@{WIDTH} = external global i32
declare void @{START}(ptr, ptr, i32, i32)
define internal void @weft_parallel(ptr %worker, ptr %job, i64 %n, i64 %grain, i64 %unit) #0 {{
entry:
  %width32 = load i32, ptr @{WIDTH}, align 4
  %width = sext i32 %width32 to i64
  %some = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %more = add i64 %n, %some
  %less = sub i64 %more, 1
  %parts = sdiv i64 %less, %some
  %threads0 = call i64 @llvm.smin.i64(i64 %parts, i64 %width)
  %threads = call i64 @llvm.smax.i64(i64 %threads0, i64 1)
  %alone = icmp eq i64 %threads, 1
  %shares = mul i64 %threads, 4
  %n1 = add i64 %n, %shares
  %n2 = sub i64 %n1, 1
  %share0 = sdiv i64 %n2, %shares
  %share1 = call i64 @llvm.smax.i64(i64 %share0, i64 %some)
  %share2 = add i64 %share1, %unit
  %share3 = sub i64 %share2, 1
  %share4 = sdiv i64 %share3, %unit
  %share = mul i64 %share4, %unit
  %block = select i1 %alone, i64 %n, i64 %share
  %n.field = getelementptr i64, ptr %job, i64 1
  %block.field = getelementptr i64, ptr %job, i64 2
  store i64 0, ptr %job, align 8
  store i64 %n, ptr %n.field, align 8
  store i64 %block, ptr %block.field, align 8
  br i1 %alone, label %single, label %team
single:
  call void %worker(ptr %job)
  ret void
team:
  %team.size = trunc i64 %threads to i32
  call void @{START}(ptr %worker, ptr %job, i32 %team.size, i32 0)
  ret void
}}
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)"""


def emit(outer: KernelEmitter, statement: Loop) -> None:
    """Write the range function and its worker into the module, and the call into the current block."""
    from .emit import KernelEmitter

    module, f = outer.module, outer.f
    if _RUN not in module.extra:
        module.extra.append(_RUN)
        for name in ("llvm.smax.i64", "llvm.smin.i64", START):
            module.declarations[name] = ""
    number = len(module.functions)
    extent = outer.value(statement.extent)
    grain = outer.value(statement.grain)

    # What the body uses from outside: buffers, parameters and values computed before the loop.
    kernel = outer.kernel
    captured = [(b.name, outer.pointers[b]) for b in kernel.buffers] + [
        (p, outer.names[p]) for p in kernel.params
    ]
    known = {name for name, _ in captured}
    for inner in loops.walk(statement.body):
        for expr in loops.expressions(inner):
            for node in s.topological([expr]):
                if node.fn == "var" and node.payload not in known:
                    owner = node.payload.removesuffix(".index")
                    if node.payload in outer.names or owner in outer.accumulators:
                        known.add(node.payload)
                        captured.append((node.payload, outer.value(node)))

    args = [Value(f'%"c.{name}"', v.type) for name, v in captured]
    start, end = Value("%start", "i64"), Value("%end", "i64")
    entry = f.name.strip('"')
    body = Function(module, f'"{entry}.range{number}"', [*args, start, end], "internal")
    emitter = KernelEmitter(kernel, outer.target, module, body)
    emitter.plans = outer.plans
    inside = {name: arg for (name, _), arg in zip(captured, args, strict=True)}
    for buffer in kernel.buffers:
        emitter.pointers[buffer] = inside.pop(buffer.name)
    emitter.names.update(inside)
    emitter.range(statement, start, end)
    emitter.finish()
    module.functions.append(body)

    worker = _worker(module, f'"{entry}.worker{number}"', body, args)
    module.functions.append(worker)

    job = f.slot("i64", 1, 3 + len(captured))
    for position, (_, value) in enumerate(captured):
        field = f.op(f"getelementptr i64, ptr {job.ref}, i64 {3 + position}", "ptr")
        f.store(value, field, 8)
    unit = literal("i64", 64 if statement.kind == "vector" else 1)
    f.do(f"call void @weft_parallel(ptr @{worker.name}, {job}, {extent}, {grain}, {unit})")
    outer.forget(*outer.changed_in(statement))


def _worker(module, name: str, body: Function, args: list[Value]) -> Function:  # type: ignore[no-untyped-def]
    """`void worker(job)`: take blocks until none is left."""
    w = Function(module, name, [Value("%job", "ptr")], "internal")
    fields = [w.op(f"getelementptr i64, ptr %job, i64 {i}", "ptr") for i in range(1, 3 + len(args))]
    n, block = (w.load(field, "i64", 1, 8) for field in fields[:2])
    values = [w.load(field, a.type, 1, 8) for field, a in zip(fields[2:], args, strict=True)]
    take, run, done = w.label("take"), w.label("run"), w.label("done")
    w.jump(take)
    w.start(take)
    first = w.op(f"atomicrmw add ptr %job, {block} monotonic", "i64")
    w.branch(w.compare("slt", first, n), run, done)
    w.start(run)
    beyond = w.binary("add", first, block)
    last = w.select(w.compare("slt", beyond, n), beyond, n)
    w.do(f"call void @{body.name}({', '.join(map(str, [*values, first, last]))})")
    w.jump(take)
    w.start(done)
    w.do("ret void")
    return w
