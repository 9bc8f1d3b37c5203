"""Training: the `Trainer` loop, metrics and callbacks."""

from __future__ import annotations

from .callbacks import Callback as Callback
from .callbacks import CSVLogger as CSVLogger
from .callbacks import EarlyStopping as EarlyStopping
from .callbacks import LossCurve as LossCurve
from .callbacks import LRLogger as LRLogger
from .callbacks import ModelCheckpoint as ModelCheckpoint
from .callbacks import StopOnNaN as StopOnNaN
from .callbacks import TensorBoard as TensorBoard
from .metrics import F1 as F1
from .metrics import R2 as R2
from .metrics import Accuracy as Accuracy
from .metrics import Mean as Mean
from .metrics import MeanAbsoluteError as MeanAbsoluteError
from .metrics import MeanSquaredError as MeanSquaredError
from .metrics import Metric as Metric
from .metrics import Precision as Precision
from .metrics import Recall as Recall
from .metrics import TopK as TopK
from .progress import Progress as Progress
from .trainer import Trainer as Trainer
