"""The `weft` command."""

from __future__ import annotations

import json

import pytest

import weft
from weft import cli


def test_info_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    assert weft.__version__ in capsys.readouterr().out
    assert cli.main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weft"]["version"] == weft.__version__


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0 and weft.__version__ in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["info", "--no-such-option"]])
def test_a_wrong_command_line_ends_with_status_2_and_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(arguments)
    assert done.value.code == 2 and "usage: weft" in capsys.readouterr().err
