"""`wf.function`: capture an eager function once per signature and run it as a compiled program."""

from __future__ import annotations

import copy
import functools
import threading
import time
import warnings
from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, Generic, overload

import numpy as np

from ... import dtypes, settings
from ...autograd import withheld
from ...autograd.engine import run_backward
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
from ...autograd.tree import flatten, unflatten
from ...compiler.build import CompiledFlow, compile_flow
from ...compiler.flow import from_graph
from ...errors import describe
from ...ops.array.row_sparse import RowSparse
from ...ops.core import define, inplace, recording
from ...runtime import epoch, forks, garbage, limits
from ...runtime.limits import LeastRecentlyUsed
from ...tensor import Tensor, wrap
from ...typing import P, R
from ..graph import Value
from . import relinking
from .autograph import Rewriting, convert
from .python_reads import Watch
from .sharing import Outside, bounds, overlap, repeats
from .tracing import Capture, CaptureError, TruthError, Uncapturable, gradient_kind

ndarray = np.ndarray
_data_of = attrgetter("_data")
CUT = object()  # of a view's history: it has none
WARN_AFTER = 10  # signatures before the warning about recompilation
MAX_READ_VARIANTS = 8  # programs for different values of a Python variable, before calls run eagerly


class CapturedFunction(Generic[P, R]):
    """A captured function: call it like the original; inspect it with `signatures`, `explain()` and `graph`."""

    def __init__(
        self,
        fn: Callable[P, R],
        keep_grads: bool = False,
        memory_budget: int | None = None,
        tune: bool = True,
        freeze: bool = False,
        max_programs: int | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__name__: str = getattr(fn, "__name__", "function")
        self.fn = fn
        self._python = fn  # called by declared graphs: `fn`, or `fn` with its control flow rewritten
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
        self._warned = self._said_dropped = self._told = False
        self._frozen: set[str] = set()  # what was reported to happen once
        self._variants = 0  # traces that differ from another one in more than their signature, so far
        self._last: Any = (None, None)  # the signature of the latest call and its trace
        self.bindings = 1
        """so many sets of arrays that outside tensors had are remembered as checked, with the arrays: for callers that let these
        tensors show the same few pieces of memory in turn"""
        self.notes_writes = True
        """False: what the program writes is memory of the caller, which no tape refers to"""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: one captured function per instance, so that `self` is not an argument."""
        if instance is None:
            return self
        name = f"_captured_{self.fn.__name__}"
        found = instance.__dict__.get(name)
        if found is None:
            bound = self.fn.__get__(instance, owner)
            found = CapturedFunction(
                bound, self.keep_grads, self.memory_budget, self.tune, self.freeze, self.max_programs
            )
            instance.__dict__[name] = found
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if _EAGER or define.modes.active and _inlined():
            return self.fn(*args, **kwargs)
        leaves, structure = (list(args), len(args)) if not kwargs and _flat(args) else flatten((args, kwargs))
        key, tensors = _signature(leaves, structure)
        if key is None:  # tensors of a declared graph: the function becomes part of it
            return self._declare(args, kwargs)
        last, trace = self._last
        if key != last:  # a comparison is cheaper than a lookup
            trace = self._traces.get(key) or self._traced(key, leaves, structure)
            self._last = (key, trace)
        if (trace.guards or trace.reads is not None or relinked.clock != trace.relinked) and not trace.holds(tensors):
            trace = self._variant(trace, key, leaves, structure, tensors)
            self._last = (key, trace)
        result = trace.run(tensors)
        if result.__class__ is Eagerly:
            return self._run_eagerly(result.reason, args, kwargs)
        return result

    def _variant(self, trace: Trace, key: Any, leaves: list[Any], structure: Any, tensors: list[Tensor]) -> Trace:
        """The trace for the gradients that exist now; `trace` was captured with others."""
        with self._lock:
            kept = set(map(id, self._traces.values()))
            trace.variants[:] = [t for t in trace.variants if id(t) in kept]
            for found in trace.variants:
                if found.holds(tensors):
                    return found
            if trace.reads is not None and len(trace.variants) >= MAX_READ_VARIANTS and not trace.reads():
                return self._restless(trace)
            with garbage.paused():
                self._variants += 1
                made = self._trace((key, self._variants), leaves, structure)
            trace.variants.append(made)
            made.variants = trace.variants
            return made

    def _restless(self, trace: Trace) -> Trace:
        """A trace that lets calls run eagerly: a Python value changes from call to call, and each would be compiled."""
        names = " and ".join(trace.watch.changed_names()) or "a Python value"
        made = copy.copy(trace)
        made.reason = (
            f"{names}, which it reads, has had {len(trace.variants)} different values, and each is a program of its own. Pass "
            "it as an argument, a tensor if it is a number that changes"
        )
        return made

    def _report(self, watch: Watch) -> None:
        """Say once what happens only when the function is captured."""
        for what, where in watch.once.items():
            if what not in self._frozen:
                self._frozen.add(what)
                warnings.warn(
                    f"{self.__name__}: {what} is taken when the function is captured; later calls repeat it ({where}). Pass it "
                    "as an argument, use Weft's own random functions, or leave it outside of the captured function.",
                    stacklevel=6,
                )

    def _run_eagerly(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the Python function itself, whose effects on the caller's memory a program could not reproduce."""
        if not self._told:
            self._told = True
            warnings.warn(f"{self.__name__}: runs eagerly, which is slower, because {reason}.", stacklevel=3)
        given = [wrap(v) if isinstance(v, ndarray) else v for v in args]
        return self.fn(*given, **{k: wrap(v) if isinstance(v, ndarray) else v for k, v in kwargs.items()})  # type: ignore[arg-type]

    def _traced(self, key: Any, leaves: list[Any], structure: Any) -> Trace:
        with self._lock:
            trace = self._traces.get(key)
            if trace is None:
                with garbage.paused():
                    trace = self._trace(key, leaves, structure)
            return trace

    def _declare(self, args: Any, kwargs: Any) -> Any:
        from ..declared.python_calls import declared_call

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
        self._report(trace.watch)
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
        """Describe the program of the latest signature: fusions, kernels and their costs, as text.

        >>> f = wf.function(lambda x: x * 2 + 1)
        >>> y = f(wf.ones(3))
        >>> "lambda" in f.explain()
        True
        """
        from ...compiler.explain import explain

        return explain(self._latest())

    def refresh(self) -> None:
        """Recompute frozen values in the next call (`freeze=True`), after writes through a NumPy array."""
        for trace in self.traces:
            trace.refresh()

    def clear(self) -> None:
        """Forget all captured signatures."""
        with self._lock:
            self._traces.clear()
            self._last = (None, None)


@overload
def function(
    fn: Callable[P, R],
    *,
    keep_grads: bool = ...,
    memory_budget: int | None = ...,
    tune: bool = ...,
    freeze: bool = ...,
    max_programs: int | None = ...,
) -> CapturedFunction[P, R]: ...
@overload
def function(
    fn: None = None,
    *,
    keep_grads: bool = ...,
    memory_budget: int | None = ...,
    tune: bool = ...,
    freeze: bool = ...,
    max_programs: int | None = ...,
) -> Callable[[Callable[P, R]], CapturedFunction[P, R]]: ...
def function(
    fn: Callable[..., Any] | None = None,
    *,
    keep_grads: bool = False,
    memory_budget: int | None = None,
    tune: bool = True,
    freeze: bool = False,
    max_programs: int | None = None,
) -> Any:
    """Capture `fn` and run it as one compiled program: `@wf.function`, or `step = wf.function(step)`.

    The first call with a new signature (shapes and dtypes of tensors, values of everything else) traces the function on
    symbolic tensors and compiles the trace; later calls run the program. Arguments and tensors that the function closes
    over are read and written in place, so a captured function has the same effects as the eager one. Where a program
    could not guarantee that (arguments that share memory which the function writes, a list or dict argument that it
    changes) the call runs eagerly, after one warning.

    Gradients that the function leaves in `.grad` are there after the call, unless the function itself updates the tensor:
    then the gradient stays inside the program, which saves its memory, and `.grad` is None.

    Args:
        fn: the function to capture; None: return a decorator.
        keep_grads: also store the gradients of tensors that the function updates.
        memory_budget: bytes the program may use for temporaries. Activations are recomputed to stay within it; if that is
            not enough, a MemoryError states the bytes needed, before anything runs.
        tune: time the candidate algorithms of each convolution once and cache the choice on disk; False: use the usual
            best one. `explain()` lists the choices.
        freeze: treat outside tensors that the function only reads (the weights, at inference) as constant between calls,
            so that values which depend on them alone are computed once: packed weights, batch normalisation folded into
            a convolution. Changes by in-place ops, optimisers and other captured functions are detected, and the next
            call recomputes them. Writes through a NumPy array that shares a tensor's memory (`t.numpy()[...] = 0`) are
            not: call `refresh()` after them. A NaN that reaches a ReLU right after a product or convolution may become 0.
        max_programs: how many programs, one per signature, are kept; the least recently used is evicted. Defaults to
            `WEFT_MAX_PROGRAMS`, or 256.

    >>> @wf.function
    ... def step(x, w):
    ...     return (x @ w).relu().sum()
    >>> step(wf.ones(2, 3), wf.ones(3, 4)).item()
    24.0
    >>> len(step.signatures)
    1
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
    return CapturedFunction(fn, keep_grads, memory_budget, tune, freeze, max_programs)


class Eagerly:
    """What `Trace.run` returns instead of running, with the reason, which completes "because …"."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


_SHARED = (
    "arguments or outside tensors share memory to which it writes. Pass tensors with separate memory (`x.clone()`), or "
    "make views inside of it"
)
_EAGER = settings.EAGER()


def _inlined() -> bool:
    """Whether the function is run op by op because an active mode must see them, such as another capture."""
    return not all(mode.allows_programs for mode in define.current_modes())


def _flat(args: tuple[Any, ...]) -> bool:
    for a in args:
        if a.__class__ is not Tensor and isinstance(a, (list, tuple, dict)):
            return False
    return True


def _signature(leaves: list[Any], structure: Any) -> tuple[Any, list[Tensor]]:
    """The key of a trace, and the tensors among the arguments."""
    parts: list[Any] = [structure, grad_mode.enabled, epoch.current(), dtypes._default_float]
    tensors: list[Tensor] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            data = leaf._data
            if data.__class__ is not ndarray:
                return None, tensors
            node = leaf._node
            parts.append((data.shape, data.dtype, None if node is None else node.__class__ is Leaf))
            tensors.append(leaf)
        elif isinstance(leaf, ndarray):
            parts.append((leaf.shape, leaf.dtype, None))
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


def _link(node: Any) -> bool | None:
    """What a captured function must know of a tensor's place on the tape."""
    return None if node is None else node.__class__ is Leaf


def _describe(leaves: list[Any]) -> str:
    return "(" + ", ".join(describe(x) for x in leaves) + ")"


class Trace:
    """One signature: the captured graph and its compiled program."""

    _since: int  # when frozen tensors were last read
    _looked: int  # the clock of writes when they were last looked at
    _moment: Moment  # of our last writes

    def __init__(self, owner: CapturedFunction, leaves: list[Any], structure: Any, python: Callable[..., Any]) -> None:
        self.owner = owner
        self.signature = _describe(leaves)
        self.reason: str | None = None  # why all calls run eagerly, if they do
        self.guards: list[
            tuple[Any, bool | None]
        ] = []  # (tensor or number of an argument, `gradient_kind` of its gradient)
        self.variants = [self]
        self.links: list[tuple[Tensor, Any]] = []  # outside tensors: whether they are leaves, None: require no gradient
        self.relinked = -1  # the clock of `tape.relinked` when `links` was compared last
        started = time.perf_counter()
        self.capture = Capture(getattr(owner.fn, "__qualname__", "function"))
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
                with self.watch:
                    return [python(*symbolic)]
            call_args, call_kwargs = unflatten(structure, symbolic)
            containers = _containers((*call_args, *call_kwargs.values()))
            with self.watch:
                result = [python(*call_args, **call_kwargs)]
            if any(not _same_items(c, items) for c, items in containers):
                self.reason = (
                    "it changes a list or dict argument. Return the new values, or write into the tensors in place"
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
        self.flow = from_graph(graph, inputs, outputs)
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
    """The lists and dicts in `trees`, each with what is in it now."""
    found: list[tuple[Any, list[Any]]] = []
    for tree in trees:
        if isinstance(tree, dict):
            found.append((tree, [*tree, *tree.values()]))
            found += _containers(tree.values())
        elif isinstance(tree, (list, tuple)):
            if isinstance(tree, list):
                found.append((tree, list(tree)))
            found += _containers(tree)
    return found


def _same_items(container: Any, items: list[Any]) -> bool:
    now = [*container, *container.values()] if isinstance(container, dict) else container
    return len(now) == len(items) and all(map(is_, now, items))
