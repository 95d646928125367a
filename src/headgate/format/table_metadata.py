"""Table metadata: JSON bytes to values and back. No I/O.

Encoding splices the already encoded snapshots into a freshly encoded envelope; decoding whole files is for
registrations and first loads. Reads v1, v2 and v3 as engines write them, gzipped too, within stated bounds.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from headgate.core.encoded_log import EncodedLog, LogItem
from headgate.core.partitioning import PARTITION_ID_START
from headgate.core.schema import check_schema
from headgate.core.table import (
    MAIN,
    Envelope,
    HistoryEntry,
    Snapshot,
    TableMetadata,
    append_history,
    append_snapshot,
)
from headgate.errors import BadInput, TooLarge
from headgate.format.strict_json import decode

METADATA_BYTES_MAX = 256 * 1024 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_ENCODER = msgspec.json.Encoder()
_ENVELOPE = msgspec.json.Decoder(Envelope)


def encode_envelope(envelope: Envelope) -> bytes:
    """What the store keeps beside the log items."""
    return _ENCODER.encode(envelope)


def decode_envelope(envelope: bytes) -> Envelope:
    """The parsed part of a stored head."""
    return _ENVELOPE.decode(envelope)


def encode_parts(metadata: TableMetadata, *, refs_only: bool = False) -> list[bytes]:
    """Byte strings that joined are the metadata file. `refs_only` keeps only snapshots that refs point at."""
    envelope = metadata.envelope
    head = _ENCODER.encode(envelope)
    parts = [head[:-1]]
    if envelope.format_version == 1:
        parts.append(_v1_fields(metadata))
    parts.append(b',"snapshots":[')
    if refs_only:
        wanted = sorted({ref.snapshot_id for ref in envelope.refs.values()})
        found = [metadata.snapshots.find(id_) for id_ in wanted]
        _join(parts, [item.body for item in found if item is not None])
    else:
        _join(parts, metadata.snapshots.parts())
    parts.append(b'],"snapshot-log":[')
    _join(parts, metadata.history.parts())
    parts.append(b"]}")
    return parts


def encode_file(metadata: TableMetadata) -> list[bytes]:
    """The bytes of a metadata file, gzipped if the table asks for it."""
    parts = encode_parts(metadata)
    if not is_gzipped(metadata.envelope.properties):
        return parts
    deflater = zlib.compressobj(1, wbits=31)
    return [*(deflater.compress(part) for part in parts), deflater.flush()]


def is_gzipped(properties: dict[str, str]) -> bool:
    """Whether metadata files of this table are written gzipped."""
    return properties.get("write.metadata.compression-codec", "none").lower() == "gzip"


def _join(parts: list[bytes], items: list[bytes]) -> None:
    for i, item in enumerate(items):
        if i:
            parts.append(b",")
        parts.append(item)


def _v1_fields(metadata: TableMetadata) -> bytes:
    # Readers of v1 know one schema and one spec, and expect -1 where there is no current snapshot.
    envelope = metadata.envelope
    spec = next(s for s in envelope.partition_specs if s.spec_id == envelope.default_spec_id)
    text = b',"schema":' + _ENCODER.encode(metadata.schema())
    text += b',"partition-spec":' + _ENCODER.encode(spec.fields)
    return text if envelope.current_snapshot_id is not None else text + b',"current-snapshot-id":-1'


def decode_metadata(data: bytes, *, location: str, uuid: str) -> TableMetadata:
    """A whole metadata file. `uuid` serves v1 tables that never got one."""
    text = inflate(data, location=location)
    try:
        raw = decode(text, max_depth=128)
        if not isinstance(raw, dict):
            raise BadInput("it is not an object")
        return _convert(_normalise(raw, uuid))
    except BadInput as error:
        raise BadInput(
            f"invalid table metadata: {location}: {error.message}", field="metadata-location"
        ) from error
    except KeyError as error:
        fault = f"invalid table metadata: {location}: {error.args[0]} is missing"
        raise BadInput(fault, field="metadata-location") from error
    except (msgspec.ValidationError, AttributeError, TypeError, ValueError) as error:
        raise BadInput(f"invalid table metadata: {location}: {error}", field="metadata-location") from error


class _Logs(msgspec.Struct, rename="kebab"):
    """The two lists that grow, each item as it stands."""

    snapshots: list[msgspec.Raw] = msgspec.field(default_factory=list)
    snapshot_log: list[msgspec.Raw] = msgspec.field(default_factory=list)


class _SnapshotId(msgspec.Struct, rename="kebab"):
    snapshot_id: int


_LOGS = msgspec.json.Decoder(_Logs)
_SNAPSHOT_ID = msgspec.json.Decoder(_SnapshotId)


def skim_metadata(data: bytes, *, location: str, uuid: str) -> TableMetadata:
    """A whole metadata file of a catalog that is trusted: its snapshots and history are found, not decoded.

    Twenty times as fast as `decode_metadata`, which takes what is not spelt out (v1, fields that may be left out).
    """
    text = inflate(data, location=location)
    try:
        envelope, logs = _ENVELOPE.decode(text), _LOGS.decode(text)
        keys = [_SNAPSHOT_ID.decode(item).snapshot_id for item in logs.snapshots]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return decode_metadata(data, location=location, uuid=uuid)
    current = None if envelope.current_snapshot_id == -1 else envelope.current_snapshot_id
    main = envelope.refs.get(MAIN)
    numbered = all(field.field_id is not None for spec in envelope.partition_specs for field in spec.fields)
    if (
        envelope.format_version not in (2, 3)
        or not numbered
        or (None if main is None else main.snapshot_id) != current
        or (envelope.format_version == 3 and envelope.next_row_id is None)
    ):
        return decode_metadata(data, location=location, uuid=uuid)
    if envelope.current_snapshot_id != current:
        envelope = msgspec.structs.replace(envelope, current_snapshot_id=current)
    return TableMetadata(envelope, _log(logs.snapshots, keys), _log(logs.snapshot_log))


def _log(bodies: list[msgspec.Raw], keys: list[int] | None = None) -> EncodedLog:
    return EncodedLog.of(
        [
            LogItem(position, position if keys is None else keys[position], bytes(body))
            for position, body in enumerate(bodies)
        ]
    )


def inflate(data: bytes, *, location: str) -> bytes:
    """The text of a metadata file, unzipped within the limit if it is gzip."""
    if not data.startswith(_GZIP_MAGIC):
        if len(data) > METADATA_BYTES_MAX:
            raise TooLarge(
                f"metadata is over {METADATA_BYTES_MAX} bytes: {location}", field="metadata-location"
            )
        return data
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, METADATA_BYTES_MAX + 1)
    except zlib.error as error:
        raise BadInput(f"not a gzip file: {location}: {error}", field="metadata-location") from error
    if len(text) > METADATA_BYTES_MAX:
        raise TooLarge(
            f"metadata inflates to over {METADATA_BYTES_MAX} bytes: {location}", field="metadata-location"
        )
    if not inflater.eof:
        raise BadInput(f"truncated gzip file: {location}", field="metadata-location")
    if inflater.unused_data:
        raise BadInput(f"something follows the gzip file: {location}", field="metadata-location")
    return text


def _normalise(raw: dict[str, Any], uuid: str) -> dict[str, Any]:
    """The shape that all versions share: what v1 writers leave out, filled in."""
    raw = dict(raw)
    version = raw.get("format-version")
    if version not in (1, 2, 3):
        raise ValueError(f"unsupported format-version {version!r}")
    if version == 1:
        _fill_in_v1(raw, uuid)
    raw["partition-specs"] = [_number_fields(spec) for spec in raw["partition-specs"]]
    if version == 3 and raw.get("next-row-id") is None:
        raise KeyError("next-row-id")  # a guess would hand out row ids twice
    if raw.get("current-snapshot-id") == -1:
        raw["current-snapshot-id"] = None
    for name in ("snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics"):
        raw[name] = raw.get(name) or []
    raw["properties"] = raw.get("properties") or {}
    raw["refs"] = raw.get("refs") or {}
    current = raw.get("current-snapshot-id")
    if current is not None and MAIN not in raw["refs"]:
        raw["refs"] = {**raw["refs"], MAIN: {"snapshot-id": current, "type": "branch"}}
    return raw


def _fill_in_v1(raw: dict[str, Any], uuid: str) -> None:
    raw.setdefault("table-uuid", uuid)
    raw["last-sequence-number"] = 0  # whatever stands there: readers of v1 take it as 0
    if "schemas" not in raw:
        raw["schemas"] = [{**raw["schema"], "schema-id": raw["schema"].get("schema-id", 0)}]
        raw["current-schema-id"] = raw["schemas"][0]["schema-id"]
    if "partition-specs" not in raw:
        raw["partition-specs"] = [{"spec-id": 0, "fields": raw["partition-spec"]}]
        raw["default-spec-id"] = 0
    if "last-partition-id" not in raw:
        specs = [_number_fields(spec) for spec in raw["partition-specs"]]
        ids = [field["field-id"] for spec in specs for field in spec["fields"]]
        raw["last-partition-id"] = max(ids, default=PARTITION_ID_START - 1)
    raw.setdefault("sort-orders", [{"order-id": 0, "fields": []}])
    raw.setdefault("default-sort-order-id", 0)


def _number_fields(spec: dict[str, Any]) -> dict[str, Any]:
    """Fields that have no id, or null for one, get that of their place."""
    fields = [
        {**field, "field-id": PARTITION_ID_START + i} if field.get("field-id") is None else field
        for i, field in enumerate(spec["fields"])
    ]
    return {**spec, "fields": fields}


def _convert(raw: dict[str, Any]) -> TableMetadata:
    envelope = msgspec.convert(raw, Envelope)
    snapshots, history = EncodedLog(), EncodedLog()
    seen: set[int] = set()
    for snapshot in msgspec.convert(raw["snapshots"], list[Snapshot]):
        if snapshot.snapshot_id in seen:
            raise ValueError(f"snapshot {snapshot.snapshot_id} is there twice")
        if snapshot.sequence_number > envelope.last_sequence_number:
            raise ValueError(f"snapshot {snapshot.snapshot_id} is beyond last-sequence-number")
        seen.add(snapshot.snapshot_id)
        snapshots = append_snapshot(snapshots, snapshot)
    for entry in msgspec.convert(raw["snapshot-log"], list[HistoryEntry]):
        history = append_history(history, entry)
    current, main = envelope.current_snapshot_id, envelope.refs.get(MAIN)
    if main is not None and main.snapshot_id != current:
        raise ValueError(f"current-snapshot-id {current} is not what branch {MAIN} points at")
    for name, ref in envelope.refs.items():
        if ref.snapshot_id not in seen:
            raise ValueError(f"ref {name} points at unknown snapshot {ref.snapshot_id}")
    if all(schema.schema_id != envelope.current_schema_id for schema in envelope.schemas):
        raise ValueError(f"unknown current-schema-id {envelope.current_schema_id}")
    if all(spec.spec_id != envelope.default_spec_id for spec in envelope.partition_specs):
        raise ValueError(f"unknown default-spec-id {envelope.default_spec_id}")
    if all(order.order_id != envelope.default_sort_order_id for order in envelope.sort_orders):
        raise ValueError(f"unknown default-sort-order-id {envelope.default_sort_order_id}")
    for schema in envelope.schemas:
        check_schema(schema, format_version=envelope.format_version)
    return TableMetadata(envelope, snapshots, history)
