"""Trace: one signature of a captured function, its graph and the program that runs instead of the Python code."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from operator import attrgetter, is_
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd import withheld
from ...autograd.engine import run_backward
from ...autograd.hooks import hooks_of
from ...autograd.tape import (
    Leaf,
    Moment,
    grad_mode,
    latest,
    memory_of,
    mutations,
    no_grad,
    note_mutation,
    relinked,
    renew,
    tick,
)
from ...autograd.tree import flatten, kind_of, unflatten
from ...compiler.build import CompiledFlow, compile_flow
from ...compiler.flow import from_graph
from ...ops.array.row_sparse import RowSparse
from ...ops.core import inplace, recording
from ...tensor import Tensor, wrap
from ..graph import Value
from . import relinking
from .breaks import output_cuts
from .python_reads import Watch
from .sharing import Outside, bounds, overlap, repeats
from .signature import describe_leaves
from .tracing import Capture, Uncapturable, gradient_kind

if TYPE_CHECKING:
    from .function import CapturedFunction

ndarray = np.ndarray
_data_of = attrgetter("_data")
CUT = object()  # of a view's history: it has none
_SHARED = (
    "arguments or outside tensors share memory to which it writes. Pass tensors with separate memory (`x.clone()`), or "
    "make views inside of it"
)


class Eagerly:
    """What `Trace.run` returns instead of running, with the reason, which completes "because …"."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _link(node: Any) -> bool | None:
    """What a captured function must know of a tensor's place on the tape."""
    return None if node is None else node.__class__ is Leaf


class Trace:
    """One signature: the captured graph and its compiled program."""

    _since: int  # when frozen tensors were last read
    _looked: int  # the clock of writes when they were last looked at
    _moment: Moment  # of our last writes

    def __init__(self, owner: CapturedFunction, leaves: list[Any], structure: Any, python: Callable[..., Any]) -> None:
        self.owner = owner
        self.signature = describe_leaves(leaves)
        self.reason: str | None = None  # why all calls run eagerly, if they do
        self.guards: list[
            tuple[Any, bool | None]
        ] = []  # (tensor or number of an argument, `gradient_kind` of its gradient)
        self.variants = [self]
        self.links: list[tuple[Tensor, Any]] = []  # outside tensors: whether they are leaves, None: require no gradient
        self.hooks: list[tuple[Tensor, Any]] = []  # outside tensors: the hooks that the gradients taken here include
        self.inner_gradients: list[int] = []  # arguments whose gradients it may take, without hooks
        self.relinked = -1  # the clock of `tape.relinked` when `links` was compared last
        started = time.perf_counter()
        self.capture = Capture(getattr(owner.fn, "__qualname__", "function"))
        self.capture.graph.may_cut = not (owner.fullgraph or owner.freeze)
        self.watch = Watch(owner.fn)
        self.reads: Callable[[], bool] | None = None  # whether Python values that the trace read are the same still
        try:
            result = self._run_python(leaves, structure, python)
            self.reads = self.watch.check()
            self.traced_seconds = time.perf_counter() - started
            self._collect(result)
            if self.reason is None:
                self._check_outside()
        except Uncapturable as error:
            self.reason = error.reason
            self._collect_guards()
        except inplace.LeafWriteError:
            if not self.capture.relinks:
                raise
            self.reason = (
                "it writes to a tensor whose `requires_grad` it changes, or to a view of it"  # eagerly it may do so
            )
            self._collect_guards()
        finally:
            self.capture.graph.restore()
            self.capture.relinks.undo()
        if self.reason is None:
            started = time.perf_counter()
            self._compile()
            self.compile_seconds = time.perf_counter() - started

    def _run_python(self, leaves: list[Any], structure: Any, python: Callable[..., Any]) -> list[Any]:
        """Run the function on symbolic arguments; returns its result in a list of one element."""
        symbolic: list[Any] = []
        capture = self.capture
        with capture:
            for i, leaf in enumerate(leaves):
                if isinstance(leaf, ndarray):
                    leaf = wrap(leaf)
                if isinstance(leaf, Tensor):
                    symbolic.append(capture.argument(leaf, f"argument{i}"))
                else:
                    symbolic.append(leaf)
            if isinstance(structure, int):
                with self.watch, output_cuts(self.owner.fn, self.capture.graph.may_cut):
                    return [python(*symbolic)]
            call_args, call_kwargs = unflatten(structure, symbolic)
            containers = _containers((*call_args, *call_kwargs.values()))
            with self.watch, output_cuts(self.owner.fn, self.capture.graph.may_cut):
                result = [python(*call_args, **call_kwargs)]
            if any(not _same_items(c, items) for c, items in containers):
                self.reason = (
                    "it changes a container argument (a list, dict or dataclass). Return the new values, or write into the "
                    "tensors in place"
                )
            return result

    def _collect(self, result: list[Any]) -> None:
        """Classify the function's results and the values it left in arguments, gradients and variables.

        `result` holds the returned object and is emptied, so that any symbolic tensor still alive afterwards has escaped.
        """
        capture, graph = self.capture, self.capture.graph
        if self.reason is not None:
            return
        leaves, self.structure = flatten(result.pop())
        self.returns: list[Any] = []  # see `_returned`
        self.values: list[Value] = []
        self.roots: list[tuple[Any, Tensor]] = []  # (position in `values` or what is written, its last symbolic form)
        returned: set[int] = set()
        self._argument_of = {id(t): i for i, t in enumerate(capture.stand_ins)}
        self._position_of: dict[int, int] = {}  # of results in `values`, by identity
        self.written = [v for v in graph.variables if v.final is not None and v.final is not v.entry]
        self.written_arguments = [
            (i, t._data)
            for i, (t, v) in enumerate(zip(capture.stand_ins, graph.inputs, strict=True))
            if t._data is not v
        ]
        self.returns += [self._returned(leaf, returned) for leaf in leaves]
        self.relinks = capture.relinks.collect(self._argument_of, self._position_of)
        self._collect_gradients(returned)
        self._collect_recorded_writes()
        if capture.gradients.differentiates:
            self.inner_gradients = [i for i, t in enumerate(capture.leaves) if t._node is not None]
        self.argument_strides = [capture.originals[id(t)]._data.strides for t in capture.stand_ins]
        self._prepare_backward()
        del leaves
        self.roots = [(where, None) for where, _ in self.roots]  # type: ignore[misc]
        self._argument_of.clear()
        self._position_of.clear()
        graph.restore()
        graph.touched.clear()
        graph.families.clear()
        capture.gradients.changed.clear()
        capture.finish(returned)

    def _collect_gradients(self, returned: set[int]) -> None:
        gradients = self.capture.gradients
        self.gradients: list[tuple[Any, Any]] = []  # (outside tensor, argument number or ~number, what to store)
        self.cleared: list[Tensor] = []  # outside tensors that have no gradient afterwards
        updated = {id(v.tensor._data) for v in self.written}
        leaf_of = self._collect_guards()
        for key, (tensor, g) in gradients.changed.items():
            target: Any = leaf_of.get(key, tensor)
            if target is tensor and type(tensor._data) is Value:
                if key not in self._position_of:
                    continue  # a leaf made inside the function: it ends with the call, and its gradient with it
                target = ("value", self._position_of[key])
            had = gradients.found.get(key, (None, None, None))[1] is not None
            visible = self.owner.keep_grads or had or target is not tensor or id(tensor._data) not in updated
            if g is not None and not visible:
                withheld.note(tensor, self)
            stored = self._returned(g, returned) if g is not None and visible else None
            if stored is None and target is tensor:
                self.cleared.append(tensor)
            else:
                self.gradients.append((target, stored))

    def _collect_guards(self) -> dict[int, int]:
        """Record whose gradients the function read. Returns the numbers of arguments by their leaves."""
        capture = self.capture
        numbers = {id(t): ~i for i, t in enumerate(capture.leaves)} | {
            id(t): i for i, t in enumerate(capture.stand_ins)
        }
        self.gradient_owners: list[Any] = []  # whose gradients the arguments after those of the call are
        for key, (tensor, stand_in, kind) in capture.gradients.found.items():
            owner: Any = numbers.get(key, tensor)
            self.guards.append((owner, kind))
            if stand_in is not None:
                self.gradient_owners.append(owner)
        return numbers

    def _collect_recorded_writes(self) -> None:
        """Arguments and outside tensors whose tape node changed: they are results of the call, too."""
        capture, graph = self.capture, self.capture.graph
        if not grad_mode.enabled:
            return
        for i, _ in self.written_arguments:
            t = capture.stand_ins[i]
            if t._node is not None and t._node.__class__ is not Leaf:
                self.roots.append((~i, wrap(t._data, t._node)))
        for tensor, _, node in graph.touched.values():
            if tensor._node is not None and tensor._node is not node:
                self.roots.append((tensor, wrap(graph.outside(tensor), tensor._node)))

    def _returned(self, leaf: Any, returned: set[int]) -> Any:
        """How a call makes what the function returned: ("same", object), ("argument", number), ("value", position),
        ("view", base, chain of views, position of its history or None), ("sparse", indices, values, shape)."""
        if isinstance(leaf, RowSparse):
            returned.update((id(leaf.indices), id(leaf.values)))
            return ("sparse", self._returned(leaf.indices, returned), self._returned(leaf.values, returned), leaf.shape)
        if not isinstance(leaf, Tensor) or type(leaf._data) is not Value:
            return ("same", leaf)
        if leaf._data.node.graph is not self.capture.graph:
            self.capture.graph.foreign(leaf._data)
        number = self._argument_of.get(id(leaf))
        if number is not None:
            return ("argument", number)
        view = getattr(leaf, "_view", None)
        if view.__class__ is recording.View:
            base = view.base if type(view.base._data) is ndarray else self._argument_of.get(id(view.base))
            if base is not None:
                return ("view", base, [(v.step, v.cut) for v in view.chain()], self._history(leaf, view.base))
        if id(leaf) not in self._position_of:
            self._position_of[id(leaf)] = self._as_value(leaf)
        return ("value", self._position_of[id(leaf)])

    def _history(self, leaf: Tensor, base: Tensor) -> Any:
        """Where a view of `base` has its history from: None (the base), `CUT` (it has none) or a position in `values`."""
        if leaf._node is None:
            return CUT
        if leaf._node.__class__ is Leaf:
            raise Uncapturable(
                "it returns a view of an argument or outside tensor that it made a leaf", "Return `x.clone()` instead."
            )
        own = inplace.tape_root(leaf) is not base or self.capture.relinks.is_changed(base)
        return self._as_value(leaf) if own else None

    def _as_value(self, leaf: Tensor) -> int:
        self.values.append(leaf._data)
        if leaf._node is not None and grad_mode.enabled:
            self.roots.append((len(self.values) - 1, wrap(leaf._data, leaf._node)))
        return len(self.values) - 1

    def _prepare_backward(self) -> None:
        """If results can be differentiated outside, capture the pullback too (see `weft.graph.capture.backward`)."""
        self.backward: Any = None
        if self.roots:
            from .backward import capture_backward

            self.backward = capture_backward(self, self.roots)

    def _check_outside(self) -> None:
        graph = self.capture.graph
        self.variables = [v.tensor for v in graph.variables]
        number = {id(v): i for i, v in enumerate(graph.variables)}
        self.written_numbers = [number[id(v)] for v in self.written]
        if grad_mode.enabled:
            self.links = [(t, _link(node)) for v in graph.variables for t, node in v.places]
        if self.relinks is not None:
            self.links += [(t, _link(node)) for t, node in self.relinks.guards]
        if self.capture.gradients.differentiates:
            self.hooks = [(t, hooks_of(node)) for v in graph.variables for t, node in v.places if node is not None]
        self.writes_memory = bool(self.written or self.written_arguments)
        self._outside: Outside | None = None
        self._bindings: dict[tuple[int, ...], tuple[list[ndarray], Outside | None]] = {}
        if self.writes_memory:
            self._outside = Outside([t._data for t in self.variables], self.written_numbers)
            if self._outside.clash:
                self.reason = _SHARED

    def _compile(self) -> None:
        graph = self.capture.graph
        extra = [] if self.backward is None else self.backward.saved
        outputs = [*self.values, *extra, *[v for _, v in self.written_arguments], *[v.final for v in self.written]]
        inputs = [*graph.inputs, *[v.entry for v in graph.variables]]
        self.flow = from_graph(graph, inputs, outputs, None if self.backward is None else self.backward.precedes)
        targets: list[int | None] = [None] * (len(self.values) + len(extra))
        targets += [~i for i, _ in self.written_arguments]
        targets += self.written_numbers
        freeze = self._only_read() if self.owner.freeze else []
        self._frozen = [t for t, f in zip(self.variables, freeze, strict=False) if f]
        self._watch(tick())
        self.compiled: CompiledFlow = compile_flow(
            self.flow,
            len(graph.inputs),
            [t._data for t in self.variables],
            targets,
            self.owner.memory_budget,
            self.owner.tune,
            freeze,
            self.owner.sizes,
        )
        self.mutated = [v.tensor for v in self.written]
        self._writes: list[Any] = [(0, None, None)] * len(self.mutated)  # (key of the memory, our write, array)
        self._noted = -1  # the clock of our last write

    def holds(self, tensors: list[Tensor]) -> bool:
        """Whether the tensors whose gradients this trace looked at have one now exactly if they had one then, and outside
        tensors that the tape knew, or did not know, are such tensors still."""
        if self.reads is not None and not self.reads():
            return False
        now = relinked.clock
        if self.relinked != now:
            if any(_link(t._node) is not link for t, link in self.links):
                return False
            if any(hooks_of(t._node) != hooks for t, hooks in self.hooks):
                return False
            self.relinked = now
        for owner, kind in self.guards:
            if owner.__class__ is int:
                owner = tensors[owner if owner >= 0 else ~owner]
            if gradient_kind(getattr(owner, "_grad", None)) is not kind:
                return False
        return True

    def run(self, tensors: list[Tensor]) -> Any:
        """Run the program; returns an `Eagerly` if this call cannot run as one."""
        if self.reason is not None:
            return Eagerly(self.reason)
        if self.relinks is not None and self.relinks.aliased(tensors):
            return Eagerly(relinking.SHARED)
        compiled = self.compiled
        if self.gradient_owners:
            owners = [tensors[o if o >= 0 else ~o] if o.__class__ is int else o for o in self.gradient_owners]
            tensors = [*tensors, *[o._grad for o in owners]]
        if any(hooks_of(tensors[i]._node) for i in self.inner_gradients):
            return Eagerly("an argument has gradient hooks, and it takes gradients itself")
        arguments = [compiled.fit(i, t._data) for i, t in enumerate(tensors)]
        variables = compiled.seen
        if not all(map(is_, map(_data_of, self.variables), variables)):
            variables = self._rebind()
            self._noted = -1
            self.refresh()
        elif self._frozen and self._changed():
            self.refresh()
        if self.writes_memory and self._shares(tensors):
            return Eagerly(_SHARED)
        outputs = compiled.program(arguments, variables)
        if self.written_arguments:
            self._store_arguments(tensors, arguments)
        if self.mutated and self.owner.notes_writes:
            self._note_writes()
        results = [wrap(a) for a in outputs[: len(self.values)]]
        entries = [t._node for t in tensors] if self.backward is not None or self.gradients else ()
        if self.relinks is None:
            if self.backward is not None:
                self.backward.attach(tensors, results, outputs[len(self.values) :])
        else:
            find = functools.partial(self._make, results=results, tensors=tensors)
            leaves = self.relinks.new_leaves(find)
            if self.backward is not None:
                self.backward.attach(tensors, results, outputs[len(self.values) :], leaves)
            self.relinks.apply(find, leaves)
        for tensor in self.cleared:
            tensor._grad = None
        if self.gradients:
            self._store_gradients(tensors, entries, results)
        made = [self._make(r, results, tensors) for r in self.returns]
        return made[0] if self.structure is None else unflatten(self.structure, made)

    def _rebind(self) -> list[ndarray]:
        """The arrays that outside tensors have now: they are checked, unless they were before."""
        compiled, variables = self.compiled, [t._data for t in self.variables]
        key = tuple(map(id, variables))
        known = self._bindings.get(key)
        if known is None:
            compiled.check_variables(variables)
            known = (variables, Outside(variables, self.written_numbers) if self.writes_memory else None)
            if self.owner.bindings > 1:
                if len(self._bindings) >= self.owner.bindings:
                    self._bindings.clear()
                self._bindings[key] = known
        compiled.seen, self._outside = known
        return known[0]

    def _shares(self, tensors: list[Tensor]) -> bool:
        """Whether memory that the program writes is aliased in a way unknown at capture. Raises if an argument that it writes
        is read-only."""
        outside = self._outside
        assert outside is not None
        if outside.clash:
            return True
        if self.written_arguments:
            return self._written_arguments_share(tensors, outside)
        owners = outside.owners
        for t in tensors:
            data = t._data
            owner = data if data.base is None else memory_of(data)
            if owner.base is None and owners is not None:
                if id(owner) not in owners:
                    continue  # both own their memory, and it is not the same
            elif not outside.written_ranges.meet(*bounds(data)):
                continue
            if outside.shared(data, False):
                return True
        return False

    def _written_arguments_share(self, tensors: list[Tensor], outside: Outside) -> bool:
        datas = [t._data for t in tensors]
        if self.capture.graph.layouts_matter and [d.strides for d in datas] != self.argument_strides:
            return True  # a reshape that is a view of one layout is a copy of another
        recorded = {~where for where, _ in self.roots if where.__class__ is int and where < 0}
        ranges = [bounds(d) for d in datas]
        written = [i for i, _ in self.written_arguments]
        for i in written:
            inplace.check_writeable(self.owner.__name__, tensors[i])
            if i in recorded and not (self.relinks is not None and ("argument", i) in self.relinks.changed):
                inplace.refuse_leaf(self.owner.__name__, tensors[i])
            if repeats(datas[i]):
                return True
            low, high = ranges[i]
            for j, (start, end) in enumerate(ranges):
                if i != j and low < end and start < high and overlap(datas[i], datas[j]):
                    return True
        for i, (low, high) in enumerate(ranges):
            writes = i in written
            if (outside.ranges if writes else outside.written_ranges).meet(low, high) and outside.shared(
                datas[i], writes
            ):
                return True
        return False

    def _store_arguments(self, tensors: list[Tensor], arguments: list[Any]) -> None:
        """Copy written arguments back and note the writes on the tape's mutation clock."""
        for i, _ in self.written_arguments:
            data = tensors[i]._data
            note_mutation(data, self.owner.__name__)
            if arguments[i] is not data:
                np.copyto(data, arguments[i])

    def _store_gradients(self, tensors: list[Tensor], entries: Any, results: list[Tensor]) -> None:
        for target, what in self.gradients:
            g = None if what is None else self._make(what, results, tensors)
            if target.__class__ is tuple:
                self._make(target, results, tensors)._grad = g
            elif target.__class__ is not int:
                target._grad = g
            elif target >= 0:
                tensors[target]._grad = g
            elif g is not None:  # an argument that was computed outside: its gradient is propagated further
                run_backward([wrap(tensors[~target]._data, entries[~target])], [g])

    def _only_read(self) -> list[bool]:
        """Per variable, whether the program leaves its memory alone."""
        written = {id(memory_of(v.tensor._data)) for v in self.written}
        return [id(memory_of(t._data)) not in written for t in self.variables]

    def _changed(self) -> bool:
        """Whether a tensor that the program takes as frozen was written since it was read."""
        clock = latest.clock
        if clock == self._looked:
            return False  # nothing at all was written since the last look
        since = self._since
        for key in self._watched:
            writes = mutations.get(key)
            if writes is not None and writes[-1].clock > since:
                return True
        self._looked = clock
        return False

    def refresh(self) -> None:
        """Read frozen tensors again in the next call."""
        if self._frozen:
            now = tick()
            self.compiled.program.refresh()
            self._watch(now)  # last: a concurrent call that sees no change must not get old values

    def _watch(self, now: int) -> None:
        """Writes to frozen tensors after `now` count as changes."""
        self._watched = [id(memory_of(t._data)) for t in self._frozen]
        self._looked = -1
        self._since = now

    def _note_writes(self) -> None:
        """Tell the tape that the variables were written (see Note [Mutation clock]); cheap from the second call on."""
        alone = latest.clock == self._noted  # no write to any memory since the last call
        now = self._noted = tick()
        if alone:
            renew(self._moment, now)
            return
        self._moment = Moment(now)  # a new one, as some writes may have ended: they keep theirs
        for i, t in enumerate(self.mutated):
            key, write, array = self._writes[i]
            if array is not t._data or mutations.get(key, (None,))[-1] is not write:
                note_mutation(t._data, self.owner.__name__)
                key = id(memory_of(t._data))
                write = mutations[key][-1]
                self._writes[i] = (key, write, t._data)
            write.moment = self._moment
        renew(self._moment, now)

    def _make(self, what: Any, results: list[Tensor], tensors: list[Tensor]) -> Any:
        kind = what[0]
        if kind == "value":
            return results[what[1]]
        if kind == "same":
            return what[1]
        if kind == "argument":
            return tensors[what[1]]
        if kind == "view":
            return self._view(what, results, tensors)
        return RowSparse(self._make(what[1], results, tensors), self._make(what[2], results, tensors), what[3])

    @staticmethod
    def _view(what: Any, results: list[Tensor], tensors: list[Tensor]) -> Tensor:
        """A view of an argument or of an outside tensor, which shares its memory as it does eagerly."""
        _, base, chain, history = what
        shown = tensors[base] if base.__class__ is int else base
        for step, cut in chain:
            if cut is recording.UNRECORDED:
                with no_grad():
                    shown = inplace.derive(shown, [step])
            else:
                shown = inplace.derive(shown, [step])
        if history is CUT:
            shown._node = None
        elif history is not None:
            shown._node = results[history]._node
        return shown


def _containers(trees: Any) -> list[tuple[Any, list[Any]]]:
    """The containers in `trees` that can be changed, each with what is in it now."""
    found: list[tuple[Any, list[Any]]] = []
    for tree in trees:
        kind = kind_of(tree.__class__)
        if kind is not None:
            if not isinstance(tree, (tuple, NoneType)):
                found.append((tree, _items(tree)))
            found += _containers(kind.split(tree)[1])
    return found


def _items(container: Any) -> list[Any]:
    kind = kind_of(container.__class__)
    assert kind is not None
    return [*container, *container.values()] if isinstance(container, dict) else list(kind.split(container)[1])


def _same_items(container: Any, items: list[Any]) -> bool:
    now = _items(container)
    return len(now) == len(items) and all(map(is_, now, items))
