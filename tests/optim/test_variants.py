"""RAdam, NAdam, Rprop, ASGD, Adafactor, Muon, Adamax and Adadelta against sequences that PyTorch 2.13 computed in float64."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import nn, optim

STEPS = 12
START = {"v": np.array([1.0, -2.0, 0.5]), "m": np.array([[0.3, -0.7, 1.1], [2.0, 0.1, -0.4]])}
SLOPE = {"v": np.array([1.0, 3.0, 0.2]), "m": np.array([[0.5, 1.5, 1.0], [2.0, 0.7, 0.3]])}
WAVE = {k: np.arange(x.size).reshape(x.shape) for k, x in START.items()}

# optimiser, settings, the vector and the matrix after 12 steps
PYTORCH = {
    "RAdam()": (
        "RAdam",
        {},
        [0.993817559, -1.96956787, 0.500597446],
        [0.298226047, -0.6942445, 1.09536887, 1.98076, 0.0995235702, -0.400402984],
    ),
    "RAdam(lr=0.05, betas=(0.8, 0.95), eps=1e-06, weight_decay=0.1)": (
        "RAdam",
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-06, "weight_decay": 0.1},
        [0.620526505, -0.614843921, 0.476757272],
        [0.189460307, -0.341137861, 0.766778203, 1.01126927, 0.048905401, -0.369573235],
    ),
    "RAdam(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)": (
        "RAdam",
        {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
        [1.25529616, -3.57817734, 0.441573085],
        [0.371585892, -0.953314899, 1.2676607, 2.89752215, 0.116559783, -0.356663035],
    ),
    "NAdam()": (
        "NAdam",
        {},
        [0.982949769, -1.98042784, 0.498811267],
        [0.293627709, -0.681171292, 1.07967675, 1.97999118, 0.0958878802, -0.398422744],
    ),
    "NAdam(lr=0.05, betas=(0.8, 0.95), eps=1e-06, weight_decay=0.1, momentum_decay=0.1)": (
        "NAdam",
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-06, "weight_decay": 0.1, "momentum_decay": 0.1},
        [0.564177627, -1.47045645, 0.394870599],
        [0.16044576, -0.249976559, 0.575622641, 1.45908829, 0.0104535852, -0.220951915],
    ),
    "NAdam(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)": (
        "NAdam",
        {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
        [1.39131586, -2.37354218, 0.486720926],
        [0.487431616, -1.16245108, 1.55777789, 2.38384622, 0.227752852, -0.393672333],
    ),
    "NAdam(momentum_decay=0.0, lr=0.1)": (
        "NAdam",
        {"momentum_decay": 0.0, "lr": 0.1},
        [0.338552047, -1.10969081, 0.399264387],
        [0.130661667, -0.0530650356, 0.258082975, 1.08620912, -0.0146331105, -0.267274099],
    ),
    "Rprop()": (
        "Rprop",
        {},
        [0.604194978, -1.60419498, 0.5096736],
        [0.280688, -0.304194978, 0.704194978, 1.60419498, 0.099048, -0.4096736],
    ),
    "Rprop(lr=0.1, etas=(0.4, 1.5), step_sizes=(0.001, 0.3))": (
        "Rprop",
        {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (0.001, 0.3)},
        [0.168, -0.025, 0.5475],
        [0.164, 0.117, -0.155, 0.025, 0.0916, -0.4475],
    ),
    "Rprop(lr=0.05, maximize=True)": (
        "Rprop",
        {"lr": 0.05, "maximize": True},
        [2.97902511, -3.97902511, 0.451632],
        [0.39656, -2.67902511, 3.07902511, 3.97902511, 0.15576, -0.351632],
    ),
    "ASGD()": (
        "ASGD",
        {},
        [0.88874951, -1.38561655, 0.489007781],
        [0.28470827, -0.581455967, 0.975407575, 1.56693935, 0.0891513539, -0.3870305],
    ),
    "ASGD(lr=0.1, lambd=0.05, alpha=0.5, t0=3, weight_decay=0.1)": (
        "ASGD",
        {"lr": 0.1, "lambd": 0.05, "alpha": 0.5, "t0": 3, "weight_decay": 0.1},
        [0.274537991, -0.0366500496, 0.320442126],
        [0.169292986, -0.0837945287, 0.226185944, 0.0691393236, 0.0199945112, -0.22417726],
    ),
    "ASGD(lr=0.05, maximize=True, t0=0)": (
        "ASGD",
        {"lr": 0.05, "maximize": True, "t0": 0},
        [1.79660297, -10.7511201, 0.554950039],
        [0.397908676, -1.69554405, 1.94970682, 6.24848895, 0.169598295, -0.466235955],
    ),
    "Adafactor()": (
        "Adafactor",
        {},
        [0.876415451, -1.85494459, 0.480927963],
        [0.290689903, -0.529008499, 0.907433387, 1.92103221, 0.0972046689, -0.394894658],
    ),
    "Adafactor(lr=0.1, beta2_decay=-0.5, eps=(0.0001, 0.01), d=1.5, weight_decay=0.1)": (
        "Adafactor",
        {"lr": 0.1, "beta2_decay": -0.5, "eps": (0.0001, 0.01), "d": 1.5, "weight_decay": 0.1},
        [0.241725647, -0.832985321, 0.379663985],
        [0.18765586, -0.0423022854, -0.157776813, 1.13513056, 0.0338106375, -0.304899907],
    ),
    "Adafactor(lr=0.05, maximize=True)": (
        "Adafactor",
        {"lr": 0.05, "maximize": True},
        [1.91538439, -2.9594883, 0.630496847],
        [0.34551402, -1.9035394, 2.31856862, 2.57654561, 0.119440631, -0.430917483],
    ),
    "Adamax()": (
        "Adamax",
        {},
        [0.982686564, -1.97735772, 0.503041941],
        [0.291477282, -0.68198164, 1.08232621, 1.9780968, 0.0975706511, -0.402344162],
    ),
    "Adamax(lr=0.05, betas=(0.8, 0.95), eps=0.001, weight_decay=0.1, maximize=True)": (
        "Adamax",
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 0.001, "weight_decay": 0.1, "maximize": True},
        [1.49189673, -2.57849004, 0.389152079],
        [0.527536396, -1.19585906, 1.58196881, 2.5632137, 0.155416752, -0.307188547],
    ),
    "Adadelta()": (
        "Adadelta",
        {},
        [0.970283913, -1.95906378, 0.491642439],
        [0.291893579, -0.660231204, 1.05569248, 1.95678053, 0.0906726996, -0.390219508],
    ),
    "Adadelta(lr=0.5, rho=0.8, eps=0.001, weight_decay=0.1, maximize=True)": (
        "Adadelta",
        {"lr": 0.5, "rho": 0.8, "eps": 0.001, "weight_decay": 0.1, "maximize": True},
        [1.4057506, -2.5349731, 0.530641628],
        [0.395731032, -1.27663044, 1.69445758, 2.56238046, 0.232480041, -0.451440325],
    ),
}

ELEMENTWISE = ("RAdam", "NAdam", "Rprop", "ASGD")


def _gradient(name, p, t):
    return wf.tensor(SLOPE[name], dtype=p.dtype) * p + 0.5 * wf.cos(wf.tensor(WAVE[name], dtype=p.dtype) + t)


def _run(kind, settings, dtype, captured=False, names=("v", "m"), steps=STEPS):
    params = [nn.Parameter(wf.tensor(START[name], dtype=dtype)) for name in names]
    optimizer = getattr(optim, kind)(params, **settings)

    def step(t):
        for name, p in zip(names, params, strict=True):
            p.grad = _gradient(name, p.detach(), t)
        optimizer.step()
        return params[0].sum().detach()

    step = wf.function(step) if captured else step
    for t in range(steps):
        step(wf.tensor(float(t), dtype=dtype))
    return params, optimizer


def test_sequences_are_pytorchs():
    def check(kind, settings, *expected):
        for dtype, tolerance in ((wf.float64, 2e-7), (wf.float32, 2e-6)):
            params, _ = _run(kind, settings, dtype)
            for p, e in zip(params, expected, strict=True):
                np.testing.assert_allclose(p.detach().numpy().ravel(), e, atol=tolerance, rtol=tolerance)

    each(check, PYTORCH)


def test_captured_steps_equal_eager_ones():
    def check(kind, settings, *expected):
        params, _ = _run(kind, settings, wf.float64, captured=True)
        for p, e in zip(params, expected, strict=True):
            np.testing.assert_allclose(p.detach().numpy().ravel(), e, atol=2e-7, rtol=2e-7)

    new = {name: case for name, case in PYTORCH.items() if not name.startswith(("Adamax", "Adadelta"))}
    each(check, {name: case for i, (name, case) in enumerate(new.items()) if i % 2})


def test_the_mean_of_asgd_is_in_its_state():
    for settings, expected in (
        (
            {"lr": 0.1, "lambd": 0.05, "alpha": 0.5, "t0": 3, "weight_decay": 0.1},
            [0.3739916108, -0.1130424270, 0.4052485547],
        ),
        ({"lr": 0.05, "maximize": True, "t0": 0}, [1.4420126600, -5.8830972587, 0.5057860075]),
    ):
        params, optimizer = _run("ASGD", settings, wf.float64)
        np.testing.assert_allclose(optimizer.state[params[0]]["ax"].numpy(), expected, rtol=2e-7)


def test_muon_is_near_pytorchs_which_iterates_in_bfloat16():
    cases = {
        "default": ({"lr": 0.1}, [0.21099, 0.05686, 0.22686, 0.93360, 0.03759, -0.31653], 1e-2),
        "options": (
            {"lr": 0.05, "weight_decay": 0.0, "momentum": 0.8, "nesterov": False, "adjust_lr_fn": "match_rms_adamw",
             "ns_steps": 3},
            [0.29048, -0.53769, 0.94445, 1.85805, 0.09054, -0.39293],
            1e-3,
        ),
    }  # fmt: skip

    def check(settings, expected, tolerance):
        for captured in (False, True):
            (p,), _ = _run("Muon", settings, wf.float32, captured, names=("m",))
            np.testing.assert_allclose(p.detach().numpy().ravel(), expected, atol=tolerance)

    each(check, cases)


def test_elementwise_optimisers_update_any_range_by_itself():
    """What `elementwise` promises: parts of a parameter, updated apart, are the parts of the whole."""
    for kind in ELEMENTWISE:
        assert getattr(optim, kind).elementwise
        whole, _ = _run(kind, {}, wf.float64, names=("v",))
        parts = [nn.Parameter(wf.tensor(START["v"][part])) for part in (slice(0, 1), slice(1, 3))]
        optimizer = getattr(optim, kind)(parts)
        for t in range(STEPS):
            for p, part in zip(parts, (slice(0, 1), slice(1, 3)), strict=True):
                p.grad = wf.tensor(SLOPE["v"][part]) * p.detach() + wf.tensor(0.5 * np.cos(WAVE["v"][part] + t))
            optimizer.step()
        joined = np.concatenate([p.detach().numpy() for p in parts])
        np.testing.assert_allclose(joined, whole[0].detach().numpy(), rtol=1e-12)
    assert not optim.Adafactor.elementwise and not optim.Muon.elementwise


def test_state_is_saved_and_continued():
    for kind in ("RAdam", "NAdam", "Rprop", "ASGD", "Adafactor"):
        whole, _ = _run(kind, {"lr": 0.05}, wf.float64)
        params, optimizer = _run(kind, {"lr": 0.05}, wf.float64, steps=5)
        state = optimizer.state_dict()
        fresh = [nn.Parameter(p.detach().clone()) for p in params]
        other = getattr(optim, kind)(fresh, lr=1.0)
        other.load_state_dict(state)
        for t in range(5, STEPS):
            for name, p in zip(("v", "m"), fresh, strict=True):
                p.grad = _gradient(name, p.detach(), float(t))
            other.step()
        for p, q in zip(fresh, whole, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12, err_msg=kind)


def test_wrong_settings_are_refused():
    p = [nn.Parameter(wf.ones(2, 2))]
    cases = {
        "NAdam momentum_decay": (lambda: optim.NAdam(p, momentum_decay=-1), "momentum_decay must not be negative"),
        "RAdam betas": (lambda: optim.RAdam(p, betas=(1.0, 0.9)), "betas must be two numbers"),
        "Rprop etas": (lambda: optim.Rprop(p, etas=(1.5, 1.2)), "etas must be a number below 1 and one above"),
        "ASGD lr": (lambda: optim.ASGD(p, lr=-1), "lr must not be negative"),
        "Adafactor eps": (lambda: optim.Adafactor(p, eps=(-1.0, 0.1)), "eps must not be negative"),
        "Adafactor decay": (lambda: optim.Adafactor(p, beta2_decay=0.5), "beta2_decay must be 0 or negative"),
        "Adafactor d": (lambda: optim.Adafactor(p, d=0.5), "d must be at least 1"),
        "Muon shape": (lambda: optim.Muon([nn.Parameter(wf.ones(2))]), "parameters must be matrices"),
        "Muon lr": (lambda: optim.Muon(p, adjust_lr_fn="x"), "adjust_lr_fn must be"),
        "Muon steps": (lambda: optim.Muon(p, ns_steps=0), "from 1 to 99 ns_steps"),
        "differentiable": (lambda: optim.SGD(p, lr=0.1, differentiable=True), "differentiable=True is not supported"),
    }

    def check(call, text):
        with pytest.raises(ValueError, match=text):
            call()

    each(check, cases)


def test_arguments_that_select_an_implementation_in_pytorch_are_accepted():
    p = nn.Parameter(wf.ones(2))
    for kind in ("SGD", "Adam", "AdamW", "Adamax", "RMSprop", "Adagrad", "Adadelta", "RAdam", "NAdam", "Rprop", "ASGD"):
        optimizer = getattr(optim, kind)([p], lr=0.1, foreach=True, fused=None, capturable=False, differentiable=False)
        assert "foreach" not in optimizer.param_groups[0]

    class Own(optim.Optimizer):
        def __init__(self, params, lr=0.1, foreach=None):
            self.given = foreach
            super().__init__(params, {"lr": lr})

    assert Own([p], foreach=True).given is True


def test_adam_with_decoupled_decay_is_adamw():
    results = []
    for make in (
        lambda p: optim.AdamW([p], lr=0.1, weight_decay=0.3),
        lambda p: optim.Adam([p], lr=0.1, weight_decay=0.3, decoupled_weight_decay=True),
    ):
        p = nn.Parameter(wf.tensor([1.0, -2.0]))
        optimizer = make(p)
        for _ in range(3):
            p.grad = wf.tensor([0.5, 0.25])
            optimizer.step()
        results.append(p.tolist())
    assert results[0] == results[1]
