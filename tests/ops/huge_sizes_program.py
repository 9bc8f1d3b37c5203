"""Calls with sizes that no machine has, one after the other; run by `test_huge_sizes.py` with little memory.

Prints the name of a call before it starts, so that the one that crashes or hangs is known, and `done` at the end. Answers
that are no result and no documented error, and memory taken by the number, are printed as lines that start with "wrong".
"""

from __future__ import annotations

import resource
import sys
import warnings
from functools import partial

import numpy as np

import weft as wf
from weft import nn
from weft.nn import functional as F
from weft.ops.core.registry import table
from weft.ops.core.samples import Maker
from weft.ops.internal import (
    deferred_tables as deferred_tables,  # the one op file that is not imported with the package
)

HUGE = [2**31, 2**62, -(2**63), 2**64, 10**30]
ALLOWED = (TypeError, ValueError, IndexError, OverflowError, MemoryError, RuntimeError)
MEGABYTES = 300  # that a refused or tiny result may take at most
ADDRESS_SPACE = 2**31  # bytes beyond what the program has after its start


def spoilt(value, annotation, huge):
    """`value` of an attribute with `huge` in place of a number; None where there is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, np.integer)):
        return huge
    if isinstance(value, tuple) and value and not isinstance(value[0], np.ndarray):
        first = spoilt(value[0], annotation, huge)
        return None if first is None else (first, *value[1:])
    return huge if value is None and "int" in annotation else None


def op_calls(some):
    """Every integer attribute of every op, with each huge number, or with `some` one of them in turn."""
    turn = 0
    for op in table.values():
        seen = set()
        for sample in op.samples(Maker(len(op.name))):
            if len(sample.args) > op.num_positional:  # *operands, none of which is a number
                continue
            values = op.bind(sample.args, sample.kwargs)
            for slot in op.attr_slots:
                name = op.parameters[slot]
                annotation = str(op.fn.__annotations__.get(name, ""))
                if slot in seen or spoilt(values[slot], annotation, 1) is None:
                    continue
                seen.add(slot)
                turn += 1
                for huge in [HUGE[turn % len(HUGE)]] if some else HUGE:
                    new = [tensor(v) for v in values]
                    new[slot] = spoilt(values[slot], annotation, huge)
                    yield f"{op.name} {name}={new[slot]}", op, new


def tensor(value):
    if isinstance(value, np.ndarray):
        return wf.asarray(value.astype(np.float32) if value.dtype.kind == "f" else value)
    return tuple([tensor(v) for v in value]) if isinstance(value, tuple) else value


def leaves(values):
    return [t for v in values for t in (v if isinstance(v, tuple) else (v,)) if isinstance(t, wf.Tensor)]


def swapped(value, new):
    """`value` with its tensors replaced by the next ones of `new`."""
    if isinstance(value, wf.Tensor):
        return next(new)
    return tuple([swapped(x, new) for x in value]) if isinstance(value, tuple) else value


def call_op(op, values, *tensors):
    rest, n = iter(tensors), op.num_positional
    new = [swapped(v, rest) for v in values]
    return op.call(*new[:n], **dict(zip(op.parameters[n:], new[n:], strict=True)))


def floating(t):
    return t.dtype.name.startswith(("float", "complex"))


def eager(function, tensors):
    given = [t.detach().clone().requires_grad_() if floating(t) else t for t in tensors]
    out = function(*given)
    total = sum([wf.abs(t).sum() for t in (out if isinstance(out, (tuple, list)) else [out])
                 if isinstance(t, wf.Tensor) and t.requires_grad])  # fmt: skip
    if isinstance(total, wf.Tensor):
        return wf.grad(total, [t for t in given if floating(t)], allow_unused=True)
    return None


def captured(function, tensors):
    return wf.function(lambda *given: eager(function, given))(*tensors)


def graph(function, tensors):
    declared = wf.Graph()
    with declared.as_default():
        fed = [wf.placeholder(t.dtype, (None, *t.shape[1:])) for t in tensors]
        out = function(*fed)
        fetches = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, wf.Tensor)]
    with wf.Session(declared) as session:
        return session.run(fetches, dict(zip(fed, tensors, strict=True)), timeout=20)


def repeat_each(x, huge):
    return wf.repeat(x, [huge] + [1] * (len(x) - 1))


def layer_calls(huge):
    """Functions and layers that make something by the number. Sizes of powers of two overflow to 0 when multiplied."""
    four, image = wf.ones(4), wf.ones((1, 4, 4, 4))
    calls = {
        "repeat": lambda x: wf.repeat(x, huge), "repeat each": lambda x: repeat_each(x, huge),
        "tile": lambda x: wf.tile(x, (4, huge)), "pad": lambda x: F.pad(x, (huge, huge)),
        "broadcast": lambda x: wf.broadcast_to(x, (huge, 4)) * 2, "irfft": lambda x: wf.fft.irfft(x + 0j, huge),
    }  # fmt: skip
    for name, call in calls.items():
        yield f"{name} {huge}", call, [four]
    calls = {
        "local_response_norm": lambda x: F.local_response_norm(x, huge),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, huge),
        "interpolate": lambda x: F.interpolate(x, size=huge, mode="bicubic"),
        "avg_pool2d": lambda x: F.avg_pool2d(x, huge),
        "unfold": lambda x: F.unfold(x, 2, padding=huge),
        "replication pad": lambda x: F.pad(x, (huge, 1), mode="replicate"),
    }
    for name, call in calls.items():
        yield f"{name} {huge}", call, [image]
    calls = {
        "configure_devices": lambda: wf.configure_devices(huge), "ref devices": lambda: wf.configure_devices(1, huge),
        "LSTM layers": lambda: nn.LSTM(2, 2, huge), "Linear": lambda: nn.Linear(huge, huge),
        "encoder layers": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 4), huge),
        "affine_grid": lambda: F.affine_grid(wf.ones((1, 2, 3)), (1, 1, huge, huge)), "eye": lambda: wf.eye(huge),
        "gpt layers": lambda: wf.models.GPT(4, 4, huge, 1, 4), "linspace": lambda: wf.linspace(0, 1, huge),
    }  # fmt: skip
    for name, call in calls.items():
        yield f"{name} {huge}", call, []


def alias_calls(huge):
    """PyTorch's and NumPy's names that take a number."""
    calls = {
        "as_strided size": lambda x: x.as_strided((huge,), (0,)), "as_strided stride": lambda x: x.as_strided((2,), (huge,)),
        "as_strided offset": lambda x: x.as_strided((2,), (1,), huge), "diag_embed": lambda x: wf.diag_embed(x, huge),
        "diagflat": lambda x: wf.diagflat(x, huge), "unfold size": lambda x: x.unfold(0, huge, 1),
        "unfold step": lambda x: x.unfold(0, 2, huge), "narrow": lambda x: wf.narrow(x, 0, 0, huge),
        "narrow start": lambda x: wf.narrow(x, 0, huge, 1), "select": lambda x: wf.select(x, 0, huge),
        "tensor_split": lambda x: wf.tensor_split(x, huge), "hsplit": lambda x: wf.hsplit(x, huge),
        "vander": lambda x: wf.vander(x, huge), "combinations": lambda x: wf.combinations(x, huge),
        "histc": lambda x: wf.histc(x, huge), "stft": lambda x: wf.stft(x, huge, return_complex=True),
        "stft hop": lambda x: wf.stft(x, 2, hop_length=huge, return_complex=True),
        "repeat_interleave": lambda x: wf.repeat_interleave(x, huge),
        "istft": lambda x: wf.istft(wf.ones(3, 4) + 0j * x, 4, length=huge), "new_zeros": lambda x: x.new_zeros((huge,)),
        "new_full": lambda x: x.new_full((huge, 2), 1.0), "expand": lambda x: x.expand(huge, 4) * 2,
        "matrix_power": lambda x: wf.linalg.matrix_power(wf.diagflat(x), huge), "rot90": lambda x: wf.rot90(wf.diagflat(x), huge),
        "round": lambda x: wf.round(x, decimals=huge), "polygamma": lambda x: wf.polygamma(huge, x),
        "multigammaln": lambda x: wf.special.multigammaln(x, huge), "fft2": lambda x: wf.fft.fft2(wf.diagflat(x), (huge, 2)),
        "kthvalue": lambda x: wf.kthvalue(x, huge), "topk": lambda x: wf.topk(x, huge), "chunk": lambda x: wf.chunk(x, huge),
        "cov": lambda x: wf.cov(wf.diagflat(x), correction=huge), "movedim": lambda x: wf.movedim(x, huge, 0),
        "triu": lambda x: wf.triu(wf.diagflat(x), huge), "roll": lambda x: wf.roll(x, huge),
        "renorm": lambda x: wf.renorm(wf.diagflat(x), huge, 0, 1.0),
        "index_select": lambda x: wf.index_select(x, 0, wf.tensor([min(huge, 2**62)])), "glu": lambda x: F.glu(x, huge),
        "logspace": lambda x: wf.logspace(x[0], 1.0, huge), "unsqueeze": lambda x: wf.unsqueeze(x, huge),
    }  # fmt: skip
    for name, call in calls.items():
        yield f"{name} {huge}", call, [wf.ones(4)]
    calls = {
        "tril_indices": lambda: wf.tril_indices(huge, 2), "triu_indices": lambda: wf.triu_indices(2, huge),
        "tril_indices offset": lambda: wf.tril_indices(2, 2, huge), "hann_window": lambda: wf.hann_window(huge),
        "kaiser": lambda: wf.bartlett_window(huge), "eye columns": lambda: wf.eye(2, huge),
    }  # fmt: skip
    for name, call in calls.items():
        yield f"{name} {huge}", call, []


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(mode):
    warnings.simplefilter("ignore")
    run = {"eager": eager, "captured": captured, "graph": graph}[mode]
    calls = [
        (name, partial(call_op, op, values), leaves(values)) for name, op, values in op_calls(some=mode != "eager")
    ]
    calls += [call for huge in HUGE for call in (*layer_calls(huge), *alias_calls(huge))]
    wf.function(lambda x: wf.sum(x @ x))(wf.ones((100, 100)))  # load what is loaded on first use
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name, function, tensors in calls:
        print(name, flush=True)
        before = peak()
        try:
            run(function, tensors)
        except ALLOWED as error:
            if not str(error):
                print(f"wrong: {name}: {type(error).__name__} without a message", flush=True)
        except Exception as error:
            print(f"wrong: {name}: {type(error).__name__}: {error}", flush=True)
        if peak() - before > MEGABYTES:
            print(f"wrong: {name}: took {peak() - before:.0f} MB", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
