"""The cache is bounded, kernels are shared by threads, and arguments come back for reuse."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from weft.backends.onednn import eager
from weft.backends.onednn.capi import Unsupported
from weft.backends.onednn.descriptors import MemoryDesc
from weft.backends.onednn.eager.primitive_call import Cache, PrimitiveCall
from weft.backends.onednn.primitives import matmul
from weft.ops.nn.window import Window
from weft.runtime import threads


def test_cache_drops_the_oldest_entry() -> None:
    cache = Cache(capacity=2)
    for key in "abc":
        assert cache.make(key, lambda key=key: key.upper()) == key.upper()
    assert [cache.lookup(key) for key in "abc"] == [None, "B", "C"]
    assert len(cache) == 2
    cache.clear()
    assert len(cache) == 0 and cache.lookup("b") is None
    with pytest.raises(ValueError, match="capacity must be positive"):
        Cache(0)


def test_cache_remembers_refusals_but_not_mistakes() -> None:
    cache = Cache()
    attempts: list[str] = []

    def refuse() -> None:
        attempts.append("refuse")
        raise Unsupported("not this one")

    def mistake() -> None:
        raise ValueError("your fault")

    with pytest.raises(Unsupported, match="not this one"):
        cache.make("refused", refuse)
    with pytest.raises(Unsupported, match="not this one"):
        cache.lookup("refused")(1, 2, 3)
    assert attempts == ["refuse"]
    with pytest.raises(ValueError, match="your fault"):
        cache.make("wrong", mistake)
    assert cache.lookup("wrong") is None


def test_argument_sets_are_used_again(rng: np.random.Generator) -> None:
    desc = MemoryDesc.strided((8, 8), np.dtype(np.float32))
    kernel = PrimitiveCall(matmul(desc, desc, desc))
    for _ in range(3):
        a, b, out = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(3))
        kernel(a.ctypes.data, b.ctypes.data, out.ctypes.data)
        np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
    assert len(kernel._idle) == 1


def test_threads_share_cached_primitives(rng: np.random.Generator) -> None:
    """Four threads, the same three signatures, own data: every result is the one computed alone."""
    weights = rng.standard_normal((16, 8, 3, 3)).astype(np.float32)
    settings = (Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), 1)

    def compute(x: np.ndarray) -> list[np.ndarray]:
        y = eager.conv_forward(x, weights, None, *settings)
        dw, _ = eager.conv_backward_weights(x, y, weights.shape, *settings)
        return [y, dw, eager.matmul(x.reshape(4, -1), x.reshape(4, -1).T)]

    inputs = [rng.standard_normal((4, 8, 10, 10)).astype(np.float32) for _ in range(4)]
    expected = [compute(x) for x in inputs]
    wrong: list[int] = []
    errors: list[BaseException] = []

    def work(which: int) -> None:
        try:
            for _ in range(25):
                if not all(np.array_equal(*pair) for pair in zip(compute(inputs[which]), expected[which], strict=True)):
                    wrong.append(which)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert (wrong, errors) == ([], [])


def test_width_changes_between_calls(rng: np.random.Generator) -> None:
    a = rng.standard_normal((40, 50)).astype(np.float32)
    for width in (1, 2, 1, 3, 2):
        threads.set_num_threads(width)
        np.testing.assert_allclose(eager.matmul(a, a.T), a @ a.T, rtol=1e-4, atol=1e-4)


_FORK = """
import os, sys
import numpy as np
from weft.backends.onednn import eager
from weft.runtime import threads
threads.set_num_threads(2)
a = np.ones((300, 300), np.float32)
eager.matmul(a, a)
child = os.fork()
if child == 0:
    ok = eager.matmul(a, a)[0, 0] == 300
    os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_computes() -> None:
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", _FORK], timeout=60, check=False, env=dict(os.environ),
                            cwd=Path(__file__).parents[4])  # fmt: skip
    assert result.returncode == 0


def test_where_openmp_is_out_of_bounds_kernels_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((8, 8), np.float32)
    eager.matmul(a, a)
    monkeypatch.setattr(threads, "openmp_usable", lambda: False)
    with pytest.raises(Unsupported, match="must not enter OpenMP"):
        eager.matmul(a, a)
