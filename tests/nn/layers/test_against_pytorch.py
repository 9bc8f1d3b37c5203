"""Every layer against PyTorch: names and shapes of parameters, values, gradients and buffers after one call.

Parameters and inputs are sine waves; what is compared is the weighted sum of all results (of the gradients of all
inputs, of all parameters, of all buffers), with the numbers that PyTorch 2.13 gives in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn

# fmt: off
# expression, shapes of the inputs, weighted sums: results, gradients of inputs, gradients of parameters, buffers
CASES: list[tuple[str, list[Any], float, float, float, float]] = [
    ("nn.Linear(5, 7)", [(3, 5)], -0.32528355, 0.146998003, 12.6133976, 0),
    ("nn.Bilinear(5, 6, 7)", [(3, 5), (3, 6)], -1.84436052, 2.03498184, 51.9349034, 0),
    ("nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)", [(2, 4, 9)], 1.79453038, -3.32053908, 49.9361102, 0),
    ("nn.Conv2d(3, 6, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2))",
     [(2, 3, 9, 8)], 5.19373757, -61.6629935, 245.902709, 0),
    ("nn.Conv2d(3, 6, 3, padding=2, padding_mode='reflect')",
     [(2, 3, 9, 8)], -10.8944102, -80.7849374, 1291.59185, 0),
    ("nn.Conv2d(3, 6, 4, padding='same', padding_mode='circular')",
     [(2, 3, 9, 8)], 25.2536223, -66.0834935, 1005.3673, 0),
    ("nn.Conv2d(3, 6, 4, padding='same')", [(2, 3, 9, 8)], 24.3234723, -46.5753896, 1940.16917, 0),
    ("nn.Conv3d(2, 4, 3, bias=False)", [(1, 2, 5, 5, 5)], -1.93719972, -28.8939065, 49.650014, 0),
    ("nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)",
     [(2, 4, 5)], 3.29641385, -6.81724239, 144.990076, 0),
    ("nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1)", [(2, 4, 5, 6)], 49.962127, 71.2341358, 1180.4692, 0),
    ("nn.ConvTranspose3d(2, 3, 2, stride=2)", [(1, 2, 3, 3, 3)], 264.93195, 13.1422404, 720.25611, 0),
    ("nn.BatchNorm1d(4)", [(6, 4)], 7.13584363, 0.931845576, 23.3923717, 8.18931895),
    ("nn.BatchNorm1d(4, momentum=None)", [(6, 4, 3)], 22.1390466, 2.45391077, 72.1484633, 2.633123),
    ("nn.BatchNorm2d(4)", [(6, 4, 3, 3)], 67.2331539, 7.78682988, 219.482781, 8.17982915),
    ("nn.BatchNorm3d(4, affine=False)", [(6, 4, 3, 3, 2)], 0.101495918, 49.7516039, 0, 8.17787832),
    ("nn.BatchNorm2d(4).eval()", [(6, 4, 3, 3)], -29.7414735, 85.3087982, -72.4855606, 8.30492731),
    ("nn.BatchNorm2d(4, track_running_stats=False).eval()", [(6, 4, 3, 3)], 67.2331539, 7.78682988, 219.482781, 0),
    ("nn.LayerNorm((3, 4))", [(6, 3, 4)], 9.48314154, -0.0457281909, 72.6632627, 0),
    ("nn.LayerNorm(4, bias=False)", [(6, 3, 4)], 0.36698866, 0.16240943, 1.00253226, 0),
    ("nn.RMSNorm(4)", [(6, 3, 4)], 0.219856359, 17.1724977, 0.421075985, 0),
    ("nn.GroupNorm(2, 4)", [(6, 4, 3)], 23.2432945, 0.0871418097, 75.1430975, 0),
    ("nn.InstanceNorm1d(4, affine=True)", [(6, 4, 3)], 22.3685779, 0.00218008169, 73.053146, 0),
    ("nn.InstanceNorm2d(4, track_running_stats=True)", [(6, 4, 3, 3)], -0.302714963, 0.0430306959, 0, 7.7011128),
    ("nn.InstanceNorm2d(4)", [(4, 3, 3)], -0.65730863, 0.259737427, 0, 0),
    ("nn.LocalResponseNorm(3)", [(6, 4, 3, 3)], 0.366621887, 234.145477, 0, 0),
    ("nn.MaxPool1d(3, 2, 1)", [(2, 3, 9)], 13.1554783, 32.5344828, 0, 0),
    ("nn.MaxPool2d(3, 2, 1, ceil_mode=True)", [(2, 3, 9, 8)], 86.1269043, 162.846113, 0, 0),
    ("nn.MaxPool3d(2)", [(2, 3, 4, 4, 4)], 46.3289457, 52.1803511, 0, 0),
    ("nn.AvgPool1d(3, 2, 1)", [(2, 3, 9)], -1.14782576, 28.2722837, 0, 0),
    ("nn.AvgPool2d(3, 2, 1, count_include_pad=False)", [(2, 3, 9, 8)], -1.00780734, 129.997202, 0, 0),
    ("nn.AvgPool3d(2, divisor_override=3)", [(2, 3, 4, 4, 4)], -0.639802724, 138.87821, 0, 0),
    ("nn.LPPool1d(2, 3)", [(2, 3, 9)], 21.6738592, 2.33879761, 0, 0),
    ("nn.LPPool2d(2, 3)", [(2, 3, 9, 9)], 113.253609, 13.0058632, 0, 0),
    ("nn.AdaptiveAvgPool1d(4)", [(2, 3, 9)], -2.72909076, 26.1164889, 0, 0),
    ("nn.AdaptiveAvgPool2d((4, None))", [(2, 3, 9, 5)], -14.0738153, 130.082159, 0, 0),
    ("nn.AdaptiveAvgPool3d(2)", [(2, 3, 5, 5, 4)], 0.177116956, 52.0541328, 0, 0),
    ("nn.AdaptiveMaxPool1d(4)", [(2, 3, 9)], 8.72088471, 26.1361772, 0, 0),
    ("nn.AdaptiveMaxPool2d(3)", [(2, 3, 9, 5)], 51.0148647, 58.5957424, 0, 0),
    ("nn.AdaptiveMaxPool3d(2)", [(2, 3, 5, 5, 4)], 47.048381, 51.8101623, 0, 0),
    ("nn.Upsample(scale_factor=2)", [(2, 3, 4, 4)], -5.81485457, 416.39137, 0, 0),
    ("nn.Upsample(size=(7, 9), mode='bilinear')", [(2, 3, 4, 4)], -5.42696383, 409.856798, 0, 0),
    ("nn.UpsamplingBilinear2d(scale_factor=2)", [(2, 3, 4, 4)], -4.16803428, 416.304301, 0, 0),
    ("nn.UpsamplingNearest2d(scale_factor=2)", [(2, 3, 4, 4)], -5.81485457, 416.39137, 0, 0),
    ("nn.PixelShuffle(2)", [(2, 8, 3, 3)], -0.865554004, 155.792264, 0, 0),
    ("nn.PixelUnshuffle(2)", [(2, 2, 4, 4)], 1.22201262, 69.377677, 0, 0),
    ("nn.ChannelShuffle(2)", [(2, 6, 3, 3)], -0.0755161152, 116.531487, 0, 0),
    ("nn.Unfold(3, padding=1)", [(2, 3, 5, 5)], -3.21975437, 1097.56795, 0, 0),
    ("nn.Fold((5, 5), 3)", [(2, 27, 9)], 2.05509894, 526.438352, 0, 0),
    ("nn.ZeroPad2d((1, 2, 0, 1))", [(2, 3, 4, 4)], -1.39354342, 102.235205, 0, 0),
    ("nn.ConstantPad1d(2, 3.5)", [(2, 3, 4)], 82.666896, 26.0999075, 0, 0),
    ("nn.ReflectionPad2d(2)", [(2, 3, 4, 4)], -0.454123991, 415.694819, 0, 0),
    ("nn.ReplicationPad3d(1)", [(2, 3, 4, 4, 4)], 5.40294427, 1404.62712, 0, 0),
    ("nn.CircularPad2d(1)", [(2, 3, 4, 4)], -3.69954719, 233.656304, 0, 0),
    ("nn.Flatten()", [(2, 3, 4)], -1.40599275, 26.173913, 0, 0),
    ("nn.Unflatten(1, (2, 3))", [(2, 6, 4)], 2.32055267, 52.1702128, 0, 0),
    ("nn.MultiheadAttention(8, 2)", [(5, 3, 8), (6, 3, 8), (6, 3, 8)], 38.7443014, 15.8194286, 178.393831, 0),
    ("nn.MultiheadAttention(8, 2, batch_first=True, bias=False)",
     [(3, 5, 8), (3, 6, 8), (3, 6, 8)], 16.7729187, 10.4191458, 14.8684975, 0),
    ("nn.MultiheadAttention(8, 2, kdim=5, vdim=7, add_bias_kv=True, add_zero_attn=True)",
     [(5, 3, 8), (6, 3, 5), (6, 3, 7)], 9.1214147, 0.700438282, 85.0453218, 0),
    ("nn.MultiheadAttention(8, 2)", [(5, 8), (6, 8), (6, 8)], 13.0104652, 5.65212388, 31.1181585, 0),
    ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2, norm=nn.LayerNorm(8))",
     [(5, 3, 8)], 34.6542923, 0.00460328972, 170.977202, 0),
    ("nn.TransformerEncoder("
     "nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation='gelu', norm_first=True, batch_first=True), 2)",
     [(3, 5, 8)], -35.8724486, 130.252004, 437.344203, 0),
    ("nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2)",
     [(5, 3, 8), (6, 3, 8)], 19.0065739, 0.304370678, 112.748672, 0),
    ("nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=True, bias=False), 2)",
     [(5, 3, 8), (6, 3, 8)], 1.7939001, 88.2875661, 237.909581, 0),
    ("nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)", [(5, 3, 8), (4, 3, 8)], 22.6311558, -0.286820283, 63.6113236, 0),
    ("nn.RNN(4, 5, 2)", [(6, 3, 4)], 44.0658324, 0.777314573, 273.708886, 0),
    ("nn.RNN(4, 5, nonlinearity='relu', bias=False)", [(6, 3, 4)], 29.868706, -6.96818043, 67.5138758, 0),
    ("nn.LSTM(4, 5, 2, bidirectional=True)", [(6, 3, 4)], -22.6830038, -0.379015787, 134.247904, 0),
    ("nn.LSTM(4, 5, batch_first=True)", [(3, 6, 4)], -30.2402637, -1.34375519, 9.32307958, 0),
    ("nn.GRU(4, 5, 2, bidirectional=True)", [(6, 3, 4)], 21.9595622, -2.95411693, 364.697293, 0),
    ("nn.GRU(4, 5)", [(6, 4)], -9.52260812, 0.432185168, 25.0517384, 0),
    ("nn.RNNCell(4, 5)", [(3, 4)], -4.33816988, -0.11488334, 23.325471, 0),
    ("nn.LSTMCell(4, 5)", [(3, 4)], -4.41072723, -0.981102987, 12.1143787, 0),
    ("nn.GRUCell(4, 5)", [(3, 4)], -1.94282099, -0.393706554, 12.8950635, 0),
    ("nn.PReLU(3)", [(2, 3, 4)], 4.96032837, 16.7615189, -8.69098722, 0),
    ("nn.Embedding(10, 4, padding_idx=2)", ['int10'], 4.35410302, 0, 44.6672122, 0),
    ("nn.EmbeddingBag(10, 4)", ['int10'], 1.01775086, 0, 11.979021, 0),
    ("nn.ReLU()", [(4, 6)], 7.23982779, 13.1252363, 0, 0),
    ("nn.ReLU6()", [(4, 6)], 7.23982779, 13.1252363, 0, 0),
    ("nn.SiLU()", [(4, 6)], 2.28491149, 12.0205899, 0, 0),
    ("nn.Mish()", [(4, 6)], 2.84828543, 13.7978198, 0, 0),
    ("nn.SELU()", [(4, 6)], -2.85327736, 24.7368223, 0, 0),
    ("nn.Hardswish()", [(4, 6)], 1.41385204, 12.274721, 0, 0),
    ("nn.Hardsigmoid()", [(4, 6)], 11.7656679, 4.36231897, 0, 0),
    ("nn.LeakyReLU(0.1)", [(4, 6)], 6.37524574, 14.430104, 0, 0),
    ("nn.ELU(0.7)", [(4, 6)], 3.07503464, 17.4835148, 0, 0),
    ("nn.CELU(0.7)", [(4, 6)], 2.07408532, 17.723996, 0, 0),
    ("nn.GELU()", [(4, 6)], 3.78989055, 11.5982834, 0, 0),
    ("nn.GELU('tanh')", [(4, 6)], 3.78817786, 11.5992101, 0, 0),
    ("nn.Sigmoid()", [(4, 6)], 11.6709627, 5.76685395, 0, 0),
    ("nn.Tanh()", [(4, 6)], -1.11329138, 16.9910529, 0, 0),
    ("nn.LogSigmoid()", [(4, 6)], -18.8780701, 13.656581, 0, 0),
    ("nn.Softsign()", [(4, 6)], -0.668442201, 10.6076159, 0, 0),
    ("nn.Tanhshrink()", [(4, 6)], -0.292701373, 9.18286019, 0, 0),
    ("nn.Softplus(2.0)", [(4, 6)], 10.4562063, 12.1251336, 0, 0),
    ("nn.Hardtanh(-0.5, 0.7)", [(4, 6)], 0.411065666, 7.16020794, 0, 0),
    ("nn.Hardshrink()", [(4, 6)], -1.31488451, 19.0137051, 0, 0),
    ("nn.Softshrink()", [(4, 6)], -0.30401494, 19.0137051, 0, 0),
    ("nn.Threshold(0.1, 2.0)", [(4, 6)], 30.2398278, 13.1252363, 0, 0),
    ("nn.GLU()", [(4, 6)], -0.170267384, 5.70447101, 0, 0),
    ("nn.Softmax(1)", [(4, 6)], 3.95386648, 0.0169869183, 0, 0),
    ("nn.LogSoftmax(0)", [(4, 6)], -39.4973592, 2.55067176, 0, 0),
    ("nn.Softmin(1)", [(4, 6)], 4.04061665, -0.0177991887, 0, 0),
    ("nn.Identity()", [(4, 6)], -1.40599275, 26.173913, 0, 0),
]

NAMES = {
    "nn.Linear(5, 7)": "weight (7, 5); bias (7)",
    "nn.Linear(5, 7, bias=False)": "weight (7, 5)",
    "nn.Bilinear(5, 6, 7)": "weight (7, 5, 6); bias (7)",
    "nn.Conv1d(4, 6, 3, groups=2)": "weight (6, 2, 3); bias (6)",
    "nn.Conv2d(3, 6, (3, 2))": "weight (6, 3, 3, 2); bias (6)",
    "nn.Conv3d(2, 4, 3, bias=False)": "weight (4, 2, 3, 3, 3)",
    "nn.ConvTranspose1d(4, 6, 3, groups=2)": "weight (4, 3, 3); bias (6)",
    "nn.ConvTranspose2d(4, 6, 3)": "weight (4, 6, 3, 3); bias (6)",
    "nn.ConvTranspose3d(2, 3, 2)": "weight (2, 3, 2, 2, 2); bias (3)",
    "nn.BatchNorm1d(4)": "weight (4); bias (4); running_mean (4); running_var (4); num_batches_tracked",
    "nn.BatchNorm2d(4, affine=False)": "running_mean (4); running_var (4); num_batches_tracked",
    "nn.BatchNorm3d(4, track_running_stats=False)": "weight (4); bias (4)",
    "nn.LayerNorm((3, 4))": "weight (3, 4); bias (3, 4)",
    "nn.LayerNorm(4, bias=False)": "weight (4)",
    "nn.RMSNorm(4)": "weight (4)",
    "nn.GroupNorm(2, 4)": "weight (4); bias (4)",
    "nn.InstanceNorm1d(4)": "",
    "nn.InstanceNorm2d(4, affine=True, track_running_stats=True)": (
        "weight (4); bias (4); running_mean (4); running_var (4); num_batches_tracked"
    ),
    "nn.PReLU(3)": "weight (3)",
    "nn.Embedding(10, 4)": "weight (10, 4)",
    "nn.EmbeddingBag(10, 4)": "weight (10, 4)",
    "nn.RNN(4, 5)": "weight_ih_l0 (5, 4); weight_hh_l0 (5, 5); bias_ih_l0 (5); bias_hh_l0 (5)",
    "nn.LSTM(4, 5, 2, bidirectional=True)": (
        "weight_ih_l0 (20, 4); weight_hh_l0 (20, 5); bias_ih_l0 (20); bias_hh_l0 (20); "
        "weight_ih_l0_reverse (20, 4); weight_hh_l0_reverse (20, 5); bias_ih_l0_reverse (20); "
        "bias_hh_l0_reverse (20); weight_ih_l1 (20, 10); weight_hh_l1 (20, 5); bias_ih_l1 (20); "
        "bias_hh_l1 (20); weight_ih_l1_reverse (20, 10); weight_hh_l1_reverse (20, 5); "
        "bias_ih_l1_reverse (20); bias_hh_l1_reverse (20)"
    ),
    "nn.GRU(4, 5, 2, bias=False)": (
        "weight_ih_l0 (15, 4); weight_hh_l0 (15, 5); weight_ih_l1 (15, 5); weight_hh_l1 (15, 5)"
    ),
    "nn.RNNCell(4, 5)": "weight_ih (5, 4); weight_hh (5, 5); bias_ih (5); bias_hh (5)",
    "nn.LSTMCell(4, 5)": "weight_ih (20, 4); weight_hh (20, 5); bias_ih (20); bias_hh (20)",
    "nn.GRUCell(4, 5, bias=False)": "weight_ih (15, 4); weight_hh (15, 5)",
    "nn.MultiheadAttention(8, 2)": (
        "in_proj_weight (24, 8); in_proj_bias (24); out_proj.weight (8, 8); out_proj.bias (8)"
    ),
    "nn.MultiheadAttention(8, 2, kdim=5, vdim=7, add_bias_kv=True, bias=False)": (
        "q_proj_weight (8, 8); k_proj_weight (8, 5); v_proj_weight (8, 7); bias_k (1, 1, 8); "
        "bias_v (1, 1, 8); out_proj.weight (8, 8)"
    ),
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, norm=nn.LayerNorm(8))": (
        "layers.0.self_attn.in_proj_weight (24, 8); layers.0.self_attn.in_proj_bias (24); "
        "layers.0.self_attn.out_proj.weight (8, 8); layers.0.self_attn.out_proj.bias (8); "
        "layers.0.linear1.weight (16, 8); layers.0.linear1.bias (16); layers.0.linear2.weight (8, 16); "
        "layers.0.linear2.bias (8); layers.0.norm1.weight (8); layers.0.norm1.bias (8); "
        "layers.0.norm2.weight (8); layers.0.norm2.bias (8); layers.1.self_attn.in_proj_weight (24, 8); "
        "layers.1.self_attn.in_proj_bias (24); layers.1.self_attn.out_proj.weight (8, 8); "
        "layers.1.self_attn.out_proj.bias (8); layers.1.linear1.weight (16, 8); layers.1.linear1.bias (16); "
        "layers.1.linear2.weight (8, 16); layers.1.linear2.bias (8); layers.1.norm1.weight (8); "
        "layers.1.norm1.bias (8); layers.1.norm2.weight (8); layers.1.norm2.bias (8); norm.weight (8); "
        "norm.bias (8)"
    ),
    "nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 1)": (
        "layers.0.self_attn.in_proj_weight (24, 8); layers.0.self_attn.in_proj_bias (24); "
        "layers.0.self_attn.out_proj.weight (8, 8); layers.0.self_attn.out_proj.bias (8); "
        "layers.0.multihead_attn.in_proj_weight (24, 8); layers.0.multihead_attn.in_proj_bias (24); "
        "layers.0.multihead_attn.out_proj.weight (8, 8); layers.0.multihead_attn.out_proj.bias (8); "
        "layers.0.linear1.weight (16, 8); layers.0.linear1.bias (16); layers.0.linear2.weight (8, 16); "
        "layers.0.linear2.bias (8); layers.0.norm1.weight (8); layers.0.norm1.bias (8); "
        "layers.0.norm2.weight (8); layers.0.norm2.bias (8); layers.0.norm3.weight (8); "
        "layers.0.norm3.bias (8)"
    ),
    "nn.Transformer(8, 2, 1, 1, 16)": (
        "encoder.layers.0.self_attn.in_proj_weight (24, 8); encoder.layers.0.self_attn.in_proj_bias (24); "
        "encoder.layers.0.self_attn.out_proj.weight (8, 8); encoder.layers.0.self_attn.out_proj.bias (8); "
        "encoder.layers.0.linear1.weight (16, 8); encoder.layers.0.linear1.bias (16); "
        "encoder.layers.0.linear2.weight (8, 16); encoder.layers.0.linear2.bias (8); "
        "encoder.layers.0.norm1.weight (8); encoder.layers.0.norm1.bias (8); "
        "encoder.layers.0.norm2.weight (8); encoder.layers.0.norm2.bias (8); encoder.norm.weight (8); "
        "encoder.norm.bias (8); decoder.layers.0.self_attn.in_proj_weight (24, 8); "
        "decoder.layers.0.self_attn.in_proj_bias (24); decoder.layers.0.self_attn.out_proj.weight (8, 8); "
        "decoder.layers.0.self_attn.out_proj.bias (8); "
        "decoder.layers.0.multihead_attn.in_proj_weight (24, 8); "
        "decoder.layers.0.multihead_attn.in_proj_bias (24); "
        "decoder.layers.0.multihead_attn.out_proj.weight (8, 8); "
        "decoder.layers.0.multihead_attn.out_proj.bias (8); decoder.layers.0.linear1.weight (16, 8); "
        "decoder.layers.0.linear1.bias (16); decoder.layers.0.linear2.weight (8, 16); "
        "decoder.layers.0.linear2.bias (8); decoder.layers.0.norm1.weight (8); "
        "decoder.layers.0.norm1.bias (8); decoder.layers.0.norm2.weight (8); "
        "decoder.layers.0.norm2.bias (8); decoder.layers.0.norm3.weight (8); "
        "decoder.layers.0.norm3.bias (8); decoder.norm.weight (8); decoder.norm.bias (8)"
    ),
}
# fmt: on


def wave(shape: tuple[int, ...], phase: float, function: Any = np.sin) -> np.ndarray:
    return function(np.arange(math.prod(shape)) * 0.7 + phase).reshape(shape)


def weighted(tensors: list[Any]) -> float:
    scales = [np.linspace(0.5, 1.5, t.size).reshape(t.shape) for t in tensors]
    return sum(float((np.asarray(t, np.float64) * s).sum()) for t, s in zip(tensors, scales, strict=True))


def flat(value: Any) -> list[wf.Tensor]:
    if isinstance(value, wf.Tensor):
        return [value]
    return [t for v in value for t in flat(v)]


def prepare(expression: str) -> nn.Module:
    module = eval(expression).double()
    with wf.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(wf.asarray(wave(p.shape, i) * 0.5))
        for i, b in enumerate(module.buffers()):
            if b.is_floating_point():
                b.copy_(wf.asarray(wave(b.shape, i) ** 2 + 0.5))
    return module


def example(shapes: list[Any]) -> list[wf.Tensor]:
    return [
        wf.arange(12).reshape(3, 4) * 7 % 10
        if s == "int10"
        else wf.tensor(wave(s, 0.3 * j, np.cos), requires_grad=True)
        for j, s in enumerate(shapes)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_values_gradients_and_buffers_are_pytorchs(case: Any) -> None:
    expression, shapes, value, input_gradient, parameter_gradient, buffers = case
    module, inputs = prepare(expression), example(shapes)
    results = [y for y in flat(module(*inputs)) if y.is_floating_point()]
    np.testing.assert_allclose(weighted([y.detach() for y in results]), value, rtol=1e-7, atol=1e-7)
    if any(y.requires_grad for y in results):
        loss = sum((y * wf.asarray(np.linspace(0.5, 1.5, y.size).reshape(y.shape))).sum() for y in results)
        loss.backward()
        found = weighted([x.grad for x in inputs if x.grad is not None])
        np.testing.assert_allclose(found, input_gradient, rtol=1e-6, atol=1e-6)
        found = weighted([p.grad for p in module.parameters() if p.grad is not None])
        np.testing.assert_allclose(found, parameter_gradient, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(weighted(list(module.buffers())), buffers, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("expression", NAMES)
def test_names_and_shapes_are_pytorchs(expression: str) -> None:
    found = []
    for name, tensor in eval(expression).state_dict().items():
        shape = ", ".join(str(d) for d in tensor.shape)
        found.append(f"{name} ({shape})" if shape else name)
    assert "; ".join(found) == NAMES[expression]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_every_layer_prints_copies_and_loads(case: Any, tmp_path: Any) -> None:
    module = eval(case[0])
    assert repr(module).startswith(type(module).__name__ + "(")
    path = tmp_path / "weights.safetensors"
    if module.state_dict():
        nn.save_weights(module, path)
        other = eval(case[0])
        other.load_state_dict(nn.load_weights(path))
        for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
