"""What an error of a catalog means, in one table: lost, busy, refused or unknown. Never reads a message.

Classes are named, not imported: a catalog's libraries are there only if its user has them. What is not in the table
is unknown once the request may have left: a load finds out, nobody guesses.

    lost      the head is not the expected one: load, judge again, try again
    busy      nothing happened, and the same request may pass later
    refused   nothing happened, and trying again does not help
    unknown   it may have happened
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from headgate.errors import (
    BadInput,
    CommitRefused,
    Forbidden,
    HeadgateError,
    NotFound,
    Overloaded,
    StorageFailed,
    Unauthenticated,
)


class Heard(Enum):
    """What a reply says about a swap."""

    LOST = "lost"
    BUSY = "busy"
    REFUSED = "refused"
    UNKNOWN = "unknown"


# Error class: what it means while the request is made, and once the commit itself was sent.
ERRORS: Mapping[str, tuple[Heard, Heard]] = {
    # PyIceberg, all catalogs. A stale sequence number or a failed requirement found on this side is a ValueError.
    "pyiceberg.exceptions.CommitFailedException": (Heard.LOST, Heard.LOST),
    "pyiceberg.exceptions.CommitStateUnknownException": (Heard.UNKNOWN, Heard.UNKNOWN),
    "pyiceberg.exceptions.NoSuchTableError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.NoSuchNamespaceError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.TableAlreadyExistsError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.ValidationError": (Heard.REFUSED, Heard.REFUSED),
    "builtins.ValueError": (Heard.LOST, Heard.LOST),
    # REST
    "pyiceberg.exceptions.BadRequestError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.UnauthorizedError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.AuthorizationExpiredError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.OAuthError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.ForbiddenError": (Heard.REFUSED, Heard.REFUSED),
    "pyiceberg.exceptions.TooManyRequestsError": (Heard.BUSY, Heard.BUSY),
    "pyiceberg.exceptions.ServiceUnavailableError": (Heard.BUSY, Heard.UNKNOWN),
    "pyiceberg.exceptions.ServerError": (Heard.BUSY, Heard.UNKNOWN),
    "pyiceberg.exceptions.RESTError": (Heard.UNKNOWN, Heard.UNKNOWN),
    "requests.exceptions.ConnectTimeout": (Heard.BUSY, Heard.BUSY),
    "requests.exceptions.Timeout": (Heard.BUSY, Heard.UNKNOWN),
    "requests.exceptions.RequestException": (Heard.BUSY, Heard.UNKNOWN),
    # SQL. Only an error of COMMIT itself leaves a doubt.
    "sqlalchemy.exc.OperationalError": (Heard.BUSY, Heard.UNKNOWN),
    "sqlalchemy.exc.TimeoutError": (Heard.BUSY, Heard.BUSY),
    "sqlalchemy.exc.ProgrammingError": (Heard.REFUSED, Heard.UNKNOWN),
    "sqlalchemy.exc.IntegrityError": (Heard.REFUSED, Heard.UNKNOWN),
    "sqlalchemy.exc.DBAPIError": (Heard.BUSY, Heard.UNKNOWN),
    # Hive
    "pyiceberg.exceptions.WaitingForLockException": (Heard.BUSY, Heard.BUSY),
    "hive_metastore.ttypes.NoSuchObjectException": (Heard.REFUSED, Heard.REFUSED),
    "hive_metastore.ttypes.NoSuchLockException": (Heard.UNKNOWN, Heard.UNKNOWN),
    "hive_metastore.ttypes.TxnAbortedException": (Heard.UNKNOWN, Heard.UNKNOWN),
    "thrift.transport.TTransport.TTransportException": (Heard.BUSY, Heard.UNKNOWN),
    # DynamoDB
    "pyiceberg.exceptions.ConditionalCheckFailedException": (Heard.LOST, Heard.LOST),
    "pyiceberg.exceptions.GenericDynamoDbError": (Heard.BUSY, Heard.UNKNOWN),
    # Glue and everything else of AWS; a ClientError has a code, below.
    "botocore.exceptions.EndpointConnectionError": (Heard.BUSY, Heard.BUSY),
    "botocore.exceptions.ConnectTimeoutError": (Heard.BUSY, Heard.BUSY),
    "botocore.exceptions.NoCredentialsError": (Heard.REFUSED, Heard.REFUSED),
    "botocore.exceptions.BotoCoreError": (Heard.BUSY, Heard.UNKNOWN),
    "builtins.OSError": (Heard.BUSY, Heard.UNKNOWN),
}
AWS_CODES: Mapping[str, Heard] = {
    "ConcurrentModificationException": Heard.LOST,  # Glue: the version is not the expected one
    "ConditionalCheckFailedException": Heard.LOST,
    "ThrottlingException": Heard.BUSY,
    "ProvisionedThroughputExceededException": Heard.BUSY,
    "RequestLimitExceeded": Heard.BUSY,
    "ResourceNotReadyException": Heard.BUSY,
    "EntityNotFoundException": Heard.REFUSED,
    "AccessDeniedException": Heard.REFUSED,
    "InvalidInputException": Heard.REFUSED,
    "ValidationException": Heard.REFUSED,
    "ResourceNumberLimitExceededException": Heard.REFUSED,
    "UnrecognizedClientException": Heard.REFUSED,
    "ExpiredTokenException": Heard.REFUSED,
}
_NO_LOCK = "pyiceberg.exceptions.WaitingForLockException"  # the cause of what PyIceberg's Hive catalog raises
_CLIENT_ERROR = "botocore.exceptions.ClientError"
# What a refusal is in our tree of errors.
_REFUSALS: Mapping[str, type[HeadgateError]] = {
    "pyiceberg.exceptions.UnauthorizedError": Unauthenticated,
    "pyiceberg.exceptions.AuthorizationExpiredError": Unauthenticated,
    "pyiceberg.exceptions.OAuthError": Unauthenticated,
    "pyiceberg.exceptions.ForbiddenError": Forbidden,
    "pyiceberg.exceptions.BadRequestError": BadInput,
}
_ABSENT = ("pyiceberg.exceptions.NoSuchTableError", "pyiceberg.exceptions.NoSuchNamespaceError")


def hear(error: BaseException, *, sent: bool) -> Heard:
    """What an error says about a swap; `sent` when the commit itself was under way."""
    names = tuple(_names(error))
    if error.__cause__ is not None and _NO_LOCK in _names(error.__cause__):
        return ERRORS[_NO_LOCK][sent]
    if _CLIENT_ERROR in names:
        return AWS_CODES.get(_aws_code(error), Heard.UNKNOWN if sent else Heard.BUSY)
    for name in names:
        if name in ERRORS:
            return ERRORS[name][sent]
    return Heard.UNKNOWN


def to_error(error: BaseException, table: str) -> HeadgateError:
    """A refusal, or a load that failed, as one of ours."""
    names = frozenset(_names(error))
    text = f"{table}: {type(error).__name__}: {str(error)[:500]}"
    if not names.isdisjoint(_ABSENT):
        return NotFound(f"Table does not exist: {table}", kind="table")
    for name, kind in _REFUSALS.items():
        if name in names:
            return kind(text)
    match hear(error, sent=False):
        case Heard.BUSY:
            return Overloaded(text)
        case Heard.REFUSED | Heard.LOST:
            return CommitRefused(text)
        case Heard.UNKNOWN:
            return StorageFailed(text)


def _names(error: BaseException) -> Iterator[str]:
    for kind in type(error).__mro__:
        yield f"{kind.__module__}.{kind.__qualname__}"


def _aws_code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    found = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(found)
