"""Short elementwise programs as data: the epilogue or prologue that a fused op applies to values in registers.

    IDENTITY.extended("multiply", Input(1, True)).extended("add", Input(2, True)).extended("relu")

is `relu(product * scale + shift)` with a scale and a shift per channel. An epilogue is hashable, so it serves as an op
attribute and as a key of kernel caches. Its one interpreter, `apply_all`, is parametrised by an *algebra*: what it means to
apply an op. `compute` runs the ops on arrays, `reference` is the NumPy truth of tests, `expression` makes scalar
expressions for generated kernels; `weft.backends.onednn.post_ops` makes post-ops, and passes make nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import define
from ..core.registry import table


@dataclass(frozen=True, slots=True)
class Input:
    """Input `index` of the program: 0 is the value that the fused op computes (or reads, in a prologue), others are operands.

    `per_channel`: it has one element per channel (per column of a matrix). Otherwise it has one per element of the result, or
    its strides say how it is broadcast.
    """

    index: int
    per_channel: bool = False

    def __repr__(self) -> str:
        return f"{'c' if self.per_channel else 'x'}{self.index}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an earlier step."""

    step: int

    def __repr__(self) -> str:
        return f"r{self.step}"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A number. Equal constants have equal bits: -0.0 is not 0.0, and NaN equals itself."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.value.hex() == other.value.hex()

    def __hash__(self) -> int:
        return hash(self.value.hex())

    def __repr__(self) -> str:
        return repr(self.value)


Operand = Input | Result | Constant
Algebra = Callable[[str, list[Any]], Any]
"""`algebra(op name, operands)`: the result of an op; constants are given as floats."""


@dataclass(frozen=True, slots=True)
class Apply:
    """A step: the elementwise op of this name, without attributes, applied to its operands."""

    op: str
    operands: tuple[Operand, ...]

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.operands))})"


PRODUCT = Input(0)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Steps in order and the program's results; by default the identity."""

    steps: tuple[Apply, ...] = ()
    results: tuple[Operand, ...] = (PRODUCT,)

    def __repr__(self) -> str:
        return f"Epilogue({', '.join(map(repr, self.steps))} -> {', '.join(map(repr, self.results))})"

    @property
    def names(self) -> tuple[str, ...]:
        """The op of every step."""
        return tuple([step.op for step in self.steps])

    @property
    def operands(self) -> tuple[Input, ...]:
        """The inputs that steps and results read, without the first one, in order."""
        read = [o for step in self.steps for o in step.operands] + [*self.results]
        return tuple(sorted({o for o in read if isinstance(o, Input) and o.index > 0}, key=lambda o: o.index))

    @property
    def num_inputs(self) -> int:
        """The number of inputs up to the last one that is read, the first one included."""
        return 1 + max([o.index for o in self.operands], default=0)

    def extended(self, op: str, *operands: Operand) -> Epilogue:
        """The same program, its one result replaced by `op(result, *operands)`."""
        (result,) = self.results
        return Epilogue((*self.steps, Apply(op, (result, *operands))), (Result(len(self.steps)),))

    def without_bias(self) -> tuple[Input | None, Epilogue]:
        """The per-channel operand that the first step adds, if it does, and the other steps."""
        match self.steps:
            case (Apply("add", (Input(0), Input(per_channel=True) as bias)), *rest):
                back = lambda o: (PRODUCT if o.step == 0 else Result(o.step - 1)) if isinstance(o, Result) else o
                steps = [Apply(step.op, tuple(map(back, step.operands))) for step in rest]
                return bias, Epilogue(tuple(steps), tuple(map(back, self.results)))
        return None, self

    def apply_all(self, algebra: Algebra, inputs: Sequence[Any]) -> list[Any]:
        """The results of the program, with ops applied by `algebra`."""
        made: list[Any] = []

        def value(operand: Operand) -> Any:
            match operand:
                case Input(index=i):
                    return inputs[i]
                case Result(step=i):
                    return made[i]
                case Constant(value=number):
                    return number

        for step in self.steps:
            made.append(algebra(step.op, [value(o) for o in step.operands]))
        return [value(o) for o in self.results]

    def apply(self, algebra: Algebra, inputs: Sequence[Any]) -> Any:
        """The one result of the program."""
        (result,) = self.apply_all(algebra, inputs)
        return result


IDENTITY = Epilogue()
BIAS = IDENTITY.extended("add", Input(1, per_channel=True))


def check_epilogue(epilogue: Any, operands: int | None) -> None:
    """Raise unless this is an epilogue, of one result and this number of operands if that is given."""
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"an Epilogue is needed. Got {type(epilogue).__name__}.")
    if operands is None:
        return
    if [o.index for o in epilogue.operands] != list(range(1, operands + 1)) or len(epilogue.results) != 1:
        raise ValueError(f"an epilogue of one result and {operands} operands is needed. Got {epilogue}.")


def compute(op: str, operands: list[Any], attrs: tuple[Any, ...] = ()) -> Any:
    """The algebra of arrays: the op's best kernel."""
    return define.compute(table[op], operands, attrs)


def reference(op: str, operands: list[Any], attrs: tuple[Any, ...] = ()) -> Any:
    """The algebra of tests: the op's NumPy truth."""
    truth: Any = table[op].reference
    return truth(*operands, *attrs)


def expression(op: str, operands: list[Any]) -> Any:
    """The algebra of generated kernels: the op's scalar expression."""
    scalar: Any = table[op].expression
    return scalar(*operands)
