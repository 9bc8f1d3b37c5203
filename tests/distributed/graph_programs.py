"""Run the programs of tests/graph on a cluster: the same tests, with sessions whose steps run on its tasks.

Every test that takes a session is such a program. Neighbouring nodes go to different tasks, so that values cross at almost every
edge, and variables and queues are declared on tasks, unless the program is about memory that the client shares.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft as wf
from tests.graph.conftest import alternate
from weft.graph.declared import queues, variables
from weft.graph.execute.placement import Constraint, Placement

SESSIONS = {"session", "control_session", "executor"}
TRANSPORT = "looks into the transport between devices of one process"
PATCHED = "ends a step by a patch of this process's executor"
ALIAS = "shares the memory of a variable with eager code, which a variable on a task refuses"
MEMORY = {  # what runs with its variables in the client's process only, and why
    "test_eager_tensor_and_variable_are_the_same_object": ALIAS,
    "test_an_update_declared_by_hand_with_assigns_on_the_parameters": ALIAS,
    "test_a_graph_with_state_comes_back_and_can_be_differentiated": ALIAS,
    "test_every_kind_of_queue_gets_its_elements_back": PATCHED,
    "test_elements_come_back_to_a_full_and_to_a_closed_queue": PATCHED,
}
EXCLUDED = {  # what does not run on a cluster, and why
    "test_a_body_on_two_devices_and_its_gradient": TRANSPORT,
    "test_constraints_are_honoured_and_values_cross": TRANSPORT,
    "test_a_cut_inside_a_loop": TRANSPORT,
    "test_the_gradient_of_a_long_loop_costs_a_fixed_number_of_runs_per_iteration": "takes seconds on any executor",
    "test_measured_costs_replace_estimates_and_the_report_says_so": "measures nodes, which sessions of a cluster refuse",
    "test_loaded_control_flow_has_first_and_second_gradients": "takes seconds: 18 programs that others of the list resemble",
}
Program = Callable[[], None]


def programs(module: str, cluster: Any, folder: Path, **options: Any) -> dict[str, tuple[Program]]:
    """The programs of a module of tests/graph, by name, for `tests.each.each`.

    Args:
        options: of the sessions.
    """
    found: dict[str, tuple[Program]] = {}
    for name, test in vars(importlib.import_module(f"tests.graph.{module}")).items():
        if not name.startswith("test_") or name in EXCLUDED or not SESSIONS & set(inspect.signature(test).parameters):
            continue
        for i, given in enumerate(_parameters(test)):
            place = folder / f"{name}-{i}"
            found[f"{name} {given or ''}"] = (_program(test, name, given, cluster, place, options),)
    return found


def _parameters(test: Any) -> Iterator[dict[str, Any]]:
    """Every combination of the test's own parameters."""
    marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
    sets = []
    for mark in marks:
        names = [n.strip() for n in mark.args[0].split(",")] if isinstance(mark.args[0], str) else list(mark.args[0])
        sets.append([dict(zip(names, v if len(names) > 1 else [v])) for v in mark.args[1]])
    for chosen in itertools.product(*sets):
        yield {k: v for part in chosen for k, v in part.items()}


def _program(test: Any, name: str, given: dict[str, Any], cluster: Any, place: Path, options: Any) -> Program:
    real = wf.Session

    def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Placement, "_cost", alternate)
            if name not in MEMORY:
                turns = itertools.cycle(("ps", "worker"))

                def scope(turns: Any = turns) -> Any:
                    return (Constraint(None, None, next(turns), None, False),)

                patch.setattr(variables, "task_scope", scope)
                patch.setattr(queues, "task_scope", scope)

            def make(graph: Any = None, executor: str | None = None, devices: Any = None, **kwargs: Any) -> wf.Session:
                chosen = {} if executor is None else {"executor": executor}
                return real(graph, cluster=cluster, **{**options, **chosen, **kwargs})

            make.kind = "two tasks"  # type: ignore[attr-defined]
            patch.setattr(wf, "Session", make)
            graph = wf.Graph("test")
            known = {
                "session": make, "control_session": make, "executor": options.get("executor", "dataflow"), "fresh_graph": graph,
                "monkeypatch": patch, "tmp_path": place,
            }  # fmt: skip
            place.mkdir()
            wf.manual_seed(0)
            with graph.as_default():
                test(**{p: given[p] if p in given else known[p] for p in inspect.signature(test).parameters})

    return run
