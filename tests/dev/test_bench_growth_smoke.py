"""The benches of growth, window and soak at their smallest, and the judgements that their figures rest on.

The smallest runs prove that a bench still speaks to the service; what it measures is for `./dev bench`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import compaction, growth, rebase, soak, window
from bench.common import (
    Link,
    append_of,
    count_commit_answers,
    create_namespace,
    create_table,
    describe_file,
    read_metrics,
    table_path,
)
from pyiceberg.manifest import ManifestContent, ManifestFile
from tools.service_process import Service, running_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the benches' namespace."""
    with running_service(tmp_path_factory.mktemp("service")) as running:
        create_namespace(running.port)
        yield running


def test_a_refused_commit_is_seen_by_the_count_of_answers(service: Service) -> None:
    location = create_table(service.port, "t")
    before = read_metrics(service.port)
    link = Link(service.port)
    link.commit("t", [append_of(describe_file(location))])
    stale = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
    body = json.dumps({"requirements": [stale], "updates": []}).encode()
    assert link.ask("POST", table_path("t"), body).status == 409
    assert link.ask("POST", "/v1/namespaces", b'{"namespace": ["bench"]}').status == 409
    link.close()
    after = read_metrics(service.port)
    assert (
        count_commit_answers(after, 409) - count_commit_answers(before, 409) == 1
    )  # not that of the namespace
    assert count_commit_answers(after, 200) - count_commit_answers(before, 200) == 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # PyIceberg's REST catalog keeps its session
def test_the_growth_bench_measures_tables_of_the_sizes_it_names(tmp_path: Path) -> None:
    file = tmp_path / "growth.json"
    words = ["--commits", "4", "--settle-s", "0", "--sustain-s", "0.05", "--snapshots", "", "--files", ""]
    assert growth.main([*words, "--manifests", "2,6", "--file", str(file)]) == 0
    points = json.loads(file.read_text())["manifests"]["points"]
    assert [(p["size"], p["snapshots"], p["manifests"], p["files"]) for p in points] == [
        (2, 1, 2, 2),
        (6, 1, 6, 6),
    ]
    assert all(p["count"] > 0 and p["p50_ms"] > 0 and p["rss_bytes"] > 0 for p in points)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # PyIceberg's REST catalog keeps its session
def test_the_soak_bench_finds_every_acknowledged_change(service: Service) -> None:
    asked = soak.make_parser().parse_args(["--minutes", "0.01", "--clients", "2", "--sample-s", "0.2"])
    found = soak.run(service, asked)
    assert found["correct"]
    assert found["acknowledged"] > 0
    assert len(found["rss_bytes"]) > 0


def test_the_window_bench_judges_ours_from_the_base(tmp_path: Path) -> None:
    found = window.measure_ours(tmp_path / "ours", window=5, samples=1, restarts=0)
    assert all(
        found[column][part]["warm"]["count"] == 1
        for column in window.FILTERS
        for part in ("commit", "validation")
    )


def test_the_window_bench_judges_pyiceberg_over_the_same_window(tmp_path: Path) -> None:
    found = window.measure_peer(tmp_path / "peer", window=5, samples=1)
    for column in window.FILTERS:
        assert 0 < found[column]["validation"]["p50_ms"] < found[column]["commit"]["p50_ms"]


def test_acknowledged_changes_are_replayed_in_the_order_of_their_sequence_numbers() -> None:
    one, two, three = (soak.Held(path, part, 10) for path, part in (("a", 1), ("b", 1), ("c", 2)))
    emptied = soak.Held("d", 1, 10)
    changes = [
        (4, soak.Effect("overwrite-filter", adds=(emptied,), empties=1)),
        (1, soak.Effect("append", adds=(one,))),
        (5, soak.Effect("append", adds=(two,))),
        (2, soak.Effect("append", adds=(three,))),
        (3, soak.Effect("delete", removes=(three,))),
    ]
    assert soak.replay(changes) == ({"b", "d"}, [])


def test_a_file_that_two_acknowledged_changes_removed_is_reported() -> None:
    held = soak.Held("a", 1, 10)
    gone = soak.Effect("delete", removes=(held,))
    live, wrong = soak.replay([(1, soak.Effect("append", adds=(held,))), (2, gone), (3, gone)])
    assert live == set()
    assert wrong == ["delete at 3 removed what was not live: a"]


@pytest.mark.parametrize(
    ("rss", "flat"),
    [([50, 90, 100, 100, 105, 105], True), ([90, 90, 100, 100, 120, 120], False), ([100], True)],
)
def test_memory_is_flat_when_the_last_third_is_within_a_tenth_of_the_middle(
    rss: list[int], flat: bool
) -> None:
    assert soak.is_flat(rss)[1] is flat


def manifest(size: int, *, spec: int = 0, content: ManifestContent = ManifestContent.DATA) -> ManifestFile:
    """A manifest of so many bytes with three live files."""
    return ManifestFile.from_args(
        manifest_path="m",
        manifest_length=size,
        partition_spec_id=spec,
        content=content,
        added_files_count=1,
        existing_files_count=2,
    )


def test_the_ideal_number_of_manifests_is_counted_for_each_spec_and_content() -> None:
    small, large = 1_000, compaction.TARGET_BYTES
    found = compaction.count_manifests(
        [
            manifest(small),
            manifest(small),
            manifest(large, spec=1),
            manifest(small, spec=1),
            manifest(small, content=ManifestContent.DELETES),
        ]
    )
    assert (found["manifests"], found["ideal"], found["files"]) == (5, 4, 15)


def test_no_two_commits_of_the_rebase_bench_share_an_id() -> None:
    ids = [one for writer in range(20) for commit in range(25) for one in rebase.ids_of(writer, commit)]
    assert len(set(ids)) == len(ids) == 20 * 25 * rebase.ROWS_PER_COMMIT
