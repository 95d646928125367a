"""Where an audit gets its facts: metadata from a catalog or a file, objects from disk or S3. Reads only."""

from __future__ import annotations

import os
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Protocol, assert_never

import msgspec

from headgate.core.audit import (
    Audit,
    Effect,
    Exists,
    ReadManifest,
    ReadManifestList,
    Reply,
    Report,
    Unreadable,
)
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.errors import BadInput, HeadgateError, LocationRefused, NotFound, StorageFailed, TooLarge
from headgate.files.base import Files
from headgate.files.local import LocalFiles
from headgate.files.open import open_files
from headgate.files.s3_config import S3Config
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import METADATA_BYTES_MAX, inflate

_AVRO_BYTES_MAX = 256 * 1024 * 1024
_TIMEOUT_S = 60
_CACHED_ENTRIES_MAX = 500_000


class ObjectReader(Protocol):
    """Objects by location."""

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole object. NotFound, TooLarge or StorageFailed otherwise."""

    def exists(self, location: str) -> bool:
        """Whether the object is there."""


class Objects:
    """Objects by location, wherever they are: this machine's disk, or S3 by the AWS_* variables."""

    def __init__(self) -> None:
        self._buckets: dict[str, Files] = {}

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole object. NotFound, TooLarge or StorageFailed otherwise."""
        files, place = self._route(location)
        return files.read(place, limit_bytes=limit_bytes)

    def exists(self, location: str) -> bool:
        """Whether the object is there."""
        try:
            files, place = self._route(location)
        except NotFound:
            return False
        return files.exists(place)

    def _route(self, location: str) -> tuple[Files, str]:
        parts = urllib.parse.urlsplit(location)
        if parts.scheme in ("s3", "s3a", "s3n"):
            return self._bucket(parts.netloc), "s3" + location[len(parts.scheme) :]
        if (path := local_path(location)) is None:
            raise LocationRefused(f"neither a local path nor S3; location={location!r}", location=location)
        try:
            # Symlinks are followed, as any engine on this disk would: an auditor reads, and only reads.
            real = os.path.realpath(path)
        except ValueError as error:
            raise LocationRefused(f"not a path; location={location!r}", location=location) from error
        if not os.path.isdir(folder := os.path.dirname(real)):
            raise NotFound(f"no such file; location={location!r}", kind="file")
        return LocalFiles([folder]), f"file://{real}"

    def _bucket(self, bucket: str) -> Files:
        if bucket not in self._buckets:
            config = S3Config(allow_http=os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true")
            self._buckets[bucket], _ = open_files(f"s3://{bucket}", config)
        return self._buckets[bucket]


def local_path(location: str) -> str | None:
    """The path of `/x`, `x`, `file:/x` or `file:///x`; None for any other scheme or host."""
    if location.startswith("file:"):
        rest = location.removeprefix("file:")
        path = rest[2:] if rest.startswith("//") else rest
        return path if path.startswith("/") else None
    return None if "://" in location else location


# --- table metadata -------------------------------------------------------------------------------------


def read_metadata_file(location: str, objects: Objects) -> dict[str, object]:
    """Table metadata from a `metadata.json`, gzipped or not."""
    data = objects.read(_absolute(location), limit_bytes=METADATA_BYTES_MAX)
    return _decode_object(inflate(data, location=location), location)


def _absolute(location: str) -> str:
    path = local_path(location)
    return location if path is None else str(Path(path).absolute())


def load_table(uri: str, table: str, token: str | None) -> dict[str, object]:
    """Table metadata from an Iceberg REST catalog."""
    *levels, name = table.split(".")
    if not levels or not all(levels) or not name:
        raise BadInput(f"a table is named namespace.table; got {table!r}", field="TABLE")
    base = uri.rstrip("/")
    if urllib.parse.urlsplit(base).scheme not in ("http", "https"):
        raise BadInput(f"the catalog's address must be http or https; got {uri!r}", field="--uri")
    namespace = urllib.parse.quote("\x1f".join(levels), safe="")
    path = f"namespaces/{namespace}/tables/{urllib.parse.quote(name, safe='')}"
    answer = _get(f"{base}/v1/{_prefix(base, token)}{path}", token)
    metadata = answer.get("metadata")
    if not isinstance(metadata, dict):
        raise BadInput(f"the catalog's answer has no metadata; uri={base}")
    return metadata


def _prefix(base: str, token: str | None) -> str:
    try:
        config = _get(f"{base}/v1/config", token)
    except NotFound:
        return ""
    for key in ("overrides", "defaults"):
        section = config.get(key)
        if isinstance(section, dict) and isinstance(prefix := section.get("prefix"), str) and prefix:
            return urllib.parse.quote(prefix) + "/"
    return ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to whatever host the answer names."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _get(url: str, token: str | None) -> dict[str, object]:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            body = response.read(METADATA_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise NotFound(f"the catalog has no such thing; url={url}", kind="table") from error
            raise StorageFailed(f"the catalog answered {error.code} {error.reason}; url={url}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise StorageFailed(f"the catalog did not answer; url={url} ({error})") from error
    if len(body) > METADATA_BYTES_MAX:
        raise TooLarge(f"the catalog's answer is over {METADATA_BYTES_MAX} bytes; url={url}")
    return _decode_object(body, url)


def _decode_object(text: bytes, location: str) -> dict[str, object]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {location} ({error})") from error
    if not isinstance(value, dict):
        raise BadInput(f"not a JSON object: {location}")
    return value


# --- the driver -----------------------------------------------------------------------------------------


class Driver:
    """Runs an audit against objects. Keeps recent manifests: neighbouring snapshots share most of theirs."""

    def __init__(self, objects: ObjectReader, tick: Callable[[Effect, Reply], None]) -> None:
        self._objects = objects
        self._tick = tick
        self._recent: OrderedDict[ManifestFile, tuple[ManifestEntry, ...]] = OrderedDict()
        self._recent_entries = 0

    def run(self, audit: Audit) -> Report:
        """Answer the audit's questions until it is done."""
        try:
            effect = next(audit)
            while True:
                reply = self._answer(effect)
                self._tick(effect, reply)
                effect = audit.send(reply)
        except StopIteration as done:
            report = done.value
            if not isinstance(report, Report):
                raise BadInput("the audit ended without a report") from done
            return report

    def _answer(self, effect: Effect) -> Reply:
        try:
            match effect:
                case Exists(location):
                    return self._objects.exists(location)
                case ReadManifestList(location):
                    data = self._objects.read(location, limit_bytes=_AVRO_BYTES_MAX)
                    return decode_manifest_list(data, location=location)
                case ReadManifest(manifest):
                    return self._read_manifest(manifest)
                case _:
                    assert_never(effect)
        except HeadgateError as error:
            return Unreadable(f"{error.code}: {error.message}")

    def _read_manifest(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        if (entries := self._recent.get(manifest)) is not None:
            self._recent.move_to_end(manifest)
            return entries
        data = self._objects.read(manifest.manifest_path, limit_bytes=_AVRO_BYTES_MAX)
        entries = tuple(decode_manifest(data, manifest, location=manifest.manifest_path))
        self._recent[manifest] = entries
        self._recent_entries += len(entries)
        while self._recent_entries > _CACHED_ENTRIES_MAX:
            _, dropped = self._recent.popitem(last=False)
            self._recent_entries -= len(dropped)
        return entries
