"""Commits whose files cannot be written, read or deleted: what is answered, and what stays behind."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import StorageFailed
from headgate.files.base import Files
from headgate.files.open import open_files
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, commit_change, data_file, live_paths
from tests.service.table_calls import (
    commit,
    committed,
    created,
    error_of,
    files_below,
    load,
    local,
    make_namespace,
)


class FaultyFiles:
    """`Files` that refuse to write names with `unwritable` in them, and to delete while told so."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.unwritable: str | None = None
        self.undeletable = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        if self.unwritable is not None and self.unwritable in location:
            raise StorageFailed("disk full")
        self._files.write_new(location, parts)

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        if self.unwritable is not None and self.unwritable in location:
            raise StorageFailed("disk full")
        self._files.write_soft(location, parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files`: what stands before the one that fails is written."""
        for location, parts in files:
            self.write_soft(location, parts)

    def delete(self, locations: Iterable[str]) -> int:
        """See `Files`."""
        if self.undeletable:
            raise StorageFailed("no delete")
        return self._files.delete(locations)


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    opened, _ = open_files(f"file://{tmp_path / 'warehouse'}")
    return FaultyFiles(opened)


@pytest.fixture
def client(tmp_path: Path, files: FaultyFiles) -> Iterator[AppClient]:
    given: Any = files
    with app_client(tmp_path, files=given, request_timeout_s=5, in_flight_max=2) as made:
        make_namespace(made)
        created(made)
        yield made


def adding(client: AppClient, *names: str) -> dict[str, Any]:
    place = load(client)["metadata"]["location"]
    return change("append", add_data_files=[data_file(f"{place}/data/{name}") for name in names])


def metadata_files(client: AppClient) -> dict[str, bytes | None]:
    return files_below(local(load(client)["metadata"]["location"]) / "metadata")


def test_a_manifest_whose_list_cannot_be_written_does_not_stay_behind(
    client: AppClient, files: FaultyFiles
) -> None:
    before = metadata_files(client)
    files.unwritable = "/snap-"
    answer = commit_change(client, adding(client, "a"))
    assert (answer.status_code, error_of(answer)["message"]) == (503, "disk full")
    assert metadata_files(client) == before
    files.unwritable = None
    committed(client, adding(client, "a"))
    assert live_paths(client, "t") == ["a"]


def test_a_clean_up_that_fails_never_replaces_the_verdict(
    client: AppClient, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    committed(client, adding(client, "a"))
    before = metadata_files(client)
    files.unwritable, files.undeletable = "/snap-", True
    with caplog.at_level(logging.WARNING):
        answer = commit_change(client, adding(client, "b"))
    assert (answer.status_code, error_of(answer)["message"]) == (503, "disk full")
    assert "discarded files were not deleted" in caplog.text
    assert len(metadata_files(client)) == len(before) + 1  # a manifest, which nothing refers to
    assert live_paths(client, "t") == ["a"]


def test_a_commit_that_is_refused_while_it_is_judged_writes_nothing(client: AppClient) -> None:
    committed(client, adding(client, "a"))
    before = metadata_files(client)
    answer = commit(client, adding(client, "b"), adding(client, "a"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitConflictException")
    assert metadata_files(client) == before
    assert live_paths(client, "t") == ["a"]


def test_a_change_to_files_of_a_removed_spec_is_refused_by_name_and_nothing_hangs(client: AppClient) -> None:
    committed(client, adding(client, "a", "b"))
    field = {"name": "p", "transform": "identity", "source-id": 1}
    committed(
        client,
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    committed(client, {"action": "remove-partition-specs", "spec-ids": [0]})
    before = metadata_files(client)
    place = load(client)["metadata"]["location"]
    for _ in range(3):
        answer = commit_change(client, change("delete", remove_data_files=[f"{place}/data/a"]))
        assert answer.status_code == 400
        assert "no partition spec 0" in error_of(answer)["message"]
    assert metadata_files(client) == before
    assert live_paths(client, "t") == ["a", "b"]
