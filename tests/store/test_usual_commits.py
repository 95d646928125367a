"""A commit of the usual shape is staged by a way of its own: it leaves what the general way leaves, whatever it brings."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import InvariantBroken
from headgate.store.base import (
    CheckEntry,
    EntryHeader,
    EntryId,
    Operation,
    PutFootprint,
    Reason,
    Refused,
    Stream,
)
from headgate.store.sqlite import SqliteStore
from tests.store.builders import Catalog, added, item, put_event, put_file, put_key, swap

ID, OTHER = EntryId("00000000-0000-4000-8000-00000000000a"), EntryId("00000000-0000-4000-8000-00000000000b")
TABLES = ("SELECT * FROM staged_rows", "SELECT * FROM entries ORDER BY id", "SELECT * FROM indexed_keys")


class Recording(sqlite3.Connection):
    """Notes the statements that stage rows."""

    staging: list[str]

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if "INTO staged_rows" in sql:
            self.staging.append(sql)
        return super().execute(sql, parameters)


@dataclass
class Side:
    """A store that has seen two commits, and writes all that follow in one of the two ways."""

    path: Path
    is_usual: bool
    staging: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = SqliteStore(self.path, connect=self._connect)
        self.catalog = Catalog(self.store)
        self.catalog.create("t", id=ID)
        self.other = self.catalog.create("u", id=OTHER)
        for at in range(2):
            assert self.write(commit(self.catalog.header(), at)) is None
        self.staging.clear()

    def _connect(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Recording)
        db.staging = self.staging
        return db

    def write(self, operations: list[Operation]) -> object:
        """What it gave or raised. A check that holds is all that makes it another shape."""
        other = [] if self.is_usual else [CheckEntry(OTHER, self.other.version)]
        try:
            return self.store.write([*operations, *other])
        except InvariantBroken as error:
            return str(error)

    def dump(self) -> list[list[tuple[Any, ...]]]:
        with closing(sqlite3.connect(self.path)) as db:
            return [db.execute(table).fetchall() for table in TABLES]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    made = Side(tmp_path / "usual.db", True), Side(tmp_path / "general.db", False)
    yield made
    for side in made:
        side.store.close()


def commit(header: EntryHeader, at: int) -> list[Operation]:
    return [
        swap(header, snapshots=added(item(at, tag=at)), history=added(item(at))),
        put_key(f"k{at}"),
        put_event(f"e{at}", id=header.id, snapshot_ids=(at,), key=f"k{at}"),
        PutFootprint(header.id, at, b"footprint"),
        put_file(f"{at}.avro"),
        put_file(f"{at}-list.avro", data=b"list"),
    ]


Change = Callable[[EntryHeader], dict[int, Any]]  # operations of a commit that are others, by their place


def with_logs(snapshots: Any, history: Any = None, **more: Any) -> Change:
    return lambda header: {
        0: swap(header, snapshots=snapshots, history=history or added(item(2)), **more),
    }


def with_new(put: Any, **fields: Any) -> Any:
    return replace(put, **fields)


SNAPSHOT = added(item(2, tag=2))
IS_USUAL: dict[str, Change] = {
    "nothing": lambda header: {},
    "a new key": lambda header: {1: with_new(put_key("drawn"), is_new=True)},
    "new tags": lambda header: {
        0: with_new(swap(header, snapshots=SNAPSHOT, history=added(item(2))), tags_are_new=True)
    },
    "no tag": with_logs(added(item(2))),
    "positions left out": with_logs(added(item(5, tag=2)), added(item(7))),
    "positions told": with_logs(replace(SNAPSHOT, next_position=9), replace(added(item(2)), next_position=8)),
    "the rest of another file": lambda header: {
        5: with_new(put_file("l"), file=replace(put_file("l").file, base="1-list.avro", tail_bytes=3))
    },
    "logs in another order": lambda header: {
        0: replace(
            swap(header, snapshots=SNAPSHOT, history=added(item(2))),
            logs={Stream.HISTORY: added(item(2)), Stream.SNAPSHOTS: SNAPSHOT},
        )
    },
}
IS_NOT: dict[str, Change] = {
    "a key that is staged": lambda header: {1: put_key("k1")},
    "a key that is moved": lambda header: {1: put_key("moved")},
    "a tag that is staged": with_logs(added(item(2, tag=1))),
    "a tag that is staged and said to be new": lambda header: {
        0: with_new(swap(header, snapshots=added(item(2, tag=1)), history=added(item(2))), tags_are_new=True)
    },
    "an old version": lambda header: {
        0: swap(header, expected=1, snapshots=SNAPSHOT, history=added(item(2)))
    },
    "a version to come": lambda header: {
        0: swap(header, expected=9, snapshots=SNAPSHOT, history=added(item(2)))
    },
    "a table that is gone": lambda header: {
        0: swap(replace(header, id=EntryId("x")), snapshots=SNAPSHOT, history=added(item(2)))
    },
    "a position that was given out": with_logs(added(item(1, tag=2))),
    "a checkpoint": with_logs(SNAPSHOT, checkpointed=True),
    "another location": with_logs(SNAPSHOT, location="s3://lake/elsewhere"),
    "a location that is taken": with_logs(SNAPSHOT, location="s3://lake/a/u/below"),
    "several snapshots": with_logs(added(item(2, tag=2), item(3, tag=3))),
    "one log alone": lambda header: {0: swap(header, snapshots=SNAPSHOT)},
    "an empty log": with_logs(added()),
    "items removed": with_logs(added(item(2, tag=2), removed=(0,))),
    "a tagged entry": with_logs(SNAPSHOT, added(item(2, tag=8))),
    "an event of another table": lambda header: {2: put_event("e2", id=OTHER, snapshot_ids=(2,))},
    "an event of nothing": lambda header: {2: put_event("e2")},
    "an event of two snapshots": lambda header: {2: put_event("e2", id=ID, snapshot_ids=(2, 3))},
    "a footprint of another snapshot": lambda header: {3: PutFootprint(ID, 7, b"other")},
    "a footprint of another table": lambda header: {3: PutFootprint(OTHER, 2, b"other")},
    "one file twice": lambda header: {5: put_file("2.avro")},
    "a file that is staged": lambda header: {4: put_file("1.avro")},
    "a file that is journalled": lambda header: {5: put_file("moved.avro")},
}


def prepare(side: Side) -> None:
    """Rows that are moved, and one that is staged."""
    side.catalog.must(put_key("moved"), put_file("moved.avro"))
    side.store.drop_files([])
    assert side.write(commit(replace(side.catalog.header(), version=3), 9)[1:]) is None


@pytest.mark.parametrize("kind", [*IS_USUAL, *IS_NOT])
def test_a_commit_leaves_the_rows_that_the_general_way_leaves(sides: tuple[Side, Side], kind: str) -> None:
    change = (IS_USUAL | IS_NOT)[kind]
    outcomes = []
    for side in sides:
        prepare(side)
        operations = dict(enumerate(commit(side.catalog.header(), 2))) | change(side.catalog.header())
        outcomes.append([side.write(list(operations.values())), side.write(list(operations.values()))])
        outcomes[-1].append(side.write(commit(side.catalog.header(), 12)))
        outcomes[-1].append(side.write([put_key("k12")]))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][-1] == Refused(0, Reason.KEY_EXISTS, None, "k12")
    usual, general = (sort_logs(side.dump()) for side in sides)
    assert usual == general


def sort_logs(dump: list[list[tuple[Any, ...]]]) -> list[list[object]]:
    """Which of two items of a row comes first is nobody's business."""
    return [[sorted(map(repr, row)) for row in rows] for rows in dump]


@pytest.mark.parametrize("kind", IS_USUAL)
def test_the_usual_shape_is_told_from_others(sides: tuple[Side, Side], kind: str) -> None:
    found = []
    for side in sides:
        operations = dict(enumerate(commit(side.catalog.header(), 2)))
        operations |= IS_USUAL[kind](side.catalog.header())
        assert side.write(list(operations.values())) is None
        found.append(side.staging)
    assert [len(one) for one in found] == [1, 1]
    assert found[0] != found[1]


def test_a_usual_commit_is_the_same_row_column_by_column(sides: tuple[Side, Side]) -> None:
    for side in sides:
        assert side.write(commit(side.catalog.header(), 2)) is None
    assert sides[0].dump() == sides[1].dump()
    assert None not in {value for row in sides[0].dump()[0] for value in row[:13]}
