"""Event files: TensorBoard reads what we write."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn
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


# PyTorch's names ----------------------------------------------------------------------------------------------------------


def test_tensorboard_reads_what_pytorchs_names_write(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    bytes_, sound = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8), np.sin(np.arange(100) / 5)
    with SummaryWriter(log_dir=tmp_path, comment="ignored", flush_secs=1) as writer:
        assert writer.log_dir == writer.get_logdir() == str(tmp_path)
        writer.add_scalar("loss", wf.tensor(0.5), 3, walltime=12.0)
        writer.add_histogram("weight", wf.ones(4), 1, bins="tensorflow")
        writer.add_histogram("edges", np.array([0.1, 0.6, 0.7]), 1, bins=np.array([0.0, 0.5, 1.0]))
        writer.add_histogram("nothing", wf.zeros(0), 1)
        writer.add_text("note", "**bold**", 1)
        writer.add_image("bytes", bytes_, 2, dataformats="HWC")
        writer.add_image("floats", wf.asarray(np.moveaxis(bytes_, -1, 0) / np.float32(255)), 2)
        writer.add_image("grey", bytes_[:, :, 0], 2, dataformats="HW")
        writer.add_images("many", rng.random((10, 3, 4, 4)), 2)
        writer.add_audio("tone", wf.tensor(sound)[None], 2, sample_rate=8000)
        writer.add_pr_curve("curve", np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.6]), 2, num_thresholds=5)
    found = read(tmp_path)
    (point,) = found.Scalars("loss")
    assert (point.step, point.value, point.wall_time) == (3, 0.5, 12.0)
    assert list(found.Histograms("edges")[0].histogram_value.bucket) == [1.0, 2.0]
    assert found.Histograms("nothing")[0].histogram_value.num == 0
    for name, expected in (("bytes", bytes_), ("floats", bytes_), ("grey", bytes_[:, :, 0])):
        (entry,) = found.Images(name)
        assert (entry.step, entry.height, entry.width) == (2, 5, 7)
        pixels = np.asarray(image_module.open(io.BytesIO(entry.encoded_image_string)))
        np.testing.assert_allclose(pixels, expected, atol=1)
    assert (found.Images("many")[0].height, found.Images("many")[0].width) == (8, 32)
    (entry,) = found.Audio("tone")
    assert (entry.sample_rate, entry.length_frames, entry.content_type) == (8000.0, 100, "audio/wav")
    (curve,) = found.Tensors("curve")
    values = np.array(curve.tensor_proto.float_val).reshape(6, 5)
    assert values[0].tolist() == [2.0, 2.0, 1.0, 1.0, 0.0] and values[1].tolist() == [2.0, 1.0, 1.0, 0.0, 0.0]
    assert found.SummaryMetadata("curve").plugin_data.plugin_name == "pr_curves"


def test_figures_become_images(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 0.5), dpi=40)
    figure.subplots().plot([0, 1])
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("plot", figure, 4)
        writer.add_figure("plots", [figure, figure], 4)
    found = read(tmp_path)
    assert (found.Images("plot")[0].width, found.Images("plot")[0].height) == (40, 20)
    assert found.Images("plots")[0].width == 80


def test_a_table_of_hyperparameters_and_curves_in_one_plot(tmp_path: Path) -> None:
    plugin = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"lr": 0.1, "name": "adam", "nesterov": True}, {"loss": wf.tensor(0.25)}, run_name="first")
        writer.add_scalars("loss", {"train": 1.0, "valid": 2.0}, 5)
        with pytest.raises(TypeError, match="'layers' must be text, a number or a bool. Got list"):
            writer.add_hparams({"layers": [1]}, {}, run_name="bad")
    found = read(tmp_path / "first")
    assert found.Scalars("loss")[0].value == 0.25
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    chosen = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    assert (chosen["lr"].number_value, chosen["name"].string_value, chosen["nesterov"].bool_value) == (
        0.1,
        "adam",
        True,
    )
    content = found.SummaryMetadata("_hparams_/experiment").plugin_data.content
    experiment = plugin.HParamsPluginData.FromString(content).experiment
    assert [(i.name, i.type) for i in experiment.hparam_infos] == [("lr", 3), ("name", 1), ("nesterov", 2)]
    assert [m.name.tag for m in experiment.metric_infos] == ["loss"]
    assert read(tmp_path / "loss_train").Scalars("loss")[0].value == 1.0
    assert read(tmp_path / "loss_valid").Scalars("loss")[0].step == 5


def test_graphs_of_models_and_captured_functions(tmp_path: Path) -> None:
    step = wf.function(lambda x: wf.sum(x * 2.0))
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="has no graph yet. Call it once"):
            writer.add_graph(step)
        with pytest.raises(TypeError, match="Got Linear without inputs"):
            writer.add_graph(nn.Linear(2, 3))
        writer.add_graph(step, wf.ones(2))
        writer.add_graph(nn.Linear(2, 3), wf.ones(1, 2))
    assert any("linear" in node.op or "matmul" in node.op for node in read(tmp_path).Graph().node)


def test_an_image_says_what_its_axes_are(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match=r"shape \(5, 7\), which does not fit dataformats='CHW'"):
            writer.add_image("x", np.zeros((5, 7)))
        with pytest.raises(ValueError, match="1 to 4 channels. Got 5"):
            writer.add_image("x", np.zeros((5, 7, 3)))
        with pytest.raises(ValueError, match="expected one channel"):
            writer.add_audio("x", np.zeros((2, 5)))
