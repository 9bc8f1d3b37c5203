"""Files that stand for more than they are, or for something else: refused before memory is taken or anything is started."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from weft.data import ImageFolder, NumpyDataset, arrow_file, cifar10, csv_file, numpy_file, read_idx
from weft.data.readers import cifar, plain_pickle
from weft.errors import FileError
from weft.io import limits

MUCH = limits.FREE + (1 << 24)  # more than a small file may unpack to
LITTLE = 12 << 20  # what a refusal may take


@pytest.fixture
def frugal():
    """Fails a test that allocates more than a little."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()


def idx_header(*sizes):
    return b"\0\0\x08" + bytes([len(sizes)]) + b"".join([struct.pack(">I", n) for n in sizes])


def zeros(count):
    """Compressed zeros as gzip, made without holding them."""
    packer = zlib.compressobj(1, wbits=31)
    block = bytes(1 << 20)
    return lambda first: b"".join(
        [packer.compress(first), *[packer.compress(block) for _ in range(count >> 20)], packer.flush()]
    )


@pytest.mark.parametrize("claimed", [3_100_000_000, 0xFFFFFFFF, MUCH])
def test_an_idx_file_that_unpacks_to_too_much_is_refused_by_its_header(tmp_path, frugal, claimed):
    (tmp_path / "a.gz").write_bytes(zeros(1 << 20)(idx_header(claimed)))
    with pytest.raises(FileError, match=f"unpacks to {claimed:,} bytes or more.*Pass max_bytes=") as caught:
        read_idx(tmp_path / "a.gz")
    assert caught.value.place == "header"


def test_what_follows_the_values_of_a_gzipped_idx_file_is_not_unpacked(tmp_path, frugal):
    (tmp_path / "a.gz").write_bytes(zeros(MUCH)(idx_header(2, 3)))
    with pytest.raises(FileError, match="too long"):
        read_idx(tmp_path / "a.gz")


def test_the_caller_may_allow_more_or_less(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx_header(2000) + bytes(2000), mtime=0))
    assert read_idx(tmp_path / "a.gz").shape == (2000,)
    with pytest.raises(FileError, match="1,000 are allowed|unpacks to"):
        read_idx(tmp_path / "a.gz", max_bytes=1000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(2000, np.uint8))
    assert len(numpy_file(tmp_path / "a.npz")) == 2000
    with pytest.raises(FileError, match="1,000 are allowed"):
        numpy_file(tmp_path / "a.npz", max_bytes=1000)


def npy_header(shape):
    text = str({"descr": "|u1", "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_npz_bombs_are_refused(tmp_path, frugal):
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(npy_header((MUCH,)))
        for _ in range(MUCH >> 20):
            member.write(bytes(1 << 20))
    with pytest.raises(FileError, match="unpacks to"):
        numpy_file(tmp_path / "a.npz")


def test_the_size_in_a_header_is_not_believed(tmp_path, frugal):
    (tmp_path / "a.npy").write_bytes(npy_header((1 << 40,)) + b"xx")
    for read in (numpy_file, NumpyDataset):
        with pytest.raises(FileError, match="needs 1,099,511,627,774 bytes more"):
            read(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", npy_header((1 << 40,)) + b"xx")
    with pytest.raises(FileError, match=r"'x.npy': .*does not make"):
        numpy_file(tmp_path / "a.npz")


def tar(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def test_archive_bombs_are_refused(tmp_path, frugal):
    info = tarfile.TarInfo("test_batch.bin")
    info.size = MUCH
    (tmp_path / "a.tar.gz").write_bytes(zeros(MUCH)(info.tobuf()))
    info = tarfile.TarInfo("pax")  # a header that claims to go on for ever
    info.size, info.type = MUCH, tarfile.XHDTYPE
    (tmp_path / "b.tar.gz").write_bytes(zeros(MUCH)(info.tobuf()))
    for name in "ab":
        tracemalloc.reset_peak()
        with pytest.raises(FileError, match="unpacks to|not a complete archive"):
            cifar10(tmp_path / f"{name}.tar.gz", "test")
        if name == "b":  # the library collects the header; what it collects is bounded
            assert tracemalloc.get_traced_memory()[1] < 4 * MUCH
            tracemalloc.reset_peak()


def test_sparse_members_of_an_archive_are_refused(tmp_path, frugal):
    info = tarfile.TarInfo("test_batch.bin")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"00000000000\0"  # where its only piece of data starts …
    header[398:410] = b"00000000000\0"
    header[483:495] = b"%011o\0" % (1 << 32)  # … and how long it is when unpacked
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(FileError, match=r"'test_batch.bin': it unpacks to 4,294,967,296 bytes"):
        cifar10(tmp_path / "a.tar", "test")


def test_archives_that_need_an_unbounded_dictionary_are_refused(tmp_path):
    (tmp_path / "a.tar.xz").write_bytes(b"\xfd7zXZ\0" + bytes(100))
    with pytest.raises(FileError, match="xz format are not read"):
        cifar10(tmp_path / "a.tar.xz", "test")


# Pickles ----------------------------------------------------------------------------------------------------------------


def test_a_pickle_cannot_take_memory_by_a_number(tmp_path, frugal):
    (tmp_path / "test_batch").write_bytes(b"\x80\x02K\x01r\xff\xff\xff\xff.")  # store under number 2**32 - 1
    with pytest.raises(FileError, match="Got int"):
        cifar10(tmp_path, "test")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cnumpy\nndarray\n}(U\x05arrayK\x01ub.",  # set an attribute of a type
        b"\x80\x02c_codecs\nencode\nN}(U\x0c__defaults__)u\x86b.",  # … of a function
        b"\x80\x02cbuiltins\neval\nU\x011\x85R.",
        b"\x80\x02cweft.ops.registry\neval\nU\x011\x85R.",
        b"\x80\x02K\x01K\x01\x85R.",  # call a number
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # make an object without a call
        b"\x80\x02Q.",
        b"\x80\x02\x82\x01.",  # the extension registry
        pickle.dumps(print),
    ],
)
def test_a_pickle_can_only_make_data(tmp_path, data):
    before = dict(vars(cifar._ArrayState)), cifar._encode.__defaults__
    (tmp_path / "test_batch").write_bytes(data)
    with pytest.raises(FileError, match="is not a CIFAR batch|truncated or damaged"):
        cifar10(tmp_path, "test")
    assert (dict(vars(cifar._ArrayState)), cifar._encode.__defaults__) == before


def test_plain_pickles_of_every_protocol_are_read():
    value = {"a": [1, -(2**40), 2.5, None, True, "é", b"\xff"], "b": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), 3: {}}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert plain_pickle.loads(pickle.dumps(value, protocol), cifar._KNOWN) == value


# Pictures and tables ----------------------------------------------------------------------------------------------------


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )


def test_pictures_with_too_many_pixels_are_refused_before_they_are_decoded(tmp_path, frugal):
    pytest.importorskip("PIL")
    (tmp_path / "cat").mkdir()
    for name, sides in (("a.png", (60_000, 60_000)), ("b.png", (10_000, 10_000))):
        (tmp_path / "cat" / name).write_bytes(png(*sides))
    folder = ImageFolder(tmp_path)
    tracemalloc.reset_peak()  # importing the library took more
    for i in range(2):
        with pytest.raises(FileError, match="pixels"):
            folder[i]


def test_a_picture_never_starts_a_program(tmp_path, monkeypatch):
    plugin = pytest.importorskip("PIL.EpsImagePlugin")
    started = []
    monkeypatch.setattr(plugin, "Ghostscript", lambda *args, **kwargs: started.append(args))
    (tmp_path / "cat").mkdir()
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n%%EOF\n"
    (tmp_path / "cat" / "a.png").write_bytes(content)
    with pytest.raises(FileError, match="cannot be read as a picture"):
        ImageFolder(tmp_path)[0]
    assert not started


def test_a_table_of_repeated_values_is_refused(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = limits.FREE // 8 + 1
    parquet.write_table(pyarrow.table({"a": np.zeros(rows, np.int64)}), tmp_path / "a.parquet")
    assert os.path.getsize(tmp_path / "a.parquet") < 100_000
    with pytest.raises(FileError, match=f"unpacks to {rows * 8:,} bytes"):
        arrow_file(tmp_path / "a.parquet")
    assert len(arrow_file(tmp_path / "a.parquet", max_bytes=1 << 30)) == rows


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("read", [csv_file, numpy_file, NumpyDataset, read_idx, arrow_file])
def test_a_pipe_is_not_waited_for(tmp_path, read):
    if read is arrow_file:
        pytest.importorskip("pyarrow")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="is not a plain file"):
        read(tmp_path / "pipe")


def test_whole_numbers_too_large_for_integers_stay_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1e300,1e30\n2,3\n")
    x, y = csv_file(tmp_path / "a.csv", target="b").arrays
    assert (y.dtype, x[0, 0]) == (np.float32, np.inf)
    with pytest.raises(FileError, match=r"the target 'b' do not fit into int64"):
        csv_file(tmp_path / "a.csv", target="b", target_dtype=np.int64)


def test_an_error_from_a_worker_keeps_its_place():
    error = pickle.loads(pickle.dumps(FileError("read", "a/b", "is damaged.", "line 3")))
    assert (error.path, error.place, error.reason) == ("a/b", "line 3", "is damaged.")
    assert str(error) == "read: a/b, line 3: is damaged."
