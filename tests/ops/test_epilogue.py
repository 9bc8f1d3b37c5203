"""Epilogues as data: equality, construction, and one program under every algebra."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.onednn import library
from weft.backends.onednn.capi import Alg, post_op_argument
from weft.backends.onednn.lowerings.post_ops import BINARY, LOSES_NAN, UNARY, bias_and_post_ops
from weft.compiler.loop_ir.kernels.epilogue import convolutions_support
from weft.compiler.program.layout import Layout, Storage
from weft.ops.core import scalar as s
from weft.ops.core.registry import table
from weft.ops.internal.epilogue import (
    BIAS,
    IDENTITY,
    PRODUCT,
    Apply,
    Constant,
    Epilogue,
    Input,
    Result,
    check_epilogue,
    compute,
    expression,
    reference,
)

CHANNEL = Input(1, per_channel=True)
NORM = IDENTITY.extended("multiply", CHANNEL).extended("add", Input(2, True)).extended("add", Input(3)).extended("relu")
GRADIENT = Epilogue(
    (
        Apply("greater", (Input(1), Constant(0.0))),
        Apply("where", (Result(0), PRODUCT, Constant(-0.5))),
        Apply("multiply", (Result(1), Input(2, True))),
    ),
    (Result(1), Result(2), Input(1)),
)


def test_equal_programs_are_equal_keys_and_their_text_tells_others_apart():
    programs = [IDENTITY, BIAS, BIAS.extended("relu"), NORM, GRADIENT, IDENTITY.extended("add", Input(1))]
    assert len(set(programs)) == len({repr(p) for p in programs}) == len(programs)
    assert {BIAS.extended("relu"): 1}[IDENTITY.extended("add", CHANNEL).extended("relu")] == 1


def test_constants_are_equal_by_bits():
    assert Constant(0.0) != Constant(-0.0) and Constant(1.0) == Constant(1.0)
    assert Constant(float("nan")) == Constant(float("nan"))
    zero, negative = (IDENTITY.extended("maximum", Constant(c)) for c in (0.0, -0.0))
    assert zero != negative and repr(zero) != repr(negative)


def test_what_a_program_reads():
    assert NORM.names == ("multiply", "add", "add", "relu")
    assert NORM.operands == (CHANNEL, Input(2, True), Input(3)) and NORM.num_inputs == 4
    assert IDENTITY.operands == () and IDENTITY.num_inputs == 1
    assert GRADIENT.operands == (Input(1), Input(2, True))


def test_arrays_references_and_expressions_agree():
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal((2, 3, 4), np.float32), rng.standard_normal((2, 3, 4), np.float32)
    column = rng.standard_normal(4, np.float32)
    for program, inputs in ((NORM, [x, column, column + 1, other]), (GRADIENT, [x, other, column]), (IDENTITY, [x])):
        made, scalar = program.apply_all(compute, inputs), program.apply_all(expression, inputs)
        expected = program.apply_all(reference, [a.astype(np.float64) for a in inputs])
        for a, b, c in zip(made, scalar, expected, strict=True):
            assert a.dtype == np.float32
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-6)


def test_a_leading_addition_per_channel_is_a_bias():
    assert BIAS.without_bias() == (CHANNEL, IDENTITY)
    bias, rest = BIAS.extended("multiply", Input(2, True)).extended("relu").without_bias()
    assert bias == CHANNEL and rest == IDENTITY.extended("multiply", Input(2, True)).extended("relu")
    for program in (IDENTITY, NORM, IDENTITY.extended("add", Input(1)), IDENTITY.extended("relu")):
        assert program.without_bias() == (None, program)


@pytest.mark.skipif(not library.available(), reason="post-ops are oneDNN's")
def test_post_ops_are_a_chain_with_the_operands_by_argument():
    operands = [Layout(Storage("argument", 8, index=i), s.FLOAT32, (1, 2), (2, 1)) for i in range(4)]
    bias, made, arguments = bias_and_post_ops(NORM, operands)
    assert [getattr(op, "alg", None) for op in made] == [
        Alg.BINARY_MUL,
        Alg.BINARY_ADD,
        Alg.BINARY_ADD,
        Alg.ELTWISE_RELU,
    ]
    assert bias is None and arguments == {post_op_argument(i): operands[i] for i in range(3)}
    bias, made, arguments = bias_and_post_ops(BIAS.extended("tanh").extended("multiply", Input(2)), operands)
    assert bias is operands[0] and arguments == {post_op_argument(1): operands[1]} and len(made) == 2
    with pytest.raises(ValueError, match="post-ops are a chain"):
        bias_and_post_ops(Epilogue((Apply("add", (CHANNEL, PRODUCT)),), (Result(0),)), operands)


def test_post_ops_are_elementwise_ops_without_attributes():
    assert LOSES_NAN <= UNARY.keys()
    for names, count in ((UNARY, 1), (BINARY, 2)):
        for name in names:
            assert table[name].expression is not None and len(table[name].tensor_names) == count
            assert not table[name].attr_names


def test_epilogues_of_convolution_kernels():
    assert convolutions_support(IDENTITY) and convolutions_support(BIAS.extended("add", Input(2)).extended("relu6"))
    assert not convolutions_support(NORM) and not convolutions_support(BIAS.extended("relu").extended("relu"))
    assert not convolutions_support(BIAS.extended("tanh"))


def test_what_is_no_epilogue_of_these_operands():
    check_epilogue(NORM, 3)
    with pytest.raises(TypeError, match="an Epilogue is needed. Got tuple"):
        check_epilogue(("add", "relu"), 1)
    for wrong, count in ((NORM, 2), (IDENTITY.extended("add", Input(2)), 1), (GRADIENT, 2)):
        with pytest.raises(ValueError, match="an epilogue of one result"):
            check_epilogue(wrong, count)
