"""The manifest and the manifest list of a blind append as bytes. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable

from headgate.core.build import AppendFiles, list_next
from headgate.core.iceberg import schema_for_spec
from headgate.core.manifest import ADDED, DATA_MANIFEST, NewEntry
from headgate.core.manifest_list import ManifestList
from headgate.core.value import Record
from headgate.format.manifest_encode import EncodedManifest, encode_added
from headgate.format.manifest_list_encode import encode_manifest_list
from headgate.service.placement import metadata_folder


class EncodedAppend(Record):
    """Both files: the manifest at `path`, and the list at `location`."""

    path: str
    encoded: EncodedManifest
    entries: tuple[NewEntry, ...]
    location: str
    data: bytes
    listed: ManifestList
    next_row_id: int


def encode_append(wanted: AppendFiles, new_uuid: Callable[[], str]) -> EncodedAppend:
    """Both files of an append, under names of their own."""
    table, snapshot_id = wanted.table, wanted.snapshot_id
    envelope, spec = table.envelope, table.find_spec(wanted.spec_id)
    version = envelope.format_version
    schema = schema_for_spec(spec, envelope.schemas, current=table.schema())
    encoded = encode_added(
        wanted.files, spec=spec, schema=schema, format_version=version, snapshot_id=snapshot_id
    )
    entries = tuple([NewEntry(ADDED, file, snapshot_id, None, None) for file in wanted.files])
    folder, unique = metadata_folder(envelope.location, envelope.properties), new_uuid()
    path = f"{folder}/{snapshot_id}-m-{unique}.avro"
    manifest = encoded.describe(
        path,
        spec_id=wanted.spec_id,
        content=DATA_MANIFEST,
        snapshot_id=snapshot_id,
        sequence_number=wanted.sequence_number,
    )
    listed, next_row_id = list_next(wanted.manifests, (manifest,), envelope, rest=wanted.rest)
    data = encode_manifest_list(
        listed,
        format_version=version,
        snapshot_id=snapshot_id,
        parent_snapshot_id=wanted.parent.snapshot_id,
        sequence_number=wanted.sequence_number,
        first_row_id=envelope.next_row_id if version >= 3 else None,
    )
    location = f"{folder}/snap-{snapshot_id}-{unique}.avro"
    return EncodedAppend(path, encoded, entries, location, data, listed, next_row_id)
