"""docs/table-properties.md names exactly the properties that are Headgate's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.core.backoff import PROPERTIES as RETRY
from headgate.core.expire import GC_ENABLED, REF_AGE_MAX, SNAPSHOT_AGE_MAX, SNAPSHOTS_MIN
from headgate.core.manifest_merge import FULL_SIZE_BYTES, MERGE_ENABLED, MIN_COUNT, TARGET_SIZE_BYTES
from headgate.core.own_properties import NAMES, check_own_properties
from headgate.errors import BadInput
from headgate.service.settings import Settings

_PAGE = Path(__file__).parents[2].joinpath("docs", "table-properties.md").read_text(encoding="utf-8")
_OWN = re.findall(r"^\| `(headgate\.[a-z.-]+)` \| ([^|]+) \| ([^|]+) \|", _PAGE, re.MULTILINE)


def test_the_page_names_every_property_of_headgate_and_no_other() -> None:
    assert tuple(name for name, _, _ in _OWN) == NAMES
    assert set(re.findall(r"headgate\.[a-z]+(?:[.-][a-z]+)*(?=`)", _PAGE)) - {"headgate.client"} == set(NAMES)


@pytest.mark.parametrize(("name", "values"), [(name, values) for name, values, _ in _OWN])
def test_the_values_of_the_page_may_be_set_and_others_not(name: str, values: str) -> None:
    for value in re.findall(r"`([^`]+)`", values) or ["1000"]:
        check_own_properties({name: value}, field="properties")
    with pytest.raises(BadInput, match=re.escape(name)):
        check_own_properties({name: "perhaps"}, field="properties")


def test_the_defaults_of_the_page_are_those_of_the_settings() -> None:
    shown = dict(re.findall(r"the setting `(\w+)` \(`([^`]+)`\)", _PAGE))
    settings = Settings()
    assert shown == {
        "expire_snapshots": str(settings.expire_snapshots).lower(),
        "stream_linger_ms": str(settings.stream_linger_ms),
    }


def test_the_page_names_the_properties_of_iceberg_that_the_service_reads() -> None:
    named = set(re.findall(r"`([a-z]+\.[a-z.-]+)`", _PAGE))
    merging = {MERGE_ENABLED, TARGET_SIZE_BYTES, MIN_COUNT, FULL_SIZE_BYTES}
    assert merging | {GC_ENABLED, REF_AGE_MAX, SNAPSHOT_AGE_MAX, SNAPSHOTS_MIN} <= named
    assert named & RETRY.keys() == {"commit.retry.total-timeout-ms"}
