"""Parallel loops: a function of an iteration range, run by a team of work-stealing threads.

The number of threads is read from the process's width cell at each loop (see `weft.runtime.threads`); with one thread, or
little work, the calling thread does everything. Ranges never change a result: an iteration is the same code wherever it
runs. `GOMP_parallel` is the OpenMP runtime that oneDNN uses, so both share one team of threads.

Every thread owns a share of the iterations, the same in each loop of that length. It takes ranges from its own share
first and then steals from slower threads. So a thread mostly reads data that it wrote: fetching a line from another
core's cache takes longer than from memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...compiler.loop_ir import ir as loops
from ...compiler.loop_ir.ir import Loop
from ...ops.core import scalar as s
from .ir import FunctionBuilder, Value, literal

if TYPE_CHECKING:
    from .emit import KernelEmitter

WIDTH = "weft_width"
START = "GOMP_parallel"
ME = "omp_get_thread_num"
SET_WIDTH = "omp_set_num_threads"
RUN = "weft_parallel"
RANGES_PER_THREAD = 16
"""Approximate number of ranges per thread: with four, one thread ran 16 of 28 expensive iterations and the other 12."""
FINE_RANGES_PER_THREAD = 64
"""The same for loops whose single iterations are large enough for a thread."""
_CAPTURED = 4  # the first word of captured values in a job

NO_THREAD_LIMIT = 1 << 30  # threads: no limit
# job: { shares, block, threads, range function, captured values ... }; a share: { next iteration (atomic), end }, a line each
TEAM = f"""@{WIDTH} = external global i32
declare void @{START}(ptr, ptr, i32, i32)
declare i32 @{ME}()
define void @{RUN}(ptr %range, ptr %job, i64 %n, i64 %grain, i64 %unit, i64 %most) nounwind {{
entry:
  %width32 = load i32, ptr @{WIDTH}, align 4
  %width = sext i32 %width32 to i64
  %some = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %more = add i64 %n, %some
  %less = sub i64 %more, 1
  %parts = sdiv i64 %less, %some
  %threads0 = call i64 @llvm.smin.i64(i64 %parts, i64 %width)
  %threads1 = call i64 @llvm.smin.i64(i64 %threads0, i64 %most)
  %threads = call i64 @llvm.smax.i64(i64 %threads1, i64 1)
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %team
single:
  call void %range(ptr %job, i64 0, i64 %n, i64 0)
  ret void
team:
  %heavy = icmp eq i64 %some, 1
  %each = select i1 %heavy, i64 {FINE_RANGES_PER_THREAD}, i64 {RANGES_PER_THREAD}
  %ranges = mul i64 %threads, %each
  %n1 = add i64 %n, %ranges
  %n2 = sub i64 %n1, 1
  %block0 = sdiv i64 %n2, %ranges
  %block1 = call i64 @llvm.smax.i64(i64 %block0, i64 %some)
  %block2 = add i64 %block1, %unit
  %block3 = sub i64 %block2, 1
  %block4 = sdiv i64 %block3, %unit
  %block = mul i64 %block4, %unit
  %n3 = add i64 %n, %block
  %n4 = sub i64 %n3, 1
  %blocks = sdiv i64 %n4, %block
  %lines = mul i64 %threads, 8
  %shares = alloca i64, i64 %lines, align 64
  %block.field = getelementptr i64, ptr %job, i64 1
  %threads.field = getelementptr i64, ptr %job, i64 2
  %range.field = getelementptr i64, ptr %job, i64 3
  store ptr %shares, ptr %job, align 8
  store i64 %block, ptr %block.field, align 8
  store i64 %threads, ptr %threads.field, align 8
  store ptr %range, ptr %range.field, align 8
  br label %deal
deal:
  %who = phi i64 [ 0, %team ], [ %next, %deal ]
  %start = phi i64 [ 0, %team ], [ %end, %deal ]
  %next = add i64 %who, 1
  %upto = mul i64 %next, %blocks
  %upto.block = sdiv i64 %upto, %threads
  %upto.n = mul i64 %upto.block, %block
  %end = call i64 @llvm.smin.i64(i64 %upto.n, i64 %n)
  %line = mul i64 %who, 8
  %share = getelementptr i64, ptr %shares, i64 %line
  %share.end = getelementptr i64, ptr %share, i64 1
  store i64 %start, ptr %share, align 8
  store i64 %end, ptr %share.end, align 8
  %all = icmp eq i64 %next, %threads
  br i1 %all, label %go, label %deal
go:
  %team.size = trunc i64 %threads to i32
  call void @{START}(ptr @weft_worker, ptr %job, i32 %team.size, i32 0)
  ret void
}}
define internal void @weft_worker(ptr %job) nounwind {{
entry:
  %block.field = getelementptr i64, ptr %job, i64 1
  %threads.field = getelementptr i64, ptr %job, i64 2
  %range.field = getelementptr i64, ptr %job, i64 3
  %shares = load ptr, ptr %job, align 8
  %block = load i64, ptr %block.field, align 8
  %threads = load i64, ptr %threads.field, align 8
  %range = load ptr, ptr %range.field, align 8
  %me32 = call i32 @{ME}()
  %me = zext i32 %me32 to i64
  br label %owner
owner:
  %turn = phi i64 [ 0, %entry ], [ %next, %empty ]
  %place = add i64 %me, %turn
  %who = urem i64 %place, %threads
  %line = mul i64 %who, 8
  %share = getelementptr i64, ptr %shares, i64 %line
  %share.end = getelementptr i64, ptr %share, i64 1
  %end = load i64, ptr %share.end, align 8
  br label %take
take:
  %first = atomicrmw add ptr %share, i64 %block monotonic
  %some = icmp slt i64 %first, %end
  br i1 %some, label %run, label %empty
run:
  %beyond = add i64 %first, %block
  %last = call i64 @llvm.smin.i64(i64 %beyond, i64 %end)
  call void %range(ptr %job, i64 %first, i64 %last, i64 %me)
  br label %take
empty:
  %next = add i64 %turn, 1
  %more = icmp slt i64 %next, %threads
  br i1 %more, label %owner, label %done
done:
  ret void
}}
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)"""
"""A separate module, compiled once for all kernels."""
_DECLARED = f"declare void @{RUN}(ptr, ptr, i64, i64, i64, i64)"


def emit(outer: KernelEmitter, statement: Loop) -> None:
    """Write the loop's body as a function of a range into the module, and the call into the current block."""
    from .emit import KernelEmitter

    module, f = outer.module, outer.f
    if _DECLARED not in module.extra:
        module.extra.append(_DECLARED)
    number = len(module.functions)
    extent = outer.value(statement.extent)
    grain = outer.value(statement.grain)

    # What the body uses from outside: buffers, parameters and values computed before the loop.
    kernel = outer.kernel
    captured = [(b.name, outer.pointers[b]) for b in kernel.buffers] + [(p, outer.names[p]) for p in kernel.params]
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
    start, end, worker = Value("%start", "i64"), Value("%end", "i64"), Value("%worker", "i64")
    entry = f.name.strip('"')
    body = FunctionBuilder(module, f'"{entry}.range{number}"', [*args, start, end, worker], "internal")
    emitter = KernelEmitter(kernel, outer.target, module, body)
    emitter.schedules = outer.schedules
    inside = {name: arg for (name, _), arg in zip(captured, args, strict=True)}
    for buffer in kernel.buffers:
        emitter.pointers[buffer] = inside.pop(buffer.name)
    emitter.names.update(inside)
    emitter.names[loops.worker(statement.var).payload] = worker
    emitter.range(statement, start, end)
    emitter.finish()
    module.functions.append(body)

    unpacked = _unpacked(module, f'"{entry}.job{number}"', body, args)
    module.functions.append(unpacked)

    job = f.slot("i64", 1, _CAPTURED + len(captured))
    for position, (_, value) in enumerate(captured, _CAPTURED):
        field = f.op(f"getelementptr i64, ptr {job.ref}, i64 {position}", "ptr")
        f.store(value, field, 8)
    unit = literal("i64", 64 if statement.kind == "vector" else 1)
    most = literal("i64", NO_THREAD_LIMIT if statement.workers is None else statement.workers)
    f.do(f"call void @{RUN}(ptr @{unpacked.name}, {job}, {extent}, {grain}, {unit}, {most})")
    outer.forget(*outer.changed_in(statement))


def _unpacked(module: Any, name: str, body: FunctionBuilder, args: list[Value]) -> FunctionBuilder:
    """`void range(job, first, last, worker)`: the body with the captured values of the job."""
    numbers = [Value("%first", "i64"), Value("%last", "i64"), Value("%worker", "i64")]
    f = FunctionBuilder(module, name, [Value("%job", "ptr"), *numbers], "internal")
    values = []
    for position, a in enumerate(args, _CAPTURED):
        values.append(f.load(f.op(f"getelementptr i64, ptr %job, i64 {position}", "ptr"), a.type, 1, 8))
    f.do(f"call void @{body.name}({', '.join(map(str, [*values, *numbers]))})")
    f.do("ret void")
    return f
