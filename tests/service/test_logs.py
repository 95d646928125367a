"""Logs: no secret and no forged line, whatever is logged."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headgate.service import logs
from headgate.service.logs import CommitLine, JsonLines, log, log_commits, log_crash, redact

CANARY = "cAnArY0123456789"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The headgate logger, printing to memory; other loggers are left alone."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonLines())
    before = logs.LOGGER.level
    logs.LOGGER.addHandler(handler)
    logs.LOGGER.setLevel("DEBUG")
    yield text
    logs.LOGGER.removeHandler(handler)
    logs.LOGGER.setLevel(before)


SECRET_TEXTS = [
    f"Authorization: Bearer {CANARY}",
    f"authorization: Basic {CANARY}",
    f"{{'Authorization': 'Bearer {CANARY}'}}",
    f"grant_type=client_credentials&client_secret={CANARY}&x=1",
    f'{{"client_secret": "{CANARY}"}}',
    f"s3.secret-access-key={CANARY}",
    f"s3_access_key_id: {CANARY}",
    f'"s3.session-token":"{CANARY}"',
    f"AWS_SECRET_ACCESS_KEY={CANARY}",
    f"https://bucket.s3.amazonaws.com/k?X-Amz-Algorithm=A&X-Amz-Signature={CANARY}",
    f"https://h/k?a=1&Signature={CANARY}",
    f"postgresql://user:{CANARY}@host/db",
    f"access_token={CANARY}",
    f"password={CANARY}",
]


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_no_canary_reaches_a_log_line(stream: io.StringIO, text: str) -> None:
    assert CANARY not in redact(text)
    log(logging.INFO, text, error=text, inner={"deep": [text]})
    log_crash("crash", ValueError(text), detail=text)
    assert len(stream.getvalue().splitlines()) == 2
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Authorization",
        "client_secret",
        "s3_secret_access_key",
        "s3.access-key-id",
        "secret_hash",
    ],
)
def test_a_value_under_a_secret_name_is_hidden(stream: io.StringIO, name: str) -> None:
    log(logging.INFO, "x", **{name: CANARY, "headers": {name: CANARY}})
    assert CANARY not in stream.getvalue()


def test_a_value_cannot_forge_a_line(stream: io.StringIO) -> None:
    log(logging.INFO, 'a\r\n{"level":"error"}', table="b\n\u2028c\x1b[31m")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert json.loads(lines[0])["table"] == "b\n\u2028c\x1b[31m"


def test_a_commit_is_one_line_with_its_fields(stream: io.StringIO) -> None:
    log_commits([CommitLine("a.t", None, 2, 1, 3, "committed", 1.23456)])
    line = json.loads(stream.getvalue())
    found = {
        name: line[name] for name in ("table", "key", "attempt", "base", "head", "verdict", "elapsed_ms")
    }
    assert found == {
        "table": "a.t",
        "key": None,
        "attempt": 2,
        "base": 1,
        "head": 3,
        "verdict": "committed",
        "elapsed_ms": 1.235,
    }


def test_commits_of_one_group_are_a_line_each(stream: io.StringIO) -> None:
    log_commits([CommitLine(f"a.t\n{i}", str(i), 1, None, None, "committed", 1) for i in range(3)])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["message"], line["table"], line["key"]) for line in lines] == [
        ("commit", f"a.t\n{i}", str(i)) for i in range(3)
    ]
    log_commits([])
    assert len(stream.getvalue().splitlines()) == 3


def test_plain_words_are_left_alone() -> None:
    text = "commit of table tokens.password_resets by basic user; 3 keys, bearer none?"
    assert "tokens.password_resets" in redact(text)
    assert redact("s3://bucket/data/part-1.parquet?") == "s3://bucket/data/part-1.parquet?"
