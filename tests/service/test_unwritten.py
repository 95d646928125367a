"""Files of a group that are read before they are written, and that memory no longer holds: they are on their way."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import StorageFailed
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.service import manifest_store
from headgate.service.journal import Journal
from headgate.service.manifest_store import ManifestStore
from headgate.service.outbox import Outbox, Unwritten
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, live_paths
from tests.service.job_calls import append, file_of, with_table
from tests.service.table_calls import commit
from tests.service.test_group_commits import CHAIN, groups_of, send, together

MERGE = {"action": "set-properties", "updates": {"commit.manifest.min-count-to-merge": "2"}}


class SlowFiles:
    """`Files` whose writes take their time, as those of an object store do."""

    is_soft = False

    def __init__(self, files: Files) -> None:
        self._files = files
        self.unwritable = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        if self.unwritable and self.unwritable in location:
            raise StorageFailed("disk full")
        threading.Event().wait(0.02)
        self._files.write_new(location, parts)


@pytest.fixture(params=["soft", "slow"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened, _ = open_files(f"file://{tmp_path / 'warehouse'}")
    return opened if request.param == "soft" else SlowFiles(opened)


@pytest.fixture
def client(tmp_path: Path, files: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppClient]:
    """A service that remembers nothing of what it has written but the newest manifest."""
    monkeypatch.setattr(manifest_store, "_WRITTEN_BYTES_MAX", 0)
    monkeypatch.setattr(ManifestStore, "_put_list", lambda *_: None)
    with app_client(tmp_path, files=files, manifest_cache_bytes=1 << 20) as made:
        yield with_table(made)


def test_a_group_reads_manifests_and_lists_that_it_has_not_written_yet(client: AppClient) -> None:
    assert commit(client, MERGE).status_code == 200
    gone = file_of(client, "2.parquet")["file-path"]
    calls = [
        send(client, append(client, f"{n}.parquet"), key=f"0190a8c0-0000-7000-8000-{n:012d}", prefer=CHAIN)
        for n in range(6)
    ]
    delete = change("delete", remove_data_files=[{"file-path": gone}])
    answers = together(client, *calls, send(client, delete, prefer=CHAIN))
    assert [answer.status_code for answer in answers] == [200] * 7, [answer.text for answer in answers]
    assert groups_of(client)[1] == 8
    assert live_paths(client, "t") == [f"{n}.parquet" for n in (0, 1, 3, 4, 5)]
    assert not client.services.unwritten


@pytest.mark.parametrize("files", ["slow"], indirect=True)
def test_what_could_not_be_written_is_on_its_way_no_longer(client: AppClient, files: SlowFiles) -> None:
    files.unwritable = "-m-"
    answer = send(client, append(client, "1.parquet"))()
    assert answer.status_code >= 500
    assert not client.services.unwritten
    files.unwritable = ""
    assert send(client, append(client, "2.parquet"))().status_code == 200
    assert live_paths(client, "t") == ["2.parquet"]


def test_an_outbox_lets_go_of_what_is_written_and_of_what_is_recalled(tmp_path: Path, files: Any) -> None:
    unwritten: Unwritten = {}
    folder = f"file://{tmp_path / 'warehouse'}"
    journal = Journal(files, MemoryStore(), lambda: 1)
    with ThreadPoolExecutor(2) as writers:
        outbox = Outbox(files, journal, writers, unwritten)
        for name in "abc":
            outbox.put(f"{folder}/{name}.avro", name.encode())
        assert unwritten == {f"{folder}/{name}.avro": name.encode() for name in "abc"}
        outbox.recall([f"{folder}/b.avro"])
        assert f"{folder}/b.avro" not in unwritten
        outbox.flush()
        assert not unwritten
        outbox.put(f"{folder}/d.avro", b"d")
        outbox.close()
        assert not unwritten
    assert files.read(f"{folder}/a.avro", limit_bytes=9) == b"a"
