"""Jobs on a catalog that is not Headgate: what the service would have done is done here, or refused by name."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame, SparkSession
from tools.reference_server import running_reference_server
from tools.run_rck import CannotRunError
from tools.service_process import Service

from headgate.cli.main import main
from headgate.client.keys import new_key
from headgate.errors import BadInput, CommitUnknown, ConflictFound, NotFound
from headgate.library.adapters import Heard
from headgate.library.handle import Handle
from headgate.library.roads import SqlRoad
from headgate.library.sql_rows import SqlRow
from headgate.spark.arrow_files import Attempt, discard_locations, write_batches
from headgate.spark.catalog_table import CatalogTable
from headgate.spark.compaction import compact
from headgate.spark.create_table import create_if_missing
from headgate.spark.data_source import register
from headgate.spark.data_source_write import BEGUN, BatchWriter, FilesWritten
from headgate.spark.deletes import delete
from headgate.spark.lake import Lake, LakeTable
from headgate.spark.maintain import expire
from headgate.spark.merges import merge
from headgate.spark.pipeline_spec import TableShape
from headgate.spark.row_changes import MERGE
from headgate.spark.runs import new_run
from headgate.spark.session import JAR_CATALOG, build_session, jar_settings, prepare_session
from headgate.spark.source_options import SourceOptions, read_options
from headgate.spark.streams import AVAILABLE_NOW, stream
from headgate.spark.updates import update
from headgate.spark.writes import write
from tests.compat.lake import local_files
from tests.library.lake import quick
from tests.library.unsure import Ending, UnsureRow, landed_unheard, not_landed_unheard
from tests.spark.tables import source_options

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
COLUMNS = "id BIGINT, name STRING"


def _over(folder: Path, uri: str) -> Lake:
    return Lake.over(
        f"c{uuid4().hex}", {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}
    )


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Lake]:
    """A SqlCatalog of this test's own."""
    lake = _over(tmp_path, f"sqlite:///{tmp_path}/catalog.db")
    lake.catalog().create_namespace("n")
    yield lake
    _close(lake)


@pytest.fixture(params=["postgres", "reference"])
def distant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A SqlCatalog on PostgreSQL, and the REST catalog of the Iceberg project."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_fresh_url")
        lake = _over(tmp_path, url.replace("postgresql://", "postgresql+psycopg://", 1))
        yield lake
        _close(lake)
        return
    try:
        with running_reference_server(tmp_path) as server:
            yield Lake.over(f"c{uuid4().hex}", {"type": "rest", "uri": server.uri})
    except CannotRunError as error:
        pytest.skip(f"no reference server: {error}")


def _close(lake: Lake) -> None:
    catalog = lake.catalog()
    assert isinstance(catalog, SqlCatalog)
    catalog.engine.dispose()


@pytest.fixture
def table(other: Lake) -> LakeTable:
    """An empty table."""
    other.catalog().create_table("n.t", SCHEMA)
    return other.table("n.t")


def _files(table: LakeTable, *ids: int) -> tuple[Any, ...]:
    """A data file that nobody has committed."""
    state = table.load()
    batch = pa.record_batch({"id": pa.array(ids, pa.int64()), "name": [f"n{id_}" for id_ in ids]})
    return write_batches([batch], state, Attempt(f"{state.data_location}/run-{uuid4()}", "00000-0"))


def _ids(table: LakeTable) -> list[int]:
    found = table.lake.catalog().load_table(table.identifier).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


# --- the lake as a value ----------------------------------------------------------------------------------------


def test_a_catalog_is_known_by_pyicebergs_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__BOOKS__URI", "postgresql+psycopg://me:s3cret@host/books")
    monkeypatch.setenv("PYICEBERG_CATALOG__BOOKS__S3__ENDPOINT", "http://s3")
    lake = Lake.over("books", {"type": "sql"})
    assert lake.properties["uri"].endswith("@host/books")
    assert lake.storage == {"s3.endpoint": "http://s3"}
    assert "s3cret" not in repr(lake)
    assert pickle.loads(pickle.dumps(lake)) == lake


def test_a_catalog_that_nobody_knows_or_that_cannot_be_opened_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="knows no catalog nowhere"):
        Lake.over("nowhere")
    with pytest.raises(BadInput, match="catalog odd"):
        Lake.over("odd", {"type": "papyrus"}).catalog()
    with pytest.raises(BadInput, match="catalog short"):
        Lake.over("short", {"type": "sql"}).catalog()


def test_headgate_itself_is_refused_as_another_catalog(service: Service) -> None:
    lake = Lake.over("ours", {"type": "rest", "uri": service.uri})
    lake.catalog().create_namespace("elsewhere")
    lake.catalog().create_table("elsewhere.t", SCHEMA)
    with pytest.raises(BadInput, match=r"take Lake\(uri\)"):
        lake.table("elsewhere.t").load()


def test_the_jar_is_pointed_at_rest_catalogs_only(other: Lake) -> None:
    with pytest.raises(BadInput) as refused:
        build_session("never", lake=other, jar="iceberg.jar")
    assert refused.value.field == "jar"
    rest = Lake.over("r", {"type": "rest", "uri": "http://c", "s3.endpoint": "http://s", "token": "t"})
    settings = jar_settings(rest, "c")
    assert {
        name: settings[f"spark.sql.catalog.c.{name}"] for name in ("type", "uri", "token", "io-impl")
    } == {
        "type": "rest",
        "uri": "http://c",
        "token": "t",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    }


def test_what_only_the_service_has_is_refused_by_name(other: Lake) -> None:
    with pytest.raises(BadInput, match="is not Headgate"):
        other.client()


def test_options_of_the_format_name_the_catalog(other: Lake) -> None:
    assert read_options({"catalog": "c", "catalog.type": "sql", "table": "n.t"}).table.lake.other == "c"
    for said, named in (
        ({"catalog": "c", "catalog.type": "sql", "table": "n.t", "uri": "http://x"}, "uri"),
        ({"catalog.type": "sql", "table": "n.t"}, "catalog"),
        ({"catalog": "", "catalog.type": "sql", "table": "n.t"}, "catalog"),
    ):
        with pytest.raises(BadInput) as refused:
            read_options(said)
        assert refused.value.field == named


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--catalog-property", "type=sql"], "--catalog-property: goes with --catalog"),
        (["--catalog", "c", "--uri", "http://x"], "--uri: is for a service"),
        (["--catalog", "c", "--catalog-property", "uri=postgresql://me:pw@h/d"], "CATALOG__C__URI"),
        (["--catalog", "c", "--catalog-property", "token=x"], "token has a secret"),
        (["--catalog", "nowhere"], "knows no catalog nowhere"),
    ],
)
def test_a_command_says_what_is_wrong_with_its_catalog(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["expire", "n.t", *words]) == 2
    assert named in capsys.readouterr().err


def test_a_command_works_on_another_catalog(table: LakeTable, capsys: pytest.CaptureFixture[str]) -> None:
    for id_ in range(3):
        table.client.append(_files(table, id_))
    properties = [
        word for pair in table.lake.properties.items() for word in ("--catalog-property", "=".join(pair))
    ]
    name = str(table.lake.other)
    assert main(["expire", "n.t", "--older-than", "0s", "--keep", "1", "--catalog", name, *properties]) == 0
    assert len(table.load(all_snapshots=True).raw["snapshots"]) == 1
    assert _ids(table) == [0, 1, 2]


# --- keys, changes, lost replies ------------------------------------------------------------------------------


def test_a_key_stands_for_one_request(table: LakeTable) -> None:
    key, files = new_key(), _files(table, 1)
    first = table.client.append(files, key=key)
    assert table.client.append(files, key=key).snapshot_id == first.snapshot_id
    with pytest.raises(BadInput, match="used for another request") as refused:
        table.client.append(_files(table, 2), key=key)
    assert refused.value.field == "Idempotency-Key"
    assert _ids(table) == [1]


def test_two_that_bring_one_key_at_once_do_not_both_land(table: LakeTable) -> None:
    key, files = new_key(), _files(table, 1)

    def first(swap: Any) -> Heard | None:
        table.client.append(_files(table, 1), key=key)  # after our load, before our swap
        return swap()  # type: ignore[no-any-return]

    with pytest.raises(BadInput, match="used for another request"):
        _unsure(table, first).client.append(files, key=key)
    assert _ids(table) == [1]


def test_what_a_snapshot_changed_is_read_from_its_manifests(table: LakeTable) -> None:
    old = _files(table, 1)
    table.client.append(old)
    new = _files(table, 2)
    done = table.client.overwrite(
        add=new, remove=[old[0]["file-path"]], base_snapshot_id=table.load().snapshot_id()
    )
    changes = table.client.changes_of(int(done.snapshot_id or 0))
    assert [file["file-path"] for file in changes.added_data] == [new[0]["file-path"]]
    assert [file["file-path"] for file in changes.removed_data] == [old[0]["file-path"]]
    assert changes.action == "overwrite"
    assert changes.added_data[0]["lower-bounds"] == new[0]["lower-bounds"]
    with pytest.raises(NotFound):
        table.client.changes_of(1)


@dataclass(frozen=True)
class UnsureTable(LakeTable):
    """A table whose next swaps end as they are told to."""

    endings: tuple[Ending, ...] = ()
    failing_loads: int = 0

    @cached_property
    def client(self) -> CatalogTable:
        return CatalogTable(self.identifier, self._open)

    def _open(self) -> Handle:
        catalog = self.lake.catalog()
        assert isinstance(catalog, SqlCatalog)
        row = UnsureRow(SqlRow(catalog, self.identifier), self.endings)
        road = SqlRoad(row, self.identifier, catalog.load_table(self.identifier).io)
        handle = Handle(road, quick(retries_max=3))
        row.after_swap = lambda: setattr(row, "failing_loads", self.failing_loads)
        return handle


def _unsure(table: LakeTable, *endings: Ending, failing_loads: int = 0) -> UnsureTable:
    return UnsureTable(table.lake, table.identifier, endings, failing_loads)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Two rows."""
    return spark.createDataFrame([(1, "a"), (2, "b")], COLUMNS)


@pytest.mark.parametrize("ending", [landed_unheard, not_landed_unheard])
def test_a_lost_answer_is_resolved_by_a_look_at_the_table(
    table: LakeTable, rows: DataFrame, ending: Ending
) -> None:
    done = write(rows, _unsure(table, ending))
    assert done.committed is not None
    assert done.committed.snapshot_id == table.load().snapshot_id()
    assert _ids(table) == [1, 2]
    hidden = delete(_unsure(table, ending), "id = 1", mode=MERGE, spark=rows.sparkSession)
    assert hidden.deleted == 1
    assert _ids(table) == [2]


@pytest.mark.parametrize(("ending", "landed"), [(landed_unheard, True), (not_landed_unheard, False)])
def test_what_nobody_knows_deletes_nothing_and_is_done_once_when_repeated(
    table: LakeTable, rows: DataFrame, ending: Ending, landed: bool
) -> None:
    key = new_key()
    with pytest.raises(CommitUnknown) as unknown:
        write(rows, _unsure(table, ending, failing_loads=100), key=key)
    assert unknown.value.evidence["key"] == key
    files = local_files(table.load().data_location, "*.parquet")
    assert files
    assert _ids(table) == ([1, 2] if landed else [])
    assert write(rows, table, key=key).committed is not None
    assert _ids(table) == [1, 2]
    assert files <= local_files(table.load().data_location, "*.parquet")


def test_a_stream_whose_answer_was_lost_goes_on_after_a_restart(
    table: LakeTable, spark: SparkSession, tmp_path: Path
) -> None:
    source, checkpoint = str(tmp_path / "source"), str(tmp_path / "checkpoint")

    def run(into: LakeTable) -> None:
        stream(
            spark.readStream.schema(COLUMNS).parquet(source),
            into,
            checkpoint=checkpoint,
            trigger=AVAILABLE_NOW,
        ).awaitTermination()

    spark.createDataFrame([(1, "a"), (2, "b")], COLUMNS).write.parquet(source)
    with suppress(Exception):  # Spark's own error, around ours
        run(_unsure(table, landed_unheard, failing_loads=100))
    assert _ids(table) == [1, 2]
    run(table)
    assert _ids(table) == [1, 2]
    spark.createDataFrame([(3, "c")], COLUMNS).write.mode("append").parquet(source)
    run(_unsure(table, landed_unheard))
    assert _ids(table) == [1, 2, 3]


def test_an_abort_removes_files_only_when_nothing_was_sent(table: LakeTable) -> None:
    state, folders = table.load(), []
    for is_begun in (False, True):
        run = new_run()
        folder = f"{state.data_location}/{run.id}"
        batch = pa.record_batch({"id": pa.array([1], pa.int64()), "name": ["a"]})
        files = write_batches([batch], state, Attempt(folder, "00000-0"))
        writer = BatchWriter(state, run, SourceOptions(table), overwrite=False)
        if is_begun:
            (Path(folder.removeprefix("file://")) / BEGUN).touch()
        writer.abort([FilesWritten(files, folder)])
        folders.append(len(local_files(folder, "*.parquet")))
    assert folders == [0, 1]


@pytest.mark.parametrize("fails", [False, True])
def test_an_abort_after_a_write_that_landed_deletes_nothing_and_no_sweep_makes_it_fail(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    state, run = table.load(), new_run()
    folder = f"{state.data_location}/{run.id}"
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    messages = [FilesWritten(write_batches([batch], state, Attempt(folder, "00000-0")), folder)]
    (Path(folder.removeprefix("file://")) / "00000-999-00000.parquet").touch()  # of a task that ran twice
    writer = BatchWriter(state, run, SourceOptions(table), overwrite=False)

    def discard(locations: Iterable[str], storage: Mapping[str, str]) -> None:
        discard_locations(locations, storage)
        if fails:
            raise OSError("slow down")

    monkeypatch.setattr("headgate.spark.data_source_write.discard_locations", discard)
    writer.commit(messages)
    writer.abort(messages)  # what Spark does when the answer of the commit is lost
    assert len(local_files(folder, "*.parquet")) == 1
    assert _ids(table) == [1, 2]


# --- all jobs ---------------------------------------------------------------------------------------------------


def test_every_job_runs_on_a_catalog_of_others(distant: Lake, spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    table, is_rest = distant.table("far.t"), distant.properties["type"] == "rest"
    rows = spark.range(0, 10).selectExpr("id", "concat('n', id % 2) AS name")
    shape = TableShape(partition_by=("name",), properties={"format-version": "3" if is_rest else "2"})
    assert create_if_missing(table, rows, shape)
    assert write(rows, table).rows == 10
    rows.selectExpr("id + 10 AS id", "name").write.format("headgate").mode("append").options(
        **source_options(table)
    ).save()
    assert delete(table, "id IN (3, 4)", mode=MERGE, spark=spark).deleted == 2
    assert update(table, {"name": "'x'"}, "id = 5", spark=spark).updated == 1
    source = spark.createDataFrame([(5, "y"), (30, "z")], COLUMNS)
    merged = merge(table, source, ["id"], when_matched_update="all", when_not_matched_insert="all")
    assert (merged.updated, merged.inserted) == (1, 1)
    stale = table.load().snapshot_id()
    rows.selectExpr("id + 100 AS id", "name").write.parquet(str(tmp_path / "source"))
    stream(
        spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "source")),
        table,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger=AVAILABLE_NOW,
    ).awaitTermination()
    with pytest.raises(ConflictFound) as refused:
        table.client.overwrite(add=(), row_filter=True, base_snapshot_id=stale)
    assert refused.value.evidence["theirs"]
    assert compact(table, min_files=2, spark=spark).skipped == ()
    assert expire(table, keep=1, older_than=timedelta(0)).snapshot_ids
    expected = sorted({*range(20), 30, *range(100, 110)} - {3, 4})
    assert _ids(table) == expected
    read = spark.read.format("headgate").options(**source_options(table)).load()
    assert sorted(row.id for row in read.collect()) == expected
    if is_rest:
        session = prepare_session(spark.newSession(), distant, jar=True)
        found = session.sql(f"SELECT id FROM {JAR_CATALOG}.far.t").collect()
        assert sorted(row.id for row in found) == expected
