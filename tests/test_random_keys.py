"""Random keys: pure functions of a key, the same eagerly, captured and under vmap."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft import random

DRAWS = {
    "bits": (lambda k: random.bits(k, (2, 3)),),
    "normal": (lambda k: random.normal(k, (2, 3)),),
    "uniform": (lambda k: random.uniform(k, (5,), minval=-1.0, maxval=2.0),),
    "randint": (lambda k: random.randint(k, (4,), -3, 10),),
    "bernoulli": (lambda k: random.bernoulli(k, 0.3, (20,)),),
    "bernoulli of a tensor": (lambda k: random.bernoulli(k, wf.full((7,), 0.5)),),
    "permutation": (lambda k: random.permutation(k, 6),),
    "permutation of rows": (lambda k: random.permutation(k, wf.arange(12).reshape(4, 3)),),
    "gumbel": (lambda k: random.gumbel(k, (3,)),),
    "exponential": (lambda k: random.exponential(k, (3,)),),
    "laplace": (lambda k: random.laplace(k, (3,)),),
    "truncated_normal": (lambda k: random.truncated_normal(k, -0.5, 1.0, (9,)),),
    "rademacher": (lambda k: random.rademacher(k, (9,)),),
    "categorical": (lambda k: random.categorical(k, wf.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])),),
    "choice": (lambda k: random.choice(k, wf.arange(10).reshape(5, 2), (3,), replace=False),),
    "choice with p": (lambda k: random.choice(k, 4, (6,), p=wf.tensor([0.1, 0.2, 0.3, 0.4])),),
    "split": (lambda k: random.split(k, 3).data,),
    "fold_in": (lambda k: random.fold_in(k, 3).data,),
}


def test_draws_are_the_same_eagerly_captured_and_mapped():
    keys = random.split(random.key(7), 3)

    def check(draw):
        one = draw(keys[0])
        assert draw(keys[0]).tolist() == one.tolist() and draw(keys[1]).tolist() != one.tolist()
        close = lambda a, b: np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-6, atol=1e-6)
        close(wf.function(draw)(keys[0]), one)
        mapped = wf.vmap(draw)(keys)
        assert mapped.shape == (3, *one.shape) and mapped.dtype == one.dtype
        for row, k in zip(mapped, keys, strict=True):
            close(row, draw(k))
        close(wf.function(wf.vmap(draw))(keys), mapped)

    each(check, DRAWS)


def test_a_key_of_no_example_gives_all_examples_the_same():
    k = random.key(1)
    found = wf.vmap(lambda x: x + random.normal(k, (2,)))(wf.zeros(3))
    assert found.tolist() == [random.normal(k, (2,)).tolist()] * 3
    nested = wf.vmap(lambda a: wf.vmap(lambda x: x + random.normal(a, ()))(wf.zeros(2)))(random.split(k, 3))
    assert nested.shape == (3, 2) and nested[0, 0].item() == nested[0, 1].item() != nested[1, 0].item()
    with pytest.raises(RuntimeError, match="draws random numbers"):
        wf.vmap(lambda x: x + wf.rand(2))(wf.zeros(3))


def test_keys_are_the_states_of_generators():
    assert random.normal(random.key(3), (5,)).tolist() == wf.randn(5, generator=wf.Generator(3)).tolist()
    before = wf.get_rng_state().tolist()
    random.normal(random.key(0), (4,))
    assert wf.get_rng_state().tolist() == before


def test_derived_keys_differ_from_each_other_and_from_draws():
    root = random.key(0)
    keys = [root, *random.split(root, 50), *[random.fold_in(root, i) for i in range(50)]]
    keys += [*random.split(keys[1], 50), random.key(-1), random.key(2**64 - 2)]
    words = {tuple(k.data.tolist()) for k in keys}
    assert len(words) == len(keys)
    a, b = random.split(root)
    assert random.split(root, (2, 3)).shape == (2, 3) and a.shape == () and len(random.split(root)) == 2
    assert random.fold_in(root, wf.tensor(5)).data.tolist() == random.fold_in(root, 5).data.tolist()
    captured = wf.function(lambda k, i: random.fold_in(k, i).data)
    assert captured(root, wf.tensor(5)).tolist() == random.fold_in(root, 5).data.tolist()
    assert random.wrap_key_data(random.key_data(b)).data.tolist() == b.data.tolist()
    assert random.key(wf.tensor(9)).data.tolist() == random.PRNGKey(9).data.tolist()


def test_keys_are_carried_by_loops():
    def walk(key):
        def step(key, _):
            key, use = random.split(key)
            return key, random.normal(use, ())

        return wf.scan(step, key, None, length=4)[1]

    key = random.key(11)
    np.testing.assert_allclose(wf.function(walk)(key).numpy(), walk(key).numpy(), rtol=1e-6)
    assert len({*walk(key).tolist()}) == 4


def test_distributions():
    key = random.key(0)
    n = 20000
    moments = {
        "normal": (random.normal(key, (n,)), 0.0, 1.0),
        "uniform": (random.uniform(key, (n,), minval=2.0, maxval=4.0), 3.0, 1 / 3),
        "bernoulli": (random.bernoulli(key, 0.3, (n,)).astype(wf.float32), 0.3, 0.21),
        "gumbel": (random.gumbel(key, (n,)), 0.5772, np.pi**2 / 6),
        "exponential": (random.exponential(key, (n,)), 1.0, 1.0),
        "laplace": (random.laplace(key, (n,)), 0.0, 2.0),
        "rademacher": (random.rademacher(key, (n,)).astype(wf.float32), 0.0, 1.0),
    }

    def check(x, mean, variance):
        assert abs(x.mean().item() - mean) < 0.05 and abs(x.var().item() - variance) < 0.1 * variance

    each(check, moments)
    drawn = random.categorical(key, wf.log(wf.tensor([0.2, 0.5, 0.3])), shape=(n,))
    np.testing.assert_allclose(np.bincount(drawn.numpy()) / n, [0.2, 0.5, 0.3], atol=0.02)


def test_mistakes_have_words():
    k = random.key(0)
    cases = {
        "no key": (lambda: random.gumbel(3), "gumbel: expected a key first. Got int"),
        "keys": (lambda: random.normal(random.split(k), (2,)), "expected one key. Got keys of shape"),
        "seed": (lambda: random.key("a"), "key: expected an integer"),
        "large": (lambda: random.key(2**64), "64 bits"),
        "too many": (lambda: random.choice(k, 2, (3,), replace=False), "3 of 2 cannot be drawn"),
        "bounds": (lambda: random.randint(k, (2,), 5, 5), "low must be below high"),
        "words": (lambda: random.wrap_key_data(wf.ones(2)), "wrap_key_data: expected int64 words"),
        "one": (lambda: k[0], "this is one key"),
    }

    def check(call, text):
        with pytest.raises((TypeError, ValueError, IndexError), match=text):
            call()

    each(check, cases)
    assert wf.split is not random.split and wf.normal(0.0, 1.0, (2,)).shape == (2,)
