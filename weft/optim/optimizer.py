"""Optimizer: the base class, with parameter groups, per-parameter state and one method to define, `update`.

Note [Writing an optimiser]. Subclass and define the state of a parameter (`init_state`) and its in-place update with
ordinary ops (`update(p, g, state, group)`):

    class Momentum(Optimizer):
        def __init__(self, params, lr=0.01, momentum=0.9):
            super().__init__(params, dict(lr=lr, momentum=momentum))

        def init_state(self, p, group):
            return {"velocity": self.zeros(p)}

        def update(self, p, g, state, group):
            v = state["velocity"]
            v *= group["momentum"]
            v += g
            p -= group["lr"] * v

`step` calls it for every parameter with a gradient, under `no_grad`. Floating settings are passed as 0-d tensors (Note
[Settings] in `weft.optim.group`) and state is created outside of any capture, so the same code runs eagerly and captured.
With `rowwise = True` a row-sparse gradient updates only its rows: `update` gets just these rows.

Note [Step counters]. With `counts_steps` the state holds `step`, a 0-d tensor with the number of updates of that
parameter. Parameters that were always updated together share one counter, and values that depend only on the counter
(Adam's bias corrections) are computed once for all of them, in `prepare(step, group)`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import shards, withheld
from ..autograd.tape import enable_grad, no_grad
from ..errors import describe, type_name
from ..graph.capture.tracing import outside
from ..ops.array.row_sparse import RowSparse
from ..runtime import epoch
from ..tensor import Tensor, to_array, wrap
from ..typing import Params
from .group import ParamGroup, update_dtype
from .rows import update_rows


class Optimizer:
    """Base class of optimisers. See Note [Writing an optimiser].

    Args:
        params: tensors, `(name, tensor)` pairs, or dicts with "params" and per-group settings.
        defaults: settings of groups that do not override them.
    """

    counts_steps = True
    rowwise = False  # whether row-sparse gradients update only their rows; otherwise they are densified
    takes_complex = False
    elementwise = False
    """whether each element of a parameter is updated from the same elements of its gradient and state alone, so that any range of
    it can be updated by itself (`weft.distributed` cuts parameters there)"""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let constructors take the arguments of PyTorch's that select an implementation there."""
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _without_selectors(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.param_groups: list[ParamGroup] = []
        self._sharing: dict[int, int] = {}  # id of a step counter -> how many parameters share it
        if isinstance(params, Tensor) or hasattr(params, "parameters"):
            hint = "`model.parameters()`" if hasattr(params, "parameters") else "a list, `[tensor]`"
            raise TypeError(f"{type(self).__name__}: params must be an iterable of tensors or dicts. Pass {hint}.")
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError(
                f"{type(self).__name__}: there are no parameters. Is the model empty, or a generator used up?"
            )
        if not isinstance(groups[0], Mapping):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    # Defined by subclasses ------------------------------------------------------------------------------------------

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a parameter before its first update."""
        return {}

    def state_shapes(self, p: Tensor) -> tuple[tuple[int, ...], ...]:
        """Shapes that tensors of the state may have, besides () and that of the parameter."""
        return ()

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        """Extra settings for `update` shared by all parameters with this step counter."""
        return {}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Change the parameter `p`, whose gradient is `g`, in place."""
        raise NotImplementedError(f"{type(self).__name__}: define `update(self, p, g, state, group)`.")

    def updates_rows(self, group: dict[str, Any]) -> bool:
        """Whether a row-sparse gradient changes only its rows with these settings."""
        return self.rowwise

    @staticmethod
    def zeros(p: Tensor) -> Tensor:
        """Zeros like `p`, at least in single precision, for running averages."""
        dtype = p.dtype if dtypes.is_complex(p.dtype) else update_dtype(p.dtype)
        return wrap(np.zeros(p.shape, dtype))

    # Steps ----------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: recomputes the loss and its gradients; called first.

        Returns:
            The result of `closure`, or None.
        """
        if shards.current.shard is not None:
            raise RuntimeError(
                f"{type(self).__name__}.step(): the body of a distributed step only computes gradients, of one shard of the "
                "batch; the weights are updated when all shards are there. Leave optimizer.step() and its closure out: "
                "`distributed.step(optimizer)` makes the update."
            )
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if all(p.grad is None for group in self.param_groups for p in group.params):
            withheld.refuse(f"{type(self).__name__}.step()", parameters_of(self.param_groups))
        with no_grad():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: ParamGroup) -> None:
        live: list[tuple[Tensor, Any, dict[str, Any]]] = []
        new: list[Tensor] = []
        for p in group.params:
            g = p.grad
            if g is not None:
                state = self.state.get(p)
                if state is None:
                    new.append(p)
                    state = {}
                live.append((p, g, state))
        if new:
            self._create(new, group)
            live = [(p, g, self.state[p]) for p, g, _ in live]
        if self.counts_steps:
            self._advance([state for _, _, state in live])
        prepared: dict[Any, dict[str, Any]] = {}
        for p, g, state in live:
            dtype = p._data.dtype
            step = state.get("step")
            key = (dtype, id(step))
            settings = prepared.get(key)
            if settings is None:
                base = group.settings(update_dtype(dtype))
                settings = prepared[key] = {**base, **self.prepare(step, base)}
            self._apply(p, g, state, settings)

    def _apply(self, p: Tensor, g: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
        """Update one parameter with its gradient, dense or row-sparse."""
        if g.__class__ is RowSparse:
            if self.updates_rows(settings):
                update_rows(p, g, state, partial(self._update_part, settings))
                return
            g = g.to_dense()
        self.update(p, g, state, settings)

    def _update_part(self, settings: dict[str, Any], p: Tensor, g: Tensor, state: dict[str, Any]) -> None:
        self.update(p, g, state, settings)

    def _create(self, params: list[Tensor], group: ParamGroup) -> None:
        with outside():
            counter = wrap(np.zeros((), np.float32)) if self.counts_steps else None
            for p in params:
                if dtypes.is_complex(p.dtype) and not self.takes_complex:
                    raise TypeError(f"{type(self).__name__}: complex parameters are not supported. Use SGD.")
                state = self.init_state(p, group.settings(update_dtype(p.dtype)))
                if counter is not None:
                    state["step"] = counter
                self.state[p] = state
            if counter is not None:
                self._sharing[id(counter)] = len(params)

    def _advance(self, states: list[dict[str, Any]]) -> None:
        """Count one update of the parameters with these states, see Note [Step counters]."""
        together: dict[int, list[dict[str, Any]]] = {}
        for state in states:
            together.setdefault(id(state["step"]), []).append(state)
        for key, members in together.items():
            counter = members[0]["step"]
            if key not in self._sharing:  # a copied optimiser: recount
                self._sharing[key] = sum(state.get("step") is counter for state in self.state.values())
            if len(members) < self._sharing[key]:  # only some of the sharers are updated: split the counter
                with outside():
                    own = wrap(counter._array("step").copy())
                self._sharing[key] -= len(members)
                self._sharing[id(own)] = len(members)
                for state in members:
                    state["step"] = own
                counter = own
            counter += 1.0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters to None, or to zeros.

        >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
        >>> optim.SGD([p], lr=0.1).zero_grad(); p.grad is None
        True
        """
        for group in self.param_groups:
            for p in group.params:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad = p.grad * 0

    # Groups ---------------------------------------------------------------------------------------------------------

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add a group of parameters with its own settings: `{"params": …, "lr": 0.01}`."""
        name = type(self).__name__
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(f"{name}: a group must be a dict with 'params'. Got {describe(group)}.")
        params = group["params"]
        single = isinstance(params, Tensor) or hasattr(params, "__weft_tensor__")
        params = [params] if single else [p[1] if isinstance(p, tuple) else p for p in params]
        params = [getattr(p, "tensor", p) for p in params]  # the memory of a wf.Variable
        settings = {k: v for k, v in group.items() if k != "params"}
        unknown = [k for k in settings if k not in self.defaults]
        if unknown:
            raise ValueError(f"{name}: unknown settings {unknown} in a group. Expected some of {list(self.defaults)}.")
        taken = {id(p) for g in self.param_groups for p in g.params}
        for i, p in enumerate(params):
            if not isinstance(p, Tensor):
                raise TypeError(f"{name}: parameter {i} must be a tensor. Got {type_name(p)}.")
            if not p.is_leaf:
                raise ValueError(f"{name}: parameter {i} was computed by an op. Only leaf tensors can be optimised.")
            if id(p) in taken:
                raise ValueError(f"{name}: parameter {i} of shape {p.shape} appears twice. Each belongs to one group.")
            taken.add(id(p))
        merged_settings = {**self.defaults, **settings}
        self.check(merged_settings)
        self.param_groups.append(ParamGroup(params, merged_settings, {**self.defaults, **self._declared()}))
        epoch.bump()

    def _declared(self) -> dict[str, Any]:
        """The settings as the class declares them, which tells a float that was given as an integer (`lr=1`) from a count."""
        given = {k: p.default for k, p in inspect.signature(type(self).__init__).parameters.items()}
        return dict.fromkeys(_NUMBERS, 0.0) | {k: v for k, v in given.items() if isinstance(v, (float, tuple))}

    def check(self, settings: dict[str, Any]) -> None:
        """Raise a ValueError for invalid settings."""
        for key, value in settings.items():
            plain = key in _NOT_NEGATIVE
            if plain and (isinstance(value, str) or not hasattr(value, "__float__")):
                raise TypeError(f"{type(self).__name__}: {key} must be a number. Got {value!r}.")
            if plain and not float(value) >= 0:
                raise ValueError(f"{type(self).__name__}: {key} must not be negative. Got {value}.")
            if key == "rho" and not value <= 1:
                raise ValueError(f"{type(self).__name__}: rho must be between 0 and 1. Got {value}.")
            if key == "betas" and not (len(value) == 2 and all(0 <= b < 1 for b in value)):
                raise ValueError(f"{type(self).__name__}: betas must be two numbers from 0 to below 1. Got {value}.")

    # State ----------------------------------------------------------------------------------------------------------

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group.params]

    def state_dict(self) -> dict[str, Any]:
        """Settings and state: lists and dicts of plain values, and tensors that share memory with the state.

        `state[i]` belongs to parameter number i, counted through all groups.
        """
        number = {id(p): i for i, p in enumerate(self._all())}
        return {
            "state": [dict(self.state.get(p, {})) for p in self._all()],
            "param_groups": [
                {
                    **{k: list(v) if isinstance(v, tuple) else v for k, v in group.items() if k != "params"},
                    "params": [number[id(p)] for p in group.params],
                }
                for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned; tensors may be arrays, and are copied.

        PyTorch's form is accepted too: `state` keyed by parameter index, and groups with PyTorch-only settings.
        """
        name = type(self).__name__
        if not isinstance(state_dict, Mapping) or not {"param_groups", "state"} <= state_dict.keys():
            raise ValueError(f"{name}: this is not the state of an optimiser. Expected 'state' and 'param_groups'.")
        groups, states = state_dict["param_groups"], state_dict["state"]
        if isinstance(states, Mapping):
            states = [states.get(i, {}) for g in groups for i in g["params"]]
        states = [{k: v for k, v in state.items() if v is not None} for state in states]
        sizes, own = [len(g["params"]) for g in groups], [len(g.params) for g in self.param_groups]
        if sizes != own:
            raise ValueError(f"{name}: the state has groups of {sizes} parameters, the optimiser groups of {own}.")
        params = self._all()
        for i, (p, state) in enumerate(zip(params, states, strict=True)):
            for key, value in state.items():
                shape = tuple(np.shape(value))
                if shape not in ((), tuple(p.shape), *self.state_shapes(p)):
                    raise ValueError(f"{name}: state {key!r} of parameter {i} has shape {shape}, expected {p.shape}.")
        settings = [
            {
                k: tuple(v) if isinstance(v, list) else v
                for k, v in saved.items()
                if k != "params" and (k not in _PYTORCHS_OWN or k in self.defaults)
            }
            for saved in groups
        ]
        rest = iter(states)
        for group, new in zip(self.param_groups, settings, strict=True):
            self._check_names(group, new, [next(rest) for _ in group.params])
        for group, new in zip(self.param_groups, settings, strict=True):
            group.update(new)
        start = 0
        for group in self.param_groups:
            self._load_group(group.params, states[start : start + len(group.params)])
            start += len(group.params)
        epoch.bump()

    def _check_names(self, group: ParamGroup, new: dict[str, Any], states: list[Mapping[str, Any]]) -> None:
        """A state that lacks what `update` needs is of another optimiser; say so now and not in the middle of a step."""
        for p, state in zip(group.params, states, strict=True):
            if state:
                merged = {k: v for k, v in {**group, **new}.items() if k != "params"}
                needed = self.init_state(p, ParamGroup([p], merged, self.defaults).settings(update_dtype(p.dtype)))
                missing = [key for key in needed if key not in state]
                if missing:
                    raise ValueError(
                        f"{type(self).__name__}: the state is of another optimiser. It has {sorted(state)} for a parameter; "
                        f"expected {', '.join(missing)} too."
                    )
                return  # the parameters of a group have the same

    def _load_group(self, params: list[Tensor], states: list[Mapping[str, Any]]) -> None:
        counters: dict[float, Tensor] = {}
        for p, saved in zip(params, states, strict=True):
            old = self.state.pop(p, {})
            if "step" in old:
                self._sharing.pop(id(old["step"]), None)
            if not saved:
                continue
            state: dict[str, Any] = {}
            for key, value in saved.items():
                array = to_array(value)
                if key == "step" and self.counts_steps:
                    counter = counters.setdefault(float(array), wrap(np.array(array, np.float32)))
                    self._sharing[id(counter)] = self._sharing.get(id(counter), 0) + 1
                    state[key] = counter
                else:
                    state[key] = _into(old.get(key), array)
            self.state[p] = state

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_sharing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _sharing={})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(g) for g in self.param_groups)})"


def _without_selectors(init: Callable[..., None]) -> Callable[..., None]:
    """`init`, to which `foreach`, `fused` and `capturable` may be passed, and are ignored."""

    own = inspect.signature(init).parameters
    ignored = [name for name in (*_SELECTORS, "differentiable") if name not in own]

    @functools.wraps(init)
    def accepting(self: Any, *args: Any, **settings: Any) -> None:
        if settings.get("differentiable") and "differentiable" in ignored:
            raise ValueError(
                f"{type(self).__name__}: differentiable=True is not supported: steps are not recorded. For gradients through "
                "updates write them with ops, on tensors given to `weft.func.functional_call`."
            )
        init(self, *args, **{k: v for k, v in settings.items() if k not in ignored})

    return accepting


# Settings in PyTorch's state dicts that select an implementation; ignored here.
_SELECTORS = ("foreach", "fused", "capturable")
_NUMBERS = ("lr", "eps", "weight_decay", "momentum")
_NOT_NEGATIVE = (*_NUMBERS, "alpha", "rho", "lr_decay", "initial_accumulator_value")
_PYTORCHS_OWN = frozenset({"foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay"})


def _into(old: Tensor | None, array: np.ndarray) -> Tensor:
    """`array` in the memory of `old`, which captured programs may hold, or in a copy."""
    if isinstance(old, Tensor) and old.shape == array.shape and old.dtype == array.dtype:
        old._array("load_state_dict")[...] = array
        return old
    return wrap(array.copy())


def parameters_of(groups: Iterable[ParamGroup]) -> list[Tensor]:
    """All parameters of some groups."""
    return [p for group in groups for p in group.params]
