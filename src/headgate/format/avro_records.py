"""Avro records: a writer's schema and the fields we want, compiled into one function over bytes.

Fields are found by Iceberg's field id, never by name, and what is not wanted is skipped without making a
value. The schema is as hostile as the bytes: depth and size are bounded, records cannot refer to records
(no recursion, no exponential growth), and list items take at least one byte each, so that a declared count
is checked by running out of bytes. Decoders raise Corrupt, OverBudget, IndexError or UnicodeDecodeError;
`avro` turns those into errors that name the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.format.avro_values import (
    SCALARS,
    Corrupt,
    Read,
    ReadRecord,
    Skip,
    Step,
    decimal_reader,
    fixed_reader,
    items_reader,
    items_skipper,
    pairs_reader,
    read_null,
    record_reader,
    record_skipper,
    skip_long,
    skip_nothing,
    skip_sized,
    union_reader,
    union_skipper,
    uuid_reader,
    width_skipper,
)

_DEPTH_MAX = 32
_NODES_MAX = 20_000
_FIXED_BYTES_MAX = 1024 * 1024
_DECIMAL_SCALE_MAX = 38


# --- what a caller wants --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of one of these Avro types."""

    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class Items:
    """A list, read as a tuple."""

    item: Scalar | Struct


@dataclass(frozen=True, slots=True)
class Pairs:
    """Iceberg's map with keys that are not strings: a list of two-field records, read as a dict."""

    key: Scalar
    value: Scalar


@dataclass(frozen=True, slots=True)
class Struct:
    """A record, read as a dict by field id. `fields` None: all of its fields, each a scalar."""

    fields: Mapping[int, Want] | None


Want = Scalar | Items | Pairs | Struct

BOOLEAN = Scalar(frozenset({"boolean"}))
LONG = Scalar(frozenset({"int", "long"}))
STRING = Scalar(frozenset({"string"}))
BYTES = Scalar(frozenset({"bytes", "fixed"}))
ANY = Scalar(frozenset({"boolean", "int", "long", "float", "double", "string", "bytes", "fixed"}))


def compile_struct(schema: object, want: Struct) -> ReadRecord:
    """A reader of records of this schema. Raises Corrupt when it cannot give what is wanted."""
    compiler = _Compiler()
    if compiler.size_min(schema, 0) == 0:
        raise Corrupt("a record may take no bytes at all")
    return compiler.read_struct(schema, want)


class _Compiler:
    """Walks one schema; holds the named types seen (only `fixed` and `enum` may be named again)."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, object]] = {}
        self._nodes = 0

    # A first walk bounds the schema and collects names; the later ones rely on it.
    def size_min(self, schema: object, depth: int) -> int:
        """The fewest bytes a value of this schema takes."""
        self._nodes += 1
        if depth > _DEPTH_MAX or self._nodes > _NODES_MAX:
            raise Corrupt("the schema is too deep or too large")
        if isinstance(schema, list):
            for branch in schema:
                self.size_min(branch, depth + 1)
            return 1
        kind, node = self._resolve(schema)
        match kind:
            case "null":
                return 0
            case "record":
                return sum(self.size_min(field["type"], depth + 1) for field in _fields_of(node))
            case "array" | "map":
                if self.size_min(_child(node, kind), depth + 1) == 0 and kind == "array":
                    raise Corrupt("list items that take no bytes")
                return 1
            case "fixed":
                self._name(node)
                return _fixed_size(node)
            case "enum":
                self._name(node)
                return 1
            case _:
                return _WIDTHS.get(kind, 1)

    def read_struct(self, schema: object, want: Struct) -> ReadRecord:
        kind, node = self._resolve(schema)
        if kind != "record":
            raise Corrupt(f"a record was expected, not {kind}")
        steps: list[Step] = []
        seen: set[int] = set()
        for field in _fields_of(node):
            field_id = field.get("field-id")
            wanted = self._wanted(field_id, want)
            if wanted is None or not isinstance(field_id, int):
                steps.append((None, None, self.skip(field["type"])))
                continue
            if field_id in seen:
                raise Corrupt(f"field id {field_id} appears twice")
            seen.add(field_id)
            try:
                steps.append((field_id, self.read(field["type"], wanted), None))
            except Corrupt as error:
                raise Corrupt(f"field {field_id}: {error}") from error
        return record_reader(steps)

    def _wanted(self, field_id: object, want: Struct) -> Want | None:
        if want.fields is None:
            if not isinstance(field_id, int):
                raise Corrupt("a partition field has no field id")
            return ANY
        return want.fields.get(field_id) if isinstance(field_id, int) else None

    def read(self, schema: object, want: Want) -> Read:
        """A reader of what is wanted; a null branch of a union reads as None."""
        if isinstance(schema, list):
            return union_reader([self._read_branch(branch, want) for branch in schema])
        return self._read_branch(schema, want)

    def _read_branch(self, schema: object, want: Want) -> Read:
        kind, node = self._resolve(schema)
        if kind == "null":
            return read_null
        match want:
            case Scalar(types):
                if kind not in types:
                    raise Corrupt(f"type {kind} where {'/'.join(sorted(types))} was expected")
                return _scalar_reader(kind, node)
            case Struct():
                return self.read_struct(schema, want)
            case Items(item):
                if kind != "array":
                    raise Corrupt(f"type {kind} where a list was expected")
                return items_reader(self.read(_child(node, kind), item))
            case Pairs():
                return self._read_pairs(kind, node, want)

    def _read_pairs(self, kind: str, node: Mapping[str, object], want: Pairs) -> Read:
        item_kind, item = self._resolve(_child(node, kind)) if kind == "array" else (kind, node)
        if item_kind != "record" or len(fields := _fields_of(item)) != 2:
            raise Corrupt("a list of key-value records was expected")
        return pairs_reader(self.read(fields[0]["type"], want.key), self.read(fields[1]["type"], want.value))

    def skip(self, schema: object) -> Skip:
        """A function that finds the end of a value without making it."""
        if isinstance(schema, list):
            return union_skipper([self.skip(branch) for branch in schema])
        kind, node = self._resolve(schema)
        match kind:
            case "null":
                return skip_nothing
            case "string" | "bytes":
                return skip_sized
            case "record":
                return record_skipper([self.skip(field["type"]) for field in _fields_of(node)])
            case "array":
                return items_skipper(self.skip(_child(node, kind)))
            case "map":
                return items_skipper(record_skipper([skip_sized, self.skip(_child(node, kind))]))
            case "fixed":
                return width_skipper(_fixed_size(node))
            case "int" | "long" | "enum":
                return skip_long
            case _:
                return width_skipper(_WIDTHS[kind])

    def _resolve(self, schema: object) -> tuple[str, Mapping[str, object]]:
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema, {}
            if (named := self._named.get(schema)) is not None:
                return str(named["type"]), named
            raise Corrupt(f"type {schema[:80]!r} is unknown, or a record named a second time")
        if not isinstance(schema, dict):
            raise Corrupt("a type that is neither a name nor an object")
        kind = schema.get("type")
        if isinstance(kind, dict):  # {"type": {"type": "array", …}}, as some writers nest
            return self._resolve_nested(kind)
        if not isinstance(kind, str) or (kind not in _PRIMITIVES and kind not in _COMPLEX):
            raise Corrupt(f"type {str(kind)[:80]!r} is unknown")
        return kind, schema

    def _resolve_nested(self, schema: dict[str, object]) -> tuple[str, Mapping[str, object]]:
        if isinstance(schema.get("type"), dict):
            raise Corrupt("types nested in types")
        return self._resolve(schema)

    def _name(self, node: Mapping[str, object]) -> None:
        name, space = node.get("name"), node.get("namespace")
        if isinstance(name, str):
            self._named[name] = node
            if isinstance(space, str):
                self._named[f"{space}.{name}"] = node


_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "bytes"})
_COMPLEX = frozenset({"record", "array", "map", "fixed", "enum"})
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}


def _fields_of(node: Mapping[str, object]) -> list[dict[str, object]]:
    fields = node.get("fields")
    if not isinstance(fields, list) or not all(isinstance(f, dict) and "type" in f for f in fields):
        raise Corrupt("a record without a list of fields")
    return fields


def _child(node: Mapping[str, object], kind: str) -> object:
    child = node.get("items" if kind == "array" else "values")
    if child is None:
        raise Corrupt(f"a type {kind} without a type of its items")
    return child


def _fixed_size(node: Mapping[str, object]) -> int:
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _FIXED_BYTES_MAX:
        raise Corrupt("a fixed type without a sane size")
    return size


def _scalar_reader(kind: str, node: Mapping[str, object]) -> Read:
    raw = fixed_reader(_fixed_size(node)) if kind == "fixed" else SCALARS[kind]
    match node.get("logicalType"):
        case "decimal" if kind in ("bytes", "fixed"):
            scale = node.get("scale", 0)
            if not isinstance(scale, int) or not 0 <= scale <= _DECIMAL_SCALE_MAX:
                raise Corrupt("a decimal without a sane scale")
            return decimal_reader(raw, scale)
        case "uuid" if kind in ("string", "fixed"):
            return uuid_reader(raw)
        case _:  # dates and times stay numbers: a datetime cannot hold all that Iceberg can
            return raw
