"""Settings are read from one list, which the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft import settings
from weft.runtime import info

ROOT = Path(__file__).resolve().parents[1]


def test_only_the_list_reads_variables_of_ours() -> None:
    for path in (ROOT / "weft").rglob("*.py"):
        if path.name != "settings.py":
            assert not re.search(r"environ[^\n]*[\"\']WEFT_", path.read_text()), f"{path} reads a variable itself"


def test_the_readme_shows_the_list() -> None:
    assert settings.table() in (ROOT / "README.md").read_text(), f"put this into README.md:\n{settings.table()}"


def test_every_setting_is_documented_and_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(settings.ALL) == len({s.name for s in settings.ALL}) >= 14
    for setting in settings.ALL:
        monkeypatch.delenv(setting.name, raising=False)
        assert setting() == setting.default and setting.doc and setting.name.startswith("WEFT_")


@pytest.mark.parametrize(
    ("text", "value"), [("100", 100), ("2K", 2048), ("3 MiB", 3 << 20), ("1g", 1 << 30), ("none", settings.UNLIMITED)]
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, value: int) -> None:
    monkeypatch.setenv("WEFT_CACHE_SIZE", text)
    assert settings.CACHE_SIZE() == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("MAX_PROGRAMS", t) for t in ("0", "-1", "1.5", "many", "9" * 40, "1X")]
    + [("TUNE", "perhaps"), ("NUM_THREADS", "0"), ("CPU_DEVICES", "0"), ("CPU_DEVICES", "9" * 20), ("DEBUG", "yes")],
)
def test_what_makes_no_sense_says_what_is_expected(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    setting = getattr(settings, name)
    monkeypatch.setenv(setting.name, text)
    with pytest.raises(ValueError, match=f"{setting.name}: expected .*. Got '{re.escape(text)}'. Unset it for"):
        setting()


def test_info_lists_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TUNE", "0")
    assert info.info()["settings"]["WEFT_TUNE"] == "0"
    assert re.search(r"settings +.*WEFT_TUNE=0", info.format_info())
