"""The code of docs/fine-grained-commits.md, run block by block against a real service process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.docs.page_blocks import DOCS, find_blocks, read_json, run_page

PAGE = DOCS / "fine-grained-commits.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the blocks of the page ran."""
    with run_page(PAGE, tmp_path_factory.mktemp("docs")) as place:
        yield place


def test_the_append_of_the_page_landed_once(folder: Path) -> None:
    done = read_json(folder, "appended.json")
    assert done["sequence-number"] == 1
    assert [s["summary"]["total-records"] for s in done["snapshots"]] == ["3"]
    shell = [number for number, (language, _) in enumerate(find_blocks(PAGE)) if language == "sh"]
    verdict = json.loads((folder / f"{shell[1]}.out").read_text())
    assert (verdict["status"], verdict["snapshot-id"]) == ("committed", done["snapshot-id"])


def test_the_conflict_of_the_page_is_the_one_that_the_service_answers(folder: Path) -> None:
    answered = read_json(folder, "refused.json")["error"]
    (shown,) = (json.loads(text) for language, text in find_blocks(PAGE) if language == "json")
    conflict = answered["conflict"]
    assert answered["code"] == 409
    assert conflict.keys() == shown.keys()
    assert conflict["theirs"].keys() == shown["theirs"].keys()
    for name in ("rule", "next", "file-count", "filter"):
        assert conflict[name] == shown[name]
    for name in ("operation", "committed-by"):
        assert conflict["theirs"][name] == shown["theirs"][name]
    assert conflict["files"][0].endswith("/lake/events/data/first.parquet") or "first.parquet" in str(
        conflict
    )


def test_the_client_of_the_page_committed_on_top(folder: Path) -> None:
    last = max(number for number, (language, _) in enumerate(find_blocks(PAGE)) if language == "python")
    _, sequence_number, sent = (folder / f"{last}.out").read_text().split()
    assert (int(sequence_number), int(sent)) == (3, 1)


def test_another_reader_finds_the_rows_of_the_page(folder: Path) -> None:
    catalog = RestCatalog("page", uri=(folder / "uri").read_text())
    rows = catalog.load_table("lake.events").scan(row_filter="id > 1").to_arrow().to_pydict()
    assert rows == {"id": [2, 3, 4], "kind": ["click"] * 3}
