"""PyIceberg through the service: what a table is, what is in it, and the catalog around it; rows are compared."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, In
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion
from tools.service_process import Service

from tests.compat.lake import CATALOG, local_files

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "kind", StringType(), required=False),
    identifier_field_ids=[1],
)
_ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string())])
_BY_KIND = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))


def _batch(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "kind": kind} for id_, kind in rows], schema=_ARROW)


def _rows(table: Table, **scan: object) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.scan(**scan).to_arrow().to_pylist()), key=repr)  # type: ignore[arg-type]  # keywords of scan


@pytest.fixture
def create(catalog: RestCatalog, namespace: str) -> Callable[..., Table]:
    """Make a table of ids and kinds in the test's namespace."""

    def make(name: str = "t", schema: Schema = _SCHEMA, **options: object) -> Table:
        return catalog.create_table((namespace, name), schema, **options)  # type: ignore[arg-type]  # passed on

    return make


# --- what a table is ------------------------------------------------------------------------------------


def test_a_table_of_every_type_gives_back_what_was_put_in(create: Callable[..., Table]) -> None:
    table = create(
        schema=Schema(
            NestedField(1, "a", BooleanType()),
            NestedField(2, "b", IntegerType()),
            NestedField(3, "c", LongType()),
            NestedField(4, "d", FloatType()),
            NestedField(5, "e", DoubleType()),
            NestedField(6, "f", DecimalType(20, 4)),
            NestedField(7, "g", DateType()),
            NestedField(8, "h", TimeType()),
            NestedField(9, "i", TimestampType()),
            NestedField(10, "j", TimestamptzType()),
            NestedField(11, "k", StringType(), doc="a text"),
            NestedField(12, "l", UUIDType()),
            NestedField(13, "m", FixedType(4)),
            NestedField(14, "n", BinaryType()),
            NestedField(15, "o", ListType(16, IntegerType(), element_required=False)),
            NestedField(
                17, "p", MapType(key_id=18, key_type=StringType(), value_id=19, value_type=LongType())
            ),
            NestedField(20, "q", StructType(NestedField(21, "x", IntegerType()))),
        )
    )
    at = dt.datetime(2024, 2, 29, 12, 0, 0, 1)
    row = {
        "a": True,
        "b": 1,
        "c": 2**40,
        "d": 1.5,
        "e": 2.5,
        "f": Decimal("3.1415"),
        "g": at.date(),
        "h": at.time(),
        "i": at,
        "j": at.replace(tzinfo=dt.UTC),
        "k": "ü",
        "l": uuid.UUID(int=7).bytes,
        "m": b"four",
        "n": b"\x00\xff",
        "o": [1, None, 3],
        "p": [("k", 7)],
        "q": {"x": 1},
    }
    table.append(pa.Table.from_pylist([row, dict.fromkeys(row)], schema=table.schema().as_arrow()))
    full, empty = table.scan().to_arrow().sort_by("b").to_pylist()
    assert {**full, "l": uuid.UUID(bytes=getattr(full["l"], "bytes", full["l"])).bytes} == row
    assert set(empty.values()) == {None}


def test_a_table_partitioned_by_every_transform_prunes_and_keeps_its_rows(
    create: Callable[..., Table],
) -> None:
    transforms = [
        (1, BucketTransform(4), "id_bucket"),
        (2, TruncateTransform(2), "kind_trunc"),
        (3, DayTransform(), "at_day"),
        (4, YearTransform(), "made_year"),
        (5, MonthTransform(), "seen_month"),
        (6, HourTransform(), "left_hour"),
        (7, IdentityTransform(), "as_is"),
    ]
    times = ("at", "made", "seen", "left")
    table = create(
        schema=Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "kind", StringType()),
            *(NestedField(n, name, TimestampType()) for n, name in enumerate(times, start=3)),
            NestedField(7, "sort", StringType()),
        ),
        partition_spec=PartitionSpec(
            *(
                PartitionField(source, 1000 + n, kind, name)
                for n, (source, kind, name) in enumerate(transforms)
            )
        ),
    )
    rows = [
        {"id": n, "kind": kind, **dict.fromkeys(times, dt.datetime(2024, 2, day, 12)), "sort": kind}
        for n, kind, day in ((1, "anna", 28), (2, "anno", 29), (3, "bert", 29))
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == rows
    scan = table.scan(row_filter=GreaterThanOrEqual("at", "2024-02-29T00:00:00"))
    assert len(list(scan.plan_files())) == 2
    assert [row["id"] for row in scan.to_arrow().sort_by("id").to_pylist()] == [2, 3]
    assert [field.name for field in table.spec().fields] == [name for _, _, name in transforms]


def test_a_sort_order_is_kept_and_can_be_changed(create: Callable[..., Table], catalog: RestCatalog) -> None:
    field = SortField(1, BucketTransform(4), SortDirection.DESC, NullOrder.NULLS_LAST)
    table = create(sort_order=SortOrder(field))
    assert catalog.load_table(table.name()).sort_order().fields == [field]
    table.update_sort_order().asc("kind", IdentityTransform()).commit()
    found = catalog.load_table(table.name()).sort_order()
    assert [(one.source_id, one.direction) for one in found.fields] == [(2, SortDirection.ASC)]
    table.append(_batch((1, "a")))
    assert _rows(table) == [(1, "a")]


def test_columns_come_go_move_and_change_their_names(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table = create()
    table.append(_batch((1, "a")))
    with table.update_schema() as update:
        update.add_column("n", IntegerType(), doc="a number")
        update.add_column("at", StructType(NestedField(1, "x", IntegerType())))
        update.rename_column("kind", "sort")
        update.move_first("n")
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.add_column(("at", "y"), StringType())
        update.make_column_optional("id")
        update.set_identifier_fields()
    with table.update_schema() as update:
        update.delete_column(("at", "x"))
    table = catalog.load_table(table.name())
    assert table.schema().column_names == ["n", "id", "sort", "at.y", "at"]
    assert _rows(table) == [(None, 1, "a", None)]
    assert len(table.schemas()) == 4
    table.append(
        pa.Table.from_pylist([{"n": 2**40, "id": 2, "at": {"y": "z"}}], schema=table.schema().as_arrow())
    )
    assert _rows(table) == [(2**40, 2, None, {"y": "z"}), (None, 1, "a", None)]
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("sort")
    assert _rows(table, selected_fields=("id",)) == [(1,), (2,)]


def test_columns_are_united_by_name_with_those_of_new_rows(create: Callable[..., Table]) -> None:
    table = create()
    table.append(_batch((1, "a")))
    wider = _ARROW.append(pa.field("more", pa.list_(pa.int32())))
    with table.update_schema() as update:
        update.union_by_name(wider)
    table.append(pa.Table.from_pylist([{"id": 2, "kind": "b", "more": [1]}], schema=wider))
    assert _rows(table) == [(1, "a", None), (2, "b", [1])]


def test_a_stale_schema_change_is_refused_and_changes_nothing(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table, stale = create(), catalog.load_table
    other = stale(table.name())
    with table.update_schema() as update:
        update.add_column("first", StringType())
    update = other.update_schema().add_column("second", StringType())
    with pytest.raises(CommitFailedException, match="Requirement failed: current schema changed"):
        update.commit()
    assert catalog.load_table(table.name()).schema().column_names == ["id", "kind", "first"]


def test_partitioning_changes_and_rows_of_every_spec_are_read(create: Callable[..., Table]) -> None:
    table = create()
    table.append(_batch((1, "a")))
    with table.update_spec() as update:
        update.add_field("kind", IdentityTransform())
        update.add_field("id", IdentityTransform(), "shard")
    table.append(_batch((2, "b")))
    with table.update_spec() as update:
        update.remove_field("shard")
        update.rename_field("kind", "sort")
    table.append(_batch((3, "b")))
    assert _rows(table) == [(1, "a"), (2, "b"), (3, "b")]
    assert _rows(table, row_filter=EqualTo("kind", "b")) == [(2, "b"), (3, "b")]
    assert {spec_id: len(spec.fields) for spec_id, spec in table.specs().items()} == {0: 0, 1: 2, 2: 1}


def test_properties_and_location_change_in_one_transaction_with_rows(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table = create(properties={"team": "red", "gone": "soon"})
    with table.transaction() as transaction:
        transaction.set_properties(team="blue", answer="42")
        transaction.remove_properties("gone")
        with transaction.update_schema() as schema:
            schema.add_column("n", IntegerType())
        transaction.append(_batch((1, "a")))
        transaction.append(_batch((2, "b")))
    found = catalog.load_table(table.name())
    assert {key: found.properties.get(key) for key in ("team", "answer", "gone")} == {
        "team": "blue",
        "answer": "42",
        "gone": None,
    }
    assert _rows(found) == [(1, "a", None), (2, "b", None)]
    assert len(found.snapshots()) == 2
    assert len(found.history()) == 1  # the first was never current outside the transaction


def test_a_table_is_lifted_from_version_1_to_2(create: Callable[..., Table]) -> None:
    table = create(properties={"format-version": "1"})
    table.append(_batch((1, "a")))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(format_version=2)
    table.append(_batch((2, "b")))
    assert table.format_version == 2
    assert _rows(table) == [(1, "a"), (2, "b")]


# --- what is in it --------------------------------------------------------------------------------------


def test_appends_and_overwrites_leave_exactly_the_rows_they_name(create: Callable[..., Table]) -> None:
    table = create()
    table.append(_batch((1, "a"), (2, "b")), snapshot_properties={"run": "7"})
    table.append(_batch((3, "c")))
    table.overwrite(_batch((20, "b")), overwrite_filter=EqualTo("kind", "b"))
    assert _rows(table) == [(1, "a"), (20, "b"), (3, "c")]
    table.overwrite(_batch((9, "z")))
    assert _rows(table) == [(9, "z")]
    assert table.snapshots()[0].summary["run"] == "7"


def test_a_delete_takes_rows_out_of_files_and_whole_files(create: Callable[..., Table]) -> None:
    table = create(partition_spec=_BY_KIND)
    table.append(_batch((1, "a"), (2, "a"), (3, "b"), (4, "c")))
    table.delete(EqualTo("kind", "b"))
    table.delete(In("id", {2, 4}))
    assert _rows(table) == [(1, "a")]
    before = len(table.snapshots())
    with pytest.warns(UserWarning, match="did not match any records"):
        table.delete(EqualTo("id", 99))
    assert (_rows(table), len(table.snapshots())) == ([(1, "a")], before)


def test_an_upsert_updates_what_is_there_and_inserts_the_rest(create: Callable[..., Table]) -> None:
    table = create()
    table.append(_batch((1, "a"), (2, "b"), (3, "c")))
    result = table.upsert(_batch((2, "B"), (3, "c"), (4, "d")))
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert _rows(table) == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]


def test_a_dynamic_overwrite_replaces_the_partitions_of_its_rows(create: Callable[..., Table]) -> None:
    table = create(partition_spec=_BY_KIND)
    table.append(_batch((1, "a"), (2, "b"), (3, None)))
    table.dynamic_partition_overwrite(_batch((20, "b"), (30, None), (40, "d")))
    assert _rows(table) == [(1, "a"), (20, "b"), (30, None), (40, "d")]


def test_branches_and_tags_point_where_they_are_told(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table = create()
    table.append(_batch((1, "a")))
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "one", max_ref_age_ms=86_400_000).create_branch(
        first, "audit", max_ref_age_ms=86_400_000, max_snapshot_age_ms=3_600_000, min_snapshots_to_keep=2
    ).commit()
    assert table.refs()["audit"].min_snapshots_to_keep == 2
    table.append(
        _batch((2, "b")), branch="audit"
    )  # PyIceberg forgets the retention here; Java sends it again
    table.append(_batch((3, "c")))
    table = catalog.load_table(table.name())
    assert _rows(table) == [(1, "a"), (3, "c")]
    assert sorted(table.scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [1, 2]
    assert sorted(table.scan().use_ref("one").to_arrow()["id"].to_pylist()) == [1]
    table.overwrite(_batch((7, "x")), branch="audit")
    assert sorted(table.scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [7]
    table.manage_snapshots().remove_tag("one").remove_branch("audit").commit()
    assert set(catalog.load_table(table.name()).refs()) == {"main"}


def test_a_table_rolls_back_and_its_expired_snapshots_are_gone(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table = create()
    for n in range(1, 5):
        table.append(_batch((n, "a")))
    first, second, third, fourth = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().rollback_to_snapshot(second).commit()
    assert _rows(table) == [(1, "a"), (2, "a")]
    table.manage_snapshots().set_current_snapshot(snapshot_id=third).commit()
    assert _rows(table) == [(1, "a"), (2, "a"), (3, "a")]
    table.maintenance.expire_snapshots().by_ids([first, fourth]).commit()
    found = catalog.load_table(table.name())
    assert {snapshot.snapshot_id for snapshot in found.snapshots()} == {second, third}
    assert _rows(found) == [(1, "a"), (2, "a"), (3, "a")]
    table.maintenance.expire_snapshots().older_than(dt.datetime.now() + dt.timedelta(minutes=1)).commit()
    assert [snapshot.snapshot_id for snapshot in catalog.load_table(table.name()).snapshots()] == [third]


def test_concurrent_appends_are_all_there_once(create: Callable[..., Table], catalog: RestCatalog) -> None:
    name = create(properties={"commit.retry.num-retries": "50"}).name()

    def append(n: int) -> int:
        catalog.load_table(name).append(_batch((n, "a")))
        return n

    with ThreadPoolExecutor(4) as pool:
        acknowledged = list(pool.map(append, range(12)))
    found = catalog.load_table(name)
    assert sorted(row[0] for row in _rows(found)) == acknowledged
    assert len(found.snapshots()) == 12
    assert found.last_sequence_number == 12


def test_inspection_reads_what_the_commits_wrote(create: Callable[..., Table]) -> None:
    table = create(partition_spec=_BY_KIND)
    table.append(_batch((1, "a"), (2, "b")))
    table.delete(EqualTo("kind", "a"))
    assert table.inspect.snapshots()["operation"].to_pylist() == ["append", "delete"]
    assert table.inspect.files()["record_count"].to_pylist() == [1]
    assert table.inspect.refs()["name"].to_pylist() == ["main"]
    assert table.inspect.partitions()["record_count"].to_pylist() == [1]
    assert table.inspect.history().num_rows == 2
    # The first file and the current one, and what a checkpoint wrote in between, if it came (docs/adr/0002).
    assert table.inspect.metadata_log_entries().num_rows in (2, 3)


# --- the catalog around it ------------------------------------------------------------------------------


def test_a_staged_table_appears_with_its_rows_or_not_at_all(catalog: RestCatalog, namespace: str) -> None:
    name = (namespace, "t")
    with catalog.create_table_transaction(name, _SCHEMA, partition_spec=_BY_KIND) as transaction:
        with transaction.update_schema() as update:
            update.add_column("n", IntegerType())
        transaction.set_properties(team="red")
        transaction.append(_batch((1, "a")))
        assert not catalog.table_exists(name)
    found = catalog.load_table(name)
    assert _rows(found) == [(1, "a", None)]
    assert found.properties["team"] == "red"
    assert len(found.spec().fields) == 1
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table_transaction(name, _SCHEMA)


def test_of_two_staged_tables_of_one_name_one_is_refused(catalog: RestCatalog, namespace: str) -> None:
    one, two = (catalog.create_table_transaction((namespace, "t"), _SCHEMA) for _ in range(2))
    one.append(_batch((1, "one")))
    two.append(_batch((2, "two")))
    one.commit_transaction()
    with pytest.raises(CommitFailedException, match="table already exists"):
        two.commit_transaction()
    assert _rows(catalog.load_table((namespace, "t"))) == [(1, "one")]


def test_a_dropped_table_can_be_registered_again(create: Callable[..., Table], catalog: RestCatalog) -> None:
    table = create()
    table.append(_batch((1, "a")))
    namespace, _ = table.name()
    catalog.drop_table(table.name())
    assert not catalog.table_exists(table.name())
    with pytest.raises(NoSuchTableError):
        catalog.load_table(table.name())
    back = catalog.register_table((namespace, "back"), table.metadata_location)
    back.append(_batch((2, "b")))
    assert _rows(catalog.load_table((namespace, "back"))) == [(1, "a"), (2, "b")]
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table((namespace, "back"), table.metadata_location)
    again = catalog.register_table((namespace, "back"), table.metadata_location, overwrite=True)
    assert _rows(again) == [(1, "a")]


def test_a_renamed_table_is_found_under_its_new_name_alone(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table = create()
    table.append(_batch((1, "a")))
    namespace, _ = table.name()
    catalog.create_namespace((namespace, "inner"))
    moved = catalog.rename_table(table.name(), (namespace, "inner", "moved"))
    moved.append(_batch((2, "b")))
    assert _rows(moved) == [(1, "a"), (2, "b")]
    assert not catalog.table_exists(table.name())
    create("other")
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table((namespace, "inner", "moved"), (namespace, "other"))
    with pytest.raises(NoSuchTableError):
        catalog.rename_table((namespace, "nothing"), (namespace, "anything"))


def test_a_purged_table_takes_its_files_with_it(create: Callable[..., Table], catalog: RestCatalog) -> None:
    table = create()
    table.append(_batch((1, "a")))
    table.overwrite(_batch((2, "b")))
    assert local_files(table.location())
    catalog.purge_table(table.name())
    assert not catalog.table_exists(table.name())
    deadline = time.monotonic() + 20  # the files go after the answer, in the service's background
    while (left := local_files(table.location())) and time.monotonic() < deadline:
        catalog.list_namespaces()
    assert left == set()


def test_namespaces_are_made_changed_listed_and_dropped(catalog: RestCatalog, namespace: str) -> None:
    inner = (namespace, "inner")
    catalog.create_namespace(inner, {"team": "red", "gone": "soon"})
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(inner)
    catalog.create_namespace_if_not_exists(inner)
    assert catalog.list_namespaces(namespace) == [inner]
    assert (namespace,) in catalog.list_namespaces()
    summary = catalog.update_namespace_properties(inner, {"gone", "missing"}, {"team": "blue"})
    assert (summary.removed, summary.updated, summary.missing) == (["gone"], ["team"], ["missing"])
    assert catalog.load_namespace_properties(inner)["team"] == "blue"
    catalog.create_table((*inner, "t"), _SCHEMA)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(inner)
    catalog.drop_table((*inner, "t"))
    catalog.drop_namespace(inner)
    assert not catalog.namespace_exists(inner)
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables(inner)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table((*inner, "t"), _SCHEMA)


def test_lists_are_whole_whatever_the_page_size(
    service: Service, create: Callable[..., Table], namespace: str
) -> None:
    for n in range(7):
        create(f"t{n}")
    paged = RestCatalog(CATALOG, uri=service.uri, **{"rest-page-size": "3"})
    assert sorted(paged.list_tables(namespace)) == [(namespace, f"t{n}") for n in range(7)]
    for n in range(4):
        paged.create_namespace((namespace, f"n{n}"))
    assert sorted(paged.list_namespaces(namespace)) == [(namespace, f"n{n}") for n in range(4)]


def test_a_second_table_of_the_same_name_is_refused(
    create: Callable[..., Table], catalog: RestCatalog
) -> None:
    table = create()
    with pytest.raises(TableAlreadyExistsError):
        create()
    assert (
        catalog.create_table_if_not_exists(table.name(), _SCHEMA).metadata.table_uuid
        == table.metadata.table_uuid
    )
    assert catalog.table_exists(table.name())


def test_a_view_is_made_found_listed_and_dropped(catalog: RestCatalog, namespace: str) -> None:
    name = (namespace, "v")
    version = ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=int(time.time() * 1000),
        summary={"engine": "test"},
        representations=[SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark")],
        default_namespace=[namespace],
    )
    view = catalog.create_view(
        name, Schema(NestedField(1, "id", IntegerType())), version, properties={"team": "red"}
    )
    assert catalog.list_views(namespace) == [name]
    assert catalog.view_exists(name)
    found = catalog.load_view(name)
    assert found.metadata.view_uuid == view.metadata.view_uuid
    assert found.current_version().representations[0].root.sql == "SELECT 1 AS id"
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view(name, Schema(NestedField(1, "id", IntegerType())), version)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(name, _SCHEMA)
    catalog.drop_view(name)
    assert not catalog.view_exists(name)
    with pytest.raises(NoSuchViewError):
        catalog.drop_view(name)
