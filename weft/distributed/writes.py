"""`writing`: changes of weights, optimiser state and buffers that no step makes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..autograd import shards
from .parallel import open_parts


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """A context in which weights, buffers and optimiser state of a distributed run may be changed: clamped, loaded, reset.

    Within a run they are read-only elsewhere. All workers run the block, at the same point of the program, and its changes take
    effect at its end, in one commit, as those of a step. In a callback of a `Trainer` it runs on the lead, and the others get
    what it changed. Outside of a run it does nothing.

    >>> model = nn.Linear(2, 1)
    >>> with wf.distributed.writing(), wf.no_grad():
    ...     _ = model.weight.clamp_(-0.1, 0.1)
    >>> bool(model.weight.abs().max() < 0.11)
    True
    """
    if shards.current.shard is not None:
        raise RuntimeError(
            "writing: the body of a distributed step runs once per shard, so a change of weights there would happen many times. "
            "Write before or after the step."
        )
    parts = open_parts()
    alone = [part for part in parts if part.writes_alone]
    with contextlib.ExitStack() as stack:
        for part in alone or parts:
            stack.enter_context(part.writing())
        yield
