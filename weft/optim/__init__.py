"""Optimisers, learning-rate schedules, weight averaging and gradient accumulation."""

from __future__ import annotations

from . import lr_scheduler as lr_scheduler
from .accumulate import GradientAccumulator as GradientAccumulator
from .adafactor import Adafactor as Adafactor
from .adam import Adam as Adam
from .adam import Adamax as Adamax
from .adam import AdamW as AdamW
from .adam import SparseAdam as SparseAdam
from .adam_variants import NAdam as NAdam
from .adam_variants import RAdam as RAdam
from .adaptive import Adadelta as Adadelta
from .adaptive import Adagrad as Adagrad
from .adaptive import Lion as Lion
from .adaptive import RMSprop as RMSprop
from .asgd import ASGD as ASGD
from .average import EMA as EMA
from .average import SWA as SWA
from .group import ParamGroup as ParamGroup
from .lbfgs import LBFGS as LBFGS
from .muon import Muon as Muon
from .optimizer import Optimizer as Optimizer
from .rprop import Rprop as Rprop
from .sgd import SGD as SGD
