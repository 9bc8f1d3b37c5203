"""Runtime routines of a program in LLVM IR: the step loop, oneDNN calls, checks, branches and loops.

Each but the first is `int32 step(int64 *block)`; the words of a block are read by `words`, in the order in which
`weft.runtime.program` writes them. A *slot* is the address of a word that holds a data pointer.
"""

from __future__ import annotations

from .parallel import RUN, SET_WIDTH, WIDTH

CONTROL = ("stop", "tick", "poll")
"""Flags that a loop polls: it ends if `stop` is set; if `tick` is set, it calls `poll` and ends if that returns non-zero."""

NAMES = [
    "weft_run", "weft_onednn", "weft_shares", "weft_check", "weft_branch", "weft_halts", "weft_while", "weft_scan",
]  # fmt: skip


def words(base: str, *fields: str, first: int = 0) -> list[str]:
    """Instructions that read consecutive words after the pointer `base`: `"%count: i64"` reads one into %count."""
    lines = []
    for position, field in enumerate(fields, first):
        name, kind = field.split(": ")
        at = f"{name}.at"
        lines += [f"  {at} = getelementptr i64, ptr {base}, i64 {position}", f"  {name} = load {kind}, ptr {at}"]
    return lines


def _words(base: str, *fields: str) -> str:
    return "\n".join(words(base, *fields)).lstrip()


TEXT = f"""
; steps are pairs (function, block). Returns 0, or 1 + the position of the step that failed
define i64 @weft_run(ptr %steps, i64 %n) {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %end, label %body
body:
  %twice = shl i64 %i, 1
  %step = getelementptr i64, ptr %steps, i64 %twice
  {_words("%step", "%fn: ptr", "%block: ptr")}
  %status = call i32 %fn(ptr %block)
  %next = add i64 %i, 1
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %stop, label %head
stop:
  ret i64 %next
end:
  ret i64 0
}}

; after its seven words: (memory, slot) pairs of the arguments whose memory changes from call to call
define i32 @weft_onednn(ptr %block) {{
entry:
  {_words("%block", "%execute: ptr", "%set: ptr", "%primitive: ptr", "%stream: ptr", "%given: i64", "%args: ptr", "%count: i64")}
  %nargs = trunc i64 %given to i32
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %go, label %body
body:
  %twice = shl i64 %i, 1
  %place = add i64 %twice, 7
  %pair = getelementptr i64, ptr %block, i64 %place
  {_words("%pair", "%memory: ptr", "%slot: ptr")}
  %data = load ptr, ptr %slot
  %ignored = call i32 %set(ptr %memory, ptr %data)
  %next = add i64 %i, 1
  br label %head
go:
  %status = call i32 %execute(ptr %primitive, ptr %stream, i32 %nargs, ptr %args)
  ret i32 %status
}}

@{WIDTH} = external global i32
declare void @{SET_WIDTH}(i32)
declare void @{RUN}(ptr, ptr, i64, i64, i64, i64)

; shares of a oneDNN computation, in parallel. With OpenMP set to one thread, no share starts threads, on any thread.
; After its seven words (%scratch is the slot of the scratchpads): the block of every share
define i32 @weft_shares(ptr %block) {{
  {_words("%block", "%execute: ptr", "%set: ptr", "%stream: ptr", "%scratch: ptr", "%pad: i64", "%most: i64", "%count: i64")}
  %job = alloca [6 x i64], align 8
  %block.field = getelementptr i64, ptr %job, i64 4
  %status.field = getelementptr i64, ptr %job, i64 5
  store ptr %block, ptr %block.field
  store i64 0, ptr %status.field
  call void @{SET_WIDTH}(i32 1)
  call void @{RUN}(ptr @weft_share_range, ptr %job, i64 %count, i64 1, i64 1, i64 %most)
  %width = load i32, ptr @{WIDTH}
  call void @{SET_WIDTH}(i32 %width)
  %status = load i64, ptr %status.field
  %short = trunc i64 %status to i32
  ret i32 %short
}}

; a share's block: the primitive, its arguments, the memory of its scratchpad or 0, and (memory, slot, offset) of the arguments
; whose memory changes from call to call
define internal void @weft_share_range(ptr %job, i64 %first, i64 %last, i64 %worker) {{
entry:
  %block.field = getelementptr i64, ptr %job, i64 4
  %status.field = getelementptr i64, ptr %job, i64 5
  %block = load ptr, ptr %block.field
  {_words("%block", "%execute: ptr", "%set: ptr", "%stream: ptr", "%scratch: ptr", "%pad: i64")}
  %my.offset = mul i64 %worker, %pad
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %ran ]
  %done = icmp eq i64 %i, %last
  br i1 %done, label %end, label %begin
begin:
  %place = add i64 %i, 7
  %share.field = getelementptr i64, ptr %block, i64 %place
  %share = load ptr, ptr %share.field
  {_words("%share", "%primitive: ptr", "%given: i64", "%args: ptr", "%pad.memory: ptr", "%count: i64")}
  %nargs = trunc i64 %given to i32
  %padless = icmp eq ptr %pad.memory, null
  br i1 %padless, label %bind, label %own
own:
  %pads = load ptr, ptr %scratch
  %mine = getelementptr i8, ptr %pads, i64 %my.offset
  %ignored0 = call i32 %set(ptr %pad.memory, ptr %mine)
  br label %bind
bind:
  %j = phi i64 [ 0, %begin ], [ 0, %own ], [ %j.next, %one ]
  %bound = icmp eq i64 %j, %count
  br i1 %bound, label %go, label %one
one:
  %thrice = mul i64 %j, 3
  %at = add i64 %thrice, 5
  %triple = getelementptr i64, ptr %share, i64 %at
  {_words("%triple", "%memory: ptr", "%slot: ptr", "%offset: i64")}
  %data = load ptr, ptr %slot
  %part = getelementptr i8, ptr %data, i64 %offset
  %ignored1 = call i32 %set(ptr %memory, ptr %part)
  %j.next = add i64 %j, 1
  br label %bind
go:
  %status = call i32 %execute(ptr %primitive, ptr %stream, i32 %nargs, ptr %args)
  %next = add i64 %i, 1
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %ran
fail:
  %wide = zext i32 %status to i64
  store i64 %wide, ptr %status.field
  br label %ran
ran:
  br label %head
end:
  ret void
}}

; fails if the flag is set
define i32 @weft_check(ptr %block) {{
  {_words("%block", "%slot: ptr")}
  %flag = load ptr, ptr %slot
  %byte = load i8, ptr %flag
  %status = zext i8 %byte to i32
  ret i32 %status
}}

; after the slot of the condition: (steps, their number) if it holds, and if not
define i32 @weft_branch(ptr %block) {{
  {_words("%block", "%slot: ptr")}
  %flag = load ptr, ptr %slot
  %byte = load i8, ptr %flag
  %yes = icmp ne i8 %byte, 0
  %offset = select i1 %yes, i64 1, i64 3
  %branch = getelementptr i64, ptr %block, i64 %offset
  {_words("%branch", "%steps: ptr", "%n: i64")}
  %failed = call i64 @weft_run(ptr %steps, i64 %n)
  %bad = icmp ne i64 %failed, 0
  %status = zext i1 %bad to i32
  ret i32 %status
}}

; whether a loop must end, looked up once per iteration; see CONTROL
define i32 @weft_halts(ptr %control) alwaysinline {{
entry:
  %stop = load volatile i64, ptr %control
  %tick.at = getelementptr i64, ptr %control, i64 1
  %tick = load volatile i64, ptr %tick.at
  %either = or i64 %stop, %tick
  %quiet = icmp eq i64 %either, 0
  br i1 %quiet, label %on, label %look
look:
  %asked = icmp ne i64 %stop, 0
  br i1 %asked, label %end, label %ask
ask:
  %poll.at = getelementptr i64, ptr %control, i64 2
  %poll = load ptr, ptr %poll.at
  %status = call i32 %poll(ptr %control)
  ret i32 %status
on:
  ret i32 0
end:
  ret i32 1
}}

define i32 @weft_while(ptr %block) {{
entry:
  {_words("%block", "%slot: ptr", "%cond: ptr", "%ncond: i64", "%body: ptr", "%nbody: i64", "%control: ptr")}
  br label %head
head:
  %halts = call i32 @weft_halts(ptr %control)
  %halt = icmp ne i32 %halts, 0
  br i1 %halt, label %fail, label %look
look:
  %f1 = call i64 @weft_run(ptr %cond, i64 %ncond)
  %bad1 = icmp ne i64 %f1, 0
  br i1 %bad1, label %fail, label %test
test:
  %flag = load ptr, ptr %slot
  %byte = load i8, ptr %flag
  %more = icmp ne i8 %byte, 0
  br i1 %more, label %again, label %end
again:
  %f2 = call i64 @weft_run(ptr %body, i64 %nbody)
  %bad2 = icmp ne i64 %f2, 0
  br i1 %bad2, label %fail, label %head
fail:
  ret i32 1
end:
  ret i32 0
}}

; after its five words: per cursor (its slot, the slot of what it walks over, start and stride in bytes)
define i32 @weft_scan(ptr %block) {{
entry:
  {_words("%block", "%count: i64", "%steps: ptr", "%n: i64", "%control: ptr", "%cursors: i64")}
  br label %head
head:
  %t = phi i64 [ 0, %entry ], [ %t.next, %ran ]
  %done = icmp eq i64 %t, %count
  br i1 %done, label %end, label %look
look:
  %halts = call i32 @weft_halts(ptr %control)
  %halt = icmp ne i32 %halts, 0
  br i1 %halt, label %fail, label %move
move:
  %i = phi i64 [ 0, %look ], [ %i.next, %one ]
  %moved = icmp eq i64 %i, %cursors
  br i1 %moved, label %run, label %one
one:
  %four = shl i64 %i, 2
  %place = add i64 %four, 5
  %cursor = getelementptr i64, ptr %block, i64 %place
  {_words("%cursor", "%slot: ptr", "%whole: ptr", "%start: i64", "%stride: i64")}
  %base = load i64, ptr %whole
  %far = mul i64 %t, %stride
  %near = add i64 %base, %start
  %address = add i64 %near, %far
  store i64 %address, ptr %slot
  %i.next = add i64 %i, 1
  br label %move
run:
  %failed = call i64 @weft_run(ptr %steps, i64 %n)
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %fail, label %ran
ran:
  %t.next = add i64 %t, 1
  br label %head
fail:
  ret i32 1
end:
  ret i32 0
}}
"""
