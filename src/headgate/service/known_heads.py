"""Heads of requests that come again: a connection sends the same one with each commit, but for a length and a key.

The form of a head is its bytes with holes for the values of Content-Length and Idempotency-Key. It is made of a head that
the real parser has read, and only if a plain reading of its lines finds just what the parser found. Bytes that fit are
that head again, byte for byte but for the two values, which are a plain number and 36 characters of a key: the parser
would find in them what it found before, and need not be asked. What does not fit says nothing: the parser reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.core.value import Record

HEAD_BYTES_MAX = 2048  # a longer one is not kept: there is one for each connection
_KEY_BYTES = 36
_KEY_TEXT = re.compile(rb"[0-9A-Fa-f-]{%d}" % _KEY_BYTES)
_LENGTH, _KEY = b"content-length", b"idempotency-key"
# What makes the parser read the rest in another way than by a length, or the server answer before it is there.
_UNFIT = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"trailer"})


class HeadForm(Record):
    """A head with holes. It fits lengths of as many digits as the one that it was made of."""

    text: bytes  # to be filled with the length, or with length and key by their names
    head_bytes: int  # when it is filled
    length_min: int
    length_max: int
    key_at: int | None = None  # where the key begins

    def fits(self, data: bytes) -> bool:
        """Whether the bytes are one request with this head, all of it and nothing else."""
        length = len(data) - self.head_bytes
        if not self.length_min <= length <= self.length_max:
            return False
        if self.key_at is None:
            return data.startswith(self.text % length)
        key = data[self.key_at : self.key_at + _KEY_BYTES]
        return _KEY_TEXT.fullmatch(key) is not None and data.startswith(
            self.text % {b"length": length, b"key": key}
        )

    def find_key(self, data: bytes) -> str | None:
        """The key in bytes that fit, as it was sent."""
        return None if self.key_at is None else data[self.key_at : self.key_at + _KEY_BYTES].decode("ascii")


def find_form(
    data: bytes, body_bytes: int, *, request_line: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> HeadForm | None:
    """The form of the head of a request that the parser read from just these bytes; None when it is not a plain one."""
    head_bytes = len(data) - body_bytes
    names = [name for name, _ in headers]
    if (
        not body_bytes
        or not 0 < head_bytes <= HEAD_BYTES_MAX
        or names.count(_LENGTH) != 1
        or names.count(_KEY) > 1
        or not _UNFIT.isdisjoint(names)
    ):
        return None
    lines = data[:head_bytes].split(b"\r\n")
    if len(lines) != len(headers) + 3 or lines[0] != request_line or lines[-2:] != [b"", b""]:
        return None
    has_key = _KEY in names
    made, at, key_at = [_escape(request_line)], len(request_line) + 2, None
    for line, (name, value) in zip(lines[1:-2], headers, strict=True):
        given, _, rest = line.partition(b":")
        if given.lower() != name or rest.strip(b" \t") != value or not line.endswith(value):
            return None
        before = _escape(line[: len(line) - len(value)])
        if name == _LENGTH:
            if value != b"%d" % body_bytes:
                return None
            made.append(before + (b"%(length)d" if has_key else b"%d"))
        elif name == _KEY:
            if _KEY_TEXT.fullmatch(value) is None:
                return None
            made.append(before + b"%(key)b")
            key_at = at + len(line) - _KEY_BYTES
        else:
            made.append(_escape(line))
        at += len(line) + 2
    digits = len(b"%d" % body_bytes)
    return HeadForm(b"\r\n".join(made) + b"\r\n\r\n", head_bytes, 10 ** (digits - 1), 10**digits - 1, key_at)


def _escape(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
