"""The window: from the head back to the base, and what it says when the way is broken."""

from __future__ import annotations

import pytest

from headgate.core.live import find_live
from headgate.core.manifest_list import ManifestList, has_live_files
from headgate.core.manifest import ManifestContent, ManifestFile
from headgate.core.table import Snapshot, TableMetadata, append_snapshot
from headgate.core.window import find_window, is_ancestor, read_manifests
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
