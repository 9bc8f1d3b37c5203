"""Ray clusters of several nodes on this machine, for tests: every raylet stands for a host."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from . import conftest


@contextlib.contextmanager
def ray_cluster(token: str, nodes: int = 2, processors: int = 1) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` that asks for the token in a file; its processes are those of the module, not of a test."""
    from ray.cluster_utils import Cluster

    from weft.distributed import ray_engine

    before = dict(os.environ)
    temporary = tempfile.mkdtemp(prefix="wt-", dir="/tmp")  # short: it is part of the names of sockets
    os.environ.update({"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": temporary})
    os.environ[conftest.VARIABLE] = conftest.MODULE
    ray_engine._use_token(token)
    common = {"num_cpus": processors, "object_store_memory": ray_engine.STORE_BYTES}
    head = {**common, "include_dashboard": False, "_system_config": dict(ray_engine.HEALTH)}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes - 1):
            made.add_node(**common)
        yield made
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(temporary, ignore_errors=True)
