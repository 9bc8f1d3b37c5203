"""Event files: TensorBoard reads what we write."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.io import SummaryWriter
from weft.io.tensorboard.records import crc32c, masked_crc32c, read_records, record


def test_crc32c_known_values() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_records_come_back_and_a_half_written_one_is_left_out() -> None:
    data = record(b"one") + record(b"") + record(b"three")
    assert list(read_records(data)) == [b"one", b"", b"three"]
    for cut in range(1, 20):
        assert list(read_records(data[:-cut])) == [b"one", b""]
    with pytest.raises(ValueError, match="checksum"):
        list(read_records(data.replace(b"three", b"thref")))


def test_without_tensorboard_the_file_is_whole_records(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "new" / "run") as writer:
        writer.scalar("loss", wf.asarray(0.5), 1)
        writer.flush()
        assert len(list(read_records(writer.path.read_bytes()))) == 2
        writer.scalar("loss", 0.25, 2)
    assert len(list(read_records(writer.path.read_bytes()))) == 3
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.scalar("loss", 0.5, 3)


def read(directory: Path) -> Any:
    """What TensorBoard itself makes of the event files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from tensorboard's dependencies
        reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        return reader.EventAccumulator(str(directory)).Reload()


def test_tensorboard_reads_scalars_histograms_text_and_graph(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(2.0, 1.0, 1000).astype(np.float32)
    graph = small_graph()
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.scalars({"loss/train": 1 / (step + 1), "loss/valid": np.float64(2.0)}, step)
        writer.scalar("big", 1e300, 0)
        writer.histogram("weight", wf.asarray(values), 7)
        writer.histogram("constant", np.full(5, 3.0), 7)
        writer.histogram("odd", np.array([np.nan, np.inf, 1.0, 2.0]), 7)
        writer.histogram("nothing", np.zeros(0), 7)
        writer.text("config", "**bold**")
        writer.graph(graph)
    found = read(tmp_path)
    scalars = found.Scalars("loss/train")
    assert [(s.step, s.value) for s in scalars] == [(0, 1.0), (1, 0.5), (2, np.float32(1 / 3))]
    assert found.Scalars("loss/valid")[0].value == 2.0 and found.Scalars("big")[0].value == np.inf
    (entry,) = found.Histograms("weight")
    histogram = entry.histogram_value
    assert entry.step == 7 and histogram.num == 1000 and sum(histogram.bucket) == 1000
    assert histogram.sum == pytest.approx(values.astype(np.float64).sum())
    assert histogram.min == values.min() and histogram.max == values.max()
    assert found.Histograms("constant")[0].histogram_value.num == 5
    assert found.Histograms("odd")[0].histogram_value.num == 2
    assert "config/text_summary" in found.Tags()["tensors"]
    nodes = {node.name: node for node in found.Graph().node}
    assert {n.op.name for n in graph.nodes} == {node.op for node in nodes.values()}
    wired = [node for node in nodes.values() if len(node.input) > 0]
    assert wired and all(i.split(":")[0].lstrip("^") in nodes for node in wired for i in node.input)


def small_graph() -> Any:
    @wf.function
    def f(x: wf.Tensor) -> wf.Tensor:
        return wf.sum(wf.tanh(x) * 2.0)

    f(wf.ones(3))
    return f.graph


def test_a_resumed_run_hides_what_came_after(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(10):
            writer.scalar("loss", 1.0, step)
    with SummaryWriter(tmp_path, purge_step=5) as writer:
        writer.scalar("loss", 2.0, 5)
    assert len(list(tmp_path.iterdir())) == 2
    found = read(tmp_path).Scalars("loss")
    assert [s.value for s in found] == [1.0] * 5 + [2.0]


def test_files_of_one_directory_lie_in_the_order_in_which_they_were_begun(tmp_path):
    made = []
    for _ in range(12):
        with SummaryWriter(tmp_path) as writer:
            made.append(writer.path.name)
    assert sorted(made) == made
