"""The words of PyTorch and of NumPy: both are understood, and where they mean different things the word chooses."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft.nn import functional as F

X = wf.tensor([[3.0, 1.0, 2.0, 4.0], [5.0, 5.0, 0.0, -1.0]])
Y = wf.tensor([[0.0, 2.0, 2.0, 9.0], [1.0, 6.0, 7.0, -8.0]])
INDEX = wf.tensor([[0, 1, 0, 1], [1, 1, 0, 0]])


def same(a, b) -> None:
    for one, other in zip(_leaves(a), _leaves(b), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)  # captured functions may round another way


def _leaves(value):
    if isinstance(value, (tuple, list)) and any(isinstance(v, wf.Tensor) for v in value):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value.numpy() if isinstance(value, wf.Tensor) else np.asarray(value)]


SAME = {
    "sum(dim)": (lambda: wf.sum(X, dim=1, keepdim=True), lambda: wf.sum(X, axis=1, keepdims=True)),
    "sum by position": (lambda: wf.sum(X, 1, True), lambda: wf.sum(X, axis=1, keepdims=True)),
    "sum method": (lambda: X.sum((0, 1)), lambda: X.sum(axis=(0, 1))),
    "input": (lambda: wf.sum(input=X, dim=0), lambda: wf.sum(X, axis=0)),
    "input of an elementwise op": (lambda: wf.exp(input=X), lambda: wf.exp(X)),
    "other": (lambda: wf.multiply(X, other=Y), lambda: X * Y),
    "input and other": (lambda: wf.add(input=X, other=Y), lambda: X + Y),
    "alpha": (lambda: wf.add(X, Y, alpha=2), lambda: X + 2 * Y),
    "alpha in place": (lambda: X.clone().add_(Y, alpha=-0.5), lambda: X - 0.5 * Y),
    "sub(alpha)": (lambda: X.sub(Y, alpha=3), lambda: X - 3 * Y),
    "argmax by position": (lambda: wf.argmax(X, 1), lambda: wf.argmax(X, axis=1)),
    "softmax(dim)": (lambda: F.softmax(input=X, dim=0), lambda: F.softmax(X, axis=0)),
    "concat by position": (lambda: wf.cat((X, Y), 1), lambda: wf.concat([X, Y], axis=1)),
    "stack(dim)": (lambda: wf.stack([X, Y], dim=2), lambda: wf.stack([X, Y], axis=2)),
    "flatten(start_dim)": (lambda: X.flatten(start_dim=0, end_dim=1), lambda: X.reshape(-1)),
    "roll(shifts, dims)": (lambda: wf.roll(X, shifts=1, dims=0), lambda: wf.roll(X, 1, axis=0)),
    "transpose": (lambda: X.transpose(dim0=0, dim1=1), lambda: X.T),
    "sizes by name": (lambda: X.view(size=(4, 2)), lambda: X.reshape(4, 2)),
    "zeros(size)": (lambda: wf.zeros(size=(2, 3)), lambda: wf.zeros(2, 3)),
    "linspace(steps)": (lambda: wf.linspace(0, 1, steps=5), lambda: wf.linspace(0.0, 1.0, 5)),
    "triu(diagonal)": (lambda: wf.triu(X, diagonal=1), lambda: wf.triu(X, k=1)),
    "where with one argument": (lambda: wf.where(X > 2), lambda: wf.nonzero(X > 2)),
    "max of two": (lambda: wf.max(X, Y), lambda: wf.maximum(X, Y)),
    "inplace": (lambda: F.relu(X.clone(), inplace=True), lambda: F.relu(X)),
    "inplace with a slope": (lambda: F.leaky_relu(X.clone(), 0.2, inplace=True), lambda: F.leaky_relu(X, 0.2)),
    "max(dim)": (lambda: X.max(dim=1), lambda: (X.max(axis=1), X.argmax(axis=1))),
    "max(position, keepdim)": (lambda: X.max(1, keepdim=True).values, lambda: X.max(axis=1, keepdims=True)),
    "min(dim)": (lambda: wf.min(X, dim=0).values, lambda: X.min(axis=0)),
    "sort(dim)": (lambda: X.sort(dim=1, descending=True), lambda: (wf.sort(X, axis=1, descending=True),
                                                                   wf.argsort(X, axis=1, descending=True))),
    "median(dim) is the lower one": (lambda: X.median(dim=1).values, lambda: wf.tensor([2.0, 0.0])),
    "median(axis) is the mean": (lambda: X.median(axis=1), lambda: wf.tensor([2.5, 2.5])),
    "median with NaN": (lambda: wf.tensor([1.0, float("nan"), 0.0]).median(dim=0).indices, lambda: wf.tensor(1)),
    "mode": (lambda: wf.tensor([[2, 1, 2], [3, 1, 0]]).mode(dim=1).values, lambda: wf.tensor([2, 0])),
    "std(dim) is of a sample": (lambda: X.std(dim=1), lambda: X.std(axis=1, correction=1)),
    "std(dim, correction=0)": (lambda: X.std(dim=1, correction=0), lambda: X.std(axis=1)),
    "var(unbiased)": (lambda: X.var(unbiased=False), lambda: X.var()),
    "std_mean": (lambda: wf.std_mean(X, dim=0), lambda: (X.std(axis=0, correction=1), X.mean(axis=0))),
    "squeeze(dim) leaves other axes": (lambda: X.squeeze(dim=0), lambda: X),
    "nonzero(as_tuple=False)": (lambda: wf.nonzero(X, as_tuple=False), lambda: wf.argwhere(X)),
    "scatter in PyTorch's order": (lambda: X.scatter(0, INDEX, Y), lambda: wf.scatter(X, INDEX, Y, axis=0)),
    "scatter of a number": (lambda: X.clone().scatter_(1, INDEX, 7.0), lambda: wf.scatter(X, 1, INDEX, wf.full((2, 4), 7.0))),
    "scatter_add": (lambda: wf.scatter_add(X, 0, INDEX, Y), lambda: wf.scatter_add(X, INDEX, Y, axis=0)),
    "index_add": (lambda: X.index_add(0, wf.tensor([1, 1]), Y, alpha=2), lambda: X + 2 * wf.stack([wf.zeros(4), Y.sum(0)])),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "captured"])
def test_both_spellings_give_the_same(mode: str) -> None:
    def check(name: str) -> None:
        spelled, plain = SAME[name]
        if mode == "captured" and "in place" not in name and "nan" not in name.lower():
            spelled = wf.function(spelled)
        same(spelled(), plain())

    sizes_depend_on_values = ("where with one argument", "nonzero(as_tuple=False)")
    each(check, {name: (name,) for name in SAME if mode == "eager" or name not in sizes_depend_on_values})


def _scatter_reduce(x, index, src, axis, how, include):
    out = x.copy()
    groups: dict = {}
    for place in np.ndindex(index.shape):
        target = list(place)
        target[axis] = index[place]
        groups.setdefault(tuple(target), []).append(src[place])
    for target, values in groups.items():
        values = [x[target], *values] if include else values
        out[target] = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[how](values)
    return out


def test_scatter_reduce_combines_what_has_one_index() -> None:
    def check(how: str, axis: int, include: bool) -> None:
        got = X.scatter_reduce(axis, INDEX, Y, how, include_self=include)
        wanted = _scatter_reduce(X.numpy(), INDEX.numpy(), Y.numpy(), axis, how, include)
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-6)

    kinds = ("sum", "prod", "mean", "amax", "amin")
    each(check, {f"{h} {a} {i}": (h, a, i) for h in kinds for a in (0, 1) for i in (True, False)})


AGAINST_NUMPY = {
    "rot90": (lambda x: wf.rot90(x, 3), lambda x: np.rot90(x, 3)),
    "rot90 of axes": (lambda x: wf.rot90(x, 1, (1, 0)), lambda x: np.rot90(x, 1, (1, 0))),
    "kron": (lambda x: wf.kron(x, x[:1]), lambda x: np.kron(x, x[:1])),
    "cov": (lambda x: wf.cov(x), np.cov),
    "corrcoef": (lambda x: wf.corrcoef(x), np.corrcoef),
    "gradient": (lambda x: wf.gradient(x, spacing=0.5)[1], lambda x: np.gradient(x, 0.5, axis=1)),
    "gradient at edges": (lambda x: wf.gradient(x, edge_order=2, dim=1)[0], lambda x: np.gradient(x, axis=1, edge_order=2)),
    "trapezoid": (lambda x: wf.trapezoid(x, dx=0.5), lambda x: np.trapezoid(x, dx=0.5)),
    "trapezoid at places": (lambda x: wf.trapezoid(x, x[0] * 2), lambda x: np.trapezoid(x, x[0] * 2)),
    "vander": (lambda x: wf.vander(x[0], 3), lambda x: np.vander(x[0], 3)),
    "block_diag": (lambda x: wf.block_diag(x, x[:, :1]), lambda x: np.block([[x, np.zeros((2, 1))],
                                                                            [np.zeros((2, 4)), x[:, :1]]])),
    "diag_embed": (lambda x: wf.diag_embed(x[0], 1), lambda x: np.diag(x[0], 1)),
    "tensor_split": (lambda x: wf.tensor_split(x, 3, dim=1)[1], lambda x: np.array_split(x, 3, 1)[1]),
    "hsplit": (lambda x: wf.hsplit(x, [1, 3])[2], lambda x: np.hsplit(x, [1, 3])[2]),
    "fmod": (lambda x: wf.fmod(x, 2.5), lambda x: np.fmod(x, np.float32(2.5))),
    "div(trunc)": (lambda x: wf.div(x, -2.0, rounding_mode="trunc"), lambda x: np.trunc(x / -2)),
    "div(trunc) of integers": (lambda x: wf.div(x.long(), -2, rounding_mode="trunc"), lambda x: np.trunc(x.astype(int) / -2)),
    "heaviside": (lambda x: wf.heaviside(x, wf.tensor(0.5)), lambda x: np.heaviside(x, 0.5)),
    "logaddexp2": (lambda x: wf.logaddexp2(x, x[:, :1]), lambda x: np.logaddexp2(x, x[:, :1])),
    "float_power": (lambda x: wf.float_power(x, 2), lambda x: np.float_power(x, 2)),
    "frexp": (lambda x: wf.frexp(x)[0], lambda x: np.frexp(x)[0]),
    "cdist": (lambda x: wf.cdist(x, x), lambda x: np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))),
    "unfold": (lambda x: x.unfold(1, 2, 2), lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1)[:, ::2]),
    "nanquantile": (lambda x: wf.nanquantile(wf.where(x > 4, float("nan"), x), 0.3, dim=1),
                    lambda x: np.nanquantile(np.where(x > 4, np.nan, x), 0.3, 1)),
    "nanvar": (lambda x: wf.nanvar(wf.where(x > 4, float("nan"), x)), lambda x: np.nanvar(np.where(x > 4, np.nan, x))),
    "matrix_exp": (lambda x: wf.linalg.matrix_exp(x[:, :2] * 0.1),
                   lambda x: np.sum([np.linalg.matrix_power(x[:, :2] * 0.1, k) / float(np.prod(range(1, k + 1) or [1]))
                                     for k in range(20)], axis=0)),
    "lstsq": (lambda x: wf.linalg.lstsq(x.T, wf.ones(4)).solution, lambda x: np.linalg.lstsq(x.T, np.ones(4))[0]),
    "cond": (lambda x: wf.linalg.cond(x[:, :2]), lambda x: np.linalg.cond(x[:, :2])),
    "norm": (lambda x: wf.linalg.norm(x, 1, axis=(0, 1)), lambda x: np.linalg.norm(x, 1)),
    "multi_dot": (lambda x: wf.linalg.multi_dot([x[0], x.T, x]), lambda x: np.linalg.multi_dot([x[0], x.T, x])),
    "unique along an axis": (lambda x: wf.unique(wf.cat([x, x]), dim=0), lambda x: np.unique(np.concatenate([x, x]), axis=0)),
    "histc": (lambda x: wf.histc(x, 4, -1, 5), lambda x: np.histogram(x, 4, (-1, 5))[0]),
    "bucketize": (lambda x: wf.bucketize(x, wf.tensor([0.0, 2.0, 4.0])), lambda x: np.digitize(x, [0.0, 2.0, 4.0], right=True)),
    "chain_matmul": (lambda x: wf.chain_matmul(x, x.T, x), lambda x: x @ x.T @ x),
    "as_strided": (lambda x: x.as_strided((3, 2), (2, 1)), lambda x: np.lib.stride_tricks.as_strided(x, (3, 2), (8, 4))),
}  # fmt: skip


def test_names_of_numpy_and_pytorch_compute_what_numpy_does() -> None:
    def check(name: str) -> None:
        ours, theirs = AGAINST_NUMPY[name]
        np.testing.assert_allclose(ours(X).numpy(), theirs(X.numpy()), rtol=2e-5, atol=1e-6)

    each(check, {name: (name,) for name in AGAINST_NUMPY})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: X.max(1), r"`x.max\(axis=1\)` gives values, PyTorch's `x.max\(dim=1\)` gives values and indices"),
        (lambda: X.std(0), r"that of the population.*the unbiased one of a sample"),
        (lambda: X.sort(0), "an axis by position is ambiguous"),
        (lambda: X.max(axis=1, keepdim=True), "got 'axis', a word of NumPy's, and 'keepdim', one of PyTorch's"),
        (lambda: X.std(dim=1, keepdims=True), "got 'keepdims', a word of NumPy's, and 'dim'"),
        (lambda: wf.sum(X, axis=1, dim=1), "two values for argument 'axis', as 'axis' and as 'dim'"),
        (lambda: wf.argmax(X, 1, dim=1), "two values for argument 'axis'"),
        (lambda: F.softmax(X, axis=0, dim=0), "two values for argument 'axis'"),
        (lambda: X.var(unbiased=True, correction=1), "say the same"),
        (lambda: wf.exp(X, inplace=True), r"unexpected argument 'inplace'. Write `x.exp_\(\)`"),
        (lambda: wf.multiply(X, Y, alpha=2), "unexpected argument 'alpha'"),
        (lambda: wf.sum(X, out=X), r"`out` is not supported. Write `out.copy_\(wf.sum\(...\)\)`"),
        (lambda: wf.sum(X, 1, True, 3), "takes 1 positional argument but 4 were given"),
        (lambda: wf.bmm(X, X), "expected a batch of matrices and a batch of matrices.*`matmul` broadcasts"),
    ],
)
def test_calls_that_mix_or_repeat_words_are_refused(call, words: str) -> None:
    with pytest.raises(TypeError if "expected a batch" not in words else ValueError, match=words):
        call()


def test_gradients_of_the_forms_with_indices_go_to_the_chosen_elements() -> None:
    x = wf.tensor([[1.0, 5.0, 5.0], [2.0, 0.0, 1.0]], requires_grad=True)
    x.max(dim=1).values.sum().backward()
    assert x.grad.tolist() == [[0, 1, 0], [1, 0, 0]]
    x.grad = None
    (x.sort(dim=1).values * wf.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[1, 2, 3], [3, 1, 2]]
    x.grad = None
    x.scatter(1, wf.tensor([[0], [0]]), 9.0).sum().backward()
    assert x.grad.tolist() == [[0, 1, 1], [0, 1, 1]]


def test_the_size_is_a_number_and_can_be_called() -> None:
    assert X.size == 8 and X.size() == (2, 4) and X.size(-1) == 4 and X.size(dim=0) == 2 and isinstance(X.size, int)
    with pytest.raises(IndexError, match="axis 2 is out of range"):
        X.size(2)


def test_data_shares_memory_and_writes_without_history() -> None:
    p = wf.ones(3, requires_grad=True)
    p.data.mul_(2)
    p.data = p.data + 1
    assert p.tolist() == [3, 3, 3] and p.requires_grad and p.is_leaf
    with pytest.raises(ValueError, match="the new values must have the shape"):
        p.data = wf.zeros(2)


def test_devices_are_values_and_those_that_do_not_exist_are_named() -> None:
    device = wf.device("cuda" if wf.cuda.is_available() else "cpu")
    x = wf.zeros(2, device=device).to(device, non_blocking=True)
    assert x.device == device and device.type == "cpu" and not x.is_cuda and str(device) == "cpu"
    with pytest.raises(ValueError, match="cpu"):
        wf.zeros(2, device="cuda")
    with pytest.raises(ValueError, match="cpu"):
        wf.device("cuda")


def test_short_time_transforms_invert_each_other() -> None:
    signal = wf.tensor(np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32))
    window = wf.hann_window(16)
    spectra = wf.stft(signal, 16, 4, window=window)
    assert spectra.shape == (2, 9, 17)
    frame = signal.numpy()[0, 4:20] * window.numpy()
    np.testing.assert_allclose(spectra[0, :, 3].numpy(), np.fft.rfft(frame), atol=1e-5)
    np.testing.assert_allclose(wf.istft(spectra, 16, 4, window=window, length=64).numpy(), signal.numpy(), atol=1e-5)
