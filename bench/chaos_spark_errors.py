"""What Spark and the Iceberg jar mean by an exception, in one word."""

from __future__ import annotations

import re

_CAUSE = re.compile(r"^(?:Caused by: )?((?:[a-z][\w]*\.)+[A-Z]\w*)(?=:|$)", re.MULTILINE)
# Those that say what became of a commit; they may stand anywhere in the chain.
_TELLING = ("CommitStateUnknownException", "CommitFailedException", "ValidationException")


def name_of(error: BaseException) -> str:
    """The exception that says most: of a commit, or the innermost cause."""
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    for name in _TELLING:
        if f"org.apache.iceberg.exceptions.{name}" in text:
            return name
    causes = _CAUSE.findall(text)
    return str(causes[-1]).rsplit(".", 1)[-1] if causes else type(error).__name__


def message_of(error: BaseException, name: str) -> str:
    """What follows the name of an exception, on its line."""
    found = re.search(rf"{name}: (.*)", f"{error}\n{getattr(error, '_stackTrace', None) or ''}")
    return "" if found is None else found[1][:300]
