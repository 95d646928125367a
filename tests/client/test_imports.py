"""The client stays light: what it may import, of this package and from outside."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import headgate.client

_HEAVY = ("pyiceberg", "pyarrow", "pyspark", "httpx", "fastavro", "uvicorn", "pydantic")
_OURS = ("headgate.client", "headgate.errors", "headgate.core.isolation", "headgate.core.backoff")
_FOLDER = Path(headgate.client.__file__).parent


def test_importing_the_client_loads_nothing_heavy() -> None:
    code = "import sys, headgate.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "msgspec" in loaded
    assert loaded.isdisjoint(_HEAVY)


def test_of_this_package_the_client_knows_four_rooms_only() -> None:
    for file in _FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("headgate"):
                continue
            names = [alias.name for alias in node.names]
            allowed = str(node.module).startswith(_OURS) or names in (["errors"], ["__version__"])
            assert allowed, f"{file.name}: {node.module} {names}"


def test_outside_its_package_the_client_needs_msgspec_alone() -> None:
    outside = set()
    for file in _FOLDER.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:  # PyArrow is imported in a function
            if isinstance(node, ast.Import):
                outside |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                outside.add(str(node.module).split(".")[0])
    assert outside - sys.stdlib_module_names == {"headgate", "msgspec"}
