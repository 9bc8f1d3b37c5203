"""Scalar functions that are one or a few LLVM instructions; everything else is composed of them in `mathlib`.

Each emitter gets the function under construction, the expression and its operands as values of equal lane count.
Nothing here may trap or yield poison for any operands: masked-off lanes hold arbitrary values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...compiler.target import Target
from ...ops.core import scalar as s
from ...ops.core.scalar import Expr
from .ir import BITS, FLOATS, FunctionBuilder, Value, compute_type, full_type, literal, mangle

Emitter = Callable[[FunctionBuilder, Expr, list[Value]], Value]
EMITTERS: dict[str, Emitter] = {}


def _emits(*names: str) -> Callable[[Emitter], Emitter]:
    def register(emitter: Emitter) -> Emitter:
        for name in names:
            EMITTERS[name] = emitter
        return emitter

    return register


def _signed(expr: Expr) -> bool:
    return s.kind(expr.args[0].dtype) == "i"


def _is_float(value: Value) -> bool:
    return value.type in FLOATS


# Nothing about floating point is relaxed. Which products are fused with a sum is decided by `emit`, Note [Fused products].
_ARITHMETIC = {"add": ("fadd", "add"), "sub": ("fsub", "sub"), "mul": ("fmul", "mul")}


@_emits("add", "sub", "mul", "div", "square")
def _arithmetic(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    name = e.fn
    if name == "square":
        name, v = "mul", [v[0], v[0]]
    if name == "div":
        return f.binary("fdiv", v[0], v[1])
    if v[0].type == "i1":
        return f.binary("or" if name == "add" else "and", v[0], v[1])
    return f.binary(_ARITHMETIC[name][0 if _is_float(v[0]) else 1], v[0], v[1])


@_emits("fma")
def _fma(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    if not _is_float(v[0]):
        return f.binary("add", f.binary("mul", v[0], v[1]), v[2])
    if not f.module.fma:
        return f.binary("fadd", f.binary("fmul", v[0], v[1]), v[2])
    return f.call(f"llvm.fma.{mangle(v[0].type, v[0].lanes)}", v[0].type, v[0].lanes, *v)


@_emits("neg")
def _neg(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    x = v[0]
    return f.op(f"fneg {x}", x.type, x.lanes) if _is_float(x) else f.binary("sub", f.const(x.type, 0, x.lanes), x)


def _intrinsic(f: FunctionBuilder, name: str, *v: Value) -> Value:
    return f.call(f"llvm.{name}.{mangle(v[0].type, v[0].lanes)}", v[0].type, v[0].lanes, *v)


@_emits("abs")
def _abs(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    if _is_float(v[0]):
        return _intrinsic(f, "fabs", v[0])
    return _intrinsic(f, "abs", v[0], Value("false", "i1")) if _signed(e) else v[0]


@_emits("sign")
def _sign(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    x = v[0]
    zero, one, minus = (f.const(x.type, number, x.lanes) for number in (0, 1, -1))
    if not _is_float(x):
        positive = f.select(f.compare("ne", x, zero), one, zero)
        return f.select(f.compare("slt", x, zero), minus, positive) if _signed(e) else positive
    rest = f.select(f.compare("oeq", x, zero), zero, x)  # keeps nan, turns -0 into 0
    return f.select(f.compare("ogt", x, zero), one, f.select(f.compare("olt", x, zero), minus, rest))


@_emits("minimum", "maximum")
def _extremum(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    kind, (a, b) = s.kind(e.dtype), v
    for i, x in enumerate(e.args):
        if kind == "f" and x.fn == "const" and x.payload == x.payload:
            number, other = v[i], v[1 - i]
            return f.select(f.compare("ogt" if e.fn == "maximum" else "olt", number, other), number, other)
    return extremum(f, e.fn == "maximum", kind, a, b)


def extremum(f: FunctionBuilder, greatest: bool, kind: str, a: Value, b: Value) -> Value:
    """The greater or lesser of two values; nan wins. (`_extremum` has the case of a number beside it, one instruction.)"""
    if kind == "f":
        # The first select is one instruction on x86 (it yields b when unordered); the second lets a nan in `a` through.
        best = f.select(f.compare("ogt" if greatest else "olt", a, b), a, b)
        return f.select(f.compare("uno", a, a), a, best)
    if kind == "b":
        return f.binary("or" if greatest else "and", a, b)
    return _intrinsic(f, f"{'s' if kind == 'i' else 'u'}{'max' if greatest else 'min'}", a, b)


_PREDICATES = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


@_emits(*_PREDICATES)
def _compare(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    predicate = _PREDICATES[e.fn]
    if _is_float(v[0]):
        return f.compare(("u" if predicate == "ne" else "o") + predicate, v[0], v[1])
    if predicate in ("eq", "ne"):
        return f.compare(predicate, v[0], v[1])
    return f.compare(("s" if _signed(e) else "u") + predicate, v[0], v[1])


def truth(f: FunctionBuilder, x: Value) -> Value:
    """x != 0 as i1."""
    if x.type == "i1":
        return x
    return f.compare("une" if _is_float(x) else "ne", x, f.const(x.type, 0, x.lanes))


@_emits("logical_and", "logical_or", "logical_xor")
def _logical(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return f.binary(e.fn.removeprefix("logical_"), truth(f, v[0]), truth(f, v[1]))


@_emits("logical_not")
def _logical_not(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return f.binary("xor", truth(f, v[0]), f.const("i1", 1, v[0].lanes))


@_emits("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return f.binary(e.fn.removeprefix("bitwise_"), v[0], v[1])


@_emits("bitwise_not")
def _bitwise_not(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return f.binary("xor", v[0], f.const(v[0].type, -1 if v[0].type != "i1" else 1, v[0].lanes))


@_emits("left_shift", "right_shift")
def _shift(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    x, amount = v
    bits = BITS[x.type]
    left, signed = e.fn == "left_shift", _signed(e)
    shift = "shl" if left else "ashr" if signed else "lshr"
    constant = e.args[1]
    if constant.fn == "const" and 0 <= int(constant.payload) < bits:
        return f.binary(shift, x, amount)
    limit = f.const(x.type, bits - 1, x.lanes)
    if shift == "ashr":  # shifting by more leaves the sign
        return f.binary(shift, x, f.select(f.compare("ult", amount, limit), amount, limit))
    fits = f.compare("ule", amount, limit)
    safe = f.select(fits, amount, f.const(x.type, 0, x.lanes))
    return f.select(fits, f.binary(shift, x, safe), f.const(x.type, 0, x.lanes))


@_emits("floor_divide", "remainder")
def _divide_integers(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    a, b = v
    quotient = e.fn == "floor_divide"
    zero, one = f.const(a.type, 0, a.lanes), f.const(a.type, 1, a.lanes)
    divisor = e.args[1]
    known = int(divisor.payload) if divisor.fn == "const" else 0
    if not _signed(e):
        safe = b if known else f.select(f.compare("eq", b, zero), one, b)
        result = f.binary("udiv" if quotient else "urem", a, safe)
        return result if known else f.select(f.compare("eq", b, zero), zero, result)
    if known > 0 and known & (known - 1) == 0:  # shifts and masks already round down
        bits, mask = known.bit_length() - 1, known - 1
        return f.binary("ashr" if quotient else "and", a, f.const(a.type, bits if quotient else mask, a.lanes))
    # 0 and -1 would trap or overflow: divide by 1 instead and correct the result afterwards.
    if known > 0:
        safe = b
    else:
        odd = f.binary("or", f.compare("eq", b, zero), f.compare("eq", b, f.const(a.type, -1, a.lanes)))
        safe = f.select(odd, one, b)
    q = f.binary("sdiv", a, safe)
    r = f.binary("sub", a, f.binary("mul", q, safe))
    wrong_side = f.compare("slt", f.binary("xor", r, safe), zero)
    down = f.binary("and", f.compare("ne", r, zero), wrong_side)
    if not quotient:
        return f.select(down, f.binary("add", r, safe), r)
    result = f.select(down, f.binary("sub", q, one), q)
    if known > 0:
        return result
    result = f.select(f.compare("eq", b, zero), zero, result)
    return f.select(f.compare("eq", b, f.const(a.type, -1, a.lanes)), f.binary("sub", zero, a), result)


@_emits("pow")
def _pow_integers(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    """Square and multiply until every lane's exponent is used up."""
    base, exponent = v
    t, lanes = base.type, base.lanes
    align = 0
    slots = [f.slot(t, lanes) for _ in range(3)]
    one, zero = f.const(t, 1, lanes), f.const(t, 0, lanes)
    for slot, value in zip(slots, (one, base, exponent), strict=True):
        f.store(value, slot, align)
    head, body, done = f.label("pow"), f.label("powbody"), f.label("powend")
    f.jump(head)
    f.start(head)
    left = f.load(slots[2], t, lanes)
    f.branch(f.any_lane(f.compare("sgt" if _signed(e) else "ne", left, zero)), body, done)
    f.start(body)
    result, square = f.load(slots[0], t, lanes), f.load(slots[1], t, lanes)
    odd = f.compare("ne", f.binary("and", left, one), zero)
    active = f.compare("sgt", left, zero) if _signed(e) else odd
    use = f.binary("and", odd, active)
    f.store(f.select(use, f.binary("mul", result, square), result), slots[0])
    f.store(f.binary("mul", square, square), slots[1])
    f.store(f.binary("lshr", left, one) if not _signed(e) else f.binary("ashr", left, one), slots[2])
    f.jump(head)
    f.start(done)
    result = f.load(slots[0], t, lanes)
    if not _signed(e):
        return result
    # A negative exponent truncates 1 / x**n: 0 unless x is 1 or -1.
    minus = f.const(t, -1, lanes)
    odd = f.compare("ne", f.binary("and", exponent, one), zero)
    unit = f.select(f.compare("eq", base, minus), f.select(odd, minus, one), zero)
    unit = f.select(f.compare("eq", base, one), one, unit)
    return f.select(f.compare("slt", exponent, zero), unit, result)


@_emits("sqrt", "floor", "ceil", "trunc", "round")
def _rounding(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    if not _is_float(v[0]):
        return v[0]
    return _intrinsic(f, "roundeven" if e.fn == "round" else e.fn, v[0])


@_emits("copysign")
def _copysign(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return _intrinsic(f, "copysign", v[0], v[1])


@_emits("isnan", "isinf", "isfinite", "signbit")
def _classify(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    x = v[0]
    if not _is_float(x):
        if e.fn == "signbit" and _signed(e):
            return f.compare("slt", x, f.const(x.type, 0, x.lanes))
        return f.const("i1", e.fn == "isfinite", x.lanes)
    if e.fn == "isnan":
        return f.compare("uno", x, x)
    if e.fn == "signbit":
        bits = f.convert("bitcast", x, f"i{BITS[x.type]}")
        return f.compare("slt", bits, f.const(bits.type, 0, x.lanes))
    return f.compare("oeq" if e.fn == "isinf" else "olt", _intrinsic(f, "fabs", x), f.const(x.type, np.inf, x.lanes))


@_emits("mulhi")
def _mulhi(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    if v[0].type != "i32":
        raise TypeError(f"mulhi: defined for uint32 only. Got {e.args[0].dtype}; cast the operands.")
    wide = [f.convert("zext", x, "i64") for x in v]
    high = f.binary("lshr", f.binary("mul", *wide), f.const("i64", 32, v[0].lanes))
    return f.convert("trunc", high, "i32")


@_emits("where")
def _where(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return f.select(*v)


@_emits("bitcast")
def _bitcast(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    source, result = e.args[0].dtype, e.dtype
    if s.FLOAT16 in (source, result) or s.BFLOAT16 in (source, result):
        return from_memory(f, to_memory(f, v[0], source, raw=True), result, raw=True)
    target = compute_type(result)
    return v[0] if v[0].type == target else f.convert("bitcast", v[0], target)


@_emits("cast")
def _cast(f: FunctionBuilder, e: Expr, v: list[Value]) -> Value:
    return convert(f, v[0], e.args[0].dtype, e.dtype)


def convert(f: FunctionBuilder, x: Value, source: np.dtype, result: np.dtype) -> Value:
    """Change dtype as `dtypes.convert`; a half-precision result is rounded but stays in a float register."""
    t = compute_type(result)
    kind = s.kind(source)
    if s.kind(result) == "b":
        return truth(f, x)
    if s.kind(result) == "f":
        if kind != "f":
            x = f.convert("sitofp" if kind == "i" else "uitofp", x, t)
        elif x.type != t:
            x = f.convert("fpext" if t == "double" else "fptrunc", x, t)
        if result.itemsize == 2 and source != result:
            x = from_memory(f, to_memory(f, x, result), result)
        return x
    if kind == "f":
        return _float_to_integer(f, x, result)
    if BITS[t] == BITS[x.type]:
        return x
    return f.convert("trunc" if BITS[t] < BITS[x.type] else "sext" if kind == "i" else "zext", x, t)


def _float_to_integer(f: FunctionBuilder, x: Value, result: np.dtype) -> Value:
    """Truncate; NaN becomes 0 and out-of-range values saturate, as in `dtypes.convert`: never poison."""
    wide = "i64" if result.itemsize == 8 or result == s.UINT32 else "i32"
    name = f"llvm.fptosi.sat.{mangle(wide, x.lanes)}.{mangle(x.type, x.lanes)}"
    if result == np.uint64:
        # The upper half of uint64 does not fit int64: shift it down by 2**63 and put the bit back.
        half = f.const(x.type, 2.0**63, x.lanes)
        upper = f.compare("oge", x, half)
        y = f.call(name, wide, x.lanes, f.select(upper, f.binary("fsub", x, half), x))
        lower = _intrinsic(f, "smax", y, f.const("i64", 0, x.lanes))
        return f.select(upper, f.binary("xor", y, f.const("i64", -(2**63), x.lanes)), lower)
    y = f.call(name, wide, x.lanes, x)
    t, limits = compute_type(result), np.iinfo(result)
    if s.kind(result) == "u" or BITS[t] < BITS[wide]:
        y = _intrinsic(f, "smax", y, f.const(wide, int(limits.min), x.lanes))
        y = _intrinsic(f, "smin", y, f.const(wide, int(limits.max), x.lanes))
    return y if BITS[t] == BITS[wide] else f.convert("trunc", y, t)


def to_memory(f: FunctionBuilder, x: Value, dtype: np.dtype, raw: bool = False) -> Value:
    """The value in its storage type; with `raw`, half precision as its bits."""
    if dtype == s.BOOL:
        return f.convert("zext", x, "i8")
    if dtype == s.FLOAT16:
        half = f.convert("fptrunc", x, "half")
        return f.convert("bitcast", half, "i16") if raw else half
    if dtype == s.BFLOAT16:
        lanes = x.lanes
        bits = f.convert("bitcast", x, "i32")
        sixteen = f.const("i32", 16, lanes)
        even = f.binary("and", f.binary("lshr", bits, sixteen), f.const("i32", 1, lanes))
        rounded = f.binary("add", f.binary("add", bits, f.const("i32", 0x7FFF, lanes)), even)
        quiet = f.binary("or", bits, f.const("i32", 0x400000, lanes))
        bits = f.select(f.compare("uno", x, x), quiet, rounded)
        return f.convert("trunc", f.binary("lshr", bits, sixteen), "i16")
    return x


def from_memory(f: FunctionBuilder, x: Value, dtype: np.dtype, raw: bool = False) -> Value:
    """The inverse of `to_memory`."""
    if dtype == s.BOOL:
        return f.compare("ne", x, f.const("i8", 0, x.lanes))
    if dtype == s.FLOAT16:
        half = f.convert("bitcast", x, "half") if x.type == "i16" else x
        return f.convert("fpext", half, "float")
    if dtype == s.BFLOAT16:
        wide = f.binary("shl", f.convert("zext", x, "i32"), f.const("i32", 16, x.lanes))
        return f.convert("bitcast", wide, "float")
    return x


def library_call(f: FunctionBuilder, name: str, v: list[Value]) -> Value:
    """Call a C function once per lane: for rare arguments whose treatment would bloat every kernel."""
    t, lanes = v[0].type, v[0].lanes
    symbol = name + ("f" if t == "float" else "")
    if lanes == 1:
        return f.call(symbol, t, 1, *v)
    result = Value("poison", t, lanes)
    for lane in range(lanes):
        parts = [f.op(f"extractelement {x}, i64 {lane}", t) for x in v]
        y = f.call(symbol, t, 1, *parts)
        result = f.op(f"insertelement {full_type(t, lanes)} {result.ref}, {y}, i64 {lane}", t, lanes)
    return result


def scale(f: FunctionBuilder, target: Target, v: list[Value]) -> Value | None:
    """x * 2**n by the target's own instruction, if it has one for this vector; operands x, n, n as a float."""
    x, _, n = v
    if not target.has("avx512f") or BITS[x.type] * x.lanes != 512:
        return None
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if x.type == 'float' else 'pd'}.512"
    mask = Value("-1", f"i{x.lanes}")
    nothing = Value("zeroinitializer", x.type, x.lanes)
    nearest = Value("4", "i32")  # rounding: as the thread's current mode
    f.module.declare(name, x.full, [x.full, x.full, x.full, mask.full, "i32 immarg"])
    return f.call(name, x.type, x.lanes, x, n, nothing, mask, nearest)


def constant(f: FunctionBuilder, e: Expr) -> Value:
    """A `const` leaf."""
    return literal(compute_type(e.dtype), e.payload)
