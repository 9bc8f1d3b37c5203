"""The ops that CONTRIBUTING.md adds as worked examples behave like ops of the package, in every mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.test_docs import python_blocks

ROOT = Path(__file__).resolve().parents[1]

CHECKS = '''
import numpy as np
import weft as wf
from log_total import log_total
from moving_mean import moving_mean
import moving_mean_rule
from weft.ops.core.samples import Maker

rng = np.random.default_rng(0)


def close(a, b, tolerance=1e-5):
    a, b = (x.detach().numpy() if isinstance(x, wf.Tensor) else x for x in (a, b))
    np.testing.assert_allclose(a, b, tolerance, tolerance)


def check_table(op):
    """The samples and errors of the record: eager, captured and reference agree; first and second derivative."""
    for sample in op.samples(Maker(0)):
        x, *rest = sample.args
        run = lambda x: op.call(x, *rest, **sample.kwargs)
        wanted = op.reference(x, *rest, **sample.kwargs)
        close(run(wf.tensor(x)), wanted)
        close(wf.function(run)(wf.tensor(x)), wanted)
        assert wf.gradcheck(run, wf.tensor(x, requires_grad=True))
        assert wf.gradgradcheck(run, wf.tensor(x, requires_grad=True))
    for bad in op.errors(Maker(0)) if op.errors else ():
        try:
            op.call(wf.tensor(bad.args[0]), *bad.args[1:])
        except bad.error as error:
            assert bad.match in str(error), error
        else:
            raise AssertionError(f"{op.name}: no error")


def in_every_mode(fn, x, steps):
    """Eager and captured values and gradients agree; the forward program has so many steps, all native."""
    captured = wf.function(fn)
    close(captured(x), fn(x))
    report = captured.explain()
    assert f"steps: {steps} " in report and "host calls (NumPy inside the program): none" in report, report
    gradient = wf.grad_fn(lambda x: wf.sum(fn(x)))
    close(wf.function(gradient)(x), gradient(x))


check_table(log_total.op)
check_table(moving_mean.op)

# A reduction: fused with producer and consumer, along rows, columns and everything, also where it is split in two.
matrix = wf.tensor(rng.normal(size=(7, 33)).astype(np.float32))
for axis in (0, 1, -1, (0, 1), None):
    in_every_mode(lambda x: log_total(wf.exp(x) * 0.5, axis) + 1.0, matrix, 1)
large = wf.tensor(rng.normal(size=(64, 2048)).astype(np.float32))
for axis in (0, 1, None):
    in_every_mode(lambda x: log_total(2.0 * x, axis), large, 2 if axis is None else 1)
    close(log_total(2.0 * large, axis), wf.logsumexp(2.0 * large, axis=axis))
assert [k.name for k in log_total.op.kernels] == ["llvm log_total"], "large eager calls run natively"
close(wf.vmap(lambda row: log_total(row))(matrix), log_total(matrix, 1))

# Precision: 16-bit floats are widened, and autocast computes in float32.
half = matrix.astype(wf.bfloat16)
for run in (log_total, wf.function(lambda x: log_total(x))):
    assert run(half).dtype == wf.bfloat16
    close(run(half).astype(wf.float32), log_total(half.astype(wf.float32)), 1e-2)
with wf.autocast(wf.bfloat16):
    assert log_total(half).dtype == wf.function(lambda x: log_total(x))(half).dtype == wf.float32
    assert moving_mean(half, 3).dtype == wf.bfloat16

# No elements: the identity; axes of size 1: the operand.
empty = wf.zeros(0, 3)
for run in (lambda x: log_total(x * 2.0, 0), wf.function(lambda x: log_total(x * 2.0, 0))):
    assert run(empty).tolist() == [float("-inf")] * 3
assert wf.function(lambda x: log_total(x, 1))(wf.ones(3, 1)).tolist() == [1.0] * 3
try:
    log_total(wf.arange(3))
except TypeError as error:
    assert "log_total: expected floating-point numbers. Got int64" in str(error)
else:
    raise AssertionError("integers")

# An op with a native form: between other steps, on strided operands, empty and in 16 bits.
in_every_mode(lambda x: moving_mean(wf.exp(x), 4) * 2.0, matrix, 3)
in_every_mode(lambda x: moving_mean(x.T, 3), matrix, 1)
assert wf.function(lambda x: moving_mean(x, 2))(wf.zeros(0, 5)).shape == (0, 4)
close(wf.function(lambda x: moving_mean(x, 2))(half).astype(wf.float32), moving_mean(half, 2).astype(wf.float32), 1e-2)
close(wf.vmap(lambda row: moving_mean(row, 2))(matrix), moving_mean(matrix, 2))
print("checked")
'''


def example(heading: str) -> list[str]:
    """The Python blocks of one section."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    return [code for _, code in python_blocks(section)]


def test_the_worked_examples_are_ops_like_all_others(tmp_path: Path) -> None:
    reduction, *_ = example("A reduction that fuses")
    op, rule, *_ = example("An op with a native form")
    for name, code in {"log_total": reduction, "moving_mean": op, "moving_mean_rule": rule}.items():
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "checks.py").write_text(CHECKS)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "checks.py"],
        cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.stdout == "checked\n", done.stdout + done.stderr
