"""What the tests of `weft.multiprocessing` run in other processes, which import it by name."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

import weft as wf
from weft.multiprocessing import is_shared, share_memory


def add_rank(rank, tensor):
    array = tensor.detach().numpy()
    array[rank] += rank + 1
    return is_shared(tensor), tensor.requires_grad, array.sum().item()


def write_view(rank, pair):
    whole, part = pair
    part.numpy()[...] = 7
    return np.shares_memory(whole.numpy(), part.numpy())


def report_threads(rank):
    return os.environ["OMP_NUM_THREADS"], os.environ["WEFT_NUM_THREADS"]


def fail(rank):
    if rank == 1:
        raise ValueError("rank one does not want to")
    time.sleep(600)


def leave(rank):
    if rank == 0:
        os._exit(3)
    time.sleep(600)


def sleep(rank):
    time.sleep(600)


def unpicklable_result(rank):
    return lambda: rank


def produce(rank, queue, received):
    """Send a new shared tensor, and stay until it has arrived."""
    tensor = share_memory(wf.asarray(np.arange(5.0)))
    queue.put(tensor)
    assert received.wait(20)
    tensor.numpy()[0] = 42
    os._exit(0)


def consume(rank, queue):
    tensor = queue.get(timeout=20)
    tensor.numpy()[1] = -1
    return is_shared(tensor)


def hogwild(rank, parameters, steps):
    """Fit y = x @ w + b by gradient steps on parameters that another process changes at the same time."""
    weight, bias = parameters
    rng = np.random.default_rng(rank)
    for _ in range(steps):
        x = rng.standard_normal((16, 3)).astype(np.float32)
        target = x @ np.array([1.0, -2.0, 3.0], np.float32) + np.float32(0.5)
        error = wf.asarray(x) @ weight + bias - wf.asarray(target)
        loss = (error * error).mean()
        loss.backward()
        for parameter in parameters:
            parameter.detach().numpy()[...] -= 0.02 * parameter.grad.numpy()
            parameter.grad = None
    return float(loss.detach().numpy())


def send_blocked_signals(conn):
    """The signals that were blocked when this process started; nothing here has unblocked any."""
    conn.send(sorted(int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
