"""Fine-grained changes with everything defaulted: files that are descriptions only, and what a table holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from headgate.format.manifests import decode_manifest, decode_manifest_list
from tests.service.app_client import AppClient
from tests.service.table_calls import load, local, path

TRANSACTION = "/v1/transactions/commit"
NOTHING_ADDED = {"type": "not-allowed-added-data-files"}

Wire = dict[str, Any]


def kebab(fields: dict[str, Any]) -> Wire:
    """`spec_id=1` as `{"spec-id": 1}`."""
    return {name.replace("_", "-"): value for name, value in fields.items()}


def data_file(location: str, /, **fields: Any) -> Wire:
    """A data file of an unpartitioned table."""
    return {
        "content": "data",
        "file-path": location,
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": 100,
        "record-count": 10,
        **kebab(fields),
    }


def change(action: str, **fields: Any) -> Wire:
    """An update that is a change."""
    return {"action": action, **kebab(fields)}


def table_change(name: str, *updates: Wire, namespace: str = "a", **fields: Any) -> Wire:
    """One table of a transaction; `commit_validations` and `base_snapshot_id` are its read set."""
    return {
        "identifier": {"namespace": [namespace], "name": name},
        "requirements": [],
        "updates": list(updates),
        **kebab(fields),
    }


def transact(client: AppClient, *changes: Wire, key: str | None = None) -> httpx.Response:
    """POST of several tables."""
    options = {} if key is None else {"headers": {"Idempotency-Key": key}}
    return client.post(TRANSACTION, {"table-changes": list(changes)}, **options)


def commit_change(client: AppClient, update: Wire, *, name: str = "t", **fields: Any) -> httpx.Response:
    """POST of one change to a table."""
    return client.post(path(name), {"requirements": [], "updates": [update], **kebab(fields)})


def head_id(client: AppClient, name: str) -> int | None:
    """The current snapshot, or None."""
    found: int | None = load(client, name)["metadata"].get("current-snapshot-id")
    return None if found == -1 else found


def live_paths(client: AppClient, name: str) -> list[str]:
    """Names of the files that are live at the head, sorted; as often as they are there."""
    metadata = load(client, name)["metadata"]
    current = [s for s in metadata["snapshots"] if s["snapshot-id"] == metadata.get("current-snapshot-id")]
    return sorted(name for snapshot in current for name in _names(snapshot["manifest-list"]))


def _names(manifest_list: str) -> list[str]:
    names: list[str] = []
    for manifest in decode_manifest_list(local(manifest_list).read_bytes(), location=manifest_list):
        place = manifest.manifest_path
        entries = decode_manifest(local(place).read_bytes(), manifest, location=place)
        names += [Path(entry.file.file_path).name for entry in entries if entry.is_live]
    return names
