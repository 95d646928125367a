"""`headgate audit --orphans` and `--fix orphans` over catalogs that are not ours, and ours: only what nobody needs goes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from headgate.cli.main import main
from headgate.library.audited import AuditedTable
from headgate.library.orphans import remove_orphans
from headgate.library.unreached import Seen
from tests.library.lake import NAME, Lake, path_of, rows, written_file
from tests.library.stepped import Killed, Steps, open_stepped

catalogs = pytest.mark.parametrize("road", ["sql", "rest", "reference"])
_TWO_DAYS_S = 2 * 24 * 3600


def source(lake: Lake) -> list[str]:
    """The lake's catalog as options of the command."""
    if lake.is_rest:
        return ["--uri", lake.uri]
    told = {"type": "sql", "uri": lake.uri, "warehouse": f"file://{lake.folder}/warehouse"}
    options = [word for pair in told.items() for word in ("--catalog-property", "=".join(pair))]
    return ["--catalog", "lake", *options]


def audit(lake: Lake, *options: str) -> int:
    """Run the command on the lake's table."""
    return main(["audit", lake.full_name(NAME), *source(lake), *options])


def place(lake: Lake) -> Path:
    """The table's folder."""
    return path_of(str(lake.metadata()["location"]))


def age(*paths: Path) -> None:
    """Make files look two days old."""
    for path in paths:
        before_s = time.time() - _TWO_DAYS_S
        os.utime(path, (before_s, before_s))


def leave(lake: Lake, *names: str) -> list[Path]:
    """Files that nobody will ever commit, two days old as all others are."""
    left = [place(lake) / name for name in names]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"nobody")
    age(*(path for path in place(lake).rglob("*") if path.is_file()))
    return left


@catalogs
def test_orphans_are_listed_without_a_fix_and_deleted_with_one(
    lake: Lake, road: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1, 2))
    table.delete("id = 1")
    left = leave(lake, "data/lost.parquet", "metadata/lost-m0.avro", "data/part=a/lost.puffin")
    young = place(lake) / "data" / "in-flight.parquet"
    young.write_bytes(b"somebody")
    assert audit(lake, "--orphans", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["orphans"]
    assert {path_of(name) for name in listed["files"]} >= set(left)
    assert not listed["deleted"]
    assert all(path.exists() for path in left)
    assert audit(lake, "--fix", "orphans") == 0
    assert "; deleted\n" in capsys.readouterr().out
    assert not any(path.exists() for path in left)
    assert young.exists()
    young.unlink()
    assert lake.ids() == [2]
    lake.audit()
    assert lake.find_orphans() == set()


@pytest.mark.parametrize("road", ["sql", "reference"])
def test_what_a_killed_writer_left_goes_and_nothing_else(lake: Lake, road: str) -> None:
    lake.create()
    lake.open().append(rows(1))
    with pytest.raises(Killed):  # in the middle of its commit
        open_stepped(lake, Steps(7, before=True), None, road=road).append(rows(2))
    age(*(path for path in place(lake).rglob("*") if path.is_file()))
    assert lake.find_orphans()
    assert audit(lake, "--fix", "orphans") == 0
    assert lake.find_orphans() == set()
    assert lake.ids() == [1]
    lake.audit()


def test_a_file_that_is_committed_while_orphans_are_looked_for_stays(lake: Lake) -> None:
    lake.create()
    table = lake.open()
    table.append(rows(1))
    late = written_file(lake, "late", rows(2))
    left = leave(lake, "data/lost.parquet")
    loads = [0]

    def load() -> Seen:
        loads[0] += 1
        if loads[0] == 3:  # the last look before anything is deleted
            table.append([late])
        return audited(lake).see()

    done = remove_orphans(load, dry_run=False)
    assert [path_of(name) for name in done.files] == left
    assert lake.ids() == [1, 2]


def test_a_file_that_cannot_be_deleted_is_named_with_the_reason(lake: Lake) -> None:
    lake.create()
    lake.open().append(rows(1))
    left = leave(lake, "data/lost.parquet")

    class Stubborn(LocalFileSystem):  # type: ignore[misc] # PyArrow has no types
        def delete_file(self, path: str) -> None:
            raise OSError("read-only file system")

    def load() -> Seen:
        return replace(audited(lake).see(), filesystem=lambda name: (Stubborn(), str(path_of(name))))

    done = remove_orphans(load, dry_run=False)
    assert {path_of(name): why for name, why in done.failed.items()} == {left[0]: "read-only file system"}
    assert done.files == ()


def test_a_table_below_another_keeps_its_files(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.create()
    (stranger,) = leave(lake, "inner/metadata/00000-x.metadata.json")
    inner = leave(lake, "inner/data/live.parquet")
    assert audit(lake, "--fix", "orphans") == 2
    assert str(stranger) in capsys.readouterr().err
    assert inner[0].exists()


def test_nothing_is_deleted_from_a_table_that_is_not_sound(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.create()
    lake.open().append(rows(1))
    left = leave(lake, "data/lost.parquet")
    path_of(lake.metadata()["snapshots"][-1]["manifest-list"]).unlink()
    assert audit(lake, "--fix", "orphans") == 1
    assert "not sound" in capsys.readouterr().err
    assert left[0].exists()


def test_a_table_whose_files_are_shared_is_not_touched(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.create(properties={"gc.enabled": "false"})
    left = leave(lake, "data/lost.parquet")
    assert audit(lake, "--fix", "orphans") == 2
    assert "gc.enabled" in capsys.readouterr().err
    assert left[0].exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--fix", "orphans", "--older-than", "23h"], "older_than"),
        (["--orphans", "--older-than", "soon"], "--older-than"),
        (["--catalog-property", "password=x"], "secret"),
    ],
)
def test_bad_options_are_exit_two_and_named(
    lake: Lake, options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.create()
    assert audit(lake, *options) == 2
    assert named in capsys.readouterr().err


def test_a_catalog_that_is_not_known_and_a_lone_metadata_file_are_exit_two(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    location = lake.create().metadata_location
    assert main(["audit", NAME, "--catalog", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["audit", NAME, "--metadata", location, "--fix", "orphans"]) == 2
    assert "--metadata" in capsys.readouterr().err
    assert main(["audit", NAME, "--catalog-property", "type=sql"]) == 2
    assert "--catalog NAME" in capsys.readouterr().err
    assert main(["audit", "db.missing", *source(lake)]) == 2
    assert "db.missing" in capsys.readouterr().err


def audited(lake: Lake) -> AuditedTable:
    """The lake's table, as an audit looks at it."""
    return AuditedTable(lake.connect(), tuple(lake.full_name(NAME).split(".")))
