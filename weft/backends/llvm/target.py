"""Target description: the only place that knows a CPU's name, vector width and pointer size."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

WIDTH_BY_FEATURE = (("avx512f", 64), ("avx2", 32), ("avx", 32), ("neon", 16), ("simd128", 16), ("sse2", 16))


@dataclass(frozen=True, slots=True)
class Target:
    """A machine: LLVM triple, CPU name and feature string, and the properties that the emitter needs.

    `vector_bytes` is the width of one vector register, `fma` says whether a fused multiply-add is an instruction.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    pointer_bits: int
    fma: bool

    def has(self, feature: str) -> bool:
        """Whether the CPU has a feature, by LLVM's name for it."""
        return f"+{feature}," in self.features + ","

    @property
    def key(self) -> str:
        """Text that changes when generated code would."""
        return f"{self.triple}/{self.cpu}/{self.features}/{self.vector_bytes}"

    def machine(self) -> Any:
        """A new LLVM target machine (not shared between threads).

        Position-independent code with short distances between its sections: the linker puts the sections of one object
        next to each other, and reaches everything else through a table.
        """
        import llvmlite.binding as llvm

        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, reloc="pic", codemodel="small", jit=True
        )


def describe(triple: str, cpu: str, features: dict[str, bool]) -> Target:
    """Target from LLVM's names of a CPU and its features."""
    enabled = {name for name, on in features.items() if on}
    width = next((w for name, w in WIDTH_BY_FEATURE if name in enabled), 16)
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    bits = 32 if triple.startswith(("wasm32", "i686", "i386", "arm-", "armv7")) else 64
    fused = "fma" in enabled or triple.startswith(("aarch64", "arm64"))
    return Target(triple, cpu, text, width, bits, fused)


@functools.cache
def host() -> Target:
    """The machine this process runs on."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return describe(llvm.get_process_triple(), llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()))
