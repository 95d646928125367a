"""Which snapshots a table lets go: every rule by example, and all of them against Java's rule spelled out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.apply import apply
from headgate.core.encoded_log import EncodedLog
from headgate.core.expire import (
    SNAPSHOT_AGE_DEFAULT_MS,
    Expiry,
    Terms,
    build_expiry,
    find_expired,
    read_terms,
    wants_expiry,
)
from headgate.core.requirements import find_failed
from headgate.core.table import Snapshot, SnapshotRef, TableMetadata, append_snapshot
from headgate.core.updates import RemoveSnapshots
from headgate.core.value import LONG_MAX
from headgate.errors import BadInput, CommitRefused
from tests.core.builders import T0, append, commit, history, ids, point, snapshot, statistics, table

NEVER = Terms(snapshot_age_max_ms=10**9)


def linear(count: int) -> TableMetadata:
    """Snapshots 1 to `count` on main, each a second after the one before."""
    return table(snapshots=count)


def at(n: int) -> int:
    """The time of snapshot n."""
    return T0 + n * 1000


def expired(metadata: TableMetadata, terms: Terms, *, now_ms: int, **more: Any) -> list[int]:
    found = find_expired(metadata, terms, now_ms=now_ms, **more)
    return [] if found is None else list(found.snapshot_ids)


def aged(age_s: int = 10, **more: Any) -> Terms:
    return Terms(snapshot_age_max_ms=age_s * 1000, **more)


# --- the age -----------------------------------------------------------------------------------------------


def test_snapshots_go_when_they_are_older_than_the_age() -> None:
    assert expired(linear(20), aged(), now_ms=at(20)) == list(range(1, 10))


def test_a_snapshot_of_exactly_the_age_stays() -> None:
    assert 10 not in expired(linear(20), aged(), now_ms=at(20))


def test_the_head_stays_however_old_it_is() -> None:
    assert expired(linear(3), aged(), now_ms=at(10_000)) == [1, 2]


def test_a_table_without_anything_old_has_nothing_to_expire() -> None:
    assert find_expired(linear(20), NEVER, now_ms=at(20)) is None


def test_a_table_without_snapshots_has_nothing_to_expire() -> None:
    assert find_expired(table(), aged(), now_ms=at(20)) is None


def test_as_many_as_asked_for_stay_although_they_are_old() -> None:
    assert expired(linear(6), aged(snapshots_min=4), now_ms=at(10_000)) == [1, 2]


def test_the_oldest_go_first_when_one_commit_does_not_take_all() -> None:
    assert expired(linear(20), aged(), now_ms=at(20), expired_max=4) == [1, 2, 3, 4]


def test_a_snapshot_behind_one_of_a_clock_that_ran_ahead_goes_in_its_time() -> None:
    log = EncodedLog()
    for n, seconds in ((1, 60), (2, 5), (3, 70)):
        log = append_snapshot(log, snapshot(n, timestamp_ms=T0 + seconds * 1000))
    metadata = TableMetadata(linear(3).envelope, log, EncodedLog())
    assert expired(metadata, aged(), now_ms=T0 + 20_000) == [2]


def test_only_the_old_end_of_the_log_is_decoded() -> None:
    young = [*linear(5).snapshots]
    broken = EncodedLog.of(young).append(b'{"broken": true}', key=99)
    metadata = TableMetadata(linear(5).envelope, broken, EncodedLog())
    assert expired(metadata, Terms(snapshot_age_max_ms=0), now_ms=at(2) - 120_000) == []


# --- the count ---------------------------------------------------------------------------------------------


def test_a_branch_over_its_bound_loses_its_oldest_although_they_are_young() -> None:
    assert expired(linear(20), Terms(snapshots_max=5), now_ms=at(20)) == list(range(1, 16))


def test_the_bound_never_takes_what_the_minimum_keeps() -> None:
    assert expired(linear(6), Terms(snapshots_max=1, snapshots_min=4), now_ms=at(6)) == [1, 2]


def test_a_table_within_its_bound_keeps_everything_young() -> None:
    assert find_expired(linear(5), Terms(snapshots_max=5), now_ms=at(5)) is None


def test_age_and_bound_together_take_what_either_takes() -> None:
    assert expired(linear(20), aged(snapshots_max=30), now_ms=at(20)) == list(range(1, 10))
    assert expired(linear(20), aged(snapshots_max=3), now_ms=at(20)) == list(range(1, 18))


# --- refs --------------------------------------------------------------------------------------------------


def test_a_tag_keeps_its_snapshot_and_nothing_before_it() -> None:
    tagged = commit(linear(6), point("v1", 3, "tag"))
    assert expired(tagged, aged(), now_ms=at(10_000)) == [1, 2, 4, 5]


def test_a_branch_keeps_its_own_newest() -> None:
    forked = commit(linear(4), *append(5, branch="audit", parent_snapshot_id=2))
    assert expired(forked, aged(), now_ms=at(10_000)) == [1, 2, 3]


def test_a_branch_may_keep_more_than_the_table_does() -> None:
    forked = commit(linear(4), point("slow", 4, min_snapshots_to_keep=3))
    assert expired(forked, aged(), now_ms=at(10_000)) == [1]


def test_a_branch_may_keep_its_snapshots_longer_than_the_table_does() -> None:
    forked = commit(linear(20), point("slow", 8, max_snapshot_age_ms=15_000))
    assert expired(forked, aged(), now_ms=at(20)) == [1, 2, 3, 4, 9]


def test_a_branch_may_keep_its_snapshots_shorter_than_the_table_does() -> None:
    forked = linear(4)
    for n in (5, 6, 7):
        forked = commit(forked, *append(n, branch="quick", parent_snapshot_id=n - 1))
    quick = commit(forked, point("quick", 7, max_snapshot_age_ms=1))
    assert expired(quick, NEVER, now_ms=at(8)) == [5, 6]


def test_a_ref_goes_when_its_snapshot_is_older_than_the_ref_may_be() -> None:
    tagged = commit(linear(6), point("v1", 2, "tag"), point("v2", 5, "tag"))
    found = find_expired(tagged, aged(100, ref_age_max_ms=3_000), now_ms=at(7))
    assert found == Expiry((), (("v1", 2),))


def test_a_ref_may_have_an_age_of_its_own() -> None:
    tagged = commit(linear(6), point("v1", 2, "tag", max_ref_age_ms=1_000), point("v2", 2, "tag"))
    found = find_expired(tagged, NEVER, now_ms=at(7))
    assert found is not None
    assert found.refs == (("v1", 2),)


def test_main_stays_whatever_its_age() -> None:
    main = commit(linear(2), point("main", 2, max_ref_age_ms=1))
    found = find_expired(main, Terms(snapshot_age_max_ms=1, ref_age_max_ms=1), now_ms=at(100))
    assert found == Expiry((1,))


def test_what_only_a_gone_branch_led_to_stays_until_it_is_old() -> None:
    forked = commit(linear(4), *append(5, branch="audit", parent_snapshot_id=4))
    terms = Terms(snapshot_age_max_ms=50_000, ref_age_max_ms=1_000)
    assert find_expired(forked, terms, now_ms=at(10)) == Expiry((), (("audit", 5),))
    assert expired(forked, terms, now_ms=at(100)) == [1, 2, 3, 5]


# --- what no ref leads to ------------------------------------------------------------------------------------


def staged(n: int) -> Any:
    """An update that adds a snapshot for audit, on top of the one before, and publishes nothing."""
    add, _ = append(n, summary={"operation": "append", "wap.id": "w"})
    return add


def test_a_staged_snapshot_stays_until_it_is_old() -> None:
    wap = commit(linear(4), staged(5))
    assert expired(wap, aged(), now_ms=at(14)) == [1, 2, 3]
    assert expired(wap, aged(), now_ms=at(16)) == [1, 2, 3, 5]


def test_a_staged_snapshot_is_not_counted_to_its_branch() -> None:
    wap = commit(linear(4), staged(5))
    assert expired(wap, Terms(snapshots_max=4), now_ms=at(6)) == []
    assert expired(wap, Terms(snapshots_max=3), now_ms=at(6)) == [1]


def test_what_was_rolled_back_stays_until_it_is_old() -> None:
    back = commit(linear(6), point("main", 4))
    assert expired(back, aged(), now_ms=at(15)) == [1, 2, 3]
    assert expired(back, aged(), now_ms=at(17)) == [1, 2, 3, 5, 6]


# --- the commit ----------------------------------------------------------------------------------------------


def test_the_commit_removes_snapshots_refs_and_statistics() -> None:
    made = commit(linear(6), point("v1", 2, "tag", max_ref_age_ms=1_000))
    envelope = msgspec.structs.replace(made.envelope, statistics=(statistics(1), statistics(6)))
    made = TableMetadata(envelope, made.snapshots, made.history)
    found = find_expired(made, aged(2), now_ms=at(7))
    assert found is not None
    requirements, updates = build_expiry(made, found)
    assert find_failed(requirements, made) is None
    left = commit(made, *updates, now_ms=at(7))
    assert ids(left) == history(left) == [5, 6]
    assert set(left.envelope.refs) == {"main"}
    assert [s.snapshot_id for s in left.envelope.statistics] == [6]


def test_the_commit_still_holds_when_the_branch_moved_on() -> None:
    made = linear(6)
    found = find_expired(made, aged(2), now_ms=at(7))
    assert found is not None
    requirements, updates = build_expiry(made, found)
    moved = commit(made, *append(7))
    assert find_failed(requirements, moved) is None
    assert ids(commit(moved, *updates)) == [5, 6, 7]


def test_the_commit_is_refused_when_a_ref_has_come_to_need_a_snapshot() -> None:
    made = linear(6)
    found = find_expired(made, aged(2), now_ms=at(7))
    assert found is not None
    tagged = commit(made, point("late", 2, "tag"))
    with pytest.raises(CommitRefused, match="late"):
        apply(tagged, build_expiry(made, found)[1], now_ms=at(7))


def test_the_commit_is_refused_when_a_ref_that_goes_has_moved() -> None:
    made = commit(linear(6), point("old", 2, max_ref_age_ms=1_000))
    found = find_expired(made, NEVER, now_ms=at(7))
    assert found is not None
    moved = commit(made, point("old", 6, max_ref_age_ms=1_000))
    assert find_failed(build_expiry(made, found)[0], moved) is not None


def test_the_commit_is_refused_when_another_table_has_the_name() -> None:
    made = linear(6)
    requirements, _ = build_expiry(made, Expiry((1,)))
    other = msgspec.structs.replace(made.envelope, table_uuid="00000000-0000-0000-0000-000000000000")
    assert find_failed(requirements, TableMetadata(other, made.snapshots, made.history)) is not None


def test_an_expiry_of_refs_alone_removes_no_snapshots() -> None:
    _, updates = build_expiry(linear(2), Expiry((), (("v1", 1),)))
    assert not [update for update in updates if isinstance(update, RemoveSnapshots)]


# --- properties ----------------------------------------------------------------------------------------------


ASKS = """
    gc.enabled  headgate.expire.enabled  default  asks
    -           -                        no       no
    -           -                        yes      yes
    -           true                     no       yes
    -           TRUE                     no       yes
    -           false                    yes      no
    -           maybe                    no       no
    -           maybe                    yes      yes
    false       true                     yes      no
    true        true                     no       yes
"""


@pytest.mark.parametrize("row", [line.split() for line in ASKS.strip().splitlines()[1:]])
def test_a_table_is_expired_only_if_it_or_the_service_asks(row: list[str]) -> None:
    names = ("gc.enabled", "headgate.expire.enabled")
    properties = {name: value for name, value in zip(names, row[:2], strict=True) if value != "-"}
    assert wants_expiry(properties, default=row[2] == "yes") is (row[3] == "yes")


def test_the_terms_of_a_table_are_its_properties() -> None:
    assert read_terms({}) == Terms(SNAPSHOT_AGE_DEFAULT_MS, 1, LONG_MAX, None)
    assert SNAPSHOT_AGE_DEFAULT_MS == 432_000_000
    assert read_terms(
        {
            "history.expire.max-snapshot-age-ms": "1000",
            "history.expire.min-snapshots-to-keep": "7",
            "history.expire.max-ref-age-ms": str(LONG_MAX),
            "headgate.expire.max-snapshots": "50",
        }
    ) == Terms(1000, 7, LONG_MAX, 50)


def test_no_property_makes_a_branch_keep_less_than_its_head() -> None:
    zero = {"history.expire.min-snapshots-to-keep": "0", "headgate.expire.max-snapshots": "0"}
    assert expired(linear(3), read_terms(zero), now_ms=at(3)) == [1, 2]


@pytest.mark.parametrize("text", ["", "-1", "five", "1.5", "9" * 30, "٣"])
@pytest.mark.parametrize("name", ["history.expire.max-snapshot-age-ms", "headgate.expire.max-snapshots"])
def test_a_property_that_is_no_number_expires_nothing(name: str, text: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_terms({name: text})
    assert refused.value.field == name


# --- against the rule spelled out ------------------------------------------------------------------------------


def brute_force(metadata: TableMetadata, terms: Terms, now_ms: int) -> tuple[set[int], set[str]]:
    """Java's rule, word by word, with the bound by count added to what a branch keeps."""
    snapshots = {s.snapshot_id: s for s in metadata.iter_snapshots()}
    refs = metadata.envelope.refs

    def ancestors(id_: int | None) -> list[Snapshot]:
        found = []
        while id_ is not None and id_ in snapshots:
            found.append(snapshots[id_])
            id_ = snapshots[id_].parent_snapshot_id
        return found

    kept_refs = {}
    for name, ref in refs.items():
        age_max = terms.ref_age_max_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        if name == "main" or now_ms - snapshots[ref.snapshot_id].timestamp_ms <= age_max:
            kept_refs[name] = ref
    retained, referenced = set(), set()
    for ref in kept_refs.values():
        retained.add(ref.snapshot_id)
        referenced.add(ref.snapshot_id)
        if ref.type != "branch":
            continue
        age = terms.snapshot_age_max_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
        least = terms.snapshots_min if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        walk = ancestors(ref.snapshot_id)
        referenced.update(s.snapshot_id for s in walk)
        for count, ancestor in enumerate(walk):
            young = ancestor.timestamp_ms >= now_ms - age
            bounded = terms.snapshots_max is None or count < terms.snapshots_max
            if not (count < least or (young and bounded)):
                break
            retained.add(ancestor.snapshot_id)
    for id_, found in snapshots.items():
        if id_ not in referenced and found.timestamp_ms >= now_ms - terms.snapshot_age_max_ms:
            retained.add(id_)
    return set(snapshots) - retained, set(refs) - set(kept_refs)


MINUTE = 60_000
AGES = st.integers(1, 12).map(lambda minutes: minutes * 10 * MINUTE)


@st.composite
def tables(draw: st.DrawFn, *, in_order: bool) -> TableMetadata:
    """Any forest of snapshots with any refs, some with retention of their own."""
    log, count = EncodedLog(), draw(st.integers(1, 14))
    times = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    for n, minutes in enumerate(sorted(times) if in_order else times, start=1):
        parent = draw(st.none() | st.integers(1, n - 1)) if n > 1 else None
        made = snapshot(n, parent_snapshot_id=parent, timestamp_ms=T0 + minutes * 10 * MINUTE)
        log = append_snapshot(log, made)
    refs = {"main": SnapshotRef(snapshot_id=draw(st.integers(1, count)), type="branch")}
    for name in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        tag = draw(st.booleans())
        refs[name] = SnapshotRef(
            snapshot_id=draw(st.integers(1, count)),
            type="tag" if tag else "branch",
            min_snapshots_to_keep=None if tag else draw(st.none() | st.integers(1, 5)),
            max_snapshot_age_ms=None if tag else draw(st.none() | AGES),
            max_ref_age_ms=draw(st.none() | AGES),
        )
    envelope = msgspec.structs.replace(
        table().envelope, refs=refs, current_snapshot_id=refs["main"].snapshot_id, last_sequence_number=count
    )
    return TableMetadata(envelope, log, EncodedLog())


TERMS = st.builds(
    Terms,
    snapshot_age_max_ms=AGES,
    snapshots_min=st.integers(1, 5),
    ref_age_max_ms=st.just(LONG_MAX) | AGES,
    snapshots_max=st.none() | st.integers(1, 6),
)
NOW = st.integers(0, 24).map(lambda minutes: T0 + minutes * 10 * MINUTE)


@given(tables(in_order=True), TERMS, NOW)
def test_exactly_what_the_rule_says_goes_when_snapshots_are_in_order_of_time(
    metadata: TableMetadata, terms: Terms, now_ms: int
) -> None:
    found = find_expired(metadata, terms, now_ms=now_ms) or Expiry(())
    gone, gone_refs = brute_force(metadata, terms, now_ms)
    assert {name for name, _ in found.refs} == gone_refs
    assert set(found.snapshot_ids) == gone
    assert list(found.snapshot_ids) == sorted(found.snapshot_ids)  # oldest first


@given(tables(in_order=False), TERMS, NOW)
def test_nothing_goes_that_the_rule_keeps_whatever_the_order_of_time(
    metadata: TableMetadata, terms: Terms, now_ms: int
) -> None:
    found = find_expired(metadata, terms, now_ms=now_ms) or Expiry(())
    gone, gone_refs = brute_force(metadata, terms, now_ms)
    assert set(found.snapshot_ids) <= gone
    assert {name for name, _ in found.refs} == gone_refs


@given(tables(in_order=False), TERMS, NOW, st.integers(1, 5))
def test_in_several_commits_nothing_goes_that_one_commit_would_have_kept(
    metadata: TableMetadata, terms: Terms, now_ms: int, expired_max: int
) -> None:
    gone, _ = brute_force(metadata, terms, now_ms)
    left, before = metadata, None
    for _ in range(20):
        found = find_expired(left, terms, now_ms=now_ms, expired_max=expired_max)
        if found is None or found == before:
            break
        made = apply(left, build_expiry(left, found)[1], now_ms=now_ms)
        assert made is not None
        left, before = made, found
    assert {item.key for item in metadata.snapshots} - {item.key for item in left.snapshots} <= gone


def test_a_history_with_a_cycle_ends() -> None:
    log = EncodedLog()
    for n, parent in ((1, 2), (2, 1), (3, 2)):
        log = append_snapshot(log, snapshot(n, parent_snapshot_id=parent))
    metadata = TableMetadata(linear(3).envelope, log, EncodedLog())
    assert expired(metadata, Terms(snapshots_max=2), now_ms=at(3)) == [1]
    assert expired(metadata, Terms(snapshot_age_max_ms=1, snapshots_min=9), now_ms=at(3)) == []
