"""A client of the REST catalog as careful ones are written: one key a change, asked again until the answer is sure."""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.service_process import HOST

NS = "chaos"
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}

_ASK_AGAIN = frozenset({429, 500, 502, 503, 504})
_PAUSE_S = 0.05
_TIMEOUT_S = 30.0


class LostAnswerError(Exception):
    """The connection was refused, or ended before the whole answer was read."""


def new_key() -> str:
    """A UUIDv7."""
    random = secrets.token_hex(10)
    text = f"{time.time_ns() // 1_000_000:012x}7{random[:3]}{secrets.choice('89ab')}{random[3:18]}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@dataclass(frozen=True)
class Answer:
    """Status and JSON."""

    status: int
    body: Any = None

    @property
    def is_success(self) -> bool:
        """Whether the change was made."""
        return 200 <= self.status < 300


@dataclass(frozen=True)
class Call:
    """One change to ask for, under one key. Each time it is asked, it is the same to the byte."""

    method: str
    path: str
    body: Any = None
    key: str = field(default_factory=new_key)


def send(
    port: int, method: str, path: str, body: Any = None, *, key: str | None = None, prefer: str | None = None
) -> Answer:
    """One request over a connection of its own."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_S)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if key is not None:
        headers["Idempotency-Key"] = key
    if prefer is not None:
        headers["Prefer"] = prefer
    try:
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        text = answer.read()
        return Answer(answer.status, json.loads(text) if text else None)
    except (OSError, http.client.HTTPException) as error:
        raise LostAnswerError(repr(error)) from error
    finally:
        connection.close()


@dataclass
class Settled:
    """The sure answer to a call, and how it came about."""

    answer: Answer
    asked: int
    elapsed_s: float
    statuses: list[int | None]  # None for each answer that was lost


def settle(ports: Sequence[int], call: Call, *, wait_max_s: float = 60.0) -> Settled:
    """Ask the first port, then the next, in turn, until some answer is sure."""
    started = time.monotonic()
    statuses: list[int | None] = []
    while time.monotonic() - started < wait_max_s:
        port = ports[len(statuses) % len(ports)]
        try:
            answer = send(port, call.method, call.path, call.body, key=call.key)
            statuses.append(answer.status)
            if answer.status not in _ASK_AGAIN:
                return Settled(answer, len(statuses), time.monotonic() - started, statuses)
        except LostAnswerError:
            statuses.append(None)
        time.sleep(_PAUSE_S)
    raise AssertionError(f"no sure answer in {wait_max_s} s: {call.method} {call.path} {statuses[-20:]}")


def table_path(name: str) -> str:
    """The path of a table."""
    return f"/v1/namespaces/{NS}/tables/{name}"


def must(answer: Answer) -> Any:
    """The body of an answer that must be a success."""
    assert answer.is_success, answer
    return answer.body


def create_namespace(port: int) -> None:
    """The one namespace of these tests; to be there already is no error."""
    assert send(port, "POST", "/v1/namespaces", {"namespace": [NS]}).status in (200, 409)


def create_table(port: int, name: str) -> dict[str, Any]:
    """A new table's metadata."""
    made = must(send(port, "POST", f"/v1/namespaces/{NS}/tables", {"name": name, "schema": SCHEMA}))
    metadata: dict[str, Any] = made["metadata"]
    return metadata


def find_table(port: int, name: str) -> dict[str, Any] | None:
    """What the catalog says of a table (`metadata` and `metadata-location`), or None."""
    answer = send(port, "GET", table_path(name))
    return None if answer.status == 404 else must(answer)


def load_metadata(ports: Sequence[int], name: str) -> dict[str, Any]:
    """A table's metadata, from whichever service answers."""
    metadata: dict[str, Any] = must(settle(ports, Call("GET", table_path(name))).answer)["metadata"]
    return metadata
