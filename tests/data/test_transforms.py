"""Image transforms."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from tests.each import each
from weft.data import DataLoader, TensorDataset, seeds, transforms
from weft.data.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    ConvertImageDtype,
    Grayscale,
    Lambda,
    Normalize,
    Pad,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomOrder,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    ToFloat,
    ToPILImage,
    ToTensor,
)
from weft.transforms import functional as TF

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
            r"\(channels, height, width\), or a PIL image. Got shape \(2, 2\)",
        ),
        (lambda: Normalize(0, 0), ValueError, "std must be positive"),
        (lambda: Normalize((1, 2), 1)(IMAGE), ValueError, "for 3 channels"),
        (lambda: ColorJitter(-1), ValueError, "brightness must not be negative"),
        (lambda: ColorJitter(hue=0.6), ValueError, "hue must be between -0.5 and 0.5"),
        (lambda: RandomErasing(scale=(0.5, 0.1)), ValueError, "two fractions"),
        (lambda: Pad(-1), ValueError, "must not be negative"),
        (lambda: transforms.Transform()(IMAGE), NotImplementedError, "implement __call__"),
    ],
)
def test_bad_settings_and_images_are_refused(action, error, text):
    with pytest.raises(error, match=text):
        action()


# Against torchvision ------------------------------------------------------------------------------------------------------


def test_functions_give_torchvisions_results():
    """`torchvision_transforms.npz` was written by torchvision 0.28 from the two images in it."""
    stored = np.load(Path(__file__).with_name("torchvision_transforms.npz"))

    def check(name):
        kind, function, *settings = name.split("/")
        image = stored[kind]
        if function == "resize":
            found = TF.resize(image, 20 if settings[1] == "grown" else (5, 9), settings[0])
        elif function == "rotate":
            nearest = settings[0] == "nearest"
            found = TF.rotate(
                image, 33.5, settings[0], nearest, fill=0 if not nearest else 0.5 if kind == "floats" else 7
            )
        elif function == "pad":
            found = TF.pad(image, (1, 2, 3, 4), padding_mode="reflect")
        else:
            found = getattr(TF, function)(image, float(settings[0]))
        expected = stored[name]
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1 if kind == "bytes" else 1e-5)

    each(check, {name: (name,) for name in stored.files if "/" in name})


# Kinds of images ----------------------------------------------------------------------------------------------------------

ALL = {
    "resize": Resize((5, 7)), "crop": RandomCrop(4, padding=1), "centre": CenterCrop(3), "resized crop": RandomResizedCrop(4),
    "pad": Pad((1, 2), fill=3), "flip": RandomHorizontalFlip(1.0), "upside down": RandomVerticalFlip(1.0),
    "rotation": RandomRotation(30), "erasing": RandomErasing(1.0), "jitter": ColorJitter(0.4, 0.4, 0.4, 0.1),
    "grey": Grayscale(3), "maybe grey": RandomGrayscale(1.0), "apply": RandomApply([Pad(1)], p=1.0),
    "choice": RandomChoice([Pad(1), CenterCrop(3)]), "order": RandomOrder([CenterCrop(5), RandomCrop(3)]),
    "lambda": Lambda(TF.invert),
}  # fmt: skip


def test_arrays_tensors_and_pictures_give_their_own_kind():
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(np.moveaxis(IMAGE, 0, -1).copy())

    def check(transform):
        seeds.enter(1, 0, 0)
        array = transform(IMAGE)
        seeds.enter(1, 0, 0)
        tensor = transform(wf.asarray(IMAGE))
        assert isinstance(tensor, wf.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), array)
        seeds.enter(1, 0, 0)
        shown = transform(picture)
        assert isinstance(shown, image.Image)
        assert (shown.height, shown.width) == array.shape[-2:]
        seeds.enter(1, 0, 0)
        again = pickle.loads(pickle.dumps(transform))
        np.testing.assert_array_equal(again(IMAGE), array)

    each(check, {name: (transform,) for name, transform in ALL.items()})


def test_to_tensor_and_back():
    image = pytest.importorskip("PIL.Image")
    pixels = np.moveaxis(IMAGE, 0, -1).copy()
    expected = IMAGE.astype(np.float32) / 255
    for given in (pixels, IMAGE, image.fromarray(pixels)):
        tensor = ToTensor()(given)
        assert tensor.dtype == wf.float32
        np.testing.assert_array_equal(tensor.numpy(), expected)
    np.testing.assert_array_equal(np.asarray(ToPILImage()(tensor)), pixels)
    np.testing.assert_array_equal(transforms.PILToTensor()(ToPILImage()(tensor)).numpy(), IMAGE)
    assert ToTensor()(pixels[:, :, 0]).shape == (1, 6, 8)
    assert ToPILImage()(wf.asarray(IMAGE[:1])).mode == "L"
    assert ToTensor()(pixels.astype(np.float64)).dtype == wf.float64  # not bytes: values and dtype stay
    np.testing.assert_array_equal(ConvertImageDtype(wf.uint8)(ConvertImageDtype(wf.float32)(IMAGE)), IMAGE)


def test_resize_keeps_the_ratio_of_the_shorter_side():
    assert Resize(3)(IMAGE).shape == (3, 3, 4)
    assert Resize(3)(IMAGE.swapaxes(1, 2)).shape == (3, 4, 3)
    assert Resize(6, max_size=7)(IMAGE).shape == (3, 5, 7)
    assert Resize(6)(IMAGE) is IMAGE
    np.testing.assert_array_equal(TF.crop(IMAGE, -1, 7, 2, 3)[:, 1, 0], IMAGE[:, 0, 7])


# Randomness ---------------------------------------------------------------------------------------------------------------

AUGMENT = Compose(
    [RandomResizedCrop(4), RandomHorizontalFlip(), RandomRotation(20), ColorJitter(0.2, 0.2, 0.2, 0.1), ToTensor()]
)


def test_the_seed_of_weft_repeats_transforms_outside_a_loader():
    seeds.leave()
    runs = []
    for seed in (0, 0, 1):
        wf.manual_seed(seed)
        runs.append([AUGMENT(IMAGE).numpy().tobytes() for _ in range(4)])
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) == 4


def test_a_loader_augments_alike_with_any_number_of_processes():
    dataset = TensorDataset(np.stack([IMAGE] * 6)).map(AUGMENT, element=0)
    seeds.leave()
    found = []
    for workers in (0, 2):
        loader = DataLoader(dataset, batch_size=3, num_workers=workers, seed=5, timeout=60)
        found.append([[x.numpy().tobytes() for (x,) in loader] for _ in range(2)])
        loader.close()
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]  # another epoch draws anew
