"""The records of a commit: what its key and its events say, alone and in a group."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.core.commit import Candidate, Head, Share, TableCommit, Target
from headgate.core.updates import SetProperties
from headgate.service.commit_records import (
    Published,
    Work,
    added_snapshots,
    event_operations,
    key_operation,
)
from headgate.service.roles import Caller, Role
from tests.core.builders import append, snapshot, table

T: Target = (("a", 'b"'), "t")
U: Target = (("a",), "u")


def work(key: str, *targets: Target) -> Work:
    commits = tuple(TableCommit(target, (), ()) for target in targets or (T,))
    caller = Caller("ann", Role.INSERT, "r")
    kind = "none" if len(commits) > 1 else "table"
    return Work(caller, key, commits, {"kind": kind, "role": "insert"}, 200, "update-table")


def publish(*targets: Target) -> Published:
    base = Head("id-0", 3, table(), "s3://t/3.json", None)
    return {
        target: (
            Candidate(target, base, table()),
            Head(f"id-{target[1]}", 4, table(), f"s3://{target[1]}/4.json", None),
        )
        for target in targets
    }


def decoded(operations: list[Any]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(one.event.payload) for one in operations]


def test_the_snapshots_of_updates_are_told_apart_however_they_are_asked_for() -> None:
    first, second, plain = append(1), append(2), (SetProperties(updates={"a": "b"}),)
    for updates, expected in [
        (first, [1]),
        (second, [2]),
        (plain, []),
        (first, [1]),
        (first + second, [1, 2]),
    ]:
        for _ in range(2):
            found = added_snapshots(tuple(updates))
            assert found == tuple(snapshot(n) for n in expected)
    assert added_snapshots(()) == ()


def test_a_member_alone_has_the_event_that_it_has_beside_another() -> None:
    published, shares = publish(T, U), (Share(0, ((T, append(1)),)), Share(1, ((U, append(2)),)))
    works = (work("k0"), work("k1", U))
    together = event_operations(works, shares, published, now_ms=9)
    assert [event_operations(works, (share,), published, now_ms=9) for share in shares] == [
        [one] for one in together
    ]
    assert [one.snapshot_ids for one in together] == [(snapshot(1).snapshot_id,), (snapshot(2).snapshot_id,)]
    assert event_operations(works, (), published, now_ms=9) == []


def test_an_event_says_what_was_applied_and_by_whom() -> None:
    (one,) = event_operations((work("k"),), (Share(0, ((T, append(1)),)),), publish(T), now_ms=9)
    assert (one.event.kind, one.event.namespace, one.event.name) == ("update-table", *T)
    assert (one.event.entry_id, one.event.principal, one.event.key, one.event.at_ms) == (
        "id-t",
        "ann",
        "k",
        9,
    )
    assert list(decoded([one])[0]) == [
        "table-uuid",
        "metadata-location",
        "version",
        "snapshot-id",
        "added-snapshots",
        "event-count",
        "updates",
    ]


def test_members_that_share_a_snapshot_have_one_event_that_names_them() -> None:
    shares = (Share(0, ((T, append(1)),)), Share(1, ((T, append(1)),), shares_with=0))
    events = event_operations((work("k0"), work("k1")), shares, publish(T), now_ms=9)
    (payload,) = decoded(events)
    assert payload["folded"] == [{"key": "k0", "principal": "ann"}, {"key": "k1", "principal": "ann"}]
    assert (payload["folded-count"], payload["event-count"]) == (2, 1)
    assert event_operations((work("k0"), work("k1")), shares[1:], publish(T), now_ms=9) == []


def test_a_commit_of_several_tables_has_an_event_for_each() -> None:
    share = Share(0, ((T, append(1)), (U, (SetProperties(updates={"a": "b"}),))))
    events = event_operations((work("k", T, U),), (share,), publish(T, U), now_ms=9)
    assert [(one.event.name, len(one.snapshot_ids)) for one in events] == [("t", 1), ("u", 0)]
    assert [payload["event-count"] for payload in decoded(events)] == [2, 2]


def test_a_key_says_enough_to_answer_again() -> None:
    one = key_operation(work("k"), Share(0, ((T, append(1)),)), publish(T), now_ms=9, is_first=True)
    assert one.is_new
    assert one.record.body == msgspec.json.encode(
        {
            "kind": "table",
            "role": "insert",
            "id": "id-t",
            "tables": [
                {
                    "namespace": ["a", 'b"'],
                    "name": "t",
                    "metadata-location": "s3://t/4.json",
                    "snapshot-ids": [snapshot(1).snapshot_id],
                }
            ],
        }
    )


def test_the_key_of_a_transaction_names_all_its_tables_and_no_id() -> None:
    share = Share(0, ((T, append(1)), (U, append(2))))
    body = msgspec.json.decode(key_operation(work("k", T, U), share, publish(T, U), now_ms=9).record.body)
    assert "id" not in body
    assert [told["name"] for told in body["tables"]] == ["t", "u"]


def test_the_key_of_a_commit_that_changed_nothing_has_the_head_it_found() -> None:
    head = Head("id-9", 3, table(), "s3://t/3.json", None)
    for heads, expected in [((head,), {"id": "id-9"}), ((None,), {}), ((), {})]:
        one = key_operation(work("k"), Share(0, ()), {}, now_ms=9, heads=heads)
        assert msgspec.json.decode(one.record.body) == {
            "kind": "table",
            "role": "insert",
            **expected,
            "tables": [],
        }
        assert not one.is_new
