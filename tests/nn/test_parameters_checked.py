"""Parameters that mean nothing are refused, in functions and layers, eagerly and captured: never a silent wrong number."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.nn import functional as F

NAN = math.nan


def _x(*shape):
    return wf.asarray(np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape))


FUNCTIONS = {
    "hardtanh with its bounds crossed": lambda x: F.hardtanh(x, 2.0, 1.0),
    "hardtanh with a NaN bound": lambda x: F.hardtanh(x, NAN, 1.0),
    "softshrink below 0": lambda x: F.softshrink(x, -0.5),
    "softshrink NaN": lambda x: F.softshrink(x, NAN),
    "softshrink infinite": lambda x: F.softshrink(x, math.inf),
    "celu of alpha 0": lambda x: F.celu(x, 0.0),
    "triplet margin below 0": lambda x: F.triplet_margin_loss(x, x, x, margin=-1.0),
    "triplet margin 0": lambda x: F.triplet_margin_loss(x, x, x, margin=0.0),
    "triplet margin NaN": lambda x: F.triplet_margin_loss(x, x, x, margin=NAN),
    "smooth_l1 NaN": lambda x: F.smooth_l1_loss(x, x, beta=NAN),
    "smooth_l1 below 0": lambda x: F.smooth_l1_loss(x, x, beta=-1.0),
    "huber 0": lambda x: F.huber_loss(x, x, delta=0.0),
    "gaussian_nll eps 0": lambda x: F.gaussian_nll_loss(x, x, x.abs() + 1, eps=0.0),
    "cosine_similarity eps below 0": lambda x: F.cosine_similarity(x, x, eps=-1.0),
    "normalize eps below 0": lambda x: F.normalize(x, eps=-1.0),
    "layer_norm eps below 0": lambda x: F.layer_norm(x, (3,), eps=-1e-5),
    "layer_norm eps NaN": lambda x: F.layer_norm(x, (3,), eps=NAN),
    "rms_norm eps below 0": lambda x: F.rms_norm(x, (3,), eps=-1e-5),
    "group_norm eps below 0": lambda x: F.group_norm(x, 1, eps=-1e-5),
    "batch_norm eps 0 in training": lambda x: F.batch_norm(x, None, None, training=True, eps=0.0),
    "batch_norm eps below 0": lambda x: F.batch_norm(x, wf.zeros(3), wf.ones(3), eps=-1.0),
    "isclose rtol below 0": lambda x: wf.isclose(x, x, rtol=-1e-5),
    "isclose atol below 0": lambda x: wf.isclose(x, x, atol=-1e-5),
    "allclose atol NaN": lambda x: wf.allclose(x, x, atol=NAN),
    "pinv rtol below 0": lambda x: wf.linalg.pinv(x, rtol=-1.0),
    "matrix_rank rtol below 0": lambda x: wf.linalg.matrix_rank(x, rtol=-1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_out_of_range_is_refused(name):
    fn = FUNCTIONS[name]
    for way in (fn, wf.function(fn)):
        with pytest.raises(ValueError, match="must"):
            way(_x(4, 3))


TYPES = {
    "stride": lambda: F.max_pool2d(_x(1, 1, 4, 4), True),
    "groups": lambda: F.group_norm(_x(2, 4, 3), True),
    "ignore_index": lambda: F.nll_loss(_x(2, 3), wf.asarray([0, 1]), ignore_index=True),
    "padding_idx": lambda: F.embedding(wf.asarray([0, 1]), _x(4, 3), padding_idx=1.5),
    "padding_idx of the layer": lambda: nn.Embedding(4, 3, padding_idx=True),
    "eps": lambda: F.poisson_nll_loss(_x(3), _x(3), eps="a"),
    "margin": lambda: nn.TripletMarginLoss(margin="1"),
    "momentum": lambda: F.batch_norm(_x(4, 3), wf.zeros(3), wf.ones(3), training=True, momentum="a"),
    "stride of the layer": lambda: nn.Conv2d(2, 2, 3, stride=True),
    "divisor": lambda: F.avg_pool2d(_x(1, 1, 4, 4), 2, divisor_override=True),
    "kernel_size of the layer": lambda: nn.Conv2d(2, 2, (3, True)),
    "stride of a convolution": lambda: F.conv2d(_x(1, 1, 4, 4), _x(1, 1, 2, 2), stride=(1, True)),
    "padding of a convolution": lambda: F.conv1d(_x(1, 1, 4), _x(1, 1, 2), padding=True),
    "width of a pad": lambda: F.pad(_x(3), (True, 1)),
    "padding of the layer": lambda: nn.ZeroPad2d(True),
    "size of reshape": lambda: _x(3).reshape(True, 3),
    "size of zeros": lambda: wf.zeros((2, True)),
    "sizes of linear": lambda: nn.Linear(True, 3),
    "channels": lambda: nn.Conv2d(1.0, 2, 3),
    "features of a norm": lambda: nn.BatchNorm1d(True),
    "shape of a norm": lambda: nn.LayerNorm((3, True)),
    "heads": lambda: nn.MultiheadAttention(8, True),
    "cell": lambda: nn.LSTMCell(True, 2),
    "table": lambda: nn.Embedding(True, 2),
    "dropout": lambda: nn.Dropout(True),
    "scale_factor": lambda: F.interpolate(_x(1, 1, 3), scale_factor=True),
    "shift": lambda: wf.roll(_x(3), True),
    "randint": lambda: wf.random.randint(True, 3, (2,)),
    "eye": lambda: wf.eye(2, k=True),
    "matrix_power": lambda: wf.linalg.matrix_power(wf.eye(2), True),
}


@pytest.mark.parametrize("name", TYPES)
def test_what_is_no_number_is_refused(name):
    with pytest.raises(TypeError, match="must be"):
        TYPES[name]()


LAYERS = {
    "out_channels 0": lambda: nn.Conv2d(3, 0, 3),
    "in_channels 0": lambda: nn.ConvTranspose2d(0, 3, 3),
    "kernel_size 0": lambda: nn.Conv1d(3, 3, 0),
    "stride 0": lambda: nn.Conv2d(3, 3, 3, stride=0),
    "padding below 0": lambda: nn.Conv2d(3, 3, 3, padding=-1),
    "features below 0": lambda: nn.Linear(3, -1),
    "hidden size 0": lambda: nn.GRUCell(3, 0),
    "channel groups 0": lambda: nn.ChannelShuffle(0),
    "triplet margin": lambda: nn.TripletMarginLoss(margin=-1.0),
    "triplet margin with distance": lambda: nn.TripletMarginWithDistanceLoss(margin=-1.0),
    "huber delta": lambda: nn.HuberLoss(delta=-1.0),
    "hardtanh": lambda: nn.Hardtanh(2.0, 1.0)(_x(3)),
    "softshrink": lambda: nn.Softshrink(-1.0)(_x(3)),
    "clip_grad_norm_": lambda: nn.utils.clip_grad_norm_([_x(3).requires_grad_()], -1.0),
    "rms alpha": lambda: wf.optim.RMSprop([_x(3).requires_grad_()], alpha=-1.0),
    "exponential_": lambda: wf.zeros(3).exponential_(-1.0),
    "log_normal_": lambda: wf.zeros(3).log_normal_(0.0, -1.0),
    "cauchy_": lambda: wf.zeros(3).cauchy_(0.0, -1.0),
    "gradcheck": lambda: wf.gradcheck(lambda x: x, _x(3).astype(wf.float64).requires_grad_(), atol=-1.0),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_or_setting_out_of_range_is_refused(name):
    with pytest.raises(ValueError, match="must"):
        LAYERS[name]()


LSTM = nn.LSTM(2, 2)
VALUES = {  # message: the call, values that it takes and values that it refuses
    "histogram: bin edges must not decrease": (lambda edges: wf.histogram(_x(5), edges)[0], [0.25, 0.5, 2.0], [0.25, 0.5, -1.0]),
    "histogram: the elements must be finite": (lambda x: wf.histogram(x, 2)[0], [0.25, 0.5, 2.0], [0.25, 0.5, np.inf]),
    "gaussian_nll_loss: var must not have negative entries": (
        lambda var: F.gaussian_nll_loss(_x(3), _x(3), var), [0.25, 0.5, 2.0], [0.25, 0.5, -1.0],
    ),
    "binary_cross_entropy: input must be between 0 and 1": (
        lambda p: F.binary_cross_entropy(p, wf.ones(3)), [0.25, 0.5, 1.0], [0.25, 0.5, 1.5],
    ),
    "binary_cross_entropy: target must be between 0 and 1": (
        lambda t: F.binary_cross_entropy(wf.full((3,), 0.5), t), [0.25, 0.5, 1.0], [0.25, -0.5, 1.0],
    ),
    "quantile: q must be between 0 and 1": (lambda q: wf.quantile(_x(5), q), [0.0, 0.5, 1.0], [0.0, 0.5, 1.1]),
    "bernoulli: p must be between 0 and 1": (wf.bernoulli, [0.0, 1.0, 1.0], [0.0, 1.0, 1.5]),
    "normal: std must not be negative": (lambda std: wf.normal(2.0, std), [0.0, 0.0, 0.0], [0.0, 0.0, -1.0]),
    "lstm: lengths must be 0 to 4": (lambda n: LSTM(wf.ones(4, 3, 2), lengths=n)[0], [4, 2, 0], [5, 2, 0]),
    "pack_padded_sequence: lengths must be from 1 to 4": (
        lambda n: LSTM(nn.utils.pack_padded_sequence(wf.ones(4, 3, 2), n))[0].data, [4, 2, 1], [4, 2, 0],
    ),
    "pack_padded_sequence: lengths must fall": (
        lambda n: LSTM(nn.utils.pack_padded_sequence(wf.ones(4, 3, 2), n, enforce_sorted=True))[0].data, [4, 2, 1], [4, 2, 3],
    ),
    "masked_scatter: the mask has more True elements": (
        lambda m: wf.masked_scatter(_x(3), m, wf.ones(2)), [True, False, True], [True, True, True],
    ),
    "istft: the windows leave samples uncovered": (
        lambda w: wf.istft(wf.ones(2, 4).astype(wf.complex64), 3, hop_length=3, window=w, center=False),
        [1.0, 1.0, 1.0], [1.0, 1.0, 0.0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", VALUES)
def test_values_are_checked_when_they_are_known(message):
    """Eagerly, captured as an argument and closed over, for gradients, and in graphs, also inside a layer and a branch."""
    fn, good, bad = VALUES[message][0], *[wf.asarray(v) for v in VALUES[message][1:]]
    expected = fn(good).detach().numpy()
    captured = wf.function(fn)
    np.testing.assert_allclose(captured(good).detach().numpy(), expected, rtol=1e-6)
    runs = [fn, captured, wf.function(lambda x: fn(bad) + 0 * x.sum())]
    if good.is_floating_point():
        runs.append(wf.grad_fn(lambda x: (fn(x) + x.sum()).sum()))
    for run in runs:
        with pytest.raises(ValueError, match=message):
            run(bad)

    class Layer(nn.Module):
        def forward(self, x):
            return fn(x)

    layer = Layer()
    with wf.Graph().as_default():
        place = wf.placeholder(good.dtype, (3,))
        outs = [fn(place), layer(place)]
        if not message.startswith(("bernoulli", "normal")):  # branches do not draw
            outs.append(wf.cond(place.sum() > -9, lambda: fn(place), lambda: fn(place)))
        with wf.Session() as session:
            for out in outs:
                np.testing.assert_allclose(session.run(out, {place: good.numpy()}).detach(), expected, rtol=1e-6)
                with pytest.raises(ValueError, match=message):
                    session.run(out, {place: bad.numpy()})


def test_nan_is_no_probability_but_shows_in_the_loss():
    nan = wf.tensor([np.nan])
    for way in (F.binary_cross_entropy, wf.function(F.binary_cross_entropy)):
        assert np.isnan(way(nan, wf.ones(1)).item())
