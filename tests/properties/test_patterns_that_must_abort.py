"""The three patterns of seed 004 that no retry may save: each aborts, and the evidence names the other commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.properties.gates import Gate, Wire, files_below, open_gate, scratch
from tests.properties.lake import Row

CUSTOMER = 42
CUSTOMER_ROWS = {"type": "eq", "term": "id", "value": CUSTOMER}


@pytest.fixture(params=["memory", "service"])
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gate]:
    with open_gate(request.param, tmp_path) as opened:
        yield opened


def _append(gate: Gate, *ids: int, **more: object) -> Wire:
    lake = scratch()
    lake.made = 1000 * len(ids) + 10 * sum(ids)  # other rows, other names
    rows = [Row("", id_, "a", 0) for id_ in ids]
    return {"action": "append", "add-data-files": files_below(gate.place, lake.put_data(rows)), **more}


def _delete_by_key(gate: Gate, id_: int, **more: object) -> Wire:
    files = files_below(gate.place, scratch().put_keys([(id_, "a")]))
    return {"action": "delete", "add-delete-files": files, **more}


def _path_of(update: Wire) -> str:
    (file,) = update["add-data-files"]
    path: str = file["file-path"]
    return path


# --- 1. append and delete of the same row ------------------------------------------------------------------


def test_an_append_of_a_row_that_was_deleted_by_key_meanwhile_aborts(gate: Gate) -> None:
    assert gate.commit(_append(gate, CUSTOMER)) is None
    base = gate.head()
    assert gate.commit(_delete_by_key(gate, CUSTOMER)) is None
    theirs = gate.head()
    check = {"type": "not-allowed-added-delete-files", "filter": CUSTOMER_ROWS}
    ours = _append(gate, CUSTOMER, 43, **{"base-snapshot-id": base, "commit-validations": [check]})
    refused = gate.commit(ours)
    assert refused is not None
    assert refused["rule"] == "added-delete-files"
    assert refused["theirs"]["snapshot-id"] == theirs
    assert refused["theirs"]["operation"] == "delete"
    assert refused["filter"] is not None
    assert gate.head() == theirs


def test_a_delete_by_key_of_a_row_that_was_appended_meanwhile_aborts(gate: Gate) -> None:
    assert gate.commit(_append(gate, CUSTOMER)) is None
    base = gate.head()
    added = _append(gate, CUSTOMER, 44)
    assert gate.commit(added) is None
    theirs = gate.head()
    check = {"type": "not-allowed-added-data-files", "filter": CUSTOMER_ROWS}
    refused = gate.commit(
        _delete_by_key(gate, CUSTOMER, **{"base-snapshot-id": base, "commit-validations": [check]})
    )
    assert refused is not None
    assert refused["rule"] == "added-data-files"
    assert refused["theirs"]["snapshot-id"] == theirs
    assert refused["theirs"]["operation"] == "append"
    assert refused["files"] == [_path_of(added)]
    assert gate.head() == theirs


def test_an_append_and_a_delete_of_other_rows_both_commit(gate: Gate) -> None:
    assert gate.commit(_append(gate, CUSTOMER)) is None
    base = gate.head()
    assert gate.commit(_delete_by_key(gate, 7)) is None
    check = {"type": "not-allowed-added-delete-files", "filter": CUSTOMER_ROWS}
    ours = _append(gate, CUSTOMER, 43, **{"base-snapshot-id": base, "commit-validations": [check]})
    assert gate.commit(ours) is None


# --- 2. compactions of the same files ----------------------------------------------------------------------


def _compact(gate: Gate, inputs: list[Wire], *ids: int) -> Wire:
    paths = [_path_of(update) for update in inputs]
    written = {**_append(gate, *ids), "action": "replace", "remove-data-files": paths}
    written["base-snapshot-id"] = gate.head()
    written["add-data-files"][0]["file-path"] += ".compacted"
    written["commit-validations"] = [
        {"type": "required-data-files", "mode": "live-at-head", "file-paths": paths},
        {"type": "not-allowed-new-deletes-for-data-files", "file-paths": paths},
    ]
    return written


def test_the_second_of_two_compactions_that_share_a_file_aborts(gate: Gate) -> None:
    small = [_append(gate, id_) for id_ in (1, 2, 3)]
    for update in small:
        assert gate.commit(update) is None
    first = _compact(gate, small[:2], 1, 2)
    second = _compact(gate, small[1:], 2, 3)
    assert gate.commit(first) is None
    theirs = gate.head()
    refused = gate.commit(second)
    assert refused is not None
    assert refused["rule"] == "missing-required-removes"
    assert refused["theirs"]["snapshot-id"] == theirs
    assert refused["theirs"]["operation"] == "replace"
    assert refused["files"] == [_path_of(small[1])]
    assert gate.head() == theirs


def test_compactions_of_different_files_both_commit(gate: Gate) -> None:
    small = [_append(gate, id_) for id_ in (1, 2)]
    for update in small:
        assert gate.commit(update) is None
    first = _compact(gate, small[:1], 1)
    second = _compact(gate, small[1:], 2)
    assert gate.commit(first) is None
    assert gate.commit(second) is None


# --- 3. schema changes that disagree -----------------------------------------------------------------------


def _add_column(type_: str) -> tuple[Wire, Wire]:
    columns = [(1, "id", "long"), (2, "cat", "string"), (3, "amount", "long"), (4, "device_type", type_)]
    fields = [{"id": id_, "name": name, "type": kind, "required": False} for id_, name, kind in columns]
    schema = {"type": "struct", "fields": fields}
    return {"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}


@pytest.mark.parametrize(
    "requirement",
    [
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    ],
    ids=lambda wire: wire["type"],
)
def test_the_second_of_two_schema_changes_that_disagree_aborts(gate: Gate, requirement: Wire) -> None:
    assert gate.commit(*_add_column("string"), requirements=(requirement,)) is None
    theirs = gate.schema_id()
    refused = gate.commit(*_add_column("int"), requirements=(requirement,))
    assert refused is not None
    assert refused["requirement"] == requirement["type"]
    assert refused["theirs"] == {"schema-id": theirs}
    assert gate.schema_id() == theirs


def test_files_written_for_a_schema_that_lost_are_not_committed_under_the_one_that_won(gate: Gate) -> None:
    requirement = {"type": "assert-current-schema-id", "current-schema-id": 0}
    assert gate.commit(*_add_column("string"), requirements=(requirement,)) is None
    ours = (*_add_column("int"), _append(gate, 1))
    assert gate.commit(*ours, requirements=(requirement,)) is not None
    assert gate.head() is None
