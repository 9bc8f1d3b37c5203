"""Write the type stubs of what is derived from the op table: `python -m tools.stubs` (or `make stubs`).

Functions, operators and methods exist once, as op records and plain functions; type checkers and editors cannot run the
code that puts them into `weft` and onto `Tensor`. This script prints their signatures as `.pyi` files beside the
modules. `tests/test_stubs.py` fails when the files are not what this script would write.

How a signature is printed:

* A parameter annotated `Tensor` accepts arrays too (`ArrayLike`); those of elementwise ops also numbers (`Operand`).
* The result of an op is what its record says: one `Tensor`, or a tuple of as many.
* A function with a parameter `return_...: bool = False` whose result is annotated `A | B` has two overloads:
  `A` without the flag, `B` with it, and the union where a checker does not know the flag.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

import weft
import weft.fft
import weft.linalg
import weft.nn.functional
import weft.random
import weft.special
from weft import api
from weft import typing as weft_typing
from weft.ops import tensor_methods
from weft.ops.core import spelling
from weft.tensor import Tensor

ROOT = Path(weft.__file__).parent
HEADER = '"""{doc}\n\nWritten by `python -m tools.stubs` from the op table. Do not edit.\n"""\n\n'
# The type aliases that weft.typing defines, without what it imports to define them.
ALIASES = {name for name in vars(weft_typing) if name[0].isupper()} - {
    "Any", "Callable", "EllipsisType", "ParamSpec", "Protocol", "Sequence", "TYPE_CHECKING", "TypeAlias", "TypeVar", "Union",
}  # fmt: skip
# Classes that modules below them import for type checkers only.
CHECKED_ONLY = {"Tensor": Tensor, "Generator": weft.random.Generator}


class Stub:
    """The text of one stub file and the imports that its annotations need."""

    def __init__(self, module: str, doc: str, taken: set[str]) -> None:
        self.module, self.doc = module, doc
        self.taken = taken  # names that the module defines itself: a builtin of that name needs its prefix
        self.imports: set[str] = set()
        self.lines: list[str] = []

    def name(self, name: str, scope: dict[str, Any]) -> str:
        """`name` as it is written in this stub; what it needs is imported."""
        value = scope.get(name, CHECKED_ONLY.get(name, getattr(builtins, name, None)))
        if name in ("Any", "Literal", "NamedTuple", "Union", "TypeVar"):
            self.imports.add(f"from typing import {name}")
        elif name in ALIASES:
            self.imports.add(f"from {self.relative('weft.typing')} import {name}")
        elif name in ("Callable", "Sequence", "Iterable", "Mapping", "Iterator"):
            self.imports.add(f"from collections.abc import {name}")
        elif name == "np":
            self.imports.add("import numpy as np")
        elif hasattr(builtins, name) and value is getattr(builtins, name):
            if name in self.taken:
                self.imports.add("import builtins")
                return f"builtins.{name}"
        elif isinstance(value, type) and value.__module__.split(".")[0] == "weft":
            if value.__module__ != self.module:
                self.imports.add(f"from {self.relative(value.__module__)} import {value.__qualname__} as {name}")
        elif str(value) in (repr(tuple[int, ...]), repr(tuple[tuple[int, int], ...])):
            return str(value)
        else:
            raise LookupError(f"stubs: {name!r} ({value!r}) in an annotation; use a type of weft.typing or a class.")
        return name

    def relative(self, module: str) -> str:
        """`module` as it is imported from this stub."""
        package = (
            self.module if (ROOT.parent / self.module.replace(".", "/")).is_dir() else self.module.rpartition(".")[0]
        )
        dots = "."
        while package and not (module + ".").startswith(package + "."):
            package, dots = package.rpartition(".")[0], dots + "."
        return dots + module[len(package) + 1 :]

    def annotation(self, text: str, scope: dict[str, Any], tensors: str | None = None) -> str:
        """The annotation `text` of a function whose globals are `scope`; `tensors` stands for `Tensor` in it."""
        tree = ast.parse(text, mode="eval").body

        class Rewrite(ast.NodeTransformer):
            def visit_Name(inner, node: ast.Name) -> ast.expr:
                name = tensors if node.id == "Tensor" and tensors else node.id
                return ast.parse(self.name(name, scope), mode="eval").body

        return ast.unparse(Rewrite().visit(tree))

    def text(self) -> str:
        imports = sorted(
            self.imports, key=lambda line: (line.startswith("from ."), not line.startswith("import"), line)
        )
        return HEADER.format(doc=self.doc) + "\n".join(imports) + "\n\n" + "\n".join(self.lines) + "\n"


def first_sentence(function: Any) -> str:
    """The first paragraph of a docstring, cut after its first sentence, on one line."""
    doc = inspect.getdoc(function) or ""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return (paragraph if end < 0 else paragraph[: end + 1]).replace("\\", "\\\\").replace('"""', "'''")


def default(value: Any) -> str:
    """A default as a stub shows it: plain values, `...` for anything else."""
    if value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and value == value:
        return repr(value) if value not in (float("inf"), float("-inf")) else "..."
    return "()" if value == () and isinstance(value, tuple) else "..."


def record_of(function: Any) -> Any:
    """The op record of a function or of what it wraps, or None."""
    while function is not None and not hasattr(function, "op"):
        function = getattr(function, "__wrapped__", None)
    return getattr(function, "op", None)


def print_function(stub: Stub, name: str, function: Callable[..., Any], *, method: bool = False) -> None:
    """Append the definition of `function` to the stub."""
    plain: Any = inspect.unwrap(function)
    op = record_of(function)
    elementwise = op is not None and op.expression is not None
    scope = plain.__globals__
    signature = inspect.signature(function)
    parameters = []
    for i, p in enumerate(signature.parameters.values()):
        if method and i == 0:
            kinds = [q.kind for q in signature.parameters.values()]
            positional = p.POSITIONAL_ONLY if kinds[1:2] == [p.POSITIONAL_ONLY] else p.POSITIONAL_OR_KEYWORD
            parameters.append(p.replace(name="self", annotation="", kind=positional))
            continue
        if elementwise and str(p.annotation) == "Term":
            text = stub.name("Operand", scope)
        elif p.annotation is p.empty:
            raise LookupError(f"stubs: parameter {p.name!r} of {name} has no annotation ({plain.__module__}).")
        else:
            text = stub.annotation(str(p.annotation), scope, "ArrayLike")
        if p.default is None and "None" not in text and text not in ("Any", "Axis", "Index"):
            text += " | None"
        parameters.append(p.replace(annotation=text))
    parameters = with_spellings(parameters)
    result = result_type(stub, name, op, signature, scope)
    flag = next((p for p in signature.parameters.values() if p.name.startswith("return_") and p.default is False), None)
    indent = "    " if method else ""
    if result.endswith("| ValuesAndIndices"):
        print_dialects(stub, name, parameters, split_union(result), function, indent)
    elif flag is not None and " | " in result:
        stub.imports.add("from typing import Literal, overload")
        for literal, part in zip((False, True), split_union(result), strict=True):
            stub.lines.append(f"{indent}@overload")
            given = [overloaded(p, flag.name, literal) for p in parameters]
            print_definition(stub, name, given, part, function, indent)
        stub.lines.append(f"{indent}@overload")  # the flag is known only at run time
        print_definition(stub, name, parameters, result, function, indent)
    else:
        print_definition(stub, name, parameters, result, function, indent)


def print_dialects(
    stub: Stub, name: str, parameters: list[inspect.Parameter], results: list[str], function: Any, indent: str
) -> None:
    """Overloads of a function whose result depends on the word: NumPy's words give values, PyTorch's also indices."""
    stub.imports.add("from typing import overload")
    torch, numpy = ("dim", "keepdim"), ("axis", "keepdims")

    def asked(p: inspect.Parameter, annotation: str) -> inspect.Parameter:
        return p.replace(annotation=annotation, default=inspect.Parameter.empty)

    integer, boolean = stub.name("int", {}), stub.name("bool", {})
    position = next(p for p in parameters if p.name in ("other", "position"))
    forms = [(results[0], [p for p in parameters if p.name not in torch])]
    named = [p for p in parameters if p.name not in numpy and p is not position]
    forms.append((results[1], [asked(p, integer) if p.name == "dim" else p for p in named]))
    if any(p.name == "keepdim" for p in parameters):
        given = [p for p in parameters if p.name not in numpy and p.name != "dim"]
        given = [asked(p, integer) if p is position else asked(p, boolean) if p.name == "keepdim" else p for p in given]
        forms.append((results[1], given))
    for result, form in forms:
        stub.lines.append(f"{indent}@overload")
        print_definition(stub, name, form, result, function, indent)


def with_spellings(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters as calls may spell them: an axis by position, and PyTorch's words `dim` and `keepdim`.

    `x` itself has `input`, too, which stubs leave out: every function would need an overload for it.
    """
    names = {p.name for p in parameters}
    if not names & {"axis", "keepdims"} or names & {"dim", "keepdim"}:
        return parameters
    P = inspect.Parameter
    kinds = [p.kind for p in parameters]
    by_name = [p for p in parameters if p.kind is P.KEYWORD_ONLY]
    count = 0 if P.VAR_POSITIONAL in kinds else spelling.leading([p.name for p in by_name])
    free = [p.replace(kind=P.POSITIONAL_OR_KEYWORD) for p in by_name[:count]]
    first = [p for p in parameters if p.kind not in (P.KEYWORD_ONLY, P.VAR_KEYWORD)]
    words = [
        p.replace(name=word, kind=P.KEYWORD_ONLY, default=P.empty if p.default is P.empty else ...)
        for p in parameters
        for word, name in (("dim", "axis"), ("keepdim", "keepdims"))
        if p.name == name and p.default is not P.empty
    ]
    last = [p for p in parameters if p.kind is P.VAR_KEYWORD]
    return [*first, *free, *by_name[count:], *words, *last]


def overloaded(p: inspect.Parameter, flag: str, literal: bool) -> inspect.Parameter:
    """The parameter in the overload for `flag=literal`; the True form asks for the flag by its name."""
    if p.name != flag:
        return p
    return p.replace(
        annotation=f"Literal[{literal}]",
        default=inspect.Parameter.empty if literal else p.default,
        kind=p.KEYWORD_ONLY if literal else p.kind,
    )


def split_union(text: str) -> list[str]:
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.BinOp)
    return [ast.unparse(tree.left), ast.unparse(tree.right)]


def result_type(stub: Stub, name: str, op: Any, signature: inspect.Signature, scope: dict[str, Any]) -> str:
    annotation = str(signature.return_annotation)
    if signature.return_annotation is not inspect.Signature.empty and annotation not in ("Any", "Term"):
        return stub.annotation(annotation, scope)
    if op is None and annotation == "Any":
        return stub.name("Any", scope)
    if op is None:
        raise LookupError(f"stubs: the result of {name} has no annotation.")
    tensor = stub.name("Tensor", {"Tensor": Tensor})
    if op.num_outputs == 1:
        return tensor
    return f"tuple[{', '.join([tensor] * op.num_outputs)}]" if op.num_outputs else f"tuple[{tensor}, ...]"


def print_definition(
    stub: Stub, name: str, parameters: list[inspect.Parameter], result: str, function: Any, indent: str
) -> None:
    head = f"{indent}def {name}({', '.join(print_parameters(parameters))}) -> {result}:"
    if len(head) > 110:
        inner = ",\n".join(f"{indent}    {p}" for p in print_parameters(parameters))
        head = f"{indent}def {name}(\n{inner},\n{indent}) -> {result}:"
    doc = first_sentence(function)
    if len(doc) + len(indent) + 10 > 110:
        lines = textwrap.wrap(doc, 100 - len(indent))
        doc = f"\n{indent}    ".join(lines) + (f"\n{indent}    " if len(lines) > 1 else "")
    stub.lines.append(head)
    stub.lines.append(f'{indent}    """{doc}"""' if doc else f"{indent}    ...")


def print_parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    kinds = [p.kind for p in parameters]
    star = False
    for i, p in enumerate(parameters):
        text = p.name if not p.annotation else f"{p.name}: {p.annotation}"
        if p.kind is p.VAR_POSITIONAL:
            star, text = True, f"*{text}"
        elif p.kind is p.VAR_KEYWORD:
            text = f"**{text}"
        elif p.kind is p.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        if p.default is not p.empty:
            text += f" = {default(p.default)}"
        yield text
        if p.kind is p.POSITIONAL_ONLY and (i + 1 == len(parameters) or kinds[i + 1] is not p.POSITIONAL_ONLY):
            yield "/"


def print_value(stub: Stub, name: str, value: Any) -> None:
    """A constant, class, module or function of a namespace."""
    if isinstance(value, np.dtype):
        stub.imports.add("import numpy as np")
        kind = value.type.__name__ if value.type.__module__ == "numpy" else None
        if kind is None:
            stub.imports.add("from typing import Any")
        stub.lines.append(f"{name}: np.dtype[{'np.' + kind if kind else 'Any'}]")
    elif isinstance(value, ModuleType):
        parent, _, leaf = value.__name__.rpartition(".")
        stub.imports.add(f"from {stub.relative(parent)} import {leaf} as {name}")
    elif isinstance(value, type) and value.__module__.partition(".")[0] != "weft":
        stub.imports.add(f"import {value.__module__}")
        stub.lines.append(f"{name} = {value.__module__}.{value.__qualname__}")
    elif isinstance(value, type):
        if value.__module__ != stub.module:
            stub.imports.add(f"from {stub.relative(value.__module__)} import {value.__qualname__} as {name}")
    elif isinstance(value, FunctionType):
        print_function(stub, name, value)
    elif value is None or isinstance(value, (str, float, tuple)):
        kind = "None" if value is None else stub.name(type(value).__name__, {})
        stub.lines.append(f"{name}: {kind}{'[str, ...]' if isinstance(value, tuple) else ''}")
    else:
        cls = type(value)
        stub.imports.add(f"from {stub.relative(cls.__module__)} import {cls.__qualname__} as {cls.__qualname__}")
        stub.lines.append(f"{name}: {cls.__qualname__}")


def print_all(names: list[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    return "__all__ = [\n" + textwrap.fill(quoted, 110, initial_indent="    ", subsequent_indent="    ") + ",\n]\n"


def package_stub() -> str:
    """`weft/__init__.pyi`."""
    names = {n: getattr(weft, n) for n in weft.__all__} | {"__version__": weft.__version__}
    stub = Stub("weft", "Weft: a deep-learning framework in Python.", {*names, *api.LAZY})
    for name, target in api.LAZY.items():
        module, _, attribute = target.partition(":")
        source, leaf = (module, attribute) if attribute else module.rsplit(".", 1)
        stub.imports.add(f"from {source or '.'} import {leaf} as {name}")
        names.pop(name, None)
    for name in sorted(names):
        print_value(stub, name, names[name])
    stub.lines.insert(0, print_all(weft.__all__))
    return stub.text()


def namespace_stub(module: ModuleType, doc: str) -> str:
    """The stub of a module whose functions come from the op table, such as `weft.nn.functional`."""
    names = {n: getattr(module, n) for n in module.__all__}
    stub = Stub(module.__name__, doc, set(names))
    for name in sorted(names):
        print_value(stub, name, names[name])
    stub.lines.insert(0, print_all(module.__all__))
    return stub.text()


def methods_stub() -> str:
    """`weft/_tensor_methods.pyi`: the base class that carries the derived operators and methods of Tensor."""
    attached = {n: v for n, v in vars(Tensor).items() if n in tensor_methods.ATTACHED}
    stub = Stub(
        "weft._tensor_methods", "The operators and methods of Tensor that come from the op table.", set(attached)
    )
    stub.lines.append("class TensorMethods:")
    print_operators(stub)
    for name in sorted(n for n in attached if not n.startswith("__")):
        value = attached[name]
        if isinstance(value, property):
            stub.lines.append("    @property")
            print_function(stub, name, value.fget, method=True)  # type: ignore[arg-type]
            if value.fset is not None:
                tensor = stub.name("Tensor", {"Tensor": Tensor})
                stub.lines += [f"    @{name}.setter", f"    def {name}(self, value: {tensor}) -> None: ..."]
        else:
            print_function(stub, name, value, method=True)
    return stub.text()


def print_operators(stub: Stub) -> None:
    """The operators of Tensor, whose signatures Python fixes."""
    operand, index, tensor = (stub.name(n, {"Tensor": Tensor}) for n in ("Operand", "Index", "Tensor"))
    for name in tensor_methods.BINARY:
        for form in (name, f"r{name}", f"i{name}"):
            stub.lines.append(f"    def __{form}__(self, other: {operand}) -> {tensor}: ...")
    for name in tensor_methods.COMPARE:
        ignore = "  # type: ignore[override]" if name in ("eq", "ne") else ""
        stub.lines.append(f"    def __{name}__(self, other: {operand}) -> {tensor}: ...{ignore}")
    for name in tensor_methods.UNARY:
        stub.lines.append(f"    def __{name}__(self) -> {tensor}: ...")
    stub.lines.append(f"    def __getitem__(self, index: {index}) -> {tensor}: ...")
    stub.lines.append(f"    def __setitem__(self, index: {index}, value: {operand}) -> None: ...")


def stubs() -> dict[Path, str]:
    """Every stub file and what it must hold."""
    return {
        ROOT / "__init__.pyi": package_stub(),
        ROOT / "_tensor_methods.pyi": methods_stub(),
        ROOT / "linalg.pyi": namespace_stub(weft.linalg, "Linear algebra, with gradients, for stacks of matrices."),
        ROOT / "special.pyi": namespace_stub(weft.special, "Special functions: gamma, error and Bessel functions."),
        ROOT / "nn" / "functional.pyi": namespace_stub(
            weft.nn.functional, "Neural-network functions, under PyTorch's names."
        ),
    }


def main() -> None:
    for path, text in stubs().items():
        path.write_text(text)
        print(path.relative_to(ROOT.parent), file=sys.stderr)


if __name__ == "__main__":
    main()
