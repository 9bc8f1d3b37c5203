"""Collectives: functions that every rank of a run calls, in the same order, to combine or share values.

Outside of a run, and in a run of one worker, the world is this process alone. All ranks get the same bits: values are
combined in the order of the ranks, whatever the number of hosts.

This module checks arguments and names calls; `transfer` moves the values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.tape import Leaf, note_mutation
from ..errors import describe, format_shape
from ..graph.capture.tracing import capturing
from ..ops.core import modes
from ..ops.core.inplace import check_writeable
from ..runtime import memory
from ..tensor import Tensor, to_array, wrap
from . import context as contexts
from . import transfer
from .communicator import Call, Communicator, communicator, in_shard
from .shared_tensors import allocate, shared_array

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
}  # fmt: skip


def barrier() -> None:
    """Wait until every rank has called this.

    Raises:
        DivergenceError: another rank makes another call, or has ended.

    >>> wf.distributed.barrier()
    """
    group = _group("barrier")
    if group is not None:
        with group.lock:
            call = _begin(group, ("barrier",))
            if group.replay(call) is None:
                group.put(call, None)
                if group.logs:
                    group.keep(call, None)


def all_reduce(x: Any, op: str = "sum", out: Tensor | None = None) -> Tensor:
    """Combine the values of all ranks, element by element, in the order of the ranks. Every rank gets the same bits.

    Only values travel: no gradient flows through. With ``out=x`` the result replaces the values of `x`.

    Args:
        x: a tensor, an array or a number; of the same shape and dtype on every rank.
        op: "sum", "mean", "max", "min" or "prod".
        out: where the result goes; by default a new tensor. For a tensor from `empty`, ``out=x`` needs no copy.

    Raises:
        DivergenceError: another rank makes another call, passes another shape or dtype, or has ended.

    >>> wf.distributed.all_reduce(wf.tensor([1.0, 2.0]), op="mean")
    tensor([1., 2.])
    """
    group = _group("all_reduce")
    array = _array("all_reduce", x)
    ufunc = _ufunc("all_reduce", op, array.dtype)
    result, made = _target("all_reduce", out, array.shape, array.dtype)
    if group is None:
        np.copyto(result, array)
        return made
    with group.lock:
        shared = shared_array(array, group)
        in_place = shared is not None and result is array
        place = None if shared is None else (shared.number, shared.offset, in_place)
        call = _begin(
            group,
            ("all_reduce", op, array.dtype, array.shape, place),
            lambda: f"all_reduce(op={op!r}) of {describe(array)}{shared.describe(in_place) if shared else ''}",
        )
        flat_result = _flat_target(result)
        with np.errstate(all="ignore"):
            if shared is not None:
                transfer.reduce_shared(group, call, shared, flat_result, op, ufunc, in_place)
            else:
                transfer.reduce(group, call, _flat(array), flat_result, op, ufunc)
        _store(result, flat_result)
    return made


def all_gather(x: Any, out: Tensor | None = None) -> Tensor:
    """The values of all ranks in one tensor with a new first axis, in the order of the ranks.

    Args:
        x: a tensor, an array or a number; of the same shape and dtype on every rank.
        out: where the result goes; by default a new tensor.

    Raises:
        DivergenceError: another rank makes another call, passes another shape or dtype, or has ended.

    >>> wf.distributed.all_gather(wf.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    group = _group("all_gather")
    array = _array("all_gather", x)
    world = 1 if group is None else group.world
    result, made = _target("all_gather", out, (world, *array.shape), array.dtype)
    if group is None:
        np.copyto(result[0], array)
        return made
    with group.lock:
        call = _begin(
            group, ("all_gather", array.dtype, array.shape), lambda: f"all_gather of {describe(array)}"
        )  # fmt: skip
        flat_result = _flat_target(result)
        transfer.gather(group, call, _flat(array), flat_result.reshape(world, -1))
        _store(result, flat_result)
    return made


def broadcast(x: Any, source: int = 0, out: Tensor | None = None) -> Tensor:
    """The values that rank `source` passes, on every rank.

    Args:
        x: a tensor, an array or a number; of the same shape and dtype on every rank. Only the values of `source`
        matter. source: a rank. out: where the result goes; by default a new tensor. ``out=x`` replaces the values of
        `x`.

    Raises:
        DivergenceError: another rank makes another call, passes another shape, dtype or source, or has ended.

    >>> wf.distributed.broadcast(wf.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    group = _group("broadcast")
    array = _array("broadcast", x)
    world = 1 if group is None else group.world
    if not 0 <= source < world:
        raise ValueError(f"broadcast: there is no rank {source}. Expected a source from 0 to {world - 1}.")
    result, made = _target("broadcast", out, array.shape, array.dtype)
    if group is None:
        np.copyto(result, array)
        return made
    with group.lock:
        key = ("broadcast", source, array.dtype, array.shape)
        call = _begin(group, key, lambda: f"broadcast(source={source}) of {describe(array)}")
        flat_result = _flat_target(result)
        transfer.broadcast(group, call, _flat(array), flat_result, source)
        _store(result, flat_result)
    return made


def reduce_scatter(x: Any, op: str = "sum", out: Tensor | None = None) -> Tensor:
    """Combine the values of all ranks as `all_reduce` does; rank r gets part r of the result, cut along the first axis.

    Args:
        x: a tensor or an array, of the same shape and dtype on every rank; its first axis is a multiple of the number
        of ranks. op: "sum", "mean", "max", "min" or "prod". out: where the result goes; by default a new tensor.

    Raises:
        DivergenceError: another rank makes another call, passes another shape or dtype, or has ended.

    >>> wf.distributed.reduce_scatter(wf.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    group = _group("reduce_scatter")
    array = _array("reduce_scatter", x)
    ufunc = _ufunc("reduce_scatter", op, array.dtype)
    world = 1 if group is None else group.world
    if array.ndim == 0 or array.shape[0] % world:
        raise ValueError(
            f"reduce_scatter: the first axis is cut into {world} parts, one for each rank. Got {describe(array)}; expected a "
            f"first axis that is a multiple of {world}."
        )
    result, made = _target("reduce_scatter", out, (array.shape[0] // world, *array.shape[1:]), array.dtype)
    if group is None:
        np.copyto(result, array)
        return made
    with group.lock:
        key = ("reduce_scatter", op, array.dtype, array.shape)
        call = _begin(group, key, lambda: f"reduce_scatter(op={op!r}) of {describe(array)}")
        flat_result = _flat_target(result)
        with np.errstate(all="ignore"):
            transfer.reduce_scatter(group, call, _flat(array).reshape(world, -1), flat_result, op, ufunc)
        _store(result, flat_result)
    return made


def empty(shape: Sequence[int] | int, dtype: Any = None) -> Tensor:
    """A tensor whose memory the other ranks of this host can read: `all_reduce` of such tensors needs no copy.

    Every rank calls this, with the same arguments, and gets a tensor of its own, filled with zeros. The memory is freed
    when all ranks have dropped their tensors. Outside of a run it is an ordinary tensor.

    Args:
        shape: the sizes.
        dtype: by default the default floating dtype.

    Raises:
        DivergenceError: another rank makes another call, passes another shape or dtype, or has ended.

    >>> wf.distributed.empty((2, 3)).shape
    (2, 3)
    """
    group = _group("empty")
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    kind = dtypes.get_default_dtype() if dtype is None else np.dtype(dtype)
    if group is None:
        return wrap(np.zeros(sizes, kind))
    with group.lock:
        call = _begin(group, ("empty", kind, sizes), lambda: f"empty of {kind.name} {format_shape(sizes)}")
        return wrap(allocate(group, call, sizes, kind))


# What all of them do ----------------------------------------------------------------------------------------------------


def _group(name: str) -> Communicator | None:
    """The ranks of the run; None if this process is alone.

    Raises:
        RuntimeError: there can be no collective here.
    """
    if in_shard() or modes.active and capturing() is not None:
        raise RuntimeError(
            f"{name}: a collective inside the body of a distributed step or of a captured function. The body of a step runs once "
            "per shard, on any worker and perhaps again, so the ranks would not make the same calls; a captured function is "
            "traced once. Call it from the loop."
        )
    run = contexts.current()
    if run is not None and run.workers == 0:
        raise RuntimeError(
            f"{name}: collectives need a fixed number of workers, and this run is elastic. Start it with one number, as "
            f"in `--workers {run.members}`."
        )
    group = communicator()
    if group is None and run is not None and run.members > 1:
        raise RuntimeError(
            f"{name}: this worker was started in addition to the first {run.members} and has no rank: workers were moved between "
            "hosts. Start the run again."
        )
    return group


def _begin(group: Communicator, key: tuple[object, ...], what: Callable[[], str] | None = None) -> Call:
    group.calls += 1
    return group.call(key, what)


def _array(name: str, x: Any) -> np.ndarray:
    array: np.ndarray = x._array(name) if isinstance(x, Tensor) else to_array(x)
    return array


@functools.cache
def _ufunc(name: str, op: str, dtype: np.dtype) -> np.ufunc:
    ufunc = _UFUNCS.get(op)
    if ufunc is None:
        raise ValueError(f"{name}: there is no operation {op!r}. Expected one of {', '.join(map(repr, _UFUNCS))}.")
    if op == "mean" and dtype not in (*dtypes.FLOATING, *dtypes.COMPLEX):
        raise TypeError(f"{name}: the mean needs a floating dtype. Got {dtype.name}; write `x.float()`.")
    if dtype == dtypes.bool_ and op not in ("max", "min"):
        raise TypeError(f"{name}: {op!r} needs numbers. Got bool; use 'max' (any), 'min' (all), or `x.to(wf.int32)`.")
    if dtype in dtypes.COMPLEX and op in ("max", "min"):
        raise TypeError(f"{name}: complex numbers have no order. Got {dtype.name} for {op!r}.")
    return ufunc


def _target(name: str, out: Tensor | None, shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, Tensor]:
    """The array of the result, and the tensor to return."""
    if out is None:
        array = memory.empty(shape, dtype)
        return array, wrap(array)
    found = out._array(name)
    if found.shape != shape or found.dtype != dtype:
        raise ValueError(f"{name}: out is {describe(found)}. Expected {dtype.name} {format_shape(shape)}.")
    if out._node is not None and out._node.__class__ is not Leaf:
        raise RuntimeError(f"{name}: out has a gradient history, which would be wrong. Expected `out=x.detach()`.")
    check_writeable(name, out)
    note_mutation(found, name)
    return found, out


def _flat(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1)


def _flat_target(result: np.ndarray) -> np.ndarray:
    """Flat memory for a result: its own, if that is contiguous."""
    return result.reshape(-1) if result.flags.c_contiguous else np.empty(result.size, result.dtype)


def _store(result: np.ndarray, flat: np.ndarray) -> None:
    if not result.flags.c_contiguous:
        np.copyto(result, flat.reshape(result.shape))
