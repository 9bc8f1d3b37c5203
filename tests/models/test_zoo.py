"""Every model has its known number of parameters and learns a tiny batch by heart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import models, nn, optim
from weft.nn import functional as F

COUNTS = {
    "alexnet": 61_100_840, "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032,
    "mobilenet_v1": 4_231_976, "mobilenet_v2": 3_504_872, "vit_b_16": 86_567_656, "vit_tiny": 2_693_578,
    "lenet": 61_706, "mlp": 26_122, "ncf": 31_832_577,
}  # fmt: skip
DEEPER = pytest.mark.slow  # more of the blocks of resnet18, which is tested every time
LAYERS = {"vgg11": 132_863_336, "vgg16": 138_357_544, "vgg19": 143_667_240}


def _count(model):
    return sum(p.size for p in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count(name):
    assert _count(getattr(models, name)()) == COUNTS[name]


@pytest.mark.parametrize("name", LAYERS)
def test_vgg_parameter_count_from_its_layers(name):
    """Without building 140 million numbers three times."""
    total, channels = 0, 3
    for width in models.vgg.LAYERS[int(name[3:])]:
        if width != "M":
            total += channels * width * 9 + width
            channels = width
    assert total + 25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000 == LAYERS[name]


def test_gnmt_parameter_count_from_its_layers():
    """An LSTM layer has 4 w (inputs + w + 2) numbers; widths and layers as in the reference, in a smaller size."""
    v, w = 50, 16

    def lstm(inputs):
        return 4 * w * (inputs + w + 2)

    encoder = v * w + 2 * lstm(w) + lstm(2 * w) + 2 * lstm(w)
    decoder = v * w + lstm(w) + 3 * lstm(2 * w) + 2 * w * w + w + (w + 1) * v
    assert _count(models.gnmt_v2(vocabulary=v, width=w)) == encoder + decoder


# What torchvision's models of these names have: entries of the state dict, and some of them with their shapes.
TORCHVISION = {
    "alexnet": (16, {"features.0.weight": (64, 3, 11, 11), "features.10.bias": (256,), "classifier.6.weight": (1000, 4096)}),
    "resnet18": (122, {"conv1.weight": (64, 3, 7, 7), "layer2.0.downsample.0.weight": (128, 64, 1, 1),
                       "layer4.1.bn2.running_var": (512,), "fc.weight": (1000, 512)}),
    "resnet50": (320, {"layer1.0.downsample.1.num_batches_tracked": (), "layer3.5.conv2.weight": (256, 256, 3, 3),
                       "layer4.2.conv3.weight": (2048, 512, 1, 1), "fc.bias": (1000,)}),
    "resnet34": (218, {"layer3.5.conv2.weight": (256, 256, 3, 3), "layer4.0.downsample.1.weight": (512,)}),
    "vit_tiny": (80, {"class_token": (1, 1, 192), "conv_proj.weight": (192, 3, 4, 4),  # as its VisionTransformer
                      "encoder.pos_embedding": (1, 65, 192), "encoder.layers.encoder_layer_5.mlp.3.weight": (192, 768),
                      "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": (576, 192),
                      "encoder.ln.bias": (192,), "heads.head.weight": (10, 192)}),
    "mobilenet_v2": (314, {"features.0.0.weight": (32, 3, 3, 3), "features.1.conv.0.0.weight": (32, 1, 3, 3),
                           "features.1.conv.1.weight": (16, 32, 1, 1), "features.2.conv.0.1.bias": (96,),
                           "features.17.conv.3.running_mean": (320,), "features.18.0.weight": (1280, 320, 1, 1),
                           "classifier.1.weight": (1000, 1280)}),
}  # fmt: skip


@pytest.mark.parametrize("name", TORCHVISION)
def test_names_and_shapes_are_torchvisions(name):
    count, some = TORCHVISION[name]
    state = getattr(models, name)().state_dict()
    assert len(state) == count
    assert {k: tuple(state[k].shape) for k in some} == some


def test_a_vision_transformer_with_pytorchs_weights_gives_pytorchs_result():
    """`pytorch_vit.safetensors` was written by PyTorch from a small model built with torchvision's module names."""
    stored = nn.load_weights(Path(__file__).with_name("pytorch_vit.safetensors"))
    part = {k.removeprefix("vit/"): v for k, v in stored.items()}
    x, expected = part.pop("in"), part.pop("out")
    model = models.ViT(8, 4, width=8, depth=2, heads=2, num_classes=3).eval()
    model.load_state_dict(part)
    with wf.no_grad():
        for run in (model, wf.function(model)):
            np.testing.assert_allclose(run(x).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def _learns(model, inputs, target, loss_fn, steps, rate=0.02, captured=True):
    ps = list(model.parameters())
    moments = [wf.zeros(*p.shape) for p in ps]

    def step(*args):
        loss = loss_fn(model(*args[:-1]), args[-1])
        for p in ps:
            p.grad = None
        loss.backward()
        with wf.no_grad():
            for p, m in zip(ps, moments, strict=True):
                m *= 0.9
                m += p.grad
                p -= rate * m
        return loss

    run = wf.function(step) if captured else step
    losses = [run(*inputs, target).item() for _ in range(steps)]
    assert np.isfinite(losses).all() and losses[-1] < 0.5 * losses[0], losses


def _images(n, size, seed=0):
    rng = np.random.default_rng(seed)
    return wf.tensor(rng.standard_normal((n, 3, size, size)).astype("f")), wf.tensor(np.arange(n) % 4)


@pytest.mark.parametrize(
    ("make", "size", "rate"),
    [
        pytest.param(lambda: models.resnet18(num_classes=4), 32, 0.02, id="resnet18"),
        pytest.param(lambda: models.resnet34(num_classes=4), 32, 0.02, id="resnet34", marks=DEEPER),
        pytest.param(lambda: models.resnet50(num_classes=4), 32, 0.003, id="resnet50"),
        pytest.param(lambda: models.mobilenet_v2(num_classes=4, dropout=0.0), 32, 0.02, id="mobilenet_v2"),
        pytest.param(lambda: models.mobilenet_v1(num_classes=4, width=0.25), 32, 0.05, id="mobilenet_v1"),
        pytest.param(lambda: models.vit_tiny(16, 4, num_classes=4), 16, 0.02, id="vit"),
        pytest.param(lambda: models.lenet(in_channels=3, image_size=16, num_classes=4), 16, 0.1, id="lenet"),
    ],
)
def test_image_model_learns_a_batch_by_heart(make, size, rate):
    wf.manual_seed(0)
    x, y = _images(8, size)
    _learns(make(), [x], y, F.cross_entropy, 20 if size > 16 else 40, rate)


def test_ncf_learns_a_batch_by_heart():
    wf.manual_seed(0)
    rng = np.random.default_rng(0)
    model = models.ncf(50, 40, 8, (16, 16, 8))
    users, items = wf.tensor(rng.integers(0, 50, 64)), wf.tensor(rng.integers(0, 40, 64))
    likes = wf.tensor((rng.random(64) < 0.5).astype("f"))
    _learns(model, [users, items], likes, F.binary_cross_entropy_with_logits, 400, 0.5)


def test_gnmt_learns_a_batch_by_heart():
    wf.manual_seed(0)
    rng = np.random.default_rng(0)
    model = models.gnmt_v2(vocabulary=20, width=16, layers=3, dropout=0.0)
    source, target = wf.tensor(rng.integers(0, 20, (4, 5))), wf.tensor(rng.integers(0, 20, (4, 6)))

    def loss(logits, expected):
        return F.cross_entropy(logits.reshape(-1, 20), expected.reshape(-1))

    _learns(model, [source, target], target, loss, 120, 0.5)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: models.AlexNet(4, dropout=0.0, hidden=128), 64),
        (lambda: models.VGG((16, "M", 32, 32, "M"), 4, dropout=0.0, hidden=64), 16),
    ],
    ids=["alexnet", "vgg"],
)
def test_a_net_without_norms_learns_a_batch_by_heart(make, size):
    wf.manual_seed(0)
    model, (x, y) = make(), _images(8, size)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    @wf.function
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, y).item() for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0], losses


def test_mlp_learns_a_batch_by_heart():
    wf.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = wf.tensor(rng.standard_normal((16, 12)).astype("f")), wf.tensor(np.arange(16) % 4)
    _learns(models.mlp(12, 4, (32, 32)), [x], y, F.cross_entropy, 60, 0.1)


def _tokens(*shape):
    return wf.tensor(np.random.default_rng(sum(shape)).integers(0, 20, shape))


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: models.mlp(12, 4, (16, 16), dropout=0.5), lambda: [wf.ones(3, 12)]),
        (lambda: models.lenet(in_channels=3, image_size=16), lambda: [_images(2, 16)[0]]),
        (lambda: models.AlexNet(4, hidden=64), lambda: [_images(2, 64)[0]]),
        (lambda: models.VGG((16, "M", 32, 32, "M"), 4, hidden=64), lambda: [_images(2, 16)[0]]),
        (lambda: models.vit_tiny(16, 4, num_classes=4, dropout=0.1), lambda: [_images(2, 16)[0]]),
        (lambda: models.gpt(vocab_size=20, block_size=8, n_layer=2, n_head=2, n_embd=16), lambda: [_tokens(2, 8)]),
        (lambda: models.gnmt_v2(vocabulary=20, width=16, layers=3), lambda: [_tokens(2, 5), _tokens(2, 4)]),
        (lambda: models.ncf(20, 20, 8, (16, 16, 8), sparse=True), lambda: [_tokens(9), _tokens(9)]),
    ],
    ids=["mlp", "lenet", "alexnet", "vgg", "vit", "gpt", "gnmt", "ncf"],
)
def test_captured_results_and_gradients_are_the_eager_ones(make, inputs):
    """With dropout too: both draw the same numbers."""
    found = []
    for captured in (False, True):
        wf.manual_seed(2)
        model = make()

        def step(*args, model=model):
            model.zero_grad()
            y = model(*args)
            (y**2).mean().backward()
            return y

        y = (wf.function(step, keep_grads=True) if captured else step)(*inputs())
        grads = [p.grad.to_dense() if hasattr(p.grad, "to_dense") else p.grad for p in model.parameters()]
        found.append([y.detach().numpy(), *(g.numpy() for g in grads)])
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-3, atol=2e-4 * abs(eager).max() + 1e-9)


@pytest.mark.parametrize(
    "name", ["resnet18", pytest.param("resnet34", marks=DEEPER), "resnet50", "mobilenet_v1", "mobilenet_v2"]
)
def test_captured_batch_norm_nets_give_the_eager_results_and_statistics(name):
    found = []
    for captured in (False, True):
        wf.manual_seed(2)
        model = getattr(models, name)(num_classes=4)
        x, _ = _images(8, 32)
        with wf.no_grad():
            (wf.function(model) if captured else model)(x)
            y = model.eval()(x)
        found.append([y.numpy(), *(b.numpy() for b in model.buffers())])
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-2, atol=2e-3 * abs(eager).max() + 1e-6)


# The submodules of torchvision's models of these names, in order: of the whole, and of one block.
FEATURES = ["features", "avgpool", "classifier"]
RESNET = ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool", "fc"]
CHILDREN = {
    "alexnet": (lambda: models.AlexNet(hidden=8), FEATURES, "classifier", [str(i) for i in range(7)]),
    "vgg": (lambda: models.VGG((8, "M"), hidden=8), FEATURES, "features", ["0", "1", "2"]),
    "resnet18": (models.resnet18, RESNET, "layer2.0", ["conv1", "bn1", "relu", "conv2", "bn2", "downsample"]),
    "resnet50": (models.resnet50, RESNET, "layer1.0", ["conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "relu", "downsample"]),
    "mobilenet_v2": (models.mobilenet_v2, ["features", "classifier"], "features.1", ["conv"]),
    "vit": (models.vit_tiny, ["conv_proj", "encoder", "heads"], "encoder", ["dropout", "layers", "ln"]),
}  # fmt: skip


def test_children_have_torchvisions_names_and_order():
    def check(make, names, place, inner):
        model = make()
        assert [name for name, _ in model.named_children()] == names
        assert [name for name, _ in model.get_submodule(place).named_children()] == inner

    each(check, CHILDREN)


def test_a_resnet_without_its_last_child_is_its_feature_extractor():
    model = models.resnet18(num_classes=3).eval()
    features = nn.Sequential(*list(model.children())[:-1])
    x = wf.randn(2, 3, 64, 64)
    with wf.no_grad():
        found = features(x)
        assert found.shape == (2, 512, 1, 1)
        np.testing.assert_array_equal(model.fc(found[:, :, 0, 0]).numpy(), model(x).numpy())


def test_hooks_see_every_relu_of_a_resnet():
    model, seen = models.resnet18(num_classes=3).eval(), []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda m, args, out, name=name: seen.append(name))
    model(wf.randn(1, 3, 32, 32))
    assert seen[:3] == ["relu", "layer1.0.relu", "layer1.0.relu"]
    assert len(seen) == 17
