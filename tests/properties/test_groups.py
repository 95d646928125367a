"""Random batches of changes: as one group they do what they do one by one, in the same order.

`chain`: the same verdicts, snapshots, live files with their sequence numbers and row ids, totals. `fold`: the same
verdicts, live files and totals, with fewer snapshots; of appends alone the same row ids too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.change import Append, ChangeUpdate
from headgate.core.commit import (
    Answer,
    Committed,
    Discard,
    Head,
    Load,
    Loaded,
    Member,
    Swap,
    Swapped,
    TableCommit,
    Verdict,
    Wait,
)
from headgate.core.flow import group_flow
from headgate.core.manifest import ContentFile, ManifestContent
from headgate.core.table import Snapshot
from headgate.core.updates import SetProperties, TableUpdate
from tests.properties.lake import VARIANTS, Lake, Row, Variant, new_lake
from tests.properties.operations import Operation, Scope

TARGET = (("db",), "t")
NOW_MS = 1_700_000_100_000
MERGES = {"commit.manifest.min-count-to-merge": "3"}  # so that merged manifests are seen too

Update = ChangeUpdate | TableUpdate
Rows = list[tuple[int, str, int]]

_ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(("a", "b")), st.integers(0, 2)), min_size=1, max_size=3
)
_SCOPES = st.builds(
    Scope,
    cat=st.sampled_from((None, "a", "b")),
    ids=st.sampled_from((None, (0, 0), (1, 2))),
    amount_max=st.sampled_from((None, 1)),
)
_KEYS = st.builds(Scope, cat=st.sampled_from(("a", "b")), ids=st.sampled_from(((0, 0), (1, 2))))
_WAYS = (
    ("delete", "cow"),
    ("delete", "mor"),
    ("update", "cow"),
    ("update", "mor"),
    ("upsert", "cow"),
    ("upsert", "keys"),
    ("recompute", "partition"),
    ("compact", "keeps number"),
    ("compact", "new number"),
)


@dataclass(frozen=True)
class Step:
    """One request of a batch: an operation, or `again` the request so many places before it, or a property."""

    operation: Operation
    again: int = 0
    word: str = ""


_APPENDS = st.builds(lambda rows: Step(Operation("append", rows=_tagged(rows))), _ROWS)
_OTHERS = st.builds(
    lambda way, scope, rows, picks: Step(
        Operation(way[0], way[1], scope, _tagged(rows) if way[0] == "upsert" else (), picks=picks)
    ),
    st.sampled_from(_WAYS),
    _SCOPES,
    _ROWS,
    st.integers(1, 15),
)
_BY_KEY = st.builds(
    lambda how, scope: Step(Operation("delete", how, scope=scope)),
    st.sampled_from(("keys", "filter")),
    _KEYS,
)
_AGAIN = st.builds(lambda back: Step(Operation("append"), again=back), st.integers(1, 3))
_WORDS = st.builds(lambda word: Step(Operation("append"), word=word), st.sampled_from(("x", "y")))
_STEPS = st.one_of(_APPENDS, _OTHERS, _APPENDS, _BY_KEY, _AGAIN, _WORDS)
_BATCHES = st.lists(_STEPS, min_size=2, max_size=6)


def _tagged(rows: Rows) -> tuple[Row, ...]:
    return tuple(Row(f"{n}.{row}", *row) for n, row in enumerate(rows))


def _prepare(
    variant: Variant, start: Rows, batch: Sequence[Step], late: int, *, merges: bool
) -> tuple[Lake, list[Member]]:
    """A table, and requests written by people who read it at its head, or, before `late`, one commit earlier."""
    lake = new_lake(variant)
    if merges:
        lake.apply(SetProperties(updates=MERGES))
    lake.commit(_written(lake, Step(Operation("append", rows=_tagged(start)))), key="start")
    updates: list[Update] = []
    for n, step in enumerate(batch):
        if n == late:
            other = Operation("append", rows=(Row("other", 1, "a", 0),))
            lake.commit(_written(lake, Step(other)), key="other")
        if step.word:
            updates.append(SetProperties(updates={"word": step.word}))
        elif step.again:
            updates.append(updates[-step.again] if len(updates) >= step.again else SetProperties(updates={}))
        elif (made := step.operation.write(lake, lake.head)) is not None:
            updates.append(made)
    members = [Member(f"key {n}", (TableCommit(TARGET, (), (update,)),)) for n, update in enumerate(updates)]
    return lake, members


def _written(lake: Lake, step: Step) -> ChangeUpdate:
    update = step.operation.write(lake, lake.head)
    assert update is not None
    return update


def _drive(lake: Lake, members: Sequence[Member], version: int = 1) -> tuple[Verdict, ...]:
    """The members as one group; the table is moved on."""
    conversation = group_flow(tuple(members))
    reply: Any = None
    while True:
        try:
            effect = conversation.send(reply)
        except StopIteration as stop:
            verdicts: tuple[Verdict, ...] = stop.value
            return verdicts
        match effect:
            case Load():
                reply = Loaded((Head("t", version, lake.table, "m", None),), frozenset(), NOW_MS)
            case Swap():
                (candidate,) = effect.candidates
                lake.table = candidate.metadata
                reply = Swapped((Head("t", version + 1, lake.table, "m", None),))
            case Discard() | Wait() | Answer():
                reply = None
            case _:
                reply = lake.world.answer(effect)


def _words(verdicts: Sequence[Verdict]) -> list[str]:
    return [
        "committed"
        if isinstance(verdict, Committed)
        else f"{type(verdict.error).__name__} {verdict.error.evidence.get('rule')}"
        for verdict in verdicts
    ]


def _live(lake: Lake) -> Counter[tuple[Any, ...]]:
    """Live files with everything that a reader or the next writer goes by."""
    return Counter(
        (content, e.snapshot_id, e.data_sequence_number, e.file_sequence_number, _rows_of(e.file))
        for content, e in lake.entries(lake.head)
    )


def _rows_of(file: ContentFile) -> tuple[str, int | None, int]:
    return file.file_path, file.first_row_id, file.record_count


def _find_shared_row_ids(lake: Lake) -> list[int]:
    """Row ids that more than one row has."""
    taken = Counter(
        id_
        for content, e in lake.entries(lake.head)
        if content is ManifestContent.DATA and e.file.first_row_id is not None
        for id_ in range(e.file.first_row_id, e.file.first_row_id + e.file.record_count)
    )
    return [id_ for id_, count in taken.items() if count > 1]


def _totals(lake: Lake) -> dict[str, str]:
    head = None if lake.head is None else lake.table.find_snapshot(lake.head)
    assert head is not None
    return {name: value for name, value in head.summary.items() if name.startswith("total-")}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    variant=st.sampled_from(VARIANTS),
    start=_ROWS,
    batch=_BATCHES,
    late=st.integers(0, 6),
    merges=st.booleans(),
)
def test_a_chained_group_does_what_its_members_do_one_by_one(
    variant: Variant, start: Rows, batch: list[Step], late: int, merges: bool
) -> None:
    grouped, members = _prepare(variant, start, batch, late, merges=merges)
    single = grouped.fork()
    verdicts = _drive(grouped, members)
    one_by_one = [verdict for n, one in enumerate(members) for verdict in _drive(single, [one], n)]
    assert _words(verdicts) == _words(one_by_one)
    assert _live(grouped) == _live(single)
    assert _snapshots(grouped) == _snapshots(single)  # ids, parents, sequence numbers, times, totals, row ids
    assert grouped.table.envelope == single.table.envelope
    assert grouped.find_fault() is None


def _snapshots(lake: Lake) -> list[Snapshot]:
    """All snapshots, without the names of their lists, which are made anew each time."""
    return [msgspec.structs.replace(one, manifest_list="") for one in lake.table.iter_snapshots()]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    variant=st.sampled_from(VARIANTS),
    start=_ROWS,
    batch=st.lists(st.one_of(_APPENDS, _APPENDS, _APPENDS, _STEPS), min_size=2, max_size=6),
    late=st.integers(0, 6),
    merges=st.booleans(),
)
def test_a_folded_group_leaves_the_same_files_with_fewer_snapshots(
    variant: Variant, start: Rows, batch: list[Step], late: int, merges: bool
) -> None:
    folded, members = _prepare(variant, start, batch, late, merges=merges)
    single = folded.fork()
    verdicts = _drive(folded, [replace(one, fold=True) for one in members])
    one_by_one = [verdict for n, one in enumerate(members) for verdict in _drive(single, [one], n)]
    assert _words(verdicts) == _words(one_by_one)
    assert _paths(folded) == _paths(single)
    assert _totals(folded) == _totals(single)
    assert len(folded.table.snapshots) <= len(single.table.snapshots)
    assert folded.find_fault() is None
    assert not _find_shared_row_ids(folded)
    # A manifest that is merged or rewritten takes row ids for what it holds (spec v3, "First Row ID Assignment").
    if not merges and all(isinstance(one.commits[0].updates[0], Append | SetProperties) for one in members):
        live = [Counter(_rows_of(e.file) for _, e in lake.entries(lake.head)) for lake in (folded, single)]
        assert live[0] == live[1]
        assert folded.table.envelope.next_row_id == single.table.envelope.next_row_id


def _paths(lake: Lake) -> Counter[str]:
    return Counter(entry.file.file_path for _, entry in lake.entries(lake.head))


def test_a_batch_of_appends_folds_into_one_snapshot() -> None:
    rows = [[(n, "a", 0)] for n in range(4)]
    batch = [Step(Operation("append", rows=_tagged(one))) for one in rows]
    for variant in VARIANTS:
        lake, members = _prepare(variant, rows[0], batch, late=9, merges=False)
        before = len(lake.table.snapshots)
        _drive(lake, [replace(one, fold=True) for one in members])
        assert len(lake.table.snapshots) == before + 1
