"""True and 1.0 equal 1, as keys of caches too, but are no axes, sizes or counts: every op refuses them, also after 1."""

from __future__ import annotations

import pytest

import weft as wf
from tests.each import each
from tests.ops.table_cases import map_arrays, ops, samples_of


def _integer_arguments(op, sample):
    """(place, value) of the integers among the arguments of a sample that the record declares as such."""
    names = [op.attr_names[i] for i in op.integer_attrs]
    found = [(i, v) for i, v in enumerate(sample.args) if i < op.num_positional and op.parameters[i] in names]
    found += [(k, v) for k, v in sample.kwargs.items() if k in names]
    return [(place, v) for place, v in found if v.__class__ is int]


def _refused(op, sample, place, value, captured):
    args, kwargs = [map_arrays(a, wf.asarray) for a in sample.args], dict(sample.kwargs)
    tensors = [i for i, a in enumerate(args) if isinstance(a, wf.Tensor)]

    def run(*given):
        for i, tensor in zip(tensors, given, strict=True):
            args[i] = tensor
        return op.call(*args, **kwargs)

    given = [args[i] for i in tensors]
    run(*given)  # the valid call is in the caches now
    if isinstance(place, int):
        args[place] = value
    else:
        kwargs[place] = value
    with pytest.raises((TypeError, ValueError), match=r"\bmust\b|expected"):
        (wf.function(run) if captured else run)(*given)


@pytest.mark.parametrize("op", ops(lambda op: op.integer_attrs and op.samples is not None and op.fn is not None))
def test_an_op_refuses_numbers_that_equal_an_integer(op):
    cases = {}
    for sample in samples_of(op)[:3]:
        for place, value in _integer_arguments(op, sample):
            for other in (float(value), *([bool(value)] if value in (0, 1) else [])):
                for captured in (False, True):
                    way = "captured" if captured else "eager"
                    cases[f"{op.name}({place}={other!r}) {way}: {sample}"] = (op, sample, place, other, captured)
    each(_refused, cases)
