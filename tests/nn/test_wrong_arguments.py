"""Arguments that are no tensors, optimizers or modules: the error names the argument and what to type."""

from __future__ import annotations

import pytest

import weft as wf
from weft import models, nn, optim

LAYERS = {
    "LSTM": (lambda: nn.LSTM(2, 3), "x"),
    "GRU": (lambda: nn.GRU(2, 3), "x"),
    "RNN": (lambda: nn.RNN(2, 3), "x"),
    "LSTMCell": (lambda: nn.LSTMCell(2, 3), "x"),
    "GRUCell": (lambda: nn.GRUCell(2, 3), "x"),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(2), "x"),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), "x"),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(2), "x"),
    "Flatten": (nn.Flatten, "x"),
    "LazyLinear": (lambda: nn.LazyLinear(2), "x"),
    "GPT": (lambda: models.GPT(vocab_size=8, block_size=4, n_layer=1, n_head=1, n_embd=4), "ids"),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("given", [None, [1.0], "text", 3])
def test_layers_name_an_argument_that_is_no_tensor(name, given):
    make, parameter = LAYERS[name]
    hint = r" Convert it with `wf\.asarray" if isinstance(given, (list, int)) else ""
    with pytest.raises(TypeError, match=rf"{name}: {parameter} must be a tensor. Got {type(given).__name__}.{hint}"):
        make()(given)


def test_layers_with_several_tensors():
    q, attention = wf.ones(3, 1, 2), nn.MultiheadAttention(2, 1)
    with pytest.raises(TypeError, match="MultiheadAttention: key must be a tensor. Got NoneType"):
        attention(q, None, q)
    with pytest.raises(TypeError, match="MultiheadAttention: key_padding_mask must be a tensor. Got list"):
        attention(q, q, q, key_padding_mask=[1])
    with pytest.raises(TypeError, match="self_attn: MultiheadAttention: query must be a tensor"):
        nn.TransformerEncoderLayer(2, 1, 4)([1.0])


@pytest.mark.parametrize("hx", [3, "ab", wf.ones(2, 1, 3), (1, 2), ("a", "b")])
def test_states_of_recurrent_layers(hx):
    with pytest.raises(TypeError, match="lstm: hx must be a pair of tensors"):
        nn.LSTM(2, 3)(wf.ones(3, 1, 2), hx)
    with pytest.raises(TypeError, match="lstm_cell: hx must be a pair of tensors"):
        nn.LSTMCell(2, 3)(wf.ones(1, 2), hx)
    if not isinstance(hx, wf.Tensor):
        with pytest.raises(TypeError, match="gru: the initial state must be a tensor"):
            nn.GRU(2, 3)(wf.ones(3, 1, 2), hx)


def test_an_attribute_error_of_the_users_own_is_left_alone():
    class Mine(nn.Module):
        def forward(self, x):
            return x.missing

    class Annotated(nn.Module):
        def forward(self, x: wf.Tensor):
            return self.missing

    with pytest.raises(AttributeError, match="'int' object has no attribute 'missing'"):
        Mine()(3)
    with pytest.raises(AttributeError, match="missing"):
        Annotated()([1.0])


def test_paths_of_modules():
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(AttributeError, match="get_submodule: 'Sequential' has no child 'body'. It has 0"):
        model.get_submodule("body.0")
    with pytest.raises(TypeError, match="get_submodule: path must be a string"):
        model.get_submodule(0)
    with pytest.raises(TypeError, match="get_parameter: path must be a string"):
        model.get_parameter(0)


SCHEDULES = {
    "LambdaLR": lambda o: optim.lr_scheduler.LambdaLR(o, lambda t: 1.0),
    "StepLR": lambda o: optim.lr_scheduler.StepLR(o, 1),
    "OneCycleLR": lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, 10),
    "CyclicLR": lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 0.2),
    "SequentialLR": lambda o: optim.lr_scheduler.SequentialLR(o, [], []),
    "ReduceLROnPlateau": lambda o: optim.lr_scheduler.ReduceLROnPlateau(o),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_want_an_optimizer(name):
    for given in (None, [nn.Parameter(wf.ones(1))], 0.1):
        with pytest.raises(TypeError, match=rf"{name}: expected an optimizer. Got {type(given).__name__}. Write"):
            SCHEDULES[name](given)


@pytest.mark.parametrize("given", [3, "ab", [0.1], None])
def test_schedules_of_schedules(given):
    with pytest.raises(TypeError, match="ChainedScheduler: expected a list of schedules"):
        optim.lr_scheduler.ChainedScheduler(given)
    with pytest.raises(TypeError, match="SequentialLR: expected a list of schedules"):
        optim.lr_scheduler.SequentialLR(optim.SGD([nn.Parameter(wf.ones(1))], lr=1.0), given, [])


@pytest.mark.parametrize("given", [None, [1.0], "text", 3])
def test_random_functions(given):
    for name in ("rand_like", "randn_like"):
        with pytest.raises(TypeError, match=f"{name}: x must be a tensor. Got {type(given).__name__}"):
            getattr(wf.random, name)(given)
    if given != 3:
        with pytest.raises(TypeError, match="bernoulli: p must be a tensor or a number"):
            wf.random.bernoulli(given)


def test_row_sparse():
    from weft.ops.array.row_sparse import RowSparse

    indices, values = wf.tensor([0]), wf.ones(1, 2)
    for args, message in [
        ((None, values, (3, 2)), "indices must be a tensor. Got NoneType"),
        ((indices, [[1.0, 2.0]], (3, 2)), r"values must be a tensor. Got list. Convert them with `wf\.asarray"),
        ((indices, values, None), "shape must be a tuple"),
        ((indices, values, 3), "shape must be a tuple"),
        ((wf.tensor([0.5]), values, (3, 2)), "indices must be integers. Got float32"),
    ]:
        with pytest.raises(TypeError, match=f"RowSparse: {message}"):
            RowSparse(*args)


def test_tensors_of_declared_graphs_in_captured_functions():
    with wf.Graph().as_default():
        declared = wf.placeholder(wf.float32, (2,))
    for fn in (lambda x: wf.placeholder(wf.float32, (2,)), lambda x: declared, lambda x: declared + x):
        with pytest.raises(
            wf.CaptureError, match="a tensor of a declared graph is used.*pass the tensor as an argument"
        ):
            wf.function(fn)(wf.ones(2))


def test_a_layer_refuses_an_input_of_another_dtype_than_its_parameters():
    sequence, image = wf.ones(5, 2, 4, dtype=wf.float64), wf.ones(2, 4, 3, 3, dtype=wf.float64)
    attention = nn.MultiheadAttention(4, 2)
    layers = {
        "Linear": (nn.Linear(4, 2), sequence),
        "BatchNorm2d": (nn.BatchNorm2d(4), image),
        "LayerNorm": (nn.LayerNorm(4), sequence),
        "GroupNorm": (nn.GroupNorm(2, 4), image),
        "LSTM": (nn.LSTM(4, 3), sequence),
        "GRUCell": (nn.GRUCell(4, 3), sequence[0]),
        "MultiheadAttention": (lambda x: attention(x, x, x), sequence),
        "TransformerEncoderLayer": (nn.TransformerEncoderLayer(4, 2, 8), sequence),
    }
    for name, (layer, x) in layers.items():
        with pytest.raises(
            TypeError, match=r"the input is float64 but the parameters are float32.*`x.to\(wf.float32\)`"
        ):
            layer(x)
        layer(x.to(wf.float32))
        assert name == "MultiheadAttention" or layer.to(wf.float64)(x) is not None
    with pytest.raises(TypeError, match="the input is int64"):
        nn.Linear(2, 2)(wf.ones(1, 2, dtype=wf.int64))
    with wf.autocast(wf.bfloat16):
        assert nn.Linear(2, 2)(wf.ones(1, 2, dtype=wf.float64)).shape == (1, 2)
    assert nn.LayerNorm(2)(wf.ones(1, 2, dtype=wf.bfloat16)).shape == (1, 2)
