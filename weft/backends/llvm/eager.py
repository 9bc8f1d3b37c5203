"""Native kernels for eager ops on NumPy arrays: elementwise loops, reductions, fused row kernels, random numbers.

Every function returns None where native code does not apply, and the caller takes its NumPy path.
"""

from __future__ import annotations

from .eager_elementwise import elementwise as elementwise
from .eager_elementwise import elementwise_many as elementwise_many
from .eager_products import vector_product as vector_product
from .eager_random import draw as draw
from .eager_random import random_bits as random_bits
from .eager_random import random_normal as random_normal
from .eager_random import random_uniform as random_uniform
from .eager_reduce import map_reduce as map_reduce
from .eager_reduce import reduce as reduce
from .eager_rows import batch_norm as batch_norm
from .eager_rows import batch_norm_backward as batch_norm_backward
from .eager_rows import batch_statistics as batch_statistics
from .eager_rows import cross_entropy as cross_entropy
from .eager_rows import cross_entropy_backward as cross_entropy_backward
from .eager_rows import layer_norm as layer_norm
from .eager_rows import layer_norm_backward as layer_norm_backward
from .eager_rows import log_softmax as log_softmax
from .eager_rows import log_softmax_backward as log_softmax_backward
from .eager_rows import logsumexp as logsumexp
from .eager_rows import mean_cross_entropy as mean_cross_entropy
from .eager_rows import rms_norm as rms_norm
from .eager_rows import rms_norm_backward as rms_norm_backward
from .eager_rows import softmax as softmax
from .eager_rows import softmax_backward as softmax_backward
