"""Comparison of tensors in tests: `assert_close`, with messages that show the difference; and random tensors.

>>> from weft.testing import assert_close
>>> assert_close(wf.tensor([1.0, 2.0]), wf.tensor([1.0, 2.0 + 1e-7]))
"""

from __future__ import annotations

from .comparison import assert_allclose as assert_allclose
from .comparison import assert_close as assert_close
from .comparison import default_tolerances as default_tolerances
from .creation import make_tensor as make_tensor
