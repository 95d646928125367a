"""The expirer among writers, restarts and failures: nothing in use is lost, and nothing is held up."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import StorageFailed
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.service import expiry
from headgate.service.expiry import Expirer
from headgate.store.base import DoomedFile, EntryId, PutDoomed
from tests.service.app_client import app_client
from tests.service.change_calls import change, commit_change, data_file
from tests.service.expiring_table import ASKED, GRACE_S, Lake, lake
from tests.service.table_calls import (
    SCHEMA,
    append,
    commit,
    committed,
    created,
    load,
    local,
    make_namespace,
    ref,
    touch,
)

LONG_AFTER_S = 1_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Lake]:
    with lake(tmp_path) as made:
        yield made


# --- races and failures --------------------------------------------------------------------------------------------


class Interrupting:
    """Files that let something happen at the next read, once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.at_read: Any = None

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        happening, self.at_read = self.at_read, None
        if happening is not None:
            happening()
        return self._files.read(location, limit_bytes=limit_bytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@pytest.fixture
def racing(tmp_path: Path) -> Iterator[tuple[Lake, Interrupting]]:
    files = Interrupting(open_files(f"file://{tmp_path}/warehouse")[0])
    with lake(tmp_path, files=files) as made:
        yield made, files


def test_a_writer_that_comes_between_does_not_stop_the_expiry(racing: tuple[Lake, Interrupting]) -> None:
    table, files = racing
    table.append("a", 1)
    table.append("b", 2)
    table.client.clock.pass_s(LONG_AFTER_S)
    files.at_read = lambda: table.append("c", 3)
    assert table.round() == 1
    assert len(table.snapshots()) == 2
    assert table.rows() == [1, 2, 3]


def test_a_tag_that_comes_between_stops_the_expiry_for_this_round(racing: tuple[Lake, Interrupting]) -> None:
    table, files = racing
    first = table.append("a", 1)
    table.append("b", 2)
    table.remove("a")
    table.client.clock.pass_s(LONG_AFTER_S)
    files.at_read = lambda: committed(table.client, ref(first, name="late", type="tag"))
    assert table.round() == 0
    assert len(table.snapshots()) == 3
    assert table.round() == 1
    table.sweep(after_s=GRACE_S + 1)
    assert table.rows(snapshot_id=first) == [1]
    table.check()


def test_a_rollback_that_comes_between_keeps_what_it_went_back_to(racing: tuple[Lake, Interrupting]) -> None:
    table, files = racing
    first = table.append("a", 1)
    table.append("b", 2)
    table.client.clock.pass_s(LONG_AFTER_S)
    files.at_read = lambda: committed(table.client, ref(first))
    assert table.round() == 0
    assert table.rows() == [1]
    assert table.round() == 1
    table.sweep(after_s=GRACE_S + 1)
    assert table.rows() == [1]
    table.check()


def test_a_file_added_again_while_the_sweep_looks_is_kept(racing: tuple[Lake, Interrupting]) -> None:
    table, files = racing
    table.append("a", 1)
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    table.client.clock.pass_s(GRACE_S + 1)
    again = change("append", add_data_files=[table.described["a"]])
    files.at_read = lambda: commit_change(table.client, again)
    table.sweep()
    assert files.at_read is None
    assert table.rows() == [1]


def test_writers_and_the_expirer_together_lose_nothing(tmp_path: Path) -> None:
    asked = {"headgate.expire.enabled": "true", "headgate.expire.max-snapshots": "2"}
    with lake(tmp_path, properties=asked, expire_grace_s=0) as table:
        files = [table.write(f"w{n}", n) for n in range(24)]
        answers: list[int] = []
        busy = threading.Event()

        def write(mine: list[Any]) -> None:
            for file in mine:
                answers.append(
                    commit_change(table.client, change("append", add_data_files=[file])).status_code
                )

        def expire() -> None:
            while not busy.is_set():
                table.round()
                table.sweep(after_s=1)

        writers = [threading.Thread(target=write, args=(files[n::3],)) for n in range(3)]
        expirer = threading.Thread(target=expire)
        for thread in (*writers, expirer):
            thread.start()
        for thread in writers:
            thread.join()
        busy.set()
        expirer.join()
        assert answers == [200] * 24
        table.round()
        table.sweep(after_s=1)
        assert len(table.snapshots()) == 2
        assert table.rows() == list(range(24))
        table.check()


def test_a_restart_between_commit_and_sweep_forgets_nothing(tmp_path: Path) -> None:
    with lake(tmp_path) as table:
        table.append("a", 1)
        table.append("b", 2)
        table.remove("a")
        assert table.round(after_s=LONG_AFTER_S) == 2
        passed_s = LONG_AFTER_S + 10
    with lake(tmp_path, again=True) as table:
        assert table.sweep(after_s=passed_s + GRACE_S) > 0
        assert table.data() == ["b"]
        assert table.rows() == [2]
        table.check()


class Refusing:
    """A store whose next write that dooms files fails, once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.armed = False

    def write(self, operations: Any) -> Any:
        if self.armed and any(isinstance(operation, PutDoomed) for operation in operations):
            self.armed = False
            raise StorageFailed("not today")
        return self._store.write(operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def doomed(table: Lake) -> list[str]:
    """All that is on record to be deleted some time."""
    found = table.client.services.store.read_doomed(now_ms=1 << 62, limit=100_000)
    return [file.location for file in found]


def test_an_expiry_that_fails_dooms_nothing(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    table.remove("a")
    store = Refusing(table.client.services.store)
    table.expirer = Expirer(dataclasses.replace(table.client.services, store=store))
    store.armed = True
    assert table.round(after_s=LONG_AFTER_S) == 0
    assert not store.armed
    assert len(table.snapshots()) == 3
    assert doomed(table) == []
    assert table.round() == 2
    assert table.sweep(after_s=GRACE_S + 1) > 0
    assert table.data() == ["b"]


def test_what_is_in_use_is_kept_though_it_was_doomed(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    header = table.client.services.store.load_header(("a",), "t")
    assert header is not None
    folder = local(load(table.client)["metadata"]["location"])
    everything = [f"file://{file}" for file in folder.rglob("*.*") if not file.name.endswith(".json")]
    due = table.client.clock()
    rows = tuple(DoomedFile(place, EntryId(header.id), due) for place in everything)
    table.client.services.store.write((PutDoomed(rows),))
    assert len(everything) >= 6
    assert table.sweep(after_s=1) == 0
    assert doomed(table) == []
    table.check()


def test_more_files_than_one_write_holds_are_all_doomed(table: Lake) -> None:
    folder = f"{load(table.client)['metadata']['location']}/data"
    files = [data_file(f"{folder}/{n}.parquet") for n in range(5_100)]
    assert commit_change(table.client, change("append", add_data_files=files)).status_code == 200
    table.client.clock.pass_s(1)
    gone = [{"file-path": file["file-path"]} for file in files]
    assert commit_change(table.client, change("delete", remove_data_files=gone)).status_code == 200
    assert table.round(after_s=LONG_AFTER_S) == 1
    assert {file["file-path"] for file in files} < set(doomed(table))


def test_a_broken_manifest_stops_neither_the_expiry_nor_other_tables(table: Lake) -> None:
    created(table.client, "broken", properties=ASKED)
    for n in (1, 2):
        table.client.clock.pass_s(1)
        assert append(table.client, id=n, name="broken").status_code == 200  # lists that are no lists
    table.append("a", 1)
    table.remove("a")
    assert table.round(after_s=LONG_AFTER_S) == 2
    assert len(load(table.client, "broken")["metadata"]["snapshots"]) == 1
    assert table.sweep(after_s=GRACE_S + 1) > 0
    assert table.data() == []


def test_what_cannot_be_proved_is_put_off_and_deletes_nothing(table: Lake) -> None:
    created(table.client, "broken")
    assert append(table.client, id=1, name="broken").status_code == 200
    place = load(table.client, "broken")["metadata"]["location"]
    victim = touch(f"{place}/data/x.parquet")
    header = table.client.services.store.load_header(("a",), "broken")
    assert header is not None
    row = DoomedFile(victim, EntryId(header.id), table.client.clock())
    table.client.services.store.write((PutDoomed((row,)),))
    assert table.sweep(after_s=1) == 0
    assert local(victim).is_file()
    store, now_ms = table.client.services.store, table.client.clock()
    assert store.read_doomed(now_ms=now_ms + 60_000, limit=10) == []
    assert [d.location for d in store.read_doomed(now_ms=now_ms + 7_200_000, limit=10)] == [victim]


def test_files_that_cannot_be_read_for_now_put_the_expiry_off(tmp_path: Path) -> None:
    files = Interrupting(open_files(f"file://{tmp_path}/warehouse")[0])
    with lake(tmp_path, files=files) as table:
        table.append("a", 1)
        table.append("b", 2)

        def fail() -> None:
            raise StorageFailed("not today")

        table.client.clock.pass_s(LONG_AFTER_S)
        files.at_read = fail
        assert table.round() == 0
        assert len(table.snapshots()) == 2
        assert table.round() == 1


def test_a_busy_table_is_left_alone_for_a_few_rounds_and_not_for_ever(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    table.expirer = Expirer(table.client.services, is_busy=lambda target: target == (("a",), "t"))
    table.client.clock.pass_s(LONG_AFTER_S)
    assert [table.round() for _ in range(7)] == [0, 0, 0, 0, 0, 1, 0]


def test_a_view_and_a_table_without_snapshots_are_no_trouble(tmp_path: Path) -> None:
    with app_client(tmp_path, expire_snapshots=True) as client:
        make_namespace(client)
        created(client)
        version = {"version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}}
        version |= {"representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}]}
        version |= {"default-namespace": ["a"]}
        view = {"name": "v", "schema": {**SCHEMA, "schema-id": 0}, "view-version": version, "properties": {}}
        assert client.post("/v1/namespaces/a/views", view).status_code == 200
        assert Expirer(client.services).run_round() == 0
        assert Expirer(client.services).sweep() == 0


# --- the thread ----------------------------------------------------------------------------------------------------


def test_the_thread_does_rounds_and_sweeps_until_the_service_closes(tmp_path: Path) -> None:
    with lake(tmp_path, expire_interval_s=0.05, expire_grace_s=0) as table:
        table.append("a", 1)
        gone = local(table.described["a"]["file-path"])
        table.remove("a")
        table.client.clock.pass_s(LONG_AFTER_S)
        deleted = _Watch(table.client.services.files)
        expiry.start(dataclasses.replace(table.client.services, files=deleted))
        assert deleted.seen.wait(30)
        table.client.services.housekeeper.close()
        assert not gone.exists()
        assert "headgate-expirer" not in {thread.name for thread in threading.enumerate()}


class _Watch:
    """Files that say when something was deleted."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.seen = threading.Event()

    def delete(self, locations: Any) -> int:
        found = self._files.delete(list(locations))
        self.seen.set()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


def test_commit_refusals_of_the_expiry_do_not_reach_clients(table: Lake) -> None:
    first = table.append("a", 1)
    table.append("b", 2)
    table.round(after_s=LONG_AFTER_S)
    answer = commit(table.client, ref(first, name="late", type="tag"))
    assert answer.status_code == 400  # the snapshot is gone, and that is said in the usual words
