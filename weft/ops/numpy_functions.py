"""NumPy functions on tensors: `np.sin(t)`, `np.concatenate([t, u])`, `np.linalg.norm(t)`.

One rule. A NumPy function for which Weft has an op gives a tensor, through that op, so gradients flow and captured functions
see it; arguments that the op lacks (`out=`, `where=`, `order=` …) are an error. Any other NumPy function runs on the arrays
behind the tensors and gives what NumPy gives. A tensor that requires gradients is never turned into an array: where there is
no op, that is an error.

`FUNCTIONS` has NumPy's name and parameters on the left, so `np.split(t, 2)` means what NumPy means, also where the function of
the same name in `weft` follows PyTorch.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.tree import flatten, unflatten
from ..tensor import Tensor, wrap
from .core.registry import table

# Ufuncs -----------------------------------------------------------------------------------------------------------------

UFUNCS = {
    "absolute": "abs", "conjugate": "conj", "degrees": "rad2deg", "fabs": "abs", "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift", "mod": "remainder", "power": "pow", "radians": "deg2rad",
    "right_shift": "bitwise_right_shift", "rint": "round", "true_divide": "divide", "vecdot": "vecdot",
}  # fmt: skip
"""ufuncs whose op has another name"""

_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
    "logaddexp": "logsumexp",
}  # fmt: skip
_ACCUMULATIONS = {"add": "cumulative_sum", "multiply": "cumulative_prod"}


@functools.cache
def _of_ufunc(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The Weft function that computes `ufunc`."""
    for op in table.values():
        if op.ufunc is ufunc:
            return op.call
    import weft

    return vars(weft).get(UFUNCS.get(ufunc.__name__, ufunc.__name__))


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """`Tensor.__array_ufunc__`: the op that computes the same, else NumPy on arrays."""
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if any(isinstance(t, Tensor) for t in _outs(options)):
        raise TypeError(f"{name}: NumPy cannot write into a tensor. Give it `t.numpy()`, which shares memory.")
    options = {
        k: v
        for k, v in options.items()
        if v is not None and not (k == "out" and all(o is None for o in _outs(options)))
    }
    function = _of_ufunc(ufunc)
    if method == "__call__" and ufunc is np.divmod:
        function = lambda a, b: (table["floor_divide"].call(a, b), table["remainder"].call(a, b))
    if function is not None and method in ("__call__", "outer") and "out" not in options:
        if options:
            raise TypeError(
                f"{name}: {_listed(options)} cannot be given with a tensor. Write `wf.{ufunc.__name__}` and convert the "
                "arguments or the result (`x.astype(dtype)`, `wf.where`), or pass `t.numpy()`."
            )
        operands = [_operand(v) for v in inputs]
        if method == "outer":
            a, b = (v if isinstance(v, Tensor) else Tensor(v) for v in operands)
            operands = [a.reshape((*a.shape, *(1,) * b.ndim)), b]
        return function(*operands)
    if method in ("reduce", "accumulate") and set(options) <= {"axis", "keepdims", "dtype"}:
        names = _REDUCTIONS if method == "reduce" else _ACCUMULATIONS
        if ufunc.__name__ in names and isinstance(inputs[0], Tensor):
            given = {"axis": 0, **options, **dict(zip(("axis", "dtype"), inputs[1:], strict=False))}
            return _weft(names[ufunc.__name__])(
                inputs[0], **{k: v for k, v in given.items() if k == "axis" or v is not None}
            )
    return _run_on_arrays(name, getattr(ufunc, method), inputs, options)


def _outs(options: dict[str, Any]) -> tuple[Any, ...]:
    out = options.get("out", ())
    return out if isinstance(out, tuple) else (out,)


def _operand(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return Tensor(value)
    return Tensor(value) if isinstance(value, (list, tuple)) else value


def _listed(names: Any) -> str:
    return " and ".join([f"`{n}=`" for n in names])


def _run_on_arrays(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """NumPy's function on the arrays behind the tensors; an error for tensors that require gradients."""
    leaves, structure = flatten((args, kwargs))
    instead = (
        f"Weft has no op for {name} with these arguments, so they would be lost. Write `x.detach()` to go on without"
    )
    arrays = [v._values(name, instead) if isinstance(v, Tensor) else v for v in leaves]
    args, kwargs = unflatten(structure, arrays)
    return function(*args, **kwargs)


# Other functions --------------------------------------------------------------------------------------------------------


def array_function(self: Tensor, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
    """`Tensor.__array_function__`: as `array_ufunc`, for the functions of NumPy that are no ufuncs."""
    module = (getattr(func, "__module__", "") or "").removeprefix("numpy").strip(".").split(".")[0].strip("_")
    name = f"{module}.{func.__name__}" if module in ("linalg", "fft") else func.__name__
    if func in _inspections():
        leaves, structure = flatten((args, kwargs))
        plain = [v._array(f"np.{name}") if isinstance(v, Tensor) else v for v in leaves]
        args, kwargs = unflatten(structure, plain)
        return func(*args, **kwargs)
    function = FUNCTIONS.get(name)
    if function is None:
        return _run_on_arrays(f"np.{name}", func, args, kwargs)
    return function(*_checked(name, func, function, args, kwargs))


def _inspections() -> set[Any]:
    """Functions that look at shapes, dtypes or addresses, or print: nothing is lost."""
    return _INSPECTIONS


_INSPECTIONS = {
    np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.result_type, np.can_cast, np.may_share_memory,
    np.shares_memory, np.array_repr, np.array_str, np.array2string, np.common_type, np.min_scalar_type, np.broadcast_shapes,
}  # fmt: skip


@functools.cache
def _parameters(func: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(func)


def _checked(name: str, func: Callable[..., Any], function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    """The arguments of `function`, which are some of those of NumPy's `func`, in its own order.

    NumPy's names are used to bind them, and others than those that `function` has may only have NumPy's default values.
    """
    signature = _signature_of(func, function)
    bound = signature.bind(*args, **kwargs)
    bound.arguments.update(bound.arguments.pop("kwargs", {}))  # `np.pad` names some of its parameters only in the text
    wanted = _parameters(function).parameters
    for parameter, value in bound.arguments.items():
        default = getattr(signature.parameters.get(parameter), "default", None)
        if parameter not in wanted and value is not default and value is not None and value is not np._NoValue:
            if (
                isinstance(value, type(default))
                and value == default
                or (parameter, value) in (("order", "A"), ("order", "K"))
            ):
                continue
            raise TypeError(
                f"np.{name}: `{parameter}=` cannot be given with a tensor. Write it without, or pass `t.numpy()` to get an "
                "array."
            )
    given: list[Any] = []
    for parameter, spec in wanted.items():
        value = bound.arguments.get(parameter, spec.default)
        if value is np._NoValue or value is inspect.Parameter.empty:
            value = spec.default
        if spec.kind is inspect.Parameter.VAR_POSITIONAL:
            given.extend(bound.arguments.get(parameter, ()))
        else:
            given.append(value)
    return given


@functools.cache
def _signature_of(func: Callable[..., Any], function: Callable[..., Any]) -> inspect.Signature:
    """The parameters of NumPy's function; those of ours for a builtin without a signature."""
    try:
        return inspect.signature(func)
    except ValueError:
        return inspect.signature(function)


def _weft(name: str) -> Callable[..., Any]:
    """A public function of `weft`, such as `sum` or `linalg.norm`; looked up late, because the namespace is made last."""
    import weft

    return operator.attrgetter(name)(weft)


def _t(value: Any) -> Any:
    return value if isinstance(value, Tensor) else Tensor(value)


def _reduction(name: str) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return _weft(name)(_t(a), axis=axis, keepdims=bool(keepdims))

    return reduced


def _nan_reduction(name: str) -> Callable[..., Any]:
    return lambda a, axis=None, keepdims=False: _weft(name)(_t(a), axis, bool(keepdims))


def _typed_reduction(name: str) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        given = {} if dtype is None else {"dtype": dtype}
        return _weft(name)(_t(a), axis=axis, keepdims=bool(keepdims), **given)

    return reduced


def _spread(name: str) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None, ddof: Any = 0, keepdims: bool = False, correction: Any = None) -> Any:
        divisor = ddof if correction is None else correction
        return _weft(name)(_t(a), axis=axis, correction=divisor, keepdims=bool(keepdims))

    return reduced


def _running(name: str) -> Callable[..., Any]:
    def accumulated(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        x = _t(a)
        x = x.reshape(-1) if axis is None else x
        given = {} if dtype is None else {"dtype": dtype}
        return _weft(name)(x, axis=0 if axis is None else axis, **given)

    return accumulated


def _unary(name: str, parameter: str) -> Callable[..., Any]:
    """A function of one tensor, which NumPy calls `parameter`."""
    return _with(name, parameter)


def _with(name: str, first: str, *others: str, **defaults: Any) -> Callable[..., Any]:
    """A function whose parameters mean the same in NumPy and Weft: a tensor `first`, then `others`, and those with `defaults`."""
    parameters = [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in (first, *others)]
    parameters += [
        inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v) for p, v in defaults.items()
    ]

    def function(*values: Any) -> Any:
        count = 1 + len(others)
        named = dict(zip(defaults, values[count:], strict=True))
        return _weft(name)(_t(values[0]), *values[1:count], **named)

    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _join(name: str, parameter: str) -> Callable[..., Any]:
    """A function of a sequence of tensors."""
    parameters = [inspect.Parameter(parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    has_axis = name in ("concat", "stack")
    if has_axis:
        parameters.append(inspect.Parameter("axis", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=0))

    def function(arrays: Any, *axis: Any) -> Any:
        return _weft(name)([_t(a) for a in arrays], **({"axis": axis[0]} if axis else {}))

    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _parts(x: Tensor, indices_or_sections: Any, axis: int) -> list[Tensor]:
    size = x.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        n = int(indices_or_sections)
        if n < 1 or size % n:
            raise ValueError(f"np.split: {n} equal parts of an axis of size {size} do not exist.")
        ends = [size // n * (i + 1) for i in range(n)]
    else:
        ends = [*[int(i) for i in indices_or_sections], size]
    before = (slice(None),) * (axis % x.ndim)
    return [x[(*before, slice(a, b))] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    return _parts(_t(ary), indices_or_sections, axis)


def _hsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return _parts(_t(ary), indices_or_sections, 0 if _t(ary).ndim == 1 else 1)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return _weft("nonzero")(_t(condition))
    return _weft("where")(_operand(condition), _operand(x), _operand(y))


def _dot(a: Any, b: Any) -> Any:
    a, b = _t(a), _t(b)
    if not a.ndim or not b.ndim:
        return a * b
    if a.ndim <= 2 and b.ndim <= 2:
        return _weft("matmul")(a, b)
    return _weft("tensordot")(a, b, axes=([a.ndim - 1], [max(b.ndim - 2, 0)]))


def _inner(a: Any, b: Any) -> Any:
    a, b = _t(a), _t(b)
    return _weft("tensordot")(a, b, axes=([a.ndim - 1], [b.ndim - 1])) if a.ndim and b.ndim else a * b


def _outer(a: Any, b: Any) -> Any:
    return _t(a).reshape(-1, 1) * _t(b).reshape(-1)


def _transpose(a: Any, axes: Any = None) -> Any:
    x = _t(a)
    return _weft("permute_dims")(x, tuple(range(x.ndim))[::-1] if axes is None else tuple(axes))


def _reshape(a: Any, shape: Any = None, newshape: Any = None) -> Any:
    return _weft("reshape")(_t(a), newshape if shape is None else shape)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    return _weft("clip")(_t(a), _operand(low), _operand(high))


def _take(a: Any, indices: Any, axis: Any = None) -> Any:
    x, index = _t(a), _t(indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x[(slice(None),) * (axis % x.ndim) + (index,)]


def _squeeze(a: Any, axis: Any = None) -> Any:
    x = _t(a)
    return _weft("squeeze")(x, axis=tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else axis)


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return _weft("repeat")(_t(a), _operand(repeats), axis=axis)


def _tile(A: Any, reps: Any) -> Any:
    return _weft("tile")(_t(A), (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps))


def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    if not isinstance(constant_values, (int, float, complex)):
        raise TypeError("np.pad: `constant_values=` must be one number for a tensor.")
    return _weft("pad")(_t(array), pad_width, mode=mode, value=constant_values)


def _like(name: str) -> Callable[..., Any]:
    def made(a: Any, dtype: Any = None) -> Any:
        return _weft(name)(_t(a), dtype=dtype)

    return made


def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    return _weft("full_like")(_t(a), fill_value, dtype=dtype)


def _einsum(*operands: Any) -> Any:
    return _weft("einsum")(operands[0], *[_t(v) for v in operands[1:]])


def _sort(a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Any:
    x = _t(a)
    return _weft("sort")(x.reshape(-1) if axis is None else x, axis=-1 if axis is None else axis)


def _argsort(a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Any:
    x = _t(a)
    return _weft("argsort")(x.reshape(-1) if axis is None else x, axis=-1 if axis is None else axis)


def _flip(m: Any, axis: Any = None) -> Any:
    return _weft("flip")(_t(m), axis=axis)


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return _weft("roll")(_t(a), shift, axis=axis)


def _close(name: str) -> Callable[..., Any]:
    def close(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
        found = _weft("isclose")(_t(a), _t(b), rtol=rtol, atol=atol, equal_nan=equal_nan)
        return found if name == "isclose" else bool(found.all())

    return close


def _array_equal(a1: Any, a2: Any) -> Any:
    a, b = _t(a1), _t(a2)
    return a.shape == b.shape and bool((a == b).all())


def _broadcast_to(array: Any, shape: Any) -> Any:
    return _weft("broadcast_to")(_t(array), (shape,) if isinstance(shape, int) else tuple(shape))


def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    return _weft("diff")(_t(a), n=n, axis=axis)


def _round(a: Any, decimals: int = 0) -> Any:
    return _weft("round")(_t(a), decimals)


def _diag(v: Any, k: int = 0) -> Any:
    return _weft("diag")(_t(v), k)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return _weft("linalg.diagonal")(_weft("moveaxis")(_t(a), (axis1, axis2), (-2, -1)), offset=offset)


def _triangle(name: str) -> Callable[..., Any]:
    def part(m: Any, k: int = 0) -> Any:
        return _weft(name)(_t(m), k=k)

    return part


def _quantile(name: str) -> Callable[..., Any]:
    def found(a: Any, q: Any, axis: Any = None, keepdims: bool = False) -> Any:
        scale = 100.0 if name.endswith("percentile") else 1.0
        of = name.replace("percentile", "quantile")
        level = q / scale if isinstance(q, (int, float)) else wrap(np.asarray(q, _t(a).dtype) / scale)
        return _weft(of)(_t(a), level, axis=axis, keepdims=bool(keepdims))

    return found


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return _weft("linalg.norm")(_t(x), ord, axis, keepdims=bool(keepdims))


def _spectrum(name: str) -> Callable[..., Any]:
    def transformed(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return _weft(f"fft.{name}")(_t(a), n=n, axis=axis, norm="backward" if norm is None else norm)

    return transformed


def _spectrum_n(name: str) -> Callable[..., Any]:
    def transformed(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
        return _weft(f"fft.{name}")(_t(a), s=s, axes=axes, norm="backward" if norm is None else norm)

    return transformed


def _linalg(name: str, *others: str) -> Callable[..., Any]:
    tensors = [p for p in others if p == "b"]

    def computed(*values: Any) -> Any:
        rest = [_t(v) if p in tensors else v for p, v in zip(others, values[1:], strict=True)]
        return _weft(f"linalg.{name}")(_t(values[0]), *rest)

    first = "A" if name == "matrix_rank" else "a"
    parameters = [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in (first, *others)]
    computed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return computed


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{n: _typed_reduction(n) for n in ("sum", "prod", "mean")},
    **{n: _reduction(n) for n in ("max", "min", "any", "all", "argmax", "argmin", "median", "count_nonzero")},
    **{n: _nan_reduction(n) for n in ("nanmean", "nansum")},
    "nanmedian": lambda a, axis=None: _weft("nanmedian")(_t(a), axis=axis),
    "amax": _reduction("max"), "amin": _reduction("min"),
    "std": _spread("std"), "var": _spread("var"),
    "cumsum": _running("cumulative_sum"), "cumprod": _running("cumulative_prod"),
    **{n: _quantile(n) for n in ("quantile", "percentile")},
    "concatenate": _join("concat", "arrays"), "concat": _join("concat", "arrays"), "stack": _join("stack", "arrays"),
    **{n: _join(n, "tup") for n in ("vstack", "hstack", "dstack", "column_stack")},
    "split": _split, "hsplit": _hsplit,
    "vsplit": lambda ary, indices_or_sections: _parts(_t(ary), indices_or_sections, 0),
    "dsplit": lambda ary, indices_or_sections: _parts(_t(ary), indices_or_sections, 2),
    "reshape": _reshape, "ravel": lambda a: _t(a).reshape(-1), "transpose": _transpose, "permute_dims": _transpose,
    "swapaxes": _with("swapaxes", "a", "axis1", "axis2"), "moveaxis": _with("moveaxis", "a", "source", "destination"),
    "squeeze": _squeeze, "expand_dims": lambda a, axis: _weft("expand_dims")(_t(a), axis=axis),
    "broadcast_to": _broadcast_to, "flip": _flip, "fliplr": _unary("fliplr", "m"), "flipud": _unary("flipud", "m"),
    "roll": _roll, "rot90": lambda m, k=1, axes=(0, 1): _weft("rot90")(_t(m), k, axes),
    "tile": _tile, "repeat": _repeat, "pad": _pad,
    **{n: _triangle(n) for n in ("tril", "triu")}, "diag": _diag,
    "diagonal": _diagonal,
    "trace": lambda a, offset=0: _weft("trace")(_t(a), offset=offset),
    "take": _take, "where": _where, "nonzero": _unary("nonzero", "a"), "argwhere": _unary("argwhere", "a"),
    "take_along_axis": lambda arr, indices, axis=-1: _weft("take_along_axis")(_t(arr), _t(indices), axis=axis),
    "sort": _sort, "argsort": _argsort, "clip": _clip, "round": _round, "around": _round,
    "isclose": _close("isclose"), "allclose": _close("allclose"), "array_equal": _array_equal,
    "dot": _dot, "inner": _inner, "outer": _outer, "einsum": _einsum,
    "vdot": lambda a, b: (_weft("conj")(_t(a).reshape(-1)) * _t(b).reshape(-1)).sum(),
    "tensordot": lambda a, b, axes=2: _weft("tensordot")(_t(a), _t(b), axes=axes),
    "kron": lambda a, b: _weft("kron")(_t(a), _t(b)),
    "diff": _diff, "real": lambda val: _weft("real")(_t(val)), "imag": lambda val: _weft("imag")(_t(val)),
    "copy": lambda a: _t(a).clone(),
    **{n: _like(n) for n in ("zeros_like", "ones_like")}, "full_like": _full_like,
    "empty_like": lambda prototype, dtype=None: _weft("empty_like")(_t(prototype), dtype=dtype),
    "linalg.norm": _norm,
    **{f"linalg.{n}": _linalg(n) for n in ("det", "inv", "cholesky", "slogdet", "pinv", "eigvalsh", "eigh", "matrix_rank")},
    "linalg.solve": _linalg("solve", "b"), "linalg.matrix_power": _linalg("matrix_power", "n"),
    **{f"fft.{n}": _spectrum(n) for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{n}": _spectrum_n(n) for n in ("fftn", "ifftn", "rfftn", "irfftn")},
}  # fmt: skip
