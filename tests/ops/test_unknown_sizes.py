"""Shape rules on values that are not known yet: sizes unknown, sizes named, rank unknown."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft.ops.dispatch import promoted
from weft.ops.registry import table
from weft.ops.samples import Maker
from weft.ops.spec import Spec, Symbol

_CASES = [
    pytest.param(op, sample, id=f"{op.name}-{i}")
    for op in table.values()
    if op.infer is not None and op.expression is None and op.samples is not None
    for i, sample in enumerate(op.samples(Maker(len(op.name))))
]


def _tensors(value):
    if isinstance(value, np.ndarray):
        return wf.asarray(value)
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray) for v in value):
        return tuple(_tensors(v) for v in value)
    return value


@pytest.mark.parametrize("sizes", ["unknown", "named"])
@pytest.mark.parametrize(("op", "sample"), _CASES)
def test_rule_without_sizes_agrees_with_reality(op, sample, sizes):
    args, kwargs = [_tensors(a) for a in sample.args], {k: _tensors(v) for k, v in sample.kwargs.items()}
    values = op.bind(tuple(args), kwargs)
    out = op.call(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    datas = promoted(op, [t._data if isinstance(t, wf.Tensor) else t for t in op.tensors(values)])
    names = op.tensor_names if not op.variadic else op.tensor_names * len(datas)

    def hide(data, name):
        if data is None or name == "state":  # a generator's state has a fixed size
            return data
        shape = [None if sizes == "unknown" else Symbol(f"n{i}_{d}") for i, d in enumerate(data.shape)]
        return Spec(tuple(shape), data.dtype)

    specs = [hide(d, n) for d, n in zip(datas, names, strict=True)]
    found = op.run(op.infer, op.merge(specs, op.attrs(values)))
    for o, spec in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
        assert spec.dtype == o.dtype
        if spec.shape is None:
            continue
        assert len(spec.shape) == o.ndim
        for size, real in zip(spec.shape, o.shape, strict=True):
            assert not isinstance(size, int) or size == real
            assert not isinstance(size, Symbol) or size.name.endswith(f"_{real}"), f"{size} is not {real}"


@pytest.mark.parametrize(
    "name", ["sort", "argmax", "sum", "matmul", "transpose", "reshape", "cumulative_sum"]
)
def test_rule_without_rank_says_so(name):
    op = {
        "sum": table["reduce_sum"],
        "transpose": table["permute_dims"],
        "cumulative_sum": table["accumulate_sum"],
    }.get(name)
    op = op or table[name]
    x = Spec(None, np.dtype("float32"))
    attributes = {
        "reduce_sum": (None, False),
        "permute_dims": ((1, 0),),
        "reshape": ((2, 3), None),
        "accumulate_sum": (0,),
    }
    attributes |= {"sort": (-1, False, True), "argmax": (0, False)}
    spec = op.run(op.infer, op.merge([x] * len(op.tensor_slots), attributes.get(op.name, ())))
    assert spec.shape in (None, (2, 3))
