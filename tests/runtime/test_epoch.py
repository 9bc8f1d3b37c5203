"""The number by which captured functions notice changes."""

from __future__ import annotations

from weft import nn
from weft.runtime import epoch


def test_a_mode_that_is_undone_gives_the_number_back_and_a_change_never_does() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.1), nn.Dropout(0.2)))
    first = epoch.current()
    model.eval()
    evaluating = epoch.current()
    assert evaluating != first
    assert epoch.current() == (model.eval(), evaluating)[1]
    model.train()
    assert epoch.current() == first
    model[1][0].eval()
    partly = epoch.current()
    assert partly not in (first, evaluating)
    model.eval()
    assert epoch.current() == evaluating
    model.train()
    model[0].p = 0.6
    assert epoch.current() not in (first, evaluating, partly)
