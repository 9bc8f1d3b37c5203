"""Every structural rule of the loop IR is checked, and the message names the kernel, the rule and the statement."""

import numpy as np
import pytest

from weft.backends.llvm.target import host
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Accumulator, Buffer, Kernel, Let, Local, Store, Update
from weft.compiler.loop_ir.kernels import elementwise, norms, reduce, rows
from weft.compiler.loop_ir.kernels.small_matmul import small_matmul
from weft.compiler.loop_ir.validate import validate
from weft.compiler.program.layout import Layout, Storage
from weft.ops.core import scalar as s

F32 = np.dtype(np.float32)
N, I, J = s.param("n"), s.index("i"), s.index("j")
X = Buffer.of("x", F32, (N,))
TOTAL = Accumulator("total", "sum", F32)


def kernel(*body):
    return Kernel("k", (X,), ("n",), body)


def vector(*body, var="i", **options):
    return loops.loop(var, N, body, "vector", **options)


BAD = {
    "the loop variable 'j' is not in scope": [vector(loops.store(X[I], X[J]))],
    "the parameter 'm' is not declared": [loops.loop("i", s.param("m"), [])],
    "the value 'v' is not in scope": [vector(loops.store(X[I], s.var("v", F32)))],
    "the argument x0 was not replaced": [vector(loops.store(X[I], s.arg(0, F32)))],
    "has 1 dimensions, not 2": [vector(Store(X, (I, I), X[I]))],
    "stores float64 into float32": [vector(Store(X, (I,), s.const(1.0, np.float64)))],
    "the buffer 'z' is not declared here": [vector(loops.store(Buffer.of("z", F32, (N,))[I], X[I]))],
    "a parallel loop must stand at the top": [loops.loop("j", N, [vector(parallel=True)])],
    "only a parallel loop has workers": [vector(workers=2)],
    "the value 'i.worker' is not in scope": [
        loops.loop("i", N, [loops.store(X[loops.worker("i")], X[I])], parallel=True)
    ],
    "vector loops do not nest": [loops.loop("j", N, [vector()], "vector")],
    "a prefetch or transpose stands outside vector loops": [vector(loops.prefetch(X[I]))],
    "an unrolled loop needs a constant extent": [loops.loop("i", N, [], "unroll")],
    "is defined twice": [vector(), vector()],
    "any and all, and only they, accumulate bools": [Accumulator("a", "any", F32)],
    "no such reduction as 'median'": [Accumulator("a", "median", F32)],
    "the accumulator 'total' is not in scope": [vector(loops.update(TOTAL, X[I]))],
    "updates float32 with float64": [TOTAL, vector(Update(TOTAL, s.const(1.0, np.float64)))],
    "take an index": [TOTAL, vector(Update(TOTAL, X[I], I))],
    "cannot be updated inside": [TOTAL, vector(loops.update(TOTAL, X[I]), parallel=True)],
    "every lane of the vector loop stores to one element": [vector(loops.store(X[0], X[I]))],
    "must not differ between the lanes": [vector(loops.loop("j", I, []))],
    "a local buffer needs a constant shape": [Local(Buffer.of("t", F32, (N,)))],
    "holds at most": [Local(Buffer.of("t", F32, (1 << 20,)))],
    "cannot be declared inside a vector loop": [vector(Local(Buffer.of("t", F32, (4,))))],
    "inside the parallel loop that uses it": [Local(Buffer.of("t", F32, (4,))), vector(parallel=True)],
    "no such scalar function as 'frobnicate'": [vector(loops.store(X[I], s.make("frobnicate", (X[I],), F32)))],
}


@pytest.mark.parametrize("problem", BAD)
def test_broken_rule_is_named(problem):
    with pytest.raises(ValueError, match="kernel k: ") as raised:
        validate(kernel(*BAD[problem]))
    assert problem in str(raised.value)


def test_let_that_differs_between_lanes_is_no_extent():
    lane = Let("lane", I * 2)
    with pytest.raises(ValueError, match="must not differ"):
        validate(kernel(vector(lane, loops.loop("j", lane.var, []))))


def test_a_value_ends_with_its_body():
    inner = Let("v", X[I])
    with pytest.raises(ValueError, match="'v' is not in scope"):
        validate(kernel(vector(inner), vector(loops.store(X[J], inner.var), var="j")))


def matrix(*shape):
    return Layout(Storage("argument", 1), F32, shape, (shape[1], 1))


def test_built_kernels_are_valid():
    exp = s.exp(s.arg(0, F32))
    for k in (
        elementwise.elementwise([exp], [F32], [F32], 1, (1, 1)),
        elementwise.elementwise([exp, exp + 1], [F32], [F32, F32], 3, (0, 1, 2)),
        rows.softmax("strips", F32, (1, 1), True),
        rows.cross_entropy("rows", F32, (2,)),
        norms.layer_norm(F32, True, True, 1e-5, True),
        norms.norm_backward(F32, True, True, True, False),
        norms.batch_statistics(F32),
        small_matmul(matrix(5, 3), matrix(3, 70), matrix(5, 70), host()),
    ):
        assert validate(k) is k
    for scheme, labels in (("rows", "krkr"), ("columns", "krk"), ("strips", "kkr")):
        classes = ((2,) * len(labels), (2,) * len(labels))
        r = reduce.Reduction("sum", s.arg(0, F32), (F32,), F32, F32, "mean", scheme, labels, classes, True)
        validate(reduce.reduction(r))
