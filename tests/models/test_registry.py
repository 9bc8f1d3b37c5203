"""Models by name, and models from checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import models, nn, optim
from weft.io import write_checkpoint
from weft.models.registry import constructor


def test_sizes_of_the_small_ones() -> None:
    assert sum(p.size for p in models.lenet().parameters()) == 61_706
    assert sum(p.size for p in models.mlp(784, 10, (512, 512)).parameters()) == 784 * 512 + 512 * 513 + 512 + 5130
    for size in (4, 8, 15, 16, 28, 32, 33):
        assert models.lenet(image_size=size)(wf.zeros((2, 1, size, size))).shape == (2, 10)
    with pytest.raises(ValueError, match="image_size must be at least 4"):
        models.lenet(image_size=3)
    with pytest.raises(ValueError, match="unknown activation 'x'"):
        models.mlp(activation="x")
    assert "Dropout" in repr(models.mlp(dropout=0.5)) and models.mlp(4, 2, ())(wf.zeros((3, 4))).shape == (3, 2)


def test_models_by_name() -> None:
    assert {"mlp", "lenet", "gpt"} <= set(models.constructors())
    model = models.build("mlp", hidden=[5])
    assert model.made_by == {"name": "mlp", "arguments": {"hidden": [5]}}
    with pytest.raises(ValueError, match="there is no 'lennet'. Did you mean 'lenet'?"):
        models.build("lennet")


def test_arguments_that_no_file_can_hold_are_not_noted() -> None:
    @constructor
    def wrapped(layer: nn.Module) -> nn.Module:
        return nn.Sequential(layer)

    assert not hasattr(wrapped(nn.Linear(1, 1)), "made_by")
    models.registry._constructors.pop("wrapped")


def trained(tmp_path: Path, **options: object) -> tuple[wf.Trainer, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
    batches = [(wf.asarray(x), wf.asarray(x[:, :2]))]
    model = models.mlp(6, 2, hidden=(4,))
    trainer = wf.Trainer(
        model, optim.SGD(model.parameters(), lr=0.05), nn.MSELoss(),
        checkpoint_dir=tmp_path / "checkpoints", progress=False, capture=False, **options,
    )  # fmt: skip
    trainer.fit(batches, batches, epochs=4)
    return trainer, x


@pytest.mark.parametrize("ema", [None, 0.5])
def test_a_run_gives_its_best_model(tmp_path: Path, ema: float | None) -> None:
    trainer, x = trained(tmp_path, ema=ema)
    for place in (tmp_path, tmp_path / "checkpoints", tmp_path / "checkpoints" / "step-00000004"):
        model = models.load(place)
        assert not model.training
        np.testing.assert_array_equal(model(wf.asarray(x)).detach().numpy(), trainer.predict(x).numpy())


def test_the_best_is_not_always_the_last(tmp_path: Path) -> None:
    trainer, x = trained(tmp_path, monitor="val_loss", mode="max")  # the worst, that is the first
    assert models.load(tmp_path)(wf.asarray(x)).tolist() != trainer.predict(x).tolist()


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no"):
        models.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="holds none"):
        models.load(tmp_path)
    write_checkpoint(tmp_path, 1, {"model": {}})
    with pytest.raises(ValueError, match="does not say how its model was made"):
        models.load(tmp_path)
