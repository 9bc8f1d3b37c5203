"""Train the MLPs with JAX: `worker_jax.py MODEL jit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models.configurations import CONFIGURATIONS, batch
from benchmarks.models.protocol import serve


def main() -> None:
    name = sys.argv[1]
    c = CONFIGURATIONS[name]
    if c.kind != "mlp":
        raise SystemExit(f"worker_jax: {name} is not written for jax here")
    rng = np.random.default_rng(0)
    sizes = c.arguments["sizes"]
    params = [
        (jnp.array(rng.uniform(-(i**-0.5), i**-0.5, (o, i)).astype("f")), jnp.zeros(o))
        for i, o in zip(sizes, sizes[1:], strict=False)
    ]

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for k, (w, b) in enumerate(params):
            x = x @ w.T + b
            x = jax.nn.relu(x) if k + 1 < len(params) else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    @jax.jit
    def step(params: Any, moments: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(params, x, y)
        moments = jax.tree.map(lambda m, d: 0.9 * m + d, moments, g)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, moments), moments, loss

    state = [params, jax.tree.map(jnp.zeros_like, params)]
    x, y = (jnp.array(d) for d in batch(name))

    def run() -> float:
        state[0], state[1], loss = step(state[0], state[1], x, y)
        return float(loss)

    serve(run, f"jax {jax.__version__} jit")


if __name__ == "__main__":
    main()
