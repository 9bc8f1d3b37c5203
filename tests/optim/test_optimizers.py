"""Optimisers: ten steps on a quadratic against PyTorch's numbers, eagerly and captured; what all of them share."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import weft as wf
from weft import nn, optim
from weft.nn import functional as F

A = [[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]]
B = [1.0, -2.0, 0.5]
START = [1.0, -1.0, 2.0]

# Optimiser, settings, and where PyTorch 2.13 is after ten steps in double precision.
CASES = {
    "sgd": ("SGD", {"lr": 0.1}, [0.966302539885, -2.201208116241, 1.871245729373]),
    "sgd momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}, [1.08057919478, -3.380879999098, 1.759061783367]),
    "sgd dampening": (
        "SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}, [0.925516575623, -3.019829588491, 1.760008584049],
    ),
    "sgd nesterov decay": (
        "SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        [1.089451391339, -2.983438776452, 1.489997044509],
    ),
    "sgd maximize": ("SGD", {"lr": 0.01, "maximize": True}, [1.059400751217, -0.799647309782, 2.032472007918]),
    "adam": ("Adam", {"lr": 0.1}, [0.921701764069, -1.956540240664, 1.411662884194]),
    "adam decay": (
        "Adam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 0.001},
        [0.903482462736, -1.923667733607, 1.254636992393],
    ),
    "adam amsgrad": (
        "Adam", {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.6)}, [0.94974035143, -1.875695453155, 1.623777953208],
    ),
    "adamw": ("AdamW", {"lr": 0.1, "weight_decay": 0.2}, [0.842002519042, -1.697544147575, 1.24419035649]),
    "adamw amsgrad": (
        "AdamW", {"lr": 0.1, "amsgrad": True, "maximize": True}, [1.989087943698, 0.020033463599, 2.990326567012],
    ),
    "adamax": ("Adamax", {"lr": 0.1, "weight_decay": 0.1}, [0.753588711447, -1.792223233968, 1.351506069889]),
    "rmsprop": ("RMSprop", {"lr": 0.05}, [1.160861741392, -2.696633447383, 2.046836073474]),
    "rmsprop centered": (
        "RMSprop", {"lr": 0.05, "centered": True, "momentum": 0.9, "weight_decay": 0.1},
        [0.802915241176, -2.8521172552, 2.766132977559],
    ),
    "adagrad": ("Adagrad", {"lr": 0.3}, [1.036815977099, -2.204889306426, 1.823980158202]),
    "adagrad decay": (
        "Adagrad", {"lr": 0.3, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
        [0.906266449471, -1.909967470478, 1.520810124376],
    ),
    "adadelta": (
        "Adadelta", {"lr": 1.0, "rho": 0.8, "weight_decay": 0.1}, [0.97512853478, -1.025490905734, 1.974620848549],
    ),
}  # fmt: skip


def descend(p: nn.Parameter, opt: optim.Optimizer, captured: bool = False, steps: int = 10) -> None:
    a, b = wf.tensor(A, dtype=p.dtype), wf.tensor(B, dtype=p.dtype)

    def step() -> wf.Tensor:
        loss = 0.5 * (p * (a @ p)).sum() - (b * p).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    run = wf.function(step) if captured else step
    for _ in range(steps):
        run()


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", CASES)
def test_ten_steps_end_where_pytorch_ends(name: str, captured: bool) -> None:
    kind, settings, expected = CASES[name]
    p = nn.Parameter(wf.tensor(START, dtype=wf.float64))
    descend(p, getattr(optim, kind)([p], **settings), captured)
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_single_precision_stays_close(name: str) -> None:
    kind, settings, expected = CASES[name]
    p = nn.Parameter(wf.tensor(START))
    descend(p, getattr(optim, kind)([p], **settings))
    assert p.dtype == wf.float32
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_lion_follows_its_definition(captured: bool) -> None:
    p = nn.Parameter(wf.tensor(START, dtype=wf.float64))
    descend(p, optim.Lion([p], lr=0.01, betas=(0.8, 0.9), weight_decay=0.3), captured)
    x, m = np.array(START), np.zeros(3)
    for _ in range(10):
        g = np.array(A) @ x - np.array(B)
        x = x * (1 - 0.01 * 0.3) - 0.01 * np.sign(0.8 * m + 0.2 * g)
        m = 0.9 * m + 0.1 * g
    np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-12)


def test_half_precision_parameters_keep_averages_in_single_precision() -> None:
    p = nn.Parameter(wf.ones(3, dtype=wf.bfloat16))
    opt = optim.Adam([p], lr=0.125)
    for _ in range(3):
        p.grad = wf.ones(3, dtype=wf.bfloat16)
        opt.step()
    assert p.dtype == wf.bfloat16
    assert opt.state[p]["exp_avg_sq"].dtype == wf.float32
    assert p.astype(wf.float32).tolist() == [0.625] * 3


def test_parameters_count_only_their_own_updates() -> None:
    """A parameter that has no gradient in some steps keeps its own step counter (numbers from PyTorch)."""
    p, q = (nn.Parameter(wf.ones(2, dtype=wf.float64)) for _ in range(2))
    opt = optim.Adam([p, q], lr=0.1)
    for i in range(6):
        opt.zero_grad()
        p.grad = p.detach() * 2 + i
        if i in (2, 3, 5):
            q.grad = q.detach() - i
        opt.step()
    np.testing.assert_allclose(p.detach().numpy(), [0.4015941960683706] * 2, rtol=1e-9)
    np.testing.assert_allclose(q.detach().numpy(), [1.289555451958407] * 2, rtol=1e-9)
    assert (opt.state[p]["step"].item(), opt.state[q]["step"].item()) == (6, 3)


def test_parameters_that_go_together_share_one_counter() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    opt = optim.Adam(model.parameters())
    model(wf.ones(1, 2)).sum().backward()
    opt.step()
    assert len({id(state["step"]) for state in opt.state.values()}) == 1


# Row-sparse gradients ------------------------------------------------------------------------------------------------

SPARSE = {
    "SGD": [[0.0, 0.06399999558925629], [0.07999999821186066, 0.12000000476837158], [0.19200000166893005, 0.24000000953674316],
            [0.6000000238418579, 0.699999988079071], [0.6399999856948853, 0.7199999690055847]],
    "Adagrad": [[0.0, 0.0], [0.10000000149011612, 0.20000001788139343], [0.26488766074180603, 0.36286094784736633],
                [0.6000000238418579, 0.699999988079071], [0.699999988079071, 0.7999999523162842]],
    "SparseAdam": [[0.0, -0.06700567901134491], [0.13611866533756256, 0.23611867427825928],
                   [0.21112456917762756, 0.31014251708984375], [0.6000000238418579, 0.699999988079071],
                   [0.7255863547325134, 0.8255863189697266]],
}  # fmt: skip


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("kind", SPARSE)
def test_row_sparse_gradients_touch_only_their_rows(kind: str, captured: bool) -> None:
    table = nn.Embedding(5, 2, sparse=True)
    with wf.no_grad():
        table.weight.copy_(wf.arange(10.0).reshape(5, 2) / 10)
    opt = getattr(optim, kind)(table.parameters(), lr=0.1)

    def step(indices: wf.Tensor) -> None:
        opt.zero_grad()
        (table(indices) ** 2).sum().backward()
        opt.step()

    run = wf.function(step) if captured else step
    for indices in ([0, 2, 2], [2, 4, 0], [1, 1, 1]):
        run(wf.tensor(indices))
    np.testing.assert_allclose(table.weight.detach().numpy(), SPARSE[kind], rtol=2e-5, atol=1e-6)


def test_optimisers_without_a_row_form_take_row_sparse_gradients_dense() -> None:
    tables = [nn.Embedding(4, 2, sparse=sparse) for sparse in (True, False)]
    tables[1].load_state_dict(tables[0].state_dict())
    for table in tables:
        opt = optim.RMSprop(table.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            (table(wf.tensor([1, 1, 3])) ** 2).sum().backward()
            opt.step()
    np.testing.assert_allclose(tables[0].weight.detach().numpy(), tables[1].weight.detach().numpy(), rtol=1e-6)


# Groups and settings -------------------------------------------------------------------------------------------------


def test_groups_have_settings_of_their_own() -> None:
    p, q = nn.Parameter(wf.ones(1)), nn.Parameter(wf.ones(1))
    opt = optim.SGD([{"params": [p]}, {"params": q, "lr": 1}], lr=0.25)
    p.grad = q.grad = wf.ones(1)
    opt.step()
    assert (p.item(), q.item()) == (0.75, 0.0)
    assert [g["lr"] for g in opt.param_groups] == [0.25, 1.0]


def test_a_captured_step_sees_a_new_learning_rate_without_another_trace() -> None:
    p = nn.Parameter(wf.zeros(1))
    opt = optim.SGD([p], lr=1.0)

    @wf.function
    def step() -> None:
        opt.zero_grad()
        (-p).sum().backward()
        opt.step()

    step()
    step()
    traces = len(step.signatures)
    opt.param_groups[0]["lr"] *= 0.5
    step()
    assert p.item() == 2.5
    assert len(step.signatures) == traces


def test_a_setting_that_becomes_zero_is_seen_too() -> None:
    p = nn.Parameter(wf.ones(1))
    opt = optim.SGD([p], lr=1.0, weight_decay=0.5)

    @wf.function
    def step() -> None:
        opt.zero_grad()
        (p * 0.0).sum().backward()
        opt.step()

    step()
    assert p.item() == 0.5
    opt.param_groups[0]["weight_decay"] = 0.0
    step()
    assert p.item() == 0.5
    opt.param_groups[0]["weight_decay"] = 1.0
    step()
    assert p.item() == 0.0


def test_changing_a_setting_inside_a_captured_function_is_refused() -> None:
    p = nn.Parameter(wf.ones(1))
    opt = optim.SGD([p], lr=1.0)

    @wf.function(fullgraph=True)
    def step() -> None:
        opt.param_groups[0]["lr"] = 0.5

    with pytest.raises(wf.CaptureError, match="'lr' is changed inside a captured function"):
        step()


def test_closure_computes_the_loss_under_grad() -> None:
    p = nn.Parameter(wf.ones(1))
    opt = optim.SGD([p], lr=0.5)

    def closure() -> wf.Tensor:
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with wf.no_grad():
        assert opt.step(closure).item() == 1.0
    assert p.item() == 0.0


def test_zero_grad_forgets_or_zeroes() -> None:
    p = nn.Parameter(wf.ones(2))
    opt = optim.SGD([p])
    p.grad = wf.ones(2)
    opt.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    opt.zero_grad()
    assert p.grad is None


def test_users_write_an_optimiser_in_a_few_lines() -> None:
    class Momentum(optim.Optimizer):
        def __init__(self, params, lr=0.01, momentum=0.9):
            super().__init__(params, {"lr": lr, "momentum": momentum})

        def init_state(self, p, group):
            return {"velocity": self.zeros(p)}

        def update(self, p, g, state, group):
            v = state["velocity"]
            v *= group["momentum"]
            v += g
            p -= group["lr"] * v

    for captured in (False, True):
        p = nn.Parameter(wf.tensor(START, dtype=wf.float64))
        descend(p, Momentum([p], lr=0.05), captured)
        np.testing.assert_allclose(p.detach().numpy(), CASES["sgd momentum"][2], rtol=1e-9)


# State ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_state_dict_resumes_exactly(name: str) -> None:
    kind, settings, _ = CASES[name]

    def fresh() -> tuple[nn.Parameter, optim.Optimizer]:
        p = nn.Parameter(wf.tensor(START, dtype=wf.float64))
        return p, getattr(optim, kind)([p], **settings)

    p, opt = fresh()
    descend(p, opt, steps=4)
    saved = opt.state_dict()
    arrays = [{k: v.numpy().copy() for k, v in s.items()} for s in saved["state"]]
    plain = json.loads(json.dumps(saved["param_groups"]))
    q, again = fresh()
    with wf.no_grad():
        q.copy_(p)
    again.load_state_dict({"state": arrays, "param_groups": plain})
    descend(p, opt, steps=3)
    descend(q, again, steps=3)
    assert p.tolist() == q.tolist()


def test_load_state_dict_writes_into_the_tensors_a_captured_step_holds() -> None:
    p = nn.Parameter(wf.tensor(START, dtype=wf.float64))
    opt = optim.Adam([p], lr=0.1)
    a, b = wf.tensor(A, dtype=p.dtype), wf.tensor(B, dtype=p.dtype)

    @wf.function
    def step() -> None:
        opt.zero_grad()
        (0.5 * (p * (a @ p)).sum() - (b * p).sum()).backward()
        opt.step()

    step()
    kept = {"state": [{k: v.numpy().copy() for k, v in s.items()} for s in opt.state_dict()["state"]],
            "param_groups": opt.state_dict()["param_groups"]}  # fmt: skip
    there = p.detach().numpy().copy()
    for _ in range(3):
        step()
    first = p.tolist()
    with wf.no_grad():
        p.copy_(wf.asarray(there))
    opt.load_state_dict(kept)
    for _ in range(3):
        step()
    assert p.tolist() == first
    assert opt.state[p]["step"].item() == 4


def test_the_state_of_pytorchs_optimiser_loads() -> None:
    """As `torch.optim.AdamW(…, amsgrad=True).state_dict()` was after one step; PyTorch's next steps are the truth."""
    p = nn.Parameter(wf.tensor([0.8990000486373901, 2.0980000495910645]))
    opt = optim.AdamW([p], lr=9.0, amsgrad=True)
    square = np.array([0.00025, 0.001], np.float32)
    moments = {"exp_avg": np.array([0.05, -0.1], np.float32), "exp_avg_sq": square, "max_exp_avg_sq": square}
    group = {
        "lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0.01, "amsgrad": True, "maximize": False,
        "foreach": None, "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": True,
        "params": [0],
    }  # fmt: skip
    opt.load_state_dict({"state": {0: {"step": np.float32(1), **moments}}, "param_groups": [group]})
    assert "fused" not in opt.param_groups[0]
    for gradient, expected in (
        ([0.25, 2.0], [0.8048830628395081, 2.0592916011810303]),
        ([1.0, 0.5], [0.713169515132904, 2.015667200088501]),
    ):
        p.grad = wf.tensor(gradient)
        opt.step()
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-5)


def test_a_state_of_another_optimiser_is_refused_before_anything_changes() -> None:
    p = nn.Parameter(wf.ones(2))
    p.grad = wf.ones(2)
    other, opt = optim.SGD([p], lr=0.1, momentum=0.9), optim.Adam([p])
    other.step()
    with pytest.raises(ValueError, match=r"Adam: the state is of another optimiser. It has \['momentum_buffer'\]"):
        opt.load_state_dict(other.state_dict())
    assert opt.param_groups[0]["lr"] == 1e-3 and "momentum" not in opt.param_groups[0]
    opt.step()
    with pytest.raises(ValueError, match="Adam: this is not the state of an optimiser"):
        opt.load_state_dict({"a": 1})
    with pytest.raises(TypeError, match="SGD: lr must be a number. Got 'x'"):
        optim.SGD([p], lr="x")  # type: ignore[arg-type]


def test_load_state_dict_reports_what_does_not_fit() -> None:
    p, q = nn.Parameter(wf.ones(2)), nn.Parameter(wf.ones(3))
    one, two = optim.Adam([p]), optim.Adam([p, q])
    with pytest.raises(ValueError, match=r"groups of \[1\] parameters, the optimiser groups of \[2\]"):
        two.load_state_dict(one.state_dict())
    state = one.state_dict()
    state["state"] = [{"exp_avg": np.zeros(5), "exp_avg_sq": np.zeros(5), "step": np.float32(1)}]
    with pytest.raises(ValueError, match=r"'exp_avg' of parameter 0 has shape \(5,\), expected \(2,\)"):
        one.load_state_dict(state)


def test_copies_of_model_and_optimiser_go_their_own_way() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    opt = optim.Adam(model.parameters(), lr=0.1)

    def step(model: nn.Module, opt: optim.Optimizer) -> list:
        opt.zero_grad()
        model(wf.ones(1, 2)).sum().backward()
        opt.step()
        return model[0].weight.tolist()

    step(model, opt)
    for other, other_opt in (copy.deepcopy((model, opt)), pickle.loads(pickle.dumps((model, opt)))):
        twin, twin_opt = copy.deepcopy((model, opt))
        assert step(other, other_opt) == step(twin, twin_opt) != model[0].weight.tolist()
        assert other_opt.state[other[0].weight]["step"].item() == 2
    assert opt.state[model[0].weight]["step"].item() == 1


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: optim.SGD([]), ValueError, "SGD: there are no parameters"),
        (lambda p: optim.SGD(p), TypeError, r"a list, `\[tensor\]`"),
        (lambda p: optim.SGD(nn.Linear(1, 1)), TypeError, r"Pass `model.parameters\(\)`"),
        (lambda p: optim.SGD([1.0]), TypeError, "parameter 0 must be a tensor. Got float"),
        (lambda p: optim.SGD([p * 2]), ValueError, "parameter 0 was computed by an op"),
        (lambda p: optim.SGD([p, p]), ValueError, "appears twice"),
        (lambda p: optim.SGD([p], lr=-1), ValueError, "SGD: lr must not be negative. Got -1"),
        (lambda p: optim.SGD([p], nesterov=True), ValueError, "nesterov needs momentum"),
        (lambda p: optim.Adam([p], betas=(0.9, 1.0)), ValueError, "betas must be two numbers"),
        (lambda p: optim.Adam([{"params": [p], "momentum": 1}]), ValueError, r"unknown settings \['momentum'\]"),
        (lambda p: optim.SGD([{"lr": 1}]), TypeError, "a dict with 'params'"),
        (lambda p: optim.SGD([p]).param_groups[0]["rate"], KeyError, "there is no setting 'rate'"),
    ],
)
def test_bad_input(make, error, text) -> None:
    with pytest.raises(error, match=text):
        make(nn.Parameter(wf.ones(2)))


def test_complex_parameters_are_for_sgd() -> None:
    p = nn.Parameter(wf.ones(1, dtype=wf.complex64))
    p.grad = wf.tensor([1 + 1j], dtype=wf.complex64)
    optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [0.5 - 0.5j]
    with pytest.raises(TypeError, match="Adam: complex parameters are not supported"):
        optim.Adam([p]).step()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"])
def test_a_small_network_is_fitted(kind: str) -> None:
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    x = wf.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = wf.tensor([0, 1, 1, 0])
    settings = {"SGD": {"lr": 0.5, "momentum": 0.9}, "Lion": {"lr": 0.01}, "Adagrad": {"lr": 0.3}}.get(
        kind, {"lr": 0.05}
    )
    opt = getattr(optim, kind)(model.parameters(), **settings)

    @wf.function
    def step() -> wf.Tensor:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for _ in range(200):
        loss = step()
    assert loss.item() < 0.1


@pytest.mark.parametrize("name", ["SGD", "RMSprop", "Adadelta", "Adam"])
@pytest.mark.parametrize("lr", [1, wf.asarray(1), True], ids=["int", "tensor", "bool"])
def test_an_integer_learning_rate_is_a_number_like_any_other(name, lr):
    moved = []
    for given in (lr, 1.0):
        p = wf.ones(3).requires_grad_()
        optimizer = getattr(optim, name)([p], lr=given)
        for _ in range(2):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
        moved.append(p.tolist())
    assert moved[0] == moved[1]
