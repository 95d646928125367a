"""What the reference server (iceberg-core 1.12.0) answers to plain requests, replayed against ours.

`metadata_oracle.jsonl` holds one request a line, built on a table with two snapshots, then sent after the
`concurrent` requests; snapshot ids are the labels $S1, $S2. Each line was recorded from Java, none written
by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.core.apply import apply
from headgate.core.partitioning import PartitionSpec
from headgate.core.requirements import find_failed
from headgate.core.table import MAIN, TableMetadata
from headgate.core.updates import TableRequirement, TableUpdate
from headgate.errors import BadInput, CommitRefused, HeadgateError, RequirementFailed
from tests.core.builders import UUID, append, column, commit, history, part, schema, spec, table

LINES = [
    json.loads(line) for line in (Path(__file__).parent / "metadata_oracle.jsonl").read_text().splitlines()
]
RECORDED_AT = {2: 1_794_772_247_000, 3: 1_794_772_357_000}  # the clock while each version was recorded
LABELS = {"$S1": 1, "$S2": 2, "$UUID": UUID}

# The reference drops the branch whose snapshot is removed; we refuse (docs/adr/0003).
WE_REFUSE = {f"{version}:metadata:expire-S1|rollback-to-S1" for version in ("v2", "v3")}


class Request(msgspec.Struct):
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def request(raw: dict[str, Any]) -> Request:
    text = json.dumps(raw)
    for label, value in LABELS.items():
        text = text.replace(json.dumps(label), json.dumps(value))
    return msgspec.json.decode(text, type=Request)


def setup(version: int) -> TableMetadata:
    now_ms = RECORDED_AT[version]
    columns = (column(1, "id", required=True), column(2, "cat", "string"), column(3, "amount", "double"))
    made = table(version=version, schema=schema(*columns), spec=spec(part(2, name="cat")), at_ms=now_ms)
    rows: dict[str, Any] = {"first_row_id": 0, "added_rows": 300} if version == 3 else {}
    made = commit(made, *append(1, version=version, timestamp_ms=now_ms + 1, **rows))
    rows = {"first_row_id": 300, "added_rows": 0} if version == 3 else {}
    return commit(made, *append(2, version=version, timestamp_ms=now_ms + 2, **rows))


def serve(head: TableMetadata, raw: dict[str, Any]) -> TableMetadata | HeadgateError:
    asked = request(raw)
    if (failed := find_failed(asked.requirements, head)) is not None:
        return failed
    try:
        return apply(head, asked.updates, now_ms=RECORDED_AT[head.envelope.format_version] + 3000) or head
    except HeadgateError as error:
        return error


def summary(metadata: TableMetadata) -> dict[str, Any]:
    envelope = metadata.envelope
    labels = {id_: label for label, id_ in LABELS.items()}
    refs = {n: f"{r.type} {labels.get(r.snapshot_id, '$new')}" for n, r in envelope.refs.items()}
    added = {"write.parquet.compression-codec"}  # what we add to new tables; the recording's catalog does not
    return {
        "current-schema-id": envelope.current_schema_id,
        "columns": [f"{f.id}:{f.name}:{f.type}" for f in metadata.schema().fields],
        "last-column-id": envelope.last_column_id,
        "default-spec-id": envelope.default_spec_id,
        "default-sort-order-id": envelope.default_sort_order_id,
        "properties": {k: v for k, v in envelope.properties.items() if k not in added},
        "refs": refs,
    }


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["id"])
def test_a_plain_request_is_answered_as_by_the_reference(line: dict[str, Any]) -> None:
    head = setup(line["version"])
    for concurrent in line["concurrent"]:
        after = serve(head, concurrent)
        assert isinstance(after, TableMetadata), after
        head = after
    answer, verdict = serve(head, line["request"]), line["verdict"]
    if line["id"] in WE_REFUSE:
        assert isinstance(answer, CommitRefused)
        assert MAIN in answer.message
    elif verdict["outcome"] == "accepted":
        assert isinstance(answer, TableMetadata), answer
        assert summary(answer) == verdict["result"]
    else:
        assert isinstance(answer, RequirementFailed if verdict["rule"] == "requirement" else BadInput)
        expected = verdict["message"]
        for label, value in LABELS.items():
            expected = expected.replace(label, str(value))
        assert answer.message == expected


def test_the_setup_is_that_of_the_recording() -> None:
    assert len(LINES) == 90
    for version in RECORDED_AT:
        head = setup(version)
        fields = (part(2, name="cat", field_id=1000),)
        assert head.envelope.partition_specs == (PartitionSpec(fields=fields, spec_id=0),)
        assert history(head) == [1, 2]
