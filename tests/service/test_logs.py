"""Logs: no secret and no forged line, whatever is logged."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.service import logs
from headgate.service.logs import (
    CommitLine,
    JsonLines,
    encode_commits,
    log,
    log_commits,
    log_crash,
    redact,
    set_up_logs,
)

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


Log = Callable[[], bytes]


@contextmanager
def logs_of_a_service(path: Path) -> Iterator[Log]:
    """Logs as a service has them, without pytest's handlers; what is printed so far."""
    root = logging.getLogger()
    before = root.handlers, root.level, logs.LOGGER.level
    with path.open("w") as file, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", file)
        set_up_logs("info")
        try:
            yield path.read_bytes
        finally:
            root.handlers, level, own_level = before
            root.setLevel(level)
            logs.LOGGER.setLevel(own_level)


COMMITS = [
    CommitLine("a.t", None, 2, 1, 3, "committed", 1.23456),
    CommitLine(f"client_secret={CANARY}", "k", 1, None, None, "refused", 0),
    CommitLine('ä\u2028\n"', "k", 1, None, None, "unknown", 0.5),
]


@pytest.mark.parametrize("commits", [*([commit] for commit in COMMITS), COMMITS])
def test_a_line_that_is_written_straight_is_the_one_that_logging_would_print(
    tmp_path: Path, commits: list[CommitLine]
) -> None:
    seen: list[logging.LogRecord] = []

    def see(record: logging.LogRecord) -> bool:
        seen.append(record)
        return True

    with logs_of_a_service(tmp_path / "log") as printed:
        (handler,) = logging.getLogger().handlers
        log_commits(commits)
        straight = printed()
        handler.addFilter(see)
        log_commits(commits)
        by_logging = printed().removeprefix(straight)
    assert len(seen) == 1
    assert _without_times(straight) == _without_times(by_logging)
    assert straight.count(b"\n") == len(commits)
    assert CANARY.encode() not in straight


def _without_times(lines: bytes) -> bytes:
    return re.sub(rb'"at": ?"[^"]*"', b"", lines)


@given(
    st.lists(
        st.builds(
            CommitLine,
            st.text(st.characters(exclude_categories=["Cs"])),
            st.none() | st.text("abc"),
            st.integers(0, 9),
            st.none() | st.integers(0, 2**63),
            st.none() | st.integers(0, 2**63),
            st.sampled_from(["committed", "refused"]),
            st.floats(0, 1e6),
        ),
        min_size=1,
        max_size=3,
    ),
    st.floats(0, 4e9),
)
def test_the_lines_of_commits_are_those_of_their_record(lines: list[CommitLine], created_s: float) -> None:
    record = logging.LogRecord("headgate", logging.INFO, "", 0, "%s", ("commit",), None)
    record.created, record.clean_lines = created_s, lines
    found = encode_commits(lines, created_s=created_s)
    assert found.isascii()
    assert JsonLines().format(record).encode() == found
    read = [json.loads(line) for line in found.split(b"\n")]
    assert [line["table"] for line in read] == [line.table for line in lines]
    assert all(list(line)[:4] == ["at", "level", "logger", "message"] for line in read)


def test_commits_are_logged_the_ordinary_way_where_somebody_else_listens(tmp_path: Path) -> None:
    text = io.StringIO()
    other = logging.StreamHandler(text)
    with logs_of_a_service(tmp_path / "log") as printed:
        for logger in (logs.LOGGER, logging.getLogger()):
            logger.addHandler(other)
            log_commits(COMMITS[:1])
            logger.removeHandler(other)
        assert text.getvalue() == "commit\n" * 2
        assert printed().count(b"\n") == 2


def test_commits_are_not_logged_below_the_level(tmp_path: Path) -> None:
    with logs_of_a_service(tmp_path / "log") as printed:
        logs.LOGGER.setLevel("WARNING")
        log_commits(COMMITS)
        logs.LOGGER.setLevel("INFO")
        logging.getLogger().handlers[0].setLevel("WARNING")
        log_commits(COMMITS)
        assert printed() == b""


def test_plain_words_are_left_alone() -> None:
    text = "commit of table tokens.password_resets by basic user; 3 keys, bearer none?"
    assert "tokens.password_resets" in redact(text)
    assert redact("s3://bucket/data/part-1.parquet?") == "s3://bucket/data/part-1.parquet?"
