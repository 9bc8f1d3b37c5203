"""Readers: what they return, and what they say of files that are missing, cut off or of another kind."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import sys
import tarfile

import numpy as np
import pytest

from weft.data import (
    DataLoader,
    ImageFolder,
    NumpyDataset,
    arrow_file,
    cifar10,
    cifar100,
    csv_file,
    mnist,
    numpy_file,
    read_idx,
)

RNG = np.random.default_rng(0)


def idx_bytes(array, code):
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


# MNIST ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_from_its_four_files(tmp_path, packed):
    images = RNG.integers(0, 256, (7, 5, 4)).astype(np.uint8)
    labels = RNG.integers(0, 10, 7).astype(np.uint8)
    for prefix in ("train", "t10k"):
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx_bytes(array, 0x08)
            path = tmp_path / f"{prefix}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)
    for split in ("train", "test"):
        x, y = mnist(tmp_path, split).arrays
        np.testing.assert_allclose(x, images[:, None] / 255, rtol=1e-6)
        assert (x.dtype, y.dtype, y.tolist()) == (np.float32, np.int64, labels.tolist())


def test_idx_holds_other_dtypes(tmp_path):
    values = np.array([[1, -2], [300, 4]], ">i4")
    (tmp_path / "a.idx").write_bytes(idx_bytes(values, 0x0C))
    read = read_idx(tmp_path / "a.idx")
    assert read.dtype == np.int32
    assert read.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not an idx file. Got first bytes none"),
        (b"PNG!", "first bytes 50 4e 47 21; expected 00 00"),
        (b"\0\0\x08\x03\0\0", "truncated. Got 6 bytes; expected a header of 16"),
        (
            idx_bytes(np.zeros((2, 3), np.uint8), 8)[:-1],
            r"truncated. Got 5 bytes of values; expected 6 for shape \(2, 3\)",
        ),
        (idx_bytes(np.zeros((2, 3), np.uint8), 8) + b"x", "too long. Got 7 bytes"),
        (gzip.compress(idx_bytes(np.zeros(900, np.uint8), 8), mtime=0)[:-9], "damaged or truncated gzip file of"),
        (b"\0\0\x0e\x04" + b"\xff" * 16, "truncated. Got 0 bytes"),
    ],
)
def test_damaged_idx_files_are_described(tmp_path, data, text):
    path = tmp_path / "bad-idx"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=text) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_missing_mnist_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        mnist(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileNotFoundError, match="none of train-images-idx3-ubyte, .*Found notes.txt"):
        mnist(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file: .*x.idx; the folder .* has notes.txt"):
        read_idx(tmp_path / "x.idx")
    with pytest.raises(IsADirectoryError, match="expected a file"):
        read_idx(tmp_path)


def test_mnist_files_that_do_not_belong_together(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((3, 2, 2), np.uint8), 8))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(4, np.uint8), 8))
    with pytest.raises(ValueError, match="do not belong together"):
        mnist(tmp_path)


# CIFAR ---------------------------------------------------------------------------------------------------------------

IMAGES = RNG.integers(0, 256, (4, 3072)).astype(np.uint8)


def python_batch(labels, key=b"labels", images=IMAGES, protocol=2):
    return pickle.dumps({b"data": images, key: labels, b"filenames": [b"a.png"] * 4}, protocol=protocol)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_cifar10_python_version(tmp_path, protocol):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(1, 6):
        (folder / f"data_batch_{i}").write_bytes(python_batch([i, 1, 2, 3], protocol=protocol))
    x, y = cifar10(tmp_path).arrays
    assert (x.shape, x.dtype) == ((20, 3, 32, 32), np.uint8)
    np.testing.assert_array_equal(x[4:8].reshape(4, -1), IMAGES)
    assert y.tolist() == [v for i in range(1, 6) for v in (i, 1, 2, 3)]


def test_cifar_binary_versions_and_archives(tmp_path):
    ten = np.concatenate([np.array([[3], [1], [4], [1]], np.uint8), IMAGES], axis=1).tobytes()
    (tmp_path / "test_batch.bin").write_bytes(ten)
    x, y = cifar10(tmp_path, "test").arrays
    np.testing.assert_array_equal(x.reshape(4, -1), IMAGES)
    assert y.tolist() == [3, 1, 4, 1]
    hundred = np.concatenate([np.array([[0, 50], [1, 51], [2, 52], [3, 53]], np.uint8), IMAGES], axis=1).tobytes()
    with tarfile.open(tmp_path / "cifar-100.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("cifar-100-binary/train.bin")
        info.size = len(hundred)
        archive.addfile(info, io.BytesIO(hundred))
    assert cifar100(tmp_path / "cifar-100.tar.gz").arrays[1].tolist() == [50, 51, 52, 53]
    assert cifar100(tmp_path / "cifar-100.tar.gz", coarse=True).arrays[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="has no test"):
        cifar100(tmp_path / "cifar-100.tar.gz", "test")
    whole = (tmp_path / "cifar-100.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a complete archive"):
        cifar100(tmp_path / "cut.tar.gz")


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (pickle.dumps(Evil()), "it asks for posix.system, which data does not need; it was not run"),
        (pickle.dumps({b"data": np.array([Evil()]), b"labels": []}), "only uint8 is allowed"),
        (python_batch([1, 2, 3, 4])[:500], "truncated or damaged"),
        (python_batch([1, 2, 3]), "has no usable labels. Expected a list of 4"),
        (python_batch([1, 2, 3, "x"]), "has no usable labels"),
        (python_batch([1] * 4, key=b"fine_labels"), "expected 'data' and 'labels'"),
        (python_batch([1] * 4, images=IMAGES[:, :9]), "holds no images"),
        (pickle.dumps([1]), "Got list"),
        (b"", "truncated or damaged"),
    ],
)
def test_bad_cifar_pickles_are_refused_and_not_run(tmp_path, monkeypatch, data, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(data)
    with pytest.raises(ValueError, match=text) as caught:
        cifar10(tmp_path, "test")
    assert "test_batch" in str(caught.value)
    assert not (tmp_path / "pwned").exists()


def test_missing_and_truncated_cifar_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither data_batch_1.bin \(binary version\) nor data_batch_1"):
        cifar10(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(b"x" * 5000)
    with pytest.raises(ValueError, match="Got 5,000 bytes; expected a multiple of 3,073"):
        cifar10(tmp_path, "test")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        cifar10(tmp_path / "no")
    with pytest.raises(ValueError, match="unknown split"):
        cifar10(tmp_path, "validation")


# Pictures ------------------------------------------------------------------------------------------------------------


def test_image_folder(tmp_path):
    from PIL import Image

    for name, colour in (("dog", (255, 0, 0)), ("cat", (0, 255, 0))):
        (tmp_path / name / "deep").mkdir(parents=True)
        Image.new("RGB", (6, 4), colour).save(tmp_path / name / "a.png")
        Image.new("RGB", (8, 8), colour).save(tmp_path / name / "deep" / "b.PNG", format="png")
    folder = ImageFolder(tmp_path)
    assert folder.classes == ["cat", "dog"]
    assert [folder[i][1] for i in range(len(folder))] == [0, 0, 1, 1]
    assert folder[0][0].shape == (3, 4, 6)
    assert folder[2][0][:, 0, 0].tolist() == [255, 0, 0]
    x, _ = next(iter(DataLoader(ImageFolder(tmp_path, size=(5, 7), mode="L"), batch_size=4, as_numpy=True)))
    assert (x.shape, x.dtype) == ((4, 1, 5, 7), np.uint8)
    (tmp_path / "cat" / "a.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(ValueError, match=r"a.png: cannot be read as a picture \(11 bytes\)"):
        folder[0]


def test_image_folder_says_what_is_missing(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ImageFolder(tmp_path / "no")
    with pytest.raises(FileNotFoundError, match="has no folders"):
        ImageFolder(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(FileNotFoundError, match="cat has no pictures"):
        ImageFolder(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install weft\[data\]"):
        ImageFolder(tmp_path)


# Tables --------------------------------------------------------------------------------------------------------------


def test_csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n1,2.5,0\n3,,1\n\n5,6,0\n", encoding="utf-8-sig")
    table = csv_file(path, target="label")
    x, y = table.arrays
    assert table.columns == ["a", "b"]
    np.testing.assert_array_equal(x, np.array([[1, 2.5], [3, np.nan], [5, 6]], np.float32))
    assert (y.dtype, y.tolist()) == (np.int64, [0, 1, 0])
    assert csv_file(path, columns=["b", 0]).arrays[0][:, 1].tolist() == [1, 3, 5]
    assert csv_file(path, target="a", columns=["label"], target_dtype=np.float32).arrays[1].dtype == np.float32
    bare = tmp_path / "bare.txt"
    bare.write_text("1;2\n3;4\n")
    assert csv_file(bare, target=-1, header=False, delimiter=";").arrays[1].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        ("a,b\n1,x\n", {}, "line 2, column 'b': got 'x'; expected a number"),
        ("a,b\n1,2\n3\n", {}, "line 3: got 1 fields; expected 2"),
        ("a,b\n", {}, "has no rows"),
        ("", {}, "has no rows"),
        ("a,b\n1,2\n", {"target": "c"}, r"no column 'c'. Expected one of \['a', 'b'\]"),
        ("a\n1\n", {"target": "a"}, "no feature columns are left"),
        ("a,b\n1,\n", {"target": "b", "target_dtype": np.int64}, "empty fields in the target 'b'"),
    ],
)
def test_bad_csv_names_file_line_and_column(tmp_path, content, options, text):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=text) as caught:
        csv_file(path, **options)
    assert "bad.csv" in str(caught.value)


def test_csv_that_is_no_text(tmp_path):
    (tmp_path / "b.csv").write_bytes(b"a,b\n\xff\xfe\x00,1\n")
    with pytest.raises(ValueError, match="is not utf-8-sig text"):
        csv_file(tmp_path / "b.csv")


def test_numpy_files(tmp_path):
    x, y = RNG.random((6, 2)), np.arange(6)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    np.testing.assert_array_equal(numpy_file(tmp_path / "x.npy").arrays[0], x)
    np.testing.assert_array_equal(numpy_file(tmp_path / "both.npz", keys=["y", "x"]).arrays[1], x)
    mapped = NumpyDataset(tmp_path / "x.npy", tmp_path / "y.npy")
    assert len(pickle.dumps(mapped)) < 500
    mapped = pickle.loads(pickle.dumps(mapped))
    (bx, by), *_ = DataLoader(mapped, batch_size=4, as_numpy=True)
    np.testing.assert_array_equal(bx, x[:4])
    assert by.tolist() == [0, 1, 2, 3]
    assert mapped[-1][1] == 5


def test_bad_numpy_files(tmp_path):
    np.save(tmp_path / "o.npy", np.array([Evil()]), allow_pickle=True)
    with pytest.raises(ValueError, match="o.npy, header.descr: cannot be read as .npy .*allow_pickle"):
        numpy_file(tmp_path / "o.npy")
    np.save(tmp_path / "x.npy", np.zeros(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-50])
    for read in (numpy_file, NumpyDataset):
        with pytest.raises(ValueError, match=r"cut.npy, values: cannot be read as .npy \(878 bytes\)"):
            read(tmp_path / "cut.npy")
    np.savez(tmp_path / "z.npz", x=np.zeros(3))
    with pytest.raises(KeyError, match="has no array 'y'"):
        numpy_file(tmp_path / "z.npz", keys=["y"])
    with pytest.raises(ValueError, match="differ in length"):
        np.save(tmp_path / "short.npy", np.zeros(3))
        NumpyDataset(tmp_path / "x.npy", tmp_path / "short.npy")


def test_arrow_and_parquet(tmp_path):
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.table({"a": [1, 2, None], "b": [0.5, 1.5, 2.5], "y": [True, False, True], "s": ["x", "y", "z"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    pyarrow.feather.write_feather(table, str(tmp_path / "t.feather"))
    with pyarrow.ipc.new_stream(str(tmp_path / "t.arrows"), table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.feather", "t.arrows"):
        data = arrow_file(tmp_path / name, target="y", columns=["a", "b"])
        np.testing.assert_array_equal(data.arrays[0], np.array([[1, 0.5], [2, 1.5], [np.nan, 2.5]], np.float32))
        assert data.arrays[1].tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="column 's': got string; expected numbers"):
        arrow_file(tmp_path / "t.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-20])
    with pytest.raises(ValueError, match="cut.parquet: cannot be read"):
        arrow_file(tmp_path / "cut.parquet")
    (tmp_path / "no.parquet").write_bytes(b"hello, world")
    with pytest.raises(ValueError, match="Expected a Parquet, Arrow or Feather file"):
        arrow_file(tmp_path / "no.parquet")


def test_arrow_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install weft\[data\]"):
        arrow_file(tmp_path / "x")
