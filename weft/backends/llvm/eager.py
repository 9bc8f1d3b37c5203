"""What eager ops call, on NumPy arrays: elementwise loops, reductions, fused rows, random numbers.

Every function returns None where native code does not serve, and the caller takes its NumPy path.
"""

from __future__ import annotations

from .eager_elementwise import elementwise as elementwise
from .eager_elementwise import elementwise_many as elementwise_many
