"""Races, lost replies and busy catalogs: exactly once, the right error, and no file too many or too few."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from headgate.client.keys import new_key
from headgate.errors import CommitRefused, CommitUnknown, ConflictFound, Diverged, HeadgateError, Overloaded
from headgate.library import Clock, Counters, Policy, RetryBudget, Spread
from tests.library.lake import NAME, Lake, live_files, quick, rivals, rows
from tests.library.unsure import Ending, busy, landed_as_lost, landed_unheard, not_landed_unheard, open_unsure

versions = pytest.mark.parametrize("version", [1, 2, 3])


@versions
def test_an_append_that_loses_races_lands_once_and_leaves_nothing_behind(lake: Lake, version: int) -> None:
    lake.create(version=version)
    rival = lake.open()
    moves = [lambda i=i: rival.append(rows(100 + i)) for i in range(3)]
    done = lake.open(policy=quick(observer=rivals(*moves))).append(rows(1))
    assert done.sent == 4
    assert lake.ids() == [1, 100, 101, 102]
    lake.check()


@versions
def test_a_delete_in_another_partition_is_no_conflict(lake: Lake, version: int) -> None:
    lake.create(version=version)
    lake.open().append(pa.concat_tables([rows(1, 2), rows(3, 4, part="b")]))
    rival = lake.open()
    table = lake.open(policy=quick(observer=rivals(lambda: rival.delete("part = 'b' and id = 3"))))
    assert table.delete("part = 'a' and id = 1").sent == 2
    assert lake.ids() == [2, 4]
    lake.check()


@versions
def test_a_delete_refuses_rows_that_were_added_to_what_it_read(lake: Lake, version: int) -> None:
    lake.create(version=version)
    lake.open().append(rows(1, 2))
    rival = lake.open()
    table = lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(1)))))
    with pytest.raises(ConflictFound) as refused:
        table.delete("id = 1")
    assert refused.value.evidence["rule"] == "added-data-files"
    assert refused.value.evidence["files"]
    assert lake.ids() == [1, 1, 2]
    lake.check()


def test_under_snapshot_isolation_added_rows_are_allowed(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1, 2))
    rival = lake.open()
    table = lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(1)))))
    table.delete("id = 1", isolation="snapshot")
    assert lake.ids() == [1, 2]
    lake.check()


def test_two_deletes_of_one_file_are_a_conflict_at_every_level(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1, 2))
    rival = lake.open()
    table = lake.open(policy=quick(observer=rivals(lambda: rival.delete("id = 2"))))
    with pytest.raises(ConflictFound):
        table.delete("id = 1", isolation="snapshot")
    assert lake.ids() == [1]
    lake.check()


def test_a_rewrite_beside_appends_is_no_conflict(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1))
    rival = lake.open()
    table = lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(5)))))
    table.rewrite(list(live_files(lake)), rows(1))
    assert lake.ids() == [1, 5]
    lake.check()


def test_work_from_a_base_that_was_rolled_back_has_diverged(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    first = table.refresh().snapshot_id()
    table.append(rows(2))
    stale = lake.open()
    with table.transaction() as transaction, transaction.manage_snapshots() as manage:
        manage.set_current_snapshot(snapshot_id=first)
    table.append(rows(3))
    with pytest.raises(Diverged):
        stale.row_delta(add_data=rows(9), referenced=["x"], command="update")
    assert lake.ids() == [1, 3]


# --- unknown ------------------------------------------------------------------------------------------------


@versions
@pytest.mark.parametrize("ending", [landed_unheard, not_landed_unheard, busy])
def test_whatever_a_reply_says_the_rows_are_there_once(lake: Lake, version: int, ending: Ending) -> None:
    lake.create(version=version)
    table, _ = open_unsure(lake, ending, ending)
    done = table.append(rows(1))
    assert lake.ids() == [1]
    assert done.snapshot_id == lake.metadata()["current-snapshot-id"]
    lake.check()


def test_a_landed_swap_is_found_although_others_committed_and_expired_since(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1))
    table, row = open_unsure(lake, landed_unheard)
    rival = lake.open()

    def expire() -> None:
        ours = lake.metadata()["current-snapshot-id"]
        rival.append(rows(7))
        rival.commit([{"action": "remove-snapshots", "snapshot-ids": [ours]}])

    row.after_swap = expire
    table.append(rows(2))
    assert lake.ids() == [1, 2, 7]


def test_a_swap_that_fell_off_the_log_and_expired_is_never_made_again(lake: Lake) -> None:
    lake.create(properties={"write.metadata.previous-versions-max": "1"})
    lake.open().append(rows(1))
    table, row = open_unsure(lake, landed_unheard)
    rival = lake.open()

    def expire() -> None:
        ours = lake.metadata()["current-snapshot-id"]
        rival.append(rows(7))
        rival.commit([{"action": "remove-snapshots", "snapshot-ids": [ours]}])

    row.after_swap = expire
    with pytest.raises(CommitUnknown) as unknown:
        table.append(rows(2))
    assert unknown.value.evidence["key"]
    assert lake.ids() == [1, 2, 7]


def test_a_race_that_was_lost_to_more_commits_than_the_log_holds_is_tried_again(lake: Lake) -> None:
    lake.create(properties={"write.metadata.previous-versions-max": "1"})
    rival = lake.open()

    def append_many() -> None:
        for number in range(4):
            rival.append(rows(100 + number))

    done = lake.open(policy=quick(observer=rivals(append_many))).append(rows(1))
    assert done.sent == 2
    assert lake.ids() == [1, 100, 101, 102, 103]


def test_an_outcome_that_cannot_be_proved_is_unknown_and_nothing_is_deleted(lake: Lake) -> None:
    lake.create()
    table, _ = open_unsure(lake, *[not_landed_unheard] * 3, policy=quick(retries_max=2))
    with pytest.raises(CommitUnknown) as unknown:
        table.append(rows(1))
    assert unknown.value.evidence["key"]
    # The base still stands: any of the three may be on its way, so every file of theirs stays.
    assert len([path for path in lake.find_orphans() if "metadata.json" in path]) == 3
    assert len([path for path in lake.find_orphans() if path.endswith(".parquet")]) == 1


def test_a_definition_whose_reply_was_lost_has_landed_once(lake: Lake) -> None:
    lake.create()
    table, _ = open_unsure(lake, landed_unheard)
    with table.transaction() as transaction, transaction.update_schema() as update:
        update.add_column("more", StringType())
    assert [column["name"] for column in lake.metadata()["schemas"][-1]["fields"]][-1] == "more"
    assert len(lake.metadata()["schemas"]) == 2


def test_a_load_from_a_locked_database_is_tried_again(lake: Lake) -> None:
    lake.create()
    table, row = open_unsure(lake)
    row.failing_loads = 3
    table.append(rows(1))
    assert lake.ids() == [1]


# --- bounds -------------------------------------------------------------------------------------------------


def test_retries_end_at_the_number_that_the_table_allows(lake: Lake) -> None:
    lake.create(properties={"commit.retry.num-retries": "2"})
    counters = Counters()
    table, _ = open_unsure(lake, *[busy] * 10, policy=quick(observer=counters))
    with pytest.raises(HeadgateError):
        table.append(rows(1))
    assert counters.attempts == 4  # three attempts, and a last look
    assert counters.verdicts == {"refused": 1}
    assert lake.find_orphans() == set()


def test_the_total_timeout_ends_a_commit_before_it_would_be_over(lake: Lake) -> None:
    lake.create(properties={"commit.retry.total-timeout-ms": "5000"})
    now_s, slept = [0.0], list[float]()

    def sleep_s(seconds: float) -> None:
        now_s[0] += seconds
        slept.append(seconds)

    clock = Clock(now_s=lambda: now_s[0], sleep_s=sleep_s, draw=lambda: 0.999)
    policy = Policy(clock=clock, budget=RetryBudget(), spread=Spread.JAVA, wait_min_ms=1000, wait_max_ms=2000)
    table, _ = open_unsure(lake, *[busy] * 100, policy=policy)
    with pytest.raises(CommitRefused, match="total-timeout"):
        table.append(rows(1))
    assert sum(slept) < 5
    assert lake.find_orphans() == set()


def test_a_process_whose_commits_never_land_stops_retrying(lake: Lake) -> None:
    lake.create()
    budget = RetryBudget(3, refill_per_s=0)
    table, _ = open_unsure(lake, *[busy] * 100, policy=quick(budget=budget))
    with pytest.raises(CommitRefused, match="used up its retries"):
        table.append(rows(1))
    lake.open(policy=quick(budget=budget)).append(rows(2))
    assert budget.take()  # a commit that landed filled it up


def test_loads_that_fail_for_ever_say_so(lake: Lake) -> None:
    lake.create()
    table, row = open_unsure(lake, policy=quick(retries_max=3))
    row.failing_loads = 100
    with pytest.raises(Overloaded) as caught:
        table.append(rows(1))
    assert "key" not in caught.value.evidence  # nobody has asked to commit yet


def test_a_commit_that_landed_and_was_told_it_lost_is_unknown_while_nobody_can_look(lake: Lake) -> None:
    """A resend below us met its own commit, and then the catalog went away."""
    lake.create()
    table, row = open_unsure(lake, landed_as_lost, policy=quick(retries_max=2))

    def go_away() -> None:
        row.failing_loads = 100

    row.after_swap = go_away
    with pytest.raises(CommitUnknown):
        table.append(rows(1))
    assert lake.ids() == [1]  # its file is there


def test_a_delete_that_lost_to_more_commits_than_the_log_holds_is_refused_with_the_conflict(
    lake: Lake,
) -> None:
    lake.create(properties={"write.metadata.previous-versions-max": "1"})
    lake.open().append(rows(1))
    rival = lake.open()

    def many() -> None:
        for number in range(3):
            rival.append(rows(1, value=float(number)))

    with pytest.raises(ConflictFound):
        lake.open(policy=quick(observer=rivals(many))).delete("id = 1")


def test_a_commit_that_did_nothing_for_want_of_a_load_names_its_key(lake: Lake) -> None:
    lake.create()
    table, row = open_unsure(lake, busy, policy=quick(retries_max=3, observer=lambda _: fail()))

    def fail() -> None:
        row.failing_loads = 100

    key = new_key()
    with pytest.raises(Overloaded) as caught:
        table.append(rows(1), key=key)
    assert caught.value.evidence["key"] == key


def test_writers_in_threads_lose_nothing_with_the_defaults(lake: Lake) -> None:
    lake.create()
    failed: list[BaseException] = []

    def write(writer: int) -> None:
        table = lake.open(NAME, policy=Policy())
        try:
            for i in range(5):
                table.append(rows(writer * 100 + i))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert lake.ids() == sorted(writer * 100 + i for writer in range(4) for i in range(5))
    lake.check()
