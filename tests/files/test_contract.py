"""What every `Files` promises, on a local disk and on a real S3 server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from headgate.errors import AlreadyExists, LocationRefused, NotFound, TooLarge
from headgate.files.base import Files
from headgate.files.open import RoutedFiles, open_files
from tests.s3_server import S3Server

KINDS = ("local", pytest.param("s3", marks=pytest.mark.s3), pytest.param("routed", marks=pytest.mark.s3))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """Files and an empty root to work in."""
    if request.param == "local":
        return open_files(str(tmp_path / "new" / "warehouse"))
    server: S3Server = request.getfixturevalue("s3_server")
    root = f"s3://{server.bucket}/{uuid4()}"
    if request.param == "s3":
        return open_files(root, server.config())
    files, _ = open_files(str(tmp_path), server.config(), extra_roots=[root])
    assert isinstance(files, RoutedFiles)
    return files, root


@pytest.mark.parametrize(
    "name",
    [
        "metadata/00001-a.metadata.json",
        "data/day=2024-01-01/f.parquet",
        "data/at=12%3A30/two words+é/東京.parquet",
        "data/path=a%2Fb/p=100%25/f.parquet",
        "data/a:b@c,d;e&f$g!h'(i)[j]{k}|^~<x>\"/f",
    ],
)
def test_what_was_written_is_read_listed_and_deleted_under_its_exact_name(
    place: tuple[Files, str], name: str
) -> None:
    files, root = place
    location = f"{root}/t/{name}"
    files.write_new(location, [b"one ", b"", b"two"])
    assert files.read(location, limit_bytes=7) == b"one two"
    assert files.exists(location)
    assert [(info.location, info.size_bytes) for info in files.list(f"{root}/t")] == [(location, 7)]
    assert files.delete([location]) == 1
    assert not files.exists(location)
    assert list(files.list(f"{root}/t")) == []


def test_a_second_create_is_refused_and_changes_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    files.write_new(f"{root}/a", [b"first"])
    with pytest.raises(AlreadyExists) as refused:
        files.write_new(f"{root}/a", [b"second"])
    assert refused.value.kind == "file"
    assert files.read(f"{root}/a", limit_bytes=100) == b"first"
    assert [info.location for info in files.list(root)] == [f"{root}/a"]


def test_of_sixteen_threads_that_create_one_name_exactly_one_wins(place: tuple[Files, str]) -> None:
    files, root = place
    for round_number in range(5):
        location = f"{root}/races/{round_number}/deep/one"
        start = threading.Barrier(16)
        won: list[int] = []
        lost: list[int] = []

        def create(
            number: int, *, location: str = location, start: threading.Barrier = start, won: list[int] = won,
            lost: list[int] = lost,
        ) -> None:  # fmt: skip
            start.wait()
            try:
                files.write_new(location, [b"%d" % number] * 1000)
            except AlreadyExists:
                lost.append(number)
            else:
                won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 15)
        assert files.read(location, limit_bytes=10_000) == (b"%d" % won[0]) * 1000
    assert len(list(files.list(f"{root}/races"))) == 5


def test_a_missing_object_is_said_to_be_missing(place: tuple[Files, str]) -> None:
    files, root = place
    for location in (f"{root}/none", f"{root}/no/folder/none"):
        with pytest.raises(NotFound) as missing:
            files.read(location, limit_bytes=10)
        assert missing.value.kind == "file"
        assert not files.exists(location)


def test_a_read_over_its_limit_is_refused(place: tuple[Files, str]) -> None:
    files, root = place
    files.write_new(f"{root}/big", [b"x" * 1000])
    assert len(files.read(f"{root}/big", limit_bytes=1000)) == 1000
    for limit_bytes in (999, 0):
        with pytest.raises(TooLarge):
            files.read(f"{root}/big", limit_bytes=limit_bytes)


def test_empty_and_large_objects_round_trip(place: tuple[Files, str]) -> None:
    files, root = place
    files.write_new(f"{root}/empty", [])
    assert files.read(f"{root}/empty", limit_bytes=0) == b""
    large = bytes(range(256)) * 50_000  # over the 5 MiB where a client would turn to multipart
    files.write_new(f"{root}/large", (large[at : at + 65_521] for at in range(0, len(large), 65_521)))
    assert files.read(f"{root}/large", limit_bytes=len(large)) == large
    with pytest.raises(AlreadyExists):
        files.write_new(f"{root}/large", [large, b"!"])


def test_deleting_twice_is_no_error(place: tuple[Files, str]) -> None:
    files, root = place
    locations = [f"{root}/d/{number}" for number in range(3)]
    for location in locations:
        files.write_new(location, [b"x"])
    files.delete([*locations, f"{root}/d/none", f"{root}/no/folder"])
    files.delete(locations)
    files.delete([])
    assert list(files.list(root)) == []


def test_a_name_that_was_deleted_may_be_created_again(place: tuple[Files, str]) -> None:
    files, root = place
    for body in (b"first", b"second"):
        files.write_new(f"{root}/again", [body])
        assert files.read(f"{root}/again", limit_bytes=10) == body
        files.delete([f"{root}/again"])


def test_a_listing_is_of_the_folder_and_not_of_its_namesakes(place: tuple[Files, str]) -> None:
    files, root = place
    for name in ("t/a", "t/b/c", "t2/a", "t-old/a"):
        files.write_new(f"{root}/{name}", [b"x"])
    assert sorted(info.location for info in files.list(f"{root}/t")) == [f"{root}/t/a", f"{root}/t/b/c"]
    assert sorted(info.location for info in files.list(f"{root}/t/")) == [f"{root}/t/a", f"{root}/t/b/c"]
    assert len(list(files.list(root))) == 4
    assert list(files.list(f"{root}/none")) == []
    assert all(info.modified_at_ms > 1_600_000_000_000 for info in files.list(root))


def test_nothing_outside_the_roots_is_touched(place: tuple[Files, str]) -> None:
    files, root = place
    parent = root.rpartition("/")[0]
    for outside in (
        f"{root}-beside/x",
        f"{parent}/x",
        "file:///etc/passwd",
        "s3://other/x",
        "http://x/y",
        root,
    ):
        with pytest.raises(LocationRefused):
            files.read(outside, limit_bytes=10)
        with pytest.raises(LocationRefused):
            files.write_new(outside, [b"x"])
        with pytest.raises(LocationRefused):
            files.exists(outside)
        with pytest.raises(LocationRefused):
            files.delete([outside])
    with pytest.raises(LocationRefused):
        list(files.list(parent))


def test_a_refused_location_stops_a_delete_before_it_begins(place: tuple[Files, str]) -> None:
    files, root = place
    files.write_new(f"{root}/kept", [b"x"])
    with pytest.raises(LocationRefused):
        files.delete([f"{root}/kept", "file:///etc/passwd"])
    assert files.exists(f"{root}/kept")


def test_a_body_that_breaks_off_leaves_no_object(place: tuple[Files, str]) -> None:
    files, root = place

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("the encoder failed")

    with pytest.raises(RuntimeError):
        files.write_new(f"{root}/half", parts())
    assert list(files.list(root)) == []


def test_the_check_at_start_passes_and_leaves_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    files.check()
    assert list(files.list(root)) == []
