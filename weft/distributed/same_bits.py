"""Whether a host computes the same bits as the one where the run began.

Processors with other instructions add in another order, and so may give other bits. A run that promises the same bits refuses
such a host: its first worker trains a small model for one step, and compares the digest of the result with that of the first
host, which travels as a file of the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

from .context import Context
from .keeper import OTHER_BITS

FILE = "probe.json"
WAIT_SECONDS = 60.0


def digest() -> str:
    """The SHA-256 of what a small model computes: products, a convolution, norms, exponentials, sums, an update."""
    from .. import nn, optim, random
    from ..graph.capture.function import function
    from ..nn import functional as F
    from ..tensor import Tensor, wrap

    def values(*shape: int) -> Tensor:
        count = int(np.prod(shape))
        return wrap((np.arange(count) * 7919 % 1009 / 1009 - 0.5).astype(np.float32).reshape(shape))

    state = random.get_rng_state()  # the numbers that the program draws next do not depend on this
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 25, 67),
        nn.LayerNorm(67), nn.GELU(), nn.Linear(67, 11),
    )  # fmt: skip
    random.set_rng_state(state)
    for parameter in model.parameters():
        parameter._data[...] = values(*parameter.shape).numpy()
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @function
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    loss = step(values(5, 3, 11, 11), wrap(np.arange(5, dtype=np.int64)))
    found = hashlib.sha256(loss.numpy().tobytes())
    for tensor in model.state_dict().values():
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def check(context: Context) -> None:
    """End this worker, and with it the part of its host in the run, if the host computes other bits than the first one."""
    if context.hosts < 2:
        return
    file = Path(context.directory) / FILE
    own = {"digest": digest(), "machine": platform.machine(), "processor": _processor()}
    if context.host == 0 and not context.joins:
        if not file.exists():
            temporary = file.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(own))
            os.replace(temporary, file)
        return
    end = time.monotonic() + WAIT_SECONDS
    while not file.exists():
        if time.monotonic() > end:
            raise RuntimeError(
                f"distributed: no other host told host {context.host} within {WAIT_SECONDS:g} s what it computes."
            )
        time.sleep(0.01)
    first = json.loads(file.read_text())
    if first["digest"] != own["digest"]:
        print(
            f"weft: host {context.host} ({own['processor']}) computes other bits than the first host ({first['processor']}) and "
            "is not used: the result would depend on which host computed what. Use hosts with the same kind of processor.",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        raise SystemExit(OTHER_BITS)


def _processor() -> str:
    from ..backends.llvm import target

    return target.host().cpu
