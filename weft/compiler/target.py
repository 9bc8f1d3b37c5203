"""Target description: the only place that knows a CPU's vectors, registers and caches.

Kernels and rules take a `Target` and derive their tiles, blocks and prefetches from it, so that a program can be compiled for
another machine. Sizes are nominal, by instruction set, and not measured: machines of one kind get the same code, hence
the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Prefetch distances, each in the unit of the loop that prefetches, and how much of a row is prefetched."""

    packed_rows: int = 8
    """rows of a matrix ahead of the one being packed"""
    copied_steps: int = 12
    """steps of the depth ahead of the one whose elements are copied"""
    squares: int = 6
    """squares ahead of the one being transposed: neighbouring columns are far apart, which hardware does not predict"""
    gathered_rows: int = 4
    """rows of a table ahead of the one being gathered or updated"""
    row_lines: int = 16
    """maximum cache lines of such a row; the hardware prefetcher follows after them"""


@dataclass(frozen=True, slots=True)
class Target:
    """A machine: LLVM triple, CPU name and feature string, and the properties that kernels and the emitter need."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    """width of a vector register"""
    pointer_bits: int
    fma: bool
    """whether a fused multiply-add is an instruction"""
    registers: int = 16
    """number of vector registers"""
    fma_ports: int = 2
    """vector multiply-adds started per cycle"""
    line_bytes: int = 64
    """of a cache line"""
    l1_bytes: int = 32 << 10
    """of the first-level data cache of a core"""
    l2_bytes: int = 512 << 10
    """of the second-level cache of a core"""
    l3_bytes: int = 8 << 20
    """of the last-level cache that all cores share"""
    threads: int = 1
    """maximum number of threads that run a kernel; each has its own workspace"""
    prefetch: Prefetch = field(default_factory=Prefetch)

    def has(self, feature: str) -> bool:
        """Whether the CPU has a feature, by LLVM's name for it."""
        return f"+{feature}," in self.features + ","

    @property
    def lanes(self) -> int:
        """float32 elements of a vector."""
        return self.vector_bytes // 4

    @property
    def line_elements(self) -> int:
        """float32 elements of a cache line."""
        return self.line_bytes // 4

    @property
    def chains(self) -> int:
        """Independent vector sums of a reduction: two for each port, so that one waits while the other is added to."""
        return 2 * self.fma_ports

    @property
    def key(self) -> str:
        """Text that changes when the code generated for a kernel would."""
        return f"{self.triple}/{self.cpu}/{self.features}/{self.vector_bytes}/{self.fma_ports}"


_BY_FEATURE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("avx512f", {"vector_bytes": 64, "registers": 32, "l2_bytes": 1 << 20, "l3_bytes": 16 << 20}),
    ("avx2", {"vector_bytes": 32, "registers": 16}),
    ("avx", {"vector_bytes": 32, "registers": 16}),
    ("neon", {"vector_bytes": 16, "registers": 32}),
    ("simd128", {"vector_bytes": 16, "registers": 16, "fma_ports": 1}),
)
_SMALLEST: dict[str, Any] = {"vector_bytes": 16, "registers": 16}  # SSE2


def describe(triple: str, cpu: str, features: dict[str, bool], threads: int = 1) -> Target:
    """Target from LLVM's names of a CPU and its features."""
    enabled = {name for name, on in features.items() if on}
    facts = next((facts for name, facts in _BY_FEATURE if name in enabled), _SMALLEST)
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    bits = 32 if triple.startswith(("wasm32", "i686", "i386", "arm-", "armv7")) else 64
    fused = "fma" in enabled or triple.startswith(("aarch64", "arm64"))
    return Target(triple, cpu, text, pointer_bits=bits, fma=fused, threads=threads, **facts)
