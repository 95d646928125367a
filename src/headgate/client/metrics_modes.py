"""What is told of each column of a data file: `write.metadata.metrics.*`, read as Java reads it. Pure.

A mode is a number: how many characters or bytes a bound may have, or one of the three below.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.errors import BadInput

NONE, COUNTS, FULL = -1, 0, sys.maxsize
TRUNCATE_LENGTH = 16  # Java's default is truncate(16)
_DEFAULT = "write.metadata.metrics.default"
_COLUMN = "write.metadata.metrics.column."
_INFERRED_MAX = "write.metadata.metrics.max-inferred-column-defaults"
_INFERRED_MAX_DEFAULT = 100
_TRUNCATE = re.compile(r"truncate\((\d{1,9})\)")
_KEEP_ORDER = re.compile(r"identity|truncate\[.*|year|month|day|hour")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without columns in it. One that is repeated (in a list or map) has no counts and no bounds."""

    id: int
    name: str  # with the names of the columns around it
    type: str
    repeated: bool


def leaves_of(schema: Mapping[str, Any]) -> Iterator[Leaf]:
    """All leaf columns: those of a struct come before those inside its columns, which is how Java counts them."""
    yield from _in_struct(schema["fields"], "", repeated=False)


def modes_of(metadata: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[int, int]:
    """The mode of every leaf column by its id."""
    properties = metadata.get("properties", {})
    leaves = tuple(leaves_of(schema))
    said = properties.get(_DEFAULT)
    default = TRUNCATE_LENGTH if said is None else _parse(said, _DEFAULT)
    modes = {leaf.id: default for leaf in leaves}
    if said is None and len(leaves) > (most := _inferred_max(properties)):
        modes |= {leaf.id: NONE for leaf in leaves[most:]}
    for id_ in _sorted_by(metadata):
        if id_ in modes and modes[id_] in (NONE, COUNTS):
            modes[id_] = TRUNCATE_LENGTH
    for leaf in leaves:
        if (name := f"{_COLUMN}{leaf.name}") in properties:
            modes[leaf.id] = _parse(properties[name], name)
    return modes


def _in_struct(fields: Any, prefix: str, *, repeated: bool) -> Iterator[Leaf]:
    for field in fields:
        if isinstance(field["type"], str):
            yield Leaf(field["id"], f"{prefix}{field['name']}", field["type"], repeated)
    for field in fields:
        if not isinstance(field["type"], str):
            yield from _inside(field["type"], f"{prefix}{field['name']}", repeated=repeated)


def _inside(type_: Any, name: str, *, repeated: bool) -> Iterator[Leaf]:
    if type_["type"] == "struct":
        yield from _in_struct(type_["fields"], f"{name}.", repeated=repeated)
        return
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    fields = [{"id": type_[f"{part}-id"], "name": part, "type": type_[part]} for part in parts]
    yield from _in_struct(fields, f"{name}.", repeated=True)


def _sorted_by(metadata: Mapping[str, Any]) -> Iterator[int]:
    """The columns that rows are sorted by in an order that bounds show."""
    wanted = metadata.get("default-sort-order-id", 0)
    for order in metadata.get("sort-orders", ()):
        if order["order-id"] == wanted:
            for field in order["fields"]:
                if _KEEP_ORDER.fullmatch(field["transform"]):
                    yield field["source-id"]


def _inferred_max(properties: Mapping[str, str]) -> int:
    text = properties.get(_INFERRED_MAX, str(_INFERRED_MAX_DEFAULT))
    if not text.isdecimal():
        raise BadInput(f"{_INFERRED_MAX}: expected a whole number, got {text[:40]!r}", field=_INFERRED_MAX)
    return int(text)


def _parse(text: str, name: str) -> int:
    mode = text.strip().lower()
    if mode in ("none", "counts", "full"):
        return {"none": NONE, "counts": COUNTS, "full": FULL}[mode]
    if (found := _TRUNCATE.fullmatch(mode)) and int(found[1]) > 0:
        return int(found[1])
    raise BadInput(f"{name}: expected none, counts, full or truncate(n), got {text[:40]!r}", field=name)
