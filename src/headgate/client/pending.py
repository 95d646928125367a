"""A request that the service has acknowledged and carries out by itself: where to ask what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from headgate.client.refusals import to_error
from headgate.client.resend import Ask, Resender
from headgate.client.results import Committed
from headgate.client.transport import Answer
from headgate.errors import CommitUnknown

WAIT_S = 60.0
_LOOK_S_MAX = 20  # of one request; the service holds it until there is a verdict


def async_headers() -> dict[str, str]:
    """Ask for an acknowledgement instead of the verdict."""
    return {"Prefer": "respond-async"}


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit that is durable and not made yet. Its key finds it again, in another process too."""

    key: str
    _resender: Resender = field(repr=False)
    _now_s: Callable[[], float] = field(repr=False)

    def look(self, *, wait_s: float = 0.0) -> Committed | None:
        """The commit once it landed, None while it is pending; raises the error of a refusal."""
        path = f"/v1/commits/{self.key}?wait={min(max(round(wait_s), 0), _LOOK_S_MAX)}"
        sure = self._resender.settle(Ask("GET", path))
        told = msgspec.json.decode(sure.answer.body, type=dict[str, Any])
        match told["status"]:
            case "pending":
                return None
            case "committed":
                return Committed(
                    key=self.key,
                    metadata_location=told.get("metadata-location"),
                    snapshot_id=told.get("snapshot-id"),
                )
            case _:
                status = told.get("http-status", HTTPStatus.CONFLICT)
                raise to_error(Answer(status, {}, msgspec.json.encode({"error": told["error"]})))

    def wait(self, *, timeout_s: float = WAIT_S) -> Committed:
        """The commit when it has landed; raises the error of a refusal, or that nobody knows after the timeout."""
        until = self._now_s() + timeout_s
        while (left_s := until - self._now_s()) > 0:
            if (landed := self.look(wait_s=max(1.0, left_s))) is not None:
                return landed
        raise CommitUnknown(f"the commit is still pending; key={self.key}; wait for it again", key=self.key)
