"""The methods of PyTorch's `SummaryWriter`, by PyTorch's names and arguments."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...tensor import Tensor
from . import media, messages


def as_array(values: Any) -> np.ndarray:
    """A tensor, array or number as an array."""
    return values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)


class TorchNames:
    """Mixed into `SummaryWriter`, which says where the data go."""

    directory: Path
    _parts: dict[str, Any]

    def _summary(self, step: Any, *values: bytes, walltime: float | None = None) -> None:
        raise NotImplementedError

    def _sibling(self, name: str) -> Any:
        """The writer of a run below this one."""
        raise NotImplementedError

    @property
    def log_dir(self) -> str:
        """The directory, as text."""
        return str(self.directory)

    def get_logdir(self) -> str:
        """The directory, as text."""
        return str(self.directory)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Add a point of a curve. `new_style` and `double_precision` are accepted; the file holds 32-bit floats."""
        self._summary(global_step, messages.scalar(tag, float(as_array(scalar_value))), walltime=walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add points of several curves to one plot; each curve is a run of its own, in a folder below."""
        for tag, value in tag_scalar_dict.items():
            run = self._sibling(f"{main_tag.replace('/', '_')}_{tag}")
            run.add_scalar(main_tag, value, global_step, walltime)
            run.flush()

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = 64, walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Add a histogram of finite values; `bins` is a number, edges, or a word, for which 64 are used."""
        found = (
            64 if isinstance(bins, str) else bins if isinstance(bins, int) else np.asarray(as_array(bins), np.float64)
        )
        self._summary(global_step, messages.histogram(tag, as_array(values), found), walltime=walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a Markdown text."""
        self._summary(global_step, messages.text(tag, text_string), walltime=walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image: bytes, or floats in [0, 1].

        Args:
            dataformats: what the axes are: "CHW", "HWC" or "HW".
        """
        pixels = media.picture("add_image", as_array(img_tensor), dataformats)
        self._summary(global_step, messages.image(tag, pixels.shape, media.png(pixels)), walltime=walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add several images as a grid of at most eight in a row; `dataformats` as "NCHW" or "NHWC"."""
        pixels = media.picture("add_images", as_array(img_tensor), dataformats)
        self._summary(global_step, messages.image(tag, pixels.shape, media.png(pixels)), walltime=walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Add a figure of matplotlib, or a list of them, and close it unless told otherwise."""
        figures = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        drawn = [media.figure_pixels(f) for f in figures]
        if len(drawn) == 1:
            self.add_image(tag, drawn[0], global_step, walltime, "HWC")
        else:
            self.add_images(tag, np.stack(drawn), global_step, walltime, "NHWC")
        if close:
            import matplotlib.pyplot as plt

            for f in figures:
                plt.close(f)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add a sound: samples in [-1, 1], (length,) or (1, length)."""
        sound = np.squeeze(as_array(snd_tensor))
        if sound.ndim != 1:
            raise ValueError(f"add_audio: expected one channel, (1, length). Got shape {as_array(snd_tensor).shape}.")
        encoded = media.wav(sound.astype(np.float64), sample_rate)
        self._summary(global_step, messages.audio(tag, sample_rate, len(sound), encoded), walltime=walltime)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127,
        weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a curve of precision and recall of predictions in [0, 1] for labels 0 and 1."""
        given = None if weights is None else as_array(weights)
        curve = media.precision_recall(as_array(labels), as_array(predictions), given, num_thresholds)
        self._summary(global_step, messages.pr_curve(tag, curve), walltime=walltime)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Any = None,
        run_name: str | None = None, global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Add a row of the table of hyperparameters: their values, and the metrics that a run with them reached.

        Args:
            hparam_dict: text, numbers and bools by name.
            metric_dict: numbers by name.
            run_name: the folder of the row, below this writer's; the time by default.
        """
        if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
            raise TypeError("add_hparams: expected two dicts, of hyperparameters and of metrics.")
        row = self._sibling(run_name if run_name is not None else str(time.time()))
        row._summary(0, *messages.hparams(hparam_dict, list(metric_dict), hparam_domain_discrete or {}))
        for name, value in metric_dict.items():
            row.add_scalar(name, value, global_step)
        row.flush()

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Add the graph of a model for the given inputs; also of a captured function, or a graph itself."""
        self.graph(model, input_to_model)

    def graph(self, graph: Any, inputs: Any = None) -> None:
        raise NotImplementedError
