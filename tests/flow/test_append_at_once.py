"""A blind append in one step leaves what the general way leaves: same metadata, same updates, same files, same refusals."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.append_at_once import is_blind_append
from headgate.core.build import AppendFiles, WriteManifest
from headgate.core.change import Append, NoAddedDataFiles, Overwrite
from headgate.core.commit import Answer, Head, Loaded, Member, Swap, TableCommit
from headgate.core.flow import group_flow
from headgate.core.manifest_merge import MergeManifests
from headgate.core.table import MAIN, MetadataLogEntry
from headgate.core.updates import AssertRefSnapshotId, AssertTableUuid, SetProperties, SetSnapshotRef
from tests.flow.script import NOW_MS, TARGET, Script, adds, commit_of, lake_of, member, play
from tests.properties.lake import CATS, IDS, SPECS, Lake, Row, Variant, new_lake

PREVIOUS = MetadataLogEntry(metadata_file="m0", timestamp_ms=1)


def run(
    lake: Lake,
    *members: Member,
    at_once: bool,
    now_ms: int = NOW_MS,
    previous: MetadataLogEntry | None = None,
) -> Script:
    """One group up to its swap, against a copy of the lake's files."""
    own = deepcopy(lake)
    own.world.at_once = at_once
    loaded = Loaded((Head("t", 3, lake.table, "v3.json", previous),), frozenset(), now_ms)
    return play(group_flow(members), [loaded], own)


def outcome(script: Script) -> list[Any]:
    """What was swapped, and what each of the others was told."""
    swaps = [(swap.candidates, swap.shares, swap.unchanged) for swap in script.yielded(Swap)]
    told = [(answer.member, describe(answer.verdict)) for answer in script.yielded(Answer)]
    return [swaps, told, [describe(verdict) for verdict in script.verdicts]]


def describe(verdict: Any) -> Any:
    """A verdict without the identity of its error."""
    error = getattr(verdict, "error", None)
    return verdict if error is None else (type(verdict), type(error), error.message, error.evidence)


rows = st.lists(
    st.builds(Row, st.just("r"), st.sampled_from(IDS), st.sampled_from(CATS), st.integers(0, 9)),
    min_size=1,
    max_size=3,
)
appends = st.tuples(
    rows,
    st.dictionaries(
        st.sampled_from(["who", "why", "added-records"]), st.sampled_from(["me", ""]), max_size=1
    ),
    st.sampled_from(["new", "new", "new", "live", "as before"]),  # the path of its first file
    st.sampled_from(["none", "none", "right uuid", "wrong uuid"]),
)


@settings(max_examples=150, deadline=None)
@given(
    version=st.sampled_from([1, 2, 3]),
    spec=st.sampled_from(sorted(SPECS)),
    before=st.integers(0, 12),
    min_count=st.sampled_from(["4", "100", "20"]),
    group=st.lists(appends, min_size=1, max_size=5),
    late_ms=st.sampled_from([-(10**9), 0, 10**6]),
    previous=st.sampled_from([None, PREVIOUS]),
    has_retention=st.booleans(),
)
def test_one_step_and_several_leave_the_same(
    version: int,
    spec: str,
    before: int,
    min_count: str,
    group: list[Any],
    late_ms: int,
    previous: MetadataLogEntry | None,
    has_retention: bool,
) -> None:
    lake = new_lake(Variant(version, spec))
    lake.apply(SetProperties(updates={"commit.manifest.min-count-to-merge": min_count}))
    for n in range(before):
        lake.commit(Append(add_data_files=lake.put_data([Row("t", n % 6, "a", 0)])), key=f"before {n}")
    if has_retention and lake.head is not None:
        keep = SetSnapshotRef(ref_name=MAIN, snapshot_id=lake.head, type="branch", min_snapshots_to_keep=7)
        lake.apply(keep)
    members = tuple(make_member(lake, i, one) for i, one in enumerate(group))
    now_ms = lake.table.envelope.last_updated_ms + late_ms
    steps = run(lake, *members, at_once=False, now_ms=now_ms, previous=previous)
    step = run(lake, *members, at_once=True, now_ms=now_ms, previous=previous)
    assert outcome(step) == outcome(steps)


def make_member(lake: Lake, index: int, drawn: Any) -> Member:
    """An append as it was drawn; one whose file is live already, or comes twice in the group, is refused."""
    of_rows, summary, path, uuid = drawn
    files = lake.put_data(of_rows)
    if path == "live" and lake.head is not None:
        live = sorted(entry.file.file_path for _, entry in lake.entries(lake.head))
        files = (replaced(files[0], live[0]), *files[1:])
    elif path == "as before":
        files = (replaced(files[0], "mem://data/again"), *files[1:])
    of_table = lake.table.envelope.table_uuid
    asked = {"none": (), "right uuid": (of_table,), "wrong uuid": ("0" * 8,)}[uuid]
    requirements = tuple(AssertTableUuid(uuid=one) for one in asked)
    return member(Append(add_data_files=files, summary=summary), key=f"k{index}", requirements=requirements)


def replaced(file: Any, path: str) -> Any:
    """The same file under another path."""
    return type(file)(**{name: getattr(file, name) for name in file.__struct_fields__} | {"file_path": path})


def test_a_blind_append_is_asked_for_in_one_step_and_nothing_else_is_written_for_it() -> None:
    lake = lake_of(1)
    script = run(lake, member(adds(lake, 2), key="k"), at_once=True)
    assert len(script.yielded(AppendFiles)) == 1
    assert not script.yielded(WriteManifest)
    (swap,) = script.yielded(Swap)
    assert len(swap.candidates[0].written) == 2


def test_members_of_a_group_are_built_on_each_other_in_one_step_each() -> None:
    lake = lake_of(1)
    script = run(lake, *(member(adds(lake, n), key=f"k{n}") for n in (2, 3, 4)), at_once=True)
    assert len(script.yielded(AppendFiles)) == 3
    assert not script.yielded(WriteManifest)
    (swap,) = script.yielded(Swap)
    assert len(swap.candidates[0].updates) == 6
    assert len(swap.candidates[0].metadata.snapshots) == len(lake.table.snapshots) + 3


def test_the_first_append_to_a_table_and_one_that_is_due_to_merge_go_the_general_way() -> None:
    first = new_lake(Variant(2, "unpartitioned"))
    assert run(first, member(adds(first, 1), key="k"), at_once=True).yielded(WriteManifest)
    due = lake_of(0)
    due.apply(SetProperties(updates={"commit.manifest.min-count-to-merge": "8"}))
    for n in range(2):
        due.commit(Append(add_data_files=due.put_data([Row("t", n, "a", 0)])), key=f"before {n}")
    assert run(due, member(adds(due, 5), key="k"), at_once=True).yielded(MergeManifests)


@pytest.mark.parametrize(
    ("commit", "is_blind"),
    [
        (commit_of(Append()), True),
        (commit_of(Append(), requirements=(AssertTableUuid(uuid="u"),)), True),
        (commit_of(Append(), requirements=(AssertRefSnapshotId(ref=MAIN, snapshot_id=1),)), False),
        (commit_of(Append(commit_validations=(NoAddedDataFiles(),))), False),
        (commit_of(Append(branch="audit")), False),
        (commit_of(Append(stage_only=True)), False),
        (commit_of(Append(branch="b", create_branch=True)), False),
        (commit_of(Append(), Append()), False),
        (commit_of(SetProperties(updates={}), Append()), False),
        (commit_of(Append(), reads=Overwrite()), False),
        (TableCommit(TARGET, (), (Append(),), properties={"a": "b"}), False),
        (commit_of(Overwrite()), False),
        (commit_of(SetProperties(updates={})), False),
    ],
)
def test_only_an_append_that_asks_nothing_is_blind(commit: TableCommit, is_blind: bool) -> None:
    assert is_blind_append(commit) is is_blind
