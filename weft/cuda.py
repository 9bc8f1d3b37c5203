"""`weft.cuda`: there is none. Programs that ask whether there is get the answer they expect.

>>> import weft.cuda
>>> weft.cuda.is_available()
False
"""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Whether tensors can be on a GPU: no."""
    return False


def device_count() -> int:
    """The number of GPUs that can be used: 0."""
    return 0


def is_bf16_supported() -> bool:
    """Whether GPUs compute with bfloat16: there is none."""
    return False


def manual_seed(seed: int) -> None:
    """Nothing: there are no generators on GPUs. `wf.manual_seed` sets those of the CPU."""


def manual_seed_all(seed: int) -> None:
    """Nothing, as `manual_seed`."""


def empty_cache() -> None:
    """Nothing: no memory of a GPU is cached."""


def synchronize(device: Any = None) -> None:
    """Nothing: calls on the CPU return when they are done."""


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"weft.cuda has no {name!r}: Weft computes on the CPU. Write `device = 'cuda' if wf.cuda.is_available() else 'cpu'`."
    )
