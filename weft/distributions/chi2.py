"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import constraints
from .gamma import Gamma


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables: a gamma distribution.

    Args:
        df: the degrees of freedom, above 0.
        validate_args: check arguments and values.

    >>> from weft.distributions import Chi2
    >>> Chi2(3.0).mean
    tensor(3.)
    """

    arg_constraints = {"df": constraints.positive, "concentration": constraints.positive, "rate": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2

    def __repr__(self) -> str:
        return super().__repr__() if self.df.size != 1 or self.df.is_symbolic else f"Chi2(df: {self.df.item()})"
