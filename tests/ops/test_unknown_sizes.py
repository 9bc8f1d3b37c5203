"""Shape rules with sizes that are not known yet: the answer may say less than with numbers, never anything else."""

from __future__ import annotations

import numpy as np

import weft as wf
from tests.ops.table_cases import for_every_sample, outputs_of
from weft.ops.core.define import promoted
from weft.ops.core.spec import Spec, same_size


def _specs(op, sample, hide):
    args = [wf.asarray(a) if isinstance(a, np.ndarray) else a for a in sample.args]
    kwargs = {k: wf.asarray(v) if isinstance(v, np.ndarray) else v for k, v in sample.kwargs.items()}
    values = op.bind(tuple(args), kwargs)
    datas = [wf.asarray(t)._data if isinstance(t, (wf.Tensor, np.ndarray)) else t for t in op.tensors(values)]
    if op.promote is not None:
        datas = promoted(op, datas)
    specs = [Spec(hide(d.shape), d.dtype) if isinstance(d, np.ndarray) else d for d in datas]
    return op.run(op.infer, op.merge(specs, op.attrs(values)))


def _known(shape):
    return shape


def _no_first(shape):
    return (None, *shape[1:]) if len(shape) > 1 else shape


def _no_sizes(shape):
    return (None,) * len(shape)


HIDDEN = {"batch": _no_first, "all": _no_sizes}


@for_every_sample(lambda op: op.infer is not None and op.tensor_slots, hidden=HIDDEN)
def test_a_shape_rule_with_unknown_sizes_agrees_with_the_known_one(op, sample, hidden):
    known = outputs_of(_specs(op, sample, _known))
    for full, part in zip(known, outputs_of(_specs(op, sample, HIDDEN[hidden])), strict=True):
        assert part.dtype == full.dtype
        if part.shape is not None:
            assert len(part.shape) == len(full.shape)
            assert all(same_size(a, b) for a, b in zip(part.shape, full.shape, strict=True)), (part, full)
