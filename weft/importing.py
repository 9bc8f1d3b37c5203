"""Code that runs when another package is imported, so that Weft need not import it."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from typing import Any


def after_import(package: str, module: str, function: str) -> None:
    """Call a function, by its name in a module, as soon as `package` is imported, or now if it is."""
    if package in sys.modules:
        _call(package, module, function)
    else:
        sys.meta_path.insert(0, _Finder(package, module, function))


def _call(package: str, module: str, function: str) -> None:
    try:
        getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:  # another version: `import package` must not fail because of Weft
        warnings.warn(f"weft: {module} cannot serve this version of {package}. {error}", stacklevel=3)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one package where it is found anyway, and adds to its loading; then it is gone."""

    def __init__(self, package: str, module: str, function: str) -> None:
        self.package, self.module, self.function, self.busy = package, module, function, False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.package or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, finder: _Finder) -> None:
        self.loader, self.finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        _call(self.finder.package, self.finder.module, self.finder.function)
