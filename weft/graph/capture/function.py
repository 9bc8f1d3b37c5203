"""`wf.function`: capture an eager function once per signature and run it as a compiled program."""

from __future__ import annotations

import copy
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Generic, overload

import numpy as np

from ... import settings
from ...autograd.tape import relinked
from ...autograd.tree import flatten
from ...compiler.open_sizes import OpenSizes
from ...errors import shorten
from ...ops.core import define
from ...runtime import forks, garbage, limits
from ...runtime.limits import LeastRecentlyUsed
from ...tensor import Tensor, wrap
from ...typing import P, R
from .autograph import Rewriting, convert
from .breaks import Cut, demands_values, forget
from .python_reads import Watch
from .segment_programs import SegmentPrograms
from .signature import describe_leaves, is_flat, signature_of, what_varies
from .trace import Eagerly, Trace
from .tracing import Escaped, GraphBreak, TruthError

ndarray = np.ndarray
_EAGER = settings.EAGER()
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
        fullgraph: bool = False,
    ) -> None:
        self.fn = fn
        # the attributes of a model are forwarded: a copy of them would go stale
        plain = isinstance(fn, (FunctionType, MethodType, BuiltinFunctionType))
        functools.update_wrapper(self, fn, updated=("__dict__",) if plain else ())
        self.__name__: str = getattr(fn, "__name__", type(fn).__name__)
        self._python = fn  # called by declared graphs: `fn`, or `fn` with its control flow rewritten
        self._rewriting = Rewriting()
        self.keep_grads = keep_grads
        self.memory_budget = memory_budget
        self.tune = tune
        self.freeze = freeze
        self.max_programs = max_programs
        self.fullgraph = fullgraph
        limit = limits.max_programs if max_programs is None else lambda: max_programs
        self._traces: LeastRecentlyUsed[Any, Trace] = LeastRecentlyUsed(limit)
        self._segments = SegmentPrograms(self, limit)
        self._demands: bool | None = None  # whether calls are first run in segments; None: not looked at yet
        self._lock = threading.RLock()
        forks.renewed_in_child(self)
        self._warned = self._said_dropped = self._told = self._told_cut = False
        self._frozen: set[str] = set()  # what was reported to happen once
        self._variants = 0  # traces that differ from another one in more than their signature, so far
        self._last: Any = (None, None)  # the signature of the latest call and its trace
        self.sizes, self.pullback_sizes = OpenSizes(), OpenSizes()
        """kernels that programs for different sizes share"""
        self.bindings = 1
        """so many sets of arrays that outside tensors had are remembered as checked, with the arrays: for callers that let these
        tensors show the same few pieces of memory in turn"""
        self.notes_writes = True
        """False: what the program writes is memory of the caller, which no tape refers to"""
        self._own = frozenset(self.__dict__)  # last: from now on other attributes are those of the original

    def __getattr__(self, name: str) -> Any:
        """Attributes of the original: `captured.parameters()`, `captured.train()`, submodules by name."""
        if name.startswith("__") or name in ("fn", "_own"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return getattr(self.fn, name)
        except AttributeError as error:
            raise AttributeError(f"{self!r} has no attribute {name!r}. {error}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the original, unless it is one of the captured function's own."""
        own = self.__dict__.get("_own")
        if own is None or name in own or name.startswith("__") or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.fn, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:  # copied from a plain function
            object.__delattr__(self, name)
        else:
            delattr(self.fn, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.fn)})

    def __repr__(self) -> str:
        what = repr(self.fn) if hasattr(self.fn, "_modules") else getattr(self.fn, "__qualname__", repr(self.fn))
        signatures = self.signatures
        if not signatures:
            return f"captured({what}, not called yet)"
        shown = ", ".join(signatures[:3]) + (", …" if len(signatures) > 3 else "")
        return f"captured({what}, {len(signatures)} signature{'s' * (len(signatures) > 1)}: {shown})"

    def __reduce__(self) -> Any:
        """Pickled by name where the name leads here, else as the original with its options; programs are made again."""
        name, module = getattr(self.fn, "__qualname__", ""), getattr(self.fn, "__module__", None)
        if isinstance(self.fn, MethodType):
            owner = self.fn.__self__
            if isinstance(getattr(type(owner), self.fn.__name__, None), CapturedFunction):
                return getattr, (owner, self.fn.__name__)
        elif module != "__main__" and _imported(module, name) is self:
            return name
        return _rebuild, (self.fn, self._options)

    @property
    def _options(self) -> dict[str, Any]:
        """The arguments of `function` that this one was made with."""
        names = ("keep_grads", "memory_budget", "tune", "freeze", "max_programs", "fullgraph")
        return {name: getattr(self, name) for name in names}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: one captured function per instance, so that `self` is not an argument."""
        if instance is None:
            return self
        name = f"_captured_{self.fn.__name__}"
        found = instance.__dict__.get(name)
        if found is None:
            bound = self.fn.__get__(instance, owner)
            found = CapturedFunction(bound, **self._options)
            instance.__dict__[name] = found
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if _EAGER or define.modes.active and _inlined():
            return self.fn(*args, **kwargs)
        try:
            leaves, structure = (list(args), len(args)) if not kwargs and is_flat(args) else flatten((args, kwargs))
            key, tensors = signature_of(leaves, structure)
            if key is None:  # tensors of a declared graph: the function becomes part of it
                return self._declare(args, kwargs)
            last, trace = self._last
            if key != last:  # a comparison is cheaper than a lookup
                trace = self._traces.get(key) or self._traced(key, leaves, structure)
                self._last = (key, trace)
            if (trace.guards or trace.reads is not None or relinked.clock != trace.relinked) and not trace.holds(
                tensors
            ):
                trace = self._variant(trace, key, leaves, structure, tensors)
                self._last = (key, trace)
            result = trace.run(tensors)
            if result.__class__ is Eagerly:
                return self._run_eagerly(result.reason, args, kwargs)
            if result.__class__ is Cut:
                return self._run_cut(result, args, kwargs)
            return result
        except Exception as error:
            shorten(error)
            raise

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

    def _run_cut(self, cut: Cut, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the Python function, and what it computes between values that it looks at as programs."""
        given = [wrap(v) if isinstance(v, ndarray) else v for v in args]
        named = {k: wrap(v) if isinstance(v, ndarray) else v for k, v in kwargs.items()}
        result = cut.call(self.fn, tuple(given), named)
        if not cut.known:  # no value was needed: the next call is captured as a whole
            with self._lock:
                self._demands = False
                self._traces.drop(cut)  # type: ignore[arg-type]
                self._last = (None, None)
        return result

    def _tell_cut(self, cut: Cut) -> None:
        if not self._told_cut:
            self._told_cut = True
            warnings.warn(cut.note(), stacklevel=6)

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
            warnings.warn(
                f"{self.__name__}: captured for the {len(self._traces) + 1}th signature. "
                f"{what_varies(self.fn, self._last[0], key)}",
                stacklevel=4,
            )
        whole = self.fullgraph or self.freeze
        if self._demands is None:
            self._demands = not whole and demands_values(self.fn)
        if self._demands:
            cut = Cut(self, describe_leaves(leaves), self._segments)
            self._traces.put(key, cut)  # type: ignore[arg-type]
            return cut  # type: ignore[return-value]
        while True:
            try:
                with self._rewriting.active():
                    trace = Trace(self, leaves, structure, self.fn)
                break
            except GraphBreak as error:
                if isinstance(error, TruthError) and self._rewriting.extend(error.__traceback__):
                    continue
                if whole or isinstance(error, Escaped) and not forget(error.tensors):
                    raise
                trace = Cut(self, describe_leaves(leaves), self._segments, error)  # type: ignore[assignment]
                self._traces.put(key, trace)
                return trace
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
        last: Any = traces[-1]
        if last.__class__ is Cut:
            raise RuntimeError(f"{last.note()} There is no graph of the whole.")
        return last

    @property
    def graph(self) -> Any:
        """The captured graph of the latest signature; None if the function is cut into parts."""
        traces: list[Any] = self._traces.values()
        return None if traces and traces[-1].__class__ is Cut else self._latest().capture.graph

    def explain(self) -> str:
        """Describe the program of the latest signature: fusions, kernels and their costs, as text.

        >>> f = wf.function(lambda x: x * 2 + 1)
        >>> y = f(wf.ones(3))
        >>> "lambda" in f.explain()
        True
        """
        from ...compiler.explain import explain

        for last in list[Any](self._traces.values())[-1:]:
            if last.__class__ is Cut:
                return last.note()
        return explain(self._latest())

    def refresh(self) -> None:
        """Recompute frozen values in the next call (`freeze=True`), after writes through a NumPy array."""
        for trace in self.traces:
            trace.refresh()

    def clear(self) -> None:
        """Forget all captured signatures."""
        with self._lock:
            self._traces.clear()
            self._segments.programs.clear()
            self._demands = None
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
    fullgraph: bool = ...,
) -> CapturedFunction[P, R]: ...
@overload
def function(fn: Sequence[Any], outputs: Any = ..., *, updates: Any = ..., givens: Any = ...) -> Callable[..., Any]: ...
@overload
def function(
    fn: None = None,
    *,
    keep_grads: bool = ...,
    memory_budget: int | None = ...,
    tune: bool = ...,
    freeze: bool = ...,
    max_programs: int | None = ...,
    fullgraph: bool = ...,
) -> Callable[[Callable[P, R]], CapturedFunction[P, R]]: ...
def function(
    fn: Callable[..., Any] | Sequence[Any] | None = None,
    outputs: Any = None,
    *,
    keep_grads: bool = False,
    memory_budget: int | None = None,
    tune: bool = True,
    freeze: bool = False,
    max_programs: int | None = None,
    fullgraph: bool = False,
    updates: Any = None,
    givens: Any = None,
) -> Any:
    """Capture `fn` and run it as one compiled program: `@wf.function`, or `step = wf.function(step)`.

    With a list of symbolic tensors of a declared graph instead of `fn` it makes a function of that graph, as in Theano:
    `wf.function([x], y, updates=[(w, w - 0.1 * gradient)])`. The last example shows one.

    The first call with a new signature (shapes and dtypes of tensors, values of everything else) traces the function on
    symbolic tensors and compiles the trace; later calls run the program. Arguments and tensors that the function closes
    over are read and written in place, so a captured function has the same effects as the eager one. Where a program
    could not guarantee that (arguments that share memory which the function writes, a list or dict argument that it
    changes) the call runs eagerly, after one warning.

    What cannot be part of a program (`.item()`, `.numpy()`, printing and other I/O, sizes and branches that depend on data)
    cuts the function into parts: its Python code runs at every call, and what it computes between two cuts runs as a program
    if that is long enough to pay. One warning names the line.

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
        fullgraph: the function must run as one program: a cut raises a CaptureError that says what to write instead. Frozen
            functions (`freeze=True`) and distributed steps require it.
        outputs: with a list of inputs, the symbolic tensors whose values the function returns.
        updates: with a list of inputs, pairs (or a dict) of a `wf.Variable` and its new value; all are computed from the old
            values, like the outputs, and stored at the end.
        givens: with a list of inputs, pairs (or a dict) of a tensor of the graph and what takes its place.

    >>> @wf.function
    ... def step(x, w):
    ...     return (x @ w).relu().sum()
    >>> step(wf.ones(2, 3), wf.ones(3, 4)).item()
    24.0
    >>> len(step.signatures)
    1

    >>> with wf.Graph().as_default():
    ...     x, total = wf.placeholder(wf.float32, ()), wf.Variable(0.0, dtype=wf.float32)
    ...     add = wf.function([x], total, updates=[(total, total + x)])
    >>> add(2.0).item(), add(5.0).item(), total.numpy().item()
    (0.0, 2.0, 7.0)
    """
    if isinstance(fn, (list, tuple)):
        from ..declared.functions import declared_function

        return declared_function(fn, outputs, updates, givens)
    if outputs is not None or updates is not None or givens is not None:
        raise TypeError(
            "function: outputs, updates and givens belong to a list of inputs of a declared graph, `wf.function([x], y, "
            "updates=…)`. A function in Python returns its outputs and writes its updates itself."
        )
    if max_programs is not None and (
        isinstance(max_programs, bool) or not isinstance(max_programs, int) or max_programs < 1
    ):
        raise ValueError(f"function: max_programs must be an integer of at least 1, or None. Got {max_programs!r}.")
    if fn is None:
        return lambda f: function(
            f,
            keep_grads=keep_grads,
            memory_budget=memory_budget,
            tune=tune,
            freeze=freeze,
            max_programs=max_programs,
            fullgraph=fullgraph,
        )
    if not callable(fn):
        raise TypeError(f"function: expected something to call. Got {type(fn).__name__}.")
    return CapturedFunction(fn, keep_grads, memory_budget, tune, freeze, max_programs, fullgraph)


def _imported(module: str | None, name: str) -> Any:
    """What `from module import name` finds in a module that is loaded; None if nothing."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _rebuild(fn: Callable[..., Any], options: dict[str, Any]) -> CapturedFunction[..., Any]:
    return CapturedFunction(fn, **options)


def _inlined() -> bool:
    """Whether the function is run op by op because an active mode must see them, such as another capture."""
    return not all(mode.allows_programs for mode in define.current_modes())
