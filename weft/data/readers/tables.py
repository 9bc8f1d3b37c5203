"""Tables and arrays: CSV, NumPy and Arrow or Parquet files."""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
        ValueError: a field is not a number or a line has another number of fields; the message has file and line.
    """
    path = existing("csv_file", path)
    names: list[str] = []
    rows: list[list[float]] = []
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
                    raise ValueError(
                        f"csv_file: {path}, line {reader.line_num}: got {len(line)} fields; expected {len(names)}."
                    )
                rows.append([_number(path, reader.line_num, names[i], line[i]) for i in picked])
    except UnicodeDecodeError as error:
        raise ValueError(f"csv_file: {path} is not {encoding} text ({error}). Pass encoding=.") from None
    except csv.Error as error:
        raise ValueError(f"csv_file: {path}, line {reader.line_num}: {error}.") from None
    if not rows:
        raise ValueError(f"csv_file: {path} has no rows ({path.stat().st_size:,} bytes).")
    table = np.array(rows, np.float64)
    return _table("csv_file", path, table, [names[i] for i in picked], target, dtype, target_dtype)


def _number(path: Path, line: int, column: str, field: str) -> float:
    try:
        return float(field) if field.strip() else math.nan
    except ValueError:
        raise ValueError(
            f"csv_file: {path}, line {line}, column {column!r}: got {field!r}; expected a number. "
            "Leave the column out with columns=, or pass header=False or delimiter= if the file is of another form."
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
        raise ValueError(f"{what}: {path} has no column {column!r}. Expected one of {names}.")

    last = [] if target is None else [number(target)]
    features = (
        [i for i in range(len(names)) if i not in last] if columns is None else [number(c) for c in columns]
    )
    if not features:
        raise ValueError(
            f"{what}: no feature columns are left in {path}. Got columns {names} and target {target!r}."
        )
    return features + last


def _table(
    what: str,
    path: Path,
    table: np.ndarray,
    names: list[str],
    target: str | int | None,
    dtype: Any,
    target_dtype: Any,
) -> TableDataset:
    if target is None:
        return TableDataset([table.astype(dtype)], names)
    goal = table[:, -1]
    if target_dtype is None:
        target_dtype = np.int64 if np.isfinite(goal).all() and (goal == np.rint(goal)).all() else np.float32
    elif np.dtype(target_dtype).kind in "iu" and not np.isfinite(goal).all():
        raise ValueError(
            f"{what}: {path} has empty fields in the target {names[-1]!r}; they cannot be {target_dtype}."
        )
    return TableDataset([table[:, :-1].astype(dtype), goal.astype(target_dtype)], names[:-1])


class NumpyDataset(Dataset):
    """Rows of ``.npy`` files, read from disk as they are needed.

    The files are mapped, not loaded; worker processes map them anew instead of getting a copy.
    """

    def __init__(self, *paths: PathLike) -> None:
        if not paths:
            raise ValueError("NumpyDataset: no files. Expected at least one .npy file.")
        self.paths = [existing("NumpyDataset", path) for path in paths]
        self._arrays = [_load_npy("NumpyDataset", path, mmap=True) for path in self.paths]
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


def numpy_file(path: PathLike, keys: Sequence[str] | None = None) -> TensorDataset:
    """The arrays of a ``.npy`` or ``.npz`` file as a dataset, loaded into memory. Pickled objects are refused.

    Args:
        keys: which arrays of an ``.npz`` file, in which order; by default all, in the file's order.
    """
    path = existing("numpy_file", path)
    if not zipfile.is_zipfile(path):
        return TensorDataset(_load_npy("numpy_file", path, mmap=False))
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [key for key in keys or () if key not in archive.files]
            if missing:
                raise KeyError(f"numpy_file: {path} has no array {missing[0]!r}. Found {archive.files}.")
            arrays = [archive[key] for key in (archive.files if keys is None else keys)]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"numpy_file: cannot read {path} ({path.stat().st_size:,} bytes): {error}."
        ) from None
    return TensorDataset(*arrays)


def _load_npy(what: str, path: Path, mmap: bool) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{what}: cannot read {path} ({path.stat().st_size:,} bytes) as .npy: {error}."
        ) from None
    return array


def arrow_file(
    path: PathLike,
    target: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    *,
    dtype: Any = np.float32,
    target_dtype: Any = None,
) -> TableDataset:
    """A table of numbers in a Parquet, Arrow (IPC) or Feather file, like `csv_file`. Needs pyarrow."""
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
    try:
        if magic[:4] == b"PAR1":
            table = pyarrow.parquet.read_table(path)
        elif magic == b"ARROW1":
            with pyarrow.OSFile(str(path)) as source:
                table = pyarrow.ipc.open_file(source).read_all()
        else:
            with pyarrow.OSFile(str(path)) as source:
                table = pyarrow.ipc.open_stream(source).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"arrow_file: cannot read {path} ({path.stat().st_size:,} bytes, first bytes {magic!r}): {error}. "
            "Expected a Parquet, Arrow or Feather file."
        ) from None
    names = list(table.column_names)
    picked = _pick("arrow_file", path, names, target, columns)
    values = []
    for i in picked:
        column = table.column(i)
        kind = column.type
        if not (
            pyarrow.types.is_integer(kind)
            or pyarrow.types.is_floating(kind)
            or pyarrow.types.is_boolean(kind)
        ):
            raise ValueError(
                f"arrow_file: {path}, column {names[i]!r}: got {kind}; expected numbers. Leave it out with columns=."
            )
        values.append(np.asarray(column.to_numpy(), np.float64))
    if not len(table):
        raise ValueError(f"arrow_file: {path} has no rows.")
    stacked = np.stack(values, axis=1)
    return _table("arrow_file", path, stacked, [names[i] for i in picked], target, dtype, target_dtype)
