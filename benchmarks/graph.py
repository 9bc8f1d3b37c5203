"""Steps of declared graphs: what a `Session.run` costs, in Weft and, beside it, in TensorFlow's `tf.compat.v1.Session`.

    python benchmarks/graph.py                     # Weft
    python benchmarks/graph.py --tensorflow        # the same graphs, with an interpreter that has TensorFlow
    python benchmarks/graph.py --beside PYTHON     # both, each in its own process, and the ratios

Both run with 2 threads. Times are medians of several rounds after a warm-up; the first run, which compiles, is apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CHAIN, SIDE, LOOP = 10_000, 100, 10_000


def median_time(fn: Callable[[], Any], seconds: float = 1.0) -> float:
    fn()
    start = time.perf_counter()
    fn()
    once = max(time.perf_counter() - start, 1e-6)
    rounds, inner = 7, max(1, int(seconds / 7 / once))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(inner):
            fn()
        times.append((time.perf_counter() - start) / inner)
    return statistics.median(times)


def processor_time(fn: Callable[[], Any], once: float) -> float:
    """Seconds of all processors together per call: on a busy machine it says more than the clock."""
    count = max(3, int(0.5 / once))
    start = time.process_time()
    for _ in range(count):
        fn()
    return (time.process_time() - start) / count


def mlp_data() -> tuple[Any, Any, list[Any]]:
    rng = np.random.default_rng(0)
    sizes = [784, 256, 128, 10]
    weights = [
        rng.standard_normal((a, b)).astype(np.float32) * (2 / a) ** 0.5 for a, b in zip(sizes, sizes[1:], strict=False)
    ]
    return (
        rng.standard_normal((64, 784)).astype(np.float32),
        np.eye(10, dtype=np.float32)[rng.integers(0, 10, 64)],
        weights,
    )


def weft_cases() -> dict[str, tuple[Callable[[], Any], int]]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import weft as wf

    wf.set_num_threads(2)
    cases: dict[str, tuple[Callable[[], Any], int]] = {}
    small = np.ones(8, np.float32)

    graph = wf.Graph("trivial")
    with graph.as_default():
        x = wf.placeholder(wf.float32, (8,))
        y = x + 1.0
    sess = wf.Session(graph)
    cases["trivial"] = (lambda: sess.run(y, {x: small}), 1)

    graph = wf.Graph("chain")
    with graph.as_default():
        x2 = wf.placeholder(wf.float32, (8,))
        chain = x2
        for i in range(CHAIN):
            chain = chain * 0.999 if i % 2 else chain + 0.001
    sess2 = wf.Session(graph)
    cases["chain"] = (lambda: sess2.run(chain, {x2: small}), CHAIN)

    graph = wf.Graph("wide")
    with graph.as_default():
        x3 = wf.placeholder(wf.float32, (8,))
        rows = [x3 * (1.0 + i / SIDE) for i in range(SIDE)]
        for _ in range(SIDE - 1):
            rows = [wf.tanh(r) for r in rows]
        total = rows[0]
        for r in rows[1:]:
            total = total + r
    sess3 = wf.Session(graph)
    cases["wide"] = (lambda: sess3.run(total, {x3: small}), SIDE * SIDE + SIDE)

    graph = wf.Graph("loop")
    with graph.as_default():
        start = wf.placeholder(wf.float32, ())
        _, last = wf.while_loop(lambda i, s: i < LOOP, lambda i, s: (i + 1, s * 0.999 + 1.0), (wf.constant(0), start))
    sess4 = wf.Session(graph)
    cases["while"] = (lambda: sess4.run(last, {start: 1.0}), LOOP)

    images, labels, weights = mlp_data()
    graph = wf.Graph("mlp")
    with graph.as_default():
        xs, ys = wf.placeholder(wf.float32, (64, 784)), wf.placeholder(wf.float32, (64, 10))
        vs = [wf.Variable(w) for w in weights]
        bs = [wf.Variable(np.zeros(w.shape[1], np.float32)) for w in weights]
        h = xs
        for i, (w, b) in enumerate(zip(vs, bs, strict=True)):
            h = h @ w + b
            h = wf.maximum(h, 0.0) if i < 2 else h
        loss = -wf.mean(wf.sum(ys * (h - wf.logsumexp(h, axis=1, keepdims=True)), axis=1))
        grads = wf.gradients(loss, [*vs, *bs])
        train = wf.group(*[v.assign_sub(0.01 * g) for v, g in zip([*vs, *bs], grads, strict=True)])
    sess5 = wf.Session(graph)
    cases["mnist-mlp step"] = (lambda: sess5.run([loss, train], {xs: images, ys: labels}), 1)
    return cases


def tensorflow_cases() -> dict[str, tuple[Callable[[], Any], int]]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf2  # type: ignore[import-not-found]

    tf = tf2.compat.v1
    tf.disable_eager_execution()
    config = tf.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2)
    # without TensorFlow's graph optimiser every node of the chain is executed; Weft compiles and fuses the chain, so the
    # figure compares the two systems on one graph, not their executors node by node
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    cases: dict[str, tuple[Callable[[], Any], int]] = {}
    small = np.ones(8, np.float32)

    def session() -> Any:
        return tf.Session(config=config)

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (8,))
        y = x + 1.0
        sess = session()
    cases["trivial"] = (lambda: sess.run(y, {x: small}), 1)
    with tf.Graph().as_default():
        x2 = tf.placeholder(tf.float32, (8,))
        chain = x2
        for i in range(CHAIN):
            chain = chain * 0.999 if i % 2 else chain + 0.001
        sess2 = session()
    cases["chain"] = (lambda: sess2.run(chain, {x2: small}), CHAIN)
    with tf.Graph().as_default():
        x3 = tf.placeholder(tf.float32, (8,))
        rows = [x3 * (1.0 + i / SIDE) for i in range(SIDE)]
        for _ in range(SIDE - 1):
            rows = [tf.tanh(r) for r in rows]
        total = rows[0]
        for r in rows[1:]:
            total = total + r
        sess3 = session()
    cases["wide"] = (lambda: sess3.run(total, {x3: small}), SIDE * SIDE + SIDE)
    with tf.Graph().as_default():
        start = tf.placeholder(tf.float32, ())
        _, last = tf.while_loop(lambda i, s: i < LOOP, lambda i, s: (i + 1, s * 0.999 + 1.0), (tf.constant(0), start))
        sess4 = session()
    cases["while"] = (lambda: sess4.run(last, {start: 1.0}), LOOP)
    images, labels, weights = mlp_data()
    with tf.Graph().as_default():
        xs, ys = tf.placeholder(tf.float32, (64, 784)), tf.placeholder(tf.float32, (64, 10))
        vs = [tf.Variable(w) for w in weights]
        bs = [tf.Variable(np.zeros(w.shape[1], np.float32)) for w in weights]
        h = xs
        for i, (w, b) in enumerate(zip(vs, bs, strict=True)):
            h = tf.matmul(h, w) + b
            h = tf.nn.relu(h) if i < 2 else h
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=ys, logits=h))
        grads = tf.gradients(loss, [*vs, *bs])
        train = tf.group(*[v.assign_sub(0.01 * g) for v, g in zip([*vs, *bs], grads, strict=True)])
        sess5 = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2))
        sess5.run(tf.global_variables_initializer())
    cases["mnist-mlp step"] = (lambda: sess5.run([loss, train], {xs: images, ys: labels}), 1)
    return cases


def measure(cases: dict[str, tuple[Callable[[], Any], int]], only: str | None) -> dict[str, Any]:
    found = {}
    for name, (fn, nodes) in cases.items():
        if only is not None and only != name:
            continue
        start = time.perf_counter()
        fn()
        first = time.perf_counter() - start
        seconds = median_time(fn)
        found[name] = {"seconds": seconds, "processor": processor_time(fn, seconds), "first": first, "nodes": nodes}
        print(
            f"{name:16s} {seconds * 1e6:12.1f} µs   {nodes / seconds:14,.0f} nodes/s   first run {first:7.2f} s",
            flush=True,
        )
    return found


NAMES = ("trivial", "chain", "wide", "while", "mnist-mlp step")


def in_process(python: str, name: str, tensorflow: bool) -> dict[str, Any]:
    """One case in a separate process, so that nothing of the others (threads, caches, memory) is measured with it."""
    command = [python, __file__, "--json", "--only", name, *(["--tensorflow"] if tensorflow else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])[name]


def beside(python: str, only: str | None) -> None:
    """Both systems in turn, twice per case, the better time of each; then how their speeds compare."""
    print(f"{'':16s} {'Weft':>12s} {'TensorFlow':>12s} {'speed':>7s} {'processor time':>15s}   first run")
    for name in [n for n in NAMES if only in (None, n)]:
        rounds = [(in_process(sys.executable, name, False), in_process(python, name, True)) for _ in range(2)]
        mine = min([r[0] for r in rounds], key=lambda r: r["seconds"])
        other = min([r[1] for r in rounds], key=lambda r: r["seconds"])
        print(
            f"{name:16s} {mine['seconds'] * 1e6:9.1f} µs {other['seconds'] * 1e6:9.1f} µs "
            f"{other['seconds'] / mine['seconds']:6.2f}x {other['processor'] / mine['processor']:14.2f}x"
            f"   {mine['first']:.2f} s, {other['first']:.2f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow", action="store_true", help="run the TensorFlow side")
    parser.add_argument("--beside", metavar="PYTHON", help="an interpreter with TensorFlow: run both and compare")
    parser.add_argument("--only", help="one case by name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="print results as JSON in the last line")
    args = parser.parse_args()
    if args.beside:
        beside(args.beside, args.only)
        return
    found = measure(tensorflow_cases() if args.tensorflow else weft_cases(), args.only)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
