"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import weft.autograd
from tools.reference import EXAMPLE_NAMES

MODULES = [f"weft.autograd.{m.name}" for m in pkgutil.iter_modules(weft.autograd.__path__)] + [
    "weft.autocast",
    "weft.dtypes",
    "weft.tensor",
    "weft.printing",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, _ = doctest.testmod(module, extraglobs=EXAMPLE_NAMES, optionflags=flags)
    assert failed == 0
