"""`assert_close`: tensors, numbers and nested containers of them are close, or the message says where not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import weft as wf

from .. import dtypes
from ..errors import format_shape
from ..tensor import Tensor

# relative and absolute tolerance by dtype, those of PyTorch
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def default_tolerances(*inputs: Any) -> tuple[float, float]:
    """The relative and the absolute tolerance with which tensors of these dtypes are compared: those of the least precise.

    >>> wf.testing.default_tolerances(wf.float32, wf.float16)
    (0.001, 1e-05)
    """
    found = []
    for x in inputs:
        dtype = x.dtype if hasattr(x, "dtype") else dtypes.as_dtype(x)
        found.append(_TOLERANCES.get(dtype.name, (0.0, 0.0)))
    return max(r for r, _ in found), max(a for _, a in found)


class _Options:
    def __init__(self, rtol: Any, atol: Any, equal_nan: bool, check_dtype: bool, check_stride: bool, msg: Any) -> None:
        if (rtol is None) != (atol is None):
            raise ValueError("assert_close: give both rtol and atol, or neither.")
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.check_dtype, self.check_stride, self.msg = check_dtype, check_stride, msg

    def fail(self, message: str, path: str) -> None:
        if path:
            message += f"\n\nThe failure occurred for item {path}"
        if isinstance(self.msg, str):
            message = self.msg
        elif self.msg is not None:
            message = self.msg(message)
        raise AssertionError(message)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless `actual` is close to `expected`: |actual - expected| <= atol + rtol |expected|.

    Args:
        actual, expected: tensors, arrays, numbers, None, or nested lists, tuples and dicts of them.
        allow_subclasses: whether tensors may be of different classes, such as Parameter and Tensor.
        rtol, atol: the tolerances; by default those of the dtype (`default_tolerances`). Give both or neither.
        equal_nan: whether NaN equals NaN.
        check_device, check_layout: accepted and ignored: there is one device and one layout.
        check_dtype: whether dtypes must be equal; otherwise both are promoted to a common one.
        check_stride: whether strides must be equal.
        msg: the message, or a function of the message that would be shown.

    >>> from weft.testing import assert_close
    >>> assert_close({"x": [1.0]}, {"x": [1.0]})
    >>> try:
    ...     assert_close(wf.tensor([1.0, 2.0]), wf.tensor([1.0, 2.5]))
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[2])
    Mismatched elements: 1 / 2 (50.0%)
    """
    options = _Options(rtol, atol, equal_nan, check_dtype, check_stride, msg)
    _compare(actual, expected, options, allow_subclasses, "")


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex, np.generic))


def _compare(actual: Any, expected: Any, options: _Options, allow_subclasses: bool, path: str) -> None:
    arrays = (Tensor, np.ndarray)
    if isinstance(actual, arrays) and isinstance(expected, arrays):
        if not allow_subclasses and type(actual) is not type(expected):
            options.fail(f"The classes are not equal: {type(actual).__name__} != {type(expected).__name__}.", path)
        _compare_tensors(wf.asarray(actual), wf.asarray(expected), options, path)
    elif _is_number(actual) and _is_number(expected):
        _compare_numbers(actual, expected, options, path)
    elif actual is None or expected is None:
        if actual is not expected:
            options.fail(f"None mismatch: {actual!r} is not {expected!r}.", path)
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            missing, extra = (
                sorted(map(str, set(expected) - set(actual))),
                sorted(map(str, set(actual) - set(expected))),
            )
            options.fail(
                f"The keys of the mappings do not match:\nMissing keys: {missing}\nAdditional keys: {extra}", path
            )
        for key in actual:
            _compare(actual[key], expected[key], options, allow_subclasses, f"{path}[{key!r}]")
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            options.fail(f"The lengths of the sequences mismatch: {len(actual)} != {len(expected)}.", path)
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, e, options, allow_subclasses, f"{path}[{i}]")
    else:
        kinds = f"{type(actual).__name__} and {type(expected).__name__}"
        raise TypeError(
            f"assert_close: cannot compare {kinds}{f' at {path}' if path else ''}. Expected two tensors, numbers, "
            "sequences or mappings."
        )


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _compare_numbers(actual: Any, expected: Any, options: _Options, path: str) -> None:
    if options.check_dtype and type(actual) is not type(expected):
        options.fail(
            f"The (d)types of the numbers do not match: {type(actual).__name__} != {type(expected).__name__}.", path
        )
    rtol, atol = options.rtol, options.atol
    if rtol is None:
        inexact = isinstance(actual, (float, complex, np.inexact)) or isinstance(expected, (float, complex, np.inexact))
        rtol, atol = (1e-7, 1e-7) if inexact else (0.0, 0.0)
    both_nan = actual != actual and expected != expected
    if actual == expected or options.equal_nan and both_nan:
        return
    difference = abs(actual - expected)
    if difference <= atol + rtol * abs(expected):
        return
    relative = difference / abs(expected) if expected else float("inf")
    head = "Booleans mismatch" if isinstance(actual, bool) else "Scalars are not close!"
    options.fail(
        f"{head}\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference} (up to {atol} allowed)\n"
        f"Relative difference: {relative} (up to {rtol} allowed)",
        path,
    )


def _compare_tensors(actual: Tensor, expected: Tensor, options: _Options, path: str) -> None:
    if actual.shape != expected.shape:
        options.fail(
            "The values for attribute 'shape' do not match: "
            f"{format_shape(actual.shape)} != {format_shape(expected.shape)}.",
            path,
        )
    if options.check_dtype and actual.dtype != expected.dtype:
        options.fail(
            f"The values for attribute 'dtype' do not match: {actual.dtype.name} != {expected.dtype.name}.", path
        )
    a, e = (x.detach()._array("assert_close") for x in (actual, expected))
    if options.check_stride and a.strides != e.strides:
        options.fail(f"The strides do not match: {a.strides} != {e.strides} (in bytes).", path)
    rtol, atol = options.rtol, options.atol
    if rtol is None:
        rtol, atol = default_tolerances(actual, expected)
    wide = np.complex128 if "c" in (a.dtype.kind, e.dtype.kind) else np.float64
    exact = a.dtype.kind in "iub" and e.dtype.kind in "iub"
    equal = a == e
    with np.errstate(all="ignore"):
        x, y = (a.astype(object) if exact else a.astype(wide)), (e.astype(object) if exact else e.astype(wide))
        difference = np.abs(x - y).astype(np.float64) if not exact else np.abs(_differences(a, e))
        close = equal | (difference <= atol + rtol * np.abs(y).astype(np.float64))
        if options.equal_nan:
            close = close | ((x != x) & (y != y))
        relative = np.where(equal, 0.0, difference / np.abs(y).astype(np.float64))
    if not bool(np.all(close)):
        options.fail(_report(a, e, np.asarray(close), difference, relative, rtol, atol), path)


def _differences(a: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Differences of integers and bools, which need not fit their dtype."""
    return (a.astype(object) - e.astype(object)).astype(np.float64)


def _report(
    a: np.ndarray,
    e: np.ndarray,
    close: np.ndarray,
    difference: np.ndarray,
    relative: np.ndarray,
    rtol: float,
    atol: float,
) -> str:
    exact = rtol == 0 and atol == 0
    if a.ndim == 0:
        return (
            f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {e} but got {a}.\n"
            f"Absolute difference: {difference} (up to {atol} allowed)\n"
            f"Relative difference: {relative} (up to {rtol} allowed)"
        )
    wrong = int(close.size - np.count_nonzero(close))

    def greatest(values: np.ndarray) -> tuple[float, tuple[int, ...]]:
        ranked = np.where(close, -1.0, np.where(np.isnan(values), np.inf, values))
        place = np.unravel_index(int(np.argmax(ranked)), values.shape)
        return float(values[place]), tuple(int(i) for i in place)

    (most, where), (ratio, ratio_at) = greatest(difference), greatest(relative)
    allowed = lambda bound: "" if exact else f" (up to {bound} allowed)"
    return (
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n\n"
        f"Mismatched elements: {wrong} / {close.size} ({100 * wrong / close.size:.1f}%)\n"
        f"Greatest absolute difference: {most} at index {where}{allowed(atol)}\n"
        f"Greatest relative difference: {ratio} at index {ratio_at}{allowed(rtol)}"
    )


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """`assert_close` without a check of dtypes, with NaN equal to NaN by default: PyTorch's older function.

    >>> wf.testing.assert_allclose(wf.tensor([1.0]), wf.tensor([1]))
    """
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)
