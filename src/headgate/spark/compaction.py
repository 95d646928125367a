"""Compaction: the same rows in better files, group by group, in nobody's way.

    plan ─▶ groups of one partition ─▶ read, write anew ─▶ one `replace` a group

A `replace` conflicts with whoever removed or deleted from its own files, and with nothing else: appends and other
partitions pass by. A group that lost such a race is left out and reported with the evidence; what others did to its
files stands, and the next compaction finds it. Before work on a group begins, what was committed meanwhile is looked
at, so that no work is done in vain. A few groups are written at once, so that small ones do not wait for each other;
they are committed one after the other. New files keep the age of the base: equality deletes that come while
they are written apply to them as they would have to the old ones. Files that come under another partition spec do not keep
it: an equality delete applies within its own spec, so one that came meanwhile is a conflict there.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from headgate.client import Committed
from headgate.client.changes import File
from headgate.core.manifest import ContentFile, FileContent
from headgate.errors import BadInput, ConflictFound, Diverged
from headgate.spark.compact_groups import (
    DELETE_RATIO,
    FILES_MIN,
    GROUP_BYTES_MAX,
    Candidate,
    Group,
    Sizing,
    find_dangling,
    find_groups,
)
from headgate.spark.compact_window import Window
from headgate.spark.filters import Condition, read_filter
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.landing import discard_quietly, land
from headgate.spark.layout import DISTRIBUTION, sort_columns
from headgate.spark.lineage import LAST_UPDATED, ROW_ID
from headgate.spark.runs import Run, new_run
from headgate.spark.scan import Scan, ScannedFile, plan, read
from headgate.spark.writer_options import TARGET_SIZE, TARGET_SIZE_DEFAULT_BYTES, number_of
from headgate.spark.writes import write_run

STRATEGIES = ("binpack", "sort")
AT_ONCE = 5  # groups that are written at the same time, as the Iceberg jar does by itself
_FOREIGN_ORDER = 1_000_000  # the id, for the writer, of an order that the table does not have
_SORT_PART = re.compile(r"\s*(.+?)(?:\s+(ASC|DESC))?(?:\s+NULLS\s+(FIRST|LAST))?\s*", re.IGNORECASE)
_ROOM = 2  # a file may get so much larger than planned before it is cut: estimates by row are coarse


@dataclass(frozen=True)
class CompactedGroup:
    """One group: its files before and after, and the commit; or why it was left out, and the evidence."""

    partition: Mapping[int, object]
    files_before: int
    bytes_before: int
    files_after: int = 0
    bytes_after: int = 0
    deletes_removed: int = 0
    committed: Committed | None = None
    reason: str | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Compacted:
    """What a compaction did. Groups that lost a race are in `skipped`; the table is as others left it there."""

    groups: tuple[CompactedGroup, ...] = ()

    @property
    def landed(self) -> tuple[CompactedGroup, ...]:
        """The groups that were committed."""
        return tuple(group for group in self.groups if group.committed is not None)

    @property
    def skipped(self) -> tuple[CompactedGroup, ...]:
        """The groups that were left as they are."""
        return tuple(group for group in self.groups if group.committed is None)


Tell = Callable[[CompactedGroup], None]


def compact(
    table: LakeTable,
    *,
    where: Condition = None,
    strategy: str = "binpack",
    sort_by: Sequence[str] | None = None,
    target_size_bytes: int | None = None,
    min_files: int = FILES_MIN,
    max_group_bytes: int = GROUP_BYTES_MAX,
    delete_ratio: float = DELETE_RATIO,
    rewrite_all: bool = False,
    partial_progress: bool = True,
    at_once: int = AT_ONCE,
    older_than: timedelta | None = None,
    branch: str = "main",
    spark: SparkSession | None = None,
    on_written: Tell = lambda _: None,
) -> Compacted:
    """Rewrite files that may hold rows of `where` and are too small, too large or full of deleted rows.

    `strategy` "sort" orders the rows of a group by `sort_by` (like "id DESC") or by the table's sort order. With
    `partial_progress` every group is a commit of its own, else all groups land together or none does. `at_once` groups
    are written at the same time. With `older_than`, files that were added since then are left alone: those that others are
    still at work on, and whose deletes and merges a rewrite would refuse. `on_written` is told of each group whose files
    are written and not committed yet.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise BadInput("spark: no session is active; start one with build_session", field="spark")
    state = table.load(all_snapshots=older_than is not None)
    base_id = state.snapshot_id(branch)
    hot_from = None if older_than is None else _find_hot(state, older_than)
    order = _find_order(state, strategy, sort_by)
    if target_size_bytes is None:
        target_size_bytes = number_of(state.properties, TARGET_SIZE, TARGET_SIZE_DEFAULT_BYTES)
    if at_once < 1:
        raise BadInput(f"at_once: expected at least 1, got {at_once}", field="at_once")
    sizing = Sizing(target_size_bytes, min_files, max_group_bytes, delete_ratio, rewrite_all)
    expression = read_filter(session, where, state, name="where").expression
    if base_id is None:
        return Compacted()
    every = plan(state, branch=branch)
    wanted = every if where is None else plan(state, row_filter=expression, branch=branch)
    files = [one for one in wanted.files if hot_from is None or one.data_sequence_number < hot_from]
    groups = find_groups([_candidate(scanned, state) for scanned in files], sizing)
    work = _Compaction(session, state, branch, base_id, sizing, order, every, on_written, at_once)
    return work.one_by_one(groups) if partial_progress else work.together(groups)


@dataclass
class _Compaction:
    """A compaction that is under way: the base it read, and what it has removed so far."""

    session: SparkSession
    state: TableState
    branch: str
    base_id: int
    sizing: Sizing
    order: SortOrder | None  # None: rows stay in the order they have
    every: Scan
    tell: Tell
    at_once: int
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._by_path = {scanned.path: scanned for scanned in self.every.files}
        self._window = Window(self.state.table, self.branch, self.base_id)

    def one_by_one(self, groups: Sequence[Group]) -> Compacted:
        """Every group a commit of its own."""
        waiting, done = deque(enumerate(groups)), dict[int, CompactedGroup]()
        writing: dict[Future[tuple[File, ...]], tuple[int, Group, Run]] = {}
        with ThreadPoolExecutor(self.at_once) as threads:
            try:
                while waiting or writing:
                    while waiting and len(writing) < self.at_once:
                        number, group = waiting.popleft()
                        done[number] = self._look(group)
                        if done[number].reason is None:
                            run = new_run()
                            writing[self._begin(threads, group, run)] = number, group, run
                    for future in wait(writing, return_when=FIRST_COMPLETED).done:
                        number, group, run = writing[future]
                        written = _written(done[number], future.result())
                        self.tell(written)
                        del writing[future]  # what becomes of its files is for the commit to say
                        done[number] = self._finish(done[number], written, group, run, future.result())
            except BaseException:
                threads.shutdown(cancel_futures=True)
                for _, _, run in writing.values():
                    discard_quietly(self.state.table, run, (), self.state)
                raise
        return Compacted(tuple(done[number] for number in sorted(done)))

    def together(self, groups: Sequence[Group]) -> Compacted:
        """All groups in one commit; a conflict of one is raised, and nothing has changed."""
        if not groups:
            return Compacted()
        run = new_run()
        files: list[File] = []
        done = []
        with ThreadPoolExecutor(self.at_once) as threads:
            try:
                writing = [self._begin(threads, group, run) for group in groups]
                for group, future in zip(groups, writing, strict=True):
                    files += future.result()
                    done.append(_written(self._report(group), future.result()))
                    self.tell(done[-1])
            except BaseException:
                threads.shutdown(cancel_futures=True)
                discard_quietly(self.state.table, run, files, self.state)
                raise
        committed = self._commit(run, groups, files)
        return Compacted(tuple(replace(report, committed=committed) for report in done))

    def _look(self, group: Group) -> CompactedGroup:
        """A group before its work begins, with the reason if it has lost already."""
        report = self._report(group)
        lost = self._window.find_lost(group)
        return report if lost is None else replace(report, reason=lost.message, evidence=lost.evidence)

    def _begin(self, threads: ThreadPoolExecutor, group: Group, run: Run) -> Future[tuple[File, ...]]:
        """Write a group in a thread that Spark takes for this one: with its pool and its job group."""
        return threads.submit(inheritable_thread_target(self.session)(self._write), group, run)

    def _finish(
        self, report: CompactedGroup, written: CompactedGroup, group: Group, run: Run, files: Sequence[File]
    ) -> CompactedGroup:
        """Commit a group that is written."""
        try:
            committed = self._commit(run, [group], files)
        except (ConflictFound, Diverged) as error:
            return replace(report, reason=error.message, evidence=error.evidence)
        removed = len(self._dangling([group]))
        self.gone.update(group.paths)
        return replace(written, committed=committed, deletes_removed=removed)

    def _write(self, group: Group, run: Run) -> tuple[File, ...]:
        files = [self._by_path[path] for path in group.paths]
        keeps_lineage = self.state.format_version >= 3
        rows = read(self.session, files, self.state, lineage=keeps_lineage)
        count = self.sizing.files_out(group.size_bytes)
        is_misplaced = _is_misplaced(group)
        state = _laid_out(self.state, self.sizing, self.order, is_misplaced=is_misplaced)
        partition = None
        if not is_misplaced:
            rows = _arranged(rows, count, self.state, self.order)
            values = self.every.partition_wire(files[0])
            partition = {
                one.name: value
                for one, value in zip(state.spec.fields, values, strict=True)
                if not isinstance(one.transform, VoidTransform)
            }
        extra = (ROW_ID, LAST_UPDATED) if keeps_lineage else ()
        written = write_run(rows, state, run, extra=extra, partition=partition)
        return tuple(map(_unordered, written))

    def _commit(self, run: Run, groups: Sequence[Group], files: Sequence[File]) -> Committed:
        client = self.state.table.client
        paths = [path for group in groups for path in group.paths]
        head = next(one for one in self.state.raw["snapshots"] if one["snapshot-id"] == self.base_id)
        is_new = self.state.format_version < 2 or any(map(_is_misplaced, groups))
        return land(
            self.state.table,
            run,
            files,
            lambda key: client.replace(
                remove=paths,
                add=files,
                remove_deletes=[_reference(file) for file in self._dangling(groups)],
                sequence_number=None if is_new else _sequence_number(head),
                base_snapshot_id=self.base_id,
                branch=self.branch,
                key=key,
            ),
            state=self.state,
        )

    def _dangling(self, groups: Sequence[Group]) -> tuple[ContentFile, ...]:
        """The delete files that apply to nothing once these groups are rewritten."""
        applies_to: dict[Hashable, set[str]] = {}
        deletes: dict[Hashable, ContentFile] = {}
        for scanned in self.every.files:
            for delete in scanned.deletes:
                applies_to.setdefault(delete.identity, set()).add(scanned.path)
                deletes[delete.identity] = delete
        removed = frozenset(path for group in groups for path in group.paths)
        found = find_dangling(applies_to, removed=removed, gone=frozenset(self.gone))
        return tuple(deletes[identity] for identity in found)

    def _report(self, group: Group) -> CompactedGroup:
        partition = dict(self._by_path[group.paths[0]].partition)
        return CompactedGroup(partition, len(group.files), group.size_bytes)


def _find_hot(state: TableState, older_than: timedelta) -> int | None:
    """The sequence number from which on files are younger than this; None when there are none."""
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise BadInput(f"older_than: expected no negative timedelta, got {older_than!r}", field="older_than")
    if state.format_version < 2:
        raise BadInput(
            "older_than: a table of format version 1 does not tell the age of its files", field="older_than"
        )
    since_ms = time.time() * 1000 - older_than / timedelta(milliseconds=1)
    young = (one for one in state.raw["snapshots"] if one["timestamp-ms"] > since_ms)
    return min((_sequence_number(one) for one in young), default=None)


def _sequence_number(snapshot: Mapping[str, Any]) -> int:
    """That of a snapshot from before the table's upgrade from version 1 is 0, and not written."""
    return int(snapshot.get("sequence-number", 0))


def _is_misplaced(group: Group) -> bool:
    """Whether a group comes under another partition spec."""
    return any(file.is_misplaced for file in group.files)


def _candidate(scanned: ScannedFile, state: TableState) -> Candidate:
    deleted = sum(
        delete.record_count
        for delete in scanned.own_deletes
        if delete.content is FileContent.POSITION_DELETES
    )
    return Candidate(
        scanned.path,
        place=(scanned.spec_id, scanned.partition),
        size_bytes=scanned.file.file_size_in_bytes,
        rows=scanned.file.record_count,
        deleted_rows=deleted,
        is_misplaced=scanned.spec_id != state.spec.spec_id,
    )


def _find_order(state: TableState, strategy: str, sort_by: Sequence[str] | None) -> SortOrder | None:
    if strategy not in STRATEGIES:
        raise BadInput(f"strategy: expected {' or '.join(STRATEGIES)}, got {strategy!r}", field="strategy")
    if strategy == "binpack":
        if sort_by:
            raise BadInput("sort_by: is for the strategy sort", field="sort_by")
        return None
    if sort_by:
        return SortOrder(*(_sort_field(state, text) for text in sort_by), order_id=_FOREIGN_ORDER)
    if not state.sort_order.fields:
        raise BadInput("sort_by: the table has no sort order; say what to sort by", field="sort_by")
    return state.sort_order


def _sort_field(state: TableState, text: str) -> SortField:
    """One part of an order, as ORDER BY has it: a column, and perhaps a direction and where nulls are."""
    found = _SORT_PART.fullmatch(text)
    try:
        column = state.schema.find_field(found[1] if found else text)
    except ValueError as error:
        raise BadInput(f"sort_by: expected a column [ASC|DESC], got {text!r}", field="sort_by") from error
    is_down = found is not None and (found[2] or "").upper() == "DESC"
    nulls = ((found[3] if found else "") or ("LAST" if is_down else "FIRST")).upper()
    return SortField(
        source_id=column.field_id,
        transform=IdentityTransform(),
        direction=SortDirection.DESC if is_down else SortDirection.ASC,
        null_order=NullOrder.NULLS_FIRST if nulls == "FIRST" else NullOrder.NULLS_LAST,
    )


def _arranged(rows: DataFrame, count: int, state: TableState, order: SortOrder | None) -> DataFrame:
    """Rows of one partition in as many tasks as there shall be files. The writer sorts within each."""
    if order is not None:
        return rows.repartitionByRange(count, *sort_columns(order.fields, state.schema))
    if count == 1 or rows.rdd.getNumPartitions() >= count:
        return rows.coalesce(count)
    return rows.repartition(count)


def _laid_out(
    state: TableState, sizing: Sizing, order: SortOrder | None, *, is_misplaced: bool
) -> TableState:
    """The table as the writer shall see it: with this target size and order, and rows in the tasks they come in."""
    raw = dict(state.raw)
    properties = {**state.properties, TARGET_SIZE: str(sizing.target_bytes)}
    if not is_misplaced:
        properties |= {DISTRIBUTION: "none", TARGET_SIZE: str(sizing.target_bytes * _ROOM)}
    if order is not None:
        orders = [one for one in raw["sort-orders"] if one["order-id"] != order.order_id]
        raw["sort-orders"] = [*orders, order.model_dump(mode="json", by_alias=True)]
        raw["default-sort-order-id"] = order.order_id
    raw["properties"] = properties
    return replace(state, loaded=replace(state.loaded, metadata=raw))


def _unordered(file: File) -> File:
    """A file without the number of an order that the table does not know."""
    return {name: value for name, value in file.items() if (name, value) != ("sort-order-id", _FOREIGN_ORDER)}


def _reference(file: ContentFile) -> File:
    if file.content_offset is None:
        return {"file-path": file.file_path}
    return {"file-path": file.file_path, "content-offset": file.content_offset}


def _written(report: CompactedGroup, files: Sequence[File]) -> CompactedGroup:
    size_bytes = sum(int(file["file-size-in-bytes"]) for file in files)
    return replace(report, files_after=len(files), bytes_after=size_bytes)
