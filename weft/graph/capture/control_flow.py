"""Data-dependent control flow: `cond`, `case`, `while_loop`, `scan`, `map`.

Eagerly these are Python's `if` and loops. In a captured function, where the deciding value is not known yet, they become
nodes with subgraphs, compiled to native branches and loops; their gradients are control flow again: the gradient of a
branch is the gradient of the branch taken, that of a scan is a scan backwards.

Note [Recomputation]. The gradient of a captured branch or loop body runs its forward part again instead of keeping what
it computed: the body's inputs (for a scan: the carry of every step) are all that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import dtypes
from ...autograd.engine import run_backward
from ...autograd.tape import Node, Output, enable_grad, grad_mode
from ...autograd.tree import difference, flatten, structure_text, unflatten
from ...errors import describe, user_location
from ...ops.core.registry import Facts
from ...ops.core.spec import Spec, same_size, spec_of
from ...tensor import Tensor, wrap
from ..graph import Value
from .closures import frozen
from .dependence import of_branches, of_loop
from .effects import Effects, copies, entangle, restore_aliases, values_at_recording
from .subgraph import Sub, after, cut, in_function, refuse_batched, sizes
from .tracing import CaptureError, Uncapturable, capturing


class ControlOp(Facts):
    """A node's op that holds subgraphs. `kind` is "cond", "while" or "scan"."""

    rules = joint_rule = pull_arrays = None
    keeps_arrays = True  # a second backward needs retain_graph
    saved_items: tuple[Any, ...] = ()

    def __init__(self, kind: str, subs: Sequence[Sub], **facts: Any) -> None:
        self.name = self.kind = kind
        self.subs = tuple(subs)
        self.facts = facts
        self.backward: Callable[..., Any] | None = None
        self.pinned: list[tuple[Tensor, Any, Any]] = []  # outer tensors with their values and places on the tape
        self.entry: Node | None = None  # the tape entry whose gradient is being taken

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def pullback(self, node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> Any:
        assert self.backward is not None
        for sub in self.subs:
            _refuse_effects(self.kind, sub)
        self.entry = node
        try:
            with values_at_recording(self.pinned):
                return self.backward([g.get(i) for i in range(len(node.outputs))], edges)
        finally:
            self.entry = None


def _refuse_effects(kind: str, sub: Sub) -> None:
    """The gradient runs a body again (Note [Recomputation]): what it does to queues and variables would happen twice."""
    for node in sub.graph.nodes:
        if node.op.effects & {"writes", "blocks"}:
            raise RuntimeError(
                f"gradients: `{node.op.name}` inside a {kind} has no gradient, because the gradient runs the body again. "
                f"Dequeue or assign outside of it. Made at {node.where}."
            )


def _symbolic(*tensors: Any) -> bool:
    return any(isinstance(t, Tensor) and t.is_symbolic and not _computed(t) for t in tensors)


def _computed(t: Tensor) -> bool:
    """Compute a tensor whose values Python may have, see Note [Segments]; False for those of other graphs."""
    graph = getattr(getattr(t._data, "node", None), "graph", None)
    if graph is None or not graph.is_lazy:
        return False
    graph.compute(t)
    return True


def recording(*tensors: Any) -> Any:
    """The graph that control flow on `tensors` is added to: that of the capture in progress, else their own, or None."""
    mode = capturing()
    if mode is not None:
        return mode.graph
    for t in tensors:
        if isinstance(t, Tensor) and isinstance(t._data, Value) and not _computed(t):
            return t._data.node.graph
    return None


def _add_node(op: ControlOp, tensors: list[Tensor], specs: list[Spec], linked: Sequence[bool]) -> list[Tensor]:
    """Add a control-flow node to the graph in progress and link those of its results to the tape that `linked` says."""
    graph = recording(*tensors)
    node = graph.add(op, [graph.operand(t) for t in tensors], (), specs, user_location(3), op.kind)
    for t in tensors:
        graph.hold(t)
    if in_function():
        op.pinned = [(t, graph.operand(t), t._node) for t in op.facts["outer"]]
    results = [wrap(v) for v in node.outputs]
    if grad_mode.enabled and any(linked):
        results = record(node, op, tensors, results, linked)
    graph.made(tuple(results))
    return results


def record(
    node: Any, op: ControlOp, tensors: list[Tensor], results: list[Tensor], linked: Sequence[bool] | None = None
) -> list[Tensor]:
    """Link the results of a control-flow node to the tape, if an input is on it; all of them, or those that `linked` says."""
    if any(t._node is not None for t in tensors):
        edges, outputs = tuple([t._node for t in tensors]), tuple([spec_of(v) for v in node.outputs])
        Node(op, edges, where=node.where, outputs=outputs).link(results, linked)
    return results


def _common(a: Spec, b: Spec) -> Spec | None:
    """The most specific Spec that covers `a` and `b`; None if there is none."""
    if a.dtype != b.dtype:
        return None
    if a.shape is None or b.shape is None:
        return Spec(None, a.dtype)
    if len(a.shape) != len(b.shape) or not all(same_size(d, e) for d, e in zip(a.shape, b.shape, strict=True)):
        return None
    return Spec(tuple([d if d == e else None for d, e in zip(a.shape, b.shape, strict=True)]), a.dtype)


def _all_common(first: Sequence[Spec], second: Sequence[Spec]) -> list[Spec] | None:
    if len(first) != len(second):
        return None
    found = [_common(a, b) for a, b in zip(first, second, strict=True)]
    return None if None in found else found  # type: ignore[return-value]


def _lasting(specs: list[Spec], trace: Callable[[list[Spec]], Sub], what: str) -> tuple[list[Spec], Sub]:
    """Trace a body on a state like `specs`, generalising the sizes that an iteration does not preserve."""
    while True:
        body = trace(specs)
        found = [Spec(sizes(v), v.dtype) for v in body.outputs[: len(specs)]]
        kept = _all_common(specs, found)
        if kept is None:
            raise CaptureError(f"{what}. Got {found}; expected {specs}.")
        if kept == specs:
            return specs, body
        specs = kept


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(value)


def _union(subs: Sequence[Sub]) -> list[Tensor]:
    """The surrounding tensors that any of the subgraphs uses, each once."""
    found: dict[int, Tensor] = {}
    for sub in subs:
        for t in sub.captured:
            found.setdefault(id(t), t)
    return list(found.values())


def _partial_gradients(
    fn: Callable[..., Any], inputs: list[Tensor], outer: list[Tensor], seeds: list[Any]
) -> list[Tensor]:
    """Gradients of `fn(*inputs)` with respect to its inputs and to the surrounding tensors `outer`, for `seeds`."""
    from ...ops.array.creation import zeros_like

    watched = [wrap(t._data, after(t)) if dtypes.is_inexact(t.dtype) else t for t in inputs]
    live = [t for t in outer if dtypes.is_inexact(t.dtype)]
    with enable_grad(), cut(live):
        # taken now: `fn` may write to its operands, which gives them other places on the tape
        places = {id(t): wrap(t._data, t._node) for t in (*watched, *live) if t._node is not None}
        outs, _ = flatten(fn(*watched))
        pairs = [
            (o, s)
            for o, s in zip(outs, seeds, strict=True)
            if isinstance(o, Tensor) and o._node is not None and s is not None
        ]
        grads: list[Any] = []
        if pairs and places:
            # recorded, because the gradient of this gradient is traced from it
            found = run_backward(
                [o for o, _ in pairs],
                [s for _, s in pairs],
                create_graph=True,
                inputs=list(places.values()),
                transposed=True,
            )
            assert found is not None
            grads = found
    table = dict(zip(places, grads, strict=False))
    return [
        zeros_like(t) if table.get(id(w)) is None else table[id(w)]
        for t, w in zip((*inputs, *outer), (*watched, *outer), strict=True)
    ]


# cond -------------------------------------------------------------------------------------------------------------------


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """Return `true_fn(*operands)` if `pred`, else `false_fn(*operands)`; only the branch taken runs.

    Args:
        pred: a bool, or a tensor with one element.
        true_fn, false_fn: functions of the operands. In a captured function or a graph both must return tensors of the same
            structure, shapes and dtypes.
        operands: the arguments of the branches; branches may also close over tensors.

    >>> wf.cond(wf.tensor(2.0) > 1, lambda: wf.tensor(10.0), lambda: wf.tensor(20.0)).item()
    10.0
    """
    if not _symbolic(pred) or recording(pred) is None:
        return true_fn(*operands) if bool(pred) else false_fn(*operands)
    refuse_batched("cond", [pred, *flatten(tuple(operands))[0]])
    if pred.size not in (1, None):
        raise ValueError(
            f"cond: pred must have one element. Got {describe(pred)}; use `wf.where` to choose elementwise."
        )
    leaves, structure = flatten(tuple(operands))
    leaves = [_as_tensor(v) for v in leaves]
    subs = [Sub("cond", fn, leaves, structure) for fn in (true_fn, false_fn)]
    effects = Effects("branch", subs, leaves) if in_function() else None
    if effects:
        branches = [effects.pure(fn, structure) for fn in (true_fn, false_fn)]
        chosen, last, operands_last = cond(pred, *branches, *copies(leaves), *effects.operands())
        effects.apply(last, operands_last)
        values = restore_aliases(flatten(chosen)[0], subs, leaves)
        return unflatten(subs[0].structure, values)
    specs = [[Spec(v.shape, v.dtype) for v in sub.outputs] for sub in subs]
    common = _all_common(specs[0], specs[1])
    if subs[0].structure != subs[1].structure:
        raise CaptureError(
            "cond: both branches must return the same structure, shapes and dtypes. Got "
            f"{structure_text(subs[0].structure)} if true and {structure_text(subs[1].structure)} if false: "
            f"{difference(subs[0].structure, subs[1].structure, 'the second')}."
        )
    if common is None:
        raise CaptureError(
            f"cond: both branches must return the same structure, shapes and dtypes. "
            f"Got {specs[0]} if true and {specs[1]} if false."
        )
    outer = _union(subs)
    from ...ops.array.elementwise import astype
    from ...ops.array.shaping import reshape

    flag = astype(reshape(pred, ()), dtypes.bool_)
    op = ControlOp("cond", subs, operands=len(leaves), outer=outer)
    given, leaves = leaves, copies(leaves) if in_function() else leaves
    true_later, false_later = frozen(true_fn), frozen(false_fn)

    def backward(g: list[Any], edges: tuple[Any, ...]) -> list[Any]:
        def branch(fn: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *xs: _partial_gradients(lambda *ys: fn(*unflatten(structure, list(ys))), list(xs), outer, g)

        return [None, *cond(flag, branch(true_later), branch(false_later), *leaves)]

    op.backward = backward
    results = _add_node(op, [flag, *leaves, *outer], common, of_branches(subs, leaves))
    if in_function():
        results = restore_aliases(results, subs, given)
    return unflatten(subs[0].structure, results)


def case(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return `branches[index](*operands)`; an index out of range takes the last branch.

    >>> wf.case(wf.tensor(1), [lambda x: x, lambda x: -x], wf.tensor(2.0)).item()
    -2.0
    """
    if not branches:
        raise ValueError("case: expected at least one branch. Got none.")
    if not _symbolic(index):
        i = int(index)
        return branches[i if 0 <= i < len(branches) else -1](*operands)
    result = branches[-1]
    for i in range(len(branches) - 2, -1, -1):
        result = _choose(index, i, branches[i], result)
    return result(*operands)


def _choose(index: Any, i: int, here: Callable[..., Any], rest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: cond(index == i, here, rest, *operands)


# while_loop ---------------------------------------------------------------------------------------------------------------


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any, *, max_iterations: int | None = None
) -> Any:
    """Run `while cond_fn(*state): state = body_fn(*state)` from `state = init` and return the last state.

    The gradient reruns the body a fixed number of times per iteration and stores states.

    Args:
        cond_fn: a function of the state that returns one bool.
        body_fn: a function of the state that returns the next one. In a graph or a captured function the state keeps its
            shapes and dtypes.
        init: a tuple or list of tensors, passed to both functions as separate arguments, or one tensor. Each of them may be a
            tree (`weft.tree`); a dict, named tuple or dataclass is one state.
        max_iterations: run the loop as a scan of that length, in which finished iterations change nothing; its gradient is
            cheaper where the bound is tight.

    >>> wf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + i), (wf.tensor(0), wf.tensor(0)))[1].item()
    6
    """
    for name, f in (("cond_fn", cond_fn), ("body_fn", body_fn)):
        if not callable(f):
            raise TypeError(f"while_loop: {name} must be a function. Got {describe(f)}.")
    many = _is_several(init)
    state = tuple(init) if many else (init,)
    if recording(*flatten(state)[0]) is None or not (_symbolic(*flatten(state)[0]) or _needs_capture(cond_fn, state)):
        count = 0
        while bool(cond_fn(*state)):
            if max_iterations is not None and count >= max_iterations:
                break
            new = body_fn(*state)
            state = tuple(new) if isinstance(new, (tuple, list)) and many else (new,)
            count += 1
        return (list(state) if isinstance(init, list) else state) if many else state[0]
    leaves, structure = flatten(state)
    leaves = [_as_tensor(v) for v in leaves]
    refuse_batched("while_loop", leaves)
    specs, body = _lasting(
        [Spec(sizes(t), t.dtype) for t in leaves],
        lambda specs: Sub("while", lambda *s: _same_form(body_fn(*s), many), specs, structure, leaves),
        "while_loop: the body must keep shapes and dtypes of the state",
    )
    if len(body.outputs) != len(specs):
        raise CaptureError(
            f"while_loop: the body must return as many values as the state has. Got {len(body.outputs)}; expected {len(specs)}."
        )
    condition = Sub("while", cond_fn, specs, structure)
    if len(condition.outputs) != 1 or condition.outputs[0].size not in (1, None):
        raise CaptureError("while_loop: the condition must return one boolean.")
    if in_function():
        found = _effects_of_loop("while", body, leaves, len(leaves))
        if condition.effects or condition.writes:
            raise Uncapturable("the condition of a loop writes to a tensor", "")
        if found:
            step, test = found.pure(body_fn, structure), found.pure(cond_fn, structure, finals=False)

            def pure(*values: Any) -> tuple[Any, ...]:
                new, last, _ = step(*values)
                return (*flatten(_same_form(new, many))[0], *last)

            ends = while_loop(test, pure, (*copies(leaves), *found.operands()), max_iterations=max_iterations)
            found.apply(ends[len(leaves) :], [ends[i] for i in found.written])
            state = unflatten(structure, _loop_results(list(ends[: len(leaves)]), body, leaves))
            return (list(state) if isinstance(init, list) else state) if many else state[0]
    if max_iterations is not None:
        return _bounded_while(cond_fn, body_fn, init, max_iterations)
    given, leaves = leaves, copies(leaves) if in_function() else leaves
    outer = _union((condition, body))
    op = ControlOp("while", (condition, body), operands=len(leaves), outer=outer)
    body_later, condition_later = frozen(body_fn), frozen(cond_fn)

    def flat(*values: Any) -> list[Any]:
        new, _ = flatten(_same_form(body_later(*unflatten(structure, list(values))), many))
        return [_as_tensor(v) for v in new]

    def backward(g: list[Any], edges: tuple[Any, ...]) -> Any:
        test = lambda *v: condition_later(*unflatten(structure, list(v)))
        if in_function():
            from .loop_gradient import while_backward

            return while_backward(test, flat, leaves, outer, g)
        return _while_backward(test, flat, leaves, outer, g)

    op.backward = backward
    results = _add_node(op, [*leaves, *outer], specs, of_loop(body, leaves))
    if in_function():
        results = _loop_results(results, body, given)
    final = unflatten(structure, results)
    return (list(final) if isinstance(init, list) else final) if many else final[0]


def _effects_of_loop(what: str, body: Sub, leaves: list[Any], count: int) -> Effects:
    """The writes of a loop body. An operand that it writes must be returned, as the same tensor, in the same position."""
    effects = Effects(f"{what} body", [body], leaves)
    for i in body.writes:
        if i >= count or body.sources[i] != (i, True):
            raise Uncapturable(f"a {what} body writes to an operand and goes on with another tensor in its place", "")
    written = {id(t) for t in (*effects.tensors, *[leaves[i] for i in body.writes])}
    for k, source in enumerate(body.sources):
        if source is not None and source != (k, True):
            tensor = leaves[source[0]] if isinstance(source[0], int) else source[0]
            if id(tensor) in written:
                raise Uncapturable(f"a {what} body returns the memory that it writes under another name", "")
    if body.graph.layouts_matter and body.graph.has_writes:
        for k, (leaf, source) in enumerate(zip(leaves[:count], body.sources, strict=False)):
            if source != (k, True) and not body.graph.same_layout(leaf._data, body.outputs[k]):
                raise Uncapturable(
                    f"a {what} body reshapes and writes tensors, and the memory order of a part of the state changes",
                    "Start from a contiguous tensor, `x.clone()`.",
                )
    return effects


def _loop_results(results: list[Tensor], body: Sub, leaves: list[Any]) -> list[Any]:
    """The last state of a loop. A part that the body returns as the same tensor is the initial tensor; any other part may
    be the initial tensor, if there is no iteration."""
    made: list[Any] = []
    for k, result in enumerate(results):
        source = body.sources[k]
        if source == (k, True):
            made.append(leaves[k])
            continue
        entangle(result, leaves[k])
        if source is not None:
            entangle(result, leaves[source[0]] if isinstance(source[0], int) else source[0])
        made.append(result)
    return made


def _while_backward(
    test: Callable[..., Any], flat: Callable[..., Any], leaves: list[Tensor], outer: list[Tensor], g: list[Any]
) -> list[Any]:
    """The gradient of a loop with an unknown number of iterations.

    The loop is run again, twice: to count its n iterations, and then as a scan over as many numbers, which stores the
    states and has a gradient. The length of the scan is n rounded up, so that few lengths are compiled; surplus
    iterations do nothing. So the gradient costs a fixed number of runs of the body per iteration.
    """
    zero = _as_tensor(0)
    start = [t.detach() for t in leaves]
    total = while_loop(lambda k, *s: test(*s), lambda k, *s: (k + 1, *flat(*s)), (zero, *start))[0]
    numbers = _iteration_numbers(total)

    def step(carry: Any, i: Any) -> Any:
        new = cond(i < total, lambda *c: tuple(flat(*c)), lambda *c: tuple(c), *carry)
        return tuple(new), None

    with enable_grad():
        final = scan(step, tuple(leaves), numbers)[0]
    entry = next((t._node.parent for t in final if t._node is not None), None)
    if entry is None:
        return [None] * (len(leaves) + len(outer))
    given = {i: gi for i, gi in enumerate(g) if gi is not None and dtypes.is_inexact(gi.dtype)}
    grads = entry.op.pullback(entry, given, entry.edges, grad_mode.enabled)
    at = len(leaves) + 1  # after the state and the numbers come the surrounding tensors
    found = {id(t): gi for t, gi in zip(entry.op.facts["outer"], grads[at:], strict=True)}
    return [*grads[: len(leaves)], *[found.get(id(t)) for t in outer]]


def _iteration_numbers(total: Tensor) -> Tensor:
    """0, 1, … to at least `total`, as a tensor whose length is known when it runs."""
    from ..declared.building import IterationNumbers

    graph = recording(total)
    spec = Spec((None,), dtypes.int64)
    return wrap(
        graph.add(IterationNumbers(), [graph.operand(total)], (), (spec,), user_location(2), "iterations").outputs[0]
    )


def _needs_capture(cond_fn: Callable[..., Any], state: tuple[Any, ...]) -> bool:
    """Whether the condition is symbolic although the state is not (it looks at other tensors)."""
    return _symbolic(cond_fn(*state))


def _is_several(init: Any) -> bool:
    """Whether the state of a loop is several arguments; a named tuple is one."""
    return isinstance(init, (tuple, list)) and not hasattr(init, "_fields")


def _same_form(new: Any, many: bool) -> Any:
    return tuple(new) if many and isinstance(new, (tuple, list)) else (new,)


def _bounded_while(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any, bound: int) -> Any:
    from ...ops.array.elementwise import where

    many = _is_several(init)
    state = tuple(init) if many else (init,)
    leaves, structure = flatten(state)
    leaves = [_as_tensor(v) for v in leaves]

    def step(carry: Any, _: Any) -> Any:
        going = cond_fn(*unflatten(structure, list(carry)))
        new, _structure = flatten(_same_form(body_fn(*unflatten(structure, list(carry))), many))
        return tuple([where(going, n, c) for n, c in zip(new, carry, strict=True)]), ()

    final, _ = scan(step, tuple(leaves), None, length=bound)
    result = unflatten(structure, list(final))
    return (list(result) if isinstance(init, list) else result) if many else result[0]


# scan ---------------------------------------------------------------------------------------------------------------------


def scan(
    fn: Callable[..., Any], init: Any, xs: Any = None, *, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Apply `carry, y = fn(carry, x)` to the slices of `xs` along axis 0; return (last carry, stacked ys).

    Args:
        fn: a function of the carry and one slice that returns the next carry and a result.
        init: the first carry; may be nested.
        xs: tensors of equal length n along axis 0, possibly nested, or None with a `length`. In a declared graph n may be
            unknown until a step runs.
        length: n, if `xs` is None.
        reverse: take the slices from last to first; ys keep the order of xs.

    >>> total, sums = wf.scan(lambda c, x: (c + x, c + x), wf.tensor(0.0), wf.tensor([1.0, 2.0, 3.0]))
    >>> total.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    from ...ops.array.shaping import stack

    x_leaves, x_structure = flatten(xs)
    x_leaves = [] if xs is None else [_as_tensor(v) for v in x_leaves]
    lengths = {None if t.ndim is None else t.shape[0] for t in x_leaves if t.ndim != 0}
    lengths |= {length} if length is not None else set()
    known = {d for d in lengths if isinstance(d, int)}
    if not lengths or len(known) > 1 or any(t.ndim == 0 for t in x_leaves):
        raise ValueError(
            "scan: all xs must be equally long along axis 0, or `length` given. "
            f"Got lengths {sorted([str(d) for d in lengths])}."
        )
    n: Any = next(iter(known)) if known else None
    if n is None and in_function():
        raise ValueError("scan: the length of xs along axis 0 must be known. Pass `length=`, or use `wf.while_loop`.")
    if recording(*flatten(init)[0], *x_leaves) is not None and n != 0:
        return _captured_scan(fn, init, x_leaves, x_structure if xs is not None else _NOTHING, n, reverse)
    carry = init
    ys: list[Any] = [None] * n
    for t in reversed(range(n)) if reverse else range(n):
        x = None if xs is None else unflatten(x_structure, [leaf[t] for leaf in x_leaves])
        carry, ys[t] = fn(carry, x)
    if not n:
        return carry, None
    columns = [flatten(y) for y in ys]
    stacked = (
        [stack([_as_tensor(c[0][i]) for c in columns]) for i in range(len(columns[0][0]))] if _has_leaves(ys[0]) else []
    )
    return carry, unflatten(columns[0][1], stacked) if stacked else ys[0]


_NOTHING = object()


def _has_leaves(y: Any) -> bool:
    return y is not None and bool(flatten(y)[0])


def _captured_scan(
    fn: Any, init: Any, xs: list[Tensor], x_structure: Any, n: int | None, reverse: bool
) -> tuple[Any, Any]:
    carry, carry_structure = flatten(init)
    carry = [_as_tensor(v) for v in carry]
    refuse_batched("scan", [*carry, *xs])
    y_structure: list[Any] = [None]

    def flat(*values: Any) -> list[Any]:
        c = unflatten(carry_structure, list(values[: len(carry)]))
        x = None if x_structure is _NOTHING else unflatten(x_structure, list(values[len(carry) :]))
        new, y = fn(c, x)
        new_leaves, new_structure = flatten(new)
        if new_structure != carry_structure:
            raise CaptureError(
                "scan: the body must return a carry of the same structure as `init`: "
                f"{difference(carry_structure, new_structure, 'carry')}."
            )
        y_leaves, y_structure[0] = flatten(y) if y is not None else ([], None)
        return [_as_tensor(v) for v in (*new_leaves, *y_leaves)]

    slices = [_Slice(t) for t in xs]
    differentiable = grad_mode.enabled and any(t._node is not None for t in (*carry, *xs))
    specs, body = _lasting(
        [Spec(sizes(t), t.dtype) for t in carry],
        lambda specs: Sub("scan", flat, [*specs, *slices], operands=carry),
        "scan: the body must keep shapes and dtypes of the carry",
    )
    if in_function():
        found = _effects_of_loop("scan", body, [*carry, *xs], len(carry))
        if found:
            return _scan_with_effects(found, fn, carry, carry_structure, xs, x_structure, n, reverse, body)
    given, carry = carry, copies(carry) if in_function() else carry
    outer = body.captured
    differentiable = differentiable or grad_mode.enabled and any(t._node is not None for t in outer)
    ys = [_stacked(n, v) for v in body.outputs[len(carry) :]]
    kept = [_stacked(n, s) for s in specs] if differentiable else []
    op = ControlOp(
        "scan",
        (body,),
        carry=len(carry),
        xs=len(xs),
        ys=len(ys),
        n=n,
        reverse=reverse,
        keep=differentiable,
        outer=outer,
    )
    results: list[Tensor] = []
    later = frozen(flat)

    def backward(g: list[Any], edges: tuple[Any, ...]) -> list[Any]:
        assert op.entry is not None
        first = len(specs) + len(ys)
        kept_now = [
            wrap(v, Output(op.entry, first + i) if dtypes.is_inexact(v.dtype) else None) for i, v in enumerate(stored)
        ]
        return _scan_backward(later, carry, xs, outer, kept_now, g, n, reverse)

    op.backward = backward
    linked = of_loop(body, carry, xs)
    results = _add_node(op, [*carry, *xs, *outer], [*specs, *ys, *kept], [*linked, *[differentiable] * len(kept)])
    stored = [r._data for r in results[len(specs) + len(ys) :]]
    last = list(results[: len(specs)])
    final = unflatten(carry_structure, _loop_results(last, body, given) if in_function() else last)
    y_values = results[len(specs) : len(specs) + len(ys)]
    return final, (unflatten(y_structure[0], y_values) if y_values else None)


def _scan_with_effects(
    effects: Effects,
    fn: Any,
    carry: list[Tensor],
    carry_structure: Any,
    xs: list[Tensor],
    x_structure: Any,
    n: int | None,
    reverse: bool,
    body: Sub,
) -> tuple[Any, Any]:
    """A scan whose body writes to its carry or to outer tensors: these become part of the carry."""
    count = len(carry)

    def flat(*values: Any) -> Any:
        x = None if x_structure is _NOTHING else unflatten(x_structure, list(values[count:]))
        return fn(unflatten(carry_structure, list(values[:count])), x)

    run = effects.pure(flat, None)

    def step(state: Any, x: Any) -> Any:
        (new, y), last, _ = run(*state[0], *(x or ()), *state[1])
        return (flatten(new)[0], last), y

    (ends, tensors), ys = scan(step, (copies(carry), effects.operands()), list(xs) or None, length=n, reverse=reverse)
    effects.apply(tensors, [ends[i] for i in effects.written])
    return unflatten(carry_structure, _loop_results(list(ends), body, carry)), ys


def _stacked(n: int | None, row: Any) -> Spec:
    return Spec(None if row.shape is None else (n, *row.shape), row.dtype)


class _Slice:
    """The shape and dtype of one slice of xs."""

    def __init__(self, t: Tensor) -> None:
        self.shape, self.dtype = None if t.shape is None else tuple(t.shape[1:]), t.dtype


def _scan_backward(
    flat: Any,
    carry: list[Tensor],
    xs: list[Tensor],
    outer: list[Tensor],
    stored: list[Tensor],
    g: list[Any],
    n: int | None,
    reverse: bool,
) -> list[Any]:
    """The gradient of a scan: a scan in the opposite direction over the stored carries."""
    from ...ops.array.creation import zeros_like

    count = len(carry)
    g_final = [zeros_like(c) if gi is None else gi for c, gi in zip(carry, g[:count], strict=True)]
    g_ys = list(g[count : len(g) - len(stored)])
    g_stored = list(g[len(g) - len(stored) :])  # the stored carries are used by gradients, which may have gradients
    present = [i for i, gi in enumerate(g_ys) if gi is not None]
    used = [i for i, gi in enumerate(g_stored) if gi is not None]
    start = (g_final, [zeros_like(t) for t in outer])

    def step(state: Any, x: Any) -> Any:
        g_carry, g_outer = state
        c, x_t, gy_t, gs_t = x
        seeds: list[Any] = [*g_carry, *[None] * len(g_ys)]
        for i, gy in zip(present, gy_t, strict=True):
            seeds[count + i] = gy
        seeds = [s if s is None or dtypes.is_inexact(s.dtype) else None for s in seeds]
        grads = _partial_gradients(flat, [*c, *x_t], outer, seeds)
        new_outer = [
            a + b if dtypes.is_inexact(a.dtype) else a for a, b in zip(g_outer, grads[count + len(xs) :], strict=True)
        ]
        new_carry = list(grads[:count])
        for i, gs in zip(used, gs_t, strict=True):
            new_carry[i] = new_carry[i] + gs
        return (new_carry, new_outer), grads[count : count + len(xs)]

    (g_init, g_outer), g_xs = scan(
        step,
        start,
        (stored, xs, [g_ys[i] for i in present], [g_stored[i] for i in used]),
        length=n,
        reverse=not reverse,
    )
    return [*g_init, *(g_xs or []), *g_outer]


def map(fn: Callable[..., Any], xs: Any) -> Any:
    """Apply `fn` to every slice of `xs` along axis 0, one after the other, and stack the results.

    `wf.vmap` applies a function to all slices at once.

    >>> wf.map(lambda x: x * x, wf.tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 4.0, 9.0]
    """
    _, ys = scan(lambda _, x: ((), fn(x)), (), xs)
    return ys
