"""The protocol of modes: the defaults stand for a mode that only sees ops; each member is asked where it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.ops.core import define
from weft.ops.core.registry import Op
from weft.tensor import Tensor, wrap


class Seeing(define.Mode):
    """Defines nothing but `handle`."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self, op: Op, values: tuple[Any, ...]) -> Any:
        self.seen.append(op.name)
        return op.run(op.call, values)


def test_a_mode_with_only_handle_changes_no_result() -> None:
    def program() -> list[Any]:
        generator = wf.Generator(3)
        w = wf.tensor([1.0, -2.0], requires_grad=True)
        y = w.exp() + define.constant(np.ones(2, np.float32))
        y.sum().backward()
        with wf.no_grad():
            w[1:].mul_(2.0)
            w -= 0.5
        return [t.detach().numpy().tolist() for t in (y, w, w.grad, wf.rand(2, generator=generator))]

    expected = program()
    with Seeing() as mode:
        assert program() == expected
    assert {"exp", "add", "reduce_sum"} <= set(mode.seen)


def test_a_mode_without_handle_is_an_error_that_names_it() -> None:
    class Empty(define.Mode):
        pass

    with Empty(), pytest.raises(NotImplementedError, match=r"Empty: a mode must define `handle\(op, values\)`"):
        wf.tensor(1.0).exp()
    assert define.current_modes() == ()


@pytest.mark.parametrize("allows", [False, True])
def test_a_captured_function_runs_its_program_only_if_every_mode_allows_it(allows: bool) -> None:
    f = wf.function(lambda x: x.exp() * 2)
    x = wf.tensor([0.0, 1.0])
    expected = f(x).numpy()
    mode = Seeing()
    mode.allows_programs = allows
    with wf.profile(), mode:
        assert np.allclose(f(x).numpy(), expected)
    assert mode.seen == ([] if allows else ["exp", "multiply"])


def test_the_innermost_answer_counts_for_constants_and_random_states() -> None:
    class Giving(Seeing):
        def __init__(self, value: int | None) -> None:
            super().__init__()
            self.value = value

        def constant(self, array: np.ndarray) -> Tensor | None:
            return None if self.value is None else wrap(np.full_like(array, self.value))

        def random_state(self, generator: Any) -> Tensor | None:
            return None if self.value is None else wrap(np.array([self.value, 0]))

    generator = wf.Generator(0)
    with Giving(1), Giving(2), Giving(None), Seeing():
        assert define.constant(np.zeros(1)).tolist() == [2.0]
        assert generator.next_state().tolist() == [2, 0]
    assert generator.next_state().tolist() == [0, 0]  # the generator itself has not advanced


def test_every_mode_is_told_of_unrecorded_writes_and_of_backward() -> None:
    events: list[str] = []

    class Watching(Seeing):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def wrote(self, op: str, x: Tensor, operands: Sequence[Any]) -> None:
            events.append(f"{self.name}: {op} wrote")

        def around_backward(self, node: Any, run: Any) -> Sequence[Any]:
            events.append(f"{self.name}: before {node.op.name}")
            result = run()
            events.append(f"{self.name}: after {node.op.name}")
            return result

    x = wf.tensor([1.0, 2.0], requires_grad=True)
    with Watching("outer"), Seeing(), Watching("inner"):
        wf.zeros(2).add_(1.0)
        assert events == ["outer: add wrote", "inner: add wrote"]
        events.clear()
        x.exp().backward(wf.ones(2))
    assert events == ["inner: before exp", "outer: before exp", "outer: after exp", "inner: after exp"]
    assert np.allclose(x.grad.numpy(), np.exp([1.0, 2.0]))


def test_a_mode_that_takes_writes_gets_new_values_instead_of_memory_being_written() -> None:
    class Taking(Seeing):
        takes_writes = True

        def __init__(self) -> None:
            super().__init__()
            self.values: list[tuple[Tensor, list[float]]] = []

        def assign(self, x: Tensor, value: Tensor) -> None:
            self.values.append((x, value.tolist()))

    x = wf.tensor([1.0, 2.0])
    with Taking() as mode:
        x += 1.0
    assert mode.values == [(x, [2.0, 3.0])] and x.tolist() == [1.0, 2.0]
    with Seeing() as plain:
        plain.takes_writes = True
        with pytest.raises(NotImplementedError, match="must define `assign"):
            x += 1.0
