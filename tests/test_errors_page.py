"""Every row of docs/errors.md raises what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft as wf
from weft import nn
from weft.nn import functional as F

PAGE = Path(__file__).resolve().parents[1] / "docs" / "errors.md"


def _rows():
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 3 and cells[0].startswith("`") and "Error: " in cells[1]:
            kind, _, start = cells[1].partition(": ")
            yield pytest.param(cells[0].strip("`"), kind, start, id=cells[0].strip("`"))


def twice(loss):
    loss.backward()
    loss.backward()


def overwritten(w):
    a = w * 1
    product = (a * a).sum()
    a += 1
    product.backward()


@pytest.mark.parametrize(("code", "kind", "start"), list(_rows()))
def test_row(code, kind, start):
    names = {"wf": wf, "nn": nn, "F": F, "x": wf.ones(3), "w": wf.ones(3).requires_grad_()}
    with pytest.raises(Exception) as caught:
        eval(code, {**names, "twice": twice, "overwritten": overwritten})
    assert kind in [c.__name__ for c in type(caught.value).__mro__] and str(caught.value).startswith(start)


def test_the_page_has_rows():
    assert len(list(_rows())) >= 18
