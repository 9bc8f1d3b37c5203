"""What a worker process knows about the run it belongs to: read once from the environment that the engine sets."""

from __future__ import annotations

import dataclasses
import functools
import json
import os

from .. import settings

VARIABLE = "WEFT_DISTRIBUTED"
WORKER = "WEFT_DISTRIBUTED_WORKER"  # the number with which a worker was started


@dataclasses.dataclass(frozen=True)
class Context:
    """The settings of a run, the same for all its workers.

    Attributes:
        directory: the run's directory; only the user can enter it.
        shards: into how many logical shards a global batch is cut.
        members: how many workers there may be on this host.
        lifeline: a file descriptor that is closed when the command that started the run ends.
        log: how many steps the run may have.
        results: a directory for the results of `Trainer.fit`, if a script's own process waits for them.
        fit: which call of `fit` in that script the run is for; the results of earlier ones are there already.
        seed: of everything that draws random numbers, where the script sets no seed.
        host: the number of this host.
        hosts: how many hosts the run began with; with more than one, each has a relay.
        joins: whether this host came after the run began, so its state comes from another host.
        address: where this host's relay listens.
        workers: how many workers the run has, if that is fixed, else 0.
        check_every: after how many steps the workers check each other's gradients and weights; 0 if they do not.
        memory: "full" keeps the state twice, "lean" once: then a worker that dies while it updates the weights costs a restart
            from the last checkpoint.
        trace: the first and the last step whose spans are recorded; None if none are.
        run: what tells the run from others, also after it was lost and started again; "" if nothing does.
    """

    directory: str
    shards: int
    members: int
    lifeline: int = -1
    log: int = 1_000_000
    seed: int = 0
    results: str | None = None
    fit: int = 0
    host: int = 0
    hosts: int = 1
    joins: bool = False
    address: str = "127.0.0.1"
    workers: int = 0
    check_every: int = 0
    memory: str = "full"
    trace: tuple[int, int] | None = None
    run: str = ""

    @property
    def socket(self) -> str:
        return os.path.join(self.directory, "keeper.sock")

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def environment(context: Context, threads: int, number: int) -> dict[str, str]:
    """The variables of a task that belongs to a run.

    Args:
        context: of the run, on the task's host.
        threads: how many it may use.
        number: of the task among those of its kind.
    """
    count = str(threads)
    return {
        VARIABLE: context.dump(), settings.NUM_THREADS.name: count, "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count, WORKER: str(number),
    }  # fmt: skip


@functools.cache
def current() -> Context | None:
    """The run this process works for; None in an ordinary process."""
    text = os.environ.get(VARIABLE)
    return None if text is None else Context(**json.loads(text))
