"""Width, OpenMP and the compute token; whatever could hang runs in a subprocess with a time-out."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from weft.runtime import _host, threads
from weft.runtime.threads import ComputeToken

OPENMP_VARIABLES = ("WEFT_NUM_THREADS", "WEFT_OPENMP", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "GOMP_SPINCOUNT")
needs_openmp = pytest.mark.skipif(threads.openmp() is None, reason="no libgomp on this machine")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


@pytest.fixture(autouse=True)
def restore_width() -> Iterator[None]:
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def run_python(code: str, timeout: float = 30, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter whose OpenMP settings are exactly `environment`."""
    env = {key: value for key, value in os.environ.items() if key not in (*OPENMP_VARIABLES, "OMP_WAIT_POLICY")}
    env.update(environment)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        text=True,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def output_of(code: str, timeout: float = 30, **environment: str) -> str:
    result = run_python(code, timeout, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# --------------------------------------------------------------------------------------------------- width


def test_default_width_is_the_processors_we_may_use() -> None:
    width = int(output_of("from weft.runtime import threads; print(threads.get_num_threads())"))
    assert width == min(_host.usable_cpus(), threads._limit())


def test_default_width_follows_the_affinity_mask() -> None:
    code = """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        from weft.runtime import threads
        print(threads.get_num_threads())
    """
    assert output_of(code) == "1"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"WEFT_NUM_THREADS": "3"}, "3"),
        ({"OMP_NUM_THREADS": "5"}, "5"),
        ({"OMP_NUM_THREADS": "5,2"}, "5"),
        ({"WEFT_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "3"),
    ],
)
def test_environment_sets_the_width(environment: dict[str, str], expected: str) -> None:
    assert output_of("from weft.runtime import threads; print(threads.get_num_threads())", **environment) == expected


@pytest.mark.parametrize("text", ["zero", "0", "-1", "1.5", "²"])
def test_bad_environment_width_is_an_error_that_names_the_variable(text: str) -> None:
    result = run_python("from weft.runtime import threads; threads.get_num_threads()", WEFT_NUM_THREADS=text)
    assert result.returncode == 1
    assert "ValueError: WEFT_NUM_THREADS: expected a whole number of at least 1" in result.stderr


@needs_openmp
def test_width_never_exceeds_the_openmp_limit() -> None:
    code = """
        import warnings
        from weft.runtime import threads
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print(threads.get_num_threads(), threads.get_num_threads(), len(caught))
        try:
            threads.set_num_threads(3)
        except ValueError as error:
            print(error)
    """
    first, second = output_of(code, WEFT_NUM_THREADS="8", OMP_THREAD_LIMIT="2").splitlines()
    assert first == "2 2 1"
    assert second.startswith("set_num_threads: n is out of range. Got 3; expected 1 to 2")


def test_set_num_threads_is_seen_by_everyone() -> None:
    address = threads.width_cell_address()
    cell = ctypes.c_int32.from_address(address)
    for width in (1, 2, 3):
        threads.set_num_threads(width)
        assert threads.get_num_threads() == width
        assert threads.ensure_width() == width
        assert cell.value == (width if threads.openmp_usable() else 1)
    assert threads.width_cell_address() == address


@pytest.mark.parametrize("n", [0, -1, 10**6, 2**80])
def test_set_num_threads_refuses_impossible_widths(n: int) -> None:
    before = threads.get_num_threads()
    with pytest.raises(ValueError, match=r"set_num_threads: n is out of range\. Got"):
        threads.set_num_threads(n)
    assert threads.get_num_threads() == before


@pytest.mark.parametrize("n", [True, 2.0, "2", None])
def test_set_num_threads_refuses_other_types(n: object) -> None:
    with pytest.raises(TypeError, match="set_num_threads: n must be an integer"):
        threads.set_num_threads(n)  # type: ignore[arg-type]


@needs_openmp
def test_every_thread_gets_the_width() -> None:
    library = threads.openmp()
    assert library is not None
    threads.set_num_threads(3)
    seen: list[int] = []

    def work() -> None:
        threads.ensure_width()
        seen.append(library.omp_get_max_threads())

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)
    assert seen == [3, 3]


@needs_openmp
def test_force_repairs_a_width_that_other_code_changed() -> None:
    library = threads.openmp()
    assert library is not None
    threads.set_num_threads(2)
    library.omp_set_num_threads(1)
    threads.ensure_width(force=True)
    assert library.omp_get_max_threads() == 2


# ------------------------------------------------------------------------------------------------- library


@needs_openmp
def test_openmp_is_loaded_once_and_says_where_from() -> None:
    assert threads.openmp() is threads.openmp()
    path = threads.openmp_path()
    assert path is not None and os.path.exists(path)
    assert path in threads.openmp_libraries()
    assert threads.symbol_address("GOMP_parallel")
    assert threads.symbol_address("no_such_function") is None


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = "from weft.runtime import threads; print(threads.openmp_path(), threads.openmp_libraries())"
    assert output_of(code) == "None []"


SHOW_SPIN = """
    import ctypes, os, sys
    from weft.runtime import threads
    seen = []
    real = ctypes.CDLL
    class Spy(real):
        def __init__(self, *arguments, **keywords):
            seen.append(os.environ.get("GOMP_SPINCOUNT"))
            super().__init__(*arguments, **keywords)
    ctypes.CDLL = Spy
    threads.openmp()
    print(seen[0], os.environ.get("GOMP_SPINCOUNT"))
"""


@needs_openmp
@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "5000 None"), ({"GOMP_SPINCOUNT": "77"}, "77 77"), ({"OMP_WAIT_POLICY": "passive"}, "None None")],
)
def test_spinning_is_bounded_while_loading_and_the_users_choice_wins(
    environment: dict[str, str], expected: str
) -> None:
    assert output_of(SHOW_SPIN, **environment) == expected


def test_openmp_can_be_switched_off() -> None:
    code = """
        import ctypes, warnings
        warnings.simplefilter("error")
        from weft.runtime import threads
        print(threads.openmp(), threads.symbol_address("GOMP_parallel"), threads.openmp_usable())
        threads.set_num_threads(2)
        threads.ensure_width()
        print(threads.get_num_threads(), ctypes.c_int32.from_address(threads.width_cell_address()).value)
    """
    assert output_of(code, WEFT_OPENMP="0").splitlines() == ["None None False", "2 1"]


@pytest.mark.parametrize("path", ["/nonexistent/libgomp.so.1", "libm.so.6"])
def test_missing_openmp_warns_once_and_goes_on(path: str) -> None:
    code = """
        import warnings
        from weft.runtime import threads
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                threads.openmp()
                threads.ensure_width()
        print(len(caught), caught[0].category.__name__, "apt-get install libgomp1" in str(caught[0].message))
        print(threads.openmp(), threads.get_num_threads() >= 1)
    """
    assert output_of(code, WEFT_OPENMP=path).splitlines() == ["1 RuntimeWarning True", "None True"]


# --------------------------------------------------------------------------------------------------- fork

PARALLEL = """
    import ctypes, os, threading
    from weft.runtime import threads

    def workers(n):
        seen = set()
        def body(_):
            seen.add(threading.get_native_id())
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
        threads.ensure_width()
        threads.openmp().GOMP_parallel(callback, None, n, 0)
        return len(seen)

    def in_child(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
"""


def with_parallel(code: str) -> str:
    return textwrap.dedent(PARALLEL) + textwrap.dedent(code)


@needs_openmp
@needs_fork
def test_forked_child_is_at_width_one_and_openmp_does_not_hang_there() -> None:
    code = with_parallel("""
        threads.set_num_threads(2)
        cell = ctypes.c_int32.from_address(threads.width_cell_address())
        print(workers(2), flush=True)
        def child():
            print(threads.get_num_threads(), cell.value, workers(0), flush=True)
            print(workers(2), flush=True)   # what a primitive frozen at the parent's width does
            threads.set_num_threads(2)
            print(threads.get_num_threads(), cell.value, workers(0), flush=True)
        in_child(child)
        print(threads.get_num_threads(), cell.value, workers(0), flush=True)
    """)
    assert output_of(code).splitlines() == ["2", "1 1 1", "2", "2 2 2", "2 2 2"]


@needs_openmp
@needs_fork
def test_forking_again_and_again_and_from_threads_does_not_hang() -> None:
    code = with_parallel("""
        threads.set_num_threads(2)
        stop = threading.Event()
        def background():
            while not stop.is_set():
                with threads.compute_token:
                    workers(2)
        thread = threading.Thread(target=background)
        thread.start()
        workers(2)
        def child():
            with threads.compute_token:
                workers(2)
            in_child(lambda: workers(2))
        for _ in range(10):
            in_child(child)
            workers(2)
        stop.set()
        thread.join(10)
        print("done", thread.is_alive())
    """)
    assert output_of(code) == "done False"


@needs_openmp
@needs_fork
def test_child_of_a_libgomp_that_cannot_stop_its_workers_stays_out_of_openmp() -> None:
    code = with_parallel("""
        threads.set_num_threads(2)
        workers(2)
        threads.openmp().omp_pause_resource_all = lambda kind: -1
        cell = ctypes.c_int32.from_address(threads.width_cell_address())
        def child():
            threads.set_num_threads(2)
            print(threads.openmp_usable(), cell.value, flush=True)
        in_child(child)
        print(threads.openmp_usable(), cell.value, flush=True)
    """)
    assert output_of(code).splitlines() == ["False 1", "True 2"]


@needs_fork
def test_fork_before_first_use_keeps_the_full_width() -> None:
    code = with_parallel("""
        in_child(lambda: print(threads.get_num_threads(), flush=True))
    """)
    assert output_of(code, WEFT_NUM_THREADS="2") == "2"


# --------------------------------------------------------------------------------------------------- token


def start(function: object, count: int = 1) -> list[threading.Thread]:
    started = [threading.Thread(target=function, daemon=True) for _ in range(count)]  # type: ignore[arg-type]
    for thread in started:
        thread.start()
    return started


def join(started: list[threading.Thread]) -> None:
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


def test_token_admits_one_thread_at_a_time() -> None:
    token = ComputeToken(patience=15)
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with token:
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                inside -= 1

    join(start(work, 4))
    assert most == 1
    assert token._owner is None and not token._waiters


def test_token_is_reentrant() -> None:
    token = ComputeToken()
    with token:
        with token:
            assert token.held()
        assert token.held()
    assert not token.held()


def test_token_goes_to_those_who_wait_in_turn() -> None:
    token = ComputeToken(patience=15, turn=0.05)
    order: list[int] = []
    token.acquire()
    started = []
    for number in range(3):

        def work(number: int = number) -> None:
            with token:
                order.append(number)

        started += start(work)
        while len(token._waiters) <= number:
            time.sleep(0.001)
        # Everybody polls once a turn; only the hand-over at its end gives the order.
    time.sleep(0.1)
    token.release()
    join(started)
    assert sorted(order) == [0, 1, 2]
    assert order[0] == 0


def test_a_thread_that_keeps_coming_back_does_not_starve_the_others() -> None:
    token = ComputeToken(patience=15)
    stop = time.monotonic() + 10
    turns = {0: 0, 1: 0}

    def work(number: int) -> None:
        while min(turns.values()) < 20 and time.monotonic() < stop:
            with token:
                time.sleep(0.0003)
            turns[number] += 1

    join([*start(lambda: work(0)), *start(lambda: work(1))])
    assert min(turns.values()) >= 20


def test_small_work_is_not_handed_over_every_time() -> None:
    """While a thread's turn lasts it may take the token again, although another thread waits."""
    token = ComputeToken(patience=15, turn=0.2)
    got_it = threading.Event()

    def wait_for_it() -> None:
        with token:
            got_it.set()

    token.acquire()
    started = start(wait_for_it)
    while not token._waiters:
        time.sleep(0.001)
    for _ in range(10):
        token.release()
        token.acquire()
    assert not got_it.is_set()
    token.release()
    join(started)
    assert got_it.is_set()


def test_patience_ends_a_cyclic_wait() -> None:
    """The holder waits for a thread that wants the token: it is delayed, not deadlocked."""
    token = ComputeToken(patience=0.05)

    def work() -> None:
        with token:
            assert token.held()

    with token:
        join(start(work))
        assert not token.held()
    with token:  # the late release above must not have broken anything
        assert token.held()


def test_token_of_a_thread_that_died_with_it_comes_back() -> None:
    token = ComputeToken(patience=0.05)
    join(start(token.acquire))
    with token:
        assert token.held()
    assert token._owner is None


def test_release_without_acquire_does_nothing() -> None:
    token = ComputeToken()
    token.release()
    with token:
        join(start(token.release))
        assert token.held()
