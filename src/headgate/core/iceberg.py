"""Our schemas and specs as PyIceberg's, whose expressions, projections and evaluators we use.

Types that PyIceberg does not know (variant, geometry with parameters) become `unknown`: columns of them have no
statistics and no transforms, so no evaluator ever asks. Nor does one ask for defaults, which PyIceberg reads of
primitive types only: they are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyiceberg.schema import Schema as IcebergSchema

from headgate.core.identity_cache import IdentityCache
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema, parse_primitive, walk_fields

_ENCODER = msgspec.json.Encoder()
_DEFAULTS = ("initial-default", "write-default")


def to_schema(schema: Schema) -> IcebergSchema:
    """PyIceberg's view of a schema."""
    return _schema(_ENCODER.encode(schema))


@lru_cache(maxsize=256)
def _schema(encoded: bytes) -> IcebergSchema:
    # Keyed by the encoded schema: defaults may be JSON lists, which have no hash.
    return IcebergSchema.model_validate(_known_types(msgspec.json.decode(encoded)))


@lru_cache(maxsize=256)
def to_spec(spec: PartitionSpec) -> IcebergSpec:
    """PyIceberg's view of a spec."""
    return IcebergSpec.model_validate(msgspec.to_builtins(spec))


def partition_schema(spec: PartitionSpec, schema: Schema) -> IcebergSchema:
    """The partition tuple of a spec as a schema."""
    return _partition_schema(spec, _ENCODER.encode(schema))


@lru_cache(maxsize=256)
def _partition_schema(spec: PartitionSpec, encoded: bytes) -> IcebergSchema:
    return IcebergSchema(*to_spec(spec).partition_type(_schema(encoded)).fields)


def schema_for_spec(spec: PartitionSpec, schemas: Sequence[Schema], *, current: Schema) -> Schema:
    """The schema that knows the types of a spec's values: the current one, unless a source column was dropped.

    Then it is the newest that has all the sources; or most of them, when older schemas were removed too.
    """
    return _FOR_SPEC.get((spec, schemas, current), lambda: _schema_for_spec(spec, schemas, current))


_FOR_SPEC: IdentityCache[Schema] = IdentityCache()


def _schema_for_spec(spec: PartitionSpec, schemas: Sequence[Schema], current: Schema) -> Schema:
    sources = {id_ for field in spec.fields if field.transform != "void" for id_ in field.sources()}

    def count(schema: Schema) -> int:
        return len(sources.intersection(id_ for _, _, id_, _ in walk_fields(schema)))

    if count(current) == len(sources):
        return current
    newest_first = sorted(schemas, key=lambda schema: schema.schema_id, reverse=True)
    return max((current, *newest_first), key=count)


def _known_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: _known_type(v) if k in ("type", "element", "key", "value") else _known_types(v)
            for k, v in value.items()
            if k not in _DEFAULTS
        }
    if isinstance(value, list | tuple):
        return [_known_types(item) for item in value]
    return value


def _known_type(value: Any) -> Any:
    if isinstance(value, str) and value not in ("struct", "list", "map") and parse_primitive(value) is None:
        return "unknown"
    return _known_types(value)
