"""Tensors in other libraries: buffers, Arrow (pyarrow, polars) and einops."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import arrow

TENSORS = {
    "integers": (wf.arange(5),),
    "matrix": (wf.ones(2, 3),),
    "booleans": (wf.tensor([True, False, True] * 3),),
    "three axes": (wf.arange(24, dtype=wf.float64).reshape(2, 3, 4),),
    "empty": (wf.ones(0),),
    "strided": (wf.arange(10)[::2],),
    "float16": (wf.ones(3, dtype=wf.float16),),
}


def test_tensors_are_buffers():
    t = wf.arange(6).reshape(2, 3)
    view = t.__buffer__(0) if sys.version_info < (3, 12) else memoryview(t)
    assert view.shape == (2, 3) and view.tolist() == t.tolist()
    view[1, 2] = 50
    assert t[1, 2].item() == 50
    with pytest.raises(RuntimeError, match="memoryview: the tensor requires gradients"):
        wf.ones(2, requires_grad=True).__buffer__(0)
    with pytest.raises(BufferError, match="read-only"):
        wf.asarray(np.broadcast_to(np.ones(1), (2,))).__buffer__(1)


def test_arrow_capsules_release_what_they_hold():
    def check(t):
        before = len(arrow._held), len(arrow._structures)
        capsules = t.__arrow_c_array__()
        assert len(arrow._held) == before[0] + 2 * max(t.ndim, 1)
        del capsules
        gc.collect()
        assert (len(arrow._held), len(arrow._structures)) == before

    each(check, TENSORS)
    cases = {
        "gradient": (lambda: wf.ones(2, requires_grad=True), RuntimeError, "Arrow: the tensor requires gradients"),
        "bfloat16": (lambda: wf.ones(2, dtype=wf.bfloat16), TypeError, "no type for bfloat16"),
        "complex": (lambda: wf.ones(2, dtype=wf.complex64), TypeError, "x.real"),
        "scalar": (lambda: wf.tensor(1.0), ValueError, "without axes"),
    }

    def refused(make, error, text):
        with pytest.raises(error, match=text):
            make().__arrow_c_array__()

    each(refused, cases)


def test_pyarrow_takes_tensors():
    pa = pytest.importorskip("pyarrow")

    def check(t):
        array = pa.array(t)
        array.validate(full=True)
        assert array.to_pylist() == t.tolist()

    each(check, TENSORS)
    x = wf.arange(4)
    assert pa.array(x).buffers()[1].address == x.numpy().ctypes.data
    assert pa.table({"x": x}).to_pydict() == {"x": [0, 1, 2, 3]}


def test_polars_takes_tensors():
    pl = pytest.importorskip("polars")
    each(lambda t: pl.Series(t).to_list() == t.tolist() or pytest.fail("differs"), TENSORS)
    assert pl.DataFrame({"x": wf.arange(3)})["x"].to_list() == [0, 1, 2]


def test_einops_takes_tensors_and_has_layers():
    einops = pytest.importorskip("einops")
    from weft import einops as layers

    x = wf.arange(24, dtype=wf.float32).reshape(2, 3, 4)
    a = x.numpy()
    cases = {
        "rearrange": lambda v: einops.rearrange(v, "b c (h w) -> b (h c) w", h=2),
        **{
            f"reduce {r}": lambda v, r=r: einops.reduce(v, "b c w -> c b", r)
            for r in ("min", "max", "sum", "mean", "prod")
        },
        "repeat": lambda v: einops.repeat(v, "b c w -> (b r) c w s", r=2, s=3),
        "list": lambda v: einops.rearrange([v, v], "n b c w -> b n c w"),
        "einsum": lambda v: einops.einsum(v, v, "b c w, b d w -> b c d"),
        "pack": lambda v: einops.pack([v, v], "b * w")[0],
        "shape": lambda v: einops.parse_shape(v, "b _ w"),
    }

    def check(call):
        found, expected = call(x), call(a)
        if isinstance(expected, dict):
            assert found == expected
            return
        assert isinstance(found, wf.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)

    each(check, {name: (call,) for name, call in cases.items()})
    y = wf.ones(2, 3, requires_grad=True)
    einops.rearrange(y, "a b -> b a").sum().backward()
    assert y.grad.shape == (2, 3)
    flat = wf.function(lambda v: einops.rearrange(v, "b c w -> b (c w)") * 2.0)
    assert flat(x).tolist() == (a.reshape(2, -1) * 2).tolist()
    model = wf.nn.Sequential(
        layers.Rearrange("b c w -> b (c w)"),
        layers.EinMix("b i -> b o", weight_shape="i o", bias_shape="o", i=12, o=5),
        layers.Reduce("b o -> b", "mean"),
    )
    out = model(x)
    assert out.shape == (2,) and len(list(model.parameters())) == 2
    out.sum().backward()
    assert model[1].weight.grad.shape == (12, 5)


@pytest.mark.parametrize("first", ["weft", "einops"])
def test_either_may_be_imported_first(first):
    pytest.importorskip("einops")
    second = "einops" if first == "weft" else "weft"
    code = f"import {first}, {second}; print(einops.rearrange(weft.ones(2, 3), 'a b -> b a').shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "(3, 2)", done.stderr


def test_importing_weft_leaves_other_packages_alone():
    code = "import sys, weft; print('einops' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "False"], done.stderr
