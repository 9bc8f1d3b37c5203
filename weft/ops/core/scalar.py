"""The scalar language: elementwise functions written once, for NumPy and for the compiler.

Every function dispatches on its arguments. On NumPy arrays and numbers it computes with NumPy; on an `Expr` it builds a
larger `Expr`, which the compiler turns into native code::

    from weft.ops.core import scalar as s

    def gelu(x):
        return 0.5 * x * (1 + s.erf(x * 0.7071067811865476))

    gelu(np.float32([1, 2]))                # array([0.84134475, 1.9544997], dtype=float32)
    s.trace(gelu, [np.float32])             # 0.5 * x0 * (1 + erf(x0 * 0.7071068)), an Expr

Contract
* Types promote as in the array API; a Python number is weak: it takes the type of the other operand.
* An `Expr` has a real type (bool, integers, float16, bfloat16, float32, float64). Complex arrays are left to NumPy.
* An `Expr` is immutable and hash-consed: building the same expression twice gives the same object, so `is`, `==`
  and `hash` are structural and cheap. An elementwise comparison is `s.eq(x, y)` or `x.eq(y)`.
* float16 and bfloat16 expressions are *computed in float32* and rounded when stored or `cast`.
* Float to integer conversion truncates; NaN gives 0 and values out of range saturate (`dtypes.convert`).
* Integer division by zero gives 0, and shifts by the width or more give 0 (or the sign), never a trap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from ... import dtypes
from ...runtime import forks
from . import numpy_special as _special

Number = bool | int | float | np.generic
Term = Any  # an Expr, an array or a number; results are of the same kind

BOOL = np.dtype(np.bool_)
INT8 = np.dtype(np.int8)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)
FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
DTYPES: tuple[np.dtype, ...] = (
    BOOL, *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    FLOAT16, BFLOAT16, FLOAT32, FLOAT64,
)  # fmt: skip


def kind(dtype: np.dtype) -> str:
    """'b' bool, 'i' signed, 'u' unsigned, 'f' floating (bfloat16 too, whose NumPy kind is 'V')."""
    return "f" if dtype == BFLOAT16 else dtype.kind


def result_type(*operands: Any) -> np.dtype:
    """The promoted type of dtypes, expressions and weak Python numbers.

    NumPy's rules, completed for bfloat16: with float16 it gives float32; integers and Python floats leave it.
    """
    strong: list[np.dtype] = []
    weak: list[Any] = []
    for operand in operands:
        if isinstance(operand, Expr):
            strong.append(operand.dtype)
        elif type(operand) in (bool, int, float):
            weak.append(operand)
        else:
            strong.append(operand.dtype if isinstance(operand, np.generic) else np.dtype(operand))
    if BFLOAT16 not in strong:
        return np.result_type(*strong, *weak)
    others = [dtype for dtype in strong if dtype != BFLOAT16 and kind(dtype) == "f"]
    if not others:
        return BFLOAT16
    return np.result_type(FLOAT32, *others)


def float_type(dtype: np.dtype) -> np.dtype:
    """The type in which NumPy evaluates `exp` and friends for an argument of `dtype`."""
    if kind(dtype) == "f":
        return dtype
    return FLOAT16 if dtype.itemsize == 1 else FLOAT32 if dtype.itemsize == 2 else FLOAT64


class Expr:
    """A scalar expression: function name, argument expressions, result dtype and (for leaves) a payload.

    Leaves are `const` (payload: a NumPy scalar), `arg` (position), `index` and `var` (name), `param` (name of
    a run-time integer) and `load` (a buffer; its arguments are the indices). Reductions are statements of the
    loop IR, not expressions.
    """

    __slots__ = ("__weakref__", "args", "dtype", "fn", "payload")
    __array_ufunc__ = None  # NumPy scalars on the left defer to our reflected operators

    fn: str
    args: tuple[Expr, ...]
    dtype: np.dtype
    payload: Any

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Expr: immutable. Got an assignment to {name!r}; build a new expression.")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (bool, int, float, np.generic)):
            raise TypeError("Expr: == compares expressions, not values. Got a number; write s.eq(x, y).")
        return self is other

    def __bool__(self) -> bool:
        raise TypeError("Expr: no truth value while tracing. Use s.where(condition, a, b) instead of if.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _intern, (self.fn, self.args, self.dtype, self.payload)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Expr:
        return self

    # fmt: off
    def __add__(self, other: Term) -> Expr: return add(self, other)
    def __radd__(self, other: Term) -> Expr: return add(other, self)
    def __sub__(self, other: Term) -> Expr: return sub(self, other)
    def __rsub__(self, other: Term) -> Expr: return sub(other, self)
    def __mul__(self, other: Term) -> Expr: return mul(self, other)
    def __rmul__(self, other: Term) -> Expr: return mul(other, self)
    def __truediv__(self, other: Term) -> Expr: return div(self, other)
    def __rtruediv__(self, other: Term) -> Expr: return div(other, self)
    def __floordiv__(self, other: Term) -> Expr: return floor_divide(self, other)
    def __rfloordiv__(self, other: Term) -> Expr: return floor_divide(other, self)
    def __mod__(self, other: Term) -> Expr: return remainder(self, other)
    def __rmod__(self, other: Term) -> Expr: return remainder(other, self)
    def __pow__(self, other: Term) -> Expr: return pow(self, other)
    def __rpow__(self, other: Term) -> Expr: return pow(other, self)
    def __and__(self, other: Term) -> Expr: return bitwise_and(self, other)
    def __rand__(self, other: Term) -> Expr: return bitwise_and(other, self)
    def __or__(self, other: Term) -> Expr: return bitwise_or(self, other)
    def __ror__(self, other: Term) -> Expr: return bitwise_or(other, self)
    def __xor__(self, other: Term) -> Expr: return bitwise_xor(self, other)
    def __rxor__(self, other: Term) -> Expr: return bitwise_xor(other, self)
    def __lshift__(self, other: Term) -> Expr: return left_shift(self, other)
    def __rlshift__(self, other: Term) -> Expr: return left_shift(other, self)
    def __rshift__(self, other: Term) -> Expr: return right_shift(self, other)
    def __rrshift__(self, other: Term) -> Expr: return right_shift(other, self)
    def __lt__(self, other: Term) -> Expr: return lt(self, other)
    def __le__(self, other: Term) -> Expr: return le(self, other)
    def __gt__(self, other: Term) -> Expr: return gt(self, other)
    def __ge__(self, other: Term) -> Expr: return ge(self, other)
    def eq(self, other: Term) -> Expr: return eq(self, other)
    def ne(self, other: Term) -> Expr: return ne(self, other)
    def __neg__(self) -> Expr: return neg(self)
    def __pos__(self) -> Expr: return self
    def __abs__(self) -> Expr: return abs(self)
    def __invert__(self) -> Expr: return bitwise_not(self)
    def astype(self, dtype: DTypeLike) -> Expr: return cast(self, dtype)
    # fmt: on

    def __repr__(self) -> str:
        lines, (result,) = format_exprs([self])
        return "; ".join([*lines, result])


# Uniqueness. The table holds its values weakly: an unused expression is freed with its entry.
_unique: WeakValueDictionary[Any, Expr] = WeakValueDictionary()
_lock = forks.held_over_fork()


def _intern(fn: str, args: tuple[Expr, ...], dtype: np.dtype, payload: Any = None) -> Expr:
    # Constants are distinguished by their bits: 0.0 == -0.0 and nan != nan would mislead the table.
    key = (fn, args, dtype, payload.tobytes() if fn == "const" else payload)
    with _lock:
        found = _unique.get(key)
        if found is None:
            found = Expr.__new__(Expr)
            for name, value in (("fn", fn), ("args", args), ("dtype", dtype), ("payload", payload)):
                object.__setattr__(found, name, value)
            _unique[key] = found
    return found


def make(fn: str, args: Sequence[Expr], dtype: np.dtype, payload: Any = None) -> Expr:
    """A node without checks, for backends that lower to their own functions."""
    return _intern(fn, tuple(args), dtype, payload)


# ---------------------------------------------------------------------------------------------------- leaves


def const(value: Number, dtype: DTypeLike | None = None) -> Expr:
    """A constant. Without `dtype`: a NumPy scalar's own, else bool, int64 or float32 (the default float)."""
    if dtype is None and isinstance(value, np.generic):
        dtype = value.dtype
    elif dtype is None:
        dtype = BOOL if isinstance(value, bool) else INT64 if isinstance(value, int) else FLOAT32
    dtype = _real(dtype, "const")
    if isinstance(value, (float, np.generic)):
        with np.errstate(all="ignore"):
            return _intern("const", (), dtype, np.asarray(value).astype(dtype)[()])
    return _intern("const", (), dtype, np.asarray(value, dtype)[()])  # a Python integer out of range raises


def arg(position: int, dtype: DTypeLike) -> Expr:
    """The `position`-th operand of an elementwise function."""
    return _intern("arg", (), _real(dtype, "arg"), int(position))


def index(name: str | int) -> Expr:
    """The value (int64) of a loop index, by the loop variable's name or an axis number."""
    return _intern("index", (), INT64, name)


def param(name: str) -> Expr:
    """A run-time integer (int64) handed to the kernel: an extent or a stride."""
    return _intern("param", (), INT64, name)


def var(name: str, dtype: DTypeLike) -> Expr:
    """A scalar that a statement of the loop IR defines: a `Let`, or an accumulator's value."""
    return _intern("var", (), _real(dtype, "var"), name)


def load(buffer: Any, indices: Sequence[Expr | int]) -> Expr:
    """The element of `buffer` (anything hashable with a `dtype`) at integer `indices`."""
    where_ = tuple(i if isinstance(i, Expr) else const(i, INT64) for i in indices)
    for i in where_:
        if kind(i.dtype) not in "iu":
            raise TypeError(f"load: an index must be an integer. Got {i.dtype} for {i!r}; cast it.")
    return _intern("load", where_, _real(buffer.dtype, "load"), buffer)


def _real(dtype: DTypeLike, where_: str) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype not in DTYPES:
        raise TypeError(
            f"{where_}: no native code for this dtype. Got {dtype}; expected one of bool, (u)int8-64, "
            "float16, bfloat16, float32, float64 in native byte order."
        )
    return dtype


# ----------------------------------------------------------------------------------------- building functions


class ScalarFn(NamedTuple):
    """What is known of one function: `kinds` it accepts ('b', 'i', 'u', 'f'; 'B': bools, as int8), its result and its NumPy
    form.

    `result` is "same" (as the promoted operands), "float" (as NumPy's `exp`), "bool" or "divide".
    """

    name: str
    arity: int
    kinds: str
    result: str
    numpy: Callable[..., Any]
    doc: str


FUNCTIONS: dict[str, ScalarFn] = {}
"""Every function by name: what a backend emits, besides `where`, `cast`, `bitcast` and the leaves."""


def _operands(name: str, operands: Sequence[Term]) -> tuple[list[Expr], np.dtype]:
    """Promote operands, of which at least one is an Expr, to one dtype."""
    for x in operands:
        if not isinstance(x, (Expr, bool, int, float, np.generic)):
            raise TypeError(
                f"{name}: an expression meets a {type(x).__name__}. Expected expressions and numbers only; "
                "make the array an argument of the traced function."
            )
    dtype = result_type(*operands)
    if dtype not in DTYPES:
        raise TypeError(f"{name}: no native code for complex numbers. Got operands promoting to {dtype}.")
    return [cast(x, dtype) if isinstance(x, Expr) else const(x, dtype) for x in operands], dtype


def _build(fn: ScalarFn, operands: Sequence[Term]) -> Expr:
    args, dtype = _operands(fn.name, operands)
    k = kind(dtype)
    if k not in fn.kinds:
        if fn.result in ("float", "divide") and k in "biu":
            dtype = FLOAT64 if fn.result == "divide" else float_type(dtype)
            args = [cast(x, dtype) for x in args]
        elif k == "b" and "B" in fn.kinds:
            dtype = INT8
            args = [cast(x, dtype) for x in args]
        else:
            raise TypeError(f"{fn.name}: not defined for this dtype. Got {dtype}; cast the operands first.")
    if dtype == INT64 and (folded := _fold_index(fn.name, args)) is not None:
        return folded
    return _intern(fn.name, tuple(args), BOOL if fn.result == "bool" else dtype)


def _fold_index(name: str, args: list[Expr]) -> Expr | None:
    """Simplify int64 arithmetic, exactly, so that index expressions stay readable and affine."""
    if name not in ("add", "sub", "mul"):
        return None
    a, b = args
    ca, cb = (x.payload if x.fn == "const" else None for x in args)
    if ca is not None and cb is not None:
        with np.errstate(over="ignore"):
            return const(FUNCTIONS[name].numpy(ca, cb))
    if name == "mul":
        if (ca is not None and ca == 0) or (cb is not None and cb == 1):
            return a
        if (cb is not None and cb == 0) or (ca is not None and ca == 1):
            return b
    elif cb is not None and cb == 0:
        return a
    elif name == "add" and ca is not None and ca == 0:
        return b
    return None


_PYTHON_NUMBERS = (float, int)


def _numpy_weak(operands: Sequence[Term]) -> Sequence[Term]:
    """Give Python numbers the type of a bfloat16 partner; NumPy itself would widen the result."""
    for x in operands:
        if getattr(x, "dtype", None) == BFLOAT16:
            return [ml_dtypes.bfloat16(x) if type(x) in _PYTHON_NUMBERS else x for x in operands]
    return operands


def _define(
    name: str, kinds: str, result: str, numpy: Callable[..., Any], doc: str, arity: int = 1
) -> Callable[..., Any]:
    fn = FUNCTIONS[name] = ScalarFn(name, arity, kinds, result, numpy, doc)
    if arity == 1:

        def call(x: Term, /) -> Any:
            return _build(fn, (x,)) if type(x) is Expr else numpy(x)

    elif arity == 2:

        def call(x: Term, y: Term, /) -> Any:  # type: ignore[misc]
            tx, ty = type(x), type(y)
            if tx is Expr or ty is Expr:
                return _build(fn, (x, y))
            if ty in _PYTHON_NUMBERS or tx in _PYTHON_NUMBERS:
                x, y = _numpy_weak((x, y))
            return numpy(x, y)

    else:

        def call(x: Term, y: Term, z: Term, /) -> Any:  # type: ignore[misc]
            if type(x) is Expr or type(y) is Expr or type(z) is Expr:
                return _build(fn, (x, y, z))
            return numpy(*_numpy_weak((x, y, z)))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


# -------------------------------------------------------------------------------------------------- functions

add = _define("add", "biuf", "same", np.add, "`x + y`; logical or for bools.", 2)
sub = _define("sub", "iuf", "same", np.subtract, "`x - y`.", 2)
mul = _define("mul", "biuf", "same", np.multiply, "`x * y`; logical and for bools.", 2)
div = _define("div", "f", "divide", np.true_divide, "True division; integers divide as float64.", 2)
floor_divide = _define("floor_divide", "Biuf", "same", np.floor_divide, "Quotient, rounded down.", 2)
remainder = _define("remainder", "Biuf", "same", np.remainder, "Remainder with the sign of the divisor.", 2)
pow = _define("pow", "Biuf", "same", np.power, "`x ** y`; integers wrap around.", 2)
neg = _define("neg", "iuf", "same", np.negative, "`-x`.")
abs = _define("abs", "biuf", "same", np.abs, "Magnitude.")
sign = _define("sign", "iuf", "same", np.sign, "-1, 0 or 1; nan for nan.")
minimum = _define("minimum", "biuf", "same", np.minimum, "The lesser; nan if either is nan.", 2)
maximum = _define("maximum", "biuf", "same", np.maximum, "The greater; nan if either is nan.", 2)
fma = _define("fma", "iuf", "same", lambda x, y, z: x * y + z, "`x * y + z`, rounded once in native code.", 3)

lt = _define("lt", "biuf", "bool", np.less, "`x < y`.", 2)
le = _define("le", "biuf", "bool", np.less_equal, "`x <= y`.", 2)
eq = _define("eq", "biuf", "bool", np.equal, "`x == y`, elementwise.", 2)
ne = _define("ne", "biuf", "bool", np.not_equal, "`x != y`, elementwise.", 2)
gt = _define("gt", "biuf", "bool", np.greater, "`x > y`.", 2)
ge = _define("ge", "biuf", "bool", np.greater_equal, "`x >= y`.", 2)

logical_and = _define("logical_and", "biuf", "bool", np.logical_and, "Both nonzero.", 2)
logical_or = _define("logical_or", "biuf", "bool", np.logical_or, "Either nonzero.", 2)
logical_xor = _define("logical_xor", "biuf", "bool", np.logical_xor, "Exactly one nonzero.", 2)
logical_not = _define("logical_not", "biuf", "bool", np.logical_not, "Zero.")
bitwise_and = _define("bitwise_and", "biu", "same", np.bitwise_and, "`x & y`.", 2)
bitwise_or = _define("bitwise_or", "biu", "same", np.bitwise_or, "`x | y`.", 2)
bitwise_xor = _define("bitwise_xor", "biu", "same", np.bitwise_xor, "`x ^ y`.", 2)
bitwise_not = _define("bitwise_not", "biu", "same", np.invert, "`~x`.")
left_shift = _define("left_shift", "iu", "same", np.left_shift, "`x << y`; 0 once y reaches the width.", 2)
right_shift = _define("right_shift", "iu", "same", np.right_shift, "`x >> y`, arithmetic for signed types.", 2)
mulhi = _define("mulhi", "u", "same", _special.mulhi, "Upper 32 bits of the 64-bit product of two uint32.", 2)

exp = _define("exp", "f", "float", np.exp, "e to the x.")
exp2 = _define("exp2", "f", "float", np.exp2, "2 to the x.")
expm1 = _define("expm1", "f", "float", np.expm1, "`exp(x) - 1`, accurate near 0.")
log = _define("log", "f", "float", np.log, "Natural logarithm.")
log1p = _define("log1p", "f", "float", np.log1p, "`log(1 + x)`, accurate near 0.")
log2 = _define("log2", "f", "float", np.log2, "Logarithm to base 2.")
log10 = _define("log10", "f", "float", np.log10, "Logarithm to base 10.")
sqrt = _define("sqrt", "f", "float", np.sqrt, "Square root.")
rsqrt = _define("rsqrt", "f", "float", _special.rsqrt, "`1 / sqrt(x)`.")
reciprocal = _define("reciprocal", "f", "float", _special.reciprocal, "`1 / x`.")
square = _define("square", "Biuf", "same", np.square, "`x * x`.")
sin = _define("sin", "f", "float", np.sin, "Sine, x in radians.")
cos = _define("cos", "f", "float", np.cos, "Cosine, x in radians.")
tan = _define("tan", "f", "float", np.tan, "Tangent, x in radians.")
asin = _define("asin", "f", "float", np.arcsin, "Inverse sine.")
acos = _define("acos", "f", "float", np.arccos, "Inverse cosine.")
atan = _define("atan", "f", "float", np.arctan, "Inverse tangent.")
atan2 = _define("atan2", "f", "float", np.arctan2, "Angle of the point (y, x): `atan2(y, x)`.", 2)
sinh = _define("sinh", "f", "float", np.sinh, "Hyperbolic sine.")
cosh = _define("cosh", "f", "float", np.cosh, "Hyperbolic cosine.")
tanh = _define("tanh", "f", "float", np.tanh, "Hyperbolic tangent.")
asinh = _define("asinh", "f", "float", np.arcsinh, "Inverse hyperbolic sine.")
acosh = _define("acosh", "f", "float", np.arccosh, "Inverse hyperbolic cosine.")
atanh = _define("atanh", "f", "float", np.arctanh, "Inverse hyperbolic tangent.")
erf = _define("erf", "f", "float", _special.erf, "Error function.")
erfc = _define("erfc", "f", "float", _special.erfc, "`1 - erf(x)`, accurate for large x.")
lgamma = _define("lgamma", "f", "float", _special.lgamma, "log |gamma(x)|.")
sigmoid = _define("sigmoid", "f", "float", _special.sigmoid, "`1 / (1 + exp(-x))`, without overflow.")

floor = _define("floor", "biuf", "same", np.floor, "Round down; integers as they are.")
ceil = _define("ceil", "biuf", "same", np.ceil, "Round up; integers as they are.")
trunc = _define("trunc", "biuf", "same", np.trunc, "Round to zero; integers as they are.")
round = _define("round", "biuf", "same", _special.round_half_even, "Round to nearest, halves to even.")
isnan = _define("isnan", "biuf", "bool", np.isnan, "Not a number.")
isinf = _define("isinf", "biuf", "bool", np.isinf, "Plus or minus infinity.")
isfinite = _define("isfinite", "biuf", "bool", np.isfinite, "Neither nan nor infinite.")
signbit = _define("signbit", "biuf", "bool", _special.signbit, "The sign bit is set (also of -0.0 and -nan).")
copysign = _define("copysign", "f", "float", np.copysign, "Magnitude of x, sign of y.", 2)
nextafter = _define("nextafter", "f", "float", np.nextafter, "The next number after x towards y.", 2)
hypot = _define("hypot", "f", "float", np.hypot, "`sqrt(x*x + y*y)` without overflow.", 2)
logaddexp = _define("logaddexp", "f", "float", np.logaddexp, "`log(exp(x) + exp(y))` without overflow.", 2)


def where(condition: Term, x: Term, y: Term, /) -> Any:
    """`x` where `condition` holds, else `y`."""
    if type(condition) is not Expr and type(x) is not Expr and type(y) is not Expr:
        return np.where(condition, *_numpy_weak((x, y)))
    if type(condition) is not Expr:
        raise TypeError("where: the condition is not an expression. Got a "
                        f"{type(condition).__name__}; compare with s.eq(x, y), not with ==.")  # fmt: skip
    if type(x) is not Expr and type(y) is not Expr:
        dtype = result_type(x, y)
        if isinstance(x, float) or isinstance(y, float):
            dtype = FLOAT32 if not isinstance(x, np.generic) and not isinstance(y, np.generic) else dtype
        x, y = const(x, dtype), const(y, dtype)
    (x, y), dtype = _operands("where", (x, y))
    return _intern("where", (cast(condition, BOOL), x, y), dtype)


def cast(x: Term, dtype: DTypeLike) -> Any:
    """Convert as `dtypes.convert`: floats truncate towards zero to integers and stay in range, nonzero is True."""
    if type(x) is not Expr:
        x, dtype = np.asarray(x), np.dtype(dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            return (x if x.dtype == dtype else dtypes.convert(x, dtype))[()]
    dtype = _real(dtype, "cast")
    if dtype == x.dtype:
        return x
    if x.fn == "const" and kind(dtype) == "f" and kind(x.dtype) == "f" and dtype.itemsize >= x.dtype.itemsize:
        return const(x.payload, dtype)
    if x.fn == "const" and dtype == INT64 and kind(x.dtype) in "biu":
        return const(x.payload, dtype)
    return _intern("cast", (x,), dtype)


def bitcast(x: Term, dtype: DTypeLike) -> Any:
    """The same bits read as another type of the same size."""
    if type(x) is not Expr:
        return np.asarray(x).view(dtype)[()]
    dtype = _real(dtype, "bitcast")
    if dtype.itemsize != x.dtype.itemsize or BOOL in (dtype, x.dtype):
        raise TypeError(f"bitcast: sizes differ. Got {x.dtype} to {dtype}; expected types of one size, not bool.")
    return x if dtype == x.dtype else _intern("bitcast", (x,), dtype)


# ------------------------------------------------------------------------------------------ using expressions


def trace(fn: Callable[..., Any], kinds: Sequence[DTypeLike]) -> Any:
    """Call `fn` on one `arg` leaf per dtype; returns its Expr or tuple of them. Numbers become constants."""
    result = fn(*[arg(i, dtype) for i, dtype in enumerate(kinds)])

    def as_expr(x: Any) -> Expr:
        if isinstance(x, Expr):
            return x
        if isinstance(x, (bool, int, float, np.generic)):
            return const(x)
        raise TypeError(f"trace: the function must return expressions. Got a {type(x).__name__}.")

    return tuple(map(as_expr, result)) if isinstance(result, (tuple, list)) else as_expr(result)


def topological(roots: Iterable[Expr]) -> Iterator[Expr]:
    """Every node under `roots` once, arguments before users; iterative, so depth is unlimited."""
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready or not node.args:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.args))


def rebuild(node: Expr, args: Sequence[Expr]) -> Expr:
    """The same function on other arguments of the same dtypes."""
    if node.dtype == INT64 and (folded := _fold_index(node.fn, list(args))) is not None:
        return folded
    return _intern(node.fn, tuple(args), node.dtype, node.payload)


def substitute(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `expr` with nodes replaced by the expressions that `replace` returns for them.

    `replace` is called on a node before its arguments; its result is not visited again.
    """
    done: dict[Expr, Expr] = {}
    stack = [expr]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        new = replace(node)
        if new is not None:
            if new.dtype != node.dtype:
                raise TypeError(f"substitute: dtype changed. Got {new.dtype}; expected {node.dtype} for {node!r}.")
            done[stack.pop()] = new
            continue
        missing = [child for child in node.args if child not in done]
        if missing:
            stack.extend(missing)
            continue
        args = tuple(done[child] for child in node.args)
        done[stack.pop()] = node if args == node.args else rebuild(node, args)
    return done[expr]


_INFIX = {
    "bitwise_or": ("|", 2), "bitwise_xor": ("^", 3), "bitwise_and": ("&", 4), "left_shift": ("<<", 5),
    "right_shift": (">>", 5), "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7),
    "floor_divide": ("//", 7), "remainder": ("%", 7), "pow": ("**", 9),
    "lt": ("<", 1), "le": ("<=", 1), "eq": ("==", 1), "ne": ("!=", 1), "gt": (">", 1), "ge": (">=", 1),
}  # fmt: skip
_ATOM = 10


def format_exprs(exprs: Sequence[Expr], prefix: str = "t") -> tuple[list[str], list[str]]:
    """Format expressions: (definitions of shared subexpressions such as `t0 = exp(x0)`, one text per expression)."""
    nodes = list(topological(exprs))
    uses: dict[Expr, int] = dict.fromkeys(nodes, 0)
    for node in nodes:
        for child in node.args:
            uses[child] += 1
    lines: list[str] = []
    text: dict[Expr, tuple[str, int]] = {}  # node -> (text, how tightly it binds)

    def wrapped(node: Expr, level: int) -> str:
        body, binds = text[node]
        return body if binds >= level else f"({body})"

    for node in nodes:
        if node.fn in _INFIX:
            symbol, level = _INFIX[node.fn]
            a, b = node.args
            body = f"{wrapped(a, level if level > 1 else 2)} {symbol} {wrapped(b, level + 1)}"
        elif node.fn == "neg":
            body, level = f"-{wrapped(node.args[0], 8)}", 8
        elif node.fn in ("cast", "bitcast"):
            call = "" if node.fn == "cast" else "bits_"
            body, level = f"{call}{node.dtype.name}({text[node.args[0]][0]})", _ATOM
        elif node.fn == "load":
            body, level = f"{node.payload.name}[{', '.join(text[i][0] for i in node.args)}]", _ATOM
        elif node.fn == "const":
            body = _format_const(node)
            level = 8 if body.startswith("-") else _ATOM
        elif node.fn in ("arg", "index", "var", "param"):
            body = f"x{node.payload}" if node.fn == "arg" else str(node.payload)
            body, level = f"i{body}" if node.fn == "index" and isinstance(node.payload, int) else body, _ATOM
        else:
            body, level = f"{node.fn}({', '.join(text[x][0] for x in node.args)})", _ATOM
        # Name shared subexpressions, unless they are as short as a name.
        if uses[node] > 1 and node.args and len(body) > 8 and node not in exprs:
            name = f"{prefix}{len(lines)}"
            lines.append(f"{name} = {body}")
            body, level = name, _ATOM
        text[node] = (body, level)
    return lines, [text[x][0] for x in exprs]


def _format_const(node: Expr) -> str:
    value = node.payload
    if kind(node.dtype) == "f":
        as_float = float(value)
        short = as_float.is_integer() and math.copysign(as_float, 1) < 1e6 and not np.signbit(value)
        return str(int(as_float)) if short else str(value)
    return str(value)
