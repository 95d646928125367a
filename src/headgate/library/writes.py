"""What can be done to a table, each as one step: read, write data files, and a change on the wire with its validations.

Where a finished step goes (to the catalog at once, into a transaction, to an event loop) is for `take` to say. The
conflict filter is what the step really read: the filter of a delete, the keys of an upsert, the partitions of a
dynamic overwrite, or the scan that the caller names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, Unpack

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile

from headgate.client.changes import Changes, File, Removed
from headgate.core.isolation import Command, Isolation, Producer, Scope, Wire, isolation_of, validations
from headgate.core.table import MAIN
from headgate.core.write_modes import MERGE, mode_of
from headgate.errors import BadInput, NotFound
from headgate.library.data_files import Files, Rows
from headgate.library.merge_on_read import write_deletes
from headgate.library.reading import Reading
from headgate.library.row_filters import Filter, keys_filter, to_expression, to_json
from headgate.library.steps import Options, Reads, Step, Written
from headgate.library.upserts import check_keys, check_unique, find_changed, without

_T = TypeVar("_T")


class Source(Protocol):
    """Where writes read the table: as it is now, and as it was when its handle was opened or refreshed."""

    def now(self, branch: str) -> Reading:
        """The branch at its head of now."""

    def opened(self, branch: str) -> Reading:
        """The branch as the caller knows it: the base of files that the caller chose."""


class Writes(Generic[_T]):
    """The writes of one table."""

    def __init__(self, source: Source, take: Callable[[Step], _T]) -> None:
        self._source, self._take = source, take

    # --- files and rows that are added -------------------------------------------------------------------

    def append(self, data: Rows | Files, **options: Unpack[Options]) -> _T:
        """Add rows, or files that are written already."""
        reading = self._begin(options)
        with Written(reading) as written:
            added = written.take_in(data)
            update = _changes(reading).append(written.wire(added), **_said(options))
            return self._take(written.step(update, options))

    def replace_partitions(self, data: Rows | Files, **options: Unpack[Reads]) -> _T:
        """Dynamic overwrite: the rows take the place of everything in their partitions."""
        reading = self._begin(options)
        with Written(reading) as written:
            added = written.take_in(data)
            told = self._told(reading, options)
            update = _changes(reading).replace_partitions(written.wire(added), **told)
            return self._take(written.step(update, options))

    # --- rows that go ------------------------------------------------------------------------------------

    def delete(
        self,
        filter: Filter,
        *,
        case_sensitive: bool = True,
        mode: str | None = None,
        **options: Unpack[Reads],
    ) -> _T:
        """Delete the rows of a filter: whole files go, of others the rows are taken out.

        `mode` says how, `write.delete.mode` if nobody does: `copy-on-write` writes such files anew, `merge-on-read` hides
        the rows by position deletes (v2) or deletion vectors (v3).
        """
        reading = self._begin(options)
        version = reading.table.envelope.format_version
        merges = mode_of(reading.properties, version, Command.DELETE, mode) == MERGE
        expression = to_expression(filter, reading.table, case_sensitive=case_sensitive)
        with Written(reading) as written:
            if merges:
                return self._delete_positions(written, expression, options)
            return self._overwrite(written, expression, [], options, Command.DELETE)

    def overwrite(
        self,
        data: Rows | Files = (),
        filter: Filter | None = None,
        *,
        remove: Sequence[Removed] = (),
        remove_deletes: Sequence[Removed] = (),
        case_sensitive: bool = True,
        **options: Unpack[Reads],
    ) -> _T:
        """Rows for the rows of a filter (all, if none is given), or files for files: copy-on-write."""
        reading = self._begin(options) if not remove else self._begin_opened(options)
        with Written(reading) as written:
            added = written.take_in(data)
            if not remove and not remove_deletes:
                expression: BooleanExpression = AlwaysTrue()
                if filter is not None:
                    expression = to_expression(filter, reading.table, case_sensitive=case_sensitive)
                return self._overwrite(written, expression, added, options, Command.UPDATE)
            told = self._told(reading, options)
            if filter is not None:
                told.setdefault("conflict_filter", to_json(to_expression(filter, reading.table)))
            update = _changes(reading).overwrite(
                add=written.wire(added), remove=remove, remove_deletes=remove_deletes, **told
            )
            return self._take(written.step(update, options))

    def upsert(
        self,
        data: Rows,
        keys: Sequence[str] | None = None,
        *,
        update: bool = True,
        insert: bool = True,
        **options: Unpack[Reads],
    ) -> _T:
        """Rows by their key: those of the table that differ are replaced, those it has not are added."""
        reading = self._begin(options)
        schema = reading.metadata.schema()
        names = list(keys) if keys is not None else sorted(schema.identifier_field_names())
        rows = check_keys(data.read_all() if isinstance(data, pa.RecordBatchReader) else data, names, schema)
        expression = to_expression(keys_filter(rows, names), reading.table)
        with Written(reading) as written:
            new, removed = rows, list[str]()
            kept, seen = list[pa.Table](), list[pa.Table]()
            for task in reading.plan(expression):
                present = reading.read(task)
                same_keys = without(present, without(present, rows, names), names)
                if not same_keys.num_rows:
                    continue
                new = without(new, same_keys, names)
                seen.append(same_keys.select(names))
                changed = find_changed(rows, same_keys, names)
                if update and changed.num_rows:
                    removed.append(task.file.file_path)
                    kept.append(_merge(without(present, changed, names), changed))
            check_unique(seen, names)
            if insert and new.num_rows:
                kept.append(new)
            added: list[File | DataFile] = []
            for part in kept:
                added.extend(written.take_in(part))
            return self._rewrite(written, expression, added, removed, options, Command.MERGE)

    # --- files for files ---------------------------------------------------------------------------------

    def row_delta(
        self,
        *,
        add_data: Rows | Files = (),
        add_deletes: Sequence[File] = (),
        remove_data: Sequence[Removed] = (),
        remove_deletes: Sequence[Removed] = (),
        referenced: Sequence[str] = (),
        command: str | None = None,
        **options: Unpack[Reads],
    ) -> _T:
        """Merge-on-read: position deletes or deletion vectors, with the rows that replace the deleted ones."""
        reading = self._begin_opened(options)
        with Written(reading) as written:
            added = written.take_in(add_data)
            told = self._told(reading, options)
            if command is not None:
                told["command"] = command
            update = _changes(reading).row_delta(
                add_data=written.wire(added),
                add_deletes=add_deletes,
                remove_data=remove_data,
                remove_deletes=remove_deletes,
                referenced=referenced,
                **told,
            )
            return self._take(written.step(update, options))

    def rewrite(
        self,
        remove: Sequence[Removed],
        add: Rows | Files = (),
        *,
        remove_deletes: Sequence[Removed] = (),
        add_deletes: Sequence[File] = (),
        sequence_number: int | None = None,
        **options: Unpack[Reads],
    ) -> _T:
        """Compaction: the same rows in other files."""
        reading = self._begin_opened(options)
        with Written(reading) as written:
            added = written.take_in(add)
            update = _changes(reading).replace(
                remove=remove,
                add=written.wire(added),
                remove_deletes=remove_deletes,
                add_deletes=add_deletes,
                sequence_number=sequence_number,
                **self._told(reading, options),
            )
            return self._take(written.step(update, options))

    # --- parts -------------------------------------------------------------------------------------------

    def _begin(self, options: Options) -> Reading:
        return _check_branch(self._source.now(options.get("branch", MAIN)), options)

    def _begin_opened(self, options: Options) -> Reading:
        return _check_branch(self._source.opened(options.get("branch", MAIN)), options)

    def _overwrite(
        self,
        written: Written,
        expression: BooleanExpression,
        added: list[File | DataFile],
        options: Reads,
        command: Command,
    ) -> _T:
        removed: list[str] = []
        for file, kept in written.reading.split(expression):
            removed.append(file.file_path)
            if kept is not None:
                added = [*added, *written.take_in(kept)]
        return self._rewrite(written, expression, added, removed, options, command)

    def _delete_positions(self, written: Written, expression: BooleanExpression, options: Reads) -> _T:
        made = write_deletes(written, expression)
        if not made.add:  # files that go whole, or nothing
            return self._rewrite(written, expression, [], list(made.remove_data), options, Command.DELETE)
        told = self._told(written.reading, options)
        told.setdefault("conflict_filter", to_json(expression))
        update = _changes(written.reading).row_delta(
            add_deletes=made.add,
            remove_data=made.remove_data,
            remove_deletes=made.remove,
            referenced=list(made.deletes),
            command=Command.DELETE,
            **told,
        )
        return self._take(written.step(update, options, made.deletes))

    def _rewrite(
        self,
        written: Written,
        expression: BooleanExpression,
        added: list[File | DataFile],
        removed: list[str],
        options: Reads,
        command: Command,
    ) -> _T:
        """A change that read the rows of an expression, and removes and adds these files."""
        reading = written.reading
        told = self._told(reading, options)
        told.setdefault("conflict_filter", to_json(expression))
        told["command"] = command
        if not added and not removed:
            level = _level(reading, told, command)
            scope = Scope(conflict_filter=told["conflict_filter"], row_filter=told["conflict_filter"])
            reads: Wire = {
                "action": "delete",
                "base-snapshot-id": told["base_snapshot_id"],
                "branch": reading.branch,
                "commit-validations": validations(Producer.OVERWRITE, level, scope),
            }
            return self._take(Step(reading, None, reads, key=options.get("key")))
        update = _changes(reading).overwrite(add=written.wire(added), remove=removed, **told)
        return self._take(written.step(update, options))

    def _told(self, reading: Reading, options: Reads) -> dict[str, Any]:
        """The options of a change on the wire."""
        told: dict[str, Any] = dict(_said(options))
        told["base_snapshot_id"] = reading.base_snapshot_id
        if "isolation" in options:
            told["isolation"] = options["isolation"]
        scan = options.get("scan")
        if scan is not None:
            snapshot = scan.snapshot()
            told["base_snapshot_id"] = None if snapshot is None else snapshot.snapshot_id
            told["conflict_filter"] = to_json(
                to_expression(scan.row_filter, reading.table, case_sensitive=scan.case_sensitive)
            )
        if "base_snapshot_id" in options:
            told["base_snapshot_id"] = options["base_snapshot_id"]
        if "conflict_filter" in options:
            told["conflict_filter"] = to_json(to_expression(options["conflict_filter"], reading.table))
        return told


def _changes(reading: Reading) -> Changes[Wire]:
    return Changes(lambda update, key: update, lambda: reading.properties)


def _said(options: Options) -> Any:
    """What goes onto the wire as it is. The key is the commit's."""
    names = ("branch", "create_branch", "summary", "stage_only")
    return {name: options[name] for name in names if name in options}  # type: ignore[literal-required]


def _check_branch(reading: Reading, options: Options) -> Reading:
    branch = options.get("branch", MAIN)
    known = reading.table.envelope.refs
    if branch != MAIN and branch not in known and not options.get("create_branch", False):
        raise NotFound(
            f"Branch does not exist: {branch}; say create_branch to make it from main", kind="branch"
        )
    return reading


def _level(reading: Reading, told: Mapping[str, Any], command: Command) -> Isolation:
    wanted = told.get("isolation", "table")
    if wanted is None:
        return Isolation.NONE
    if wanted == "table":
        return isolation_of(reading.properties, command)
    if wanted not in tuple(Isolation):
        raise BadInput(
            f"isolation: expected one of {', '.join(Isolation)}, got {wanted!r}", field="isolation"
        )
    return Isolation(wanted)


def _merge(kept: pa.Table, changed: pa.Table) -> pa.Table:
    """Rows that stay and rows that replace others, in the columns of the former."""
    return pa.concat_tables([kept, changed.select(kept.column_names).cast(kept.schema)])
