"""The machine this process runs on, and LLVM's target machines."""

from __future__ import annotations

import functools
import os
from typing import Any

from ...compiler.target import Target, describe
from ...runtime import forks

# A fork waits for the initialisation: llvmlite's lock, copied while held, would stay locked in the child.
_lock = forks.held_over_fork()


def machine(target: Target) -> Any:
    """A new LLVM target machine (not shared between threads).

    Position-independent code with short distances between its sections: the linker puts the sections of one object
    next to each other, and reaches everything else through a table.
    """
    import llvmlite.binding as llvm

    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small", jit=True
    )


@functools.cache
def host() -> Target:
    """The machine this process runs on."""
    import llvmlite.binding as llvm

    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = dict(llvm.get_host_cpu_features())
        return describe(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, os.cpu_count() or 1)
