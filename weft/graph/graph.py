"""Graph, Node and Value: the intermediate representation of captured and declared programs.

A `Node` is an op with inputs and static attributes; each of its outputs is a `Value` with a known dtype and a shape
that may hold unknown sizes. A symbolic Tensor has a Value as its `_data`; calling any op on it adds a node. Nodes
remember the user's line. A graph is in topological order by construction: a node's inputs exist before it.

Two pseudo-ops have no record in the table because they compute nothing: `placeholder` (fed at run time) and
`constant` (an array that belongs to the graph).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from .. import dtypes
from ..errors import Location, format_shape, user_location
from ..ops.core import define
from ..ops.core.define import check_kind, elementwise_dtypes
from ..ops.core.registry import Facts, Op
from ..ops.core.slow_path import check_addressable, check_integers, refuse_non_integers
from ..ops.core.spec import Spec, Symbol, is_known, num_elements
from ..tensor import Tensor
from .remote_data import holds_memory

ndarray = np.ndarray


class Source(Facts):
    """A pseudo-op: a node that computes nothing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


PLACEHOLDER = Source("placeholder")
CONSTANT = Source("constant")


class Value:
    """One output of a node: what a symbolic tensor stands for."""

    __slots__ = ("node", "index", "shape", "dtype", "__weakref__")
    priority = 1  # see the foreign-data protocol in `weft.ops.core.define.call`
    __array_ufunc__ = None

    def __init__(self, node: Node, index: int, shape: Any, dtype: np.dtype) -> None:
        self.node, self.index, self.shape, self.dtype = node, index, shape, dtype

    @property
    def ndim(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def size(self) -> Any:
        return num_elements(self.shape)

    @property
    def name(self) -> str:
        return self.node.name if len(self.node.outputs) == 1 else f"{self.node.name}:{self.index}"

    @property
    def nbytes(self) -> int:
        return (num_elements(self.shape) or 0) * self.dtype.itemsize

    @property
    def device(self) -> Any:
        return self.node.device

    def __repr__(self) -> str:
        return f"%{self.name}: {self.dtype.name}{format_shape(self.shape)}"

    # The interface that a Tensor expects of its data beyond shape and dtype.

    def apply(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        return self.node.graph.call(op, tensors, attrs)

    def no_array(self, action: str) -> Any:
        return self.node.graph.refuse(self, action)

    def truth(self, tensor: Tensor) -> bool:
        return self.node.graph.truth(self, tensor)

    def describe(self, tensor: Tensor) -> str:
        return self.node.graph.describe(self, tensor)

    def assign(self, x: Tensor, value: Tensor) -> None:
        self.node.graph.assign(x, value)

    @property
    def dynamic(self) -> bool:
        """Whether sizes may depend on data in the graph of this value."""
        return self.node.graph.dynamic

    def note_detached(self, tensor: Tensor, made: Tensor) -> None:
        self.node.graph.note_detached(tensor, made)

    def deferred_call(
        self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The results of a call that failed, perhaps because this size is unknown, as a deferred node; None if it cannot be."""
        return self.node.graph.deferred_call(function, name, args, kwargs)


class Node:
    """An op in a graph. `attrs` follow the op's attribute names; `control` are nodes that must run before this one."""

    __slots__ = (
        "graph",
        "op",
        "inputs",
        "attrs",
        "outputs",
        "name",
        "where",
        "control",
        "device",
        "order",
        "__weakref__",
    )

    def __init__(self, graph: Graph, op: Any, inputs: tuple[Any, ...], attrs: tuple[Any, ...], name: str) -> None:
        self.graph, self.op, self.inputs, self.attrs, self.name = graph, op, inputs, attrs, name
        self.outputs: tuple[Value, ...] = ()
        self.where: Location | None = None
        self.control: tuple[Node, ...] = ()
        self.device: Any = None
        self.order = 0

    def __repr__(self) -> str:
        return f"<node {self.name}>"


def replay(
    nodes: Iterable[Node],
    values: dict[Value, Any],
    constant: Callable[[ndarray], Any],
    call: Callable[[Node, list[Any]], Any],
) -> None:
    """Interpret nodes: `values` maps the values they read from outside, and receives those they produce.

    `constant(array)` stands for a constant; `call(node, operands)` returns the node's result or a sequence of results.
    """
    for node in nodes:
        if node.op is PLACEHOLDER:
            continue
        if node.op is CONSTANT:
            values[node.outputs[0]] = constant(node.attrs[0])
            continue
        made = call(node, [values[v] if isinstance(v, Value) else v for v in node.inputs])
        values.update(zip(node.outputs, made if isinstance(made, (tuple, list)) else (made,), strict=True))


class Graph:
    """Nodes in topological order. Subclasses define how outside tensors are read and written."""

    is_lazy = False  # whether values are computed as soon as Python needs them, see Note [Segments]
    separates = (
        False  # whether outside tensors on one piece of memory are one state each, whatever eager views they are
    )

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: list[Node] = []
        self._names: dict[str, int] = {}
        self._constants: dict[Any, Value] = {}

    # Building -------------------------------------------------------------------------------------------------------

    def unique_name(self, base: str) -> str:
        n = self._names.get(base, 0)
        name = base if n == 0 else f"{base}_{n}"
        while n and name in self._names:  # "add_1" was given explicitly before the second "add"
            n += 1
            name = f"{base}_{n}"
        self._names[base] = n + 1
        self._names.setdefault(name, 1)
        return name

    def add(
        self, op: Any, inputs: Sequence[Any], attrs: tuple[Any, ...], specs: Iterable[Any],
        where: Location | None = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """Append a node with outputs of the given specs."""
        node = Node(self, op, tuple(inputs), attrs, self.unique_name(name or op.name))
        node.outputs = tuple([Value(node, i, s.shape, s.dtype) for i, s in enumerate(specs)])
        node.where = where
        node.order = len(self.nodes)
        self.nodes.append(node)
        return node

    def placeholder(self, shape: Any, dtype: np.dtype, name: str = "placeholder") -> Value:
        return self.add(PLACEHOLDER, (), (), (Spec(shape, dtype),), user_location(2), name).outputs[0]

    def constant(self, array: ndarray, name: str = "constant") -> Value:
        """A value known now. Equal scalars are shared."""
        key = (array.dtype, array.item()) if array.ndim == 0 else None
        if key is not None:
            found = self._constants.get((*key, np.signbit(array) if array.dtype.kind == "f" else None))
            if found is not None:
                return found
        value = self.add(CONSTANT, (), (array,), (Spec(array.shape, array.dtype),), None, name).outputs[0]
        if key is not None:
            self._constants[(*key, np.signbit(array) if array.dtype.kind == "f" else None)] = value
        return value

    def emit(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...], where: Location | None = None) -> Node:
        """Append `op` on values and weak scalars: infer, cast operands as eager dispatch would, add the node."""
        if op.expression is not None:
            wanted: Sequence[np.dtype | None] = elementwise_dtypes(op, inputs)
        elif op.promote is not None:
            dtype = check_kind(op, op.promote, dtypes.result_type(*[v for v in inputs if v is not None]))
            wanted = (dtype,) * len(inputs)
        else:
            wanted = (None,) * len(inputs)
        if op.expression is not None and define.keeps_scalars(op, inputs, wanted[0]):  # type: ignore[arg-type]
            wide = self.emit(op, [self._cast(v, dtypes.float32) for v in inputs], attrs, where).outputs[0]
            return self._cast(wide, wanted[0] if wide.dtype == dtypes.float32 else None).node
        values = [self._cast(v, w) for v, w in zip(inputs, wanted, strict=True)]
        assert op.infer is not None, op.name
        check_integers(op, attrs)
        inferred = op.run(op.infer, op.merge(values, attrs))
        refuse_non_integers(op, attrs)
        specs = inferred if isinstance(inferred, (tuple, list)) else (inferred,)
        check_addressable(op, specs)
        return self.add(op, values, attrs, specs, where)

    def _cast(self, value: Any, dtype: np.dtype | None) -> Any:
        if value is None:
            return None
        if not isinstance(value, Value):
            return self.constant(np.asarray(value, dtypes.python_scalar_dtype(value) if dtype is None else dtype))
        if dtype is None or value.dtype == dtype:
            return value
        from ..ops.array.elementwise import cast

        return self.emit(cast.op, (value,), (dtype,), value.node.where).outputs[0]  # type: ignore[attr-defined]

    # The foreign-data protocol ------------------------------------------------------------------------------------------

    def call(self, op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """An op on tensors of which at least one is symbolic: add a node and record it on the tape."""
        datas = [self.operand(t) for t in tensors]
        try:
            if self.open_sizes:
                attrs = _closed(op, attrs)
                refuse_open(op, attrs)
            node = self.emit(op, datas, attrs, user_location(2))
        except Exception:
            made = self._deferred_op(op, tensors, datas, attrs)
            if made is None:
                raise
            return made
        for v in node.outputs:
            if not is_known(v.shape):
                self.unknown_size(node)
        outs: Any = node.outputs if op.num_outputs != 1 else node.outputs[0]
        # the tape keeps the operands before the cast: rules and engine undo it
        result = define.finish(op, tensors, datas, attrs, outs)
        if self.open_sizes:
            from .declared.deferred_nodes import defer_rules

            defer_rules(node, datas, result)
        self.made(result)
        return result

    def _deferred_op(self, op: Op, tensors: Sequence[Any], datas: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        if not self.open_sizes or all(is_known(getattr(d, "shape", ())) for d in datas):
            return None
        values = op.merge(tensors, attrs)
        rest = dict(zip(op.parameters[op.num_positional :], values[op.num_positional :], strict=True))
        return self.deferred_call(op.call, op.name, tuple(values[: op.num_positional]), rest)

    @property
    def dynamic(self) -> bool:
        """Whether sizes may depend on data: a node that makes such sizes then runs by itself."""
        return True

    @property
    def open_sizes(self) -> bool:
        """Whether sizes may be unknown until a step runs, see Note [Deferred nodes]."""
        return False

    def deferred_call(
        self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A failed call as a deferred node (Note [Deferred nodes]); None if it cannot be deferred."""
        if not self.open_sizes:
            return None
        from .declared.deferred_nodes import deferred_call

        return deferred_call(self, function, name, args, kwargs)

    def operand(self, tensor: Any) -> Any:
        """The value that a tensor argument stands for in this graph; scalars and None pass."""
        if not isinstance(tensor, Tensor):
            return tensor
        data = tensor._data
        if holds_memory(tensor):
            return self.outside(tensor)
        if getattr(data, "node", None) is None or data.node.graph is not self:
            self.foreign(data)
        return data

    def made(self, result: Any) -> None:
        """Called with every symbolic tensor an op made (captures watch them for escapes)."""

    def compare_links(self, operands: list[Any], result: Any) -> None:
        """Called with operands and result of an op while a function is captured (captures look for a tape that is cut)."""

    def is_alias(self, op: Op, data: Value, attrs: tuple[Any, ...], result: Value) -> bool:
        """Whether the result of a view op shares the memory of its operand when it runs eagerly."""
        return True

    def note_detached(self, tensor: Tensor, made: Tensor) -> None:
        """Called with the symbolic tensor that `tensor.detach()` made."""

    def hold(self, tensor: Any) -> None:
        """Called with tensors that the graph keeps alive (captures must not take them for escapes)."""

    def unknown_size(self, node: Node) -> None:
        """Called for a node whose output sizes are not known before it runs."""

    def outside(self, tensor: Tensor) -> Value:
        """The value of an eager tensor used in this graph."""
        return self.constant(tensor._data)

    def assign(self, x: Tensor, value: Tensor) -> None:
        raise RuntimeError("in-place: an eager tensor cannot be written from a graph; use a Variable.")

    def foreign(self, value: Any) -> NoReturn:
        raise RuntimeError(
            f"graph {self.name}: the tensor {value!r} belongs to another graph. It was made at "
            f"{getattr(getattr(value, 'node', None), 'where', None)}. "
            "Build the op in the graph of its inputs, or fetch the value and feed it."
        )

    def refuse(self, value: Value, action: str) -> NoReturn:
        raise RuntimeError(
            f"{action}: the tensor <{value.name}> of graph {self.name} has no value yet. "
            f"Run the graph to get it: `sess.run(x, feeds)`. Made at {value.node.where}."
        )

    def truth(self, value: Value, tensor: Tensor) -> bool:
        self.refuse(value, "bool")

    def describe(self, value: Value, tensor: Tensor) -> str:
        """The text of a symbolic tensor."""
        grad = ", requires_grad=True" if tensor.requires_grad else ""
        return f"tensor(<{value.name}>, shape={format_shape(value.shape)}, dtype={value.dtype.name}{grad})"

    # Reading ----------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return format_graph(self)

    def draw(self, path: Any, limit: int = 600) -> Any:
        """Draw the graph to an .svg file; `limit` is the maximum number of nodes."""
        from .declared.draw import draw

        return draw(self, path, limit)


_NUMBERS = frozenset(("int", "tuple[int, ...]", "int | tuple[int, ...]", "Sizes", "Pairs"))  # annotations of attributes


def refuse_open(op: Op, attrs: tuple[Any, ...]) -> None:
    """Raise for an attribute that was computed from an unknown size: attributes are static."""
    for name, value in zip(op.attr_names, attrs, strict=True):
        if value.__class__ is not int and op.fn.__annotations__.get(name) in _NUMBERS and _is_open(value):
            raise ValueError(f"{op.title}: {name} must be known. Got {value!r}.")


def _closed(op: Op, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace the one unknown size of a reshape by -1."""
    if (
        op.name != "reshape"
        or attrs[0].__class__ is not tuple
        or -1 in attrs[0]
        or sum([_is_open(d) for d in attrs[0]]) != 1
    ):
        return attrs
    return (tuple([-1 if _is_open(d) else d for d in attrs[0]]), *attrs[1:])


def _is_open(value: Any) -> bool:
    if value.__class__ is tuple:
        return any(_is_open(v) for v in value)
    return value is None or isinstance(value, Symbol)


def format_graph(graph: Graph, outputs: Sequence[Value] = ()) -> str:
    """One line per node: outputs, op, inputs, attributes, and the user's line."""
    lines = [f"graph {graph.name}:"]
    for node in graph.nodes:
        left = ", ".join(repr(v) for v in node.outputs)
        args = [f"%{v.name}" if isinstance(v, Value) else repr(v) for v in node.inputs]
        names = getattr(node.op, "attr_names", ())
        if node.op is CONSTANT:
            args.append(np.array2string(node.attrs[0], threshold=4, edgeitems=2, separator=", ").replace("\n", ""))
        else:
            args += [f"{n}={a!r}" for n, a in zip(names, node.attrs, strict=False)]
        where = f"   # {node.where.short}" if node.where is not None else ""
        lines.append(f"  {left} = {node.op.name}({', '.join(args)}){where}")
    if outputs:
        lines.append("  return " + ", ".join(f"%{v.name}" for v in outputs))
    return "\n".join(lines)
