"""Fine-grained commits of files that are really there, and what of them a table shows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headgate.format.manifests import decode_manifest, decode_manifest_list
from tests.chaos.raw_commits import find_head, path_of
from tests.chaos.rest import NS, find_table

MARK = "chaos-mark"  # the entry of a snapshot's summary that says which commit made it
_DATA = b"x" * 100


def data_file(place: str, name: str) -> dict[str, Any]:
    """A data file on the disk, as content-file JSON."""
    location = f"{place}/data/{name}"
    path_of(location).parent.mkdir(parents=True, exist_ok=True)
    path_of(location).write_bytes(_DATA)
    return {
        "content": "data",
        "file-path": location,
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": len(_DATA),
        "record-count": 1,
    }


def append(place: str, name: str) -> dict[str, Any]:
    """Adds a file, and is marked with its name."""
    return {"action": "append", "add-data-files": [data_file(place, name)], "summary": {MARK: name}}


def overwrite(place: str, old: str, new: str) -> dict[str, Any]:
    """Puts a file in the place of another; refused if that is not there any more."""
    return {
        "action": "overwrite",
        "add-data-files": [data_file(place, new)],
        "remove-data-files": [f"{place}/data/{old}"],
        "summary": {MARK: new},
    }


def table_change(table: str, *updates: dict[str, Any]) -> dict[str, Any]:
    """A commit of one table, also as a part of a transaction."""
    return {
        "identifier": {"namespace": [NS], "name": table},
        "requirements": [],
        "updates": list(updates),
    }


def marks(metadata: dict[str, Any]) -> list[str]:
    """The marks of all snapshots, in their order, as often as they are there."""
    return [s["summary"][MARK] for s in metadata.get("snapshots", ()) if MARK in s["summary"]]


def live_names(metadata: dict[str, Any]) -> list[str]:
    """Names of the files that are live at the head, sorted, as often as they are there."""
    head = find_head(metadata)
    names: list[str] = []
    for manifest in () if head is None else _manifests(head["manifest-list"]):
        place = manifest.manifest_path
        entries = decode_manifest(path_of(place).read_bytes(), manifest, location=place)
        names += [Path(entry.file.file_path).name for entry in entries if entry.is_live]
    return sorted(names)


def _manifests(manifest_list: str) -> Iterable[Any]:
    return decode_manifest_list(path_of(manifest_list).read_bytes(), location=manifest_list)


def find_orphans(port: int, table: str) -> list[str]:
    """Files in the metadata folder of a table that nothing refers to; every one that is referred to must be there."""
    found = find_table(port, table)
    assert found is not None
    metadata = found["metadata"]
    used = {path_of(found["metadata-location"])}
    used |= {path_of(entry["metadata-file"]) for entry in metadata["metadata-log"]}
    for snapshot in metadata["snapshots"]:
        used.add(path_of(snapshot["manifest-list"]))
        used |= {path_of(manifest.manifest_path) for manifest in _manifests(snapshot["manifest-list"])}
    there = set((path_of(metadata["location"]) / "metadata").iterdir())
    assert used <= there, used - there
    return sorted(path.name for path in there - used)
