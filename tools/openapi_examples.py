"""Example requests of the OpenAPI document, in an order in which a service accepts every one of them.

`LOCATION` stands for the table's location, `SNAPSHOT_ID` for the snapshot that the writer read; a test puts the real
ones in their places and sends them.
"""

from __future__ import annotations

from typing import Any

LOCATION = "file:///warehouse/lake/events"
SNAPSHOT_ID = 3051729675574597004
TABLES = ("events", "rates")
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "kind", "type": "string", "required": False},
    ],
}
SPEC = {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "kind", "transform": "identity"}]}

Example = dict[str, Any]


def _path(name: str) -> str:
    return f"{LOCATION}/data/{name}.parquet"


def _file(name: str, kind: str, rows: int) -> Example:
    return {
        "content": "data",
        "file-path": _path(name),
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [kind],
        "file-size-in-bytes": 4096,
        "record-count": rows,
        "lower-bounds": {"keys": [1], "values": ["0100000000000000"]},
        "upper-bounds": {"keys": [1], "values": ["6400000000000000"]},
    }


def _is(kind: str) -> Example:
    return {"type": "eq", "term": "kind", "value": kind}


def _commit(**update: Any) -> Example:
    return {
        "requirements": [],
        "updates": [{name.replace("_", "-"): value for name, value in update.items()}],
    }


COMMITS: dict[str, Example] = {
    "append": _commit(
        action="append",
        add_data_files=[_file("a1", "click", 100), _file("b1", "view", 100)],
        summary={"job": "ingest-7"},
    ),
    "copy-on-write": _commit(
        action="overwrite",
        base_snapshot_id=SNAPSHOT_ID,
        add_data_files=[_file("a2", "click", 90)],
        remove_data_files=[_path("a1")],
        commit_validations=[
            {"type": "not-allowed-added-data-files", "filter": _is("click")},
            {
                "type": "not-allowed-new-deletes-for-data-files",
                "file-paths": [_path("a1")],
                "filter": _is("click"),
            },
            {"type": "required-data-files", "file-paths": [_path("a1")]},
        ],
    ),
    "merge-on-read": _commit(
        action="delete",
        base_snapshot_id=SNAPSHOT_ID,
        add_delete_files=[
            {
                "content": "position-deletes",
                "file-path": _path("a2-deletes"),
                "file-format": "parquet",
                "spec-id": 0,
                "partition": ["click"],
                "file-size-in-bytes": 1024,
                "record-count": 1,
                "referenced-data-file": _path("a2"),
            }
        ],
        commit_validations=[
            {"type": "base-snapshot-must-be-ancestor"},
            {
                "type": "required-data-files",
                "file-paths": [_path("a2")],
                "allowed-remove-operations": ["DELETE"],
            },
            {"type": "not-allowed-added-delete-files", "filter": _is("click")},
        ],
    ),
    "compaction": _commit(
        action="replace",
        base_snapshot_id=SNAPSHOT_ID,
        add_data_files=[_file("b2", "view", 100)],
        remove_data_files=[_path("b1")],
        commit_validations=[
            {"type": "not-allowed-new-deletes-for-data-files", "file-paths": [_path("b1")]},
            {"type": "required-data-files", "file-paths": [_path("b1")]},
        ],
    ),
    "delete-by-filter": _commit(action="delete", delete_row_filter=_is("view")),
    "dynamic-overwrite": _commit(
        action="overwrite",
        base_snapshot_id=SNAPSHOT_ID,
        add_data_files=[_file("a3", "click", 80)],
        drop_partitions=[{"spec-id": 0, "partition": ["click"]}],
        commit_validations=[
            {
                "type": "not-allowed-added-data-files",
                "partitions": [{"spec-id": 0, "partition": ["click"]}],
            },
            {
                "type": "not-allowed-removed-data-files",
                "partitions": [{"spec-id": 0, "partition": ["click"]}],
            },
        ],
    ),
    "to-a-new-branch": _commit(
        action="append", branch="audit", create_branch=True, add_data_files=[_file("c1", "click", 5)]
    ),
    "alias": _commit(
        action="produce-snapshot", snapshot_action="append", add_data_files=[_file("d1", "view", 5)]
    ),
    "with-plain-updates": {
        "requirements": [],
        "updates": [
            {"action": "set-properties", "updates": {"owner": "ingest"}},
            {"action": "append", "stage-only": True, "add-data-files": [_file("e1", "view", 5)]},
        ],
    },
}
TRANSACTION: Example = {
    "table-changes": [
        {
            "identifier": {"namespace": ["lake"], "name": "rates"},
            "requirements": [],
            "updates": [],
            "commit-validations": [
                {"type": "not-allowed-added-data-files", "filter": True},
                {"type": "not-allowed-removed-data-files", "filter": True},
                {"type": "not-allowed-added-delete-files", "filter": True},
            ],
        },
        {
            "identifier": {"namespace": ["lake"], "name": "events"},
            "requirements": [],
            "updates": [{"action": "append", "add-data-files": [_file("f1", "view", 5)]}],
        },
    ]
}
APPEND: Example = {
    "files": [_file("g1", "click", 10), _file("g2", "view", 10)],
    "summary": {"job": "stream-3"},
}
EVENTS: Example = {"page-size": 100, "wait-ms": 0, "object-types": ["table"]}
CONFLICT: Example = {
    "rule": "added-data-files",
    "theirs": {
        "snapshot-id": SNAPSHOT_ID,
        "operation": "append",
        "timestamp-ms": 1763250000000,
        "committed-by": "ingest",
        "key": "019a8f3e-7c1b-7d2a-9b1e-5f0c3a2d1e4b",
    },
    "files": [_path("a9")],
    "file-count": 1,
    "filter": _is("click"),
    "next": "read again from the head, and redo the work that read or removed these files",
}
