"""Text and HTML representations of tensors: NumPy's format, with dtype and gradient information where needed."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from . import dtypes
from .errors import format_shape

if TYPE_CHECKING:
    from .tensor import Tensor

_OBVIOUS = ("float32", "int64", "bool", "complex64")  # the dtypes of literals, which are not printed


def tensor_text(t: Tensor) -> str:
    """`tensor([1., 2.], requires_grad=True)`."""
    facts = []
    data = t._data
    if type(data) is not np.ndarray:
        return data.describe(t)
    data = t._array("print")
    if data.dtype == dtypes.bfloat16:
        data = data.astype(np.float32)
    body = np.array2string(data, separator=", ", prefix="tensor(")
    if t.size == 0 and t.ndim != 1:
        facts.append(f"shape={format_shape(t.shape)}")
    if t.dtype.name not in _OBVIOUS or (t.size == 0 and t.dtype.name != "float32"):
        facts.append(f"dtype={t.dtype.name}")
    if t._node is not None:
        node = getattr(t.grad_fn, "parent", t.grad_fn)  # one of several outputs shows the op that made them
        name = node.op.title if node is not None else None
        facts.append(f"grad_fn={name}" if name else "requires_grad=True")
    return f"tensor({', '.join([body, *facts])})"


def formatted(t: Tensor, spec: str) -> str:
    """`f"{x:.2f}"`: every element by the format `spec`."""
    data = t._array("format")
    if data.dtype == dtypes.bfloat16:
        data = data.astype(np.float32)
    one = lambda v: format(v.item(), spec)
    try:
        return np.array2string(data, separator=", ", formatter={"all": one})
    except (ValueError, TypeError) as error:
        raise ValueError(f"format: {spec!r} does not fit {t.dtype.name} elements. {error}.") from None


def tensor_html(t: Tensor) -> str:
    """An HTML table for notebooks; large tensors are summarised as text."""
    head = f"{t.dtype.name} {format_shape(t.shape)}" + (" requires_grad" if t.requires_grad else "")
    if t.is_symbolic or t.ndim > 2 or t.ndim == 0 or t.size > 400:
        return f"<div><code>{html.escape(head)}</code><pre>{html.escape(tensor_text(t))}</pre></div>"
    array = np.atleast_2d(np.asarray(t.detach().numpy()))
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(f'{v:.4g}' if array.dtype.kind in 'fV' else str(v))}</td>" for v in row)
        + "</tr>"
        for row in array
    )
    return f"<div><code>{html.escape(head)}</code><table>{rows}</table></div>"
