"""From a call to a result: the eager hot path, the general path, and the tape entry.

Note [Fast path]. The functions that users call are closures made here, one shape of closure per shape of op. On small
arrays of equal dtype they are a handful of bytecodes around the NumPy ufunc. Anything unusual (a Python scalar of
another kind, a dtype to promote, a large array, a symbolic tensor, an error) raises or fails a cheap test and falls
through to `call`, which does everything properly and raises the error that the user should see.

Note [Modes]. A mode sees every op of its thread: capture, autocast, NaN tracing, profiling. `_special` counts the live
modes of all threads; while it is zero, nobody looks further. Data that are not NumPy arrays (symbolic values, batched
values) need no mode: NumPy refuses them, and the general path hands the call to the data's own `apply`.
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import Leaf, Node, Output, grad_mode, memory_of, tick
from ..errors import describe, format_shape, user_location
from ..tensor import Tensor, wrap
from . import registry
from . import scalar as s
from .registry import Op
from .spec import Spec, broadcast_shapes, is_known, spec_of

ndarray = np.ndarray
_new = object.__new__
F32, F64, I64, BOOL = dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_
LARGE = 16384  # elements from which a native kernel beats NumPy, see benchmarks/dispatch.py

# NumPy warns of 1/0 and log(0) in the caller's frame: for tensors inf and nan are answers.
warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning, r"weft\.")

# Modes ---------------------------------------------------------------------------------------------------------------

_special = 0
_special_lock = threading.Lock()


class _Modes(threading.local):
    stack: tuple[Any, ...] = ()


_modes = _Modes()


class Mode:
    """Sees every op that its thread calls while it is entered: `handle(op, values)` may answer or call `op.call`.

    While `handle` runs, the mode itself is set aside, so that calling the op again reaches the next mode.
    """

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        global _special
        with _special_lock:
            _special += 1
        _modes.stack = (*_modes.stack, self)
        return self

    def __exit__(self, *_: Any) -> None:
        global _special
        stack = list(_modes.stack)
        stack.remove(self)
        _modes.stack = tuple(stack)
        with _special_lock:
            _special -= 1


def current_modes() -> tuple[Any, ...]:
    """The modes of this thread, innermost last."""
    return _modes.stack


class suspended:
    """Run without the modes of this thread for a while (`keep` of the outermost ones stay)."""

    __slots__ = ("_keep", "_saved")

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep

    def __enter__(self) -> None:
        self._saved = _modes.stack
        _modes.stack = self._saved[: self._keep]

    def __exit__(self, *_: Any) -> None:
        _modes.stack = self._saved


class installed:
    """Run with `stack` as the modes of this thread for a while, whatever they are now."""

    __slots__ = ("_stack", "_saved")

    def __init__(self, stack: tuple[Any, ...]) -> None:
        self._stack = stack

    def __enter__(self) -> None:
        global _special
        with _special_lock:
            _special += 1  # they may all have been left since, and then nobody looks at the stack
        self._saved = _modes.stack
        _modes.stack = self._stack

    def __exit__(self, *_: Any) -> None:
        global _special
        _modes.stack = self._saved
        with _special_lock:
            _special -= 1


def constant(array: ndarray) -> Tensor:
    """A new tensor that holds `array`. In a captured function it is part of the program, made anew on every call."""
    if _special:
        for mode in reversed(_modes.stack):
            if hasattr(mode, "constant"):
                return mode.constant(array)
    return wrap(array)


# The general path ----------------------------------------------------------------------------------------------------


def call(op: Op, values: tuple[Any, ...]) -> Any:
    """Run `op` on a full tuple of argument values: convert, compute or record in a graph, and record on the tape."""
    if _special:
        stack = _modes.stack
        if stack:
            with suspended(len(stack) - 1):
                return stack[-1].handle(op, values)
    try:
        tensors = [_operand(op, i, v) for i, v in enumerate(op.tensors(values))]
        datas = []
        foreign = None
        for t in tensors:
            if isinstance(t, Tensor):
                t = t._data
                if type(t) is not ndarray and (foreign is None or t.priority > foreign.priority):
                    foreign = t
            datas.append(t)
        attrs = op.attrs(values)
        if foreign is None:
            outs = compute(op, datas, attrs)
            return finish(op, tensors, datas, attrs, outs)
    except Exception as error:
        from . import guard

        guard.tell(guard.renamed(op.title, error, keep_prefix=True), error)
    return foreign.apply(op, tensors, attrs)


def _operand(op: Op, position: int, value: Any) -> Any:
    """A tensor argument: tensors pass, arrays become tensors, Python numbers stay weak, None stays None."""
    if isinstance(value, Tensor) or type(value) in (bool, int, float, complex):
        return value
    if value is None and position in op.optional:
        return value
    if isinstance(value, (ndarray, np.generic)):
        return Tensor(value)
    to_tensor = getattr(value, "__weft_tensor__", None)
    if to_tensor is not None:
        return to_tensor()
    if isinstance(value, (int, float, complex)):  # subclasses such as IntEnum
        return value.real if not isinstance(value, complex) else value
    name = op.tensor_names[0 if op.variadic else position]
    hint = " Convert it with `wf.asarray(...)`." if isinstance(value, (list, tuple)) else ""
    raise TypeError(f"{op.title}: {name} must be a tensor. Got {type(value).__name__}.{hint}")


def compute(op: Op, datas: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """Run `op` on arrays (and weak scalars): the best kernel that applies. Returns an array or a tuple of arrays."""
    if op.expression is not None:
        return compute_elementwise(op, datas)
    arrays = promoted(op, datas)
    values = op.merge(arrays, attrs)
    if op.infer is not None:
        if op.checks_once:
            check_once(op, arrays, attrs, values)
        else:
            result = op.run(op.infer, values)
            if op.alias is None:
                check_fits(op, result)
    if not _backends_ready:
        _prepare_backends(arrays)
    for kernel in op.kernels:
        if kernel.device == "cpu" and (kernel.when is None or op.run(kernel.when, values)):
            return as_arrays(op.run(kernel.fn, values))
    with np.errstate(all="ignore"):
        return as_arrays(op.run(op.fn, values))


_backends_ready = False
WORTHWHILE = 2048  # elements from which looking for native kernels can pay


def _prepare_backends(arrays: Sequence[Any]) -> None:
    """Register the backends' kernels when the first op on more than a few numbers runs: small programs never load them."""
    global _backends_ready
    if any(type(a) is ndarray and a.size >= WORTHWHILE for a in arrays):
        _backends_ready = True
        from ..backends import register_kernels

        register_kernels()


def check_once(op: Op, arrays: Sequence[Any], attrs: tuple[Any, ...], values: Sequence[Any]) -> None:
    """Run the shape rule of `op` unless this signature passed it before (see `Op.checks_once`)."""
    if len(arrays) == 1:
        key: tuple[Any, ...] = (arrays[0].shape, arrays[0].dtype, attrs)
    else:
        key = (*[None if a is None else (a.shape, a.dtype) for a in arrays], attrs)
    try:
        if key in op.checked:
            return
    except TypeError:  # an attribute that cannot be hashed is the rule's to judge
        op.run(op.infer, values)  # type: ignore[arg-type]
        return
    result = op.run(op.infer, values)  # type: ignore[arg-type]
    if op.alias is None:
        check_fits(op, result)
    if len(op.checked) >= 4096:
        op.checked.clear()
    op.checked.add(key)


MUCH = 1 << 28  # bytes from which a result is worth a look at the system's free memory


def check_fits(op: Op, result: Any) -> None:
    """Refuse a result that the machine cannot hold, before a kernel asks the system for it and the system kills us."""
    if result.__class__ is tuple:
        for part in result:
            check_fits(op, part)
        return
    shape = result.shape
    if shape is None or None in shape:
        return
    size = math.prod(shape) * result.dtype.itemsize
    if size < MUCH:
        return
    from ..runtime import _host, memory

    room = _host.memory_available()
    if room is not None and size > room:
        memory.trim()
        room = _host.memory_available() or size
        if size > room:
            raise MemoryError(
                f"{op.title}: the result does not fit into memory. Got a shape {format_shape(shape)} that needs "
                f"{memory.format_bytes(size)}; {memory.format_bytes(room)} can be had."
            )


def as_arrays(outs: Any) -> Any:
    """A kernel's results with NumPy scalars as 0-d arrays."""
    if type(outs) is ndarray:
        return outs
    return tuple([np.asarray(o) for o in outs]) if isinstance(outs, (tuple, list)) else np.asarray(outs)


def promoted(op: Op, datas: Sequence[Any]) -> list[Any]:
    """The tensor arguments as arrays, cast to their common dtype if the op promotes."""
    if op.promote is None:
        return [d if d is None or isinstance(d, ndarray) else np.asarray(d, dtypes.python_scalar_dtype(d)) for d in datas]
    dtype = common_dtype(op, datas)
    return [None if d is None else cast_data(d, dtype) for d in datas]


def cast_data(data: Any, dtype: np.dtype) -> ndarray:
    if type(data) is ndarray and (data.dtype is dtype or data.dtype == dtype):
        return data
    with np.errstate(all="ignore"):  # what is too large for a short float becomes inf, without a warning
        return data.astype(dtype) if type(data) is ndarray else np.asarray(data, dtype)


def common_dtype(op: Op, datas: Sequence[Any]) -> np.dtype:
    """The dtype in which `op` computes, from its operands and its `promote` kind."""
    dtype = dtypes.result_type(*[d for d in datas if d is not None])
    return check_kind(op, op.promote or "numeric", dtype)


def check_kind(op: Op, kind: str, dtype: np.dtype) -> np.dtype:
    """Apply the rule of `kind` to the promoted operand dtype: the compute dtype, or a TypeError."""
    if kind == "float":  # functions such as exp: integers become the default float
        return dtypes.float_for(dtype)
    if kind == "floating" and not dtypes.is_inexact(dtype):
        raise TypeError(f"{op.title}: expected a floating tensor. Got {dtype.name}; use `x.astype(wf.float32)`.")
    if kind == "real" and dtypes.is_complex(dtype):
        raise TypeError(f"{op.title}: expected a real tensor. Got {dtype.name}; use `wf.real(x)` or `wf.abs(x)`.")
    if kind == "real float":
        if dtypes.is_complex(dtype):
            raise TypeError(f"{op.title}: expected a real tensor. Got {dtype.name}.")
        return dtypes.float_for(dtype)
    if kind == "bitwise" and not (dtypes.is_integral(dtype) or dtypes.is_bool(dtype)):
        raise TypeError(f"{op.title}: expected integer or bool tensors. Got {dtype.name}.")
    if kind == "integer" and not dtypes.is_integral(dtype):
        raise TypeError(f"{op.title}: expected integer tensors. Got {dtype.name}.")
    if kind == "logical":
        return BOOL
    if kind == "arithmetic" and dtypes.is_bool(dtype):
        raise TypeError(f"{op.title}: expected numbers. Got bool; use `x.astype(wf.int64)` or a logical function.")
    return dtype


def elementwise_dtypes(op: Op, datas: Sequence[Any]) -> tuple[np.dtype, ...]:
    """The dtype of each operand as the scalar expression of `op` sees it."""
    if op.kind == "select":  # where(condition, x, y)
        rest = dtypes.result_type(*datas[1:])
        return (BOOL, rest, rest)
    dtype = check_kind(op, op.kind, dtypes.result_type(*datas))
    return (dtype,) * len(datas)


def compute_elementwise(op: Op, datas: Sequence[Any]) -> ndarray:
    wanted = elementwise_dtypes(op, datas)
    arrays = [cast_data(d, w) for d, w in zip(datas, wanted, strict=True)]
    shape = broadcast_shapes(op.title, *[a.shape for a in arrays], names=op.tensor_names)
    size = 1
    for d in shape:
        size *= d
    if size >= LARGE and not any(dtypes.is_complex(w) for w in wanted):
        for kernel in op.kernels:
            if kernel.device == "cpu" and (kernel.when is None or kernel.when(*arrays)):
                return kernel.fn(*arrays)
        out = native_elementwise(op, arrays, shape)
        if out is not None:
            return out
    return plain_elementwise(op, arrays)


def plain_elementwise(op: Op, arrays: Sequence[ndarray]) -> ndarray:
    """The reference: the scalar expression run by NumPy. Half precision is computed in float32, as native code does."""
    assert op.expression is not None
    half = next((a.dtype for a in arrays if a.dtype.itemsize == 2 and dtypes.is_floating(a.dtype)), None)
    with np.errstate(all="ignore"):
        if half is not None:
            out = op.expression(*[a.astype(F32) if a.dtype == half else a for a in arrays])
            return np.asarray(out, half) if out.dtype == F32 else np.asarray(out)
        return np.asarray(op.expression(*arrays))


_native: Any = None


def native_elementwise(
    op: Op, arrays: Sequence[ndarray], shape: tuple[int, ...], out: ndarray | None = None
) -> ndarray | None:
    """The scalar expression as a native loop (into `out`, if given), or None where there is no native code."""
    global _native
    if _native is None:
        from ..backends import native_kernels

        _native = native_kernels()
    if _native is False:
        return None
    return _native.elementwise(op.name, op.expression, arrays, shape, out)


def finish(op: Op, tensors: Sequence[Any], datas: Sequence[Any], attrs: tuple[Any, ...], outs: Any) -> Any:
    """Wrap computed data in tensors and record them on the tape."""
    if op.num_outputs != 1:
        results = tuple([wrap(o) for o in outs])
        needs = 0
        if grad_mode.enabled:
            needs = _needs(op, tensors)
        if needs:
            node = make_node(op, tensors, datas, attrs, outs, needs)
            node.outputs = tuple([spec_of(o) for o in outs])
            for i, r in enumerate(results):
                if dtypes.is_inexact(r.dtype):
                    r._node = Output(node, i)
        return results
    out = wrap(outs)
    if grad_mode.enabled:
        needs = _needs(op, tensors)
        if needs and dtypes.is_inexact(outs.dtype):
            out._node = make_node(op, tensors, datas, attrs, outs, needs)
        if op.alias is not None:
            note_view(op, tensors[0], datas[0], attrs, out)
    elif op.alias is not None:
        if type(outs) is not ndarray:
            note_view(op, tensors[0], datas[0], attrs, out)
        elif outs.base is not None:
            out._view = UNTRACKED
    return out


def _needs(op: Op, tensors: Sequence[Any]) -> int:
    """A bit per tensor argument that requires a gradient."""
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
    """The tape entry of one call."""
    node = _new(Node)
    node.op = op
    node.edges = tuple([t._node if needs >> i & 1 else None for i, t in enumerate(tensors)])
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
    node.saved = tuple(saved)
    node.attrs = attrs
    node.specs = None
    if op.broadcasts:
        shape, dtype = outs.shape, outs.dtype
        unknown = outs.__class__ is not ndarray and not is_known(shape)  # equal unknown sizes may differ when they run
        for d in datas:
            if d is not None and (unknown or getattr(d, "shape", ()) != shape or getattr(d, "dtype", dtype) != dtype):
                node.specs = tuple([_spec(d) for d in datas])
                break
    elif op.promote is not None and len({d.dtype for d in datas if hasattr(d, "dtype")}) > 1:
        node.specs = tuple([_spec(d) for d in datas])  # each input gets its gradient in its own dtype
    node.hooks = None
    node.outputs = None
    node.where = user_location(2) if _trace_lines else None
    node.seq = tick()
    return node


def _kept(op: Op, datas: Sequence[Any]) -> tuple[Any, ...]:
    """A sequence of inputs as the tape keeps it: those of which only the shape matters without their memory."""
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


_trace_lines = 0  # how many want tape nodes to remember the user's line: NaN tracing does


def trace_lines(enabled: bool) -> None:
    """Ask that tape nodes remember the user's line (slower), or take that wish back."""
    global _trace_lines
    with _special_lock:
        _trace_lines += 1 if enabled else -1


# Views, see `weft.ops.inplace` ---------------------------------------------------------------------------------------


class View:
    """How a view was made: `steps` of (op, attrs) applied to `base`."""

    __slots__ = ("base", "steps")

    def __init__(self, base: Tensor, steps: tuple[tuple[Op, tuple[Any, ...]], ...]) -> None:
        self.base, self.steps = base, steps


class _Untracked:
    """Marks a view that was made while nothing was recorded: how it came from its base is not known."""


UNTRACKED = _Untracked()


class Base:
    """The live views of a tensor, weakly held; pruned as it grows."""

    __slots__ = ("views", "limit")

    def __init__(self) -> None:
        self.views: list[Any] = []
        self.limit = 16


def note_view(op: Op, x: Tensor, data: Any, attrs: tuple[Any, ...], out: Tensor) -> None:
    """Remember that `out` is a view of `x`, if it is one, so that writing to either is seen by the other's gradient."""
    symbolic = type(data) is not ndarray
    if not symbolic:
        if out._data is not data and memory_of(out._data) is not memory_of(data):
            return
    link(op, x, attrs, out, symbolic)


def link(op: Op, x: Tensor, attrs: tuple[Any, ...], out: Tensor, symbolic: bool = False) -> None:
    step = ((op, attrs),)
    found = getattr(x, "_view", None)
    if found.__class__ is View:
        base = found.base
        out._view = View(base, found.steps + step)
    elif found is UNTRACKED:
        out._view = UNTRACKED
        return
    else:
        base = x
        out._view = View(x, step)
    if not symbolic and base._node.__class__ is Leaf:
        return  # writing to a view of a leaf is an error or unrecorded: nobody needs the list
    registry_ = getattr(base, "_view", None)
    if registry_ is None:
        registry_ = base._view = Base()
    views = registry_.views
    views.append(_ref(out))
    if len(views) > registry_.limit:
        registry_.views = views = [r for r in views if r() is not None]
        registry_.limit = 2 * len(views) + 16


from weakref import ref as _ref  # noqa: E402

# Closures for the shapes of ops --------------------------------------------------------------------------------------


def make_unary(op: Op, ufunc: Callable[..., Any], any_dtype: bool) -> Callable[..., Any]:
    """`f(x)` for an elementwise op that NumPy has as `ufunc`; `any_dtype`: the ufunc's result dtype is ours."""
    simple = all(kind in ("in", "out") for kind, _, _ in op.saved_items) and len(op.saved_items) <= 1
    kind = op.saved_items[0][0] if op.saved_items else None
    differentiable = op.rules is not None

    def unary(x: Any, /) -> Any:
        if _special:
            return call(op, (x,))
        try:
            a = x._data
            if (a.dtype is F32 or a.dtype is F64 or any_dtype) and a.size < LARGE:
                out = ufunc(a)
            else:
                return call(op, (x,))
        except Exception:
            return call(op, (x,))
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        nx = x._node
        if nx is None or not differentiable or not grad_mode.enabled:
            t._node = None
            return t
        if not simple or _trace_lines:
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


@functools.cache
def _keeper(names: tuple[str | None, ...]) -> Callable[..., tuple[Any, ...]]:
    """`lambda a, b, out: (b, None)` for the names of what is kept: looking it up in a loop would cost as much as an add."""
    made: Callable[..., Any] = eval(compile(f"lambda a, b, out: ({''.join(f'{n}, ' for n in names)})", __file__, "eval"))
    return made


def make_binary(
    op: Op, ufunc: Callable[..., Any], any_dtype: bool, takes_numbers: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`f(x, y)` and its reflection `f(y, x)` for an elementwise op that NumPy has as `ufunc`.

    `takes_numbers`: with a Python number for y, NumPy's result has the dtype of x.
    """
    differentiable = op.rules is not None
    # saved by mask of needed inputs: which of x, y, out the rules want
    keep = [
        _keeper(tuple([None if not m & mask else "ab"[i] if k == "in" else "out" for k, i, m in op.saved_items]))
        for mask in range(4)
    ]
    plain = all(k in ("in", "out") for k, _, _ in op.saved_items)

    def binary(x: Any, y: Any, /) -> Any:
        if _special:
            return call(op, (x, y))
        ny = None
        try:
            a = x._data
            dtype = a.dtype
            cls = y.__class__
            if cls is float or cls is int:
                if takes_numbers and (dtype is F32 or dtype is F64) and a.size < LARGE:
                    out = ufunc(a, y)
                    b = y
                else:
                    return call(op, (x, y))
            else:
                b = y._data
                if (
                    b.dtype is dtype
                    and (any_dtype or dtype is F32 or dtype is F64)
                    and a.size < LARGE
                    and b.size < LARGE
                ):
                    out = ufunc(a, b)
                    ny = y._node
                else:
                    return call(op, (x, y))
        except Exception:
            return call(op, (x, y))
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        nx = x._node
        if nx is None and ny is None or not differentiable or not grad_mode.enabled:
            t._node = None
            return t
        if not plain or _trace_lines:
            needs = (nx is not None) | (ny is not None) << 1
            t._node = make_node(op, (x, y), (a, b), (), out, needs)
            return t
        n = _new(Node)
        n.op = op
        n.edges = (nx, ny)
        n.attrs = ()
        n.hooks = n.where = n.outputs = None
        if cls is float or cls is int:
            n.specs = None
        else:
            # shapes are kept where a gradient will have to be summed back to one
            broadcast = nx is not None and a.shape != out.shape or ny is not None and b.shape != out.shape
            n.specs = (spec_of(a), spec_of(b)) if broadcast else None
        n.saved = keep[(nx is not None) | (ny is not None) << 1](a, b, out)
        n.seq = tick()
        t._node = n
        return t

    def reflected(x: Any, y: Any, /) -> Any:
        if y.__class__ is float or y.__class__ is int:
            if not _special and x._node is None and takes_numbers:
                a = x._data
                if (a.dtype is F32 or a.dtype is F64) and type(a) is ndarray and a.size < LARGE:
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


def make_checked(op: Op) -> Callable[..., Any]:
    """`f(x, *attributes)` for an op with one tensor whose shape rule need run only once per signature."""
    fn, count, kernels, checked = op.fn, len(op.parameters), op.kernels, op.checked
    split = op.num_positional
    names = op.parameters[split:]
    defaults, least = op.defaults, sum(d is registry.REQUIRED for d in op.defaults)
    differentiable, has_alias = op.differentiable and not op.declared_nondifferentiable, op.alias is not None
    kinds = [kind for kind, _, _ in op.saved_items]

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count:
            if kwargs or not least <= len(args) <= split:
                args = op.bind(args, kwargs)
            else:
                args += defaults[len(args) :]
        if _special:
            return call(op, _hashable(args))
        x = args[0]
        attrs = args[1:]
        try:
            a = x._data
            if a.__class__ is not ndarray or (a.shape, a.dtype, attrs) not in checked:
                return call(op, args)
            if names:
                keywords = dict(zip(names, args[split:], strict=True))
                for kernel in kernels:
                    if kernel.when is None or kernel.when(a, *args[1:split], **keywords):
                        return call(op, args)
                out = fn(a, *args[1:split], **keywords)
            else:
                for kernel in kernels:
                    if kernel.when is None or kernel.when(a, *attrs):
                        return call(op, args)
                out = fn(a, *attrs)
        except Exception:
            return call(op, _hashable(args))
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        t._node = None
        if grad_mode.enabled:
            if x._node is not None and differentiable:
                n = _new(Node)
                n.op, n.edges, n.attrs = op, (x._node,), attrs
                n.saved = tuple([a if k == "in" else out if k == "out" else Spec(a.shape, a.dtype) for k in kinds])
                n.specs = n.hooks = n.outputs = None
                n.where = user_location(1) if _trace_lines else None
                n.seq = tick()
                t._node = n
            if has_alias:
                note_view(op, x, a, attrs, t)
        elif has_alias and out.base is not None:
            t._view = UNTRACKED
        return t

    return public


def make_checked_pair(op: Op) -> Callable[..., Any]:
    """`f(x, y)` for an op with two tensors whose shape rule need run only once per signature, see `make_checked`."""
    fn, kernels, checked = op.fn, op.kernels, op.checked
    differentiable = op.differentiable and not op.declared_nondifferentiable

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 2:
            args = op.bind(args, kwargs)
        if _special:
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
                if kernel.when is None or kernel.when(a, b):
                    return call(op, args)
            out = fn(a, b)
        except Exception:
            return call(op, args)
        if type(out) is not ndarray:
            out = np.asarray(out)
        t = _new(Tensor)
        t._data = out
        t._node = None
        if differentiable and grad_mode.enabled:
            needs = (x._node is not None) | (y._node is not None) << 1
            if needs:
                t._node = make_node(op, args, (a, b), (), out, needs)
        return t

    return public


def make_general(op: Op) -> Callable[..., Any]:
    """The public function of any other op: bind the arguments, then take the general path."""
    count = len(op.parameters)

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count or op_has_lists(args):
            args = op.bind(args, kwargs)
        return call(op, args)

    return public


def _hashable(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with lists as tuples, as attributes must be."""
    return tuple([tuple(a) if a.__class__ is list else a for a in args])


def op_has_lists(args: tuple[Any, ...]) -> bool:
    for a in args:
        if a.__class__ is list:
            return True
    return False


# Decorators that define ops ------------------------------------------------------------------------------------------


def _public(op: Op, function: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = op.name
    function.__qualname__ = op.name
    function.__doc__ = fn.__doc__
    function.__module__ = fn.__module__
    function.__wrapped__ = fn  # type: ignore[attr-defined]  # inspect.signature and help() show the definition
    function.op = op  # type: ignore[attr-defined]
    op.call = function
    return function


def primitive(*, name: str | None = None, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op whose body is its NumPy kernel. See `weft.ops.registry` for the facts."""

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        op = registry.register(Op(name or fn.__name__, fn, **facts))
        make = make_general
        if op.checks_once and not op.variadic and op.num_outputs == 1:
            if op.tensor_slots == (0,) and op.promote is None:
                make = make_checked
            elif op.tensor_slots == (0, 1) and len(op.parameters) == 2 and op.alias is None:
                make = make_checked_pair
        return _public(op, make(op), fn)

    return define


def elementwise(
    *, numpy: Any = None, name: str | None = None, **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an elementwise op whose body is a scalar expression.

    `kind` says which dtypes it takes (see `check_kind`); `numpy` is the NumPy ufunc that computes the same for same-dtype
    operands, for the fast path.
    """

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        facts.setdefault("batch", "elementwise")
        op = Op(name or fn.__name__, fn, all_tensors=True, expression=fn, broadcasts=True, ufunc=numpy, **facts)
        registry.register(op)
        op.infer = lambda *specs: infer_elementwise(op, *specs)
        count = len(op.parameters)
        # a ufunc's own result dtype is ours unless integers must become float32 first
        any_dtype = op.kind in ("numeric", "arithmetic", "bitwise", "compare", "real")
        ufunc = numpy
        inner = op.namespace == "internal" and op.kind in ("numeric", "arithmetic", "real", "float", "real float")
        if ufunc is None and (count == 1 or count == 2 and inner and op.defaults == (registry.REQUIRED,) * 2):
            ufunc, any_dtype = fn, False  # NumPy runs the expression itself, for arrays that need no cast
        if ufunc is not None and count == 1:
            function = make_unary(op, ufunc, any_dtype)
        elif ufunc is not None and count == 2:
            function, op.reflected = make_binary(op, ufunc, any_dtype, numpy is not None)
        else:
            function = make_general(op)
        return _public(op, function, fn)

    return define


def composite(*, name: str | None = None, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op whose body is written with other ops; it needs no kernel and no gradient rule.

    The name is bound to the body itself, for use inside the package; users get `op.call`, see Note [Named errors].
    """
    from .guard import guarded

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        op = registry.register(Op(name or fn.__name__, fn, composite=True, batch="composite", **facts))
        fn.op = op  # type: ignore[attr-defined]
        op.call = guarded(fn, op.title)
        return fn

    return define


_expression_dtypes: dict[tuple[Any, ...], np.dtype] = {}


def infer_elementwise(op: Op, *specs: Any) -> Any:
    """Shape and dtype of an elementwise op's result, without computing it."""

    shape = broadcast_shapes(op.title, *[getattr(x, "shape", ()) for x in specs], names=op.tensor_names)
    wanted = elementwise_dtypes(op, specs)
    key = (op.name, *wanted)
    dtype = _expression_dtypes.get(key)
    if dtype is None:
        with np.errstate(all="ignore"):
            half = any(w.itemsize == 2 and dtypes.is_floating(w) for w in wanted)
            ones = [np.ones(1, F32 if half and dtypes.is_floating(w) else w) for w in wanted]
            dtype = np.asarray(op.expression(*ones)).dtype  # type: ignore[misc]
            if half and dtype == F32:
                dtype = next(w for w in wanted if w.itemsize == 2)
        _expression_dtypes[key] = dtype
    return Spec(shape, dtype)


__all__ = ["Mode", "call", "composite", "describe", "elementwise", "primitive", "s"]
