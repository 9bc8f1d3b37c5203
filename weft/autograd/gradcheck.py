"""Check gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor, wrap
from .functional import grad
from .tape import enable_grad, no_grad


def gradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Check that the gradients of `fn` at `inputs` agree with central differences.

    Every element of every input that requires gradients is moved by ±eps (and, for complex inputs, ±i·eps), and every
    element of every floating output is compared. Inputs must be float64 or complex128, because differences in
    lower precision are mostly noise.

    Args:
        fn: takes the inputs, returns a tensor or several.
        inputs: a tensor or a sequence of arguments, of which those to check require gradients.
        eps: the step. atol, rtol: the tolerance.
        raise_exception: raise with the element that disagrees (default), or return False.

    >>> x = wf.tensor([0.3, 0.7], dtype=wf.float64, requires_grad=True)
    >>> wf.gradcheck(lambda v: v.sin() * v, x)
    True
    """
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        if not tolerance >= 0:
            raise ValueError(f"gradcheck: {name} must not be negative. Got {tolerance}.")
    arguments = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [(i, t) for i, t in enumerate(arguments) if isinstance(t, Tensor) and t.requires_grad]
    if not checked:
        raise ValueError("gradcheck: no input requires gradients. Pass `requires_grad=True` for those to check.")
    for i, t in checked:
        if t.dtype not in (dtypes.float64, dtypes.complex128):
            raise TypeError(f"gradcheck: input {i} must be float64 or complex128. Got {t.dtype.name}.")
    arguments = [
        wrap(t._array("gradcheck").copy()).requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t
        for t in arguments
    ]
    with enable_grad():
        outputs = _outputs(fn(*arguments))
    floating = [k for k, o in enumerate(outputs) if dtypes.is_inexact(o.dtype)]
    for i, _ in checked:
        numeric = _numeric(fn, arguments, i, eps, floating)
        for k, columns in zip(floating, numeric, strict=True):
            analytic = _analytic(outputs[k], arguments[i], columns.dtype)
            # columns[d, j, m]: how output element m moves when input element j moves in direction d (1 or i).
            # The gradient for a cotangent v is Re(conj(v) · column), for the directions 1 and i of the input.
            for v, rows in analytic:
                expected = np.real(np.conj(v) * columns)  # (directions, inputs, outputs)
                if not np.allclose(rows, expected, atol=atol, rtol=rtol, equal_nan=True):
                    if not raise_exception:
                        return False
                    raise RuntimeError(_report(i, k, v, rows, expected, arguments[i], outputs[k]))
    return True


def _outputs(result: Any) -> list[Tensor]:
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"gradcheck: the function must return tensors. Got {type(o).__name__}.")
    return outs


def _numeric(
    fn: Callable[..., Any], arguments: list[Any], i: int, eps: float, floating: Sequence[int]
) -> list[np.ndarray]:
    """Central differences: per output an array (directions, input elements, output elements)."""
    x = arguments[i]
    directions = [1.0, 1j] if dtypes.is_complex(x.dtype) else [1.0]
    columns: list[list[list[np.ndarray]]] = [[[] for _ in directions] for _ in floating]
    plain = [wrap(t._data.copy()) if isinstance(t, Tensor) else t for t in arguments]
    flat = plain[i]._data.reshape(-1)  # a view: the copy is contiguous
    with no_grad():
        for d, direction in enumerate(directions):
            for j in range(flat.size):
                old = flat[j]
                ends = []
                for sign in (1, -1):
                    flat[j] = old + sign * eps * direction
                    outs = _outputs(fn(*plain))
                    ends.append([np.array(outs[k]._array("gradcheck")).reshape(-1) for k in floating])
                flat[j] = old
                for k in range(len(floating)):
                    columns[k][d].append((ends[0][k] - ends[1][k]) / (2 * eps))
    return [np.asarray(c) if flat.size else np.zeros((len(directions), 0, 0)) for c in columns]


def _analytic(output: Tensor, x: Tensor, dtype: np.dtype) -> list[tuple[complex, np.ndarray]]:
    """Per unit cotangent v: the gradients by (direction, input element, output element)."""
    kinds: list[complex] = [1.0, 1j] if dtypes.is_complex(output.dtype) else [1.0]
    directions = 2 if dtypes.is_complex(x.dtype) else 1
    results = []
    for v in kinds:
        rows = np.zeros((directions, x.size, output.size))
        for m in range(output.size if output.requires_grad else 0):
            seed = np.zeros(output.size, output.dtype)
            seed[m] = v
            (g,) = grad(output, x, wrap(seed.reshape(output.shape)), retain_graph=True, allow_unused=True)
            if g is not None:
                flat = g.detach().numpy().reshape(-1)
                rows[0, :, m] = flat.real
                if directions == 2:
                    rows[1, :, m] = flat.imag
        results.append((v, rows if x.size else np.zeros((directions, 0, 0))))
    return results


def _report(i: int, k: int, v: complex, rows: np.ndarray, expected: np.ndarray, x: Tensor, output: Tensor) -> str:
    worst = np.unravel_index(int(np.nanargmax(np.abs(rows - expected))), rows.shape)
    direction, j, m = (int(n) for n in worst)
    element = tuple(int(n) for n in np.unravel_index(j, x.shape)) if x.ndim else ()
    place = tuple(int(n) for n in np.unravel_index(m, output.shape)) if output.ndim else ()
    parts = ("", " (imaginary part)")
    return (
        f"gradcheck: the gradient of output {k}{list(place)}{parts[v == 1j]} with respect to input "
        f"{i}{list(element)}{parts[direction]} is {rows[worst]:.6g}, but differences give {expected[worst]:.6g}."
    )


def gradgradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> bool:
    """Check second derivatives of `fn` at `inputs`: `gradcheck` of its gradient.

    Args:
        fn, inputs, eps, atol, rtol: as in `gradcheck`.
        grad_outputs: the cotangent of each output for the first derivative; random by default.

    >>> x = wf.tensor([0.3, 0.7], dtype=wf.float64, requires_grad=True)
    >>> wf.gradgradcheck(lambda v: v.sin() * v, x)
    True
    """
    arguments = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    count = len(arguments)
    with enable_grad():
        outputs = [o for o in _outputs(fn(*arguments)) if o.requires_grad]
    if not outputs:
        raise ValueError("gradgradcheck: no output of the function depends on an input that requires gradients.")
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = []
        for o in outputs:
            seed = rng.standard_normal(o.shape) + (1j * rng.standard_normal(o.shape) if o.is_complex() else 0)
            seeds.append(Tensor(np.asarray(seed, o.dtype)).requires_grad_())
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradient(*values: Any) -> tuple[Tensor, ...]:
        with enable_grad():  # the differences are taken without recording, the derivative itself needs it
            watched = [
                v
                if not isinstance(v, Tensor) or not a.requires_grad or v.requires_grad
                else v.detach().requires_grad_()
                for v, a in zip(values[:count], arguments, strict=True)
            ]
            outs = [o for o in _outputs(fn(*watched)) if o.requires_grad]
            targets = [w for w in watched if isinstance(w, Tensor) and w.requires_grad]
            found = grad(outs, targets, list(values[count:]), create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    return gradcheck(gradient, [*arguments, *seeds], eps=eps, atol=atol, rtol=rtol)
