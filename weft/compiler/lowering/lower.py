"""Lowering: from a flow to the steps of a program, each with the memory it reads and writes.

Views become layouts. Clusters become kernels. Matmul, convolution and their kin become native kernels or a library's
primitives where a rule applies (see `weft.compiler.lowering.registry`). Everything else runs as a host call: the op's
NumPy kernel on the program's memory, listed by `explain()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.graph import CONSTANT, Node, Value
from ...ops.core import scalar as s
from ..flow import FILLED, Flow, filled_with
from ..fusion import Cluster, Fuser, base_of, is_view, members
from ..loop_ir import ir as loops
from ..loop_ir.ir import Accumulator, Buffer, Kernel
from ..loop_ir.kernels.copy import copy_kernel
from ..program.layout import Layout, Storage, row_major, same_strides, view_layout
from ..program.steps import Check, HostCall, KernelCall, Step
from ..target import Target
from .directions import crosswise
from .joins import part_of
from .nests import Memo, Nest, grain, index_range, within_range
from .order import updates_early


def native_layout(layout: Layout) -> Layout:
    """The same bytes with a dtype that kernels can move: complex numbers as pairs, other unsupported dtypes as integers."""
    dtype = layout.dtype
    if dtype in s.DTYPES:
        return layout
    if dtype.kind == "c":
        part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        strides = tuple([2 * st for st in layout.strides])
        return Layout(layout.storage, part, (*layout.shape, 2), (*strides, 1), 2 * layout.offset)
    bits = np.dtype(f"u{dtype.itemsize}")
    return Layout(layout.storage, bits, layout.shape, layout.strides, layout.offset)


class Lowering:
    """The state of lowering one flow for a target. After `run`, `steps`, `storages` and `results` describe the program."""

    def __init__(self, flow: Flow, target: Target) -> None:
        self.flow, self.target = flow, target
        self.steps: list[Step] = []
        self.storages: list[Storage] = []
        self.layouts: dict[Value, Layout] = {}
        self.fuser = Fuser(flow)
        self.readers: dict[Value, set[int]] = {}  # value from outside -> units that read it
        self.done: set[int] = set()
        self.joined: dict[Node, Layout] = {}  # memory of concatenations whose parts are computed in it
        # products that are computed inside the cluster that reads them, see `weft.compiler.lowering.rules.update`
        self.deferred_products: dict[Value, tuple[Layout, Layout]] = {}
        self.kernels: dict[Any, Kernel] = {}  # cache of fused products, see `weft.compiler.lowering.rules.update`
        self.memo: Memo = {}
        # whether products are written for any number of rows, see `weft.compiler.open_sizes`
        self.open_sizes = False
        # values that are the same at every call, see `weft.compiler.lowering.frozen`
        self.constant_values: frozenset[Value] = frozenset()

    # Memory -----------------------------------------------------------------------------------------------------------

    def new_storage(self, kind: str, nbytes: int, **facts: Any) -> Storage:
        storage = Storage(kind, max(nbytes, 1), **facts)
        self.storages.append(storage)
        return storage

    def temporary(self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None) -> Layout:
        n = 1
        for d in shape:
            n *= d
        storage = self.new_storage("arena", n * dtype.itemsize)
        return Layout(storage, dtype, tuple(shape), strides if strides is not None else row_major(tuple(shape)))

    def scratch(self, size: int, dtype: np.dtype) -> Layout:
        """A scratch buffer for the threads of one step, each of which uses its own part."""
        return Layout(self.new_storage("arena", size * dtype.itemsize, scratch=True), dtype, (size,), (1,))

    def layout_of(self, value: Value) -> Layout:
        """The layout of a value; a view that cannot be expressed as strides is copied now."""
        found = self.layouts.get(value)
        if found is not None:
            return found
        node = value.node
        if node.op is CONSTANT:
            array = np.ascontiguousarray(node.attrs[0]).reshape(node.attrs[0].shape)
            storage = self.new_storage("constant", array.nbytes, array=array)
            layout = Layout(storage, value.dtype, tuple(value.shape), row_major(tuple(value.shape)))
        elif is_view(node):
            base = self.layout_of(node.inputs[0])
            viewed = view_layout(node, base)
            if viewed is None:
                dense = self.copy(base, node)
                viewed = view_layout(node, dense)
                assert viewed is not None
            layout = viewed
        elif (
            number := filled_with(value)
        ) is not None:  # materialised at its first read; most readers never need it in memory
            layout = self.temporary(tuple(value.shape), value.dtype)
            self.fill(layout, number, node)
        else:
            raise AssertionError(f"{node} is read before it is computed")
        self.layouts[value] = layout
        return layout

    def fill(self, target: Layout, number: Any, node: Node, label: str = "fill") -> None:
        """A step that fills a contiguous layout with one value."""
        n = 1
        for d in target.shape:
            n *= d
        buffer = Buffer.of("b0", target.dtype, (1 << 40,))
        store = loops.store(buffer[s.index("i") + target.offset], s.const(number, target.dtype))
        sweep = loops.loop("i", s.param("n"), [store], "vector", parallel=True, grain=grain(1))
        kernel = Kernel("fill", (buffer,), ("n",), (sweep,))
        self.steps.append(KernelCall(label, [node], [], [target.storage], kernel, [target.storage], [n]))

    def add_up(self, parts: Layout, target: Layout, node: Node, label: str) -> None:
        """A step that sums the rows of `parts`, a contiguous matrix, in order, into a contiguous layout."""
        count, n = parts.shape
        source, result = (Buffer.of(name, x.dtype, (1 << 40,)) for name, x in (("parts", parts), ("total", target)))
        total = loops.Accumulator("sum", "sum", target.dtype)
        i, part = s.index("i"), s.index("part")
        add = loops.loop("part", count, [loops.update(total, source[part * s.param("n") + i + parts.offset])])
        store = loops.store(result[i + target.offset], total.value)
        sweep = loops.loop("i", s.param("n"), [total, add, store], "vector", parallel=True, grain=grain(count))
        kernel = Kernel("add_up", (source, result), ("n",), (sweep,))
        storages = [parts.storage, target.storage]
        self.steps.append(KernelCall(label, [node], storages[:1], storages[1:], kernel, storages, [n]))

    def copy(self, source: Layout, node: Node, target: Layout | None = None, label: str = "copy") -> Layout:
        """A step that copies a layout into a row-major one (or into `target`)."""
        if target is None:
            target = self.temporary(source.shape, source.dtype)
        if 0 in source.shape:
            return target
        result = target
        source, target = native_layout(source), native_layout(target)
        kernel = copy_kernel(
            source.shape,
            (source.dtype, target.dtype),
            (source.strides, source.offset),
            (target.strides, target.offset),
            self.target,
        )
        self.steps.append(
            KernelCall(label, [node], [source.storage], [target.storage], kernel, [source.storage, target.storage])
        )
        return result

    # Units ------------------------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Layout], targets: Sequence[Layout | None]) -> None:
        """Lower everything. `inputs` are the layouts of the flow's inputs; `targets[i]`, if given, is the layout that
        output i is stored to (the memory of a variable), else a fresh output is allocated."""
        for value, layout in zip(self.flow.inputs, inputs, strict=True):
            self.layouts[value] = layout
        units = self.fuser.run()
        variable_in = {id(layout.storage): value for value, layout in zip(self.flow.inputs, inputs, strict=True)}
        overwritten = {
            value: variable_in[id(target.storage)]
            for value, target in zip(self.flow.outputs, targets, strict=True)
            if target is not None and id(target.storage) in variable_in
        }
        units = updates_early(units, overwritten, self._last_check(units))
        self._find_readers(units)
        self.wanted: dict[Value, list[int]] = {}
        for i, value in enumerate(self.flow.outputs):
            self.wanted.setdefault(value, []).append(i)
        self.targets = targets
        self.settled: dict[int, Layout] = {}
        self.barrier = self._last_check(units)
        for number, unit in enumerate(units):
            if isinstance(unit, Cluster):
                self._cluster(unit)
            else:
                self._node(unit)
            self.done.add(number)
        self._finish()

    def _find_readers(self, units: list[Any]) -> None:
        inputs = set(self.flow.inputs)
        for number, unit in enumerate(units):
            for n in members(unit):
                for v in n.inputs:
                    while isinstance(v, Value):
                        if v in inputs:
                            self.readers.setdefault(v, set()).add(number)
                        # checked indices share the memory of the indices, see `weft.compiler.lowering.rules.checks`
                        seen_through = is_view(v.node) or v.node.op.identity == "always"
                        v = v.node.inputs[0] if seen_through else None
        self.position = {id(u): i for i, u in enumerate(units)}

    def _last_check(self, units: list[Any]) -> int:
        """The position of the last unit that may fail: variables are written only after it.

        Gathers, checks, host calls, branches and loops may fail.
        """
        from .registry import has_rule

        last = -1
        checked: set[tuple[Value, int]] = set()
        for number, unit in enumerate(units):
            for n in members(unit):
                if n.op.gather is not None or n.op.scatter in ("axis", "along"):
                    axis = n.attrs[0] % max(len(n.inputs[0].shape), 1)
                    use = (n.inputs[1], n.inputs[0].shape[axis] if n.inputs[0].shape else 0)
                    if within_range(*use) or use in checked:
                        continue  # indices already used by an earlier gather cannot fail
                    checked.add(use)
                elif n.op.observes and n.op.index_range is not None:
                    found = index_range(n)
                    if found is not None and found[0] >= -found[1]:
                        checked.add((n.inputs[0], found[1]))
                elif not (n.op.effects or not (isinstance(unit, Cluster) or has_rule(n))):
                    continue
                last = number
        return last

    def place(
        self,
        node: Node,
        index: int,
        strides: tuple[int, ...],
        unit: Any,
        reads: dict[int, list[Any]] | None,
        joins: bool = False,
        checked: bool = False,
    ) -> Layout:
        """The layout for output `index` of a node: a program output, a variable's own memory if that is safe, or the arena.

        `reads` maps the storages that the same step reads to its access patterns (offset, strides over the value's axes),
        or is None if the step may not overwrite its operands. With `joins` the layout may be part of a concatenation: for
        steps that write with any strides. `checked`: what may fail in this unit has been checked by earlier steps.
        """
        value = node.outputs[index]
        shape = tuple(value.shape)
        for i in self.wanted.get(value, ()):
            target = self.targets[i]
            if target is None or i in self.settled:
                continue
            if self._may_overwrite(target, unit, reads, checked):
                self.settled[i] = target
                self.layouts[value] = target
                return target
        for i in self.wanted.get(value, ()):
            if self.targets[i] is None and i not in self.settled:
                storage = self.new_storage("output", value.nbytes, index=i)
                layout = Layout(storage, value.dtype, shape, strides)
                self.settled[i] = layout
                self.layouts[value] = layout
                return layout
        part = part_of(self, value, strides) if joins else None
        layout = part if part is not None else self.temporary(shape, value.dtype, strides)
        self.layouts[value] = layout
        return layout

    def _may_overwrite(self, target: Layout, unit: Any, reads: Any, checked: bool) -> bool:
        """Whether a step may store its result in a variable: the old value has no later readers, and the step itself reads
        it element by element, if at all."""
        here = self.position[id(unit)]
        if here < self.barrier or (here == self.barrier and not checked):
            return False
        if any(x.storage is target.storage for operands in self.deferred_products.values() for x in operands):
            return False  # a deferred product still has to read it
        for value, layout in zip(self.flow.inputs, [self.layouts[v] for v in self.flow.inputs], strict=True):
            if layout.storage is not target.storage:
                continue
            for reader in self.readers.get(value, ()):
                if reader != here and reader not in self.done:
                    return False
            if value in self.flow.outputs:
                return False
        if reads is None:
            return target.storage not in self._reads_of(unit)
        ways = reads.get(id(target.storage), [])
        return all(
            way is not None and way[0] == target.offset and same_strides(way[1], target.strides, way[2]) for way in ways
        )

    def _reads_of(self, unit: Any) -> set[Storage]:
        found = set()
        for n in members(unit):
            for v in n.inputs:
                if isinstance(v, Value):
                    base = base_of(v)
                    if base in self.layouts:
                        found.add(self.layouts[base].storage)
        return found

    def _cluster(self, cluster: Cluster) -> None:
        if self.deferred_products:
            from .rules.update import lower_update

            if lower_update(self, cluster):
                return
        stored = [n for n in sorted(cluster.members, key=lambda n: n.order) if self._used_outside(n, cluster)]
        if all(n.op is FILLED and n.outputs[0] not in self.wanted for n in cluster.members):
            return
        nest: Nest

        def place(n: Node, strides: tuple[int, ...]) -> Layout:
            reads: dict[int, list[Any]] | None = None
            if not cluster.reduced and nest._full(n):
                reads = {}
                for load in nest.loads.values():
                    way = None if load.extra is not None else (load.offset, load.strides, nest.space)
                    reads.setdefault(id(load.storage), []).append(way)
            elif cluster.reduced and not nest._full(n):
                reads = self._reduced_reads(cluster, nest, n)
            return self.place(n, 0, strides, cluster, reads, joins=True)

        nest = Nest(cluster, self._alike(cluster), stored, place, self.temporary, self.target)
        kernel, storages = nest.build("k", self.memo)
        self._emit_checks(nest)
        reads = nest.read_storages
        writes = [layout.storage for layout, _ in nest.outputs.values()] + [x.storage for x in nest.partials]
        label = "+".join(dict.fromkeys(n.op.name for n in nest.members))
        step = KernelCall(label, nest.members, reads, writes, kernel, storages, nest.params, over=nest.overwritable())
        self.steps.append(step)

    def _alike(self, cluster: Cluster) -> Callable[[Value], Layout]:
        """The layouts of the cluster's operands, after copying those with another fastest axis."""
        transposed = {
            v: self.copy(self.layout_of(v), v.node, self.temporary(tuple(v.shape), v.dtype, strides))
            for v, strides in crosswise(cluster, self.layout_of, self.target).items()
        }
        return lambda v: transposed[v] if v in transposed else self.layout_of(v)

    def _reduced_reads(self, cluster: Cluster, nest: Nest, n: Node) -> dict[int, list[Any]] | None:
        """How members read storages while the reduced member `n` is computed; None marks a read at another time."""
        reads: dict[int, list[Any]] = {}
        for m in cluster.members:
            beside = not nest._full(m) and not nest._is_reduction(m) and nest.level[m] == nest.level[n]
            for v in m.inputs:
                if isinstance(v, Value) and nest._inside(v) is None and v.node.op is not CONSTANT:
                    layout = self.layout_of(v)
                    aligned = beside and layout.shape == tuple(n.outputs[0].shape)
                    way = (layout.offset, layout.strides, layout.shape) if aligned else None
                    reads.setdefault(id(layout.storage), []).append(way)
        return reads

    def _used_outside(self, n: Node, cluster: Cluster) -> bool:
        return n.outputs[0] in self.wanted or any(u not in cluster.axes for u in self._users(n))

    def is_read(self, value: Value) -> bool:
        """Whether this value, or a view of it, has readers."""
        return value in self.wanted or bool(self.readers_of(value))

    def readers_of(self, value: Value) -> list[Node]:
        """The nodes (including views) that read this value."""
        return [u for u in self._direct_users(value.node) if any(v is value for v in u.inputs)]

    def _users(self, n: Node) -> list[Node]:
        """The nodes that read the results of `n`, directly or through views; views that are outputs count."""
        found: list[Node] = []
        stack = list(self._direct_users(n))
        while stack:
            u = stack.pop()
            if is_view(u):
                if u.outputs[0] in self.wanted:
                    found.append(u)
                stack.extend(self._direct_users(u))
            else:
                found.append(u)
        return found

    def _direct_users(self, n: Node) -> list[Node]:
        if not hasattr(self, "_user_table"):
            self._user_table: dict[Node, list[Node]] = {}
            for node in self.flow.nodes:
                for v in node.inputs:
                    if isinstance(v, Value):
                        self._user_table.setdefault(v.node, []).append(node)
        return self._user_table.get(n, [])

    def _emit_checks(self, nest: Nest) -> None:
        for layout, size, node in nest.checks:
            self.check_indices(layout, -size, size, node)

    def check_indices(
        self,
        layout: Layout,
        low: int,
        high: int,
        node: Node,
        ignored: int | None = None,
        message: str = "",
        names_op: bool = False,
    ) -> None:
        """A step that fails if an index is outside [low, high) and not `ignored`. Emitted once per index tensor."""
        key = (id(layout.storage), layout.offset, layout.strides, low, high, ignored)
        if not hasattr(self, "_checked"):
            self._checked: set[Any] = set()
        if key in self._checked or layout.storage.kind == "constant" and _within(layout.storage.array, low, high):
            return  # a bad constant index fails at run time, like any other
        self._checked.add(key)

        def bad(value: Any) -> Any:
            i = s.cast(value, np.int64)
            outside = s.bitwise_or(s.lt(i, low), s.ge(i, high))
            return outside if ignored is None else s.bitwise_and(outside, s.ne(i, ignored))

        self.check(layout, bad, node, message or f"an index is out of range for an axis of size {high}", names_op)

    def check(self, layout: Layout, bad: Any, node: Node, message: str, names_op: bool = False) -> None:
        """Steps that fail with `message` if `bad(element)` holds anywhere; it gets the name of the op unless it `names_op`."""
        flag = self.temporary((), np.dtype(np.bool_))
        buffer = Buffer.of("b0", layout.dtype, (1 << 40,))
        out = Buffer.of("b1", flag.dtype, (1,))
        place = loops.as_index(layout.offset)
        acc = Accumulator("bad", "any", np.dtype(np.bool_))
        axes = [a for a in range(len(layout.shape)) if layout.shape[a] != 1]
        for k, a in enumerate(axes):
            place = place + s.index(f"i{k}") * layout.strides[a]
        body: list[Any] = [loops.update(acc, bad(buffer[place]))]
        for k in range(len(axes) - 1, -1, -1):
            body = [loops.loop(f"i{k}", layout.shape[axes[k]], body, "vector" if k == len(axes) - 1 else "serial")]
        kernel = Kernel("check", (buffer, out), (), (acc, *body, loops.store(out[0], acc.value)))
        self.steps.append(
            KernelCall("check", [node], [layout.storage], [flag.storage], kernel, [layout.storage, flag.storage])
        )
        if not names_op and not message.startswith(f"{node.op.title}:"):
            message = f"{node.op.name}: {message}"
        self.steps.append(Check(node, flag.storage, message))

    def _node(self, node: Node) -> None:
        from .registry import lower_node

        if node.op.subs:
            from .control import lower_control

            lower_control(self, node)
            return
        if lower_node(self, node):
            return
        self.host(node)

    def host(self, node: Node) -> None:
        """Run the op's NumPy kernel on the program's memory."""
        inputs = [self.layout_of(v) if isinstance(v, Value) else None for v in node.inputs]
        outputs = [self.place(node, i, row_major(tuple(v.shape)), node, None) for i, v in enumerate(node.outputs)]
        self.steps.append(HostCall(node, inputs, outputs))

    def _finish(self) -> None:
        """Copy every output to its target if it is not there yet."""
        self.results: list[Layout] = []
        late: list[tuple[Layout, Layout, Node]] = []
        for i, value in enumerate(self.flow.outputs):
            settled = self.settled.get(i)
            if settled is None:
                source = self.layout_of(value)
                target = self.targets[i]
                if target is None:
                    storage = self.new_storage("output", value.nbytes, index=i)
                    target = Layout(storage, value.dtype, tuple(value.shape), row_major(tuple(value.shape)))
                elif (
                    target.storage is source.storage
                    and target.offset == source.offset
                    and same_strides(target.strides, source.strides, target.shape)
                ):
                    self.results.append(target)
                    continue
                late.append((source, target, value.node))
                settled = target
            self.results.append(settled)
        # a variable's old value may be the source of another output: save those first
        written = {id(t.storage) for _, t, _ in late if t.storage.kind == "variable"}
        moves = []
        for source, target, node in late:
            if id(source.storage) in written and len(late) > 1 and source.storage is not target.storage:
                source = self.copy(source, node)
            moves.append((source, target, node))
        for source, target, node in sorted(moves, key=lambda m: m[1].storage.kind == "variable"):
            self.copy(source, node, target)


def _within(indices: np.ndarray, low: int, high: int) -> bool:
    """Whether all `indices` are in [low, high)."""
    return indices.size == 0 or bool(indices.min() >= low and indices.max() < high)
