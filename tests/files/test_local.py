"""What only a local disk can get wrong: symlinks, torn writes, special files, full or read-only disks."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.errors import AlreadyExists, HeadgateError, LocationRefused, NotFound, StorageFailed
from headgate.files.local import TEMPORARY_PREFIX, LocalFiles, make_root
from headgate.files.open import open_files


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder beside the warehouse with a file that nobody may reach."""
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "key").write_text("secret")
    return folder


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    (folder / "t").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("link", "target", "location"),
    [
        ("t/out", "../../secret", "t/out/key"),
        ("t/out", "{secret}", "t/out/key"),
        ("t/up", "..", "t/up/warehouse/t/x"),
        ("t/root", "/", "t/root/etc/passwd"),
        ("t/key", "{secret}/key", "t/key"),
        ("t/key", "../../secret/key", "t/key"),
        ("t/inside", "../t", "t/inside/key"),
        ("t/self", "self", "t/self/key"),
        ("t/proc", "/proc/self/root", "t/proc/etc/passwd"),
    ],
)
def test_a_symlink_below_the_root_is_never_followed(
    warehouse: Path, secret: Path, link: str, target: str, location: str
) -> None:
    os.symlink(target.format(secret=secret), warehouse / link)
    files = LocalFiles([warehouse])
    before = sorted(os.listdir(secret))
    with pytest.raises(LocationRefused):
        files.read(f"file://{warehouse}/{location}", limit_bytes=10_000)
    with pytest.raises((LocationRefused, AlreadyExists)):
        files.write_new(f"file://{warehouse}/{location}", [b"planted"])
    with pytest.raises(LocationRefused):
        files.write_new(f"file://{warehouse}/{link}/new/file", [b"planted"])
    assert list(files.list(f"file://{warehouse}")) == []
    assert sorted(os.listdir(secret)) == before
    assert (secret / "key").read_text() == "secret"


def test_deleting_through_or_at_a_symlink_never_touches_its_target(warehouse: Path, secret: Path) -> None:
    os.symlink(secret, warehouse / "t" / "out")
    os.symlink(secret / "key", warehouse / "t" / "key")
    files = LocalFiles([warehouse])
    with pytest.raises(LocationRefused):
        files.delete([f"file://{warehouse}/t/out/key"])
    files.delete([f"file://{warehouse}/t/key"])
    assert not (warehouse / "t" / "key").is_symlink()
    assert (secret / "key").read_text() == "secret"


def test_a_folder_swapped_for_a_symlink_after_use_is_not_followed(warehouse: Path, secret: Path) -> None:
    files = LocalFiles([warehouse])
    files.write_new(f"file://{warehouse}/t/a/1", [b"x"])
    os.rename(warehouse / "t" / "a", warehouse / "t" / "moved")
    os.symlink(secret, warehouse / "t" / "a")
    with pytest.raises(LocationRefused):
        files.write_new(f"file://{warehouse}/t/a/2", [b"x"])
    assert sorted(os.listdir(secret)) == ["key"]


def test_symlinks_swapped_in_while_writers_run_catch_no_file(warehouse: Path, secret: Path) -> None:
    files = LocalFiles([warehouse])
    stop = threading.Event()

    spot, away = warehouse / "t" / "a", warehouse / "t" / "away"

    def swap() -> None:
        while not stop.is_set():
            with suppress(OSError):  # a writer was faster
                os.rename(spot, away)
                os.symlink(secret, spot)
            with suppress(OSError):
                os.unlink(spot)
            shutil.rmtree(away, ignore_errors=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(200):
            try:
                files.write_new(f"file://{warehouse}/t/a/{number}", [b"x"])
            except (LocationRefused, StorageFailed, AlreadyExists):
                continue
    finally:
        stop.set()
        thread.join()
    assert sorted(os.listdir(secret)) == ["key"]


def test_a_root_may_itself_be_reached_by_a_symlink(warehouse: Path, tmp_path: Path) -> None:
    os.symlink(warehouse, tmp_path / "alias")
    files, root = open_files(str(tmp_path / "alias"))
    files.write_new(f"{root}/t/a", [b"x"])
    assert [info.location for info in files.list(root)] == [f"{root}/t/a"]
    assert (warehouse / "t" / "a").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["../x", "t/../../x", "t/./x", "t//x", "t/", "t/x\0", "", "..", "."])
def test_a_location_that_is_not_canonical_is_refused(warehouse: Path, name: str) -> None:
    with pytest.raises(LocationRefused):
        LocalFiles([warehouse]).write_new(f"file://{warehouse}/{name}", [b"x"])


def test_special_files_and_folders_are_not_objects(warehouse: Path) -> None:
    os.mkfifo(warehouse / "t" / "pipe")
    files = LocalFiles([warehouse])
    for name in ("t/pipe", "t"):
        with pytest.raises(LocationRefused):
            files.read(f"file://{warehouse}/{name}", limit_bytes=10)
        assert not files.exists(f"file://{warehouse}/{name}")
        with pytest.raises(AlreadyExists):
            files.write_new(f"file://{warehouse}/{name}", [b"x"])
    assert files.delete([f"file://{warehouse}/t"]) == 0
    assert (warehouse / "t").is_dir()
    assert list(files.list(f"file://{warehouse}")) == []


def test_a_file_where_a_folder_must_be_is_a_refusal(warehouse: Path) -> None:
    (warehouse / "t" / "file").write_bytes(b"x")
    with pytest.raises(LocationRefused):
        LocalFiles([warehouse]).write_new(f"file://{warehouse}/t/file/x", [b"x"])


def test_a_root_that_went_away_is_a_failure_and_not_a_missing_file(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    shutil.rmtree(warehouse)
    with pytest.raises(StorageFailed):
        files.exists(f"file://{warehouse}/t/a")
    with pytest.raises(StorageFailed):
        files.write_new(f"file://{warehouse}/t/a", [b"x"])
    with pytest.raises(StorageFailed):
        list(files.list(f"file://{warehouse}"))


def test_a_folder_that_was_removed_is_made_again(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    for _ in range(3):
        files.write_new(f"file://{warehouse}/t/deep/er/a", [b"x"])
        shutil.rmtree(warehouse / "t")


def test_a_disk_that_takes_no_more_is_a_storage_failure_that_names_the_location(warehouse: Path) -> None:
    files = LocalFiles([warehouse])
    location = f"file://{warehouse}/t/big"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StorageFailed, match="t/big") as failed:
            files.write_new(location, [b"x" * 100_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.evidence["location"] == location
    assert list(files.list(f"file://{warehouse}")) == []


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a folder where not even root may write")
def test_a_root_that_cannot_be_written_fails_the_check() -> None:
    with pytest.raises(StorageFailed, match="/sys/kernel"):
        LocalFiles(["/sys/kernel"]).check()


def test_a_root_that_cannot_be_made_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HeadgateError):
        make_root(str(tmp_path / "file" / "warehouse"))


def test_names_that_are_not_utf8_are_not_listed(warehouse: Path) -> None:
    (warehouse / "t" / os.fsdecode(b"bad\xff")).write_bytes(b"x")
    (warehouse / "t" / "good").write_bytes(b"x")
    found = [info.location for info in LocalFiles([warehouse]).list(f"file://{warehouse}")]
    assert found == [f"file://{warehouse}/t/good"]


WRITER = """
import sys
from headgate.files.local import LocalFiles

def parts(blocked):
    for number in range(64):
        yield bytes([65 + number % 26]) * 4096
        if blocked and number == 32:
            print("half", flush=True)
            sys.stdin.read()

files = LocalFiles([sys.argv[1]])
if sys.argv[2] == "half":
    files.write_new(f"file://{sys.argv[1]}/t/half", parts(True))
for number in range(100_000):
    files.write_new(f"file://{sys.argv[1]}/t/{number}", parts(False))
    print(number, flush=True)
"""
WHOLE = b"".join(bytes([65 + number % 26]) * 4096 for number in range(64))


def start_writer(warehouse: Path, mode: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(warehouse), mode]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes]) -> bytes:
    process.send_signal(signal.SIGKILL)
    printed, _ = process.communicate(timeout=30)
    return printed


def test_a_kill_in_the_middle_of_a_body_leaves_no_final_file(warehouse: Path) -> None:
    process = start_writer(warehouse, "half")
    assert process.stdout is not None
    assert process.stdout.readline() == b"half\n"
    kill(process)
    files = LocalFiles([warehouse])
    with pytest.raises(NotFound):
        files.read(f"file://{warehouse}/t/half", limit_bytes=1_000_000)
    left = [info.location for info in files.list(f"file://{warehouse}")]
    assert all(TEMPORARY_PREFIX in location for location in left)
    files.write_new(f"file://{warehouse}/t/half", [WHOLE])
    files.delete(left)
    assert [info.location for info in files.list(f"file://{warehouse}")] == [f"file://{warehouse}/t/half"]


@pytest.mark.parametrize("acknowledged", range(1, 9))
def test_a_kill_at_any_moment_leaves_whole_files_and_keeps_the_acknowledged(
    warehouse: Path, acknowledged: int
) -> None:
    process = start_writer(warehouse, "many")
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(acknowledged)]
    said += kill(process).splitlines(keepends=True)
    files = LocalFiles([warehouse])
    for line in said:
        if line.endswith(b"\n"):
            assert files.read(f"file://{warehouse}/t/{int(line)}", limit_bytes=len(WHOLE)) == WHOLE
    for location in finals(files, warehouse):
        assert files.read(location, limit_bytes=len(WHOLE)) == WHOLE


def finals(files: LocalFiles, warehouse: Path) -> Iterator[str]:
    for info in files.list(f"file://{warehouse}"):
        if TEMPORARY_PREFIX not in info.location:
            yield info.location
