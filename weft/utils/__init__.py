"""Modules under the names that programs for PyTorch import from: `weft.utils.data`, `checkpoint`, `pytree` …"""

from __future__ import annotations

from . import checkpoint as checkpoint
from . import data as data
from . import dlpack as dlpack
from . import pytree as pytree
