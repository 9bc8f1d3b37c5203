"""Builder for LLVM IR as text: typed values, constants and one function at a time.

Text is faster to build than a tree of Python objects, and it is what one reads when debugging.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...ops.core import scalar as s

FLOATS = ("float", "double")
_TYPES: dict[np.dtype, str] = {
    s.BOOL: "i1", s.FLOAT16: "float", s.BFLOAT16: "float", s.FLOAT32: "float", s.FLOAT64: "double",
    **{np.dtype(f"{sign}int{bits}"): f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_MEMORY_TYPES = {**_TYPES, s.BOOL: "i8", s.FLOAT16: "half", s.BFLOAT16: "i16"}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64, "half": 16}


def compute_type(dtype: np.dtype) -> str:
    """LLVM type in which values of `dtype` are computed: half precision as float, bool as i1."""
    return _TYPES[dtype]


def memory_type(dtype: np.dtype) -> str:
    """LLVM type of an element of `dtype` in memory."""
    return _MEMORY_TYPES[dtype]


class Value(NamedTuple):
    """An SSA name or literal with its scalar LLVM type and number of lanes (1: a scalar)."""

    ref: str
    type: str
    lanes: int = 1

    @property
    def full(self) -> str:
        return self.type if self.lanes == 1 else f"<{self.lanes} x {self.type}>"

    def __str__(self) -> str:
        return f"{self.full} {self.ref}"


def full_type(type_: str, lanes: int) -> str:
    return type_ if lanes == 1 else f"<{lanes} x {type_}>"


def literal(type_: str, number: float | int | bool | np.generic) -> Value:
    """A scalar constant. Floats are written as the bits of a double, the only exact form LLVM reads."""
    if type_ in FLOATS:
        if type_ == "float":
            number = np.float32(number)
        return Value(f"0x{struct.pack('>d', float(number)).hex().upper()}", type_)
    if type_ == "i1":
        return Value("true" if number else "false", type_)
    bits = BITS[type_]
    number = int(number) & ((1 << bits) - 1)
    return Value(str(number - (1 << bits) if number >> (bits - 1) else number), type_)


def is_literal(value: Value) -> bool:
    return value.ref[0] != "%"


def mangle(type_: str, lanes: int) -> str:
    """Suffix of an overloaded intrinsic: `v16f32`."""
    short = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(type_, type_)
    return short if lanes == 1 else f"v{lanes}{short}"


class FunctionBuilder:
    """A function under construction: straight-line emission into the current block.

    Stack slots go to the entry block, so that they are allocated once and promoted to registers.
    """

    def __init__(self, module: Module, name: str, args: list[Value], linkage: str = "") -> None:
        self.module = module
        self.name = name
        self.args = args
        self.linkage = linkage
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.counter = 0
        self.block = "entry"

    def fresh(self, hint: str = "v") -> str:
        self.counter += 1
        return f"%{hint}{self.counter}"

    def op(self, text: str, type_: str, lanes: int = 1) -> Value:
        """Append an instruction that yields a value."""
        ref = self.fresh()
        self.lines.append(f"  {ref} = {text}")
        return Value(ref, type_, lanes)

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}{self.counter}"

    def start(self, label: str) -> None:
        """Begin a block; the one before must have ended in a branch."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: Value, then: str, other: str) -> None:
        self.do(f"br i1 {condition.ref}, label %{then}, label %{other}")

    def slot(self, type_: str, lanes: int = 1, count: int = 1, align: int = 64) -> Value:
        """Stack memory in the entry block."""
        ref = self.fresh("slot")
        body = full_type(type_, lanes) if count == 1 else f"[{count} x {full_type(type_, lanes)}]"
        self.slots.append(f"  {ref} = alloca {body}, align {align}")
        return Value(ref, "ptr")

    def load(self, pointer: Value, type_: str, lanes: int = 1, align: int = 0) -> Value:
        tail = f", align {align}" if align else ""
        return self.op(f"load {full_type(type_, lanes)}, ptr {pointer.ref}{tail}", type_, lanes)

    def store(self, value: Value, pointer: Value, align: int = 0) -> None:
        self.do(f"store {value}, ptr {pointer.ref}{f', align {align}' if align else ''}")

    def call(self, name: str, type_: str, lanes: int, *args: Value) -> Value:
        """Call an intrinsic or function; it is declared in the module."""
        self.module.declare(name, full_type(type_, lanes), [a.full for a in args])
        return self.op(f"call {full_type(type_, lanes)} @{name}({', '.join(map(str, args))})", type_, lanes)

    def call_void(self, name: str, *args: Value) -> None:
        self.module.declare(name, "void", [a.full for a in args])
        self.do(f"call void @{name}({', '.join(map(str, args))})")

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """A vector of chosen lanes: those of `a`, then, counted on, those of `b`."""
        chosen = ", ".join(f"i32 {n}" for n in lanes)
        return self.op(f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{chosen}>", a.type, len(lanes))

    def splat(self, value: Value, lanes: int) -> Value:
        """The value in every lane."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1
        if is_literal(value):
            return Value(f"splat ({value})", value.type, lanes)
        first = self.op(f"insertelement <{lanes} x {value.type}> poison, {value}, i64 0", value.type, lanes)
        mask = f"<{lanes} x i32> zeroinitializer"
        return self.op(f"shufflevector {first}, {first.full} poison, {mask}", value.type, lanes)

    def const(self, type_: str, number: float | int | np.generic, lanes: int = 1) -> Value:
        return self.splat(literal(type_, number), lanes)

    def iota(self, type_: str, lanes: int) -> Value:
        return Value("<" + ", ".join(f"{type_} {i}" for i in range(lanes)) + ">", type_, lanes)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """An arithmetic instruction on equal types; scalar int64 literals fold, which keeps addresses constant."""
        if a.type == "i64" and a.lanes == 1:
            la, lb = is_literal(a), is_literal(b)
            if la and lb and op in ("add", "sub", "mul"):
                x, y = int(a.ref), int(b.ref)
                return literal("i64", x + y if op == "add" else x - y if op == "sub" else x * y)
            if lb and ((b.ref == "0" and op in ("add", "sub")) or (b.ref == "1" and op == "mul")):
                return a
            if la and ((a.ref == "0" and op == "add") or (a.ref == "1" and op == "mul")):
                return b
        return self.op(f"{op} {a}, {b.ref}", a.type, a.lanes)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        op = "fcmp" if a.type in FLOATS else "icmp"
        return self.op(f"{op} {predicate} {a}, {b.ref}", "i1", a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.lanes == 1 and is_literal(condition):
            return a if condition.ref == "true" else b
        return self.op(f"select {condition}, {a}, {b}", a.type, a.lanes)

    def convert(self, op: str, value: Value, type_: str) -> Value:
        return self.op(f"{op} {value} to {full_type(type_, value.lanes)}", type_, value.lanes)

    def any_lane(self, condition: Value) -> Value:
        if condition.lanes == 1:
            return condition
        name = f"llvm.vector.reduce.or.{mangle('i1', condition.lanes)}"
        return self.call(name, "i1", 1, condition)

    def text(self) -> str:
        args = ", ".join(f"{a.full} {a.ref}" for a in self.args)
        head = f"define {self.linkage + ' ' if self.linkage else ''}void @{self.name}({args}) #0 {{"
        return "\n".join([head, "entry:", *self.slots, *self.lines, "}"])


class Module:
    """Functions and the declarations they need."""

    def __init__(self, triple: str, vector_bytes: int, fma: bool) -> None:
        self.triple = triple
        self.vector_bytes = vector_bytes
        self.fma = fma
        self.functions: list[FunctionBuilder] = []
        self.declarations: dict[str, str] = {}
        self.extra: list[str] = []

    def declare(self, name: str, result: str, args: list[str]) -> None:
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"

    def text(self) -> str:
        defined = {f.name for f in self.functions}
        declarations = [text for name, text in self.declarations.items() if text and name not in defined]
        attributes = (
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{8 * self.vector_bytes}" "no-trapping-math"="true" }}'
        )
        return "\n".join(
            [f'target triple = "{self.triple}"', *self.extra, *declarations]
            + [f.text() for f in self.functions]
            + [attributes, "!0 = !{i32 1}", ""]
        )
