"""What errors of catalogs mean, cell by cell, and that nothing unknown is ever taken for failed."""

from __future__ import annotations

import pytest
import requests
from botocore.exceptions import ClientError  # type: ignore[import-untyped] # it has no types
from pyiceberg import exceptions as iceberg
from sqlalchemy import exc

from headgate.errors import BadInput, Forbidden, NotFound, Overloaded, StorageFailed, Unauthenticated
from headgate.library.adapters import AWS_CODES, ERRORS, Heard, hear, to_error


def _client_error(code: str) -> Exception:
    made: Exception = ClientError({"Error": {"Code": code}}, "UpdateTable")
    return made


class _TransportError(Exception):
    """As thrift's, which is not installed here."""


_TransportError.__module__ = "thrift.transport.TTransport"
_TransportError.__qualname__ = "TTransportException"

_SQL: tuple[str, dict[str, str], Exception] = ("UPDATE", {}, Exception("database is locked"))


def _no_lock() -> Exception:
    """What PyIceberg's Hive catalog raises when another holds the lock."""
    error = iceberg.CommitFailedException("Failed to acquire lock")
    error.__cause__ = iceberg.WaitingForLockException("hive")
    return error


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (iceberg.CommitFailedException("409"), Heard.LOST, Heard.LOST),
        (iceberg.CommitStateUnknownException("500"), Heard.UNKNOWN, Heard.UNKNOWN),
        (iceberg.ServiceUnavailableError("503"), Heard.BUSY, Heard.UNKNOWN),
        (iceberg.ServerError("507"), Heard.BUSY, Heard.UNKNOWN),
        (iceberg.TooManyRequestsError("429"), Heard.BUSY, Heard.BUSY),
        (iceberg.BadRequestError("400"), Heard.REFUSED, Heard.REFUSED),
        (iceberg.ForbiddenError("403"), Heard.REFUSED, Heard.REFUSED),
        (iceberg.NoSuchTableError("404"), Heard.REFUSED, Heard.REFUSED),
        (iceberg.RESTError("418"), Heard.UNKNOWN, Heard.UNKNOWN),
        (iceberg.WaitingForLockException("hive"), Heard.BUSY, Heard.BUSY),
        (_no_lock(), Heard.BUSY, Heard.BUSY),
        (iceberg.ConditionalCheckFailedException("dynamo"), Heard.LOST, Heard.LOST),
        (requests.exceptions.ConnectTimeout(), Heard.BUSY, Heard.BUSY),
        (requests.exceptions.ReadTimeout(), Heard.BUSY, Heard.UNKNOWN),
        (requests.exceptions.ConnectionError(), Heard.BUSY, Heard.UNKNOWN),
        (exc.OperationalError(*_SQL), Heard.BUSY, Heard.UNKNOWN),
        (exc.IntegrityError(*_SQL), Heard.REFUSED, Heard.UNKNOWN),
        (exc.TimeoutError(), Heard.BUSY, Heard.BUSY),
        (_client_error("ConcurrentModificationException"), Heard.LOST, Heard.LOST),
        (_client_error("ThrottlingException"), Heard.BUSY, Heard.BUSY),
        (_client_error("AccessDeniedException"), Heard.REFUSED, Heard.REFUSED),
        (_client_error("InternalServiceException"), Heard.BUSY, Heard.UNKNOWN),
        (_TransportError("read 0 bytes"), Heard.BUSY, Heard.UNKNOWN),
        (TimeoutError(), Heard.BUSY, Heard.UNKNOWN),
        (ValueError("sequence number"), Heard.LOST, Heard.LOST),
        (RuntimeError("nobody knows this one"), Heard.UNKNOWN, Heard.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_means_what_the_table_says(error: Exception, before: Heard, after: Heard) -> None:
    assert hear(error, sent=False) is before
    assert hear(error, sent=True) is after


def test_no_server_error_and_no_timeout_is_taken_for_a_failure_once_it_was_sent() -> None:
    doubtful = (
        "ServerError",
        "ServiceUnavailable",
        "RequestException",
        "Operational",
        "DBAPI",
        "BotoCore",
        "OSError",
    )
    for name, (_, after) in ERRORS.items():
        if any(part in name for part in doubtful):
            assert after is Heard.UNKNOWN, name


def test_every_class_of_pyiceberg_that_is_named_exists() -> None:
    for name in ERRORS:
        module, _, kind = name.rpartition(".")
        if module == "pyiceberg.exceptions":
            assert hasattr(iceberg, kind), name


def test_refusals_are_errors_of_ours() -> None:
    assert isinstance(to_error(iceberg.NoSuchTableError("x"), "db.t"), NotFound)
    assert isinstance(to_error(iceberg.ForbiddenError("x"), "db.t"), Forbidden)
    assert isinstance(to_error(iceberg.UnauthorizedError("x"), "db.t"), Unauthenticated)
    assert isinstance(to_error(iceberg.BadRequestError("x"), "db.t"), BadInput)
    assert isinstance(to_error(exc.OperationalError(*_SQL), "db.t"), Overloaded)
    assert isinstance(to_error(RuntimeError("x"), "db.t"), StorageFailed)


def test_codes_of_aws_are_never_unknown_because_that_is_what_is_left() -> None:
    assert Heard.UNKNOWN not in AWS_CODES.values()
