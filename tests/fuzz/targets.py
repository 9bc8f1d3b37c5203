"""The readers of Weft as targets: small valid files, how to damage them, how to read them, and which errors may come.

A reader may return or raise its documented error, `FileError` and its relatives. Anything else is a finding.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import io
import json
import pickle
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf
from tests.fuzz import mutate, parts
from weft import data as readers
from weft import nn
from weft.commands import config, predict, train
from weft.commands.errors import CommandError
from weft.distributed.remote_parts import PartError
from weft.errors import FileError
from weft.io import CheckpointError, checkpoint, tensorboard
from weft.io.tensorboard import records
from weft.nn import functional as F

FIXTURES = Path(__file__).resolve().parents[1] / "graph" / "fixtures"
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@dataclass(frozen=True)
class Target:
    """One reader and one way to damage its files."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: mutate.Mutator
    read: Callable[[Path, bytes], Any]
    """writes the bytes into a new folder, as a file of the right kind, and reads them"""
    errors: tuple[type[Exception], ...] = (FileError,)
    cost: int = 1
    """how much longer a case takes than an ordinary one"""


def _file(reader: Callable[[Path], Any], name: str = "file") -> Callable[[Path, bytes], Any]:
    def read(folder: Path, content: bytes) -> Any:
        (folder / name).write_bytes(content)
        return reader(folder / name)

    return read


# Graphs -----------------------------------------------------------------------------------------------------------------


def _graph_seeds(end: str) -> Callable[[], list[bytes]]:
    return lambda: [p.read_bytes() for p in sorted(FIXTURES.glob(f"*{end}")) if p.name != "results.json"]


@functools.cache
def _wide() -> tuple[bytes, bytes]:
    """Program and weights of a graph with ops of many families, whose kernels are native."""
    graph = wf.Graph("wide")
    with graph.as_default():
        image = wf.constant(np.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8), name="image")
        rows = wf.Variable(np.linspace(0, 1, 48, dtype=np.float32).reshape(6, 8), name="rows")
        kernel = wf.constant(np.ones((4, 3, 3, 3), np.float32))
        numbers = wf.constant(np.array([0, 5, 2], np.int64))
        y = F.max_pool2d(F.relu(F.conv2d(image, kernel, stride=2, padding=1)), 2)
        z = F.interpolate(image, size=(4, 4), mode="bilinear") + F.avg_pool2d(image, 2)
        e = F.layer_norm(F.embedding(numbers, rows), (8,)) @ wf.permute_dims(rows, (1, 0))
        top, where = wf.topk(e, 2)
        s = wf.cumulative_sum(wf.sort(e, axis=1), axis=0) + wf.take(e, wf.constant(np.array([1])), axis=1)
        a = F.scaled_dot_product_attention(*[wf.reshape(rows, (1, 2, 3, 8))] * 3)
        p = wf.concat([F.pad(e, (1, 1)), wf.ones((3, 8))], axis=0)[1:4, ::2]
        w = wf.where(e > 0, e, -e) + wf.index_add(e, wf.constant(np.array([0])), wf.ones((1, 6)), 0)
        loss = sum([wf.sum(t) for t in (y, z, top, s, a, p, w)])
        rows.assign_sub(wf.gradients(loss, rows))
    with tempfile.TemporaryDirectory() as folder:
        file = graph.save(Path(folder) / "wide")
        program = json.loads(file.read_bytes())
        del program["checksum"], program["weights"]  # damage that a checksum shows is no test
        return json.dumps(program).encode(), file.with_suffix(".safetensors").read_bytes()


def _programs() -> list[bytes]:
    return [*_graph_seeds(".json")(), _wide()[0]]


def _read_program(folder: Path, content: bytes) -> Any:
    (folder / "g.json").write_bytes(content)
    name = next((n for n in ("late", "control", "model", "queues", "images") if f'"{n}"'.encode() in content[:200]), "")
    weights = (FIXTURES / f"{name}.safetensors").read_bytes() if name else _wide()[1]
    (folder / "g.safetensors").write_bytes(weights)
    return wf.Graph.load(folder / "g")


def _run_program(folder: Path, content: bytes, executor: str = "naive") -> Any:
    """Load, then run what can be run without feeds or with small ones; a step may fail in any ordinary way."""
    graph = _read_program(folder, content)
    feeds = {}
    for node in graph.nodes:
        if node.op.name == "placeholder":
            value = node.outputs[0]
            shape = tuple([d if isinstance(d, int) and d < 64 else 2 for d in value.shape or (2, 8)])
            feeds[node.name] = np.ones(shape, value.dtype)
    with wf.Session(graph, executor) as session:
        for node in graph.nodes[-3:]:
            if node.outputs:
                try:
                    session.run(node.name, {k: v for k, v in feeds.items() if k != node.name}, timeout=2)
                except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, TimeoutError, MemoryError, OSError,
                        AttributeError, AssertionError, wf.CancelledError):  # fmt: skip
                    pass  # an op that refuses its operands; crashes and hangs are what is looked for


def _read_weights(folder: Path, content: bytes) -> Any:
    (folder / "g.json").write_bytes((FIXTURES / "control.json").read_bytes())
    (folder / "g.safetensors").write_bytes(content)
    return wf.Graph.load(folder / "g")


# Tensors and checkpoints --------------------------------------------------------------------------------------------------


def _written(write: Callable[[Path], Any], name: str = "file") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _tree_seeds() -> list[bytes]:
    tree = {
        "w": wf.ones((2, 3)),
        "n": [1, (2.5, None), {3: "x"}],
        "c": np.ones(2, np.complex128),
        "i": float("inf"),
        "z": 1j,
    }
    return [_written(lambda p: wf.save(tree, p)), _written(lambda p: wf.save({"a.b": wf.ones(2)}, p))]


def _variables_seeds() -> list[bytes]:
    def write(path: Path) -> None:
        graph = wf.Graph()
        with graph.as_default():
            save = wf.save_variables({"a": wf.Variable(X), "b": wf.Variable(np.ones(3, np.complex64))}, path)
        with wf.Session(graph) as session:
            session.run(save)

    return [_written(write)]


def _restore(path: Path) -> None:
    graph = wf.Graph()
    with graph.as_default():
        variables = {"a": wf.Variable(X), "b": wf.Variable(np.ones(3, np.complex64))}
        restore = wf.restore_variables(variables, path)
    with wf.Session(graph) as session:
        session.run(restore)


@functools.cache
def _checkpoint() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        model = wf.models.build("mlp", in_features=3, hidden=(2,), out_features=2)
        facts = {"model": model.made_by, "task": {"kind": "classes", "shape": [1, 1, 3], "classes": ["a", "b"]}}
        parts = {"model": model.state_dict(), "loader": {"epoch": 3, "seeds": [1, (2, None)]}}
        path = checkpoint.write_checkpoint(folder, 7, parts, scores={"loss": 0.5}, facts=facts)
        return {p.name: p.read_bytes() for p in path.iterdir()}


def _read_checkpoint(name: str, reader: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    """The checkpoint with one file replaced, and checksums that agree: damage that a checksum shows is no test."""

    def read(folder: Path, content: bytes) -> Any:
        files = {**_checkpoint(), name: content}
        if name != "manifest.json":
            manifest = json.loads(files["manifest.json"])
            manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            files["manifest.json"] = json.dumps(manifest).encode()
        files["manifest.sha256"] = hashlib.sha256(files["manifest.json"]).hexdigest().encode()
        place = folder / "step-00000007"
        place.mkdir()
        for other, data in files.items():
            (place / other).write_bytes(data)
        return reader(place)

    return read


def _branch_seeds() -> list[bytes]:
    return [b'{"schema": 1, "serial": 9, "branches": [[0, null], [1, 7]], "start": "step-00000007"}']


def _read_branch(folder: Path, content: bytes) -> Any:
    """A damaged note of a branch is ignored; one that was changed may name a start in another directory."""
    _read_checkpoint("loader.json", lambda p: p)(folder, _checkpoint()["loader.json"])
    (folder / "branch.json").write_bytes(content)
    return checkpoint.latest(folder)


def _checked_task(path: Path) -> Any:
    found = checkpoint.open_checkpoint(path)
    return predict._checked(path, found.facts.get("task"))


# Data -------------------------------------------------------------------------------------------------------------------

_IDX = b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(range(6))
_BATCH = np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072)


def _cifar_pickles() -> list[bytes]:
    return [pickle.dumps({b"data": _BATCH, b"labels": [1, 2], b"names": [b"a"]}, protocol=p) for p in (0, 2, 4)]


def _archives() -> list[bytes]:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        content = np.concatenate([np.ones((2, 1), np.uint8), _BATCH], axis=1).tobytes()
        for name in ("x/readme", "x/test_batch.bin"):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return [made.getvalue(), gzip.compress(made.getvalue(), mtime=0), bz2.compress(made.getvalue())]


def _cifar(name: str) -> Callable[[Path, bytes], Any]:
    def read(folder: Path, content: bytes) -> Any:
        (folder / name).write_bytes(content)
        return readers.cifar10(folder / name if name == "archive" else folder, "test")

    return read


def _npy_seeds() -> list[bytes]:
    arrays = (X, np.asfortranarray(X).astype(">i4"), np.array(["a", "b"]))
    return [_written(lambda p, a=a: np.save(p, a), "f.npy") for a in arrays]


def _npz_seeds() -> list[bytes]:
    writers = (np.savez, np.savez_compressed)
    return [_written(lambda p, w=w: w(p, x=X, y=np.arange(4)), "f.npz") for w in writers]


def _pictures() -> list[bytes]:
    from PIL import Image

    picture = Image.fromarray(np.arange(192).astype(np.uint8).reshape(8, 8, 3))
    made = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "PPM", "WEBP"):
        buffer = io.BytesIO()
        picture.save(buffer, kind)
        made.append(buffer.getvalue())
    return made


def _picture(path: Path) -> Any:
    from PIL import Image

    from weft.data.readers.images import read_picture

    return read_picture("test", path, "RGB", (4, 4), Image.Resampling.BILINEAR)


def _tables() -> list[bytes]:
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.table({"a": [1.0, 2.0, None], "b": [1, 2, 3], "c": [True, False, True]})

    def stream(path: Path) -> None:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)

    return [
        _written(lambda p: pyarrow.parquet.write_table(table, p)),
        _written(lambda p: pyarrow.feather.write_feather(table, str(p))),
        _written(stream),
    ]


def _configs() -> list[bytes]:
    return [path.read_bytes() for path in config.recipes().values()]


def _read_config(path: Path) -> Any:
    made = config.load_config(str(path))
    from weft.models import constructors

    name = made.choose("model", constructors())
    return made.arguments("model", constructors()[name]), made.choose("data", train.TASKS)


def _settings(data: bytes, other: bytes, random: Any) -> bytes:
    """A configuration with other values, or further keys."""
    lines = data.decode().split("\n")
    for _ in range(random.choice((1, 2))):
        at = random.randrange(len(lines))
        key, equals, _rest = lines[at].partition("=")
        if equals:
            lines[at] = f"{key}= {random.choice(_SETTINGS)}"
        elif random.random() < 0.3:
            lines.insert(at, f"{random.choice(_KEYS)} = {random.choice(_SETTINGS)}")
    return "\n".join(lines).encode()


_SETTINGS = (
    "[]", "{}", "-1", "0", "3", "0.5", "1e400", "inf", "nan", '""', '"x"', "true", "[[]]", "99999999999", "1979-05-27",
    '["a"]', "[1, 2]",
)  # fmt: skip
_KEYS = (
    "augment", "dropout", "momentum", "warmup", "seed", "batch_size", "workers", "clip_grad_norm", "grad_accumulation", "ema",
    "keep", "checkpoint_every", "activation", "capture", "label_smoothing", "weight_decay",
)  # fmt: skip
_CONFIG = b"""[model]\nname = "mlp"\nhidden = [8]\n[data]\nname = "digits"\n[optimizer]\nname = "sgd"\nlr = 0.1
[schedule]\nname = "cosine"\n[train]\nepochs = 1\n"""


def _build(folder: Path, content: bytes) -> Any:
    (folder / "c.toml").write_bytes(content)
    train.build(config.load_config(str(folder / "c.toml")), folder / "run", progress=False)


def _events() -> list[bytes]:
    def write(folder: Path) -> bytes:
        with tensorboard.SummaryWriter(folder) as writer:
            writer.scalar("loss", 0.5, 1)
        return next(folder.glob("events*")).read_bytes()

    with tempfile.TemporaryDirectory() as folder:
        return [write(Path(folder))]


TARGETS = [
    Target("graph-program", _programs, mutate.json_text, _read_program, cost=4),
    Target("graph-run", _programs, mutate.rewired, _run_program, cost=20),
    Target("graph-compiled", _programs, mutate.rewired,
           functools.partial(_run_program, executor="dataflow"), cost=40),
    Target("graph-weights", lambda: [(FIXTURES / "control.safetensors").read_bytes()], mutate.safetensors_header,
           _read_weights, cost=4),
    Target("part", parts.seeds, mutate.json_text, parts.read, (PartError,), cost=4),
    Target("part-rewired", parts.seeds, mutate.rewired, parts.read, (PartError,), cost=4),
    Target("tree-bytes", _tree_seeds, mutate.some_bytes, _file(wf.load)),
    Target("tree-header", _tree_seeds, mutate.safetensors_header, _file(wf.load)),
    Target("weights", _tree_seeds, mutate.some_bytes, _file(nn.load_weights)),
    Target("variables", _variables_seeds, mutate.safetensors_header, _file(_restore), (FileError, KeyError, ValueError), cost=4),
    Target("manifest", lambda: [_checkpoint()["manifest.json"]], mutate.json_text,
           _read_checkpoint("manifest.json", lambda p: checkpoint.open_checkpoint(p).load()), (CheckpointError,)),
    Target("branch", _branch_seeds, mutate.json_text, _read_branch, (CheckpointError,)),
    Target("checkpoint-json", lambda: [_checkpoint()["loader.json"]], mutate.json_text,
           _read_checkpoint("loader.json", lambda p: checkpoint.open_checkpoint(p).load()), (CheckpointError,)),
    Target("checkpoint-tensors", lambda: [_checkpoint()["model.safetensors"]], mutate.safetensors_header,
           _read_checkpoint("model.safetensors", wf.load), (CheckpointError,)),
    Target("model", lambda: [_checkpoint()["manifest.json"]], mutate.json_text,
           _read_checkpoint("manifest.json", wf.models.load), (CheckpointError, ValueError, MemoryError), cost=4),
    Target("task", lambda: [_checkpoint()["manifest.json"]], mutate.json_text,
           _read_checkpoint("manifest.json", _checked_task), (CheckpointError, CommandError)),
    Target("idx", lambda: [_IDX], mutate.some_bytes, _file(readers.read_idx)),
    Target("idx-gz", lambda: [gzip.compress(_IDX * 9, mtime=0), gzip.compress(_IDX, mtime=0)], mutate.some_bytes,
           _file(readers.read_idx)),
    Target("cifar-binary", lambda: [bytes(2 * 3073)], mutate.some_bytes, _cifar("test_batch.bin")),
    Target("cifar-python", _cifar_pickles, mutate.some_bytes, _cifar("test_batch")),
    Target("cifar-archive", _archives, mutate.some_bytes, _cifar("archive")),
    Target("npy", _npy_seeds, mutate.some_bytes, _file(readers.numpy_file)),
    Target("npy-mapped", _npy_seeds, mutate.some_bytes, _file(readers.NumpyDataset), (FileError, ValueError)),
    Target("npz", _npz_seeds, mutate.some_bytes, _file(readers.numpy_file)),
    Target("picture", _pictures, mutate.some_bytes, _file(_picture, "p.png"), cost=2),
    Target("csv", lambda: [b"a,b,label\n1,2.5,0\n3,,1\n5,6,0\n"], mutate.some_text,
           _file(functools.partial(readers.csv_file, target=-1))),
    Target("table", _tables, mutate.some_bytes, _file(readers.arrow_file), cost=2),
    Target("config", _configs, mutate.some_text, _file(_read_config, "c.toml"), (config.ConfigError,), cost=4),
    Target("config-build", lambda: [_CONFIG], _settings, _build, (config.ConfigError,), cost=6),
    Target("events", _events, mutate.some_bytes, _file(lambda p: list(records.read_records(p.read_bytes()))), (ValueError,)),
]  # fmt: skip


def check(target: Target, seeds: Sequence[bytes], random: Any) -> bytes:
    """One case of `target`: damage a seed and read it. Raises what is not documented; returns what was read."""
    content = target.mutate(random.choice(seeds), random.choice(seeds), random)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a decoder's warning about a damaged file is not a finding
        try:
            target.read(Path(folder), content)
        except target.errors as error:
            if not str(error) or isinstance(error, FileError) and not (error.path and error.reason):
                raise AssertionError(f"{target.name}: an error without words: {error!r}") from error
    return content
