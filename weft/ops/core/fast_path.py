"""The public functions of ops: specialised closures with a fast path for small arrays.

Note [Fast path]. On small arrays of equal dtype these are a handful of bytecodes around the NumPy ufunc. Anything unusual
(a Python scalar of another kind, a dtype to promote, a large array, a symbolic tensor, an error) raises or fails a cheap
test and falls through to `call`, which handles the general case and raises the user's error.

Tape nodes are made inline here, slot by slot: calling the constructor would make a small recorded op about 4 % slower (40
of 950 ns). They equal those of `make_node`, except that the shapes and dtypes of inputs are left out where no gradient needs
them; tests/autograd/test_tape_nodes.py compares both. Recording source lines requires a mode, so these nodes never have them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.tape import Node, grad_mode, memory_of, tick
from ...tensor import Tensor, wrap
from . import modes, registry, spelling
from .recording import UNTRACKED, finish, make_node, needs_of, note_view
from .registry import Op
from .slow_path import NATIVE_MIN_ELEMENTS, as_arrays, call, has_non_integers
from .spec import Spec, only_integers, spec_of

ndarray = np.ndarray
_new = object.__new__
MISSING: Any = object()  # an argument that was not given by position
F32, F64, I64, BOOL = dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_


def make_unary(op: Op, ufunc: Callable[..., Any], direct: frozenset[np.dtype]) -> Callable[..., Any]:
    """`f(x)` for an elementwise op with the NumPy form `ufunc`; `direct` lists the dtypes that need no cast."""
    simple = all(kind in ("in", "out") for kind, _, _ in op.saved_items) and len(op.saved_items) <= 1
    kind = op.saved_items[0][0] if op.saved_items else None
    differentiable = op.rules is not None

    def unary(x: Any = MISSING, /, *, input: Any = MISSING, inplace: bool = False) -> Any:
        if modes.active or inplace or x is MISSING:
            return _spelled_unary(op, x, input, inplace)
        try:
            a = x._data
            if (a.dtype is F32 or a.dtype is F64 or a.dtype in direct) and a.size < NATIVE_MIN_ELEMENTS:
                out = ufunc(a)
            else:
                return call(op, (x,))
            nx = x._node  # in here: a masked array has a `_data` too
        except Exception:
            return call(op, (x,))
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        if nx is None or not differentiable or not grad_mode.enabled:
            t._node = None
            return t
        if not simple or a.dtype.itemsize == 2:
            t._node = make_node(op, (x,), (a,), (), out, 1)
            return t
        n = _new(Node)
        n.op = op
        n.edges = (nx,)
        n.saved = (a,) if kind == "in" else (out,) if kind == "out" else ()
        n.attrs = ()
        n.specs = n.hooks = n.where = n.outputs = None
        n.seq = tick()
        t._node = n
        return t

    return unary


def _spelled_unary(op: Op, x: Any, input: Any, inplace: bool) -> Any:
    """`f(input=x)` and `f(x, inplace=True)`, which activations have in PyTorch."""
    args = op.bind(*_given(x=x, input=input))
    if not inplace:
        return call(op, args)
    if op.namespace != "nn":
        raise TypeError(f"{op.title}: unexpected argument 'inplace'. Write `x.{op.name}_()`.")
    return _write(op, args)


def _write(op: Op, args: tuple[Any, ...]) -> Any:
    """Replace the value of the first argument by the result."""
    from .inplace import apply_inplace

    return apply_inplace(op, args[0], args)


def _spelled_binary(op: Op, x: Any, y: Any, input: Any, other: Any, alpha: Any) -> Any:
    """`f(x, other=y)`, and PyTorch's `add(x, y, alpha=2)`, which adds 2 * y."""
    args = op.bind(*_given(x=x, y=y, input=input, other=other))
    if alpha is None:
        return call(op, args)
    if op.name not in ("add", "subtract"):
        raise TypeError(f"{op.title}: unexpected argument 'alpha'. Signature: {op.signature}.")
    return op.call(args[0], registry.get("multiply").call(args[1], alpha))


def _given(x: Any = MISSING, y: Any = MISSING, **words: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keywords of a call without those that were not given."""
    return tuple([v for v in (x, y) if v is not MISSING]), {k: v for k, v in words.items() if v is not MISSING}


@functools.cache
def _keeper(names: tuple[str | None, ...]) -> Callable[..., tuple[Any, ...]]:
    """Compile `lambda a, b, out: (b, None)` for the names to save; a loop would cost as much as a small add."""
    made: Callable[..., Any] = eval(
        compile(f"lambda a, b, out: ({''.join(f'{n}, ' for n in names)})", __file__, "eval")
    )
    return made


def make_binary(
    op: Op, ufunc: Callable[..., Any], direct: frozenset[np.dtype], takes_numbers: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`f(x, y)` and its reflection `f(y, x)` for an elementwise op with the NumPy form `ufunc`.

    `direct` lists the dtypes that need no cast. `takes_numbers`: with a Python number for y, NumPy's result has the dtype
    of x.
    """
    differentiable = op.rules is not None
    # by mask of needed inputs: which of x, y, out to save
    keep = [
        _keeper(tuple([None if not m & mask else "ab"[i] if k == "in" else "out" for k, i, m in op.saved_items]))
        for mask in range(4)
    ]
    plain = differentiable and None not in (op.rules or ()) and all(k in ("in", "out") for k, _, _ in op.saved_items)
    nothing = not op.saved_items
    takes_i64 = I64 in direct

    def binary(
        x: Any = MISSING, y: Any = MISSING, /, *, alpha: Any = None, input: Any = MISSING, other: Any = MISSING
    ) -> Any:
        if modes.active or alpha is not None or y is MISSING:
            return _spelled_binary(op, x, y, input, other, alpha)
        ny = None
        try:
            a = x._data
            dtype = a.dtype
            cls = y.__class__
            if cls is float or cls is int:
                if (
                    takes_numbers
                    and (dtype is F32 or dtype is F64 or dtype is I64 and cls is int and takes_i64)
                    and a.size < NATIVE_MIN_ELEMENTS
                ):
                    out = ufunc(a, y)
                    b = y
                else:
                    return call(op, (x, y))
            else:
                b = y._data
                if (
                    b.dtype is dtype
                    and (dtype is F32 or dtype is F64 or dtype in direct)
                    and a.size < NATIVE_MIN_ELEMENTS
                    and b.size < NATIVE_MIN_ELEMENTS
                ):
                    out = ufunc(a, b)
                    ny = y._node
                else:
                    return call(op, (x, y))
            nx = x._node
        except Exception:
            return call(op, (x, y))
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        if nx is None and ny is None or not differentiable or not grad_mode.enabled:
            t._node = None
            return t
        if not plain or dtype.itemsize == 2:
            needs = needs_of(op, (x, y))
            t._node = make_node(op, (x, y), (a, b), (), out, needs) if needs else None
            return t
        n = _new(Node)
        n.op = op
        n.edges = (nx, ny)
        n.attrs = ()
        n.hooks = n.where = n.outputs = None
        if b is y:  # a number
            n.specs = None
        else:
            # shapes are kept where a gradient will have to be summed back to one
            shape = out.shape
            broadcast = nx is not None and a.shape != shape or ny is not None and b.shape != shape
            n.specs = (spec_of(a), spec_of(b)) if broadcast else None
        n.saved = () if nothing else keep[(nx is not None) | (ny is not None) << 1](a, b, out)
        n.seq = tick()
        t._node = n
        return t

    def reflected(x: Any, y: Any, /) -> Any:
        if y.__class__ is float or y.__class__ is int:
            if not modes.active and x._node is None and takes_numbers:
                a = x._data
                if (a.dtype is F32 or a.dtype is F64) and type(a) is ndarray and a.size < NATIVE_MIN_ELEMENTS:
                    try:
                        out = ufunc(y, a)
                    except Exception:
                        return call(op, (y, x))
                    t = _new(Tensor)
                    t._data = out if type(out) is ndarray else np.asarray(out)
                    t._node = None
                    return t
            return call(op, (y, x))
        return op.call(y, x) if hasattr(y, "_data") else call(op, (y, x))

    return binary, reflected


def make_select(op: Op) -> Callable[..., Any]:
    """`where(condition, x, y)`."""

    def select(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 3:
            if len(args) == 1 and not kwargs:
                return args[0].nonzero()  # as in NumPy and PyTorch
            args = op.bind(args, kwargs)
        if modes.active:
            return call(op, args)
        try:
            c, a, b = args[0]._data, args[1]._data, args[2]._data
            if (
                c.dtype is not BOOL
                or a.dtype is not b.dtype
                or a.size >= NATIVE_MIN_ELEMENTS
                or b.size >= NATIVE_MIN_ELEMENTS
                or c.size >= NATIVE_MIN_ELEMENTS
            ):
                return call(op, args)
            out = np.where(c, a, b)
        except Exception:
            return call(op, args)
        if out.__class__ is not ndarray or a.__class__ is not ndarray or b.__class__ is not ndarray:
            return call(op, args)
        t = _new(Tensor)
        t._data = out
        t._node = None
        if grad_mode.enabled:
            needs = (args[1]._node is not None) << 1 | (args[2]._node is not None) << 2
            if needs:
                t._node = make_node(op, args, (c, a, b), (), out, needs)
        return t

    return select


def _normal(op: Op) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """The result of `op.bind` for a full tuple of arguments, the last of which may be keyword-only."""
    bind, split, names = op.bind, op.num_positional, op.parameters[op.num_positional :]
    return lambda args: bind(args[:split], dict(zip(names, args[split:], strict=True)))


def make_checked(op: Op) -> Callable[..., Any]:
    """`f(x, *attributes)` for an op with one tensor whose shape rule runs once per signature."""
    fn, count, kernels, checked, normal = op.fn, len(op.parameters), op.kernels, op.checked, _normal(op)
    integers = op.integer_attrs
    split = op.num_positional
    names = op.parameters[split:]
    defaults, least = op.defaults, sum(d is registry.REQUIRED for d in op.defaults)
    differentiable, has_alias = op.differentiable and not op.declared_nondifferentiable, op.alias is not None
    kinds = [kind for kind, _, _ in op.saved_items]
    second, rest = (op.parameters[1:2] or (None,))[0], defaults[2:]
    if registry.REQUIRED in rest:
        second = None
    torch_second = "dim" if second == "axis" else second
    most = split + spelling.leading(names)
    promotes = op.promote is not None  # the formula may divide by zero, of which NumPy must not warn

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count:
            if second in kwargs and len(args) == 1 == len(kwargs):  # such as softmax(x, axis=1)
                args = (*args, kwargs[second], *rest)
            elif torch_second in kwargs and len(args) == 1 == len(kwargs):
                args = (*args, kwargs[torch_second], *rest)
            elif kwargs or not least <= len(args) <= most:
                args = op.bind(args, kwargs)
            else:
                args += defaults[len(args) :]
        if modes.active:
            return call(op, normal(args))
        x = args[0]
        attrs = args[1:]
        try:
            a = x._data
            if a.__class__ is not ndarray or (a.shape, a.dtype, attrs) not in checked:
                return call(op, args)
            for i in integers:  # 1.0 and True equal 1
                value = attrs[i]
                if value.__class__ is not int and value is not None and not only_integers(value):
                    return call(op, normal(args))
            if names:
                keywords = dict(zip(names, args[split:], strict=True))
                for kernel in kernels:
                    if kernel.device == "cpu" and (kernel.when is None or kernel.when(a, *args[1:split], **keywords)):
                        out = kernel.fn(a, *args[1:split], **keywords)
                        break
                else:
                    if promotes:
                        return call(op, args)
                    out = fn(a, *args[1:split], **keywords)
            else:
                for kernel in kernels:
                    if kernel.device == "cpu" and (kernel.when is None or kernel.when(a, *attrs)):
                        out = kernel.fn(a, *attrs)
                        break
                else:
                    if promotes:
                        return call(op, args)
                    out = fn(a, *attrs)
        except Exception:
            return call(op, normal(args))
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        t._node = None
        if grad_mode.enabled:
            if x._node is not None and differentiable and (out.dtype is a.dtype or dtypes.is_inexact(out.dtype)):
                n = _new(Node)
                n.op, n.edges, n.attrs = op, (x._node,), attrs
                n.saved = tuple([a if k == "in" else out if k == "out" else Spec(a.shape, a.dtype) for k in kinds])
                n.specs = n.hooks = n.outputs = n.where = None
                n.seq = tick()
                t._node = n
            if has_alias:
                note_view(op, x, a, attrs, t)
        elif has_alias and out.base is not None and memory_of(out) is memory_of(a):
            t._view = UNTRACKED
        return t

    return public


def make_checked_pair(op: Op) -> Callable[..., Any]:
    """`f(x, y)` for an op with two tensors whose shape rule runs once per signature, see `make_checked`."""
    fn, kernels, checked = op.fn, op.kernels, op.checked
    differentiable = op.differentiable and not op.declared_nondifferentiable

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 2:
            args = op.bind(args, kwargs)
        if modes.active:
            return call(op, args)
        x, y = args
        try:
            a, b = x._data, y._data
            dtype = a.dtype
            if (
                b.dtype is not dtype
                or (dtype is not F32 and dtype is not F64)
                or ((a.shape, dtype), (b.shape, dtype), ()) not in checked
            ):
                return call(op, args)
            for kernel in kernels:
                if kernel.device == "cpu" and (kernel.when is None or kernel.when(a, b)):
                    return call(op, args)
            out = fn(a, b)
        except Exception:
            return call(op, args)
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        t._node = None
        if differentiable and grad_mode.enabled and (x._node is not None or y._node is not None):
            needs = needs_of(op, args)
            if needs and dtypes.is_inexact(out.dtype):
                t._node = make_node(op, args, (a, b), (), out, needs)
        return t

    return public


def make_checked_many(op: Op) -> Callable[..., Any]:
    """Any other op whose shape rule runs once per signature: several tensors, optional ones, or several results.

    No promotion is needed, because only signatures after promotion are cached.
    """
    return _make_checked_sequence(op) if op.variadic else _make_checked_each(op)


def _make_checked_each(op: Op) -> Callable[..., Any]:
    """`make_checked_many` with its loops over the parameters written out, for example

    x, weight, eps = args
    x_data = x._data
    weight_data = None if weight is None else weight._data
    key = ((x_data.shape, x_data.dtype), None if weight_data is None else (...), (eps,))
    """
    params, tensors, optional = op.parameters, op.tensor_names, op.optional
    datas = [f"{n}_data" for n in tensors]
    kinds = [f"({d}.shape, {d}.dtype)" for d in datas]
    maybe = [i in optional for i in range(len(tensors))]
    read = [f"None if {n} is None else {n}._data" if m else f"{n}._data" for n, m in zip(tensors, maybe, strict=True)]
    keyed = [f"None if {d} is None else {k}" if m else k for d, k, m in zip(datas, kinds, maybe, strict=True)]
    strange = [
        f"{d}.__class__ is not ndarray" + (f" and {d} is not None" if m else "")
        for d, m in zip(datas, maybe, strict=True)
    ]
    needs = [
        f"({n} is not None and {n}._node is not None)" if m else f"({n}._node is not None)"
        for n, m in zip(tensors, maybe, strict=True)
    ]
    attrs = f"({''.join(f'{n}, ' for n in op.attr_names)})"
    key = f"({kinds[0][1:-1]}, {attrs})" if len(tensors) == 1 else f"({', '.join(keyed)}, {attrs})"
    odd = "".join(
        f" or {n}.__class__ is not int and {n} is not None and not only_integers({n})"
        for n in (op.attr_names[i] for i in op.integer_attrs)
    )
    split = op.num_positional
    values = [f"{n}_data" if n in tensors else n for n in params[:split]]
    values += [f"{n}={n}_data" if n in tensors else f"{n}={n}" for n in params[split:]]
    given = ", ".join(values)
    lines = [
        "def public(*args, **kwargs):",
        f"    if kwargs or len(args) != {len(params)}:",
        "        args = bind(args, kwargs)",
        "    if modes.active:",
        "        return call(op, normal(args))",
        f"    {', '.join(params)}, = args",
        "    try:",
        *[f"        {d} = {r}" for d, r in zip(datas, read, strict=True)],
        f"        if {' or '.join(strange)}:",
        "            return call(op, normal(args))",
        f"        if {key} not in checked{odd}:",
        "            return call(op, args)",
        *([f"        refuse({given})"] if op.refuse is not None else []),
        "        for kernel in kernels:",
        f"            if kernel.device == 'cpu' and (kernel.when is None or kernel.when({given})):",
        f"                outs = kernel.fn({given})",
        "                break",
        "        else:",
        "            with errstate(all='ignore'):",
        f"                outs = fn({given})",
        f"        recorded = grad_mode.enabled and ({' or '.join(needs)})",
        "    except Exception:",
        "        return call(op, normal(args))",
        "    if outs.__class__ is not ndarray:",
        "        outs = as_arrays(outs)",
    ]
    plain = "wrap(outs)" if op.num_outputs == 1 else "tuple([wrap(o) for o in outs])"
    if op.alias is None:
        lines += ["    if not recorded:", f"        return {plain}"]
    lines.append(f"    return finish(op, ({', '.join(tensors)},), ({', '.join(datas)},), {attrs}, outs)")
    names: dict[str, Any] = {
        "op": op, "fn": op.fn, "kernels": op.kernels, "checked": op.checked, "refuse": op.refuse, "bind": op.bind,
        "normal": _normal(op), "modes": modes, "call": call, "finish": finish, "wrap": wrap, "as_arrays": as_arrays,
        "only_integers": only_integers, "errstate": np.errstate, "ndarray": ndarray, "grad_mode": grad_mode,
    }  # fmt: skip
    if set(names) & set(params):
        return _make_checked_sequence(op)  # a parameter name collides with a local
    exec(compile("\n".join(lines), __file__, "exec"), names)  # frames attributed to this file, not to the user's code
    made: Callable[..., Any] = names["public"]
    return made


def _make_checked_sequence(op: Op) -> Callable[..., Any]:
    """`make_checked_many` for any list of parameters."""
    fn, kernels, checked, refuse = op.fn, op.kernels, op.checked, op.refuse
    count, slots, attr_slots, variadic = len(op.parameters), op.tensor_slots, op.attr_slots, op.variadic
    run, single, integers = op.run, len(op.tensor_slots) == 1 and not op.variadic, op.integer_attrs

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count or op_has_lists(args):
            args = op.bind(args, kwargs)
        if modes.active:
            return call(op, args)
        try:
            tensors = args[slots[0]] if variadic else [args[i] for i in slots]
            datas: list[Any] = []
            key: list[Any] = []
            for t in tensors:
                if t is None:
                    datas.append(None)
                    key.append(None)
                    continue
                a = t._data
                if a.__class__ is not ndarray:
                    return call(op, args)
                datas.append(a)
                key.append((a.shape, a.dtype))
            attrs = tuple([args[i] for i in attr_slots])
            if ((*key[0], attrs) if single else (*key, attrs)) not in checked or has_non_integers(attrs, integers):
                return call(op, args)
            values = list(args)
            if variadic:
                values[slots[0]] = datas
            else:
                for i, a in zip(slots, datas, strict=True):
                    values[i] = a
            if refuse is not None:
                run(refuse, values)
            for kernel in kernels:
                if kernel.device == "cpu" and (kernel.when is None or run(kernel.when, values)):
                    outs = run(kernel.fn, values)
                    break
            else:
                with np.errstate(all="ignore"):
                    outs = run(fn, values)
        except Exception:
            return call(op, args)
        return finish(op, tensors, datas, attrs, as_arrays(outs))

    return public


def make_general(op: Op) -> Callable[..., Any]:
    """The public function of any other op: bind the arguments, then take the general path."""
    count = len(op.parameters)

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count or op_has_lists(args):
            inplace = kwargs.pop("inplace", False) if op.namespace == "nn" else False
            args = op.bind(args, kwargs)
            if inplace:
                return _write(op, args)
        return call(op, args)

    return public


def op_has_lists(args: tuple[Any, ...]) -> bool:
    for a in args:
        if a.__class__ is list:
            return True
    return False
