"""Manifest lists are journalled by their fronts, and come back whole: the same bytes, whatever the disk lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.core.manifest import ManifestContent, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.format.manifest_list_encode import encode_blocks, encoded_size
from headgate.format.manifests import decode_manifest_list
from headgate.service.journal import Tail
from headgate.service.list_tails import find_tail, note_encoded
from headgate.store.sqlite import SqliteStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, commit_change, data_file
from tests.service.table_calls import created, load, local, make_namespace

EVER_MS = 2**62
UNMERGED = {"commit.manifest-merge.enabled": "false"}


def append(client: AppClient, location: str, number: int) -> None:
    update = change("append", add_data_files=[data_file(f"{location}/data/{number}.parquet")])
    assert commit_change(client, update).status_code == 200


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_lists_come_back_byte_for_byte_from_their_fronts(tmp_path: Path, version: str) -> None:
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as client:
        make_namespace(client, "a")
        properties = {"format-version": version, **UNMERGED}
        location = created(client, properties=properties)["metadata"]["location"]
        for number in range(40):  # more than two tiers of blocks
            append(client, location, number)
        rows = client.services.store.read_journal(before_ms=EVER_MS, limit=1000)
        lists = [row for row in rows if "/snap-" in row.location]
        assert len(lists) == 40
        assert sum(row.base is not None for row in lists) >= 35
        largest = max(row.size_bytes for row in lists)
        assert sum(len(row.data) for row in lists) < 40 * largest / 3
        bodies = {row.location: local(row.location).read_bytes() for row in rows}
        for location in bodies:
            local(location).write_bytes(b"lost by the disk")
        client.services.journal.recover()
        assert {location: local(location).read_bytes() for location in bodies} == bodies
        head = load(client)["metadata"]["snapshots"][-1]["manifest-list"]
        assert len(decode_manifest_list(local(head).read_bytes(), location=head)) == 40


def test_a_list_is_not_built_on_one_that_another_engine_wrote(tmp_path: Path) -> None:
    """After a restart nobody knows how the parent's bytes came about, so the first list is journalled whole."""
    store = SqliteStore(tmp_path / "catalog.db")
    with app_client(tmp_path, store=store) as client:
        make_namespace(client, "a")
        location = created(client, properties=UNMERGED)["metadata"]["location"]
        append(client, location, 0)
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as client:
        for number in (1, 2):
            append(client, location, number)
        rows = client.services.store.read_journal(before_ms=EVER_MS, limit=1000)
        lists = [row for row in rows if "/snap-" in row.location]
        assert [row.base is None for row in lists] == [True, False]


def grown(parent: ManifestList, *numbers: int) -> ManifestList:
    """A list with so many more in front."""
    for number in numbers:
        new = ManifestFile(f"m{number}", 1, 0, ManifestContent.DATA, 1, 1, 1, 1, 0, 0, 5, 0, 0)
        parent = parent.next([new])
    return parent


def encoded(manifests: ManifestList, location: str, *, version: int = 2) -> ManifestList:
    """A list that was encoded here, for this location."""
    made = encode_blocks(manifests.blocks, (1, None, 1, None), version)
    assert made.blocks_bytes == encoded_size(manifests.blocks, version)
    note_encoded(manifests, location, version, made.blocks_bytes)
    return manifests


@pytest.mark.parametrize("before", [1, 14, 15, 16, 40])
@pytest.mark.parametrize("new", [0, 1, 2, 20])
def test_a_list_ends_as_its_parent_does_but_for_what_was_put_in_front_or_merged(
    before: int, new: int
) -> None:
    parent = encoded(grown(ManifestList(), *range(before)), "a")
    next_ = encoded(grown(parent, *range(before, before + new)), "b")
    shared = [block for block in parent.blocks if block in next_.blocks]
    tail = find_tail(next_, 2, parent=parent, base="a")
    assert tail == (Tail("a", encoded_size(shared, 2) or 0) if shared else None)


def test_of_a_parent_that_was_not_encoded_here_or_in_another_version_nothing_is_known() -> None:
    parent = encoded(grown(ManifestList(), 1, 2), "a")
    other = encoded(encoded(grown(parent, 3), "b"), "c", version=1)
    assert find_tail(other, 2, parent=parent, base="a") is not None
    assert find_tail(other, 2, parent=parent, base="elsewhere") is None
    assert find_tail(other, 1, parent=parent, base="a") is None
    assert find_tail(other, 2, parent=None, base="a") is None
    assert find_tail(other, 2, parent=ManifestList.of(parent), base="a") is None


def test_what_is_noted_of_a_list_does_not_grow_with_commits_that_bring_nothing(tmp_path: Path) -> None:
    with app_client(tmp_path, store=SqliteStore(tmp_path / "catalog.db")) as client:
        make_namespace(client, "a")
        location = created(client, properties=UNMERGED)["metadata"]["location"]
        append(client, location, 0)
        for _ in range(20):
            assert commit_change(client, change("append", add_data_files=[])).status_code == 200
        head = load(client)["metadata"]["snapshots"][-1]["manifest-list"]
        assert len(client.services.manifests.read_list(head).notes) < 5
