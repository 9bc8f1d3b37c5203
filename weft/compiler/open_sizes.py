"""Open sizes: the programs of one function for different sizes share their machine code.

A captured function is traced and planned for every size it is called with: the memory plan and the library's primitives
belong to one size and cost milliseconds. What costs a hundred times as much is machine code, and there the rule is:

* The first program of a function is compiled for its sizes.
* In every further program, a kernel that differs from an earlier kernel of this function in numbers alone is compiled
  with these numbers as run-time parameters (`weft.compiler.loop_ir.generalise`), and the general kernel then serves every
  size that differs in the same numbers. In a kernel that has no counterpart, the numbers taken to differ are multiples of
  the sizes in which the call differs from the first one, unless a weight has such a size too.
* Where a product's code depends on what is left of its rows after whole tiles, further programs use a form that has the
  code for every rest (`Lowering.open_sizes`).

The rule looks at kernels, never at counts or times. It does not decide about results either: both forms of a kernel add
in the same order, so a size has the same bits whatever was called before, in every process. `WEFT_OPEN_SIZES=0` compiles
every program for its sizes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from .. import settings
from ..backends.llvm.schedule import schedule_loop
from ..backends.llvm.target import host
from ..runtime import forks
from .loop_ir import ir as loops
from .loop_ir.generalise import General, Varies, form, generalise, generalise_alone
from .loop_ir.ir import SQUARE, Kernel, Loop
from .program.layout import Layout
from .program.steps import KernelCall, Step
from .tuning import ProgramTuning

MAX_FORMS = 512
"""Forms of kernels that one function keeps for comparison; the oldest is dropped."""
MAX_ALIKE = 32
"""Kernels of one form that a new one is compared with: the newest."""
MIN_SIZE = 8
"""Sizes below this are not taken to vary in a kernel without a counterpart: too many numbers are multiples of them."""
MAX_NUMBER = 1 << 39
"""Larger numbers are no sizes: a buffer of unknown length has the length 2**40."""
MAX_DECIDED = 2048
"""Kernels whose general form is remembered."""


class OpenSizes:
    """The kernels of one function, and how further ones of other sizes are computed with them."""

    def __init__(self) -> None:
        self._known: dict[Any, list[Kernel]] = {}  # by form, special and general ones
        self._decided: dict[Kernel, tuple[Kernel, tuple[int, ...]]] = {}
        self._first: list[tuple[int, ...]] | None = None  # the shapes of arguments in the first program
        self.tuning: ProgramTuning | None = None
        """the choices of kernels in the first program: the others take the same, without trials"""
        self._lock = threading.Lock()
        forks.renewed_in_child(self)

    @property
    def further(self) -> bool:
        """Whether the function has a program already."""
        return self._first is not None and settings.OPEN_SIZES()

    def share(self, steps: Iterable[Step], arguments: Sequence[Layout], variables: Sequence[Layout]) -> None:
        """Let the steps of a new program, which has these inputs, call general kernels where the rule says so."""
        if not settings.OPEN_SIZES():
            return
        with self._lock:
            shapes = [x.shape for x in arguments]
            self._varies = _varying(self._first or shapes, shapes, variables)
            here: dict[int, tuple[Kernel, tuple[int, ...]]] = {}
            for step in steps:
                if isinstance(step, KernelCall):
                    found = here.get(id(step.kernel))
                    if found is None:
                        found = here[id(step.kernel)] = self._served(step.kernel)
                    if found[0] is not step.kernel:
                        step.kernel, step.params = found[0], [*step.params, *found[1]]
            if self._first is None:
                self._first = shapes

    def _served(self, kernel: Kernel) -> tuple[Kernel, tuple[int, ...]]:
        """The kernel that serves, and the numbers it needs besides."""
        found = self._decided.get(kernel)
        if found is None:
            found = self._decided[kernel] = self._decide(kernel)
            if len(self._decided) > MAX_DECIDED:
                del self._decided[next(iter(self._decided))]
        return found

    def _decide(self, kernel: Kernel) -> tuple[Kernel, tuple[int, ...]]:
        key = form(kernel)
        alike = self._known.setdefault(key, [])
        if len(self._known) > MAX_FORMS:
            del self._known[next(iter(self._known))]
        best = None
        if self._first is not None:
            for known in reversed(alike):  # general ones are behind the special ones they come from
                made = generalise(known, kernel, _order)
                if made is None:
                    continue
                if made.fresh == 0:
                    return made.kernel, made.values
                if best is None or made.opened < best[0].opened:
                    best = made, known
        if best is None:
            alone = General(kernel, (), 0, 0) if self._first is None else generalise_alone(kernel, self._varies, _order)
            alike.append(alone.kernel)
            del alike[:-MAX_ALIKE]
            return alone.kernel, alone.values
        made, known = best
        if known.params != kernel.params:  # it was general, but not enough
            alike.remove(known)
        alike.append(made.kernel)
        return made.kernel, made.values


def _varying(first: list[tuple[int, ...]], now: list[tuple[int, ...]], variables: Sequence[Layout]) -> Varies:
    """Whether a number is taken to differ between the sizes of the first call and those of this one."""
    sizes = {
        n
        for a, b in zip(first, now, strict=False)
        if len(a) == len(b)
        for m, n in zip(a, b, strict=True)
        if m != n and n >= MIN_SIZE
    }
    padded = {
        -(-m // SQUARE) * SQUARE
        for a, b in zip(first, now, strict=False)
        if a != b
        for m in (*b, prod(b))
        if m >= MIN_SIZE and m not in a
    }
    fixed = {n for x in variables for n in (*x.shape, *x.strides, prod(x.shape))}

    def varies(number: int | float) -> bool:
        if isinstance(number, float):  # a mean's factor 1 / n, or n / (n - 1) of a variance
            if 1 < number <= 1 + 1 / (MIN_SIZE - 1):
                return True
            inverse = 1 / number if number else 0.0
            whole = round(inverse) if abs(inverse) < 1e9 else 0
            return whole > 0 and abs(inverse - whole) < 1e-3 and any(whole % n == 0 for n in sizes)
        return (
            0 < number < MAX_NUMBER
            and number not in fixed
            and (number in padded or any(number % n == 0 or number + 1 == n for n in sizes))
        )

    return varies


def _order(kernel: Kernel) -> list[tuple[int, bool]]:
    """How the vector loops of a kernel reduce, besides their numbers of lanes (Note [Order of a reduction])."""
    found = [
        schedule_loop(st, host()) for st in loops.walk(kernel.body) if isinstance(st, Loop) and st.kind == "vector"
    ]
    return [(x.unroll, x.masked_only) for x in found]
