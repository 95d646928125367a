"""Headgate's own table properties are checked when they are set."""

from __future__ import annotations

import pytest

from headgate.core.own_properties import NAMES, check_own_properties
from headgate.errors import BadInput


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headgate.group", "fold"),
        ("headgate.group", "CHAIN"),
        ("headgate.rebase", "append, replace"),
        ("headgate.rebase", ""),
        ("headgate.expire.enabled", "true"),
        ("headgate.expire.max-snapshots", "100"),
        ("headgate.stream.linger-ms", "250"),
        ("owner", "headgate.group"),
    ],
)
def test_a_property_that_means_something_is_taken(name: str, value: str) -> None:
    check_own_properties({name: value}, field="properties")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headgate.group", "both"),
        ("headgate.rebase", "append,delete"),
        ("headgate.expire.enabled", "yes"),
        ("headgate.expire.max-snapshots", "-1"),
        ("headgate.stream.linger-ms", "soon"),
        ("headgate.grouping", "fold"),
    ],
)
def test_a_name_or_value_that_means_nothing_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_own_properties({name: value}, field="properties")
    assert refused.value.field == f"properties.{name}"


def test_an_unknown_name_is_answered_by_the_known_ones() -> None:
    with pytest.raises(BadInput) as refused:
        check_own_properties({"headgate.fold": "true"}, field="properties")
    assert all(name in refused.value.message for name in NAMES)
