"""Incremental views: a query whose result is an Iceberg table, brought up to date by what changed in its sources.

    create_view_job   checks the query, and makes the empty result table that remembers it
    refresh           what came and went since the last one ─▶ the query over that alone ─▶ merged into the result

The result and how far it has come are one commit. A change that the query cannot follow (see `view_plan` for queries,
`view_changes` for commits, `view_merge` for values) is answered by building the result anew, with the reason; so a
refresh always ends in the answer that the whole query would give at the snapshots of the sources that it read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyiceberg.exceptions import TableAlreadyExistsError
from pyspark.sql import DataFrame, SparkSession

from headgate.client import Committed
from headgate.client.table import Name
from headgate.core.own_properties import VIEW_DEFINITION
from headgate.errors import AlreadyExists, BadInput, NotFound, RequirementFailed
from headgate.spark.lake import Lake, LakeTable, TableState
from headgate.spark.runs import new_run
from headgate.spark.scan import ScannedFile
from headgate.spark.session import has_jar_catalog, prepare_session
from headgate.spark.view_changes import Delta, Lost
from headgate.spark.view_job import RUN_SUMMARY, Definition, Progress, define, read_definition, read_progress
from headgate.spark.view_merge import (
    SIGN,
    add_groups,
    add_rows,
    cancel,
    changed_rows,
    find_group_fault,
    find_incomparable,
    find_row_fault,
    repeat_rows,
    shown_groups,
    stored_columns,
)
from headgate.spark.view_plan import PREFIX, Groups, Rows, Shape, Whole, classify
from headgate.spark.view_query import find_foreign, read_plan, run_query
from headgate.spark.view_result import find_files, fit_result, put, result_schema
from headgate.spark.view_sources import Meter, Source, read_metered

_ATTEMPTS_MAX = 3


class Kind(StrEnum):
    """What a refresh did."""

    UNCHANGED = "unchanged"  # no row of a source changed; at most the progress was noted
    INCREMENTAL = "incremental"
    REBUILT = "rebuilt"


@dataclass(frozen=True)
class ViewJob:
    """A view that was made. `reason` tells why its query can follow no change, if it cannot."""

    table: LakeTable
    definition: Definition
    reason: str | None


@dataclass(frozen=True)
class Refreshed:
    """What a refresh did, why it had to build everything anew if it had to, and how much it read."""

    kind: Kind
    reason: str | None = None
    files_read: int = 0
    bytes_read: int = 0
    committed: Committed | None = None


def create_view_job(
    lake: Lake,
    name: Name,
    query: str,
    sources: Mapping[str, str] | Sequence[str],
    *,
    properties: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> ViewJob:
    """Make the result table `name` of a query over `sources` (tables, or tables by alias). `refresh` fills it."""
    table = lake.table(name)
    definition = define(query, sources)
    session = _session(spark, lake)
    loaded = _load(lake, definition, Meter())
    result = _query(session, definition, {source.alias: _empty(session, source) for source in loaded})
    if foreign := find_foreign(result, definition.sources):
        raise BadInput(
            f"query: reads {', '.join(foreign)}, which is not among the sources {', '.join(definition.sources)}",
            field="query",
        )
    _check_columns(result)
    shape = _classify(result, definition)
    schema = result_schema(_stored(result, shape))
    said = {**(properties or {}), VIEW_DEFINITION: definition.encode()}
    try:
        lake.catalog().create_table(table.identifier, schema, properties=said)
    except TableAlreadyExistsError as error:
        raise AlreadyExists(f"Table already exists: {table.name}", kind="table") from error
    return ViewJob(table, definition, shape.reason if isinstance(shape, Whole) else None)


def refresh(lake: Lake, name: Name, *, full: bool = False, spark: SparkSession | None = None) -> Refreshed:
    """Bring a view up to date; with `full`, from nothing. Begins again when another refresh was faster."""
    table = lake.table(name)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        state = table.load()
        definition = read_definition(state.properties, table.name)
        meter = Meter()
        work = _Refresh(_session(spark, lake), state, definition, _load(lake, definition, meter), meter)
        try:
            return work.run(full=full)
        except RequirementFailed:
            if attempt == _ATTEMPTS_MAX:
                raise
    raise BadInput(f"{table.name}: no attempt was made", field="name")


@dataclass
class _Refresh:
    """One attempt at one refresh: everything is read at the heads that it loaded."""

    session: SparkSession
    state: TableState
    definition: Definition
    sources: Sequence[Source]
    meter: Meter
    kept: list[DataFrame] = field(default_factory=list)

    def run(self, *, full: bool) -> Refreshed:
        try:
            known = Lost("it was asked for") if full else self._known()
            followed = known if isinstance(known, Lost) else self._follow(known)
            return self._rebuild(followed.reason) if isinstance(followed, Lost) else followed
        finally:
            for frame in self.kept:
                frame.unpersist()

    # --- following ----------------------------------------------------------------------------------------

    def _known(self) -> Progress | Lost:
        """How far the result has come, if it can be gone on from there."""
        progress = read_progress(self.state.properties)
        if progress is None:
            return Lost("nothing was built before")
        if progress.definition != self.definition.hash:
            return Lost("the query is another one now")
        if progress.stateless is not None:
            return Lost(progress.stateless)
        return progress if self._is_own(progress) else Lost("the result was changed by somebody else")

    def _is_own(self, progress: Progress) -> bool:
        """Whether the result is as the last refresh left it. A compaction of the result changes no row of it."""
        at, state = self.state.snapshot_id(), self.state
        if at is None:
            return progress.run is None
        snapshots = {one["snapshot-id"]: one for one in state.raw.get("snapshots", ())}
        if snapshots[at]["summary"].get("operation") == "replace":
            every = state.table.load(all_snapshots=True)
            snapshots = {one["snapshot-id"]: one for one in every.raw.get("snapshots", ())}
        while at in snapshots and snapshots[at]["summary"].get("operation") == "replace":
            at = snapshots[at].get("parent-snapshot-id")
        return at in snapshots and snapshots[at]["summary"].get(RUN_SUMMARY) == progress.run

    def _follow(self, progress: Progress) -> Refreshed | Lost:
        deltas: dict[str, Delta] = {}
        for source in self.sources:
            delta = source.find_delta(progress.sources[source.alias])
            if isinstance(delta, Lost):
                return delta
            if not delta.is_empty:
                deltas[source.alias] = delta
        done = replace(progress, sources={source.alias: source.place for source in self.sources})
        if not deltas:
            return self._note(done) if done != progress else self._answer(Kind.UNCHANGED, None)
        shape = self._shape()
        if isinstance(shape, Whole):
            return Lost(shape.reason)
        if deaf := sorted(deltas.keys() - shape.linear):
            return Lost(f"{deaf[0]} changed, and the query does not follow that side of its joins")
        has_went = any(delta.went for delta in deltas.values())
        try:
            change = self._change(shape, deltas, progress, has_went=has_went)
        except NotFound as error:
            return Lost(f"what was read before is gone: {error.message}")
        if has_went and (reason := find_incomparable(change)) is not None:
            return Lost(reason)
        if isinstance(shape, Rows):
            return self._merge_rows(change, done, has_went=has_went)
        return self._merge_groups(change, shape, done, has_went=has_went)

    def _change(
        self, shape: Rows | Groups, deltas: Mapping[str, Delta], progress: Progress, *, has_went: bool
    ) -> DataFrame:
        """What came and went in what the view is made of. Sources change one after the other: first one alone is
        new, then two, so that each is met with the others exactly once."""
        changes = []
        for at, source in enumerate(self.sources):
            delta = deltas.get(source.alias)
            if delta is None:
                continue
            since = progress.sources[source.alias]
            for versions, sign in ((delta.came, 1), (delta.went, -1)):
                if not versions:
                    continue
                frames = {source.alias: source.read_versions(self.session, versions, since)}
                for other_at, other in enumerate(self.sources):
                    if other_at != at:
                        before = progress.sources[other.alias].snapshot_id
                        snapshot_id = other.place.snapshot_id if other_at < at else before
                        frames[other.alias] = other.read_all(self.session, snapshot_id)
                query = _query(self.session, self.definition, frames)
                changes.append(changed_rows(query, shape, sign=sign))
        return self._keep(cancel(changes, has_went=has_went))

    def _merge_rows(self, change: DataFrame, done: Progress, *, has_went: bool) -> Refreshed | Lost:
        columns = [name for name in change.columns if name != SIGN]
        files: tuple[ScannedFile, ...] = ()
        bag = change
        if has_went:
            went = change.where(f"{SIGN} < 0")
            files = find_files(self.session, self.state, went, columns, self.meter)
            stored = read_metered(self.session, files, self.state, self.meter)
            bag = self._keep(add_rows(change, stored))
            if (fault := find_row_fault(bag)) is not None:
                return Lost(fault)
        return self._put(repeat_rows(bag), files, done)

    def _merge_groups(
        self, change: DataFrame, shape: Groups, done: Progress, *, has_went: bool
    ) -> Refreshed | Lost:
        keys = [key.name for key in shape.keys]
        files = find_files(self.session, self.state, change, keys, self.meter)
        stored = read_metered(self.session, files, self.state, self.meter)
        added = self._keep(add_groups(change, stored, shape))
        if (fault := find_group_fault(added, shape, has_went=has_went)) is not None:
            return Lost(fault)
        columns = [field.name for field in self.state.schema.fields]
        return self._put(shown_groups(added, shape, columns), files, done)

    def _put(self, rows: DataFrame, files: Sequence[ScannedFile], done: Progress) -> Refreshed:
        paths = [scanned.path for scanned in files]
        committed = put(self.state, new_run(), rows=rows, remove=paths, progress=done)
        return self._answer(Kind.INCREMENTAL, committed)

    def _note(self, done: Progress) -> Refreshed:
        """No row changed; the next refresh need not look at these commits again."""
        committed = put(self.state, new_run(), rows=None, remove=(), progress=done)
        return self._answer(Kind.UNCHANGED, committed)

    # --- building anew ------------------------------------------------------------------------------------

    def _rebuild(self, reason: str) -> Refreshed:
        frames = {
            source.alias: source.read_all(self.session, source.place.snapshot_id) for source in self.sources
        }
        result = _query(self.session, self.definition, frames)
        shape = _classify(result, self.definition)
        rows, stateless = result, shape.reason if isinstance(shape, Whole) else None
        if isinstance(shape, Groups):
            added = self._keep(add_groups(changed_rows(result, shape, sign=1), None, shape))
            stateless = find_group_fault(added, shape, has_went=False)
            if stateless is None:
                rows = shown_groups(added, shape, stored_columns(shape, result.columns))
        places = {source.alias: source.place for source in self.sources}
        progress = Progress(self.definition.hash, places, stateless=stateless)
        state = fit_result(self.state, rows)
        committed = put(state, new_run(), rows=rows, remove=None, progress=progress)
        return self._answer(Kind.REBUILT, committed, reason)

    # --- together -----------------------------------------------------------------------------------------

    def _shape(self) -> Shape:
        frames = {source.alias: _empty(self.session, source) for source in self.sources}
        return _classify(_query(self.session, self.definition, frames), self.definition)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self.kept.append(frame.persist())
        return self.kept[-1]

    def _answer(self, kind: Kind, committed: Committed | None, reason: str | None = None) -> Refreshed:
        return Refreshed(kind, reason, self.meter.files, self.meter.size_bytes, committed)


def _session(spark: SparkSession | None, lake: Lake) -> SparkSession:
    """A session of its own for one refresh: sources are temporary views in it, which nobody else must see."""
    parent = spark or SparkSession.getActiveSession()
    if parent is None:
        raise BadInput("spark: no session is active; start one with build_session", field="spark")
    session = prepare_session(parent.newSession(), lake, jar=has_jar_catalog(parent, lake))
    session.conf.set("spark.sql.shuffle.partitions", str(parent.conf.get("spark.sql.shuffle.partitions")))
    return session


def _load(lake: Lake, definition: Definition, meter: Meter) -> list[Source]:
    return [Source(alias, lake.table(name).load(), meter) for alias, name in definition.sources.items()]


def _query(session: SparkSession, definition: Definition, frames: Mapping[str, DataFrame]) -> DataFrame:
    for alias, frame in frames.items():
        frame.createOrReplaceTempView(alias)
    return run_query(session, definition.query)


def _empty(session: SparkSession, source: Source) -> DataFrame:
    return source.read_all(session, None)


def _classify(result: DataFrame, definition: Definition) -> Shape:
    plan = read_plan(result, definition.sources.keys())
    return plan if isinstance(plan, Whole) else classify(plan)


def _stored(result: DataFrame, shape: Shape) -> DataFrame:
    """The result with the columns of its state."""
    if not isinstance(shape, Groups):
        return result
    added = add_groups(changed_rows(result, shape, sign=1), None, shape)
    return shown_groups(added, shape, stored_columns(shape, result.columns))


def _check_columns(result: DataFrame) -> None:
    seen: set[str] = set()
    for name in result.columns:
        if name.lower() in seen:
            raise BadInput(f"query: two columns have the name {name}; name one with AS", field=name)
        if name.startswith(PREFIX):
            raise BadInput(f"query: names that begin with {PREFIX} are the view's own: {name}", field=name)
        seen.add(name.lower())
