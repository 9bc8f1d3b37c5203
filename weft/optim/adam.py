"""Adam, AdamW, SparseAdam and Adamax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graph.capture.tracing import capturing
from ..ops.array.elementwise import maximum, sqrt
from ..ops.array.row_sparse import RowSparse
from ..ops.internal.deferred_tables import Table, table_of
from ..tensor import Tensor
from ..typing import Params
from .deferred import defer, update_deferred, update_rows_in_place
from .group import ParamGroup
from .optimizer import Optimizer
from .steps import descend_scaled, running_mean, running_square


class Adam(Optimizer):
    """Adam: p ← p - lr · m̂ / (√v̂ + eps), m̂ and v̂ being bias-corrected running means of g and g².

    Args:
        params: parameters or groups of them.
        lr: learning rate.
        betas: decay rates of the running means of g and g².
        eps: added to the denominator.
        weight_decay: L2 penalty (see `AdamW` for decoupled decay).
        amsgrad: use the maximum of past mean squares.
        maximize: ascend instead of descend.
        decoupled_weight_decay: decay weights as `AdamW` does.
        lazy: a row-sparse gradient updates parameters and means of its rows only; otherwise it is densified.
        deferred: for parameters with `sparse_grad`, bitwise equal to the dense update, but a captured step touches few
            rows besides the gradient's; the others are updated when they are read. See Note [Deferred rows] in
            `weft.ops.internal.deferred_tables`. Needs weight_decay=0, amsgrad=False and lazy=False.

    >>> p = nn.Parameter(wf.ones(1)); p.grad = wf.ones(1)
    >>> optim.Adam([p], lr=0.5).step(); round(p.item(), 4)
    0.5
    """

    decoupled = False
    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
        deferred: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if decoupled_weight_decay:
            self.decoupled = True
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "eps": float(eps), "weight_decay": float(weight_decay),
            "amsgrad": amsgrad, "maximize": maximize, "lazy": lazy, "deferred": deferred,
        }  # fmt: skip
        self._tables: dict[Tensor, Table] = {}
        super().__init__(params, defaults)

    def check(self, settings: dict[str, Any]) -> None:
        super().check(settings)
        if settings["deferred"] and (settings["weight_decay"] or settings["amsgrad"] or settings["lazy"]):
            raise ValueError(f"{type(self).__name__}: deferred needs weight_decay=0, amsgrad=False and lazy=False.")

    def add_param_group(self, group: Any) -> None:
        super().add_param_group(group)
        added = self.param_groups[-1]
        if added["deferred"]:
            self._defer(added)

    def _defer(self, group: ParamGroup) -> None:
        tables = [p for p in group.params if getattr(p, "sparse_grad", False)]
        if not tables:
            raise ValueError(
                f"{type(self).__name__}: deferred is for embeddings with sparse=True, and there is none here."
            )
        self._create(tables, group)
        for p in tables:
            self._tables[p] = defer(p, self.state[p])

    def _step_group(self, group: ParamGroup) -> None:
        # An eager step updates the whole table: replay the missed steps first, then mark this one as done.
        eager = [t for p, t in self._deferred() if p.grad is not None] if capturing() is None else []
        for table in eager:
            table.flush()
        if group["deferred"]:
            self.check(dict(group))  # settings may have changed
        super()._step_group(group)

    def _advance(self, states: list[dict[str, Any]]) -> None:
        super()._advance(states)
        if capturing() is None:
            counted = {id(state) for state in states}
            for p, table in self._deferred():
                if id(self.state[p]) in counted:
                    table.settled()

    def _deferred(self) -> list[tuple[Tensor, Table]]:
        """The tables that are still deferred; those whose memory was replaced are not."""
        return [(p, table) for p, table in self._tables.items() if table_of(p) is table]

    def _apply(self, p: Tensor, g: Any, state: dict[str, Any], settings: dict[str, Any]) -> None:
        if capturing() is not None:
            if p in self._tables and table_of(p) is self._tables[p]:
                update_deferred(p, g, state, settings)
                return
            plain = not settings["weight_decay"] and not settings["amsgrad"] and p.dtype == state["exp_avg"].dtype
            if settings["lazy"] and plain and isinstance(g, RowSparse):
                update_rows_in_place(p, g, state, settings)
                return
        super()._apply(p, g, state, settings)

    def __getstate__(self) -> dict[str, Any]:
        for _, table in self._deferred():
            table.flush()
        return {k: v for k, v in super().__getstate__().items() if k != "_tables"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_tables": {}})  # a copy updates whole tables, with bitwise equal results

    def state_dict(self) -> dict[str, Any]:
        for _, table in self._deferred():
            table.flush()
        found = super().state_dict()
        found["state"] = [{k: v for k, v in s.items() if k not in ("last", "history")} for s in found["state"]]
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        before = {p: self.state[p] for p, _ in self._deferred()}
        super().load_state_dict(state_dict)
        for p, state in before.items():  # the table looks into the dict it was made with
            state.update(self.state.get(p, {}))
            self.state[p] = state
            self._tables[p].settled()

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        names = ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        return {name: self.zeros(p) for name in names}

    def updates_rows(self, group: dict[str, Any]) -> bool:
        return group["lazy"]

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {
            "rate1": 1.0 - beta1,
            "rate2": 1.0 - beta2,
            "step_size": group["lr"] / (1.0 - beta1**step),
            "scale": 1.0 / sqrt(1.0 - beta2**step),
            "decay": 1.0 - group["lr"] * group["weight_decay"],
        }

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        m, v = state["exp_avg"], state["exp_avg_sq"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            if self.decoupled:
                p *= group["decay"]
            else:
                g = g + group["weight_decay"] * p
        running_mean(m, g, group["rate1"])
        running_square(v, g, group["rate2"])
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.maximum_(v)
            v = largest
        descend_scaled(p, m, v, group["step_size"], group["scale"], group["eps"])


class AdamW(Adam):
    """Adam with decoupled weight decay: p ← (1 - lr · weight_decay) · p before each step.

    Arguments as for `Adam`.

    >>> p = nn.Parameter(wf.ones(2)); p.grad = wf.ones(2)
    >>> optim.AdamW([p], lr=0.5, weight_decay=0.0).step(); p.round().tolist()
    [0.0, 0.0]
    """

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        lazy: bool = False,
        deferred: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, lazy=lazy, deferred=deferred)


class SparseAdam(Adam):
    """Adam for embeddings with `sparse=True`: only the rows looked up and their running means change.

    Like `Adam(lazy=True)`, except that eps is added to the uncorrected root, as PyTorch's optimiser of this name does.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, maximize=maximize, lazy=True)

    def prepare(self, step: Tensor | None, group: dict[str, Any]) -> dict[str, Any]:
        prepared = super().prepare(step, group)
        return {**prepared, "eps": group["eps"] * prepared["scale"]}


class Adamax(Optimizer):
    """Adam with a decayed maximum of |g| instead of the mean square: p ← p - lr/(1 - β₁ᵗ) · m / u.

    Args:
        params, lr, betas, eps, weight_decay, maximize: as for `Adam`; u is the decaying maximum of |g| + eps.
    """

    elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple([float(b) for b in betas]), "eps": float(eps), "weight_decay": float(weight_decay),
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def init_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"exp_avg": self.zeros(p), "exp_inf": self.zeros(p)}

    def update(self, p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        (beta1, beta2), m, u = group["betas"], state["exp_avg"], state["exp_inf"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        running_mean(m, g, 1.0 - beta1)
        u.copy_(maximum(u * beta2, abs(g) + group["eps"]))
        p -= group["lr"] / (1.0 - beta1 ** state["step"]) * m / u
