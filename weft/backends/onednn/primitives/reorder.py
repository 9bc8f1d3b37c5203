"""Reorder: the same values in another layout or dtype."""

from __future__ import annotations

from .. import library
from ..capi import Arg
from ..descriptors import MemoryDesc
from .base import Primitive, PrimitiveDesc


def reorder(source: MemoryDesc, target: MemoryDesc) -> Primitive:
    """A primitive that copies `source` (SRC) into `target` (DST). Padding inside a blocked target becomes zero."""
    engine = library.require().engine
    desc = PrimitiveDesc("reorder_primitive_desc_create", source, engine, target, engine,
                         what=lambda: f"{source} to {target}", exact=True)  # fmt: skip
    return Primitive("reorder", desc, (Arg.SRC,), (Arg.DST,))


def reorder_if_needed(source: MemoryDesc, target: MemoryDesc) -> Primitive | None:
    """`reorder`, or `None` where both layouts are the same and no copy is needed."""
    return None if source == target else reorder(source, target)
