"""Invertible transforms with known Jacobians, for `TransformedDistribution` and for constrained parameters.

>>> from weft.distributions import Normal, TransformedDistribution
>>> from weft.distributions.transforms import AffineTransform, ExpTransform
>>> d = TransformedDistribution(Normal(0.0, 1.0), [ExpTransform(), AffineTransform(1.0, 2.0)])
>>> bool(d.sample() > 1)
True
"""

from __future__ import annotations

from .scalar_transforms import AbsTransform as AbsTransform
from .scalar_transforms import AffineTransform as AffineTransform
from .scalar_transforms import CumulativeDistributionTransform as CumulativeDistributionTransform
from .scalar_transforms import ExpTransform as ExpTransform
from .scalar_transforms import PowerTransform as PowerTransform
from .scalar_transforms import SigmoidTransform as SigmoidTransform
from .scalar_transforms import SoftplusTransform as SoftplusTransform
from .scalar_transforms import TanhTransform as TanhTransform
from .transform import CatTransform as CatTransform
from .transform import ComposeTransform as ComposeTransform
from .transform import IndependentTransform as IndependentTransform
from .transform import ReshapeTransform as ReshapeTransform
from .transform import StackTransform as StackTransform
from .transform import Transform as Transform
from .transform import identity_transform as identity_transform
from .vector_transforms import CorrCholeskyTransform as CorrCholeskyTransform
from .vector_transforms import LowerCholeskyTransform as LowerCholeskyTransform
from .vector_transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from .vector_transforms import SoftmaxTransform as SoftmaxTransform
from .vector_transforms import StickBreakingTransform as StickBreakingTransform

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip
