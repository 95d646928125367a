"""The code of docs/retention.md, run block by block against a real service process; its table against the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from tools.service_process import Service, running_service

from headgate.core import expire
from headgate.core.apply import previous_versions_max

PAGE = Path(__file__).parents[2] / "docs" / "retention.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `([a-z0-9.-]+)` \| (?:`([^`]+)`)?", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    """Language and text of every block, in order."""
    return _BLOCK.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service of the page's first block."""
    (command,) = (text for language, text in blocks() if language == "")
    with running_service(tmp_path_factory.mktemp("docs"), options=command.split()[2:]) as running:
        yield running


@pytest.fixture(scope="module")
def printed(service: Service, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each block printed."""
    place = tmp_path_factory.mktemp("page")
    return [_run(language, text, place, service) for language, text in blocks() if language]


def _run(language: str, text: str, place: Path, service: Service) -> str:
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    env = {**os.environ, "URI": service.uri}
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}\n{service.log_tail()}"
    return done.stdout


def test_the_expiry_of_the_page_is_in_the_feed(printed: list[str]) -> None:
    assert printed[-1].strip() == '"action":"remove-snapshots"'


def test_the_rows_and_the_tag_of_the_page_are_there(printed: list[str], service: Service) -> None:
    table = RestCatalog("page", uri=service.uri).load_table("retention.numbers")
    assert len(printed) == 3
    assert len(table.snapshots()) <= 4 + 1  # three of the branch, one of the tag, one that came last
    assert sorted(set(table.scan().to_arrow()["id"].to_pylist())) == [2, 3]
    tagged = table.snapshot_by_name("ten")
    assert tagged is not None
    assert table.scan(snapshot_id=tagged.snapshot_id).to_arrow().num_rows == 30


def test_every_property_and_default_of_the_page_is_the_codes() -> None:
    shown = dict(_ROW.findall(PAGE.read_text(encoding="utf-8")))
    ours = {
        expire.ENABLED,
        expire.SNAPSHOTS_MAX,
        expire.SNAPSHOT_AGE_MAX,
        expire.SNAPSHOTS_MIN,
        expire.REF_AGE_MAX,
        expire.GC_ENABLED,
    }
    assert ours < shown.keys()
    terms = expire.read_terms({})
    assert int(shown[expire.SNAPSHOT_AGE_MAX]) == terms.snapshot_age_max_ms
    assert int(shown[expire.SNAPSHOTS_MIN]) == terms.snapshots_min
    assert int(shown["write.metadata.previous-versions-max"]) == previous_versions_max({})
