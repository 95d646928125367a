"""Several tables in one commit, where the catalog offers it."""

from __future__ import annotations

import pytest

from headgate.errors import BadInput, ConflictFound, Unsupported
from headgate.library.many_tables import multi_table_transaction
from tests.library.lake import Lake, rows

sent = pytest.mark.parametrize(("road", "version"), [("sent", 2), ("sent", 3)])


@sent
def test_both_tables_change_or_neither(lake: Lake, road: str, version: int) -> None:
    for name in ("db.left", "db.right"):
        lake.create(name, version=version)
    left, right = lake.open("db.left", road=road), lake.open("db.right", road=road)
    with multi_table_transaction(left, right) as transaction:
        transaction[left.name].append(rows(1))
        transaction[right.name].append(rows(2))
    assert (lake.ids("db.left"), lake.ids("db.right")) == ([1], [2])
    stale = multi_table_transaction(left, right)
    stale[left.name].append(rows(3))
    stale[right.name].delete("id = 2")
    right.append(rows(2))
    with pytest.raises(ConflictFound):
        stale.commit()
    assert (lake.ids("db.left"), lake.ids("db.right")) == ([1], [2, 2])
    for name in ("db.left", "db.right"):
        lake.check(name)


@sent
def test_of_two_transactions_that_read_what_the_other_writes_one_is_refused(
    lake: Lake, road: str, version: int
) -> None:
    for name in ("db.left", "db.right"):
        lake.create(name, version=version)
    left, right = lake.open("db.left", road=road), lake.open("db.right", road=road)
    first, second = multi_table_transaction(left, right), multi_table_transaction(left, right)
    first[left.name].reads("part = 'a'")
    first[right.name].append(rows(1))
    second[right.name].reads("part = 'a'")
    second[left.name].append(rows(2))
    first.commit()
    with pytest.raises(ConflictFound):
        second.commit()
    assert (lake.ids("db.left"), lake.ids("db.right")) == ([], [1])


@sent
def test_what_was_sent_is_not_deleted_by_an_error_or_sent_twice(lake: Lake, road: str, version: int) -> None:
    for name in ("db.left", "db.right"):
        lake.create(name, version=version)
    left, right = lake.open("db.left", road=road), lake.open("db.right", road=road)
    transaction = multi_table_transaction(left, right)
    transaction[left.name].append(rows(1))
    transaction[right.name].append(rows(2))
    with pytest.raises(KeyError), transaction:
        raise KeyError(transaction.commit().key)
    with pytest.raises(BadInput, match="committed already"):
        transaction.commit()
    with multi_table_transaction(left, right) as other:
        other[left.name].append(rows(3))
        other.commit()
    assert (lake.ids("db.left"), lake.ids("db.right")) == ([1, 3], [2])


def test_a_catalog_without_such_commits_says_so(lake: Lake) -> None:
    lake.create()
    with pytest.raises(Unsupported, match="several tables"):
        multi_table_transaction(lake.open())
    with pytest.raises(BadInput):
        multi_table_transaction()
