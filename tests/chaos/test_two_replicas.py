"""Two services on one PostgreSQL, killed in turn under sixteen writers: what was acknowledged is there, once."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.table import Table
from requests.exceptions import RequestException
from tools.service_process import Service, find_free_port, start_service

from headgate.store.open import open_store
from tests.chaos.raw_commits import (
    RawCommit,
    build_commit,
    build_transaction,
    count_events,
    must_be_sound,
    snapshot_ids,
)
from tests.chaos.rest import (
    NS,
    Answer,
    Call,
    LostAnswerError,
    Settled,
    create_namespace,
    create_table,
    load_metadata,
    send,
    settle,
)

ROWS = 3  # in each append of PyIceberg
COMMITS_MAX = 400  # of one writer
CALM_S = 3.0  # between kills
NEXT_COMMIT_S_MAX = 10.0
COMMIT_S_MAX = 20.0
SHARED = ("shared_0", "shared_1")
PAIRS = (("left_0", "right_0"), ("left_1", "right_1"))
ROW_TABLE = "rows"


@dataclass
class Ledger:
    """What writers were told. Each has one of its own; they are put together at the end."""

    landed: list[tuple[str, tuple[RawCommit, ...]]] = field(default_factory=list)  # key and its commits
    refused: list[tuple[str, tuple[RawCommit, ...]]] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)  # batches of rows
    append_refused: list[int] = field(default_factory=list)
    append_unknown: list[int] = field(default_factory=list)

    def note(self, settled: Settled, call: Call, commits: Sequence[RawCommit]) -> None:
        """Keep a sure answer; nothing but success or a lost race is expected."""
        assert settled.answer.is_success or settled.answer.status == 409, settled
        (self.landed if settled.answer.is_success else self.refused).append((call.key, tuple(commits)))
        self.settled.append(settled)


@dataclass(frozen=True)
class Fleet:
    """Two services and the way to bring one of them back."""

    services: list[Service]
    start: Callable[[int], Service]

    @property
    def ports(self) -> list[int]:
        """Where they answer: a service that comes back has the port it had."""
        return [service.port for service in self.services]

    def kill(self, number: int) -> None:
        """kill -9."""
        self.services[number].kill()

    def restart(self, number: int) -> None:
        """A new process on the same port."""
        self.services[number] = self.start(number)


@pytest.fixture
def fleet(tmp_path: Path, postgres_fresh_url: str) -> Iterator[Fleet]:
    (tmp_path / "warehouse").mkdir()
    ports = [find_free_port(), find_free_port()]

    def start(number: int) -> Service:
        return start_service(
            warehouse=tmp_path / "warehouse",
            database=postgres_fresh_url,
            log=tmp_path / f"service-{number}.log",
            port=ports[number],
            # One is large by decree, so that its metadata files are checkpoints.
            options=("--metadata-inline-bytes", "0") if number else (),
            env={"PYTHONFAULTHANDLER": "1"},
        )

    fleet = Fleet([start(0), start(1)], start)
    yield fleet
    for service in fleet.services:
        service.stop()


def write_alone(ports: Sequence[int], table: str, stop: threading.Event) -> Ledger:
    """Commits on a table of its own; each waits for the sure answer to the one before."""
    ledger = Ledger()
    metadata = load_metadata(ports, table)
    for _ in range(COMMITS_MAX):
        if stop.is_set():
            break
        commit = build_commit(table, metadata)
        call = commit.call()
        settled = settle(ports, call)
        assert settled.answer.status == 200, settled  # nobody else writes here
        ledger.note(settled, call, [commit])
        metadata = settled.answer.body["metadata"]
    return ledger


def write_together(ports: Sequence[int], table: str, stop: threading.Event) -> Ledger:
    """Commits on a table that others write too: refresh and try again when refused."""
    ledger = Ledger()
    for _ in range(COMMITS_MAX):
        if stop.is_set():
            break
        commit = build_commit(table, load_metadata(ports, table))
        call = commit.call()
        ledger.note(settle(ports, call), call, [commit])
    return ledger


def write_pairs(ports: Sequence[int], pair: tuple[str, str], stop: threading.Event) -> Ledger:
    """Transactions over two tables."""
    ledger = Ledger()
    for _ in range(COMMITS_MAX):
        if stop.is_set():
            break
        commits = [build_commit(table, load_metadata(ports, table)) for table in pair]
        call = build_transaction(commits)
        ledger.note(settle(ports, call), call, commits)
    return ledger


def append_rows(uris: Sequence[str], number: int, stop: threading.Event) -> Ledger:
    """Real appends of PyIceberg, which sends no key: a lost answer stays unknown, and another batch is next."""
    ledger = Ledger()
    catalogs = [RestCatalog(f"c{at}", uri=uri) for at, uri in enumerate(uris)]
    for count in range(COMMITS_MAX):
        if stop.is_set():
            break
        batch = number * COMMITS_MAX + count
        table = _load(catalogs[count % len(catalogs)])
        if table is None:
            stop.wait(0.05)
            continue
        try:
            table.append(pa.table({"id": pa.array([batch] * ROWS, pa.int64())}))
            ledger.appended.append(batch)
        except CommitFailedException:
            ledger.append_refused.append(batch)
        except (RESTError, RequestException):
            ledger.append_unknown.append(batch)
    return ledger


def _load(catalog: RestCatalog) -> Table | None:
    try:
        return catalog.load_table((NS, ROW_TABLE))
    except (RESTError, RequestException):
        return None  # the service is being restarted


def next_commit_s(port: int, table: str) -> float:
    """How long the survivor needs for a commit, right after the other was killed."""
    started = time.monotonic()
    while time.monotonic() - started < NEXT_COMMIT_S_MAX:
        commit = build_commit(table, load_metadata([port], table)).call()
        try:
            answer: Answer = send(port, commit.method, commit.path, commit.body, key=commit.key)
        except LostAnswerError:
            continue
        if answer.is_success:
            break
    return time.monotonic() - started


@pytest.mark.slow
@pytest.mark.postgres
def test_two_replicas_killed_in_turn_keep_every_acknowledged_commit_exactly_once(
    fleet: Fleet, postgres_fresh_url: str
) -> None:
    uris = [service.uri for service in fleet.services]
    create_namespace(fleet.ports[0])
    alone = [f"own_{number}" for number in range(4)]
    tables = [*alone, *SHARED, *(name for pair in PAIRS for name in pair), ROW_TABLE, "probe"]
    for name in tables:
        create_table(fleet.ports[0], name)

    stop = threading.Event()
    with ThreadPoolExecutor(16) as pool:
        working = []
        for side in (
            0,
            1,
        ):  # eight writers each way; the other service is where a lost answer is asked for again
            ports, homes = fleet.ports, list(uris)
            if side:
                ports.reverse()
                homes.reverse()
            working += [
                pool.submit(write_alone, ports, name, stop) for name in alone[2 * side : 2 * side + 2]
            ]
            working += [pool.submit(write_together, ports, name, stop) for name in SHARED]
            working += [pool.submit(write_pairs, ports, pair, stop) for pair in PAIRS]
            working += [pool.submit(append_rows, homes[:1], 2 * side + at, stop) for at in (0, 1)]
        pauses = []
        try:
            for victim in (0, 1):
                stop.wait(CALM_S)
                fleet.kill(victim)
                pauses.append(next_commit_s(fleet.ports[1 - victim], "probe"))
                fleet.restart(victim)
            stop.wait(CALM_S)
        finally:
            stop.set()
        ledgers = [work.result(timeout=90) for work in working]

    assert max(pauses) < NEXT_COMMIT_S_MAX
    landed = [one for ledger in ledgers for one in ledger.landed]
    refused = [one for ledger in ledgers for one in ledger.refused]
    settled = [one for ledger in ledgers for one in ledger.settled]
    asked_again = [one for one in settled if one.asked > 1]
    assert max(one.elapsed_s for one in settled) < COMMIT_S_MAX  # no lock of a dead process holds anybody up
    assert asked_again, "the kills met no request, so nothing was tried"

    store = open_store(postgres_fresh_url)
    events = count_events(store)
    assert {key: events.get(key, 0) for key, _ in landed} == {key: len(commits) for key, commits in landed}
    assert [key for key, _ in refused if key in events] == []
    wanted, banned = ids_by_table(landed), ids_by_table(refused)
    for name in (*alone, *SHARED, *(name for pair in PAIRS for name in pair)):
        assert Counter(snapshot_ids(load_metadata(fleet.ports, name))) == Counter(wanted[name])
        must_be_sound(uris[0], name, expected=wanted[name], forbidden=banned[name])
    must_be_sound(uris[1], "probe")
    must_be_sound(uris[0], ROW_TABLE)
    check_rows(uris[1], ledgers)
    files_come_back(fleet, postgres_fresh_url)
    store.close()

    figures = {
        "commits acknowledged": len(landed),
        "refused": len(refused),
        "asked again": len(asked_again),
        "appends acknowledged": sum(len(ledger.appended) for ledger in ledgers),
        "appends unknown": sum(len(ledger.append_unknown) for ledger in ledgers),
        "next commit after each kill, s": [round(pause, 3) for pause in pauses],
        "longest commit, s": round(max(one.elapsed_s for one in settled), 3),
        "statuses": dict(Counter(status for one in settled for status in one.statuses)),
    }
    sys.stdout.write(f"{figures}\n")  # pytest -rP shows it


def ids_by_table(known: Sequence[tuple[str, tuple[RawCommit, ...]]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _, commits in known:
        for commit in commits:
            found.setdefault(commit.table, []).append(commit.snapshot_id)
    names = (*SHARED, *(name for pair in PAIRS for name in pair), *(f"own_{number}" for number in range(4)))
    return {name: found.get(name, []) for name in names}


def check_rows(uri: str, ledgers: Sequence[Ledger]) -> None:
    """Every acknowledged batch once and whole, every refused one absent, every unknown one whole or absent."""
    table = RestCatalog("check", uri=uri).load_table((NS, ROW_TABLE))
    rows = Counter(table.scan().to_arrow()["id"].to_pylist())
    appended = [batch for ledger in ledgers for batch in ledger.appended]
    unknown = {batch for ledger in ledgers for batch in ledger.append_unknown}
    assert appended
    assert {batch: rows[batch] for batch in appended} == dict.fromkeys(appended, ROWS)
    assert [batch for ledger in ledgers for batch in ledger.append_refused if batch in rows] == []
    assert set(rows) - set(appended) <= unknown
    assert set(rows.values()) == {ROWS}


def files_come_back(fleet: Fleet, database: str) -> None:
    """After a stop and a start no metadata file is behind its head."""
    for service in fleet.services:
        assert service.stop() == 0
    store = open_store(database)
    stale = [header.name for header in store.stale_checkpoints(limit=100)]
    store.close()
    assert stale == []
