"""Rows into a table: append, overwrite what a filter matches, or replace the partitions that the rows are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression
from pyspark.sql import DataFrame

from headgate.client import Committed
from headgate.client.changes import FROM_TABLE, File
from headgate.client.results import MAIN
from headgate.errors import BadInput
from headgate.spark.data_files import write_files
from headgate.spark.filters import read_filter
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.landing import discard_quietly, land
from headgate.spark.repeats import find_landed
from headgate.spark.runs import Run, new_run

APPEND, OVERWRITE, REPLACE_PARTITIONS = "append", "overwrite", "replace_partitions"
_MODES = (APPEND, OVERWRITE, REPLACE_PARTITIONS)


@dataclass(frozen=True, slots=True)
class Written:
    """What a job has written. `committed` is None when there was nothing to commit."""

    committed: Committed | None
    files: tuple[File, ...]
    rows: int
    run: Run


@dataclass(frozen=True, slots=True)
class _Wish:
    """How the files of a job get into the table."""

    mode: str
    row_filter: object
    branch: str
    isolation: str | None
    summary: Mapping[str, str] | None


def write(
    df: DataFrame,
    table: LakeTable,
    *,
    mode: str = APPEND,
    filter: str | BooleanExpression | None = None,
    branch: str = MAIN,
    isolation: str | None = FROM_TABLE,
    key: str | None = None,
    summary: Mapping[str, str] | None = None,
    road: str | None = None,
) -> Written:
    """Write the rows and commit them, once. Without rows only an overwrite commits anything.

    A key whose commit has landed already, by a run whose answer was lost, is not committed again: no rows are written.
    """
    if mode not in _MODES:
        raise BadInput(f"mode: expected one of {', '.join(_MODES)}, got {mode!r}", field="mode")
    if filter is not None and mode != OVERWRITE:
        raise BadInput(f"filter: only mode={OVERWRITE} takes one", field="filter")
    run, state = new_run(key), table.load()
    base = state.snapshot_id(branch)
    if key is not None and (landed := find_landed(table, key)) is not None:
        return Written(landed, (), 0, run)
    row_filter: object = None
    if mode == OVERWRITE:
        row_filter = _wire_filter(df, filter, state)
    files = write_run(df, state, run, road=road)
    rows = sum(int(file["record-count"]) for file in files)
    if not files and (mode != OVERWRITE or base is None):
        return Written(None, (), 0, run)
    wish = _Wish(mode, row_filter, branch, isolation, summary)
    committed = land(table, run, files, lambda key: _commit(table, files, wish, base, key), state=state)
    return Written(committed, files, rows, run)


def write_run(
    df: DataFrame,
    state: TableState,
    run: Run,
    *,
    spec_id: int | None = None,
    extra: Sequence[str] = (),
    road: str | None = None,
    partition: Mapping[str, object] | None = None,
) -> tuple[File, ...]:
    """`write_files` for a run that nothing was committed of yet: when it fails, what it wrote is removed."""
    try:
        return write_files(df, state, run, spec_id=spec_id, extra=extra, road=road, partition=partition)
    except BaseException:
        discard_quietly(state.table, run, (), state)
        raise


def _wire_filter(df: DataFrame, filter_: str | BooleanExpression | None, state: TableState) -> object:
    """What is overwritten, as the service wants to be told: it must be able to tell it for whole files."""
    found = read_filter(df.sparkSession, filter_, state)
    if not found.is_exact:
        raise BadInput(
            f"filter: an overwrite is by columns, literals and comparisons only, got {found.sql[:200]!r}; "
            "delete the rows first, then append",
            field="filter",
        )
    return found.wire


def _commit(table: LakeTable, files: tuple[File, ...], wish: _Wish, base: int | None, key: str) -> Committed:
    client, summary = table.client, wish.summary
    if wish.mode == APPEND:
        return client.append(files, branch=wish.branch, summary=summary, key=key)
    if wish.mode == REPLACE_PARTITIONS:
        return client.replace_partitions(
            files,
            base_snapshot_id=base,
            isolation=wish.isolation,
            branch=wish.branch,
            summary=summary,
            key=key,
        )
    return client.overwrite(
        add=files,
        row_filter=wish.row_filter,
        base_snapshot_id=base,
        isolation=wish.isolation,
        branch=wish.branch,
        summary=summary,
        key=key,
    )
