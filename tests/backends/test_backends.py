"""Which backends are there."""

import os
import subprocess
import sys


def run(program, **variables):
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )


def test_native_code_can_be_switched_off():
    done = run("from weft import backends; print(backends.native_kernels())", WEFT_LLVM="0")
    assert done.stdout.strip() == "False", done.stderr


def test_without_llvmlite_there_is_one_warning_and_numpy():
    program = (
        "import sys, warnings; sys.modules['llvmlite'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'llvmlite' else find(name, *a)\n"
        "from weft import backends\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    assert backends.native_kernels() is False and backends.native_kernels() is False\n"
        "print(len(seen), seen[0].message)\n"
        "import weft as wf; print(wf.exp(wf.zeros(100000)).sum().item())\n"
    )
    done = run(program)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().splitlines()
    assert first.startswith("1 backends: llvmlite is not installed")
    assert float(second) == 100000


def test_registering_kernels_loads_no_library():
    done = run(
        "import weft, sys; from weft import backends; backends.register_kernels(); print('llvmlite' in sys.modules)"
    )
    assert done.stdout.strip() == "False", done.stderr
