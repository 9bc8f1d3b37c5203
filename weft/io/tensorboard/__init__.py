"""TensorBoard event files, written without TensorBoard: live scalars, histograms, text and graphs."""

from __future__ import annotations

from .writer import SummaryWriter as SummaryWriter
