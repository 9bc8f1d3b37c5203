"""Calls of modules with other parameters: `functional_call`, as in `weft.func`."""

from __future__ import annotations

from ...func.functional_call import functional_call as functional_call

__all__ = ["functional_call"]
