"""Sizes, counts, axes, paddings and windows that no machine has: an error in no time, never a crash, a hang or an allocation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft as wf
from weft.nn import functional as F

PROGRAM = Path(__file__).with_name("huge_sizes_program.py")


@pytest.mark.timeout(200)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc and limits the address space")
@pytest.mark.parametrize("mode", ["eager", "captured", "graph"])
def test_huge_numbers_are_refused_or_answered(mode):
    env = os.environ | {"PYTHONPATH": str(PROGRAM.parents[2]), "WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run([sys.executable, PROGRAM, mode], env=env, capture_output=True, timeout=150, text=True)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"hangs in: {(error.stdout or b'').decode().splitlines()[-1:]}")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1:] == ["done"], (
        f"ended with {done.returncode} in {lines[-1:]}: {done.stderr[-2000:]}"
    )
    assert [line for line in lines if line.startswith("wrong")] == []


def test_repeat_beyond_the_address_space_is_refused_before_its_gradient_rule_runs():
    x = wf.ones(4).requires_grad_()  # 4 · 2**62 elements are 0 in 64 bits, and NumPy would write behind the end
    with pytest.raises(MemoryError, match="repeat: the result does not fit"):
        wf.function(lambda x: wf.repeat(x, 2**62))(x)


@pytest.mark.parametrize("repeats", [3, 0, (2, 0, 1)])
@pytest.mark.parametrize("run", [lambda f: f, wf.function], ids=["eager", "captured"])
def test_gradient_of_repeat_sums_the_copies(repeats, run):
    x = wf.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    weights = wf.arange(60.0)
    counts = (repeats,) * 3 if isinstance(repeats, int) else repeats
    n = 2 * sum(counts)

    def gradient(x):
        x = x.detach().requires_grad_()
        return wf.grad((wf.repeat(x, repeats, axis=0).reshape(-1) * weights[:n]).sum(), [x])[0]

    expected, at = [], 0
    for count in counts:
        rows = weights[at : at + 2 * count].reshape(-1, 2)
        expected.append(rows.sum(axis=0).tolist() if count else [0.0, 0.0])
        at += 2 * count
    assert run(gradient)(x).tolist() == expected


def test_a_window_wider_than_the_channels_counts_all_of_them():
    x = wf.rand(2, 5, 3)
    wide, all_of_them = F.local_response_norm(x, 2**31, alpha=2**31 * 0.1), F.local_response_norm(x, 11, alpha=11 * 0.1)
    assert wf.allclose(wide, all_of_them)


def test_configure_devices_refuses_more_than_can_be_used():
    with pytest.raises(ValueError, match="configure_devices: expected at most"):
        wf.configure_devices(2**40)
    assert len(wf.devices()) == 1
