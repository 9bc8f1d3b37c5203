"""The table that forgets what was used least recently."""

from __future__ import annotations

import threading

from weft.runtime.limits import LeastRecentlyUsed


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
