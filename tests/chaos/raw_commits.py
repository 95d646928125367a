"""Snapshots without new rows, as an engine would commit them, and the audit of what came of them."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest_list

from headgate.cli.audit_source import Driver, Objects, load_table
from headgate.core.audit import Options, Report, audit
from headgate.store.base import Store
from tests.chaos.rest import NS, Call, table_path


@dataclass(frozen=True)
class RawCommit:
    """One commit on a known head: a snapshot that lists what its parent lists."""

    table: str
    snapshot_id: int
    body: dict[str, Any]

    def call(self) -> Call:
        """The request, under a fresh key."""
        return Call("POST", table_path(self.table), self.body)


def path_of(location: str) -> Path:
    """The local path of a location."""
    return Path(location.removeprefix("file://"))


def build_commit(table: str, metadata: dict[str, Any]) -> RawCommit:
    """A commit on this head; its manifest list is written."""
    snapshot_id = secrets.randbits(62) + 1
    parent = find_head(metadata)
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": max(time.time_ns() // 1_000_000, metadata["last-updated-ms"]),
        "manifest-list": _write_list(metadata, snapshot_id, parent),
        "schema-id": metadata["current-schema-id"],
        "summary": {"operation": "append", **_totals(parent)},
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent["snapshot-id"]
    body = {
        "identifier": {"namespace": [NS], "name": table},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {
                "type": "assert-ref-snapshot-id",
                "ref": "main",
                "snapshot-id": None if parent is None else parent["snapshot-id"],
            },
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    }
    return RawCommit(table, snapshot_id, body)


def build_transaction(commits: Iterable[RawCommit]) -> Call:
    """All of them or none."""
    return Call("POST", "/v1/transactions/commit", {"table-changes": [commit.body for commit in commits]})


def find_head(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """The current snapshot."""
    found = [
        s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == metadata.get("current-snapshot-id")
    ]
    return found[0] if found else None


def snapshot_ids(metadata: dict[str, Any]) -> list[int]:
    """The ids of all snapshots, as often as they are there."""
    return [snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ())]


def _totals(parent: dict[str, Any] | None) -> dict[str, str]:
    summary = {} if parent is None else parent["summary"]
    return {name: value for name, value in summary.items() if name.startswith("total-")}


def _write_list(metadata: dict[str, Any], snapshot_id: int, parent: dict[str, Any] | None) -> str:
    location = f"{metadata['location']}/metadata/snap-{snapshot_id}-{secrets.token_hex(8)}.avro"
    path_of(location).parent.mkdir(parents=True, exist_ok=True)
    if parent is not None:
        shutil.copyfile(path_of(parent["manifest-list"]), path_of(location))
        return location
    with write_manifest_list(
        format_version=2,
        output_file=PyArrowFileIO().new_output(location),
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=metadata["last-sequence-number"] + 1,
        avro_compression="deflate",
    ):
        return location


def audit_table(
    uri: str, table: str, *, expected: Iterable[int] = (), forbidden: Iterable[int] = ()
) -> Report:
    """The structural audit in full: every snapshot, every file."""
    options = Options(
        all_snapshots=True,
        files=True,
        expected_snapshot_ids=frozenset(expected),
        forbidden_snapshot_ids=frozenset(forbidden),
    )
    return Driver(Objects(), lambda *_: None).run(audit(load_table(uri, f"{NS}.{table}", None), options))


def must_be_sound(uri: str, table: str, **known: Iterable[int]) -> Report:
    """The audit of a table in which nothing is wrong."""
    report = audit_table(uri, table, **known)
    assert report.is_sound, (table, report.findings)
    return report


def count_events(store: Store) -> dict[str, int]:
    """How many events there are of each key: each table that a commit changed has one, and folded commits share it."""
    counts: dict[str, int] = {}
    after = 0
    while events := store.read_events(after=after, limit=1000):
        for stored in events:
            folded = [one["key"] for one in json.loads(stored.event.payload).get("folded", ())]
            for key in folded or [stored.event.key]:
                if key is not None:
                    counts[key] = counts.get(key, 0) + 1
        after = events[-1].sequence
    return counts
