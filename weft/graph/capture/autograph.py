"""AutoGraph: rewrite Python's `if`, `while`, `and`, `or`, `not` and `assert` on tensors for capture.

When a captured function takes `bool()` of a symbolic tensor, the source of the calling function is rewritten once:
an `if` becomes a call of `wf.cond` on two local functions, a `while` one of `wf.while_loop`, and the captured function is
traced again. Conditions that are not symbolic tensors keep their ordinary meaning. Line numbers stay those of the user's
file. `break` and `continue` become flags first (`break_continue.py`). Code that cannot be rewritten (`return` inside a loop,
a `return` in only one branch that is not followed by another, generators, lambdas, code without source) keeps raising the
error with its advice. A name that is assigned in only one branch, or only in the body of a loop, is undefined afterwards.

Note [Functions that are called]. The captured function is traced in its rewritten form. Functions and methods that it
calls, wherever they are called from (a user's `forward` inside `nn.Sequential`), get their rewritten code for as long as
the trace lasts: the function object, its globals and its closure stay the same. Code of this package is never touched.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Any

from ...dtypes import bool_
from ...tensor import Tensor
from .break_continue import Jumps
from .control_flow import cond, while_loop

_PACKAGE = str(Path(__file__).resolve().parents[1])
_SELF = "weft.graph.capture.autograph"  # stands for this module in rewritten code, until its constants are replaced


class Undefined:
    """Stands for a name that has no value: yet, when a branch that may set it begins, or any more, after it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<undefined {self._name}>"

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise UnboundLocalError(
            f"{self._name!r} has a value only inside a branch or loop that depends on a tensor and may not run. "
            f"Give it a value of the same shape and dtype before."
        )

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # what Python and libraries look for in any object
            raise AttributeError(attribute)
        return self.refuse()

    __bool__ = __len__ = __iter__ = __getitem__ = __call__ = __float__ = __int__ = __array__ = __neg__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = refuse
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __mod__ = __rmod__ = __lt__ = __le__ = __gt__ = __ge__ = refuse


# What rewritten code calls ------------------------------------------------------------------------------------------------


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_symbolic


def is_set(flag: Any) -> bool:
    """Whether a flag is known to be set, while the function is traced."""
    return flag is True


def returned(value: Any) -> Any:
    """What a function returns, every part of which must have a value."""
    for part in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(part, Undefined):
            part.refuse()
    return value


def if_(
    test: Any,
    true: Callable[..., Any],
    false: Callable[..., Any],
    names: tuple[str, ...],
    values: tuple[Any, ...],
    shared: tuple[str, ...],
) -> Any:
    """`if` that assigns `names`, those in `shared` in both branches: returns their values afterwards."""
    if not _is_symbolic(test):
        return true(*values) if test else false(*values)
    outcomes: dict[int, tuple[Any, ...]] = {}  # of the branches as they were last traced
    kept = [n in shared or not isinstance(v, Undefined) for n, v in zip(names, values, strict=True)]

    def branch(number: int, fn: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            result = tuple([v for v, keep in zip(fn(*values), kept, strict=True) if keep])
            outcomes[number] = result
            return tuple([v for v in result if isinstance(v, (Tensor, int, float, bool))])

        return run

    chosen = cond(test, branch(0, true), branch(1, false))
    # names that hold tensors or numbers in both branches come from the cond; all others must not differ
    rest, pairs = iter(chosen), zip(outcomes.pop(0), outcomes.pop(1), strict=True)
    merged: list[Any] = []
    for name, keep in zip(names, kept, strict=True):
        if not keep:
            merged.append(Undefined(name))
            continue
        a, b = next(pairs)
        numeric = isinstance(a, (Tensor, int, float, bool)), isinstance(b, (Tensor, int, float, bool))
        if all(numeric):
            merged.append(next(rest))
        elif any(numeric):
            raise TypeError(f"if: {name!r} is a tensor in one branch and {(b if numeric[0] else a)!r} in the other.")
        else:
            merged.append(a)
    return tuple(merged)


def if_return(test: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any:
    """`if` both of whose branches return."""
    return cond(test, true, false) if _is_symbolic(test) else (true() if test else false())


def while_(
    test: Callable[..., Any], body: Callable[..., Any], names: tuple[str, ...], values: tuple[Any, ...]
) -> tuple[Any, ...]:
    """`while` that assigns `names`, which have these `values`: returns their values afterwards."""
    while not _is_symbolic(going := test(*values)):
        if not going:
            return values
        values = body(*values)
    kept = [not isinstance(v, Undefined) for v in values]

    def full(state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state with a place for names that have a value only inside the body."""
        rest = iter(state)
        return tuple([next(rest) if keep else Undefined(n) for n, keep in zip(names, kept, strict=True)])

    def step(*state: Any) -> tuple[Any, ...]:
        return tuple([v for v, keep in zip(body(*full(state)), kept, strict=True) if keep])

    start = tuple([v for v, keep in zip(values, kept, strict=True) if keep])
    return full(while_loop(lambda *state: test(*full(state)), step, start))


def _truth(value: Any) -> Any:
    """A truth as a tensor of one boolean."""
    from ...ops.array.elementwise import astype
    from ...ops.array.shaping import reshape

    return astype(reshape(value, ()), bool_) if isinstance(value, Tensor) else Tensor(bool(value))


def and_(first: Any, second: Callable[[], Any]) -> Any:
    """`first and second()`: as in Python, the second is computed only if the first is true."""
    if not _is_symbolic(first):
        return first and second()
    return cond(first, lambda: _truth(second()), lambda: Tensor(False))


def or_(first: Any, second: Callable[[], Any]) -> Any:
    if not _is_symbolic(first):
        return first or second()
    return cond(first, lambda: Tensor(True), lambda: _truth(second()))


def not_(value: Any) -> Any:
    if not _is_symbolic(value):
        return not value
    from ...ops.array.elementwise import logical_not

    return logical_not(value)


def assert_(test: Any, message: Any = None) -> None:
    from ...debug import check

    if _is_symbolic(test):
        check(test, "assertion failed" if message is None else str(message))
    elif not test:
        raise AssertionError(*([] if message is None else [message]))


# The rewriting ------------------------------------------------------------------------------------------------------------


def _assigned(nodes: list[ast.stmt]) -> list[str]:
    """The local names that statements assign, in order of appearance."""
    found: dict[str, None] = {}

    class Visitor(ast.NodeVisitor):
        def visit_Name(self, node: ast.Name) -> None:
            if isinstance(node.ctx, ast.Store):
                found[node.id] = None

        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            found[node.name] = None

        visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]

        def visit_alias(self, node: ast.alias) -> None:
            found[(node.asname or node.name).split(".")[0]] = None

        def visit_Lambda(self, node: ast.Lambda) -> None:
            pass

        def visit_ListComp(self, node: ast.ListComp) -> None:
            pass

        visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp  # type: ignore[assignment]

    for n in nodes:
        Visitor().visit(n)
    return [n for n in found if not n.startswith("__weft")]


def _leaves(nodes: list[ast.stmt], kinds: tuple[type, ...]) -> bool:
    """Whether a statement of these kinds stands in `nodes`, not counting nested functions."""
    for n in nodes:
        if isinstance(n, kinds):
            return True
        if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            continue
        for child in ast.iter_child_nodes(n):
            if isinstance(child, ast.stmt) and _leaves([child], kinds):
                return True
            if isinstance(child, ast.ExceptHandler) and _leaves(child.body, kinds):
                return True
    return False


def _returns(body: list[ast.stmt]) -> bool:
    """Whether a block always ends in a return."""
    if not body:
        return False
    last = body[-1]
    return (
        isinstance(last, (ast.Return, ast.Raise))
        or isinstance(last, ast.If)
        and _returns(last.body)
        and _returns(last.orelse)
    )


def _name(text: str, store: bool = False) -> ast.Name:
    return ast.Name(text, ast.Store() if store else ast.Load())


def _helper(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Constant(_SELF), name, ast.Load()), list(args), [])


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(_arguments([]), body)


def _arguments(names: list[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])


def _tuple(names: list[str], store: bool = False) -> ast.Tuple:
    return ast.Tuple([_name(n, store) for n in names], ast.Store() if store else ast.Load())


def _texts(names: list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite a block; an `if` that returns takes the statements after it as its other branch."""
        result: list[ast.stmt] = []
        for i, statement in enumerate(body):
            if isinstance(statement, ast.If) and _leaves([statement], (ast.Return,)):
                rest = body[i + 1 :]
                taken, other = list(statement.body), list(statement.orelse)
                if not _returns(taken):
                    taken += rest
                if not _returns(other):
                    other += rest
                if _returns(taken) and _returns(other):
                    result += self.returning(statement, taken, other)
                    return result
            new = self.visit(statement)
            result += new if isinstance(new, list) else [new]
        return result

    def returning(self, node: ast.If, taken: list[ast.stmt], other: list[ast.stmt]) -> list[ast.stmt]:
        self.count += 1
        names = (f"__weft_true{self.count}", f"__weft_false{self.count}")
        made: list[ast.stmt] = []
        for name, body in zip(names, (taken, other), strict=True):
            made.append(self.function(name, [], self.block(body)))
        call = _helper("if_return", self.visit(node.test), _name(names[0]), _name(names[1]))
        return [*made, ast.Return(call)]

    @staticmethod
    def function(name: str, args: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
        return ast.FunctionDef(
            name=name, args=_arguments(args), body=body or [ast.Pass()], decorator_list=[], returns=None
        )

    def visit(self, node: ast.AST) -> Any:
        """What replaces a node stands on its line, so that errors and `explain()` show the user's line."""
        made = super().visit(node)
        if hasattr(node, "lineno"):
            for new in made if isinstance(made, list) else [made]:
                for part in ast.walk(new) if new is not None else ():
                    if "lineno" in part._attributes and not hasattr(part, "lineno"):
                        ast.copy_location(part, node)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.body = self.block(node.body)
        return node

    def visit_If(self, node: ast.If) -> Any:
        if _leaves([node], (ast.Return, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)):
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            return node
        taken, other = node.body, node.orelse
        names = _assigned([*taken, *other])
        self.count += 1
        functions = []
        for kind, body in (("true", taken), ("false", other)):
            done = [*self.block(body), ast.Return(_tuple(names))]
            functions.append(self.function(f"__weft_{kind}{self.count}", names, done))
        call = _helper(
            "if_", self.visit(node.test), _name(functions[0].name), _name(functions[1].name),
            _texts(names), _tuple(names), _texts([n for n in names if all(n in _assigned(b) for b in (taken, other))]),
        )  # fmt: skip
        last: ast.stmt = ast.Assign([_tuple(names, True)], call) if names else ast.Expr(call)
        return [*self.prepare(names), *functions, last]

    def visit_While(self, node: ast.While) -> Any:
        names = _assigned(node.body)
        if (
            node.orelse
            or not names
            or _leaves(node.body, (ast.Return, ast.Break, ast.Continue, ast.Global, ast.Nonlocal))
        ):
            node.body = self.block(node.body)
            return node
        self.count += 1
        test = self.function(f"__weft_test{self.count}", names, [ast.Return(self.visit(node.test))])
        body = self.function(f"__weft_body{self.count}", names, [*self.block(node.body), ast.Return(_tuple(names))])
        call = _helper("while_", _name(test.name), _name(body.name), _texts(names), _tuple(names))
        return [*self.prepare(names), test, body, ast.Assign([_tuple(names, True)], call)]

    @staticmethod
    def prepare(names: list[str]) -> list[ast.stmt]:
        """Give every name a value, so that branches can be called with it."""
        made: list[ast.stmt] = []
        for n in names:
            handler = ast.ExceptHandler(ast.Tuple([_name("NameError"), _name("UnboundLocalError")], ast.Load()), None, [
                ast.Assign([_name(n, True)], _helper("Undefined", ast.Constant(n)))
            ])  # fmt: skip
            made.append(ast.Try([ast.Expr(_name(n))], [handler], [], []))
        return made

    def visit_Return(self, node: ast.Return) -> Any:
        self.generic_visit(node)
        if node.value is not None:
            node.value = _helper("returned", node.value)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        return _helper("if_return", node.test, _lambda(node.body), _lambda(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        helper = "and_" if isinstance(node.op, ast.And) else "or_"
        result = node.values[-1]
        for value in reversed(node.values[:-1]):
            result = _helper(helper, value, _lambda(result))
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _helper("not_", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Assert(self, node: ast.Assert) -> Any:
        self.generic_visit(node)
        return ast.Expr(_helper("assert_", node.test, *([] if node.msg is None else [node.msg])))

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return node


def _definition(target: FunctionType) -> tuple[ast.FunctionDef, int] | None:
    """The syntax tree of a function and the line it starts at, or None if its source cannot be had or rewritten."""
    try:
        lines, first = inspect.getsourcelines(target)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        return None  # a lambda, or something defined in a way we cannot cut out
    definition = tree.body[0]
    suspends = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
    if definition.name != target.__name__ or any(isinstance(n, suspends) for n in ast.walk(definition)):
        return None
    definition.decorator_list = []
    return definition, first


@functools.lru_cache(maxsize=256)
def rewritten_code(target: FunctionType) -> CodeType | None:
    """The code of `target` with its control flow rewritten, for the same closure; None if that cannot be had."""
    found = _definition(target)
    if found is None:
        return None
    definition, first = found
    jumps = Jumps(lambda flag: _helper("is_set", _name(flag)))
    body: list[ast.stmt] = [_Rewriter().visit(jumps.visit(definition))]
    scopes = target.__qualname__.split(".")
    # In a class body the function's name keeps its outer meaning, and names like `__x` belong to the class
    # of a method; to a class called `_` they never do.
    within = scopes[-2] if len(scopes) > 1 and scopes[-2] != "<locals>" else "_"
    body = [ast.ClassDef(name=within, bases=[], keywords=[], body=body, decorator_list=[])]
    free = list(target.__code__.co_freevars)
    module = ast.Module([_Rewriter.function("__weft_outer", free, body)], [])
    ast.fix_missing_locations(module)
    ast.increment_lineno(module, first - 1)
    try:
        code = _find(compile(module, target.__code__.co_filename, "exec"), definition.name)
    except (SyntaxError, ValueError):
        return None
    if code is None or code.co_freevars != target.__code__.co_freevars:
        return None
    return _bound_to_helpers(code)


def _find(code: CodeType, name: str) -> CodeType | None:
    """The code of the function `name` inside a module, whatever scopes it stands in."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found = constant if constant.co_name == name else _find(constant, name)
            if found is not None:
                return found
    return None


def _bound_to_helpers(code: CodeType) -> CodeType:
    """The code with this module itself where `_SELF` stands for it, so that no name is needed in the user's globals."""
    import sys

    def put(constant: Any) -> Any:
        if isinstance(constant, CodeType):
            return _bound_to_helpers(constant)
        return sys.modules[__name__] if constant is not None and constant == _SELF else constant

    return code.replace(co_consts=tuple([put(c) for c in code.co_consts]))


@functools.lru_cache(maxsize=256)
def convert(fn: Callable[..., Any]) -> Callable[..., Any] | None:
    """`fn` with its control flow rewritten, or None if its source cannot be had or rewritten."""
    target = inspect.unwrap(fn)
    bound = getattr(target, "__self__", None)
    target = getattr(target, "__func__", target)
    code = rewritten_code(target) if isinstance(target, FunctionType) else None
    if code is None:
        return None
    made = FunctionType(code, target.__globals__, target.__name__, target.__defaults__, target.__closure__)
    made.__kwdefaults__, made.__qualname__ = target.__kwdefaults__, target.__qualname__
    return made.__get__(bound) if bound is not None else made


# Functions that are called ------------------------------------------------------------------------------------------------

_swapping = threading.RLock()


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


def _owners(code: CodeType) -> Iterator[FunctionType]:
    return (f for f in gc.get_referrers(code) if type(f) is FunctionType and f.__code__ is code)


def _makers(code: CodeType) -> Iterator[FunctionType]:
    """The functions in whose body the function with this code is defined."""
    if "<locals>" not in code.co_qualname:
        return iter(())
    return (f for f in gc.get_objects() if type(f) is FunctionType and any(c is code for c in f.__code__.co_consts))


class Rewriting:
    """The functions that traces of one captured function run in their rewritten form."""

    def __init__(self) -> None:
        self.codes: dict[FunctionType, CodeType] = {}
        self._asked: set[tuple[str, int]] = set()

    def extend(self, traceback: TracebackType | None) -> bool:
        """Add the innermost user's function of a traceback that can be rewritten and was not; False if there is none."""
        frames = []
        while traceback is not None:
            frames.append(traceback.tb_frame.f_code)
            traceback = traceback.tb_next
        for code in reversed([c for c in frames if not c.co_filename.startswith(_PACKAGE)]):
            # a function that every trace creates again is examined once; then the function that creates it
            if self._add(_owners(code)) or self._add(_makers(code)):
                return True
        return False

    def _add(self, functions: Iterator[FunctionType]) -> bool:
        found = list(functions)
        fresh = [f for f in found if _place(f.__code__) not in self._asked]
        self._asked |= {_place(f.__code__) for f in fresh}
        made = {f: code for f in fresh if (code := rewritten_code(f)) is not None}
        self.codes |= made
        return bool(made)

    @contextmanager
    def active(self) -> Iterator[None]:
        """The functions have their rewritten code inside this block."""
        if not self.codes:
            yield
            return
        with _swapping:
            before = {f: f.__code__ for f in self.codes}
            try:
                for f, code in self.codes.items():
                    f.__code__ = code
                yield
            finally:
                for f, code in before.items():
                    f.__code__ = code
