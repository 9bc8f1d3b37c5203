"""A runner: a framework in one of the modes its users run it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# The C library keeps freed memory, in huge pages: what a user can set to make page faults go away.
KEPT = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
    "glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"
}


@dataclass(frozen=True)
class Runner:
    """`framework` names interpreter and worker; `covers` says for which configurations it is written."""

    framework: str
    mode: str
    title: str
    env: dict[str, str] = field(default_factory=dict)
    covers: Callable[[Any], bool] = lambda c: True

    @property
    def is_peer(self) -> bool:
        """Whether it is another framework."""
        return self.framework != "weft"

    @property
    def is_kept(self) -> bool:
        """Whether the C library is told to keep memory."""
        return bool(self.env)
