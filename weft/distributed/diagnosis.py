"""What is wrong with the hosts of a run, from what `weft cluster check` measured. No input or output, but for token files."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Iterable
from typing import Any

from ..runtime.memory import format_bytes

SLOW_LATENCY, SLOW_BYTES = 1e-3, 100e6  # seconds, and bytes per second, of a link between hosts
CLOCK_SECONDS = 0.1  # that clocks may be apart
SLOW_COMPUTE = 1.25  # times the median of the other workers
CROWDED_COMPUTE = 1.3  # times as long beside other workers as alone
MIN_SHM_BYTES, MIN_MEMORY_BYTES, MIN_OPEN_FILES = 64 << 20, 1 << 30, 256
BUSY = 0.5  # load per processor before anything is measured
NOTICE_SECONDS = 3.0  # until the death of a worker is noticed


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is wrong. `severity` is "error" (a run will fail), "warning" (it will be slow, or unsafe) or "note"."""

    severity: str
    text: str


def findings(report: dict[str, Any], security: Iterable[Finding] = ()) -> list[Finding]:
    """What is wrong, the worst first; no input or output."""
    found = [*security]
    for rule in (
        _missing,
        _versions,
        _features,
        _niceness,
        _threads,
        _busy,
        _memory,
        _clocks,
        _slow_workers,
        _links,
        _restarts,
    ):
        found += rule(report)
    order = ("error", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _missing(report: dict[str, Any]) -> Iterable[Finding]:
    here = len(report["hosts"])
    if here < report["hosts_wanted"]:
        yield Finding(
            "error",
            f"{here} of {report['hosts_wanted']} hosts have joined. Are all nodes in the cluster (`ray status`)?",
        )


def _groups(report: dict[str, Any], key: str) -> dict[Any, list[int]]:
    """The values that hosts have, and which hosts have each."""
    groups: dict[Any, list[int]] = {}
    for host in report["hosts"]:
        value = host[key]
        groups.setdefault(tuple(value) if isinstance(value, list) else value, []).append(host["host"])
    return groups


def _versions(report: dict[str, Any]) -> Iterable[Finding]:
    for name, severity in (("weft", "error"), ("python", "error"), ("numpy", "warning")):
        groups = _groups(report, name)
        if len(groups) > 1:
            text = ", ".join(f"{version} on host {_list(hosts)}" for version, hosts in groups.items())
            yield Finding(severity, f"versions of {name} differ: {text}. Install the same on all hosts.")


def _features(report: dict[str, Any]) -> Iterable[Finding]:
    groups = _groups(report, "features")
    if len(groups) > 1:
        common = set.intersection(*(set(features) for features in groups))
        text = "; ".join(
            f"host {_list(hosts)} also {' '.join(sorted(set(f) - common)) or 'nothing'}" for f, hosts in groups.items()
        )
        yield Finding(
            "warning", f"processors have different instruction sets: {text}. The same shard may give other bits."
        )


def _list(numbers: Iterable[Any]) -> str:
    return ", ".join(map(str, numbers))


def _niceness(report: dict[str, Any]) -> Iterable[Finding]:
    slow: dict[int, list[str]] = {}
    for worker in report["workers"]:
        if worker["nice"] > 0:
            slow.setdefault(worker["nice"], []).append(worker["task"])
    for nice, names in slow.items():
        yield Finding(
            "warning", f"{_list(names)} run at niceness {nice}: any other process goes first. Start Ray with "
            "RAY_worker_niceness=0 in its environment, or the command without `nice`.",
        )  # fmt: skip


def _threads(report: dict[str, Any]) -> Iterable[Finding]:
    for machine, name in _machines(report):
        hosts = [host["host"] for host in machine]
        wanted = sum(w["threads"] for w in report["workers"] if w["host"] in hosts)
        cpus, quota, processors = (machine[0][key] for key in ("cpus", "quota", "processors"))
        if wanted > cpus:
            text = f"{name}: {wanted} threads of the workers share {cpus} processors"
            yield Finding("warning", f"{text}. Use fewer --workers or --threads.")
        if quota is not None and quota < processors:
            yield Finding("note", f"{name}: the control group allows {quota:g} of {processors} processors.")


def _machines(report: dict[str, Any]) -> list[tuple[list[dict[str, Any]], str]]:
    """The machines: the hosts that each of them is, and a name for it."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for host in report["hosts"]:
        groups.setdefault((host["boot"], host["hostname"]), []).append(host)
    return [
        (
            hosts,
            f"host {hosts[0]['host']}" if len(hosts) == 1 else f"hosts {_list(h['host'] for h in hosts)} (one machine)",
        )
        for hosts in groups.values()
    ]


def _busy(report: dict[str, Any]) -> Iterable[Finding]:
    for machine, name in _machines(report):
        load, cpus = machine[0]["load"], machine[0]["cpus"]
        if load > BUSY * cpus:
            yield Finding(
                "note", f"{name}: busy, load {load:.1f} on {cpus} processors. What was measured is pessimistic."
            )


def _memory(report: dict[str, Any]) -> Iterable[Finding]:
    for machine, name in _machines(report):
        host = machine[0]
        total, available, whole = (host[key] for key in ("memory_total", "memory_available", "memory_machine"))
        if total and whole and total < whole:
            text = f"{name}: the control group limits memory to {format_bytes(total)} of {format_bytes(whole)}"
            yield Finding("note", f"{text}. The run's shared memory counts.")
        if available is not None and available < MIN_MEMORY_BYTES:
            yield Finding("warning", f"{name}: only {format_bytes(available)} of memory are left.")
        if host["shm_bytes"] is not None and host["shm_bytes"] < MIN_SHM_BYTES:
            yield Finding(
                "warning", f"{name}: /dev/shm has {format_bytes(host['shm_bytes'])}. Weft's memory is not in it, but Ray's "
                "object store and loader processes of other libraries need it (`docker run --shm-size=1g`).",
            )  # fmt: skip
        if host["overcommit"] == "2":
            yield Finding(
                "warning", f"{name}: memory is not overcommitted (vm.overcommit_memory=2), so room for gradients that is "
                "reserved and seldom used counts fully.",
            )  # fmt: skip
        if host["open_files"] < MIN_OPEN_FILES:
            text = f"{name}: a process may open {host['open_files']} files"
            yield Finding("warning", f"{text}. Raise the limit (`ulimit -n 1024`).")


def _clocks(report: dict[str, Any]) -> Iterable[Finding]:
    for host in report["hosts"]:
        offset, error = host["clock_seconds"], host["clock_error_seconds"]
        if offset is not None and abs(offset) - error > CLOCK_SECONDS:
            direction = "ahead of" if offset > 0 else "behind"
            yield Finding(
                "warning", f"the clock of host {host['host']} is {abs(offset):.3g} s {direction} that of host "
                f"{report['hosts'][0]['host']}: times in logs do not fit together. Run an NTP client.",
            )  # fmt: skip


def _slow_workers(report: dict[str, Any]) -> Iterable[Finding]:
    medians = {worker["task"]: worker["compute_seconds"]["together"][5] for worker in report["workers"]}
    where = {worker["task"]: worker["host"] for worker in report["workers"]}
    for name, own in medians.items():
        others = [seconds for other, seconds in medians.items() if other != name]
        if others and own > SLOW_COMPUTE * statistics.median(others):
            ratio = own / statistics.median(others)
            yield Finding("warning", f"{name} on host {where[name]} computes {ratio:.1f}× slower than the others.")
    for worker in report["workers"]:
        alone = worker["compute_seconds"]["alone"]
        if alone is not None and medians[worker["task"]] > CROWDED_COMPUTE * alone[5]:
            ratio = medians[worker["task"]] / alone[5]
            yield Finding(
                "note", f"the workers of host {worker['host']} slow each other down {ratio:.1f}×: they share processors or "
                "memory bandwidth.",
            )  # fmt: skip


def _links(report: dict[str, Any]) -> Iterable[Finding]:
    for link in report["links"]:
        name = f"from host {link['from']} to host {link['to']}"
        if link["latency_seconds"] > SLOW_LATENCY and link["from"] < link["to"]:
            text = f"a message {name} takes {link['latency_seconds'] * 1e3:.2g} ms"
            yield Finding("warning", f"{text}: short steps will wait for the network.")
        if link["bytes_per_second"] < SLOW_BYTES:
            text = f"the link {name} moves {link['bytes_per_second'] / 1e6:.3g} MB/s"
            yield Finding("warning", f"{text}: large models will wait for the network.")


def _restarts(report: dict[str, Any]) -> Iterable[Finding]:
    for restart in report["restarts"]:
        if restart["noticed_seconds"] > NOTICE_SECONDS:
            text = f"the death of {restart['task']} was noticed after {restart['noticed_seconds']:.1f} s"
            yield Finding("warning", f"{text}: the machine of host {restart['host']} is overloaded.")


def security(engine: str, address: str | None, variables: dict[str, str]) -> list[Finding]:
    """What is wrong with the token of a Ray cluster.

    Args:
        engine: "local" or "ray".
        address: of a cluster that runs already; one that Weft starts has a token of its own.
        variables: the environment.
    """
    if engine != "ray" or address is None:
        return []
    if variables.get("RAY_AUTH_MODE", "").lower() != "token":
        text = "the Ray cluster asks for no token: who reaches its port can run programs as its user"
        return [Finding("warning", f"{text}. Start it with RAY_AUTH_MODE=token and a token file.")]
    path = variables.get("RAY_AUTH_TOKEN_PATH") or os.path.join(variables.get("HOME", "/"), ".ray", "auth_token")
    if "RAY_AUTH_TOKEN" in variables:
        return [
            Finding("note", "the token is in a variable, RAY_AUTH_TOKEN, which child processes see; a file is safer.")
        ]
    try:
        mode = os.stat(path).st_mode & 0o777
    except OSError as error:
        return [Finding("error", f"the token file {path} cannot be read: {error.strerror}.")]
    if mode & 0o077:
        return [
            Finding("warning", f"the token file {path} has mode {mode:04o}: others can read it. `chmod 600 {path}`.")
        ]
    return []
