"""Every example in a public docstring runs and shows what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import weft
from tools import reference


def _examples():
    """(docstring, module) by name of everything public, and of every module, that has an example; each docstring once.

    An example in the reference has no module: it may use only the names that the first page of the reference imports.
    """
    found: dict[str, tuple[str, str | None]] = {}
    seen = set()

    def add(name, value, public=False):
        doc = inspect.getdoc(value) or ""
        if ">>>" in doc and doc not in seen:
            seen.add(doc)
            found[name] = (doc, None if public else getattr(value, "__module__", None) or name)

    for page in reference.pages():
        for path, value in page.entries:
            add(path, value, public=True)
            if isinstance(value, type):
                for name, member in reference.members(value):
                    add(f"{path}.{name}", member, public=True)
    for info in pkgutil.walk_packages(weft.__path__, "weft."):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            add(info.name, module)
            for name, value in vars(module).items():  # what is not public may have examples, too
                if getattr(value, "__module__", None) == info.name and (
                    inspect.isclass(value) or inspect.isfunction(value)
                ):
                    add(f"{info.name}.{name}", value)
    return found


@pytest.mark.parametrize(("name", "doc", "module"), [pytest.param(n, *f, id=n) for n, f in _examples().items()])
def test_example_shows_what_it_says(name, doc, module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weft.manual_seed(0)
    scope = {**(vars(importlib.import_module(module)) if module else {}), **reference.EXAMPLE_NAMES}
    test = doctest.DocTestParser().get_doctest(doc, scope, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
