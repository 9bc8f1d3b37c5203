"""What the ranks of the collective tests run: `python collective_programs.py NAME DIRECTORY`.

Each rank writes what it found to the file `rank-N` of the directory: an error's class and text, or a digest of its results.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf
from weft import distributed, nn, optim
from weft.distributed import all_gather, all_reduce, barrier, broadcast, empty, rank, reduce_scatter, world_size


def values(of: int, size: int, dtype: Any = np.float32) -> np.ndarray:
    """What a rank contributes; every rank can compute it for all."""
    return (np.random.default_rng([of, size]).normal(size=size) * 10).astype(dtype)


def folded(ufunc: np.ufunc, arrays: list[np.ndarray]) -> np.ndarray:
    """From left to right; 16-bit floats in float32."""
    dtype = arrays[0].dtype
    found = arrays[0].astype(np.float32) if dtype == wf.bfloat16 else arrays[0].copy()
    for array in arrays[1:]:
        found = ufunc(found, array)
    return found.astype(dtype)


def results() -> Iterator[np.ndarray]:
    """Every collective with small and large values, compared with what NumPy gives in the order of the ranks."""
    me, world = rank(), world_size()
    ufuncs = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}

    def expect(found: Any, expected: np.ndarray, what: str) -> np.ndarray:
        assert np.array_equal(found.numpy(), expected), f"{what} on rank {me}"
        return expected

    assert 0 <= me < world
    for dtype in (np.float32, np.float64, np.int64, np.dtype(wf.bfloat16)):
        for size in (1, 12 * world) if dtype is not np.float32 else (1, 12 * world, 90_000 * world, 600_000):
            every = [values(q, size, dtype) for q in range(world)]
            mine = wf.asarray(every[me].copy())
            for op, ufunc in ufuncs.items():
                yield expect(all_reduce(mine, op), folded(ufunc, every), f"all_reduce {op} {dtype} {size}")
            yield expect(all_gather(mine), np.stack(every), f"all_gather {size}")
            yield expect(broadcast(mine, world - 1), every[-1], f"broadcast {size}")
            if size > 1:
                part = folded(np.add, every).reshape(world, -1)[me]
                expect(reduce_scatter(mine), part, f"reduce_scatter {size}")
    mean = folded(np.add, [values(q, 6) for q in range(world)]).reshape(2, 3) / np.float32(world)
    yield expect(all_reduce(values(me, 6).reshape(2, 3), "mean"), mean, "mean of an array")
    yield expect(all_reduce(wf.asarray(values(me, 6).reshape(2, 3)).T, "mean"), mean.T, "mean of a transposed tensor")
    assert float(all_reduce(me, "max")) == world - 1 and bool(all_reduce(me == 0, "min")) is (world == 1)
    for size in (5, 90_000):
        every = [values(q, size) for q in range(world)]
        total = folded(np.add, every)
        shared, other = empty(size), empty((2, size))
        shared.copy_(wf.asarray(every[me]))
        other[1].copy_(wf.asarray(every[me]))
        yield expect(all_reduce(shared), total, "all_reduce of a shared tensor")
        assert np.array_equal(shared.numpy(), every[me])
        assert all_reduce(shared, out=shared) is shared
        yield expect(shared, total, "all_reduce of a shared tensor in place")
        row = other[1]
        all_reduce(row, out=row)
        yield expect(other[1], total, "all_reduce of a part of a shared tensor in place")
        assert not other[0].numpy().any()
    in_place = wf.asarray(values(me, 7))
    assert all_reduce(in_place, out=in_place) is in_place
    yield expect(in_place, folded(np.add, [values(q, 7) for q in range(world)]), "all_reduce in place")


def everything() -> str:
    made = hashlib.sha256()
    for result in results():
        made.update(np.ascontiguousarray(result).tobytes())
    barrier()
    return made.hexdigest()


def model_step() -> tuple[Any, Any]:
    """A small distributed step."""
    wf.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @distributed.step(optimizer)
    def step(x: Any) -> Any:
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    return step, model


def batch(samples: int = 16) -> Any:
    return wf.asarray(np.random.default_rng(1).normal(size=(samples, 4)).astype(np.float32))


# Ranks that disagree ----------------------------------------------------------------------------------------------------


def other_collective() -> None:
    if rank() == 0:
        all_reduce(np.zeros(3))  # LINE 0
    else:
        all_gather(np.zeros(3))  # LINE 1


def other_shape() -> None:
    barrier()
    all_reduce(np.zeros(3 + rank()))  # LINE 0 1


def other_dtype() -> None:
    all_reduce(np.zeros(3, np.float32 if rank() else np.float64))  # LINE 0 1


def fewer_calls() -> None:
    for _ in range(2 + rank()):
        barrier()  # LINE 0 1


def more_steps() -> None:
    step, _ = model_step()
    for _ in range(2 + rank()):
        step(batch())  # LINE 1
    barrier()  # LINE 0


def steps_without_end() -> None:
    step, _ = model_step()
    step(batch())
    if rank() == 0:
        barrier()  # LINE 0
    while True:
        step(batch())  # LINE 1


def ends_after_fewer_steps() -> None:
    step, _ = model_step()
    for _ in range(2 if rank() else 500):
        step(batch())  # LINE 0 1


def other_batch() -> None:
    step, _ = model_step()
    step(batch(16 + rank()))  # LINE 0 1


# Collectives in the wrong place -----------------------------------------------------------------------------------------


def inside_a_step() -> str:
    wf.manual_seed(0)
    model = nn.Linear(4, 1)

    @distributed.step(optim.SGD(model.parameters(), lr=0.1))
    def step(x: Any) -> Any:
        loss = (all_reduce(model(x)) ** 2).mean()
        loss.backward()
        return loss

    try:
        step(batch())
    except RuntimeError as error:
        return str(error)
    return "no error"


# Ranks that are killed --------------------------------------------------------------------------------------------------


def small_calls() -> str:
    """Many small calls, between steps: a rank that is killed repeats them."""
    step, model = model_step()
    total = 0.0
    for number in range(12):
        loss = step(batch())
        total = float(all_reduce(float(loss) + rank() + total, "mean"))
        gathered = all_gather(np.arange(3) * (rank() + number)).numpy()
        total += float(gathered.sum()) + float(reduce_scatter(np.arange(2.0 * world_size()) * rank())[0])
        barrier()
    made = hashlib.sha256(repr(float(broadcast(total, 1))).encode())
    made.update(model.weight.detach().numpy().tobytes())
    return made.hexdigest()


def large_calls() -> str:
    for _ in range(20):
        all_reduce(np.ones(100_000, np.float32))  # LINE
    return "done"


def shared_calls() -> str:
    x = empty(64)
    for _ in range(20):
        all_reduce(x, out=x)  # LINE
    return "done"


# Corruption -------------------------------------------------------------------------------------------------------------


def other_gradient() -> None:
    wf.manual_seed(0)
    model = nn.Linear(4, 1)
    wrong = 1.0 + 1e-3 * rank()

    @distributed.step(optim.SGD(model.parameters(), lr=0.1))
    def step(x: Any) -> Any:
        loss = (model(x) ** 2).mean() * wrong
        loss.backward()
        return loss

    for _ in range(200):
        step(batch())


def changed_weights() -> None:
    step, _ = model_step()
    for number in range(200):
        barrier()  # nobody computes while the weights change
        if number > 20 and rank() == 1:
            for memory in step._parallel.shelf.memory:
                memory[0, ""][1] += 1.0
        barrier()
        step(batch())


def nan_in_one_shard() -> None:
    step, _ = model_step()
    for number in range(20):
        x = batch()
        if number == 3:
            x[0, 0] = np.nan
        step(x)


def other_weights_on_a_host() -> None:
    step, _ = model_step()
    step(batch())
    team = step._parallel.team
    update = team.update

    def wrong(index: int, *rest: Any) -> None:
        update(index, *rest)
        if rank() == 1 and (0, "") in team.shelf.memory[rest[-1]]:
            team.shelf.memory[rest[-1]][0, ""][0] += 1e-3

    team.update = wrong
    for _ in range(200):
        step(batch())
        barrier()  # no host falls behind and takes over the state of the other


def wait_for_the_others(directory: Path) -> None:
    """The first rank that ends with an error ends the run: it waits until the others have written theirs."""
    end = time.monotonic() + 10.0
    while len(list(directory.glob("rank-?"))) < world_size() and time.monotonic() < end:
        time.sleep(0.01)


if __name__ == "__main__":
    name, directory = sys.argv[1:]
    program: Callable[[], str | None] = globals()[name]
    failed = False
    try:
        found = program() or "no error"
    except RuntimeError as error:
        found, failed = f"{type(error).__name__}: {error}", True
        raise
    finally:
        path = Path(directory) / f"rank-{rank()}"
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(found)
        os.replace(new, path)
        if failed:
            wait_for_the_others(path.parent)
    print("RESULT", found, flush=True)
