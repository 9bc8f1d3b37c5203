"""What the tests of the op table share: its ops and their samples, calls on tensors of a dtype, gradients of such calls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker
from weft.ops.internal import (
    deferred_tables as deferred_tables,  # the one op file that is not imported with the package
)


def samples_of(op, kind="samples"):
    make = getattr(op, kind)
    return list(make(Maker(len(op.name)))) if make else []


def ops(keep=lambda op: True):
    """Parameters of a test: the ops that `keep` accepts."""
    return [pytest.param(op, id=op.name) for op in table.values() if keep(op)]


def for_every_sample(keep=lambda op: True, kind="samples", **choices):
    """Make a check `(op, sample)` a test of each op that has samples and that `keep` accepts.

    One test for all samples of an op, and for all values of further arguments, `dtype=("float64", "float32")`: a check
    takes less time than the start of a test. A failure names each sample that failed.
    """

    def decorate(check):
        @pytest.mark.parametrize("op", ops(lambda op: getattr(op, kind) is not None and keep(op)))
        def test(op):
            cases = {}
            for i, sample in enumerate(samples_of(op, kind)):
                for values in itertools.product(*choices.values()):
                    name = " ".join([f"{op.name} {i}", *map(str, values)])
                    cases[f"{name}: {sample}"] = (op, sample, *values)
            each(check, cases)

        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        test.__module__, test.place_as = check.__module__, check  # where pytest says that it is
        return test

    return decorate


def has_gradient(op):
    return op.differentiable and not op.declared_nondifferentiable and not op.test.get("no_gradient")


def map_arrays(value, fn):
    if isinstance(value, np.ndarray):
        return fn(value)
    if isinstance(value, (tuple, list)) and any(isinstance(v, np.ndarray) for v in value):
        return tuple(map_arrays(v, fn) for v in value)
    return value


def tensors_of(sample, dtype="float64", grad=False, order=None):
    def make(a):
        if a.dtype.kind == "f":
            a = a.astype(wf.float64 if dtype == "float64" else getattr(wf, dtype))
        elif a.dtype.kind == "c" and dtype != "float64":
            a = a.astype(np.complex64)
        else:
            a = a.copy()
        if order is not None:
            a = order(a)
        t = wf.asarray(a)
        return t.requires_grad_() if grad and a.dtype.kind in "fcV" else t

    return [map_arrays(a, make) for a in sample.args], {k: map_arrays(v, make) for k, v in sample.kwargs.items()}


def flat(values):
    for v in values:
        if isinstance(v, (tuple, list)):
            yield from flat(v)
        else:
            yield v


def leaves_of(args, kwargs):
    return [t for t in flat([*args, *kwargs.values()]) if isinstance(t, wf.Tensor)]


def call_with(op, args, kwargs, tensors):
    """The op's outputs with its tensors replaced, in order, by `tensors`."""
    new = iter(tensors)
    swapped = [_swapped(a, new) for a in args], {k: _swapped(v, new) for k, v in kwargs.items()}
    assert next(new, None) is None, f"{op.name}: more tensors than arguments"
    return outputs_of(op.call(*swapped[0], **swapped[1]))


def _swapped(value, new):
    # A function inside `call_with` that calls itself would be a cycle, and keep the tensors of a capture alive: the end
    # of every capture would then collect the garbage of the whole process.
    if isinstance(value, wf.Tensor):
        return next(new)
    held = isinstance(value, (tuple, list)) and any(isinstance(x, wf.Tensor) for x in value)
    return tuple([_swapped(x, new) for x in value]) if held else value


def outputs_of(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


def differentiable_leaves(op, args, kwargs):
    leaves = leaves_of(args, kwargs)
    allowed = op.test.get("differentiable_inputs")
    chosen = [t for i, t in enumerate(leaves) if t.requires_grad and (allowed is None or i in allowed)]
    for t in leaves:
        if t.requires_grad and not any(t is c for c in chosen):
            t.requires_grad_(False)
    return chosen


def weighted_sum(outputs, weights):
    """A scalar that depends on every output that has a weight."""
    total = None
    for o, w in zip(outputs, weights, strict=True):
        if w is None:
            continue
        term = (wf.real(o * w) if o.is_complex() else o * w).sum()
        total = term if total is None else total + term
    return total


def direction_like(rng, t):
    d = rng.standard_normal(t.shape)
    return d + 1j * rng.standard_normal(t.shape) if t.is_complex() else d


def random_weights(rng, outputs):
    return [
        wf.asarray(np.asarray(direction_like(rng, o)).astype(o.dtype))
        if o.is_floating_point() or o.is_complex()
        else None
        for o in outputs
    ]
