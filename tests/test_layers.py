"""The order of the layers, and which layer may touch which library.

`LAYERS` is the one place where the order is written down. An import at the top of a module points to the same layer or
to a lower one. An import inside a function may point up only where `UPWARD` says so, and why.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "weft"

# From what the user calls down to what the machine offers. Names are modules or packages below `weft`; a module inside
# a package may have another layer than its package (`runtime.program`).
LAYERS: list[set[str]] = [
    {"cli", "commands", "__main__"},
    {"train", "sklearn", "serve"},
    {"models"},
    {"distributed"},
    {"utils"},
    {"nn", "einops", "optim", "data", "transforms", "distributions", "func", "testing"},
    {"io"},
    {"weft", "api"},  # the namespace `import weft as wf`
    # what users call to capture or declare, and then run: it sends a graph through everything below
    {
        "graph.capture.function",
        "jit",
        "graph.capture.trace",
        "graph.capture.segment_programs",
        "graph.capture.segments",
        "graph.capture.breaks",
        "graph.capture.backward",
        "graph.execute.regions",
        "graph.execute.executor",
        "graph.execute.partial",
        "graph.execute.partition",
        "graph.execute.resumable",
        "graph.execute.resumable_tokens",
        "graph.execute.session",
        "graph.declared.serialize",
        "graph.declared.graph_files",
        "graph.declared.loading",
        "graph.declared.callables",
        "graph.declared.functions",
        "graph.capture.sharing",
        "profiler",
    },
    {"compiler.build", "compiler.trials", "compiler.open_sizes"},  # from a flow to a Program
    {"runtime.program"},  # runs what the layers below have made
    {"backends"},  # carry out what the compiler describes
    {"compiler"},
    {"compiler.program"},  # what a program consists of: steps, layouts, storages
    {"graph"},  # what a graph is, and how one is recorded
    {"io.durable", "io.tensor_file", "io.checked", "io.shards"},  # files of bytes and of arrays
    {
        "sparse",
        "linalg",
        "fft",
        "special",
        "debug",
        "array_api_info",
        "cuda",
        "spectra",
        "tensor_array",
    },  # built from ops
    {
        "tensor",
        "typing",
        "ops",
        "autocast",
        "autograd",
        "random",
        "random_keys",
        "dtypes",
        "errors",
        "dlpack",
        "arrow",
        "printing",
        "multiprocessing",
        "waterfall",
        "svg",
        "tree",
    },
    {"runtime"},  # threads, memory, devices: what the machine offers
    {"settings", "importing"},
]

UPWARD: dict[tuple[str, str], str] = {
    ("ops", "backends"): "dispatch asks for the native kernels when an array is first large enough for them",
    ("graph", "graph.declared.serialize"): "`save` of a declared graph knows every kind of node",
    ("graph", "graph.declared.loading"): "`load` of a declared graph knows every kind of node",
    ("graph.declared.loading", "optim"): "the ops of optimisers complete the table that a file may name",
    ("graph", "graph.execute.session"): "`as_function` of a declared graph runs it in a new session",
    ("tensor", "weft"): "`__array_namespace__` returns the package",
    ("tensor", "sparse"): "`x.to_sparse()` makes a sparse tensor",
    ("ops", "weft"): "NumPy's functions on tensors are those of the same name in the package",
}

# A third-party library lives behind one folder.
ONLY_IN: dict[str, str] = {
    "llvmlite": "weft/backends/llvm/",
    "ray": "weft/distributed/",
    "starlette": "weft/serve/",
    "uvicorn": "weft/serve/",
    "onnx": "weft/io/",
    "sklearn": "weft/sklearn",
    "einops": "weft/einops",
}
FORBIDDEN = {"torch", "torchvision", "jax", "jaxlib", "tensorflow", "keras", "paddle", "mxnet", "mlx"}


class Import(NamedTuple):
    file: str
    line: int
    target: str
    """dotted name of the imported module, or of the name imported from it"""
    at_top: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def imports_of(path: Path, root: Path = ROOT) -> Iterator[Import]:
    """Every import statement in `path`, relative ones resolved; those under `if TYPE_CHECKING` left out."""
    relative = path.relative_to(root)
    package = list(relative.with_suffix("").parts)[:-1]  # the package a relative import starts from
    yield from _walk(ast.parse(path.read_text()), str(relative), package, at_top=True)


def _walk(node: ast.AST, file: str, package: list[str], at_top: bool) -> Iterator[Import]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.orelse:
            yield from _walk(child, file, package, at_top)
        return
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(file, node.lineno, alias.name, at_top)
    elif isinstance(node, ast.ImportFrom):
        start = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*start, *([node.module] if node.module else [])])
        for alias in node.names:
            yield Import(file, node.lineno, f"{module}.{alias.name}", at_top)
    inside = at_top and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, file, package, inside)


def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


_NAMES = {name: number for number, names in enumerate(LAYERS) for name in names}


def layer_name(dotted: str) -> str:
    """`weft.ops.math` → `ops`; the package itself, and names taken from it (`from weft import sum`), → `weft`."""
    parts = dotted.split(".")[1:]
    for depth in (3, 2):
        if ".".join(parts[:depth]) in _NAMES:
            return ".".join(parts[:depth])
    module = PACKAGE / parts[0] if parts else PACKAGE
    return parts[0] if parts and (module.is_dir() or module.with_suffix(".py").exists()) else "weft"


def file_layer(file: str) -> str:
    """The layer of the module in `file`, a path such as `weft/ops/math.py`."""
    parts = [part for part in Path(file).with_suffix("").parts if part != "__init__"]
    return layer_name(".".join(parts))


def level(name: str) -> int:
    assert name in _NAMES, f"weft.{name} is in no layer. Add it to LAYERS in {Path(__file__).name}, where it belongs."
    return _NAMES[name]


def violations(found: list[Import]) -> list[str]:
    wrong = []
    for each in found:
        if each.target.split(".")[0] != "weft":
            continue
        source, target = file_layer(each.file), layer_name(each.target)
        if level(target) >= level(source):
            continue
        if each.at_top or (source, target) not in UPWARD:
            wrong.append(f"{each} (layer {source} is below {target})")
    return wrong


def all_imports() -> list[Import]:
    return [each for path in package_files() for each in imports_of(path)]


def test_imports_point_down() -> None:
    assert violations(all_imports()) == []


def test_every_module_has_a_layer() -> None:
    for path in package_files():
        level(file_layer(str(path.relative_to(ROOT))))


def test_upward_exceptions_are_in_use() -> None:
    ours = [each for each in all_imports() if each.target.split(".")[0] == "weft"]
    used = {(file_layer(each.file), layer_name(each.target)) for each in ours}
    assert set(UPWARD) <= used, "UPWARD lists an unused exception: remove it"


def test_the_check_finds_what_it_should(tmp_path: Path) -> None:
    module = tmp_path / "weft" / "runtime" / "bad.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "from typing import TYPE_CHECKING\n"
        "from ..nn import functional\n"
        "from . import threads\n"
        "import weft.ops\n"
        "if TYPE_CHECKING:\n    from weft.graph import Graph\n"
        "def late():\n    from weft.backends import llvm\n"
    )
    found = violations(list(imports_of(module, tmp_path)))
    assert [text.split()[2] for text in found] == ["weft.nn.functional", "weft.ops", "weft.backends.llvm"]


def test_the_runtime_knows_only_what_a_program_consists_of() -> None:
    """It runs steps; how they were lowered is the compiler's business."""
    found = [x for x in all_imports() if x.file.startswith("weft/runtime/") and x.target.startswith("weft.compiler.")]
    assert found
    assert [str(x) for x in found if layer_name(x.target) != "compiler.program"] == []


def test_the_compiler_imports_no_backend() -> None:
    """Backends register their lowerings. What ties both together (`compiler.build`) has a layer above them."""
    found = [x for x in all_imports() if file_layer(x.file) in ("compiler", "compiler.program")]
    assert [str(x) for x in found if layer_name(x.target) == "backends"] == []


def test_libraries_stay_behind_their_folder() -> None:
    wrong = []
    for each in all_imports():
        library = each.target.split(".")[0]
        home = ONLY_IN.get(library)
        if home is not None and not each.file.startswith(home):
            wrong.append(f"{each} (only {home} may)")
    assert wrong == []


def test_onednn_is_loaded_in_one_folder_only() -> None:
    """Its file name appears as a value (not in prose) only where it is bound."""
    wrong = []
    for path in package_files():
        name = str(path.relative_to(ROOT))
        if name.startswith("weft/backends/onednn/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("libdnnl"):
                wrong.append(f"{name}:{node.lineno}")
    assert wrong == []


@pytest.mark.parametrize("folder", ["weft", "tests", "examples"])
def test_no_other_framework_is_imported(folder: str) -> None:
    wrong = [
        str(each)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.parent.name != "torch_programs"  # which run with other imports
        for each in imports_of(path)
        if each.target.split(".")[0] in FORBIDDEN
    ]
    assert wrong == []


def test_import_weft_stays_light() -> None:
    """What only some programs need is imported by them, not by everybody."""
    heavy = {
        "llvmlite", "scipy", "sklearn", "pyarrow", "PIL", "matplotlib", "ray", "rich", "safetensors", "tensorboard",
        "onnx", "hypothesis", "pytest",
    }  # fmt: skip
    code = "import sys, weft; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, timeout=60, check=True
    )
    assert heavy & set(done.stdout.split()) == set()
