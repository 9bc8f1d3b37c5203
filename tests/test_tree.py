"""Trees of tensors: `weft.tree`, and the transforms and captured functions that take them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import nn


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Layer:
    w: Any
    b: Any = None


@dataclass(frozen=True)
class Frozen:
    w: Any
    name: str = field(default="", metadata={"static": True})


@dataclass
class Derived:
    w: Any
    half: Any = field(init=False)

    def __post_init__(self):
        self.half = self.w * 0.5
        self.doubled = self.w * 2


@dataclass(frozen=True, slots=True)
class Slotted:
    w: Any


class Registered:
    def __init__(self, children, tag):
        self.children, self.tag = children, tag

    def __eq__(self, other):
        return isinstance(other, Registered) and (self.children, self.tag) == (other.children, other.tag)


wf.register_pytree_node(Registered, lambda r: (r.children, r.tag), lambda tag, items: Registered(list(items), tag))


@wf.register_pytree_node_class
class ByMethods:
    def __init__(self, w):
        self.w = w

    def tree_flatten(self):
        return (self.w,), "rest"

    @classmethod
    def tree_unflatten(cls, rest, children):
        assert rest == "rest"
        return cls(*children)


def containers(w):
    """Every kind of container, with `w` in it."""
    return {
        "tensor": w,
        "dict": {"w": w, "b": None},
        "ordered": OrderedDict(w=w),
        "defaultdict": defaultdict(list, w=w),
        "list": [[w]],
        "tuple": ((w,), ()),
        "named": Point(w, None),
        "dataclass": Layer(w),
        "frozen": Frozen(w, "name"),
        "slots": Slotted(w),
        "registered": Registered([w], "tag"),
        "methods": ByMethods(w),
        "nested": {"layers": [Layer(w), Point(None, Frozen((w,)))], "none": None},
    }


def total(tree):
    return sum([(t * t).sum() for t in wf.tree_leaves(tree) if isinstance(t, wf.Tensor)])


def test_every_container_comes_back_as_it_was():
    def check(tree):
        leaves, treedef = wf.tree_flatten(tree)
        assert all(v == 3 for v in leaves) and treedef.num_leaves == len(leaves)
        again = wf.tree_unflatten(treedef, leaves)
        assert type(again) is type(tree) and wf.tree_structure(again) == treedef and hash(treedef) is not None
        assert wf.tree_leaves(wf.tree_map(lambda v: v + 1, tree)) == [4] * len(leaves)
        assert wf.tree_unflatten(leaves, treedef) is not None  # PyTorch's order

    each(check, {name: (tree,) for name, tree in containers(3).items()})
    assert wf.tree_map(lambda v: v, containers(3)["defaultdict"]).default_factory is list
    assert wf.tree_map(lambda v: v, containers(3)["frozen"]).name == "name"
    again = wf.tree_map(lambda v: v + 1, Derived(4))
    assert (again.w, again.half, again.doubled) == (5, 3.0, 10)  # a field that is no argument is a leaf like others


def test_functions_of_trees():
    tree = {"a": 1, "b": (2, [3])}
    assert wf.tree_reduce(lambda x, y: x + y, tree) == 6 and wf.tree_reduce(max, [], 7) == 7
    assert wf.tree.map(lambda x, y: x * y, tree, {"b": [10, (100,)], "a": 5}) == {"a": 5, "b": (20, [300])}
    assert wf.tree.map(str, {"a": None}, is_leaf=lambda v: v is None) == {"a": "None"}
    assert wf.tree.leaves_with_path({"layer1": Layer(1, [2])}) == [('["layer1"].w', 1), ('["layer1"].b[0]', 2)]
    assert repr(wf.tree_structure({"p": Point(1, Layer(2))})) == "TreeDef({'p': Point(x=*, y=Layer(w=*, b=None))})"
    assert wf.tree_structure(Frozen(1, "a")) != wf.tree_structure(Frozen(1, "b"))
    model = nn.Linear(2, 1)
    assert wf.tree_leaves([model])[0] is model
    from weft.utils import _pytree as pytree

    assert pytree.tree_map_only(int, lambda v: -v, tree) == {"a": -1, "b": (-2, [-3])}


def test_mistakes_name_the_leaf():
    ones = wf.ones(2)
    params = {"layer1": Layer(ones, wf.ones(2, dtype=wf.int64))}

    def loss(params, x=None):
        return total(params)

    cases = {
        "keys": (
            lambda: wf.tree_map(max, {"a": {"b": 1}}, {"a": {"c": 1}}),
            r'tree 2\["a"\] has other keys: missing \'b\'',
        ),
        "kind": (lambda: wf.tree_map(max, {"a": [1]}, {"a": 1}), r'tree 2\["a"\] must be nested like \[\*\]'),
        "count": (lambda: wf.tree_unflatten(wf.tree_structure([1, 2]), [1]), "expected 2 leaves"),
        "integers": (lambda: wf.grad_fn(loss)(params), r'grad: params\["layer1"\]\.b has no gradient'),
        "text": (lambda: wf.vjp(loss, {"a": "text"}), r'vjp: params\["a"\] must be a tensor'),
        "tangent": (
            lambda: wf.jvp(loss, [{"a": ones}], [{"a": wf.ones(3)}]),
            r'jvp: tangent 0\["a"\] must have the shape',
        ),
        "cotangent": (lambda: wf.vjp(lambda x: {"y": x}, ones)[1]({"y": wf.ones(3)}), r'cotangent\["y"\] must have'),
        "batch": (
            lambda: wf.vmap(lambda p: p["a"])({"a": wf.ones(3), "b": wf.ones(4)}),
            r'\(3,\) \(p\["a"\]\) and \(4,\) \(p\["b"\]\)',
        ),
        "axes": (lambda: wf.vmap(lambda p: p["a"], in_axes=({"c": 0},))({"a": wf.ones(3)}), r"in_axes\s?.*other keys"),
        "argnums": (lambda: wf.grad_fn(loss, argnums=3)(params), "argnums 3 is out of range for 1"),
        "registered": (lambda: wf.register_pytree_node(Registered, None, None), "is registered already"),
        "built in": (lambda: wf.register_pytree_node(list, None, None), "is built in"),
        "aux": (lambda: wf.tree_leaves(Registered([], [])), "must be hashable"),
    }

    def check(call, text):
        with pytest.raises((TypeError, ValueError), match=text):
            call()

    each(check, cases)


def test_derivatives_are_nested_like_the_arguments():
    w = wf.tensor([1.0, 2.0])

    def check(tree):
        same = lambda found: wf.tree_structure(found) == wf.tree_structure(tree)
        gradient = wf.grad_fn(total)(tree)
        assert same(gradient) and all(g.tolist() == [2.0, 4.0] for g in wf.tree_leaves(gradient))
        value, gradient = wf.value_and_grad(lambda x, t: total(t) * x, argnums=(1,))(2.0, tree)
        assert same(gradient[0]) and wf.tree_leaves(gradient)[0].tolist() == [4.0, 8.0]
        doubled, pullback = wf.vjp(lambda t: wf.tree_map(lambda v: v * v, t), tree)
        assert same(doubled) and same(pullback(tree)[0])
        assert wf.tree_leaves(pullback(tree))[0].tolist() == [2.0, 8.0]
        out, slope = wf.jvp(lambda t: wf.tree_map(lambda v: v * v, t), [tree], [tree])
        assert same(out) and same(slope) and wf.tree_leaves(slope)[0].tolist() == [2.0, 8.0]
        twice = wf.grad_fn(lambda t: total(wf.grad_fn(total)(t)))(tree)
        assert same(twice) and wf.tree_leaves(twice)[0].tolist() == [8.0, 16.0]
        mapped = wf.vmap(lambda t: wf.tree_map(lambda v: v + 1, t))(tree)
        assert same(mapped) and wf.tree_leaves(mapped)[0].tolist() == [2.0, 3.0]
        checkpointed = wf.grad_fn(lambda t: wf.checkpoint(total, t))(tree)
        assert same(checkpointed) and wf.tree_leaves(checkpointed)[0].tolist() == [2.0, 4.0]

    each(check, {name: (tree,) for name, tree in containers(w).items()})
    gradients = wf.grad(total)({"w": w, "skip": None})  # JAX's spelling
    assert gradients["w"].tolist() == [2.0, 4.0] and gradients["skip"] is None
    leaf = w.clone().requires_grad_()
    assert wf.grad(total(leaf), {"a": leaf})["a"].tolist() == [2.0, 4.0]
    with pytest.raises(RuntimeError, match=r'does not depend on inputs\["b"\]'):
        wf.grad(total(leaf), {"a": leaf, "b": wf.ones(1, requires_grad=True)})


def test_jacobians_and_hessians_of_trees():
    tree = {"a": wf.tensor([1.0, 2.0]), "b": Layer(wf.tensor(3.0))}
    fn = lambda t: Point(t["a"] * t["b"].w, t["b"].w ** 2)
    found = wf.jacobian(fn, tree)
    assert found.x["a"].tolist() == [[3.0, 0.0], [0.0, 3.0]] and found.x["b"].w.tolist() == [1.0, 2.0]
    assert found.y["a"].tolist() == [0.0, 0.0] and found.y["b"].w.item() == 6.0
    reverse = wf.func.jacrev(fn)(tree)
    for a, b in zip(wf.tree_leaves(found), wf.tree_leaves(reverse), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    second = wf.hessian(lambda t: (t["a"] ** 2).sum() * t["b"].w, tree)
    assert second["a"]["a"].tolist() == [[6.0, 0.0], [0.0, 6.0]] and second["a"]["b"].w.tolist() == [2.0, 4.0]
    assert second["b"].w["a"].tolist() == [2.0, 4.0] and second["b"].w["b"].w.item() == 0.0
    both = wf.hessian(lambda x, y: x * y, (wf.tensor(2.0), wf.tensor(3.0)))
    assert both[0][1].item() == 1.0 and both[1][1].item() == 0.0


def test_axes_of_vmap_are_nested_like_the_arguments():
    tree = {"p": Layer(wf.ones(3, 2), wf.ones(2)), "q": Point(wf.ones(2, 3), None)}
    mapped = wf.vmap(lambda t: t["p"].w + t["p"].b + t["q"].x, in_axes=({"q": Point(1, None), "p": Layer(0, None)},))
    assert mapped(tree).shape == (3, 2)
    assert wf.vmap(lambda t: t, in_axes=({"p": 0, "q": None},), out_axes={"p": 1, "q": None})(
        {"p": Layer(wf.ones(3, 2)), "q": wf.ones(2)}
    )["p"].w.shape == (2, 3)


def test_control_flow_carries_trees():
    class State(NamedTuple):
        i: Any
        x: Any

    def loop(x):
        start = State(wf.tensor(0), Layer(x))
        return wf.while_loop(
            lambda s: s.i < 3, lambda s: State(s.i + 1, Layer(s.x.w * 2.0)), start, max_iterations=5
        ).x.w

    def scanned(x):
        step = lambda carry, row: (Layer(carry.w + row["r"].w, None), Point(carry.w, None))
        carry, ys = wf.scan(step, Layer(x), {"r": Frozen(wf.ones(4, 2))})
        return carry.w.sum() + ys.x.sum() + (0.0 if ys.y is None else 1.0)

    def branches(x):
        out = wf.cond(x.sum() > 0, lambda t: Layer(t["x"] * 2.0), lambda t: Layer(-t["x"]), {"x": x})
        assert out.b is None
        return out.w

    x = wf.tensor([1.0, 2.0])

    def check(fn):
        eager, captured = fn(x), wf.function(fn)(x)
        np.testing.assert_allclose(captured.numpy(), eager.numpy(), rtol=1e-6)
        of = lambda f: wf.grad_fn(lambda v: f(v).sum())(x).numpy()
        np.testing.assert_allclose(of(wf.function(fn)), of(fn), rtol=1e-6)

    each(check, {"while": (loop,), "scan": (scanned,), "cond": (branches,)})

    @wf.function
    def uneven(x):
        return wf.scan(lambda c, r: ({"a": c["a"], "b": [c["a"]]}, None), {"a": x, "b": x}, wf.ones(2))[0]

    with pytest.raises(wf.CaptureError, match=r'carry\["b"\] is \[\*\]; expected \*'):
        uneven(wf.ones(()))


def _doubled(tree):
    return wf.tree_map(lambda v: v * 2.0, tree)


def test_captured_functions_take_and_return_trees():
    w = wf.tensor([1.0, 2.0])

    for tree in containers(w).values():
        step = wf.function(_doubled)
        for _ in range(2):
            result = step(tree)
            assert type(result) is type(tree) and wf.tree_structure(result) == wf.tree_structure(tree)
            assert all(v.tolist() == [2.0, 4.0] for v in wf.tree_leaves(result))
        assert len(step.traces) == 1

    @wf.function
    def by_name(layer):
        return layer.w * (2.0 if layer.name == "double" else 3.0)

    assert by_name(Frozen(w, "double")).tolist() == [2.0, 4.0]
    assert by_name(Frozen(w, "triple")).tolist() == [3.0, 6.0]  # a static field is part of the signature

    @wf.function
    def writes(layer):
        layer.b = layer.w + 1.0
        return layer.b

    layer = Layer(w)
    with pytest.warns(UserWarning, match="changes a container argument"):
        assert writes(layer).tolist() == [2.0, 3.0]
    assert layer.b.tolist() == [2.0, 3.0]
