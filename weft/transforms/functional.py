"""`weft.data.transforms.functional` under its other name."""

from __future__ import annotations

from ..data.transforms.functional import InterpolationMode as InterpolationMode
from ..data.transforms.functional import adjust_brightness as adjust_brightness
from ..data.transforms.functional import adjust_contrast as adjust_contrast
from ..data.transforms.functional import adjust_gamma as adjust_gamma
from ..data.transforms.functional import adjust_hue as adjust_hue
from ..data.transforms.functional import adjust_saturation as adjust_saturation
from ..data.transforms.functional import center_crop as center_crop
from ..data.transforms.functional import convert_image_dtype as convert_image_dtype
from ..data.transforms.functional import crop as crop
from ..data.transforms.functional import erase as erase
from ..data.transforms.functional import get_dimensions as get_dimensions
from ..data.transforms.functional import get_image_size as get_image_size
from ..data.transforms.functional import hflip as hflip
from ..data.transforms.functional import invert as invert
from ..data.transforms.functional import normalize as normalize
from ..data.transforms.functional import pad as pad
from ..data.transforms.functional import pil_to_tensor as pil_to_tensor
from ..data.transforms.functional import resize as resize
from ..data.transforms.functional import resized_crop as resized_crop
from ..data.transforms.functional import rgb_to_grayscale as rgb_to_grayscale
from ..data.transforms.functional import rotate as rotate
from ..data.transforms.functional import to_grayscale as to_grayscale
from ..data.transforms.functional import to_pil_image as to_pil_image
from ..data.transforms.functional import to_tensor as to_tensor
from ..data.transforms.functional import vflip as vflip
