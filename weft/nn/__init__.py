"""What models are made of: `functional` holds the functions."""

from __future__ import annotations

from . import functional as functional
