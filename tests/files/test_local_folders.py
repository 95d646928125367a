"""Folders that change under a running service: swapped for symlinks, removed, made anew, moved away."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.errors import HeadgateError, LocationRefused, StorageFailed
from headgate.files.disk_sync import Disks
from headgate.files.local import LocalFiles
from headgate.files.local_folders import Folders
from headgate.files.plain_open import PlainOpen, find_plain_open, never

OPENS: dict[str, Callable[[], PlainOpen]] = {"at once": find_plain_open, "by a walk": lambda: never}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder beside the warehouse where nothing may be written."""
    folder = tmp_path / "secret"
    folder.mkdir()
    return folder


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    (folder / "t" / "metadata").mkdir(parents=True)
    return folder


@pytest.fixture(params=OPENS.values(), ids=list(OPENS))
def files(request: pytest.FixtureRequest, warehouse: Path) -> LocalFiles:
    """Files that have written to `t/metadata` before."""
    made = LocalFiles([warehouse], plain_open=request.param())
    made.write_soft(at(warehouse, "before"), [b"x"])
    made.sync([at(warehouse, "before")])
    return made


def at(warehouse: Path, name: str) -> str:
    """A location in the folder that the tests move."""
    return f"file://{warehouse}/t/metadata/{name}"


def calls_at(files: LocalFiles, location: str) -> list[Callable[[], object]]:
    """All that may touch a location."""
    return [
        lambda: files.write_soft(location, [b"planted"]),
        lambda: files.write_new(location, [b"planted"]),
        lambda: files.restore(location, b"planted"),
        lambda: files.read(location, limit_bytes=10),
        lambda: files.exists(location),
        lambda: files.sync([location]),
        lambda: files.delete([location]),
    ]


@pytest.mark.parametrize("swapped", ["t/metadata", "t"])
def test_a_folder_swapped_for_a_symlink_between_two_writes_is_refused(
    files: LocalFiles, warehouse: Path, secret: Path, swapped: str
) -> None:
    (secret / "metadata").mkdir()
    (secret / "a").write_bytes(b"kept")
    (secret / "metadata" / "a").write_bytes(b"kept")
    os.rename(warehouse / swapped, warehouse / "moved")
    os.symlink(secret, warehouse / swapped)
    for call in calls_at(files, at(warehouse, "a")) + calls_at(files, at(warehouse, "b")):
        with pytest.raises(LocationRefused):
            call()
    assert sorted(os.listdir(secret)) == ["a", "metadata"]
    assert os.listdir(secret / "metadata") == ["a"]
    assert (secret / "a").read_bytes() == (secret / "metadata" / "a").read_bytes() == b"kept"


def test_a_symlink_to_the_very_folder_that_stood_in_its_place_is_refused(
    files: LocalFiles, warehouse: Path, secret: Path
) -> None:
    os.rename(warehouse / "t" / "metadata", secret / "metadata")
    os.symlink(secret / "metadata", warehouse / "t" / "metadata")
    for call in calls_at(files, at(warehouse, "a")):
        with pytest.raises(LocationRefused):
            call()
    assert os.listdir(secret / "metadata") == ["before"]


def test_a_folder_that_was_removed_and_made_anew_is_written_to(files: LocalFiles, warehouse: Path) -> None:
    for number in range(3):
        shutil.rmtree(warehouse / "t")
        (warehouse / "t" / "metadata").mkdir(parents=True)
        files.write_soft(at(warehouse, str(number)), [b"x"])
        assert os.listdir(warehouse / "t" / "metadata") == [str(number)]


def test_a_folder_that_was_removed_is_made_by_a_soft_write(files: LocalFiles, warehouse: Path) -> None:
    shutil.rmtree(warehouse / "t")
    files.write_soft_many([(at(warehouse, "a"), [b"x"]), (at(warehouse, "b"), [b"x"])])
    assert sorted(os.listdir(warehouse / "t" / "metadata")) == ["a", "b"]


def test_a_folder_that_was_moved_away_gets_no_more_files(
    files: LocalFiles, warehouse: Path, secret: Path
) -> None:
    os.rename(warehouse / "t", secret / "t")
    files.write_soft(at(warehouse, "a"), [b"x"])
    assert os.listdir(secret / "t" / "metadata") == ["before"]
    assert os.listdir(warehouse / "t" / "metadata") == ["a"]


def test_no_descriptor_is_left_open(files: LocalFiles, warehouse: Path, secret: Path) -> None:
    """Also none of a folder that is gone, whose space could not be used again."""
    before = sorted(os.listdir("/proc/self/fd"))
    files.write_soft_many([(f"file://{warehouse}/t/{number}/a", [b"x"]) for number in range(40)])
    files.sync([f"file://{warehouse}/t/{number}/a" for number in range(40)])
    for call in calls_at(files, at(warehouse, "a")):
        with suppress(HeadgateError):
            call()
    os.rename(warehouse / "t", warehouse / "moved")
    os.symlink(secret, warehouse / "t")
    for call in calls_at(files, at(warehouse, "a")):
        with pytest.raises(LocationRefused):
            call()
    (warehouse / "t").unlink()
    shutil.rmtree(warehouse)
    for call in calls_at(files, at(warehouse, "a")):
        with pytest.raises(StorageFailed):
            call()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_symlinks_swapped_in_while_two_threads_write_softly_catch_no_file(
    files: LocalFiles, warehouse: Path, secret: Path
) -> None:
    spot, away = warehouse / "t" / "metadata", warehouse / "away"
    wrong: list[BaseException] = []
    writing = threading.Barrier(3)

    def write(who: str) -> None:
        writing.wait()
        for number in range(500):
            try:
                files.write_soft_many([(at(warehouse, f"{who}-{number}-{part}"), [b"x"]) for part in "ab"])
            except (LocationRefused, StorageFailed):
                continue
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=write, args=(who,)) for who in ("one", "two")]
    for thread in threads:
        thread.start()
    writing.wait()
    while any(thread.is_alive() for thread in threads):
        with suppress(OSError):  # a writer was faster
            os.rename(spot, away)
            os.symlink(secret, spot)
        with suppress(OSError):
            os.unlink(spot)
        shutil.rmtree(away, ignore_errors=True)
    assert not wrong
    assert os.listdir(secret) == []


def test_a_root_that_moved_behind_a_symlink_above_it_is_still_served(tmp_path: Path) -> None:
    """Who may change what is above a root may do so: the walk below begins at whatever stands there."""
    (tmp_path / "disk" / "warehouse" / "t").mkdir(parents=True)
    warehouse = tmp_path / "disk" / "warehouse"
    for find in OPENS.values():
        files = LocalFiles([warehouse], plain_open=find())
        os.rename(tmp_path / "disk", tmp_path / "larger")
        os.symlink(tmp_path / "larger", tmp_path / "disk")
        files.write_soft(f"file://{warehouse}/t/a", [b"x"])
        assert files.read(f"file://{warehouse}/t/a", limit_bytes=10) == b"x"
        files.delete([f"file://{warehouse}/t/a"])
        (tmp_path / "disk").unlink()
        os.rename(tmp_path / "larger", tmp_path / "disk")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of all that is synced by itself."""
    seen: list[int] = []
    fsync = os.fsync

    def see(descriptor: int) -> None:
        seen.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", see)
    return seen


@pytest.mark.parametrize("count", [1, 40])
def test_the_entries_above_a_folder_are_synced_with_its_first_file_and_not_by_a_soft_write(
    warehouse: Path, synced: list[int], count: int
) -> None:
    for find in OPENS.values():
        syncs: list[int] = []
        files = LocalFiles(
            [warehouse],
            disks=Disks(syncfs=syncs.append, find_type=lambda device: "ext4"),
            plain_open=find(),
        )
        above = {os.stat(path).st_ino for path in (warehouse, warehouse / "t")}
        for _ in range(2):
            locations = [at(warehouse, str(number)) for number in range(count)]
            files.write_soft_many([(location, [b"x"]) for location in locations])
            assert not synced
            files.sync(locations)
            assert above <= set(synced)
            assert len(syncs) == 0 or count > 1
            synced.clear()
            files.sync(locations)
            assert not above & set(synced), "once is enough"
            synced.clear()
            # A folder made anew has another inode, if the first one is kept from being used again.
            os.rename(warehouse / "t" / "metadata", warehouse / f"kept-{len(os.listdir(warehouse))}")


def test_what_is_remembered_of_a_folder_lets_no_bad_name_in(warehouse: Path) -> None:
    folders = Folders([warehouse], never)
    good = folders.find_place(f"file://{warehouse}/t/a")
    assert (good.name, good.folder.names) == ("a", ("t",))
    for name in ("", ".", "..", "a\0b"):
        with pytest.raises(LocationRefused):
            folders.find_place(f"file://{warehouse}/t/{name}")
    for location in (f"file://{warehouse}", f"{warehouse}/t/a", f"file://{warehouse}/../t/a", "file:///t/a"):
        with pytest.raises(LocationRefused):
            folders.find_place(location)


def test_more_folders_than_are_remembered_are_found_all_the_same(warehouse: Path) -> None:
    folders = Folders([warehouse], never)
    for _ in range(2):
        for number in range(10_010):
            assert folders.find_place(f"file://{warehouse}/{number}/a").folder.names == (str(number),)


@pytest.mark.parametrize(
    "link", ["link", "link/inner", "plain/link", "loop", "/proc/self/cwd", "/proc/self/fd"]
)
def test_one_call_opens_no_path_with_a_symlink_in_it(tmp_path: Path, link: str) -> None:
    (tmp_path / "plain" / "inner").mkdir(parents=True)
    os.symlink("plain", tmp_path / "link")
    os.symlink("inner", tmp_path / "plain" / "link")
    os.symlink("loop", tmp_path / "loop")
    assert find_plain_open()(os.fsencode(tmp_path / link)) is None


@pytest.mark.skipif(find_plain_open() is never, reason="needs openat2 of Linux 5.6")
def test_one_call_opens_folders_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    plain_open = find_plain_open()
    assert plain_open(os.fsencode(tmp_path / "file")) is None
    assert plain_open(os.fsencode(tmp_path / "missing")) is None
    descriptor = plain_open(os.fsencode(tmp_path))
    assert descriptor is not None
    assert os.fstat(descriptor).st_ino == os.stat(tmp_path).st_ino
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
