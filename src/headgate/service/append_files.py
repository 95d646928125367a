"""The manifest and the manifest list of a blind append as bytes. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable

from headgate.core.build import AppendFiles, list_next
from headgate.core.iceberg import schema_for_spec
from headgate.core.identity_cache import IdentityCache
from headgate.core.manifest_list import ManifestList
from headgate.core.table import TableMetadata
from headgate.core.value import Record
from headgate.format.manifest_encode import AddedEncoder, EncodedFile
from headgate.format.manifest_list_encode import EncodedList, encode_blocks
from headgate.service.placement import folder_of


class EncodedAppend(Record):
    """Both files: the manifest at `path`, and the list at `location`."""

    path: str
    data: bytes
    files: tuple[EncodedFile, ...]
    location: str
    encoded: EncodedList
    listed: ManifestList
    next_row_id: int
    format_version: int


class _Terms(Record):
    """What the appends to a table have in common, as long as what it says of itself is the same."""

    folder: str
    encoder: AddedEncoder


_TERMS: IdentityCache[_Terms] = IdentityCache()


def encode_append(wanted: AppendFiles, new_uuid: Callable[[], str]) -> EncodedAppend:
    """Both files of an append, under names of their own."""
    table, snapshot_id, sequence_number = wanted.table, wanted.snapshot_id, wanted.sequence_number
    envelope, unique = table.envelope, new_uuid()
    version = envelope.format_version
    says = (
        envelope.schemas,
        envelope.partition_specs,
        envelope.properties,
        envelope.location,
        envelope.current_schema_id,
        version,
        wanted.spec_id,
    )
    terms = _TERMS.find(says) or _TERMS.keep(says, _make_terms(table, wanted.spec_id))
    path = f"{terms.folder}/{snapshot_id}-m-{unique}.avro"
    added = terms.encoder.encode(wanted.files, path, snapshot_id=snapshot_id, sequence_number=sequence_number)
    listed, next_row_id = list_next(wanted.manifests, (added.manifest,), envelope, rest=wanted.rest)
    first_row_id = envelope.next_row_id if version >= 3 else None
    ids = (snapshot_id, wanted.parent.snapshot_id, sequence_number, first_row_id)
    encoded = encode_blocks(listed.blocks, ids, version)
    location = f"{terms.folder}/snap-{snapshot_id}-{unique}.avro"
    return EncodedAppend(path, added.data, added.files, location, encoded, listed, next_row_id, version)


def _make_terms(table: TableMetadata, spec_id: int) -> _Terms:
    envelope, spec = table.envelope, table.find_spec(spec_id)
    schema = schema_for_spec(spec, envelope.schemas, current=table.schema())
    encoder = AddedEncoder(spec=spec, schema=schema, format_version=envelope.format_version)
    return _Terms(folder_of(table), encoder)
