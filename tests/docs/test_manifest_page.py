"""docs/manifests.md names every property of merging with its default."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.core.manifest_merge import (
    BACKGROUND_BUDGET,
    COMMIT_BUDGET,
    FULL_SIZE_BYTES,
    MERGE_ENABLED,
    MIN_COUNT,
    TARGET_SIZE_BYTES,
    MergePolicy,
)

_PAGE = Path(__file__).parents[2].joinpath("docs", "manifests.md").read_text(encoding="utf-8")


def test_the_page_of_manifests_has_every_property_and_its_default() -> None:
    default = MergePolicy()
    assert dict(re.findall(r"^\| `(commit\.[a-z.-]+)` \| `([^`]+)` \|", _PAGE, re.MULTILINE)) == {
        MERGE_ENABLED: str(default.enabled).lower(),
        TARGET_SIZE_BYTES: str(default.target_size_bytes),
        MIN_COUNT: str(default.min_count),
        FULL_SIZE_BYTES: str(default.full_size_bytes),
    }


def test_the_page_of_manifests_says_what_a_commit_may_spend() -> None:
    commit, background = COMMIT_BUDGET, BACKGROUND_BUDGET
    assert f"encode {commit.entries} entries anew" in _PAGE
    assert f"{commit.size_bytes // 1024} KiB of manifests" in _PAGE
    assert f"look at {commit.look} manifests" in _PAGE
    assert f"{background.entries:,} entries to encode and {background.size_bytes // 1024**2} MiB" in _PAGE
