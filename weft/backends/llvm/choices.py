"""Measured choices between lowerings on disk, next to the object code. They hold for one machine and version."""

from __future__ import annotations

import functools
import hashlib

from ...runtime import info
from . import native, target
from .cache import read as read
from .cache import write as write


@functools.cache
def machine() -> str:
    """The machine and version that a measurement holds for, as text. The number of threads is not part of it: results must
    not depend on it, so a choice holds for any number of threads."""
    host = target.host()
    code = hashlib.sha256(f"{host.key}\0{native._emitter()}".encode()).hexdigest()
    return f"{host.cpu}, weft {info._weft_version()}, code {code}"
