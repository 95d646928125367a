"""Several writes and definitions as one unit: all or none, each sees the ones before it, rebuilt as a unit on retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from headgate.client.keys import new_key
from headgate.errors import (
    BadInput,
    CommitRefused,
    CommitUnknown,
    ConflictFound,
    HeadgateError,
    Overloaded,
    StorageFailed,
)
from headgate.library import Counters
from headgate.library.handle import Handle
from headgate.library.requests import Request
from headgate.library.transaction import Transaction
from tests.library.lake import (
    ARROW,
    BY_PART,
    UNPARTITIONED,
    Lake,
    operations,
    quick,
    rivals,
    rows,
    written_file,
)
from tests.library.unsure import Ending, busy, landed_unheard, not_landed_unheard, open_unsure

versions = pytest.mark.parametrize("version", [1, 2, 3])


@versions
def test_a_write_sees_what_the_ones_before_it_staged(lake: Lake, version: int) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(rows(1, 2))
    with table.transaction() as transaction:
        transaction.append(rows(3, 4))
        transaction.delete("id = 1 or id = 3")
        transaction.upsert(rows(4, value=9.0), ["id"])
        assert lake.ids() == [1, 2]
    assert [(row["id"], row["value"]) for row in lake.read()] == [(2, 0.0), (4, 9.0)]
    assert operations(lake) == ["append", "append", "overwrite", "overwrite"]
    # A file that came and went within the transaction is still named by its first snapshot.
    lake.check()


@versions
@pytest.mark.parametrize("spec", [BY_PART, UNPARTITIONED])
def test_a_write_does_not_see_the_partitions_that_were_replaced(
    lake: Lake, version: int, spec: Mapping[str, Any]
) -> None:
    lake.create(version=version, spec=spec)
    table = lake.open()
    table.append(rows(1, 2))
    with table.transaction() as transaction:
        transaction.append(rows(3))
        transaction.replace_partitions(rows(5))
        transaction.upsert(rows(1, 3), ["id"])
        transaction.upsert(rows(2, value=9.0), ["id"])
        transaction.delete("id = 5")
    assert [(row["id"], row["value"]) for row in lake.read()] == [(1, 0.0), (2, 9.0), (3, 0.0)]
    lake.check()


def test_a_write_sees_the_partitions_beside_those_that_were_replaced(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(pa.concat_tables([rows(1), rows(2, 4, part="b"), rows(3, part=None)]))
    with table.transaction() as transaction:
        transaction.append(rows(6, part="b"))
        transaction.replace_partitions(rows(5, part=None))
        transaction.delete("id = 2")
        transaction.upsert(rows(6, part="b", value=9.0), ["id"])
    assert [(row["id"], row["value"]) for row in lake.read()] == [(1, 0.0), (4, 0.0), (5, 0.0), (6, 9.0)]
    lake.check()


@versions
def test_a_write_sees_files_that_were_given_as_content_files(lake: Lake, version: int) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(rows(1))
    with table.transaction() as transaction:
        transaction.append([written_file(lake, "given", rows(7, 8, 9))])
        transaction.delete("id = 7")
        transaction.upsert(rows(8, value=9.0), ["id"])
        transaction.replace_partitions([written_file(lake, "other", rows(4, 5, part="b"))])
        transaction.delete("id = 4", mode="copy-on-write" if version == 1 else "merge-on-read")
    assert [(row["id"], row["value"]) for row in lake.read()] == [(1, 0.0), (5, 0.0), (8, 9.0), (9, 0.0)]
    lake.check()


def test_a_write_to_a_branch_that_it_makes_sees_what_was_staged_on_main_before(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    with table.transaction() as transaction:
        transaction.append(rows(7))
        transaction.upsert(rows(7, value=9.0), ["id"], branch="b", create_branch=True)
        transaction.append(rows(8))
        transaction.upsert(rows(7, 8), ["id"], branch="b", create_branch=True)
    assert lake.ids() == [1, 7, 8]
    assert [(row["id"], row["value"]) for row in lake.read(branch="b")] == [(1, 0.0), (7, 0.0), (8, 0.0)]
    lake.check()


def test_what_no_reader_of_the_branch_will_see_no_write_sees(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    with table.transaction() as transaction:
        transaction.append(rows(7), stage_only=True)
        transaction.upsert(rows(7), ["id"])
    assert lake.ids() == [1, 7]


@versions
def test_all_of_it_is_rebuilt_after_a_lost_race_and_nothing_is_left(lake: Lake, version: int) -> None:
    lake.create(version=version)
    lake.open().append(rows(1, 2))
    rival = lake.open()
    moves = rivals(lambda: rival.append(rows(50, part="b")), lambda: rival.append(rows(51, part="c")))
    with lake.open(policy=quick(observer=moves)).transaction() as transaction:
        transaction.append(rows(3))
        transaction.delete("part = 'a' and id = 1")
        transaction.set_properties({"cleaned": "yes"})
    assert lake.ids() == [2, 3, 50, 51]
    assert lake.metadata()["properties"]["cleaned"] == "yes"
    lake.check()


def test_one_write_that_conflicts_refuses_all_of_it(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1, 2))
    rival = lake.open()
    transaction = lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(1))))).transaction()
    transaction.append(rows(3, part="z"))
    transaction.delete("id = 1")
    transaction.set_properties({"cleaned": "yes"})
    with pytest.raises(ConflictFound):
        transaction.commit()
    assert lake.ids() == [1, 1, 2]
    assert "cleaned" not in lake.metadata()["properties"]
    lake.check()


@versions
def test_rows_of_a_new_column_and_spec_are_written_in_the_same_commit(lake: Lake, version: int) -> None:
    lake.create(version=version)
    table = lake.open()
    table.append(rows(1))
    with table.transaction() as transaction:
        with transaction.update_schema() as schema:
            schema.add_column("more", StringType())
        with transaction.update_spec() as spec:
            spec.add_field("more", IdentityTransform(), "more_part")
        data = rows(2).append_column(pa.field("more", pa.string()), pa.array(["x"], pa.string()))
        transaction.append(data)
    assert [row["more"] for row in lake.read()] == [None, "x"]
    assert lake.spec_ids() == {0, 1}
    assert len(lake.metadata()["schemas"]) == 2
    lake.check()


def test_an_exception_inside_commits_nothing_and_leaves_nothing(lake: Lake) -> None:
    lake.create()
    table = lake.open()

    def fail() -> None:
        with table.transaction() as transaction:
            transaction.append(rows(1))
            raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        fail()
    assert operations(lake) == []
    assert lake.find_orphans() == set()


def test_a_transaction_without_anything_commits_nothing(lake: Lake) -> None:
    lake.create()
    before = lake.find().metadata_location
    with lake.open().transaction() as transaction:
        transaction.delete("id = 7")
    assert lake.find().metadata_location == before


def test_a_lost_reply_to_a_transaction_is_resolved_once(lake: Lake) -> None:
    lake.create()
    table, _ = open_unsure(lake, landed_unheard)
    with table.transaction(key="t-1") as transaction:
        transaction.append(rows(1))
        transaction.append(rows(2))
    assert lake.ids() == [1, 2]
    with lake.open().transaction(key="t-1") as again:
        again.append(rows(1))
    assert lake.ids() == [1, 2]


def test_a_transaction_has_one_key_and_one_end(lake: Lake) -> None:
    lake.create()
    transaction = lake.open().transaction()
    with pytest.raises(BadInput, match="one key"):
        transaction.append(rows(1), key="k")
    transaction.append(rows(2))
    transaction.commit()
    with pytest.raises(BadInput, match="committed already"):
        transaction.commit()


def test_properties_are_removed_unless_somebody_changed_them(lake: Lake) -> None:
    lake.create(properties={"color": "red", "size": "large"})
    table = lake.open()
    with table.transaction() as transaction:
        transaction.remove_properties("size")
    stale = table.transaction()
    stale.remove_properties("color")
    with table.transaction() as other:
        other.set_properties({"color": "blue"})
    with pytest.raises(HeadgateError, match="color"):
        stale.commit()
    assert lake.metadata()["properties"]["color"] == "blue"
    assert "size" not in lake.metadata()["properties"]


def test_a_full_overwrite_given_a_scan_conflicts_with_what_the_scan_read_only(lake: Lake) -> None:
    lake.create()
    lake.open().append(pa.concat_tables([rows(1), rows(2, part="b")]))
    rival = lake.open()
    table = lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(9, part="b")))))
    scan = table.scan("part = 'a'")
    data = scan.to_arrow().cast(ARROW)
    table.overwrite(data, scan=scan)
    assert lake.ids() == [1, 9]  # what was there is replaced by what was read, what came since is kept
    other = lake.open(policy=quick(observer=rivals(lambda: rival.append(rows(10)))))
    scan = other.scan("part = 'a'")
    with pytest.raises(ConflictFound):
        other.overwrite(scan.to_arrow().cast(ARROW), scan=scan)


def _append_and_commit(transaction: Transaction, later: Exception | None = None) -> None:
    transaction.append(rows(1))
    transaction.commit()
    if later is not None:
        raise later


def test_an_error_after_the_commit_leaves_what_landed_alone(lake: Lake) -> None:
    lake.create()
    transaction = lake.open().transaction()
    with pytest.raises(KeyError), transaction:
        _append_and_commit(transaction, KeyError("later"))
    assert lake.ids() == [1]
    transaction.abort()
    assert lake.ids() == [1]


def test_an_unknown_end_within_the_block_deletes_nothing(lake: Lake) -> None:
    lake.create()
    table, row = open_unsure(lake, landed_unheard, policy=quick(retries_max=0))

    def go_away() -> None:
        row.failing_loads = 100

    row.after_swap = go_away
    transaction = table.transaction()
    with pytest.raises(CommitUnknown), transaction:
        _append_and_commit(transaction)
    assert lake.ids() == [1]


def test_an_interrupted_commit_deletes_nothing_and_is_not_made_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create()
    table = lake.open()
    real = Handle.commit

    def interrupted(self: Handle, request: Request) -> None:
        real(self, request)
        raise KeyboardInterrupt

    monkeypatch.setattr(Handle, "commit", interrupted)
    transaction = table.transaction()
    with pytest.raises(KeyboardInterrupt), transaction:
        _append_and_commit(transaction)
    assert lake.ids() == [1]
    with pytest.raises(BadInput, match="nobody knows how the transaction ended"):
        transaction.commit()


def test_a_transaction_that_was_refused_is_over(lake: Lake) -> None:
    lake.create()
    table, _ = open_unsure(lake, busy, policy=quick(retries_max=0))
    with table.transaction() as transaction:
        transaction.append(rows(1))
        with pytest.raises(CommitRefused):
            transaction.commit()
        with pytest.raises(BadInput, match="the transaction is over"):
            transaction.commit()
    assert lake.ids() == []
    lake.check()


def test_a_transaction_whose_files_went_because_the_catalog_was_away_is_over(lake: Lake) -> None:
    lake.create()
    table, row = open_unsure(lake, busy, policy=quick(retries_max=0))
    transaction = table.transaction(key=new_key())
    transaction.append(rows(1))
    row.failing_loads = 100
    with pytest.raises((Overloaded, StorageFailed)):
        transaction.commit()
    row.failing_loads = 0
    with pytest.raises(BadInput, match="the transaction is over"):
        transaction.commit()
    assert lake.ids() == []
    lake.check()


def test_a_definition_of_unknown_end_that_is_sent_again_is_never_said_to_be_refused(lake: Lake) -> None:
    lake.create()
    table, row = open_unsure(lake, landed_unheard, policy=quick(retries_max=0))
    transaction = table.transaction()
    transaction.set_properties({"a": "1"})

    def go_away() -> None:
        row.failing_loads = 100

    row.after_swap = go_away
    with pytest.raises(CommitUnknown):
        transaction.commit()
    row.failing_loads, row.after_swap = 0, lambda: None
    with pytest.raises(CommitUnknown):  # its own property is in the way
        transaction.commit()
    assert lake.metadata()["properties"]["a"] == "1"


@pytest.mark.parametrize("ending", [landed_unheard, not_landed_unheard])
def test_a_transaction_of_unknown_end_that_is_committed_again_lands_once(lake: Lake, ending: Ending) -> None:
    lake.create()
    table, row = open_unsure(lake, ending, policy=quick(retries_max=0))
    transaction = table.transaction()
    transaction.append(rows(1))

    def go_away() -> None:
        row.failing_loads = 100

    row.after_swap = go_away
    with pytest.raises(CommitUnknown):
        transaction.commit()
    row.failing_loads, row.after_swap = 0, lambda: None
    transaction.commit()
    assert lake.ids() == [1]
    lake.audit()


def test_hooks_are_told_of_attempts_waits_and_the_verdict(lake: Lake) -> None:
    lake.create()
    counters = Counters()
    table, _ = open_unsure(lake, busy, busy, policy=quick(observer=counters))
    table.append(rows(1))
    assert (counters.attempts, counters.waits, counters.verdicts) == (3, 2, {"committed": 1})
