"""The table of isolation levels against the oracle: what Java's producers validated, clause by clause and in order."""

from __future__ import annotations

import pytest

from headgate.core.isolation import CLAUSES, Command, Isolation, Producer, Scope, isolation_of, validations
from headgate.errors import BadInput
from tests.oracle.scenarios import Line, lines_of_changes

# How the oracle names the producer and its setting; what is not here is no setting of Spark's.
_LEVELS = {
    "none": (None, Isolation.NONE),
    "snapshot": (None, Isolation.SNAPSHOT),
    "serializable": (None, Isolation.SERIALIZABLE),
    "delete-snapshot": (Producer.ROW_DELETE, Isolation.SNAPSHOT),
    "delete-serializable": (Producer.ROW_DELETE, Isolation.SERIALIZABLE),
    "update-snapshot": (Producer.ROW_UPDATE, Isolation.SNAPSHOT),
    "update-serializable": (Producer.ROW_UPDATE, Isolation.SERIALIZABLE),
    "files-exist": (Producer.DELETE_FILES, Isolation.SERIALIZABLE),
}
_PRODUCERS = {
    "newRowDelta": Producer.ROW_DELETE,
    "newOverwrite": Producer.OVERWRITE,
    "newReplacePartitions": Producer.REPLACE_PARTITIONS,
    "newRewrite": Producer.REWRITE,
    "newDelete": Producer.DELETE_FILES,
    "newAppend": Producer.APPEND,
    "newFastAppend": Producer.APPEND,
}
# Settings that no level stands for: a caller of the Java API asked for them one by one.
_BY_HAND = ("validateAppendOnly", "validateAddedFilesMatchOverwriteFilter")

_MISNAMED = ("cow-ghost/serializable",)  # it leaves out the deletes, which Spark's serializable does not


def _setting(line: Line) -> tuple[Producer, Isolation] | None:
    java = line["operation"]["java"]
    producer = next((p for call, p in _PRODUCERS.items() if f".{call}()" in java), None)
    if producer is None or any(call in java for call in _BY_HAND) or line["a"] in _MISNAMED:
        return None
    words = [word.split("->")[0].split("(")[0] for word in line["a"].split("/")[1:]]
    named = [_LEVELS[word] for word in words if word in _LEVELS]
    if named:
        return named[0][0] or producer, named[0][1]
    if "validateNo" in java or "validateDel" in java or "validateData" in java:
        return None
    return producer, Isolation.NONE


def _paths(files: list[Line | str]) -> tuple[str, ...]:
    return tuple(file if isinstance(file, str) else file["file-path"] for file in files)


def _scope(line: Line) -> Scope:
    operation = line["operation"]
    clauses = {clause["type"]: clause for clause in operation["validations"]}
    referenced = clauses.get("required-data-files", {})
    conflict_filter = None
    if "conflictDetectionFilter" in operation["java"]:
        conflict_filter = next(c["filter"] for c in operation["validations"] if "filter" in c)
    partitions = tuple(key for key in operation.get("drop-partitions", ()) if key["partition"])
    return Scope(
        has_base=operation["base-snapshot"] is not None,
        conflict_filter=conflict_filter,
        row_filter=operation.get("delete-row-filter"),
        partitions=partitions,
        removed_data=_paths(operation.get("remove-data-files", [])),
        removed_deletes=_paths(operation.get("remove-delete-files", [])),
        referenced_data=tuple(referenced["file-paths"])
        if referenced.get("mode") == "not-removed-since-base"
        else (),
        vectors_for=tuple(
            file["referenced-data-file"]
            for file in operation.get("add-delete-files", [])
            if file["file-format"] == "puffin"
        ),
        keeps_sequence_number="add-data-files-sequence-number" in operation,
    )


def _wanted(line: Line) -> list[Line]:
    """What Java validated, but for the filter that lets deleted rows come back (docs/adr/0006, 7)."""
    narrowed = "not-allowed-new-deletes-for-data-files"
    return [
        {key: value for key, value in clause.items() if (clause["type"], key) != (narrowed, "filter")}
        for clause in line["operation"]["validations"]
    ]


def test_every_setting_of_the_oracle_has_the_clauses_that_java_checked() -> None:
    seen: set[tuple[Producer, Isolation]] = set()
    count = 0
    for line in lines_of_changes():
        setting = _setting(line)
        if setting is None:
            continue
        assert validations(*setting, _scope(line)) == _wanted(line), line["id"]
        seen.add(setting)
        count += 1
    # A rewrite and an append have one setting only, whichever level is asked for.
    levels_of_one = {Producer.REWRITE, Producer.APPEND, Producer.DELETE_FILES}
    missing = {cell for cell in CLAUSES if cell not in seen and cell[0] not in levels_of_one}
    assert missing <= {(Producer.ROW_UPDATE, Isolation.NONE)}
    assert count > 1000


def test_the_table_has_a_cell_for_every_producer_and_level() -> None:
    assert set(CLAUSES) == {(producer, level) for producer in Producer for level in Isolation}


@pytest.mark.parametrize("producer", list(Producer))
def test_a_lower_level_validates_nothing_that_a_higher_one_does_not(producer: Producer) -> None:
    highest, middle, lowest = (CLAUSES[producer, level] for level in Isolation)
    assert set(lowest) <= set(middle) <= set(highest)


def test_row_deltas_without_a_level_are_judged_alike() -> None:
    assert CLAUSES[Producer.ROW_UPDATE, Isolation.NONE] == CLAUSES[Producer.ROW_DELETE, Isolation.NONE]


def test_a_table_property_sets_the_level_of_its_own_command_only() -> None:
    properties = {"write.delete.isolation-level": "SNAPSHOT"}
    assert isolation_of(properties, Command.DELETE) is Isolation.SNAPSHOT
    assert isolation_of(properties, Command.MERGE) is Isolation.SERIALIZABLE
    assert isolation_of({}, Command.UPDATE) is Isolation.SERIALIZABLE


@pytest.mark.parametrize("text", ["none", "", "read-committed"])
def test_a_level_that_is_not_known_names_its_property(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        isolation_of({"write.merge.isolation-level": text}, Command.MERGE)
    assert caught.value.field == "write.merge.isolation-level"
