"""Manifests and manifest lists that we encode, read, pruned, merged and expired by Spark's Iceberg runtime."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog.rest import RestCatalog

from headgate.core.manifest import EntryStatus, ManifestEntry, ManifestFile, NewEntry
from headgate.core.table import Envelope
from headgate.format.manifest_encode import encode_manifest
from headgate.format.manifest_list_encode import encode_manifest_list
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import decode_metadata
from tests.compat.lake import Lake

_COLUMNS = (
    "id BIGINT, day DATE, at TIMESTAMP, at_ntz TIMESTAMP_NTZ, price DECIMAL(10, 2), cost DECIMAL(10, 2), "
    "name STRING, raw BINARY, ratio DOUBLE, flag BOOLEAN"
)
_PARTITIONED = (
    "day, hours(at), at_ntz, price, truncate(10, cost), truncate(3, name), truncate(2, raw), ratio, flag, "
    "bucket(4, id)"
)
_ROWS = (
    "(1, DATE '2024-02-29', TIMESTAMP '2024-02-29 23:59:59', TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', "
    "-12345678.90, 0.15, 'grün', X'FF00', double('NaN'), true)",
    "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(3, DATE '1960-01-01', TIMESTAMP '2030-01-01 00:00:00', TIMESTAMP_NTZ '2024-01-01 00:00:00', "
    "99999999.99, -0.15, '', X'', -0.0, false)",
)
_FILTERS = (
    "day = DATE '2024-02-29'", "day IS NULL", "at > TIMESTAMP '2029-01-01 00:00:00'", "price < 0", "cost > 0.1",
    "name LIKE 'gr%'", "ratio < 1", "isnan(ratio)", "flag", "id = 2", "raw = X'FF00'",
    "at_ntz < TIMESTAMP_NTZ '1970-01-01 00:00:00'",
)  # fmt: skip


def _local(location: str) -> Path:
    return Path(urlsplit(location).path)


def _new(entry: ManifestEntry, manifest: ManifestFile) -> NewEntry:
    inherits = entry.status is EntryStatus.ADDED and entry.data_sequence_number == manifest.sequence_number
    file = replace(entry.file, first_row_id=None) if inherits else entry.file
    numbers = (None, None) if inherits else (entry.data_sequence_number, entry.file_sequence_number)
    return NewEntry(entry.status, file, entry.snapshot_id, *numbers)


def _rewrite_manifest(manifest: ManifestFile, envelope: Envelope) -> ManifestFile:
    """The same entries in a file of ours; what the list says of them is what the encoder says."""
    old = _local(manifest.manifest_path)
    entries = decode_manifest(old.read_bytes(), manifest, location=old.name, metrics=True)
    (spec,) = (one for one in envelope.partition_specs if one.spec_id == manifest.partition_spec_id)
    encoded = encode_manifest(
        [_new(entry, manifest) for entry in entries],
        spec=spec,
        schema=envelope.schemas[-1],
        format_version=envelope.format_version,
        content=manifest.content,
    )
    old.with_name(f"ours-{old.name}").write_bytes(encoded.data)
    facts: dict[str, Any] = {
        name: getattr(encoded, name)
        for name in encoded.__struct_fields__
        if name.endswith("_count") or name == "partitions"
    }
    ours = replace(
        manifest,
        manifest_path=manifest.manifest_path.replace(old.name, f"ours-{old.name}"),
        manifest_length=len(encoded.data),
        **facts,
    )
    assert replace(ours, manifest_path="", manifest_length=0) == replace(
        manifest, manifest_path="", manifest_length=0
    ), "what Java's list says of the manifest"
    if envelope.format_version > 1:
        number = encoded.min_sequence_number
        assert manifest.min_sequence_number == (manifest.sequence_number if number is None else number)
    return ours


def _rewrite(metadata_location: str) -> str:
    """A copy of the metadata in which all lists and manifests are ours."""
    metadata_file = _local(metadata_location)
    text = metadata_file.read_bytes()
    envelope = decode_metadata(text, location=metadata_location, uuid="").envelope
    document = json.loads(text)
    rewritten: dict[str, ManifestFile] = {}
    for snapshot in document["snapshots"]:
        old = _local(snapshot["manifest-list"])
        manifests = decode_manifest_list(old.read_bytes(), location=old.name)
        for manifest in manifests:
            if manifest.manifest_path not in rewritten:
                rewritten[manifest.manifest_path] = _rewrite_manifest(manifest, envelope)
        data = encode_manifest_list(
            [rewritten[one.manifest_path] for one in manifests],
            format_version=envelope.format_version,
            snapshot_id=snapshot["snapshot-id"],
            parent_snapshot_id=snapshot.get("parent-snapshot-id"),
            sequence_number=snapshot.get("sequence-number", 0),
            first_row_id=snapshot.get("first-row-id"),
        )
        old.with_name(f"ours-{old.name}").write_bytes(data)
        snapshot["manifest-list"] = snapshot["manifest-list"].replace(old.name, f"ours-{old.name}")
    copy = metadata_file.with_name(f"99999-ours-{metadata_file.name}")
    copy.write_text(json.dumps(document))
    return metadata_location.replace(metadata_file.name, copy.name)


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_spark_reads_prunes_and_merges_manifests_that_we_encoded(
    lake_v2: Lake, catalog: RestCatalog, format_version: int
) -> None:
    lake = replace(lake_v2, version=format_version)
    mode = {"write.delete.mode": "copy-on-write" if format_version == 1 else "merge-on-read"}
    table = lake.create("t", _COLUMNS, partitioned=_PARTITIONED, properties=mode)
    for row in _ROWS:
        lake.sql(f"INSERT INTO {table} VALUES {row}")
    # Two rows in one file, so that a delete leaves a delete file, or in v1 a rewritten one.
    twice = _ROWS[0].replace("(1,", "(9,")
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {twice}, {twice}")
    lake.sql(f"INSERT INTO {table} VALUES {_ROWS[0].replace('(1,', '(7,')}")
    lake.sql(f"DELETE FROM {table} WHERE id = 7", f"UPDATE {table} SET name = 'x' WHERE id = 3")
    queries = [
        table,
        *(f"SELECT * FROM {table} WHERE {condition}" for condition in _FILTERS),
        f"SELECT * FROM {table}.files",
        f"SELECT * FROM {table}.partitions",
        f"SELECT status, snapshot_id, sequence_number, file_sequence_number, data_file FROM {table}.all_entries",
        *([f"SELECT id, _row_id FROM {table}"] if format_version == 3 else []),
    ]
    before = [lake.rows(query) for query in queries]
    identifier = (lake.namespace, "t")
    location = _rewrite(catalog.load_table(identifier).metadata_location)
    lake.sql(f"DROP TABLE {table}")
    catalog.register_table(identifier, location)
    paths = [str(path) for (path,) in lake.rows(f"SELECT path FROM {table}.all_manifests")]
    assert paths
    assert all("/ours-" in path for path in paths)
    for query, rows in zip(queries, before, strict=True):
        assert repr(lake.rows(query)) == repr(rows), query
    lake.call("rewrite_manifests", table)
    lake.sql(f"INSERT INTO {table} VALUES {_ROWS[1]}", f"DELETE FROM {table} WHERE id = 9")
    kept = [row for row in before[0] if row[0] != 9]
    assert repr(lake.rows(table)) == repr(sorted([*kept, (2, *[None] * 9)], key=repr))
