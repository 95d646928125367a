"""Log lines: one JSON object a line on stderr, without secrets and without line breaks.

Redaction is the last step before the line is printed, so that it also sees what libraries log. It looks at
names (`authorization`, `client_secret` …) and at text that looks like a credential. Never logs a body.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TextIO

import msgspec
from msgspec.structs import replace

from headgate.service.log_stream import LogStream

LOGGER = logging.getLogger("headgate")
_ROOT = logging.root
_COMMIT = "commit"

_HIDDEN = "[redacted]"
_SECRET_NAMES = (
    r"authorization|client[_.-]?secret|secret[_.-]?hash|secret[_.-]?access[_.-]?key|access[_.-]?key[_.-]?id"
    r"|session[_.-]?token|security[_.-]?token|access[_.-]?token|refresh[_.-]?token|subject[_.-]?token|password"
)
_SECRET_NAME = re.compile(rf"(?:^|[^a-z]|s3[_.-]?)(?:{_SECRET_NAMES})$", re.IGNORECASE)
# In this order: a scheme with its value, a presigned query, `name: value` and `name=value`, URL user info.
_SECRET_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',;]+", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (
        re.compile(r"\?[^\s\"']*(?:X-Amz-|Signature=|AWSAccessKeyId=|sig=)[^\s\"']*", re.IGNORECASE),
        f"?{_HIDDEN}",
    ),
    (
        re.compile(
            rf"((?:{_SECRET_NAMES})[\"']?\s*[:=]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s&,;}}\"']+)", re.IGNORECASE
        ),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+@"), rf"\1{_HIDDEN}@"),
)


def redact(text: str) -> str:
    """The text without what looks like a credential."""
    for pattern, replacement in _SECRET_TEXT:
        text = pattern.sub(replacement, text)
    return text


@lru_cache(maxsize=1024)
def _redact_name(name: str) -> str:
    return redact(name)


def redact_value(name: str, value: object) -> object:
    """A value that may be printed under this name."""
    if _SECRET_NAME.search(name):
        return _HIDDEN
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {str(key): redact_value(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(name, inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


_ENCODE_LINES = msgspec.json.Encoder().encode_lines


@lru_cache(maxsize=4)
def _stamp(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class JsonLines(logging.Formatter):
    """A record as one line of JSON; `extra={"fields": {...}}` adds fields. One of several lines has their fields."""

    def format(self, record: logging.LogRecord) -> str:
        """JSON escapes CR, LF and every other control character, so a value cannot forge a line."""
        if (lines := getattr(record, "clean_lines", None)) is not None:
            return encode_commits(lines, created_s=record.created).decode()
        line: dict[str, object] = {
            "at": f"{_stamp(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in getattr(record, "fields", {}).items():
            line.setdefault(name, redact_value(name, value))
        if record.exc_info:
            line["trace"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=True)


class _Handler(logging.StreamHandler[TextIO | LogStream]):
    """As `set_up_logs` makes it; others may change it."""

    def find_stream(self) -> LogStream | None:
        """Where every line goes that is handed to this handler, and just as `JsonLines` prints it."""
        if self.level > logging.INFO or self.filters or type(self.formatter) is not JsonLines:
            return None
        return self.stream if isinstance(self.stream, LogStream) else None


def set_up_logs(level: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to one stream of JSON lines; stderr without ever waiting for its reader."""
    target = stream or _open_stderr()
    handler = _Handler(target)
    handler.setFormatter(JsonLines())
    if isinstance(target, LogStream):
        handler.lock = target.lock  # one, or the two of them could be waited for in either order
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    # Nothing of this is printed, and finding it out took a third of a commit's line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    LOGGER.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        foreign = logging.getLogger(name)
        foreign.handlers, foreign.propagate = [], True
        foreign.setLevel(logging.WARNING)


def _open_stderr() -> TextIO | LogStream:
    try:
        stream = LogStream(sys.stderr.fileno(), _say_dropped)
    except (OSError, ValueError, AttributeError):  # closed, something else, or a system without poll
        return sys.stderr
    atexit.register(stream.close)
    _STREAMS.append(stream)
    return stream


_STREAMS: list[LogStream] = []  # one, where a process sets its logs up once


def count_dropped() -> int:
    """Lines that nobody took in time, since the process began."""
    return sum(stream.dropped for stream in _STREAMS)


def _say_dropped(lines: int) -> str:
    text = "log lines were dropped: nobody read them in time"
    record = logging.LogRecord(LOGGER.name, logging.WARNING, "", 0, text, None, None)
    record.fields = {"lines": lines}
    return JsonLines().format(record)


def log(level: int, message: str, **fields: object) -> None:
    """One structured line."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", message, extra={"fields": fields})


def log_crash(message: str, error: BaseException, **fields: object) -> None:
    """One structured line with the trace of an exception that is not ours."""
    LOGGER.error("%s", message, exc_info=error, extra={"fields": fields})


class CommitLine(msgspec.Struct, frozen=True, gc=False):
    """What the line of a commit attempt says. All of it is ours but the table's name."""

    table: str
    key: str | None
    attempt: int
    base: int | None
    head: int | None
    verdict: str
    elapsed_ms: float


def log_commits(commits: Sequence[CommitLine]) -> None:
    """One line for each. They are written at once: every write lets go of the interpreter, and waits to get it back."""
    if not commits or not LOGGER.isEnabledFor(logging.INFO):
        return
    lines = list(map(_clean, commits))
    if (stream := _find_stream()) is None:
        LOGGER.info("%s", _COMMIT, extra={"clean_lines": lines})
    else:  # a record, its handler and its formatter take five times as long as the line itself
        stream.write_bytes(encode_commits(lines, created_s=time.time()) + b"\n")


def _clean(commit: CommitLine) -> CommitLine:
    """Without what looks like a credential, and with its time to the microsecond."""
    elapsed_ms = int(commit.elapsed_ms * 1000 + 0.5) / 1000  # `round` takes ten times as long
    return replace(commit, table=_redact_name(commit.table), elapsed_ms=elapsed_ms)


def encode_commits(lines: Sequence[CommitLine], *, created_s: float) -> bytes:
    """The lines, but for the end of the last. Their values are printed as they are."""
    second = int(created_s)
    begin = _begin_commits(second) + _MILLIS[int((created_s - second) * 1000)] + _BEHIND_MILLIS
    text = begin + _ENCODE_LINES(lines)[1:-1]
    if len(lines) > 1:  # a line break is escaped within a value, so what comes behind one is the next line
        text = text.replace(b"\n{", b"\n" + begin)
    if text.isascii():  # what is not would have to be escaped
        return text
    head = json.loads(begin[:-1] + b"}")
    found = [json.dumps(head | msgspec.to_builtins(line), ensure_ascii=True) for line in lines]
    return "\n".join(found).encode()


@lru_cache(maxsize=4)
def _begin_commits(second: int) -> bytes:
    return b'{"at":"%b.' % _stamp(second).encode()


_MILLIS = tuple(b"%03d" % milli for milli in range(1000))
_BEHIND_MILLIS = b'Z","level":"info","logger":"%b","message":"%b",' % (LOGGER.name.encode(), _COMMIT.encode())


def _find_stream() -> LogStream | None:
    """Where the lines of our logger end up, if nobody but our own handler has anything to do with them."""
    handlers = _ROOT.handlers
    if len(handlers) != 1 or LOGGER.handlers or LOGGER.filters or not LOGGER.propagate:
        return None
    return handlers[0].find_stream() if isinstance(handlers[0], _Handler) else None
