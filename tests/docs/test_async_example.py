"""The code of docs/async.md, run block by block against a real service process."""

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

from headgate.core.own_properties import STREAM_LINGER_MS
from headgate.service.metrics import Metrics

PAGE = Path(__file__).parents[2] / "docs" / "async.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the blocks ran; what the last one printed is in `printed`."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    place = tmp_path_factory.mktemp("docs")
    with running_service(place) as service:
        for language, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            (place / "printed").write_text(_run(language, text, place, service))
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


def test_the_commit_of_the_page_was_acknowledged_and_got_its_verdict(folder: Path) -> None:
    acknowledged, verdict = _read(folder, "acknowledged.json"), _read(folder, "verdict.json")
    assert acknowledged == {"id": verdict["key"], "status": "pending"}
    assert verdict["status"] == "committed"


def test_the_append_of_the_page_was_acknowledged_within_the_linger_of_its_table(folder: Path) -> None:
    streamed = _read(folder, "streamed.json")
    assert streamed["status"] == "acknowledged"
    assert 0 <= streamed["commit-within-ms"] <= 200


def test_the_client_of_the_page_waited_for_all_that_it_sent(folder: Path) -> None:
    assert len((folder / "printed").read_text().split()) == 6
    catalog = RestCatalog("page", uri=(folder / "uri").read_text())
    rows = catalog.load_table("lake.clicks").scan().to_arrow()["id"].to_pylist()
    assert sorted(rows) == [1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_the_page_names_the_property_and_the_metrics_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert STREAM_LINGER_MS in text
    served = Metrics().print().decode()
    for name in re.findall(r"`(headgate_job\w+)`", text):
        assert name.removesuffix("_total") in served, name
