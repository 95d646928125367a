"""The manifest and the manifest list of a blind append, written together."""

from __future__ import annotations

from collections.abc import Callable

from headgate.core.build import Appended, AppendFiles, list_next
from headgate.core.iceberg import schema_for_spec
from headgate.core.identity_cache import IdentityCache
from headgate.core.manifest import ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.core.table import TableMetadata
from headgate.core.value import Record
from headgate.format.footprints import encode_appended
from headgate.format.manifest_encode import AddedEncoder
from headgate.format.manifest_list_encode import encode_blocks
from headgate.service.kept_entries import Written, keep_added
from headgate.service.list_tails import find_tail, note_encoded
from headgate.service.outbox import Write
from headgate.service.placement import folder_of


class WrittenAppend(Record):
    """Both files as the planning is told of them, and what is to be remembered. `parent` is the list before `listed`."""

    reply: Appended
    own: ManifestFile
    kept: Written
    parent: ManifestList
    listed: ManifestList
    footprint: bytes


class _Terms(Record):
    """What the appends to a table have in common, as long as what it says of itself is the same."""

    folder: str
    encoder: AddedEncoder


_TERMS: IdentityCache[_Terms] = IdentityCache()


def write_append(
    wanted: AppendFiles, hashes: bytes, write: Write, new_uuid: Callable[[], str]
) -> WrittenAppend:
    """Have both files of an append written, under names of their own, when both are made. `hashes` are of its paths."""
    table, snapshot_id, sequence_number = wanted.table, wanted.snapshot_id, wanted.sequence_number
    envelope, parent, unique = table.envelope, wanted.parent, new_uuid()
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
    location = f"{terms.folder}/snap-{snapshot_id}-{unique}.avro"
    added = terms.encoder.encode(wanted.files, path, snapshot_id=snapshot_id, sequence_number=sequence_number)
    listed, next_row_id = list_next(wanted.manifests, (added.manifest,), envelope, rest=wanted.rest)
    first_row_id = envelope.next_row_id if version >= 3 else None
    ids = (snapshot_id, parent.snapshot_id, sequence_number, first_row_id)
    encoded = encode_blocks(listed.blocks, ids, version)
    own = listed.blocks[0].manifests[0]  # new ones stand in front
    kept = keep_added(hashes, wanted.files, added.files, own)
    note_encoded(listed, location, version, encoded.blocks_bytes)
    tail = find_tail(listed, version, parent=wanted.manifests, base=parent.manifest_list)
    write(path, added.data)
    write(location, encoded.data, tail)
    footprint = encode_appended(own, hashes, kept.found)
    reply = Appended(path, location, next_row_id)
    return WrittenAppend(reply, own, kept, wanted.manifests, listed, footprint)


def _make_terms(table: TableMetadata, spec_id: int) -> _Terms:
    envelope, spec = table.envelope, table.find_spec(spec_id)
    schema = schema_for_spec(spec, envelope.schemas, current=table.schema())
    encoder = AddedEncoder(spec=spec, schema=schema, format_version=envelope.format_version)
    return _Terms(folder_of(table), encoder)
