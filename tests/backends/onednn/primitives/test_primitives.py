"""Primitives as a compiled program uses them: raw memory, own scratchpad, no arrays."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Mapping

import numpy as np
import pytest

from tests.backends.onednn import reference
from weft.backends.onednn import capi, library
from weft.backends.onednn.capi import Alg, Arg, Direction, NormFlags, Unsupported
from weft.backends.onednn.descriptors import BFLOAT16, MemoryDesc, channels_last_strides
from weft.backends.onednn.primitives import (
    Binary,
    Eltwise,
    Execution,
    Primitive,
    RecurrentDescs,
    Sum,
    base,
    binary,
    convolution_backward_data,
    convolution_backward_weights,
    convolution_forward,
    eltwise,
    eltwise_backward,
    layer_norm_backward,
    layer_norm_forward,
    matmul,
    recurrent_backward,
    recurrent_forward,
    reorder,
    reorder_if_needed,
    softmax,
    softmax_backward,
)
from weft.ops.nn.window import Window
from weft.runtime import threads

F32 = np.dtype(np.float32)
_ALIGNMENT = 64


def aligned(nbytes: int) -> np.ndarray:
    block = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


def plain(*shape: int) -> MemoryDesc:
    return MemoryDesc.strided(shape, F32)


def image(*shape: int) -> MemoryDesc:
    return MemoryDesc.strided(shape, F32, channels_last_strides(shape))


def pack(array: np.ndarray, desc: MemoryDesc) -> np.ndarray:
    """The bytes of `array` in the layout of `desc`."""
    array = np.ascontiguousarray(array, np.float32)
    packed = aligned(desc.nbytes)
    pointers = {Arg.SRC: array.ctypes.data, Arg.DST: packed.ctypes.data}
    primitive = reorder(MemoryDesc.strided(array.shape, F32), desc)
    scratch = aligned(primitive.scratchpad_nbytes)
    if scratch.size:
        pointers[Arg.SCRATCHPAD] = scratch.ctypes.data
    Execution(primitive, pointers).run()
    return packed


def unpack(packed: np.ndarray, desc: MemoryDesc) -> np.ndarray:
    array = np.empty(desc.shape, np.float32)
    primitive = reorder(desc, MemoryDesc.strided(desc.shape, F32))
    pointers = {Arg.SRC: packed.ctypes.data, Arg.DST: array.ctypes.data}
    scratch = aligned(primitive.scratchpad_nbytes)
    if scratch.size:
        pointers[Arg.SCRATCHPAD] = scratch.ctypes.data
    Execution(primitive, pointers).run()
    return array


def run(primitive: Primitive, values: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Runs with `values` (plain arrays by argument) and returns every written argument as a plain array."""
    blocks = {}
    for argument in primitive.arguments:
        given = values.get(argument.index)
        if given is None or given.dtype == np.uint8:
            blocks[argument.index] = aligned(argument.nbytes) if given is None else given
        else:
            blocks[argument.index] = pack(given, argument.desc)
    Execution(primitive, {index: block.ctypes.data for index, block in blocks.items()}).run()
    opaque = (Arg.WORKSPACE, Arg.SCRATCHPAD)
    return {
        argument.index: blocks[argument.index] if argument.index in opaque else unpack(blocks[argument.index], argument.desc)
        for argument in primitive.arguments if argument.output
    }  # fmt: skip


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(
        actual, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max()))
    )


def test_matmul_with_bias_and_every_post_op(rng: np.random.Generator) -> None:
    a, b, bias = random(rng, 6, 5), random(rng, 5, 7), random(rng, 1, 7)
    other, old = random(rng, 6, 7), random(rng, 6, 7)
    post_ops = [Sum(0.5), Binary(Alg.BINARY_ADD, plain(6, 7)), Eltwise(Alg.ELTWISE_RELU)]
    primitive = matmul(plain(6, 5), plain(5, 7), plain(6, 7), plain(1, 7), post_ops)
    operand = capi.post_op_argument(1)
    result = run(primitive, {Arg.SRC: a, Arg.WEIGHTS: b, Arg.BIAS: bias, operand: other, Arg.DST: old})[Arg.DST]
    close(result, np.maximum(a @ b + bias + 0.5 * old + other, 0))


def test_matmul_with_weights_in_the_preferred_layout(rng: np.random.Generator) -> None:
    a, b = random(rng, 64, 48), random(rng, 48, 80)
    primitive = matmul(plain(64, 48), MemoryDesc.any((48, 80), F32), plain(64, 80))
    close(run(primitive, {Arg.SRC: a, Arg.WEIGHTS: b})[Arg.DST], a @ b)


def test_matmul_broadcasts_batch_axes(rng: np.random.Generator) -> None:
    a, b = random(rng, 2, 1, 6, 5), random(rng, 1, 3, 5, 7)
    primitive = matmul(plain(2, 1, 6, 5), plain(1, 3, 5, 7), plain(2, 3, 6, 7))
    close(run(primitive, {Arg.SRC: a, Arg.WEIGHTS: b})[Arg.DST], a @ b)


@pytest.mark.parametrize("training", [True, False])
def test_convolution_with_post_ops(rng: np.random.Generator, training: bool) -> None:
    x, w, bias, old = (random(rng, 2, 5, 7, 6), random(rng, 9, 5, 3, 3), random(rng, 9), random(rng, 2, 9, 7, 6))
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    post_ops = [Sum(1.0), Eltwise(Alg.ELTWISE_CLIP_V2, 0.0, 6.0), Binary(Alg.BINARY_MUL, image(1, 9, 1, 1))]
    primitive = convolution_forward(
        image(*x.shape), MemoryDesc.any(w.shape, F32), plain(9), image(*old.shape), window, post_ops, training=training
    )
    factor = random(rng, 1, 9, 1, 1)
    values = {Arg.SRC: x, Arg.WEIGHTS: w, Arg.BIAS: bias, Arg.DST: old, capi.post_op_argument(2): factor}
    y = reference.conv(x, w, bias, (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    close(run(primitive, values)[Arg.DST], np.clip(y + old, 0, 6) * factor)


def test_transposed_convolution(rng: np.random.Generator) -> None:
    # (N, 4, 5, 5) -> (N, 6, 11, 11): weights are (O, C, k, k) to oneDNN.
    x, w, bias, g = (random(rng, 2, 4, 5, 5), random(rng, 6, 4, 3, 3), random(rng, 6), random(rng, 2, 6, 11, 11))
    window = Window((3, 3), (2, 2), ((0, 0), (0, 0)), (1, 1))
    xd, wd, yd = image(*x.shape), MemoryDesc.any(w.shape, F32), image(*g.shape)
    settings = ((2, 2), ((0, 0), (0, 0)), (1, 1), 1)
    flipped = w.swapaxes(0, 1)
    forward = convolution_forward(xd, wd, plain(6), yd, window, transposed=True)
    expected = reference.conv_backward_data(x, flipped, g.shape, *settings) + bias[:, None, None]
    close(run(forward, {Arg.SRC: x, Arg.WEIGHTS: w, Arg.BIAS: bias})[Arg.DST], expected)
    backward = convolution_backward_data(xd, wd, yd, window, transposed=True)
    expected = reference.conv(g, flipped, None, *settings)
    close(run(backward, {Arg.DIFF_DST: g, Arg.WEIGHTS: w})[Arg.DIFF_SRC], expected)
    weights = run(
        convolution_backward_weights(xd, wd, plain(6), yd, window, transposed=True), {Arg.SRC: x, Arg.DIFF_DST: g}
    )
    expected = reference.conv_backward_weights(g, x, flipped.shape, *settings).swapaxes(0, 1)
    close(weights[Arg.DIFF_WEIGHTS], expected)
    close(weights[Arg.DIFF_BIAS], g.sum((0, 2, 3)))


def test_channels_that_do_not_fill_a_block_are_padded_with_zeros(rng: np.random.Generator) -> None:
    w = random(rng, 5, 3, 3, 3)
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    desc = convolution_forward(
        image(1, 3, 8, 8), MemoryDesc.any(w.shape, F32), None, image(1, 5, 8, 8), window
    ).desc(Arg.WEIGHTS)  # fmt: skip
    packed = pack(w, desc)
    np.testing.assert_array_equal(unpack(packed, desc), w)
    assert np.count_nonzero(packed.view(np.float32)) == np.count_nonzero(w)


def test_eltwise_and_binary(rng: np.random.Generator) -> None:
    x, g = random(rng, 4, 33), random(rng, 4, 33)
    close(run(eltwise(Alg.ELTWISE_TANH, plain(4, 33)), {Arg.SRC: x})[Arg.DST], np.tanh(x))
    slope = eltwise_backward(Alg.ELTWISE_TANH, plain(4, 33))
    close(run(slope, {Arg.SRC: x, Arg.DIFF_DST: g})[Arg.DIFF_SRC], g * (1 - np.tanh(x) ** 2))
    row = random(rng, 1, 33)
    product = binary(Alg.BINARY_MUL, plain(4, 33), plain(1, 33), plain(4, 33))
    close(run(product, {Arg.SRC: x, Arg.SRC_1: row})[Arg.DST], x * row)


@pytest.mark.parametrize("log", [False, True])
def test_softmax(rng: np.random.Generator, log: bool) -> None:
    x, g = random(rng, 5, 17), random(rng, 5, 17)
    p = np.exp(x.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    expected = np.log(p) if log else p
    y = run(softmax(plain(5, 17), 1, log), {Arg.SRC: x})[Arg.DST]
    close(y, expected)
    gradient = g - p * g.sum(1, keepdims=True) if log else p * (g - (g * p).sum(1, keepdims=True))
    close(run(softmax_backward(plain(5, 17), 1, log), {Arg.DST: y, Arg.DIFF_DST: g})[Arg.DIFF_SRC], gradient)


def test_layer_norm(rng: np.random.Generator) -> None:
    x, g, scale, shift = random(rng, 6, 19), random(rng, 6, 19), random(rng, 19), random(rng, 19)
    flags = NormFlags.USE_SCALE | NormFlags.USE_SHIFT
    forward = run(
        layer_norm_forward(plain(6, 19), plain(6), 1e-5, flags), {Arg.SRC: x, Arg.SCALE: scale, Arg.SHIFT: shift}
    )
    mean, variance = x.astype(np.float64).mean(1, keepdims=True), x.astype(np.float64).var(1, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + 1e-5)
    close(forward[Arg.DST], normal * scale + shift)
    close(forward[Arg.VARIANCE], variance[:, 0])
    values = {Arg.SRC: x, Arg.DIFF_DST: g, Arg.SCALE: scale, Arg.SHIFT: shift}
    values |= {arg: forward[arg] for arg in (Arg.MEAN, Arg.VARIANCE)}
    backward = run(layer_norm_backward(plain(6, 19), plain(6), 1e-5, flags), values)
    scaled = g * scale
    inner = scaled - scaled.mean(1, keepdims=True) - normal * (scaled * normal).mean(1, keepdims=True)
    close(backward[Arg.DIFF_SRC], inner / np.sqrt(variance + 1e-5))
    close(backward[Arg.DIFF_SCALE], (g * normal).sum(0))
    close(backward[Arg.DIFF_SHIFT], g.sum(0))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> np.ndarray:
    outputs = []
    for step in x:
        i, f, n, o = (step @ w[:, k] + h @ u[:, k] + b[k] for k in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(n)
        h = _sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack([*outputs, c])


def _gru(x: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> np.ndarray:
    outputs = []
    for step in x:
        z = _sigmoid(step @ w[:, 0] + h @ u[:, 0] + b[0])
        r = _sigmoid(step @ w[:, 1] + h @ u[:, 1] + b[1])
        n = np.tanh(step @ w[:, 2] + b[2] + r * (h @ u[:, 2] + b[3]))
        h = z * h + (1 - z) * n
        outputs.append(h)
    return np.stack(outputs)


def _recurrent_descs(steps: int, batch: int, inputs: int, hidden: int, gates: int, rows: int) -> RecurrentDescs:
    state = plain(1, 1, batch, hidden)
    cell = state if gates == 4 else None
    return RecurrentDescs(
        plain(steps, batch, inputs), state, cell, MemoryDesc.any((1, 1, inputs, gates, hidden), F32),
        MemoryDesc.any((1, 1, hidden, gates, hidden), F32), plain(1, 1, rows, hidden), plain(steps, batch, hidden), state, cell,
    )  # fmt: skip


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrent(rng: np.random.Generator, cell: str) -> None:
    steps, batch, inputs, hidden = 3, 2, 5, 4
    gates, rows = (4, 4) if cell == "lstm" else (3, 4)
    x, h, c = (random(rng, steps, batch, inputs), random(rng, 1, 1, batch, hidden), random(rng, 1, 1, batch, hidden))
    w, u, b = (
        random(rng, 1, 1, inputs, gates, hidden),
        random(rng, 1, 1, hidden, gates, hidden),
        random(rng, 1, 1, rows, hidden),
    )
    descs = _recurrent_descs(steps, batch, inputs, hidden, gates, rows)
    values = {Arg.SRC: x, Arg.SRC_1: h, Arg.WEIGHTS: w, Arg.WEIGHTS_1: u, Arg.BIAS: b}
    if cell == "lstm":
        values[Arg.SRC_2] = c

    def model(x: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> np.ndarray:
        if cell == "lstm":
            return _lstm(x, h[0, 0].astype(np.float64), c[0, 0].astype(np.float64), w[0, 0], u[0, 0], b[0, 0])[:-1]
        return _gru(x, h[0, 0].astype(np.float64), w[0, 0], u[0, 0], b[0, 0])

    forward = run(recurrent_forward(descs, Direction.LEFT_TO_RIGHT), values)
    close(forward[Arg.DST], model(*(v.astype(np.float64) for v in (x, w, u, b))))
    close(forward[Arg.DST_1][0, 0], forward[Arg.DST][-1])

    # The backward: one random direction of (x, w, u, b) against the difference quotient.
    g = random(rng, steps, batch, hidden)
    zero = np.zeros((1, 1, batch, hidden), np.float32)
    values |= {arg: forward[arg] for arg in (Arg.DST, Arg.DST_1, Arg.WORKSPACE)} | {
        Arg.DIFF_DST: g,
        Arg.DIFF_DST_1: zero,
    }
    if cell == "lstm":
        values |= {Arg.DST_2: forward[Arg.DST_2], Arg.DIFF_DST_2: zero}
    gradients = run(recurrent_backward(descs, descs, Direction.LEFT_TO_RIGHT), values)
    points = [v.astype(np.float64) for v in (x, w, u, b)]
    directions = [rng.standard_normal(v.shape) for v in points]
    step = 1e-6
    up = model(*(v + step * d for v, d in zip(points, directions, strict=True)))
    down = model(*(v - step * d for v, d in zip(points, directions, strict=True)))
    expected = ((up - down) / (2 * step) * g).sum()
    found = (gradients[arg] for arg in (Arg.DIFF_SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_WEIGHTS_1, Arg.DIFF_BIAS))
    actual = sum((value * d).sum() for value, d in zip(found, directions, strict=True))
    assert actual == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_one_primitive_runs_in_two_threads_at_once(rng: np.random.Generator) -> None:
    x, w = random(rng, 4, 16, 20, 20), random(rng, 32, 16, 3, 3)
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    primitive = convolution_forward(image(*x.shape), MemoryDesc.any(w.shape, F32), None, image(4, 32, 20, 20), window)
    inputs = [x * factor for factor in (1.0, 2.0)]
    expected = [run(primitive, {Arg.SRC: value, Arg.WEIGHTS: w})[Arg.DST] for value in inputs]
    mismatches: list[int] = []

    def work(which: int) -> None:
        mismatches.extend(
            which for _ in range(20)
            if not np.array_equal(run(primitive, {Arg.SRC: inputs[which], Arg.WEIGHTS: w})[Arg.DST], expected[which])
        )  # fmt: skip

    workers = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert mismatches == []


def test_native_code_can_execute_it(rng: np.random.Generator) -> None:
    """What a jitted program does: a call through plain addresses."""
    a, b = random(rng, 32, 16), random(rng, 16, 24)
    out = np.zeros((32, 24), np.float32)
    primitive = matmul(plain(32, 16), plain(16, 24), plain(32, 24))
    scratch = aligned(primitive.scratchpad_nbytes)
    execution = Execution(primitive, {Arg.SRC: a.ctypes.data, Arg.WEIGHTS: b.ctypes.data})
    assert set(execution.unbound()) == {Arg.DST} | ({Arg.SCRATCHPAD} if scratch.size else set())
    execution.bind(Arg.DST, out.ctypes.data)
    if scratch.size:
        execution.bind(Arg.SCRATCHPAD, scratch.ctypes.data)
    lib = library.require()
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    threads.ensure_width()
    status = signature(lib.execute_address)(primitive.handle, lib.stream, execution.nargs, execution.address)
    assert status == 0
    close(out, a @ b)


def test_arguments_are_listed_with_their_sizes() -> None:
    primitive = matmul(plain(8, 4), plain(4, 6), plain(8, 6))
    listed = {argument.index: (argument.nbytes, argument.output) for argument in primitive.arguments}
    scratch = listed.pop(int(Arg.SCRATCHPAD), None)
    assert listed == {Arg.SRC: (128, False), Arg.WEIGHTS: (96, False), Arg.DST: (192, True)}
    assert (scratch[0] if scratch else 0) == primitive.scratchpad_nbytes
    assert not primitive.exact
    with pytest.raises(KeyError, match="no argument BIAS"):
        primitive.desc(Arg.BIAS)


def test_running_with_unbound_arguments_is_refused() -> None:
    execution = Execution(matmul(plain(8, 4), plain(4, 6), plain(8, 6)))
    with pytest.raises(RuntimeError, match="arguments without memory"):
        execution.run()
    with pytest.raises(KeyError, match="no argument 41"):
        execution.bind(Arg.BIAS, 1)


def test_handles_are_destroyed_with_their_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed: list[str] = []
    lib = library.require()
    original = lib.call

    def spy(name: str, *arguments: object, what: str = "") -> None:
        destroyed.append(name)
        original(name, *arguments, what=what)

    monkeypatch.setattr(lib, "call", spy)
    execution = Execution(matmul(plain(8, 4), plain(4, 6), plain(8, 6)))
    count = execution.nargs
    destroyed.clear()
    del execution
    gc.collect()
    assert destroyed.count("memory_destroy") == count
    assert destroyed.count("primitive_destroy") == 1
    assert destroyed.count("memory_desc_destroy") >= count


def test_unsupported_dtypes_say_so() -> None:
    double = MemoryDesc.strided((4, 4), np.dtype(np.float64))
    with pytest.raises(Unsupported, match="dnnl_matmul_primitive_desc_create: unimplemented"):
        matmul(double, double, double)


def test_impossible_shapes_raise_runtime_error_with_the_shapes() -> None:
    with pytest.raises(RuntimeError, match=r"dnnl_matmul_primitive_desc_create: invalid_arguments.*\(8, 4\).*\(5, 6\)"):
        matmul(plain(8, 4), plain(5, 6), plain(8, 6))


def test_three_dimensional_weight_gradient_avoids_the_kernel_that_reads_behind_its_input() -> None:
    window = Window((4, 4, 2), (2, 1, 2), ((3, 2), (2, 1), (1, 1)), (1, 1, 1))
    primitive = convolution_backward_weights(
        image(2, 3, 2, 1, 4), MemoryDesc.any((4, 3, 4, 4, 2), F32), None, image(2, 4, 2, 1, 3), window
    )
    assert "gemm" in primitive.implementation


def test_post_ops_are_part_of_the_public_vocabulary() -> None:
    assert base.Eltwise(Alg.ELTWISE_RELU) == Eltwise(Alg.ELTWISE_RELU)
    assert Sum() == Sum(1.0)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 40, 30), (40, 30, 1), (600, 8, 520), (256, 256, 1024)])
def test_shapes_for_which_gemm_is_chosen(rng: np.random.Generator, m: int, k: int, n: int) -> None:
    a, b, bias = random(rng, m, k), random(rng, k, n), random(rng, 1, n)
    primitive = matmul(plain(m, k), plain(k, n), plain(m, n), plain(1, n), [Eltwise(Alg.ELTWISE_RELU)])
    assert "gemm" in primitive.implementation
    close(run(primitive, {Arg.SRC: a, Arg.WEIGHTS: b, Arg.BIAS: bias})[Arg.DST], np.maximum(a @ b + bias, 0))


def test_gemm_is_not_forced_where_there_is_none() -> None:
    half = MemoryDesc.strided((1, 40), BFLOAT16)
    assert matmul(half, MemoryDesc.strided((40, 30), BFLOAT16), MemoryDesc.strided((1, 30), BFLOAT16)).implementation
    assert "gemm" not in matmul(plain(64, 64), plain(64, 64), plain(64, 64)).implementation


def test_reorders_are_only_made_where_layouts_differ() -> None:
    assert reorder_if_needed(plain(4, 6), plain(4, 6)) is None
    primitive = reorder_if_needed(plain(4, 6), MemoryDesc.strided((4, 6), F32, (1, 4)))
    assert primitive is not None and primitive.name == "reorder"
