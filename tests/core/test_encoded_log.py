"""The log against a plain list of its items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.encoded_log import EncodedLog, LogDelta, LogItem

# A step is either a run of appends or the removal of every n-th key.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 150)), st.tuples(st.just("remove"), st.integers(2, 5))
    ),
    max_size=8,
)


def filled(count: int, *, first: int = 0, log: EncodedLog | None = None) -> EncodedLog:
    log = EncodedLog() if log is None else log
    for n in range(first, first + count):
        log = log.append(b"%d" % n, key=n * 10, tag=n)
    return log


def play(
    steps: list[tuple[str, int]], log: EncodedLog, model: list[LogItem]
) -> tuple[EncodedLog, list[LogItem]]:
    for kind, n in steps:
        if kind == "append":
            for _ in range(n):
                position = log.next_position
                model = [*model, LogItem(position, -position, b'{"n":%d}' % position)]
                log = log.append(b'{"n":%d}' % position, key=-position)
        else:
            gone = [item.key for item in model][::n]
            model = [item for item in model if item.key not in gone]
            log = log.without(gone)
    return log, model


@given(STEPS)
def test_a_log_is_the_list_of_its_items(steps: list[tuple[str, int]]) -> None:
    log, model = play(steps, EncodedLog(), [])
    assert list(log) == model
    assert len(log) == len(model)
    assert log.size_bytes == sum(len(item.body) for item in model)
    assert EncodedLog.of(model).size_bytes == log.size_bytes
    assert log.last() == (model[-1] if model else None)
    assert b",".join(log.parts()) == b",".join(item.body for item in model)
    for item in model[::7]:
        assert log.find(item.key) == item
        assert item.key in log
    assert log.find(1) is None
    assert 1 not in log


@given(STEPS, STEPS)
def test_a_delta_turns_the_base_into_the_new_log(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    base, model = play(before, EncodedLog(), [])
    log, _ = play(after, base, model)
    delta = log.since(base)
    assert [item for item in base if item.position not in delta.removed] + list(delta.added) == list(log)
    assert all(item.position >= base.next_position for item in delta.added)
    assert delta.next_position == log.next_position


@given(STEPS, STEPS)
def test_a_reader_who_extends_its_log_by_a_delta_without_removals_holds_the_same_items(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    base, model = play(before, EncodedLog(), [])
    log, _ = play([step for step in after if step[0] == "append"], base, model)
    followed = base.extend(log.since(base).added, next_position=log.next_position)
    assert list(followed) == list(log)
    assert followed.next_position == log.next_position


def test_a_delta_of_a_group_holds_all_its_items_and_one_of_a_sealed_block_too() -> None:
    for count in (0, 5, 62, 63, 64, 130):
        base = filled(count)
        added = tuple(LogItem(n, n * 10, b"%d" % n, n) for n in range(count, count + 3))
        assert filled(3, first=count, log=base).since(base) == LogDelta((), added, count + 3)
        assert base.since(base) == LogDelta((), (), count)


def test_a_delta_of_one_more_item_and_one_less_names_both() -> None:
    base = filled(5)
    assert base.without([20]).append(b"x").append(b"y").since(base) == LogDelta(
        (2,), (LogItem(5, 5, b"x"), LogItem(6, 6, b"y")), 7
    )


def test_a_delta_tells_of_positions_that_came_and_went() -> None:
    base = filled(2)
    assert base.append(b"x", key=7).without([7]).since(base) == LogDelta((), (), 3)


def test_extending_keeps_the_gaps_that_removed_items_left() -> None:
    log = filled(3).extend([LogItem(7, 70, b"7")], next_position=9)
    assert [item.position for item in log] == [0, 1, 2, 7]
    assert log.append(b"9").last() == LogItem(9, 9, b"9")


def test_appending_to_ten_thousand_items_copies_none_of_them() -> None:
    log = filled(10_000)
    longer = log.append(b"new")
    assert all(old is new for old, new in zip(log, longer, strict=False))
    old_parts, new_parts = log.parts(), longer.parts()
    assert len(new_parts) < 300
    assert all(old is new for old, new in zip(old_parts, new_parts, strict=False))
    assert longer.since(log) == LogDelta((), (LogItem(10_000, 10_000, b"new"),), 10_001)


def test_a_change_leaves_the_log_it_started_from_alone() -> None:
    log = filled(65)
    log.append(b"more")
    log.without([0])
    assert len(log) == 65
    assert log.next_position == 65


def test_removing_what_is_not_there_is_the_same_log() -> None:
    log = filled(70)
    assert log.without([5]) is log


def test_a_position_is_never_given_out_twice() -> None:
    log = filled(3).without([20])
    assert log.append(b"x").last() == LogItem(3, 3, b"x")


def test_the_newest_item_of_a_key_is_found() -> None:
    log = filled(200).append(b"again", key=10)
    found = log.find(10)
    assert found is not None
    assert found.body == b"again"


def test_an_empty_log_has_no_last_item_and_no_parts() -> None:
    assert EncodedLog().last() is None
    assert EncodedLog().parts() == []
    assert EncodedLog().size_bytes == 0


def test_a_log_that_ends_with_a_full_block_has_a_last_item() -> None:
    last = filled(128).last()
    assert last is not None
    assert last.position == 127


def test_a_log_built_from_stored_items_equals_the_one_that_was_stored() -> None:
    log = filled(150)
    again = EncodedLog.of(list(log))
    assert again == log
    assert EncodedLog.of([], next_position=5).next_position == 5


def test_the_size_counts_every_item() -> None:
    assert filled(10).size_bytes == 10
    assert filled(100).size_bytes == 190


def test_only_a_number_can_be_a_key() -> None:
    assert "10" not in filled(2)
    assert 10 in filled(2)


def test_removing_the_oldest_of_ten_thousand_items_copies_none_of_the_others() -> None:
    log = filled(10_000)
    shorter = log.without(range(0, 5_000, 10))  # the first five hundred
    old_parts, new_parts = log.parts(), shorter.parts()
    assert len(shorter) == 9_500
    assert all(old is new for old, new in zip(old_parts[1:], new_parts[1:], strict=True))
    assert shorter.since(log) == LogDelta(tuple(range(500)), (), 10_000)


def test_a_log_knows_the_keys_of_all_its_items() -> None:
    assert filled(200).without([0, 1990]).keys() == set(range(10, 1990, 10))
