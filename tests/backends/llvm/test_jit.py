"""Compiling and loading: what a compiled kernel offers, and how it survives threads and forks."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from weft.backends.llvm import jit, target
from weft.compiler.loop_ir import ir as loops
from weft.compiler.loop_ir.ir import Buffer, Kernel
from weft.ops.core import scalar as s


def kernel(addend, dtype=np.float32):
    i, n = s.index("i"), s.param("n")
    x = Buffer.of("x", dtype, (n,))
    return Kernel("k", (x,), ("n",), (loops.loop("i", n, [loops.store(x[i], s.exp(x[i]) + addend)], "vector"),))


def test_pointers_and_objects_are_two_ways_in():
    compiled = jit.compile_kernel(kernel(1.0))
    x, y = np.zeros(20, np.float32), np.zeros(20, np.float32)
    compiled.call(x.ctypes.data, 20)
    compiled.call_objects(id(y), 20)
    assert x[0] == 2
    np.testing.assert_array_equal(x, y)


def test_views_are_found_by_their_own_pointer():
    compiled = jit.compile_kernel(kernel(1.0))
    x = np.zeros(20, np.float32)
    view = x[5:15]
    compiled.call_objects(id(view), 10)
    np.testing.assert_array_equal(x, [0] * 5 + [2] * 10 + [0] * 5)


def test_assembly_and_ir_can_be_read():
    text = jit.kernel_ir(kernel(1.0))
    assert 'define void @"kernel"(ptr %b.x, i64 %p.n)' in text
    assert "kernel" in jit.assembly(kernel(1.0))


def test_host_is_described():
    host = target.host()
    assert host.vector_bytes in (16, 32, 64)
    assert host.cpu in host.key
    assert host.pointer_bits == 64
    assert not host.has("no-such-feature")


def test_threads_may_compile_at_once():
    results = {}

    def work(k):
        x = np.zeros(5, np.float32)
        jit.compile_kernel(kernel(float(k))).call_objects(id(x), 5)
        results[k] = x[0]

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(timeout=60)
        assert not w.is_alive()
    assert results == {k: 1.0 + k for k in range(6)}


def test_a_forked_child_computes_and_compiles():
    program = """
import os, threading
import numpy as np
import pytest
from weft.backends.llvm import eager
from weft.ops.core import scalar as s
x = np.ones((400, 1000), np.float32)
eager.reduce("sum", x, (0, 1))
def compile_some():
    for k in range(5):
        eager.elementwise("f", lambda v, k=k: s.sin(v) + float(k), [x], x.shape)
threading.Thread(target=compile_some).start()
pid = os.fork()
if pid == 0:
    ok = eager.reduce("sum", x, (0, 1)) == 400000 and eager.elementwise("g", lambda v: v + 7.5, [x], x.shape)[0, 0] == 8.5
    os._exit(0 if ok else 1)
_, status = os.waitpid(pid, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        env=dict(os.environ), capture_output=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def test_sections_stay_together_in_a_crowded_process():
    """Constants must be within reach of the code, wherever gigabytes of arrays have been put meanwhile."""
    crowd = []
    x = np.linspace(-2, 2, 50, dtype=np.float32)
    for k in range(12):
        crowd.append(np.empty(400 << 20, np.uint8))  # address space only: no page of it is touched
        y = x.copy()
        jit.compile_kernel(kernel(100.0 + k)).call_objects(id(y), 50)
        np.testing.assert_allclose(y, np.exp(x) + np.float32(100 + k), rtol=1e-6)


def test_many_modules_compiled_in_parallel_are_the_same_code(monkeypatch):
    host = target.host()
    modules = [jit.kernel_ir(kernel(float(i), dtype)) for i in range(12) for dtype in (np.float32, np.float64)]
    alone = [jit.compile_ir(ir, host) for ir in modules]
    monkeypatch.setattr(jit.threads, "get_num_threads", lambda: 4)
    for _ in range(3):
        assert jit.compile_many(modules, host) == alone
    with pytest.raises(RuntimeError):
        jit.compile_many([*modules, "define void @broken("], host)


def _run_script(program):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        env=dict(os.environ, WEFT_CACHE="0", WEFT_NUM_THREADS="2"), capture_output=True, timeout=90, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_interrupt_while_compiling_in_parallel_leaves_no_thread_at_work(monkeypatch):
    host = target.host()
    modules = [jit.kernel_ir(kernel(float(i))) for i in range(8)]
    monkeypatch.setattr(jit.threads, "get_num_threads", lambda: 3)
    compile_ir, main = jit.compile_ir, threading.current_thread()

    def interrupted(ir, host):
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        return compile_ir(ir, host)

    monkeypatch.setattr(jit, "compile_ir", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jit.compile_many(modules, host)
    assert not [t for t in threading.enumerate() if t.name == "weft-compile"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_is_about_to_compile_in_parallel():
    """The fork has done what Python's own libraries ask of it before it waits for the compilation."""
    _run_script(
        """
        import os, signal, threading, time
        import weft as wf
        import concurrent.futures.thread  # also takes a lock over a fork
        from weft.backends.llvm import jit, target

        signal.alarm(60)
        held = threading.Event()
        module = "define void @f{}() {{\\n  ret void\\n}}\\n"

        def work():
            with jit._lock:
                held.set()
                time.sleep(0.5)
                assert len(jit.compile_many([module.format(i) for i in range(8)], target.host())) == 8

        thread = threading.Thread(target=work)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            wf.function(lambda x: (x @ x).sum())(wf.ones((8, 8)))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("before", "work"),
    [("", "target.host()"), ("target.host()", "jit.assembly(Kernel('k', (), (), ()))")],
    ids=["host", "assembly"],
)
def test_fork_while_another_thread_holds_the_lock_of_llvmlite(before, work):
    _run_script(
        f"""
        import os, signal, threading, time
        from llvmlite.binding import ffi
        from weft.backends.llvm import jit, target
        from weft.compiler.loop_ir.ir import Kernel

        signal.alarm(60)
        held = threading.Event()

        def pause():
            if not held.is_set():
                held.set()
                time.sleep(0.5)

        {before}
        ffi.register_lock_callback(pause, lambda: None)
        thread = threading.Thread(target=lambda: {work})
        thread.start()
        assert held.wait(30)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            {work}
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join(30)
        """
    )


@pytest.mark.parametrize("when", ["thread", "atexit"])
def test_program_is_compiled_after_the_main_thread_has_ended(when):
    start = "threading.Thread(target=work).start()" if when == "thread" else "atexit.register(work)"
    out = _run_script(
        f"""
        import atexit, threading, time
        import weft as wf

        def work():
            time.sleep(0.2)
            print(float(wf.function(lambda x: wf.exp(wf.sort(x @ x)).sum(axis=0).max())(wf.zeros((8, 8)))))

        {start}
        """
    )
    assert out == "8.0\n"


def test_small_stacks_for_threads_are_no_danger_to_compilation():
    out = _run_script(
        """
        import threading
        import weft as wf

        threading.stack_size(32 * 1024)
        print(float(wf.function(lambda x: wf.exp(wf.sort(x @ x)).sum(axis=0).max())(wf.zeros((8, 8)))))
        print(threading.stack_size())
        """
    )
    assert out == "8.0\n32768\n"


def test_too_little_address_space_is_an_error_not_an_end():
    """LLVM itself ends the process when memory is refused."""
    pytest.importorskip("resource")
    out = (
        _run_script(
            """
        import mmap, resource
        import weft as wf

        wf.function(lambda x: x + 1)(wf.zeros((8, 8)))
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + (60 << 20),) * 2)
        for n in range(2, 30):
            try:
                wf.function(lambda x: wf.exp(wf.sort(x @ x)).sum(axis=0).max())(wf.zeros((n, n)))
            except MemoryError as error:
                print(error)
                break
        """
        )
        if os.path.exists("/proc/self/statm")
        else "no room to compile"
    )
    assert "no room to compile" in out
