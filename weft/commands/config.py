"""Training configurations: TOML files whose errors are reported with file, line and key.

A configuration has the tables `[model]`, `[data]`, `[optimizer]`, `[schedule]` (optional) and `[train]`. `name` in
the first four selects a constructor; the other keys are its arguments, which are validated against its signature.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

RECIPES = Path(__file__).parent / "recipes"
SECTIONS = ("model", "data", "optimizer", "schedule", "train")
REQUIRED = ("model", "data")
MAX_BYTES = 1 << 20
MAX_VALUE_LINES = 100  # lines of one value: beyond that, line numbers in errors may be wrong


class ConfigError(ValueError):
    """An error in a configuration: `file:line: key: what is wrong`."""


@dataclasses.dataclass
class Config:
    """A parsed configuration. `tables` holds plain values; `fail` reports an error at the line of a key."""

    name: str
    """the name of the run: the recipe, or the file name without its suffix"""
    path: str
    tables: dict[str, dict[str, Any]]
    lines: dict[tuple[str, ...], int]
    options: dict[tuple[str, ...], str] = dataclasses.field(default_factory=dict)
    """keys set on the command line, with the option"""

    def __getitem__(self, section: str) -> dict[str, Any]:
        return self.tables.get(section, {})

    def fail(self, key: tuple[str, ...], problem: str) -> NoReturn:
        """Raise a `ConfigError` at `key`, a path such as `("model", "layers")`."""
        if key in self.options:
            raise ConfigError(f"{self.options[key]}: {problem}")
        line = next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None)
        place = self.path if line is None else f"{self.path}:{line}"
        raise ConfigError(f"{place}: {'.'.join(key)}: {problem}")

    def choose(self, section: str, choices: Mapping[str, Callable[..., Any]], default: str | None = None) -> str:
        """The `name` of a section, which must be among `choices`."""
        name = self[section].get("name", default)
        if name is None:
            self.fail((section, "name"), f"is missing. Expected one of {listed(choices)}.")
        if not isinstance(name, str):
            self.fail((section, "name"), f"expected a string. Got {name!r}.")
        if name not in choices:
            self.fail((section, "name"), f"there is no {name!r}.{suggestion(name, choices)}")
        return name

    def arguments(self, section: str, function: Callable[..., Any], without: Iterable[str] = ()) -> dict[str, Any]:
        """The keys of a section as arguments of `function`, checked against its signature.

        Args:
            without: parameters that a configuration may not set.
        """
        hidden = {"self", *without}
        parameters = {name: p for name, p in inspect.signature(function).parameters.items() if name not in hidden}
        hints = _hints(function)
        found = {key: value for key, value in self[section].items() if key != "name"}
        free = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for key, value in found.items():
            if key not in parameters and not free:
                known = [n for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
                self.fail((section, key), f"unknown key.{suggestion(key, known)}")
            if key in hints:
                found[key] = self.check((section, key), value, hints[key])
        return found

    def check(self, key: tuple[str, ...], value: Any, hint: Any) -> Any:
        """`value` if it has the type that `hint` says (an integer may stand for a float), else an error."""
        fitted = fit(value, hint)
        if fitted is MISFIT:
            self.fail(key, f"expected {type_name(hint)}. Got {value!r}.")
        return fitted

    def override(self, section: str, key: str, value: Any, option: str) -> None:
        """Override a value by a command-line option."""
        self.tables.setdefault(section, {})[key] = value
        self.options[section, key] = option

    def with_section(self, section: str, content: dict[str, Any]) -> Config:
        """The same configuration with other content in a section."""
        return dataclasses.replace(self, tables={**self.tables, section: content})


def load_config(target: str) -> Config:
    """The configuration called `target`: a recipe that ships with Weft, or a path to a TOML file."""
    names = recipes()
    path = Path(target)
    if target in names:
        path = names[target]
    elif not path.is_file():
        if path.suffix == ".toml" or "/" in target:
            raise ConfigError(f"{target}: there is no such file.")
        raise ConfigError(f"{target}: neither a recipe nor a file.{suggestion(target, names)}")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: it has more than {MAX_BYTES:,} bytes, too many for a configuration.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}.") from None
    return parse(text, target if target in names else str(path), path.stem)


def recipes() -> dict[str, Path]:
    """The configurations that ship with Weft, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.toml"))}


def parse(text: str, path: str, name: str) -> Config:
    """The configuration in `text`, its tables checked."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line = place[1] if place else str(len(text.splitlines()))
        message = str(error).partition(" (at ")[0]
        raise ConfigError(f"{path}:{line}: {_source(text, int(line))}: {message[:1].lower()}{message[1:]}.") from None
    except (RecursionError, ValueError) as error:  # nested brackets; an integer or a date that Python refuses
        reason = "values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{path}: {reason}.") from None
    config = Config(name, path, tables, key_lines(text))
    for section, content in tables.items():
        if section not in SECTIONS:
            config.fail((section,), f"unknown table.{suggestion(section, SECTIONS)}")
        if not isinstance(content, dict):
            config.fail((section,), f"expected a table `[{section}]`. Got {content!r}.")
    for section in REQUIRED:
        if section not in tables:
            raise ConfigError(f"{path}: the table [{section}] is missing. Expected {listed(REQUIRED)} at least.")
    return config


def _source(text: str, line: int) -> str:
    lines = text.splitlines()
    return f"`{lines[line - 1].strip()}`" if 0 < line <= len(lines) else "end of the file"


_HEADER = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(#.*)?$")
_PAIR = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=(.*)""")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every table and key of a valid TOML text, which the parser does not report.

    >>> key_lines("[model]\\nname = 'mlp'\\n")
    {('model',): 1, ('model', 'name'): 2}
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    pending = ""  # an unfinished multi-line value
    for number, line in enumerate(text.splitlines(), 1):
        if pending:
            pending += "\n" + line
        elif header := _HEADER.match(line):
            table = _path(header[1])
            lines.setdefault(table, number)
        elif pair := _PAIR.match(line):
            lines.setdefault((*table, *_path(pair[1])), number)
            pending = pair[2]
        if pending and (pending.count("\n") > MAX_VALUE_LINES or _complete(pending)):
            pending = ""
    return lines


def _path(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _complete(value: str) -> bool:
    try:
        tomllib.loads(f"x ={value}")
    except (ValueError, RecursionError):
        return False
    return True


# Types -------------------------------------------------------------------------------------------------------------------

MISFIT = object()


def fit(value: Any, hint: Any) -> Any:
    """`value` converted to the type `hint`, or MISFIT. Types that TOML cannot express accept everything."""
    if hint is Any or isinstance(hint, typing.TypeVar):
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = [fit(value, option) for option in arguments if option is not type(None)]
        return next((option for option in options if option is not MISFIT), MISFIT)
    if origin is typing.Literal:
        return value if value in arguments else MISFIT
    if hint is float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return MISFIT
        return float(value) if isinstance(value, float) or abs(value) < 1 << 1000 else MISFIT
    if hint is int:
        return value if isinstance(value, int) and not isinstance(value, bool) else MISFIT
    if hint in (bool, str):
        return value if isinstance(value, hint) else MISFIT
    if origin in (tuple, list) or origin is not None and _is_sequence(origin):
        if not isinstance(value, list):
            return MISFIT
        item = arguments[0] if arguments and (origin is not tuple or arguments[-1] is ...) else None
        wanted = [item] * len(value) if item is not None else list(arguments)
        if len(wanted) != len(value):
            return MISFIT
        items = [fit(v, h) for v, h in zip(value, wanted)]
        if any(v is MISFIT for v in items):
            return MISFIT
        return tuple(items) if origin is not list else items
    return value


def _is_sequence(origin: Any) -> bool:
    import collections.abc

    return origin in (collections.abc.Sequence, collections.abc.Iterable)


def type_name(hint: Any) -> str:
    """A type in words a user of TOML knows."""
    words = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
    if hint in words:
        return words[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_name(option) for option in arguments if option is not type(None)))
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(a) for a in arguments)
    if origin is not None and arguments:
        plural = {int: "integers", float: "numbers", bool: "booleans", str: "strings"}
        return f"a list of {plural.get(arguments[0], 'values')}"
    return getattr(hint, "__name__", str(hint))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError):  # a hint that only a type checker can resolve
        return {}


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def suggestion(name: str, names: Iterable[str]) -> str:
    """ " Did you mean …?" and what there is."""
    choices = sorted(names)
    close = difflib.get_close_matches(name, choices, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{hint} Expected one of {', '.join(choices)}."
