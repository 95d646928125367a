"""The promise of incremental views at length: 200 random commits, the same answer, a tenth of the bytes."""

from __future__ import annotations

import sys

import pytest

from headgate.spark.view_plan import PREFIX
from headgate.spark.views import Kind, create_view_job, refresh
from tests.spark.random_commits import KINDS, RandomSource
from tests.spark.tables import Rows, Tables

_COMMITS, _EVERY = 200, 10  # commits, and how many of them between refreshes
_FILES, _ROWS_PER_FILE = 200, 500
_VIEWS = {
    "totals": "SELECT k.label, count(*) AS n, sum(p.amount) AS total, avg(p.amount) AS mean "
    "FROM pay p JOIN kinds k ON p.kind = k.kind GROUP BY k.label",
    "large": "SELECT id, upper(kind) AS kind, amount FROM pay WHERE amount >= 990",
}


def _whole(tables: Tables, query: str) -> Rows:
    for source in ("pay", "kinds"):
        tables.spark.table(tables.name(source)).createOrReplaceTempView(source)
    return sorted((tuple(row) for row in tables.spark.sql(query).collect()), key=repr)


def _shown(tables: Tables, view: str) -> Rows:
    columns = [one.name for one in tables.table(view).load().schema.fields]
    count = sum(not column.startswith(PREFIX) for column in columns)
    return sorted((row[:count] for row in tables.rows(view)), key=repr)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_200_random_commits_a_view_is_the_full_query_for_a_tenth_of_the_bytes(
    tables_v2: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tables_v2
    pay = tables.create("pay", "id BIGINT, kind STRING, amount DECIMAL(12, 2)")
    tables.create("kinds", "kind STRING, label STRING")
    labels = ", ".join(f"('{kind}', 'label {number % 5}')" for number, kind in enumerate(KINDS))
    tables.sql(f"INSERT INTO {tables.name('kinds')} SELECT /*+ COALESCE(1) */ * FROM VALUES {labels}")
    source = RandomSource(pay, seed=6, rows_per_file=_ROWS_PER_FILE)
    source.fill(_FILES)
    sources = [f"{tables.namespace}.{name}" for name in ("pay", "kinds")]
    for view, query in _VIEWS.items():
        names = sources if "kinds" in query else sources[:1]
        create_view_job(tables.lake, (tables.namespace, view), query, names, spark=tables.spark)
        refresh(tables.lake, (tables.namespace, view), spark=tables.spark)

    read = dict.fromkeys(_VIEWS, 0)
    would_read = dict.fromkeys(_VIEWS, 0)
    for number in range(1, _COMMITS + 1):
        source.step()
        for view, query in _VIEWS.items():
            if number % _EVERY:
                continue
            done = refresh(tables.lake, (tables.namespace, view), spark=tables.spark)
            assert (done.kind, done.reason) == (Kind.INCREMENTAL, None), number
            read[view] += done.bytes_read
            would_read[view] += source.size_bytes
            if number % 50 == 0:
                assert _shown(tables, view) == _whole(tables, query), number
    rebuilt = refresh(tables.lake, (tables.namespace, "large"), spark=tables.spark, full=True)
    assert rebuilt.bytes_read == source.size_bytes  # what is counted as a rebuild is what one reads
    with capsys.disabled():
        for view in _VIEWS:
            ratio = would_read[view] / read[view]
            sys.stderr.write(
                f"\n{view}: {read[view]:,} bytes read, {would_read[view]:,} by rebuilds: {ratio:.1f} x fewer\n"
            )
    assert all(would_read[view] >= 10 * read[view] for view in _VIEWS)
