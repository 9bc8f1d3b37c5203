"""Finds and loads oneDNN once, on first use.

The wheel puts `libdnnl.so.3` into `<prefix>/lib`, without a run path, and expects the system's `libgomp.so.1` to
be loaded already (`weft.runtime.threads` does that, with bounded spinning). Importing this module loads nothing.
`load()` may be called from any thread; the answer (a `Library`, or `None` with exactly one warning that says what
to install) never changes during a process.

Environment:
    WEFT_ONEDNN=0             switches oneDNN off, without a warning.
    WEFT_ONEDNN_LIBRARY=path  uses this libdnnl (any version >= 3.2) and no other.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from weft.runtime import forks, threads

from ... import settings
from . import capi

MINIMUM_VERSION = (3, 2)
_FILE_NAMES = ("libdnnl.so.3", "libdnnl.so", "libdnnl.3.dylib", "libdnnl.dylib")
_INSTALL_HINT = "Weft runs without it, more slowly. To install it: `pip install onednn-cpu-gomp`"

_lock = forks.held_over_fork()
_loaded: capi.Library | None = None
_tried = False


class _NotLoaded(Exception):
    """Why oneDNN cannot be used; the text becomes the warning."""


def _candidates() -> Iterator[str]:
    """Candidate paths, best first, without duplicates. The last ones are resolved by the system's loader."""
    folders = [Path(sys.prefix) / "lib", Path(sys.base_prefix) / "lib"]
    if site.ENABLE_USER_SITE:
        folders.append(Path(site.getuserbase()) / "lib")
    # `pip install --target DIR` leaves the library in DIR/lib, DIR/../lib or deeper prefixes of DIR: this package's own
    # folder and every import path may be such a DIR.
    package_root = Path(__file__).resolve().parents[3]
    roots = [package_root, Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))]
    roots += [Path(entry) for entry in sys.path if entry and os.path.isdir(entry)]
    for root in roots:
        folders += [root / "lib", root.parent / "lib"]
        if root.name in ("site-packages", "dist-packages"):
            folders.append(root.parents[1] if len(root.parents) > 1 else root)
    seen: set[str] = set()
    for folder in folders:
        for name in _FILE_NAMES:
            path = str(folder / name)
            if path not in seen:
                seen.add(path)
                if os.path.isfile(path):
                    yield path
    yield from _FILE_NAMES


def _open() -> capi.Library:
    chosen = settings.ONEDNN_LIBRARY()
    problems: list[str] = []
    for path in (chosen,) if chosen else _candidates():
        try:
            library = capi.Library(path)
        except OSError as error:
            problems.append(str(error))
            continue
        except AttributeError as error:  # a libdnnl before 3.0 lacks parts of the interface
            problems.append(f"{path}: {error}")
            continue
        if library.version < MINIMUM_VERSION:
            problems.append(f"{path} is version {'.'.join(map(str, library.version))}, too old")
            continue
        return library
    wanted = ".".join(map(str, MINIMUM_VERSION))
    if chosen:
        raise _NotLoaded(
            f"oneDNN: WEFT_ONEDNN_LIBRARY={chosen!r} cannot be used ({problems[0]}); expected the path of a libdnnl "
            f">= {wanted}. Weft runs without oneDNN, more slowly."
        )
    found = [problem for problem in problems if "cannot open shared object file: No such file" not in problem]
    detail = f" ({'; '.join(found)})" if found else ""
    raise _NotLoaded(
        f"oneDNN: no usable libdnnl >= {wanted} was found{detail}. {_INSTALL_HINT}, "
        "or set WEFT_ONEDNN_LIBRARY to a libdnnl."
    )


def load() -> capi.Library | None:
    """The loaded library, or `None` if it is switched off or cannot be loaded (the first failure warns, once)."""
    if _tried:
        return _loaded
    message = _load_once()
    if message is not None:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return _loaded


def _load_once() -> str | None:
    """Decides what `load()` returns, unless another thread has; what to warn about."""
    global _loaded, _tried
    with _lock:
        # Without libgomp `threads.openmp()` has already warned (or the user switched it off): no second warning.
        if _tried or not settings.ONEDNN() or threads.openmp() is None:
            _tried = True
            return None
        try:
            _loaded = _open()
        except _NotLoaded as problem:
            return str(problem)
        finally:
            _tried = True
        return None


def require() -> capi.Library:
    """The loaded library; raises `Unsupported` where `load()` would return `None`."""
    library = load()
    if library is None or not threads.openmp_usable():
        raise capi.Unsupported("oneDNN: not available in this process. Check `available()` first.")
    return library


def available() -> bool:
    """Whether oneDNN can be used now. Loads it on the first call.

    It turns false in a forked child that must not enter OpenMP (see `weft.runtime.threads`, *Fork*).
    """
    return load() is not None and threads.openmp_usable()


def version() -> str | None:
    """The version of the loaded oneDNN such as "3.2.0", or `None`."""
    library = load()
    return None if library is None else ".".join(map(str, library.version))


def path() -> str | None:
    """The file the loaded oneDNN came from, or `None`."""
    library = load()
    return None if library is None else library.path


def isa() -> str | None:
    """The instruction set oneDNN generates code for, such as "avx512_core_vnni", or `None`."""
    library = load()
    return None if library is None else library.isa
