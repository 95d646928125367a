"""A thousand fine-grained commits whose answers are lost after they landed: each is there exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.service_process import Service, running_service, sqlite_url

from headgate.store.open import open_store
from tests.chaos.fine_commits import append, find_orphans, live_names, marks, overwrite, table_change
from tests.chaos.raw_commits import count_events, must_be_sound
from tests.chaos.rest import Call, create_namespace, create_table, load_metadata, must, settle, table_path
from tests.chaos.test_lost_replies import Fates
from tests.chaos.unsafe_proxy import Fate, unsafe_proxy

COMMITS = 1000
TABLES = 25
WRITERS = 8
AUDITED = 3

# The service commits and its answer is lost, once or twice; only then does the client hear of it.
LOST = (
    (Fate.LOSE_ANSWER,),
    (Fate.LOSE_REST,),
    (Fate.LOSE_ANSWER,),
    (Fate.REFUSE, Fate.LOSE_ANSWER),
    (Fate.LOSE_REST, Fate.LOSE_ANSWER),
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path) as service:
        create_namespace(service.port)
        yield service


@pytest.mark.slow
def test_a_thousand_fine_grained_commits_whose_answers_are_lost_are_there_exactly_once(
    service: Service, tmp_path: Path
) -> None:
    """The writers meet on the tables: what is asked again may find that others have been there since."""
    fates = Fates(LOST)
    tables = [f"t{number}" for number in range(TABLES)]
    places = {table: str(create_table(service.port, table)["location"]) for table in tables}

    def work(port: int, number: int) -> str:
        table = tables[number % TABLES]
        body = table_change(table, append(places[table], f"f{number}"))
        call = Call("POST", table_path(table), body)
        must(settle([port], call).answer)
        return call.key

    with unsafe_proxy(service.port, fates) as port, ThreadPoolExecutor(WRITERS) as pool:
        keys = list(pool.map(lambda number: work(port, number), range(COMMITS)))
    lost = fates.met[Fate.LOSE_ANSWER] + fates.met[Fate.LOSE_REST]
    assert (fates.met[Fate.PASS], lost) == (COMMITS, COMMITS + COMMITS // len(LOST))
    store = open_store(sqlite_url(tmp_path / "catalog.db"))
    events = count_events(store)
    store.close()
    assert Counter(events[key] for key in keys) == {1: COMMITS}
    for at, table in enumerate(tables):
        expected = sorted(f"f{number}" for number in range(at, COMMITS, TABLES))
        metadata = load_metadata([service.port], table)
        assert sorted(marks(metadata)) == expected
        assert live_names(metadata) == expected
        # A checkpoint that was noted after the next swap was built is in no log (ADR 0002, "Price").
        assert [n for n in find_orphans(service.port, table) if not n.endswith(".metadata.json")] == []
    for table in tables[:AUDITED]:
        must_be_sound(service.uri, table)


@pytest.mark.slow
def test_a_transaction_whose_answer_is_lost_is_whole_and_there_once(service: Service) -> None:
    places = {table: str(create_table(service.port, table)["location"]) for table in ("a", "b")}
    lost = ((Fate.LOSE_ANSWER,), (Fate.REFUSE, Fate.LOSE_ANSWER))  # half of a 204 is a whole one
    with unsafe_proxy(service.port, Fates(lost)) as port:
        for number in range(20):
            old, new = f"f{number - 1}", f"f{number}"
            changes = [
                table_change("a", overwrite(places["a"], old, new) if number else append(places["a"], new)),
                table_change("b", append(places["b"], new)),
            ]
            settled = settle([port], Call("POST", "/v1/transactions/commit", {"table-changes": changes}))
            assert (settled.answer.status, settled.asked > 1) == (204, True)
    names = [f"f{number}" for number in range(20)]
    for table, live in (("a", ["f19"]), ("b", sorted(names))):
        metadata = load_metadata([service.port], table)
        assert (marks(metadata), live_names(metadata)) == (names, live)
        must_be_sound(service.uri, table)


def test_a_conflict_whose_answer_is_lost_is_the_same_conflict_again(service: Service) -> None:
    place = str(create_table(service.port, "t")["location"])
    must(
        settle([service.port], Call("POST", table_path("t"), table_change("t", append(place, "old")))).answer
    )
    for new in ("first", "second"):
        call = Call("POST", table_path("t"), table_change("t", overwrite(place, "old", new)))
        with unsafe_proxy(service.port, Fates(LOST)) as port:
            settled = settle([port], call)
    assert settled.statuses == [None, 409]
    assert settled.answer.body["error"]["conflict"]["rule"] == "missing-required-removes"
    assert marks(load_metadata([service.port], "t")) == ["old", "first"]
    must_be_sound(service.uri, "t")
