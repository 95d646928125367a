"""Values that stay inside: frozen, and dataclasses to whoever asks, though they are not made as those are."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from headgate.core.manifest import Metrics


def test_a_record_may_be_replaced_like_any_dataclass() -> None:
    before = Metrics(column_sizes={1: 10})
    after = replace(before, value_counts={1: 2})
    assert (before, after) == (Metrics({1: 10}), Metrics({1: 10}, {1: 2}))
    assert [field.name for field in fields(Metrics)][:2] == ["column_sizes", "value_counts"]


def test_a_record_is_never_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Metrics().column_sizes = {1: 10}  # type: ignore[misc]  # that is the point
