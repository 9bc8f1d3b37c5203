"""Configurations: what is wrong, in which file, on which line, at which key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from weft.commands import config
from weft.commands.config import ConfigError, fit, key_lines, load_config, parse, recipes
from weft.commands.train import build

GOOD = """\
[model]
name = "mlp"
hidden = [8]

[data]
name = "digits"

[optimizer]
name = "sgd"
lr = 0.1

[train]
epochs = 1
"""


def complaint(text: str, tmp_path: Path) -> str:
    """What making the run says, without the directory of the file."""
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        build(load_config(str(path)), tmp_path / "run", progress=False)
    assert str(error.value).startswith(str(path))
    return str(error.value).removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"mlp"', '"mpl"', "my.toml:2: model.name: there is no 'mpl'. Did you mean 'mlp'?"),
        ('name = "mlp"\n', "", "my.toml:1: model.name: is missing. Expected one of"),
        ("hidden", "hiden", "my.toml:3: model.hiden: unknown key. Did you mean 'hidden'?"),
        ("[8]", '"8"', "my.toml:3: model.hidden: expected a list of integers. Got '8'."),
        ("[8]", "[8.5]", "my.toml:3: model.hidden: expected a list of integers. Got [8.5]."),
        ("[8]", '[8]\nactivation = "rleu"', "my.toml:1: model: mlp: unknown activation 'rleu'"),
        (
            "[8]",
            "[8]\nin_features = 63",
            "my.toml:4: model.in_features: does not fit the data. Got 63; the data have 64.",
        ),
        ('"digits"', '"digit"', "my.toml:6: data.name: there is no 'digit'. Did you mean 'digits'?"),
        ('"digits"', '"digits"\nbatch_size = 0', "my.toml:7: data.batch_size: must be at least 1. Got 0."),
        ('"digits"', '"mnist"', "my.toml:5: data: "),
        ('"digits"', '"mnist"\npath = "/nowhere"', "my.toml:7: data.path: "),
        ('"sgd"', '"sgdd"', "my.toml:9: optimizer.name: there is no 'sgdd'. Did you mean 'sgd'?"),
        ("lr = 0.1", "lr = -1", "my.toml:10: optimizer.lr: SGD: lr must not be negative"),
        ("lr = 0.1", 'lr = "fast"', "my.toml:10: optimizer.lr: expected a number. Got 'fast'."),
        ("lr = 0.1", "learning_rate = 1", "my.toml:10: optimizer.learning_rate: unknown key."),
        ("epochs = 1", "epochs = 0", "my.toml:13: train.epochs: must be at least 1. Got 0."),
        ("epochs = 1", "epochs = true", "my.toml:13: train.epochs: expected an integer. Got True."),
        ("epochs = 1", "epoch = 1", "my.toml:13: train.epoch: unknown key. Did you mean 'epochs'?"),
        (
            "[train]",
            '[schedule]\nname = "cosin"\n[train]',
            "my.toml:13: schedule.name: there is no 'cosin'. Did you mean",
        ),
        ("[train]", "[trian]", "my.toml:12: trian: unknown table. Did you mean 'train'?"),
        ("[train]\n", "[train\n", "my.toml:12: `[train`: "),
        ("epochs = 1", "epochs = ", "my.toml:13: `epochs =`: "),
        ("[data]", "[daten]", "my.toml:5: daten: unknown table."),
        ('"mlp"', "[]", "my.toml:2: model.name: expected a string. Got []."),
        ('"digits"', "{}", "my.toml:6: data.name: expected a string. Got {}."),
        ('"sgd"', "[[]]", "my.toml:9: optimizer.name: expected a string. Got [[]]."),
        ("[8]", "[" * 3000, "my.toml: values are nested too deeply."),
        ("[8]", "[99999999999999]", "my.toml:1: model: "),
        ("lr = 0.1", "lr = 9" + "0" * 400, "my.toml:10: optimizer.lr: expected a number."),
        ("lr = 0.1", "lr = " + "9" * 5000, "my.toml: Exceeds the limit"),
        ("epochs = 1", "ema = 3", "my.toml:12: train: EMA: decay must be between 0 and 1. Got 3.0."),
        ("epochs = 1", "seed = 1979-05-27", "my.toml:13: train.seed: expected an integer."),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    text = complaint(GOOD.replace(old, new, 1), tmp_path)
    assert text.startswith(words) and "Traceback" not in text


def test_a_missing_table_and_a_wrong_kind_of_table(tmp_path: Path) -> None:
    assert complaint('[model]\nname = "mlp"\n', tmp_path).startswith("my.toml: the table [data] is missing.")
    assert complaint("model = 3\n" + GOOD.partition("\n\n")[2], tmp_path).startswith(
        "my.toml:1: model: expected a table"
    )


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        load_config("nowhere.toml")
    with pytest.raises(ConfigError, match="digts: neither a recipe nor a file. Did you mean 'digits'?"):
        load_config("digts")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read as text"):
        load_config(str(tmp_path / "x.toml"))


def test_a_value_of_thousands_of_lines_is_parsed_in_time(tmp_path: Path) -> None:
    """Looking for the end of every value by parsing it again takes time that grows with its square: that is bounded."""
    calls = []
    original = config._complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "_complete", lambda value: calls.append(len(value)) or original(value))
        parse(GOOD.replace("[8]", "[" + "8,\n" * 5000 + "]"), "my.toml", "my")
    assert sum(calls) < 200_000
    with pytest.raises(ConfigError, match="too many for a configuration"):
        (tmp_path / "big.toml").write_text("#" * (config.MAX_BYTES + 1))
        load_config(str(tmp_path / "big.toml"))


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_can_be_made(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    if name == "cifar-like":
        config.override("data", "n", 100, "--n")
    run = build(config, tmp_path, progress=False)
    assert len(run.train_loader) > 0 and run.epochs >= 1


def test_lines_of_keys() -> None:
    text = '# first\n[a]\nx = [\n  1,\n  # = not a key\n  2]\n"q" = """\nb = 3\n"""\n[c.d]\ne.f = 1\n[[g]]\n'
    assert key_lines(text) == {
        ("a",): 2, ("a", "x"): 3, ("a", "q"): 7, ("c", "d"): 10, ("c", "d", "e", "f"): 11, ("g",): 12,
    }  # fmt: skip
    config = parse(GOOD, "f", "f")
    assert config.lines["train", "epochs"] == 13


@pytest.mark.parametrize(
    ("value", "hint", "wanted"),
    [
        (1, float, 1.0), (1, int, 1), (True, bool, True), ("a", str, "a"), ([1, 2], Sequence[int], (1, 2)),
        ([1, 2], tuple[float, float], (1.0, 2.0)), ([1], list[int], [1]), (3, int | None, 3), ("x", Any, "x"),
        ("a", Literal["a", "b"], "a"), (3, "unknown", 3),
    ],
)  # fmt: skip
def test_fitting_values(value: Any, hint: Any, wanted: Any) -> None:
    assert fit(value, hint) == wanted and type(fit(value, hint)) is type(wanted)
