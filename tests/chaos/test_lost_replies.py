"""Answers lost on the way: asked again under the same key, each commit is there exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.service_process import Service, running_service, sqlite_url

from headgate.store.open import open_store
from tests.chaos.raw_commits import RawCommit, build_commit, count_events, must_be_sound, snapshot_ids
from tests.chaos.rest import (
    Call,
    create_namespace,
    create_table,
    load_metadata,
    must,
    send,
    settle,
    table_path,
)
from tests.chaos.unsafe_proxy import Fate, unsafe_proxy

COMMITS = 200
WRITERS = 4
ONE_TABLE_WRITERS = 16
ONE_TABLE_COMMITS = 10

# What happens to a commit's first, second and third try; the fourth passes.
FATES = (
    (Fate.LOSE_ANSWER,),
    (Fate.LOSE_ANSWER, Fate.LOSE_ANSWER),
    (Fate.LOSE_REST,),
    (Fate.REFUSE, Fate.LOSE_ANSWER),
    (Fate.REFUSE, Fate.REFUSE, Fate.LOSE_REST),
    (),
)


class Fates:
    """Decides by key: each commit in turn gets the next row of fates."""

    def __init__(self, rows: Sequence[tuple[Fate, ...]] = FATES) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._left: dict[bytes, list[Fate]] = {}
        self.met: Counter[Fate] = Counter()

    def __call__(self, request: bytes) -> Fate:
        marked = [line for line in request.split(b"\r\n") if line.lower().startswith(b"idempotency-key:")]
        if not marked:
            return Fate.PASS
        with self._lock:
            left = self._left.setdefault(marked[0], list(self._rows[len(self._left) % len(self._rows)]))
            fate = left.pop(0) if left else Fate.PASS
            self.met[fate] += 1
        return fate


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path) as service:
        create_namespace(service.port)
        yield service


@pytest.mark.slow
def test_commits_whose_answers_are_lost_are_there_exactly_once(service: Service, tmp_path: Path) -> None:
    fates = Fates()
    tables = [f"t{number}" for number in range(WRITERS)]

    def work(port: int, table: str) -> list[tuple[RawCommit, str]]:
        metadata = create_table(service.port, table)
        done = []
        for _ in range(COMMITS // WRITERS):
            commit = build_commit(table, metadata)
            call = commit.call()
            metadata = must(settle([port], call).answer)["metadata"]
            assert metadata["current-snapshot-id"] == commit.snapshot_id
            done.append((commit, call.key))
        return done

    with unsafe_proxy(service.port, fates) as port, ThreadPoolExecutor(WRITERS) as pool:
        done = list(pool.map(lambda table: work(port, table), tables))
    assert fates.met[Fate.PASS] == COMMITS
    assert fates.met[Fate.LOSE_ANSWER] >= COMMITS // 2
    store = open_store(sqlite_url(tmp_path / "catalog.db"))
    events = count_events(store)
    store.close()
    for table, commits in zip(tables, done, strict=True):
        ids = [commit.snapshot_id for commit, _ in commits]
        assert snapshot_ids(load_metadata([service.port], table)) == ids
        assert [events[key] for _, key in commits] == [1] * len(commits)
        must_be_sound(service.uri, table, expected=ids)


def test_a_refusal_whose_answer_is_lost_is_the_same_refusal_again(service: Service) -> None:
    metadata = create_table(service.port, "t")
    first, second = build_commit("t", metadata), build_commit("t", metadata)
    must(settle([service.port], first.call()).answer)
    with unsafe_proxy(service.port, Fates()) as port:
        settled = settle([port], second.call())
    assert settled.statuses == [None, 409]
    must_be_sound(service.uri, "t", expected=[first.snapshot_id], forbidden=[second.snapshot_id])


@pytest.mark.slow
def test_writers_on_one_table_that_refresh_and_retry_all_land_and_meet_no_failure(service: Service) -> None:
    create_table(service.port, "t")
    statuses: Counter[int | None] = Counter()
    lock = threading.Lock()

    def work(_: int) -> tuple[list[int], list[int]]:
        landed, refused = [], []
        while len(landed) < ONE_TABLE_COMMITS:
            commit = build_commit("t", must(send(service.port, "GET", table_path("t")))["metadata"])
            call: Call = commit.call()
            answer = send(service.port, call.method, call.path, call.body, key=call.key)
            with lock:
                statuses[answer.status] += 1
            (landed if answer.is_success else refused).append(commit.snapshot_id)
        return landed, refused

    with ThreadPoolExecutor(ONE_TABLE_WRITERS) as pool:
        done = list(pool.map(work, range(ONE_TABLE_WRITERS)))
    landed = [one for some, _ in done for one in some]
    refused = [one for _, some in done for one in some]
    assert set(statuses) <= {200, 409}, statuses
    assert len(landed) == statuses[200] == ONE_TABLE_WRITERS * ONE_TABLE_COMMITS
    assert sorted(snapshot_ids(load_metadata([service.port], "t"))) == sorted(landed)
    must_be_sound(service.uri, "t", expected=landed, forbidden=refused)
