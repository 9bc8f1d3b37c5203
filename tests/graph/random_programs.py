"""Random programs that write to tensors, for `test_mutation.py`: built from a seed, run by one interpreter in every mode.

A program works on named tensors. Some are arguments, some are closed over; they own their memory, or are views of a common
array, or the same tensor twice. Instructions make views, copies and new values, write in place through any name, and nest in
`no_grad`, Python branches and loops, `wf.cond`, `wf.while_loop` and `wf.scan`.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import weft as wf

ROWS, COLUMNS = 4, 3


class World:
    """The memory of one run: equal for equal seeds. `arguments` and `closed` are names -> tensors."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        numbers = np.random.default_rng(seed)
        self.arrays = [numbers.uniform(-1, 1, (ROWS, COLUMNS)) for _ in range(3)]
        self.leaves = [wf.tensor(numbers.uniform(0.5, 1.5, ())).requires_grad_() for _ in range(2)]
        self.leaves.append(wf.tensor(numbers.uniform(0.5, 1.5, (ROWS, COLUMNS))).requires_grad_())
        pool = [wf.asarray(a) for a in self.arrays]
        if rng.random() < 0.3:
            pool[0] = pool[0] * self.leaves[0]  # an interior tensor of the caller's tape
            self.arrays[0] = pool[0].detach().numpy()
        self.arguments: dict[str, Any] = {}
        self.closed: dict[str, Any] = {}
        shared = rng.random() < 0.35
        for i, t in enumerate(pool):
            place = self.closed if rng.random() < 0.35 else self.arguments
            place[f"t{i}"] = self._shown(rng, t)
        if shared:
            source = rng.choice(pool)
            place = self.closed if rng.random() < 0.4 else self.arguments
            place["s"] = rng.choice([source, source.detach(), source[1:3], source[:, 0], source[0]])
        self.arguments["w"], self.closed["u"] = self.leaves[0], self.leaves[1]
        self.arguments["m"] = self.leaves[2]

    @staticmethod
    def _shown(rng: random.Random, t: Any) -> Any:
        return rng.choice([t, t, t, t.T, t[1:], t[:, 1:], t.reshape(-1)])

    def nested(self) -> Any:
        """The arguments in containers."""
        names = sorted(self.arguments)
        return {"first": [self.arguments[n] for n in names[:2]], "rest": ({n: self.arguments[n] for n in names[2:]},)}


def program(seed: int, relinks: bool = False) -> list[Any]:
    """Instructions as nested lists of plain data.

    With `relinks` some call `requires_grad_()` and `detach_()`, and none lets data decide: what one branch records requires
    gradients in a captured function, though the other branch may be taken.
    """
    rng = random.Random(seed + 1_000_003)
    return [_instruction(rng, 0, relinks=relinks) for _ in range(rng.randint(3, 9))]


def _instruction(rng: random.Random, depth: int, in_loop: bool = False, relinks: bool = False) -> Any:
    kinds = ["view", "view", "write", "write", "write", "make"]
    if relinks:
        kinds += ["relink", "relink", *(["no_grad", "if", "for"] if depth < 2 else [])]
    elif depth < 2:
        kinds += ["no_grad", "if", "for", "cond", "cond"]
        if not in_loop:  # the gradient of a loop in a loop takes seconds to compile
            kinds += ["while", "scan"]
    kind = rng.choice(kinds)
    pick = [rng.random() for _ in range(4)]
    if kind in ("view", "write", "make", "relink"):
        return [kind, rng.randrange(100), pick]
    in_loop = in_loop or kind in ("while", "scan")
    body = [_instruction(rng, depth + 1, in_loop, relinks) for _ in range(rng.randint(1, 3))]
    other = [_instruction(rng, depth + 1, in_loop, relinks) for _ in range(rng.randint(0, 2))]
    return [kind, rng.randrange(100), pick, body, other]


class Run:
    """One run of a program: an environment of named tensors."""

    def __init__(self, env: dict[str, Any]) -> None:
        self.env, self.count = env, 0

    def choose(self, part: float, writable: bool = False) -> Any:
        names = [n for n in self.env if not (writable and n in ("w", "u", "m"))]
        return self.env[names[int(part * len(names))]]

    def name(self, value: Any) -> None:
        self.count += 1
        self.env[f"v{self.count}"] = value

    def run(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            getattr(self, "do_" + instruction[0])(*instruction[1:])

    def inner(self, instructions: list[Any]) -> None:
        """A block whose names end with it."""
        Run(dict(self.env)).run(instructions)

    def now(self) -> Run:
        """The environment as it is: the gradient of a branch or loop runs its functions again, later."""
        return Run(dict(self.env))

    def do_view(self, kind: int, pick: list[float]) -> None:
        t = self.choose(pick[0])
        made = [
            lambda: t[0] if t.ndim else t,
            lambda: t[1:] if t.ndim and t.shape[0] > 1 else t,
            lambda: t[..., -1] if t.ndim else t,
            lambda: t.T if t.ndim == 2 else t,
            lambda: t.reshape(-1),
            lambda: t.detach(),
            lambda: t.reshape((1, *t.shape)),
            lambda: t[::-1] if t.ndim else t,
        ]
        self.name(made[kind % len(made)]())

    def do_make(self, kind: int, pick: list[float]) -> None:
        a, b = self.choose(pick[0]), self.choose(pick[1])
        made = [lambda: a * 0.5, lambda: a.clone(), lambda: wf.tanh(a) + b.mean(), lambda: a * b.sum() * 0.1]
        self.name(made[kind % len(made)]())

    def do_write(self, kind: int, pick: list[float]) -> None:
        t, source = self.choose(pick[0], writable=True), self.choose(pick[1])
        number = source.mean() if pick[2] < 0.6 else source.detach().sum() * 0.1
        if kind % 8 == 0:
            t.add_(number)
        elif kind % 8 == 1:
            t *= 0.75
        elif kind % 8 == 2:
            t[...] = wf.tanh(t * number)
        elif kind % 8 == 3 and t.ndim:
            t[0] = number
        elif kind % 8 == 4 and t.ndim:
            t[-1:] += number
        elif kind % 8 == 5 and t.ndim:
            t[0].mul_(number)
        elif kind % 8 == 6:
            t.copy_(t * 0.5 + number)
        else:
            t -= number * 0.25

    def do_relink(self, kind: int, pick: list[float]) -> None:
        t = self.choose(pick[0])
        if kind % 4 == 0:
            t.detach_()
        elif kind % 4 == 1:
            t.requires_grad = True
        elif t.is_leaf:
            t.requires_grad_(kind % 4 == 2)

    def do_no_grad(self, kind: int, pick: list[float], body: list[Any], other: list[Any]) -> None:
        with wf.no_grad():
            self.run(body)

    def do_if(self, kind: int, pick: list[float], body: list[Any], other: list[Any]) -> None:
        self.run(body if kind % 2 else other)

    def do_for(self, kind: int, pick: list[float], body: list[Any], other: list[Any]) -> None:
        for _ in range(kind % 3):
            self.inner(body)

    def do_cond(self, kind: int, pick: list[float], body: list[Any], other: list[Any]) -> None:
        t, s = self.choose(pick[0]), self.choose(pick[1])
        before = self.now()

        def branch(block: list[Any], factor: float) -> Any:
            def run() -> Any:
                before.inner(block)
                return s if kind % 5 == 0 else s * factor

            return run

        result = wf.cond(t.detach().sum() > pick[2] - 0.5, branch(body, 2.0), branch(other, 0.5))
        if (
            kind % 4 == 0
        ):  # a result that may share memory makes the function run eagerly if one of both is written later
            self.name(result)

    def do_while(self, kind: int, pick: list[float], body: list[Any], other: list[Any]) -> None:
        before = self.now()

        def step(i: Any, s: Any) -> Any:
            before.inner(body)
            if kind % 3 == 0:
                s *= 0.5
                return i + 1, s
            return i + 1, s * 0.9

        limit = self.choose(pick[0]).detach().mean() * 2 + 1.5
        start = self.choose(pick[1], writable=True)
        result = wf.while_loop(lambda i, s: (i < 3) & (i < limit), step, (wf.asarray(0), start))[1]
        if kind % 4 == 0 or kind % 3 == 0:
            self.name(result)

    def do_scan(self, kind: int, pick: list[float], body: list[Any], other: list[Any]) -> None:
        before = self.now()

        def step(c: Any, x: Any) -> Any:
            before.inner(body)
            if kind % 3 == 0:
                c.add_(x)
                return c, x * 2
            return c * x, x + c.sum()

        start = self.choose(pick[1], writable=True)
        carry, ys = wf.scan(step, start, wf.asarray(np.array([0.5, 0.25])))
        if kind % 4 == 0 or kind % 3 == 0:
            self.name(carry)
        self.name(ys)


def function(instructions: list[Any], closed: dict[str, Any], results: list[float]) -> Any:
    """The program as a Python function of the nested arguments."""

    def fn(tree: Any, order: tuple[str, ...]) -> Any:
        given = [*tree["first"], *tree["rest"][0].values()]
        env = {**dict(zip(order, given, strict=True)), **closed}
        work = Run(dict(env))
        work.run(instructions)
        made = list(work.env.values())
        return [made[int(part * len(made))] for part in results]

    return fn
