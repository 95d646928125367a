"""Which `Files` serve a warehouse: chosen once, at start, by the schemes of its roots."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from headgate.core.locations import canonical
from headgate.errors import HeadgateError, LocationRefused, StorageFailed
from headgate.files.base import FileInfo, Files
from headgate.files.local import LocalFiles, make_root
from headgate.files.s3_config import S3Config

T = TypeVar("T")

_FILE = "file://"


def open_files(
    warehouse: str, s3: S3Config | None = None, *, extra_roots: Sequence[str] = ()
) -> tuple[Files, str]:
    """The files of the warehouse and of extra allowed roots, and the warehouse's canonical root."""
    root = canonical(warehouse, field="warehouse")
    roots = (root, *(canonical(extra, field="extra-roots") for extra in extra_roots))
    by_scheme: dict[str, Files] = {}
    if local_roots := [one.removeprefix(_FILE) for one in roots if one.startswith(_FILE)]:
        for path in local_roots:
            make_root(path)
        by_scheme[_FILE] = LocalFiles(local_roots)
    if s3_roots := [one for one in roots if not one.startswith(_FILE)]:
        by_scheme["s3://"] = _open_s3(s3_roots, (s3 or S3Config()).with_environment(os.environ))
    if len(by_scheme) == 1:
        return next(iter(by_scheme.values())), root
    return RoutedFiles(by_scheme), root


class RoutedFiles:
    """`Files` over several schemes: each location goes to the one that serves its scheme."""

    def __init__(self, by_scheme: Mapping[str, Files]) -> None:
        self._by_scheme = dict(by_scheme)

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        self._route(location).write_new(location, parts)

    @property
    def is_soft(self) -> bool:
        """See `Files`: when one of them is. The others' soft writes are durable, and so is their journal for nothing."""
        return any(files.is_soft for files in self._by_scheme.values())

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        self._route(location).write_soft(location, parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files`."""
        made: list[str] = []
        try:
            for route, theirs in _by_route(self._route, files, _location_of):
                route.write_soft_many(theirs, keeps=keeps)
                made.extend(map(_location_of, theirs))
        except BaseException:
            if not keeps:
                with suppress(HeadgateError):  # the first error matters
                    self.delete(made)
            raise

    def sync(self, locations: Iterable[str]) -> None:
        """See `Files`."""
        for route, theirs in _by_route(self._route, locations, str):
            route.sync(theirs)

    def restore(self, location: str, data: bytes) -> None:
        """See `Files`."""
        self._route(location).restore(location, data)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """See `Files`."""
        return self._route(location).read(location, limit_bytes=limit_bytes)

    def exists(self, location: str) -> bool:
        """See `Files`."""
        return self._route(location).exists(location)

    def delete(self, locations: Iterable[str]) -> int:
        """See `Files`."""
        routed = [(self._route(location), location) for location in locations]
        return sum(
            files.delete([location for route, location in routed if route is files])
            for files in self._by_scheme.values()
        )

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """See `Files`."""
        return self._route(prefix).list(prefix)

    def check(self) -> None:
        """See `Files`."""
        for files in self._by_scheme.values():
            files.check()

    def _route(self, location: str) -> Files:
        for scheme, files in self._by_scheme.items():
            if location.startswith(scheme):
                return files
        raise LocationRefused(
            f"location refused: no files serve its scheme; location={location!r}", location=location
        )


def _by_route(
    find_route: Callable[[str], Files], items: Iterable[T], find_location: Callable[[T], str]
) -> list[tuple[Files, list[T]]]:
    """The items by who serves their locations; one that nobody serves is refused before anything is done."""
    groups: dict[int, tuple[Files, list[T]]] = {}
    for item in items:
        files = find_route(find_location(item))
        groups.setdefault(id(files), (files, []))[1].append(item)
    return list(groups.values())


def _location_of(file: tuple[str, Sequence[bytes]]) -> str:
    return file[0]


def _open_s3(roots: Sequence[str], config: S3Config) -> Files:
    try:
        # Inside the function because obstore is an optional dependency: a local warehouse runs without it.
        from headgate.files.s3 import S3Files  # optional extra
    except ModuleNotFoundError as error:
        raise StorageFailed("S3 needs the package obstore; install headgate[s3]") from error
    return S3Files(roots, config)
