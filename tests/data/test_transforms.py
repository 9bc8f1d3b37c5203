"""Image transforms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from weft.data import seeds, transforms
from weft.data.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    Normalize,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    ToFloat,
)

IMAGE = np.arange(3 * 6 * 8, dtype=np.uint8).reshape(3, 6, 8)


@pytest.fixture(autouse=True)
def one_sample():
    seeds.enter(3, 0, 0)
    yield
    seeds.leave()


def test_to_float_and_normalize():
    image = ToFloat()(IMAGE)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, IMAGE / 255, rtol=1e-6)
    out = Normalize((0.1, 0.2, 0.3), 0.5)(image)
    np.testing.assert_allclose(
        out, (IMAGE / 255 - np.array([0.1, 0.2, 0.3])[:, None, None]) / 0.5, rtol=1e-5, atol=1e-6
    )
    assert out.dtype == np.float32


def test_crops():
    np.testing.assert_array_equal(CenterCrop((2, 4))(IMAGE), IMAGE[:, 2:4, 2:6])
    windows = {RandomCrop((5, 7))(IMAGE).tobytes() for _ in range(60)}
    assert windows == {IMAGE[:, t : t + 5, s : s + 7].tobytes() for t in (0, 1) for s in (0, 1)}
    padded = RandomCrop(6, padding=4)(IMAGE)
    assert padded.shape == (3, 6, 6)


def test_pad():
    padded = Pad(2, value=9)(IMAGE)
    assert padded.shape == (3, 10, 12)
    np.testing.assert_array_equal(padded[:, 2:-2, 2:-2], IMAGE)
    assert (padded[:, :2] == 9).all()


def test_flips_happen_with_their_probability():
    np.testing.assert_array_equal(RandomHorizontalFlip(1.0)(IMAGE), IMAGE[:, :, ::-1])
    np.testing.assert_array_equal(RandomVerticalFlip(1.0)(IMAGE), IMAGE[:, ::-1])
    assert RandomHorizontalFlip(0.0)(IMAGE) is IMAGE
    flipped = sum(RandomHorizontalFlip(0.25)(IMAGE) is not IMAGE for _ in range(1000))
    assert 190 < flipped < 310


def test_erasing_blanks_a_rectangle_and_leaves_the_original():
    before = IMAGE.copy()
    erased = RandomErasing(1.0, scale=(0.1, 0.2), value=255)(IMAGE)
    changed = (erased != IMAGE).all(axis=0)
    assert 2 <= changed.sum() <= 14
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    assert changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    np.testing.assert_array_equal(IMAGE, before)


def test_colour_jitter_keeps_the_range_and_can_do_nothing():
    image = ToFloat()(IMAGE)
    jittered = ColorJitter(0.4, 0.4, 0.4)(image)
    assert jittered.dtype == np.float32
    assert jittered.min() >= 0
    assert jittered.max() <= 1
    assert not np.allclose(jittered, image)
    np.testing.assert_allclose(ColorJitter()(image), image, atol=1e-6)


def test_everything_pickles_and_prints():
    chain = Compose(RandomCrop(6, padding=2), RandomHorizontalFlip(), ToFloat(), Normalize(0.5, 0.25))
    copy = pickle.loads(pickle.dumps(chain))
    assert repr(copy) == repr(chain)
    assert "RandomCrop(size=(6, 6), padding=2)" in repr(chain)
    assert copy(IMAGE).shape == (3, 6, 6)


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        (lambda: CenterCrop(7)(IMAGE), ValueError, "smaller than the window. Got 6x8"),
        (lambda: CenterCrop(0), ValueError, "size must be positive"),
        (lambda: RandomHorizontalFlip(2), ValueError, "p must be between 0 and 1"),
        (
            lambda: RandomHorizontalFlip()(np.zeros((2, 2))),
            ValueError,
            r"\(channels, height, width\). Got shape \(2, 2\)",
        ),
        (lambda: Normalize(0, 0), ValueError, "std must be positive"),
        (lambda: Normalize((1, 2), 1)(IMAGE), ValueError, "for 3 channels"),
        (lambda: ColorJitter(0.1)(IMAGE), TypeError, "apply ToFloat"),
        (lambda: ColorJitter(2), ValueError, "brightness must be between"),
        (lambda: RandomErasing(scale=(0.5, 0.1)), ValueError, "two fractions"),
        (lambda: Pad(-1), ValueError, "must not be negative"),
        (lambda: transforms.Transform()(IMAGE), NotImplementedError, "implement __call__"),
    ],
)
def test_bad_settings_and_images_are_refused(action, error, text):
    with pytest.raises(error, match=text):
        action()
