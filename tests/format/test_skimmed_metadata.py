"""Metadata that is skimmed is the metadata that is decoded, but for what nobody has looked at yet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.core.table import TableMetadata
from headgate.errors import BadInput
from headgate.format.table_metadata import decode_metadata, encode_file, skim_metadata
from tests.core.builders import UUID, commit, point, table


def _same(left: TableMetadata, right: TableMetadata) -> bool:
    return (
        left.envelope == right.envelope
        and list(left.iter_snapshots()) == list(right.iter_snapshots())
        and list(left.iter_history()) == list(right.iter_history())
    )


def _file(**more: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(b"".join(encode_file(commit(table(snapshots=3), point("t", 1, "tag")))))
    return {**made, **more}


@pytest.mark.parametrize(
    "raw",
    [
        _file(),
        _file(**{"statistics": None}),
        {key: value for key, value in _file().items() if key not in ("refs", "metadata-log")},
        _file(refs={}),
    ],
    ids=["whole", "a null list", "fields left out", "no refs"],
)
def test_skimming_and_decoding_give_one_table(raw: dict[str, Any]) -> None:
    text = json.dumps(raw, indent=2).encode()  # as Java writes it
    skimmed = skim_metadata(text, location="x", uuid=UUID)
    assert _same(skimmed, decode_metadata(text, location="x", uuid=UUID))


def test_a_table_without_snapshots_has_no_current_one() -> None:
    raw = {**json.loads(b"".join(encode_file(table()))), "current-snapshot-id": -1}
    assert (
        skim_metadata(json.dumps(raw).encode(), location="x", uuid=UUID).envelope.current_snapshot_id is None
    )


def test_what_is_no_metadata_is_refused_as_ever() -> None:
    with pytest.raises(BadInput, match="invalid table metadata"):
        skim_metadata(b'{"format-version": 2}', location="x", uuid=UUID)


def test_a_skimmed_table_is_encoded_as_it_stood() -> None:
    text = json.dumps(_file()).encode()
    again = b"".join(encode_file(skim_metadata(text, location="x", uuid=UUID)))
    assert _same(
        skim_metadata(again, location="x", uuid=UUID), decode_metadata(text, location="x", uuid=UUID)
    )
