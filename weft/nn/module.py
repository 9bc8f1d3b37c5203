"""Module: the base class of layers and models, which owns parameters, buffers and child modules.

Note [Attributes of modules]. The type of its value decides what an attribute is: a `Parameter` is a parameter, a `Module`
a child, and a tensor whose name was passed to `register_buffer` a buffer. There is no separate registry, so
`self.weight` in `forward` is a plain attribute access. Every change that a captured function may depend on (attributes,
train/eval, requires_grad) bumps `weft.runtime.epoch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from .. import dtypes
from ..autograd.hooks import HookHandle
from ..autograd.tree import keep_whole
from ..errors import type_name
from ..graph.declared.python_calls import declared_call
from ..ops.core.error_names import raise_as
from ..runtime import epoch
from ..tensor import Tensor
from .errors import argument_error, locate
from .parameter import Parameter, UninitializedParameter

if TYPE_CHECKING:
    from .summary import Summary

BUFFER_REDUCTIONS = ("mean", "same", "sum", "max", "min", "first")
_MISSING: Any = object()
ndarray = np.ndarray


def _symbolic(args: Iterable[Any]) -> bool:
    """Whether an argument is a graph tensor, so that the call adds to that graph."""
    return any(a.__class__ is Tensor and a._data.__class__ is not ndarray for a in args)


def _names_dtype(word: str) -> bool:
    try:
        dtypes.as_dtype(word)
    except TypeError:
        return False
    return True


class IncompatibleKeys(NamedTuple):
    """Missing and unexpected names reported by `load_state_dict`."""

    missing_keys: list[str]
    unexpected_keys: list[str]


@keep_whole
class Module:
    """The base class of layers and models. Define `__init__` (assign parameters and children) and `forward`.

    >>> class Scale(nn.Module):
    ...     def __init__(self, features):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(wf.ones(features))
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> sum(p.size for p in Scale(3).parameters())
    3
    """

    training: bool = True
    _hooked: bool = False  # whether __call__ must look for hooks
    _buffers: dict[str, bool]  # names of buffers, and whether they are saved
    _forward_hooks: list[Callable[..., Any]]
    _forward_pre_hooks: list[Callable[..., Any]]
    _backward_hooks: list[Callable[..., Any]]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self) -> None:
        self.__dict__.update(training=True, _buffers={})

    # Running --------------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output. Call the module (`model(x)`) rather than this method: the call runs hooks and locates errors."""
        raise NotImplementedError(f"{type(self).__name__}: define `forward(self, …)` to say what the module computes.")

    def __call__(self, x: Any = _MISSING, /, *args: Any, **kwargs: Any) -> Any:
        try:
            if args or kwargs or self._hooked or x is _MISSING:
                args = args if x is _MISSING else (x, *args)
                if _symbolic(args) or kwargs and _symbolic(kwargs.values()):
                    return declared_call(self._call_with_hooks, (args, kwargs), {})
                return self._call_with_hooks(args, kwargs) if self._hooked else self.forward(*args, **kwargs)
            if x.__class__ is Tensor and x._data.__class__ is not ndarray:
                return declared_call(self.forward, (x,), {})
            return self.forward(x)  # fast path: packing and unpacking one argument costs as much as a call
        except AttributeError as error:
            given = args if args or x is _MISSING else (x,)
            raise_as(argument_error(self, given, kwargs, error), error)
        except Exception as error:
            locate(error, self)
            raise

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook in list(self.__dict__.get("_forward_pre_hooks", ())):
            replaced = hook(self, args, kwargs) if getattr(hook, "with_kwargs", False) else hook(self, args)
            if replaced is not None:
                if getattr(hook, "with_kwargs", False):
                    args, kwargs = replaced
                else:
                    args = replaced if isinstance(replaced, tuple) else (replaced,)
        backward = self.__dict__.get("_backward_hooks")
        if not (backward or self.__dict__.get("_forward_hooks") or self.__dict__.get("_forward_pre_hooks")):
            self.__dict__["_hooked"] = False  # the last one was removed
        if backward:
            from .backward_hooks import watch

            args, finish = watch(self, list(backward), args)
        result = self.forward(*args, **kwargs)
        for hook in list(self.__dict__.get("_forward_hooks", ())):
            if getattr(hook, "with_kwargs", False):
                replaced = hook(self, args, kwargs, result)
            else:
                replaced = hook(self, args, result)
            if replaced is not None:
                result = replaced
        return finish(result) if backward else result

    # Attributes -----------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if "_buffers" not in attributes:
            raise AttributeError(
                f"{type(self).__name__}: call `super().__init__()` before assigning attributes. Got {name!r}."
            )
        old = attributes.get(name, _MISSING)
        if old is value:
            return
        if isinstance(old, Parameter) and not (value is None or isinstance(value, Parameter)):
            raise TypeError(
                f"{type(self).__name__}.{name}: is a Parameter and cannot become a {type(value).__name__}. Assign a "
                f"`nn.Parameter` or None, or write into it: `with wf.no_grad(): module.{name}.copy_(new)`."
            )
        if name in self._buffers and not (value is None or isinstance(value, Tensor)):
            raise TypeError(
                f"{type(self).__name__}.{name}: is a buffer and cannot become a {type(value).__name__}. "
                "Assign a tensor or None."
            )
        if isinstance(value, Module) and any(m is self for m in value.modules()):
            raise ValueError(
                f"{type(self).__name__}.{name}: a module cannot be part of itself. To keep a reference to a module above "
                "without owning it, wrap it in a tuple."
            )
        object.__setattr__(self, name, value)
        if name == "training" and type(old) is type(value) is bool:
            epoch.change(self, name, old, value)
        elif not (type(old) is type(value) and isinstance(value, (bool, int, float, str, tuple)) and old == value):
            epoch.bump()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._buffers.pop(name, None)
        epoch.bump()

    def register_buffer(
        self, name: str, tensor: Tensor | None, persistent: bool = True, *, reduce: str | None = None
    ) -> None:
        """Register `tensor` as a buffer: state that is not trained.

        Args:
            name: the attribute.
            tensor: its value.
            persistent: whether it is part of the state dict.
            reduce: what becomes of the values that the shards of a batch leave in it, in a distributed step: "mean" (the
                default for floating-point numbers), "same" (they must agree; the default for others), "sum" (of what they
                added), "max", "min" or "first".

        >>> module = nn.Module()
        >>> module.register_buffer("seen", wf.zeros(1, dtype=wf.int64), reduce="sum"); module.seen
        tensor([0])
        """
        self._check_name(name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: {name!r} must be a tensor or None. Got {type_name(tensor)}.")
        if reduce is not None and reduce not in BUFFER_REDUCTIONS:
            raise ValueError(f"register_buffer: reduce must be one of {', '.join(BUFFER_REDUCTIONS)}. Got {reduce!r}.")
        self._buffers[name] = persistent
        setattr(self, name, tensor)
        if reduce is not None:
            self.__dict__.setdefault("_reductions", {})[name] = reduce

    def buffer_reduction(self, name: str) -> str | None:
        """How `register_buffer` was told to reduce a buffer of this module over the shards of a batch; None if it was not."""
        found: str | None = self.__dict__.get("_reductions", {}).get(name)
        return found

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Register `parameter` under `name`; None marks an optional parameter that is absent."""
        self._check_name(name)
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(
                f"register_parameter: {name!r} must be a Parameter or None. Got {type(parameter).__name__}; "
                "wrap it in `nn.Parameter(...)`."
            )
        setattr(self, name, parameter)

    def register_module(self, name: str, module: Module | None) -> None:
        """Register `module` as a child under `name`."""
        self._check_name(name)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"register_module: {name!r} must be a Module or None. Got {type(module).__name__}.")
        setattr(self, name, module)

    add_module = register_module

    def _check_name(self, name: str) -> None:
        if "_buffers" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call `super().__init__()` before registering {name!r}.")
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"{type(self).__name__}: a name must be a non-empty string without '.'. Got {name!r}.")
        if name not in self.__dict__ and hasattr(type(self), name):
            raise KeyError(f"{type(self).__name__}: {name!r} is taken by an attribute of the class.")

    # Traversal ------------------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Name and module of every direct child, each module once."""
        seen: set[int] = set()
        for name, value in list(self.__dict__.items()):
            if isinstance(value, Module) and id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def children(self) -> Iterator[Module]:
        """The direct children."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """Path and module of this module and everything below it, parents first."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen and remove_duplicate:
                continue
            seen.add(id(module))
            yield path, module
            dot = path + "." if path else ""
            below = [(dot + n, m) for n, m in list(module.__dict__.items()) if isinstance(m, Module)]
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """This module and everything below it."""
        for _, module in self.named_modules():
            yield module

    def _tensors(
        self, chosen: Callable[[Module, str, Any], bool], prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            dot = path + "." if path else ""
            for name, value in list(module.__dict__.items()):
                if isinstance(value, Tensor) and chosen(module, name, value):
                    if remove_duplicate and id(value) in seen:
                        continue
                    seen.add(id(value))
                    yield dot + name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Path and tensor of every parameter; one that is shared appears under its first name only.

        >>> [name for name, _ in nn.Linear(2, 3).named_parameters()]
        ['weight', 'bias']
        """
        return self._tensors(lambda m, n, v: isinstance(v, Parameter), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter, once: what an optimiser takes."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Path and tensor of every buffer."""
        return self._tensors(lambda m, n, v: n in m._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer, once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, path: str) -> Module:
        """The module at `path`, such as "encoder.layers.3"; the empty path is this module."""
        if not isinstance(path, str):
            raise TypeError(
                f"get_submodule: path must be a string such as 'encoder.layers.3'. Got {type(path).__name__}."
            )
        module: Module = self
        for i, name in enumerate(path.split(".") if path else []):
            found = module.__dict__.get(name)
            if not isinstance(found, Module):
                at = ".".join(path.split(".")[:i]) or type(self).__name__
                names = ", ".join(n for n, _ in module.named_children()) or "no children"
                raise AttributeError(f"get_submodule: {at!r} has no child {name!r}. It has {names}.")
            module = found
        return module

    def _owned(self, what: str, path: str, chosen: Callable[[Module, str, Any], bool]) -> Any:
        if not isinstance(path, str):
            raise TypeError(f"get_{what}: path must be a string such as 'encoder.{what}'. Got {type(path).__name__}.")
        parent, _, name = path.rpartition(".")
        module = self.get_submodule(parent)
        found = module.__dict__.get(name)
        if found is None or not chosen(module, name, found):
            raise AttributeError(f"get_{what}: {parent or type(self).__name__!r} has no {what} {name!r}.")
        return found

    def get_parameter(self, path: str) -> Parameter:
        """The parameter at `path`, such as "encoder.layers.3.linear1.weight"."""
        return self._owned("parameter", path, lambda m, n, v: isinstance(v, Parameter))

    def get_buffer(self, path: str) -> Tensor:
        """The buffer at `path`."""
        return self._owned("buffer", path, lambda m, n, v: n in m._buffers)

    # Recursive updates ----------------------------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module below this one, then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout active, batch norm uses batch statistics) recursively."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode recursively: `train(False)`.

        >>> nn.Dropout(0.5).eval().training
        False
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether all parameters require gradients; False freezes them.

        >>> any(p.requires_grad for p in nn.Linear(2, 3).requires_grad_(False).parameters())
        False
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters to None, or to zeros."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad * 0

    def to(self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False) -> Self:
        """Cast floating parameters and buffers to a floating dtype, in place; a device must be the CPU.

        The parameters keep their identity, so optimisers keep working; their memory is new.
        """
        for arg in args:
            if isinstance(arg, Tensor):
                dtype = arg.dtype
            elif type(arg).__name__ in ("Device", "device") or isinstance(arg, str) and not _names_dtype(arg):
                device = arg
            else:
                dtype = arg
        if device is not None:
            from ..ops.array.creation import check_device

            check_device("to", device)
        if dtype is not None:
            wanted = dtypes.as_dtype(dtype)
            if not dtypes.is_inexact(wanted):
                raise TypeError(f"to: the parameters of a module must be floating or complex. Got {wanted.name}.")
            self._cast(wanted)
        return self

    def _cast(self, wanted: Any) -> None:
        for _, tensor in self._tensors(lambda m, n, v: isinstance(v, Parameter) or n in m._buffers, "", True, True):
            if not dtypes.is_inexact(tensor.dtype) or tensor.dtype == wanted:
                continue
            if dtypes.is_complex(tensor.dtype) and not dtypes.is_complex(wanted):
                continue  # a real dtype would drop the imaginary parts
            grad = tensor.grad
            tensor.grad = None
            tensor._data = tensor._array("to").astype(wanted)
            if grad is not None:
                tensor.grad = grad.to_dense().to(wanted) if hasattr(grad, "to_dense") else grad.to(wanted)
        epoch.bump()

    def float(self) -> Self:
        """Cast floating parameters and buffers to float32."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Cast floating parameters and buffers to float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floating parameters and buffers to bfloat16."""
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Self:
        """This module: parameters live on the CPU."""
        return self

    def share_memory(self) -> Self:
        """Move parameters and buffers into shared memory, in place, so that other processes see them change."""
        from ..multiprocessing import share_memory

        share_memory(self)
        epoch.bump()
        return self

    # State ----------------------------------------------------------------------------------------------------------

    def _state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        def is_state(module: Module, name: str, value: Any) -> bool:
            return isinstance(value, Parameter) or module._buffers.get(name, False)

        return self._tensors(is_state, prefix, True, False)

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Name and data of every parameter and persistent buffer. The tensors share memory with the module's own.

        >>> sorted(nn.Linear(2, 3).state_dict())
        ['bias', 'weight']
        """
        if prefix.endswith("."):
            prefix = prefix[:-1]
        return {name: tensor.detach() for name, tensor in self._state(prefix)}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Copy the values of `state_dict` into this module's own tensors.

        Everything is checked before anything is written. The tensors keep their identity and memory.

        Args:
            state_dict: tensors or arrays by name, as `state_dict()` returns them.
            strict: raise if names are missing or unexpected; shapes must agree in any case.

        Returns:
            The names that were missing and those that were not expected.
        """
        from .weights import check_state, copy_into

        own = dict(self._state())
        for name, tensor in own.items():
            if isinstance(tensor, UninitializedParameter) and name in state_dict:
                tensor.materialize(tuple(np.shape(state_dict[name])))
        missing, unexpected = check_state(type(self).__name__, own, state_dict, strict)
        copy_into(own, state_dict)
        return IncompatibleKeys(missing, unexpected)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    # Hooks ----------------------------------------------------------------------------------------------------------

    def _add_hook(self, kind: str, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        if not callable(hook):
            raise TypeError(f"hook: expected a function. Got {type(hook).__name__}.")
        hooks = self.__dict__.setdefault(kind, [])
        hooks.insert(0 if prepend else len(hooks), hook)
        self.__dict__["_hooked"] = True
        epoch.bump()
        return HookHandle(hooks, hook)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args, result)` after `forward`; a return value other than None replaces the result."""
        return self._add_hook("_forward_hooks", _WithKwargs(hook) if with_kwargs else hook, prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before `forward`; a return value other than None replaces the arguments."""
        return self._add_hook("_forward_pre_hooks", _WithKwargs(hook) if with_kwargs else hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of this module's inputs are known.

        Both are tuples with one entry per positional argument (result); None where there is no gradient. If there is
        one differentiable input, the hook may return another gradient for it.
        """
        return self._add_hook("_backward_hooks", hook)

    # Text -----------------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The settings shown in the module's repr."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._shown()]
        if not lines:
            return f"{type(self).__name__}({extra})"
        first = [extra] if extra else []
        return f"{type(self).__name__}(\n  " + "\n  ".join(first + lines) + "\n)"

    def _repr_html_(self) -> str:
        """The tree of submodules for notebooks, with their numbers of parameters; parts fold."""
        from .module_html import module_html

        return module_html(self)

    def _shown(self) -> list[tuple[str, Module]]:
        return [(n, v) for n, v in self.__dict__.items() if isinstance(v, Module)]

    def summary(self, *inputs: Any, depth: int | None = None, **kwargs: Any) -> Summary:
        """Table of submodules with output shapes, parameters and FLOPs.

        Args:
            inputs: example tensors, or shapes such as `(1, 3, 224, 224)` (zeros are used).
            depth: how many levels of modules to show; all by default.
            kwargs: further arguments of `forward`.

        >>> nn.Linear(4, 2).summary((1, 4)).total_parameters
        10
        """
        from .summary import summarize

        return summarize(self, inputs, kwargs, depth)


class Layer(Module):
    """A module that returns one tensor, for type checkers and editors."""

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...


class _WithKwargs:
    """Marks a hook that also takes the keyword arguments."""

    with_kwargs = True

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)
