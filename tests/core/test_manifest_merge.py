"""Manifest compaction as a plan and as entries: what is merged when, within which bounds, and what stays true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.core.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from headgate.core.manifest_merge import (
    COMMIT_BUDGET,
    FULL_SIZE_BYTES,
    MERGE_ENABLED,
    MIN_COUNT,
    TARGET_SIZE_BYTES,
    AddedTwice,
    Bin,
    Budget,
    Merged,
    MergeKind,
    MergeManifests,
    MergePlan,
    MergePolicy,
    background_change,
    find_rest,
    merge,
    parse_policy,
    plan_merge,
)
from headgate.core.merged_entries import merge_entries
from tests.core.builders import table
from tests.core.merged_table import DATA, DELETES, SPECS, Entries, World, facts, file

KIB, MIB = 1024, 1024 * 1024
EIGHT = MergePolicy(min_count=8)  # fan-in 2
TWELVE = MergePolicy(min_count=12)  # fan-in 3
PLENTY = Budget(entries=10**9, size_bytes=10**12, look=1000)
NO_FULL = 10**15


def small(path: str, *, entries: int = 1, existing: bool = False, **facts: Any) -> ManifestFile:
    """A manifest that one commit added, or that was merged already."""
    counts = {
        "added_files_count": 0 if existing else entries,
        "existing_files_count": entries if existing else 0,
        "deleted_files_count": 0,
    }
    return ManifestFile(**{
        "manifest_path": path,
        "manifest_length": 4 * KIB,
        "partition_spec_id": 3,
        "content": DATA,
        "sequence_number": 1,
        "min_sequence_number": 1,
        "added_snapshot_id": 1,
        **counts,
        **facts,
    })  # fmt: skip


def several(count: int, prefix: str = "m", **facts: Any) -> list[ManifestFile]:
    return [small(f"{prefix}{n}", **facts) for n in range(count)]


def names(plan: MergePlan | None) -> list[str]:
    """Each bin as its paths."""
    return [] if plan is None else [" ".join(m.manifest_path for m in part) for part in plan.bins]


# --- the policy -----------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_iceberg_and_of_paimon() -> None:
    assert parse_policy({}) == MergePolicy(True, 8 * MIB, 100, 16 * MIB)
    assert MergePolicy().fan_in == 25


def test_a_table_chooses_each_number_by_a_property() -> None:
    chosen = {MERGE_ENABLED: "TRUE", TARGET_SIZE_BYTES: "1000", MIN_COUNT: "4", FULL_SIZE_BYTES: "2000"}
    assert parse_policy(chosen) == MergePolicy(True, 1000, 4, 2000)


@pytest.mark.parametrize("nonsense", ["", "many", "-1", "1.5", "9" * 19, "٣"])
def test_a_value_that_is_no_number_counts_as_the_default(nonsense: str) -> None:
    properties = dict.fromkeys((TARGET_SIZE_BYTES, MIN_COUNT, FULL_SIZE_BYTES), nonsense)
    assert parse_policy(properties) == MergePolicy()


@pytest.mark.parametrize("text", ["false", "FALSE", "no", ""])
def test_anything_but_true_turns_merging_off_as_in_java(text: str) -> None:
    policy = parse_policy({MERGE_ENABLED: text})
    assert plan_merge(several(500), policy) == MergePlan()
    assert background_change(several(500), policy, idle=True) is None


# --- minor: tiers ---------------------------------------------------------------------------------------


def test_a_tier_is_merged_when_it_is_full_and_not_before() -> None:
    assert names(plan_merge(several(2), TWELVE)) == []
    assert names(plan_merge(several(3), TWELVE)) == ["m0 m1 m2"]


def test_a_full_tier_is_merged_without_the_older_and_larger_ones_behind_it() -> None:
    older = several(2, "old", entries=3, existing=True)
    assert names(plan_merge([*several(3), *older], TWELVE)) == ["m0 m1 m2"]


def test_a_larger_tier_has_its_turn_when_the_smaller_one_is_not_full() -> None:
    older = several(3, "old", entries=3, existing=True)
    assert names(plan_merge([*several(2), *older], TWELVE)) == ["old0 old1 old2"]


def test_of_two_full_tiers_a_commit_merges_the_smaller_one() -> None:
    older = several(3, "old", entries=3, existing=True)
    assert names(plan_merge([*several(3), *older], TWELVE)) == ["m0 m1 m2"]


def test_a_small_manifest_between_larger_ones_is_merged_with_them() -> None:
    caught = [small("a", entries=4), small("b"), small("c", entries=5)]
    assert names(plan_merge(caught, TWELVE)) == ["a b c"]


def test_nothing_is_merged_across_a_manifest_that_is_big_enough() -> None:
    big = small("big", manifest_length=8 * MIB)
    assert names(plan_merge([*several(2), big, *several(9, "old")], TWELVE)) == []


def test_manifests_of_each_spec_and_content_are_merged_among_themselves() -> None:
    mixed = [
        small(f"{spec_id}{content.name[1]}{n}", partition_spec_id=spec_id, content=content)
        for n in range(3)
        for spec_id in SPECS
        for content in ManifestContent
    ]
    assert sorted(names(plan_merge(mixed, TWELVE))) == [
        "3A0 3A1 3A2", "3E0 3E1 3E2", "4A0 4A1 4A2", "4E0 4E1 4E2",
    ]  # fmt: skip


def test_what_cannot_be_read_or_was_refused_before_is_left_out() -> None:
    manifests = [small("secret", key_metadata=b"k"), small("refused"), *several(2)]
    assert names(plan_merge(manifests, TWELVE, skip={"refused"})) == []
    assert names(plan_merge(manifests, TWELVE)) == ["refused m0 m1"]


def test_a_merged_manifest_is_no_larger_than_the_target() -> None:
    policy = replace(TWELVE, target_size_bytes=10 * KIB)
    assert names(plan_merge(several(3), policy)) == ["m1 m2"]


def test_a_manifest_without_counts_is_sized_by_its_bytes() -> None:
    unknown: dict[str, Any] = {
        "added_files_count": None,
        "existing_files_count": None,
        "deleted_files_count": None,
    }
    old = several(3, manifest_length=400 * 256, **unknown)
    assert names(plan_merge([*several(2, "new"), *old], TWELVE, budget=PLENTY)) == ["m0 m1 m2"]
    assert names(plan_merge(old, TWELVE, budget=replace(PLENTY, entries=1199))) == ["m1 m2"]


# --- the budget -----------------------------------------------------------------------------------------


def test_what_exceeds_the_budget_is_merged_in_part_and_deferred() -> None:
    plan = plan_merge(several(3, entries=2), TWELVE, budget=replace(PLENTY, entries=4))
    assert (names(plan), plan.deferred) == (["m1 m2"], MergeKind.MINOR)


def test_a_commit_that_could_merge_nothing_says_that_there_is_work() -> None:
    plan = plan_merge(several(3, entries=2), TWELVE, budget=replace(PLENTY, entries=3))
    assert plan == MergePlan(None, (), MergeKind.MINOR)


def test_copied_entries_cost_their_bytes_only() -> None:
    settled = several(3, entries=9, existing=True)
    assert names(plan_merge(settled, TWELVE, budget=Budget(0, 12 * KIB, 10))) == ["m0 m1 m2"]
    assert names(plan_merge(settled, TWELVE, budget=Budget(0, 12 * KIB - 1, 10))) == ["m1 m2"]


def test_groups_share_one_budget_between_them() -> None:
    manifests = [*several(3), *several(3, "d", content=DELETES)]
    assert names(plan_merge(manifests, TWELVE, budget=replace(PLENTY, entries=5))) == ["m0 m1 m2", "d1 d2"]


def test_planning_looks_at_few_manifests_however_many_there_are() -> None:
    def endless() -> Iterator[ManifestFile]:
        for n in range(COMMIT_BUDGET.look):
            yield small(f"m{n}", manifest_length=9 * MIB)
        pytest.fail("looked too far")

    assert plan_merge(endless(), MergePolicy()) == MergePlan()


def test_a_fan_in_beyond_what_is_looked_at_by_default_is_still_met() -> None:
    policy = MergePolicy(min_count=4 * 400)
    assert len(plan_merge(several(400), policy, budget=replace(PLENTY, look=10)).bins[0]) == 400


# --- full -----------------------------------------------------------------------------------------------


def test_full_compaction_comes_first_and_gathers_what_is_small_or_carries_removed_files() -> None:
    policy = MergePolicy(target_size_bytes=100 * KIB, min_count=8, full_size_bytes=211 * KIB)
    manifests = [
        small("a"),
        small("big", manifest_length=200 * KIB),
        small("b"),
        small("carries", manifest_length=200 * KIB, deleted_files_count=1),
        small("c"),
    ]
    plan = plan_merge(manifests, policy, budget=PLENTY)
    assert (plan.kind, names(plan)) == (MergeKind.FULL, ["carries", "a b"])
    assert (
        plan_merge(manifests, replace(policy, full_size_bytes=213 * KIB), budget=PLENTY).kind
        is not MergeKind.FULL
    )


def test_full_compaction_beyond_the_budget_is_deferred_while_minor_goes_on() -> None:
    policy = replace(TWELVE, full_size_bytes=12 * KIB)
    plan = plan_merge(several(4), policy, budget=replace(PLENTY, entries=3))
    assert plan == MergePlan(MergeKind.MINOR, (tuple(several(4)[1:]),), MergeKind.FULL)


def test_manifests_that_no_bin_could_hold_together_are_no_work() -> None:
    policy = MergePolicy(target_size_bytes=100 * KIB, full_size_bytes=100 * KIB)
    assert plan_merge(several(20, manifest_length=60 * KIB), policy, budget=PLENTY) == MergePlan()
    assert background_change(several(20, manifest_length=60 * KIB), policy, idle=True) is None


# --- rest: for how long there is nothing to plan ----------------------------------------------------------

SOME = st.builds(
    small,
    st.uuids().map(str),
    entries=st.sampled_from([1, 1, 1, 2, 3, 10, 30]),
    existing=st.booleans(),
    manifest_length=st.sampled_from([KIB, 4 * KIB, 40 * KIB]),
    partition_spec_id=st.sampled_from([3, 3, 3, 4]),
    content=st.sampled_from([DATA, DATA, DELETES]),
)
POLICIES = st.builds(
    MergePolicy,
    min_count=st.sampled_from([1, 12, 20, 40]),
    target_size_bytes=st.sampled_from([8 * KIB, 40 * KIB, 8 * MIB]),
    full_size_bytes=st.sampled_from([60 * KIB, 200 * KIB, 16 * MIB]),
)


@given(st.lists(SOME, max_size=30), st.lists(SOME, max_size=20), POLICIES, st.integers(1, 40))
def test_as_long_as_manifests_rest_a_plan_merges_nothing_of_them(
    older: list[ManifestFile], newer: list[ManifestFile], policy: MergePolicy, look: int
) -> None:
    budget = replace(COMMIT_BUDGET, look=look)
    assume(not plan_merge(older, policy, budget=budget).bins)
    rest = find_rest(older, policy, budget=budget)
    for manifest in newer:
        if rest is None:
            break
        assert not plan_merge(older, policy, budget=budget).bins
        older, rest = [manifest, *older], rest.after([manifest])


def test_a_tier_that_fills_one_by_one_rests_until_it_is_full() -> None:
    rest, count = find_rest(several(1), MergePolicy()), 1
    while rest is not None and count < 100:
        rest, count = rest.after(several(1)), count + 1
    assert count == MergePolicy().fan_in
    assert len(plan_merge(several(count), MergePolicy()).bins[0]) == count


def test_a_manifest_of_a_higher_tier_ends_the_rest_of_those_behind_it() -> None:
    older = [*several(2), *several(2, "old", entries=3)]
    rest = find_rest(older, TWELVE)
    assert rest is not None
    assert rest.after([small("one", entries=3)]) is None
    assert names(plan_merge([small("one", entries=3), *older], TWELVE)) == ["one m0 m1 old0 old1"]


# --- the background -------------------------------------------------------------------------------------


def test_the_background_fills_bins_from_the_oldest_on_and_leaves_the_newest() -> None:
    policy = MergePolicy(target_size_bytes=13 * KIB)
    plan = background_change(several(8), policy, idle=False)
    assert (names(plan), plan and plan.deferred) == (["m5 m6 m7", "m2 m3 m4"], None)


def test_the_newest_bin_is_merged_when_it_has_more_than_the_minimum() -> None:
    no_tier_is_full = [small(f"m{n}", entries=2**n, existing=True) for n in range(9)]
    assert background_change(no_tier_is_full[:8], EIGHT, idle=False) is None
    plan = background_change(no_tier_is_full, EIGHT, idle=False)
    assert plan == MergePlan(MergeKind.MINOR, (tuple(no_tier_is_full),))


def test_the_background_merges_a_full_tier_that_is_too_much_for_a_commit() -> None:
    tier = several(3, entries=300)
    assert names(plan_merge(tier, TWELVE)) == []
    assert names(background_change([small("new"), *tier], TWELVE, idle=False)) == ["m0 m1 m2"]


def test_full_compaction_in_the_background_is_done_in_parts_that_say_so() -> None:
    policy = MergePolicy(full_size_bytes=12 * KIB)
    plan = background_change(several(4), policy, idle=False, budget=replace(PLENTY, entries=3))
    assert plan == MergePlan(MergeKind.FULL, (tuple(several(4)[1:]),), MergeKind.FULL)


def test_work_without_a_part_that_fits_is_still_done_some_time() -> None:
    policy = MergePolicy(full_size_bytes=0)
    tight = replace(PLENTY, entries=5)
    assert names(background_change(several(3, entries=9), policy, idle=False, budget=tight)) == ["m1 m2"]
    alone = [small("a", entries=9, deleted_files_count=1)]
    assert names(background_change(alone, policy, idle=False, budget=tight)) == ["a"]


@pytest.mark.parametrize(
    ("sizes", "merges"),
    [
        ([1, 1], False),  # twice the ideal
        ([1, 1, 1], True),
        ([1, 1, 5000], False),  # too little for so much
        ([400, 400, 5000], True),
        ([1, 1, 1, 1, 1, 1, 1, 5000], False),
        ([1, 1, 1, 1, 1, 1, 1, 1, 5000], True),
    ],
)
def test_when_writers_pause_scattered_manifests_become_one_unless_little_is_won(
    sizes: list[int], merges: bool
) -> None:
    manifests = [small(f"m{n}", entries=size, existing=True) for n, size in enumerate(sizes)]
    busy = background_change(manifests, MergePolicy(), idle=False)
    plan = background_change(manifests, MergePolicy(), idle=True)
    assert (busy, len(names(plan))) == (None, int(merges))
    assert plan is None or plan.bins == (tuple(manifests),)


# --- entries --------------------------------------------------------------------------------------------


def entry(path: str, status: EntryStatus, snapshot_id: int, number: int = 1, **more: Any) -> ManifestEntry:
    return ManifestEntry(status, snapshot_id, number, number, replace(file(path), **more))


def kept(
    *sources: list[ManifestEntry], snapshot_id: int = 9
) -> list[tuple[str, EntryStatus, int, int | None]]:
    merged = merge_entries(sources, snapshot_id=snapshot_id)
    assert not isinstance(merged, AddedTwice)
    everything = [one for part in merged for one in part]
    return [(e.file.file_path, e.status, e.snapshot_id, e.data_sequence_number) for e in everything]


ADDED, EXISTING, DELETED = EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED


def test_what_older_snapshots_added_becomes_existing_with_its_own_numbers() -> None:
    sources = [entry("a", ADDED, 5, 4)], [entry("b", EXISTING, 3, 2, first_row_id=70)]
    assert kept(*sources) == [("a", EXISTING, 5, 4), ("b", EXISTING, 3, 2)]
    merged = merge_entries(sources, snapshot_id=9)
    assert not isinstance(merged, AddedTwice)
    assert merged[1][0].file.first_row_id == 70


def test_what_older_snapshots_removed_is_forgotten_and_what_this_one_removed_is_not() -> None:
    assert kept([entry("a", DELETED, 5), entry("b", DELETED, 9)]) == [("b", DELETED, 9, 1)]


def test_what_this_snapshot_added_stays_added() -> None:
    assert kept([entry("a", ADDED, 9, 4)]) == [("a", ADDED, 9, 4)]


def test_a_file_that_this_snapshot_added_and_removed_was_never_there() -> None:
    assert kept([entry("a", DELETED, 9, 4)], [entry("a", ADDED, 9, 4), entry("b", ADDED, 9, 4)]) == [
        ("b", ADDED, 9, 4)
    ]


def test_what_this_snapshot_undid_does_not_take_an_older_file_along() -> None:
    undone = [entry("a", ADDED, 9, 4), entry("a", DELETED, 9, 4)]
    assert kept(undone, [entry("a", EXISTING, 5, 4)]) == [("a", EXISTING, 5, 4)]


def test_a_path_that_was_removed_and_added_again_stays_live() -> None:
    assert kept([entry("a", ADDED, 7, 7)], [entry("a", DELETED, 5, 1)]) == [("a", EXISTING, 7, 7)]
    again = [entry("a", ADDED, 9, 9), entry("a", DELETED, 9, 1)]
    assert kept(again) == [("a", ADDED, 9, 9), ("a", DELETED, 9, 1)]


def test_a_file_that_was_added_twice_is_a_finding_that_names_it() -> None:
    sources = [entry("b", ADDED, 5)], [entry("a", ADDED, 4)], [entry("a", EXISTING, 3), entry("b", ADDED, 1)]
    finding = merge_entries(sources, snapshot_id=9)
    assert isinstance(finding, AddedTwice)
    assert finding.files == ("a", "b")
    assert "a, b" in finding.message


def test_deletion_vectors_that_share_a_file_are_not_the_same_file() -> None:
    vectors = [
        replace(
            entry(f"{n}", ADDED, 5),
            file=replace(
                file("p.puffin", content=DELETES),
                file_format="PUFFIN",
                content_offset=n,
                referenced_data_file=f"{n}",
            ),
        )
        for n in (4, 50)
    ]
    assert [path for path, *_ in kept([vectors[0]], [vectors[1]])] == ["p.puffin", "p.puffin"]
    assert isinstance(merge_entries((vectors, vectors[:1]), snapshot_id=9), AddedTwice)


# --- carrying out a plan --------------------------------------------------------------------------------


def carry_out(
    bins: tuple[Bin, ...], *replies: ManifestFile | AddedTwice | None
) -> tuple[Merged, list[MergeManifests]]:
    running = merge(MergePlan(MergeKind.MINOR, bins), table(), snapshot_id=9, sequence_number=8)
    asked: list[MergeManifests] = []
    answers: Iterator[ManifestFile | AddedTwice | None] = iter(replies)
    try:
        effect = next(running)
        while True:
            asked.append(effect)
            effect = running.send(next(answers))
    except StopIteration as done:
        return done.value, asked


def test_a_merged_manifest_takes_the_place_of_the_newest_it_holds() -> None:
    first, second = tuple(several(2, "a", entries=3)), tuple(several(2, "b", content=DELETES))
    result = small("merged")
    merged, asked = carry_out((first, second), result, None)
    assert [(e.spec_id, e.content, e.snapshot_id, e.sequence_number) for e in asked] == [
        (3, DATA, 9, 8),
        (3, DELETES, 9, 8),
    ]
    assert dict(merged.replaced) == {"a0": result, "a1": None, "b0": None, "b1": None}
    assert (merged.written, merged.refusals) == (("merged",), ())
    assert merged.count_rewrite(listed=10) == {
        "manifests-created": "1", "manifests-kept": "9", "manifests-replaced": "4", "entries-processed": "8",
    }  # fmt: skip
    assert merged.count_manifests(new=1, listed=10)["manifests-created"] == "2"


def test_a_finding_leaves_its_manifests_as_they_are_and_is_handed_on() -> None:
    fault = AddedTwice(("a",))
    bad, good = tuple(several(2, "a")), tuple(several(2, "b"))
    merged, _ = carry_out((bad, good), fault, small("merged"))
    assert sorted(merged.replaced) == ["b0", "b1"]
    assert [(refusal.manifests, refusal.reason) for refusal in merged.refusals] == [(bad, fault)]
    assert merged.entries_processed == 2


# --- any history ----------------------------------------------------------------------------------------

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "remove", "tidy", "idle"]),
        st.lists(st.tuples(st.sampled_from(SPECS), st.sampled_from([DATA, DELETES])), min_size=1, max_size=4),
        st.randoms(use_true_random=False),
    ),
    max_size=40,
)
_POLICIES = st.builds(
    MergePolicy,
    enabled=st.just(True),
    target_size_bytes=st.sampled_from([900, 3000, 8 * MIB]),
    min_count=st.sampled_from([0, 8, 12, 20]),
    full_size_bytes=st.sampled_from([1500, NO_FULL]),
)
_BUDGETS = st.builds(
    Budget, entries=st.integers(0, 12), size_bytes=st.integers(0, 6000), look=st.integers(1, 40)
)


def check_plan(plan: MergePlan, policy: MergePolicy, budget: Budget) -> None:
    """What holds of every plan of a commit."""
    everything = tuple(m for part in plan.bins for m in part)
    assert len({m.manifest_path for m in everything}) == len(everything)
    assert budget.without(everything).is_kept
    for part in plan.bins:
        assert len({(m.partition_spec_id, m.content) for m in part}) == 1
        assert len(part) == 1 or sum(m.manifest_length for m in part) <= policy.target_size_bytes


@given(_STEPS, _POLICIES, _BUDGETS, st.sampled_from([2, 3]))
@settings(max_examples=100, deadline=None)
def test_merging_changes_nothing_about_live_files_in_any_history(
    steps: list[Any], policy: MergePolicy, budget: Budget, version: int
) -> None:
    world = World(Entries(version), policy, budget)
    made = 0
    for step, kinds, random in steps:
        live = sorted(world.ledger)
        if step in ("tidy", "idle"):
            world.tidy(idle=step == "idle")
        elif step == "remove" and live:
            check_plan(world.remove(*random.sample(live, min(2, len(live)))), policy, budget)
        else:
            new = [file(f"f{made + n}", spec_id=s, content=c) for n, (s, c) in enumerate(kinds)]
            made += len(new)
            check_plan(world.append(*new), policy, budget)
        assert sorted(map(facts, world.live())) == sorted(world.ledger.values())
    row_ids = [e.file.first_row_id for e in world.live() if e.file.content == 0]
    assert version < 3 or len(set(row_ids)) == len(row_ids)


@given(_STEPS, _POLICIES)
@settings(max_examples=40, deadline=None)
def test_minor_merges_keep_the_order_of_files_within_spec_and_content(
    steps: list[Any], policy: MergePolicy
) -> None:
    merged = World(Entries(), replace(policy, full_size_bytes=NO_FULL), PLENTY)
    plain = World(Entries(), replace(policy, enabled=False))
    for n, (_, kinds, _) in enumerate(steps):
        for world in (merged, plain):
            world.append(*(file(f"f{n}-{k}", spec_id=s, content=c) for k, (s, c) in enumerate(kinds)))
    for key in {(e.file.spec_id, e.file.content) for e in plain.live()}:
        paths = [
            [e.file.file_path for e in world.live() if (e.file.spec_id, e.file.content) == key]
            for world in (merged, plain)
        ]
        assert paths[0] == paths[1]


# --- bounds ---------------------------------------------------------------------------------------------


def replay(commits: int, policy: MergePolicy, budget: Budget) -> tuple[list[ManifestFile], int, int]:
    """Single-file appends: the manifests at last, the most there were, and the entries that were merged."""
    manifests: list[ManifestFile] = []
    most = merged = 0
    for n in range(commits):
        for part in plan_merge(manifests, policy, budget=budget).bins:
            at, entries = manifests.index(part[0]), sum(_count(m) for m in part)
            made = small(f"c{n}", entries=entries, existing=True, manifest_length=3500 + 280 * entries)
            manifests[at : at + len(part)] = [made]
            merged += entries
        manifests.insert(0, small(f"a{n}", manifest_length=3780))
        most = max(most, len(manifests))
    return manifests, most, merged


def _count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def test_five_thousand_appends_leave_few_manifests_and_merge_each_entry_few_times() -> None:
    manifests, most, merged = replay(5000, MergePolicy(), COMMIT_BUDGET)
    assert sum(map(_count, manifests)) == 5000
    assert most <= 2 * 25 + 5000 // 625
    assert merged <= 2 * 5000  # twice: into the second tier and into the third
    plan = background_change(manifests, MergePolicy(), idle=True)
    assert plan is not None
    assert plan.bins == (tuple(manifests),)  # then one is left, which is the ideal number


@pytest.mark.parametrize("min_count", [1, 8, 40, 100])
def test_the_number_of_small_manifests_is_bounded_by_the_tiers(min_count: int) -> None:
    policy = MergePolicy(min_count=min_count)
    fan_in, tiers = policy.fan_in, 1
    while fan_in**tiers < 2000:
        tiers += 1
    _, most, merged = replay(2000, policy, PLENTY)
    assert most <= tiers * fan_in + 1
    assert merged <= tiers * 2000


def test_packing_until_nothing_moves_leaves_less_than_twice_the_ideal() -> None:
    policy = MergePolicy(target_size_bytes=100 * KIB)
    world = World(Entries(), policy, replace(COMMIT_BUDGET, entries=0, size_bytes=0))
    for n in range(300):
        world.append(*(file(f"f{n}-{k}") for k in range(1 + n % 7)))
    turns = 0
    while world.tidy() is not None:
        turns += 1
        assert turns < 20
    ideal = -(-sum(m.manifest_length for m in world.manifests) // policy.target_size_bytes)
    assert ideal > 1
    assert len(world.manifests) <= 2 * ideal
