"""The library's bench tells the truth: it reads tables back, finds what nobody names, and its page shows what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.common import NAMESPACE
from bench.contention_page import DOCS, fill_part
from bench.library import MANY, OURS, PLAIN, judge
from bench.library_page import backoff_part, draw_all, fill_parts, library_part
from bench.library_writers import (
    RETRIES,
    SCHEMA,
    Place,
    add_history,
    make_library_step,
    make_pyiceberg_step,
    new_place,
    race_for_table,
    read_back,
)
from bench.race import Lap, Laps, Race, Tried, sum_up

NOTHING = {"data": 0, "manifests": 0, "lists": 0, "metadata": 0}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A table that is not there yet, in a catalog on SQLite."""
    found = new_place(f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "warehouse")
    catalog = found.open()
    catalog.create_namespace(NAMESPACE)
    catalog.engine.dispose()
    return found


def create(place: Place) -> Path:
    """The table's folder."""
    catalog = place.open()
    location = catalog.create_table(place.table, SCHEMA).location()
    catalog.engine.dispose()
    return Path(location.removeprefix("file://"))


def test_writers_of_the_library_publish_what_they_say_and_leave_nothing_behind(place: Place) -> None:
    found = race_for_table(place, Race(writers=2, seconds=0.6), make_library_step, history=3)
    assert found["acknowledged"] > 0
    assert found["present"] == found["acknowledged"]
    assert found["missing"] == found["unfinished"] == 0
    assert found["orphans"] == NOTHING
    assert found["attempts_per_commit"] >= 1


def test_a_commit_that_pyiceberg_gave_up_leaves_a_data_file(place: Place) -> None:
    race = Race(writers=4, seconds=1.5)
    found = race_for_table(place, race, make_pyiceberg_step, properties={RETRIES: "0"})
    assert found["present"] == found["acknowledged"]
    assert found["orphans"]["data"] == sum(found["failed"].values())


def test_a_metadata_file_that_fell_off_the_log_is_nobody_s_orphan(place: Place) -> None:
    folder = create(place)
    catalog = place.open()
    with catalog.load_table(place.table).transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "2"})
    catalog.engine.dispose()
    for _ in range(5):
        add_history(place, 1)
    newest = max((folder / "metadata").glob("*.metadata.json"))
    assert len(json.loads(newest.read_bytes())["metadata-log"]) == 2
    assert read_back(place) == {"files": 5, "doubled": 0, "orphans": NOTHING}


def test_every_kind_of_file_that_nobody_names_is_found(place: Place) -> None:
    folder = create(place)
    add_history(place, 1)
    (folder / "data").mkdir(exist_ok=True)
    for name in (
        "data/lost.parquet",
        "metadata/lost-m0.avro",
        "metadata/snap-9-lost.avro",
        "metadata/9-lost.metadata.json",
    ):
        (folder / name).write_bytes(b"")
    assert read_back(place)["orphans"] == {"data": 1, "manifests": 1, "lists": 1, "metadata": 1}


def test_commits_of_the_warm_up_count_as_lost_but_not_for_the_rate() -> None:
    laps = [
        Lap(0.0, 0.5, Tried("", 1)),
        Lap(0.5, 1.5, Tried("Lost", 5)),
        Lap(1.0, 2.0, Tried("", 3)),
        Lap(2.0, 3.5, Tried("", 1)),
    ]
    found = sum_up(Laps(Race(writers=1, seconds=2.0, warm_up_s=1.0), 0.0, laps, 0))
    assert found["commits_per_s"] == 0.5
    assert found["count"] == 2
    assert found["lost_share"] == 0.25
    assert found["attempts_per_commit"] == pytest.approx(10 / 3)


def row(who: str, rate: float, *, history: int = 0, **parts: Any) -> dict[str, Any]:
    """A point of a run."""
    known = {
        "who": who,
        "database": "sqlite",
        "clients": 16,
        "history": history,
        "commits_per_s": rate,
        "count": 9,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "lost_share": 0.0,
        "attempts_per_commit": 1.0,
        "failed": {},
        "missing": 0,
        "unfinished": 0,
        "orphans": NOTHING,
    }
    return {**known, **parts}


def test_goals_compare_like_with_like_and_count_every_loss_of_ours() -> None:
    rows = [
        row(OURS, 120.0, orphans={**NOTHING, "lists": 2}),
        row(PLAIN, 10.0, failed={"CommitFailedException": 7}, orphans={**NOTHING, "data": 7}),
        row(OURS, 50.0, history=1000, failed={"CommitRefused": 1}, unfinished=1, missing=1),
        row(PLAIN, 5.0, history=1000),
        row(MANY, 0.0, history=1000),
    ]
    goals = list(judge(rows, writers=16, history=1000, seconds=4.0))
    assert [(goal.value, goal.bound, goal.holds) for goal in goals] == [
        (12.0, 10, True),
        (10.0, 20, False),
        (200.0, 20, True),
        (3, 0, False),
        (2, 0, False),
    ]


def test_a_part_of_the_page_is_written_without_touching_the_others() -> None:
    page = "a\n<!-- x: made by m -->\nold\n<!-- end of x -->\nb\n<!-- y: made by m -->\nkept\n<!-- end of y -->\n"
    filled = fill_part(page, "x", "new", maker="m")
    assert filled == page.replace("\nold\n", "\n\nnew\n\n")
    with pytest.raises(ValueError, match="no part"):
        fill_part(page, "z", "new", maker="m")


def test_the_page_and_its_plots_show_the_results_that_are_kept() -> None:
    page = (DOCS / "contention.md").read_text(encoding="utf-8")
    assert page == fill_parts(page)
    for name, image in draw_all().items():
        assert (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8") == image


def test_tables_name_what_was_left_and_what_the_seed_says() -> None:
    machine = {"cores": 2, "python": "3.11.7"}
    rows = [row(PLAIN, 4.0, lost_share=0.25, orphans={**NOTHING, "data": 3}, unfinished=2)]
    text = library_part({"machine": machine, "seconds": 5.0, "points": rows, "goals": []})
    assert "| PyIceberg, SQLite | 16 | 0 | 4 | 1.0 | 2 | 25% (2 stopped) | 1.00 | 3 data |" in text
    numbers = {"retried": 0.5, "retries_per_retried": 2.0, "retries_per_commit": 1.0, "over_four": 0.0}
    times = {"p50_ms": 10.0, "p99_ms": 1200.0, "max_ms": 1500.0, "given_up": 0, "commits_per_s": 30.0}
    point = {"waits": "linear", "where": "real", "load": "apart", "eight_or_more": 0.0, "most": 4, "tail": []}
    found = backoff_part(
        {
            "machine": machine,
            "writers": 30,
            "seconds": 5.0,
            "simulated_seconds": 60.0,
            "wait_min_ms": 10,
            "wait_max_ms": 1000,
            "think_ms": 1000.0,
            "tick_ms": 3000.0,
            "published": [
                {"waits": "linear", "retried": 0.35, "retries": 4.1, "eight_or_more": None, "most": None}
            ],
            "points": [{**point, **numbers, **times}],
        }
    )
    assert "| linear | seed | 35% | 4.1 | | |  |  | | | | | |" in found
    assert "| linear | real | 50% | 2.00 | 1.00 | 0.0% | 0.0% | 4 | 10 | 1,200 | 1,500 | 0 | 30 |" in found
    assert "together" not in found.lower()
