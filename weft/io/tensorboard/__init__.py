"""A writer of TensorBoard event files that does not need TensorBoard: scalars, histograms, text and graphs."""

from __future__ import annotations

from .writer import SummaryWriter as SummaryWriter
