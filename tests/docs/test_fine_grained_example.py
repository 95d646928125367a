"""The code of docs/fine-grained-commits.md, run block by block against a real service process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from tools.service_process import Service, running_service

PAGE = Path(__file__).parents[2] / "docs" / "fine-grained-commits.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Language and text of every block, in order."""
    return _BLOCK.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the blocks ran; what they printed is in numbered files."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    place = tmp_path_factory.mktemp("docs")
    with running_service(place) as service:
        for number, (language, text) in enumerate(blocks()):
            if language in ("sh", "python"):
                (place / f"{number}.out").write_text(_run(language, text, place, service))
        (place / "uri").write_text(service.uri)
        yield place


def _run(language: str, text: str, place: Path, service: Service) -> str:
    if text.startswith("# lake.py\n"):
        (place / "lake.py").write_text(text)
        return ""
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    bin_ = os.path.dirname(sys.executable)
    env = {**os.environ, "URI": service.uri, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}\n{service.log_tail()}"
    return done.stdout


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_the_append_of_the_page_landed_once(folder: Path) -> None:
    done = _read(folder, "appended.json")
    assert done["sequence-number"] == 1
    assert [s["summary"]["total-records"] for s in done["snapshots"]] == ["3"]
    shell = [number for number, (language, _) in enumerate(blocks()) if language == "sh"]
    verdict = json.loads((folder / f"{shell[1]}.out").read_text())
    assert (verdict["status"], verdict["snapshot-id"]) == ("committed", done["snapshot-id"])


def test_the_conflict_of_the_page_is_the_one_that_the_service_answers(folder: Path) -> None:
    answered = _read(folder, "refused.json")["error"]
    (shown,) = (json.loads(text) for language, text in blocks() if language == "json")
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
    last = max(number for number, (language, _) in enumerate(blocks()) if language == "python")
    _, sequence_number, sent = (folder / f"{last}.out").read_text().split()
    assert (int(sequence_number), int(sent)) == (3, 1)


def test_another_reader_finds_the_rows_of_the_page(folder: Path) -> None:
    catalog = RestCatalog("page", uri=(folder / "uri").read_text())
    rows = catalog.load_table("lake.events").scan(row_filter="id > 1").to_arrow().to_pydict()
    assert rows == {"id": [2, 3, 4], "kind": ["click"] * 3}
