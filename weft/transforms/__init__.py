"""Image transforms under the name that torchvision's users look for; they are those of `weft.data.transforms`.

>>> from weft import transforms
>>> transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])(np.zeros((8, 8, 3), np.uint8)).shape
(3, 8, 8)
"""

from __future__ import annotations

from ..data.transforms.base import Compose as Compose
from ..data.transforms.base import Lambda as Lambda
from ..data.transforms.base import RandomApply as RandomApply
from ..data.transforms.base import RandomChoice as RandomChoice
from ..data.transforms.base import RandomOrder as RandomOrder
from ..data.transforms.base import Transform as Transform
from ..data.transforms.color import ColorJitter as ColorJitter
from ..data.transforms.color import Grayscale as Grayscale
from ..data.transforms.color import Normalize as Normalize
from ..data.transforms.color import RandomGrayscale as RandomGrayscale
from ..data.transforms.color import RandomInvert as RandomInvert
from ..data.transforms.convert import ConvertImageDtype as ConvertImageDtype
from ..data.transforms.convert import PILToTensor as PILToTensor
from ..data.transforms.convert import ToFloat as ToFloat
from ..data.transforms.convert import ToPILImage as ToPILImage
from ..data.transforms.convert import ToTensor as ToTensor
from ..data.transforms.geometry import CenterCrop as CenterCrop
from ..data.transforms.geometry import Pad as Pad
from ..data.transforms.geometry import RandomCrop as RandomCrop
from ..data.transforms.geometry import RandomErasing as RandomErasing
from ..data.transforms.geometry import RandomHorizontalFlip as RandomHorizontalFlip
from ..data.transforms.geometry import RandomResizedCrop as RandomResizedCrop
from ..data.transforms.geometry import RandomRotation as RandomRotation
from ..data.transforms.geometry import RandomVerticalFlip as RandomVerticalFlip
from ..data.transforms.geometry import Resize as Resize
from ..data.transforms.resampling import InterpolationMode as InterpolationMode
from . import functional as functional
