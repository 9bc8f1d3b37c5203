"""Tables and arrays: CSV, NumPy and Arrow or Parquet files."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileError
from ...io.limits import too_large, unpacked_limit
from ...io.numpy_file import read_npy, read_npz
from ..dataset import Dataset, Rows, TensorDataset, check_indices
from ._files import PathLike, existing


class TableDataset(TensorDataset):
    """Columns of a table: features, and the target if one was named. `columns` has the names of the features."""

    def __init__(self, arrays: Sequence[np.ndarray], columns: list[str]) -> None:
        super().__init__(*arrays)
        self.columns = columns


def csv_file(
    path: PathLike,
    target: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    *,
    header: bool = True,
    delimiter: str = ",",
    dtype: Any = np.float32,
    target_dtype: Any = None,
    encoding: str = "utf-8-sig",
) -> TableDataset:
    """A CSV file of numbers.

    Args:
        target: the column to predict, by name or number.
        columns: the feature columns; by default all others.
        header: whether the first line has the names; if not, they are "0", "1", ….
        dtype: of the features.
        target_dtype: of the target; by default int64 if all its values are whole numbers, else float32.

    Returns:
        A dataset of (features,) or (features, target), with `columns`. An empty field is NaN.

    Raises:
        FileError: a field is not a number or a line has another number of fields; the message has file and line.
    """
    path = existing("csv_file", path)
    names: list[str] = []
    rows: list[array[float]] = []
    try:
        with open(path, newline="", encoding=encoding) as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            for line in reader:
                if not line:
                    continue
                if not names:
                    names = [name.strip() for name in line] if header else [str(i) for i in range(len(line))]
                    picked = _pick("csv_file", path, names, target, columns)
                    if header:
                        continue
                if len(line) != len(names):
                    reason = f"got {len(line)} fields; expected {len(names)}."
                    raise FileError("csv_file", path, reason, f"line {reader.line_num}")
                # eight bytes a number: a list of Python floats takes four times as much
                rows.append(array("d", [_number(path, reader.line_num, names[i], line[i]) for i in picked]))
    except UnicodeDecodeError as error:
        raise FileError("csv_file", path, f"is not {encoding} text ({error}). Pass encoding=.") from None
    except csv.Error as error:
        raise FileError("csv_file", path, f"{error}.", f"line {reader.line_num}") from None
    if not rows:
        raise FileError("csv_file", path, f"has no rows ({path.stat().st_size:,} bytes).")
    table = np.array(rows, np.float64)
    return _table("csv_file", path, table, [names[i] for i in picked], target, dtype, target_dtype)


def _number(path: Path, line: int, column: str, field: str) -> float:
    try:
        return float(field) if field.strip() else math.nan
    except ValueError:
        raise FileError(
            "csv_file",
            path,
            f"got {field[:80]!r}; expected a number. Leave the column out with columns=, or pass header=False or delimiter= "
            "if the file is of another form.",
            f"line {line}, column {column[:80]!r}",
        ) from None


def _pick(
    what: str, path: Path, names: list[str], target: str | int | None, columns: Sequence[str | int] | None
) -> list[int]:
    """Numbers of the feature columns, then of the target."""

    def number(column: str | int) -> int:
        if isinstance(column, int) and -len(names) <= column < len(names):
            return column % len(names)
        if column in names:
            return names.index(str(column))
        raise FileError(what, path, f"has no column {column!r}. Expected one of {str(names)[:500]}.")

    last = [] if target is None else [number(target)]
    features = [i for i in range(len(names)) if i not in last] if columns is None else [number(c) for c in columns]
    if not features:
        reason = f"no feature columns are left. Got columns {str(names)[:500]} and target {target!r}."
        raise FileError(what, path, reason)
    return features + last


def _table(
    what: str, path: Path, table: np.ndarray, names: list[str], target: str | int | None, dtype: Any, target_dtype: Any
) -> TableDataset:
    if target is None:
        return TableDataset([_cast(what, path, table, dtype, "the features")], names)
    goal = table[:, -1]
    if target_dtype is None:
        whole = np.isfinite(goal).all() and (goal == np.rint(goal)).all() and (np.abs(goal) < 2.0**63).all()
        target_dtype = np.int64 if whole else np.float32
    features = _cast(what, path, table[:, :-1], dtype, "the features")
    return TableDataset([features, _cast(what, path, goal, target_dtype, f"the target {names[-1]!r}")], names[:-1])


def _cast(what: str, path: Path, values: np.ndarray, dtype: Any, which: str) -> np.ndarray:
    """`values` as `dtype`; integers only of numbers that they can hold."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        if not np.isfinite(values).all():
            raise FileError(what, path, f"there are empty fields in {which}; they cannot be {kind.name}.")
        if values.size and not (np.iinfo(kind).min <= values.min() and values.max() < float(np.iinfo(kind).max) + 1):
            raise FileError(what, path, f"{which} do not fit into {kind.name}: {values.min()} to {values.max()}.")
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large for a short float becomes inf
        return values.astype(kind)


class NumpyDataset(Dataset):
    """Rows of ``.npy`` files, read from disk as they are needed.

    The files are mapped, not loaded; worker processes map them again instead of getting a copy.
    """

    def __init__(self, *paths: PathLike) -> None:
        if not paths:
            raise ValueError("NumpyDataset: no files. Expected at least one .npy file.")
        self.paths = [existing("NumpyDataset", path) for path in paths]
        self._arrays = [read_npy("NumpyDataset", path, mmap=True) for path in self.paths]
        if any(a.ndim == 0 for a in self._arrays) or len({len(a) for a in self._arrays}) != 1:
            shapes = {str(p): a.shape for p, a in zip(self.paths, self._arrays, strict=True)}
            raise ValueError(
                f"NumpyDataset: the files differ in length. Got {shapes}; expected equal first dimensions."
            )

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        index = int(check_indices("NumpyDataset", np.asarray([index]), len(self))[0])
        return tuple(np.asarray(a[index]) for a in self._arrays)

    def gather(self, indices: np.ndarray) -> Any:
        indices = check_indices("NumpyDataset", indices, len(self))
        return tuple(Rows(a, indices) for a in self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyDataset, tuple(self.paths)


def numpy_file(path: PathLike, keys: Sequence[str] | None = None, max_bytes: int | None = None) -> TensorDataset:
    """The arrays of a ``.npy`` or ``.npz`` file as a dataset, loaded into memory. Pickled objects are refused.

    Args:
        keys: which arrays of an ``.npz`` file, in which order; by default all, in the file's order.
        max_bytes: how much an ``.npz`` file may unpack to; by default 64 MiB, or a hundred times its size.

    Raises:
        FileError: the file is damaged, or unpacks to more than is allowed.
        KeyError: it has no array of a name in `keys`.
    """
    path = existing("numpy_file", path)
    with open(path, "rb") as file:
        packed = file.read(2) == b"PK"
    arrays = read_npz("numpy_file", path, max_bytes) if packed else {"": read_npy("numpy_file", path)}
    missing = [key for key in keys or () if packed and key not in arrays]
    if missing:
        raise KeyError(f"numpy_file: {path} has no array {missing[0]!r}. Found {list(arrays)}.")
    chosen = [arrays[key] for key in (arrays if keys is None or not packed else keys)]
    if len({a.shape[:1] for a in chosen}) != 1 or not chosen[0].ndim:
        reason = f"expected arrays of one length. Got shapes {[a.shape for a in chosen]}; choose some with keys=."
        raise FileError("numpy_file", path, reason)
    return TensorDataset(*chosen)


def arrow_file(
    path: PathLike,
    target: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    *,
    dtype: Any = np.float32,
    target_dtype: Any = None,
    max_bytes: int | None = None,
) -> TableDataset:
    """A table of numbers in a Parquet, Arrow (IPC) or Feather file, like `csv_file`. Needs pyarrow.

    Args:
        max_bytes: how much the file may unpack to; by default 64 MiB, or a hundred times its size.

    Raises:
        FileError: the file is damaged, has columns that are no numbers, or unpacks to more than is allowed.
    """
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "arrow_file: reading Arrow and Parquet files needs pyarrow. Install it with `pip install weft[data]` or "
            "`pip install pyarrow`."
        ) from None
    path = existing("arrow_file", path)
    with open(path, "rb") as stream:
        magic = stream.read(6)
    size = path.stat().st_size
    limit = unpacked_limit(size, max_bytes)
    try:
        if magic[:4] == b"PAR1":
            table = _read_parquet(pyarrow.parquet.ParquetFile(path), limit)
        else:
            with pyarrow.OSFile(str(path)) as source:
                opened = pyarrow.ipc.open_file(source) if magic == b"ARROW1" else pyarrow.ipc.open_stream(source)
                table = _read_batches(pyarrow, opened, magic == b"ARROW1", limit)
        table.validate(full=True)
    except OverflowError as error:
        raise FileError("arrow_file", path, str(error)) from None
    except Exception as error:  # a library's error, of which it has many kinds
        raise FileError(
            "arrow_file",
            path,
            f"cannot be read ({size:,} bytes, first bytes {magic!r}): {str(error)[:500]}. "
            "Expected a Parquet, Arrow or Feather file.",
        ) from None
    names = list(table.column_names)
    picked = _pick("arrow_file", path, names, target, columns)
    values = []
    for i in picked:
        column = table.column(i)
        kind = column.type
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
            reason = f"got {kind}; expected numbers. Leave it out with columns=."
            raise FileError("arrow_file", path, reason, f"column {names[i][:80]!r}")
        values.append(np.asarray(column.to_numpy(), np.float64))
    if not len(table):
        raise FileError("arrow_file", path, "has no rows.")
    stacked = np.stack(values, axis=1)
    return _table("arrow_file", path, stacked, [names[i] for i in picked], target, dtype, target_dtype)


def _read_parquet(file: Any, limit: int) -> Any:
    """The table of a Parquet file, whose footer says how large it is: repeated values take almost no space in the file."""
    facts = file.metadata
    if (needed := facts.num_rows * max(1, facts.num_columns) * 8) > limit:
        raise OverflowError(too_large(needed, limit))
    return file.read()


def _read_batches(pyarrow: Any, opened: Any, has_index: bool, limit: int) -> Any:
    """The table of an Arrow file or stream, batch by batch, since only a batch says how large it is."""
    batches = []
    total = 0
    source = (opened.get_batch(i) for i in range(opened.num_record_batches)) if has_index else opened
    for batch in source:
        total += batch.nbytes
        if total > limit:
            raise OverflowError(too_large(total, limit))
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, opened.schema)
