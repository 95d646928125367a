"""The rest of the updates: uuid, location, properties, statistics, keys; the metadata log; creation."""

from __future__ import annotations

import pytest

from headgate.core.apply import apply, previous_versions_max
from headgate.core.table import MAIN, TableMetadata
from headgate.core.updates import (
    AddEncryptionKey,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AssignUuid,
    RemoveEncryptionKey,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveStatistics,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetStatistics,
    TableUpdate,
    UpgradeFormatVersion,
)
from headgate.errors import BadInput
from tests.core.builders import (
    LOCATION,
    T0,
    UUID,
    append,
    column,
    commit,
    encryption_key,
    history,
    metadata_file,
    order,
    partition_statistics,
    schema,
    snapshot,
    spec,
    statistics,
    table,
)

LOG_LIMIT = "write.metadata.previous-versions-max"


def bad(base: TableMetadata | None, *updates: TableUpdate) -> BadInput:
    with pytest.raises(BadInput) as caught:
        commit(base, *updates)
    return caught.value


def unchanged(base: TableMetadata, *updates: TableUpdate) -> bool:
    return apply(base, updates, now_ms=T0) is None


def test_no_updates_change_nothing() -> None:
    assert unchanged(table(snapshots=1))


def test_a_uuid_is_never_changed() -> None:
    other = "00000000-0000-0000-0000-000000000000"
    assert bad(table(), AssignUuid(uuid=other)).message == f"Cannot reassign uuid: {UUID} to {other}"
    assert unchanged(table(), AssignUuid(uuid=UUID), AssignUuid(uuid=UUID.upper()))


def test_a_location_may_move() -> None:
    assert commit(table(), SetLocation(location="file:///w/new")).envelope.location == "file:///w/new"
    assert unchanged(table(), SetLocation(location=LOCATION))
    assert bad(table(), SetLocation(location="")).message == "a table needs a location"


def test_properties_are_set_replaced_and_removed() -> None:
    base = table(properties={"a": "1", "b": "2"})
    made = commit(base, SetProperties(updates={"b": "3", "c": "4"}), RemoveProperties(removals=("a", "zz")))
    assert {k: v for k, v in made.envelope.properties.items() if len(k) == 1} == {"b": "3", "c": "4"}


def test_properties_that_are_already_so_change_nothing() -> None:
    base = table(properties={"a": "1"})
    assert unchanged(base, SetProperties(updates={}), SetProperties(updates={"a": "1"}))
    assert unchanged(base, RemoveProperties(removals=("zz",)), RemoveProperties(removals=()))


def test_statistics_of_a_snapshot_replace_the_ones_before() -> None:
    base = commit(table(snapshots=2), SetStatistics(statistics=statistics(1, "old")))
    made = commit(
        base,
        SetStatistics(statistics=statistics(1, "new"), snapshot_id=1),
        SetStatistics(statistics=statistics(2, "two")),
    )
    assert [s.statistics_path for s in made.envelope.statistics] == ["new", "two"]
    made = commit(made, RemoveStatistics(snapshot_id=1))
    assert [s.statistics_path for s in made.envelope.statistics] == ["two"]
    assert unchanged(made, RemoveStatistics(snapshot_id=1))


def test_statistics_must_be_for_the_snapshot_the_update_names() -> None:
    error = bad(table(snapshots=2), SetStatistics(statistics=statistics(1), snapshot_id=2))
    assert error.message == "statistics are for snapshot 1, the update says 2"
    assert error.field == "updates.snapshot-id"


def test_partition_statistics_live_apart_from_statistics() -> None:
    base = commit(table(snapshots=2), SetStatistics(statistics=statistics(1)))
    for path in ("old", "new"):
        update = SetPartitionStatistics(partition_statistics=partition_statistics(1, path))
        base = commit(base, update)
    assert [s.statistics_path for s in base.envelope.partition_statistics] == ["new"]
    made = commit(base, RemovePartitionStatistics(snapshot_id=1))
    assert made.envelope.partition_statistics == ()
    assert len(made.envelope.statistics) == 1
    assert unchanged(made, RemovePartitionStatistics(snapshot_id=1))


def test_a_key_is_added_once_and_removed_by_id() -> None:
    base = commit(table(version=3), AddEncryptionKey(encryption_key=encryption_key("k", "first")))
    assert unchanged(base, AddEncryptionKey(encryption_key=encryption_key("k", "second")))
    assert unchanged(base, RemoveEncryptionKey(key_id="other"))
    made = commit(base, AddEncryptionKey(encryption_key=encryption_key("l")), RemoveEncryptionKey(key_id="k"))
    assert [key.key_id for key in made.envelope.encryption_keys] == ["l"]


# --- the metadata log -----------------------------------------------------------------------------------


def logged(base: TableMetadata, n: int, **properties: str) -> TableMetadata:
    update = SetProperties(updates={"n": str(n), **properties})
    made = apply(base, [update], now_ms=T0, previous_file=metadata_file(n))
    assert made is not None
    return made


def log_of(metadata: TableMetadata) -> list[str]:
    return [entry.metadata_file.partition(".")[0] for entry in metadata.envelope.metadata_log]


def test_the_file_before_joins_the_log() -> None:
    assert log_of(logged(logged(table(), 1), 2)) == ["v1", "v2"]


def test_a_file_joins_the_log_once_although_several_commits_followed_it() -> None:
    base = logged(table(), 1)
    again = apply(base, append(1), now_ms=T0 + 1000, previous_file=metadata_file(1))
    assert again is not None
    assert log_of(again) == ["v1"]


def test_no_file_before_leaves_the_log() -> None:
    assert log_of(commit(logged(table(), 1), *append(1))) == ["v1"]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        ("1", 1),
        ("3", 3),
        ("0", 1),
        ("-4", 5),
        ("many", 5),
        ("", 5),
        ("٣", 5),
        ("9" * 5000, 5),
        ("999999999", 5),
    ],
)
def test_the_log_keeps_as_many_files_as_the_table_says(limit: str, kept: int) -> None:
    made = table(properties={LOG_LIMIT: limit})
    for n in range(5):
        made = logged(made, n)
    assert log_of(made) == [f"v{n}" for n in range(5)][-kept:]


def test_a_hundred_files_are_kept_unless_the_table_says_otherwise() -> None:
    made = table()
    for n in range(103):
        made = logged(made, n)
    assert len(made.envelope.metadata_log) == 100
    assert log_of(made)[0] == "v3"
    assert previous_versions_max({}) == 100


def test_a_limit_set_by_the_commit_itself_counts() -> None:
    made = table()
    for n in range(5):
        made = logged(made, n)
    assert log_of(logged(made, 5, **{LOG_LIMIT: "2"})) == ["v4", "v5"]


# --- creation by updates (a staged table) ---------------------------------------------------------------

CREATION: dict[str, TableUpdate] = {
    "uuid": AssignUuid(uuid=UUID),
    "schema": AddSchema(schema=schema()),
    "current": SetCurrentSchema(schema_id=-1),
    "spec": AddSpec(spec=spec()),
    "default spec": SetDefaultSpec(spec_id=-1),
    "order": AddSortOrder(sort_order=order()),
    "default order": SetDefaultSortOrder(sort_order_id=-1),
    "location": SetLocation(location=LOCATION),
}


def creation(*more: TableUpdate, without: str = "") -> list[TableUpdate]:
    return [update for name, update in CREATION.items() if name != without] + list(more)


def test_a_table_is_made_from_nothing_by_updates() -> None:
    made = commit(None, *creation(*append(1)))
    assert made.envelope.format_version == 2
    assert made.envelope.table_uuid == UUID
    assert (made.envelope.current_schema_id, made.envelope.default_spec_id) == (0, 0)
    assert made.envelope.default_sort_order_id == 0
    assert made.envelope.last_column_id == 3
    assert made.envelope.last_partition_id == 999
    assert history(made) == [1]
    assert made.envelope.refs[MAIN].snapshot_id == 1


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("last", [True, False])
def test_a_creation_may_choose_its_version_anywhere_in_the_request(version: int, last: bool) -> None:
    upgrade = UpgradeFormatVersion(format_version=version)
    made = commit(None, *(creation(upgrade) if last else [upgrade, *creation()]))
    assert made.envelope.format_version == version
    assert made.envelope.next_row_id == (0 if version == 3 else None)


def test_the_first_of_two_versions_is_what_the_table_starts_with() -> None:
    upgrades = [UpgradeFormatVersion(format_version=version) for version in (1, 2)]
    assert commit(None, *upgrades, *creation()).envelope.format_version == 2
    assert "Cannot downgrade" in bad(None, *reversed(upgrades), *creation()).message


def test_a_creation_may_use_types_of_the_version_it_asks_for() -> None:
    wide = AddSchema(schema=schema(column(1, "v", "variant")))
    updates = [wide if isinstance(update, AddSchema) else update for update in creation()]
    assert commit(None, *updates, UpgradeFormatVersion(format_version=3)).schema().fields[0].type == "variant"


MISSING = {
    "uuid": "a table needs a uuid",
    "location": "a table needs a location",
    "default spec": "a table needs a default partition spec",
    "default order": "a table needs a default sort order",
    "current": "no current schema is set",
    "schema": "Cannot set last added schema: no schema has been added",
    "spec": "Cannot set last added spec: no spec has been added",
    "order": "Cannot set last added sort order: no sort order has been added",
}


@pytest.mark.parametrize("name", MISSING)
def test_a_creation_that_leaves_something_out_is_refused(name: str) -> None:
    assert bad(None, *creation(without=name)).message == MISSING[name]


def test_a_creation_without_updates_is_refused() -> None:
    assert bad(None).message == "a table needs a location"


def test_a_snapshot_needs_a_schema_before_it() -> None:
    assert bad(None, AddSnapshot(snapshot=snapshot(1)), *creation()).message == "no current schema is set"


@pytest.mark.parametrize("uuid", ["", "x", UUID + "0", UUID.replace("-", ""), "{" + UUID + "}"])
def test_a_uuid_that_readers_cannot_parse_is_refused(uuid: str) -> None:
    updates = [AssignUuid(uuid=uuid), *creation(without="uuid")]
    assert bad(None, *updates).field == "updates.uuid"


def test_a_creation_has_the_time_of_the_service_or_of_its_newest_snapshot() -> None:
    assert commit(None, *creation(), now_ms=T0).envelope.last_updated_ms == T0
    assert commit(None, *creation(*append(1)), now_ms=T0).envelope.last_updated_ms == T0 + 1000
