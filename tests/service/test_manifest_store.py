"""What the cache of manifests counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.core.manifest import ManifestContent, ManifestFile
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
