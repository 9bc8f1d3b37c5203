"""Parameter servers: clocks and leases under random schedules, updates as graphs, journals, and training runs with deaths."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import nn, optim
from weft.distributed import ParameterServer
from weft.distributed.parameter_server_store import KeyStore
from weft.distributed.parameter_server_update import Update, declare_update, flat_settings
from weft.distributed.server_state import APPLY, DUPLICATE, EARLY, READY, STALE, Fences, KeyClock, Lease, Leases

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pidfd and eventfd are Linux's"),
    pytest.mark.xdist_group("distributed"),
    pytest.mark.timeout(400, method="signal"),
]
SECONDS = 180.0


# Clocks -------------------------------------------------------------------------------------------------------------


def test_pushes_in_any_order_and_number_are_accepted_once() -> None:
    def check(consistency: Any, seed: int) -> None:
        rng = random.Random(seed)
        slots, clocks = rng.randint(1, 5), rng.randint(1, 6)
        clock = KeyClock(slots, consistency)
        sent = [(s, c) for s in range(slots) for c in range(clocks)] * rng.randint(1, 3)
        rng.shuffle(sent)
        accepted: list[tuple[int, int]] = []
        updates: list[int] = []
        for slot, number in sent:
            verdict = clock.offer(slot, number)
            assert clock.accepted(slot, number)
            if verdict != DUPLICATE:
                accepted.append((slot, number))
            if verdict == APPLY:
                updates.append(number)
            while (done := clock.complete()) is not None:
                assert all((s, done) in accepted for s in range(slots))
                updates.append(done)
            again = KeyClock(slots, consistency)
            again.load(clock.dump())
            assert again.dump() == clock.dump()
        assert sorted(accepted) == sorted({*sent})
        assert clock.version == len(updates)
        assert updates == list(range(clocks)) if consistency == "sync" else len(updates) == slots * clocks

    each(check, {f"{c} {seed}": (c, seed) for c in ("sync", "async", 2) for seed in range(300)})


def test_pulls_wait_as_the_consistency_says() -> None:
    sync = KeyClock(2, "sync")
    assert sync.pull(0) == READY and sync.pull(1) == EARLY
    for clock in range(3):
        for slot in range(2):
            sync.offer(slot, clock)
        assert sync.complete() == clock
    assert [sync.pull(c) for c in (1, 2, 3, 4)] == [STALE, READY, READY, EARLY]
    bounded = KeyClock(2, 3)
    for clock in range(4):
        bounded.offer(0, clock)
    assert bounded.pull(3) == READY and bounded.pull(4) == EARLY
    bounded.offer(1, 1)  # out of order: clock 0 is missing still
    assert bounded.pull(4) == EARLY
    bounded.offer(1, 0)
    assert bounded.pull(4) == READY and bounded.pull(6) == EARLY
    bounded.retire(1)
    assert bounded.pull(6) == READY
    bounded.level(9)
    assert bounded.pull(12) == READY and bounded.pull(13) == EARLY
    assert KeyClock(2, "async").pull(1000) == READY
    fences = Fences()
    assert fences.admits(0, 2) and fences.admits(0, 2) and not fences.admits(0, 1) and fences.admits(1, 1)


def test_every_piece_is_done_once_whoever_dies() -> None:
    def check(sync: bool, spares: int, seed: int) -> None:
        rng = random.Random(seed)
        slots = rng.randint(1, 4)
        leases = Leases(slots, sync, spares)
        held: dict[int, Lease] = {}
        expected = 0
        for epoch in range(2):
            assert leases.open(epoch, batches := rng.randint(1, 5)) == leases.open(epoch, 99)
            expected += batches * slots
            counted: list[int] = []
            clocks: dict[int, list[int]] = {}
            for _ in range(5000):
                if leases.over:
                    break
                process = rng.randrange(slots + spares)
                if process in held and rng.random() < 0.2:  # killed: its successor asks again
                    before = held.pop(process)
                    again = leases.take(process)
                    assert again == before or before.piece in counted
                    leases_copy = Leases(slots, sync, spares)  # and so is the server
                    leases_copy.load(leases.dump())
                    leases = leases_copy
                elif process in held:
                    lease = held.pop(process)
                    if leases.finish(process, lease.piece, [lease.piece]):
                        counted.append(lease.piece)
                        clocks.setdefault(lease.slot, []).append(lease.clock)
                found = leases.take(process)
                if isinstance(found, Lease):
                    held[process] = found
            assert sorted(counted) == list(range(batches * slots)) == sorted(leases.results)
            for numbers in clocks.values():
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            held.clear()

    cases = [(True, 0), (True, 2), (False, 0)]
    each(check, {f"{c} {seed}": (*c, seed) for c in cases for seed in range(100)})


# Updates ------------------------------------------------------------------------------------------------------------


class Halving(optim.Optimizer):
    """An optimiser of a user's."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def init_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {"memory": self.zeros(p)}

    def update(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        memory = state["memory"]
        memory *= 0.5
        memory += g
        p -= group["lr"] * memory


def test_updates_travel_as_graphs_for_every_optimiser() -> None:
    rng = np.random.default_rng(0)

    def check(kind: Any, settings: dict[str, Any]) -> None:
        p = nn.Parameter(wf.tensor(rng.normal(size=(3, 4)).astype(np.float32)))
        optimizer = kind([p], **settings)
        update = Update(declare_update(optimizer, 0, p.shape, p.dtype, False))
        value = p.detach().numpy().copy()
        state = update.begin(value.shape)
        for step in range(1, 4):
            gradient = rng.normal(size=(3, 4)).astype(np.float32)
            p.grad = wf.tensor(gradient)
            optimizer.step()
            value, state = update.dense(value, gradient, state, step)
            optimizer.param_groups[0]["lr"] = 0.05
            update.set(flat_settings(optimizer.param_groups[0]))
            np.testing.assert_allclose(value, p.detach().numpy(), rtol=1e-5, atol=1e-6)

    each(
        check,
        {
            "SGD": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
            "Adam": (optim.Adam, {"lr": 0.1}),
            "AdamW": (optim.AdamW, {}),
            "Adagrad": (optim.Adagrad, {"lr": 0.1}),
            "Muon": (optim.Muon, {}),
            "Adafactor": (optim.Adafactor, {}),
            "Lion": (optim.Lion, {}),
            "a user's": (Halving, {"lr": 0.2}),
        },
    )


# Servers ------------------------------------------------------------------------------------------------------------


def ask(store: KeyStore, message: dict[str, Any], *arrays: np.ndarray) -> tuple[dict[str, Any], list[np.ndarray]]:
    found: list[Any] = []
    store.answer(message, list(arrays), lambda answer, results=(): found.append((answer, list(results))))
    assert found, f"{message} has to wait"
    return found[0]  # type: ignore[no-any-return]


def test_a_server_comes_to_the_same_bits_from_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.distributed.parameter_server_journal.MIN_JOURNAL_BYTES", 4000)

    def check(consistency: Any) -> None:
        rng = np.random.default_rng(1)
        folder = str(tmp_path / str(consistency))
        stores = [KeyStore(folder, "here"), KeyStore(None, "there")]

        def both(message: dict[str, Any], *arrays: np.ndarray) -> None:
            answers = [ask(store, dict(message), *arrays) for store in stores]
            assert answers[0][0] == answers[1][0] and "error" not in answers[0][0], answers[0][0]
            for a, b in zip(answers[0][1], answers[1][1], strict=True):
                np.testing.assert_array_equal(a, b)

        both({"kv": "open", "slots": 2, "consistency": consistency, "spares": 0})
        both({"kv": "init", "key": "w", "table": False, "rule": "assign"}, np.ones((4, 3), np.float32))
        both({"kv": "init", "key": "t", "table": True, "rule": "assign"}, np.ones((9, 2), np.float32))
        optimizer = optim.Adam([nn.Parameter(wf.zeros(1))], lr=0.1, lazy=True)
        for key, shape in (("w", (4, 3)), ("t", (9, 2))):
            program = declare_update(optimizer, 0, shape, np.dtype("float32"), key == "t")
            facts = {"facts": program.facts, "settings": flat_settings(optimizer.param_groups[0])}
            both({"kv": "rules", "group": 0, "path": None, "keys": [key], **facts}, *program.arrays())
        for clock in range(12):
            for slot in (1, 0):
                items = [
                    {"key": "w", "slot": slot, "clock": clock, "kind": "dense", "weight": 1.0 + slot},
                    {"key": "t", "slot": slot, "clock": clock, "kind": "rows", "weight": 1.0 + slot},
                ]
                rows = rng.integers(0, 9, 3)
                arrays = [
                    rng.normal(size=(4, 3)).astype(np.float32), rows, rng.normal(size=(3, 2)).astype(np.float32),
                ]  # fmt: skip
                both({"kv": "push", "items": items}, *arrays)
                if rng.random() < 0.4:  # the answer was lost
                    both({"kv": "push", "items": items}, *arrays)
                if rng.random() < 0.4:  # the process was killed
                    stores[0].close()
                    stores[0] = KeyStore(folder, "here")
            both({"kv": "pull", "keys": ["w", "t"], "clocks": [clock + 1, clock + 1]})
            both({"kv": "pull", "keys": ["w", "t"], "clocks": [clock, clock]})
            both({"kv": "pull_rows", "key": "t", "clock": clock}, np.arange(9))
            both({"kv": "settings", "group": 0, "settings": {"lr": 0.1 / (clock + 1)}})
        for store in stores:
            answer, _ = ask(store, {"kv": "facts"})
            assert answer["keys"]["w"]["step"] == (12 if consistency == "sync" else 24)
        stores[0].close()
        assert len(list(Path(folder).iterdir())) == 2, "older files are removed"

    each(check, {str(c): (c,) for c in ("sync", "async", 3)})


def test_a_cut_off_message_at_the_end_of_a_journal_was_never_acknowledged(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path), "here")
    ask(store, {"kv": "open", "slots": 1, "consistency": "async", "spares": 0})
    ask(store, {"kv": "init", "key": "w", "table": False, "rule": "add"}, np.zeros(4, np.float32))
    item = {"key": "w", "slot": 0, "kind": "dense", "weight": None}
    for clock in range(2):
        ask(store, {"kv": "push", "items": [{**item, "clock": clock}]}, np.ones(4, np.float32))
    store.close()
    (file,) = tmp_path.glob("journal-*")
    file.write_bytes(file.read_bytes()[:-3])
    store = KeyStore(str(tmp_path), "here")
    for _ in range(2):
        ask(store, {"kv": "push", "items": [{**item, "clock": 1}]}, np.ones(4, np.float32))
    _, (value,) = ask(store, {"kv": "pull", "keys": ["w"], "clocks": [2]})
    assert value.tolist() == [2, 2, 2, 2]
    store.close()


# Runs ---------------------------------------------------------------------------------------------------------------

PROGRAM = """
import hashlib, sys
import numpy as np
import weft as wf
from weft import data, nn, optim
from weft.distributed import ParameterServer

wf.manual_seed(0)
kind, consistency, directory = sys.argv[1:4]
model = nn.Sequential(nn.Embedding(12, 4, sparse=True), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = optim.Adam(model.parameters(), lr=0.02, lazy=True)
rng = np.random.default_rng(0)
rows = rng.integers(0, 12, 60)
target = rng.normal(size=(12, 1)).astype(np.float32)[rows]
loader = data.DataLoader(data.TensorDataset(rows, target), 16, shuffle=True)
servers = ParameterServer(2, int(sys.argv[4]), consistency, directory=directory or None)
if kind == "trainer":
    trainer = wf.Trainer(model, optimizer, nn.MSELoss(), strategy=servers, capture=False, progress=False)
    losses = [row["loss"] for row in trainer.fit(loader, epochs=2)]
else:
    for x, y in servers.batches(loader, optimizer, model=model, epochs=2):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        servers.step(loss)
    losses = [row["loss"] for row in servers.history]
values = [v.numpy() for k, v in model.state_dict().items() if "tracked" not in k]
steps = {int(s["step"].item()) for s in optimizer.state.values()}
print(hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in values)).hexdigest(), steps, losses)
"""


def start(path: Path, arguments: list[str], failpoints: str = "") -> subprocess.Popen[str]:
    program = path / "train.py"
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(wf.__file__).parents[1]),
        "WEFT_DISTRIBUTED_FAILPOINT": failpoints,
    }
    if not failpoints:
        del environment["WEFT_DISTRIBUTED_FAILPOINT"]
    return subprocess.Popen(
        [sys.executable, str(program), *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


def ended(child: subprocess.Popen[str]) -> str:
    """What a run printed."""
    out, _ = child.communicate(timeout=SECONDS)
    assert child.returncode == 0
    return out.strip()


def test_whoever_is_killed_sync_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    temporary = tempfile.TemporaryDirectory(
        prefix="ps"
    )  # for what a script that is killed leaves; paths of sockets are short
    request.addfinalizer(temporary.cleanup)
    monkeypatch.setenv("TMPDIR", temporary.name)
    points = {"ps-logged": 9, "psw-pushed": 4, "psd-epoch": 2}
    kills = ";".join(f"{point}:{count}:{tmp_path}/killed-{point}" for point, count in points.items())
    undisturbed = start(tmp_path, ["loop", "sync", "", "1"])
    script = start(tmp_path, ["trainer", "sync", str(tmp_path / "journals"), "2"], kills)
    script.communicate(timeout=SECONDS)
    assert script.returncode == -signal.SIGKILL, "the script itself is killed when the second epoch begins"
    assert len(list(tmp_path.glob("killed-*"))) == 3, "a server, a worker and the script were killed"
    again = ended(start(tmp_path, ["trainer", "sync", str(tmp_path / "journals"), "2"]))
    assert again == ended(undisturbed), "with one server or two"
    assert "{8}" in again, "2 epochs of 4 batches"


def test_what_cannot_be_combined_is_refused() -> None:
    for arguments, match in (
        ({"workers": 0}, "workers must be a number of at least 1"), ({"consistency": "eventual"}, "must be 'sync', 'async' or"),
        ({"consistency": "async", "backup": 1}, "backup workers are for"), ({"backup": 1, "compression": "2bit"}, "exclude"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            ParameterServer(**arguments)  # type: ignore[arg-type]
    model = nn.Linear(1, 1)
    trainer = wf.Trainer(
        model, optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), strategy=ParameterServer(), clip_grad_norm=1.0
    )
    with pytest.raises(ValueError, match="clip_grad_norm cannot be used with strategy=ParameterServer"):
        trainer.fit(np.ones((2, 1), np.float32), np.ones((2, 1), np.float32))
    with pytest.raises(RuntimeError, match="call it in a loop over"):
        ParameterServer().step(0.0)
