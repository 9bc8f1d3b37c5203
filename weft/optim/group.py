"""Parameter groups: parameters and the settings they are updated with.

Note [Settings]. To users and schedulers a group is a mapping of plain numbers: `group["lr"] *= 0.5`. To `update` every
floating setting is a 0-d tensor (in the precision of the update), and assigning a number writes into it, so a captured
training step, which holds the tensors, reads the new value at its next call. Whether a setting is zero may decide which
ops run; a captured step guards on that, and on non-float settings (`runtime.epoch`).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import user_location
from ..graph.capture.tracing import GraphBreak, capturing
from ..runtime import epoch
from ..tensor import Tensor, settle, wrap


def update_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which a parameter of `dtype` is updated: at least single precision, always real."""
    real = dtypes.real_dtype(dtype)
    return dtypes.float64 if real == dtypes.float64 else dtypes.float32


def _plain(value: Any, default: Any) -> Any:
    """A setting as plain Python: numbers given as tensors or NumPy scalars are taken out, integers become floats."""
    if isinstance(value, Tensor) or isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)):
        defaults = default if isinstance(default, tuple) and len(default) == len(value) else (None,) * len(value)
        return tuple([_plain(v, d) for v, d in zip(value, defaults, strict=True)])
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    return value


def _zeros(value: Any) -> Any:
    """What about a setting decides which ops run: of floats only whether they are zero."""
    if isinstance(value, float):
        return value == 0
    return tuple([_zeros(v) for v in value]) if isinstance(value, tuple) else value


class ParamGroup(MutableMapping[str, Any]):
    """`params` and settings by name, see Note [Settings]."""

    def __init__(self, params: list[Tensor], settings: dict[str, Any], defaults: dict[str, Any]) -> None:
        self.params = params
        self._settings = {k: _plain(v, defaults.get(k)) for k, v in settings.items()}
        self._tensors: dict[np.dtype, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return self.params
        try:
            return self._settings[name]
        except KeyError:
            names = ", ".join(["params", *self._settings])
            raise KeyError(f"param group: there is no setting {name!r}. There are {names}.") from None

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "params":
            self.params = list(value)
            epoch.bump()
            return
        if capturing() is not None:
            raise GraphBreak(
                "change of a setting",
                user_location(),
                f"param group: the setting {name!r} is changed inside a captured function, which would happen once, not "
                "at every call. Change it, or call `scheduler.step()`, outside of the function.",
            )
        old = self._settings.get(name)
        value = _plain(value, old)
        self._settings[name] = value
        if _zeros(value) != _zeros(old):
            epoch.bump()
            for tensors in self._tensors.values():
                tensors.pop(name, None)
        for dtype, tensors in self._tensors.items():
            if name in tensors:
                _write(tensors[name], value)
            else:
                tensors[name] = _as_tensors(value, dtype)

    def __delitem__(self, name: str) -> None:
        del self._settings[name]
        for tensors in self._tensors.values():
            tensors.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        yield "params"
        yield from self._settings

    def __len__(self) -> int:
        return len(self._settings) + 1

    def settings(self, dtype: np.dtype) -> dict[str, Any]:
        """The settings as `update` sees them: floats are 0-d tensors of `dtype`."""
        found = self._tensors.get(dtype)
        if found is None:
            found = self._tensors[dtype] = {k: _as_tensors(v, dtype) for k, v in self._settings.items()}
        return found

    def __repr__(self) -> str:
        settings = "".join(f"\n    {k}: {v}" for k, v in self._settings.items())
        return f"ParamGroup({len(self.params)} parameters{settings}\n)"


def _as_tensors(value: Any, dtype: np.dtype) -> Any:
    if isinstance(value, float):
        return wrap(np.array(value, dtype))
    return tuple([_as_tensors(v, dtype) for v in value]) if isinstance(value, tuple) else value


def _write(target: Any, value: Any) -> None:
    if isinstance(target, tuple):
        for t, v in zip(target, value, strict=True):
            _write(t, v)
    elif isinstance(target, Tensor):
        settle("change of a setting")
        target._data[...] = value
