"""Errors carry the public name, keep their cause, and keep their type."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import weft as wf
from weft.ops.core.error_names import guarded, renamed


def test_inner_names_give_way_to_the_one_that_was_called():
    with pytest.raises(IndexError, match=r"^logsumexp: axis 3 is out of range") as caught:
        wf.logsumexp(wf.ones((2, 2)), axis=3)
    assert "sum:" not in str(caught.value) and "max:" not in str(caught.value)


def test_raw_errors_of_numpy_are_named_in_one_traceback():
    def clumsy(x):
        return np.zeros(3)[5] + x

    with pytest.raises(IndexError, match=r"^clumsy: index 5 is out of bounds") as caught:
        guarded(clumsy)(1)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert isinstance(caught.value.__context__, IndexError)


def test_wrong_kind_of_argument_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match=r"^var: x must be a tensor. Got list. Convert it with `wf.asarray"):
        wf.var([1.0, 2.0])
    with pytest.raises(TypeError, match=r"^sum: missing 1 required positional argument: 'x'. Signature: sum\("):
        wf.sum()
    with pytest.raises(TypeError, match=r"^sum: .*unexpected keyword argument 'axes'"):
        wf.sum(wf.ones(2), axes=0)


def test_arrays_are_taken_for_tensors():
    assert wf.var(np.array([1.0, 3.0])).item() == 1.0
    assert wf.linalg.matrix_norm(np.ones((2, 2))).item() == 2.0
    with pytest.raises(TypeError, match=r"^var: dtype: "):
        wf.var(np.array(["a"]))


def test_errors_that_are_right_already_pass_as_they_are():
    error = ValueError("f: wrong.")
    assert renamed("f", error) is error
    assert renamed("g", error, keep_prefix=True) is error
    assert type(renamed("g", KeyError("x"))) is TypeError and type(renamed("g", ZeroDivisionError("x"))) is ValueError


def test_signatures_and_documentation_are_those_of_the_definition():
    assert list(inspect.signature(wf.mean).parameters) == ["x", "axis", "dtype", "keepdims"]
    assert wf.mean.__name__ == "mean" and wf.mean.__doc__.startswith("Arithmetic mean")


def test_a_result_that_cannot_fit_is_refused_before_it_is_made():
    with pytest.raises(MemoryError, match=r"^tile: the result does not fit into memory. Got a shape"):
        wf.tile(wf.ones(1000), (2**40,))


def test_a_number_that_equals_a_checked_axis_is_judged_by_the_rule():
    from weft.nn import functional as F

    x = wf.ones(3, 4)
    F.softmax(x, axis=1)
    with pytest.raises(TypeError, match=r"softmax: axis must be an integer\. Got 1\.0"):
        F.softmax(x, axis=1.0)
    with pytest.raises(TypeError, match=r"softmax: x must be a tensor\. Got list"):
        F.softmax([1.0, 2.0], axis=0)


@pytest.mark.parametrize("name", ["zeros_", "normal_", "kaiming_normal_", "eye_", "orthogonal_", "trunc_normal_"])
def test_initialisers_name_themselves_when_they_get_no_tensor(name):
    with pytest.raises(TypeError, match=f"{name}: tensor must be a tensor. Got list"):
        getattr(wf.nn.init, name)([[1.0, 2.0]])


@pytest.mark.parametrize("call", [lambda x: wf.exp(x), lambda x: wf.copysign(x, 1.0)], ids=["unary", "binary"])
def test_a_masked_array_is_no_internal_error(call):
    try:
        call(np.ma.array([1.0, 2.0], mask=[False, True], dtype=np.float32))
    except TypeError as error:
        assert "_node" not in str(error)
