"""Image transforms, as in torchvision, on arrays, tensors and PIL images; `dataset.map(transform, element=0)` applies one.

Arrays and tensors are (channels, height, width); `ToTensor` also takes arrays (height, width, channels), as pictures are read.
Random transforms draw from the stream of the sample that a loader is loading, so augmentation does not depend on the number of
its processes; outside a loader they draw from Weft's generator (`wf.manual_seed`). Every transform is a picklable class with
its settings as attributes and in its `repr`. `functional` has the same without randomness.
"""

from __future__ import annotations

from . import functional as functional
from .base import Compose as Compose
from .base import Lambda as Lambda
from .base import RandomApply as RandomApply
from .base import RandomChoice as RandomChoice
from .base import RandomOrder as RandomOrder
from .base import Transform as Transform
from .color import ColorJitter as ColorJitter
from .color import Grayscale as Grayscale
from .color import Normalize as Normalize
from .color import RandomGrayscale as RandomGrayscale
from .color import RandomInvert as RandomInvert
from .convert import ConvertImageDtype as ConvertImageDtype
from .convert import PILToTensor as PILToTensor
from .convert import ToFloat as ToFloat
from .convert import ToPILImage as ToPILImage
from .convert import ToTensor as ToTensor
from .geometry import CenterCrop as CenterCrop
from .geometry import Pad as Pad
from .geometry import RandomCrop as RandomCrop
from .geometry import RandomErasing as RandomErasing
from .geometry import RandomHorizontalFlip as RandomHorizontalFlip
from .geometry import RandomResizedCrop as RandomResizedCrop
from .geometry import RandomRotation as RandomRotation
from .geometry import RandomVerticalFlip as RandomVerticalFlip
from .geometry import Resize as Resize
from .resampling import InterpolationMode as InterpolationMode
