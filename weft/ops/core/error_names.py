"""Error messages that name the public function the user called.

Note [Named errors]. Ops check their arguments before they compute and raise `name: problem. Got …; expected ….` Other
errors (NumPy's, an attribute that a wrong argument lacks) are renamed on the way out, at two places: in the general
dispatch path, under the op's title; and at the boundary of the public namespace, where the names of inner ops are
replaced by that of the composite (`logsumexp: axis 3 …`, not `max: axis 3 …`). The original is the error's context.
Successful calls pay nothing for this.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ...errors import format_shape, shorten, type_name
from ...tensor import Tensor
from . import spelling
from .registry import table
from .spec import is_known, too_many_axes

_PREFIX = re.compile(r"([A-Za-z_][\w.]*): ")
# what NumPy says of a result with more axes than it can have
_AXES = re.compile(
    r"(?:maximum supported dimension for an ndarray is .*found (\d+)|indexing result would have (\d+)|ndmin must be <= ndmax)"
)
# Prefixes of errors raised by `Tensor` and the dtypes: inside an op they describe an argument.
_HELPERS = {
    "bool",
    "complex",
    "device",
    "dtype",
    "float",
    "index",
    "int",
    "item",
    "iter",
    "len",
    "memory",
    "numpy",
    "tensor",
}
_PLAIN = (TypeError, ValueError, IndexError, OverflowError, MemoryError, BufferError, RuntimeError)
_ARRAYS = (np.ndarray, np.generic)
_titles: set[str] = set()  # of functions that are not ops
_op_titles: set[str] = set()


def _is_function_name(word: str) -> bool:
    """Whether `word` is the name of an op or public function."""
    if len(_op_titles) < len(table):
        _op_titles.update([name for op in list(table.values()) for name in (op.name, op.title)])
    return word in _op_titles or word in _titles


def _kind(error: Exception) -> type[Exception]:
    """The type under which `error` is re-raised: the built-in exception that describes the problem with the call."""
    if type(error).__module__.split(".")[0] == "weft":
        return type(error)
    for kind in (IndexError, OverflowError, MemoryError, BufferError, TypeError, ValueError, RuntimeError):
        if isinstance(error, kind):
            return kind
    return ValueError if isinstance(error, ArithmeticError) else TypeError


def renamed(name: str, error: Exception, keep_prefix: bool = False) -> Exception:
    """`error` with a message that starts with `name`; the same object if it does already."""
    message = str(error)
    beyond = _AXES.search(message)
    if beyond is not None:
        return type(error)(f"{name}: {too_many_axes(beyond[1] or beyond[2] or 'more')}")
    if message.startswith(f"{name}: ") and _kind(error) is type(error) or type(error) is AssertionError:
        return error  # an AssertionError is a failed `wf.debug.check`, in the words of the user
    again: Callable[[str], Exception] | None = getattr(error, "with_message", None)
    if (
        again is None
        and type(error).__module__.split(".")[0] == "weft"
        and type(error).__init__ is not Exception.__init__
    ):
        if not isinstance(error, _PLAIN) or "__init__" in type(error).__dict__:
            return error  # an error class with its own constructor is kept
    found = _PREFIX.match(message)
    if found is not None:
        if keep_prefix and isinstance(error, _PLAIN) and found[1] not in _HELPERS:
            return error
        if _is_function_name(found[1]):
            message = message[found.end() :]
    if not isinstance(error, _PLAIN):  # an AttributeError, KeyError …: an argument of an unsupported kind
        message = f"cannot work with these arguments. {type(error).__name__}: {message}"
    return (_kind(error) if again is None else again)(f"{name}: {message}")


def wrong_tensor(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """The error for the first argument that should be a tensor and cannot be converted to one."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = dict(zip(names, args, strict=False)) | kwargs
    for parameter, annotation in function.__annotations__.items():
        if parameter not in given or "Tensor" not in str(annotation) or parameter == "return":
            continue
        value = given[parameter]
        if (
            isinstance(value, Tensor)
            or hasattr(value, "__weft_tensor__")
            or value is None
            and "None" in str(annotation)
        ):
            continue
        if any(word in str(annotation) for word in ("Sequence[", "tuple[", "list[", "Any")):
            continue
        hint = " Convert it with `wf.asarray(...)`." if isinstance(value, (list, tuple, int, float, complex)) else ""
        return TypeError(f"{name}: {parameter} must be a tensor. Got {type_name(value)}.{hint}")
    return None


def explained(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Exception:
    """The exception to raise when `function`, public as `name`, failed with `error`."""
    if not isinstance(error, _PLAIN) or isinstance(error, TypeError) and _PREFIX.match(str(error)) is None:
        wrong = wrong_tensor(name, function, args, kwargs)
        if wrong is not None:
            return wrong
    text = str(error)
    if isinstance(error, TypeError) and text.startswith(f"{function.__qualname__}()"):
        # Python's own error for a call that does not match the signature
        return TypeError(
            f"{name}: {text[len(function.__qualname__) + 2 :].strip()}. Signature: {name}{_signature(function)}."
        )
    return unknown_sizes(name, args, error) or renamed(name, error)


def unknown_sizes(name: str, operands: Any, error: Exception) -> Exception | None:
    """The exception to raise if `error` is caused by None in place of a size not known while the graph is declared."""
    if not isinstance(error, TypeError) or "NoneType" not in str(error):
        return None
    every = [t for x in operands for t in (x if isinstance(x, (list, tuple)) else (x,))]
    open_ = [t for t in every if isinstance(t, Tensor) and (t.shape is None or None in t.shape)]
    if not open_:
        return None
    shapes = ", ".join([format_shape(t.shape) for t in open_])
    return ValueError(
        f"{name}: works only on tensors whose sizes are known when the graph is declared. Got {shapes}. Give the placeholder "
        "the sizes, for example `wf.placeholder(wf.float32, (32, 3))`."
    )


def rescued(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: Exception,
    body: Callable[..., Any] | None = None,
) -> Any:
    """Handle a call that failed with `error`: defer it if it only lacked sizes known at run time, else raise."""
    made = late_result(name, body or function, args, kwargs)
    if made is not None:
        return made
    try:
        raise_as(explained(name, function, args, kwargs, error), error)
    finally:
        del error  # as in `raise_as`


def late_result(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Declare a call on tensors of unknown sizes as a deferred node of their graph; None if all sizes are known.

    See Note [Deferred nodes] in `weft.graph.declared.deferred_nodes`.
    """
    for t in [t for x in (*args, *kwargs.values()) for t in (x if isinstance(x, (list, tuple)) else (x,))]:
        data: Any = getattr(t, "_data", None)
        if hasattr(data, "deferred_call") and not is_known(data.shape):
            return data.deferred_call(function, name, args, kwargs)
    return None


def raise_as(replacement: Exception, error: Exception) -> NoReturn:
    """Raise `replacement` in place of `error`, which is being handled and may be the same object."""
    try:
        if replacement is error:
            shorten(error)
            error.__suppress_context__ = True  # a fast path that failed before
            raise  # noqa: PLE0704 - callers are in the handler of `error`
        shorten(replacement)
        raise replacement from None  # one traceback; the original is `__context__`
    finally:
        del replacement, error  # this frame is in their traceback: naming them here would make a cycle


def _signature(function: Callable[..., Any]) -> str:
    import inspect

    return str(inspect.signature(function))


def guarded(
    function: Callable[..., Any], name: str | None = None, body: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """`function` as users call it: array arguments become tensors, and errors carry its public name.

    `body`, if given, runs in its place; it takes the same arguments. So does what `accumulates` gave the function.
    """
    if getattr(function, "__wrapped__", None) is not None or getattr(function, "names_errors", False):
        return function  # an op's own public function, or guarded already
    title = name or function.__name__.rstrip("_")
    _titles.add(title)
    slots = tensor_slots(function)
    run: Callable[..., Any] = body if body is not None else getattr(function, "float32_body", function)
    spelled = spelling.Translator(function)
    count, known = spelled.most, spelled.known

    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            if len(args) > count or kwargs and not kwargs.keys() <= known:
                args, kwargs = spelled.translate(title, args, kwargs)
            for i in slots:
                if i < len(args) and isinstance(args[i], _ARRAYS):
                    args = tuple(
                        [Tensor(a) if k in slots and isinstance(a, _ARRAYS) else a for k, a in enumerate(args)]
                    )
                    break
            return run(*args, **kwargs)
        except Exception as error:
            return rescued(title, function, args, kwargs, error, run)

    public.__name__ = public.__qualname__ = title
    public.__doc__, public.__module__ = function.__doc__, function.__module__
    public.__wrapped__ = function  # type: ignore[attr-defined]  # inspect.signature and help() show the definition
    if hasattr(function, "op"):
        public.op = function.op  # type: ignore[attr-defined]
    return public


def guard_functions(names: dict[str, Any]) -> None:
    """Guard the public functions of a module; call it with the module's `globals()` at its end."""
    for name, value in list(names.items()):
        if isinstance(value, FunctionType) and value.__module__ == names["__name__"] and not name.startswith("_"):
            names[name] = guarded(value, name)


def public(function: Callable[..., Any]) -> Callable[..., Any]:
    """The public form of `function`: an op's `call`, or the guarded function."""
    op = getattr(function, "op", None)
    return guarded(function) if op is None else op.call


def tensor_slots(function: Callable[..., Any]) -> tuple[int, ...]:
    """The positions of parameters annotated as tensors."""
    code = function.__code__
    annotations = function.__annotations__
    return tuple(
        [
            i
            for i, n in enumerate(code.co_varnames[: code.co_argcount])
            if "Tensor" in str(annotations.get(n, "")) and "Sequence" not in str(annotations[n])
        ]
    )
