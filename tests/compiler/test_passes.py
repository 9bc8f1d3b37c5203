"""Each pass, by comparing the graphs before and after it."""

import numpy as np
import pytest

import weft as wf
from weft.backends.llvm.target import host
from weft.compiler.check_flow import check_flow
from weft.compiler.flow import Flow, from_graph, rebuild
from weft.compiler.passes import optimise
from weft.compiler.passes.decompose import decompose
from weft.compiler.passes.merge import merge
from weft.compiler.passes.simplify import FOLD_LIMIT, simplify
from weft.compiler.passes.split_reductions import split_reductions
from weft.compiler.passes.widen import widen
from weft.graph.graph import CONSTANT, PLACEHOLDER, Graph, Value
from weft.nn import functional as F
from weft.ops.core.registry import table

F32 = np.dtype(np.float32)


def captured(fn, *args) -> Flow:
    """The flow of `fn` on these tensors, as it is before any pass."""
    f = wf.function(fn)
    f(*args)
    return f.traces[0].flow


def made(build, *shapes) -> Flow:
    """A flow from `build(graph, *values)`, for ops that a trace would not leave in this form."""
    graph = Graph("g")
    inputs = [graph.placeholder(s, F32, f"x{i}") for i, s in enumerate(shapes)]
    outputs = build(graph, *inputs)
    return from_graph(graph, inputs, outputs if isinstance(outputs, list) else [outputs])


def emit(graph, name, *inputs, attrs=()):
    return graph.emit(table[name], inputs, attrs).outputs[0]


def text(flow: Flow) -> list[str]:
    """One line per live node: `op(operands, attributes) -> shape`, with values numbered in order."""
    numbers: dict[Value, str] = {v: f"x{i}" for i, v in enumerate(flow.inputs)}
    lines = []
    for node in rebuild(flow).nodes if flow.outputs else flow.nodes:
        if node.op is PLACEHOLDER:
            numbers[node.outputs[0]] = node.name.replace("argument", "x")
            continue
        if node.op is CONSTANT:
            numbers[node.outputs[0]] = np.array2string(node.attrs[0], separator=",", threshold=4)
            continue
        names = getattr(node.op, "attr_names", ())
        parts = [numbers[v] if isinstance(v, Value) else repr(v) for v in node.inputs]
        parts += [f"{n}={a!r}" for n, a in zip(names, node.attrs, strict=True)]
        for i, v in enumerate(node.outputs):
            numbers[v] = f"%{len(lines)}" + (f":{i}" if i else "")
        lines.append(f"{node.op.name}({', '.join(parts)}) -> {tuple(node.outputs[0].shape)}")
    return lines


def ops(flow: Flow) -> list[str]:
    return [line.split("(")[0] for line in text(flow)]


X = wf.ones(2, 3)


# decompose ------------------------------------------------------------------------------------------------------------


def test_softmax_becomes_its_parts():
    flow = captured(lambda x: F.softmax(x), X)
    assert text(flow) == ["softmax(x0, axis=-1) -> (2, 3)"]
    assert text(check_flow(decompose(flow))) == [
        "max(x0, axis=-1, keepdims=True) -> (2, 1)",
        "subtract(x0, %0) -> (2, 3)",
        "exp(%1) -> (2, 3)",
        "reduce_sum(%2, axis=-1, keepdims=True) -> (2, 1)",
        "divide(%2, %3) -> (2, 3)",
    ]


def test_an_outer_product_is_a_multiplication():
    flow = captured(lambda x, y: x @ y, wf.ones(2, 4, 1), wf.ones(1, 3))
    assert text(decompose(flow)) == ["multiply(x0, x1) -> (2, 4, 3)"]
    assert ops(decompose(captured(lambda x, y: x @ y, wf.ones(4, 2), wf.ones(2, 3)))) == ["matmul"]


def test_decomposition_keeps_the_users_line():
    after = decompose(captured(lambda x: F.softmax(x), X))
    wheres = {n.where for n in after.nodes if n.op not in (PLACEHOLDER, CONSTANT)}
    assert len(wheres) == 1 and "F.softmax(x)" in str(wheres.pop())


def test_decompositions_are_decomposed_until_nothing_changes():
    after = decompose(captured(lambda x: F.cross_entropy(x, wf.tensor([0, 2])), X))
    assert not {"cross_entropy_forward", "scatter_add", "softmax", "sum_as", "broadcast_as"} & set(ops(after))
    assert ops(decompose(after)) == ops(after)


def test_what_has_no_decomposition_stays():
    flow = captured(lambda x: wf.sort(wf.exp(x)), X)
    assert text(decompose(flow)) == text(flow)


def test_empty_tensors_are_not_decomposed():
    flow = captured(lambda x: F.softmax(x), wf.ones(0, 3))
    assert ops(decompose(flow)) == ["softmax"]


def test_norms_of_halves_are_computed_in_float32():
    half = decompose(widen(captured(lambda x: F.layer_norm(x, (3,)), X.astype(wf.bfloat16))))
    assert "layer_norm_forward" not in ops(half)
    sums = [n.outputs[0].dtype for n in half.nodes if n.op.name == "reduce_sum"]
    assert sums == [F32, F32] and half.outputs[0].dtype == wf.bfloat16


# widen ----------------------------------------------------------------------------------------------------------------


def test_sums_of_halves_are_widened_and_products_are_not():
    flow = check_flow(widen(captured(lambda x: wf.sum(x @ x.mT), X.astype(wf.bfloat16))))
    assert ops(flow) == ["permute_dims", "matmul", "cast", "reduce_sum", "cast"]
    assert [n.outputs[0].dtype for n in flow.nodes][-4:] == [wf.bfloat16, F32, F32, wf.bfloat16]
    plain = captured(lambda x: wf.sum(x), X)
    assert widen(plain) is plain


def test_a_cast_to_float32_and_back_is_dropped():
    x = X.astype(wf.bfloat16)
    assert ops(simplify(captured(lambda x: x.astype(wf.float32).astype(wf.bfloat16), x))) == []
    assert ops(simplify(captured(lambda x: x.astype(wf.float32).astype(wf.float16), x))) == ["cast", "cast"]


# merge ----------------------------------------------------------------------------------------------------------------


def test_equal_computations_are_done_once():
    flow = captured(lambda x: wf.exp(x) + wf.exp(x), X)
    assert ops(flow) == ["exp", "exp", "add"]
    assert text(check_flow(merge(flow))) == ["exp(x0) -> (2, 3)", "add(%0, %0) -> (2, 3)"]


def test_merging_reaches_what_becomes_equal():
    flow = captured(lambda x: wf.tanh(wf.exp(x)) * wf.tanh(wf.exp(x)), X)
    assert ops(merge(flow)) == ["exp", "tanh", "multiply"]


def test_attributes_tell_computations_apart():
    flow = captured(lambda x: x.sum(axis=0, keepdims=True) + x.sum(axis=1, keepdims=True), X)
    assert ops(merge(flow)) == ["reduce_sum", "reduce_sum", "add"]


def test_signed_zeros_are_not_merged():
    flow = captured(lambda x: (wf.exp(wf.full((2,), 0.0)), wf.exp(wf.full((2,), -0.0))), X)
    assert ops(merge(flow)) == ["filled", "exp", "filled", "exp"]
    f = wf.function(lambda x: (x / wf.full((2,), 0.0), x / wf.full((2,), -0.0)))
    assert [t.tolist() for t in f(wf.ones(2))] == [[np.inf] * 2, [-np.inf] * 2]


def test_random_numbers_are_not_merged():
    f = wf.function(lambda: (wf.rand(8), wf.rand(8)))
    a, b = f()
    assert a.tolist() != b.tolist()


# simplify -------------------------------------------------------------------------------------------------------------


def test_neutral_elements_and_inverse_transposes_vanish():
    flow = captured(lambda x: (x * 1.0).T.T + wf.exp(x), X)
    assert ops(flow) == ["multiply", "permute_dims", "permute_dims", "exp", "add"]
    assert text(check_flow(simplify(flow))) == ["exp(x0) -> (2, 3)", "add(x0, %0) -> (2, 3)"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + -0.0,
        lambda x: -0.0 + x,
        lambda x: x - 0.0,
        lambda x: 1.0 * x,
        lambda x: x / 1.0,
        lambda x: x**1.0,
        lambda x: x.detach(),
        lambda x: x.clone(),
        lambda x: x.astype(wf.float32),
        lambda x: x.reshape(2, 3),
        lambda x: x.reshape(6).reshape(2, 3),
        lambda x: wf.broadcast_to(x, (2, 3)),
        lambda x: wf.permute_dims(x, (0, 1)),
        lambda x: x * wf.ones(2, 3),
    ],
)
def test_identities_vanish(fn):
    flow = captured(lambda x: wf.exp(fn(x)), X)
    assert text(check_flow(simplify(simplify(flow)))) == ["exp(x0) -> (2, 3)"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: 0.0 - x,
        lambda x: 1.0 / x,
        lambda x: x + wf.zeros(4, 2, 3),
        lambda x: x * wf.tensor(1.0, dtype=wf.float64),
        lambda x: 1.0**x,
    ],
)
def test_what_changes_value_shape_or_dtype_stays(fn):
    expected = fn(X)
    got = wf.function(fn)(X)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
    assert ops(simplify(captured(fn, X)))


def test_views_are_joined():
    # a view that is returned is made outside the program, see `graph/capture/sharing.py`: here each is read by an op
    flow = captured(lambda x: wf.exp(wf.permute_dims(wf.permute_dims(x, (2, 0, 1)), (2, 1, 0))), wf.ones(2, 3, 4))
    assert text(simplify(flow)) == ["permute_dims(x0, axes=(1, 0, 2)) -> (3, 2, 4)", "exp(%0) -> (3, 2, 4)"]
    flow = captured(lambda x: wf.exp(x.reshape(6).reshape(3, 2)), X)
    assert text(simplify(flow)) == ["reshape(x0, shape=(3, 2), copy=None) -> (3, 2)", "exp(%0) -> (3, 2)"]


def test_transposed_product_is_computed_transposed():
    flow = captured(lambda x, y: (x @ y).T, wf.ones(2, 3), wf.ones(3, 4))
    assert text(check_flow(simplify(flow))) == [
        "permute_dims(x1, axes=(1, 0)) -> (4, 3)",
        "permute_dims(x0, axes=(1, 0)) -> (3, 2)",
        "matmul(%0, %1) -> (4, 2)",
    ]


def test_transposed_product_that_is_needed_twice_is_computed_once():
    def fn(x, y):
        z = x @ y
        return z, z.T

    assert ops(simplify(captured(fn, wf.ones(2, 3), wf.ones(3, 4)))) == ["matmul", "permute_dims"]


def test_outer_product_in_another_shape_is_made_in_it():
    column, row = (wf.tensor(np.arange(12, dtype=np.float32).reshape(12, 1)), wf.tensor(np.ones((1, 5), np.float32)))
    for fn in (lambda c, r: (c * r).reshape(3, 4, 5), lambda c, r: (r[0] * c).reshape(3, 4, 5)):
        flow = check_flow(simplify(captured(fn, column, row)))
        assert text(flow)[-2].startswith("reshape(x0, shape=(3, 4, 1)")
        assert ops(flow)[-1] == "multiply"
        np.testing.assert_array_equal(wf.function(fn)(column, row).numpy(), fn(column, row).numpy())


def test_outer_product_that_is_needed_in_both_shapes_is_made_once():
    def fn(c, r):
        z = c * r
        return z, z.reshape(3, 4, 5)

    assert ops(simplify(captured(fn, wf.ones(12, 1), wf.ones(1, 5)))) == ["multiply", "reshape"]


@pytest.mark.parametrize("first", [True, False], ids=["zeros first", "zeros last"])
@pytest.mark.parametrize("flat", [True, False], ids=["time by batch", "rows"])
def test_rows_of_zeros_are_left_out_of_a_product(first, flat):
    """The states that the steps of a recurrent layer start from: zeros, and then what the step before left."""
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((7, 15), np.float32))
    states = wf.tensor(rng.standard_normal((4, 3, 6) if flat else (12, 6), np.float32))

    def fn(x, states):
        zeros = wf.zeros((1, 3, 6) if flat else (3, 6))
        joined = wf.concat([zeros, states] if first else [states, zeros])
        return x @ joined.reshape(15, 6)

    flow = check_flow(simplify(simplify(captured(fn, x, states))))
    assert text(flow)[-1].endswith("-> (7, 6)") and "matmul" in text(flow)[-1]
    assert [v.shape for v in flow.nodes[-1].inputs] == [(7, 12), (12, 6)]
    np.testing.assert_allclose(wf.function(fn)(x, states).numpy(), fn(x, states).numpy(), rtol=1e-4, atol=1e-5)


def test_a_product_with_other_rows_or_across_columns_stays():
    x, y = wf.ones(7, 15), wf.ones(12, 6)
    for fn in (
        lambda x, y: x @ wf.concat([wf.ones(3, 6), y]),
        lambda x, y: x[:, :12] @ wf.concat([wf.zeros((12, 2)), y], axis=1),
        lambda x, y: x @ wf.concat([wf.zeros((3, 6)), y]).reshape(15, 3, 2)[:, :, 0],
    ):
        flow = simplify(captured(fn, x, y))
        assert "concat_axis" in ops(flow)
        np.testing.assert_allclose(wf.function(fn)(x, y).numpy(), fn(x, y).numpy(), rtol=1e-6)


def test_constants_are_folded_up_to_a_limit():
    def build(n):
        def inner(graph, x):
            c = graph.constant(np.arange(n, dtype=np.float32))
            return emit(graph, "add", x, emit(graph, "exp", c))

        return made(inner, (n,))

    small = simplify(build(3))
    assert ops(small) == ["add"]
    folded = [n.attrs[0] for n in rebuild(small).nodes if n.op is CONSTANT]
    np.testing.assert_allclose(folded[0], np.exp([0, 1, 2]), rtol=1e-6)
    assert ops(simplify(build(FOLD_LIMIT + 1))) == ["exp", "add"]


def test_reductions_of_single_elements_are_reshapes():
    flow = captured(lambda x: wf.exp(x.sum(axis=1)), wf.ones(4, 1))
    assert text(check_flow(simplify(flow))) == ["reshape(x0, shape=(4,), copy=None) -> (4,)", "exp(%0) -> (4,)"]
    flow = captured(lambda x: wf.any(x, axis=1), wf.ones(4, 1))
    assert ops(check_flow(simplify(flow))) == ["not_equal", "reshape"]


# split_reductions -----------------------------------------------------------------------------------------------------


def test_large_sum_to_one_number_is_done_in_two_steps():
    flow = captured(lambda x: x.sum(), wf.ones(64, 4096))
    assert text(flow) == ["reduce_sum(x0, axis=None, keepdims=False) -> ()"]
    assert text(check_flow(split_reductions(flow))) == [
        "reduce_sum(x0, axis=(1,), keepdims=True) -> (64, 1)",
        "reduce_sum(%0, axis=(0, 1), keepdims=False) -> ()",
    ]


@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_are_split_too(op):
    flow = captured(lambda x: getattr(wf, op)(x), wf.ones(64, 4096))
    assert ops(check_flow(split_reductions(flow))) == [op, op]


@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 64), None), ((64, 4096), 1), ((262144,), None), ((2, 1 << 17), (1,))]
)
def test_small_or_single_axis_reductions_stay(shape, axis):
    flow = captured(lambda x: x.sum(axis=axis), wf.ones(*shape))
    assert ops(split_reductions(flow)) == ["reduce_sum"]


def test_sum_to_channels_is_split_along_the_batch():
    flow = captured(lambda x: x.sum(axis=(0, 2, 3)), wf.ones(8, 16, 32, 32))
    assert text(check_flow(split_reductions(flow))) == [
        "reduce_sum(x0, axis=(2, 3), keepdims=True) -> (8, 16, 1, 1)",
        "reduce_sum(%0, axis=(0, 2, 3), keepdims=False) -> (16,)",
    ]


# all together ---------------------------------------------------------------------------------------------------------


def test_passes_keep_the_meaning_and_stop_changing():
    def fn(x, y):
        h = F.softmax(x * 1.0 - 0.0) + F.softmax(x)
        return (h @ y).T.T, F.layer_norm(h, (3,)), h.sum()

    flow = captured(fn, wf.ones(2, 3), wf.ones(3, 4))
    once = optimise(flow, host())
    assert sum(n == "max" for n in ops(once)) == 1  # the two softmaxes are one
    assert text(optimise(once, host())) == text(once)


def test_rebuild_drops_dead_nodes():
    def build(graph, x):
        emit(graph, "exp", x)
        return emit(graph, "tanh", x)

    assert ops(made(build, (2,))) == ["tanh"]


def test_prints_and_checks_are_kept_without_readers(capsys):
    flow = captured(lambda x: (wf.debug.print("sum {}", x.sum()), x * 2)[1], X)
    assert any("print" in n for n in ops(optimise(flow, host())))


def test_folding_to_a_number_keeps_it_a_number():
    flow = made(lambda graph, x: emit(graph, "add", x, emit(graph, "reduce_sum", graph.constant(np.ones(3, F32)),
                                                            attrs=(None, False))), ())  # fmt: skip
    assert text(check_flow(simplify(flow))) == ["add(x0, 3.) -> ()"]


def test_a_write_to_everything_is_the_value():
    def f(x, value):
        x[...] = value
        return x

    assert ops(simplify(captured(f, wf.ones((2, 3)), wf.ones((2, 3))))) == []
    assert ops(simplify(captured(f, wf.ones((2, 3)), wf.ones(3)))) == ["broadcast_to"]
    assert ops(simplify(captured(f, wf.ones((2, 3)), wf.ones((1, 1, 3))))) == ["reshape", "broadcast_to"]
    assert ops(simplify(captured(f, wf.ones((2, 3)), wf.ones((2, 3), dtype=wf.int32)))) == ["cast"]


@pytest.mark.parametrize("index", [np.s_[:, 1:], np.s_[::-1], np.s_[..., :2], np.s_[0], np.s_[:1], np.s_[..., None, :]])
def test_a_write_to_a_part_stays_a_write(index):
    def f(x):
        x[index] = 7.0
        return x

    assert "setitem" in ops(simplify(captured(f, wf.ones((2, 3)))))
    x = wf.ones((2, 3))
    np.testing.assert_array_equal(wf.function(f)(x.clone()).numpy(), f(x.clone()).numpy())
