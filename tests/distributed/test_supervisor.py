"""What happens when hosts and tasks of a run come and go; decided without any process."""

from __future__ import annotations

import json
import random
import signal

import pytest

from weft.distributed.keeper import ISOLATED, LOST, OTHER_BITS
from weft.distributed.supervisor import KEEPER, MAX_FUTILE, Action, Kill, Reset, Start, Stop, Supervisor, role

pytestmark = pytest.mark.xdist_group("distributed")


def begun(least: int = 2, most: int = 2) -> Supervisor:
    """Two workers on one host."""
    supervisor = Supervisor(least, most)
    assert supervisor.host_joined(0, 2) == [Start("keeper-0"), Start("worker-0"), Start("worker-1")]
    return supervisor


def spread(least: int = 4, most: int = 4) -> Supervisor:
    """Four workers on two hosts."""
    supervisor = Supervisor(least, most, hosts=2)
    supervisor.hosts_joined({0: 2, 1: 2})
    assert sorted(supervisor.workers.values()) == [0, 0, 1, 1]
    return supervisor


def test_a_killed_worker_is_started_again() -> None:
    assert begun().ended("worker-1", -9, 5) == [Start("worker-1")]


def test_a_killed_keeper_is_started_again() -> None:
    assert begun().ended("keeper-0", -9, 5) == [Start("keeper-0")]


def test_the_run_ends_when_every_worker_has_finished() -> None:
    supervisor = begun()
    assert supervisor.ended("worker-0", 0, 9) == []
    assert supervisor.ended("worker-1", 0, 9) == [Stop(0)]


def test_a_worker_killed_after_another_finished_is_started_again() -> None:
    """It may be the lead, which has not come to the end of its program."""
    supervisor = begun()
    assert supervisor.ended("worker-0", 0, 9) == []
    assert supervisor.ended("worker-1", -9, 9) == [Start("worker-1")]
    assert supervisor.ended("worker-1", 0, 9) == [Stop(0)]


def test_a_host_that_computes_other_bits_is_refused_for_good() -> None:
    supervisor = spread()
    actions = supervisor.ended("worker-3", OTHER_BITS, 0)
    assert actions[0] == Reset(1) and set(supervisor.workers.values()) == {0} and len(supervisor.workers) == 4
    assert supervisor.host_joined(1, 2) == [] and supervisor.host_joined(2, 2) != []
    assert Supervisor.load(json.loads(json.dumps(supervisor.dump()))).refused == {1}
    (stop,) = [a for a in begun().ended("worker-1", OTHER_BITS, 0) if isinstance(a, Stop)]
    assert stop.status == 1 and "other bits" in stop.reason


def test_the_rest_of_the_program_of_a_lost_host_is_done_elsewhere() -> None:
    supervisor = spread()
    for worker in ("worker-0", "worker-1", "worker-2"):
        assert supervisor.ended(worker, 0, 9) == []
    assert supervisor.host_lost(1, "a test") == [Start("worker-3", 0)]
    assert supervisor.ended("worker-3", 0, 9) == [Stop(0)]


def test_a_host_that_reaches_no_other_joins_anew_and_does_not_delay_the_end() -> None:
    supervisor = spread()
    actions = supervisor.ended("relay-1", ISOLATED, 5)
    assert actions[0] == Reset(1) and Start("worker-3", 1) in actions
    for worker in ("worker-0", "worker-2"):
        assert supervisor.ended(worker, 0, 9) == []
    assert supervisor.ended("relay-1", ISOLATED, 9) == [Reset(1), Stop(0)]


def test_an_error_in_a_worker_ends_the_run_with_its_status() -> None:
    (stop,) = begun().ended("worker-1", 2, 5)
    assert isinstance(stop, Stop) and stop.status == 2 and "worker-1" in stop.reason


def test_deaths_without_progress_end_the_run_and_progress_forgives() -> None:
    supervisor = begun()
    for version in range(10):
        assert supervisor.ended("worker-0", -11, version) == [Start("worker-0")]
    for _ in range(MAX_FUTILE - 1):
        assert supervisor.ended("worker-0", -11, 9) == [Start("worker-0")]
    (stop,) = supervisor.ended("worker-0", -11, 9)
    assert isinstance(stop, Stop) and stop.status == 1 and "signal 11" in stop.reason


def test_lost_memory_starts_the_run_anew() -> None:
    (stop,) = begun().ended("keeper-0", LOST, 5)
    assert isinstance(stop, Stop) and stop.restart


def test_lost_memory_of_one_host_resets_only_that_host() -> None:
    actions = spread().ended("keeper-1", LOST, 5)
    assert actions == [Reset(1), Start("keeper-1", 1), Start("relay-1", 1), Start("worker-1", 1), Start("worker-3", 1)]


def test_a_relay_that_finds_no_state_starts_the_run_anew() -> None:
    (stop,) = spread().ended("relay-1", LOST, 5)
    assert isinstance(stop, Stop) and stop.restart


def test_a_run_that_was_asked_to_end_starts_nothing_and_ends_with_the_signal() -> None:
    supervisor = begun()
    assert supervisor.stop(signal.SIGTERM) == []
    assert supervisor.ended("worker-1", -9, 3) == [] and supervisor.host_joined(1, 4) == []
    assert supervisor.ended("worker-0", 143, 3) == [Stop(143)]


def test_the_workers_of_a_lost_host_move_and_come_back() -> None:
    supervisor = spread()
    moved = supervisor.host_lost(1, "a test")
    assert moved == [Start("worker-1", 0), Start("worker-3", 0)] and set(supervisor.workers.values()) == {0}
    assert supervisor.ended("worker-1", -9, 0) == [Start("worker-1", 0)]
    back = supervisor.host_joined(1, 2)
    assert back[:2] == [Start("keeper-1", 1), Start("relay-1", 1)]
    assert sorted(supervisor.workers.values()) == [0, 0, 1, 1]
    assert [a for a in back if isinstance(a, Kill)] and supervisor.leaving


def test_the_last_lost_host_starts_the_run_anew() -> None:
    supervisor = spread()
    supervisor.host_lost(0, "a test")
    (stop,) = supervisor.host_lost(1, "a test")
    assert isinstance(stop, Stop) and stop.restart and "a test" in stop.reason


def test_an_elastic_run_takes_what_there_is_within_its_limits() -> None:
    supervisor = Supervisor(1, 6, hosts=3)
    for host, expected in ((0, 2), (1, 4), (2, 6)):
        supervisor.host_joined(host, 2 if host < 2 else 8)
        assert len(supervisor.workers) == expected
    supervisor.host_lost(2, "a test")
    assert len(supervisor.workers) == 4  # two hosts of two


def test_the_user_may_change_the_number_within_the_limits() -> None:
    supervisor = begun(1, 4)
    assert supervisor.want(4) == [Start("worker-2"), Start("worker-3")]
    assert supervisor.want(0) == [Kill("worker-3"), Kill("worker-2"), Kill("worker-1")]
    assert supervisor.want(2) == [Start("worker-4")], "the names of those that are leaving are not used"
    assert supervisor.ended("worker-2", -9, 1) == []
    assert supervisor.want(100) == [Start("worker-2"), Start("worker-5")]


@pytest.mark.parametrize("seed", range(10))
def test_random_events_never_leave_a_run_without_workers(seed: int) -> None:
    for case in range(200):
        rng = random.Random(seed * 1000 + case)
        hosts, least = rng.randint(1, 4), rng.randint(1, 4)
        supervisor = Supervisor(least, least + rng.randint(0, 4), hosts)
        engine: dict[str, int] = {}  # the tasks that run, as an engine would know them
        version, over = 0, False

        def act(actions: list[Action], engine: dict[str, int] = engine) -> bool:
            for action in actions:
                if isinstance(action, Start):
                    assert action.name not in engine, f"{action.name} is started twice"
                    engine[action.name] = action.host
                elif isinstance(action, Kill):
                    assert action.name in engine
                elif isinstance(action, Reset):
                    for name in [name for name, host in engine.items() if host == action.host]:
                        del engine[name]
                else:
                    return True
            return False

        over = act(supervisor.host_joined(0, rng.randint(1, 4)))
        for _ in range(300):
            if over:
                break
            supervisor = Supervisor.load(
                json.loads(json.dumps(supervisor.dump()))
            )  # a driver's successor knows the same
            version += rng.random() < 0.7
            event = rng.random()
            host = rng.randrange(hosts)
            if event < 0.1:
                over = act(supervisor.host_joined(host, rng.randint(1, 4)))
            elif event < 0.2:
                for name in [name for name, at in engine.items() if at == host]:
                    del engine[name]
                over = act(supervisor.host_lost(host, "a test"))
            elif event < 0.3:
                over = act(supervisor.want(rng.randint(0, 10)))
            elif engine:
                name = rng.choice(sorted(engine))
                status = rng.choice([-9, -9, -11, 0 if version > 20 else -9, LOST if role(name) == KEEPER else -9])
                at = engine.pop(name)
                if status == LOST:  # it is lost because the workers of that host are gone
                    for other in [other for other, where in engine.items() if where == at]:
                        del engine[other]
                over = act(supervisor.ended(name, status, version))
            if not over:
                assert set(supervisor.running) == set(engine) - supervisor.leaving
                assert (
                    supervisor.min_workers <= len(supervisor.workers) <= supervisor.max_workers or supervisor.finished
                )
