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
}


@pytest.mark.parametrize("name", TYPES)
def test_what_is_no_number_is_refused(name):
    with pytest.raises(TypeError, match="must be a"):
        TYPES[name]()


LAYERS = {
    "triplet margin": lambda: nn.TripletMarginLoss(margin=-1.0),
    "triplet margin with distance": lambda: nn.TripletMarginWithDistanceLoss(margin=-1.0),
    "huber delta": lambda: nn.HuberLoss(delta=-1.0),
    "hardtanh": lambda: nn.Hardtanh(2.0, 1.0)(_x(3)),
    "softshrink": lambda: nn.Softshrink(-1.0)(_x(3)),
    "clip_grad_norm_": lambda: nn.utils.clip_grad_norm_([_x(3).requires_grad_()], -1.0),
    "rms alpha": lambda: wf.optim.RMSprop([_x(3).requires_grad_()], alpha=-1.0),
    "gradcheck": lambda: wf.gradcheck(lambda x: x, _x(3).astype(wf.float64).requires_grad_(), atol=-1.0),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_or_setting_out_of_range_is_refused(name):
    with pytest.raises(ValueError, match="must"):
        LAYERS[name]()
