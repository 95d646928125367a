"""The code of docs/async.md, run block by block against a real service process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

from headgate.core.own_properties import STREAM_LINGER_MS
from headgate.service.metrics import Metrics
from tests.docs.page_blocks import DOCS, read_json, read_outputs, run_page

PAGE = DOCS / "async.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the blocks of the page ran."""
    with run_page(PAGE, tmp_path_factory.mktemp("docs")) as place:
        yield place


def test_the_commit_of_the_page_was_acknowledged_and_got_its_verdict(folder: Path) -> None:
    acknowledged, verdict = read_json(folder, "acknowledged.json"), read_json(folder, "verdict.json")
    assert acknowledged == {"id": verdict["key"], "status": "pending"}
    assert verdict["status"] == "committed"


def test_the_append_of_the_page_was_acknowledged_within_the_linger_of_its_table(folder: Path) -> None:
    streamed = read_json(folder, "streamed.json")
    assert streamed["status"] == "acknowledged"
    assert 0 <= streamed["commit-within-ms"] <= 200


def test_the_client_of_the_page_waited_for_all_that_it_sent(folder: Path) -> None:
    assert len(read_outputs(folder)[-1].split()) == 6
    catalog = RestCatalog("page", uri=(folder / "uri").read_text())
    rows = catalog.load_table("lake.clicks").scan().to_arrow()["id"].to_pylist()
    assert sorted(rows) == [1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_the_page_names_the_property_and_the_metrics_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert STREAM_LINGER_MS in text
    served = Metrics().print().decode()
    for name in re.findall(r"`(headgate_job\w+)`", text):
        assert name.removesuffix("_total") in served, name
