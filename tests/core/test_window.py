"""The window: from the head back to the base, and what it says when the way is broken."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.live import find_live
from headgate.core.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from headgate.core.manifest_list import ManifestList, has_live_files
from headgate.core.table import Snapshot, TableMetadata, append_snapshot
from headgate.core.window import (
    ManifestChanges,
    OwnManifests,
    ReadChanges,
    ReadOwn,
    Theirs,
    WindowFiles,
    find_window,
    is_ancestor,
    read_manifests,
)
from headgate.errors import InvariantBroken, Unsupported
from tests.core.builders import T0, table


def _head(metadata: TableMetadata) -> Snapshot:
    found = metadata.find_snapshot(metadata.envelope.current_snapshot_id or 0)
    assert found is not None
    return found


def _ids(metadata: TableMetadata, base: int | None) -> tuple[list[int], bool]:
    window = find_window(metadata, _head(metadata), base)
    return [snapshot.snapshot_id for snapshot in window.snapshots], window.complete


def test_the_window_is_what_came_after_the_base_newest_first() -> None:
    made = table(snapshots=4)
    assert _ids(made, 2) == ([4, 3], True)
    assert _ids(made, 4) == ([], True)
    assert find_window(made, _head(made), 2).base_sequence_number == 2


def test_without_a_base_the_window_is_the_whole_history() -> None:
    assert _ids(table(snapshots=3), None) == ([3, 2, 1], True)


def test_a_base_that_is_not_on_the_way_leaves_the_window_incomplete() -> None:
    assert _ids(table(snapshots=3), 99) == ([3, 2, 1], False)


def test_an_expired_snapshot_on_the_way_leaves_the_window_incomplete() -> None:
    made = table(snapshots=3)
    gap = TableMetadata(made.envelope, made.snapshots.without({2}), made.history)
    window = find_window(gap, _head(gap), 1)
    assert not window.complete
    assert window.oldest_id == 3


def test_a_base_that_expired_while_its_child_is_there_is_still_known() -> None:
    made = table(snapshots=3)
    gap = TableMetadata(made.envelope, made.snapshots.without({1}), made.history)
    assert _ids(gap, 1) == ([3, 2], True)


def test_an_empty_branch_has_an_empty_window_and_no_ancestors() -> None:
    made = table()
    window = find_window(made, None, None)
    assert (window.snapshots, window.complete, window.oldest_id) == ((), True, None)
    assert not is_ancestor(made, None, 1)


def test_the_head_and_what_led_to_it_are_ancestors() -> None:
    made = table(snapshots=3)
    assert [n for n in range(5) if is_ancestor(made, _head(made), n)] == [1, 2, 3]


def test_a_history_with_a_cycle_is_an_invariant_broken() -> None:
    made = table()
    log = made.snapshots
    for id_, parent in ((1, 2), (2, 1)):
        log = append_snapshot(log, Snapshot(snapshot_id=id_, timestamp_ms=T0, parent_snapshot_id=parent))
    ring = TableMetadata(made.envelope, log, made.history)
    with pytest.raises(InvariantBroken):
        find_window(ring, ring.find_snapshot(2), None)


def _linked(*links: tuple[int, int | None]) -> TableMetadata:
    """A table whose log holds these snapshots and their parents, in this order."""
    made = table()
    log = made.snapshots
    for id_, parent in links:
        log = append_snapshot(
            log,
            Snapshot(
                snapshot_id=id_,
                timestamp_ms=T0 + id_,
                parent_snapshot_id=parent,
                sequence_number=id_,
                manifest_list=f"{id_}.avro",
                summary={"operation": "append", "added-records": "5"},
            ),
        )
    return TableMetadata(made.envelope, log, made.history)


# the snapshots of the log, each with its parent
@pytest.mark.parametrize(
    "links",
    [
        [(1, None), (2, 1), (3, 2)],
        [(3, 2), (2, 1), (1, None)],
        [(1, None), (91, 1), (2, 1), (92, 91), (3, 2), (93, 92)],
        [(1, None), *((n, 1) for n in range(100, 150)), (2, 1), *((n, 1) for n in range(200, 300)), (3, 2)],
    ],
    ids=["in order", "backwards", "two branches", "far between"],
)
def test_the_way_back_is_found_however_the_log_is_ordered(links: list[tuple[int, int | None]]) -> None:
    made = _linked(*links)
    window = find_window(made, made.find_snapshot(3), None)
    assert [snapshot.snapshot_id for snapshot in window.snapshots] == [3, 2, 1]
    assert window.complete


def test_a_step_back_knows_the_snapshot_but_of_its_summary_the_operation_alone() -> None:
    made = _linked((1, None), (2, 1))
    (_, older) = find_window(made, made.find_snapshot(2), None).snapshots
    assert older == Snapshot(
        snapshot_id=1,
        timestamp_ms=T0 + 1,
        sequence_number=1,
        manifest_list="1.avro",
        summary={"operation": "append"},
    )


def _manifest(by: int, added: int | None = 1, deleted: int | None = 0) -> ManifestFile:
    return ManifestFile(f"{by}-m", 1, 0, ManifestContent.DATA, by, by, by, added, 0, deleted)


def _entry(by: int, status: EntryStatus = EntryStatus.ADDED) -> ManifestEntry:
    file = ContentFile(FileContent.DATA, f"{by}.parquet", "PARQUET", 0, (), 5, 100)
    return ManifestEntry(status, by, by, by, file)


def _read(files: WindowFiles, replies: list[Any], **wanted: Any) -> tuple[list[Any], tuple[Theirs, ...]]:
    """Read added data, answered by these replies; what was asked, and what was found."""
    known: dict[str, Any] = {
        "operations": {"append"},
        "content": ManifestContent.DATA,
        "status": EntryStatus.ADDED,
    }
    reading = files.read(**{**known, **wanted})
    asked, answers = [], iter((None, *replies))
    try:
        while True:
            asked.append(reading.send(next(answers)))
    except StopIteration as stop:
        return asked, stop.value


def test_a_window_is_read_by_two_questions_and_never_asked_again() -> None:
    made = _linked((1, None), (2, 1), (3, 2))
    files = WindowFiles(find_window(made, made.find_snapshot(3), 1))
    own = OwnManifests(((_manifest(2),), (_manifest(3),)))
    changes = ManifestChanges(((_entry(2),), (_entry(3), _entry(2))))
    asked, found = _read(files, [own, changes])
    assert [type(effect) for effect in asked] == [ReadOwn, ReadChanges]
    assert [their.file.file_path for their in found] == ["2.parquet", "3.parquet"]
    asked, found = _read(files, [], in_scope=lambda file: file.file_path == "3.parquet")
    assert (asked, [their.snapshot.snapshot_id for their in found]) == ([], [3])


def test_only_manifests_that_may_hold_what_is_wanted_are_asked_for() -> None:
    made = _linked((1, None), (2, 1), (3, 2), (4, 3))
    files = WindowFiles(find_window(made, made.find_snapshot(4), 1))
    own = OwnManifests(((_manifest(2, added=0),), (_manifest(3, added=None),), (_manifest(4),)))
    asked, _ = _read(files, [own, ManifestChanges(((),))], may_hold=lambda m: m.added_snapshot_id != 4)
    assert asked[1] == ReadChanges((_manifest(3, added=None),))
    assert files.find_operations() == {"append"}


@pytest.mark.parametrize("replies", [[()], [OwnManifests(((_manifest(2),),)), ()]], ids=["own", "changes"])
def test_an_answer_to_another_question_is_an_invariant_broken(replies: list[Any]) -> None:
    made = _linked((1, None), (2, 1))
    files = WindowFiles(find_window(made, made.find_snapshot(2), 1))
    with pytest.raises(InvariantBroken):
        _read(files, replies)


def test_a_snapshot_that_lists_its_manifests_inline_is_not_supported() -> None:
    old = Snapshot(snapshot_id=1, timestamp_ms=T0, manifests=("m.avro",))
    with pytest.raises(Unsupported):
        next(read_manifests(old))


# added | existing | may it hold live files
@pytest.mark.parametrize(
    ("added", "existing", "expected"),
    [(0, 0, False), (1, 0, True), (0, 1, True), (None, 0, True), (0, None, True)],
)
def test_a_manifest_of_unknown_counts_may_hold_live_files(
    added: int | None, existing: int | None, expected: bool
) -> None:
    manifest = ManifestFile(
        "m", 1, 0, ManifestContent.DATA, 1, 1, 1, added_files_count=added, existing_files_count=existing
    )
    assert has_live_files(manifest) is expected


def test_nothing_is_asked_for_when_there_is_nothing_to_find() -> None:
    assert list(find_live(ManifestList(), {"a"})) == []
    empty = ManifestFile(
        "m", 1, 0, ManifestContent.DATA, 1, 1, 1, added_files_count=0, existing_files_count=0
    )
    assert list(find_live(ManifestList.of((empty,)), {"a"})) == []
