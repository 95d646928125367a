"""Files that are written after their swap: nobody misses them, and none is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from headgate.errors import LocationRefused, StorageFailed
from headgate.files.local import LocalFiles
from headgate.service.late_files import LateFiles
from headgate.store.memory import MemoryStore
from headgate.store.postgres import PostgresStore
from headgate.store.sqlite import SqliteStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, data_file, live_paths, transact
from tests.service.change_calls import table_change as of_table
from tests.service.table_calls import KEY, committed, created, error_of, load, local, make_namespace, path

MINIMAL = {"Prefer": "return=minimal"}
EVER_MS = 1 << 62


def open_database(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "catalog.db")


def leave_room(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    """Have all disks tell of so much room."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_bytes >> 12, f_frsize=1 << 12))


@pytest.fixture(autouse=True)
def has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 1 << 30)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    """A service on SQLite and a disk, with nothing in the background."""
    with app_client(tmp_path, store=open_database(tmp_path)) as made:
        made.services.journal.claim()
        make_namespace(made)
        created(made)
        yield made


def append(
    client: AppClient, file: str, *, name: str = "t", headers: dict[str, str] = MINIMAL
) -> httpx.Response:
    update = change("append", add_data_files=[data_file(f"{place(client, name)}/data/{file}")])
    return client.post(path(name), {"requirements": [], "updates": [update]}, headers=headers)


def place(client: AppClient, name: str) -> str:
    """Where a table is, without a load of it."""
    (head,) = client.services.heads.load(((("a",), name),))
    assert head is not None
    return head.metadata.envelope.location


def avro_files(tmp_path: Path) -> list[Path]:
    """Manifests and lists on the disk."""
    return sorted((tmp_path / "warehouse").rglob("*.avro"))


def rows(client: AppClient) -> list[str]:
    return [row.location for row in client.services.store.read_journal(before_ms=EVER_MS, limit=1000)]


def fail(*_: object, **__: object) -> Any:
    raise StorageFailed("no space left on the device")


def break_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalFiles, "write_soft", fail)
    monkeypatch.setattr(LocalFiles, "write_soft_many", fail)


# --- nobody misses them ----------------------------------------------------------------------------------


def test_a_commit_is_answered_before_its_files_are_written_and_a_load_finds_them(
    client: AppClient, tmp_path: Path
) -> None:
    assert append(client, "one").status_code == 200
    assert avro_files(tmp_path) == []
    assert len(rows(client)) == 2
    assert live_paths(client, "t") == ["one"]
    assert len(avro_files(tmp_path)) == 2


def test_commits_are_judged_against_files_that_are_late(client: AppClient, tmp_path: Path) -> None:
    assert append(client, "one").status_code == 200
    client.services.manifests._lists.clear()  # as if memory had been needed for others
    assert append(client, "two").status_code == 200
    assert append(client, "one").status_code in (400, 409)
    assert avro_files(tmp_path) == []
    assert live_paths(client, "t") == ["one", "two"]


def test_an_answer_with_the_whole_table_has_all_files_written(client: AppClient, tmp_path: Path) -> None:
    assert append(client, "one").status_code == 200
    whole = append(client, "two", headers={}).json()
    lists = [snapshot["manifest-list"].rpartition("/")[2] for snapshot in whole["metadata"]["snapshots"]]
    assert len(lists) == 2
    assert set(lists) <= {file.name for file in avro_files(tmp_path)}


def test_a_metadata_file_is_written_after_the_files_it_refers_to(client: AppClient, tmp_path: Path) -> None:
    assert append(client, "one").status_code == 200
    (head,) = client.services.heads.load(((("a",), "t"),))
    assert head is not None
    client.services.housekeeper.checkpoint(head)
    assert len(avro_files(tmp_path)) == 2


def test_a_plain_commit_has_the_files_of_those_before_it_written(client: AppClient, tmp_path: Path) -> None:
    assert append(client, "one").status_code == 200
    committed(client, {"action": "set-properties", "updates": {"x": "y"}})
    assert len(avro_files(tmp_path)) == 2


def test_the_files_of_a_transaction_are_late_too(client: AppClient, tmp_path: Path) -> None:
    created(client, "u")
    changes = [
        of_table(name, change("append", add_data_files=[data_file(f"{place(client, name)}/data/x")]))
        for name in ("t", "u")
    ]
    assert transact(client, *changes).status_code == 204
    assert avro_files(tmp_path) == []
    assert live_paths(client, "t") == live_paths(client, "u") == ["x"]


def test_the_feed_names_no_list_that_is_missing(client: AppClient, tmp_path: Path) -> None:
    assert append(client, "one").status_code == 200
    assert "manifest-list" in client.get(f"{path()}/events").text
    assert len(avro_files(tmp_path)) == 2


def test_a_repeat_that_is_answered_with_the_table_has_its_files_written(
    client: AppClient, tmp_path: Path
) -> None:
    update = change("append", add_data_files=[data_file(f"{place(client, 't')}/data/one")])
    body = {"requirements": [], "updates": [update]}
    key = {"Idempotency-Key": KEY}
    assert client.post(path(), body, headers={**MINIMAL, **key}).status_code == 200
    assert avro_files(tmp_path) == []
    assert client.post(path(), body, headers=key).status_code == 200
    assert len(avro_files(tmp_path)) == 2


def test_beside_many_writers_no_load_names_a_list_that_is_missing(client: AppClient) -> None:
    client.services.journal.start()
    missing: list[str] = []

    def look() -> None:
        for snapshot in load(client)["metadata"].get("snapshots", []):
            if not local(snapshot["manifest-list"]).stat().st_size:
                missing.append(snapshot["manifest-list"])

    with ThreadPoolExecutor(6) as pool:
        writing = [pool.submit(append, client, f"file-{number}") for number in range(120)]
        looking = [pool.submit(look) for _ in range(60)]
        assert {one.result().status_code for one in writing} == {200}
        for one in looking:
            one.result()  # a list that is not there raises
    assert missing == []
    assert len(live_paths(client, "t")) == 120


# --- they are written ------------------------------------------------------------------------------------


def test_the_thread_of_the_journal_writes_them_and_drops_their_rows(
    client: AppClient, tmp_path: Path
) -> None:
    for number in range(70):  # more than are created together
        assert append(client, f"file-{number}").status_code == 200
    client.services.journal.start()
    client.services.journal.close()
    found = len(avro_files(tmp_path))
    assert rows(client) == []
    assert len(live_paths(client, "t")) == 70
    assert len(avro_files(tmp_path)) == found >= 140


def test_what_a_service_left_when_it_died_is_there_when_it_comes_back(tmp_path: Path) -> None:
    store = open_database(tmp_path)
    with app_client(tmp_path, store=store) as client:
        client.services.journal.claim()
        make_namespace(client)
        created(client)
        assert append(client, "one").status_code == 200
        store._claim.end()  # the process is gone, and its memory with it
        with app_client(tmp_path, store=open_database(tmp_path)) as next_one:
            next_one.services.journal.recover()
            assert rows(next_one) == []
            assert live_paths(next_one, "t") == ["one"]
            client.services.journal.late._waiting.clear()


def test_a_file_that_cannot_be_written_is_told_to_nobody_and_kept(
    client: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(client, "other")
    load(client, "other")
    monkeypatch.setattr("headgate.service.late_files._RETRY_S", 60.0)
    assert append(client, "one").status_code == 200
    with monkeypatch.context() as patch:
        break_disk(patch)
        refused = client.get(path())
        assert (refused.status_code, error_of(refused)["headgate"]["code"]) == (503, "storage-failed")
        assert "its bytes are kept" in error_of(refused)["message"]
        assert client.get(path("other")).status_code == 200
        client.services.journal.close()
        assert len(rows(client)) == 2  # nothing was synced, so nothing is dropped
        # Nothing is late any more: who cannot write is refused.
        patch.setattr(LocalFiles, "write_new", LocalFiles.write_soft)
        assert append(client, "two", name="other").status_code == 503
    assert client.get(path()).status_code == 503  # it is not tried again at once
    client.services.journal.late._retry_at = 0.0
    assert live_paths(client, "t") == ["one"]
    client.services.journal.recover()
    assert rows(client) == []
    assert append(client, "two").status_code == 200
    assert live_paths(client, "t") == ["one", "two"]


def test_where_a_disk_has_little_room_a_commit_writes_its_files_first(
    client: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_room(monkeypatch, (1 << 30) - 4096)
    assert append(client, "one").status_code == 200
    assert len(avro_files(tmp_path)) == 2
    with monkeypatch.context() as patch:
        break_disk(patch)
        assert append(client, "two").status_code == 503
    assert live_paths(client, "t") == ["one"]


def test_a_purge_leaves_no_file_that_was_late(client: AppClient, tmp_path: Path) -> None:
    assert append(client, "one").status_code == 200
    assert client.delete(path(), params={"purgeRequested": "true"}).status_code == 204
    client.services.background.shutdown(wait=True)
    client.services.journal.close()
    assert avro_files(tmp_path) == []


# --- others on the same database -------------------------------------------------------------------------


def test_a_second_service_writes_the_late_files_of_the_first_before_it_tells_of_them(
    client: AppClient, tmp_path: Path
) -> None:
    assert append(client, "one").status_code == 200
    with app_client(tmp_path, store=open_database(tmp_path)) as second:
        assert avro_files(tmp_path) == []
        assert live_paths(second, "t") == ["one"]
        assert append(second, "two").status_code == 200
        assert len(avro_files(tmp_path)) == 4  # the second is not late
    client.services.journal.close()  # finds its own files written
    assert rows(client) == []
    assert live_paths(client, "t") == ["one", "two"]


def test_a_second_service_judges_by_late_files_of_the_first(client: AppClient, tmp_path: Path) -> None:
    with app_client(tmp_path, store=open_database(tmp_path)) as second:
        assert append(client, "one").status_code == 200
        assert append(second, "one").status_code in (400, 409)
        assert append(second, "two").status_code == 200
        assert live_paths(second, "t") == ["one", "two"]


def test_of_two_processes_one_may_be_late_and_after_it_the_other(tmp_path: Path) -> None:
    first, second = open_database(tmp_path), open_database(tmp_path)
    assert first.claim() is True
    assert second.claim() is False
    assert first.claim() is True
    first.close()
    assert second.claim() is True
    assert first.claim() is False
    second.close()


def test_where_the_lock_cannot_be_made_nobody_is_late(tmp_path: Path) -> None:
    (tmp_path / "catalog.db-claim").symlink_to(tmp_path / "elsewhere")
    with app_client(tmp_path, store=open_database(tmp_path)) as client:
        client.services.journal.claim()
        make_namespace(client)
        created(client)
        assert append(client, "one").status_code == 200
        assert len(avro_files(tmp_path)) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_a_database_reached_by_a_symlink_is_the_same_database(tmp_path: Path) -> None:
    first = open_database(tmp_path)
    (tmp_path / "link.db").symlink_to(tmp_path / "catalog.db")
    second = SqliteStore(tmp_path / "link.db")
    assert (first.claim(), second.claim()) == (True, False)
    first.close()
    second.close()


def test_who_takes_over_completes_what_the_dead_one_tore_and_is_not_late_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_database(tmp_path)
    with (
        app_client(tmp_path, store=store) as dead,
        app_client(tmp_path, store=open_database(tmp_path)) as living,
    ):
        dead.services.journal.claim()
        make_namespace(dead)
        created(dead)
        assert append(dead, "one").status_code == 200
        for row in store.read_journal(before_ms=EVER_MS, limit=9):
            torn = Path(row.location.removeprefix("file://"))
            torn.parent.mkdir(parents=True, exist_ok=True)
            torn.write_bytes(b"")
        dead.services.journal.late._waiting.clear()  # it is killed in the middle of its writes
        store._claim.end()
        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "restore", fail)
            assert len(living.services.journal.claim()) == 2
            assert living.get(path()).status_code == 503
            assert not living.services.journal.takes_late(1)
        assert live_paths(living, "t") == ["one"]
        assert living.services.journal.takes_late(1)


def test_a_landed_commit_is_told_though_late_files_cannot_be_looked_for(
    client: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_store = open_database(tmp_path)
    with app_client(tmp_path, store=second_store) as second:
        assert append(second, "one", headers={}).status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(second_store, "read_journal", fail)
            assert append(second, "two", headers={}).status_code == 200
            assert second.get(path()).status_code == 503
        assert live_paths(second, "t") == ["one", "two"]


def test_what_a_second_service_purges_does_not_come_back(client: AppClient, tmp_path: Path) -> None:
    with app_client(tmp_path, store=open_database(tmp_path)) as second:
        assert append(second, "one").status_code == 200
        assert second.delete(path(), params={"purgeRequested": "true"}).status_code == 204
        second.services.background.shutdown(wait=True)
        assert avro_files(tmp_path) == []


def test_what_is_purged_while_it_is_stuck_does_not_come_back(
    client: AppClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert append(client, "one").status_code == 200
    with monkeypatch.context() as patch:
        break_disk(patch)
        assert client.delete(path(), params={"purgeRequested": "true"}).status_code == 204
        client.services.background.shutdown(wait=True)
    client.services.journal.close()
    assert avro_files(tmp_path) == []


def test_stores_that_many_processes_share_let_nobody_be_late() -> None:
    assert MemoryStore().claim() is None
    assert PostgresStore.claim(Any) is None  # type: ignore[arg-type]


# --- the files that wait ---------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> LocalFiles:
    return LocalFiles([tmp_path])


def late_on(disk: LocalFiles, unwritten: dict[str, bytes] | None = None, **options: Any) -> LateFiles:
    return LateFiles(disk, unwritten, **{"has_room": lambda: True, **options})


def test_a_file_that_is_recalled_is_not_written(disk: LocalFiles, tmp_path: Path) -> None:
    unwritten: dict[str, bytes] = {}
    late = late_on(disk, unwritten)
    kept, recalled = f"file://{tmp_path}/t/kept", f"file://{tmp_path}/t/recalled"
    late.add([(kept, b"1"), (recalled, b"2")])
    assert set(unwritten) == {kept, recalled}
    assert late.recall(recalled)
    assert not late.recall(recalled)
    assert late.write_out() == {}
    assert not late.recall(kept)
    assert [file.name for file in (tmp_path / "t").iterdir()] == ["kept"]
    assert unwritten == {}


def test_one_that_cannot_be_written_does_not_hold_up_others_and_is_tried_again(
    disk: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.service.late_files._RETRY_S", 60.0)
    late = late_on(disk)
    (tmp_path / "t").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    stuck = f"file://{tmp_path}/linked/one"
    late.add([(stuck, b"1"), (f"file://{tmp_path}/t/two", b"2")])
    assert set(late.write_out()) == {stuck}
    assert (tmp_path / "t" / "two").read_bytes() == b"2"
    assert not late.takes(1)
    (tmp_path / "linked").unlink()
    assert set(late.write_out()) == {stuck}  # it is not tried again at once
    late._retry_at = 0.0
    assert late.write_out() == {}
    assert (tmp_path / "linked" / "one").read_bytes() == b"1"
    assert late.takes(1)


@pytest.mark.parametrize("there", [b"1", b""], ids=["restored", "torn"])
def test_a_file_that_is_there_already_has_its_bytes_in_the_end(
    disk: LocalFiles, tmp_path: Path, there: bytes
) -> None:
    late = late_on(disk)
    late.add([(f"file://{tmp_path}/t/one", b"1"), (f"file://{tmp_path}/t/two", b"2")])
    disk.restore(f"file://{tmp_path}/t/one", there)
    assert late.write_out() == {}
    assert (tmp_path / "t" / "one").read_bytes() == b"1"
    assert (tmp_path / "t" / "two").read_bytes() == b"2"


def test_those_that_were_written_before_one_that_cannot_be_are_not_written_again(
    disk: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = late_on(disk)
    (tmp_path / "t" / "taken").mkdir(parents=True)
    before, stuck, after = (f"file://{tmp_path}/t/{name}" for name in ("before", "taken", "later"))
    late.add([(before, b"1"), (stuck, b"2"), (after, b"3")])
    restored: list[str] = []
    restore = disk.restore

    def note(location: str, data: bytes) -> None:
        restored.append(location)
        restore(location, data)

    monkeypatch.setattr(disk, "restore", note)
    assert set(late.write_out()) == {stuck}
    assert restored == [stuck]
    assert (tmp_path / "t" / "before").read_bytes() == b"1"
    assert (tmp_path / "t" / "later").read_bytes() == b"3"


def test_a_stuck_file_that_is_recalled_holds_nobody_up(disk: LocalFiles, tmp_path: Path) -> None:
    late = late_on(disk)
    (tmp_path / "linked").symlink_to(tmp_path)
    stuck = f"file://{tmp_path}/linked/one"
    late.add([(stuck, b"1")])
    assert set(late.write_out()) == {stuck}
    assert not late.takes(1)
    assert late.recall(stuck)
    assert late.write_out() == {}
    assert late.takes(1)


def test_a_place_that_is_not_allowed_is_refused_before_the_swap(disk: LocalFiles, tmp_path: Path) -> None:
    def allow(location: str) -> None:
        raise LocationRefused(f"not allowed; location={location!r}", location=location)

    late = late_on(disk, allow=allow)
    with pytest.raises(LocationRefused):
        late.add([(f"file://{tmp_path}/t/one", b"1")])
    assert late.write_out() == {}
    assert not (tmp_path / "t").exists()


def test_many_bytes_are_not_kept_waiting(disk: LocalFiles, tmp_path: Path) -> None:
    late = late_on(disk)
    assert late.takes(16 << 20)
    assert not late.takes((16 << 20) + 1)
    late.add([(f"file://{tmp_path}/t/one", b"12345")])
    assert not late.takes(16 << 20)
    late.write_out()
    assert late.takes(16 << 20)
