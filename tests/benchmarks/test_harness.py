"""What surrounds a comparison: the machine, stored results, tables and charts."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.harness import machine, peers, ping, store
from benchmarks.harness.chart import Ratio, ratios
from benchmarks.harness.machine import Sample
from benchmarks.models.runners import RUNNERS, SECTION, entries


def row(relative: float, **facts: Any) -> dict[str, Any]:
    return {
        "median": 0.1 * relative, "low": 0.09 * relative, "high": 0.2 * relative, "best": 0.09, "steps": 10, "rounds": 2,
        "relative": relative, "first_seconds": 1.0, "check": [1.0, 2.0], "peak_bytes": 2**30, "what": "fake", "busy": False,
    } | facts  # fmt: skip


def document(**rows: dict[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", "-"): r for name, r in rows.items()}
    return {
        "machine": {},
        "sections": {"training": {"mlp": {"rows": named, "skipped": {}, "failed": {}, "machine": []}}},
    }


def test_foreign_work_makes_a_machine_busy() -> None:
    cpus = os.cpu_count() or 1
    before = Sample(at=0.0, busy=100.0, steal=5.0, ours=10.0)
    quiet = machine.between(before, Sample(10.0, 100.0 + 5 * cpus, 5.0, 10.0 + 5 * cpus), 0.1)
    assert not quiet.busy and quiet.foreign == 0 and "quiet machine" in str(quiet)
    crowded = machine.between(before, Sample(10.0, 100.0 + 8 * cpus, 5.0, 10.0 + 5 * cpus), 0.1)
    assert crowded.busy and crowded.foreign == pytest.approx(0.3) and "30%" in str(crowded)
    stolen = machine.between(before, Sample(10.0, 100.0, 5.0 + cpus, 10.0), 0.1)
    assert stolen.busy and stolen.steal == pytest.approx(0.1) and stolen.facts()["busy"] is True


def test_own_work_is_not_foreign() -> None:
    before = machine.sample([])
    sum(i * i for i in range(3_000_000))
    after = machine.sample([])
    assert after.ours - before.ours > 0.02 and after.busy >= before.busy
    assert machine.available_bytes() > 0 and machine.describe()["cpus"] == os.cpu_count()


def test_results_are_merged_by_row(tmp_path: Path) -> None:
    args = argparse.Namespace(out=tmp_path, merge=True, section="training")
    first = document(weft=row(1.0), torch=row(1.5))
    store.save(args, first)
    loaded = store.load(args)
    piece = {"rows": {"torch": row(1.2)}, "skipped": {"jax": "missing"}, "failed": {}, "machine": [{"busy": False}]}
    store.put(loaded, "training", "mlp", piece)
    merged = loaded["sections"]["training"]["mlp"]
    assert merged["rows"]["weft"]["relative"] == 1.0 and merged["rows"]["torch"]["relative"] == 1.2
    assert merged["skipped"] == {"jax": "missing"} and len(merged["machine"]) == 1
    store.put(loaded, "training", "mlp", {"rows": {"jax": row(2.0)}, "skipped": {}, "failed": {}, "machine": []})
    assert "jax" in merged["rows"] and not merged["skipped"]
    args.merge = False
    assert store.load(args)["sections"] == {}


def test_failures_end_the_command_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(weft=row(1.0))
    assert store.report_failures(found, "training") == 0
    found["sections"]["training"]["mlp"]["failed"]["torch"] = "disagrees by 1"
    assert store.report_failures(found, "training") == 1 and "mlp, torch: disagrees" in capsys.readouterr().out


def test_unknown_names_are_reported() -> None:
    assert store.names("mlp,gpt", ["gpt", "mlp"], "model") == ["mlp", "gpt"]
    with pytest.raises(SystemExit, match="tutu: there is no such model"):
        store.names("tutu", ["mlp"], "model")


def test_blocks_of_a_page_are_replaced() -> None:
    page = "before\n<!-- training -->\nold\n<!-- end training -->\nafter\n"
    assert store.replace_block(page, "training", "new\n") == (
        "before\n<!-- training -->\nnew\n<!-- end training -->\nafter\n"
    )
    with pytest.raises(ValueError, match="no block"):
        store.replace_block(page, "inference", "new")


def test_table_names_the_best_peer_of_either_kind() -> None:
    rows = {"weft": row(1.0), "torch": row(1.5), "jax": row(1.25, peak_bytes=2**31), "torch_kept": row(1.1)}
    text = SECTION.markdown(document(**rows))
    assert "| MLP, batch 128 | 1,280 samples/s | jax.jit, 1,024 samples/s | **1.25×** | torch eager, " in text
    assert "**1.10×** | 0.50 of its |" in text and "150 (135–300)" in text
    rows["weft_dense"] = row(0.8, peak_bytes=2**29)
    assert "1,600 samples/s (captured, plain Adam) | jax.jit, 1,024 samples/s | **1.56×**" in SECTION.markdown(
        document(**rows)
    )
    assert "(busy machine)" in SECTION.markdown(document(weft=row(1.0, busy=True)))
    assert "1.25× Weft's time" in SECTION.lines("mlp", document(**rows)["sections"]["training"]["mlp"])


def test_chart_shows_the_ratios_of_the_table(tmp_path: Path) -> None:
    found = document(weft=row(1.0), torch=row(1.5), jax=row(1.25), torch_kept=row(1.1))
    assert ratios(SECTION.markdown(found)) == [Ratio("MLP", "batch 128", "jax.jit", 1.25, 1.1)]
    path = tmp_path / "bars.svg"
    SECTION.chart(found, path)
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    for word in ("MLP", "batch 128", "1.25×", "jax.jit", SECTION.claim):
        assert word in text


def test_peers_are_found_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "jax" / "bin").mkdir(parents=True)
    (tmp_path / "jax" / "bin" / "python").touch(0o755)
    parser = argparse.ArgumentParser()
    peers.add_arguments(parser)
    found = peers.interpreters(parser.parse_args(["--peers", str(tmp_path), "--torch", sys.executable]))
    assert found["torch"] == sys.executable and found["jax"].endswith("jax/bin/python") and "tf" not in found
    with pytest.raises(SystemExit, match="--torch: there is no interpreter 'python9'"):
        peers.interpreters(parser.parse_args(["--torch", "python9"]))


def test_runners_skip_what_they_do_not_cover() -> None:
    everyone = list(RUNNERS)
    found = {e.name: e for e in entries("ncf_sparse", everyone, {"weft": "p", "jax": "q"}, Path("w"))}
    assert "jax" not in found and "torch-cl" not in found and found["torch"].command is None
    assert found["weft"].command is not None and found["torch-kept"].env["GLIBC_TUNABLES"]


def test_a_ping_between_two_processors_takes_nanoseconds_and_leaves_the_thread_where_it_was() -> None:
    allowed = os.sched_getaffinity(0)
    took = [ping.nanoseconds() for _ in range(3)]
    assert os.sched_getaffinity(0) == allowed
    if len(allowed) < 2:
        assert took == [None] * 3
    else:
        assert all(t is None or 1 < t < 1e6 for t in took)
