"""Updates and requirements of views."""

from __future__ import annotations

import msgspec
import pytest

from headgate.core.schema import Field, Schema
from headgate.core.updates import (
    AddSchema,
    AssignUuid,
    RemoveProperties,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
)
from headgate.core.view import (
    TABLE_ONLY_ACTIONS,
    TABLE_ONLY_REQUIREMENTS,
    AddViewVersion,
    AssertViewUuid,
    SetCurrentViewVersion,
    SqlRepresentation,
    ViewHistoryEntry,
    ViewMetadata,
    ViewUpdate,
    ViewVersion,
)
from headgate.core.view_apply import DROP_DIALECT_ALLOWED, HISTORY_SIZE, apply, find_failed
from headgate.errors import BadInput

NOW = 1_000_000
DAY_MS = 24 * 3600 * 1000
MAKE_CURRENT = SetCurrentViewVersion(view_version_id=-1)


def schema(*names: str) -> Schema:
    fields = (Field(id=i, name=name, type="long", required=False) for i, name in enumerate(names, 1))
    return Schema(fields=tuple(fields))


def version(
    sql: str = "select 1",
    *,
    dialects: tuple[str, ...] = ("spark",),
    id: int = 1,
    schema_id: int = -1,
    at_ms: int = NOW,
    summary: dict[str, str] | None = None,
) -> ViewVersion:
    return ViewVersion(
        version_id=id,
        timestamp_ms=at_ms,
        schema_id=schema_id,
        summary=summary or {},
        representations=tuple(SqlRepresentation(sql=sql, dialect=dialect) for dialect in dialects),
        default_namespace=("db",),
    )


def new_view(*extra: ViewUpdate, first: ViewVersion | None = None) -> ViewMetadata:
    made = apply(
        None,
        (
            AssignUuid(uuid="u-1"),
            SetLocation(location="s3://lake/v"),
            AddSchema(schema=schema("a")),
            AddViewVersion(view_version=first or version()),
            MAKE_CURRENT,
            *extra,
        ),
        now_ms=NOW,
    )
    assert made is not None
    return made


def changed(base: ViewMetadata, *updates: ViewUpdate, now_ms: int = NOW) -> ViewMetadata:
    after = apply(base, updates, now_ms=now_ms)
    assert after is not None
    return after


def replaced(base: ViewMetadata, sql: str, *, id: int = 1, at_ms: int = NOW) -> ViewMetadata:
    ours = version(sql, schema_id=0, id=id, at_ms=at_ms)
    return changed(base, AddViewVersion(view_version=ours), MAKE_CURRENT)


def test_a_new_view_has_version_one_schema_zero_and_one_log_entry() -> None:
    view = new_view()
    assert [v.version_id for v in view.versions] == [1]
    assert [s.schema_id for s in view.schemas] == [0]
    assert view.versions[0].schema_id == 0
    assert view.version_log == (ViewHistoryEntry(version_id=1, timestamp_ms=NOW),)


@pytest.mark.parametrize(
    ("updates", "field"),
    [
        ((), "updates.location"),
        ((SetLocation(location="s3://lake/v"),), "updates.uuid"),
        ((SetLocation(location="s3://lake/v"), AssignUuid(uuid="u")), "updates.view-version-id"),
    ],
)
def test_a_new_view_without_a_part_is_refused(updates: tuple[ViewUpdate, ...], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        apply(None, updates, now_ms=NOW)
    assert refused.value.field == field


def test_a_replace_adds_the_next_version_and_a_log_entry() -> None:
    view = replaced(new_view(), "select 2", id=2, at_ms=NOW + 5)
    assert view.current_version_id == 2
    assert [v.version_id for v in view.versions] == [1, 2]
    assert view.version_log[-1] == ViewHistoryEntry(version_id=2, timestamp_ms=NOW + 5)


def test_a_version_id_that_is_taken_is_reassigned() -> None:
    assert replaced(replaced(new_view(), "select 2", id=2), "select 3", id=2).current_version_id == 3


def test_a_version_id_below_one_is_reassigned() -> None:
    assert new_view(first=version(id=-7)).current_version_id == 1


def test_a_version_id_ahead_of_ours_is_kept() -> None:
    view = changed(
        new_view(),
        AddViewVersion(view_version=version("select 2", id=9, schema_id=0)),
        SetCurrentViewVersion(view_version_id=9),
    )
    assert view.current_version_id == 9


def test_an_equal_version_is_reused_whatever_its_id_and_time() -> None:
    view = replaced(new_view(), "select 2", id=2)
    again = changed(
        view,
        AddViewVersion(view_version=version(id=77, schema_id=0, at_ms=NOW - 5)),
        MAKE_CURRENT,
        now_ms=NOW + 9,
    )
    assert again.current_version_id == 1
    assert again.versions == view.versions
    # It becomes current again now, not when it was made.
    assert again.version_log[-1] == ViewHistoryEntry(version_id=1, timestamp_ms=NOW + 9)


def test_a_version_with_another_summary_is_another_version() -> None:
    view = changed(
        new_view(),
        AddViewVersion(view_version=version(schema_id=0, summary={"engine-name": "spark"})),
        MAKE_CURRENT,
    )
    assert view.current_version_id == 2


def test_an_equal_schema_is_reused_and_minus_one_means_it() -> None:
    base = new_view()
    view = changed(
        base, AddSchema(schema=schema("a")), AddViewVersion(view_version=version("select 2")), MAKE_CURRENT
    )
    assert len(view.schemas) == 1
    assert view.versions[-1].schema_id == 0


def test_another_schema_gets_the_next_id() -> None:
    sent = msgspec.structs.replace(schema("a", "b"), schema_id=40)
    view = changed(
        new_view(), AddSchema(schema=sent), AddViewVersion(view_version=version("select 2")), MAKE_CURRENT
    )
    assert [s.schema_id for s in view.schemas] == [0, 1]
    assert view.versions[-1].schema_id == 1


def test_updates_that_change_nothing_are_no_change() -> None:
    view = new_view(SetProperties(updates={"a": "1"}))
    nothing = (
        AssignUuid(uuid="U-1"),
        UpgradeFormatVersion(format_version=1),
        SetLocation(location=view.location),
        SetProperties(updates={"a": "1"}),
        RemoveProperties(removals=("missing",)),
        AddViewVersion(view_version=version(schema_id=0)),
        SetCurrentViewVersion(view_version_id=1),
    )
    assert apply(view, nothing, now_ms=NOW) is None
    assert apply(view, (), now_ms=NOW) is None


def test_properties_are_set_and_removed_in_order() -> None:
    view = changed(
        new_view(SetProperties(updates={"a": "1", "b": "1"})),
        RemoveProperties(removals=("a",)),
        SetProperties(updates={"c": "1"}),
    )
    assert view.properties == {"b": "1", "c": "1"}
    assert len(view.version_log) == 1


REFUSED: list[tuple[tuple[ViewUpdate, ...], str, str]] = [
    ((AssignUuid(uuid="u-2"),), "updates.uuid", "Cannot reassign uuid"),
    ((UpgradeFormatVersion(format_version=0),), "updates.format-version", "Cannot downgrade v1 view to v0"),
    (
        (UpgradeFormatVersion(format_version=23),),
        "updates.format-version",
        "Unsupported format version: 23",
    ),
    ((SetLocation(location=""),), "updates.location", "needs a location"),
    ((AddSchema(schema=schema("a", "a")),), "schema.fields.name", "multiple fields for name a"),
    (
        (MAKE_CURRENT,),
        "updates.view-version-id",
        "Cannot set last version id: no current version id has been set",
    ),
    (
        (SetCurrentViewVersion(view_version_id=23),),
        "updates.view-version-id",
        "Cannot set current version to unknown version: 23",
    ),
    (
        (AddViewVersion(view_version=version("select 2")),),
        "updates.view-version.schema-id",
        "Cannot set last added schema: no schema has been added",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=23)),),
        "updates.view-version.schema-id",
        "Cannot add version with unknown schema: 23",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=0, dialects=("Trino", "trino"))),),
        "updates.view-version.representations.dialect",
        "Invalid view version: Cannot add multiple queries for dialect trino",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=0, dialects=("",))),),
        "updates.view-version.representations.dialect",
        "no dialect",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=0, dialects=())),),
        "updates.view-version.representations",
        "no query",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=0, id=2**31 - 1)),),
        "updates.view-version.version-id",
        "is above",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=0, at_ms=-1)),),
        "updates.view-version.timestamp-ms",
        "is negative",
    ),
    (
        (AddViewVersion(view_version=version("select 2", schema_id=0, at_ms=NOW + DAY_MS + 1)),),
        "updates.view-version.timestamp-ms",
        "ahead of the service's clock",
    ),
    (
        (SetProperties(updates={HISTORY_SIZE: "0"}),),
        f"properties.{HISTORY_SIZE}",
        "version.history.num-entries must be positive but was 0",
    ),
    ((SetProperties(updates={HISTORY_SIZE: "ten"}),), f"properties.{HISTORY_SIZE}", "must be an integer"),
    ((SetProperties(updates={HISTORY_SIZE: "1" * 11}),), f"properties.{HISTORY_SIZE}", "must be an integer"),
]


@pytest.mark.parametrize(("updates", "field", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_a_wrong_update_is_refused_by_field(
    updates: tuple[ViewUpdate, ...], field: str, message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        apply(new_view(), updates, now_ms=NOW)
    assert refused.value.field == field
    assert message in refused.value.message


@pytest.mark.parametrize("what", ["schema", "version"])
def test_a_view_whose_ids_are_used_up_is_refused_and_not_overflowed(what: str) -> None:
    base = new_view()
    last = 2**31 - 1
    if what == "schema":
        base = msgspec.structs.replace(
            base, schemas=(*base.schemas, msgspec.structs.replace(schema("z"), schema_id=last))
        )
        update: ViewUpdate = AddSchema(schema=schema("y"))
    else:
        top = version("select 9", id=last, schema_id=0)
        base = msgspec.structs.replace(base, versions=(*base.versions, top))
        update = AddViewVersion(view_version=version("select 2", schema_id=0))
    with pytest.raises(BadInput, match=f"no {what} id left"):
        apply(base, (update,), now_ms=NOW)


def test_losing_a_dialect_is_refused_unless_the_view_allows_it() -> None:
    base = new_view(first=version(dialects=("Spark", "trino")))
    lose = (
        AddViewVersion(view_version=version("select 2", schema_id=0, dialects=("trino",))),
        MAKE_CURRENT,
    )
    with pytest.raises(BadInput) as refused:
        apply(base, lose, now_ms=NOW)
    assert "Previous dialects: [spark, trino]\nNew dialects: [trino]" in refused.value.message
    allow = SetProperties(updates={DROP_DIALECT_ALLOWED: "TRUE"})
    assert changed(base, allow, *lose).current_version_id == 2


def test_going_back_to_a_version_with_fewer_dialects_is_a_loss_too() -> None:
    more = AddViewVersion(view_version=version("select 2", schema_id=0, dialects=("spark", "trino")))
    base = changed(new_view(), more, MAKE_CURRENT)
    with pytest.raises(BadInput, match="loss of view dialects"):
        apply(base, (SetCurrentViewVersion(view_version_id=1),), now_ms=NOW)


def test_another_dialect_beside_the_old_ones_is_no_loss() -> None:
    more = AddViewVersion(view_version=version("select 2", schema_id=0, dialects=("spark", "trino")))
    assert changed(new_view(), more, MAKE_CURRENT).current_version_id == 2


def test_ten_versions_are_kept_by_default() -> None:
    view = new_view()
    for i in range(2, 15):
        view = replaced(view, f"select {i}", id=i)
    assert [v.version_id for v in view.versions] == list(range(5, 15))
    assert [entry.version_id for entry in view.version_log] == list(range(5, 15))


def test_the_current_version_is_never_expired() -> None:
    view = new_view(SetProperties(updates={HISTORY_SIZE: "3"}))
    view = replaced(replaced(view, "select 2"), "select 3")
    view = changed(view, SetCurrentViewVersion(view_version_id=1))
    view = changed(view, AddViewVersion(view_version=version("select 4", schema_id=0)))
    assert [v.version_id for v in view.versions] == [1, 3, 4]
    # The log begins after the newest entry whose version is gone.
    assert [entry.version_id for entry in view.version_log] == [3, 1]


def test_versions_added_in_one_request_are_all_kept() -> None:
    view = changed(
        new_view(SetProperties(updates={HISTORY_SIZE: "1"})),
        AddViewVersion(view_version=version("select 2", schema_id=0)),
        AddViewVersion(view_version=version("select 3", schema_id=0)),
        MAKE_CURRENT,
    )
    assert [v.version_id for v in view.versions] == [2, 3]


def test_only_the_version_that_is_current_at_the_end_is_logged() -> None:
    view = changed(
        new_view(),
        AddViewVersion(view_version=version("select 2", schema_id=0)),
        MAKE_CURRENT,
        AddViewVersion(view_version=version("select 3", schema_id=0)),
        MAKE_CURRENT,
    )
    assert [entry.version_id for entry in view.version_log] == [1, 3]


def test_the_log_never_goes_backwards_in_time() -> None:
    view = replaced(new_view(), "select 2", at_ms=NOW - 500)
    assert [entry.timestamp_ms for entry in view.version_log] == [NOW, NOW]


def test_the_log_is_bounded_however_often_versions_alternate() -> None:
    view = replaced(new_view(), "select 2")
    for i in range(1100):
        view = changed(view, SetCurrentViewVersion(view_version_id=1 + i % 2), now_ms=NOW + i)
    assert len(view.version_log) == 1000


def test_a_requirement_compares_uuids_without_case() -> None:
    view = new_view()
    assert find_failed((AssertViewUuid(uuid="U-1"),), view) is None
    failed = find_failed((AssertViewUuid(uuid="u-1"), AssertViewUuid(uuid="u-2")), view)
    assert failed is not None
    assert failed.message == "Requirement failed: view UUID does not match: expected u-1 != u-2"


def test_what_only_tables_have_is_known_by_name() -> None:
    assert {"add-snapshot", "set-current-schema", "add-spec"} <= TABLE_ONLY_ACTIONS
    assert not {"add-schema", "set-location", "add-view-version"} & TABLE_ONLY_ACTIONS
    assert {"assert-create", "assert-table-uuid"} <= TABLE_ONLY_REQUIREMENTS
