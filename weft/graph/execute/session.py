"""Session: run steps of a declared graph.

`sess.run(fetches, feeds)` prunes the graph to the ancestors of the fetches, forms regions, compiles them, caches them by
the fetched and fed tensors, and runs them. Contract: any number of threads may run steps of one session concurrently;
state is in the variables, not in the session; after `close()` every call raises and steps in progress are cancelled.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tree import flatten, unflatten
from ...errors import describe, format_shape
from ...ops.core.spec import Symbol
from ...runtime.interrupts import Interrupted, watched
from ...runtime.limits import LeastRecentlyUsed, max_programs
from ...tensor import Tensor, to_array, wrap
from ..capture.control_flow import ControlOp
from ..declared.building import DeclaredGraph, get_default_graph, refuse_foreign
from ..declared.routing import frame_of, has_routing
from ..graph import CONSTANT, PLACEHOLDER, Node, Value
from ..remote_data import holds_memory
from .control_lowering import Lowered, must_lower
from .costs import Measuring, report
from .executor import Engine, Plan, Unit, needed_nodes
from .leases import give_back, is_given_up
from .naive import Interpreter, Script
from .partial import PartialRun
from .partition import Part, partition, run_parts
from .placement import Placement, as_devices
from .run import Run
from .tokens import TokenPlan
from .transport import LocalTransport

ndarray = np.ndarray
_step_ids = itertools.count(1)


class Session:
    """Runs steps of a declared graph. Use it as a context manager, or call `close()`.

    Args:
        graph: the graph to run; the current default graph by default.
        executor: "dataflow", or "naive" for the reference executor that runs nodes one at a time.
        devices: the devices to place nodes on; those of `wf.devices()` by default.
        lower: lower all structured control flow to routing ops instead of compiling it; see
            `weft.graph.execute.control_lowering`.
        cluster: a `weft.distributed.Cluster`, on whose tasks the steps then run.

    >>> with wf.Graph().as_default() as graph:
    ...     x = wf.placeholder(wf.float32, (2,))
    ...     y = {"double": x * 2, "sum": x.sum()}
    >>> with wf.Session(graph) as sess:
    ...     out = sess.run(y, {x: [1.0, 2.0]})
    >>> out["double"].tolist(), out["sum"].item()
    ([2.0, 4.0], 3.0)
    """

    def __init__(
        self,
        graph: DeclaredGraph | None = None,
        executor: str = "dataflow",
        devices: Any = None,
        lower: bool = False,
        cluster: Any = None,
    ) -> None:
        if executor not in ("dataflow", "naive"):
            raise ValueError(f"Session: executor must be 'dataflow' or 'naive'. Got {executor!r}.")
        if graph is not None and not isinstance(graph, DeclaredGraph):
            raise TypeError(f"Session: expected a wf.Graph. Got {type(graph).__name__}.")
        self.graph = graph if graph is not None else get_default_graph()
        if cluster is not None and not hasattr(cluster, "prepare"):
            raise TypeError(f"Session: expected a wf.distributed.Cluster. Got {type(cluster).__name__}.")
        self.executor = executor
        self.lower = lower
        self.cluster = cluster
        self.devices = devices
        if devices is not None:
            as_devices(devices)  # raise for unknown names now, not in the first step
        self.transport: Any = LocalTransport()  # how values cross between devices, see `weft.graph.execute.partition`
        self._steps: LeastRecentlyUsed[Any, PreparedStep] = LeastRecentlyUsed(max_programs)
        self._lock = threading.Lock()
        self._runs: set[Run] = set()
        self._closed = False
        self._queues: dict[str, ThreadPoolExecutor] = {}  # one thread each: steps of a queue run in order
        self.last_run: Run | None = None  # of the latest finished step; `last_run.executed` counts its nodes

    # Running ------------------------------------------------------------------------------------------------------------

    def run(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        feed_dict: Mapping[Any, Any] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Run one step and return the values of `fetches` as eager tensors, in the same structure.

        Args:
            fetches: a tensor, a Variable, a node (gives None), a name, or any nesting of them.
            feeds: values for placeholders, or for any other tensor, which is then not computed.
            feed_dict: TensorFlow's name of `feeds`.
            timeout: seconds after which the step is abandoned with a TimeoutError.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, ())
        ...     y = x + 1
        ...     z = y * 10
        >>> with wf.Session(graph) as sess:
        ...     sess.run(z, {x: 1.0}).item(), sess.run(z, {y: 5.0}).item()
        (20.0, 50.0)
        """
        step, arrays = self._step(fetches, feeds if feed_dict is None else _one_of(feeds, feed_dict))
        return self._run_step(step, arrays, timeout)

    def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] = ()) -> PartialRun:
        """Prepare one step that runs in several calls of `partial_run`, and return its handle.

        Args:
            fetches: everything that the calls together fetch.
            feeds: everything that they feed.

        >>> with wf.Graph().as_default() as graph:
        ...     a, b = wf.placeholder(wf.float32, ()), wf.placeholder(wf.float32, ())
        ...     first = a * 10
        ...     second = first + b
        >>> with wf.Session(graph) as sess:
        ...     handle = sess.partial_run_setup([first, second], [a, b])
        ...     value = sess.partial_run(handle, first, feed_dict={a: 2.0})
        ...     sess.partial_run(handle, second, feed_dict={b: value / 4}).item()
        25.0
        """
        self._check_open()
        return PartialRun(self, fetches, feeds)

    def partial_run(
        self,
        handle: PartialRun,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Continue the step of `handle`: feed more tensors and return the values of `fetches`.

        A node runs once in the whole step, in the first call that needs it, so draws and assigns happen once.
        """
        if not isinstance(handle, PartialRun) or handle.session is not self:
            raise TypeError("partial_run: expected a handle that `partial_run_setup` of this session returned.")
        values = {self._feed_target(t): a for t, a in (feed_dict or {}).items()}
        return handle.call(fetches, {v: np.array(_feed(v, a)) for v, a in values.items()}, timeout)

    def run_async(
        self,
        fetches: Any,
        feeds: Mapping[Any, Any] | None = None,
        *,
        feed_dict: Mapping[Any, Any] | None = None,
        timeout: float | None = None,
        queue: str = "main",
    ) -> Future[Any]:
        """Submit a step and return a future of its result.

        Steps of one `queue` run one after the other, in the order of submission; steps of different queues, and those of
        `run`, run concurrently. So a step that waits for another one (through a `FIFOQueue`, say) needs a separate queue.
        Feeds are copied at the call. `timeout` counts from the step's start.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, ())
        ...     y = x + 1
        >>> with wf.Session(graph) as sess:
        ...     sess.run_async(y, {x: 1.0}).result(timeout=60).item()
        2.0
        """
        step, arrays = self._step(fetches, feeds if feed_dict is None else _one_of(feeds, feed_dict))
        arrays = [np.array(a) for a in arrays]
        with self._lock:
            self._check_open()
            worker = self._queues.get(queue)
            if worker is None:
                worker = self._queues[queue] = ThreadPoolExecutor(1, f"weft-session-{queue}")
            return worker.submit(self._run_step, step, arrays, timeout)

    def measure(self, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> str:
        """Run one step node by node, measure the cost of each node, and return a table of the costs.

        New steps of this session are placed by these costs. The step is a real one: its assigns and queue ops take effect.
        """
        self._check_open()
        if self.cluster is not None:
            raise NotImplementedError(
                "measure: only a session without a cluster measures nodes. Measure there; sessions of a cluster use the times. "
                "`cluster.measure_links()` measures the ways between tasks."
            )
        leaves, structure = flatten(fetches)
        targets = [self._fetch_target(x) for x in leaves]
        given = {self._feed_target(t): a for t, a in (feeds or {}).items()}
        arrays = {v: _feed(v, a) for v, a in given.items()}
        nodes = needed_nodes([t.node if isinstance(t, Value) else t for t in targets if t not in given], set(given))
        _check_fed(nodes, set(given))
        kinds = tuple(dict.fromkeys([d.kind for d in as_devices(self.devices)]))
        script = Script(
            nodes, set(given), [t for t in targets if isinstance(t, Value) and t not in given], {}, frame_of
        )
        run = Measuring(script, Run(None, next(_step_ids)), arrays, self.transport)
        run.kinds = kinds
        run.execute()
        with self._lock:
            self._steps.clear()
        return report(nodes, kinds)

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] = ()) -> Callable[..., Any]:
        """Return a function of the values of `feed_list` that runs one step: `run` with its lookups done once.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, ())
        ...     y = x + 1
        >>> with wf.Session(graph) as sess:
        ...     sess.make_callable(y, [x])(1.0).item()
        2.0
        """
        leaves, structure = flatten(fetches)
        values = [self._feed_target(t) for t in feed_list]
        step = self._make(leaves, structure, values)

        def call(*args: Any, timeout: float | None = None) -> Any:
            if len(args) != len(values):
                raise TypeError(f"make_callable: expected {len(values)} values. Got {len(args)}.")
            return self._run_step(step, [_feed(v, a) for v, a in zip(values, args, strict=True)], timeout)

        return call

    def explain(self, fetches: Any, feed_list: Sequence[Any] = ()) -> str:
        """Describe the step that `run(fetches, feeds)` runs: its parts, the edges between them, and bytes per step.

        Args:
            fetches: as for `run`.
            feed_list: the tensors that are fed; by default the placeholders that the step needs.

        >>> with wf.Graph().as_default() as graph:
        ...     x = wf.placeholder(wf.float32, (2,))
        ...     y = x + 1
        >>> with wf.Session(graph) as sess:
        ...     print(sess.explain(y))
        step in one part: 1 nodes on cpu:0
        """
        leaves, structure = flatten(fetches)
        values = [self._feed_target(t) for t in feed_list]
        if not values:
            targets = [self._fetch_target(x) for x in leaves]
            needed = needed_nodes([t.node if isinstance(t, Value) else t for t in targets], set())
            values = [n.outputs[0] for n in needed if n.op is PLACEHOLDER]
        return self._make(leaves, structure, values).explain()

    def cancel(self) -> None:
        """Cancel the running steps. They raise `CancelledError`; no assign is applied partially."""
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            run.cancel("`Session.cancel()` was called.")

    def close(self) -> None:
        """Cancel running steps and refuse further use. Variables keep their values."""
        with self._lock:
            self._closed = True
            runs, self._runs = list(self._runs), set()
        for run in runs:
            run.cancel("The session was closed.")
        for worker in list(self._queues.values()):
            worker.shutdown(wait=True)  # submitted steps that have not begun fail: the session is closed
        self._steps.clear()

    def __enter__(self) -> Session:
        self._check_open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("session: it is closed. Open a new one with `wf.Session(graph)`.")

    # Steps --------------------------------------------------------------------------------------------------------------

    def _step(self, fetches: Any, feeds: Mapping[Any, Any] | None) -> tuple[PreparedStep, list[ndarray]]:
        if fetches.__class__ is Tensor:
            leaves: Any = (fetches,)
            structure: Any = None
        else:
            leaves, structure = flatten(fetches)
        arrays: list[ndarray] = []
        values: list[Value] = []
        if feeds:
            if not isinstance(feeds, Mapping):
                raise TypeError(f"run: feeds must be a dictionary from tensors to values. Got {type(feeds).__name__}.")
            for t, a in feeds.items():
                v = t._data if t.__class__ is Tensor and t._data.__class__ is Value else self._feed_target(t)
                values.append(v)
                arrays.append(_feed(v, a))
        key = (structure, tuple([t._data if t.__class__ is Tensor else t for t in leaves]), tuple(values))
        try:
            step = self._steps.get(key)
        except TypeError:  # an eager tensor's array or another thing without a hash
            return self._make(leaves, structure, values), arrays
        if step is None:
            step = self._make(leaves, structure, values)
            self._steps.put(key, step)
        return step, arrays

    def _make(self, leaves: Sequence[Any], structure: Any, values: list[Value]) -> PreparedStep:
        self._check_open()
        for v in values:
            if v.node.graph is not self.graph:
                refuse_foreign(self.graph, v)
        return PreparedStep(self, [self._fetch_target(x) for x in leaves], structure, values)

    def _prepare(self, targets: list[Value | Node], fed: list[Value], done: frozenset[Node]) -> PreparedStep:
        """A step that returns a list of the values of `targets`, without the nodes that are `done`."""
        self._check_open()
        return PreparedStep(self, targets, flatten([0] * len(targets))[1], fed, done)

    def _feed_target(self, what: Any) -> Value:
        if isinstance(what, str):
            what = self.graph.tensor(what)
        if hasattr(what, "reads") or isinstance(what, Tensor) and holds_memory(what):
            what = self._read_of(what)
        value = getattr(what, "_data", None)
        if not isinstance(value, Value):
            raise TypeError(f"run: only symbolic tensors can be fed. Got {describe(what)}.")
        if value.node.graph is not self.graph:
            refuse_foreign(self.graph, value)
        return value

    def _read_of(self, what: Any) -> Tensor:
        """The implicit read of a Variable or an eager tensor in this graph: feeding it replaces the value."""
        found = self.graph._reads.get(id(getattr(what, "tensor", what)))
        if found is None:
            raise TypeError(
                f"run: only tensors of graph {self.graph.name!r} can be fed. Got {describe(what)}, which the graph does not use."
            )
        return found[1]

    def _fetch_target(self, what: Any) -> Value | Node:
        if isinstance(what, str):
            what = self.graph.tensor(what) if ":" in what or self.graph.node(what).outputs else self.graph.node(what)
        if hasattr(what, "__weft_tensor__"):
            with self.graph.as_default():
                what = what.__weft_tensor__()
        if isinstance(what, Node):
            if what.graph is not self.graph:
                raise ValueError(
                    f"session: node {what.name!r} belongs to graph {what.graph.name!r}, but the session runs graph "
                    f"{self.graph.name!r}. It was made at {what.where}."
                )
            return what
        if isinstance(what, Tensor):
            if holds_memory(what):
                return self.graph.outside(what)
            if isinstance(what._data, Value):
                if what._data.node.graph is not self.graph:
                    refuse_foreign(self.graph, what._data)
                return what._data
        raise TypeError(
            f"run: cannot fetch {describe(what)}. Expected a symbolic tensor, a Variable, a node, or a list, tuple or "
            "dictionary of them."
        )

    def _run_step(self, step: PreparedStep, arrays: list[ndarray], timeout: float | None) -> Any:
        if self._closed:
            self._check_open()
        if timeout is not None and (not isinstance(timeout, (int, float)) or not timeout >= 0):
            raise ValueError(f"run: timeout must be a number of at least 0 seconds. Got {timeout!r}.")
        if self.cluster is None:
            run = Run(timeout, next(_step_ids))
        else:
            run = self.cluster.new_run(timeout, next(_step_ids))
        with self._lock:
            self._runs.add(run)
        try:
            try:
                return step.run(run, arrays)
            except Interrupted:
                run.check()  # says why
                raise
        except BaseException as error:
            if run.leases and is_given_up(run, error):
                give_back(run, step.nodes)
            raise
        finally:
            self._runs.discard(run)
            self.last_run = run


def _one_of(feeds: Mapping[Any, Any] | None, feed_dict: Mapping[Any, Any]) -> Mapping[Any, Any]:
    if feeds is not None:
        raise TypeError("run: the feeds were given twice, as `feeds` and as `feed_dict`. Give them once.")
    return feed_dict


def _feed(value: Value, given: Any) -> ndarray:
    """A fed value as an array that fits `value`."""
    if given.__class__ is ndarray:
        array = given
    elif given.__class__ is Tensor and given._data.__class__ is ndarray:
        array = given._data
    else:
        if isinstance(given, Tensor) and given.is_symbolic:
            raise TypeError(f"run: the value fed to {value.name!r} is symbolic. Feed numbers or eager tensors.")
        if isinstance(given, (float, complex, list, tuple)) and value.dtype.kind in "iub" and _has_fractions(given):
            raise TypeError(
                f"run: wrong dtype fed to {value.name!r}. Got {describe(given)}; expected {value.dtype.name}. "
                f"Made at {value.node.where}."
            )
        try:
            array = to_array(
                given, value.dtype if isinstance(given, (bool, int, float, complex, list, tuple)) else None
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"run: cannot feed {value.name!r}, made at {value.node.where}. {error}") from None
    if array.dtype is not value.dtype and array.dtype != value.dtype:
        if not np.can_cast(array.dtype, value.dtype, "same_kind") or dtypes.is_integral(
            array.dtype
        ) != dtypes.is_integral(value.dtype):
            raise TypeError(
                f"run: wrong dtype fed to {value.name!r}. Got {describe(array)}; expected {value.dtype.name}. "
                f"Made at {value.node.where}."
            )
        array = array.astype(value.dtype)
    shape = value.shape
    if shape is not None and shape != array.shape and not _fits(shape, array.shape):
        raise ValueError(
            f"run: wrong shape fed to {value.name!r}. Got {format_shape(array.shape)}; expected {format_shape(shape)}. "
            f"Made at {value.node.where}."
        )
    return array


def _has_fractions(given: Any) -> bool:
    """Whether numbers of Python are floats, which would lose their fractions as integers."""
    if isinstance(given, (list, tuple)):
        return any(_has_fractions(v) for v in given)
    return isinstance(given, (float, complex, np.inexact))


def _check_fed(nodes: Sequence[Node], given: set[Value]) -> None:
    for node in nodes:
        if node.op is PLACEHOLDER and node.outputs[0] not in given:
            raise ValueError(
                f"run: placeholder {node.name!r} must be fed. Made at {node.where}. "
                f"Pass it in the feeds: `sess.run(fetches, {{tensor: value}})`, or by name, `{{{node.name!r}: value}}`."
            )


def _fits(shape: Sequence[Any], given: Sequence[int]) -> bool:
    if len(shape) != len(given):
        return False
    named: dict[Symbol, int] = {}
    for want, have in zip(shape, given, strict=True):
        if isinstance(want, Symbol):
            if named.setdefault(want, have) != have:
                return False
        elif want is not None and want != have:
            return False
    return True


def _check_memory(nodes: Sequence[Node]) -> None:
    """Raise if a step of this process uses a variable or queue that is on a task of a cluster."""
    for node in nodes:
        for name in ("state", "queue", "barrier"):
            what = getattr(node.op, name, None)
            if what is not None and what.home is not None:
                raise ValueError(
                    f"session: {what.name!r} lives on a task of a cluster. Run the step there, `wf.Session(graph, "
                    f"cluster=cluster)`. Used by node {node.name!r}, made at {node.where}."
                )


class PreparedStep:
    """A step's definition, made ready to run: its plan, and what its results are."""

    def __init__(
        self, session: Session, targets: list[Value | Node], structure: Any, fed: list[Value],
        done: frozenset[Node] = frozenset(),
    ) -> None:  # fmt: skip
        self.session, self.structure, self.fed = session, structure, fed
        self.targets = targets
        given = set(fed)
        values = [t for t in targets if isinstance(t, Value) and t not in given]
        wanted = [v.node for v in values] + [t for t in targets if isinstance(t, Node)]
        nodes = needed_nodes(wanted, given)
        if done:  # ran in an earlier part of the same step
            nodes = [n for n in nodes if n not in done]
        _check_fed(nodes, given)
        if any(isinstance(n.op, ControlOp) and (session.lower or must_lower(n)) for n in nodes):
            new = Lowered(nodes, session.lower)
            nodes = new.graph.nodes
            self.fed = fed = [new.values.get(v, v) for v in fed]
            given = set(fed)
            values = [new.values[v] for v in values]
            targets = [new.values.get(t, t) if isinstance(t, Value) else new.nodes[t] for t in targets]
            self.targets = targets
        self.nodes = nodes
        self.placement: Any = None
        naive = session.executor == "naive"
        self.parts: list[Part] = []
        self.plan: Any = self._plan(nodes, given, list(dict.fromkeys(values)), naive)
        self.only: Unit | None = None
        units = self.plan.units if isinstance(self.plan, Plan) else []
        if len(units) == 1 and units[0].region is not None and self._direct(units[0]):
            self.only = units[0]
            self.order = [fed.index(v) for v in units[0].inputs]
            at = {v: i for i, v in enumerate(units[0].outputs)}
            self.pick = [at[t] if isinstance(t, Value) else None for t in targets]
            self.executed = len(units[0].nodes)

    def _plan(self, nodes: list[Node], given: set[Value], values: list[Value], naive: bool) -> Any:
        framed = has_routing(nodes)
        if framed:
            for v in values:
                if frame_of(v.node):
                    raise ValueError(
                        f"run: {v.name!r} is inside the loop {'/'.join(frame_of(v.node))!r}, where it has many values. Fetch "
                        f"the result of an `exit`. Made at {v.node.where}."
                    )
        if self.session.cluster is not None:
            made = self.session.cluster.prepare(self.session, nodes, self.fed, values, naive)
            self.placement = made.placement
            return made
        _check_memory(nodes)
        available = as_devices(self.session.devices)
        placed: dict[Node, Any] = {}
        if len(available) > 1 or available[0].kind != "cpu" or any(n.device for n in nodes):
            self.placement = Placement(nodes, available)
            placed = self.placement.of
        if naive:
            return Script(nodes, given, values, placed, frame_of)
        if framed:
            return TokenPlan(nodes, given, values, placed)
        plan = Plan(nodes, given, values, placed)
        if len(set(placed.values())) > 1:
            self.parts = partition(plan, self.session.transport)
        return plan

    def _direct(self, unit: Unit) -> bool:
        outputs = set(unit.outputs)
        return all(isinstance(t, Node) or t in outputs for t in self.targets)

    def run(self, run: Run, arrays: list[ndarray]) -> Any:
        if self.only is not None:
            if run.deadline is not None:
                run.check()
            region = self.only.region
            assert region is not None
            watched.by = run
            try:
                outputs = region.run([arrays[i] for i in self.order])
            finally:
                watched.by = None
            run.executed = self.executed
            made = [None if i is None else wrap(outputs[i]) for i in self.pick]
            return made[0] if self.structure is None else unflatten(self.structure, made)
        env: dict[Value, Any] = dict(zip(self.fed, arrays, strict=True))
        plan, transport = self.plan, self.session.transport
        if isinstance(plan, Script):
            env = Interpreter(plan, run, env, transport).execute()
        elif self.session.cluster is not None:
            env = plan.run(run, env)
        elif isinstance(plan, TokenPlan):
            env = plan.run(run, env, transport)
        elif self.parts:
            env = run_parts(self.parts, run, env, transport)
        else:
            Engine(plan, run, env, True).execute()
        return self._results(env)

    def explain(self) -> str:
        """The step in words; see `Session.explain`."""
        if self.session.cluster is not None:
            text: str = self.plan.explain()
            return text
        work = [n for n in self.nodes if n.op is not CONSTANT and n.op is not PLACEHOLDER]
        placed = self.placement.of if self.placement is not None else {}
        found: dict[Any, list[Node]] = {}
        for node in work:
            found.setdefault(placed.get(node, as_devices(self.session.devices)[0]), []).append(node)
        if len(found) < 2:
            return "".join([f"step in one part: {len(nodes)} nodes on {device}" for device, nodes in found.items()])
        lines = [f"step over {len(found)} parts:"]
        lines += [f"  {device}: {', '.join([n.name for n in nodes])}" for device, nodes in found.items()]
        for node in work:
            for v in {v: None for v in node.inputs if isinstance(v, Value) and v.node in placed}:
                if placed[v.node] != placed[node]:
                    lines.append(f"  {v.name}: {placed[v.node]} → {placed[node]}, {v.nbytes} bytes")
        return "\n".join(dict.fromkeys(lines))

    def _results(self, env: dict[Value, Any]) -> Any:
        made: list[Any] = []
        for t in self.targets:
            if isinstance(t, Node):
                made.append(None)
                continue
            array = env[t] if t in env else self.plan.constants[t]
            own = (
                not isinstance(self.plan, (Script, TokenPlan)) and t not in self.plan.fed and t.node.op is not CONSTANT
            )
            made.append(wrap(array if own else np.array(array)))
        return made[0] if self.structure is None else unflatten(self.structure, made)
