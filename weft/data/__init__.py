"""Datasets, loaders, transforms, built-in data and readers for files you already have."""

from __future__ import annotations

from . import transforms as transforms
from .builtin import CharacterDataset as CharacterDataset
from .builtin import digits as digits
from .builtin import synthetic_images as synthetic_images
from .builtin import text_corpus as text_corpus
from .collate import default_collate as default_collate
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .dataset import Subset as Subset
from .dataset import TensorDataset as TensorDataset
from .dataset import map_dataset as map_dataset
from .dataset import random_split as random_split
from .loader import DataLoader as DataLoader
from .pool import WorkerError as WorkerError
from .readers import ImageFolder as ImageFolder
from .readers import NumpyDataset as NumpyDataset
from .readers import arrow_file as arrow_file
from .readers import cifar10 as cifar10
from .readers import cifar100 as cifar100
from .readers import csv_file as csv_file
from .readers import mnist as mnist
from .readers import numpy_file as numpy_file
from .readers import read_idx as read_idx
from .sampler import BatchSampler as BatchSampler
from .sampler import DistributedSampler as DistributedSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import WeightedRandomSampler as WeightedRandomSampler
from .seeds import WorkerInfo as WorkerInfo
from .seeds import sample_rng as sample_rng
from .seeds import worker_info as worker_info

map = map_dataset  # the word users look for; reached as `weft.data.map`
