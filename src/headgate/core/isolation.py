"""What each of Java's producers validates at each isolation level, as a table of clauses on the wire.

    serializable   nobody added rows in what this change read, and nobody deleted or removed any of it
    snapshot       rows that somebody added meanwhile are allowed (write skew is); deleted and removed ones are not.
                   To a DELETE by positions, new versions of updated rows are such added rows (v2; vectors collide)
    none           only what the producer checks always

The cells are the settings that Spark makes (`write.delete|update|merge.isolation-level`), in the order in which
Java checks them; the oracle's scenarios prove it, and tests/properties that they suffice. Knows nothing of tables
and files but their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from headgate.errors import BadInput

Wire = dict[str, object]


class Producer(Enum):
    """Java's snapshot producers; a row delta has two, because DELETE tolerates what UPDATE does not."""

    APPEND = "append"
    DELETE_FILES = "delete-files"
    OVERWRITE = "overwrite"
    REPLACE_PARTITIONS = "replace-partitions"
    ROW_DELETE = "row-delete"
    ROW_UPDATE = "row-update"
    REWRITE = "rewrite"


class Isolation(StrEnum):
    """How far a writer is kept apart from the commits in its window."""

    SERIALIZABLE = "serializable"
    SNAPSHOT = "snapshot"
    NONE = "none"


class Command(StrEnum):
    """The SQL command a change is made for: it chooses the table property."""

    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Scope:
    """What one change read, removes and refers to: all that its clauses speak of."""

    has_base: bool = True
    conflict_filter: object = None  # an expression on the wire; None: not given
    row_filter: object = None
    partitions: tuple[Wire, ...] = ()  # what a dynamic overwrite replaces; of an unpartitioned table, nothing
    removed_data: tuple[str, ...] = ()
    removed_deletes: tuple[str, ...] = ()
    referenced_data: tuple[str, ...] = ()  # data files that added delete files are for
    vectors_for: tuple[str, ...] = ()  # data files that get a deletion vector
    keeps_sequence_number: bool = False  # a rewrite whose rows stay as old as they were


Clause = Callable[[Scope], Wire | None]


def _base_is_ancestor(scope: Scope) -> Wire | None:
    return {"type": "base-snapshot-must-be-ancestor"} if scope.has_base else None


def _no_added_data(scope: Scope) -> Wire | None:
    filter_ = scope.conflict_filter
    if filter_ is None:
        filter_ = scope.row_filter if scope.row_filter is not None and not scope.removed_data else True
    return {"type": "not-allowed-added-data-files", "filter": filter_}


def _no_added_deletes(scope: Scope) -> Wire | None:
    return {"type": "not-allowed-added-delete-files", "filter": _or_true(scope.conflict_filter)}


def _no_deletes_in_row_filter(scope: Scope) -> Wire | None:
    if scope.row_filter is None:
        return None
    return {"type": "not-allowed-added-delete-files", "filter": _row_scope(scope)}


def _no_removals_in_row_filter(scope: Scope) -> Wire | None:
    if scope.row_filter is None:
        return None
    return {"type": "not-allowed-removed-data-files", "filter": _row_scope(scope)}


def _no_deletes_on_removed(scope: Scope) -> Wire | None:
    if not scope.removed_data:
        return None
    # Without the conflict filter, which Java sends along: all rows of these files are written anew, those out of
    # scope too, and one that an equality delete took meanwhile would be back (docs/adr/0006).
    return {
        "type": "not-allowed-new-deletes-for-data-files",
        "file-paths": list(scope.removed_data),
        "ignore-equality-deletes": scope.keeps_sequence_number,
    }


def _removed_data_is_live(scope: Scope) -> Wire | None:
    return _live("required-data-files", scope.removed_data)


def _removed_deletes_are_live(scope: Scope) -> Wire | None:
    return _live("required-delete-files", scope.removed_deletes)


def _referenced_not_removed(scope: Scope) -> Wire | None:
    return _not_removed(scope, ignore_deletes=False)


def _referenced_not_rewritten(scope: Scope) -> Wire | None:
    # Deleting from a file that a DELETE dropped whole is no lost delete; from one that was rewritten it is.
    return _not_removed(scope, ignore_deletes=True)


def _removed_not_referenced(scope: Scope) -> Wire | None:
    if not scope.removed_data or not scope.referenced_data:
        return None
    return {
        "type": "removed-data-files-must-not-be-referenced",
        "file-paths": list(scope.referenced_data),
    }


def _no_added_vectors(scope: Scope) -> Wire | None:
    if not scope.vectors_for:
        return None
    return {
        "type": "not-allowed-added-dvs",
        "file-paths": list(scope.vectors_for),
        "filter": _or_true(scope.conflict_filter),
    }


def _no_added_data_in_partitions(scope: Scope) -> Wire | None:
    return _in_partitions("not-allowed-added-data-files", scope)


def _no_removals_in_partitions(scope: Scope) -> Wire | None:
    return _in_partitions("not-allowed-removed-data-files", scope)


def _no_deletes_in_partitions(scope: Scope) -> Wire | None:
    return _in_partitions("not-allowed-added-delete-files", scope)


_OVERWRITE = (
    _no_deletes_in_row_filter,
    _no_removals_in_row_filter,
    _no_deletes_on_removed,
    _removed_data_is_live,
    _removed_deletes_are_live,
)
_REPLACE_PARTITIONS = (_no_removals_in_partitions, _no_deletes_in_partitions)
_ROW_DELETE = (_base_is_ancestor, _referenced_not_rewritten, _removed_not_referenced)
_ROW_UPDATE = (_base_is_ancestor, _referenced_not_removed, _removed_not_referenced)
_ROW_UPDATE_DELETES = (_no_deletes_on_removed, _no_added_deletes, _no_added_vectors)
_ROW_UPDATE_LIVE = (_removed_data_is_live, _removed_deletes_are_live)
# A compaction changes no rows, so no level lets it be any less careful.
_REWRITE = (_no_deletes_on_removed, _removed_data_is_live, _removed_deletes_are_live)

_S, _I, _N = Isolation.SERIALIZABLE, Isolation.SNAPSHOT, Isolation.NONE
CLAUSES: Mapping[tuple[Producer, Isolation], tuple[Clause, ...]] = {
    # An append reads nothing. A delete by row filter is evaluated at the head itself, so it has no window.
    (Producer.APPEND, _S): (),
    (Producer.APPEND, _I): (),
    (Producer.APPEND, _N): (),
    (Producer.DELETE_FILES, _S): (_removed_data_is_live,),
    (Producer.DELETE_FILES, _I): (_removed_data_is_live,),
    (Producer.DELETE_FILES, _N): (),
    (Producer.OVERWRITE, _S): (_no_added_data, *_OVERWRITE),
    (Producer.OVERWRITE, _I): _OVERWRITE,
    (Producer.OVERWRITE, _N): (),
    (Producer.REPLACE_PARTITIONS, _S): (_no_added_data_in_partitions, *_REPLACE_PARTITIONS),
    (Producer.REPLACE_PARTITIONS, _I): _REPLACE_PARTITIONS,
    (Producer.REPLACE_PARTITIONS, _N): (),
    # Files that go whole must be there still: in one that was rewritten meanwhile, the rows would live on.
    (Producer.ROW_DELETE, _S): (*_ROW_DELETE, _removed_data_is_live, _no_added_data, _no_added_vectors),
    (Producer.ROW_DELETE, _I): (*_ROW_DELETE, _removed_data_is_live, _no_added_vectors),
    (Producer.ROW_DELETE, _N): (_base_is_ancestor, _no_added_vectors),
    (Producer.ROW_UPDATE, _S): (*_ROW_UPDATE, _no_added_data, *_ROW_UPDATE_DELETES, *_ROW_UPDATE_LIVE),
    (Producer.ROW_UPDATE, _I): (*_ROW_UPDATE, *_ROW_UPDATE_DELETES, *_ROW_UPDATE_LIVE),
    (Producer.ROW_UPDATE, _N): (_base_is_ancestor, _no_added_vectors),
    (Producer.REWRITE, _S): _REWRITE,
    (Producer.REWRITE, _I): _REWRITE,
    (Producer.REWRITE, _N): _REWRITE,
}


def validations(producer: Producer, isolation: Isolation, scope: Scope) -> list[Wire]:
    """The `commit-validations` of a change, as the wire has them; clauses about nothing are left out."""
    found = (clause(scope) for clause in CLAUSES[producer, isolation])
    return [clause for clause in found if clause is not None]


def isolation_of(properties: Mapping[str, str], command: Command) -> Isolation:
    """The level that a table's properties set for a command; serializable when they do not."""
    name = f"write.{command}.isolation-level"
    text = properties.get(name, Isolation.SERIALIZABLE)
    if text.lower() not in (Isolation.SERIALIZABLE, Isolation.SNAPSHOT):
        raise BadInput(f"{name}: expected serializable or snapshot, got {text[:40]!r}", field=name)
    return Isolation(text.lower())


def _or_true(filter_: object) -> object:
    return True if filter_ is None else filter_


def _row_scope(scope: Scope) -> object:
    return scope.row_filter if scope.conflict_filter is None else scope.conflict_filter


def _live(type_: str, paths: tuple[str, ...]) -> Wire | None:
    return {"type": type_, "mode": "live-at-head", "file-paths": list(paths)} if paths else None


def _not_removed(scope: Scope, *, ignore_deletes: bool) -> Wire | None:
    if not scope.referenced_data:
        return None
    return {
        "type": "required-data-files",
        "mode": "not-removed-since-base",
        "file-paths": list(scope.referenced_data),
        "filter": _or_true(scope.conflict_filter),
        "ignore-delete-operations": ignore_deletes,
    }


def _in_partitions(type_: str, scope: Scope) -> Wire:
    # An unpartitioned table is one partition, which a filter that is always true says for every spec.
    if not scope.partitions:
        return {"type": type_, "filter": True}
    return {"type": type_, "partitions": list(scope.partitions)}
