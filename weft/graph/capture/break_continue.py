"""Rewrite `break` and `continue` to flags, so that loops on tensors have a single exit.

    while test:                          stop = False
        a()                              while not stop and test:
        if hit:                              a()
            break                            if hit:
        b()                                      stop = True
                                             if not stop:
                                                 b()

A `for` loop keeps its `break` for a flag that is known to be set while the function is traced. Loops with an `else`, with a
`return`, or that are left from inside a `try`, `with` or `match` are not rewritten.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_JUMPS = (ast.Break, ast.Continue)


def _find(statements: list[ast.stmt], kinds: tuple[type, ...], within_loops: bool) -> list[ast.stmt]:
    """Statements of these kinds in a block, not those of nested functions, nor of nested loops unless asked for."""
    found: list[ast.stmt] = []
    for st in statements:
        if isinstance(st, kinds):
            found.append(st)
        elif not isinstance(st, _SCOPES) and (within_loops or not isinstance(st, _LOOPS)):
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                for part in getattr(st, field, ()):
                    inner = [part] if isinstance(part, ast.stmt) else part.body
                    found += _find(inner, kinds, within_loops)
    return found


def _only_in_ifs(statements: list[ast.stmt]) -> bool:
    """Whether every jump of a block stands in it directly or in an `if`."""
    return all(
        _only_in_ifs(st.body) and _only_in_ifs(st.orelse)
        if isinstance(st, ast.If)
        else isinstance(st, (*_JUMPS, *_LOOPS, *_SCOPES)) or not _find([st], _JUMPS, False)
        for st in statements
    )


def _set(name: str, value: bool) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value))


def _none_of(names: list[str]) -> ast.expr:
    loads: list[ast.expr] = [ast.Name(n, ast.Load()) for n in names]
    return ast.UnaryOp(ast.Not(), loads[0] if len(loads) == 1 else ast.BoolOp(ast.Or(), loads))


class Jumps(ast.NodeTransformer):
    """Rewrites the loops of a function. `is_set(name)` makes an expression: whether a flag is known to be set."""

    def __init__(self, is_set: Callable[[str], ast.expr]) -> None:
        self.is_set = is_set
        self.count = 0

    def visit_While(self, node: ast.While) -> list[ast.stmt] | ast.stmt:
        return self._loop(node)

    def visit_For(self, node: ast.For) -> list[ast.stmt] | ast.stmt:
        return self._loop(node)

    def _loop(self, node: ast.While | ast.For) -> list[ast.stmt] | ast.stmt:
        self.generic_visit(node)
        jumps = _find(node.body, _JUMPS, False)
        if not jumps or node.orelse or _find(node.body, (ast.Return,), True) or not _only_in_ifs(node.body):
            return node
        self.count += 1
        kinds = {type(j) for j in jumps}
        flags: dict[type, str] = {
            kind: f"_weft_{kind.__name__.lower()}{self.count}" for kind in _JUMPS if kind in kinds
        }
        stop, skip = flags.get(ast.Break), flags.get(ast.Continue)
        body = self._guarded(node.body, flags)
        if skip is not None:
            body = [_set(skip, False), *body]
        if stop is not None and isinstance(node, ast.While):
            node.test = ast.BoolOp(ast.And(), [_none_of([stop]), node.test])
        elif stop is not None:
            body = [ast.If(self.is_set(stop), [ast.Break()], []), ast.If(_none_of([stop]), body, [])]
        node.body = body
        made = [*[_set(name, False) for name in flags.values()], node]
        for st in made:
            if st is not node:
                ast.copy_location(st, node)
            ast.fix_missing_locations(st)
        return made

    def _guarded(self, statements: list[ast.stmt], flags: dict[type, str]) -> list[ast.stmt]:
        """A block in which jumps set their flag; statements after a jump run only if no flag is set."""
        done: list[ast.stmt] = []
        for i, st in enumerate(statements):
            if isinstance(st, _JUMPS):
                return [*done, ast.copy_location(_set(flags[type(st)], True), st)]
            done.append(st)
            if isinstance(st, ast.If) and _find([st], _JUMPS, False):
                st.body, st.orelse = self._guarded(st.body, flags), self._guarded(st.orelse, flags)
                rest = self._guarded(statements[i + 1 :], flags)
                if rest:
                    guard = ast.If(_none_of(list(flags.values())), rest, [])
                    done.append(ast.copy_location(guard, rest[0]))
                return done
        return done
