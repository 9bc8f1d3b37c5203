"""A captured function of 10,000 tiny ops: what compiling it costs, and each op."""

from __future__ import annotations

import json
import os
import sys
import tempfile

from .context import Context, Row, python

TITLE = "A chain of 10,000 ops on 16 numbers, captured"
CODE = """
import json, time
import weft as wf
wf.set_num_threads(2)

@wf.function
def chain(x, y):
    for _ in range({ops} // 4):
        x = wf.tanh(x * y) + y - x
    return x

x, y = wf.ones(16), wf.ones(16)
start = time.perf_counter()
chain(x, y)
first = time.perf_counter() - start
best = float("inf")
for _ in range(20):
    start = time.perf_counter()
    chain(x, y)
    best = min(best, time.perf_counter() - start)
print(json.dumps([first, best]))
"""


def measure(context: Context, ops: int = 10_000) -> list[Row]:
    """Seconds to the first result with an empty cache, nanoseconds per op afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WEFT_CACHE_DIR": folder}
        first, best = json.loads(python(sys.executable, CODE.format(ops=ops), env=env).splitlines()[-1])
    return [Row("chain", {"first call, cold": f"{first:.2f} s", "per op": f"{best / ops * 1e9:.1f} ns"})]
