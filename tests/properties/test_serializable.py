"""Random concurrent changes, judged by the core: those that committed give the table of a serial execution.

Under isolation `serializable` the commits, run again one after the other in swap order, leave the same rows. Under
`snapshot` one anomaly is allowed and nothing else: rows that somebody added after the base were not seen (so a
DELETE leaves them and an overwrite of a whole scope drops them); new versions of rows that somebody updated are
such rows to a DELETE by positions in v2. HEADGATE_SEED runs one history and shows its trace.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.isolation import Isolation
from tests.properties.histories import Run, Writer, run_history
from tests.properties.lake import VARIANTS, Row, Variant, new_lake
from tests.properties.operations import SERIALIZABLE, SNAPSHOT, Operation, Scope

HISTORIES = 10_000
_SEED = os.environ.get("HEADGATE_SEED")


def _numbers(first: int, count: int) -> Iterable[int]:
    return range(first, first + count) if _SEED is None else [int(_SEED)]


def _run_all(numbers: Iterable[int], isolation: Isolation | None) -> Counter[str]:
    """Run histories; fail with seed and trace at the first that goes wrong."""
    seen: Counter[str] = Counter()
    for number in numbers:
        outcome = run_history(number, isolation=isolation)
        if outcome.fault is not None:
            trace = "\n  ".join(outcome.trace)
            pytest.fail(f"HEADGATE_SEED={number} at {isolation}: {outcome.fault}\n  {trace}", pytrace=False)
        seen.update(histories=1, committed=outcome.committed, anomalies=outcome.anomalies)
        seen.update(outcome.refused)
    return seen


def test_ten_thousand_histories_at_serializable_equal_a_serial_execution() -> None:
    seen = _run_all(_numbers(0, HISTORIES), SERIALIZABLE)
    assert seen["anomalies"] == 0
    if _SEED is None:
        assert seen["histories"] == HISTORIES
        assert seen["committed"] > HISTORIES
        # The histories contend: every rule of the window has its say.
        assert {"added-data-files", "removed-data-files", "added-delete-files", "added-dvs"} <= set(seen)
        assert {"missing-data-files", "new-deletes-for-data-files", "base-not-ancestor"} <= set(seen)


def test_histories_at_snapshot_show_no_anomaly_but_unseen_added_rows() -> None:
    seen = _run_all(_numbers(HISTORIES, 4_000), SNAPSHOT)
    assert _SEED is not None or seen["anomalies"] > 0  # the level is weaker, and the test can tell
    assert _SEED is not None or not seen["added-data-files"]


def test_writers_of_different_levels_each_get_what_their_own_promises() -> None:
    _run_all(_numbers(2 * HISTORIES, 2_000), None)


def test_a_history_is_the_same_each_time() -> None:
    assert run_history(5) == run_history(5)


# --- the same by hypothesis, which shrinks what it finds ----------------------------------------------------

_SCOPES = st.builds(
    Scope,
    cat=st.sampled_from((None, "a", "b")),
    ids=st.sampled_from((None, (0, 0), (1, 2))),
    amount_max=st.sampled_from((None, 1)),
)
_KEYS = st.builds(Scope, cat=st.sampled_from(("a", "b")), ids=st.sampled_from(((0, 0), (1, 2))))
_ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(("a", "b")), st.integers(0, 2)), min_size=1, max_size=3
)
_WAYS = (
    ("append", ""),
    ("delete", "cow"),
    ("delete", "mor"),
    ("update", "cow"),
    ("update", "mor"),
    ("upsert", "cow"),
    ("upsert", "keys"),
    ("recompute", "partition"),
    ("compact", "keeps number"),
    ("compact", "new number"),
)
_OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(_WAYS), _SCOPES, _ROWS, st.integers(1, 15)),
    st.tuples(st.sampled_from((("delete", "keys"), ("delete", "filter"))), _KEYS, _ROWS, st.integers(1, 15)),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    variant=st.sampled_from(VARIANTS),
    start=_ROWS,
    work=st.lists(_OPERATIONS, min_size=2, max_size=3),
    order=st.permutations(range(6)),
)
def test_the_smallest_histories_equal_a_serial_execution(
    variant: Variant,
    start: list[tuple[int, str, int]],
    work: list[tuple[tuple[str, str], Scope, list[tuple[int, str, int]], int]],
    order: list[int],
) -> None:
    run = Run(new_lake(variant))
    first = Writer("start", Operation("append", rows=_tagged("s", start)))
    run.plan(first)
    run.commit(first)
    writers = [
        Writer(
            f"w{n}",
            Operation(
                *way,
                scope=scope,
                rows=_tagged(f"w{n}", rows) if way[0] in ("append", "upsert") else (),
                picks=picks,
            ),
        )
        for n, (way, scope, rows, picks) in enumerate(work)
    ]
    for writer in writers[:-1]:
        run.plan(writer)
    for n in (n % len(writers) for n in order):
        if writers[n].base is None:
            run.plan(writers[n])
        elif writers[n].update is not None:
            run.commit(writers[n])
            writers[n].update = None
    assert run.outcome.fault is None, "\n".join(run.outcome.trace)


def _tagged(name: str, rows: list[tuple[int, str, int]]) -> tuple[Row, ...]:
    return tuple(Row(f"{name}.{n}", *row) for n, row in enumerate(rows))


# --- what the histories found, by name ------------------------------------------------------------------------


def _after(variant: Variant, ours: Operation, *theirs: Operation) -> Run:
    """Two files; ours reads, theirs commit, ours commits."""
    run = Run(new_lake(variant))
    rows = (Row("one", 1, "a", 0), Row("two", 2, "a", 0))
    start = Operation("append", rows=rows)
    for n, operation in enumerate((start, ours, *theirs)):
        run.plan(writer := Writer(f"w{n}", operation))
        if operation is ours:
            waiting = writer
        else:
            run.commit(writer)
    run.commit(waiting)
    return run


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_row_out_of_scope_that_was_deleted_by_key_stays_deleted_by_a_rewrite_of_its_file(
    variant: Variant,
) -> None:
    ours = Operation("update", "cow", scope=Scope(ids=(1, 1)))
    run = _after(variant, ours, Operation("delete", "keys", scope=Scope(cat="a", ids=(2, 2))))
    assert run.outcome.fault is None
    if variant.spec != "by bucket":  # there, the two rows are in two files
        assert run.outcome.refused == ["new-deletes-for-data-files"]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_rewrite_that_keeps_its_number_keeps_the_deletes_of_the_window(variant: Variant) -> None:
    ours = Operation("compact", "keeps number", picks=15)
    gone = Operation("delete", "keys", scope=Scope(cat="a", ids=(2, 2)))
    run = _after(variant, ours, gone, Operation("append", rows=(Row("three", 3, "a", 0),)))
    assert run.outcome.fault is None
    assert run.outcome.refused == []
    assert {seen.row.tag for seen in run.lake.read(run.lake.head)} == {"one", "three"}


def test_a_vector_does_not_outlive_its_data_file() -> None:
    ours = Operation("delete", "mor", scope=Scope(cat="a"))
    run = _after(Variant(3, "by cat"), ours, Operation("delete", "filter", scope=Scope(cat="a")))
    assert run.outcome.refused == ["vector-without-data-file"]
    assert run.outcome.fault is None


def test_at_snapshot_a_delete_by_positions_leaves_the_new_version_of_an_updated_row() -> None:
    ours = Operation("delete", "mor", scope=Scope(ids=(1, 1)), isolation=SNAPSHOT)
    theirs = Operation("update", "mor", scope=Scope(ids=(1, 1)))
    assert _after(Variant(2, "unpartitioned"), ours, theirs).outcome.anomalies == 1
    assert _after(Variant(3, "unpartitioned"), ours, theirs).outcome.refused == ["added-dvs"]
