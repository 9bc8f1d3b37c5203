"""File formats: trees of tensors, checkpoints and TensorBoard event files. None of them uses pickle."""

from __future__ import annotations

from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import CheckpointError as CheckpointError
from .checkpoint import CheckpointWarning as CheckpointWarning
from .checkpoint import best as best
from .checkpoint import latest as latest
from .checkpoint import list_checkpoints as list_checkpoints
from .checkpoint import open_checkpoint as open_checkpoint
from .checkpoint import write_checkpoint as write_checkpoint
from .manager import CheckpointManager as CheckpointManager
from .tensorboard import SummaryWriter as SummaryWriter
from .tree_file import load as load
from .tree_file import save as save
