"""Neural-network functions, under PyTorch's names.

Written by `python -m tools.stubs` from the op table. Do not edit.
"""

from collections.abc import Sequence
from typing import Any
from typing import Literal, overload
from ..random import Generator as Generator
from ..tensor import Tensor as Tensor
from ..typing import ArrayLike
from ..typing import Operand
from ..typing import OutputSize
from ..typing import ShapeLike

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "celu", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "elu", "embedding", "embedding_bag", "feature_alpha_dropout",
    "fold", "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gru", "gru_cell",
    "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss",
    "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear",
    "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "lstm",
    "lstm_cell", "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "mish", "mse_loss", "multi_head_attention_forward", "nll_loss",
    "normalize", "one_hot", "pad", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle",
    "poisson_nll_loss", "prelu", "relu", "relu6", "rms_norm", "rnn", "rnn_cell",
    "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss",
    "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
    "triplet_margin_loss", "unfold", "upsample",
]

def adaptive_avg_pool1d(x: ArrayLike, output_size: OutputSize) -> Tensor:
    """The means over `output_size` windows that cover (N, C, L) or (C, L) evenly."""
def adaptive_avg_pool2d(x: ArrayLike, output_size: OutputSize) -> Tensor:
    """The means over windows that cover the image evenly."""
def adaptive_avg_pool3d(x: ArrayLike, output_size: OutputSize) -> Tensor:
    """The means over windows that cover (N, C, D, H, W) or (C, D, H, W) evenly."""
@overload
def adaptive_max_pool1d(
    x: ArrayLike,
    output_size: OutputSize,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The maxima over `output_size` windows that cover (N, C, L) or (C, L) evenly."""
@overload
def adaptive_max_pool1d(
    x: ArrayLike,
    output_size: OutputSize,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The maxima over `output_size` windows that cover (N, C, L) or (C, L) evenly."""
@overload
def adaptive_max_pool1d(
    x: ArrayLike,
    output_size: OutputSize,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima over `output_size` windows that cover (N, C, L) or (C, L) evenly."""
@overload
def adaptive_max_pool2d(
    x: ArrayLike,
    output_size: OutputSize,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The maxima over windows that cover the image evenly."""
@overload
def adaptive_max_pool2d(
    x: ArrayLike,
    output_size: OutputSize,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The maxima over windows that cover the image evenly."""
@overload
def adaptive_max_pool2d(
    x: ArrayLike,
    output_size: OutputSize,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima over windows that cover the image evenly."""
@overload
def adaptive_max_pool3d(
    x: ArrayLike,
    output_size: OutputSize,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The maxima over windows that cover (N, C, D, H, W) or (C, D, H, W) evenly."""
@overload
def adaptive_max_pool3d(
    x: ArrayLike,
    output_size: OutputSize,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The maxima over windows that cover (N, C, D, H, W) or (C, D, H, W) evenly."""
@overload
def adaptive_max_pool3d(
    x: ArrayLike,
    output_size: OutputSize,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima over windows that cover (N, C, D, H, W) or (C, D, H, W) evenly."""
def affine_grid(theta: ArrayLike, size: ShapeLike, align_corners: bool = False) -> Tensor:
    """The grid for `grid_sample` of an affine map: (N, H, W, 2) from theta (N, 2, 3) and size (N, C, H,
    W).
    """
def alpha_dropout(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Dropout for `selu` networks: mean and variance are preserved by setting elements to selu's negative
    saturation.
    """
def avg_pool1d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window over (N, C, L) or (C, L)."""
def avg_pool2d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window."""
def avg_pool3d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window over (N, C, D, H, W) or (C, D, H, W)."""
def batch_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Batch normalisation: each channel normalised, then scaled by `weight` and shifted by `bias`."""
def bilinear(x1: ArrayLike, x2: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """Bilinear map: Σᵢⱼ x1ᵢ weightₖᵢⱼ x2ⱼ + biasₖ."""
def binary_cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    reduction: str = 'mean',
) -> Tensor:
    """Binary cross entropy of probabilities p = `input`: -(t log p + (1 - t) log(1 - p))."""
def binary_cross_entropy_with_logits(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    reduction: str = 'mean',
    pos_weight: ArrayLike | None = None,
) -> Tensor:
    """Binary cross entropy of sigmoid(input), computed stably from the logits."""
def celu(x: Operand, alpha: Operand = 1.0) -> Tensor:
    """`x` where positive, else alpha · (exp(x / alpha) - 1): an `elu` that is smooth for every alpha."""
def conv1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike | str = 0,
    dilation: ShapeLike = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over one axis."""
def conv2d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike | str = 0,
    dilation: ShapeLike = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over two axes: y[o] = bias[o] + Σ over c and kernel positions of weight[o, c] · x[c]."""
def conv3d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike | str = 0,
    dilation: ShapeLike = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over three axes."""
def conv_transpose1d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike = 0,
    output_padding: ShapeLike = 0,
    groups: int = 1,
    dilation: ShapeLike = 1,
) -> Tensor:
    """Transposed convolution over one axis."""
def conv_transpose2d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike = 0,
    output_padding: ShapeLike = 0,
    groups: int = 1,
    dilation: ShapeLike = 1,
) -> Tensor:
    """Transposed convolution over two axes: it maps the shape of a `conv2d` result back to that of its
    input.
    """
def conv_transpose3d(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: ShapeLike = 1,
    padding: ShapeLike = 0,
    output_padding: ShapeLike = 0,
    groups: int = 1,
    dilation: ShapeLike = 1,
) -> Tensor:
    """Transposed convolution over three axes."""
def convolution(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    """Convolution over one to three axes, as many as the weight has: `conv1d`, `conv2d` and `conv3d` in
    one.
    """
def cosine_embedding_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1."""
def cosine_similarity(
    x1: ArrayLike,
    x2: ArrayLike,
    axis: int = 1,
    eps: float = 1e-08,
    *,
    dim: int = ...,
) -> Tensor:
    """Cosine similarity along `axis`: x1 · x2 / (|x1| |x2|); norms below `eps` count as `eps`."""
def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: str = 'mean',
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits with a target."""
def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int = 0,
    reduction: str = 'mean',
    zero_infinity: bool = False,
) -> Tensor:
    """The connectionist temporal classification loss: -log of the probability of `targets`, wherever they
    are in time.
    """
def dropout(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Zero elements with probability `p` and scale the others by 1 / (1 - p), while `training`."""
def dropout1d(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`dropout` of whole channels of `x` (N, C, L) or (C, L)."""
def dropout2d(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`dropout` of whole channels of `x` (N, C, H, W) or (C, H, W)."""
def dropout3d(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`dropout` of whole channels of `x` (N, C, D, H, W) or (C, D, H, W)."""
def elu(x: Operand, alpha: Operand = 1.0) -> Tensor:
    """Exponential linear unit: `x` where positive, else alpha · (exp(x) - 1)."""
def embedding(
    indices: ArrayLike,
    weight: ArrayLike,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    sparse: bool = False,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """Look up rows of `weight`."""
def embedding_bag(
    indices: ArrayLike,
    weight: ArrayLike,
    offsets: ArrayLike | None = None,
    mode: str = 'mean',
    per_sample_weights: ArrayLike | None = None,
    padding_idx: int | None = None,
    include_last_offset: bool = False,
    sparse: bool = False,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """Sum, mean or maximum of the rows of `weight` for each bag of indices."""
def feature_alpha_dropout(
    x: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`alpha_dropout` of whole channels of `x` (N, C, ...)."""
def fold(
    x: ArrayLike,
    output_size: ShapeLike,
    kernel_size: ShapeLike,
    dilation: ShapeLike = 1,
    padding: ShapeLike = 0,
    stride: ShapeLike = 1,
) -> Tensor:
    """The transpose of `unfold`: (N, C·KH·KW, L) to (N, C, *output_size), overlapping windows added up."""
def gaussian_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    var: ArrayLike | float,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = 'mean',
) -> Tensor:
    """Negative log likelihood of the target under normal distributions with mean `input` and variance
    `var`.
    """
def gelu(x: ArrayLike, approximate: str = 'none') -> Tensor:
    """The Gaussian error linear unit x · Φ(x); `approximate="tanh"` uses a tanh in place of the error
    function.
    """
def glu(x: ArrayLike, axis: int = -1, *, dim: int = ...) -> Tensor:
    """The gated linear unit a · sigmoid(b), where a and b are the halves of `x` along `axis`."""
def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    mode: str = 'bilinear',
    padding_mode: str = 'zeros',
    align_corners: bool = False,
) -> Tensor:
    """Sample `x` at the coordinates in `grid`."""
def group_norm(
    x: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Group normalisation: each group of channels of each sample normalised, then a scale and a shift per
    channel.
    """
def gru(
    x: ArrayLike,
    hx: Any,
    weights: Any,
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    lengths: Any = None,
) -> tuple[Tensor, Tensor]:
    """A network of gated recurrent units over whole sequences."""
def gru_cell(
    x: ArrayLike,
    hx: ArrayLike,
    weight_ih: ArrayLike,
    weight_hh: ArrayLike,
    bias_ih: ArrayLike | None = None,
    bias_hh: ArrayLike | None = None,
) -> Tensor:
    """One step of a GRU: from x (N, inputs) and h (N, H) to the next h."""
def gumbel_softmax(
    logits: ArrayLike,
    tau: float = 1.0,
    hard: bool = False,
    axis: int = -1,
    *,
    generator: Generator | None = None,
    dim: int = ...,
) -> Tensor:
    """Differentiable sample of a category: softmax((logits + Gumbel noise) / tau)."""
def hardshrink(x: Operand, lambd: Operand = 0.5) -> Tensor:
    """`x` where |x| is above `lambd`, else 0."""
def hardsigmoid(x: Operand) -> Tensor:
    """relu6(x + 3) / 6: a piecewise linear approximation of `sigmoid`."""
def hardswish(x: Operand) -> Tensor:
    """x · relu6(x + 3) / 6: a piecewise polynomial approximation of `silu`."""
def hardtanh(x: Operand, min_val: Operand = -1.0, max_val: Operand = 1.0) -> Tensor:
    """`x` clamped to [min_val, max_val]."""
def hinge_embedding_loss(
    input: ArrayLike,
    target: ArrayLike,
    margin: float = 1.0,
    reduction: str = 'mean',
) -> Tensor:
    """`input` (a distance) where the target is 1, max(0, margin - input) where it is -1."""
def huber_loss(input: ArrayLike, target: ArrayLike, reduction: str = 'mean', delta: float = 1.0) -> Tensor:
    """Huber loss: d² / 2 for differences d below `delta`, delta (|d| - delta / 2) above."""
def instance_norm(
    x: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Instance normalisation: each channel of each sample normalised, then a scale and a shift per
    channel.
    """
def interpolate(
    x: ArrayLike,
    size: ShapeLike | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = 'nearest',
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """`x` resized along its spatial axes."""
def kl_div(input: ArrayLike, target: ArrayLike, reduction: str = 'mean', log_target: bool = False) -> Tensor:
    """Kullback–Leibler divergence of the target t from log-probabilities `input`: t (log t - input)."""
def l1_loss(input: ArrayLike, target: ArrayLike, reduction: str = 'mean') -> Tensor:
    """Absolute error |input - target|, averaged by default."""
def layer_norm(
    x: ArrayLike,
    normalized_shape: int | tuple[int, ...],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Layer normalisation: mean 0 and variance 1 over the last axes, then a scale and a shift."""
def leaky_relu(x: Operand, negative_slope: Operand = 0.01) -> Tensor:
    """Leaky rectified linear unit: `x` where positive, else `x * negative_slope`."""
def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """Affine map of the last axis: x weightᵀ + bias."""
def local_response_norm(
    x: ArrayLike,
    size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    k: float = 1.0,
) -> Tensor:
    """x / (k + alpha · mean of squares over `size` neighbouring channels)^beta."""
def log_softmax(x: ArrayLike, axis: int = -1, *, dim: int = ...) -> Tensor:
    """log(softmax(x)) along `axis`, numerically stable."""
def logsigmoid(x: Operand) -> Tensor:
    """log(sigmoid(x)), numerically stable."""
def lp_pool1d(
    x: ArrayLike,
    norm_type: float,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(Σ |x|^p)^(1/p) over every window of (N, C, L) or (C, L), with p = `norm_type`."""
def lp_pool2d(
    x: ArrayLike,
    norm_type: float,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(Σ |x|^p)^(1/p) over every window of (N, C, H, W) or (C, H, W), with p = `norm_type`."""
def lp_pool3d(
    x: ArrayLike,
    norm_type: float,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(Σ |x|^p)^(1/p) over every window of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`."""
def lstm(
    x: ArrayLike,
    hx: Any,
    weights: Any,
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    lengths: Any = None,
    proj_size: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """A long short-term memory network over whole sequences."""
def lstm_cell(
    x: ArrayLike,
    hx: Any,
    weight_ih: ArrayLike,
    weight_hh: ArrayLike,
    bias_ih: ArrayLike | None = None,
    bias_hh: ArrayLike | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: from x (N, inputs) and (h, c), each (N, H), to the next (h, c)."""
def margin_ranking_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """max(0, -t (x1 - x2) + margin): x1 should rank above x2 where the target t is 1, below where it is
    -1.
    """
@overload
def max_pool1d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The largest element of every window over (N, C, L) or (C, L)."""
@overload
def max_pool1d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The largest element of every window over (N, C, L) or (C, L)."""
@overload
def max_pool1d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of every window over (N, C, L) or (C, L)."""
@overload
def max_pool2d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The largest element of every window."""
@overload
def max_pool2d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The largest element of every window."""
@overload
def max_pool2d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of every window."""
@overload
def max_pool3d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The largest element of every window over (N, C, D, H, W) or (C, D, H, W)."""
@overload
def max_pool3d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The largest element of every window over (N, C, D, H, W) or (C, D, H, W)."""
@overload
def max_pool3d(
    x: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    dilation: ShapeLike = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of every window over (N, C, D, H, W) or (C, D, H, W)."""
def max_unpool1d(
    x: ArrayLike,
    indices: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    output_size: ShapeLike | None = None,
) -> Tensor:
    """Inverse of `max_pool1d`: scatter values to `indices`, zeros elsewhere."""
def max_unpool2d(
    x: ArrayLike,
    indices: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    output_size: ShapeLike | None = None,
) -> Tensor:
    """Inverse of `max_pool2d`: scatter values to `indices`, zeros elsewhere."""
def max_unpool3d(
    x: ArrayLike,
    indices: ArrayLike,
    kernel_size: ShapeLike,
    stride: ShapeLike | None = None,
    padding: ShapeLike = 0,
    output_size: ShapeLike | None = None,
) -> Tensor:
    """Inverse of `max_pool3d`: scatter values to `indices`, zeros elsewhere."""
def mish(x: Operand) -> Tensor:
    """x · tanh(softplus(x))."""
def mse_loss(input: ArrayLike, target: ArrayLike, reduction: str = 'mean') -> Tensor:
    """Squared error (input - target)², averaged by default."""
def multi_head_attention_forward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    num_heads: int,
    in_proj_weight: ArrayLike | tuple[ArrayLike, ArrayLike, ArrayLike],
    in_proj_bias: ArrayLike | None,
    out_proj_weight: ArrayLike,
    out_proj_bias: ArrayLike | None,
    *,
    dropout_p: float = 0.0,
    training: bool = True,
    key_padding_mask: ArrayLike | None = None,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    need_weights: bool = False,
    average_attn_weights: bool = True,
    batch_first: bool = True,
    generator: Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention with input and output projections, as in `nn.MultiheadAttention`."""
def nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: str = 'mean',
) -> Tensor:
    """Negative log likelihood: -input at the target class."""
def normalize(x: ArrayLike, p: float = 2.0, axis: int = 1, eps: float = 1e-12, *, dim: int = ...) -> Tensor:
    """`x` divided by its p-norm along `axis`; norms below `eps` count as `eps`."""
def one_hot(x: ArrayLike, num_classes: int = -1) -> Tensor:
    """Encode class indices as int64 vectors with a single 1 along a new last axis."""
def pad(x: ArrayLike, pad: Sequence[int], mode: str = 'constant', value: float | None = None) -> Tensor:
    """Pad from the last axis backwards, as in PyTorch."""
def pairwise_distance(
    x1: ArrayLike,
    x2: ArrayLike,
    p: float = 2.0,
    eps: float = 1e-06,
    keepdims: bool = False,
    *,
    keepdim: bool = ...,
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
def pixel_shuffle(x: ArrayLike, upscale_factor: int) -> Tensor:
    """Channels into space: (…, C·r², H, W) as (…, C, H·r, W·r)."""
def pixel_unshuffle(x: ArrayLike, downscale_factor: int) -> Tensor:
    """Space into channels, the inverse of `pixel_shuffle`: (…, C, H·r, W·r) as (…, C·r², H, W)."""
def poisson_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-08,
    reduction: str = 'mean',
) -> Tensor:
    """Negative log likelihood of counts under a Poisson distribution whose rate is exp(input), or `input`."""
def prelu(x: ArrayLike, weight: ArrayLike) -> Tensor:
    """`x` where positive, else `x * weight`, with one learned weight or one per channel (axis 1)."""
def relu(x: Operand) -> Tensor:
    """Rectified linear unit: max(x, 0)."""
def relu6(x: Operand) -> Tensor:
    """Rectified linear unit capped at 6: min(max(x, 0), 6)."""
def rms_norm(
    x: ArrayLike,
    normalized_shape: int | tuple[int, ...],
    weight: ArrayLike | None = None,
    eps: float | None = None,
) -> Tensor:
    """RMS normalisation: `x` divided by its root mean square over the last axes, then a scale."""
def rnn(
    x: ArrayLike,
    hx: Any,
    weights: Any,
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    lengths: Any = None,
    nonlinearity: str = 'tanh',
) -> tuple[Tensor, Tensor]:
    """A plain recurrent network over whole sequences, h' = tanh(W x + U h + b) (or relu)."""
def rnn_cell(
    x: ArrayLike,
    hx: ArrayLike,
    weight_ih: ArrayLike,
    weight_hh: ArrayLike,
    bias_ih: ArrayLike | None = None,
    bias_hh: ArrayLike | None = None,
    nonlinearity: str = 'tanh',
) -> Tensor:
    """One step of a plain recurrent network: from x (N, inputs) and h (N, H) to the next h."""
def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Scaled dot-product attention: softmax(query keyᵀ · scale + mask) value."""
def selu(x: Operand) -> Tensor:
    """The scaled `elu` whose constants keep mean 0 and variance 1 from layer to layer."""
def sigmoid(x: Operand) -> Tensor:
    """Logistic function 1 / (1 + exp(-x))."""
def silu(x: Operand) -> Tensor:
    """Sigmoid linear unit (swish): x · sigmoid(x)."""
def smooth_l1_loss(input: ArrayLike, target: ArrayLike, reduction: str = 'mean', beta: float = 1.0) -> Tensor:
    """Smooth L1: d² / (2 beta) for differences d below `beta`, |d| - beta / 2 above; beta = 0 gives
    `l1_loss`.
    """
def soft_margin_loss(input: ArrayLike, target: ArrayLike, reduction: str = 'mean') -> Tensor:
    """log(1 + exp(-t · input)) for targets t of 1 and -1."""
def softmax(x: ArrayLike, axis: int = -1, *, dim: int = ...) -> Tensor:
    """Softmax along `axis`: exp(x) / Σ exp(x), positive and summing to one."""
def softmin(x: ArrayLike, axis: int = -1, *, dim: int = ...) -> Tensor:
    """`softmax(-x)` along `axis`."""
def softplus(x: Operand, beta: Operand = 1.0, threshold: Operand = 20.0) -> Tensor:
    """Smooth approximation of `relu`: log(1 + exp(beta · x)) / beta; `x` itself where beta · x is above
    `threshold`.
    """
def softshrink(x: Operand, lambd: Operand = 0.5) -> Tensor:
    """Soft thresholding: `x` shrunk towards 0 by `lambd`, and 0 within [-lambd, lambd]."""
def softsign(x: Operand) -> Tensor:
    """x / (1 + |x|)."""
def tanh(x: Operand) -> Tensor:
    """Hyperbolic tangent."""
def tanhshrink(x: Operand) -> Tensor:
    """x - tanh(x)."""
def threshold(x: Operand, threshold: Operand, value: Operand) -> Tensor:
    """`x` where it is above `threshold`, else `value`."""
def triplet_margin_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = 'mean',
) -> Tensor:
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin), p-norms along the last
    axis.
    """
def unfold(
    x: ArrayLike,
    kernel_size: ShapeLike,
    dilation: ShapeLike = 1,
    padding: ShapeLike = 0,
    stride: ShapeLike = 1,
) -> Tensor:
    """The windows of an image as columns: (N, C, H, W) as (N, C·KH·KW, L), one column per window."""
def upsample(
    x: ArrayLike,
    size: ShapeLike | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = 'nearest',
    align_corners: bool | None = None,
) -> Tensor:
    """Another name of `interpolate`."""
