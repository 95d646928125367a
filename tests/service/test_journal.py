"""The journal of new files: what is settled, what is restored after a crash, and what cannot be."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.core.locations import LocationPolicy
from headgate.errors import HeadgateError, StorageFailed
from headgate.files.allowed import AllowedFiles
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.service.journal import ABANDONED_AFTER_MS, ROW_BYTES_MAX, Journal, Recovered, Tail
from headgate.service.services import Services, build_services
from headgate.service.settings import Settings
from headgate.store.base import Store
from headgate.store.memory import MemoryStore
from headgate.store.sqlite import SqliteStore
from tests.service.app_client import Clock
from tests.store.builders import namespace, swap, table

WAIT_S = 30
BODY = bytes(range(256)) * 16


class Disk:
    """`Files` whose syncs are noted, and fail or refuse to restore while told so."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.synced: list[str] = []
        self.sync_fails = False
        self.unrestorable: str | None = None
        self.restored: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def sync(self, locations: Iterable[str]) -> None:
        """See `Files`."""
        if self.sync_fails:
            raise StorageFailed("the disk refused")
        locations = list(locations)
        self._files.sync(locations)
        self.synced.extend(locations)

    def restore(self, location: str, data: bytes) -> None:
        """See `Files`."""
        if self.unrestorable is not None and self.unrestorable in location:
            raise StorageFailed("the disk refused")
        self._files.restore(location, data)
        self.restored.append(location)


class Database(MemoryStore):
    """A store in memory that tells when rows were dropped, and can refuse to."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = threading.Semaphore(0)
        self.drop_fails = False

    def drop_files(self, locations: Sequence[str]) -> None:
        """See `Store`."""
        if self.drop_fails:
            raise StorageFailed("the database is away")
        super().drop_files(locations)
        self.dropped.release()


class World:
    """A journal over a warehouse on a disk and a store in memory. Nothing runs in the background unless started."""

    def __init__(self, tmp_path: Path, **options: Any) -> None:
        opened, self.root = open_files(str(tmp_path / "warehouse"))
        self.folder = tmp_path / "warehouse"
        self.disk = Disk(opened)
        given: Any = self.disk
        self.files = AllowedFiles(given, LocationPolicy((self.root,)))
        self.store, self.clock = Database(), Clock()
        self.journal = Journal(self.files, self.store, self.clock, **options)

    def landed(self, *names: str, data: bytes = BODY) -> list[str]:
        """Files written softly, whose rows are in a transaction that landed."""
        locations = [f"{self.root}/{name}" for name in names]
        self.files.write_soft_many([(location, [data]) for location in locations])
        self.store.write([self.journal.entry(location, data) for location in locations])
        return locations

    def rows(self) -> list[str]:
        """The locations that have rows."""
        return sorted(
            row.location for row in self.store.read_journal(before_ms=self.clock() + 10**9, limit=10**6)
        )

    def path(self, name: str) -> Path:
        """Where a file is on the disk."""
        return self.folder / name


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- settling -------------------------------------------------------------------------------------------


def test_a_landed_file_is_synced_before_its_row_is_dropped(world: World) -> None:
    locations = world.landed("t/a", "t/b")
    world.disk.sync_fails = True
    world.journal.settle(locations[:1])
    world.journal.close()
    assert world.rows() == locations
    world.disk.sync_fails = False
    world.journal.settle(locations[1:])
    world.journal.close()
    assert world.disk.synced == locations[1:]
    assert world.rows() == locations[:1]


def test_the_background_settles_without_being_asked_again(world: World) -> None:
    world.journal.start()
    try:
        for name in ("t/a", "t/b"):
            world.journal.settle(world.landed(name))
            assert world.store.dropped.acquire(timeout=WAIT_S)
            assert world.rows() == []
    finally:
        world.journal.close()
    assert world.journal.depth == 0


def test_closing_settles_all_that_is_queued_and_may_be_done_twice(tmp_path: Path) -> None:
    world = World(tmp_path, interval_s=3600)  # the background waits for company that does not come
    world.journal.start()
    locations = world.landed(*(f"t/{number}" for number in range(600)))
    world.journal.settle(locations)
    world.journal.close()
    world.journal.close()
    assert sorted(world.disk.synced) == sorted(locations)
    assert world.rows() == []


def test_a_full_batch_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    world = World(tmp_path, interval_s=3600)
    world.journal.start()
    try:
        world.journal.settle([f"{world.root}/gone/{number}" for number in range(1024)])
        assert world.store.dropped.acquire(timeout=WAIT_S)
    finally:
        world.journal.close()


def test_enough_files_do_not_wait_for_the_interval_and_one_less_does(tmp_path: Path) -> None:
    world = World(tmp_path, interval_s=3600)
    world.journal.start()
    try:
        world.journal.settle([f"{world.root}/gone/{number}" for number in range(383)])
        assert not world.store.dropped.acquire(timeout=0.3)
        world.journal.settle([f"{world.root}/gone/last"])
        assert world.store.dropped.acquire(timeout=WAIT_S)
    finally:
        world.journal.close()


def test_a_file_that_was_deleted_meanwhile_is_settled_like_any_other(world: World) -> None:
    locations = world.landed("t/a", "t/b")
    world.files.delete(locations[:1])
    world.journal.settle(locations)
    world.journal.close()
    assert world.rows() == []
    assert not world.files.exists(locations[0])


def test_rows_that_could_not_be_dropped_stay_and_nothing_is_raised(world: World) -> None:
    locations = world.landed("t/a")
    world.store.drop_fails = True
    world.journal.settle(locations)
    world.journal.close()
    assert world.rows() == locations


def test_a_symlink_in_the_way_of_one_folder_holds_up_no_other(world: World, tmp_path: Path) -> None:
    locations = world.landed("t/a", "u/b", "v/c")
    os.rename(world.path("u"), tmp_path / "moved")
    os.symlink(tmp_path / "moved", world.path("u"))
    world.journal.settle(locations)
    world.journal.close()
    assert world.rows() == [locations[1]]
    assert world.journal.takes(1)


def test_what_does_not_fit_in_the_queue_keeps_its_rows(tmp_path: Path) -> None:
    world = World(tmp_path, queue_max=2)
    locations = world.landed("t/a", "t/b", "t/c")
    world.journal.settle(locations)
    assert world.journal.depth == 2
    world.journal.close()
    assert world.rows() == locations[2:]
    assert world.journal.recover() == Recovered(restored=1, kept=0)


# --- what is written softly -----------------------------------------------------------------------------


def test_small_files_are_taken_while_the_disk_keeps_up(tmp_path: Path) -> None:
    world = World(tmp_path, queue_max=4)
    assert world.journal.takes(ROW_BYTES_MAX)
    assert not world.journal.takes(ROW_BYTES_MAX + 1)
    world.journal.settle(world.landed("t/a", "t/b"))
    assert not world.journal.takes(1)
    world.journal.close()
    assert world.journal.takes(1)


def test_after_a_failed_sync_nothing_is_taken_until_recovery_succeeds(world: World) -> None:
    locations = world.landed("t/a")
    world.disk.sync_fails = True
    world.journal.settle(locations)
    world.journal.close()
    assert not world.journal.takes(1)
    world.disk.unrestorable = "t/a"
    world.journal.recover()
    assert not world.journal.takes(1)
    world.disk.unrestorable = None
    world.journal.recover()
    assert world.journal.takes(1)


def test_durable_files_are_not_journalled(tmp_path: Path) -> None:
    class Objects(Disk):
        is_soft = False

    files, _ = open_files(str(tmp_path))
    given: Any = Objects(files)
    assert not Journal(given, MemoryStore(), Clock()).takes(1)


# --- recovery -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [None, b"", BODY[:1000], b"\0" * len(BODY), BODY + b"extra", BODY], ids=repr)
def test_whatever_a_power_cut_left_the_file_is_back_and_its_row_gone(
    world: World, left: bytes | None
) -> None:
    world.landed("t/a")
    world.path("t/a").unlink()
    if left is not None:
        world.path("t/a").write_bytes(left)
    assert world.journal.recover() == Recovered(restored=1, kept=0)
    assert world.path("t/a").read_bytes() == BODY
    assert world.rows() == []
    assert world.journal.recover() == Recovered(restored=0, kept=0)


def test_a_file_whose_sync_failed_is_written_anew(world: World) -> None:
    locations = world.landed("t/a")
    world.disk.sync_fails = True
    world.journal.settle(locations)
    world.journal.close()
    world.journal.recover()
    assert world.disk.restored == locations
    assert world.rows() == []


def test_recovery_takes_as_many_pages_as_there_are(world: World) -> None:
    locations = world.landed(*(f"t/{number:03}" for number in range(200)))
    shutil.rmtree(world.path("t"))
    assert world.journal.recover() == Recovered(restored=200, kept=0)
    assert sorted(info.location for info in world.files.list(f"{world.root}/t")) == locations


def test_a_round_leaves_the_rows_of_the_living_alone(world: World) -> None:
    old = world.landed("t/old")
    world.clock.pass_s(ABANDONED_AFTER_MS / 1000 + 1)
    young = world.landed("t/young")
    assert world.journal.recover(before_ms=world.clock() - ABANDONED_AFTER_MS).restored == 1
    assert world.disk.restored == old
    assert world.rows() == young


def test_rows_from_a_clock_that_was_ahead_are_recovered_at_start(world: World) -> None:
    locations = world.landed("t/a")
    world.clock.pass_s(-3600)
    world.path("t/a").unlink()
    assert world.journal.recover().restored == 1
    assert world.files.exists(locations[0])


def test_recovery_ends_though_a_living_replica_goes_on_putting_rows(tmp_path: Path) -> None:
    world = World(tmp_path)
    count = 0

    def put(some: int) -> None:
        nonlocal count
        world.landed(*(f"t/{count + number}" for number in range(some)), data=b"x")
        count += some

    class Busy(Disk):
        def restore(self, location: str, data: bytes) -> None:
            put(1)
            self.restored.append(location)

    given: Any = Busy(world.files)
    put(10)
    Journal(given, world.store, world.clock).recover()
    assert 10 < count < 5000
    assert len(world.rows()) == 10


def test_a_folder_that_is_gone_is_made_again(world: World) -> None:
    world.landed("t/metadata/a")
    shutil.rmtree(world.path("t"))
    assert world.journal.recover() == Recovered(restored=1, kept=0)
    assert world.path("t/metadata/a").read_bytes() == BODY


def test_what_cannot_be_restored_is_kept_said_once_and_holds_up_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bad = world.landed(*(f"bad/{number:03}" for number in range(150)))
    good = world.landed(*(f"good/{number:03}" for number in range(150)))
    world.disk.unrestorable = "/bad/"
    with caplog.at_level(logging.ERROR, logger="headgate"):
        assert world.journal.recover() == Recovered(restored=150, kept=150)
    assert world.rows() == bad
    assert world.disk.restored == good
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "files of the journal could not be restored; their bytes are kept, will try again"
    ]
    world.disk.unrestorable = None
    assert world.journal.recover() == Recovered(restored=150, kept=0)


def test_a_location_that_is_no_longer_allowed_is_kept_and_not_touched(world: World, tmp_path: Path) -> None:
    outside = f"file://{tmp_path}/elsewhere/a"
    world.store.write([world.journal.entry(outside, BODY)])
    world.landed("t/a")
    assert world.journal.recover() == Recovered(restored=1, kept=1)
    assert not (tmp_path / "elsewhere").exists()
    assert world.rows() == [outside]


def test_a_forgotten_file_does_not_come_back(world: World) -> None:
    locations = world.landed("t/a", "t/b")
    world.journal.forget(locations[:1])
    world.files.delete(locations[:1])
    world.journal.recover()
    assert not world.files.exists(locations[0])
    assert world.files.exists(locations[1])


def test_two_that_recover_at_once_leave_every_file_whole(world: World) -> None:
    locations = world.landed(*(f"t/{number}" for number in range(100)))
    shutil.rmtree(world.path("t"))
    failed: list[HeadgateError] = []
    start = threading.Barrier(2)

    def recover() -> None:
        start.wait()
        try:
            Journal(world.files, world.store, world.clock).recover()
        except HeadgateError as error:
            failed.append(error)

    threads = [threading.Thread(target=recover) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {world.files.read(location, limit_bytes=len(BODY)) for location in locations} == {BODY}
    assert len(list(world.files.list(f"{world.root}/t"))) == 100


# --- the service ----------------------------------------------------------------------------------------


def open_service(tmp_path: Path, store: Store) -> Services:
    """A service as it starts, over a warehouse that may have been used before."""
    settings = Settings(warehouse=str(tmp_path / "warehouse"))
    files, _ = open_files(settings.warehouse_location)
    services = build_services(settings, store=store, files=files)
    services.housekeeper.start()
    return services


def test_after_a_power_cut_the_files_of_a_landed_swap_are_back_byte_for_byte(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    settings = Settings(warehouse=str(tmp_path / "warehouse"))
    opened, _ = open_files(settings.warehouse_location)
    before = build_services(settings, store=store, files=opened)
    root = settings.warehouse_location
    bodies = {f"{root}/db/t/metadata/{name}.avro": name.encode() * 500 for name in ("m0", "m1", "snap")}
    store.write((namespace("db"), table(location=f"{root}/db/t")))
    header = store.load_header(("db",), "t")
    assert header is not None
    before.files.write_soft_many([(location, [body]) for location, body in bodies.items()])
    journalled = [before.journal.entry(location, body) for location, body in bodies.items()]
    assert store.write((swap(header, checkpointed=True), *journalled)) is None
    before.journal.settle(list(bodies))  # and the power goes before the background comes to it

    torn, lost, whole = (Path(location.removeprefix("file://")) for location in bodies)
    torn.write_bytes(torn.read_bytes()[:7])
    lost.unlink()
    after = open_service(tmp_path, SqliteStore(tmp_path / "catalog.db"))
    try:
        for location, body in bodies.items():
            assert after.files.read(location, limit_bytes=10_000) == body
        assert whole.is_file()
        assert after.store.read_journal(before_ms=2**62, limit=10) == []
        again = after.store.load_header(("db",), "t")
        assert again is not None
        assert again.version == header.version + 1
    finally:
        after.close()
        before.close()


MARKER = b"sixteen bytes..."


def chained(world: World, count: int) -> dict[str, bytes]:
    """Files that each end as the one before them does, written softly; all but the first have their front in a row."""
    bodies = {f"{world.root}/t/0": b"head000" + MARKER + b"old" * 50 + MARKER}
    for number in range(1, count):
        tail = next(reversed(bodies.values()))[len(b"head000" + MARKER) :]
        bodies[f"{world.root}/t/{number}"] = (
            b"head%03d" % number + MARKER + b"new%03d" % number + MARKER + tail
        )
    world.files.write_soft_many([(location, [body]) for location, body in bodies.items()])
    base = None
    for location, body in bodies.items():
        tail_of = None if base is None else Tail(base, len(bodies[base]) - len(b"head000" + MARKER))
        world.store.write([world.journal.entry(location, body, tail_of)])
        base = location
    return bodies


def test_files_that_end_as_others_do_are_restored_from_their_fronts(world: World) -> None:
    bodies = chained(world, 100)
    for number in range(100):
        world.path(f"t/{number}").write_bytes(b"torn")
    assert world.journal.recover() == Recovered(100, 0)
    assert {location: world.files.read(location, limit_bytes=10_000) for location in bodies} == bodies
    assert world.rows() == []


def test_the_row_of_a_file_that_ends_as_another_does_holds_its_front_only(world: World) -> None:
    chained(world, 3)
    rows = world.store.read_journal(before_ms=10**18, limit=10)
    assert [len(row.data) for row in rows[1:]] == [45, 45]
    assert [row.base for row in rows] == [None, rows[0].location, rows[1].location]


def test_a_file_is_not_built_on_one_that_could_not_be_restored(world: World) -> None:
    bodies = chained(world, 3)
    world.files.delete(list(bodies))
    world.path("t/0").mkdir()  # nothing can be renamed over a folder
    assert world.journal.recover() == Recovered(0, 3)
    assert not world.path("t/1").exists()
    world.path("t/0").rmdir()
    assert world.journal.recover() == Recovered(3, 0)
    assert world.files.read(f"{world.root}/t/2", limit_bytes=10_000) == bodies[f"{world.root}/t/2"]


def test_a_base_that_does_not_end_as_the_row_needs_is_not_built_on(world: World) -> None:
    bodies = chained(world, 2)
    first, second = bodies
    world.store.drop_files([first])
    world.path("t/0").write_bytes(b"something else that is long enough to be cut" * 10)
    world.path("t/1").unlink()
    assert world.journal.recover() == Recovered(0, 1)
    assert world.rows() == [second]


def test_a_service_that_stops_has_settled_everything(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    services = open_service(tmp_path, store)
    location = f"{services.settings.warehouse_location}/db/t/metadata/a"
    services.files.write_soft(location, [BODY])
    store.write((services.journal.entry(location, BODY),))
    services.journal.settle([location])
    services.close()
    reopened = SqliteStore(tmp_path / "catalog.db")
    assert reopened.read_journal(before_ms=2**62, limit=10) == []
    reopened.close()


def test_a_service_starts_though_a_row_can_never_be_restored(tmp_path: Path) -> None:
    store = MemoryStore()
    outside = Journal(open_files(str(tmp_path))[0], store, Clock()).entry("file:///elsewhere/a", BODY)
    store.write((outside,))
    services = open_service(tmp_path, store)
    try:
        assert [row.location for row in store.read_journal(before_ms=2**62, limit=10)] == [
            "file:///elsewhere/a"
        ]
    finally:
        services.close()
