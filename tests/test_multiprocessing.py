"""Tensors that several processes see, and processes that come to an end."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))

import multiprocessing_samples as samples

import weft as wf
from weft.multiprocessing import get_context, is_shared, share_memory, spawn

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    yield
    assert not multiprocessing.active_children()
    if os.path.isdir("/dev/shm"):
        assert not {n for n in set(os.listdir("/dev/shm")) - before if "weft" in n}


def test_sharing_moves_a_tensor_in_place():
    tensor = wf.asarray(np.arange(6.0).reshape(2, 3))
    assert not is_shared(tensor)
    assert share_memory(tensor) is tensor
    assert is_shared(tensor)
    assert is_shared(tensor[1])
    assert is_shared(tensor.numpy().T[1:])
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    address = tensor.numpy().__array_interface__["data"][0]
    assert address % 64 == 0
    share_memory(tensor)
    assert tensor.numpy().__array_interface__["data"][0] == address


def test_containers_and_arrays_are_shared_in_one_segment():
    array, tensor = np.arange(3), wf.asarray(np.ones((2, 2)))
    shared = share_memory({"a": array, "t": [tensor]})
    assert not is_shared(array)
    assert shared["a"].tolist() == [0, 1, 2]
    assert shared["t"][0] is tensor
    assert shared["a"].base is tensor.numpy().base
    with pytest.raises(TypeError, match="cannot share int"):
        share_memory([1])
    with pytest.raises(TypeError, match="arrays of Python objects"):
        share_memory(np.array([None]))
    with pytest.raises(ValueError, match="only leaf tensors"):
        share_memory(wf.asarray(np.ones(2)).requires_grad_() * 2)


def test_empty_and_scalar_tensors_are_shared():
    empty, scalar = wf.asarray(np.zeros((0, 3))), wf.asarray(np.array(2.0))
    share_memory((empty, scalar))
    assert (empty.shape, scalar.item()) == ((0, 3), 2.0)
    assert is_shared(scalar)


def test_plain_pickles_and_copies_are_private():
    tensor = share_memory(wf.asarray(np.arange(3.0)).requires_grad_())
    for other in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert not is_shared(other)
        assert other.requires_grad
        assert other.tolist() == [0, 1, 2]


def test_processes_write_to_the_same_memory():
    tensor = share_memory(wf.asarray(np.zeros(3, np.float32)).requires_grad_())
    results = spawn(samples.add_rank, (tensor,), nprocs=2, timeout=30)
    assert [r[:2] for r in results] == [(True, True), (True, True)]
    assert tensor.tolist() == [1, 2, 0]


def test_a_private_tensor_arrives_as_a_copy():
    tensor = wf.asarray(np.zeros(3))
    assert spawn(samples.add_rank, (tensor,), timeout=30) == [(False, False, 1.0)]
    assert tensor.tolist() == [0, 0, 0]


def test_a_view_stays_a_view_of_its_base_on_the_other_side():
    whole = share_memory(wf.asarray(np.zeros((3, 4))))
    part = wf.asarray(whole.numpy()[1:, ::2])
    share_memory(part)
    assert spawn(samples.write_view, ((whole, part),), timeout=30) == [True]
    assert whole.tolist() == [[0, 0, 0, 0], [7, 0, 7, 0], [7, 0, 7, 0]]


def test_a_tensor_outlives_the_process_that_made_it():
    context = get_context()
    queue, received = context.Queue(), context.Event()
    group = spawn(samples.produce, (queue, received), join=False)
    tensor = queue.get(timeout=30)
    assert is_shared(tensor)
    received.set()
    group.processes[0].join(20)
    assert group.processes[0].exitcode == 0
    assert tensor.tolist() == [42, 1, 2, 3, 4]
    group.stop()
    queue.close()
    queue.join_thread()


def test_a_queue_carries_shared_tensors_the_other_way():
    queue = get_context().Queue()
    tensor = share_memory(wf.asarray(np.zeros(2)))
    queue.put(tensor)
    assert spawn(samples.consume, (queue,), timeout=30) == [True]
    assert tensor.tolist() == [0, -1]
    queue.close()
    queue.join_thread()


def test_the_names_of_the_standard_library_are_those_of_the_spawn_context():
    tensor = share_memory(wf.asarray(np.zeros(3, np.float32)).requires_grad_())
    processes = [wf.multiprocessing.Process(target=samples.add_rank, args=(rank, tensor)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0]
    assert tensor.tolist() == [1, 2, 0]
    assert get_context("spawn") is get_context()
    with pytest.raises(ValueError, match="get_context: processes are spawned. Got 'fork'"):
        get_context("fork")
    with pytest.raises(AttributeError, match="has no attribute 'Porcess'"):
        _ = wf.multiprocessing.Porcess


def test_the_first_child_of_a_process_does_not_see_ctrl_c_while_it_starts():
    """In a new process: the first start is the one that also starts Python's resource tracker."""
    program = f"""
import signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import multiprocessing_samples as samples
from weft.multiprocessing import Pipe, Process, child_environment
ours, theirs = Pipe()
process = Process(target=samples.send_blocked_signals, args=(theirs,))
with child_environment(threads=1):
    process.start()
assert ours.poll(30)
print(int(signal.SIGINT) in ours.recv(), not signal.pthread_sigmask(signal.SIG_BLOCK, ()))
process.join(30)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_hogwild_training_converges():
    weight = share_memory(wf.asarray(np.zeros(3, np.float32)).requires_grad_())
    bias = share_memory(wf.asarray(np.zeros((), np.float32)).requires_grad_())
    losses = spawn(samples.hogwild, ((weight, bias), 300), nprocs=2, timeout=50, threads=1)
    assert max(losses) < 0.01
    np.testing.assert_allclose(weight.detach().numpy(), [1, -2, 3], atol=0.1)
    np.testing.assert_allclose(bias.detach().numpy(), 0.5, atol=0.1)


def test_segments_and_files_are_closed_with_their_tensors():
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("counts open files through /proc")

    def segments() -> int:
        """Open segments; not other files, which threads of other tests may open meanwhile."""
        gc.collect()
        return sum(path.is_symlink() and os.path.realpath(path).startswith("/memfd:weft") for path in folder.iterdir())

    before = segments()
    kept = share_memory(wf.asarray(np.zeros(1000)))
    assert segments() > before
    del kept
    for _ in range(50):
        share_memory(wf.asarray(np.zeros(1000)))
    assert segments() <= before


def test_systems_without_memfd_use_a_segment_whose_name_is_gone_at_once(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    tensor = share_memory(wf.asarray(np.zeros(3)))
    assert spawn(samples.add_rank, (tensor,), timeout=30)[0][0]
    assert tensor.tolist() == [1, 0, 0]


def test_the_first_failure_is_raised_and_the_rest_stopped():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="process 1 failed with ValueError: rank one does not want to") as caught:
        spawn(samples.fail, nprocs=2, timeout=30)
    assert "in fail" in str(caught.value)
    with pytest.raises(RuntimeError, match="process 0 ended with exit code 3"):
        spawn(samples.leave, nprocs=2, timeout=30)
    assert time.monotonic() - start < 20


def test_waiting_ends_after_the_timeout():
    with pytest.raises(TimeoutError, match=r"processes \[0\] had not ended after 0.5 seconds"):
        spawn(samples.sleep, timeout=0.5)


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(TypeError, match="spawn: fn or args: it cannot be sent"):
        spawn(lambda rank: None)
    with pytest.raises(RuntimeError, match="the result of process 0: it cannot be sent"):
        spawn(samples.unpicklable_result, timeout=30)
    with pytest.raises(ValueError, match="nprocs must be a positive integer"):
        spawn(samples.sleep, nprocs=0)


def test_processes_divide_the_processors_between_them():
    before = {k: os.environ.get(k) for k in ("OMP_NUM_THREADS", "WEFT_NUM_THREADS")}
    assert spawn(samples.report_threads, timeout=30, threads=3) == [("3", "3")]
    assert {k: os.environ.get(k) for k in before} == before
