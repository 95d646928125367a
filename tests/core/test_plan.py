"""Where a change starts from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.change import Append
from headgate.core.encoded_log import EncodedLog
from headgate.core.intake import take_in
from headgate.core.plan import find_head
from headgate.errors import InvariantBroken
from tests.core.plain_clients import append, lake_of


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_a_ref_to_a_snapshot_that_is_not_there_is_never_an_empty_table(branch: str) -> None:
    lake = lake_of()
    lake.commit(append(lake, 1), key="one")
    update = Append(add_data_files=lake.put_data(()), branch=branch, create_branch=branch != "main")
    change = take_in(update, lake.table, field="u")
    assert find_head(change, lake.table) is not None
    with pytest.raises(InvariantBroken, match="not there"):
        find_head(change, replace(lake.table, snapshots=EncodedLog()))
