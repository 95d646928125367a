"""What the cache of manifests counts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence

import pytest

from headgate.core.live import FindLive
from headgate.core.manifest import ManifestContent, ManifestFile, Metrics
from headgate.core.manifest_list import ManifestList
from headgate.files.base import FileInfo
from headgate.format.manifest_encode import encode_manifest
from headgate.service.manifest_store import ManifestStore
from tests.format.entries import added, file, listed, spec_of

_LIMIT = 1_000_000


class _Racing:
    """Files in which another reader of the same manifest is always a little faster."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.rival: tuple[ManifestStore, ManifestFile] | None = None

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        rival, self.rival = self.rival, None
        if rival is not None:
            rival[0].read_entries(rival[1])
        return self._data

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        raise AssertionError("nothing is written")

    is_soft = False

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        raise AssertionError("nothing is written")

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]]) -> None:
        raise AssertionError("nothing is written")

    def sync(self, locations: Iterable[str]) -> None:
        return None

    def restore(self, location: str, data: bytes) -> None:
        raise AssertionError("nothing is written")

    def exists(self, location: str) -> bool:
        return True

    def delete(self, locations: Iterable[str]) -> int:
        return 0

    def list(self, prefix: str) -> Iterator[FileInfo]:
        return iter(())

    def check(self) -> None:
        return None


def test_a_manifest_that_two_threads_read_at_once_counts_once() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    encoded = encode_manifest([added(file())], spec=spec, schema=schema, format_version=2, content=content)
    manifest = listed(encoded, content)
    alone = ManifestStore(_Racing(encoded.data), limit_bytes=_LIMIT, new_uuid=str)
    alone.read_entries(manifest)
    files = _Racing(encoded.data)
    store = ManifestStore(files, limit_bytes=_LIMIT, new_uuid=str)
    files.rival = (store, manifest)
    assert store.read_entries(manifest) == alone.read_entries(manifest)
    assert store.size_bytes == alone.size_bytes


@pytest.mark.parametrize("columns", [0, 10, 300])
def test_a_manifest_counts_about_what_it_takes_in_memory_however_wide_the_table_is(columns: int) -> None:
    spec, schema = spec_of()
    ids = range(1, columns + 1)

    def wide(n: int) -> Metrics:
        counts = {id_: 1000 + n + id_ for id_ in ids}
        bounds = {id_: (n * 10_000 + id_).to_bytes(8, "little") for id_ in ids}
        return Metrics(counts, counts, counts, None, bounds, bounds)

    entries = [added(file(f"file:///warehouse/a/t/data/{n}.parquet", metrics=wide(n))) for n in range(50)]
    content = ManifestContent.DATA
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=content)
    store = ManifestStore(_Racing(encoded.data), limit_bytes=1 << 30, new_uuid=str)
    tracemalloc.start()
    try:
        store.read_entries(listed(encoded, content))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes / 1.5 < store.size_bytes < held_bytes * 2.5


def test_a_bound_counts_by_its_length() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    sizes = []
    for length in (1, 100_001):
        one = file(metrics=Metrics(lower_bounds={1: b"x" * length}))
        encoded = encode_manifest([added(one)], spec=spec, schema=schema, format_version=2, content=content)
        store = ManifestStore(_Racing(encoded.data), limit_bytes=_LIMIT, new_uuid=str)
        store.read_entries(listed(encoded, content))
        sizes.append(store.size_bytes)
    assert sizes[1] - sizes[0] == 100_000


def _no_footprints(snapshot_ids: Sequence[int]) -> dict[int, bytes]:
    return {}


def test_of_many_paths_those_that_are_live_are_found() -> None:
    spec, schema = spec_of()
    content = ManifestContent.DATA
    entries = [added(file(name)) for name in ("a", "b", "c")]
    encoded = encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=content)
    store = ManifestStore(_Racing(encoded.data), limit_bytes=_LIMIT, new_uuid=str)
    manifests = ManifestList.of((listed(encoded, content),))
    many = frozenset({"c", "a", *map(str, range(1000))})
    found = store.find_live(FindLive(manifests, many), _no_footprints)
    assert [entry.file.file_path for _, entry in found.of] == ["a", "c"]
    few = store.find_live(FindLive(manifests, frozenset({"b"})), _no_footprints)
    assert [entry.file.file_path for _, entry in few.of] == ["b"]
    assert not store.find_live(FindLive(manifests, frozenset({"d"})), _no_footprints).of
