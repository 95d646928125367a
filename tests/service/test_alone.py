"""Appends that are committed without a conversation: as with one, and with one when their swap is not plainly made."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from headgate.core.commit import Committed, Refused, Verdict
from headgate.errors import CommitUnknown, ConflictFound, StorageFailed, WouldWait
from headgate.files.open import open_files
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.strict_json import decode_into
from headgate.service.alone import AloneRun, begin_group
from headgate.service.commit_records import Work
from headgate.service.commit_requests import plan_table
from headgate.service.gate import BeginGroup, GroupUnderWay, Pause
from headgate.service.group_run import GroupRun
from headgate.service.roles import Caller, Role
from headgate.service.services import build_services
from headgate.service.settings import Settings
from headgate.service.table_requests import CommitTableRequest, CreateTableRequest
from headgate.service.tables import create_table
from headgate.store import base
from headgate.store.base import Operation
from headgate.store.sqlite import SqliteStore
from tests.service.app_client import Clock
from tests.service.change_calls import change, data_file
from tests.service.table_calls import KEY, OTHER_KEY, SCHEMA, local
from tests.service.test_late_files import leave_room

TARGET = (("a",), "t")
CALLER = Caller("p", Role.ADMIN, "request")
TABLES = (
    "entries",
    "entry_log",
    "keys",
    "events",
    "staged_facts",
    "indexed_facts",
    "staged_files",
    "journal",
)

EVER_MS = 2**62

Swap = Callable[[], base.Refused | None]


class Doubtful(SqliteStore):
    """Its next swap goes as it is told to."""

    instead: Callable[[Swap], base.Refused | None] | None = None
    swaps = 0  # sent

    def write(self, operations: Sequence[Operation]) -> base.Refused | None:
        """See `Store`."""
        write = super().write
        if not any(isinstance(one, base.SwapEntry) for one in operations):
            return write(operations)
        self.swaps += 1
        if self.instead is None:
            return write(operations)
        instead, self.instead = self.instead, None
        return instead(lambda: write(operations))


class World:
    """A service without a front and with nothing in the background, and one table."""

    def __init__(self, folder: Path, *, begin: Any = begin_group, **properties: str) -> None:
        settings = Settings(warehouse=str(folder / "warehouse"))
        files, _ = open_files(settings.warehouse_location)
        self.store, self.clock = Doubtful(folder / "catalog.db"), Clock()
        self.clock.now_ms = 1_700_000_000_000
        numbers = itertools.count(1)
        self.services = build_services(
            settings,
            store=self.store,
            files=files,
            clock_ms=self.clock,
            new_uuid=lambda: f"00000000-0000-7000-8000-{next(numbers):012x}",
        )
        self.services.journal.claim()
        self.begin: Callable[..., GroupUnderWay] = begin
        self.verdicts: list[Verdict] = []
        self.store.write([base.CreateNamespace(("a",), {})])
        self.head = create_table(
            self.services,
            CALLER,
            TARGET,
            msgspec.convert({"name": "t", "schema": SCHEMA, "properties": properties}, CreateTableRequest),
        )

    @property
    def folder(self) -> str:
        """Where its data files are."""
        return f"{self.head.metadata.envelope.location}/data"

    def append(self, *names: str, key: str | None = None, **fields: Any) -> Work:
        """A commit that adds files."""
        files = [data_file(f"{self.folder}/{name}") for name in names]
        return self.work(change("append", add_data_files=files, **fields), key=key)

    def work(self, update: dict[str, Any], *, key: str | None = None) -> Work:
        """A commit of one change."""
        body = msgspec.json.encode({"requirements": [], "updates": [update]})
        caller = msgspec.structs.replace(CALLER, key=key, fingerprint="f" if key else "")
        return plan_table(self.services, caller, TARGET, decode_into(CommitTableRequest, body, max_depth=64))

    def start(self, work: Work) -> GroupUnderWay:
        """A group of one."""
        return self.begin(self.services, (work,), lambda _, verdict: self.verdicts.append(verdict), True)

    def commit(self, work: Work) -> Verdict:
        """Its verdict, which comes once."""
        group, before = self.start(work), len(self.verdicts)
        if group.go_on(may_wait=False) is not True:
            while group.go_on(may_wait=True) is Pause.TRIES_AGAIN:
                pass
        assert len(self.verdicts) == before + 1
        return self.verdicts[-1]

    def live(self) -> list[str]:
        """What is live at the head, as often as it is, by the files on the disk."""
        self.services.journal.write_late()
        (head,) = self.services.heads.load((TARGET,))
        assert head is not None
        snapshot = head.metadata.find_snapshot(head.metadata.envelope.current_snapshot_id or -1)
        assert snapshot is not None
        found: list[str] = []
        place = str(snapshot.manifest_list)
        for manifest in decode_manifest_list(local(place).read_bytes(), location=place):
            where = manifest.manifest_path
            entries = decode_manifest(local(where).read_bytes(), manifest, location=where)
            found += [Path(entry.file.file_path).name for entry in entries if entry.is_live]
        return sorted(found)

    def count_snapshots(self) -> int:
        """As the store tells."""
        (head,) = self.services.heads.load((TARGET,))
        assert head is not None
        return len(head.metadata.snapshots)

    def count_files(self) -> int:
        """Manifests and lists on the disk, with those that are late."""
        self.services.journal.write_late()
        return len(list(local(self.folder).parent.rglob("*.avro")))


@pytest.fixture(autouse=True)
def has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 1 << 30)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    assert isinstance(made.commit(made.append("first")), Committed)
    yield made
    made.services.close()


@pytest.fixture
def conversations(monkeypatch: pytest.MonkeyPatch) -> list[GroupRun]:
    """Those that were begun."""
    begun: list[GroupRun] = []
    init = GroupRun.__init__

    def watched(self: GroupRun, *args: Any, **options: Any) -> None:
        begun.append(self)
        init(self, *args, **options)

    monkeypatch.setattr(GroupRun, "__init__", watched)
    return begun


# --- without a conversation ------------------------------------------------------------------------------


def test_an_append_to_a_table_that_is_known_needs_no_conversation(
    world: World, conversations: list[GroupRun]
) -> None:
    verdict = world.commit(world.append("a", "b"))
    assert isinstance(verdict, Committed)
    assert conversations == []
    assert world.live() == ["a", "b", "first"]


def test_an_append_that_may_fold_needs_none_where_it_is_alone(
    tmp_path: Path, conversations: list[GroupRun]
) -> None:
    world = World(tmp_path, **{"headgate.group": "fold"})
    world.commit(world.append("first"))
    conversations.clear()
    assert isinstance(world.commit(world.append("a")), Committed)
    assert conversations == []
    world.services.close()


def test_of_appends_one_by_one_only_those_that_merge_have_a_conversation(
    world: World, conversations: list[GroupRun]
) -> None:
    merged = []
    for number in range(170):  # so that merged and small manifests together are more than a tier takes
        conversations.clear()
        verdict = world.commit(world.append(f"{number:03}"))
        assert isinstance(verdict, Committed)
        table = verdict.heads[0].metadata
        snapshot = table.find_snapshot(table.envelope.current_snapshot_id or 0)
        assert snapshot is not None
        merged.append("manifests-replaced" in snapshot.summary)
        assert bool(conversations) == merged[-1], number
    assert sum(merged) == 170 // 25


def run_random(
    folder: Path, seed: int, begin: Any
) -> tuple[list[object], dict[str, list[Any]], dict[str, bytes]]:
    """Verdicts, rows and late files of random appends, some of which are refused or sent twice."""
    random = Random(seed)
    folder.mkdir()
    properties = {"format-version": random.choice("123"), "commit.manifest.min-count-to-merge": "5"}
    world = World(folder, begin=begin, **properties)
    told: list[object] = []
    for number in range(random.randint(2, 14)):
        world.clock.now_ms += random.choice((0, 1, 5, -3))
        names = [f"{number}-{one}" for one in range(random.choice((1, 1, 1, 2, 5)))]
        if random.random() < 0.15:
            names.append("0-0")
        fields: dict[str, Any] = {"summary": {"who": "me"}} if random.random() < 0.3 else {}
        key = random.choice((None, None, KEY, OTHER_KEY))
        verdict = world.commit(world.append(*names, key=key, **fields))
        told.append(_describe(verdict))
    with closing(sqlite3.connect(folder / "catalog.db")) as db:
        rows = {table: sorted(db.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    late = dict(world.services.unwritten)
    world.services.close()
    return told, rows, late


def _describe(verdict: Verdict) -> object:
    """What is told of it; which files were written for it is told to nobody."""
    if not isinstance(verdict, Committed):
        return type(verdict), str(verdict.error)
    candidates = [(one.target, one.base, one.metadata, one.updates) for one in verdict.candidates]
    return verdict.heads, candidates, verdict.replayed


def _with_conversation(services: Any, works: Any, answer: Any, trusts_cache: bool) -> GroupUnderWay:
    return GroupRun(services, works, answer, trusts_cache)


@pytest.mark.parametrize("seed", range(12))
def test_rows_files_and_verdicts_are_those_of_a_conversation(tmp_path: Path, seed: int) -> None:
    with_it = run_random(tmp_path / "w", seed, _with_conversation)
    shutil.rmtree(tmp_path / "w")  # the same place again: it is in every row
    without = run_random(tmp_path / "w", seed, begin_group)
    assert without[0] == with_it[0]
    assert without[1] == with_it[1]
    assert without[2] == with_it[2]


def test_the_time_in_the_database_is_not_that_of_judging(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = world.services.metrics.store_seconds.find("swap")
    (before, _), build = series.look(), AloneRun._build
    now = time.perf_counter()

    def late(self: AloneRun) -> Any:
        built = build(self)
        monkeypatch.setattr("headgate.service.alone.time.perf_counter", lambda: now + 1000)
        return built

    monkeypatch.setattr("headgate.service.alone.time.perf_counter", lambda: now)
    monkeypatch.setattr(AloneRun, "_build", late)
    world.commit(world.append("a"))
    counts, total_s = series.look()
    assert counts[-1] == before[-1] + 1
    assert total_s < 900


# --- what is not so plain --------------------------------------------------------------------------------


def test_a_path_that_is_live_is_refused_by_the_conversation(
    world: World, conversations: list[GroupRun]
) -> None:
    verdict = world.commit(world.append("new", "first"))
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, ConflictFound)
    assert len(conversations) == 1
    assert world.live() == ["first"]
    assert world.count_files() == 2


def test_other_changes_and_groups_of_several_have_a_conversation_from_the_beginning(world: World) -> None:
    begin: BeginGroup = lambda works, answer, trusts: begin_group(world.services, works, answer, trusts)  # noqa: E731 - typed
    delete = world.work(change("delete", remove_data_files=[f"{world.folder}/first"]))
    one, other = world.append("a"), world.append("b")
    for works, trusts in (((delete,), True), ((one, other), True), ((one,), False)):
        assert isinstance(begin(works, lambda *_: None, trusts), GroupRun)
    assert isinstance(begin((one,), lambda *_: None, True), AloneRun)


def test_where_it_may_wait_a_conversation_is_had(world: World, conversations: list[GroupRun]) -> None:
    assert world.start(world.append("a")).go_on(may_wait=True) is True
    assert len(conversations) == 1
    assert world.live() == ["a", "first"]


def test_without_room_for_late_files_a_conversation_writes_them_first(
    world: World, conversations: list[GroupRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_room(monkeypatch, 0)
    world.services.journal.late._look_at = float("-inf")
    assert isinstance(world.commit(world.append("a")), Committed)
    assert len(conversations) == 1
    assert world.live() == ["a", "first"]


def test_a_table_that_cleans_up_after_each_commit_does(tmp_path: Path, conversations: list[GroupRun]) -> None:
    world = World(tmp_path, **{"write.metadata.delete-after-commit.enabled": "true"})
    for name in ("a", "b"):
        assert isinstance(world.commit(world.append(name)), Committed)
    assert len(conversations) == 2
    world.services.close()


@pytest.mark.parametrize("begin", [begin_group, _with_conversation], ids=["alone", "conversation"])
def test_a_manifest_that_is_too_large_for_the_journal_has_no_row_there(
    tmp_path: Path, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.service.outbox._SOFT_BYTES_MAX", 1000)  # a header's schema alone has more
    world = World(tmp_path, begin=begin)
    for name in ("first", "second"):
        assert isinstance(world.commit(world.append(name)), Committed)
    rows = world.store.read_journal(before_ms=EVER_MS, limit=100)
    assert [row.location for row in rows if len(row.data) > 1000] == []
    assert len(world.services.manifests._footprints) == 0
    assert world.live() == ["first", "second"]
    world.services.close()


@pytest.mark.parametrize("begin", [begin_group, _with_conversation], ids=["alone", "conversation"])
def test_after_a_kill_a_list_larger_than_a_row_can_be_put_together_from_is_there(
    tmp_path: Path, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("journal", "outbox"):
        monkeypatch.setattr(f"headgate.service.{module}.FILE_BYTES_MAX", 1500)  # stands for 32 MiB
    world = World(tmp_path, begin=begin)
    for name in ("first", "second", "third"):
        assert isinstance(world.commit(world.append(name)), Committed)
    rows = world.store.read_journal(before_ms=EVER_MS, limit=100)
    world.services.journal.late.recall_places(
        {row.location for row in rows}
    )  # what is late dies with the process
    for row in rows:
        local(row.location).unlink(missing_ok=True)
    assert world.services.journal.recover().kept == 0
    assert world.live() == ["first", "second", "third"]
    world.services.close()


# --- when the swap is not plainly made -------------------------------------------------------------------


def raise_(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize("key", [None, KEY])
def test_a_swap_that_landed_unheard_is_found_and_told_once(world: World, key: str | None) -> None:
    def instead(swap: Swap) -> None:
        assert swap() is None
        raise CommitUnknown("COMMIT failed")

    world.store.instead = instead
    verdict = world.commit(world.append("a", key=key))
    assert isinstance(verdict, Committed)
    assert verdict.replayed
    assert world.live() == ["a", "first"]
    assert world.count_snapshots() == 2
    assert world.count_files() == 4


@pytest.mark.parametrize("key", [None, KEY])
def test_a_swap_of_which_nobody_knows_and_that_did_not_land_is_made_again_once(
    world: World, key: str | None
) -> None:
    world.store.instead = lambda _: raise_(CommitUnknown("COMMIT failed"))
    verdict = world.commit(world.append("a", key=key))
    assert isinstance(verdict, Committed)
    assert not verdict.replayed
    assert world.live() == ["a", "first"]
    assert world.count_snapshots() == 2


def test_a_swap_that_would_wait_is_made_in_a_thread_as_it_was_prepared(world: World) -> None:
    tries: list[int] = []

    def busy(_: Swap) -> Any:
        tries.append(1)
        world.store.instead = busy
        raise WouldWait("busy")

    world.store.instead = busy
    group = world.start(world.append("a"))
    assert group.go_on(may_wait=False) is Pause.HAS_TO_WAIT
    assert tries == [1]  # the event loop waits once for whoever writes, not twice
    world.store.instead = None
    assert group.go_on(may_wait=True) is True
    assert isinstance(world.verdicts[-1], Committed)
    assert world.live() == ["a", "first"]
    assert world.count_files() == 4


def test_a_swap_that_was_lost_to_another_process_is_built_on_its_head(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit(world.append("first"))
    theirs = build_services(
        world.services.settings,
        store=SqliteStore(tmp_path / "catalog.db"),
        files=world.services.files,
        clock_ms=world.clock,
    )
    theirs.heads.load((TARGET,))
    work = world.append("theirs")
    verdicts: list[Verdict] = []
    GroupRun(theirs, (work,), lambda _, verdict: verdicts.append(verdict), False).go_on(may_wait=True)
    assert isinstance(verdicts[0], Committed)
    swaps = world.store.swaps
    assert isinstance(world.commit(world.append("ours")), Committed)
    assert world.store.swaps == swaps + 2  # the lost one is not sent again
    assert world.live() == ["first", "ours", "theirs"]
    assert world.count_files() == 6  # what was built on the lost head is gone
    theirs.close()
    world.services.close()


def test_a_database_that_fails_before_the_swap_refuses_and_nothing_lands(world: World) -> None:
    def fail(_: Swap) -> Any:
        world.store.instead = fail
        raise StorageFailed("disk I/O error")

    world.store.instead = fail
    verdict = world.commit(world.append("a"))
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, StorageFailed)
    world.store.instead = None
    assert world.count_snapshots() == 1
    assert isinstance(world.commit(world.append("b")), Committed)
    assert world.live() == ["b", "first"]
