"""How rows are taken out of files: what is said, or else what the table says, where the format has it."""

from __future__ import annotations

import pytest

from headgate.core.isolation import Command
from headgate.core.write_modes import COPY, MERGE, mode_of
from headgate.errors import BadInput

MERGES = {"write.delete.mode": "Merge-On-Read"}


def test_what_the_caller_says_goes_before_what_the_table_says() -> None:
    assert mode_of({}, 2, Command.DELETE) == COPY
    assert mode_of(MERGES, 2, Command.DELETE) == MERGE
    assert mode_of(MERGES, 2, Command.UPDATE) == COPY
    assert mode_of(MERGES, 2, Command.DELETE, COPY) == COPY
    assert mode_of({}, 3, Command.DELETE, MERGE) == MERGE


@pytest.mark.parametrize(
    ("properties", "version", "said", "named"),
    [
        ({"write.delete.mode": "by-hand"}, 2, None, "write.delete.mode"),
        ({}, 2, "by-hand", "mode"),
        (MERGES, 1, None, "write.delete.mode"),
        ({}, 1, MERGE, "mode"),
    ],
)
def test_a_mode_that_cannot_be_is_refused_by_its_name(
    properties: dict[str, str], version: int, said: str | None, named: str
) -> None:
    with pytest.raises(BadInput) as refused:
        mode_of(properties, version, Command.DELETE, said)
    assert refused.value.field == named
