"""The code of docs/spark.md and docs/pipelines.md, run against a real service process; their tables against the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from tools.iceberg_jar import find_java
from tools.service_process import Service, running_service

from headgate.spark.demo_source import Demo, payments
from tests.docs.page_blocks import DOCS, find_blocks

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SPARK, PIPELINES = DOCS / "spark.md", DOCS / "pipelines.md"
RUN_WAIT_S = 400  # Spark starts anew for every command of a page
_FILE = re.compile(r"# (\w+\.(?:toml|py))\n")
_KEY = re.compile(r"^\| ((?:`[a-z.-]+`(?:, )?)+) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for both pages."""
    if find_java() is None:
        pytest.skip("no Java was found; run through ./dev test, which gets one")
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running


@dataclass(frozen=True)
class Page:
    """A folder where a page's blocks run, and the service that they find."""

    folder: Path
    service: Service

    def run(self, *command: str) -> str:
        """What a command printed."""
        own = {
            "URI": self.service.uri,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**inherited, **own},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_WAIT_S,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stderr[-4000:]}\n{self.service.log_tail()}"
        return done.stdout

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        """Rows of a table as PyIceberg reads them, in order."""
        found = RestCatalog("page", uri=self.service.uri).load_table(table).scan(selected_fields=columns)
        return sorted(tuple(row[name] for name in columns) for row in found.to_arrow().to_pylist())


def test_the_jobs_of_the_spark_page_do_what_they_print(service: Service, tmp_path: Path) -> None:
    page = Page(tmp_path, service)
    program = "\n".join(text for language, text in find_blocks(SPARK) if language == "python")
    printed = page.run(sys.executable, "-c", program).splitlines()
    RestCatalog("page", uri=service.uri).drop_table("shop.clicks")
    assert printed == [
        "wrote 3 rows in one commit: True",
        "deleted 1 updated 2 inserted 1",
        *(line for line in printed[2:3] if re.fullmatch(r"files: \d+ → \d", line)),
        "left out: []",
        *(line for line in printed[4:5] if re.fullmatch(r"snapshots that went: \d+", line)),
        "orphans: 0",
        "streamed 50 rows",
        "rebuilt",
        "incremental",
        "sold by ['anna', 'bert', 'cleo', 'dora']",
    ]
    totals = page.rows("shop.by_customer", "customer", "payments", "total")
    assert totals == [
        ("anna", 1, Decimal(20)),
        ("cleo", 1, Decimal(33)),
        ("dora", 1, Decimal(40)),
        ("eve", 5, Decimal(10)),
        ("fred", 1, Decimal(5)),
    ]
    RestCatalog("page", uri=service.uri).drop_table("shop.payments")


def test_the_pipelines_of_the_page_fill_their_tables(service: Service, tmp_path: Path) -> None:
    page, printed = Page(tmp_path, service), []
    for language, text in find_blocks(PIPELINES):
        if found := _FILE.match(text):
            (tmp_path / found[1]).write_text(text)
        elif language == "sh":
            printed.append(page.run("bash", "-euo", "pipefail", "-c", text))
    assert "payments.toml: raw → shop.payments: no faults found" in printed[1]
    shown = next(
        text for language, text in _all_blocks(PIPELINES) if language == "" and text.startswith("payments\n")
    )
    names = [line.split("  ")[1] for line in shown.splitlines()[1:]]
    assert [line.split("  ")[1] for line in printed[1].splitlines()[2:]] == names
    assert page.rows("shop.payments", "id", "amount") == [(1, Decimal("10.00")), (3, Decimal("31.00"))]
    assert page.rows("shop.clicks", "id") == sorted((row[0],) for row in payments(Demo(), 0, 200))


def _all_blocks(page: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = re.findall(
        r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return found


def test_the_pipelines_page_names_every_key_and_no_other() -> None:
    shown = {
        name
        for cell in _KEY.findall(PIPELINES.read_text(encoding="utf-8"))
        for name in re.findall(r"[a-z.-]+", cell)
    }
    source = (DOCS.parent / "src/headgate/spark/pipeline_spec.py").read_text(encoding="utf-8")
    asked = r'keys\.(?:text|needed|choice|flag|number|words|texts|raw)\(\s*"([a-z-]+)"|_assignments\(keys, "([a-z-]+)"'
    read = {first or second for first, second in re.findall(asked, source)}
    tables = {"lake", "spark", "target", "merge"}
    assert {name.rpartition(".")[2] for name in shown} - tables == read | {
        "uri",
        "storage",
        "master",
        "conf",
        "py-files",
    }
