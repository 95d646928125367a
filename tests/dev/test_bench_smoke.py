"""The contention benches tell the truth: they count what is in the table, and their page shows what they found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.common import NAMESPACE
from bench.contention_page import LOCAL, OBJECT_STORE, REPLICAS, fill_page, goal_rows, plot, read_result, show
from bench.ground import fresh_folder
from bench.load import Load, Outcome, Target, run_load
from bench.peers import race_own_core
from bench.points import Catalog, check_table, open_catalog
from bench.race import Race
from bench.slow_files import Latencies
from bench.turns import Turn, turn_goals
from tools.plot_svg import Chart, Line, draw_chart
from tools.service_process import running_service, sqlite_url

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A service that asks for tokens, and one of them."""
    folder = tmp_path_factory.mktemp("bench")
    database = sqlite_url(folder / "catalog.db")
    with running_service(folder, database=database, options=("--auth", "on")) as service:
        yield open_catalog(service, database=database, auth=True)


def load_table(catalog: Catalog, *, keys: bool) -> tuple[Outcome, dict[str, Any]]:
    """What the clients of a short run saw, and the table they left."""
    table = catalog.create_table("chain")
    location = catalog.load_table(table)["location"]
    ports = tuple(service.port for service in catalog.services)
    target = Target(ports, NAMESPACE, table, location, catalog.token, keys)
    outcome = run_load(target, Load(clients=3, seconds=0.6, warm_up_s=0.2))
    return outcome, catalog.load_table(table)


@pytest.mark.parametrize("keys", [False, True])
def test_every_acknowledged_append_is_in_the_table_once(catalog: Catalog, keys: bool) -> None:
    outcome, metadata = load_table(catalog, keys=keys)
    assert 0 < outcome.count < outcome.acknowledged
    found = check_table(metadata, outcome, mode="chain")
    assert (
        found["snapshots"] == outcome.acknowledged
    )  # those of appends: the service may have merged manifests
    assert found["lost"] == sum(outcome.failed.values())
    assert found["files"] == outcome.acknowledged


def test_a_table_that_does_not_hold_what_was_acknowledged_is_found_out(catalog: Catalog) -> None:
    outcome, metadata = load_table(catalog, keys=False)
    one_more = replace(outcome, acknowledged=outcome.acknowledged + 1)
    assert check_table(metadata, one_more, mode="fold")["missing"] == 1
    first = next(n for n in range(1, outcome.acknowledged + 1) if n not in outcome.not_acknowledged)
    refused = replace(
        outcome,
        acknowledged=outcome.acknowledged - 1,
        not_acknowledged=[*outcome.not_acknowledged, first],
    )
    assert check_table(metadata, refused, mode="fold")["strange"] == 1
    one_less = {**metadata, "snapshots": metadata["snapshots"][1:]}
    assert check_table(one_less, outcome, mode="chain")["miscounted"] == 1


def test_a_refused_append_is_counted_by_its_status(catalog: Catalog) -> None:
    table = catalog.create_table("chain")
    location = catalog.load_table(table)["location"]
    ports = tuple(service.port for service in catalog.services)
    target = Target(ports, NAMESPACE, table, location, token="wrong")
    outcome = run_load(target, Load(clients=2, seconds=0.2, warm_up_s=0.0))
    assert outcome.acknowledged == 0
    assert set(outcome.failed) == {"401"}
    assert len(outcome.not_acknowledged) == outcome.failed["401"] >= 2


def test_writers_without_a_gate_publish_what_they_say(tmp_path: Path) -> None:
    found = race_own_core(tmp_path / "own", Race(writers=2, seconds=0.6), Latencies(2.0, 0.0, 1.0))
    assert found["acknowledged"] > 0
    assert found["present"] == found["acknowledged"]
    assert found["unfinished"] == 0


def chart(*lines: Line) -> ElementTree.Element:
    """A drawn chart, read as XML."""
    return ElementTree.fromstring(draw_chart(Chart("a < b & c", "writers", 'commits "per" s', lines)))


def test_a_chart_is_xml_with_every_point_and_every_label_inside_the_picture() -> None:
    fast = Line("fast & <sure>", ((1, 400.0), (16, 2500.0), (256, 12_000.0)), "#000000")
    slow = Line("slow", ((1, 0.4), (16, 9.0)), "#ff0000", dashed=True)
    root = chart(fast, slow)
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"a < b & c", "writers", 'commits "per" s', "fast & <sure>", "slow"} <= texts
    assert {"1", "16", "256", "0.1", "10", "100,000"} <= texts
    paths = [element.attrib["points"].split() for element in root.iter(f"{SVG}polyline")]
    assert [len(path) for path in paths] == [3, 2]
    _, _, width, height = (float(word) for word in root.attrib["viewBox"].split())
    for x, y in (map(float, point.split(",")) for path in paths for point in path):
        assert 0 < x < width
        assert 0 < y < height


def test_more_is_drawn_higher_and_ten_times_as_much_always_as_much_higher() -> None:
    (line,) = chart(Line("one", ((1, 10.0), (2, 100.0), (4, 1000.0)), "#000000")).iter(f"{SVG}polyline")
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert heights[0] > heights[1] > heights[2]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


@pytest.mark.parametrize("points", [(), ((1, 0.0),), ((0, 5.0),)])
def test_what_has_no_place_on_a_logarithmic_axis_is_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        chart(Line("one", points, "#000000"))


def test_the_page_and_its_plots_show_the_results_that_are_kept() -> None:
    results = {
        name: read_result(ROOT / "bench" / "results", name) for name in (LOCAL, OBJECT_STORE, REPLICAS)
    }
    page = (ROOT / "docs" / "contention.md").read_text(encoding="utf-8")
    assert page == fill_page(page, results)
    for name in (LOCAL, OBJECT_STORE):
        image = ROOT / "docs" / "images" / f"{name}.svg"
        result = results[name]
        assert image.exists() == (result is not None)
        if result is not None:
            assert image.read_text(encoding="utf-8") == plot(result)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.834, "0.83"), (12.34, "12.3"), (412.6, "413"), (10_234.5, "10,234")]
)
def test_a_figure_has_as_many_digits_as_mean_something(value: float, text: str) -> None:
    assert show(value) == text


def test_the_folder_of_a_bench_is_empty_and_goes_with_all_that_it_held() -> None:
    with fresh_folder() as folder:
        assert not list(folder.iterdir())
        (folder / "written").write_text("by the bench")
    assert not folder.parent.exists()


def turn(chain: float, fold: float, single_ms: float) -> Turn:
    """A turn beside peers of 5 and 2 commits/s and a floor of half a millisecond."""
    return Turn(chain, 5.0, fold, 2.0, single_ms, 0.5, stolen=0.0, lost=0)


def test_goals_are_judged_by_the_median_of_ratios_that_were_taken_together() -> None:
    turns = [turn(500, 2000, 2.0), turn(1000, 1400, 1.0), turn(800, 900, 1.4)]
    chain, fold, single = turn_goals(turns)
    assert (chain.value, chain.holds, chain.runs) == (160, True, (100, 200, 160))
    assert (fold.value, fold.holds) == (700, True)
    assert (single.value, single.holds) == (2.8, True)
    assert [goal.holds for goal in turn_goals(turns[:1])] == [False, True, False]
    assert chain.text().endswith("of 100 to 200")


def test_the_page_shows_how_far_the_runs_of_a_goal_are_apart() -> None:
    goals = [goal.record() for goal in turn_goals([turn(500, 2000, 2.0), turn(1000, 1400, 1.0)])]
    rows = goal_rows({"goals": goals})
    assert "150 × (median of 100 to 200)" in rows[2]
    assert "median" not in goal_rows({"goals": [{**goals[0], "runs": []}]})[2]
