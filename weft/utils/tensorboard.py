"""`SummaryWriter` under the name of `torch.utils.tensorboard`; the same as `weft.io.SummaryWriter`."""

from __future__ import annotations

from ..io import SummaryWriter as SummaryWriter

__all__ = ["SummaryWriter"]
