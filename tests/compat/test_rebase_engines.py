"""Unmodified engines whose commits are overtaken: with `headgate.rebase` they land at once, without it nothing is lost.

Every namespace is audited at its end, every snapshot and file of it: what a client deletes after its commit was not in use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from bench.common import count_commit_answers, read_metrics
from pyspark.sql import SparkSession
from tools.service_process import Service

from headgate.core.rebase import REBASED_FROM
from tests.compat.fine import Fine
from tests.compat.lake import Lake, Rows, catalog_of, session_at
from tests.compat.late import Late, running_late

_REBASE = {"headgate.rebase": "append,replace"}
# Both engines then put every commit's manifest together with older ones.
_MERGING = {"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "true"}
_PATIENT = {
    "commit.retry.num-retries": "100",
    "commit.retry.min-wait-ms": "5",
    "commit.retry.max-wait-ms": "50",
}
_ARROW = pa.schema([pa.field("id", pa.int64()), pa.field("kind", pa.string())])
_COLUMNS = ((1, "id", "long"), (2, "kind", "string"))
_THEIRS = 1000  # ids of the commits that overtake


@pytest.fixture(scope="module")
def late(service: Service) -> Iterator[Late]:
    """A way to the service on which commits are overtaken."""
    with running_late(service.uri) as running:
        yield running


@pytest.fixture(scope="module")
def late_session(spark: SparkSession, late: Late) -> SparkSession:
    """Spark on that way."""
    return session_at(spark, late.uri)


class Race:
    """A table that lets the service rebase; Spark and PyIceberg on the late way to it."""

    def __init__(self, lake: Lake, late: Late, session: SparkSession) -> None:
        self.late, self.direct = late, lake
        self.slow = Lake(session, late.uri, lake.namespace, lake.version)
        self.fine = Fine(lake, "t")
        self.name = lake.name("t")
        self._theirs = 0
        late.answers.clear()
        late.meanwhile.clear()

    def create(self, **properties: str) -> None:
        """The table, empty."""
        named = {key.replace("_", "-"): value for key, value in properties.items()}
        self.direct.create("t", "id BIGINT, kind STRING", properties={**_REBASE, **named})

    def add_theirs(self) -> None:
        """Somebody else's append of one row."""
        row = (_THEIRS + self._theirs, "theirs")
        self._theirs += 1
        self.fine.change("append", add_data_files=[self.fine.write(_COLUMNS, [row])])

    def theirs(self) -> Rows:
        """The rows that overtook."""
        return [(_THEIRS + n, "theirs") for n in range(self._theirs)]

    def overtake(self, times: int = 1) -> None:
        """Have the next commits each overtaken by one row."""
        self.late.meanwhile.extend([self.add_theirs] * times)

    def all_were_rebased(self, *, since: int = 0) -> bool:
        """Whether every commit on the late way landed at its first sending, and was stale when it came."""
        answers = self.late.answers[since:]
        assert [answer.body for answer in answers if answer.status != 200] == []
        assert not self.late.meanwhile
        for answer in answers:
            metadata = answer.body["metadata"]
            (made,) = (
                s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
            )
            assert REBASED_FROM in made["summary"]
        return bool(answers)


@pytest.fixture
def race(lake: Lake, late: Late, late_session: SparkSession) -> Race:
    return Race(lake, late, late_session)


@pytest.fixture
def race_v2(lake_v2: Lake, late: Late, late_session: SparkSession) -> Race:
    return Race(lake_v2, late, late_session)


def _batch(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "kind": kind} for id_, kind in rows], schema=_ARROW)


# --- Spark ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, _MERGING], ids=["apart", "merged"])
def test_an_insert_that_is_overtaken_lands_at_its_first_sending(
    race: Race, properties: dict[str, str]
) -> None:
    race.create(**properties)
    race.overtake(4)  # the first of them finds the table empty, and then it is not
    for n in range(4):
        race.slow.sql(f"INSERT INTO {race.name} VALUES ({n}, 'ours')")
    assert race.all_were_rebased()
    assert race.fine.agrees([(n, "ours") for n in range(4)] + race.theirs())
    if race.direct.version == 3:
        _, row_ids, numbers = zip(*race.fine.lineage(), strict=True)
        assert len(set(row_ids)) == len(set(numbers)) == 8
        if not properties:  # a manifest that holds old rows too is given ids for these as well, in vain
            assert sorted(row_ids) == list(range(8))


def test_a_stream_that_is_overtaken_commits_each_batch_once_also_an_empty_one(
    race: Race, tmp_path: Path
) -> None:
    race.create()
    source = tmp_path / "source"
    source.mkdir()

    def run() -> None:
        stream = race.slow.session.readStream.schema("id BIGINT, kind STRING").json(str(source))
        query = (
            stream.where("id > 0")
            .writeStream.format("iceberg")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .toTable(race.name)
        )
        assert query.awaitTermination(120)

    race.overtake(3)
    for n, id_ in enumerate((1, -1, 2)):
        (source / f"{n}.json").write_text(f'{{"id": {id_}, "kind": "ours"}}\n')
        run()
    assert race.all_were_rebased()
    assert race.fine.agrees([(1, "ours"), (2, "ours"), *race.theirs()])
    epochs = race.direct.rows(
        f"SELECT summary['spark.sql.streaming.epochId'] e FROM {race.name}.snapshots "
        f"WHERE summary['{REBASED_FROM}'] IS NOT NULL"
    )
    assert epochs == [("0",), ("1",), ("2",)]


def test_a_compaction_that_is_overtaken_by_an_append_lands_and_rows_keep_their_ids(race: Race) -> None:
    race.create(**_MERGING)
    for n in range(3):
        race.direct.sql(f"INSERT INTO {race.name} VALUES ({n}, 'ours')")
    before = race.fine.lineage() if race.direct.version == 3 else []
    race.overtake()
    done = race.slow.call("rewrite_data_files", race.name, "options => map('rewrite-all', 'true')")
    assert done["rewritten_data_files_count"] == 3
    assert race.all_were_rebased()
    assert race.fine.agrees([(n, "ours") for n in range(3)] + race.theirs())
    assert race.direct.one(f"SELECT count(*) FROM {race.name}.data_files") == 2
    if before:
        assert set(before) < set(race.fine.lineage())


def test_rows_that_are_deleted_while_a_compaction_runs_stay_deleted(race: Race) -> None:
    race.create(**{"write.delete.mode": "merge-on-read"})
    race.direct.sql(f"INSERT INTO {race.name} SELECT /*+ COALESCE(1) */ id, 'ours' FROM range(3)")
    race.late.meanwhile.append(lambda: race.direct.sql(f"DELETE FROM {race.name} WHERE id = 1"))
    where = f"table => '{race.direct.namespace}.t'"
    assert not race.slow.lands(
        f"CALL lake.system.rewrite_data_files({where}, options => map('rewrite-all', 'true'))"
    )
    (answer,) = race.late.answers
    assert answer.status == 409
    assert answer.body["error"]["conflict"]["rule"]
    assert race.fine.agrees([(0, "ours"), (2, "ours")])


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("INSERT OVERWRITE {} VALUES (9, 'ours')", [(9, "ours")]),
        ("DELETE FROM {} WHERE id = 1", [(2, "old"), (_THEIRS, "theirs")]),
        ("UPDATE {} SET kind = 'new' WHERE id = 1", [(1, "new"), (2, "old"), (_THEIRS, "theirs")]),
    ],
    ids=["insert overwrite", "delete", "update"],
)
def test_what_depends_on_rows_that_were_read_is_left_to_the_engine_with_the_reason(
    race_v2: Race, statement: str, left: Rows
) -> None:
    race = race_v2
    race.create(**_PATIENT)
    race.direct.sql(f"INSERT INTO {race.name} SELECT /*+ COALESCE(1) */ id + 1, 'old' FROM range(2)")
    race.overtake()
    race.slow.sql(statement.format(race.name))
    assert race.late.statuses == [409, 200]
    assert race.late.answers[0].why_not_rebased == "headgate.rebase does not allow the operation overwrite"
    assert race.fine.agrees(left)


def test_a_table_made_from_a_query_lets_the_service_rebase_from_its_first_insert(race: Race) -> None:
    race.slow.sql(
        f"CREATE TABLE {race.name} USING iceberg {race.slow.properties(_REBASE)} AS SELECT 1L AS id, 'ours' AS kind"
    )
    assert race.late.statuses == [200]
    race.overtake()
    race.slow.sql(f"INSERT INTO {race.name} VALUES (2, 'ours')")
    assert race.all_were_rebased(since=1)
    assert race.fine.agrees([(1, "ours"), (2, "ours"), *race.theirs()])


# --- PyIceberg --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, _MERGING], ids=["apart", "merged"])
def test_an_append_of_pyiceberg_that_is_overtaken_lands_at_its_first_sending(
    race_v2: Race, properties: dict[str, str]
) -> None:
    race = race_v2
    race.create(**properties)
    table = catalog_of(race.late.uri).load_table((race.direct.namespace, "t"))
    race.overtake(4)
    for n in range(4):
        table.append(_batch((n, "ours")))  # on what the last answer told
    assert race.all_were_rebased()
    assert race.fine.agrees([(n, "ours") for n in range(4)] + race.theirs())


def test_what_pyiceberg_removes_is_left_to_it_with_the_reason(race_v2: Race) -> None:
    race = race_v2
    race.create(**_PATIENT)
    catalog_of(race.late.uri).load_table((race.direct.namespace, "t")).append(_batch((1, "old"), (2, "old")))
    race.late.answers.clear()
    table = catalog_of(race.late.uri).load_table((race.direct.namespace, "t"))
    race.overtake()
    table.delete("id = 1")
    assert race.late.statuses == [409, 200]
    assert race.late.answers[0].why_not_rebased == "headgate.rebase does not allow the operation overwrite"
    race.overtake()
    table.overwrite(_batch((3, "new")), overwrite_filter="id = 2")
    assert race.late.statuses[2:] == [409, 200]
    assert race.fine.agrees([(3, "new"), *race.theirs()])


# --- all at once ------------------------------------------------------------------------------------------

_EACH = 5


def _run_at_once(writers: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(writers)) as pool:
        for done in [pool.submit(writer) for writer in writers]:
            done.result()


def _spark_writer(lake: Lake, name: str, first: int) -> Callable[[], None]:
    def write() -> None:
        for n in range(first, first + _EACH):
            lake.sql(f"INSERT INTO {name} VALUES ({n}, 'spark')")

    return write


def _pyiceberg_writer(uri: str, lake: Lake, first: int, barrier: threading.Barrier) -> Callable[[], None]:
    def write() -> None:
        table = catalog_of(uri).load_table((lake.namespace, "t"))
        barrier.wait(60)  # so that the first commits of all but one come too late
        for n in range(first, first + _EACH):
            table.append(_batch((n, "pyiceberg")))

    return write


def _fine_writer(fine: Fine, first: int) -> Callable[[], None]:
    def write() -> None:
        for n in range(first, first + _EACH):
            fine.commit({"action": "append", "add-data-files": [fine.write(_COLUMNS, [(n, "fine")])]})

    return write


@pytest.mark.parametrize(
    "properties", [_REBASE, {**_REBASE, **_MERGING}, {}], ids=["rebased", "merged", "plain"]
)
def test_engines_that_write_at_once_lose_nothing_and_are_refused_only_without_the_property(
    lake_v2: Lake, service: Service, properties: dict[str, str]
) -> None:
    name = lake_v2.create("t", "id BIGINT, kind STRING", properties={**_PATIENT, **properties})
    before = count_commit_answers(read_metrics(service.port), 409)
    barrier = threading.Barrier(4)
    _run_at_once(
        [_pyiceberg_writer(service.uri, lake_v2, n * _EACH, barrier) for n in range(4)]
        + [_spark_writer(lake_v2, name, n * _EACH) for n in (4, 5)]
    )
    refused = count_commit_answers(read_metrics(service.port), 409) - before
    assert (refused == 0) == bool(properties)
    kinds = ["pyiceberg"] * 4 * _EACH + ["spark"] * 2 * _EACH
    assert Fine(lake_v2, "t").agrees(list(enumerate(kinds)))


def test_compactions_among_writers_cost_nobody_a_refusal(lake: Lake, service: Service) -> None:
    name = lake.create("t", "id BIGINT, kind STRING", properties={**_REBASE, **_MERGING})
    fine = Fine(lake, "t")
    _fine_writer(fine, 0)()
    before = count_commit_answers(read_metrics(service.port), 409)

    def compact() -> None:
        for _ in range(2):
            lake.call("rewrite_data_files", name, "options => map('rewrite-all', 'true')")

    _run_at_once(
        [_fine_writer(fine, n * _EACH) for n in (1, 2)]
        + [_spark_writer(lake, name, n * _EACH) for n in (3, 4)]
        + [compact]
    )
    assert count_commit_answers(read_metrics(service.port), 409) == before
    assert fine.agrees(list(enumerate(["fine"] * 3 * _EACH + ["spark"] * 2 * _EACH)))
    assert lake.rows(f"SELECT operation, count(*) FROM {name}.snapshots GROUP BY operation") == [
        ("append", 5 * _EACH),
        ("replace", 2),
    ]
    if lake.version == 3:
        assert len({row[1] for row in fine.lineage()}) == 5 * _EACH
