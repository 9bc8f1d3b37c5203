"""How tensors look."""

from __future__ import annotations

import html.parser

import numpy as np
import pytest

import weft as wf


@pytest.mark.parametrize(("make", "text"), [
    (lambda: wf.tensor(2.5), "tensor(2.5)"),
    (lambda: wf.tensor(7), "tensor(7)"),
    (lambda: wf.tensor(True), "tensor(True)"),
    (lambda: wf.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (lambda: wf.tensor([1, 2], dtype=wf.int32), "tensor([1, 2], dtype=int32)"),
    (lambda: wf.tensor([1.5], dtype=wf.float64), "tensor([1.5], dtype=float64)"),
    (lambda: wf.tensor([1.5], dtype=wf.bfloat16), "tensor([1.5], dtype=bfloat16)"),
    (lambda: wf.tensor(1.5, dtype=wf.bfloat16), "tensor(1.5, dtype=bfloat16)"),
    (lambda: wf.tensor([0.1], dtype=wf.float16), "tensor([0.1], dtype=float16)"),
    (lambda: wf.tensor([1 + 2j]), "tensor([1.+2.j])"),
    (lambda: wf.tensor([1j], dtype=wf.complex128), "tensor([0.+1.j], dtype=complex128)"),
    (lambda: wf.tensor([]), "tensor([])"),
    (lambda: wf.zeros(0, dtype=wf.int64), "tensor([], dtype=int64)"),
    (lambda: wf.zeros(2, 0, 3), "tensor([], shape=(2, 0, 3))"),
    (lambda: wf.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
    (lambda: wf.tensor([1.0], requires_grad=True) * 2, "tensor([2.], grad_fn=multiply)"),
    (lambda: wf.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
    (lambda: wf.tensor([np.nan, np.inf, -np.inf]), "tensor([ nan,  inf, -inf])"),
    (lambda: wf.tensor([True, False]), "tensor([ True, False])"),
])  # fmt: skip
def test_text(make, text):
    assert repr(make()) == text == str(make())


def test_gradient_information_names_the_public_function():
    x = wf.ones(3, requires_grad=True)
    assert "grad_fn=sum" in repr(x.sum()) and "grad_fn=" in repr(x.mean())
    assert "grad_fn=getitem" in repr(x[0])


def test_large_tensors_are_summarised():
    text = repr(wf.zeros(1000, 1000))
    assert "..." in text and len(text) < 600
    assert len(repr(wf.zeros(10**7))) < 200
    assert "..." not in repr(wf.arange(1000)) and "..." in repr(wf.arange(1001))


def test_numpy_print_options_hold():
    with np.printoptions(precision=2):
        assert repr(wf.tensor([1 / 3])) == "tensor([0.33])"


def test_nested_in_containers_and_views():
    assert repr([wf.tensor(1)]) == "[tensor(1)]"
    assert repr(wf.arange(6).reshape(2, 3).T) == "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])"


def test_format():
    assert f"{wf.tensor(2.5):.3f}" == "2.500" and f"{wf.tensor(7):04d}" == "0007"
    assert f"{wf.tensor([1.0, 2.25]):.1f}" == "[1.0, 2.2]"
    assert f"{wf.tensor([1.0], dtype=wf.bfloat16):.2f}" == "[1.00]"
    assert f"{wf.tensor([1.0])}" == "tensor([1.])"
    with pytest.raises(ValueError, match="format: 'd' does not fit float32 elements"):
        f"{wf.tensor([1.5]):d}"


class _Checker(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.stack, self.cells = [], 0

    def handle_starttag(self, tag, attrs):
        self.stack.append(tag)
        self.cells += tag == "td"

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


@pytest.mark.parametrize("make", [
    lambda: wf.tensor(1.0), lambda: wf.tensor([1.0, 2.0]), lambda: wf.ones(2, 3, requires_grad=True), lambda: wf.ones(2, 3, 4),
    lambda: wf.zeros(100, 100), lambda: wf.zeros(0), lambda: wf.zeros(0, 3),
    lambda: wf.ones(2, dtype=wf.bfloat16), lambda: wf.tensor([1j]),
    lambda: wf.tensor([True]), lambda: wf.tensor([1, 2], dtype=wf.uint8), lambda: wf.tensor([np.nan]),
])  # fmt: skip
def test_notebook_form_is_well_formed(make):
    t = make()
    text = t._repr_html_()
    checker = _Checker()
    checker.feed(text)
    assert checker.stack == [] and t.dtype.name in text
    if t.ndim in (1, 2) and 0 < t.size <= 400:
        assert checker.cells == t.size


def test_html_cells_hold_the_numbers():
    assert "<td>1.5</td>" in wf.tensor([1.5], dtype=wf.bfloat16)._repr_html_()
    assert "<td>3</td>" in wf.tensor([3])._repr_html_()
