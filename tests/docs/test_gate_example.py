"""The code of docs/gate.md, run block by block against a real service process; its figures against the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

from headgate.core.group import CHAIN, FOLD, GROUP_PROPERTY
from headgate.core.intake import FILES_MAX
from headgate.service.group_driver import TRIES_FOR
from headgate.service.metrics import Metrics
from headgate.service.settings import Settings
from tests.docs.page_blocks import DOCS, read_json, read_outputs, run_page

PAGE = DOCS / "gate.md"
_SETTING = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| `([^`]+)` \|", re.MULTILINE)
_METRIC = re.compile(r"`(headgate_\w+)`")
_ROWS = 129


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the blocks of the page ran."""
    with run_page(PAGE, tmp_path_factory.mktemp("docs")) as place:
        yield place


def _counted(folder: Path) -> list[int]:
    """How many snapshots the two runs of the page's writers were told."""
    return [int(text.split()[0]) for text in read_outputs(folder) if text.endswith(" snapshots\n")]


def test_a_chain_gives_every_writer_of_the_page_a_snapshot_and_a_fold_no_more(folder: Path) -> None:
    chained, folded = _counted(folder)
    assert chained == 64
    assert 1 <= folded <= 64


def test_the_metrics_of_the_page_count_its_commits(folder: Path) -> None:
    (printed,) = (
        text for file in folder.glob("*.out") if "headgate_group_size_sum" in (text := file.read_text())
    )
    found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in printed.splitlines())}
    assert found["headgate_group_size_sum"] >= 64
    assert found["headgate_group_size_count"] <= found["headgate_group_size_sum"]
    assert found['headgate_commits_total{verdict="committed"}'] >= 64
    assert found["headgate_swap_retries_total"] == 0


def test_the_request_of_the_page_without_time_is_refused_and_the_same_with_time_lands(folder: Path) -> None:
    late, landed = read_json(folder, "late.json")["error"], read_json(folder, "landed.json")
    assert (late["code"], late["headgate"]["code"], late["headgate"]["retry"]) == (503, "queue-full", "later")
    assert [snapshot["summary"]["added-records"] for snapshot in landed["snapshots"]] == ["1"]


def test_another_reader_finds_every_row_of_the_page_once(folder: Path) -> None:
    table = RestCatalog("page", uri=(folder / "uri").read_text()).load_table("shop.orders")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(_ROWS))


def test_the_page_names_metrics_and_settings_that_there_are_with_their_defaults() -> None:
    text = PAGE.read_text(encoding="utf-8")
    served = Metrics().print().decode()
    named = {
        name.removesuffix("_total").removesuffix("_sum").removesuffix("_count")
        for name in _METRIC.findall(text)
    }
    assert {name for name in named if f"# TYPE {name}" not in served} == set()
    defaults = {item.name: str(item.default) for item in fields(Settings)}
    shown = {name: value for names, value in _SETTING.findall(text) for name in re.findall(r"\w+", names)}
    assert shown
    assert {name: defaults.get(name) for name in shown} == shown


def test_the_page_says_what_the_code_bounds() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"`{GROUP_PROPERTY}` not set, or `{CHAIN}`" in text
    assert f"`{GROUP_PROPERTY}` = `{FOLD}`" in text
    assert f"at most {FILES_MAX:,} files together" in text
    assert (TRIES_FOR, "for half of `request_timeout_s` gets a 409" in text) == (0.5, True)
