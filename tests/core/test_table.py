"""Table metadata as a value: what is found in it, and the tag of a snapshot."""

from __future__ import annotations

import pytest

from headgate.core.partitioning import UNPARTITIONED
from headgate.core.table import append_snapshot, manifest_list_tag
from headgate.errors import BadInput
from headgate.format.table_metadata import encode_parts
from tests.core.builders import COLUMNS, snapshot, table


def test_a_snapshot_is_found_by_its_id_or_not_at_all() -> None:
    made = table(snapshots=70)
    assert made.find_snapshot(3) == snapshot(3)
    assert made.find_snapshot(99) is None
    assert [one.snapshot_id for one in made.iter_snapshots()] == list(range(1, 71))


def test_of_more_snapshots_than_are_remembered_each_is_found_again() -> None:
    made = table(snapshots=400)
    for _ in range(2):
        assert [made.find_snapshot(n) for n in range(1, 401)] == [snapshot(n) for n in range(1, 401)]


def test_the_current_schema_is_found() -> None:
    assert table().schema().fields == COLUMNS


def test_a_spec_is_found_by_its_id_and_one_that_was_removed_is_named() -> None:
    assert table().find_spec(0) == UNPARTITIONED
    with pytest.raises(BadInput, match="the table has no partition spec 7, which its files use"):
        table().find_spec(7)


def test_the_size_is_about_that_of_the_file() -> None:
    made = table(snapshots=200)
    written = len(b"".join(encode_parts(made)))
    assert abs(made.size_bytes() - written) < 8192


def test_a_tag_tells_manifest_lists_apart_and_fits_a_signed_column() -> None:
    tags = {manifest_list_tag(snapshot(n)) for n in range(1, 1000)}
    assert len(tags) == 999
    assert all(tag is not None and 0 <= tag < 2**63 for tag in tags)
    assert manifest_list_tag(snapshot(1)) == manifest_list_tag(snapshot(1, snapshot_id=77))
    assert manifest_list_tag(snapshot(1, manifest_list=None)) is None


def test_the_same_manifest_list_under_another_snapshot_has_the_same_tag_in_the_log() -> None:
    log = append_snapshot(table(snapshots=1).snapshots, snapshot(2, manifest_list=snapshot(1).manifest_list))
    first, second = log
    assert first.tag == second.tag
