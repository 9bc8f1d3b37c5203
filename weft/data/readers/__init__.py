"""Readers for files a user already has. None of them downloads anything or runs code from a file.

A file that is missing, truncated or of another kind raises an error with its name, what was expected and what
was found.
"""

from __future__ import annotations

from .cifar import cifar10 as cifar10
from .cifar import cifar100 as cifar100
from .idx import mnist as mnist
from .idx import read_idx as read_idx
from .images import ImageFolder as ImageFolder
from .tables import NumpyDataset as NumpyDataset
from .tables import arrow_file as arrow_file
from .tables import csv_file as csv_file
from .tables import numpy_file as numpy_file
