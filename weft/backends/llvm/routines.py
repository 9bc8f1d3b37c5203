"""The routines that run a program, as LLVM IR: the loop over its steps, oneDNN calls, checks, branches and loops.

Each but the first is `int32 step(int64 *block)`; the words of a block are read by `words`, in the order in which
`weft.runtime.program` writes them. A *slot* is the address of a word that holds a data pointer.
"""

from __future__ import annotations

CONTROL = ("stop", "tick", "poll")
"""The words that a loop looks at: the loop ends if `stop` is set; if `tick` is, it calls `poll`, and ends if that says so."""

NAMES = ["weft_run", "weft_onednn", "weft_check", "weft_branch", "weft_halts", "weft_while", "weft_scan"]


def words(base: str, *fields: str, first: int = 0) -> list[str]:
    """Instructions that read consecutive words after the pointer `base`: `"%count: i64"` reads one into %count."""
    lines = []
    for position, field in enumerate(fields, first):
        name, kind = field.split(": ")
        at = f"{name}.at"
        lines += [
            f"  {at} = getelementptr i64, ptr {base}, i64 {position}",
            f"  {name} = load {kind}, ptr {at}",
        ]
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
