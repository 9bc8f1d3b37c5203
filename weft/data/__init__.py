
from __future__ import annotations

from .collate import default_collate as default_collate
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .dataset import Subset as Subset
from .dataset import TensorDataset as TensorDataset
from .dataset import map_dataset as map  # noqa: A004 (the word users look for; reached as `weft.data.map`)
from .dataset import random_split as random_split
from .loader import DataLoader as DataLoader
from .pool import WorkerError as WorkerError
from .sampler import BatchSampler as BatchSampler
from .sampler import DistributedSampler as DistributedSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import WeightedRandomSampler as WeightedRandomSampler
from .seeds import WorkerInfo as WorkerInfo
from .seeds import sample_rng as sample_rng
from .seeds import worker_info as worker_info
