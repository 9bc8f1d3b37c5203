"""Changes of `requires_grad` inside a captured function: `requires_grad_()`, `requires_grad = …` and `detach_()`.

Note [Relinking]. The caller sees such a change of an argument, of an outside tensor and of a result, and gradients of results
reach the leaves it made. A trace records which tensors got or lost a leaf (`Relinks`); each call repeats that on the
tensors of the caller (`Relinked`). Results that were computed before a change keep the tensor's former place on the tape, so
the pullback is attached with the nodes from the beginning of the call and with a new leaf for each one that was made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.tape import Leaf
from ...tensor import Tensor, refuse_view
from ..graph import Value

if TYPE_CHECKING:
    from .tracing import Capture

ndarray = np.ndarray


class Made:
    """A leaf that the function made, as the target of a gradient: number `index` of `Relinked.leaves`.

    `plain` is the argument's number, or the outside tensor, whose value on entry the leaf has; None: another value, or
    one that the function also used before it was a leaf.
    """

    __slots__ = ("index", "leaf", "value", "plain")

    def __init__(self, index: int, leaf: Leaf, value: Value, plain: Any) -> None:
        self.index, self.leaf, self.value, self.plain = index, leaf, value, plain


class Relinks:
    """The changes during one trace."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._entries: dict[int, tuple[Any, Any]] = {}  # tensors that the caller knows: (weak reference, node on entry)
        self._leaves: list[
            tuple[Leaf, Any, bool]
        ] = []  # that were made: (leaf, its value, whether that was used before)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def note(self, x: Tensor, node: Leaf | None) -> None:
        """Called before the node of `x` becomes `node`."""
        from .tracing import Uncapturable

        outside = type(x._data) is ndarray
        if outside or id(x) in self._capture.originals:
            known, entry = self._entries.get(id(x), (None, None))
            if known is None or known() is not x:
                entry = self._before(x)
                self._entries[id(x)] = (weakref.ref(x), entry)
            if node is None and not outside and entry is not None and entry.__class__ is not Leaf:
                refuse_view(getattr(self._capture.originals[id(x)], "_view", None))
            if x._node is not None and x._node is not entry and x._node.__class__ is not Leaf:
                raise Uncapturable(
                    "it calls `detach_()` on an argument or outside tensor after a recorded write to it", ""
                )
        if node is not None:
            value = None if outside else x._data
            used = self._used(x)
            if not used:  # no longer what `CapturedGraph.compare_links` found on entry
                self._capture.graph.links.pop(id(x._data) if outside else value, None)
            self._leaves.append((node, value, used))

    def _before(self, x: Tensor) -> Any:
        """The node of `x` on entry, if nothing else is known: a recorded write may have moved it."""
        capture = self._capture
        if id(x) in capture.entry_nodes:
            return capture.entry_nodes[id(x)]
        touched = capture.graph.touched.get(id(x))
        return x._node if touched is None else touched[2]

    def _used(self, x: Tensor) -> bool:
        """Whether a node has the present value of `x` as an operand."""
        graph = self._capture.graph
        if type(x._data) is ndarray:
            return any(t is x for v in graph.variables for t, _ in v.places)
        return any(x._data is v for node in graph.nodes for v in node.inputs)

    def entry(self, x: Tensor) -> Any:
        """The node of the outside tensor `x` when the trace began."""
        known, entry = self._entries.get(id(x), (None, None))
        return entry if known is not None and known() is x else x._node

    def is_changed(self, x: Tensor) -> bool:
        known = self._entries.get(id(x))
        return known is not None and known[0]() is x

    def outside(self) -> list[tuple[Tensor, Any]]:
        """The outside tensors that were changed, with their nodes on entry."""
        found = [(known(), entry) for known, entry in self._entries.values()]
        return [(t, entry) for t, entry in found if t is not None and type(t._data) is ndarray]

    def undo(self) -> None:
        """Let outside tensors have the nodes they had before the trace; each call of the program changes them again."""
        for t, entry in self.outside():
            if t._node is not entry:
                t._relink(entry)
        self._entries.clear()
        self._leaves.clear()

    def collect(self, arguments: dict[int, int], results: dict[int, int]) -> Relinked | None:
        """What calls have to repeat. `arguments` and `results` are numbers of stand-ins and positions of results by identity."""
        made = Relinked()
        graph = self._capture.graph
        numbers: dict[Leaf, int] = {}
        for leaf, value, used in self._leaves:
            t = leaf.tensor()
            what = None if t is None else self._place(t, arguments, results)
            if t is None or what is None:
                continue  # of a tensor that ends with the call
            plain: Any = None
            if value is None:
                plain, value = None if used else t, graph.outside(t)
            elif what[0] == "argument" and not used and value is graph.inputs[what[1]]:
                plain = what[1]
            numbers[leaf] = len(made.leaves)
            made.targets.append(Made(len(made.leaves), leaf, value, plain))
            made.leaves.append(what)
        for known, entry in self._entries.values():
            t = known()
            what = None if t is None else self._place(t, arguments, results)
            if t is None or what is None:
                continue
            made.changed.append(what)
            if t._node is None:
                made.finals.append((what, None))
            elif t._node in numbers:
                made.finals.append((what, numbers[t._node]))
            if what[0] == "same":
                made.guards.append((t, entry))
        for id_, position in results.items():
            made.finals += [
                (("value", position), numbers[leaf])
                for leaf, _, _ in self._leaves
                if leaf in numbers and id(leaf.tensor()) == id_ and leaf.tensor()._node is leaf  # type: ignore[union-attr]
            ]
        if not made.leaves and not made.changed:
            return None
        made.known = {id(t) for v in graph.variables for t, _ in v.places}
        return made

    @staticmethod
    def _place(t: Tensor, arguments: dict[int, int], results: dict[int, int]) -> Any:
        """How a call finds the tensor `t` (see `Trace._make`)."""
        if id(t) in arguments:
            return ("argument", arguments[id(t)])
        if type(t._data) is ndarray:
            return ("same", t)
        return ("value", results[id(t)]) if id(t) in results else None


class Relinked:
    """The changes that every call of one program makes."""

    def __init__(self) -> None:
        self.leaves: list[Any] = []  # where to find the tensor of each leaf that was made
        self.targets: list[Made] = []  # the same leaves in the trace
        self.finals: list[
            tuple[Any, int | None]
        ] = []  # (a tensor, the number of its leaf afterwards; None: it has none)
        self.changed: list[Any] = []  # arguments and outside tensors that were changed
        self.guards: list[tuple[Tensor, Any]] = []  # outside ones, with their nodes on entry
        self.known: set[int] = set()  # identities of all outside tensors that the function used

    def aliased(self, tensors: Sequence[Tensor]) -> bool:
        """Whether a tensor that is changed is also known to the function by another name."""
        for kind, which in self.changed:
            if kind == "argument":
                t = tensors[which]
                if id(t) in self.known or sum(other is t for other in tensors) > 1:
                    return True
            elif any(other is which for other in tensors):
                return True
        return False

    def new_leaves(self, find: Callable[[Any], Tensor]) -> list[Leaf]:
        """The leaves of one call; `find` gives its tensors. A leaf that is already there serves again, unless it has hooks."""
        made = []
        for what in self.leaves:
            t = find(what)
            node = t._node
            made.append(node if node.__class__ is Leaf and not node.hooks and not node.after else Leaf(t))
        return made

    def apply(self, find: Callable[[Any], Tensor], leaves: list[Leaf]) -> None:
        """Give the tensors their places on the tape after the call."""
        for what, number in self.finals:
            t, node = find(what), None if number is None else leaves[number]
            if t._node is not node:
                t._relink(node)


SHARED = (
    "it changes `requires_grad` of a tensor that it knows by more than one name (two arguments, or an argument and a closed-over "
    "tensor). Use one name for it"
)
