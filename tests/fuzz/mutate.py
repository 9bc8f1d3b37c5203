"""Damage for files: bytes, JSON and text changed at random, by a generator that is given."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    2**15 - 1,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**64 - 1,
)
ODD = (
    None, True, False, 0, 1, -1, 2, 7, 64, 65, 2**31, 2**53, 2**63, 2**70, -(2**70), 10**400, 0.5, 1e308, "", "x",
    "../../etc/passwd",
    "\0", "é" * 50, "__import__", "float32", "int64", "object", [], [[]], {}, {"": None}, {"float": "inf"}, {"array": "x"},
    {"symbol": "n"}, {"tuple": []}, {"place": 0}, {"place": 99}, {"attr": None}, [0, 0], [99, 0], [-1, 0], [0, 99],
)  # fmt: skip
WORDS = (
    b"[", b"]", b"{", b"}", b"=", b",", b"\n", b'"', b"'", b"#", b".", b"name", b"model", b"[[a]]", b"[a.b]", b"1e999", b"nan",
    b"-", b"0x", b"true", b"1979-05-27T07:32:00Z", b'"""', b"\xff", b"\0", b"[" * 2000, b"{a=" * 500, b"9" * 5000, b"x" * 200_000,
    b"a.b.c = 1\n", b"1_000", b";", b"\r", b"\\u0000", b'""', b"inf", b" ",
)  # fmt: skip


def some_bytes(data: bytes, other: bytes, random: Random) -> bytes:
    """`data` with a few changes; `other` is a second file to take pieces from."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        _change(made, other, random)
    return bytes(made)


def _change(made: bytearray, other: bytes, random: Random) -> None:
    at = random.randrange(len(made) + 1)
    # headers are short and decide the most
    at = min(at, random.randrange(64)) if random.random() < 0.4 else at
    kind = random.randrange(8)
    if kind == 0 and at < len(made):
        made[at] ^= 1 << random.randrange(8)
    elif kind == 1 and at < len(made):
        made[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    elif kind == 2:
        del made[at : at + random.choice((1, 2, 4, 16, 256))]
    elif kind == 3:
        made[at:at] = made[at : at + random.choice((1, 4, 16, 256))]
    elif kind == 4:
        del made[at:]
    elif kind == 5:
        size, order = random.choice((1, 2, 4, 8)), random.choice(("little", "big"))
        value = random.choice(NUMBERS) & ((1 << 8 * size) - 1)
        made[at : at + size] = value.to_bytes(size, order)  # type: ignore[arg-type]
    elif kind == 6 and other:
        start = random.randrange(len(other))
        made[at : at + random.choice((0, 16))] = other[start : start + random.choice((4, 16, 64))]
    else:
        made[at:at] = bytes(random.randrange(256) for _ in range(random.choice((1, 4, 64))))


def some_text(data: bytes, other: bytes, random: Random) -> bytes:
    """Text with words put in, lines moved, or bytes changed."""
    kind = random.randrange(4)
    if kind == 0:
        return some_bytes(data, other, random)
    if kind == 1:
        lines = data.split(b"\n")
        random.shuffle(lines)
        return b"\n".join(lines[: random.randrange(len(lines) + 1)])
    for _ in range(random.choice((1, 2, 4))):
        at = random.randrange(len(data) + 1)
        data = data[:at] + random.choice(WORDS) + data[at + random.choice((0, 1, 5)) :]
    return data


def some_json(value: Any, random: Random) -> Any:
    """JSON with a few places changed: values replaced, taken away, doubled, exchanged, nested."""
    made = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        places = list(_places(made))
        if not places:
            return random.choice(ODD)
        holder, key = random.choice(places)
        kind = random.randrange(6)
        if kind in (0, 1):
            holder[key] = copy.deepcopy(random.choice(ODD))
        elif kind == 2:
            del holder[key]
        elif kind == 3:
            source, name = random.choice(places)
            if isinstance(source, dict) and name in source or isinstance(source, list) and name < len(source):
                holder[key] = copy.deepcopy(source[name])
        elif kind == 4 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
            holder[key] += random.choice((-2, -1, 1, 2, 1000))
        elif random.random() < 0.1:
            holder[key] = _nested(holder[key], random.choice((5, 100, 700)))
    return made


def _places(value: Any) -> Any:
    """Every (container, key) of a JSON value."""
    todo = [value]
    while todo:
        holder = todo.pop()
        items = (
            list(holder.items())
            if isinstance(holder, dict)
            else list(enumerate(holder))
            if isinstance(holder, list)
            else []
        )
        for key, inner in items:
            yield holder, key
            if isinstance(inner, (dict, list)):
                todo.append(inner)


def _nested(value: Any, depth: int) -> Any:
    for i in range(depth):
        value = [value] if i % 2 else {"tuple": [value]}
    return value


def json_text(data: bytes, other: bytes, random: Random) -> bytes:
    """A JSON file, changed as JSON or (now and then) as bytes."""
    if random.random() < 0.2:
        return some_bytes(data, other, random)
    try:
        return json.dumps(some_json(json.loads(data), random)).encode()
    except RecursionError:
        return some_bytes(data, other, random)


def rewired(data: bytes, other: bytes, random: Random) -> bytes:
    """A graph's program with ops, inputs or attributes exchanged, half of them still of the right form: these load."""
    if random.random() < 0.3:
        return json_text(data, other, random)
    program = json.loads(data)
    nodes = program["graph"]["nodes"]
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(nodes))
        node, kind = nodes[at], random.randrange(3)
        if kind == 0 and node["attrs"]:
            node["attrs"][random.randrange(len(node["attrs"]))] = copy.deepcopy(random.choice(ODD))
        elif kind == 1 and node["inputs"] and at:
            node["inputs"][random.randrange(len(node["inputs"]))] = [random.randrange(at), 0]
        else:
            node["op"] = copy.deepcopy(random.choice(nodes)["op"])
        if random.random() < 0.7:
            for output in node["outputs"]:
                output["shape"] = None  # whatever comes out is welcome
    return json.dumps(program).encode()


def safetensors_header(data: bytes, other: bytes, random: Random) -> bytes:
    """A safetensors file whose header is changed as JSON, with the right length before it."""
    length = int.from_bytes(data[:8], "little")
    header = json_text(data[8 : 8 + length], other, random)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


Mutator = Callable[[bytes, bytes, Random], bytes]
