"""Two tables of the same rows: ours is changed by our jobs, theirs by Spark's SQL through the Iceberg jar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.core.manifest import FileContent
from headgate.spark.lake import LakeTable
from headgate.spark.row_changes import Changed
from headgate.spark.scan import plan
from tests.compat.lake import local_files
from tests.spark.tables import Rows, Tables

OURS, THEIRS = "ours", "theirs"
COLUMNS = "id BIGINT, kind STRING, amount DECIMAL(10,2), at TIMESTAMP"
BATCHES = (
    "(1, 'a', 1.00, TIMESTAMP '2024-01-01 00:00:00'), (2, 'b', 2.00, TIMESTAMP '2024-01-01 12:00:00'), "
    "(3, NULL, 3.00, NULL), (4, 'a', NULL, TIMESTAMP '2024-01-02 00:00:00')",
    "(5, 'b', 5.00, TIMESTAMP '2024-01-02 01:00:00'), (6, 'c', 6.00, TIMESTAMP '2024-01-03 00:00:00'), "
    "(7, 'a', 7.00, TIMESTAMP '2024-01-03 00:00:01')",
    "(8, 'c', 8.00, NULL), (9, NULL, 9.00, TIMESTAMP '2024-01-04 00:00:00'), (10, 'b', -1.00, NULL)",
)
ROWS = 10
# How the table is laid out: what it is partitioned by at first, and what happens before each further batch.
LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("", ()),
    "partitioned": ("kind, days(at)", ()),
    "evolved": ("", ("ADD PARTITION FIELD kind", "ADD PARTITION FIELD bucket(2, id)")),
    "dropped": ("bucket(2, id), kind", ("DROP PARTITION FIELD kind",)),
}


@dataclass(frozen=True)
class Twins:
    """Both tables, and how to hold them against each other."""

    tables: Tables

    @property
    def ours(self) -> LakeTable:
        return self.tables.table(OURS)

    def sql(self, statement: str) -> None:
        """Run a statement on theirs; `{t}` stands for the table."""
        self.tables.sql(statement.format(t=self.tables.name(THEIRS)))

    def both(self, statement: str) -> None:
        """Run a statement on both through the jar."""
        self.tables.sql(*(statement.format(t=self.tables.name(table)) for table in (OURS, THEIRS)))

    def agree(self) -> Rows:
        """The rows of both tables, which must be the same for both readers."""
        ours, theirs = self.tables.rows(OURS), self.tables.by_jar(THEIRS)
        assert ours == theirs, f"ours {ours}, theirs {theirs}"
        return ours

    def lineage(self) -> dict[object, tuple[object, object]]:
        """Row ids and last changes of ours by the first column, in v3."""
        found = self.tables.by_jar(OURS, "id, _row_id, _last_updated_sequence_number")
        return {row[0]: (row[1], row[2]) for row in found}

    def data_files(self) -> set[str]:
        """Where the live data files of ours are."""
        return {scanned.path for scanned in plan(self.ours.load()).files}

    def all_files(self) -> set[Path]:
        """Everything that lies in the folders of ours, committed or not; what a failed job left too."""
        return local_files(self.ours.load().location, "*.parquet")

    def delete_files(self) -> dict[str, list[str]]:
        """The formats of the position delete files that each data file of ours has."""
        return {
            scanned.path: [
                one.file_format for one in scanned.deletes if one.content is FileContent.POSITION_DELETES
            ]
            for scanned in plan(self.ours.load()).files
            if scanned.deletes
        }


def make_twins(tables: Tables, layout: str = "plain", properties: dict[str, str] | None = None) -> Twins:
    """Both tables with three batches of rows, nulls among them."""
    partitioned, steps = LAYOUTS[layout]
    twins = Twins(tables)
    for table in (OURS, THEIRS):
        tables.create(table, COLUMNS, partitioned=partitioned, properties=properties)
    for number, batch in enumerate(BATCHES):
        if 0 < number <= len(steps):
            twins.both(f"ALTER TABLE {{t}} {steps[number - 1]}")
        # One task each, so that a batch is one file in each partition.
        twins.both(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {batch}")
    return twins


def snapshot_summary(table: LakeTable, changed: Changed) -> dict[str, str]:
    """What the snapshot of a change says of itself."""
    assert changed.committed is not None
    snapshot = table.load().metadata.snapshot_by_id(changed.committed.snapshot_id or 0)
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
