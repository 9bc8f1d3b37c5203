"""Limits from the environment, and the table that forgets what was used least recently."""

from __future__ import annotations

import threading

import pytest

from weft.runtime import limits
from weft.runtime.limits import UNLIMITED, LeastRecentlyUsed


def test_the_least_recently_used_goes_first() -> None:
    table: LeastRecentlyUsed[str, int] = LeastRecentlyUsed(lambda: 3)
    for i, key in enumerate("abc"):
        table.put(key, i)
    assert table.get("a") == 0  # now b is the oldest
    table.put("d", 3)
    assert table.get("b") is None and table.get("a") == 0 and table.values() == [0, 2, 3]
    table.put("a", 9)  # again: nothing has to go for it
    assert table.dropped == 1 and len(table) == 3
    table.clear()
    assert table.values() == [] and table.get("a") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 7), ("100", 100), ("2K", 2048), ("3 MiB", 3 << 20), ("1g", 1 << 30), ("none", UNLIMITED), ("None", UNLIMITED)],
)
def test_settings(monkeypatch: pytest.MonkeyPatch, text: str, value: int) -> None:
    monkeypatch.setenv("WEFT_X", text)
    assert limits._setting("WEFT_X", 7, 1) == value


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "9" * 40, "1X"])
def test_bad_settings_say_what_is_expected(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WEFT_X", text)
    with pytest.raises(ValueError, match="WEFT_X: expected a number of at least 1, such as 100 or 512M, or 'none'"):
        limits._setting("WEFT_X", 7, 1)


def test_threads_share_a_table() -> None:
    table: LeastRecentlyUsed[int, int] = LeastRecentlyUsed(lambda: 8)
    errors: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for i in range(3000):
                key = (start + i * 7) % 23
                found = table.get(key)
                assert found in (None, key * key)
                if found is None:
                    table.put(key, key * key)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and len(table) == 8
