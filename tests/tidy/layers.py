"""Who may import whom, as a table, and the check that reads it. See STYLE.md, section 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

# Imports go down this table, never up and never to a neighbour. A room that is not here is a finding.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "core": frozenset({"errors"}),
    "format": frozenset({"errors", "core"}),
    "store": frozenset({"errors", "core", "format"}),
    "files": frozenset({"errors", "core", "format"}),
    "client": frozenset({"errors", "core", "format", "files"}),
    "library": frozenset({"errors", "core", "format", "client"}),
    "sim": frozenset({"errors", "core", "format", "store", "files"}),
    "spark": frozenset({"errors", "core", "format", "client", "library"}),
    "service": frozenset({"errors", "core", "format", "store", "files"}),
    "web": frozenset({"errors", "core", "format", "service"}),
    "cli": frozenset(
        {"errors", "core", "format", "store", "files", "client", "library", "sim", "service", "spark", "web"}
    ),
}

_PURE_STDLIB = frozenset({
    "__future__", "abc", "array", "base64", "binascii", "bisect", "collections", "collections.abc",
    "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib",
    "heapq", "itertools", "json", "math", "operator", "re", "string", "struct", "types", "typing",
    "unicodedata", "urllib.parse", "uuid", "zlib",
})  # fmt: skip
# PyIceberg's values. Its `io`, `catalog`, `manifest` and `table` packages open files, so they are not here.
_PURE_LIBRARIES = frozenset({
    "msgspec", "pydantic", "pyiceberg.conversions", "pyiceberg.exceptions", "pyiceberg.expressions",
    "pyiceberg.expressions.literals", "pyiceberg.expressions.visitors", "pyiceberg.partitioning",
    "pyiceberg.schema", "pyiceberg.transforms", "pyiceberg.typedef", "pyiceberg.types",
    "pyiceberg.utils.datetime", "pyiceberg.utils.decimal", "pyiceberg.utils.truncate",
})  # fmt: skip
_CODECS = frozenset({
    "bz2", "fastavro", "gzip", "io", "lzma", "orjson", "pyroaring", "zstandard",
})  # fmt: skip

# Rooms without I/O, clock, random, threads or logging: all they may import from outside.
PURE_ROOMS: dict[str, frozenset[str]] = {
    "errors": _PURE_STDLIB,
    "core": _PURE_STDLIB | _PURE_LIBRARIES,
    "format": _PURE_STDLIB | _PURE_LIBRARIES | _CODECS,
}
# Parts of pure modules that are not: the clock, fresh ids, files.
_IMPURE_NAMES: dict[str, frozenset[str]] = {
    "datetime": frozenset({"now", "utcnow", "today"}),
    "date": frozenset({"today"}),
    "uuid": frozenset({"uuid1", "uuid3", "uuid4", "uuid5", "uuid6", "uuid7", "uuid8", "getnode"}),
    "io": frozenset({"open", "FileIO", "open_code"}),
    "gzip": frozenset({"open"}),
    "bz2": frozenset({"open"}),
    "lzma": frozenset({"open"}),
}
_IMPURE_BUILTINS = frozenset({"open", "input", "breakpoint", "__import__"})
# A heavy library that one room alone may import.
_ONLY_IN = {"pyspark": "spark", "py4j": "spark"}


def room_of(path: PurePosixPath) -> str:
    """`src/headgate/core/plan.py` is in `core`; `src/headgate/errors.py` is `errors`; the top is ''."""
    inside = path.relative_to("src/headgate")
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem.removeprefix("__init__")


def find_layer_breaches(path: PurePosixPath, tree: ast.Module) -> Iterator[str]:
    """Imports that go up, sideways, or out of a pure room."""
    room = room_of(path)
    if room == "":
        return  # the top exports what it likes
    if room not in MAY_IMPORT:
        yield f"{path}: the room {room!r} is not in the table of layers"
        return
    for line, module, name in _imports(path, tree):
        where = f"{path}:{line}"
        if module.split(".")[0] == "headgate":
            target = _room_imported(module, name)
            if target not in {room, ""} | MAY_IMPORT[room]:
                yield f"{where}: {room} may not import {target}"
        else:
            yield from (f"{where}: {breach}" for breach in _outside_breaches(room, module, name))


def find_impure_calls(path: PurePosixPath, tree: ast.Module) -> Iterator[str]:
    """Clocks, fresh ids and files reached through modules that a pure room may import."""
    if room_of(path) not in PURE_ROOMS:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if node.attr in _IMPURE_NAMES.get(name, ()):
                yield f"{path}:{node.lineno}: {name}.{node.attr} in a pure room"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in _IMPURE_BUILTINS:
            yield f"{path}:{node.lineno}: {ast.unparse(node.func)}() in a pure room"


def _outside_breaches(room: str, module: str, name: str) -> Iterator[str]:
    top = module.split(".")[0]
    if _ONLY_IN.get(top, room) != room:
        yield f"only {_ONLY_IN[top]} may import {top}"
    allowed = PURE_ROOMS.get(room)
    if allowed is not None and module not in allowed and f"{module}.{name}" not in allowed:
        yield f"{room} is pure and may not import {module}"
    elif allowed is not None and name in _IMPURE_NAMES.get(module, ()):
        yield f"{room} is pure and may not import {module}.{name}"


def _imports(path: PurePosixPath, tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = path.relative_to("src").parts[: -node.level]
                module = ".".join((*package, *([module] if module else [])))
            for alias in node.names:
                yield node.lineno, module, alias.name


def _room_imported(module: str, name: str) -> str:
    parts = module.split(".")
    if len(parts) > 1:
        return parts[1]
    return "" if name.startswith("__") else name  # `from headgate import __version__` is of no room
