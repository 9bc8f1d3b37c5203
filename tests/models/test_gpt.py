"""GPT: its size, what it sees, what it writes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import models, optim
from weft.nn import functional as F


def small(**options: Any) -> models.GPT:
    settings = {"vocab_size": 11, "block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 16, **options}
    wf.manual_seed(0)
    return models.gpt(**settings).eval()


def expected_size(vocab: int, block: int, layers: int, width: int) -> int:
    per_layer = (
        2 * 2 * width + (width * 3 * width + 3 * width) + (width * width + width) + (8 * width * width + 5 * width)
    )
    return vocab * width + block * width + layers * per_layer + 2 * width


def test_parameter_count() -> None:
    assert expected_size(50257, 1024, 12, 768) == 124_439_808  # the published size of GPT-2 small
    assert sum(p.size for p in small().parameters()) == expected_size(11, 16, 2, 16)
    model = small()
    assert model.lm_head.weight is model.wte.weight


def test_a_token_sees_only_those_before_it() -> None:
    model = small()
    ids = np.arange(12)[None] % 11
    changed = ids.copy()
    changed[0, 7] = (changed[0, 7] + 1) % 11
    with wf.no_grad():
        a, b = model(wf.asarray(ids)).numpy(), model(wf.asarray(changed)).numpy()
    np.testing.assert_array_equal(a[:, :7], b[:, :7])
    assert (a[:, 7:] != b[:, 7:]).all(axis=-1).any()


@pytest.mark.parametrize("capture", [False, True])
def test_the_cache_changes_nothing(capture: bool) -> None:
    model = small()
    prompt = [[1, 2, 3], [4, 5, 6]]
    plain = model.generate(prompt, 12, temperature=0, use_cache=False)
    cached = model.generate(prompt, 12, temperature=0, capture=capture)
    assert cached.tolist() == plain.tolist() and cached.shape == (2, 15)
    again = model.generate(prompt, 12, temperature=0, capture=capture)  # with what was captured, if it was
    assert again.tolist() == plain.tolist() and "_decoders" not in copy.deepcopy(model).__dict__
    drawn = [
        model.generate(prompt, 12, top_k=4, use_cache=use, generator=wf.Generator(7)).tolist() for use in (True, False)
    ]
    assert drawn[0] == drawn[1]


def test_texts_longer_than_the_block() -> None:
    model = small()
    for use_cache in (True, False):
        ids = model.generate([[1] * 20], 30, temperature=0, use_cache=use_cache)
        assert ids.shape == (1, 50)
    with pytest.raises(ValueError, match="gpt: the text is too long. Got 17 tokens; expected at most 16"):
        model(wf.zeros((1, 17), dtype=wf.int64))


def test_it_learns_a_sequence_by_heart_and_says_it() -> None:
    text = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    model = small().train()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    x, y = wf.asarray(text[:, :-1]), wf.asarray(text[:, 1:])

    @wf.function
    def step(x: wf.Tensor, y: wf.Tensor) -> wf.Tensor:
        scores = model(x)
        loss = F.cross_entropy(scores.reshape(-1, 11), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [float(step(x, y)) for _ in range(60)]
    assert losses[-1] < 0.05 < losses[0]
    assert model.generate([[1]], 9, temperature=0).tolist() == text.tolist() and model.training


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1, 2], 3), r"expected token numbers \(batch, tokens\). Got shape \(2,\)"),
        (([[1]], -1), "max_new_tokens must be at least 0"),
        (([[1]], 1, -1.0), "temperature must be at least 0"),
        (([[1]], 1, 1.0, 0), "top_k must be at least 1"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small().generate(*arguments)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="n_embd must be a multiple of n_head. Got 16 and 3"):
        small(n_head=3)
