"""Pausing the collector: nested, from several threads, and back to what it was."""

from __future__ import annotations

import gc
import threading

import pytest

from weft.runtime import garbage


def test_pauses_nest_and_end_with_the_last():
    assert gc.isenabled()
    with garbage.paused():
        with garbage.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause():
    with pytest.raises(KeyError), garbage.paused():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with garbage.paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_of_two_threads_overlap():
    inside, leave = threading.Event(), threading.Event()

    def work():
        with garbage.paused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    with garbage.paused():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()  # the other thread is still inside
    leave.set()
    thread.join(10)
    assert gc.isenabled()
