"""Datasets and loaders under the names, and with the arguments, of `torch.utils.data`; Weft's own are in `weft.data`.

>>> from weft.utils.data import DataLoader, TensorDataset
>>> loader = DataLoader(TensorDataset(wf.arange(4), wf.ones(4)), batch_size=2, pin_memory=True)
>>> [x.tolist() for x, y in loader]
[[0, 1], [2, 3]]
"""

from __future__ import annotations

from ...data import worker_info as get_worker_info
from .dataloader import DataLoader as DataLoader
from .dataloader import default_collate as default_collate
from .dataloader import default_convert as default_convert
from .dataset import ChainDataset as ChainDataset
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .dataset import StackDataset as StackDataset
from .dataset import Subset as Subset
from .dataset import TensorDataset as TensorDataset
from .dataset import random_split as random_split
from .distributed import DistributedSampler as DistributedSampler
from .sampler import BatchSampler as BatchSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import SubsetRandomSampler as SubsetRandomSampler
from .sampler import WeightedRandomSampler as WeightedRandomSampler

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
