"""The error tree of Headgate: every refusal has a stable code, evidence as fields, and retry advice.

    HeadgateError
    ├── BadInput               the request or file is wrong; names the field
    │   ├── TooLarge           a body, a file or a decompressed block over its limit
    │   └── LocationRefused    a location outside what this catalog may touch
    ├── NotFound               namespace, table, view, file … is not there
    ├── AlreadyExists          the name is taken
    ├── NotEmpty               a namespace that still holds something
    ├── CommitRefused          the commit did not happen, and that is certain
    │   ├── RequirementFailed  an assertion of the request does not hold at the head
    │   ├── ConflictFound      the window changed what this commit read or removed
    │   └── Diverged           the base is no longer in the history of the branch
    ├── CommitUnknown          the swap was sent and nobody knows; look for the key
    ├── Unauthenticated        no token, or a bad one
    ├── Forbidden              the token's role does not allow it
    ├── Unsupported            the specification has it, this service does not
    ├── Overloaded             try again later; nothing happened
    │   └── QueueFull          too much waits already; nothing happened
    ├── StorageFailed          the database or the files did not answer; nothing happened
    └── JobFailed              a Spark job failed; what it had not committed by then is in no table

HTTP statuses live in `service/http_errors.py`, nowhere else.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, TypeVar


class Retry(Enum):
    """What a caller may do next."""

    NEVER = "never"  # the same request will be refused again
    REFRESH = "refresh"  # read the head again, then redo the request
    LATER = "later"  # the same request may pass later
    PROBE = "probe"  # find out what happened before doing anything


class HeadgateError(Exception):
    """Base of all our errors: a message for people, a code for programs, evidence as fields."""

    code: ClassVar[str] = "internal-error"
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, **evidence: object) -> None:
        super().__init__(message)
        self.message = message
        self.evidence = evidence


class BadInput(HeadgateError):
    """The request or file is wrong. `field` names what, as a JSON path or option name."""

    code = "bad-input"

    def __init__(self, message: str, *, field: str | None = None, **evidence: object) -> None:
        super().__init__(message, **evidence)
        self.field = field


class TooLarge(BadInput):
    """A body, a file or a decompressed block is over its stated limit."""

    code = "too-large"


class LocationRefused(BadInput):
    """A location that this catalog may not touch; refused before anything was written."""

    code = "location-refused"


class NotFound(HeadgateError):
    """What the request names is not there. `kind` is namespace, table, view, warehouse or file."""

    code = "not-found"

    def __init__(self, message: str, *, kind: str, **evidence: object) -> None:
        super().__init__(message, **evidence)
        self.kind = kind


class AlreadyExists(HeadgateError):
    """The name is taken. `kind` is what stands there or was to be made."""

    code = "already-exists"

    def __init__(self, message: str, *, kind: str, **evidence: object) -> None:
        super().__init__(message, **evidence)
        self.kind = kind


class NotEmpty(HeadgateError):
    """A namespace that still holds tables, views or namespaces cannot be dropped."""

    code = "namespace-not-empty"


class CommitRefused(HeadgateError):
    """The commit did not happen, and that is certain. Read the head again, then redo the work."""

    code = "commit-refused"
    retry = Retry.REFRESH


class RequirementFailed(CommitRefused):
    """An assertion of the request does not hold at the head."""

    code = "requirement-failed"


class ConflictFound(CommitRefused):
    """The window changed what this commit read or removed. Read again, then redo the work.

    Evidence: `rule`, `theirs` (the other commit: snapshot-id, operation, timestamp-ms and who), `files` (the first
    ones) and their `count`, `filter`, and what to do `next`.
    """

    code = "conflict-found"
    retry = Retry.NEVER


class Diverged(CommitRefused):
    """The base is no longer in the history of the branch, or the window has a gap: nothing can be judged."""

    code = "diverged"
    retry = Retry.NEVER


class CommitUnknown(HeadgateError):
    """The swap was sent and its outcome is not known. Nothing was deleted; look for the key."""

    code = "commit-unknown"
    retry = Retry.PROBE


class Unauthenticated(HeadgateError):
    """No token, an expired one, or one that we did not sign."""

    code = "unauthenticated"


class Forbidden(HeadgateError):
    """The caller is known, and may not do this."""

    code = "forbidden"


class Unsupported(HeadgateError):
    """The specification has it, this service does not (yet)."""

    code = "unsupported"


class Overloaded(HeadgateError):
    """Nothing happened; the same request may pass after `retry_after_s`."""

    code = "overloaded"
    retry = Retry.LATER

    def __init__(self, message: str, *, retry_after_s: int = 1, **evidence: object) -> None:
        super().__init__(message, **evidence)
        self.retry_after_s = retry_after_s


class WouldWait(Overloaded):
    """Somebody is in the way, and the caller waits for nobody: nothing was done, and who may wait can try."""

    code = "would-wait"


class QueueFull(Overloaded):
    """Too many commits of a table wait, or too many jobs, or a commit's time was over before its turn: nothing happened."""

    code = "queue-full"


class StorageFailed(HeadgateError):
    """The database or the files did not answer, before any swap was sent; nothing happened."""

    code = "storage-failed"
    retry = Retry.LATER


class JobFailed(HeadgateError):
    """A Spark job failed; what it had not committed by then is in no table."""

    code = "job-failed"
    retry = Retry.LATER


class InvariantBroken(HeadgateError):
    """A bug of ours: something that must never happen did. Nothing more is written."""

    code = "invariant-broken"


_CAUSES_MAX = 16
E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """The error, for whoever keeps it as a value: it and what caused it no longer hold the frames they were raised through.

    A frame holds what was at hand there, the value that keeps the error before long among it. Only the collector ends such
    a cycle, and until it comes, all that the frames hold stays in memory: of a commit, the whole table's log.
    """
    left: list[BaseException | None] = [error]
    for _ in range(_CAUSES_MAX):
        one = left.pop() if left else None
        if one is not None:
            one.__traceback__ = None
            left += (one.__context__, one.__cause__)
    return error


def invariant(condition: bool, text: str) -> None:
    """Stop here if what must always hold does not. Unlike `assert`, `-O` does not remove it."""
    if not condition:
        raise InvariantBroken(f"invariant broken: {text}")
