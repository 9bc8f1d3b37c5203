"""`explain()`: a readable report of what a captured function was compiled to."""

from __future__ import annotations

from typing import Any

from ..errors import Location
from ..graph.graph import CONSTANT, PLACEHOLDER, Node
from ..ops.core.costs import FAMILIES
from ..ops.core.spec import num_elements
from ..runtime.memory import format_bytes
from .program.layout import Layout, channels_last, row_major, same_strides
from .program.steps import HostCall, Step


def flops(node: Node) -> int:
    """The floating-point operations of a node, from its op's cost, or one per output element."""
    op = node.op
    if op is PLACEHOLDER or op is CONSTANT:
        return 0
    cost = op.cost
    if isinstance(cost, str):  # a family of costs, see `weft.ops.core.costs`
        return int(FAMILIES[cost](op.tensors(op.merge(node.inputs, node.attrs)), node.outputs).flops)
    if cost is not None:
        return int(op.run(cost, op.merge(node.inputs, node.attrs)))
    return (num_elements(node.outputs[0].shape) or 0) if op.expression is not None else 0


def traffic(step: Step) -> int:
    """The minimum number of bytes that a step reads and writes."""
    return sum({id(st): st.nbytes for st in step.reads}.values()) + sum(
        {id(st): st.nbytes for st in step.writes}.values()
    )


def lines_of(nodes: Any) -> list[str]:
    """The user's lines that nodes come from, each once, in order."""
    found: dict[str, None] = {}
    for n in nodes:
        where: Location | None = n.where
        if where is not None:
            found[where.short] = None
    return list(found)


def layout_name(layout: Layout) -> str:
    """The name of a layout."""
    if same_strides(layout.strides, row_major(layout.shape), layout.shape):
        return "row-major"
    if len(layout.shape) >= 3 and same_strides(layout.strides, channels_last(layout.shape), layout.shape):
        return "channels-last"
    return "strided"


def explain(trace: Any) -> str:
    """The report of one captured signature."""
    if trace.reason is not None:
        return f"captured function {trace.capture.graph.name} for {trace.signature}\n  runs eagerly, because {trace.reason}"
    compiled = trace.compiled
    program, flow = compiled.program, compiled.flow
    graph = trace.capture.graph
    before = sum(1 for n in graph.nodes if n.op is not PLACEHOLDER and n.op is not CONSTANT)
    after = sum(1 for n in flow.nodes if n.op is not PLACEHOLDER and n.op is not CONSTANT)
    kinds: dict[str, int] = {}
    for step in program.steps:
        kinds[step.kind] = kinds.get(step.kind, 0) + 1
    work = sum(flops(n) for n in flow.nodes)
    moved = sum(traffic(step) for step in program.steps)
    layouts: dict[str, int] = {}
    for value, layout in compiled.lowering.layouts.items():
        if len(value.shape) >= 3:
            name = layout_name(layout)
            layouts[name] = layouts.get(name, 0) + 1
    seconds = compiled.seconds | {"tracing": trace.traced_seconds}
    lines = [
        f"captured function {flow.name} for {trace.signature}",
        f"  nodes: {before} captured, {after} after the passes; {len(graph.variables)} outside tensors, "
        f"{len(trace.written)} of them written; {len(trace.written_arguments)} arguments written",
        f"  steps: {len(program.steps)} ({', '.join(f'{n} {k}' for k, n in sorted(kinds.items()))})",
        f"  work: {work / 1e9:.3f} GFLOP, {format_bytes(moved)} moved",
        f"  memory: {format_bytes(program.arena)} for temporaries (predicted peak of the arena)",
        "  layouts of values with three axes and more: "
        + (", ".join(f"{n} {k}" for k, n in sorted(layouts.items())) or "none"),
        "  compile time: " + ", ".join(f"{k} {v * 1e3:.0f} ms" for k, v in seconds.items()),
    ]
    if program.prologue:
        lines.append(
            f"  computed once, from frozen tensors: {len(program.prologue)} steps, "
            f"{format_bytes(program.kept_nbytes)} kept"
        )
    if compiled.choices:
        lines += ["  choices among several kernels:", *[f"    {choice}" for choice in compiled.choices]]
    lines.append("  steps in order:")
    for i, step in enumerate(program.steps):
        made = [f"{v.dtype.name}{list(v.shape)}" for v in step.nodes[-1].outputs[:1]]
        where = ", ".join(lines_of(step.nodes)[:4])
        lines.append(f"    {i:4d} {step.kind:9s} {step.label[:70]:70s} {made[0] if made else '':24s} {where}")
    hosts = sorted({step.label for step in program.steps if isinstance(step, HostCall)})
    lines.append("  host calls (NumPy inside the program): " + (", ".join(hosts) if hosts else "none"))
    return "\n".join(lines)
