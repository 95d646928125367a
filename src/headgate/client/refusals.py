"""An error on the wire as an error of ours, with its evidence: the reverse of the service's table.

`error.headgate.code` names the class; what some proxy between answered is judged by its status alone.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import msgspec

from headgate import errors
from headgate.client.transport import Answer
from headgate.errors import HeadgateError, Retry

_KIND = re.compile(r"NoSuch(Namespace|Table|View|Warehouse)Exception")
_BY_STATUS: Mapping[int, type[HeadgateError]] = {
    HTTPStatus.UNAUTHORIZED: errors.Unauthenticated,
    HTTPStatus.FORBIDDEN: errors.Forbidden,
    HTTPStatus.NOT_FOUND: errors.NotFound,
    HTTPStatus.NOT_ACCEPTABLE: errors.Unsupported,
    HTTPStatus.CONFLICT: errors.CommitRefused,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: errors.TooLarge,
    HTTPStatus.TOO_MANY_REQUESTS: errors.Overloaded,
}

_VERDICTS = frozenset(
    (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.CONFLICT,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
)


class _Body(msgspec.Struct):
    message: str = ""
    type: str = ""
    headgate: dict[str, object] = {}
    conflict: dict[str, object] | None = None


class _Wire(msgspec.Struct):
    error: _Body


def _subclasses(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)


_BY_CODE = {kind.code: kind for kind in _subclasses(HeadgateError) if kind.__module__ == errors.__name__}


def to_error(answer: Answer) -> HeadgateError:
    """The error that an answer with a status of failure stands for."""
    try:
        body = msgspec.json.decode(answer.body, type=_Wire).error
    except (msgspec.MsgspecError, UnicodeDecodeError):  # not ours: some proxy's page
        body = _Body(message=f"the answer was {answer.status} without an error that this client knows")
    details = dict(body.headgate)
    kind = _BY_CODE.get(str(details.pop("code", ""))) or _by_status(answer.status)
    details.pop("retry", None)
    field = details.pop("field", None)
    evidence: dict[str, object] = {name.replace("-", "_"): value for name, value in details.items()}
    if body.conflict is not None:
        evidence = dict(body.conflict)
    message = body.message
    if issubclass(kind, errors.BadInput):
        return kind(message, field=None if field is None else str(field), **evidence)
    if issubclass(kind, errors.NotFound | errors.AlreadyExists):
        found = _KIND.fullmatch(body.type)
        return kind(message, kind=found[1].lower() if found else "unknown", **evidence)
    if issubclass(kind, errors.Overloaded):
        evidence.pop("retry_after_s", None)
        return kind(message, retry_after_s=round(retry_after_s(answer) or 1), **evidence)
    return kind(message, **evidence)


def is_certain(answer: Answer) -> bool:
    """Whether a failure is known to have done nothing. A 5xx is, only when the service itself says so."""
    if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return True
    return to_error(answer).retry is Retry.LATER


def is_verdict(answer: Answer) -> bool:
    """Whether a refusal holds for every copy of the request: it is stored under the key, which counts once.

    Others are about this copy alone (a token that ended, say, or a proxy that has lost the service), and tell nothing of
    an earlier one.
    """
    return answer.status in _VERDICTS and is_ours(answer)


def is_ours(answer: Answer) -> bool:
    """Whether the service itself has answered."""
    try:
        return "code" in msgspec.json.decode(answer.body, type=_Wire).error.headgate
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def is_worth_resending(answer: Answer) -> bool:
    """Whether the very same request may get another answer later."""
    return answer.status == HTTPStatus.TOO_MANY_REQUESTS or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def retry_after_s(answer: Answer) -> float | None:
    """What Retry-After asks for: seconds, or the time until a date."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _by_status(status: int) -> type[HeadgateError]:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return errors.CommitUnknown
    return _BY_STATUS.get(status, errors.BadInput)
