"""The same bits in every run, and on one core or two."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.runtime import threads

ROOT = Path(__file__).resolve().parents[2]

STEP = """
import hashlib
import numpy as np
import weft as wf
from weft import nn, optim
from weft.nn import functional as F

wf.manual_seed(3)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(16 * 7 * 7, 300), nn.LayerNorm(300), nn.GELU(), nn.Dropout(0.1), nn.Linear(300, 10),
)
opt = optim.AdamW(model.parameters(), lr=1e-2)
rng = np.random.default_rng(0)
x = wf.tensor(rng.standard_normal((32, 3, 16, 16)).astype("f"))
y = wf.tensor(rng.integers(0, 10, 32))
big = wf.tensor(rng.standard_normal((300, 1000)).astype("f"))

@wf.function
def step(x, y):
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss, big.sum(), big.max(axis=0).sum(), F.softmax(big).std(), (big @ big.T).sum()

digest = hashlib.sha256()
for _ in range(4):
    for t in step(x, y):
        digest.update(t.numpy().tobytes())
for p in [*model.parameters(), *model.buffers()]:
    digest.update(p.detach().numpy().tobytes())
print(digest.hexdigest())
"""


def run(*prefix, **extra):
    env = os.environ | {"WEFT_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)} | extra
    done = subprocess.run(
        [*prefix, sys.executable, "-c", STEP], env=env, capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    digest = done.stdout.strip()
    assert len(digest) == len(hashlib.sha256().hexdigest())
    return digest


@pytest.mark.timeout(300)
def test_a_training_step_has_the_same_bits_from_run_to_run_and_on_one_core():
    first = run()
    assert run() == first
    if shutil.which("taskset"):
        core = str(min(os.sched_getaffinity(0)))
        assert run("taskset", "-c", core) == first


@pytest.mark.parametrize("width", [1, 2])
def test_numbers_below_the_normal_range_are_kept(width: int) -> None:
    before = threads.get_num_threads()
    wf.set_num_threads(width)
    try:
        x = wf.full((300_000,), 2.0**-126)
        a = wf.full((256, 256), 2.0**-70)
        for fn in (lambda x, a: (x * 0.5, a @ a), wf.function(lambda x, a: (x * 0.5, a @ a))):
            halves, product = fn(x, a)
            np.testing.assert_array_equal(halves.numpy(), np.float32(2.0**-127))
            np.testing.assert_array_equal(product.numpy(), np.float32(2.0**-132))
    finally:
        wf.set_num_threads(before)
