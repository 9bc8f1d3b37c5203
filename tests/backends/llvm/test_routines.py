"""The routines that run a program: they are valid IR, and blocks are read in order."""

import ctypes

import llvmlite.binding as llvm

from weft.backends.llvm import native
from weft.backends.llvm.routines import NAMES, TEXT, words


def test_routines_are_valid_and_complete():
    native.runner()  # starts LLVM
    module = llvm.parse_assembly(TEXT)
    module.verify()
    defined = [f.name for f in module.functions if not f.is_declaration and f.linkage != llvm.Linkage.internal]
    assert defined == NAMES


def test_words_are_read_one_after_the_other():
    assert words("%b", "%x: ptr", "%n: i64", first=2) == [
        "  %x.at = getelementptr i64, ptr %b, i64 2",
        "  %x = load ptr, ptr %x.at",
        "  %n.at = getelementptr i64, ptr %b, i64 3",
        "  %n = load i64, ptr %n.at",
    ]


def test_run_stops_at_the_first_step_that_fails():
    calls = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

    def step(block):
        calls.append(block)
        return int(block == 7)

    callback = kind(step)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    table = (ctypes.c_int64 * 6)(address, 5, address, 7, address, 9)
    run = native.runner()
    assert run(ctypes.addressof(table), 3) == 2 and calls == [5, 7]
    assert run(ctypes.addressof(table), 1) == 0
