"""The gradient of a captured loop with an unknown number of iterations, in memory of fixed size.

The loop is run again to count its n iterations, and once more to store every s-th state in SLOTS slots, s being n / SLOTS
rounded up. Then the stretches between the stored states are taken from the last to the first: a stretch is divided in the
same way, and what is still longer than one iteration after LEVELS divisions is run from its start for each of its iterations.
So up to SLOTS ** LEVELS iterations cost a fixed number of runs of the body each; more are slower, but never wrong.

Note [Sweeps]. Such a gradient consists of a sweep forwards through the states of the loop and one backwards through their
adjoints (gradients). Differentiating the loops it is made of would square their number with every further derivative. But
the gradient of two sweeps is again two sweeps, with twice as much state: the gradient of the adjoints is computed forwards
beside the states, that of the states backwards beside the adjoints. So the tape records the sweeps as one node (`_Sweeps`),
and a derivative of any order has the nested loops of the first one. That supposes a backward pass that is linear in the
gradients. Hooks and Functions of the user's need not be; with them the loops themselves are recorded and differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import dtypes
from ...autograd.function import has_custom_gradient
from ...autograd.tape import Node, grad_mode, no_grad, tick
from ...errors import user_location
from ...ops.core.spec import num_elements, spec_of
from ...tensor import Tensor, wrap
from .effects import values_at_recording
from .tracing import capturing

LEVELS = 2
SLOTS, MIN_SLOTS = 128, 8
SLOT_BYTES = 1 << 26
"""Large states get fewer slots, to stay within this memory (down to a minimum)."""

State = Sequence[Tensor]


def while_backward(
    test: Callable[..., Any], body: Callable[..., State], start: list[Tensor], outer: list[Tensor], g: list[Any]
) -> list[Any]:
    """Gradients with respect to `start` and `outer` of `state = start; while test(*state): state = body(*state)`.

    `outer` are the surrounding tensors that the two functions use, `g` the gradients of the last state (None where it has none).
    """
    from ...ops.array.creation import zeros_like
    from .control_flow import while_loop

    first = [t.detach() for t in start]
    total = while_loop(lambda n, *s: test(*s), lambda n, *s: (n + 1, *body(*s)), (Tensor(0), *first))[0]
    live, live_outer = _inexact(start), _inexact(outer)
    is_custom = False

    def watched(*state: Tensor) -> State:
        nonlocal is_custom
        begin = tick()
        results = body(*state)
        is_custom = is_custom or has_custom_gradient(results, begin)
        return results

    def reverse(state: State, adjoints: State) -> tuple[State, State]:
        seeds = _spread(adjoints, live, len(state))
        found = _partial(watched, state, outer, seeds)
        return [found[i] for i in live], [found[len(state) + i] for i in live_outer]

    ends = [zeros_like(start[i]) if g[i] is None else g[i] for i in live]
    sweeps = _Sweeps(total, body, reverse, start, ends, [outer[i] for i in live_outer], outer)
    adjoints, sums = sweeps.run(lambda: not is_custom)
    return [*_spread(adjoints, live, len(start)), *_spread(sums, live_outer, len(outer))]


class _Sweeps:
    """A loop that is run forwards for its states and then backwards through them; on the tape, the op of one node.

    Forwards `state = forward(*state)`, `total` times from `start`. Backwards `adjoints, terms = reverse(state, adjoints)`
    from the last iteration to the first, starting with `ends`; `reverse` is linear in the adjoints. The results are the
    adjoints of the first state and the sums of the terms, which have the shapes and dtypes of `like`. `outer` are the
    surrounding tensors that the two functions use.
    """

    name = title = "while"
    rules = joint_rule = pull_arrays = None
    keeps_arrays = True  # a second backward needs retain_graph
    saved_items: tuple[Any, ...] = ()

    def __init__(
        self,
        total: Tensor,
        forward: Callable[..., State],
        reverse: Callable[[State, State], tuple[State, State]],
        start: State,
        ends: State,
        like: State,
        outer: State,
    ) -> None:
        self.total, self.forward, self.reverse = total, forward, reverse
        self.start, self.ends = ([wrap(t._data, t._node) for t in tensors] for tensors in (start, ends))
        self.like, self.outer = list(like), list(outer)
        size = sum((num_elements(t.shape) or 0) * t.dtype.itemsize for t in start)
        self.slots = min(SLOTS, max(MIN_SLOTS, SLOT_BYTES // max(size, 1)))

    def run(self, is_linear: Callable[[], bool] = lambda: True) -> tuple[State, State]:
        """Both sweeps: (adjoints of the first state, sums of the terms). `is_linear` is asked after they were traced."""
        from ...ops.array.creation import zeros_like

        mode = capturing()
        assert mode is not None
        inputs = [*self.start, *self.ends, *self.outer]
        recorded = grad_mode.enabled and any(t._node is not None for t in inputs)
        adjoints = [*self.ends, *map(zeros_like, self.like)]
        with no_grad(), mode.graph.ignoring_cuts():
            found = list(self._stretch(self.start, self.total, adjoints, LEVELS))
        if recorded and not is_linear():
            found = list(self._stretch(self.start, self.total, adjoints, LEVELS))
        elif recorded:
            mode.graph.tape_ops.append(self)
            self.pinned = [(t, mode.graph.operand(t), t._node) for t in self.outer]
            found = [wrap(t._data) for t in found]
            edges, outputs = tuple([t._node for t in inputs]), tuple([spec_of(t._data) for t in found])
            Node(self, edges, where=user_location(2), outputs=outputs).link(found)
        return found[: len(self.ends)], found[len(self.ends) :]

    def release(self) -> None:
        """Drop the tensors and closures of a trace that is over."""
        del self.total, self.forward, self.reverse, self.start, self.ends, self.like, self.outer, self.pinned

    def pullback(self, node: Node, g: Any, edges: tuple[Any, ...], create_graph: bool) -> list[Any]:
        """The gradients with respect to `start`, `ends` and `outer`, see Note [Sweeps]."""
        from ...ops.array.creation import zeros_like

        made = [zeros_like(t) if g.get(i) is None else g[i] for i, t in enumerate((*self.ends, *self.like))]
        made = [wrap(t._data, t._node) for t in made]
        with values_at_recording(self.pinned):
            return self._gradients(made[: len(self.ends)], made[len(self.ends) :])

    def _gradients(self, g_adjoints: State, g_sums: State) -> list[Any]:
        from ...ops.array.creation import zeros_like

        count = len(self.start)
        live, live_outer = _inexact(self.start), _inexact(self.outer)

        def forward(*values: Tensor) -> State:
            state, g = values[:count], values[count:]
            anywhere = [zeros_like(t) for t in g]  # the gradient of a linear function does not depend on the point
            found = _partial(lambda *a: _joined(self.reverse(state, a)), anywhere, (), [*g, *g_sums])
            return [*self.forward(*state), *found]

        def reverse(values: State, adjoints: State) -> tuple[State, State]:
            state, g = values[:count], values[count:]
            own, of_state = adjoints[: len(g)], adjoints[len(g) :]
            seeds = [*_spread(of_state, live, count), *g, *g_sums]
            both = lambda *s: [*self.forward(*s), *_joined(self.reverse(s, own))]
            found = _partial(both, state, self.outer, seeds)
            of_outer = [found[count + i] for i in live_outer]
            return [*self.reverse(state, own)[0], *[found[i] for i in live]], of_outer

        outer = [*self.outer, *g_sums]
        start = [*self.start, *g_adjoints]
        ends = [*self.ends, *[zeros_like(self.start[i]) for i in live]]
        of_ends = _repeat(forward, start, self.total)[count:]
        sweeps = _Sweeps(self.total, forward, reverse, start, ends, [self.outer[i] for i in live_outer], outer)
        adjoints, sums = sweeps.run()
        of_start = _spread(adjoints[len(self.ends) :], live, count)
        return [*of_start, *of_ends, *_spread(sums, live_outer, len(self.outer))]

    # The sweeps as loops ------------------------------------------------------------------------------------------------

    def _iteration(self, state: State, adjoints: State) -> tuple[Tensor, ...]:
        """Backwards through one iteration that begins with `state`; `adjoints` are followed by the sums."""
        count = len(self.ends)
        new, terms = self.reverse(state, adjoints[:count])
        return (*new, *[a + b for a, b in zip(adjoints[count:], terms, strict=True)])

    def _stretch(self, state: State, length: Any, adjoints: State, levels: int) -> State:
        """Through `length` iterations that begin with `state`; `levels` says how often they may be divided."""
        from ...ops.array.creation import arange
        from ...ops.array.elementwise import clip, floor_divide, minimum
        from ...ops.array.gathering import take
        from .control_flow import cond, scan

        if not levels:
            return _downwards(length, adjoints, lambda n, a: self._iteration(_repeat(self.forward, state, n), a))
        part = clip(floor_divide(length + (self.slots - 1), self.slots), 1, None)
        _, stored = scan(
            lambda s, k: (tuple(_repeat(self.forward, s, clip(length - k * part, 0, part))), tuple(s)),
            tuple(state),
            arange(self.slots),
        )

        def one(k: Any, a: State) -> State:
            begin = [take(rows, k, axis=0) for rows in stored]
            size = minimum(part, length - k * part)
            return cond(
                part == 1,
                lambda *v: tuple(self._iteration(v[: len(begin)], v[len(begin) :])),
                lambda *v: tuple(self._stretch(v[: len(begin)], size, v[len(begin) :], levels - 1)),
                *begin,
                *a,
            )

        return _downwards(floor_divide(length + (part - 1), part), adjoints, one)


def _repeat(forward: Callable[..., State], state: State, count: Any) -> State:
    """The state `count` iterations later."""
    from .control_flow import while_loop

    return while_loop(lambda n, *s: n < count, lambda n, *s: (n + 1, *forward(*s)), (Tensor(0), *state))[1:]


def _downwards(count: Any, adjoints: State, step: Callable[[Any, State], State]) -> State:
    """`adjoints = step(k, adjoints)` for k from count - 1 to 0."""
    from .control_flow import while_loop

    return while_loop(lambda k, *a: k > 0, lambda k, *a: (k - 1, *step(k - 1, a)), (count, *adjoints))[1:]


def _partial(fn: Callable[..., State], inputs: State, outer: State, seeds: list[Any]) -> list[Tensor]:
    from .control_flow import _partial_gradients

    return _partial_gradients(fn, list(inputs), list(outer), seeds)


def _inexact(tensors: State) -> list[int]:
    """The numbers of the tensors that have gradients."""
    return [i for i, t in enumerate(tensors) if dtypes.is_inexact(t.dtype)]


def _spread(values: Sequence[Any], numbers: Sequence[int], count: int) -> list[Any]:
    """A list of `count` items with `values` at the positions `numbers`, and None elsewhere."""
    found: list[Any] = [None] * count
    for i, v in zip(numbers, values, strict=True):
        found[i] = v
    return found


def _joined(pair: tuple[State, State]) -> State:
    return [*pair[0], *pair[1]]
