"""Ops written as other ops, one file per family. Importing this package registers all of them."""

from importlib import import_module
from pkgutil import iter_modules

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
