"""Two network namespaces with a cable between them, in which the relays of a run's two hosts live; for tests that cut it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# Moves a relay into the namespace of its host before anything else runs. Only relays use the network.
CUSTOMIZE = """
import ctypes, json, os, sys
if "weft.distributed.relay" in sys.orig_argv:
    context = json.loads(os.environ["WEFT_DISTRIBUTED"])
    name = os.environ["WEFT_TEST_NAMESPACE"] + str(context["host"])
    with open(f"/run/netns/{name}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")
    context["address"] = f"10.213.0.{context['host'] + 1}"
    os.environ["WEFT_DISTRIBUTED"] = json.dumps(context)
"""


class Cable:
    """The connection of the two hosts."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        inherited = os.environ.get("PYTHONPATH")
        path = [str(directory), *([inherited] if inherited else [])]
        self.environment = {"WEFT_TEST_NAMESPACE": name, "PYTHONPATH": os.pathsep.join(path)}

    def cut(self) -> None:
        """From now on packets vanish; nobody is told."""
        _ip("-n", f"{self.name}1", "link", "set", "cable1", "down")

    def heal(self) -> None:
        _ip("-n", f"{self.name}1", "link", "set", "cable1", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


@contextlib.contextmanager
def cable(directory: Path) -> Iterator[Cable]:
    """Two namespaces; skips the test where they cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    name = f"wt{secrets.token_hex(3)}-"
    (directory / "sitecustomize.py").write_text(CUSTOMIZE)
    try:
        try:
            for host in (0, 1):
                _ip("netns", "add", f"{name}{host}")
                _ip("-n", f"{name}{host}", "link", "set", "lo", "up")
            _ip(
                "-n", f"{name}0", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", f"{name}1"
            )
            for host in (0, 1):
                _ip("-n", f"{name}{host}", "addr", "add", f"10.213.0.{host + 1}/24", "dev", f"cable{host}")
                _ip("-n", f"{name}{host}", "link", "set", f"cable{host}", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        yield Cable(name, directory)
    finally:
        for host in (0, 1):
            subprocess.run(["ip", "netns", "delete", f"{name}{host}"], capture_output=True, timeout=20)
