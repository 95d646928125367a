"""The service over a real event loop that leads groups itself (docs/adr/0011): what lands, and who is kept waiting."""

from __future__ import annotations

import asyncio
import os
import select
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn

from headgate.core.commit import Candidate, Committed, Judged, Verdict
from headgate.errors import CommitUnknown, ConflictFound, StorageFailed
from headgate.files.local import LocalFiles
from headgate.format.manifests import decode_manifest_list
from headgate.service.alone import AloneRun
from headgate.service.app import build_app
from headgate.service.exchange import Reply, Request, Route, RouteTable, json_reply, later
from headgate.service.gate import Pause
from headgate.service.group_driver import GroupDriver
from headgate.service.group_run import GroupRun
from headgate.service.heads import HeadCache
from headgate.service.manifest_store import ManifestStore
from headgate.service.roles import Role
from headgate.service.routes import all_routes
from headgate.service.server import BoundedProtocol, open_socket
from headgate.service.services import Services, fresh_uuid, open_services
from headgate.service.settings import Settings
from headgate.store.base import Operation, SwapEntry
from headgate.store.sqlite import SqliteStore
from tests.collector import count_alive, without_collector
from tests.service.app_client import AppClient, Clock
from tests.service.change_calls import change, commit_change, data_file, head_id, live_paths
from tests.service.table_calls import created, error_of, load, local, make_namespace, path

WAIT_S = 10
HERE = "here"
THREADS = "headgate-gate"


@dataclass
class Witness:
    """Which stretches of which groups were driven in which thread, and how they ended."""

    drives: list[tuple[str, bool, bool | Pause]] = field(default_factory=list)

    def count(self, by: str, *, ended: bool) -> int:
        """How many stretches were driven by such a thread, to the end of their group or not."""
        return sum(
            name.startswith(by) and (not isinstance(calm, Pause)) == ended for name, _, calm in self.drives
        )


@pytest.fixture
def witness(monkeypatch: pytest.MonkeyPatch) -> Witness:
    """Sees every group of the services in this process."""
    seen, go_on = Witness(), GroupRun.go_on

    def watched(self: GroupRun, *, may_wait: bool) -> bool | Pause:
        calm = go_on(self, may_wait=may_wait)
        if (
            calm is not Pause.HAS_MORE
        ):  # how often a group lets others have their turn is the machine's affair
            seen.drives.append((threading.current_thread().name, may_wait, calm))
        return calm

    alone = AloneRun.go_on

    def watched_alone(self: AloneRun, *, may_wait: bool) -> bool | Pause:
        before = len(seen.drives)
        calm = alone(self, may_wait=may_wait)
        if len(seen.drives) == before and calm is not Pause.HAS_MORE:  # it needed no conversation so far
            seen.drives.append((threading.current_thread().name, may_wait, calm))
        return calm

    monkeypatch.setattr(GroupRun, "go_on", watched)
    monkeypatch.setattr(AloneRun, "go_on", watched_alone)
    return seen


@dataclass
class Block:
    """A method that does not return before it is let go."""

    begun: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    by: str = ""

    def put_before(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        """Have callers of a method wait first."""
        method = getattr(owner, name)

        def blocked(*args: Any, **options: Any) -> Any:
            self.by = threading.current_thread().name
            self.begun.set()
            assert self.let_go.wait(WAIT_S)
            return method(*args, **options)

        monkeypatch.setattr(owner, name, blocked)


@contextmanager
def served(folder: Path, *, strict: bool = False, counts: bool = True) -> Iterator[AppClient]:
    """The service on a port of this machine, as `headgate serve` has it, over SQLite and a local disk.

    `strict`: its event loop refuses what only its own thread may do. `counts`: it knows how many connections there are.
    """
    settings = Settings(
        port=0, warehouse=str(folder / "warehouse"), database=f"sqlite:///{folder / 'catalog.db'}"
    )
    loop = asyncio.new_event_loop()
    client = threading.Thread(target=loop.run_forever, name="client")
    with open_socket(settings) as listener:
        services = open_services(settings)
        app = build_app(services, settings, all_routes())
        members = {"bounds": settings, "take": staticmethod(app.take)}
        protocol: Any = type("Protocol", (BoundedProtocol,), members)
        config = uvicorn.Config(
            app, http=protocol, ws="none", lifespan="on", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        # Who does not count its connections leads nobody where he submits.
        app.listen_on(listener, server.server_state.connections if counts else ())

        def serve() -> None:
            if strict:
                asyncio.run(server.serve(sockets=[listener]), debug=True)
            else:
                server.run(sockets=[listener])

        serving = threading.Thread(target=serve, name=HERE, daemon=True)
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        http = httpx.AsyncClient(base_url=base_url, timeout=WAIT_S, trust_env=False)
        serving.start()
        client.start()
        try:
            yield AppClient(services, Clock(), http, loop)
        finally:
            asyncio.run_coroutine_threadsafe(http.aclose(), loop).result(WAIT_S)
            loop.call_soon_threadsafe(loop.stop)
            client.join(WAIT_S)
            loop.close()
            server.should_exit = True
            serving.join(WAIT_S)
            assert not serving.is_alive()


@pytest.fixture(params=[True, False], ids=["counted", "uncounted"])
def client(tmp_path: Path, witness: Witness, request: pytest.FixtureRequest) -> Iterator[AppClient]:
    with served(tmp_path, counts=request.param) as opened_client:
        make_namespace(opened_client)
        yield opened_client


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    pause = threading.Event()
    for _ in range(WAIT_S * 1000):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it did not come to pass")


def place(client: AppClient, name: str = "t") -> str:
    """Where the table is."""
    return str(load(client, name)["metadata"]["location"])


def append(client: AppClient, folder: str, *names: str) -> httpx.Response:
    """A commit that adds files."""
    files = [data_file(f"{folder}/data/{name}") for name in names]
    return commit_change(client, change("append", add_data_files=files))


def find_snapshots(client: AppClient) -> list[dict[str, Any]]:
    """The table's snapshots."""
    found: list[dict[str, Any]] = load(client)["metadata"].get("snapshots", [])
    return found


def test_appends_of_many_clients_at_once_all_land_once(client: AppClient, witness: Witness) -> None:
    folder = created(client)["metadata"]["location"]
    names = [f"f{number}" for number in range(60)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda name: append(client, folder, name), names))
    assert {answer.status_code for answer in answers} == {200}
    assert live_paths(client, "t") == sorted(names)
    snapshots = find_snapshots(client)
    assert sum(int(snapshot["summary"]["added-data-files"]) for snapshot in snapshots) == 60
    parents = {snapshot.get("parent-snapshot-id") for snapshot in snapshots}
    assert len(parents) == len(snapshots)  # one chain
    assert witness.count(HERE, ended=True) > 0
    assert client.services.gates.depth == 0
    assert not client.services.gates.is_busy((("a",), "t"))


def test_groups_that_pause_after_every_step_land_as_others_do(
    client: AppClient, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.service.group_run._STRETCH_S", -1.0)
    created(client)
    folder = place(client)
    names = [f"{number:02}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: append(client, folder, name), names))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(live_paths(client, "t")) == names
    assert append(client, folder, names[0]).status_code == 409
    assert witness.count(HERE, ended=True) > 0


def test_an_append_is_led_on_the_event_loop_once_its_table_is_known(
    client: AppClient, witness: Witness
) -> None:
    folder = created(client)["metadata"]["location"]
    assert append(client, folder, "first").status_code == 200
    witness.drives.clear()
    assert append(client, folder, "second").status_code == 200
    assert witness.drives == [(HERE, False, True)]


def test_what_breaks_after_a_commit_was_answered_does_not_answer_it_again(tmp_path: Path) -> None:
    settings = Settings(warehouse=str(tmp_path / "w"), database=f"sqlite:///{tmp_path / 'catalog.db'}")

    def start(done: Callable[[Verdict], None]) -> None:
        done(Committed(()))
        raise RuntimeError("after the answer")

    def quick(services: Services, request: Request) -> Reply:
        return later(start, lambda verdict: json_reply("done"))

    route = Route("POST", "/change", quick, Role.ADMIN, quick=quick)
    app = build_app(open_services(settings), settings, RouteTable((route,)))
    answers: list[int] = []

    async def run() -> None:
        told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        begun = asyncio.Event()

        async def send(message: Any) -> None:
            begun.set()

        living = asyncio.create_task(app({"type": "lifespan"}, told.get, send))
        await told.put({"type": "lifespan.startup"})
        await begun.wait()
        scope = {"method": "POST", "raw_path": b"/change", "query_string": b"", "headers": []}
        assert app.take(scope, b"", lambda reply, _: answers.append(reply.status))
        await told.put({"type": "lifespan.shutdown"})
        await living

    asyncio.run(run())
    assert answers == [200]


def test_a_path_that_is_live_already_is_refused_with_evidence(client: AppClient, witness: Witness) -> None:
    folder = created(client)["metadata"]["location"]
    append(client, folder, "other")
    assert append(client, folder, "twice").status_code == 200
    witness.drives.clear()
    answer = append(client, folder, "new", "twice")
    assert answer.status_code == 409
    conflict = error_of(answer)["conflict"]
    assert conflict["rule"] == "already-live"
    assert conflict["files"] == [f"{folder}/data/twice"]
    assert [(by.startswith(THREADS), calm) for by, _, calm in witness.drives] == [
        (False, Pause.HAS_TO_WAIT),
        (True, True),
    ]
    assert live_paths(client, "t") == ["other", "twice"]
    assert append(client, folder, "new").status_code == 200  # nothing of the refusal stayed behind


@pytest.mark.parametrize("keyed", [False, True])
def test_a_refused_commit_is_forgotten_with_its_answer(client: AppClient, keyed: bool) -> None:
    """Its error holds the frames that it was raised through, and they the table as it was: it must be in no cycle."""
    folder = created(client)["metadata"]["location"]
    assert append(client, folder, "twice").status_code == 200
    update = change("append", add_data_files=[data_file(f"{folder}/data/twice")])
    body = {"requirements": [], "updates": [update]}
    with without_collector():
        others = count_alive(ConflictFound), count_alive(Judged)  # of tests before this one
        for _ in range(10):
            headers = {"Idempotency-Key": fresh_uuid()} if keyed else {}
            assert client.post(path(), body, headers=headers).status_code == 409
        assert count_alive(ConflictFound) <= others[0] + 1  # of the last, whoever answered may not be through
        assert count_alive(Judged) <= others[1] + 1


def test_of_many_at_once_that_add_one_path_one_lands(client: AppClient) -> None:
    folder = created(client)["metadata"]["location"]
    append(client, folder, "first")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: append(client, folder, "same").status_code, range(16)))
    assert sorted(answers) == [200] + [409] * 15
    assert live_paths(client, "t") == ["first", "same"]


def test_the_first_commit_after_a_restart_lands_and_the_next_is_led_here_again(
    tmp_path: Path, witness: Witness
) -> None:
    with served(tmp_path) as before:
        make_namespace(before)
        folder = created(before)["metadata"]["location"]
        assert append(before, folder, "one").status_code == 200
    witness.drives.clear()
    with served(tmp_path) as after:
        assert append(after, folder, "two").status_code == 200
        assert [calm for _, _, calm in witness.drives] == [Pause.HAS_TO_WAIT, True]  # nothing was remembered
        assert append(after, folder, "one").status_code == 409
        assert append(after, folder, "three").status_code == 200
        assert witness.drives[-1] == (HERE, False, True)
        assert live_paths(after, "t") == ["one", "three", "two"]


def test_changes_that_read_manifests_land_between_appends(client: AppClient, witness: Witness) -> None:
    folder = created(client)["metadata"]["location"]
    append(client, folder, "a", "b", "c")
    base = head_id(client, "t")
    append(client, folder, "d")
    overwrite = change(
        "overwrite",
        remove_data_files=[f"{folder}/data/a"],
        add_data_files=[data_file(f"{folder}/data/a2")],
        base_snapshot_id=base,
        commit_validations=[
            {"type": "not-allowed-new-deletes-for-data-files", "file-paths": [f"{folder}/data/a"]}
        ],
    )
    assert commit_change(client, overwrite).status_code == 200
    delete = change("delete", remove_data_files=[f"{folder}/data/b"], base_snapshot_id=base)
    assert commit_change(client, delete).status_code == 200
    refused = commit_change(
        client,
        change(
            "overwrite",
            remove_data_files=[f"{folder}/data/c"],
            base_snapshot_id=base,
            commit_validations=[{"type": "not-allowed-added-data-files"}],
        ),
    )
    assert refused.status_code == 409
    append(client, folder, "e")
    assert live_paths(client, "t") == ["a2", "c", "d", "e"]
    assert witness.count(THREADS, ended=True) >= 3


def test_manifests_are_merged_by_groups_that_are_led_here(client: AppClient, witness: Witness) -> None:
    properties = {"commit.manifest.min-count-to-merge": "3"}
    folder = created(client, properties=properties)["metadata"]["location"]
    append(client, folder, "f0")
    witness.drives.clear()
    names = [f"f{number}" for number in range(1, 12)]
    assert {append(client, folder, name).status_code for name in names} == {200}
    location = find_snapshots(client)[-1]["manifest-list"]
    assert len(decode_manifest_list(local(location).read_bytes(), location=location)) < 6
    assert live_paths(client, "t") == sorted(["f0", *names])
    assert witness.drives == [(HERE, False, True)] * 11


# --- what has to wait keeps nobody else waiting -----------------------------------------------------------


def test_the_event_loop_answers_while_a_group_waits_for_manifests(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = created(client)["metadata"]["location"]
    created(client, "other")
    append(client, folder, "live")
    block = Block()
    block.put_before(monkeypatch, ManifestStore, "find_live")
    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(append, client, folder, "live")
        try:
            assert block.begun.wait(WAIT_S)
            assert block.by.startswith(THREADS)
            behind = pool.submit(append, client, folder, "new")
            assert client.get("/v1/config").status_code == 200
            added = change("append", add_data_files=[data_file(f"{place(client, 'other')}/data/x")])
            assert commit_change(client, added, name="other").status_code == 200
            assert not again.done()
            assert not behind.done()
        finally:
            block.let_go.set()
        assert again.result(WAIT_S).status_code == 409
        assert behind.result(WAIT_S).status_code == 200


@pytest.mark.parametrize(
    ("owner", "reads"), [(HeadCache, "load"), (ManifestStore, "read_list"), (ManifestStore, "find_live")]
)
def test_the_event_loop_answers_while_the_first_group_after_a_restart_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, reads: str
) -> None:
    with served(tmp_path) as before:
        make_namespace(before)
        folder = created(before)["metadata"]["location"]
        append(before, folder, "one")
    with served(tmp_path) as after, ThreadPoolExecutor(1) as pool:
        block = Block()
        block.put_before(monkeypatch, owner, reads)
        cold = pool.submit(append, after, folder, "two")
        try:
            assert block.begun.wait(WAIT_S)
            assert block.by.startswith(THREADS)
            assert after.get("/v1/config").status_code == 200
            assert not cold.done()
        finally:
            block.let_go.set()
        assert cold.result(WAIT_S).status_code == 200


class Door:
    """Stands for the poll of the listening socket: so many connections wait, and each round of the loop takes one."""

    def __init__(self) -> None:
        self.waiting = 0

    def register(self, *_: object) -> None:
        """As that of a poll."""

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """As that of a poll."""
        self.waiting = max(0, self.waiting - 1)
        return [(0, select.POLLIN)] if self.waiting else []


def test_connections_that_wait_are_let_in_before_a_group_is_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, outside = Door(), dict[AloneRun, int]()
    monkeypatch.setattr("headgate.service.app.select.poll", lambda: door)
    go_on = AloneRun.go_on

    def watched(self: AloneRun, *, may_wait: bool) -> bool | Pause:
        outside.setdefault(self, door.waiting)
        return go_on(self, may_wait=may_wait)

    with served(tmp_path) as client:
        make_namespace(client)
        created(client)
        folder = place(client)
        assert append(client, folder, "first").status_code == 200
        monkeypatch.setattr(AloneRun, "go_on", watched)
        for name, waiting in (
            ("second", 10),
            ("third", 10_000),
        ):  # so many cannot keep a group from being led
            door.waiting = waiting
            assert append(client, folder, name).status_code == 200
    none, many = outside.values()
    assert none == 0 < many


def test_the_event_loop_answers_while_another_process_keeps_the_database(
    client: AppClient, witness: Witness, tmp_path: Path
) -> None:
    created(client)
    folder = place(client)
    assert append(client, folder, "first").status_code == 200
    before = witness.count(HERE, ended=False)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            appending = pool.submit(append, client, folder, "second")
            until(lambda: witness.count(HERE, ended=False) > before)
            assert client.get("/v1/config").status_code == 200
            assert not appending.done()
            other.execute("ROLLBACK")
            assert appending.result(WAIT_S).status_code == 200
    assert len(find_snapshots(client)) == 2
    assert sorted(live_paths(client, "t")) == ["first", "second"]


def test_a_disk_that_is_full_refuses_the_append_and_the_next_one_lands(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=4096))
    created(client)
    folder = place(client)
    assert append(client, folder, "first").status_code == 200
    by: list[str] = []

    def is_full(*_: object, **__: object) -> None:
        by.append(threading.current_thread().name)
        raise StorageFailed("no space left on the device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write_soft_many", is_full)
        refused = append(client, folder, "second")
    assert (refused.status_code, error_of(refused)["headgate"]["code"]) == (503, "storage-failed")
    assert by[0] == HERE
    assert append(client, folder, "second").status_code == 200
    assert sorted(live_paths(client, "t")) == ["first", "second"]


@pytest.mark.parametrize("lands", [True, False], ids=["landed", "lost"])
def test_a_swap_whose_outcome_is_not_known_is_looked_for_in_a_thread_and_lands_once(
    client: AppClient, witness: Witness, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    created(client)
    folder = place(client)
    assert append(client, folder, "first").status_code == 200
    write, unsure = SqliteStore.write, ["the first swap"]

    def is_unsure(self: SqliteStore, operations: Sequence[Operation]) -> Any:
        if not unsure or not any(isinstance(one, SwapEntry) for one in operations):
            return write(self, operations)
        unsure.clear()
        if lands:
            assert write(self, operations) is None
        raise CommitUnknown("COMMIT failed: look for the key")

    witness.drives.clear()
    monkeypatch.setattr(SqliteStore, "write", is_unsure)
    assert append(client, folder, "second").status_code == 200
    assert [(by.startswith(THREADS), calm) for by, _, calm in witness.drives] == [
        (False, Pause.HAS_TO_WAIT),
        (True, Pause.TRIES_AGAIN),
        (True, False),  # somebody else may commit to the table
    ]
    assert len(find_snapshots(client)) == 2
    assert sorted(live_paths(client, "t")) == ["first", "second"]


def test_a_large_request_is_not_led_on_the_event_loop(client: AppClient, witness: Witness) -> None:
    created(client)
    folder = place(client)
    assert append(client, folder, "first").status_code == 200
    witness.drives.clear()
    assert append(client, folder, *[f"{number:04}-{'x' * 100}" for number in range(400)]).status_code == 200
    assert {by.startswith(THREADS) for by, _, _ in witness.drives} == {True}
    assert len(live_paths(client, "t")) == 401


def test_old_metadata_is_not_deleted_on_the_event_loop(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = "write.metadata.previous-versions-max"
    created(client, properties={"write.metadata.delete-after-commit.enabled": "true", kept: "1"})
    folder = place(client)
    by: list[str] = []
    clean_up = GroupDriver._clean_up

    def watched(self: GroupDriver, candidate: Candidate) -> None:
        by.append(threading.current_thread().name)
        clean_up(self, candidate)

    monkeypatch.setattr(GroupDriver, "_clean_up", watched)
    for name in ("a", "b", "c"):
        assert append(client, folder, name).status_code == 200
    assert len(by) == 3
    assert HERE not in by


def test_a_list_that_was_forgotten_is_read_in_a_thread(
    client: AppClient, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.service.manifest_store._LISTS_MAX", 1)
    folder = created(client)["metadata"]["location"]
    append(client, folder, "one")
    other = created(client, "other")["metadata"]["location"]
    added = change("append", add_data_files=[data_file(f"{other}/data/x")])
    assert commit_change(client, added, name="other").status_code == 200
    witness.drives.clear()
    assert append(client, folder, "two").status_code == 200
    assert [(by.startswith(THREADS), calm) for by, _, calm in witness.drives] == [
        (False, Pause.HAS_TO_WAIT),
        (True, True),
    ]


def test_a_leader_in_a_thread_may_ask_the_event_loop(
    tmp_path: Path, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, strict=True) as client, ThreadPoolExecutor(2) as pool:
        make_namespace(client)
        folder = created(client)["metadata"]["location"]
        append(client, folder, "live")
        block = Block()
        block.put_before(monkeypatch, ManifestStore, "find_live")
        again = pool.submit(append, client, folder, "live")
        try:
            assert block.begun.wait(WAIT_S)
            behind = pool.submit(append, client, folder, "new")
            while not client.services.gates.depth:
                assert not behind.done()
        finally:
            block.let_go.set()
        assert again.result(WAIT_S).status_code == 409
        assert behind.result(WAIT_S).status_code == 200
    assert witness.drives[-1] == (HERE, False, True)


def test_a_request_that_spells_assert_create_with_escapes_does_not_stop_the_service(
    client: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = created(client)["metadata"]["location"]
    append(client, folder, "live")
    block = Block()
    block.put_before(monkeypatch, ManifestStore, "find_live")
    body = b'{"requirements": [{"type": "\\u0061ssert-create"}], "updates": []}'
    headers = {"Content-Type": "application/json"}
    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(append, client, folder, "live")
        try:
            assert block.begun.wait(WAIT_S)  # the table's gate is led, so whoever would hold it waits
            creating = pool.submit(client.post, path(), content=body, headers=headers)
            for _ in range(5):
                assert client.get("/v1/config").status_code == 200
            assert not creating.done()
        finally:
            block.let_go.set()
        assert again.result(WAIT_S).status_code == 409
        assert creating.result(WAIT_S).status_code == 409
    assert append(client, folder, "after").status_code == 200


def test_no_commit_gets_its_turn_within_no_time_at_all(client: AppClient) -> None:
    created(client)
    folder = place(client)
    assert append(client, folder, "first").status_code == 200
    update = change("append", add_data_files=[data_file(f"{folder}/data/a")])
    body = {"requirements": [], "updates": [update]}
    assert client.post(path(), body, headers={"Prefer": "wait=0"}).status_code == 503
    assert append(client, folder, "a").status_code == 200
