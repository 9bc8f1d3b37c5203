"""Modules: what they own, their state, modes, hooks, errors, copies."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import nn
from weft.runtime import epoch


class Block(nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.scale = nn.Parameter(wf.ones(size))
        self.register_buffer("offset", wf.zeros(size))
        self.register_buffer("scratch", wf.zeros(1), persistent=False)
        self.label = "block"

    def forward(self, x: wf.Tensor) -> wf.Tensor:
        return self.norm(self.linear(x)) * self.scale + self.offset


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList([Block(), Block()])})
        self.head = nn.Linear(3, 2)

    def forward(self, x: wf.Tensor) -> wf.Tensor:
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.head(x)


# What a module owns --------------------------------------------------------------------------------------------------


def test_parameters_buffers_and_modules_are_found_by_path_in_order() -> None:
    model = Model()
    assert [n for n, _ in Block().named_parameters()] == [
        "scale", "linear.weight", "linear.bias", "norm.weight", "norm.bias",
    ]  # fmt: skip
    assert [n for n, _ in model.named_modules()] == [
        "", "encoder", "encoder.layers", "encoder.layers.0", "encoder.layers.0.linear", "encoder.layers.0.norm",
        "encoder.layers.1", "encoder.layers.1.linear", "encoder.layers.1.norm", "head",
    ]  # fmt: skip
    assert [n for n, _ in model.head.named_parameters("p")] == ["p.weight", "p.bias"]
    assert [n for n, _ in model.named_children()] == ["encoder", "head"]
    assert "encoder.layers.0.offset" in dict(model.named_buffers())
    assert model.get_submodule("encoder.layers.1.linear") is model.encoder["layers"][1].linear
    assert model.get_parameter("head.weight") is model.head.weight
    assert model.get_buffer("encoder.layers.0.norm.running_var").tolist() == [1.0] * 3
    with pytest.raises(AttributeError, match="'encoder' has no child 'blocks'. It has layers"):
        model.get_submodule("encoder.blocks.0")
    with pytest.raises(AttributeError, match="has no parameter 'gain'"):
        model.get_parameter("head.gain")


def test_a_shared_parameter_is_listed_once_and_saved_under_both_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    assert [n for n, _ in model.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    assert set(model.state_dict()) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_attributes_are_guarded() -> None:
    block = Block()
    with pytest.raises(TypeError, match=r"Block.scale: is a Parameter and cannot become a Tensor.*copy_"):
        block.scale = wf.ones(3)
    with pytest.raises(TypeError, match="Block.offset: is a buffer"):
        block.offset = "zero"
    with pytest.raises(TypeError, match=r"must be a Parameter or None. Got Tensor; wrap it in `nn.Parameter"):
        block.register_parameter("gain", wf.ones(1))
    with pytest.raises(ValueError, match="without '.'"):
        block.register_buffer("a.b", None)
    with pytest.raises(KeyError, match="taken by an attribute"):
        block.register_module("forward", nn.Identity())

    class Late(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"call `super\(\).__init__\(\)` before"):
        Late()
    with pytest.raises(ValueError, match="Linear.parent: a module cannot be part of itself"):
        block.linear.parent = block
    block.scale = None
    assert "scale" not in dict(block.named_parameters())
    del block.offset
    assert "offset" not in dict(block.named_buffers())


def test_every_static_change_is_announced_and_no_other() -> None:
    model = Model()
    for change, announced in (
        (lambda: setattr(model.head, "note", 1), True),
        (lambda: setattr(model.head, "note", 1), False),
        (lambda: setattr(model.head, "note", 2), True),
        (lambda: setattr(model.head, "bias", None), True),
        (lambda: setattr(model, "head", nn.Linear(3, 2)), True),
        (lambda: model.eval(), True),
        (lambda: model.eval(), False),
        (lambda: model.requires_grad_(False), True),
        (lambda: model.requires_grad_(False), False),
        (lambda: model.register_forward_hook(print), True),
        (lambda: model.state_dict(), False),
        (lambda: model.double(), True),
        (lambda: delattr(model.head, "out_features"), True),
    ):
        before = epoch.current()
        change()
        assert (epoch.current() != before) == announced


# State ---------------------------------------------------------------------------------------------------------------


def test_state_dict_round_trip_copies_into_the_same_memory() -> None:
    one, two = Model(), Model()
    alias = two.head.weight.detach().numpy()
    assert "encoder.layers.0.scratch" not in one.state_dict()
    result = two.load_state_dict(one.state_dict())
    assert result == ([], [])
    np.testing.assert_array_equal(alias, one.head.weight.detach().numpy())
    assert not np.shares_memory(alias, one.head.weight.detach().numpy())
    x = wf.randn(4, 3)
    np.testing.assert_array_equal(one.eval()(x).detach().numpy(), two.eval()(x).detach().numpy())


def test_state_dict_shares_memory_and_casts_on_loading() -> None:
    layer = nn.Linear(2, 1, bias=False)
    state = layer.state_dict()
    with wf.no_grad():
        layer.weight.fill_(3.0)
    assert state["weight"].tolist() == [[3.0, 3.0]]
    assert not state["weight"].requires_grad
    layer.load_state_dict({"weight": np.array([[1, 2]])})
    assert layer.weight.tolist() == [[1.0, 2.0]]
    assert layer.weight.dtype == wf.float32


def test_a_state_that_does_not_fit_is_reported_in_one_message_and_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = model[0].weight.tolist()
    state = {"0.weight": wf.zeros(2, 3), "0.bias": wf.ones(3), "1.weigth": wf.ones(1, 3), "1.bias": wf.ones(1)}
    with pytest.raises(ValueError) as caught:
        model.load_state_dict(state)
    assert str(caught.value) == (
        "load_state_dict: the state does not fit Sequential.\n"
        "  missing (1):\n    1.weight\n"
        "  unexpected (1):\n    1.weigth\n"
        "  shapes that differ (1):\n    0.weight: the file has (2, 3), the module (3, 2)\n"
        "Is '1.weigth' meant to be '1.weight'? Rename it, or pass strict=False."
    )
    assert model[0].weight.tolist() == before
    with pytest.raises(ValueError, match=r"shapes that differ \(1\)"):
        model.load_state_dict(state, strict=False)
    del state["0.weight"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["0.weight", "1.weight"], ["1.weigth"])
    assert model[0].bias.tolist() == [1.0, 1.0, 1.0]


def test_a_prefix_that_all_names_share_is_pointed_out() -> None:
    layer = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"Every name starts with 'module.'.*removeprefix"):
        layer.load_state_dict({f"module.{n}": t for n, t in layer.state_dict().items()})
    with pytest.raises(TypeError, match="expected a mapping"):
        layer.load_state_dict([1, 2])  # type: ignore[arg-type]


# Changing all of it --------------------------------------------------------------------------------------------------


def test_train_and_eval_reach_everything() -> None:
    model = Model()
    assert all(not m.training for m in model.eval().modules())
    assert all(m.training for m in model.train().modules())


def test_to_casts_in_place_and_keeps_the_parameters_identity() -> None:
    model = Model()
    weight = model.head.weight
    (model(wf.randn(4, 3))).sum().backward()
    assert model.to(wf.float64) is model
    assert model.head.weight is weight
    assert weight.dtype == weight.grad.dtype == wf.float64
    assert weight.requires_grad
    assert model.encoder["layers"][0].norm.num_batches_tracked.dtype == wf.int64
    assert model(wf.randn(4, 3, dtype=wf.float64)).dtype == wf.float64
    assert model.to("cpu").head.weight.dtype == wf.float64
    with pytest.raises(TypeError, match="must be floating or complex. Got int32"):
        model.to(wf.int32)
    with pytest.raises(ValueError, match="device"):
        model.to("cpu:9:1")


def test_apply_zero_grad_and_freezing() -> None:
    model = Model()
    seen: list[str] = []
    model.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Model"
    assert seen.count("Linear") == 3
    model(wf.randn(4, 3)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert model.head.bias.grad.tolist() == [0.0, 0.0]
    model.zero_grad()
    assert model.head.bias.grad is None
    model.requires_grad_(False)
    assert not model(wf.randn(4, 3)).requires_grad


# Copies --------------------------------------------------------------------------------------------------------------


def test_deepcopy_and_pickle_are_independent() -> None:
    model = Model()
    model.head.weight.no_decay = True
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other.head.weight, nn.Parameter)
        assert other.head.weight.requires_grad
        assert other.head.weight.no_decay
        with wf.no_grad():
            other.head.weight.fill_(0.0)
        assert model.head.weight.detach().numpy().any()
        x = wf.randn(4, 3)
        assert other(x).shape == (4, 2)


def _row_sums(model: nn.Module, queue: Any) -> None:
    queue.put(model.weight.detach().numpy().sum(1).tolist())


def test_a_module_travels_to_a_spawned_process() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    model = nn.Linear(2, 2)
    process = context.Process(target=_row_sums, args=(model, queue))
    process.start()
    try:
        found = queue.get(timeout=60)
    finally:
        process.join(timeout=60)
    np.testing.assert_allclose(found, model.weight.detach().numpy().sum(1), rtol=1e-6)


def test_shared_memory_is_seen_by_a_child() -> None:
    from weft import multiprocessing as mp

    model = nn.Linear(2, 2).share_memory()
    assert all(mp.is_shared(p) for p in model.parameters())
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_zero, args=(model,))
    process.start()
    process.join(timeout=60)
    assert process.exitcode == 0
    assert model.weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def _zero(model: nn.Module) -> None:
    with wf.no_grad():
        model.weight.zero_()


# Hooks ---------------------------------------------------------------------------------------------------------------


def test_forward_hooks_see_and_replace() -> None:
    layer = nn.Identity()
    seen: list[Any] = []
    pre = layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    post = layer.register_forward_hook(lambda m, args, y: seen.append((args[0].item(), y.item())))
    twice = layer.register_forward_hook(lambda m, args, y: y * 2)
    assert layer(wf.tensor(1.0)).item() == 4.0
    assert seen == [(2.0, 2.0)]
    for handle in (pre, post, twice):
        handle.remove()
    assert layer(wf.tensor(1.0)).item() == 1.0
    assert not layer._hooked


def test_hooks_may_see_keyword_arguments() -> None:
    class Scale(nn.Module):
        def forward(self, x: wf.Tensor, by: float = 1.0) -> wf.Tensor:
            return x * by

    layer = Scale()
    layer.register_forward_pre_hook(lambda m, a, k: (a, {**k, "by": k["by"] + 1}), with_kwargs=True)
    seen: list[float] = []
    layer.register_forward_hook(lambda m, a, k, y: seen.append(k["by"]), with_kwargs=True)
    assert layer(wf.tensor(2.0), by=2.0).item() == 6.0
    assert seen == [3.0]
    with pytest.raises(TypeError, match="hook: expected a function"):
        layer.register_forward_hook("no")  # type: ignore[arg-type]


def test_backward_hooks_see_this_calls_gradients_and_may_replace_the_input_s() -> None:
    layer = nn.Linear(2, 1, bias=False)
    with wf.no_grad():
        layer.weight.copy_(wf.tensor([[2.0, 3.0]]))
    x = wf.ones(1, 2, requires_grad=True)
    seen: list[Any] = []

    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        seen.append((grad_input[0].tolist(), grad_output[0].tolist()))
        return (grad_input[0] * 10,)

    handle = layer.register_full_backward_hook(hook)
    (layer(x) * 5 + x.sum()).sum().backward()
    assert seen == [([[10.0, 15.0]], [[5.0]])]
    assert x.grad.tolist() == [[101.0, 151.0]]
    handle.remove()
    x.grad = None
    layer(x).sum().backward()
    assert x.grad.tolist() == [[2.0, 3.0]]


def test_backward_hooks_run_again_at_a_second_backward() -> None:
    layer, seen = nn.Linear(2, 1), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    first, second = wf.ones(1, 2, requires_grad=True), layer.weight.tolist()
    y = layer(first)
    (y * 2).sum().backward(retain_graph=True)
    (y * 3).sum().backward()
    assert [go for _, go in seen] == [[[2.0]], [[3.0]]]
    np.testing.assert_allclose(seen[1][0], np.multiply(second, 3), rtol=1e-6)


def test_backward_hooks_run_in_captured_functions() -> None:
    """What the hook has seen belongs to the captured function; keeping it on the tape would be an error."""
    found = []
    for captured in (False, True):
        wf.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))

        def step(x: Any, model: nn.Module = model) -> Any:
            y = model(x)
            y.sum().backward()
            return y, model[0].weight.grad

        found.append([t.detach().numpy() for t in (wf.function(step) if captured else step)(wf.ones(2, 3))])
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-6)


def test_to_an_unknown_device_says_so() -> None:
    with pytest.raises(ValueError, match="device: cannot read 'cuda'"):
        nn.Linear(2, 2).to("cuda")


def test_hooks_run_in_captured_functions() -> None:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda m, args, y: y * 2)
    x = wf.randn(3, 2)
    np.testing.assert_allclose(wf.function(layer)(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-6)


# Errors --------------------------------------------------------------------------------------------------------------


def test_errors_name_the_module_path_once() -> None:
    model = Model()
    model.encoder["layers"][1].linear = nn.Linear(5, 3)
    with pytest.raises(ValueError, match=r"^encoder\.layers\.1\.linear: linear: ") as caught:
        model(wf.ones(2, 3))
    assert str(caught.value).count("encoder") == 1
    with pytest.raises(ValueError, match=r"^head: linear: "):
        nn.Sequential({"head": model.head})(wf.ones(2, 4))
    with pytest.raises(ValueError, match=r"^linear: "):
        model.head(wf.ones(2, 4))


def test_errors_keep_their_type_and_what_else_they_carry() -> None:
    class Picky(Exception):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(code, text)
            self.code = code

    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            raise x

    outer = nn.Sequential(nn.Sequential(Inner()))
    with pytest.raises(Picky) as caught:
        outer(Picky(7, "why"))
    assert caught.value.code == 7
    assert caught.value.args == (7, "why")
    assert caught.value.__notes__ == ["In module 0.0."]
    with pytest.raises(KeyError, match="0.0: there is no such key"):
        outer(KeyError("there is no such key"))


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Module: define `forward"):
        nn.Module()(1)


# Text ----------------------------------------------------------------------------------------------------------------


def test_repr_is_a_tree() -> None:
    model = nn.Sequential({"body": nn.Sequential(nn.Linear(2, 3), nn.ReLU()), "head": nn.Linear(3, 1, bias=False)})
    assert repr(model) == (
        "Sequential(\n"
        "  (body): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (head): Linear(in_features=3, out_features=1, bias=False)\n"
        ")"
    )


# Captured ------------------------------------------------------------------------------------------------------------


def test_a_captured_training_step_gives_the_eager_numbers() -> None:
    """Batch norm's running statistics, dropout's draws, train/eval: all as eagerly."""
    from weft import optim

    def build() -> nn.Module:
        wf.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.5), nn.Linear(64, 3),
        )  # fmt: skip

    x, y = wf.randn(6, 1, 8, 8), wf.randint(0, 3, (6,))
    found = []
    for captured in (False, True):
        model = build()
        opt = optim.Adam(model.parameters(), lr=0.01)
        wf.manual_seed(5)

        def step(x: wf.Tensor, y: wf.Tensor, model: nn.Module = model, opt: Any = opt) -> wf.Tensor:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        run = wf.function(step) if captured else step
        predict = wf.function(model) if captured else model
        losses = []
        for _ in range(4):
            losses.append(run(x, y).item())
        model.eval()
        with wf.no_grad():
            scores = predict(x).numpy().copy()
        model.train()
        losses.append(run(x, y).item())
        found.append((losses, scores, {k: v.numpy().copy() for k, v in model.state_dict().items()}))
    (a, b) = found
    np.testing.assert_allclose(a[0], b[0], rtol=1e-4)
    np.testing.assert_allclose(a[1], b[1], rtol=1e-3, atol=1e-4)
    assert b[2]["1.num_batches_tracked"] == 5
    for name in a[2]:
        np.testing.assert_allclose(a[2][name], b[2][name], rtol=2e-3, atol=2e-4, err_msg=name)


def test_a_notebook_shows_a_tree_that_folds() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    model[0].weight.requires_grad_(False)
    text = model._repr_html_()
    assert text.count("<details") == text.count("</details>") == 2 and text.count("<details open>") == 1
    assert "13 parameters, 6 frozen" in text and "(0): <b>Linear</b>(" in text and "<b>ReLU</b>()" in text

    class Odd(nn.Module):
        def extra_repr(self) -> str:
            return "<script>"

    assert "&lt;script&gt;" in Odd()._repr_html_()
