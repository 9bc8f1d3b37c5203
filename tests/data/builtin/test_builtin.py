"""The data that come with Weft."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from weft.data import CharacterDataset, DataLoader, digits, synthetic_images, text_corpus


def test_digits_have_a_fixed_stratified_split():
    train, test = digits("train"), digits("test")
    assert (len(train), len(test), len(digits("all"))) == (1438, 359, 1797)
    x, y = train.arrays
    assert (x.shape, x.dtype, y.dtype) == ((1438, 1, 8, 8), np.float32, np.int64)
    assert (x.min(), x.max()) == (0, 1)
    share = np.bincount(test.arrays[1]) / np.bincount(digits("all").arrays[1])
    assert np.abs(share - 0.2).max() < 0.005
    assert hashlib.sha256((test.arrays[0] * 16).astype(np.uint8).tobytes()).hexdigest().startswith(DIGEST)
    with pytest.raises(ValueError, match="expected 'train', 'test' or 'all'"):
        digits("validation")


DIGEST = "e580e14d7dc13430"


def test_digits_can_be_told_apart():
    """Nearest class mean: far better than chance, so labels belong to their images."""
    (x, y), (xt, yt) = (digits(s).arrays for s in ("train", "test"))
    means = np.stack([x[y == k].mean(0) for k in range(10)])
    nearest = ((xt[:, None] - means) ** 2).sum((2, 3, 4)).argmin(1)
    assert (nearest == yt).mean() > 0.85


def test_synthetic_images_are_reproducible_and_balanced():
    a, b = synthetic_images("train", n=300), synthetic_images("train", n=40)
    np.testing.assert_array_equal(a.arrays[0][:40], b.arrays[0])
    assert a.arrays[0].shape == (300, 3, 32, 32)
    assert np.bincount(a.arrays[1]).tolist() == [30] * 10
    test, other = synthetic_images("test", n=40), synthetic_images("train", n=40, seed=1)
    assert not np.array_equal(b.arrays[0], test.arrays[0])
    assert not np.array_equal(b.arrays[0], other.arrays[0])
    pixels = synthetic_images("test", n=12, size=16, as_uint8=True).arrays[0]
    assert (pixels.shape, pixels.dtype) == ((12, 3, 16, 16), np.uint8)
    with pytest.raises(ValueError, match="need n >= 1"):
        synthetic_images(n=0)


def test_synthetic_patterns_are_what_their_names_say():
    """Stripes vary along one axis only, whatever their colours."""
    images = synthetic_images("train", n=400).arrays[0].mean(axis=1)
    roughness = [np.abs(np.diff(images[k::10], axis=a)).mean() for k in (5, 6) for a in (1, 2)]
    assert roughness[0] > 1.5 * roughness[1]  # horizontal: down the rows
    assert roughness[3] > 1.5 * roughness[2]  # vertical: along the columns


def test_the_corpus_is_plain_text():
    text = text_corpus()
    assert 250_000 < len(text) < 300_000
    assert text.isascii()
    assert "White\nRabbit" in text
    assert "All the world's a stage" in text
    assert "\t" not in text
    assert text_corpus("alice") in text
    with pytest.raises(ValueError, match="as_you_like_it"):
        text_corpus("hamlet")


def test_character_windows_are_shifted_by_one():
    data = CharacterDataset(text_corpus("alice")[:5000], length=16, stride=3)
    x, y = data[10]
    assert x.dtype == np.int64
    assert data.decode(x)[1:] == data.decode(y)[:-1]
    assert data.decode(data[len(data) - 1][0]) in text_corpus("alice")
    for indices in ([0, 5, len(data) - 1],):
        (gx, gy), *_ = DataLoader(data, batch_size=3, sampler=indices, as_numpy=True)
        np.testing.assert_array_equal(gx, [data[i][0] for i in indices])
        np.testing.assert_array_equal(gy, [data[i][1] for i in indices])
    assert len(CharacterDataset("abcd", length=3)) == 1
    with pytest.raises(ValueError, match="too short. Got 3 characters"):
        CharacterDataset("abc", length=3)
    with pytest.raises(ValueError, match="'z' is not in the vocabulary"):
        CharacterDataset("abz", length=1, vocabulary="ab")
