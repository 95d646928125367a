"""How far a long command has come: a bar on a terminal, a line every two seconds elsewhere. On standard error only."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

_BAR_EVERY_S = 0.1
_LINE_EVERY_S = 2.0
_BAR_CHARS = 30
_CLEAR = "\r\x1b[K"


class Progress:
    """Told of every step; says something when it is time to."""

    def __init__(self, out: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._out, self._now_s = out, now_s
        self._is_terminal = out.isatty()
        self._due_s = now_s() + (_BAR_EVERY_S if self._is_terminal else _LINE_EVERY_S)
        self._is_shown = False

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """So much of this is done; `total` is how much there is, where that is known."""
        if (now_s := self._now_s()) < self._due_s:
            return
        if self._is_terminal:
            self._due_s, self._is_shown = now_s + _BAR_EVERY_S, True
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f"{_CLEAR}{_draw(what, done, total)[:width]}")
        else:
            self._due_s = now_s + _LINE_EVERY_S
            of = "" if total is None else f" of {total:,}"
            self._out.write(f"… {done:,}{of} {what}\n")
        self._out.flush()

    def end(self) -> None:
        """Take the bar away, so that the report has the terminal to itself."""
        if self._is_shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._is_shown = False


def _draw(what: str, done: int, total: int | None) -> str:
    if not total:
        return f"{done:,} {what}"
    part = min(done / total, 1.0)
    filled = int(part * _BAR_CHARS)
    return f"[{'█' * filled}{'·' * (_BAR_CHARS - filled)}] {part:4.0%}  {done:,} of {total:,} {what}"
