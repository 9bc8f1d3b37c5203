"""Builds the loop nest of a cluster from its expressions: phases and loop order.

Note [Phases]. A cluster with reductions runs, for every point of its outer axes, a sequence of inner loops: phase 0
accumulates the reductions that need nothing else, phase 1 those that need the results of phase 0, and so on; a value
over the whole space is stored in the first phase in which it is known. A later phase recomputes what it needs, loads
it if it was stored, or reads it from a scratch row if recomputing is expensive.

Note [Two schedules]. Where the reduced axes are innermost in memory, the inner loop is the vector loop. Where they are
outer (a column sum), rows are walked one after another and a scratch row of accumulators is updated by a vector loop
across the columns: memory is read sequentially either way.

Note [Blocks of rows]. Where all rows reduce to one row of sums (the gradient of a bias), rows are processed in blocks, each
with its own sums, and the sums of the blocks are combined in order: blocks run in parallel, and whatever else is computed
per element streams through memory. The size of a block depends on the shape alone.

Note [Equal clusters]. A deep network repeats its layers, so most clusters of a program equal another one up to the storages
they use. A kernel depends on the members and on the layouts of values, not on their storages: `Memo` caches, by that
signature, what was built for a cluster, with storages as numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph.graph import Node, Value
from ...ops.core import scalar as s
from ...ops.core.costs import is_expensive
from ...ops.core.reductions import Reduction
from ...ops.core.scalar import Expr
from ..fusion import Cluster, base_of
from ..loop_ir import ir as loops
from ..loop_ir.ir import Accumulator, Buffer, Kernel, Let, Local, Statement
from ..program.layout import Layout, Storage, like_order, row_major, same_strides
from ..target import Target
from .nest_expressions import Expressions, Load

_COLUMN = s.index("c")  # the column in a column loop, whichever loop that is
TILE_COLUMNS = 1024  # accumulated together
FLOAT64_SUM_ELEMENTS = 4096  # from which float32 sums are accumulated in float64
TARGET_BLOCKS = 64  # approximate number of row blocks of a column sum
BLOCK_ROWS = (16, 1024)  # minimum and maximum rows of a block
MIN_BLOCK_ELEMENTS = 8192  # minimum elements of a block
MIN_PARTIAL_SUMS = 32  # minimum independent partial sums of a vector reduction


# signature -> (strides of results, loads with the numbers of their storages, places of results -> the finished kernel with
# the numbers of its storages, where negative ones stand for its own partial sums)
Memo = dict[Any, tuple[tuple[int, ...] | None, list[tuple[int, Load]], dict[Any, Any]]]


class Nest(Expressions):
    """Builds the kernel of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        layout_of: Callable[[Value], Layout],
        stored: list[Node],
        place: Callable[[Node, tuple[int, ...]], Layout],
        temporary: Callable[[tuple[int, ...], np.dtype], Layout],
        target: Target,
    ) -> None:
        super().__init__(cluster, layout_of)
        self.stored_nodes = stored
        self.place = place
        self.temporary = temporary
        self.target = target
        self.partials: list[Layout] = []  # partial sums: scratch that the kernel writes and reads back
        self.params: list[int] = []
        self.checks: list[tuple[Layout, int, Node]] = []

    # Order of loops -------------------------------------------------------------------------------------------------------

    def primary(self) -> tuple[int, ...] | None:
        """The strides of the largest load over the whole space: results get its memory order."""
        best = None
        for load in self.loads.values():
            if load.extra is None and all(st != 0 or d <= 1 for st, d in zip(load.strides, self.space, strict=True)):
                if best is None or load.strides == row_major(self.space):
                    best = load.strides
        return best

    def order(self, axes: list[int], strides: list[tuple[int, ...]]) -> list[int]:
        """The axes from the slowest to the fastest in memory, by the first strides that order them."""

        def key(a: int) -> tuple[int, ...]:
            return tuple([-abs(st[a]) if st[a] else -(1 << 60) for st in strides])

        return sorted([a for a in axes if self.space[a] != 1], key=lambda a: (key(a), a))

    def collapse(self, axes: list[int]) -> list[list[int]]:
        """Axes collapsed where every access is contiguous across them."""
        groups: list[list[int]] = []
        for a in axes:
            if groups and all(st[groups[-1][-1]] == st[a] * self.space[a] for st in self.access_strides):
                groups[-1].append(a)
            else:
                groups.append([a])
        return groups

    # Building ---------------------------------------------------------------------------------------------------------------

    def build(self, name: str, memo: Memo) -> tuple[Kernel, list[Storage]]:
        """The kernel and the storages of its buffers, in order. See Note [Equal clusters]."""
        key, numbers = self._signature()
        found = memo.get(key)
        if found is None:
            primary = self._find_loads()
            loads = [(numbers[load.storage], load) for load in self.loads.values()]
            found = memo[key] = (primary, loads, {})
        primary, loads, kernels = found
        fresh = not self.loads and loads
        storages = list(numbers)
        if fresh:
            self.loads = {
                i: Load(storages[k], ld.dtype, ld.offset, ld.strides, ld.extra, ld.leaf)
                for i, (k, ld) in enumerate(loads)
            }
        self._place_outputs(primary)
        places = tuple(
            [
                (numbers.setdefault(layout.storage, len(numbers)), layout.dtype, layout.offset, strides)
                for layout, strides in self.outputs.values()
            ]
        )
        made = kernels.get(places)
        if made is None:
            if fresh:
                self.loads = {}
                self._find_loads()
            kernel, used = self._build(name)
            read = {numbers[load.storage] for load in self.loads.values()}
            own = {x.storage: ~i for i, x in enumerate(self.partials)}
            used_numbers = [own[st] if st in own else numbers[st] for st in used]
            shapes = [(x.shape, x.dtype) for x in self.partials]
            made = kernels[places] = (kernel, used_numbers, self.params, read, shapes)
        else:
            self.partials = [self.temporary(*x) for x in made[4]]
        kernel, used_numbers, self.params, read, _ = made
        storages = list(numbers)
        self.read_storages = [storages[k] for k in used_numbers if k in read]
        return kernel, [storages[k] if k >= 0 else self.partials[~k].storage for k in used_numbers]

    def _signature(self) -> tuple[Any, dict[Storage, int]]:
        """The key of the kernel, with storages as numbers; and the external storages with their numbers."""
        numbers: dict[Storage, int] = {}
        position = {n: i for i, n in enumerate(self.members)}
        parts: list[Any] = [self.space, self.cluster.reduced, tuple([position[n] for n in self.stored_nodes])]
        for n in self.members:
            out = n.outputs[0]
            references: list[Any] = []
            for v in n.inputs:
                if not isinstance(v, Value):
                    references.append(v)
                    continue
                member = self._inside(v)
                if member is not None:
                    references.append(position[member])
                elif n.op.gather is None and self._literal(v):  # a gather reads its operand from memory
                    references.append((v.dtype, v.node.attrs[0].tobytes()))
                else:
                    layout = self.layout_of(v)
                    number = numbers.setdefault(layout.storage, len(numbers))
                    references.append((number, layout.dtype, layout.shape, layout.strides, layout.offset))
            attrs = repr(n.attrs) if n.attrs else ""
            parts.append((n.op, attrs, out.dtype, out.shape, self.cluster.axes[n], tuple(references)))
            if n.op.gather is not None:
                size = n.inputs[0].shape[n.attrs[0] % len(n.inputs[0].shape)]
                if not within_range(n.inputs[1], size):
                    self.checks.append((self.layout_of(n.inputs[1]), size, n))
        return tuple(parts), numbers

    def _find_loads(self) -> tuple[int, ...] | None:
        """Build the expressions of all members once to find the loads, which determine the layouts of results."""
        self.params = []
        self.scalars: dict[Node, Expr] = {}
        self.kept: dict[Node, Expr] = {}
        for n in self.members:
            if self._is_reduction(n) or not self._full(n):
                self.scalars[n] = s.var(f"r{len(self.scalars)}", n.outputs[0].dtype)
        for n in self.members:
            if self._full(n):
                self.member(n, self.level[n])
            elif self._is_reduction(n):
                self.operand(n.inputs[0], n, self.level[n] - 1)
            else:
                self.compute(n, self.level[n])
        return self.primary()

    def _place_outputs(self, primary: tuple[int, ...] | None) -> None:
        self.outputs: dict[Node, tuple[Layout, tuple[int, ...]]] = {}
        for n in self.stored_nodes:
            shape = tuple(n.outputs[0].shape)
            full = self._full(n)
            aligned = full or len(shape) == self.rank
            layout = self.place(n, like_order(shape, primary) if aligned else row_major(shape))
            strides = [0] * self.rank
            for d, st, a in zip(shape, layout.strides, self.cluster.axes[n], strict=True):
                if a is not None and d != 1:
                    strides[a] = st
            self.outputs[n] = (layout, tuple(strides))

    def _build(self, name: str) -> tuple[Kernel, list[Storage]]:
        self._keep()
        self.memo.clear()
        self.access_strides = [ld.strides for ld in self.loads.values()] + [st for _, st in self.outputs.values()]
        body = self._map() if not self.cluster.reduced else self._rows()
        return self._finish(name, body)

    def _keep(self) -> None:
        """Decide which full values a later phase loads instead of recomputing."""
        self.scratch: dict[Node, Buffer] = {}
        if self.phases < 2:
            return
        inner = 1
        for a in self.cluster.reduced:
            inner *= self.space[a]
        for n in self.members:
            if not self._full(n) or not self._used_later(n):
                continue
            if n in self.outputs:
                layout, strides = self.outputs[n]
                self.kept[n] = self.read(
                    Layout(layout.storage, layout.dtype, self.space, strides, layout.offset), tuple(range(self.rank))
                )
            elif (
                inner <= cached_elements(self.target)
                and self._expensive(n)
                and self._vector_axis() in self.cluster.reduced
            ):
                buffer = Buffer.of(f"row{len(self.scratch)}", n.outputs[0].dtype, (inner,))
                self.scratch[n] = buffer
                self.kept[n] = s.var(f"kept{len(self.scratch)}", n.outputs[0].dtype)

    def _used_later(self, n: Node) -> bool:
        return any(
            self._inside(v) is n and (self.level[m] - (1 if self._is_reduction(m) else 0)) > self.level[n]
            for m in self.members for v in m.inputs if isinstance(v, Value)
        )  # fmt: skip

    def _expensive(self, n: Node) -> bool:
        return is_expensive([self.member(n, self.level[n])])

    def _vector_axis(self) -> int:
        """The axis along which most accesses are contiguous, weighted by elements."""
        votes = [0] * self.rank
        for st in [ld.strides for ld in self.loads.values()] + [x for _, x in getattr(self, "outputs", {}).values()]:
            touched = 1
            for q, d in zip(st, self.space, strict=True):
                touched *= d if q else 1
            for a in range(self.rank):
                if abs(st[a]) == 1 and self.space[a] > 1:
                    votes[a] += touched
        if not any(votes):
            return max(range(self.rank), key=lambda a: (self.space[a] > 1, a), default=0)
        return max(range(self.rank), key=lambda a: (votes[a], a))

    def _map(self) -> list[Statement]:
        axes = self.order(
            list(range(self.rank)), [st for _, st in self.outputs.values()] + [ld.strides for ld in self.loads.values()]
        )
        groups = self.collapse(axes)
        self.index: dict[int, tuple[str, int]] = {}
        body = self._stores([(n, self.member(n, 0)) for n in self.stored_nodes])
        loops_ = self._loops(groups, body, "i", vector=True, parallel=True, inner_work=len(self.members))
        if len(groups) == 1:  # a flat loop: its length is a parameter, so that one kernel serves all lengths
            kind, var, size, *rest = loops_[0]
            self.params = [size]
            loops_ = [(kind, var, s.param("n"), *rest)]
        elif len(groups) > 1 and (rows := self._gathered(groups[-1])):
            self._prefetch_rows(loops_, groups, rows)
        return loops_

    def _gathered(self, lanes: list[int]) -> list[Load]:
        """The loads of gathered rows, contiguous along the `lanes`."""

        def fixed(extra: Expr) -> bool:
            inner = [self.leaves[e] for e in s.topological([extra]) if e in self.leaves]
            return all(not load.strides[a] for load in inner for a in lanes)

        found = [ld for ld in self.loads.values() if ld.extra is not None and abs(ld.strides[lanes[-1]]) == 1]
        return [ld for ld in found if fixed(ld.extra)]  # type: ignore[arg-type]

    def _prefetch_rows(self, loops_: list[Any], groups: list[list[int]], rows: list[Load]) -> None:
        """Prefetch the rows that later iterations gather: their addresses are unpredictable for the hardware."""
        level = loops_[0]
        for _ in groups[:-2]:
            level = level[3][0]
        length = self._size(groups[-1])
        prefetches = [
            (
                "near",
                ld,
                level[1],
                level[2],
                min(-(-length * ld.dtype.itemsize // self.target.line_bytes), self.target.prefetch.row_lines),
            )
            for ld in rows
        ]
        level[3][:0] = prefetches

    def overwritable(self) -> list[tuple[Storage, Storage]]:
        """(written, read): results that may overwrite a dead operand. Every element of such an operand is read at one point of
        the space only, and before the result's element at that point is written."""
        full = [n for n in self.outputs if self._full(n)]
        if self.cluster.reduced and (len(full) > 1 or not self._once()):
            return []
        written = {layout.storage for layout, _ in self.outputs.values()}
        reads: dict[Storage, list[Load]] = {}
        for load in self.loads.values():
            if load.storage not in written:
                reads.setdefault(load.storage, []).append(load)
        found: list[tuple[Storage, Storage]] = []
        for n in full:
            layout, strides = self.outputs[n]
            same = lambda x, layout=layout, strides=strides: (
                x.extra is None and x.offset == layout.offset and x.dtype.itemsize == layout.dtype.itemsize
                and same_strides(x.strides, strides, self.space)
            )  # fmt: skip
            found += [(layout.storage, st) for st, ways in reads.items() if all(map(same, ways))]
        return found

    def _stores(self, values: list[tuple[Node, Expr]]) -> list[Any]:
        """Stores of several values: all are computed before the first store, which may overwrite an operand of another."""
        if len(values) == 1:
            return [self._store(*values[0])]
        lets = [("let", s.var(f"v{i}", value.dtype), value) for i, (_, value) in enumerate(values)]
        return lets + [self._store(n, let[1]) for (n, _), let in zip(values, lets, strict=True)]

    def _store(self, n: Node, value: Expr) -> Statement:
        layout, strides = self.outputs[n]
        return ("store", layout, strides, value)  # type: ignore[return-value]

    def _loops(
        self,
        groups: list[list[int]],
        body: list[Any],
        prefix: str,
        *,
        vector: bool,
        parallel: bool,
        inner_work: int = 1,
    ) -> list[Any]:
        """Nested loops over groups of axes around `body`; the last is a vector loop, the first may run in parallel."""
        if not groups:
            return body
        sizes = [self._size(g) for g in groups]
        for k in range(len(groups) - 1, -1, -1):
            var = f"{prefix}{k}"
            kind = "vector" if vector and k == len(groups) - 1 else "serial"
            below = inner_work
            for d in sizes[k + 1 :]:
                below *= d
            is_parallel = parallel and k == 0
            body = [("loop", var, sizes[k], body, kind, is_parallel, grain(below) if is_parallel else 1, groups[k])]
        return body

    def _size(self, group: list[int]) -> int:
        n = 1
        for a in group:
            n *= self.space[a]
        return n

    def _rows(self) -> list[Any]:
        self.index = {}
        fast = self._vector_axis()
        strides = [ld.strides for ld in self.loads.values() if ld.extra is None] + [
            st for _, st in self.outputs.values()
        ]
        strides.sort(key=lambda st: -sum(1 for q in st if q))
        inner = self.collapse(self.order(sorted(self.cluster.reduced), strides))
        outer = self.collapse(self.order([a for a in range(self.rank) if a not in self.cluster.reduced], strides))
        if not outer or fast in self.cluster.reduced or not inner:
            return self._inner_vectors(outer, inner)
        if len(outer) == len(inner) == 1 and self._once():
            rows = block_rows(self._size(inner[0]), self._size(outer[0]), self.target)
            if rows:
                return self._column_blocks(outer[0], inner[0], rows)
        return self._column_vectors(outer, inner)

    def _once(self) -> bool:
        """Whether a single pass suffices: nothing in it depends on a reduction."""
        return all(
            self.level[n] == (1 if self._is_reduction(n) else 0)
            for n in self.members if self._is_reduction(n) or self._full(n)
        )  # fmt: skip

    def _inner_vectors(self, outer: list[list[int]], inner: list[list[int]]) -> list[Any]:
        body: list[Any] = [("local", b) for b in self.scratch.values()]
        inner_size = 1
        for g in inner:
            inner_size *= self._size(g)
        for phase in range(self.phases):
            accumulators: list[Any] = []
            updates: list[Any] = []
            for n in self.members:
                if self._is_reduction(n) and self.level[n] - 1 == phase:
                    dtype = _accumulator_dtype(n, inner_size // MIN_PARTIAL_SUMS)
                    acc = Accumulator(f"a{phase}_{len(accumulators)}", reduction_of(n).name, dtype)
                    accumulators.append((n, acc))
                    updates.append(("update", acc, self.operand(n.inputs[0], n, phase)))
            for n in self.members:
                if self._full(n) and self.level[n] == phase:
                    if n in self.outputs:
                        updates.append(self._store(n, self.member(n, phase)))
                    elif n in self.scratch:
                        updates.append(("scratch", self.scratch[n], self.member(n, phase)))
            body += [acc for _, acc in accumulators]
            if updates:
                body += self._loops(
                    inner, self._resolve_kept(updates, inner, f"j{phase}_"), f"j{phase}_", vector=True, parallel=False
                )
            for n, acc in accumulators:
                body.append(("let", self.scalars[n], s.cast(acc.value, n.outputs[0].dtype)))
            body += self._between(phase + 1)
        return self._loops(
            outer, body, "i", vector=False, parallel=True, inner_work=inner_size * max(1, len(self.members))
        )

    def _between(self, level: int) -> list[Any]:
        """Reduced members that are known once the phase before `level` is done."""
        done: list[Any] = []
        stores: list[Any] = []  # after all reads: a result may overwrite another member's operand
        for n in self.members:
            if self.level[n] != level:
                continue
            if not self._is_reduction(n) and not self._full(n):
                done.append(("let", self.scalars[n], self.compute(n, level)))
            if not self._full(n) and n in self.outputs:
                stores.append(self._store(n, self.scalars[n]))
        return done + stores

    def _resolve_kept(self, statements: list[Any], inner: list[list[int]], prefix: str) -> list[Any]:
        """Scratch rows are indexed by the position in the inner loops."""
        if not self.scratch:
            return statements
        position: Expr = loops.as_index(0)
        for k, g in enumerate(inner):
            position = position * self._size(g) + s.index(f"{prefix}{k}")
        replace = {self.kept[n]: buffer[position] for n, buffer in self.scratch.items()}

        def put(value: Expr) -> Expr:
            return s.substitute(value, lambda e: replace.get(e))

        result: list[Any] = []
        for st in statements:
            if st[0] == "scratch":
                result.append(("direct", loops.store(st[1][position], put(st[2]))))
            elif st[0] == "update":
                result.append(("update", st[1], put(st[2])))
            else:
                result.append(("store", st[1], st[2], put(st[3])))
        return result

    def _column_vectors(self, outer: list[list[int]], inner: list[list[int]]) -> list[Any]:
        """Rows walked in order, a tile of accumulators updated across the columns (the last outer group)."""
        columns = outer[-1]
        width = self._size(columns)
        rest = outer[:-1]
        others = 1
        for g in rest:
            others *= self._size(g)
        tile = _tile(width, others)
        depth = 1
        for g in inner:
            depth *= self._size(g)
        body: list[Any] = []
        scalars = dict(self.scalars)
        position = _COLUMN
        local: dict[Node, Buffer] = {}
        self._tiled = (columns, tile, width)
        for phase in range(self.phases):
            accumulate: list[Any] = []
            for n in self.members:
                if self._is_reduction(n) and self.level[n] - 1 == phase:
                    dtype = _accumulator_dtype(n, depth)
                    buffer = local[n] = Buffer.of(f"acc{len(local)}", dtype, (tile,))
                    body.append(("local", buffer))
                    body.append(
                        (
                            "loop",
                            "c",
                            tile,
                            [("direct", loops.store(buffer[position], _identity(n, dtype)))],
                            "vector",
                            False,
                            1,
                            columns,
                        )
                    )
                    value = self.operand(n.inputs[0], n, phase)
                    accumulate.append(("combine", buffer, position, n, value))
            for n in self.members:
                if self._full(n) and self.level[n] == phase and n in self.outputs:
                    accumulate.append(self._store(n, self.member(n, phase)))
            if accumulate:
                row = [("loop", "c", tile, accumulate, "vector", False, 1, columns)]
                body += self._loops(inner, row, f"j{phase}_", vector=False, parallel=False)
            known = [n for n in self.members if self.level[n] == phase + 1 and not self._full(n)]
            done: list[Any] = []
            stores: list[Any] = []
            for n in known:
                if self._is_reduction(n):
                    done.append(("let", scalars[n], s.cast(local[n][position], n.outputs[0].dtype)))
                else:
                    done.append(("let", scalars[n], self.compute(n, phase + 1)))
                if n in self.outputs:
                    stores.append(self._store(n, scalars[n]))
                if self._needed_after(n, phase + 1):
                    keep = Buffer.of(f"keep{len(local)}_{len(done)}", n.outputs[0].dtype, (tile,))
                    body.append(("local", keep))
                    done.append(("direct", loops.store(keep[position], scalars[n])))
                    self.scalars[n] = keep[position]
            if done:
                body.append(("loop", "c", tile, done + stores, "vector", False, 1, columns))
            self.memo.clear()
        inner_size = 1
        for g in inner:
            inner_size *= self._size(g)
        if tile != width:
            body = [("loop", "ct", width // tile, body, "serial", not rest, grain(inner_size * tile), [])]
        return self._loops(rest, body, "i", vector=False, parallel=True, inner_work=inner_size * width)

    def _column_blocks(self, columns: list[int], rows: list[int], count: int) -> list[Any]:
        """`count` rows at a time, walked in order; then the members that depend on their sums. See Note [Blocks of rows]."""
        width, depth = self._size(columns), self._size(rows)
        blocks = -(-depth // count)
        self._tiled = (columns, width, width)
        self._row = ("j", s.index("block") * count + s.index("j"))

        def along(body: list[Any], least: int = 0) -> Any:
            return ("loop", "c", width, body, "vector", least > 0, max(least, 1), columns)

        before: list[Any] = []
        inside: list[Any] = []
        after: list[Any] = []
        totals: list[Any] = []
        for i, n in enumerate(n for n in self.members if self._is_reduction(n)):
            sums = Buffer.of(f"acc{i}", _accumulator_dtype(n, count), (width,))
            before += [("local", sums), along([("direct", loops.store(sums[_COLUMN], _identity(n, sums.dtype)))])]
            inside.append(("combine", sums, _COLUMN, n, self.operand(n.inputs[0], n, 0)))
            partials = self.temporary((blocks, width), sums.dtype)
            self.partials.append(partials)
            after.append(along([("partials", partials, s.index("block") * width + _COLUMN, sums[_COLUMN])]))
            part, b = s.var(f"part{i}", partials.dtype), f"p{i}"
            self.leaves[part] = Load(
                partials.storage, partials.dtype, 0, (0,) * self.rank, s.index(b) * width + _COLUMN, part
            )
            total = Accumulator(f"a{i}", reduction_of(n).name, _accumulator_dtype(n, blocks))
            totals += [total, ("loop", b, blocks, [("update", total, part)], "serial", False, 1, [])]
            totals.append(("let", self.scalars[n], s.cast(total.value, n.outputs[0].dtype)))
        inside += [self._store(n, self.member(n, 0)) for n in self.members if self._full(n) and n in self.outputs]
        here: Any = count if depth % count == 0 else s.minimum(loops.as_index(count), depth - s.index("block") * count)
        walk = ("loop", "j", here, [along(inside)], "serial", False, 1, rows)
        body: Any = ("loop", "block", blocks, [*before, walk, *after], "serial", True, grain(count * width), [])
        return [body, along([*totals, *self._between(1)], grain(blocks))]

    def _needed_after(self, n: Node, level: int) -> bool:
        return any(
            self._inside(v) is n and (self._full(m) or self._is_reduction(m) or self.level[m] > level)
            for m in self.members for v in m.inputs if isinstance(v, Value)
        )  # fmt: skip

    # From abstract statements to the loop IR ----------------------------------------------------------------------------------

    def _finish(self, name: str, body: list[Any]) -> tuple[Kernel, list[Storage]]:
        buffers: dict[Any, tuple[Buffer, Storage]] = {}

        def buffer_for(storage: Storage, dtype: np.dtype) -> Buffer:
            key = (id(storage), dtype)
            if key not in buffers:
                buffers[key] = (Buffer.of(f"b{len(buffers)}", dtype, (1 << 40,)), storage)
            return buffers[key][0]

        def position(offset: int, strides: tuple[int, ...]) -> Expr:
            total = loops.as_index(offset)
            seen: set[str] = set()
            for a in range(self.rank):
                if a in self.index and strides[a]:
                    var, fastest = self.index[a]
                    if var not in seen:
                        seen.add(var)
                        total = (
                            total + self._loop_index(var) * strides[fastest]
                        )  # the stride of a group is that of its fastest axis
            return total

        cache: dict[Expr, Expr] = {}
        columns = [0]

        def resolve(expr: Expr) -> Expr:
            def replace(e: Expr) -> Expr | None:
                if e is _COLUMN:
                    return s.index(self._column)
                load = self.leaves.get(e)
                if load is None:
                    return None
                found = cache.get(e)
                if found is None:
                    place = position(load.offset, load.strides)
                    if load.extra is not None:
                        place = place + resolve(load.extra)
                    found = cache[e] = buffer_for(load.storage, load.dtype)[place]
                return found

            return s.substitute(expr, replace)

        def convert(statements: list[Any]) -> list[Statement]:
            made: list[Statement] = []
            for st in statements:
                if isinstance(st, Accumulator):
                    made.append(st)
                    continue
                match st[0]:
                    case "loop":
                        _, var, size, inner, kind, parallel, least, group = st
                        if var == "c":  # sequential column loops need distinct names
                            columns[0] += 1
                            var = self._column = f"c{columns[0]}"
                        for a in group:
                            self.index[a] = (var, group[-1])
                        cache.clear()
                        made.append(loops.loop(var, size, convert(inner), kind, parallel=parallel, grain=least))
                    case "near":
                        _, load, var, size, lines = st
                        here = {s.index(var): s.minimum(s.index(var) + self.target.prefetch.gathered_rows, size - 1)}
                        place = s.substitute(position(load.offset, load.strides) + resolve(load.extra), here.get)
                        line = s.index(f"near{len(made)}")
                        row = buffer_for(load.storage, load.dtype)[
                            place + line * (self.target.line_bytes // load.dtype.itemsize)
                        ]
                        made.append(loops.loop(f"near{len(made)}", lines, [loops.prefetch(row)], "unroll"))
                    case "store":
                        _, layout, strides, value = st
                        target = buffer_for(layout.storage, layout.dtype)[position(layout.offset, strides)]
                        made.append(loops.store(target, resolve(value)))
                    case "update":
                        made.append(loops.update(st[1], resolve(st[2])))
                    case "let":
                        made.append(Let(st[1].payload, resolve(st[2])))
                    case "local":
                        made.append(Local(st[1]))
                    case "direct":
                        made.append(
                            loops.Store(st[1].buffer, tuple([resolve(i) for i in st[1].indices]), resolve(st[1].value))
                        )
                    case "partials":
                        _, partials, at, value = st
                        target = buffer_for(partials.storage, partials.dtype)[resolve(at)]
                        made.append(loops.store(target, resolve(value)))
                    case "combine":
                        _, buffer, at, n, value = st
                        at = resolve(at)
                        combined = reduction_of(n).combine(buffer[at], s.cast(resolve(value), buffer.dtype))
                        made.append(loops.store(buffer[at], combined))
            return made

        statements = convert(body)
        names = ("n",) if self.params else ()
        kernel = Kernel(name, tuple([b for b, _ in buffers.values()]), names, tuple(statements))
        return kernel, [st for _, st in buffers.values()]

    def _loop_index(self, var: str) -> Expr:
        if var == self._row[0]:
            return self._row[1]
        if var == self._column and self._tiled[1] != self._tiled[2]:
            return s.index("ct") * self._tiled[1] + s.index(var)
        return s.index(var)

    _column = ""

    _row: tuple[str, Expr] = ("", loops.as_index(0))  # a loop over the rows of a block, and the global row

    _tiled: tuple[Any, int, int] = (None, 0, 0)


def within_range(indices: Value, size: int) -> bool:
    """Whether indices are in [0, size) by construction: gathers cannot fail."""
    found = index_range(base_of(indices).node)
    return found is not None and 0 <= found[0] and found[1] <= size


def index_range(node: Node) -> tuple[int, int] | None:
    """(low, high) if the op's record says that the result is in [low, high)."""
    op: Any = node.op
    return None if op.index_range is None else op.run(op.index_range, op.merge(node.inputs, node.attrs))


def grain(work: int, least: int = 32768) -> int:
    """How many iterations of this much work are worth a thread."""
    return least // max(work, 1) + 1


def cached_elements(target: Target) -> int:
    """float32 elements that stay in L1 beside as many others: a row kept between phases, the sums of columns."""
    return target.l1_bytes // 2 // 4


def block_rows(depth: int, width: int, target: Target) -> int:
    """The rows of a block of a column sum, or 0 if blocking does not pay or rows are too wide."""
    if depth * width < 4 * MIN_BLOCK_ELEMENTS or width > cached_elements(target):
        return 0
    least, most = BLOCK_ROWS
    rows = min(max(depth // TARGET_BLOCKS, least, -(-MIN_BLOCK_ELEMENTS // width)), most)
    return rows if 2 * rows <= depth else 0


def _tile(width: int, others: int) -> int:
    """The columns to accumulate together: all, or a divisor that leaves enough tiles for the threads."""
    if width <= TILE_COLUMNS and others >= 4 or width < 128:
        return width
    for tile in range(min(TILE_COLUMNS, width // 2), 31, -1):
        if width % tile == 0 and tile % 16 == 0:
            return tile
    return width if width <= 8 * TILE_COLUMNS else next(t for t in range(TILE_COLUMNS, 0, -1) if width % t == 0)


def reduction_of(n: Node) -> Reduction:
    assert n.op.reduction is not None
    return n.op.reduction


def _accumulator_dtype(n: Node, depth: int) -> np.dtype:
    """Wider than the result where sequentially adding `depth` elements would lose precision."""
    dtype = n.outputs[0].dtype
    if dtype == s.FLOAT32 and reduction_of(n).accumulates_error and depth >= FLOAT64_SUM_ELEMENTS:
        return s.FLOAT64
    return s.FLOAT32 if dtype in (s.FLOAT16, s.BFLOAT16) else dtype


def _identity(n: Node, dtype: np.dtype) -> Expr:
    return s.const(reduction_of(n).identity_of(dtype), dtype)
