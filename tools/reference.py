"""The API reference as Markdown pages, made from signatures and docstrings when the documentation is built.

A page is a module (or a group of functions of `weft`); an entry is a public name with its signature and docstring. What
a module exports is `__all__` where it has one, else what type checkers take for exported: names it defines without an
underscore, and names it imports `as` themselves.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

import weft
import weft.data
import weft.nn.functional
import weft.optim
from tools.stubs import Stub, print_function
from weft import api

# Public modules, in the order of the navigation. `weft` itself is split by the files that its functions come from.
MODULES = {
    "nn": "Layers and modules",
    "nn.functional": "Neural-network functions",
    "nn.init": "Initialisation",
    "nn.utils": "Gradient clipping, normalised weights, parameter vectors",
    "nn.utils.parametrize": "Parametrizations",
    "nn.utils.parametrizations": "Normalised and orthogonal weights",
    "nn.utils.rnn": "Packed sequences",
    "optim": "Optimisers",
    "optim.lr_scheduler": "Learning-rate schedules",
    "distributions": "Distributions",
    "distributions.constraints": "Constraints of distributions",
    "distributions.utils": "Helpers for distributions",
    "func": "Function transforms",
    "tree": "Trees of tensors",
    "jit": "Module weft.jit",
    "backends": "Module weft.backends",
    "data": "Datasets and loaders",
    "data.transforms": "Image transforms",
    "data.transforms.functional": "Image transforms as functions",
    "transforms": "Module weft.transforms",
    "utils": "Module weft.utils",
    "utils.data": "Datasets and loaders with PyTorch's arguments",
    "utils.checkpoint": "Checkpointing with PyTorch's arguments",
    "utils.pytree": "Trees with PyTorch's arguments",
    "models": "Models",
    "train": "Trainer, metrics, callbacks",
    "io": "Checkpoints and TensorBoard",
    "linalg": "Linear algebra",
    "fft": "Fourier transforms",
    "special": "Special functions",
    "random": "Module weft.random",
    "sparse": "Sparse tensors",
    "testing": "Comparisons in tests",
    "debug": "Debugging",
    "cuda": "Module weft.cuda",
    "memory": "Memory",
    "profiler": "Profiler",
    "multiprocessing": "Processes",
    "distributed": "Distributed training",
    "sklearn": "scikit-learn",
    "typing": "Types",
}
FAMILIES = {
    "creation": "Creating tensors",
    "elementwise": "Elementwise functions",
    "reduction": "Reductions and statistics",
    "shaping": "Shapes, joining, indexing",
    "searching": "Sorting and searching",
    "products": "Products and linear algebra",
    "models": "Functions of neural networks",
    "random": "Random numbers",
    "autograd": "Differentiation",
    "graph": "Capture, graphs and sessions",
    "rest": "Dtypes, constants and settings",
}
_FAMILY_OF_FILE = {
    "creation": "creation", "elementwise": "elementwise", "casting": "creation", "reduction": "reduction",
    "special_functions": "elementwise", "statistics": "reduction", "cumulative": "reduction", "shaping": "shaping",
    "repeating": "shaping", "shapes": "shaping", "dialects": "reduction", "arithmetic": "elementwise", "spectra": "products",
    "indexing": "shaping", "gathering": "shaping", "searching": "searching", "sorting": "searching", "sets": "searching",
    "comparison": "elementwise", "products": "products", "linalg_structure": "products", "einsum": "products",
    "partitioning": "shaping", "random": "random", "softmax": "elementwise", "row_sparse": "rest",
    "padding": "shaping", "nn": "models",
}  # fmt: skip


# What examples in docstrings may use without importing it; the first page of the reference says so.
EXAMPLE_NAMES = {"wf": weft, "np": np, "nn": weft.nn, "F": weft.nn.functional, "optim": weft.optim, "data": weft.data}


@dataclass(frozen=True)
class Alias:
    """A type alias of a module, as its source defines and documents it."""

    definition: str
    doc: str


@dataclass
class Page:
    """One page of the reference."""

    path: str  # below docs/
    title: str
    intro: str = ""
    entries: list[tuple[str, Any]] = field(default_factory=list)


def exports(module: ModuleType) -> list[str]:
    """The public names of `module`."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    tree = ast.parse(inspect.getsource(module))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname for a in node.names if a.asname == a.name}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return sorted(n for n in names if n and not n.startswith("_") and not isinstance(getattr(module, n), ModuleType))


def pages() -> Iterator[Page]:
    """Every page of the reference."""
    groups = {family: Page(f"reference/{family}.md", title) for family, title in FAMILIES.items()}
    for name in weft.__all__:
        value = getattr(weft, name)
        if name != "Tensor" and not isinstance(value, ModuleType):
            groups[family_of(name, value)].entries.append((f"weft.{name}", value))
    yield Page("reference/tensor.md", "Tensor", entries=[("weft.Tensor", weft.Tensor)])
    yield from groups.values()
    for name, title in MODULES.items():
        module = module_of(name)
        page = Page(f"reference/weft.{name}.md", title, inspect.getdoc(module) or "")
        known = aliases(module)
        page.entries = [(f"weft.{name}.{n}", known.get(n, getattr(module, n))) for n in exports(module)]
        yield page


def aliases(module: ModuleType) -> dict[str, Alias]:
    """The type aliases that a module defines; the string after an alias is its docstring."""
    body = ast.parse(inspect.getsource(module)).body
    found = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.annotation) != "TypeAlias":
            continue
        assert node.value is not None
        text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) and following.value.value
        definition = re.sub(r"'([\w.\[\], ]+)'", r"\1", ast.unparse(node.value))
        found[ast.unparse(node.target)] = Alias(definition, inspect.cleandoc(text) if isinstance(text, str) else "")
    return found


def module_of(name: str) -> ModuleType:
    """The public module `weft.<name>`."""
    module = getattr(weft, name) if name in api.LAZY else importlib.import_module(f"weft.{name}")
    assert isinstance(module, ModuleType)
    return module


def family_of(name: str, value: Any) -> str:
    """The page of a name of `weft`."""
    module = getattr(value, "__module__", "") or ""
    parts = module.split(".")
    if parts[:2] == ["weft", "autograd"]:
        return "autograd"
    if name in api.LAZY or parts[:2] == ["weft", "graph"]:
        return "graph" if parts[:2] == ["weft", "graph"] else "rest"
    return next((_FAMILY_OF_FILE[part] for part in reversed(parts) if part in _FAMILY_OF_FILE), "rest")


# One entry -----------------------------------------------------------------------------------------------------------


def entry(path: str, value: Any, level: int = 2) -> str:
    """A public name as Markdown: heading with an anchor, signature, docstring, members of a class."""
    lines = [f"{'#' * level} `{heading(path, value)}` {{ #{path} }}", ""]
    if isinstance(value, type):
        lines += [signature_block(path.rsplit(".", 1)[-1], value), "", markdown(inspect.getdoc(value) or ""), ""]
        for name, member in members(value):
            lines.append(entry(f"{path}.{name}", member, level + 1))
    elif isinstance(value, Alias):
        lines += [f"```python\n{path.rsplit('.', 1)[-1]} = {value.definition}\n```", "", markdown(value.doc), ""]
    elif callable(value):
        lines += [signature_block(path.rsplit(".", 1)[-1], value), "", markdown(inspect.getdoc(value) or ""), ""]
    elif isinstance(value, property):
        lines += [markdown(inspect.getdoc(value) or ""), ""]
    else:
        lines += [f"`{constant(value)}`", ""]
    return "\n".join(lines)


def heading(path: str, value: Any) -> str:
    """The name of an entry on its page: members of a class with the class before them."""
    parts = path.split(".")
    return ".".join(parts[-2:]) if parts[-2][0].isupper() else parts[-1]


def constant(value: Any) -> str:
    return f"dtype {value.name}" if isinstance(value, np.dtype) else str(value).replace("`", "'")


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that have a docstring, its own and those of its bases in Weft."""
    seen: set[str] = set()
    module = cls.__module__.startswith(("weft.nn.layers", "weft.distributions")) or "models" in cls.__module__
    for base in cls.__mro__:
        if not base.__module__.startswith("weft") or module and base is not cls:
            break  # what every layer or distribution inherits is in the entry of nn.Module or Distribution
        for name, value in sorted(vars(base).items()):
            if name.startswith("_") or name in seen or isinstance(value, type):
                continue
            seen.add(name)
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if (callable(value) or isinstance(value, property)) and value.__doc__:
                yield name, value


def signature_block(name: str, value: Any) -> str:
    """The signature of a function or class, with the types that the stubs show."""
    try:
        text = f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return ""
    try:
        stub = Stub("weft", "", set())
        print_function(stub, name, value, method="(self" in text)
        text = " ".join(" ".join(stub.lines[:1]).split()).strip().removeprefix("def ").removesuffix(":")
        text = text.replace("( ", "(").replace(", )", ")")
    except (LookupError, AttributeError):  # a class, or a method whose annotations need names of its module
        text = re.sub(r"'([A-Za-z_][\w.\[\], |]*)'", r"\1", text)  # annotations are strings
        text = re.sub(r"<[^>]*>", "...", text)
    text = text.replace("(self, ", "(").replace("(self)", "()")
    if isinstance(value, type):
        text = text.removesuffix(" -> None")
    if len(text) > 80:
        head, _, rest = text.partition("(")
        depth, out = 0, ""
        for c in rest:
            depth += (c in "([{") - (c in ")]}")
            out += ",\n   " if c == "," and depth == 0 else c
        text = f"{head}(\n    {out}"
        text = re.sub(r"\)( -> [^)]*)?$", r",\n)\1", text)
    return f"```python\n{text}\n```"


SECTIONS = ("Args", "Arguments", "Returns", "Raises", "Yields", "Attributes", "Note", "Example", "Examples", "Shape")


def markdown(doc: str) -> str:
    """A docstring as Markdown: sections become lists, examples become fenced blocks."""
    out: list[str] = []
    fenced = section = False
    margin = 0
    for line in doc.splitlines():
        example = line.lstrip().startswith((">>>", "...")) if not fenced else bool(line.strip())
        if example != fenced:
            out += ["", "```pycon"] if example else ["```", ""]
            fenced = example
            margin = len(line) - len(line.lstrip())
        if fenced:
            out.append(line[margin:].rstrip())
            continue
        head = line.strip().rstrip(":")
        if line.strip().endswith(":") and head in SECTIONS and not line.startswith(" "):
            out += ["", f"**{head}**", ""]
            section = True
        elif section and (item := re.match(r"    (\*{0,2}[\w.`, /*]+): (.*)", line)):
            out.append(f"- **{item[1].strip('`')}**: {item[2]}")
        elif section and line.startswith("    "):
            out.append(f"  {line.strip()}" if out and out[-1].startswith(("- ", "  ")) else line.strip())
        else:
            section = section and not line.strip()
            out.append(line)
    if fenced:
        out.append("```")
    return "\n".join(out)


def render(page: Page) -> str:
    """The Markdown of a page."""
    text = [f"# {page.title}", ""]
    if page.intro:
        text += [markdown(page.intro), ""]
    text += [entry(path, value) for path, value in page.entries]
    return "\n".join(text)
