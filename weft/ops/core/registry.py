"""The op table: one record per op, from which everything else is derived.

A record is made by decorating the op's Python definition:

* `@primitive(infer=…, vjp=…)`: the body is the op's NumPy kernel, over arrays. Further kernels (oneDNN, LLVM, a
  user's) are added with `register_kernel`.
* `@elementwise(vjp=…)`: the body is a scalar expression written with `weft.ops.core.scalar`; NumPy runs it on arrays, the
  compiler turns it into vector code and fuses it with its neighbours.
* `@composite(…)`: the body is written with other ops and needs neither gradient rule nor kernel.

The signature of the definition is the signature users call. Parameters annotated `Tensor`, `Tensor | None` or
`Sequence[Tensor]` are tensors, all others are attributes (static, hashable).

Gradient rules, Note [vjp rules]: a rule is a function `rule(g, …)` from the gradient of the output to the gradient of
one input, written with public ops. The names of its further parameters declare what the tape saves: an input's name
for that input, `out` for the output (of several: `outs` for all, `out1` for the second), `like_<input>` for shape and
dtype only, an attribute's name for the attribute. `vjp=` is one rule (one differentiable input), a tuple with one rule
or `None` per tensor input, or `joint(rule)` for a rule that returns all gradients at once (it may take `needs`, one
bool per input). `small_vjp` may repeat the rule of a unary op for bare arrays (see Note [Bare gradients]), where one
fused op would cost more than a few NumPy calls. Rules are plain transposes; broadcasting, dtype promotion and complex
conjugation are undone by the engine.

Short floats, Note [Short floats]: float16 and bfloat16 are storage formats; sums are accumulated in float32. The fact
`accumulate` declares where that happens:

* "float32" (the default): 16-bit operands are converted to float32 before the kernel, the composite body or the gradient
  rules, and every result is rounded once, at the end. Kernels and rules need not support 16-bit floats.
* "kernels": the kernels read 16-bit operands and accumulate in float32 themselves (matrix products, convolutions), so that
  they can use the processor's 16-bit instructions. The gradient rules consist of such ops.
* "exact": no arithmetic, hence no rounding: moving, comparing and selecting elements.
* "parts" (the default of composites): decided by each op that the body calls.

A Python number combined with 16-bit floats behaves accordingly: arithmetic uses its full precision (`x * 1e-8`), "exact"
ops use it rounded (`x == 0.1` holds for the float16 0.1).

Implemented by `weft.ops.core.short_floats` for arrays and tensors and by the compiler's pass `widen` for captured programs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import format_shape as format_shape
from . import spelling
from .spec import refuse_gradients

if TYPE_CHECKING:
    from .reductions import Reduction
    from .views import View

ACCUMULATE = ("float32", "kernels", "exact", "parts")
AUTOCAST = ("low", "float32", None)
OBSERVER_EFFECTS = frozenset(("print", "check"))  # of ops that run whenever their input is computed
_NUMBERS = frozenset({int, float, bool, str, type(None)})  # attribute types that need no check
NOT_DIFFERENTIABLE = "not differentiable"
FROM_DOUBLE_REVERSE = "from double reverse"


class Joint:
    """Marks a gradient rule that returns the gradients of all tensor inputs together."""

    __slots__ = ("rule", "fill", "with_all")

    def __init__(self, rule: Callable[..., Any], fill: bool, with_all: tuple[str, ...] | None) -> None:
        self.rule, self.fill, self.with_all = rule, fill, with_all


def joint(rule: Callable[..., Any], *, fill: bool = True, with_all: tuple[str, ...] | None = None) -> Joint:
    """Mark a rule that returns the gradients of all tensor inputs at once.

    Args:
        rule: the gradient rule.
        fill: unused outputs have a gradient of zeros; None with `fill=False`.
        with_all: skip the inspection of parameters; call the rule with all tensor inputs, these attributes and `needs`.
    """
    return Joint(rule, fill, with_all)


class OpKernel:
    """One implementation of an op for one kind of device; `when(*args, **attrs)` is its guard (None: always applies)."""

    __slots__ = ("fn", "device", "when", "name")

    def __init__(self, fn: Callable[..., Any], device: str, when: Callable[..., bool] | None, name: str) -> None:
        self.fn, self.device, self.when, self.name = fn, device, when, name


class Rule:
    """A gradient rule whose parameters are resolved to positions in the node's saved values and attributes."""

    __slots__ = ("fn", "sources")

    def __init__(self, fn: Callable[..., Any], sources: tuple[tuple[str, int], ...]) -> None:
        self.fn, self.sources = fn, sources


def _pull_in_float32(pull: Callable[..., Any], several: bool) -> Callable[..., Any]:
    """`pull` with `g` (a list if `several`) widened to float32, for rules that do not support 16-bit floats.

    See Note [Short floats]. The engine converts the saved values.
    """

    def checked(g: Any, saved: Any, attrs: Any, edges: Any) -> Any:
        if several:
            for part in g:
                if part is not None and part.dtype.itemsize == 2:
                    break
            else:
                return pull(g, saved, attrs, edges)
        elif g._data.dtype.itemsize != 2:
            return pull(g, saved, attrs, edges)
        from .short_floats import widened

        return pull(widened(g), saved, attrs, edges)

    return checked


@functools.cache
def _puller(joint: bool, signatures: tuple[tuple[tuple[str, int], ...] | None, ...]) -> Callable[..., Any]:
    """Makes `pull(g, saved, attrs, edges)`, which calls an op's rules, as one line of Python, for example
    `(None if edges[0] is None else rule0(g, saved[0]), None if edges[1] is None else rule1(g, attrs[0]))`.

    Backward does this for every node; looking the arguments up in a loop would cost more than a small op.
    """
    words = {"saved": "saved[{}]", "attr": "attrs[{}]", "needs": "tuple([e is not None for e in edges])"}
    calls = []
    for i, sources in enumerate(signatures):
        if sources is None:
            calls.append("None")
            continue
        call = f"rule{i}({', '.join(['g', *[words[kind].format(index) for kind, index in sources]])})"
        calls.append(call if joint or len(signatures) == 1 else f"None if edges[{i}] is None else {call}")
    names = ", ".join([f"rule{i}" for i in range(len(signatures))])
    body = calls[0] if joint else f"({', '.join(calls)},)"
    text = f"lambda {names}: lambda g, saved, attrs, edges: {body}"
    made: Callable[..., Any] = eval(
        compile(text, __file__, "eval")
    )  # frames attributed to this file, not to the user's code
    return made


def _is_arithmetic(rule: Callable[..., Any]) -> bool:
    """Whether a rule is made of operators only, such as `lambda g, x2: g * x2`: it names no function and no attribute, so
    it means the same on arrays as on tensors."""
    code = rule.__code__
    return not code.co_names and not code.co_freevars and not code.co_cellvars


_INTEGERS = re.compile(r"\b(int|Sizes|Pairs|Axis)\b")
_OTHER_NUMBERS = re.compile(r"\b(float|complex|str)\b")


def _holds_integers(annotation: str) -> bool:
    return _INTEGERS.search(annotation) is not None and _OTHER_NUMBERS.search(annotation) is None


class Facts:
    """What graphs and the compiler ask of the op of any node, with the answers for an op of which nothing is known.

    `Op` sets them from its record. Ops outside the table (placeholders, control flow, variables, queues) inherit them.

    Facts:
        effects: names of side effects, such as "reads", "writes", "blocks", "random", "host", "print" and "check" (may
            raise); an op without effects is pure and may be merged, moved and dropped.
        expression: the scalar expression of an elementwise op: a function of its operands.
        element: the same for an op whose expression depends on attributes: a function of the op's parameters, with scalar
            expressions for tensors (`cast`, `filled`).
        reduction: what the op combines elements with, see `weft.ops.core.reductions`.
        scan: what a running reduction along the attribute `axis` combines elements with; a second result is the place of
            the element that each running value was taken from.
        view: how the op's result is laid out in the memory of its operand, see `weft.ops.core.views`.
        gather: the op selects elements of operand 0 by the indices in operand 1 along the attribute `axis`, which comes
            first: "axis" if the axes of the indices replace that axis, "along" if there is an index per element.
        scatter: the op is operand 0 with elements replaced or added to, nothing else if operand 1 is empty: "axis" and
            "along" as for `gather`, "slice" for a basic index.
        identity: the result is the first operand: "always", or where it has the shape and dtype of the result ("same spec").
        neutral: pairs (position, number): the result is the other one of two operands if this operand is the number.
        empty_value: every element of the result if an operand is empty; None if that depends.
        index_range: takes the op's parameters and returns (low, high) if all elements of the result are in [low, high),
            else None.
        subs: the subgraphs of a control-flow op.
        routes: which routing op of a declared graph this is ("switch", "merge", "enter", "exit", "next_iteration"), or "".
        check_error: the exception that a failed check of the op raises.
        autocast: the precision in which `autocast` runs the op: "low" (the 16-bit dtype), "float32", or None: that of the
            operands.
    """

    __slots__ = ()
    version: int = 1
    effects: frozenset[str] = frozenset()
    expression: Callable[..., Any] | None = None
    element: Callable[..., Any] | None = None
    reduction: Reduction | None = None
    scan: Reduction | None = None
    view: View | None = None
    gather: str | None = None
    scatter: str | None = None
    identity: str | None = None
    neutral: tuple[tuple[int, float], ...] = ()
    empty_value: float | None = None
    index_range: Callable[..., Any] | None = None
    check_error: type[Exception] = IndexError
    autocast: str | None = None
    alias: str | None = None
    cost: Callable[..., Any] | str | None = None
    subs: tuple[Any, ...] = ()
    routes: str = ""
    variadic: bool = False
    tensor_names: tuple[str, ...] = ()
    attr_names: tuple[str, ...] = ()

    @property
    def observes(self) -> bool:
        """Whether a node of this op runs whenever its input is computed: a print or a check is never dead code."""
        return bool(self.effects & OBSERVER_EFFECTS)


class Op(Facts):
    """The record of one op. Immutable after definition, except for the list of kernels.

    Facts, besides those of every op:
        alias: the input that the output may be a view of; `put(base, value, *attrs)` then writes a new value of the view
            into its base, out of place.
        batch: the vmap rule: "elementwise", "composite", a function `batch(axes, tensors, attrs)`, or None (no rule).
        jvp: a forward-mode rule, or a marker that forward mode is derived from double reverse (so far always).
        cost: a family of `weft.ops.core.costs`, or a function `cost(*specs, **attrs)` that estimates FLOPs.
        along: the op works along the attribute `axis`; a 0-d tensor then counts as a vector of one element.
        checks_once: `infer` depends only on shapes, dtypes and attributes, so a signature is checked once.
        several_calls: NumPy has no single function for the op; a native kernel is worth loading for any size.
        refuse: takes the op's parameters over arrays and raises for invalid values (an index out of range); eager calls
            run it before a kernel.
        check_call: takes the arguments as given and raises for invalid Python numbers (a lower bound above the upper
            one), in every mode.
        shape_only: positions in a sequence of tensors of which gradient rules use only shape and dtype, so that the tape
            need not save them.
        accumulate: where float16 and bfloat16 are computed in float32, see Note [Short floats].
        version: of the attributes' meaning in graph files; `upgrade(version, inputs, attrs)` makes the present attributes
            of those that a file holds in an older version (`inputs` have shapes and dtypes).
    """

    def __init__(self, name: str, fn: Callable[..., Any], **facts: Any) -> None:
        self.name = name
        self.title: str = facts.pop("title", name)  # the public name used in errors
        self.fn = fn
        self.version = facts.pop("version", 1)
        self.upgrade: Callable[..., tuple[Any, ...]] | None = facts.pop("upgrade", None)
        self.doc = inspect.cleandoc(fn.__doc__ or "")
        self._parse_signature(fn, facts.pop("all_tensors", False))
        self.num_outputs: int | None = facts.pop("outputs", 1)
        self.infer: Callable[..., Any] | None = facts.pop("infer", None)
        self.promote: str | None = facts.pop("promote", None)
        self.kind: str = facts.pop("kind", "numeric")
        self.expression = facts.pop("expression", None)
        for fact in _COMPILER_FACTS:
            if fact in facts:
                setattr(self, fact, facts.pop(fact))
        self._check_facts()
        self.broadcasts: bool = facts.pop("broadcasts", False)
        self.effects = frozenset(facts.pop("effects", ()))
        self.alias = facts.pop("alias", None)
        self.put: Callable[..., Any] | None = facts.pop("put", None)
        self.ufunc: Callable[..., Any] | None = facts.pop("ufunc", None)
        self.reflected: Callable[..., Any] | None = None
        self.batch: Any = facts.pop("batch", None)
        self.shape_only: tuple[int, ...] = facts.pop("shape_only", ())
        self.along: bool = facts.pop("along", False)
        self.checks_once: bool = facts.pop("checks_once", False)
        self.several_calls: bool = facts.pop("several_calls", False)
        self.checked: set[tuple[Any, ...]] = set()
        self.refuse: Callable[..., None] | None = facts.pop("refuse", None)
        self.check_call: Callable[..., None] | None = facts.pop("check_call", None)
        self.jvp: Any = facts.pop("jvp", None) or FROM_DOUBLE_REVERSE
        self.cost = facts.pop("cost", "reduce" if self.reduction else "view" if self.view else None)
        self.composite: bool = facts.pop("composite", False)
        usual = "parts" if self.composite else "exact" if self.alias is not None else "float32"
        self.accumulate: str = facts.pop("accumulate", usual)
        if self.accumulate not in ACCUMULATE:
            raise TypeError(f"op {name}: accumulate must be one of {', '.join(ACCUMULATE)}. Got {self.accumulate!r}.")
        self.widens = self.accumulate == "float32"  # read by dispatch
        self.samples: Callable[..., Any] | None = facts.pop("samples", None)
        self.errors: Callable[..., Any] | None = facts.pop("errors", None)
        self.reference: Callable[..., Any] | None = facts.pop("reference", None)
        self.tolerance: float = facts.pop("tolerance", 1.0)
        self.test: dict[str, Any] = facts.pop("test", {})
        self.method: str | None = facts.pop("method", None)
        self.namespace: str = facts.pop("namespace", "weft")
        self.kernels: list[OpKernel] = []
        vjp, small_vjp = facts.pop("vjp", None), facts.pop("small_vjp", None)
        if facts:
            raise TypeError(f"op {name}: unknown facts {sorted(facts)}.")
        self.declared_nondifferentiable = vjp is NOT_DIFFERENTIABLE
        if self.declared_nondifferentiable:
            self.jvp = NOT_DIFFERENTIABLE
        self.fills: bool = vjp.fill if isinstance(vjp, Joint) else True
        self._resolve_rules(vjp, small_vjp)
        # the tape saves one array, scalar or Spec per item, which backward need not inspect
        self.plain_saves = not self.variadic and self.num_outputs == 1
        # whether there is anything to free after backward
        self.keeps_arrays = any(kind != "like" for kind, _, _ in self.saved_items)
        # the backward of tape entries that are not in the table (a user's Function)
        self.pullback: Callable[..., Any] | None = None
        self.call: Callable[..., Any] = fn  # replaced by dispatch for ops that are not composite

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> Any:
        return (get, (self.name,))

    def _check_facts(self) -> None:
        """Raise for facts that the op's parameters contradict: the compiler relies on them."""
        if self.autocast not in AUTOCAST:
            raise TypeError(f"op {self.name}: autocast must be 'low', 'float32' or None. Got {self.autocast!r}.")
        if self.reduction is not None and (len(self.tensor_slots), self.attr_names) != (1, ("axis", "keepdims")):
            raise TypeError(
                f"op {self.name}: a reduction has the parameters (x, axis, keepdims). Got {self.signature}."
            )
        if self.scan is not None and (len(self.tensor_slots), self.attr_names) != (1, ("axis",)):
            raise TypeError(f"op {self.name}: a scan has the parameters (x, axis). Got {self.signature}.")
        indexed = self.gather is not None or self.scatter in ("axis", "along")
        if indexed and (len(self.tensor_slots) < 2 or self.attr_names[:1] != ("axis",)):
            raise TypeError(
                f"op {self.name}: a gather or scatter takes a tensor, its indices and `axis`. Got {self.signature}."
            )

    # The signature ------------------------------------------------------------------------------------------------

    def _parse_signature(self, fn: Callable[..., Any], all_tensors: bool) -> None:
        code = fn.__code__
        count, kwonly = code.co_argcount, code.co_kwonlyargcount
        names = code.co_varnames[: count + kwonly]
        annotations = fn.__annotations__
        self.parameters: tuple[str, ...] = names
        self.num_positional = count
        self.tensor_slots: tuple[int, ...] = tuple(
            i for i, n in enumerate(names) if all_tensors or "Tensor" in str(annotations.get(n, ""))
        )
        self.attr_slots = tuple(i for i in range(len(names)) if i not in self.tensor_slots)
        self.variadic = bool(self.tensor_slots) and "Sequence" in str(annotations.get(names[self.tensor_slots[0]], ""))
        if self.variadic and len(self.tensor_slots) != 1:
            raise TypeError(f"op {self.name}: a sequence of tensors must be the only tensor parameter.")
        self.tensor_names = tuple(names[i] for i in self.tensor_slots)
        self.attr_names = tuple(names[i] for i in self.attr_slots)
        # positions of attributes that hold sizes, counts, axes: integers or tuples of them
        self.integer_attrs = tuple(
            j for j, n in enumerate(self.attr_names) if n != "shape" and _holds_integers(str(annotations.get(n, "")))
        )
        # positions of optional tensors
        self.optional = {j for j, i in enumerate(self.tensor_slots) if "None" in str(annotations.get(names[i], ""))}
        self.slot_of = {n: i for i, n in enumerate(names)}
        defaults: list[Any] = [REQUIRED] * len(names)
        positional_defaults = fn.__defaults__ or ()
        defaults[count - len(positional_defaults) : count] = positional_defaults
        for n, v in (fn.__kwdefaults__ or {}).items():
            defaults[self.slot_of[n]] = v
        self.defaults: tuple[Any, ...] = tuple(defaults)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call as a full tuple in parameter order; lists become tuples."""
        n = len(args)
        if n > self.num_positional:
            extra = spelling.by_keyword(self.parameters, self.num_positional, args[self.num_positional :])
            if extra is None:
                raise TypeError(
                    f"{self.title}: takes {self.num_positional} positional arguments but {n} were given. "
                    f"Signature: {self.signature}."
                )
            for key in extra.keys() & kwargs.keys():
                spelling.refuse_twice(self.title, key, key, key)
            args, kwargs = args[: self.num_positional], {**extra, **kwargs}
            n = self.num_positional
        values = list(args)
        values += self.defaults[n:]
        seen: dict[int, str] = {}
        for key, value in kwargs.items():
            slot = self.slot_of.get(key)
            if slot is None:
                if key == "out":
                    spelling.refuse_out(self.title, value)
                    continue
                slot = self._synonym(key)
            if slot < n or slot in seen:
                spelling.refuse_twice(self.title, self.parameters[slot], seen.get(slot, key), key)
            seen[slot] = key
            values[slot] = value
        for i, value in enumerate(values):
            if value is REQUIRED:
                raise TypeError(
                    f"{self.title}: argument {self.parameters[i]!r} is missing. Signature: {self.signature}."
                )
            if value.__class__ is list and (self.variadic or i not in self.tensor_slots):
                values[i] = tuple(value)
        return tuple(values)

    @functools.cached_property
    def _words(self) -> dict[str, str]:
        return spelling.words(self.parameters, self.tensor_names)

    def _synonym(self, word: str) -> int:
        """The slot of a parameter that is called `word` in PyTorch."""
        name = self._words.get(word)
        if name is None:
            raise TypeError(f"{self.title}: unexpected argument {word!r}. Signature: {self.signature}.")
        return self.slot_of[name]

    @property
    def signature(self) -> str:
        return f"{self.title}{inspect.signature(self.fn)}"

    def run(self, fn: Callable[..., Any], values: Sequence[Any]) -> Any:
        """Call `fn`, which has this op's parameters, with a full tuple of values."""
        n = self.num_positional
        if n == len(self.parameters):
            return fn(*values)
        return fn(*values[:n], **dict(zip(self.parameters[n:], values[n:], strict=True)))

    def tensors(self, values: Sequence[Any]) -> list[Any]:
        """The tensor arguments among `values`, flat."""
        if self.variadic:
            return list(values[self.tensor_slots[0]])
        return [values[i] for i in self.tensor_slots]

    def attrs(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The attributes among `values`; NumPy's numbers and tensors with one element as Python's numbers, which kernels,
        keys and files understand. Gradients do not flow to attributes: a tensor that requires them is refused."""
        found = [values[i] for i in self.attr_slots]
        for i, value in enumerate(found):
            if value.__class__ in _NUMBERS:
                continue
            if isinstance(value, np.generic):
                found[i] = value.item()
            elif hasattr(value, "requires_grad"):
                refuse_gradients(self.title, self.attr_names[i], value)
                found[i] = value.item() if value.ndim == 0 else value
            elif value.__class__ is tuple:
                for part in value:
                    refuse_gradients(self.title, self.attr_names[i], part)
        return tuple(found)

    def merge(self, tensors: Sequence[Any], attrs: Sequence[Any]) -> list[Any]:
        """The inverse of `tensors` and `attrs`: the full list of values."""
        values: list[Any] = [None] * len(self.parameters)
        if self.variadic:
            values[self.tensor_slots[0]] = tuple(tensors)
        else:
            for i, t in zip(self.tensor_slots, tensors, strict=True):
                values[i] = t
        for i, a in zip(self.attr_slots, attrs, strict=True):
            values[i] = a
        return values

    # Gradient rules -----------------------------------------------------------------------------------------------

    def _resolve_rules(self, vjp: Any, small_vjp: Any) -> None:
        """Turn `vjp` into `rules` and the list `saved_items` of (kind, index, mask of inputs whose rule wants it)."""
        self.rules: tuple[Rule | None, ...] | None = None
        self.joint_rule: Rule | None = None
        self.saved_items: tuple[tuple[str, int, int], ...] = ()
        self.pull: Callable[..., Any] | None = None  # pull(g, saved, attrs, edges): one gradient (or None) per input
        self.pull_arrays: Callable[..., Any] | None = (
            None  # the same on bare arrays, where the rules are plain arithmetic
        )
        if vjp is None or vjp is NOT_DIFFERENTIABLE:
            return
        items: dict[tuple[str, int], int] = {}
        if isinstance(vjp, Joint):
            names = None if vjp.with_all is None else (*self.tensor_names, *vjp.with_all, "needs")
            self.joint_rule = self._resolve(vjp.rule, items, -1, names)
        else:
            if callable(vjp):
                vjp = (vjp,) + (None,) * (len(self.tensor_slots) - 1)
            if self.variadic or len(vjp) != len(self.tensor_slots):
                raise TypeError(f"op {self.name}: expected one vjp rule per tensor argument {self.tensor_names}.")
            self.rules = tuple(
                None if rule is None else self._resolve(rule, items, 1 << i) for i, rule in enumerate(vjp)
            )
        self.saved_items = tuple((kind, index, mask) for (kind, index), mask in items.items())
        rules = self.rules or (self.joint_rule,)
        signatures = tuple([None if r is None else r.sources for r in rules])
        make = _puller(self.joint_rule is not None, signatures)
        self.pull = make(*[None if r is None else r.fn for r in rules])
        if self.widens:
            self.pull = _pull_in_float32(self.pull, self.num_outputs != 1)
        if small_vjp is not None and self.rules is not None:
            known = len(items)
            rules = (self._resolve(small_vjp, items, 1),) + (None,) * (len(self.rules) - 1)
            if len(items) != known:
                raise TypeError(f"op {self.name}: small_vjp asks for what vjp does not save.")
        plain = small_vjp is not None or all(r is None or _is_arithmetic(r.fn) for r in rules)
        if plain and self.num_outputs == 1 and self.rules is not None:
            make = _puller(False, tuple([None if r is None else r.sources for r in rules]))
            self.pull_arrays = make(*[None if r is None else r.fn for r in rules])

    def _resolve(
        self, fn: Callable[..., Any], items: dict[tuple[str, int], int], mask: int, names: tuple[str, ...] | None = None
    ) -> Rule:
        code = fn.__code__
        sources = []
        for name in code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount] if names is None else names:
            if name == "needs":
                sources.append(("needs", 0))
                continue
            if name in self.attr_names:
                sources.append(("attr", self.attr_names.index(name)))
                continue
            if name in ("out", "outs"):
                key = (name, 0)
            elif name[:3] == "out" and name[3:].isdigit():
                key = ("out", int(name[3:]))
            elif name in self.tensor_names:
                key = ("in", self.tensor_names.index(name))
            elif name.startswith("like_") and name[5:] in self.tensor_names:
                key = ("like", self.tensor_names.index(name[5:]))
            else:
                raise TypeError(
                    f"op {self.name}: vjp rule parameter {name!r} is neither an input of {self.tensor_names}, "
                    f"an attribute of {self.attr_names}, nor 'out', 'outs', 'like_<input>' or 'needs'."
                )
            items[key] = items.get(key, 0) | mask
            sources.append(("saved", list(items).index(key)))
        return Rule(fn, tuple(sources))

    @property
    def differentiable(self) -> bool:
        return self.rules is not None or self.joint_rule is not None or self.composite


_COMPILER_FACTS = (
    "element", "reduction", "scan", "view", "gather", "scatter", "identity", "neutral", "empty_value", "index_range",
    "check_error", "autocast",
)  # fmt: skip


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()

table: dict[str, Op] = {}
_listeners: list[Callable[[Op], None]] = []


def register(op: Op) -> Op:
    if op.name in table:
        raise ValueError(f"op {op.name!r} is defined already; choose another name.")
    table[op.name] = op
    for listener in _listeners:
        listener(op)
    return op


def for_each_op(listener: Callable[[Op], None]) -> None:
    """Call `listener` for every op of the table now, and for every op that is defined later."""
    for op in list(table.values()):
        listener(op)
    _listeners.append(listener)


def get(name: str) -> Op:
    """The record of the op called `name`."""
    try:
        return table[name]
    except KeyError:
        import difflib

        close = difflib.get_close_matches(name, table, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise KeyError(f"there is no op called {name!r}.{hint}") from None


def register_kernel(
    name: str, *, device: str = "cpu", when: Callable[..., bool] | None = None, label: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a kernel for the op `name`: a function over arrays with the op's parameters.

    Args:
        name: the op.
        device: the kind of device.
        when: guard with the same parameters; the kernel is used where it returns true (None: always).
        label: the name shown in profiles; the function's name by default.

    The kernel registered last is tried first. The op's NumPy body remains the fallback and the reference.
    """
    op = get(name)

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        op.kernels.insert(0, OpKernel(fn, device, when, label or str(getattr(fn, "__name__", "kernel"))))
        return fn

    return add
