"""What every `Files` promises of soft writes, syncs and restores: local disk, S3, both, behind the allow-list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from headgate.core.locations import LocationPolicy
from headgate.errors import AlreadyExists, LocationRefused
from headgate.files.allowed import AllowedFiles
from headgate.files.base import Files
from headgate.files.open import open_files
from tests.s3_server import S3Server

KINDS = (
    "local",
    "allowed",
    pytest.param("s3", marks=pytest.mark.s3),
    pytest.param("routed", marks=pytest.mark.s3),
)
BODY = bytes(range(256)) * 16

Write = Callable[[Files, str, bytes], None]

WRITES: dict[str, Write] = {
    "new": lambda files, location, body: files.write_new(location, [body]),
    "soft": lambda files, location, body: files.write_soft(location, [body]),
    "many": lambda files, location, body: files.write_soft_many([(location, [body])]),
}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """Files and an empty folder to work in, strictly below their root."""
    if request.param in ("local", "allowed"):
        files, root = open_files(str(tmp_path / "warehouse"))
        if request.param == "allowed":
            files = AllowedFiles(files, LocationPolicy((root,)))
        return files, f"{root}/t"
    server: S3Server = request.getfixturevalue("s3_server")
    root = f"s3://{server.bucket}/{uuid4()}"
    if request.param == "s3":
        files, _ = open_files(root, server.config())
    else:
        files, _ = open_files(str(tmp_path), server.config(), extra_roots=[root])
    return files, f"{root}/t"


def found(files: Files, folder: str) -> list[str]:
    return sorted(info.location for info in files.list(folder))


@pytest.mark.parametrize("write", ["soft", "many"])
def test_a_soft_write_is_there_at_once(place: tuple[Files, str], write: str) -> None:
    files, folder = place
    WRITES[write](files, f"{folder}/metadata/a", BODY)
    assert files.exists(f"{folder}/metadata/a")
    assert files.read(f"{folder}/metadata/a", limit_bytes=len(BODY)) == BODY
    assert found(files, folder) == [f"{folder}/metadata/a"]


@pytest.mark.parametrize("first", list(WRITES))
@pytest.mark.parametrize("second", list(WRITES))
def test_of_two_creates_of_a_name_the_second_is_refused_soft_or_not(
    place: tuple[Files, str], first: str, second: str
) -> None:
    files, folder = place
    WRITES[first](files, f"{folder}/a", b"first")
    with pytest.raises(AlreadyExists) as refused:
        WRITES[second](files, f"{folder}/a", b"second")
    assert refused.value.kind == "file"
    assert files.read(f"{folder}/a", limit_bytes=100) == b"first"


def test_many_soft_writes_go_to_the_folders_they_name(place: tuple[Files, str]) -> None:
    files, folder = place
    bodies = {f"{folder}/{number % 3}/{number}": b"%d" % number * 1000 for number in range(12)}
    files.write_soft_many([(location, [body[:500], b"", body[500:]]) for location, body in bodies.items()])
    assert {location: files.read(location, limit_bytes=10_000) for location in bodies} == bodies
    files.write_soft_many([])
    assert found(files, folder) == sorted(bodies)


def test_when_one_of_many_soft_writes_fails_none_is_left_and_what_stood_stands(
    place: tuple[Files, str],
) -> None:
    files, folder = place
    files.write_new(f"{folder}/x/taken", [b"theirs"])
    wanted = [f"{folder}/x/1", f"{folder}/y/2", f"{folder}/x/taken", f"{folder}/y/3", f"{folder}/x/4"]
    with pytest.raises(AlreadyExists, match="x/taken"):
        files.write_soft_many([(location, [b"ours"]) for location in wanted])
    assert found(files, folder) == [f"{folder}/x/taken"]
    assert files.read(f"{folder}/x/taken", limit_bytes=100) == b"theirs"


def test_when_one_of_many_soft_writes_fails_those_before_it_stay_if_they_are_to(
    place: tuple[Files, str],
) -> None:
    files, folder = place
    files.write_new(f"{folder}/x/taken", [b"theirs"])
    wanted = [f"{folder}/x/1", f"{folder}/x/taken", f"{folder}/x/2"]
    with pytest.raises(AlreadyExists, match="x/taken"):
        files.write_soft_many([(location, [b"ours"]) for location in wanted], keeps=True)
    assert found(files, folder) == [f"{folder}/x/1", f"{folder}/x/taken"]
    assert files.read(f"{folder}/x/1", limit_bytes=100) == b"ours"
    assert files.read(f"{folder}/x/taken", limit_bytes=100) == b"theirs"


def test_a_refused_location_stops_many_soft_writes_before_the_first(place: tuple[Files, str]) -> None:
    files, folder = place
    with pytest.raises(LocationRefused):
        files.write_soft_many([(f"{folder}/a", [b"x"]), ("s3://elsewhere/b", [b"x"])])
    assert found(files, folder) == []


def test_a_soft_body_that_breaks_off_leaves_no_object(place: tuple[Files, str]) -> None:
    files, folder = place

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("the encoder failed")

    with pytest.raises(RuntimeError):
        files.write_soft(f"{folder}/half", parts())
    assert found(files, folder) == []


@pytest.mark.parametrize("count", [1, 40])
def test_a_sync_takes_what_is_there_and_misses_nothing_that_is_gone(
    place: tuple[Files, str], count: int
) -> None:
    files, folder = place
    locations = [f"{folder}/{number % 2}/{number}" for number in range(count)]
    files.write_soft_many([(location, [BODY]) for location in locations])
    files.delete(locations[::2])
    files.sync([*locations, f"{folder}/no/folder", f"{folder}/none"])
    files.sync(iter(locations))
    files.sync([])
    assert found(files, folder) == sorted(locations[1::2])


@pytest.mark.parametrize(
    "standing", [None, b"", BODY[:1000], BODY + b"extra", b"\0" * len(BODY), BODY], ids=repr
)
def test_a_restore_has_exactly_the_bytes_there_whatever_stood_before(
    place: tuple[Files, str], standing: bytes | None
) -> None:
    files, folder = place
    location = f"{folder}/metadata/a"
    if standing is not None:
        files.write_soft(location, [standing])
    for _ in range(2):
        files.restore(location, BODY)
        assert files.read(location, limit_bytes=10 * len(BODY)) == BODY
        assert found(files, folder) == [location]
    with pytest.raises(AlreadyExists):
        files.write_new(location, [b"another"])


def test_nothing_outside_the_roots_is_written_synced_or_restored(place: tuple[Files, str]) -> None:
    files, folder = place
    root = folder.removesuffix("/t")
    for outside in (f"{root}-beside/x", f"{root.rpartition('/')[0]}/x", "s3://other/x", "http://x/y", root):
        with pytest.raises(LocationRefused):
            files.write_soft(outside, [b"x"])
        with pytest.raises(LocationRefused):
            files.write_soft_many([(outside, [b"x"])])
        with pytest.raises(LocationRefused):
            files.sync([outside])
        with pytest.raises(LocationRefused):
            files.restore(outside, b"x")


def test_soft_is_what_has_a_page_cache(tmp_path: Path) -> None:
    files, root = open_files(str(tmp_path))
    assert files.is_soft
    assert AllowedFiles(files, LocationPolicy((root,))).is_soft


@pytest.mark.s3
def test_a_store_of_objects_is_not_soft_but_what_is_partly_on_disk_is(
    s3_server: S3Server, tmp_path: Path
) -> None:
    root = f"s3://{s3_server.bucket}/{uuid4()}"
    objects, _ = open_files(root, s3_server.config())
    both, _ = open_files(str(tmp_path), s3_server.config(), extra_roots=[root])
    assert (objects.is_soft, both.is_soft) == (False, True)
