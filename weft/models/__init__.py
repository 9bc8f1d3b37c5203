"""Models, each in one readable file. Constructors are in lower case (`lenet()`), classes in CamelCase (`LeNet`)."""

from __future__ import annotations

from .gpt import GPT as GPT
from .gpt import gpt as gpt
from .lenet import LeNet as LeNet
from .lenet import lenet as lenet
from .mlp import MLP as MLP
from .mlp import mlp as mlp
from .registry import build as build
from .registry import constructors as constructors
from .registry import load as load
