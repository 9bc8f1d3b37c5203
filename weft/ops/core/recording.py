"""Recording of op calls: result tensors, tape entries and view relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np

from ... import dtypes
from ...autograd.tape import Leaf, Node, grad_mode, memory_of, tick
from ...errors import user_location
from ...tensor import Tensor, wrap
from . import modes
from .registry import Op
from .spec import is_known, spec_of

ndarray = np.ndarray
ViewStep = tuple[Op, tuple[Any, ...]]


def finish(op: Op, tensors: Sequence[Any], datas: Sequence[Any], attrs: tuple[Any, ...], outs: Any) -> Any:
    """Wrap computed data in tensors and record them on the tape."""
    if op.num_outputs != 1:
        results = tuple([wrap(o) for o in outs])
        needs = 0
        if grad_mode.enabled:
            needs = needs_of(op, tensors)
        if needs:
            make_node(op, tensors, datas, attrs, outs, needs).link(results)
        return results
    out = wrap(outs)
    if grad_mode.enabled:
        needs = needs_of(op, tensors)
        if needs and dtypes.is_inexact(outs.dtype):
            out._node = make_node(op, tensors, datas, attrs, outs, needs)
        if op.alias is not None:
            note_view(op, tensors[0], datas[0], attrs, out)
    elif op.alias is not None:
        if type(outs) is not ndarray:
            note_view(op, tensors[0], datas[0], attrs, out)
        elif outs.base is not None and memory_of(outs) is memory_of(datas[0]):  # else a copy, of another shape
            out._view = UNTRACKED
    return out


def needs_of(op: Op, tensors: Sequence[Any]) -> int:
    """Bit mask of the tensor arguments that require a gradient."""
    needs = 0
    for i, t in enumerate(tensors):
        if isinstance(t, Tensor) and t._node is not None:
            needs |= 1 << i
    if needs and not op.differentiable:
        if op.declared_nondifferentiable:
            return 0
        raise RuntimeError(f"{op.title}: has no gradient rule, but an input requires gradients. Use `x.detach()`.")
    if needs and op.rules is not None:
        for i, rule in enumerate(op.rules):
            if rule is None:
                needs &= ~(1 << i)
    return needs


def make_node(
    op: Op, tensors: Sequence[Any], datas: Sequence[Any], attrs: tuple[Any, ...], outs: Any, needs: int
) -> Node:
    """The tape node of one call."""
    edges = tuple([t._node if needs >> i & 1 else None for i, t in enumerate(tensors)])
    saved: list[Any] = []
    for kind, index, mask in op.saved_items:
        if not mask & needs:
            saved.append(None)
        elif kind == "in":
            saved.append(_kept(op, datas) if op.variadic else datas[index])
        elif kind == "like":
            saved.append(tuple([spec_of(d) for d in datas]) if op.variadic else _spec(datas[index]))
        elif kind == "out" and op.num_outputs != 1:
            saved.append(outs[index])
        else:
            saved.append(outs)
    specs = None
    if _needs_fitting(op, datas, outs):
        specs = tuple([spec_of(d) if hasattr(d, "shape") else None for d in datas])
    where = user_location(2) if modes.lines else None
    outputs = tuple([spec_of(o) for o in outs]) if op.num_outputs != 1 else None
    return Node(op, edges, tuple(saved), attrs, specs, where, outputs)


def _needs_fitting(op: Op, datas: Sequence[Any], outs: Any) -> bool:
    """Whether the gradients that the rules of `op` give must be fitted to the shapes and dtypes of its inputs."""
    if op.broadcasts:
        shape, dtype = outs.shape, outs.dtype
        if dtype.itemsize == 2 or outs.__class__ is not ndarray and not is_known(shape):
            return True  # unknown sizes that compare equal may differ at run time
        for d in datas:
            if d is not None and (getattr(d, "shape", ()) != shape or getattr(d, "dtype", dtype) != dtype):
                return True
        return False
    promotes, widens = op.promote is not None, op.widens
    if promotes or widens:
        common = None
        for d in datas:
            dtype = getattr(d, "dtype", None)
            if dtype is None:
                continue
            if widens and dtype.itemsize == 2:  # rules give float32
                return True
            if promotes and common is not None and dtype is not common and dtype != common:
                return True  # each input gets its gradient in its own dtype
            common = dtype
    return False


def _kept(op: Op, datas: Sequence[Any]) -> tuple[Any, ...]:
    """The saved form of a sequence of inputs: without the memory of those of which only the shape is used."""
    if not op.shape_only:
        return tuple(datas)
    return tuple(
        [
            np.broadcast_to(np.zeros((), d.dtype), d.shape) if i in op.shape_only and type(d) is ndarray else d
            for i, d in enumerate(datas)
        ]
    )


def _spec(data: Any) -> Any:
    return spec_of(data) if hasattr(data, "shape") else None


# Views, see `weft.ops.core.inplace` -----------------------------------------------------------------------------------------


class View:
    """How a view was made: steps of (op, attrs) applied to `base`, the last of them and those `before` it.

    `base` is where the memory is. In a captured graph the tape may begin later: `root` is the detached tensor that this is a
    view of (None: the base), and `cut` says that this view itself is `DETACHED`, or that it was made under no_grad and the
    tape does not know it (`UNRECORDED`). Eager tensors share memory without such links.
    """

    __slots__ = ("base", "step", "before", "root", "cut")

    def __init__(
        self,
        base: Tensor,
        step: ViewStep,
        before: View | None = None,
        root: Tensor | None = None,
        cut: str | None = None,
    ) -> None:
        self.base, self.step, self.before, self.root, self.cut = base, step, before, root, cut

    @property
    def steps(self) -> list[ViewStep]:
        """All steps in order. They are a chain in memory: a loop that makes a view of a view copies nothing."""
        return self.steps_after(None)

    def steps_after(self, start: View | None) -> list[ViewStep]:
        """The steps from the view `start` (None: from the base) to this one."""
        return [view.step for view in self.chain(start)]

    def chain(self, start: View | None = None) -> list[View]:
        """This view and those it was made from, after `start`, in order."""
        found: list[View] = []
        view: View | None = self
        while view is not start and view is not None:
            found.append(view)
            view = view.before
        return found[::-1]


DETACHED, UNRECORDED = "detached", "unrecorded"


class _Untracked:
    """Marks a view that was made without recording: its derivation from the base is unknown."""


UNTRACKED = _Untracked()


class Base:
    """Weak references to the live views of a tensor; pruned as it grows."""

    __slots__ = ("views", "limit")

    def __init__(self) -> None:
        self.views: list[Any] = []
        self.limit = 16

    def add(self, view: Tensor) -> None:
        self.views.append(ref(view))
        if len(self.views) > self.limit:
            self.views = [r for r in self.views if r() is not None]
            self.limit = 2 * len(self.views) + 16


class Origin(Base):
    """How an eager tensor was made: result `index` of `op` on `tensors`; without an op, a draw from the generator
    `tensors[0]`. Kept only where a declared graph may need it, see Note [Origins] in `weft.graph.declared.origins`."""

    __slots__ = ("op", "tensors", "attrs", "index", "clock", "depth")

    def __init__(
        self, op: Op | None, tensors: tuple[Any, ...], attrs: tuple[Any, ...] = (), index: int = 0, depth: int = 0
    ):
        self.views, self.limit = [], 16
        self.op, self.tensors, self.attrs, self.index, self.depth = op, tensors, attrs, index, depth
        self.clock = tick()


def note_view(op: Op, x: Tensor, data: Any, attrs: tuple[Any, ...], out: Tensor) -> None:
    """Record that `out` is a view of `x`, if it is one, so that writes to either update the other's tape link."""
    if type(data) is not ndarray:
        graph = _graph_of(out)
        if graph is None or graph.is_alias(op, data, attrs, out._data):
            link_symbolic(op, x, attrs, out, None if grad_mode.enabled or graph is None else UNRECORDED)
    elif out._data is data or memory_of(out._data) is memory_of(data):
        link(op, x, attrs, out)


def link(op: Op, x: Tensor, attrs: tuple[Any, ...], out: Tensor) -> None:
    found = getattr(x, "_view", None)
    if found.__class__ is View and x._node.__class__ is not Leaf:  # a leaf begins the tape, though it is a view
        base = found.base
        out._view = View(base, (op, attrs), found)
    elif found is UNTRACKED:
        out._view = UNTRACKED
        return
    else:
        base = x
        out._view = View(x, (op, attrs))
    if base._node.__class__ is Leaf:
        return  # writes to a view of a leaf raise or are unrecorded: no list of views is needed
    registry_ = getattr(base, "_view", None)
    if registry_ is None:
        registry_ = base._view = Base()
    registry_.add(out)


def link_symbolic(op: Any, x: Tensor, attrs: tuple[Any, ...], out: Tensor, cut: str | None) -> None:
    """Record that the symbolic `out` is a view of `x`."""
    found = getattr(x, "_view", None)
    graph = _graph_of(out)
    if found.__class__ is View and (type(x._data) is not ndarray or not getattr(graph, "separates", False)):
        root = x if found.cut is DETACHED else found.root
        if found.cut is UNRECORDED and cut is None:
            cut = UNRECORDED
        out._view = View(found.base, (op, attrs), found, root, cut)
    else:
        out._view = View(x, (op, attrs), cut=cut)
    base = out._view.base
    if type(base._data) is ndarray and getattr(graph, "separates", False):
        graph.views_of(base).add(out)
        return
    register = getattr(base, "_view", None)
    if not isinstance(register, Base):
        register = base._view = Base()
    register.add(out)


def _graph_of(tensor: Tensor) -> Any:
    """The graph of a symbolic tensor's value; None for other kinds (batched values)."""
    return getattr(getattr(tensor._data, "node", None), "graph", None)
