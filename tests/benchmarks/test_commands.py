"""The benchmark commands from end to end, on the smallest model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import table
from benchmarks.extras import __main__ as extras
from benchmarks.extras import chain, installing
from benchmarks.extras.context import Context
from benchmarks.harness.process import ROOT
from benchmarks.harness.turns import disagreement
from benchmarks.inference.configurations import some
from benchmarks.models.__main__ import main
from benchmarks.models.configurations import CONFIGURATIONS, batch
from benchmarks.models.kernel_times import report
from benchmarks.models.versus import main as versus


def test_training_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--models=tiny_mlp", "--runners=weft,weft-eager,jax", "--rounds=2", "--turn=0.02", f"--out={tmp_path}"]
    assert main(options) == 0
    said = capsys.readouterr().out
    assert "jax: skipped, no interpreter with jax given" in said and "machine: other processes took" in said
    rows = json.loads((tmp_path / "results.json").read_text())["sections"]["training"]["tiny_mlp"]["rows"]
    assert set(rows) == {"weft", "weft-eager"}
    np.testing.assert_allclose(rows["weft"]["check"], rows["weft-eager"]["check"], rtol=1e-5)
    assert rows["weft"]["check"][2] < rows["weft"]["check"][0]  # it learns
    assert "| tiny MLP, batch 16" in (tmp_path / "training.md").read_text()
    page = tmp_path / "page.md"
    page.write_text("<!-- training -->\n<!-- end training -->\n")
    assert table.main(["--sections=", f"--out={tmp_path}", f"--write={page}"]) == 0
    written = page.read_text()
    assert "tiny MLP" in written and "Other processes took" in written and "weft 0" in written
    page.write_text("# Page\n")
    assert table.main(["--sections=", f"--out={tmp_path}", f"--write={page}"]) == 0
    assert "## Training" in page.read_text() and "## Inference" not in page.read_text()


def test_two_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert versus([str(ROOT), str(ROOT), "--models=tiny_mlp", "--seconds=0.1", "--turn=0.02", "--starts=2"]) == 0
    old, new = capsys.readouterr().out.splitlines()[1:]
    assert old.startswith("tiny_mlp") and "1.000 (1.000 to 1.000)" in old
    assert "losses differ by 0.0e+00" in new


def test_data_is_the_same_everywhere() -> None:
    for name in ("tiny_mlp", "gpt", "gnmt", "ncf"):
        first, second = batch(name), batch(name)
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        assert first[0].shape[0] == CONFIGURATIONS[name].batch


def test_a_small_batch_is_for_checking_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="Add --rounds 0"):
        main(["--models=tiny_mlp", "--batch=2"])
    monkeypatch.setenv("BENCHMARK_BATCH", "2")
    assert [d.shape[0] for d in batch("tiny_mlp")] == [2, 2]


def test_kernel_times() -> None:
    text = report("tiny_mlp", steps=2, top=5)
    assert text.startswith("tiny_mlp: batch 16") and "matmul" in text and "GFLOP/s" in text


def test_chain_and_table_of_extras() -> None:
    (row,) = chain.measure(Context({}), ops=200)
    assert set(row.figures) == {"first call, cold", "per op"} and row.figures["per op"].endswith(" ns")
    text = extras.table("Chain", [{"what": "a", "figures": {"x": "1"}}, {"what": "b", "figures": {"y": "2"}}])
    assert "| | x | y |" in text and "| b | – | 2 |" in text


def test_installed_size_counts_what_is_required() -> None:
    count, total = installing._weft()
    assert count >= 5 and 50e6 < total < 1e9


def test_scores_are_compared_as_shares_and_in_size() -> None:
    scores = np.array([[1.0, -4.0, 2.0]])
    np.testing.assert_allclose(some(scores), [0.25, -1.0, 0.5, np.log(4.0)])
    assert disagreement(some(scores), some(1.5 * scores)) > 0.1  # same shares, another size
