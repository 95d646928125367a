"""What a window of commits did to the rows of a source, without Spark."""

from __future__ import annotations

from headgate.client.feed import SnapshotChanges, read_changes
from headgate.spark.view_changes import Delta, Lost, find_delta, list_window

_Versions = set[tuple[str, int | None, str]]


def _commit(
    id_: int,
    action: str = "append",
    *,
    add: str = "",
    remove: str = "",
    delete_from: str = "",
    take_back: str = "",
    parent: int | None = None,
) -> SnapshotChanges:
    return SnapshotChanges(
        snapshot_id=id_,
        parent_snapshot_id=id_ - 1 if parent is None else parent,
        sequence_number=id_,
        action=action,
        added_data=tuple({"file-path": path} for path in add),
        removed_data=tuple({"file-path": path} for path in remove),
        added_deletes=tuple(_vector(path, id_) for path in delete_from),
        removed_deletes=tuple(_vector(path, id_ - 1) for path in take_back),
    )


def _vector(path: str, id_: int) -> dict[str, object]:
    return {"file-path": f"dv-{path}{id_}", "content": "position-deletes", "referenced-data-file": path}


def _delta(*commits: SnapshotChanges) -> tuple[_Versions, _Versions]:
    found = find_delta(commits)
    assert isinstance(found, Delta), found
    came = {(version.path, version.snapshot_id, version.deletes.value) for version in found.came}
    went = {(version.path, version.snapshot_id, version.deletes.value) for version in found.went}
    return came, went


def test_files_that_were_appended_came() -> None:
    assert _delta(_commit(1, add="a"), _commit(2, add="bc")) == (
        {("a", 1, "none"), ("b", 2, "none"), ("c", 2, "none")},
        set(),
    )


def test_an_overwrite_takes_one_file_and_brings_another() -> None:
    assert _delta(_commit(1, "overwrite", add="b", remove="a")) == (
        {("b", 1, "none")},
        {("a", None, "maybe")},
    )


def test_a_file_that_came_and_went_is_not_read_at_all() -> None:
    assert _delta(_commit(1, add="a"), _commit(2, "delete", remove="a")) == (set(), set())


def test_a_compaction_costs_nothing() -> None:
    assert _delta(_commit(1, "replace", add="c", remove="ab")) == (set(), set())


def test_a_file_that_came_and_was_compacted_is_read_as_it_came() -> None:
    assert _delta(_commit(1, add="a"), _commit(2, "replace", add="c", remove="ab")) == (
        {("a", 1, "none")},
        set(),
    )


def test_a_compacted_file_that_is_rewritten_balances_with_what_it_was_made_from() -> None:
    came, went = _delta(
        _commit(1, add="a"),
        _commit(2, "replace", add="c", remove="ab"),
        _commit(3, "overwrite", add="d", remove="c"),
    )
    assert came == {("a", 1, "none"), ("d", 3, "none")}
    assert went == {("c", 2, "maybe")}


def test_deleted_rows_are_the_difference_of_two_versions() -> None:
    assert _delta(_commit(1, "delete", delete_from="a")) == ({("a", 1, "some")}, {("a", None, "maybe")})


def test_deletes_from_one_file_time_and_again_are_one_difference() -> None:
    assert _delta(
        _commit(1, "delete", delete_from="a"), _commit(2, "delete", delete_from="a", take_back="a")
    ) == ({("a", 2, "some")}, {("a", None, "maybe")})


def test_a_new_file_with_deletes_is_read_once() -> None:
    assert _delta(_commit(1, add="a"), _commit(2, "delete", delete_from="a")) == (
        {("a", 2, "some")},
        set(),
    )


def test_a_file_that_lost_rows_and_then_went_is_read_as_it_was_at_the_base() -> None:
    assert _delta(
        _commit(1, "delete", delete_from="a"), _commit(2, "overwrite", add="b", remove="a", take_back="a")
    ) == ({("b", 2, "none")}, {("a", None, "maybe")})


def test_the_description_of_a_file_stays_with_it() -> None:
    found = find_delta([_commit(1, add="a"), _commit(2, "delete", delete_from="a")])
    assert isinstance(found, Delta)
    assert [version.file for version in found.came] == [{"file-path": "a"}]


def test_equality_deletes_cannot_be_followed() -> None:
    file = {"file-path": "e", "content": "equality-deletes"}
    found = find_delta([SnapshotChanges(1, None, 1, "delete", added_deletes=(file,))])
    assert isinstance(found, Lost)
    assert "equality-deletes" in found.reason


def test_position_deletes_of_one_file_are_known_by_their_bounds() -> None:
    bounds = {"keys": [2147483546], "values": [b"a".hex()]}
    other = {"keys": [2147483546], "values": [b"b".hex()]}
    one = {"file-path": "p", "content": "position-deletes", "lower-bounds": bounds, "upper-bounds": bounds}
    many = {**one, "upper-bounds": other}
    commit = SnapshotChanges(1, None, 1, "delete", added_deletes=(one,))
    assert _delta(commit) == ({("a", 1, "some")}, {("a", None, "maybe")})
    assert isinstance(find_delta([SnapshotChanges(1, None, 1, "delete", added_deletes=(many,))]), Lost)


def test_deletes_that_are_taken_back_cannot_be_followed() -> None:
    assert isinstance(find_delta([_commit(1, "overwrite", take_back="a")]), Lost)


def test_an_operation_that_is_not_known_cannot_be_followed() -> None:
    assert isinstance(find_delta([_commit(1, "shuffle", add="a")]), Lost)


def test_a_window_is_listed_from_the_base_on() -> None:
    walk = [_commit(5), _commit(4), _commit(3), _commit(2)]
    window = list_window(iter(walk), base_id=2, commits_max=10)
    assert not isinstance(window, Lost)
    assert [commit.snapshot_id for commit in window] == [3, 4, 5]


def test_a_base_that_is_not_in_the_history_is_lost() -> None:
    assert isinstance(list_window([_commit(5), _commit(4)], base_id=7, commits_max=10), Lost)
    assert isinstance(list_window([_commit(5), _commit(4)], base_id=3, commits_max=1), Lost)


def test_the_pages_of_a_snapshot_are_put_together() -> None:
    page = {"snapshot-id": 1, "parent-snapshot-id": None, "sequence-number": 1, "action": "append"}
    lists: dict[str, object] = {
        "removed-data-files": [],
        "added-delete-files": [],
        "removed-delete-files": [],
    }
    pages = {
        None: {**page, **lists, "added-data-files": [{"file-path": "a"}], "next-page-token": "t"},
        "t": {**page, **lists, "added-data-files": [{"file-path": "b"}], "next-page-token": None},
    }
    assert [file["file-path"] for file in read_changes(pages.__getitem__).added_data] == ["a", "b"]
