"""Gradient checkpointing: recompute the activations of a function in backward instead of storing them.

`checkpoint(fn, *args)` runs `fn` as usual, so the tape has all its nodes, then drops the values these nodes saved. When
backward reaches the first of them, `fn` is run once more on the same inputs with the same random numbers, and each node
gets its saved values back. The tape itself is the ordinary one: gradients of parameters that `fn` closes over, `wf.grad`,
hooks, higher derivatives and nesting need nothing special.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops.core import define
from ..tensor import Tensor, wrap
from ..typing import P, R
from .tape import FREED, Leaf, Node, Output, check_overwritten, enable_grad, grad_mode, tick
from .tree import flatten, unflatten


class Again:
    """Placeholder for a node's saved values: entry `index` of what `region` recomputes."""

    __slots__ = ("region", "index")

    def __init__(self, region: Region, index: int) -> None:
        self.region, self.index = region, index

    def restore(self, node: Node) -> None:
        """Give `node` its saved values back, dated by the second run (see Note [Mutation clock])."""
        node.saved, node.since = self.region.saved(self.index)


class Region:
    """One checkpointed call: how to repeat it, and the saved values of its nodes after the repetition."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fn = fn
        self.inputs, self.structure = flatten((args, kwargs))
        self.start = tick()
        self.random_state = _random_state()
        self.modes = define.current_modes()
        self.names: list[str] = []
        self.leaves: list[Leaf] = []
        self.values: list[Any] | None = None

    def strip(self, outputs: Any) -> None:
        """Replace the saved values of this region's nodes by `Again` placeholders."""
        nodes = _nodes_since(self.start, outputs)
        self.names = [n.op.name for n in nodes]
        self.leaves = list({id(e): e for n in nodes for e in n.edges if e.__class__ is Leaf}.values())
        for i, node in enumerate(nodes):
            if node.saved:
                node.saved = Again(self, i)

    def saved(self, index: int) -> Any:
        """The saved values of node `index`; each is handed out once, so that memory is freed as backward proceeds."""
        if self.values is None or self.values[index] is FREED:
            self.values = self._repeat()
        value, self.values[index] = self.values[index], FREED
        return value

    def _repeat(self) -> list[Any]:
        for t in self.inputs:
            if isinstance(t, Tensor):
                check_overwritten("checkpoint", "an argument", t._data, self.start)
        for leaf in self.leaves:
            tensor = leaf.tensor()
            if tensor is not None:
                check_overwritten("checkpoint", "a tensor that the function uses", tensor._data, self.start)
        args, kwargs = unflatten(self.structure, [_fresh(t) for t in self.inputs])
        previous = _random_state()
        _set_random_state(self.random_state)
        try:
            with enable_grad(), define.installed(self.modes):
                start = tick()
                outputs = self.fn(*args, **kwargs)
        finally:
            _set_random_state(previous)
        nodes = _nodes_since(start, outputs)
        names = [n.op.name for n in nodes]
        if names != self.names:
            raise RuntimeError(
                f"checkpoint: the function did not do the same when it was run again: {len(self.names)} recorded ops the "
                f"first time, {len(names)} the second{_first_difference(self.names, names)}. "
                "It must depend on nothing but its arguments and the tensors it uses."
            )
        return [(n.saved, n.seq) for n in nodes]


def checkpoint(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn(*args, **kwargs)` and recompute its intermediate values in backward instead of storing them.

    Trades one more forward pass of `fn` for the memory of its activations. Random numbers (dropout) are the same the
    second time; side effects happen twice. Inside a captured function this is a plain call: there the compiler decides
    what to recompute (`wf.function(memory_budget=…)`).

    Args:
        fn: a function of tensors and other values; it may close over parameters.
        args, kwargs: its arguments; nested lists, tuples and dicts of tensors are fine.

    >>> x = wf.tensor([0.5, 1.0], requires_grad=True)
    >>> wf.checkpoint(lambda v: v.exp().sin(), x).sum().backward()
    >>> x.grad.shape
    (2,)
    """
    if not grad_mode.enabled:
        return fn(*args, **kwargs)
    region = Region(fn, args, kwargs)
    outputs = fn(*args, **kwargs)
    found = [t for t in flatten((region.inputs, outputs))[0] if isinstance(t, Tensor)]
    if any(type(t._data) is not np.ndarray for t in found):
        return outputs
    region.strip(outputs)
    return outputs


def _fresh(t: Any) -> Any:
    """An input for the second run: the same data, a leaf where the first one required gradients."""
    if not isinstance(t, Tensor):
        return t
    made = wrap(t._data, cls=type(t))
    return made.requires_grad_() if t._node is not None else made


def _nodes_since(start: int, outputs: Any) -> list[Node]:
    """The nodes that `outputs` depend on and that were recorded after the tick `start`, in order."""
    stack = [t._node for t in flatten(outputs)[0] if isinstance(t, Tensor) and t._node is not None]
    seen: dict[int, Node] = {}
    while stack:
        node = stack.pop()
        if node.__class__ is Output:
            node = node.parent
        if node.__class__ is Leaf or node.seq <= start or id(node) in seen:
            continue
        seen[id(node)] = node
        stack.extend(e for e in node.edges if e is not None)
    return sorted(seen.values(), key=lambda n: n.seq)


def _first_difference(old: list[str], new: list[str]) -> str:
    for i, (a, b) in enumerate(zip(old, new)):
        if a != b:
            return f"; op {i} was {a}, then {b}"
    return ""


def _random_state() -> Any:
    from ..random import get_rng_state

    return get_rng_state()


def _set_random_state(state: Any) -> None:
    from ..random import set_rng_state

    set_rng_state(state)
