"""Values that stay inside: frozen, and dataclasses to whoever asks, though they are not made as those are."""

from __future__ import annotations

import importlib
import pkgutil
import weakref
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

import headgate.core
import headgate.service
import headgate.store
from headgate.core.commit import Loaded, Refused
from headgate.core.flow import group_flow
from headgate.core.manifest import Metrics
from headgate.core.updates import AssertTableUuid
from headgate.core.value import Record
from headgate.errors import HeadgateError
from tests.collector import without_collector
from tests.flow.script import NOW_MS, adds, head, lake_of, member, play


def test_a_record_may_be_replaced_like_any_dataclass() -> None:
    before = Metrics(column_sizes={1: 10})
    after = replace(before, value_counts={1: 2})
    assert (before, after) == (Metrics({1: 10}), Metrics({1: 10}, {1: 2}))
    assert [field.name for field in fields(Metrics)][:2] == ["column_sizes", "value_counts"]


def test_a_record_is_never_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Metrics().column_sizes = {1: 10}  # type: ignore[misc]  # that is the point


def test_a_refusal_is_forgotten_with_whoever_it_was_told() -> None:
    """An error holds the frames that it was raised through, and one of them the values that hold the error."""
    with without_collector():
        refused = [refuse_one() for _ in range(20)]
        assert [error() for error in refused] == [None] * 20


def refuse_one() -> weakref.ref[HeadgateError]:
    """The error of a commit that nobody holds any more."""
    lake = lake_of(1)
    wrong = (AssertTableUuid(uuid="0" * 8),)
    loaded = Loaded((head(lake, 3),), frozenset(), NOW_MS)
    (verdict,) = play(
        group_flow((member(adds(lake, 2), key="k", requirements=wrong),)), [loaded], lake
    ).verdicts
    assert isinstance(verdict, Refused)
    return weakref.ref(verdict.error)


# What a value may hold that can lead back to the value.
_LEADS_BACK = ("Error", "Unknown", "Verdict", "Callable", "Refusal", "Judged", "Later")


def find_records() -> Iterator[type[Any]]:
    """Every record of the rooms that commits pass through."""
    for room in (headgate.core, headgate.store, headgate.service):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            for found in vars(importlib.import_module(module.name)).values():
                if isinstance(found, type) and issubclass(found, Record) and found.__module__ == module.name:
                    yield found


@pytest.mark.parametrize("record", sorted(find_records(), key=str), ids=lambda record: record.__qualname__)
def test_a_record_that_may_hold_an_error_is_seen_by_the_collector(record: type[Any]) -> None:
    holds = [
        text for text in record.__annotations__.values() if any(word in str(text) for word in _LEADS_BACK)
    ]
    assert not holds or record.__struct_config__.gc
