"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import weft.autograd

MODULES = [f"weft.autograd.{m.name}" for m in pkgutil.iter_modules(weft.autograd.__path__)] + [
    "weft.autocast",
    "weft.dtypes",
    "weft.tensor",
    "weft.printing",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
