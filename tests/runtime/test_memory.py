"""The caching allocator: reuse, ownership, limits, threads, forks."""

from __future__ import annotations

import copy
import ctypes
import gc
import math
import os
import pickle
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.runtime import _host, memory

MIB = 1024 * 1024
LARGE = (1024, 1024)  # 4 MiB of float32


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[memory._Pool]:
    """A pool of the test's own, so that arrays of other tests do not show in its figures."""
    fresh = memory._Pool()
    monkeypatch.setattr(memory, "_pool", fresh)
    memory._plan.cache_clear()  # plans remember the pool's size classes
    yield fresh
    memory._plan.cache_clear()
    fresh.trim()


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


# --------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("shape", [(), (0,), (3,), (3, 0, 5), (100, 200), LARGE, (3, 5, 70, 11)])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float32, np.complex128, ml_dtypes.bfloat16])
def test_empty_and_zeros_are_ordinary_arrays(shape: tuple[int, ...], dtype: Any) -> None:
    for make in (memory.empty, memory.zeros):
        array = make(shape, dtype)
        assert type(array) is np.ndarray
        assert array.shape == shape and array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
        array.fill(1)
        assert (array == 1).all()
    assert (memory.zeros(shape, dtype) == 0).all()


def test_large_arrays_are_pooled_and_aligned_small_ones_are_not() -> None:
    for size in (memory.THRESHOLD, memory.THRESHOLD + 4, 5 * MIB):
        array = memory.empty((size // 4,))
        assert memory.is_pooled(array) and address(array) % 64 == 0
    assert address(memory.empty(LARGE)) % (2 * MIB) == 0
    assert not memory.is_pooled(memory.empty((memory.THRESHOLD // 4 - 1,)))
    assert not memory.is_pooled(np.empty(LARGE))


def test_object_arrays_are_never_pooled() -> None:
    array = memory.empty((10000,), object)
    assert not memory.is_pooled(array) and array[0] is None


def test_shape_forms_and_dtype_forms() -> None:
    for shape in (20000, [200, 100], np.int64(20000), (np.int32(200), 100), np.array([200, 100])):
        array = memory.empty(shape, "float64")  # type: ignore[arg-type]
        assert array.size == 20000 and array.dtype == np.float64


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("spatial", [2, 24])
def test_channels_last(rank: int, spatial: int) -> None:
    shape = (2, 7, *[spatial] * (rank - 2))
    array = memory.empty_channels_last(shape)
    assert array.shape == shape
    moved = np.moveaxis(array, 1, -1)
    assert moved.flags.c_contiguous
    array.fill(3)
    assert (array == 3).all()


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4), data=st.data())
@settings(max_examples=60, deadline=None)
def test_strides_order_is_a_gapless_order_of_the_axes(sizes: list[int], data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(sizes)))))
    array = memory.zeros(tuple(sizes), np.int16, order)
    assert array.shape == tuple(sizes)
    assert array.transpose(order).flags.c_contiguous
    numbers = np.arange(array.size, dtype=np.int16).reshape(array.shape)
    assert not array.any()
    array[...] = numbers
    np.testing.assert_array_equal(array, numbers)


def test_zeros_on_a_used_block_are_zero() -> None:
    used = memory.empty(LARGE)
    used.fill(7)
    where = address(used)
    del used
    again = memory.zeros(LARGE)
    assert address(again) == where and not again.any()


# ------------------------------------------------------------------------------------------------ ownership


def test_memory_returns_at_once_without_the_collector_and_is_used_again() -> None:
    gc.disable()
    try:
        first = memory.empty(LARGE)
        where = address(first)
        assert memory.stats().in_use == 4 * MIB
        del first
        assert memory.stats().in_use == 0 and memory.stats().cached == 4 * MIB
        assert address(memory.empty((1024, 1000))) == where  # the same size class
        assert memory.stats().misses == 1 and memory.stats().hits == 1
    finally:
        gc.enable()


def test_views_keep_the_block_and_share_one_root() -> None:
    array = memory.empty(LARGE)
    view = array[1:].T[::2]
    reshaped = array.reshape(-1)[5:].view(np.int32)
    assert view.base is array and reshaped.base is array
    assert memory.root(view) is memory.root(reshaped) is memory.root(array) is array
    del array, reshaped
    view.fill(5)
    other = memory.empty(LARGE)
    other.fill(6)
    assert (view == 5).all()
    buffer = memoryview(view)
    del view
    assert memory.stats().in_use == 8 * MIB
    buffer.release()
    del buffer
    assert memory.stats().in_use == 4 * MIB


def test_root_of_plain_numpy_memory() -> None:
    array = np.zeros((3, 4))
    assert memory.root(array) is array and memory.root(array[1:][1:]) is array


def test_other_objects_of_the_owners_type_do_not_disturb_the_pool() -> None:
    for size in (memory.THRESHOLD, 4 * MIB):
        array = memory.empty((size,), np.uint8)
        owner = array.base
        assert owner is not None
        before = memory.stats()
        foreign = type(owner)()
        del foreign
        after = memory.stats()
        assert (after.in_use, after.cached) == (before.in_use, before.cached)


def test_arrays_pickle_and_copy_as_usual() -> None:
    array = memory.zeros(LARGE)
    array[3, 4] = 5
    for twin in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array), array.copy()):
        np.testing.assert_array_equal(twin, array)
        assert not np.shares_memory(twin, array)


def test_reuse_does_not_fault() -> None:
    """Touching a reused block costs no page fault; a fresh one does."""
    page = resource.getpagesize()
    elements = 8 * MIB // 4

    def faults(shape: tuple[int, ...]) -> int:
        array = memory.empty(shape)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        array.fill(1)
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    small = 512 * 1024 // 4
    assert faults((small,)) >= 512 * 1024 // page // 2
    assert faults((elements,)) > 0
    assert sum(faults((size,)) for _ in range(5) for size in (elements, small)) <= 2


# ------------------------------------------------------------------------------------------- size classes


@given(st.integers(memory.THRESHOLD, 1 << 50))
def test_size_classes_are_whole_pages_and_waste_an_eighth_at_most(nbytes: int) -> None:
    size = memory.size_class(nbytes)
    assert size >= nbytes and size % 4096 == 0
    assert size - nbytes <= max(nbytes // 8, 4096)
    assert memory.size_class(size) == size


def test_a_slightly_larger_free_block_is_better_than_a_new_one() -> None:
    big = memory.empty((int(4.9 * MIB),), np.uint8)
    where = address(big)
    del big
    assert address(memory.empty((4 * MIB,), np.uint8)) == where
    assert memory.empty((2 * MIB,), np.uint8) is not None
    assert memory.stats().misses == 2


# ------------------------------------------------------------------------------------------- statistics


def test_statistics_trim_and_peak() -> None:
    arrays = [memory.empty(LARGE) for _ in range(3)]
    assert memory.stats().peak == 12 * MIB
    del arrays[1:]
    memory.reset_peak()
    assert memory.stats() == memory.MemoryStats(4 * MIB, 8 * MIB, 4 * MIB, 0, 3, 0)
    assert memory.trim() == 8 * MIB and memory.trim() == 0
    assert memory.stats().cached == 0 and memory.stats().released == 8 * MIB
    arrays[0].fill(1)
    assert "4.0 MiB in use (peak 4.0 MiB), 0 B cached, 3 requests, 0% from the cache" == str(memory.stats())


def test_small_blocks_are_counted_too() -> None:
    arrays = [memory.empty((memory.THRESHOLD,), np.uint8) for _ in range(10)]
    arrays.clear()
    assert memory.stats().in_use == 0 and memory.stats().cached == 10 * memory.THRESHOLD
    assert memory.trim() == 10 * memory.THRESHOLD


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 62, "4 EiB")]
)
def test_format_bytes(count: int, text: str) -> None:
    assert memory.format_bytes(count) == text


# ----------------------------------------------------------------------------------------------- limits


def test_a_request_beyond_the_machine_raises_with_figures() -> None:
    available = _host.memory_available()
    assert available is not None
    with pytest.raises(MemoryError, match=r"Got a request for .*; .* are available, and Weft's arrays use") as caught:
        memory.empty((2 * available,), np.uint8)
    assert "GiB" in str(caught.value)
    assert memory.stats().in_use == 0


@pytest.mark.parametrize(
    "shape", [(2**62,), (2**40, 2**40), (2**31, 2**31, 2**31), (0, 2**62, 2**62), (2**63,), (10**30,)]
)
@pytest.mark.parametrize("make", [memory.empty, memory.zeros])
def test_overflowing_shapes_raise_cleanly(make: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(MemoryError, match="memory: the request does not fit"):
        make(shape)


@pytest.mark.parametrize(
    ("shape", "error", "text"),
    [
        ((-1,), ValueError, "sizes cannot be negative"),
        ((-1000, -1000), ValueError, "sizes cannot be negative"),
        ((2.0,), TypeError, "shape must be an integer or a sequence of integers"),
        ((1000.0, 1000.0), TypeError, "shape must be an integer or a sequence of integers"),
        ("34", TypeError, "shape must be an integer or a sequence of integers"),
        (None, TypeError, "shape must be an integer or a sequence of integers"),
    ],
)
def test_bad_shapes(shape: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"empty: {text}"):
        memory.empty(shape)


def test_bad_orders() -> None:
    for order in ((0, 0), (0,), (0, 1, 2), (1, 2)):
        with pytest.raises(ValueError, match="strides_order is not an order of the axes"):
            memory.empty((200, 300), np.float32, order)
    with pytest.raises(ValueError, match="empty_channels_last: shape has no spatial axes"):
        memory.empty_channels_last((2, 3))


def test_memory_that_was_promised_but_not_touched_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several large arrays that each fit, and together do not, are refused before anybody writes to them."""
    monkeypatch.setattr(_host, "memory_available", lambda: 512 * MIB)
    monkeypatch.setattr(_host, "anonymous_resident", lambda: 10 * MIB)
    kept = [memory.empty((200 * MIB,), np.uint8), memory.empty((200 * MIB,), np.uint8)]
    with pytest.raises(MemoryError, match=r"Weft's arrays use 4\d\d\.\d MiB"):
        memory.empty((200 * MIB,), np.uint8)
    assert len(kept) == 2


def test_cached_blocks_are_given_up_before_a_request_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for array in [memory.empty((20 * MIB,), np.uint8) for _ in range(3)]:
        array.fill(1)
    del array
    assert memory.stats().cached >= 60 * MIB
    left = 100 * MIB

    def available() -> int:
        return left + memory._pool.released

    monkeypatch.setattr(_host, "memory_available", available)
    monkeypatch.setattr(_host, "anonymous_resident", lambda: None)
    monkeypatch.setattr(memory, "_READING_SECONDS", -1.0)
    memory.empty((70 * MIB,), np.uint8)
    assert memory.stats().released > 0


def test_the_cache_shrinks_under_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "memory_total", lambda: 1024 * MIB)
    monkeypatch.setattr(memory, "_READING_SECONDS", -1.0)
    arrays = [memory.empty((16 * MIB,), np.uint8) for _ in range(4)]
    monkeypatch.setattr(_host, "memory_available", lambda: 512 * MIB)
    del arrays[:2]
    assert memory.stats().cached == 32 * MIB  # more than an eighth of the total is left: keep
    monkeypatch.setattr(_host, "memory_available", lambda: 100 * MIB)
    del arrays[:]
    assert memory.stats().cached < 48 * MIB and memory.stats().released > 0
    monkeypatch.setattr(_host, "memory_available", lambda: 0)
    memory._pool.give_back(0)  # any block that dies, even one already booked, leads to the look
    assert memory.stats().cached == 0


ADDRESS_LIMIT = """
    import resource
    import numpy as np
    from weft.runtime import memory
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 300 * 2**20, now + 300 * 2**20))
    a = memory.empty((150 * 2**20,), np.uint8)
    try:
        memory.empty((250 * 2**20,), np.uint8)
    except MemoryError as error:
        print(error)
    del a
    print(memory.empty((250 * 2**20,), np.uint8).nbytes, memory.stats().released > 0)
"""


def test_an_address_space_limit_is_a_memory_error_and_frees_the_cache_first() -> None:
    first, second = run_python(ADDRESS_LIMIT).splitlines()
    assert "the system refused the mapping" in first
    assert second == f"{250 * MIB} True"


# --------------------------------------------------------------------------------- threads and processes


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_threads_never_share_a_block() -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        generator = np.random.default_rng(number)
        kept: list[tuple[np.ndarray[Any, Any], int]] = []
        for step in range(300):
            array = memory.empty((int(generator.integers(9000, 60000)),), np.int32)
            mark = number * 1000 + step
            array.fill(mark)
            kept.append((array, mark))
            del array
            if len(kept) > 6:
                old, expected = kept.pop(int(generator.integers(len(kept))))
                if not (old == expected).all():
                    failures.append(f"thread {number}, step {step}")

    started = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []
    figures = memory.stats()
    assert figures.in_use == 0 and figures.hits + figures.misses == 1200
    assert figures.cached == sum(len(each.blocks) * each.size for each in memory._pool.classes.values())
    assert memory._pool.live == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_has_its_own_working_pool() -> None:
    code = """
        import os, threading, warnings
        import numpy as np
        from weft.runtime import memory

        warnings.simplefilter("ignore")  # newer Pythons warn about forking with threads: that is the point here
        a = memory.empty((1000, 1000)); a.fill(1)
        b = memory.empty((1000, 1000)); b.fill(2); del b
        stop = threading.Event()
        def churn():
            while not stop.is_set():
                memory.empty((300, 300)).fill(0)
        thread = threading.Thread(target=churn); thread.start()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                a.fill(5)
                c = memory.zeros((1000, 1000))
                ok = (a == 5).all() and not c.any() and memory.stats().hits >= 1
                del a
                memory.trim()
                os._exit(0 if ok else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set(); thread.join(10)
        assert (a == 1).all()
        print("fine")
    """
    assert run_python(code) == "fine\n"


def test_arrays_that_live_until_the_interpreter_ends_are_no_trouble() -> None:
    code = """
        import numpy as np
        from weft.runtime import memory
        kept = [memory.zeros((1000, 1000)), memory.zeros((100, 100))]
        class Keeper: pass
        keeper = Keeper(); keeper.me = keeper; keeper.array = memory.zeros((1000, 1000))
    """
    assert run_python(code) == ""


def test_total_is_the_sum_of_what_was_asked() -> None:
    shapes = [(300, 301), (1000, 1000), (64, 64, 64)]
    kept = [memory.empty(shape) for shape in shapes]
    asked = sum(math.prod(shape) * 4 for shape in shapes)
    assert asked <= memory.stats().in_use <= asked * 1.13
    assert isinstance(kept[0].base, ctypes.Array)


def test_equal_dtypes_are_one_object_in_any_order_of_creation():
    memory.empty((3, 17), np.dtype(np.longlong))
    assert memory.empty((3, 17), np.dtype("int64")).dtype is np.dtype("int64")
    assert memory.empty((3, 17), np.dtype(np.longlong)).dtype is np.dtype("int64")
