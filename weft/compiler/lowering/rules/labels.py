"""Labels of the steps of products and convolutions."""

from __future__ import annotations

from ....ops.internal.epilogue import Epilogue

REORDER_WEIGHTS, REORDER_GRADIENT = "reorder weights", "reorder grad weight"
SUM_OF_PARTS = "convolution grad weight sum"
"""The sum of partial weight gradients."""

FIXED = frozenset(
    [REORDER_WEIGHTS, REORDER_GRADIENT, SUM_OF_PARTS, "depthwise convolution grad weight sum"]
    + [f"winograd {m}x{m} weight{g}" for m in (2, 4) for g in ("", " gradient")]
)
"""Labels of convolutions whose time does not depend on the number of images."""


def label_with(name: str, epilogue: Epilogue) -> str:
    """The label of a product with an epilogue."""
    return " + ".join([name, *epilogue.names])
