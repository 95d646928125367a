"""Group commit through the application: everybody lands once, and everybody is told what is his."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headgate.store.base import Store
from headgate.store.memory import MemoryStore
from tests.chaos.raw_commits import count_events
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import TRANSACTION, Wire, change, data_file, live_paths, table_change
from tests.service.job_calls import append, file_of, opener_of, with_table
from tests.service.table_calls import KEY, OTHER_KEY, load, local, path

STORES = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
WAIT_S = 30
TARGET = (("a",), "t")
FOLD, CHAIN = "return=minimal, group=fold", "return=minimal, group=chain"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path, metadata_inline_bytes=0) as made:
        yield with_table(made)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    def postgres_url() -> str:
        return str(request.getfixturevalue("postgres_fresh_url"))

    return opener_of(request.param, tmp_path, postgres_url)()


def send(
    client: AppClient,
    *updates: Wire,
    table: str = "t",
    key: str | None = None,
    prefer: str = "return=minimal",
    requirements: tuple[Wire, ...] = (),
) -> Callable[[], httpx.Response]:
    """A commit of one table that is to be sent."""
    body = {"requirements": list(requirements), "updates": list(updates)}
    headers = {"Prefer": prefer, **({} if key is None else {"Idempotency-Key": key})}
    return lambda: client.post(path(table), body, headers=headers)


class Crowd:
    """Requests that wait for a gate, in the order in which they were sent."""

    def __init__(self, client: AppClient, pool: ThreadPoolExecutor) -> None:
        self._client, self._pool = client, pool
        self.sent: list[Future[httpx.Response]] = []

    def send(self, call: Callable[[], httpx.Response]) -> None:
        """Send one, and see that it waits."""
        depth = self._client.services.gates.depth
        self.sent.append(self._pool.submit(call))
        wait_until(lambda: self._client.services.gates.depth > depth or self.sent[-1].done())
        assert not self.sent[-1].done(), self.sent[-1].result().text


def wait_until(is_so: Callable[[], bool]) -> None:
    """Until it is so; a test that waits in vain fails."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


@contextmanager
def gathered(client: AppClient) -> Iterator[Crowd]:
    """While this lasts, what is sent to the table `t` waits; at the end it is one group."""
    with ThreadPoolExecutor(16) as pool, client.services.gates.hold([TARGET]):
        yield Crowd(client, pool)


def together(client: AppClient, *calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """The answers to requests that were one group."""
    with gathered(client) as crowd:
        for call in calls:
            crowd.send(call)
    return [answer.result(WAIT_S) for answer in crowd.sent]


def groups_of(client: AppClient) -> tuple[int, int]:
    """How many swaps there were, and how many commits they published."""
    (metric,) = client.services.metrics.group_size.collect()
    values = {sample.name.rsplit("_", 1)[-1]: sample.value for sample in metric.samples}
    return int(values["count"]), int(values["sum"])


def verdicts_of(client: AppClient) -> dict[str, int]:
    """How many commits ended how."""
    (metric,) = client.services.metrics.commits.collect()
    return {s.labels["verdict"]: int(s.value) for s in metric.samples if s.name.endswith("_total")}


def events_of(client: AppClient) -> dict[str, int]:
    """How many events each key has."""
    return count_events(client.services.store)


# --- many at once -----------------------------------------------------------------------------------------


def test_appends_of_many_threads_all_land_once_and_share_swaps(tmp_path: Path, store: Store) -> None:
    threads, each = 8, 4
    with app_client(tmp_path, store=store, metadata_inline_bytes=0) as client:
        with_table(client)
        place = load(client)["metadata"]["location"]
        before = groups_of(client)

        def write(number: int) -> dict[str, int]:
            told: dict[str, int] = {}
            for n in range(each):
                name = f"{number}-{n}"
                files = [data_file(f"{place}/data/{name}")]
                answer = send(client, change("append", add_data_files=files, summary={"mark": name}))()
                assert answer.status_code == 200, answer.text
                told[name] = answer.json()["snapshot-id"]
            return told

        with ThreadPoolExecutor(threads) as pool:
            with client.services.gates.hold([TARGET]):
                writers = [pool.submit(write, number) for number in range(threads)]
                wait_until(lambda: client.services.gates.depth == threads)
            told = {name: id_ for writer in writers for name, id_ in writer.result(WAIT_S).items()}
        metadata = load(client)["metadata"]
        assert {s["summary"]["mark"]: s["snapshot-id"] for s in metadata["snapshots"]} == told
        assert len(metadata["snapshots"]) == threads * each
        assert live_paths(client, "t") == sorted(told)
        assert metadata["snapshots"][-1]["summary"]["total-data-files"] == str(threads * each)
        swaps, commits = (after - was for after, was in zip(groups_of(client), before, strict=True))
        assert commits == threads * each
        assert swaps < commits


def test_plain_commits_and_changes_are_one_group_and_each_has_its_own_verdict(client: AppClient) -> None:
    base = send(client, append(client, "old"))().json()["snapshot-id"]
    fence = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": base}
    word = {"action": "set-properties", "updates": {"word": "1"}}
    before = groups_of(client)
    answers = together(
        client,
        send(client, word, requirements=(fence,)),
        send(client, append(client, "new")),
        send(client, {**word, "updates": {"word": "2"}}, requirements=(fence,)),
        send(client, change("overwrite", remove_data_files=[file_of(client, "old")["file-path"]])),
        send(client, change("overwrite", remove_data_files=[file_of(client, "old")["file-path"]])),
    )
    assert [answer.status_code for answer in answers] == [200, 200, 409, 200, 409]
    assert groups_of(client) == (before[0] + 1, before[1] + 3)
    assert live_paths(client, "t") == ["new"]
    assert load(client)["metadata"]["properties"]["word"] == "1"


def test_a_refusal_by_a_group_mate_says_whose_commit_it_was(client: AppClient) -> None:
    base = send(client, append(client, "old"))().json()["snapshot-id"]
    gone = change("overwrite", remove_data_files=[file_of(client, "old")["file-path"]], base_snapshot_id=base)
    first, second = together(client, send(client, gone, key=KEY), send(client, gone, key=OTHER_KEY))
    theirs = second.json()["error"]["conflict"]["theirs"]
    assert theirs["snapshot-id"] == first.json()["snapshot-id"]
    assert theirs["key"] == KEY


def test_a_transaction_in_the_middle_of_single_commits_is_whole(tmp_path: Path, store: Store) -> None:
    rounds = 6
    with app_client(tmp_path, store=store, metadata_inline_bytes=0) as client:
        with_table(client, "t", "u")
        places = {name: load(client, name)["metadata"]["location"] for name in ("t", "u")}

        def adds(table: str, name: str) -> Wire:
            files = [data_file(f"{places[table]}/data/{name}")]
            return change("append", add_data_files=files, summary={"mark": name})

        def single(table: str) -> None:
            for n in range(rounds):
                answer = send(client, adds(table, f"{table}{n}"), table=table)()
                assert answer.status_code == 200, answer.text

        def across(first: str, second: str) -> None:
            for n in range(rounds):
                name = f"{first}{second}{n}"
                changes = [table_change(table, adds(table, name)) for table in (first, second)]
                answer = client.post(TRANSACTION, {"table-changes": changes})
                assert answer.status_code == 204, answer.text

        with ThreadPoolExecutor(6) as pool:
            work = [pool.submit(single, table) for table in "tu"]
            work += [pool.submit(across, *pair) for pair in ("tu", "ut")]
            for one in work:
                one.result(WAIT_S)
        both = [f"{pair}{n}" for pair in ("tu", "ut") for n in range(rounds)]
        for table in ("t", "u"):
            expected = sorted([*both, *(f"{table}{n}" for n in range(rounds))])
            assert live_paths(client, table) == expected
            assert marks(client, table) == Counter(expected)


def marks(client: AppClient, table: str = "t") -> Counter[str]:
    """The marks of all snapshots."""
    return Counter(s["summary"]["mark"] for s in load(client, table)["metadata"]["snapshots"])


# --- folding ----------------------------------------------------------------------------------------------


def test_appends_that_prefer_it_share_a_snapshot_and_their_keys_are_all_kept(client: AppClient) -> None:
    calls = [
        send(client, append(client, "a"), prefer=FOLD, key=KEY),
        send(client, append(client, "b"), prefer=FOLD, key=OTHER_KEY),
        send(client, append(client, "c"), prefer=FOLD),
        send(client, append(client, "d")),
    ]
    answers = together(client, *calls)
    ids = [answer.json()["snapshot-id"] for answer in answers]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    snapshots = load(client)["metadata"]["snapshots"]
    assert [s["summary"]["added-data-files"] for s in snapshots] == ["3", "1"]
    assert live_paths(client, "t") == ["a", "b", "c", "d"]
    events = events_of(client)
    assert events[KEY] == events[OTHER_KEY] == 1
    again = [call().json() for call in calls[:2]]
    assert [one["snapshot-id"] for one in again] == [ids[0], ids[0]]
    assert len(load(client)["metadata"]["snapshots"]) == 2


def test_a_table_may_ask_for_folding_and_a_request_may_decline(client: AppClient) -> None:
    send(client, {"action": "set-properties", "updates": {"headgate.group": "fold"}})()
    answers = together(
        client,
        send(client, append(client, "a")),
        send(client, append(client, "b")),
        send(client, append(client, "c"), prefer=CHAIN),
    )
    ids = [answer.json()["snapshot-id"] for answer in answers]
    assert ids[0] == ids[1] != ids[2]


# --- keys -------------------------------------------------------------------------------------------------


def test_a_commit_that_landed_through_the_gate_is_answered_again(client: AppClient) -> None:
    call = send(client, append(client, "a"), key=KEY)
    first = call()
    send(client, append(client, "b"))()
    again = call()
    assert (again.status_code, again.json()) == (200, first.json())
    assert live_paths(client, "t") == ["a", "b"]
    assert events_of(client)[KEY] == 1


def test_a_commit_that_the_gate_refused_is_refused_again_also_when_it_would_stand_now(
    client: AppClient,
) -> None:
    gone = change("overwrite", remove_data_files=[file_of(client, "later")["file-path"]])
    call = send(client, gone, key=KEY)
    first = call()
    assert first.status_code == 409
    send(client, append(client, "later"))()
    again = call()
    assert (again.status_code, again.content) == (409, first.content)
    assert live_paths(client, "t") == ["later"]


@pytest.mark.parametrize("first", ["landed", "refused"])
def test_a_key_that_was_used_for_another_request_is_refused(client: AppClient, first: str) -> None:
    update = append(client, "a")
    if first == "refused":
        update = change("overwrite", remove_data_files=[file_of(client, "none")["file-path"]])
    send(client, update, key=KEY)()
    other = send(client, append(client, "b"), key=KEY)()
    assert other.status_code == 400
    assert other.json()["error"]["headgate"]["field"] == "Idempotency-Key"
    assert "b" not in live_paths(client, "t")


def test_one_request_that_waits_twice_lands_once_and_both_get_its_answer(client: AppClient) -> None:
    call = send(client, append(client, "a"), key=KEY)
    first, other, second = together(client, call, send(client, append(client, "b")), call)
    assert first.json() == second.json()
    assert other.status_code == 200
    assert live_paths(client, "t") == ["a", "b"]
    assert events_of(client)[KEY] == 1


def test_a_key_that_waits_for_two_requests_is_good_for_the_first(client: AppClient) -> None:
    first, second = together(
        client,
        send(client, append(client, "a"), key=KEY),
        send(client, append(client, "b"), key=KEY),
    )
    assert (first.status_code, second.status_code) == (200, 400)
    assert live_paths(client, "t") == ["a"]


def test_a_member_that_changes_nothing_is_committed_and_its_key_is_kept_by_the_swap(
    client: AppClient,
) -> None:
    word = {"action": "set-properties", "updates": {"word": "1"}}
    send(client, word)()
    before = verdicts_of(client)["committed"]
    nothing = send(client, word, key=KEY)
    first, _ = together(client, nothing, send(client, append(client, "a")))
    assert first.status_code == 200
    assert verdicts_of(client) == {"committed": before + 2}
    assert nothing().status_code == 200
    (replays,) = client.services.metrics.replays.collect()
    assert replays.samples[0].value == 1  # of the second time alone


# --- bounds -----------------------------------------------------------------------------------------------


def test_over_the_bound_of_the_queue_a_commit_is_refused_with_a_time_to_come_again(tmp_path: Path) -> None:
    with app_client(tmp_path, gate_queue_max=2) as client:
        with_table(client)
        with gathered(client) as crowd:
            for name in ("a", "b"):
                crowd.send(send(client, append(client, name)))
            full = send(client, append(client, "c"), key=KEY)()
        assert full.status_code == 503
        assert int(full.headers["retry-after"]) >= 1
        assert [answer.result(WAIT_S).status_code for answer in crowd.sent] == [200, 200]
        assert live_paths(client, "t") == ["a", "b"]
        again = send(client, append(client, "c"), key=KEY)()
        assert again.status_code == 200  # a refusal for now is not kept under the key


def test_a_commit_whose_patience_ends_in_the_queue_writes_nothing(client: AppClient) -> None:
    late, other = together(
        client,
        send(client, append(client, "a"), prefer="wait=0", key=KEY),
        send(client, append(client, "b")),
    )
    assert (late.status_code, other.status_code) == (503, 200)
    assert int(late.headers["retry-after"]) >= 1
    assert live_paths(client, "t") == ["b"]
    folder = local(load(client)["metadata"]["location"]) / "metadata"
    assert len(list(folder.glob("snap-*"))) == 1
    assert send(client, append(client, "a"), prefer="wait=30", key=KEY)().status_code == 200


def test_commits_that_wait_when_the_service_stops_are_made(tmp_path: Path) -> None:
    store = MemoryStore()
    with app_client(tmp_path, store=store, group_max=1) as client:
        with_table(client)
        calls = [send(client, append(client, name)) for name in ("a", "b", "c")]
        answers = together(client, *calls)
        client.services.gates.close()
        assert [answer.status_code for answer in answers] == [200] * 3
        late = send(client, append(client, "d"))()
        assert late.status_code == 503
