"""oneDNN for eager code: functions from NumPy arrays to NumPy arrays.

Contract of every function here:

* Arguments are checked before native code sees them: `ValueError`/`TypeError` for what makes no sense,
  `Unsupported` for what oneDNN cannot do (dtype, empty arrays, exotic layouts, missing library), on which the caller
  uses its plain lowering. Arrays with an axis of size 0 are `Unsupported`: the caller handles those.
* Inputs may have any strides; layouts that oneDNN is slow at are copied. `out` must not overlap an input.
* Results are fresh arrays from `weft.runtime.memory`; images are (N, C, spatial...) with channels-last strides.
* The first call for a combination of shapes, strides, dtypes and thread width creates primitives (2 to 15 ms);
  further calls cost a few microseconds of Python.
* Any number of threads may call at once. No function may be called inside an OpenMP region.
* Results have the same bits for any number of threads (`..shares`).
"""

from __future__ import annotations

from .conv import conv_backward_data as conv_backward_data
from .conv import conv_forward as conv_forward
from .conv_transpose import conv_transpose_backward_data as conv_transpose_backward_data
from .conv_transpose import conv_transpose_backward_weights as conv_transpose_backward_weights
from .conv_transpose import conv_transpose_forward as conv_transpose_forward
from .conv_transpose import conv_transpose_shape as conv_transpose_shape
from .conv_weights import conv_backward_weights as conv_backward_weights
from .matmul import matmul as matmul
from .pool import avg_pool_backward as avg_pool_backward
from .pool import avg_pool_forward as avg_pool_forward
from .pool import max_pool_backward as max_pool_backward
from .pool import max_pool_forward as max_pool_forward
from .primitive_call import cache as cache
