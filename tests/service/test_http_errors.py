"""The table of errors: every class has a row, and every row looks as clients expect."""

from __future__ import annotations

import json

import pytest

from headgate import errors
from headgate.errors import HeadgateError
from headgate.service import http_errors
from headgate.service.http_errors import SHAPES, error_reply, is_terminal


def all_classes(base: type[HeadgateError] = HeadgateError) -> set[type[HeadgateError]]:
    return {base}.union(*(all_classes(below) for below in base.__subclasses__()))


def test_every_error_class_has_a_row_of_its_own() -> None:
    ours = {kind for kind in all_classes() if kind.__module__.startswith("headgate.")}
    assert ours == set(SHAPES)


def test_every_code_is_used_by_one_class_only() -> None:
    codes = [kind.code for kind in SHAPES if kind is not HeadgateError]
    assert len(codes) == len(set(codes))


EXAMPLES: list[tuple[HeadgateError, int, str, bool]] = [
    (errors.BadInput("m"), 400, "IllegalArgumentException", True),
    (errors.TooLarge("m"), 400, "BadRequestException", True),
    (http_errors.BodyTooLarge("m"), 413, "BadRequestException", False),
    (errors.LocationRefused("m"), 400, "BadRequestException", True),
    (errors.NotFound("m", kind="table"), 404, "NoSuchTableException", True),
    (errors.NotFound("m", kind="view"), 404, "NoSuchViewException", True),
    (errors.NotFound("m", kind="namespace"), 404, "NoSuchNamespaceException", True),
    (errors.NotFound("m", kind="file"), 404, "NotFoundException", True),
    (errors.AlreadyExists("m", kind="table"), 409, "AlreadyExistsException", True),
    (errors.NotEmpty("m"), 409, "NamespaceNotEmptyException", True),
    (errors.CommitRefused("m"), 409, "CommitFailedException", True),
    (errors.RequirementFailed("m"), 409, "CommitFailedException", True),
    (errors.CommitUnknown("m"), 500, "CommitStateUnknownException", False),
    (errors.Unauthenticated("m"), 401, "NotAuthorizedException", False),
    (errors.Forbidden("m"), 403, "ForbiddenException", False),
    (errors.Unsupported("m"), 406, "UnsupportedOperationException", True),
    (errors.Overloaded("m"), 429, "SlowDownException", False),
    (errors.WouldWait("m"), 429, "SlowDownException", False),
    (errors.QueueFull("m"), 503, "ServiceUnavailableException", False),
    (errors.StorageFailed("m"), 503, "ServiceUnavailableException", False),
    (errors.InvariantBroken("m"), 500, "InternalServerError", False),
    (http_errors.Unprocessable("m"), 422, "UnprocessableEntityException", True),
]


@pytest.mark.parametrize(("error", "status", "type_name", "terminal"), EXAMPLES)
def test_an_error_looks_as_clients_expect(
    error: HeadgateError, status: int, type_name: str, terminal: bool
) -> None:
    reply = error_reply(error)
    body = json.loads(reply.body)["error"]
    assert (reply.status, body["code"], body["type"], body["message"]) == (status, status, type_name, "m")
    assert is_terminal(error) is terminal


@pytest.mark.parametrize("error", [errors.Overloaded("m", retry_after_s=7), errors.StorageFailed("m")])
def test_what_may_pass_later_says_when(error: HeadgateError) -> None:
    assert int(dict(error_reply(error).headers)["retry-after"]) >= 1


def test_messages_and_evidence_pass_through_unchanged() -> None:
    error = errors.BadInput(
        'Requirement failed: "x" — é', field="a.b[0]", theirs=8812, files=("b", "a"), odd={1j}
    )
    body = json.loads(error_reply(error).body)["error"]
    assert body["message"] == 'Requirement failed: "x" — é'
    assert body["headgate"]["field"] == "a.b[0]"
    assert body["headgate"]["theirs"] == 8812
    assert body["headgate"]["files"] == ["b", "a"]


def test_evidence_cannot_replace_the_code() -> None:
    body = json.loads(error_reply(errors.BadInput("m", code="other")).body)["error"]
    assert body["headgate"]["code"] == "bad-input"
