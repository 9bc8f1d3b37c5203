"""`wf.function`: an eager function captured once per signature and run as a native program from then on."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any

import numpy as np

from .. import dtypes, settings
from ..autograd.tape import Moment, grad_mode, latest, memory_of, mutations, note_mutation, renew, tick
from ..compiler.build import CompiledFlow, compile_flow
from ..compiler.flow import from_graph
from ..errors import describe
from ..ops import dispatch
from ..ops.row_sparse import RowSparse
from ..runtime import epoch, forks, garbage, limits
from ..runtime.limits import LeastRecentlyUsed
from ..tensor import Tensor, wrap
from .autograph import Rewriting, convert
from .capture import Capture, CaptureError, TruthError
from .graph import Value
from .tree import flatten, unflatten

ndarray = np.ndarray
_data_of = attrgetter("_data")
WARN_AFTER = 10  # signatures from which a new one is worth a warning


class Function:
    """A captured function. Call it like the original; see `signatures`, `explain()` and `graph`."""

    def __init__(
        self,
        fn: Callable[..., Any],
        keep_grads: bool = False,
        memory_budget: int | None = None,
        tune: bool = True,
        freeze: bool = False,
        max_programs: int | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__name__: str = getattr(fn, "__name__", "function")
        self.fn = fn
        self._python = fn  # what a declared graph calls: `fn`, or `fn` with its control flow rewritten
        self._rewriting = Rewriting()
        self.keep_grads = keep_grads
        self.memory_budget = memory_budget
        self.tune = tune
        self.freeze = freeze
        self.max_programs = max_programs
        limit = limits.max_programs if max_programs is None else lambda: max_programs
        self._traces: LeastRecentlyUsed[Any, Trace] = LeastRecentlyUsed(limit)
        self._lock = threading.RLock()
        forks.renewed_in_child(self)
        self._warned = self._said_dropped = False
        self._last: Any = (None, None)  # the signature of the latest call and its trace

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: one captured function per instance, so that `self` is not an argument."""
        if instance is None:
            return self
        name = f"_captured_{self.fn.__name__}"
        found = instance.__dict__.get(name)
        if found is None:
            bound = self.fn.__get__(instance, owner)
            found = Function(
                bound, self.keep_grads, self.memory_budget, self.tune, self.freeze, self.max_programs
            )
            instance.__dict__[name] = found
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _EAGER or dispatch.modes.active and _inlined():
            return self.fn(*args, **kwargs)
        leaves, structure = (list(args), len(args)) if not kwargs and _flat(args) else flatten((args, kwargs))
        key, tensors = _signature(leaves, structure)
        if key is None:  # tensors of a declared graph: the function becomes part of it
            return self._declare(args, kwargs)
        last, trace = self._last
        if key != last:  # to compare takes less than to look up
            trace = self._traces.get(key) or self._traced(key, leaves, structure)
            self._last = (key, trace)
        return trace.run(tensors)

    def _traced(self, key: Any, leaves: list[Any], structure: Any) -> Trace:
        with self._lock:
            trace = self._traces.get(key)
            if trace is None:
                with garbage.paused():
                    trace = self._trace(key, leaves, structure)
            return trace

    def _declare(self, args: Any, kwargs: Any) -> Any:
        from .declaring import declared_call

        try:
            return declared_call(self._python, args, kwargs)
        except TruthError:
            rewritten = convert(self.fn) if self._python is self.fn else None
            if rewritten is None:
                raise
            result = declared_call(rewritten, args, kwargs)
            self._python = rewritten
            return result

    def _trace(self, key: Any, leaves: list[Any], structure: Any) -> Trace:
        if len(self._traces) >= WARN_AFTER and not self._warned:
            self._warned = True
            last = self._latest()
            warnings.warn(
                f"{self.__name__}: captured for the {len(self._traces) + 1}th signature. The last two differ: "
                f"{last.signature} and {_describe(leaves)}. Pad batches to one size, or pass changing numbers as tensors.",
                stacklevel=4,
            )
        while True:
            try:
                with self._rewriting.active():
                    trace = Trace(self, leaves, structure, self.fn)
                break
            except TruthError as error:
                if not self._rewriting.extend(error.__traceback__):
                    raise
            except RecursionError as error:
                if self._rewriting.codes:
                    error.add_note(
                        f"While {self.__name__} was captured. Both branches of an `if` on a tensor are traced, so a "
                        "recursion that ends when a tensor says so never ends; write `wf.while_loop` instead."
                    )
                raise
        self._traces.put(key, trace)
        if self._traces.dropped and not self._said_dropped:
            self._said_dropped = True
            warnings.warn(
                f"{self.__name__}: captured for more than {len(self._traces)} signatures. The least recently used programs "
                "are dropped and captured again when they are needed. Pad batches to fewer sizes, or raise the limit with "
                "`wf.function(max_programs=…)` or WEFT_MAX_PROGRAMS.",
                stacklevel=4,
            )
        return trace

    @property
    def signatures(self) -> list[str]:
        """One line per captured signature whose program is kept."""
        return [t.signature for t in self._traces.values()]

    @property
    def traces(self) -> list[Trace]:
        return self._traces.values()

    def _latest(self) -> Trace:
        traces = self._traces.values()
        if not traces:
            raise RuntimeError(f"{self.__name__}: has not been called yet, so nothing was captured.")
        return traces[-1]

    @property
    def graph(self) -> Any:
        """The captured graph of the latest signature."""
        return self._latest().capture.graph

    def explain(self) -> str:
        """What the latest signature was compiled to, as text."""
        from ..compiler.explain import explain

        return explain(self._latest())

    def refresh(self) -> None:
        """Outside tensors of a function captured with `freeze=True` were changed unseen (through a NumPy array that shares
        their memory): the next calls read them anew."""
        for trace in self.traces:
            trace.refresh()

    def clear(self) -> None:
        """Forget all captured signatures."""
        with self._lock:
            self._traces.clear()
            self._last = (None, None)


def function(
    fn: Callable[..., Any] | None = None,
    *,
    keep_grads: bool = False,
    memory_budget: int | None = None,
    tune: bool = True,
    freeze: bool = False,
    max_programs: int | None = None,
) -> Any:
    """Capture `fn` and run it as one native program: `@wf.function`, or `step = wf.function(step)`.

    The first call with a new signature (shapes and dtypes of tensors, values of everything else) runs the function on
    symbolic tensors and compiles what it did; later calls run the program. Tensors that the function closes over are
    read and written in place, so a training step may update parameters and optimiser state.

    Args:
        keep_grads: store gradients that the function leaves in `.grad` (by default gradients that it started from None
            stay inside the program).
        memory_budget: bytes the program may use for temporaries. Activations are recomputed to keep it; if that is
            not enough, a MemoryError says what would be needed, before anything runs.
        tune: where a convolution can be computed in several ways, find the fastest by a short trial that is remembered on
            disk; False: take the one that is usually fastest. `explain()` lists the choices.
        freeze: outside tensors that the function only reads (the weights, at inference) stay as they are between calls, so
            that what depends on them alone is computed once: weights in the layout that a kernel likes, a batch
            normalisation that becomes part of a convolution. Changes by in-place ops, optimisers and other captured
            functions are noticed, and the next call computes it anew. Writing through a NumPy array that shares a tensor's
            memory (`t.numpy()[...] = 0`) is not: call `refresh()` after it. A NaN that reaches a ReLU right after a
            product or convolution may come out as 0.
        max_programs: how many programs, one per signature, are kept; a further one takes the place of the one that was
            called longest ago. By default `WEFT_MAX_PROGRAMS`, or 256.
    """
    if max_programs is not None and (
        isinstance(max_programs, bool) or not isinstance(max_programs, int) or max_programs < 1
    ):
        raise ValueError(f"function: max_programs must be an integer of at least 1, or None. Got {max_programs!r}.")
    if fn is None:
        return lambda f: function(
            f, keep_grads=keep_grads, memory_budget=memory_budget, tune=tune, freeze=freeze, max_programs=max_programs
        )
    if not callable(fn):
        raise TypeError(f"function: expected something to call. Got {type(fn).__name__}.")
    return Function(fn, keep_grads, memory_budget, tune, freeze, max_programs)


_EAGER = settings.EAGER()


def _inlined() -> bool:
    """Whether a mode that does more than watch is active: inside another capture the function is simply part of it."""
    return any(
        not (hasattr(mode, "spans") or hasattr(mode, "remembers")) for mode in dispatch.current_modes()
    )


def _flat(args: tuple[Any, ...]) -> bool:
    for a in args:
        if a.__class__ is not Tensor and isinstance(a, (list, tuple, dict)):
            return False
    return True


def _signature(leaves: list[Any], structure: Any) -> tuple[Any, list[Tensor]]:
    """What a trace depends on, and the tensors among the arguments."""
    parts: list[Any] = [structure, grad_mode.enabled, epoch.current(), dtypes._default_float]
    tensors: list[Tensor] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            data = leaf._data
            if data.__class__ is not ndarray:
                return None, tensors
            parts.append((data.shape, data.dtype, leaf._node is not None))
            tensors.append(leaf)
        elif isinstance(leaf, ndarray):
            parts.append((leaf.shape, leaf.dtype, False))
            tensors.append(wrap(leaf))
        else:
            try:
                hash(leaf)
            except TypeError:
                raise CaptureError(
                    f"function: an argument of type {type(leaf).__name__} is neither a tensor nor hashable. "
                    "Pass tensors, numbers, strings, or lists, tuples and dicts of them."
                ) from None
            parts.append((leaf.__class__, leaf))
    return tuple(parts), tensors


def _describe(leaves: list[Any]) -> str:
    return "(" + ", ".join(describe(x) for x in leaves) + ")"


class Trace:
    """One signature: the captured graph and its compiled program."""

    _since: int  # when frozen tensors were last read
    _looked: int  # the clock of writes when they were last looked at
    _moment: Moment  # of our last writes

    def __init__(
        self, owner: Function, leaves: list[Any], structure: Any, python: Callable[..., Any]
    ) -> None:
        self.owner = owner
        self.signature = _describe(leaves)
        started = time.perf_counter()
        self.capture = Capture(getattr(owner.fn, "__qualname__", "function"))
        symbolic: list[Any] = []
        self.stand_ins: list[Tensor] = []
        with self.capture:
            for i, leaf in enumerate(leaves):
                if isinstance(leaf, ndarray):
                    leaf = wrap(leaf)
                if isinstance(leaf, Tensor):
                    stand_in = self.capture.argument(leaf, f"argument{i}")
                    self.stand_ins.append(stand_in)
                    symbolic.append(stand_in)
                else:
                    symbolic.append(leaf)
            if isinstance(structure, int):
                result = [python(*symbolic)]
            else:
                call_args, call_kwargs = unflatten(structure, symbolic)
                result = [python(*call_args, **call_kwargs)]
                del call_args, call_kwargs
            symbolic.clear()
        self.traced_seconds = time.perf_counter() - started
        self._collect(result)
        started = time.perf_counter()
        self._compile()
        self.compile_seconds = time.perf_counter() - started

    def _collect(self, result: list[Any]) -> None:
        """Sort out what the function returned and what it left in gradients and variables.

        `result` holds the one thing returned and is emptied: what is still alive when all is sorted out has escaped.
        """
        capture, graph = self.capture, self.capture.graph
        leaves, self.structure = flatten(result.pop())
        self.returns: list[Any] = []  # ("value", position), ("same", object), ("sparse", i, v, shape)
        self.values: list[Value] = []
        returned: set[int] = set()
        self.returns += [self._returned(leaf, returned) for leaf in leaves]
        self._collect_gradients(returned)
        tape_roots = [
            t for t in leaves if isinstance(t, Tensor) and t._node is not None and type(t._data) is Value
        ]
        self.differentiable = bool(tape_roots) and grad_mode.enabled
        self.written = [v for v in graph.variables if v.final is not None and v.final is not v.entry]
        self._prepare_backward(tape_roots)
        del leaves, tape_roots
        capture.gradients.changed.clear()
        capture.finish(returned)

    def _collect_gradients(self, returned: set[int]) -> None:
        capture = self.capture
        self.gradients: list[tuple[Any, Any]] = []  # (owner tensor or argument position, what to store)
        self.cleared: list[Tensor] = []  # outside tensors that have no gradient afterwards
        stand_in_of = {id(t): i for i, t in enumerate(self.stand_ins)}
        for key, (tensor, g) in capture.gradients.changed.items():
            target: Any = stand_in_of.get(id(tensor), tensor)
            if target is tensor and type(tensor._data) is Value:
                continue  # a leaf made inside the function: it ends with the call, and its gradient with it
            visible = self.owner.keep_grads or key in capture.gradients.existed or isinstance(target, int)
            stored = self._returned(g, returned) if g is not None and visible else None
            if stored is None and target is tensor:
                self.cleared.append(tensor)
            else:
                self.gradients.append((target, stored))

    def _returned(self, leaf: Any, returned: set[int]) -> Any:
        if isinstance(leaf, RowSparse):
            returned.update((id(leaf.indices), id(leaf.values)))
            return (
                "sparse",
                self._returned(leaf.indices, returned),
                self._returned(leaf.values, returned),
                leaf.shape,
            )
        if not isinstance(leaf, Tensor) or type(leaf._data) is not Value:
            return ("same", leaf)
        self.values.append(leaf._data)
        return ("value", len(self.values) - 1)

    def _prepare_backward(self, roots: list[Tensor]) -> None:
        """If results can be differentiated outside, capture the pull-back too (see `weft.graph.backward`)."""
        self.backward: Any = None
        if self.differentiable:
            from .backward import capture_backward

            self.backward = capture_backward(self, roots)

    def _compile(self) -> None:
        graph = self.capture.graph
        extra = [] if self.backward is None else self.backward.saved
        outputs = [*self.values, *extra, *[v.final for v in self.written]]
        inputs = [*graph.inputs, *[v.entry for v in graph.variables]]
        self.flow = from_graph(graph, inputs, outputs)
        self.variables = [v.tensor for v in graph.variables]
        index = {id(v): i for i, v in enumerate(graph.variables)}
        targets: list[int | None] = [None] * (len(self.values) + len(extra)) + [
            index[id(v)] for v in self.written
        ]
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
        )
        self.mutated = [v.tensor for v in self.written]
        self._writes: list[Any] = [(0, None, None)] * len(self.mutated)  # (key of the memory, our write, array)
        self._written: set[int] | None = None
        self._noted = -1  # the clock of our last write

    def run(self, tensors: list[Tensor]) -> Any:
        compiled = self.compiled
        arguments = [compiled.fit(i, t._data) for i, t in enumerate(tensors)]
        variables = compiled.seen
        if not all(map(is_, map(_data_of, self.variables), variables)):
            variables = [t._data for t in self.variables]
            compiled.check_variables(variables)
            self._written, self._noted = None, -1
            self.refresh()
        elif self._frozen and self._changed():
            self.refresh()
        if self.mutated:
            self._separate(arguments)
        outputs = compiled.program(arguments, variables)
        if self.mutated:
            self._note_writes()
        results = [wrap(a) for a in outputs[: len(self.values)]]
        if self.backward is not None:
            self.backward.attach(tensors, results, outputs[len(self.values) :])
        for tensor in self.cleared:
            tensor._grad = None
        for target, what in self.gradients:
            owner = tensors[target] if isinstance(target, int) else target
            owner._grad = None if what is None else self._make(what, results)
        made = [self._make(r, results) for r in self.returns]
        return made[0] if self.structure is None else unflatten(self.structure, made)

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
        """Frozen tensors are read anew by the next call."""
        if self._frozen:
            now = tick()
            self.compiled.program.refresh()
            self._watch(now)  # last: whoever finds nothing changed must not get what was kept before

    def _watch(self, now: int) -> None:
        """Writes to frozen tensors after `now` count as changes."""
        self._watched = [id(memory_of(t._data)) for t in self._frozen]
        self._looked = -1
        self._since = now

    def _separate(self, arguments: list[Any]) -> None:
        """An argument that shares memory with a variable the program writes is copied: it is read as it was on entry."""
        written = {id(memory_of(t._data)) for t in self.mutated} if self._written is None else self._written
        self._written = written
        for i, a in enumerate(arguments):
            if id(a if a.base is None else memory_of(a)) in written:
                arguments[i] = a.copy()

    def _note_writes(self) -> None:
        """Tell the tape that the variables were written (see Note [Mutation clock]); cheap from the second call on."""
        alone = latest.clock == self._noted  # nobody wrote to any memory since this was called last
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

    def _make(self, what: Any, results: list[Tensor]) -> Any:
        if what[0] == "value":
            return results[what[1]]
        if what[0] == "same":
            return what[1]
        return RowSparse(self._make(what[1], results), self._make(what[2], results), what[3])
