"""Model summary: a table of modules with output shapes, parameters and FLOPs.

The model runs once on an example input, under `no_grad` and in evaluation mode (so its state does not change). A mode
counts the cost of every op (from its record, see `weft.ops.core.costs`), and hooks attribute it to a module. A
multiply-add counts as two FLOPs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..autograd.tape import no_grad
from ..errors import format_shape
from ..ops.array.creation import zeros
from ..ops.core.costs import cost
from ..ops.core.define import Mode
from ..ops.core.registry import Op
from ..ops.core.spec import spec_of
from ..tensor import Tensor
from .module import Module


class Row(NamedTuple):
    """One call of one module."""

    path: str
    kind: str
    depth: int
    output: str
    parameters: int
    flops: int


class Summary:
    """Result of `module.summary(...)`: printable, with `rows`, `total_parameters`, `total_flops` …"""

    def __init__(self, rows: list[Row], module: Module, flops: int, input_text: str) -> None:
        self.rows = rows
        self.input = input_text
        self.total_flops = flops
        parameters = list(module.parameters())
        self.total_parameters = sum(p.size for p in parameters)
        self.trainable_parameters = sum(p.size for p in parameters if p.requires_grad)
        self.buffer_elements = sum(b.size for b in module.buffers())
        self.parameter_bytes = sum(p.nbytes for p in parameters)

    def __str__(self) -> str:
        head = ("module", "output", "parameters", "FLOPs")
        body = [
            (label, r.output, f"{r.parameters:,}" if r.parameters else "–", f"{r.flops:,}" if r.flops else "–")
            for label, r in zip(self._labels(), self.rows, strict=True)
        ]
        widths = [max(len(row[i]) for row in (head, *body)) for i in range(4)]

        def line(row: tuple[str, ...]) -> str:
            left = [row[i].ljust(widths[i]) for i in (0, 1)]
            right = [row[i].rjust(widths[i]) for i in (2, 3)]
            return "  ".join(left + right).rstrip()

        rule = "─" * (sum(widths) + 6)
        frozen = self.total_parameters - self.trainable_parameters
        foot = [
            f"input {self.input}",
            f"parameters {self.total_parameters:,} ({_bytes(self.parameter_bytes)})"
            + (f", of which frozen {frozen:,}" if frozen else ""),
            f"FLOPs of one forward pass {self.total_flops:,} ({_count(self.total_flops)})",
        ]
        return "\n".join([line(head), rule, *[line(row) for row in body], rule, *foot])

    def _labels(self) -> list[str]:
        """Name and kind of each row, the name as seen from the row it is part of."""
        labels, parents = [], [""]
        for row in self.rows:
            del parents[row.depth + 1 :]
            above = parents[row.depth] + "."
            name = row.path.removeprefix(above) if row.depth else ""
            labels.append("  " * row.depth + (f"{name}: {row.kind}" if name else row.kind))
            parents.append(row.path)
        return labels

    __repr__ = __str__


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.3g} {unit}"
        n /= 1000
    raise AssertionError


def _count(n: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if n < 1000 or unit == "T":
            return f"{n:.3g}{unit}"
        n /= 1000
    raise AssertionError


class _Counter(Mode):
    """Adds the cost of every op to the modules that are running."""

    def __init__(self) -> None:
        self.total = 0
        self.running: list[list[int]] = []  # one counter per active module call

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        result = op.run(op.call, values)
        cost = op_cost(op, values, result)
        self.total += cost
        for counter in self.running:
            counter[0] += cost
        return result


def op_cost(op: Op, values: tuple[Any, ...], result: Any) -> int:
    """FLOPs of one call, from the op's record (see `weft.ops.core.costs`)."""
    specs = [spec_of(t._data) if isinstance(t, Tensor) else t for t in op.tensors(values)]
    results = [spec_of(t._data) for t in (result if isinstance(result, (tuple, list)) else (result,))]
    return cost(op, op.merge(specs, op.attrs(values)), results).flops


def _shapes(value: Any) -> str:
    """The shapes of a module's result."""
    if isinstance(value, Tensor):
        return format_shape(value.shape)
    if isinstance(value, (tuple, list)):
        return ", ".join(_shapes(v) for v in value if v is not None)
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_shapes(v)}" for k, v in value.items())
    return type(value).__name__


def _example(value: Any) -> Any:
    """Tensors as they are; a shape as zeros of that shape."""
    if isinstance(value, (tuple, list)) and value and all(isinstance(d, int) for d in value):
        return zeros(tuple(value))
    return value


def summarize(module: Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], depth: int | None = None) -> Summary:
    """Run `module` on the example and return the table. See `Module.summary`."""
    if inputs and all(isinstance(d, int) for d in inputs):
        inputs = (inputs,)
    args = tuple([_example(v) for v in inputs])
    counter = _Counter()
    rows: list[Any] = []
    stack: list[tuple[int, list[int]]] = []
    seen: set[int] = set()
    handles = []
    names = {id(m): name for name, m in module.named_modules()}

    def before(m: Module, _: Any) -> None:
        rows.append(None)
        cell = [0]
        stack.append((len(rows) - 1, cell))
        counter.running.append(cell)

    def after(m: Module, _: Any, result: Any) -> None:
        place, cell = stack.pop()
        counter.running.pop()
        own = sum(p.size for p in m.parameters(recurse=False) if id(p) not in seen)
        seen.update(id(p) for p in m.parameters(recurse=False))
        rows[place] = Row(names[id(m)], type(m).__name__, len(stack), _shapes(result), own, cell[0])

    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        for m in module.modules():
            handles.append(m.register_forward_pre_hook(before))
            handles.append(m.register_forward_hook(after))
        with no_grad(), counter:
            module(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for m in training:
            m.training = True
    shown = [r for r in rows if r is not None and (depth is None or r.depth <= depth)]
    if depth is not None:  # costs of hidden rows are added to the deepest row shown
        shown = _folded([r for r in rows if r is not None], depth)
    return Summary(shown, module, counter.total, ", ".join(_shapes(a) for a in args) or "none")


def _folded(rows: list[Row], depth: int) -> list[Row]:
    folded: list[Row] = []
    for row in rows:
        if row.depth <= depth:
            folded.append(row)
        else:
            folded[-1] = folded[-1]._replace(parameters=folded[-1].parameters + row.parameters)
    return folded
