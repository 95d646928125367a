"""What only a local disk can get wrong with soft writes: symlinks, full disks, syncs that fail."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import LocationRefused, StorageFailed
from headgate.files.disk_sync import Disks, find_syncfs, find_type
from headgate.files.local import LocalFiles

MANY = 40  # enough for one sync of the whole disk
FEW = 2


class Disk:
    """A disk of the trusted kind whose whole syncs are counted, and fail while told so."""

    def __init__(self, kind: str = "ext4") -> None:
        self.kind, self.syncs, self.is_broken = kind, 0, False

    def sync(self, descriptor: int) -> None:
        """As `syncfs`."""
        os.fstat(descriptor)
        self.syncs += 1
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")

    def disks(self) -> Disks:
        """What `LocalFiles` asks."""
        return Disks(syncfs=self.sync, find_type=lambda device: self.kind)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    (folder / "t").mkdir(parents=True)
    return folder


def written(files: LocalFiles, warehouse: Path, count: int, *, folder: str = "t") -> list[str]:
    """Soft files in a folder."""
    start = len(os.listdir(warehouse / folder))
    locations = [f"file://{warehouse}/{folder}/{start + number}" for number in range(count)]
    files.write_soft_many([(location, [b"x"]) for location in locations])
    return locations


def test_soft_writes_and_restores_follow_no_symlink(warehouse: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    os.symlink(secret, warehouse / "t" / "out")
    files = LocalFiles([warehouse])
    for location in (f"file://{warehouse}/t/out/a", f"file://{warehouse}/t/out/deep/a"):
        with pytest.raises(LocationRefused):
            files.write_soft(location, [b"planted"])
        with pytest.raises(LocationRefused):
            files.restore(location, b"planted")
        with pytest.raises(LocationRefused):
            files.sync([location])
        with pytest.raises(LocationRefused):
            files.sync([location] * MANY)
    assert os.listdir(secret) == []


def test_a_restore_over_a_symlink_replaces_the_link_and_spares_its_target(
    warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(b"secret")
    os.symlink(tmp_path / "key", warehouse / "t" / "a")
    LocalFiles([warehouse]).restore(f"file://{warehouse}/t/a", b"ours")
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert not (warehouse / "t" / "a").is_symlink()
    assert (warehouse / "t" / "a").read_bytes() == b"ours"


def test_a_restore_where_a_folder_stands_is_refused_and_leaves_nothing(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    (warehouse / "t" / "a").mkdir()
    with pytest.raises(LocationRefused):
        files.restore(f"file://{warehouse}/t/a", b"ours")
    assert list(files.list(f"file://{warehouse}")) == []


def test_a_restore_makes_the_folders_that_are_gone(warehouse: Path) -> None:
    LocalFiles([warehouse]).restore(f"file://{warehouse}/dropped/metadata/a", b"ours")
    assert (warehouse / "dropped" / "metadata" / "a").read_bytes() == b"ours"


def test_a_restore_writes_anew_even_what_looks_right(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    (location,) = written(files, warehouse, 1)
    before = os.stat(location.removeprefix("file://")).st_ino
    files.restore(location, b"x")
    assert os.stat(location.removeprefix("file://")).st_ino != before


def test_a_full_disk_leaves_no_soft_file_and_no_torn_restore(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    (standing,) = written(files, warehouse, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StorageFailed, match="t/big"):
            files.write_soft_many(
                [
                    (f"file://{warehouse}/t/small", [b"x"]),
                    (f"file://{warehouse}/t/big", [b"x" * 100_000]),
                ]
            )
        with pytest.raises(StorageFailed):
            files.restore(standing, b"y" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [info.location for info in files.list(f"file://{warehouse}")] == [standing]
    assert files.read(standing, limit_bytes=10) == b"x"


def test_a_root_that_went_away_is_a_failure_of_soft_writes_too(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    (warehouse / "t").rmdir()
    warehouse.rmdir()
    location = f"file://{warehouse}/t/a"
    calls: list[Callable[[], None]] = [
        lambda: files.write_soft(location, [b"x"]),
        lambda: files.sync([location]),
        lambda: files.sync([location] * MANY),
        lambda: files.restore(location, b"x"),
    ]
    for call in calls:
        with pytest.raises(StorageFailed, match="root folder is gone"):
            call()


def test_many_files_are_synced_with_their_disk_and_few_by_themselves(warehouse: Path) -> None:
    disk = Disk()
    files = LocalFiles([warehouse], disks=disk.disks())
    (warehouse / "u").mkdir()
    files.sync(written(files, warehouse, FEW))
    assert disk.syncs == 0
    files.sync([*written(files, warehouse, MANY), *written(files, warehouse, MANY, folder="u")])
    assert disk.syncs == 1


def test_a_disk_whose_word_does_not_count_is_not_asked(warehouse: Path) -> None:
    disk = Disk(kind="fuse.some")
    files = LocalFiles([warehouse], disks=disk.disks())
    files.sync(written(files, warehouse, MANY))
    assert disk.syncs == 0


def test_after_one_failed_sync_of_a_disk_its_word_counts_no_more(warehouse: Path) -> None:
    disk = Disk()
    files = LocalFiles([warehouse], disks=disk.disks())
    disk.is_broken = True
    with pytest.raises(StorageFailed, match="EIO"):
        files.sync(written(files, warehouse, MANY))
    disk.is_broken = False
    files.sync(written(files, warehouse, MANY))
    assert disk.syncs == 1


def test_a_disk_is_trusted_only_for_what_was_written_after_it_was_held(warehouse: Path) -> None:
    disk = Disk()
    locations = written(LocalFiles([warehouse]), warehouse, MANY)
    LocalFiles([warehouse], disks=disk.disks()).sync(locations)
    assert disk.syncs == 0


def test_the_type_of_a_disk_is_what_the_kernel_lists() -> None:
    assert find_type(os.stat("/proc").st_dev) == "proc"
    assert find_type(os.makedev(4095, 4095)) is None


def test_the_real_sync_of_a_disk_is_called_with_its_folder(warehouse: Path) -> None:
    disks = Disks(find_type=lambda device: "ext4")
    device = os.stat(warehouse).st_dev
    assert not disks.sync(device)
    disks.hold(str(warehouse))
    assert disks.sync(device)


def test_an_error_of_the_real_sync_is_raised() -> None:
    syncfs = find_syncfs()
    assert syncfs is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        syncfs(-1)
