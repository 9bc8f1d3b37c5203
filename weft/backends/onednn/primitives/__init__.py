"""oneDNN primitives: descriptors in, an immutable `Primitive` out. See `base` for the contract."""

from __future__ import annotations

from .base import Argument as Argument
from .base import Binary as Binary
from .base import Eltwise as Eltwise
from .base import Execution as Execution
from .base import PostOp as PostOp
from .base import Primitive as Primitive
from .base import Sum as Sum
from .convolution import convolution_backward_data as convolution_backward_data
from .convolution import convolution_backward_weights as convolution_backward_weights
from .convolution import convolution_forward as convolution_forward
from .elementwise import binary as binary
from .elementwise import eltwise as eltwise
from .elementwise import eltwise_backward as eltwise_backward
from .elementwise import softmax as softmax
from .elementwise import softmax_backward as softmax_backward
from .matmul import matmul as matmul
from .normalization import batch_norm_backward as batch_norm_backward
from .normalization import batch_norm_forward as batch_norm_forward
from .normalization import layer_norm_backward as layer_norm_backward
from .normalization import layer_norm_forward as layer_norm_forward
from .pooling import pooling_backward as pooling_backward
from .pooling import pooling_forward as pooling_forward
from .recurrent import RecurrentDescs as RecurrentDescs
from .recurrent import recurrent_backward as recurrent_backward
from .recurrent import recurrent_forward as recurrent_forward
from .reorder import reorder as reorder
from .reorder import reorder_if_needed as reorder_if_needed
