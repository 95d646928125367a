"""Changes as the wire has them: one method for each of Java's producers, with its validations.

Where a finished update goes (to the service at once, or into a transaction) is for `take` to say. `isolation`
is a level, None for no validation, or "table": what the table's `write.<command>.isolation-level` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from headgate.client.results import MAIN
from headgate.core.isolation import Command, Isolation, Producer, Scope, Wire, isolation_of, validations
from headgate.errors import BadInput

File = Mapping[str, Any]  # a content file of the REST specification, as `describe_parquet` makes it
Removed = str | File  # a path is enough
FROM_TABLE = "table"
_T = TypeVar("_T")
_FIELDS = ("branch", "create_branch", "summary", "stage_only")


class Options(TypedDict, total=False):
    """What every change may say: where it goes, what its summary holds, and its key."""

    branch: str
    create_branch: bool
    summary: Mapping[str, str] | None
    stage_only: bool
    key: str | None


class Reads(Options, total=False):
    """What a change that read the table says besides: from which snapshot, in which scope, how strictly."""

    base_snapshot_id: int | None  # None: the table had no snapshot, so its whole history is judged
    isolation: str | None
    conflict_filter: object
    command: str


Take = Callable[[Wire, str | None], _T]


class Changes(Generic[_T]):
    """The changes of one table."""

    def __init__(self, take: Take[_T], properties: Callable[[], Mapping[str, str]]) -> None:
        self._take, self._properties = take, properties

    def append(self, files: Sequence[File], **options: Unpack[Options]) -> _T:
        """Add data files."""
        return self._send("append", {"add-data-files": _files(files)}, options)

    def overwrite(
        self,
        *,
        add: Sequence[File] = (),
        remove: Sequence[Removed] = (),
        remove_deletes: Sequence[Removed] = (),
        row_filter: object = None,
        **options: Unpack[Reads],
    ) -> _T:
        """Copy-on-write: files for files, or files for everything that a row filter matches."""
        scope = self._scope(
            options,
            row_filter=row_filter,
            removed_data=paths_of(remove),
            removed_deletes=paths_of(remove_deletes),
        )
        update: Wire = {
            "add-data-files": _files(add),
            "remove-data-files": _refs(remove),
            "remove-delete-files": _refs(remove_deletes),
            "delete-row-filter": row_filter,
        }
        removes = bool(remove) or row_filter is not None
        action = "overwrite" if add and removes else "append" if add else "delete"
        return self._judged(action, Producer.OVERWRITE, update, scope, options, Command.UPDATE)

    def delete(
        self,
        *,
        remove: Sequence[Removed] = (),
        row_filter: object = None,
        must_exist: bool = True,
        **options: Unpack[Options],
    ) -> _T:
        """Remove whole files: these, or those of which every row matches the filter, judged at the head."""
        if bool(remove) == (row_filter is not None):
            raise BadInput("a delete takes files to remove or a row filter", field="remove")
        level = Isolation.SERIALIZABLE if must_exist else Isolation.NONE
        scope = Scope(row_filter=row_filter, removed_data=paths_of(remove))
        update: Wire = {
            "remove-data-files": _refs(remove),
            "delete-row-filter": row_filter,
            "commit-validations": validations(Producer.DELETE_FILES, level, scope),
        }
        return self._send("delete", update, options)

    def replace(
        self,
        *,
        remove: Sequence[Removed] = (),
        add: Sequence[File] = (),
        remove_deletes: Sequence[Removed] = (),
        add_deletes: Sequence[File] = (),
        sequence_number: int | None = None,
        **options: Unpack[Reads],
    ) -> _T:
        """Compaction: the same rows in other files. With `sequence_number`, equality deletes apply as before."""
        scope = self._scope(
            options,
            removed_data=paths_of(remove),
            removed_deletes=paths_of(remove_deletes),
            keeps_sequence_number=sequence_number is not None,
        )
        update: Wire = {
            "add-data-files": _files(add),
            "add-delete-files": _files(add_deletes),
            "remove-data-files": _refs(remove),
            "remove-delete-files": _refs(remove_deletes),
            "add-data-files-sequence-number": sequence_number,
        }
        return self._judged("replace", Producer.REWRITE, update, scope, options, Command.UPDATE)

    def row_delta(
        self,
        *,
        add_data: Sequence[File] = (),
        add_deletes: Sequence[File] = (),
        remove_data: Sequence[Removed] = (),
        remove_deletes: Sequence[Removed] = (),
        referenced: Sequence[str] = (),
        **options: Unpack[Reads],
    ) -> _T:
        """Merge-on-read: delete files, with the rows that replace the deleted ones.

        `referenced` are data files that the delete files speak of, besides those that they name themselves.
        """
        named = (file["referenced-data-file"] for file in add_deletes if file.get("referenced-data-file"))
        vectors = (
            file["referenced-data-file"]
            for file in add_deletes
            if str(file["file-format"]).lower() == "puffin"
        )
        scope = self._scope(
            options,
            removed_data=paths_of(remove_data),
            removed_deletes=paths_of(remove_deletes),
            referenced_data=_unique((*referenced, *named)),
            vectors_for=_unique(vectors),
        )
        update: Wire = {
            "add-data-files": _files(add_data),
            "add-delete-files": _files(add_deletes),
            "remove-data-files": _refs(remove_data),
            "remove-delete-files": _refs(remove_deletes),
        }
        command = Command(options.get("command", Command.UPDATE if add_data else Command.DELETE))
        producer = Producer.ROW_DELETE if command is Command.DELETE else Producer.ROW_UPDATE
        action = "overwrite"
        if add_data and not add_deletes and not remove_data:
            action = "append"
        elif add_deletes and not add_data:
            action = "delete"
        return self._judged(action, producer, update, scope, options, command)

    def replace_partitions(self, add: Sequence[File], **options: Unpack[Reads]) -> _T:
        """Dynamic overwrite: the added files take the place of everything in their partitions."""
        if not add:
            raise BadInput("a dynamic overwrite needs files: they name the partitions", field="add")
        dropped: list[Wire] = []
        for file in add:
            key: Wire = {"spec-id": file["spec-id"], "partition": list(file["partition"])}
            if key not in dropped:
                dropped.append(key)
        scope = self._scope(options, partitions=tuple(key for key in dropped if key["partition"]))
        update: Wire = {"add-data-files": _files(add), "drop-partitions": dropped}
        return self._judged("overwrite", Producer.REPLACE_PARTITIONS, update, scope, options, Command.UPDATE)

    def _scope(self, options: Reads, **parts: Any) -> Scope:
        return Scope(
            has_base=options.get("base_snapshot_id") is not None,
            conflict_filter=options.get("conflict_filter"),
            **parts,
        )

    def _judged(
        self, action: str, producer: Producer, update: Wire, scope: Scope, options: Reads, command: Command
    ) -> _T:
        level = Isolation.SERIALIZABLE  # of a rewrite, where all levels are the same
        if producer is not Producer.REWRITE:
            level = self._level(options, Command(options.get("command", command)))
        update["commit-validations"] = validations(producer, level, scope)
        update["base-snapshot-id"] = options.get("base_snapshot_id")
        return self._send(action, update, options)

    def _level(self, options: Reads, command: Command) -> Isolation:
        wanted = options.get("isolation", FROM_TABLE)
        if wanted is None:
            return Isolation.NONE
        if wanted == FROM_TABLE:
            return isolation_of(self._properties(), command)
        if wanted not in tuple(Isolation):
            raise BadInput(
                f"isolation: expected one of {', '.join(Isolation)}, got {wanted!r}", field="isolation"
            )
        return Isolation(wanted)

    def _send(self, action: str, update: Wire, options: Options) -> _T:
        said = {name.replace("_", "-"): options.get(name) for name in _FIELDS}
        # What says nothing is left out: the body is part of what a key stands for.
        target = {name: value for name, value in said.items() if value and value != MAIN}
        parts = {name: value for name, value in update.items() if value is not None and value != []}
        return self._take({"action": action, **parts, **target}, options.get("key"))


def paths_of(removed: Sequence[Removed]) -> tuple[str, ...]:
    """Where the files are."""
    return tuple(file if isinstance(file, str) else str(file["file-path"]) for file in removed)


def _files(files: Sequence[File]) -> list[File]:
    return list(files)


def _refs(removed: Sequence[Removed]) -> list[Removed]:
    """Paths, or for a deletion vector its place in the file too; the rest of a content file is not needed."""
    short: list[Removed] = []
    for file in removed:
        if isinstance(file, str) or file.get("content-offset") is None:
            short.append(file if isinstance(file, str) else file["file-path"])
        else:
            short.append({name: file[name] for name in ("file-path", "content-offset")})
    return short


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
