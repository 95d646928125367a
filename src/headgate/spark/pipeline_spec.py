"""A pipeline as a value: sources, transform, target and schedule, checked as far as that needs no Spark and no lake.

What a file says is turned into it by `read_spec`, what a command line says by the command. Nothing is read or run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.client.changes import FROM_TABLE
from headgate.client.results import MAIN
from headgate.client.table import identifier_of
from headgate.core.isolation import Isolation
from headgate.errors import BadInput
from headgate.spark.checked_keys import Keys

APPEND, OVERWRITE, REPLACE_PARTITIONS, MERGE = "append", "overwrite", "replace_partitions", "merge"
MODES = (APPEND, OVERWRITE, REPLACE_PARTITIONS, MERGE)
ONCE, STREAM = "once", "stream"
AVAILABLE_NOW = "available-now"
FILE_FORMATS = ("parquet", "csv", "json")
ALL = "all"
_ROADS = ("native", "python")
_ROW_MODES = ("copy-on-write", "merge-on-read")
_SOURCE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SECRETS = ("secret", "password", "token", "access-key", "credential")

Assignments = Mapping[str, str] | str | None  # SQL by column, ALL, or nothing


@dataclass(frozen=True)
class SourceSpec:
    """Where rows come from: a table of the lake, files, or any other format that Spark reads."""

    table: str | None = None
    branch: str = MAIN
    snapshot_id: int | None = None
    format: str | None = None
    paths: tuple[str, ...] = ()
    schema: str | None = None  # as Spark's SQL has it: "id BIGINT, name STRING"
    options: Mapping[str, str] = field(default_factory=dict)
    static: bool = False  # read whole, in a stream too


@dataclass(frozen=True)
class TransformSpec:
    """What becomes of the rows: a query over the sources, or a function of them. Neither: they stay as they are."""

    sql: str | None = None
    function: Callable[..., Any] | None = None


@dataclass(frozen=True)
class MergeSpec:
    """How rows meet those of the target."""

    on: str | tuple[str, ...]
    when_matched_update: Assignments = None
    when_matched_update_if: str | None = None
    when_matched_delete: str | None = None
    when_not_matched_insert: Assignments = None
    when_not_matched_insert_if: str | None = None
    mode: str | None = None
    attempts: int = 1


@dataclass(frozen=True)
class TableShape:
    """How the target is made if it is not there."""

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetSpec:
    """Where rows go. Without `create` the table must be there."""

    table: str
    mode: str = APPEND
    filter: str | None = None
    branch: str = MAIN
    isolation: str | None = FROM_TABLE
    road: str | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    create: TableShape | None = None
    merge: MergeSpec | None = None


@dataclass(frozen=True)
class ScheduleSpec:
    """Once, or as a stream with a checkpoint. `trigger` is AVAILABLE_NOW or an interval; None: as fast as it goes."""

    run: str = ONCE
    checkpoint: str | None = None
    trigger: str | None = None
    fold: bool = False
    stop_when_idle_s: int | None = None


@dataclass(frozen=True)
class Pipeline:
    """All of it. `uri`, `storage`, `master`, `conf` and `py_files` are what a command line may say otherwise."""

    name: str
    sources: Mapping[str, SourceSpec]
    target: TargetSpec
    transform: TransformSpec = TransformSpec()
    schedule: ScheduleSpec = ScheduleSpec()
    uri: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    py_files: tuple[str, ...] = ()


Import = Callable[[str], Callable[..., Any]]  # `module:function` → the function


def read_spec(
    raw: object, *, file: Path, load: Import, function: Callable[..., Any] | None = None
) -> Pipeline:
    """A pipeline from what a file says; BadInput names the key. `function` is the transform of a Python file."""
    keys = Keys(raw, file=str(file))
    lake, spark = keys.table("lake"), keys.table("spark")
    sources = {name: _source(name, below, file) for name, below in keys.tables("sources").items()}
    if not sources:
        raise keys.error("sources", "needed: at least one, as in [sources.payments]")
    schedule = _schedule(keys.table("schedule"), file)
    found = Pipeline(
        name=keys.text("name") or file.stem,
        sources=sources,
        transform=_transform(keys.table("transform"), file, load, function),
        target=_target(keys.table("target")),
        schedule=schedule,
        uri=lake.text("uri"),
        storage=public_storage(lake.texts("storage"), where=f"{file}: lake.storage"),
        master=spark.text("master"),
        conf=spark.texts("conf"),
        py_files=tuple(_beside(file, one) for one in spark.words("py-files")),
    )
    for table in (lake, spark, keys):
        table.end()
    try:
        check(found)
    except BadInput as error:
        raise BadInput(f"{file}: {error.message}", field=error.field) from error
    return found


def check(pipeline: Pipeline) -> None:
    """Refuse what does not go together; BadInput names the key."""
    target, schedule, transform = pipeline.target, pipeline.schedule, pipeline.transform
    if transform == TransformSpec() and len(pipeline.sources) > 1:
        raise _bad("transform", f"needed: there are {len(pipeline.sources)} sources")
    if target.filter is not None and target.mode != OVERWRITE:
        raise _bad("target.filter", f"only mode = {OVERWRITE!r} takes one")
    if (target.merge is not None) != (target.mode == MERGE):
        wrong = "needed for" if target.merge is None else "only goes with"
        raise _bad("target.merge", f"{wrong} mode = {MERGE!r}")
    if schedule.run == ONCE:
        for name, said in (("checkpoint", schedule.checkpoint), ("trigger", schedule.trigger)):
            if said is not None:
                raise _bad(f"schedule.{name}", f"only goes with run = {STREAM!r}")
        if schedule.fold or schedule.stop_when_idle_s is not None:
            key = "fold" if schedule.fold else "stop-when-idle-seconds"
            raise _bad(f"schedule.{key}", f"only goes with run = {STREAM!r}")
        return
    if schedule.checkpoint is None:
        raise _bad("schedule.checkpoint", "a stream needs one: a folder that is its own and stays")
    if target.mode != APPEND:
        raise _bad(
            "target.mode", f"a stream appends; mode = {target.mode!r} goes with schedule.run = {ONCE!r}"
        )
    if all(source.static or source.table is not None for source in pipeline.sources.values()):
        raise _bad("sources", "a stream needs one that is neither a table of the lake nor static")


def public_storage(storage: Mapping[str, str], *, where: str) -> Mapping[str, str]:
    """Storage settings without secrets: those come from the environment, never from a file or a command line."""
    for name in sorted(storage):
        if any(word in name for word in _SECRETS):
            raise BadInput(
                f"{where}.{name}: a secret does not belong here; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
                "and AWS_SESSION_TOKEN in the environment",
                field=name,
            )
    return storage


def _bad(key: str, text: str) -> BadInput:
    return BadInput(f"{key}: {text}", field=key)


def _source(name: str, keys: Keys, file: Path) -> SourceSpec:
    if _SOURCE_NAME.fullmatch(name) is None:
        raise keys.error("", "a source is named by a plain word, as SQL has them")
    table, paths = keys.text("table"), tuple(_beside(file, one) for one in keys.words("path"))
    format_ = keys.text("format") or format_of(paths)
    found = SourceSpec(
        table=_table_name(keys, "table", table),
        branch=keys.text("branch") or MAIN,
        snapshot_id=keys.number("snapshot-id"),
        format=format_,
        paths=paths,
        schema=keys.text("schema"),
        options=keys.texts("options"),
        static=keys.flag("static"),
    )
    keys.end()
    check_source(found, keys.error)
    return found


def check_source(source: SourceSpec, error: Callable[[str, str], BadInput]) -> None:
    """Refuse a source that is neither a table nor of a format, or both."""
    if source.table is not None:
        for key in ("format", "paths", "schema", "options", "static"):
            if getattr(source, key):
                raise error("path" if key == "paths" else key, "does not go with table")
        return
    if source.branch != MAIN or source.snapshot_id is not None:
        key = "branch" if source.branch != MAIN else "snapshot-id"
        raise error(key, "only goes with table")
    if source.format is None:
        formats = ", ".join(FILE_FORMATS)
        raise error("format", f"needed: {formats}, or another that Spark knows; or name a table of the lake")
    if source.format in FILE_FORMATS and not source.paths:
        raise error("path", f"needed for format {source.format}")


def format_of(paths: Sequence[str]) -> str | None:
    """The format that the names of files tell, if they agree."""
    endings = {path.rstrip("/").rpartition(".")[2].lower() for path in paths}
    found = endings & set(FILE_FORMATS)
    return found.pop() if len(endings) == 1 and found else None


def _transform(keys: Keys, file: Path, load: Import, function: Callable[..., Any] | None) -> TransformSpec:
    sql, sql_file, python = keys.text("sql"), keys.text("sql-file"), keys.text("python")
    keys.end()
    said = [name for name, value in (("sql", sql), ("sql-file", sql_file), ("python", python)) if value]
    if len(said) > 1 or (said and function is not None):
        other = said[0] if len(said) > 1 else "the function transform of this file"
        raise keys.error(said[-1], f"does not go with {other}")
    if sql_file is not None:
        try:
            sql = Path(_beside(file, sql_file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise keys.error("sql-file", f"cannot read {sql_file}: {error}") from error
    if python is not None:
        try:
            function = load(python)
        except BadInput as error:
            raise keys.error("python", error.message) from error
    return TransformSpec(sql=sql, function=function)


def _target(keys: Keys) -> TargetSpec:
    name = _table_name(keys, "table", keys.needed("table", '"shop.payments"'))
    create = keys.flag("create")
    shape = TableShape(keys.words("partition-by"), keys.words("sort-by"), keys.texts("properties"))
    if not create and shape != TableShape():
        key = next(key for key in ("partition-by", "sort-by", "properties") if key in keys)
        raise keys.error(key, "only goes with create = true")
    isolation = keys.choice("isolation", (FROM_TABLE, *(level.value for level in Isolation)), FROM_TABLE)
    merge = _merge(keys.table("merge")) if "merge" in keys else None
    found = TargetSpec(
        table=str(name),
        mode=keys.choice("mode", MODES, MERGE if merge else APPEND),
        filter=keys.text("filter"),
        branch=keys.text("branch") or MAIN,
        isolation=None if isolation == Isolation.NONE else isolation,
        road=keys.choice("road", _ROADS, _ROADS[0]) if "road" in keys else None,
        summary=keys.texts("summary"),
        create=shape if create else None,
        merge=merge,
    )
    keys.end()
    return found


def _merge(keys: Keys) -> MergeSpec:
    on = keys.raw("on")
    if not on:
        raise keys.error("on", 'needed: columns, as in on = ["id"], or a condition over target and source')
    found = MergeSpec(
        on=on if isinstance(on, str) else keys.words("on"),
        when_matched_update=_assignments(keys, "when-matched-update"),
        when_matched_update_if=keys.text("when-matched-update-if"),
        when_matched_delete=keys.text("when-matched-delete"),
        when_not_matched_insert=_assignments(keys, "when-not-matched-insert"),
        when_not_matched_insert_if=keys.text("when-not-matched-insert-if"),
        mode=keys.choice("mode", _ROW_MODES, _ROW_MODES[0]) if "mode" in keys else None,
        attempts=1 if (attempts := keys.number("attempts")) is None else attempts,
    )
    keys.end()
    if found.attempts < 1:
        raise keys.error("attempts", f"expected a number from 1 on, got {found.attempts}")
    if found.when_matched_update is found.when_matched_delete is found.when_not_matched_insert is None:
        raise keys.error("when-matched-update", "needed, or another when-…: this merge would do nothing")
    return found


def _assignments(keys: Keys, name: str) -> Assignments:
    said = keys.raw(name)
    if said is None or said == ALL:
        return said
    if isinstance(said, str):
        raise keys.error(name, f'expected "{ALL}" or a table of columns and SQL, got {said[:80]!r}')
    return keys.texts(name)


def _schedule(keys: Keys, file: Path) -> ScheduleSpec:
    checkpoint = keys.text("checkpoint")
    found = ScheduleSpec(
        run=keys.choice("run", (ONCE, STREAM), ONCE),
        checkpoint=None if checkpoint is None else _beside(file, checkpoint),
        trigger=keys.text("trigger"),
        fold=keys.flag("fold"),
        stop_when_idle_s=keys.number("stop-when-idle-seconds"),
    )
    keys.end()
    return found


def _table_name(keys: Keys, key: str, name: str | None) -> str | None:
    try:
        return None if name is None else ".".join(identifier_of(name))
    except BadInput as error:
        raise keys.error(key, f"expected namespace and name, as in shop.payments, got {name!r}") from error


def _beside(file: Path, path: str) -> str:
    """A path of a pipeline: one that is relative is seen from the file, not from where the command was started."""
    return located(path, file.absolute().parent)


def located(path: str, folder: Path) -> str:
    """A path as seen from a folder; one with a scheme says itself where it is."""
    return path if _SCHEME.match(path) else str(folder / path)
