"""The `Tensor` class: a NumPy array with a link to the tape.

A CPU tensor *is* a NumPy array plus a tape link: `t.numpy()` and `wf.asarray(a)` share memory, `t[1:3] += 1` writes
through the view. `_data` is that array; inside a graph it is a symbolic `Value` with the same `shape`, `dtype` and
`ndim`, under `vmap` a `Batched` value. Operators and most methods are ops attached from the op table (see
`weft.ops.tensor_methods`); this file holds only what is not an op.

Slots: `_data`; `_node` is the tape link (see Note [Tape]; None if no gradient is needed). `_grad` and `_view` are set
only where needed; `_view` is a `View` (how the tensor was derived from its base), a `Base` (its live views), or
`UNTRACKED`, all in `weft.ops.core.recording`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .autograd.tape import Leaf, note_relink
from .errors import describe, format_shape

if TYPE_CHECKING:  # operators and methods come from the op table, see `weft.ops.tensor_methods`
    from ._tensor_methods import TensorMethods
else:
    TensorMethods = object

ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

ndarray = np.ndarray
_new = object.__new__


class Count(int):
    """The number of elements of a tensor, which PyTorch programs call: `x.size()`, `x.size(0)`."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the size of axis `dim`."""
        if dim is None:
            return self.shape
        if not -len(self.shape) <= dim < len(self.shape):
            raise IndexError(f"size: axis {dim} is out of range for a tensor with {len(self.shape)} axes.")
        return self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)


_new_count = int.__new__


class Tensor(TensorMethods):
    """An n-dimensional array that ops can differentiate; created by `wf.tensor`, `wf.asarray`, `wf.zeros` …

    Args:
        data: an array, numbers or nested sequences. A NumPy array is shared, not copied.
        requires_grad: record operations on the tensor.

    >>> x = wf.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __slots__ = ("_data", "_node", "_grad", "_view", "__weakref__")

    _data: Any
    _node: Any
    _view: Any

    # Weft's operators win over NumPy's: `array + tensor` is a tensor (`__array_ufunc__` is attached with the operators).
    __array_priority__ = 1000

    def __new__(cls, data: Any = None, *, requires_grad: bool = False) -> Tensor:
        self = _new(cls)
        if isinstance(data, Tensor):
            data = data._values("Tensor", "`wf.asarray(x)` keeps them, `x.detach()` drops them")
        self._data = data if type(data) is ndarray and data.dtype in dtypes._SAME else to_array(data)
        self._node = None
        if requires_grad:
            self.requires_grad_()
        return self

    # Facts --------------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self._data.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the elements, a NumPy dtype object."""
        return self._data.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim

    @property
    def size(self) -> Count:
        """The number of elements; called, as in PyTorch, the shape (`x.size()`) or the size of one axis (`x.size(0)`).

        >>> x = wf.zeros(2, 3)
        >>> x.size, x.size(), x.size(-1)
        (6, (2, 3), 3)
        """
        data = self._data
        count = data.size
        if count is None:
            return None  # type: ignore[return-value]  # a graph does not know it yet
        made = _new_count(Count, count)
        made.shape = data.shape
        return made

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self._array("strides").strides

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self._data.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self._data.size * self.itemsize

    @property
    def device(self) -> Any:
        """The device that holds the data, for example `cpu:0`."""
        from .runtime.device import device_of

        return device_of(self._data)

    def numel(self) -> int:
        """The number of elements (PyTorch's name for `size`)."""
        return self._data.size

    def dim(self) -> int:
        """The number of axes (PyTorch's name for `ndim`)."""
        return self._data.ndim

    def element_size(self) -> int:
        """The size of one element in bytes."""
        return self._data.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the dtype is real floating."""
        return dtypes.is_floating(self.dtype)

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return dtypes.is_complex(self.dtype)

    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous in row-major order."""
        return bool(self._array("is_contiguous").flags.c_contiguous)

    @property
    def is_symbolic(self) -> bool:
        """Whether the value is not computed yet (inside a graph or a captured function)."""
        data = self._data
        return type(data) is not ndarray and not getattr(data, "holds_memory", False)

    def _array(self, action: str) -> ndarray:
        """The NumPy array behind this tensor; raises for a symbolic one, naming `action`."""
        data = self._data
        if type(data) is ndarray:
            if _settling:
                settle(action, data)
            return data
        array = data.no_array(action)
        return array if type(self._data) is not ndarray else self._array(action)  # it was computed, see Note [Segments]

    def _values(self, action: str, instead: str = "Write `x.detach().numpy()`") -> ndarray:
        """`_array`, but raises if the tensor requires gradients, which `action` would lose."""
        array = self._array(action)
        if self._node is not None:
            name = action.removesuffix("()")
            raise RuntimeError(f"{name}: the tensor requires gradients. {instead}.")
        return array

    # Gradients ----------------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded for `backward`."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start (or stop) recording operations on this tensor, in place, and return it.

        Raises:
            TypeError: the dtype is not floating or complex.
            RuntimeError: `requires_grad=False` on a tensor that is not a leaf.

        >>> wf.zeros(2).requires_grad_().requires_grad
        True
        """
        if requires_grad:
            if self._node is None:
                check_inexact(self.dtype)
                self._relink(Leaf(self))
        elif self._node is not None:
            if not isinstance(self._node, Leaf):
                raise RuntimeError(
                    "requires_grad: only a leaf can stop requiring gradients. "
                    "This tensor was computed by an op; use `x.detach()`."
                )
            self._relink(None)
        return self

    def _relink(self, node: Leaf | None) -> None:
        """Change whether this tensor requires gradients, at the user's request."""
        if _grad_hook is not None:
            _grad_hook.relink(self, node)
        self._node = node
        note_relink()

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is a leaf: not the result of a recorded op."""
        return self._node is None or isinstance(self._node, Leaf)

    @property
    def grad_fn(self) -> Any:
        """The tape node of the op that made this tensor, or None for a leaf."""
        return None if self.is_leaf else self._node

    @property
    def grad(self) -> Any:
        """The gradient that `backward` accumulated here, or None."""
        if _grad_hook is not None:
            return _grad_hook.get(self)
        try:
            return self._grad
        except AttributeError:
            return None

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, Tensor) and not hasattr(value, "is_row_sparse"):
                raise TypeError(f"grad: expected a tensor or None. Got {type(value).__name__}.")
            if value.shape != self.shape or value.dtype != self.dtype:
                raise ValueError(f"grad: expected {describe(self)}, like the tensor itself. Got {describe(value)}.")
        if _grad_hook is not None:
            _grad_hook.set(self, value)
        else:
            self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def backward(self, gradient: Any = None, *, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Add the gradients of this tensor to the `.grad` of every leaf it was computed from.

        Args:
            gradient: the gradient of the final scalar with respect to this tensor; required unless it has one element.
            retain_graph: keep the saved values so that backward can run again (default: as `create_graph`).
            create_graph: record the backward pass itself, for higher derivatives.

        >>> x = wf.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad
        tensor(6.)
        """
        global _run_backward
        if _run_backward is None:
            from .autograd.engine import run_backward as _run_backward

        _run_backward([self], [gradient], retain_graph, create_graph)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Any:
        """Call `hook(gradient)` when this tensor's gradient is computed; a returned tensor replaces the gradient.

        Returns:
            A handle whose `remove()` removes the hook.

        >>> x = wf.ones(2, requires_grad=True)
        >>> _ = x.register_hook(lambda g: g * 10)
        >>> x.sum().backward()
        >>> x.grad
        tensor([10., 10.])
        """
        from .autograd.hooks import add_hook

        return add_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], Any]) -> Any:
        """Call `hook(tensor)` after each accumulation into the `.grad` of this leaf (to step or clear it early)."""
        from .autograd.hooks import add_accumulate_hook

        return add_accumulate_hook(self, hook)

    def retain_grad(self) -> None:
        """Accumulate the gradient of this non-leaf tensor into its `.grad` in every backward, after its hooks."""
        if not isinstance(self._node, Leaf):
            from .autograd.hooks import keep_gradient

            keep_gradient(self)

    def detach(self) -> Tensor:
        """A tensor that shares the data but has no history: gradients do not flow through it.

        >>> wf.ones(2, requires_grad=True).detach().requires_grad
        False
        """
        data = self._data
        made = wrap(data)
        if data.__class__ is not ndarray:
            note = getattr(data, "note_detached", None)
            if note is not None:
                note(self, made)
        return made

    def detach_(self) -> Tensor:
        """Drop this tensor's history, in place.

        Raises:
            RuntimeError: the tensor is a view of a tensor that has a history.
        """
        if self._node is not None:
            if not self.is_leaf:
                refuse_view(getattr(self, "_view", None))
            self._relink(None)
        return self

    # To Python and NumPy --------------------------------------------------------------------------------------------

    def numpy(self) -> ndarray:
        """The data as a NumPy array that shares memory with this tensor.

        Raises:
            RuntimeError: the tensor requires gradients (use `x.detach().numpy()`).

        >>> wf.arange(3).numpy()
        array([0, 1, 2])
        """
        return self._values("numpy()")

    def item(self) -> Any:
        """The only element as a Python number.

        Raises:
            ValueError: the tensor does not have exactly one element.

        >>> wf.tensor([2.5]).item()
        2.5
        """
        array = self._array("item()")
        if array.size != 1:
            raise ValueError(
                f"item: expected a tensor with one element. Got shape {format_shape(array.shape)}; use `tolist()`."
            )
        return array.item()

    def tolist(self) -> Any:
        """The data as nested Python lists.

        >>> wf.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return self._array("tolist()").tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        array = self._values("conversion to a NumPy array")
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"__array__: a cast from {array.dtype} to {dtype} needs a copy.")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        import weft

        if api_version is not None and api_version not in ARRAY_API_VERSIONS:
            raise ValueError(
                f"__array_namespace__: unknown version {api_version!r}. Expected one of {ARRAY_API_VERSIONS}."
            )
        return weft

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if self._node is not None:
            raise BufferError("__dlpack__: the tensor requires gradients. Export `x.detach()`.")
        from .dlpack import export

        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return export(self._array("__dlpack__"), **options)

    def to_sparse(self, *, layout: str = "coo") -> Any:
        """The nonzero elements as a sparse tensor with PyTorch's methods; gradients flow back.

        >>> wf.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().indices().tolist()
        [[0, 1], [1, 0]]
        """
        from .sparse.torch_style import to_sparse

        return to_sparse(self, layout)

    def to_sparse_csr(self) -> Any:
        """The nonzero elements of a matrix in CSR format, with PyTorch's methods."""
        return self.to_sparse(layout="csr")

    def to_dense(self) -> Tensor:
        """This tensor, which is dense; for a sparse one, see `weft.sparse`."""
        return self

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """The capsules of the Arrow C data interface, for `pa.array(t)` and `pl.Series(t)`; see `weft.arrow`."""
        from .arrow import export

        return export(self._values("conversion to Arrow"))

    def __buffer__(self, flags: int) -> memoryview:
        """The buffer protocol, `memoryview(t)`, of Python 3.12 and later; before, write `memoryview(t.numpy())`."""
        array = self._values("memoryview")
        if flags & 1 and not array.flags.writeable:  # PyBUF_WRITABLE
            raise BufferError("memoryview: the tensor is read-only. Export `x.clone()`.")
        buffer: Any = array  # NumPy's stubs declare the buffer protocol for Python 3.12 only
        return memoryview(buffer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __bool__(self) -> bool:
        data = self._data
        if type(data) is not ndarray:
            return data.truth(self)
        if _settling:
            settle("bool", data)
        if data.size != 1:
            raise ValueError(
                f"bool: the truth of a tensor with {data.size} elements is ambiguous. "
                "Use `x.any()`, `x.all()` or `x.size > 0`."
            )
        return bool(data)

    def __float__(self) -> float:
        return float(self._one("float"))

    def __int__(self) -> int:
        return int(self._one("int"))

    def __complex__(self) -> complex:
        return complex(self._one("complex"))

    def __index__(self) -> int:
        array = self._array("use as an index")
        if array.ndim != 0 or array.dtype.kind not in "iu":
            raise TypeError(f"index: only a 0-d integer tensor can be used as an index. Got {describe(self)}.")
        return int(array)

    def _one(self, what: str) -> Any:
        array = self._array(f"{what}()")
        if array.size != 1:
            raise TypeError(
                f"{what}: only a tensor with one element converts to a Python number. "
                f"Got shape {format_shape(array.shape)}."
            )
        return array.item()

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len: a 0-d tensor has no length.")
        return self._length("len")

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iter: a 0-d tensor cannot be iterated over; use `x.item()`.")
        return (self[i] for i in range(self._length("iter")))

    def _length(self, action: str) -> int:
        shape: Any = self._data.shape
        if shape is None or shape[0].__class__ is not int:
            raise TypeError(
                f"{action}: the size of axis 0 is known only when a step runs. Got a tensor of shape {shape}."
            )
        return shape[0]

    def __contains__(self, value: Any) -> bool:
        equal = self == value
        return bool(equal.any()) if isinstance(equal, Tensor) else equal

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    def __round__(self, ndigits: int | None = None) -> Tensor:
        """Round to integers, or to `ndigits` decimal places; the result is a tensor."""
        if not ndigits:
            return self.round()
        scale = 10.0**ndigits
        return (self * scale).round() / scale

    def __trunc__(self) -> int:
        return int(self._one("trunc"))

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.is_symbolic:
            text = str(self)
            if self.is_symbolic:  # its values are not known even now
                return text
        if self.ndim == 0:
            return format(self.item(), spec)
        from .printing import formatted

        return formatted(self, spec)

    # Text ---------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        from .printing import tensor_text

        return tensor_text(self)

    def _repr_html_(self) -> str:
        from .printing import tensor_html

        return tensor_html(self)

    # Copies -------------------------------------------------------------------------------------------------------

    def __copy__(self) -> Tensor:
        """A copy with its own memory, as in NumPy; recorded for a non-leaf tensor."""
        if not self.is_leaf:
            return self.clone()
        copied = wrap(self._array("copy").copy(), cls=type(self))
        return copied.requires_grad_() if self._node is not None else copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError(
                "deepcopy: only leaf tensors can be deep-copied. Use `x.detach().clone()` or `x.clone()`."
            )
        copied = wrap(self._array("deepcopy").copy(), cls=type(self))
        memo[id(self)] = copied
        if self._node is not None:
            copied._node = Leaf(copied)
        grad = self.grad
        if grad is not None:
            copied.grad = grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self.is_leaf:
            raise RuntimeError("pickle: only leaf tensors can be pickled. Use `x.detach()`.")
        from .multiprocessing import reduce_array

        rebuild, args = reduce_array(self._array("pickle"))
        return (_rebuild, (type(self), rebuild, args, self.requires_grad))


def _rebuild(cls: type[Tensor], rebuild: Callable[..., ndarray], args: tuple[Any, ...], requires_grad: bool) -> Tensor:
    array = np.asarray(rebuild(*args))  # joblib substitutes a memory map, an ndarray subclass
    dtype = dtypes.as_dtype(array.dtype)
    tensor = wrap(array if array.dtype is dtype else array.view(dtype), cls=cls)
    return tensor.requires_grad_() if requires_grad else tensor


_run_backward: Any = None  # `autograd.engine.run_backward`, imported late because it imports this module

_grad_hook: Any = None  # during capture: serves `.grad` of outside tensors, and sees changes of `requires_grad`


def current_grad_hook() -> Any:
    """The object that serves `.grad`, or None."""
    return _grad_hook


def set_grad_hook(hook: Any) -> Any:
    """Install the object whose `get(tensor)`/`set(tensor, grad)` serve `.grad` and whose `relink(tensor, node)` is called
    before the user changes whether a tensor requires gradients, `hook(name, tensor)` before one gets a gradient hook, and
    `differentiate()` when the user takes gradients; returns the previous one."""
    global _grad_hook
    previous, _grad_hook = _grad_hook, hook
    return previous


_settling = 0  # the number of threads in which writes to tensors may be recorded and not done yet
_settlers = threading.local()
_settlers_lock = threading.Lock()


def set_settler(settler: Callable[[ndarray | None, str], None] | None) -> Any:
    """Install what this thread calls before it looks at memory (None: any) for a named action; returns the previous one."""
    global _settling
    previous = getattr(_settlers, "current", None)
    with _settlers_lock:
        _settling += (settler is not None) - (previous is not None)
    _settlers.current = settler
    return previous


def settle(action: str, array: ndarray | None = None) -> None:
    """Let writes that are recorded happen before memory is read or written without an op."""
    settler = getattr(_settlers, "current", None)
    if settler is not None:
        settler(array, action)


def check_inexact(dtype: np.dtype) -> None:
    """Raise if tensors of `dtype` cannot require gradients."""
    if not dtypes.is_inexact(dtype):
        raise TypeError(
            f"requires_grad: only floating and complex tensors have gradients. Got {dtype.name}; "
            "use `x.astype(wf.float32)` first."
        )


def refuse_view(view: Any) -> None:
    """Raise if `view`, the `_view` of a tensor, says that its history is that of another tensor's memory."""
    if hasattr(view, "base") and view.cut != "detached":
        raise RuntimeError(
            "detach_: this tensor is a view, and its history is that of the tensor it shows. Write `x = x.detach()` instead."
        )


def as_leaf(tensor: Tensor) -> Tensor:
    """Let a tensor that was just made require gradients.

    `requires_grad_()` does this to a tensor that others know, which must learn of it.
    """
    check_inexact(tensor.dtype)
    tensor._node = Leaf(tensor)
    return tensor


def wrap(data: Any, node: Any = None, cls: type[Tensor] = Tensor) -> Tensor:
    """A tensor on `data`, without copy or check."""
    tensor = _new(cls)
    tensor._data = data
    tensor._node = node
    return tensor


def to_array(data: Any, dtype: Any = None, copy: bool | None = None) -> ndarray:
    """Convert anything array-like to a NumPy array with a Weft dtype; Python floats become the default float."""
    if isinstance(data, Tensor):
        data = data._array("conversion to an array")
    if isinstance(data, (ndarray, np.generic)):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        from .dlpack import import_array

        try:
            array = import_array(data)
        except (BufferError, TypeError):  # dtypes or devices without DLPack support
            if not hasattr(data, "__array__"):
                raise
            array = np.asarray(data)
    elif hasattr(data, "__array__"):
        array = np.asarray(data)
    else:
        if dtype is not None:
            dtype = dtypes.as_dtype(dtype)
        if copy is False:
            raise ValueError(f"asarray: making a tensor of a {type(data).__name__} needs a copy.")
        array = _from_python(data, dtype)
        copy = None
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    else:
        dtype = dtypes.as_dtype(array.dtype)
    if array.dtype != dtype:
        if copy is False:
            raise ValueError(f"asarray: a cast from {array.dtype} to {dtype} needs a copy.")
        if array.dtype.kind == "c" and dtype.kind != "c":
            raise TypeError(f"tensor: complex numbers cannot become {dtype.name}. Take `.real` or `abs` first.")
        array = dtypes.convert(array, dtype)
    elif copy:
        array = array.copy()
    if array.dtype is not dtype:
        array = array.view(dtype)  # an equal dtype that is another object, see `dtypes._SAME`
    return array if type(array) is ndarray else np.asarray(array)


def _from_python(data: Any, dtype: np.dtype | None = None) -> ndarray:
    """Convert nested lists of numbers and tensors to an array; raises if a value does not fit an integer `dtype`."""
    given = type(data).__name__
    if isinstance(data, (list, tuple)):
        data = _plain(data)
        if isinstance(data, ndarray):
            return data
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"tensor: the nested sequence has no single shape or dtype. {error}") from None
    if array.dtype == object or array.dtype.kind not in "biufc":
        if array.dtype == object and _all_integers(array):
            raise OverflowError("tensor: an integer is too large for every integer dtype. Write it as a float.")
        if array.dtype.type not in (dtypes.bfloat16.type,):
            held = {type(v).__name__ for v in array.flat} if array.dtype == object and array.ndim else set()
            inside = f" of {', '.join(sorted(held))}" if held else ""
            raise TypeError(f"tensor: expected numbers, nested sequences of numbers, or an array. Got {given}{inside}.")
    if dtype is not None and dtype.kind in "iu" and array.dtype.kind in "iuf" and array.size:
        low, high = array.min(), array.max()
        limits = np.iinfo(dtype)
        if not (low >= limits.min and high <= limits.max):
            raise OverflowError(
                f"tensor: values from {low} to {high} do not fit {dtype.name}, which holds {limits.min} to {limits.max}."
            )
    if array.dtype == np.float64:  # Python floats have the default dtype
        with np.errstate(over="ignore"):
            array = dtypes.convert(array, dtype if dtype is not None else dtypes.get_default_dtype())
    elif array.dtype == np.complex128 and dtype is None:
        array = array.astype(dtypes.as_dtype(complex))
    return array


def _all_integers(array: ndarray) -> bool:
    return all(isinstance(v, int) for v in array.flat)


def _plain(data: Any) -> Any:
    """Replace tensors inside nested sequences by arrays; a sequence that holds one is stacked. `wf.asarray` does so with
    gradients (see `weft.ops.array.creation`)."""
    items = [_plain(d) if isinstance(d, (list, tuple)) else d for d in data]
    if any(isinstance(d, (Tensor, ndarray)) for d in items):
        instead = "`wf.asarray` or `wf.stack` keeps them, `x.detach()` drops them"
        arrays = [d._values("tensor", instead) if isinstance(d, Tensor) else to_array(d) for d in items]
        dtype = stacked_dtype(items, arrays)
        return np.stack([a.astype(dtype, copy=False) for a in arrays])
    return items


def stacked_dtype(items: Sequence[Any], arrays: Sequence[Any]) -> np.dtype:
    """The dtype to which `arrays`, made from the `items` of a sequence, promote when stacked; Python numbers are weak.

    Raises ValueError if the shapes differ.
    """
    shapes = {tuple(a.shape) for a in arrays}
    if len(shapes) > 1:
        raise ValueError(f"tensor: cannot stack shapes {sorted(shapes)} into one tensor.")
    weak = (bool, int, float, complex)
    return dtypes.result_type(*[d if type(d) in weak else a for d, a in zip(items, arrays, strict=True)])
