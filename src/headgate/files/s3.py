"""Objects on S3 and stores that speak it: exclusive creates by conditional put (`If-None-Match: *`).

A create whose answer was lost may have happened; the client library may even have sent it again and met its
own first attempt. So after any doubt we look: names are unique per attempt, and an object that holds exactly
our bytes under our name counts as written by us.
Some stores ignore the condition and overwrite (ClickHouse#112077); `check` finds that out before we serve.

Never overwrites an object, but for `restore`. Never takes an endpoint or a credential from a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from headgate.errors import AlreadyExists, HeadgateError, LocationRefused, NotFound, StorageFailed, TooLarge
from headgate.files.base import FileInfo
from headgate.files.s3_config import S3Config

if TYPE_CHECKING:
    from obstore.store import S3Config as StoreConfig  # the library has it for type checkers only

_SCHEME = "s3://"
_DELETE_BATCH = 1000  # what one DeleteObjects request may carry
_REASON_CHARS_MAX = 300


def _already_exists(location: str) -> HeadgateError:
    return AlreadyExists(f"the file exists; location={location!r}", kind="file")


def _denied(location: str) -> HeadgateError:
    return StorageFailed(
        f"the store refused our credentials; location={location!r}; see the S3 settings", location=location
    )


def _missing(location: str) -> HeadgateError:
    return NotFound(f"no such file; location={location!r}", kind="file")


def _no_bucket(location: str) -> HeadgateError:
    return StorageFailed(f"the bucket is not there; location={location!r}", location=location)


# The first class that fits wins; what is not here is a StorageFailed. A failed precondition on a create is
# how some stores say that the object exists.
_ERRORS: tuple[tuple[type[Exception], Callable[[str], HeadgateError]], ...] = (
    (AlreadyExistsError, _already_exists),
    (PreconditionError, _already_exists),
    (FileNotFoundError, _missing),
    (PermissionDeniedError, _denied),
    (UnauthenticatedError, _denied),
)


class S3Files:
    """`Files` below the given roots (`s3://bucket` or `s3://bucket/prefix`), one client per bucket."""

    def __init__(self, roots: Iterable[str], config: S3Config) -> None:
        self._roots = tuple(root.removesuffix("/") for root in roots)
        buckets = {root.removeprefix(_SCHEME).partition("/")[0] for root in self._roots}
        self._stores = {bucket: _open_store(bucket, config) for bucket in sorted(buckets)}

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """Create the object, all or nothing. One that stands with exactly these bytes counts as created."""
        store, key = self._place(location)
        body = b"".join(parts)
        try:
            with _naming(location, missing=_no_bucket):
                # A multipart upload would drop the condition.
                obstore.put(store, key, body, mode="create", use_multipart=False)
        except AlreadyExists:
            if not self._holds(location, body):
                raise
        except StorageFailed as failed:
            # The answer was lost, or the store hung up on a long body that it had refused already. Look.
            if self._holds(location, body):
                return
            if self.exists(location):
                raise _already_exists(location) from failed
            raise

    @property
    def is_soft(self) -> bool:
        """A put is durable; there is nothing cheaper."""
        return False

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """As `write_new`."""
        self.write_new(location, parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """One put after the other; if one fails, those before it are taken back, unless they are to stay."""
        for location, _ in files:
            self._place(location)
        made: list[str] = []
        try:
            for location, parts in files:
                self.write_new(location, parts)
                made.append(location)
        except BaseException:
            if not keeps:
                with suppress(HeadgateError):  # the first error matters
                    self.delete(made)
            raise

    def sync(self, locations: Iterable[str]) -> None:
        """Nothing is left to do."""
        for location in locations:
            self._place(location)

    def restore(self, location: str, data: bytes) -> None:
        """Put the object unless it stands with exactly these bytes; the one put here that may replace another."""
        store, key = self._place(location)
        if self._holds(location, data):
            return
        with _naming(location, missing=_no_bucket):
            obstore.put(store, key, data, use_multipart=False)

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole object; its size is known and checked before the body is taken."""
        store, key = self._place(location)
        with _naming(location):
            found = obstore.get(store, key)
            size_bytes = found.meta["size"]
            if size_bytes > limit_bytes:
                raise TooLarge(
                    f"the file is over its limit; location={location!r} size_bytes={size_bytes} "
                    f"limit_bytes={limit_bytes}",
                    location=location,
                )
            return found.bytes().to_bytes()

    def exists(self, location: str) -> bool:
        """Whether the object is there."""
        store, key = self._place(location)
        try:
            with _naming(location):
                obstore.head(store, key)
        except NotFound:
            return False
        return True

    def delete(self, locations: Iterable[str]) -> int:
        """Delete objects; returns how many were asked for, since S3 does not say which were there."""
        places = [(*self._place(location), location) for location in locations]
        for bucket_store in self._stores.values():
            here = [(key, location) for store, key, location in places if store is bucket_store]
            for start in range(0, len(here), _DELETE_BATCH):
                batch = here[start : start + _DELETE_BATCH]
                with _naming(batch[0][1]), suppress(FileNotFoundError):
                    obstore.delete(bucket_store, [key for key, _ in batch])
        return len(places)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """Objects below a folder-like prefix. A foreign key that is no clean path (`a//b`) fails it."""
        bare = prefix.removesuffix("/")
        store, key = self._place(bare, root_too=True)
        bucket = bare.removeprefix(_SCHEME).partition("/")[0]
        with _naming(bare, missing=_no_bucket):
            for page in obstore.list(store, prefix=key or None):
                for found in page:
                    modified_at_ms = int(found["last_modified"].timestamp() * 1000)
                    yield FileInfo(f"{_SCHEME}{bucket}/{found['path']}", found["size"], modified_at_ms)

    def check(self) -> None:
        """Prove that each root is writable and a second create is refused; StorageFailed otherwise."""
        for root in self._roots:
            location = f"{root}/.headgate-check-{token_hex(8)}"
            self.write_new(location, (b"first",))
            try:
                self._check_exclusive(location)
            finally:
                self.delete((location,))

    def _check_exclusive(self, location: str) -> None:
        try:
            self.write_new(location, (b"second",))
        except AlreadyExists:
            if self._holds(location, b"first"):
                return
        raise StorageFailed(
            f"this store overwrites although asked not to; location={location!r}; use a store that honours "
            "If-None-Match on PUT",
            location=location,
        )

    def _holds(self, location: str, body: bytes) -> bool:
        try:
            return self.read(location, limit_bytes=len(body)) == body
        except (NotFound, TooLarge):
            return False

    def _place(self, location: str, *, root_too: bool = False) -> tuple[S3Store, str]:
        inside = any(location.startswith(root + "/") for root in self._roots)
        if not inside and not (root_too and location in self._roots):
            raise LocationRefused(
                f"location refused: it is not inside a root; location={location!r}", location=location
            )
        bucket, _, key = location.removeprefix(_SCHEME).partition("/")
        return self._stores[bucket], key


def _open_store(bucket: str, config: S3Config) -> S3Store:
    options = {
        "endpoint": _endpoint(bucket, config),
        "region": config.region or "us-east-1",
        "access_key_id": config.access_key_id,
        "secret_access_key": config.secret_access_key,
        "session_token": config.session_token,
        "virtual_hosted_style_request": not config.path_style,
    }
    return S3Store(
        bucket,
        config=cast("StoreConfig", {name: value for name, value in options.items() if value is not None}),
        client_options={
            "allow_http": config.allow_http,
            "connect_timeout": timedelta(seconds=min(5, config.timeout_s)),
            "timeout": timedelta(seconds=config.timeout_s),
        },
        retry_config={
            "max_retries": config.retries_max,
            "retry_timeout": timedelta(seconds=2 * config.timeout_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=2),
                "base": 2,
            },
        },
    )


def _endpoint(bucket: str, config: S3Config) -> str | None:
    if config.endpoint is None or config.path_style:
        return config.endpoint
    parts = urlsplit(config.endpoint)  # the library wants the bucket's host name in virtual-host style
    return f"{parts.scheme}://{bucket}.{parts.netloc}"


@contextmanager
def _naming(location: str, *, missing: Callable[[str], HeadgateError] | None = None) -> Iterator[None]:
    """Turn the library's errors into ours, with the location in them."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if missing is not None and isinstance(error, FileNotFoundError):
            raise missing(location) from error
        make = next((make for which, make in _ERRORS if isinstance(error, which)), None)
        raise (make(location) if make is not None else _failed(location, error)) from error


def _failed(location: str, error: Exception) -> HeadgateError:
    reason = str(error).partition("\n")[0][:_REASON_CHARS_MAX]
    return StorageFailed(
        f"the store did not answer as it should; location={location!r} reason={reason!r}; retry",
        location=location,
    )
