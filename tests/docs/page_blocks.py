"""Runs the code blocks of a documentation page, in order, against a real service process.

`run_page` leaves what block number n printed in `n.out` of its folder, and the service's address in `uri`. Only blocks
of `sh` and `python` are run; one that begins with `# lake.py` is a module for the blocks behind it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tools.service_process import Service, running_service

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def find_blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every block, in order."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


@contextmanager
def run_page(page: Path, place: Path) -> Iterator[Path]:
    """The folder where the blocks ran; the service is up until the end."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    with running_service(place) as service:
        for number, (language, text) in enumerate(find_blocks(page)):
            if language in ("sh", "python"):
                (place / f"{number}.out").write_text(_run(language, text, place, service))
        (place / "uri").write_text(service.uri)
        yield place


def read_outputs(folder: Path) -> list[str]:
    """What the blocks printed, in order."""
    files = sorted(folder.glob("*.out"), key=lambda file: int(file.stem))
    return [file.read_text() for file in files]


def read_json(folder: Path, name: str) -> Any:
    """A file that a block of the page wrote."""
    return json.loads((folder / name).read_text())


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
