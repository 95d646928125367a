"""Progress: a bar on a terminal, lines elsewhere, and nothing of it left behind."""

from __future__ import annotations

import io

from headgate.cli.progress import Progress


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_terminal_sees_a_bar_that_grows_and_goes() -> None:
    out, clock = Terminal(), Hands()
    progress = Progress(out, clock)
    progress("files deleted", 1, 4)  # too early to say anything
    assert out.getvalue() == ""
    for done in (1, 2, 4):
        clock.now_s += 1
        progress("files deleted", done, 4)
    shown = out.getvalue().split("\r\x1b[K")
    assert [text.count("█") for text in shown[1:]] == [7, 15, 30]
    assert "50%  2 of 4 files deleted" in shown[2]
    progress.end()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_total_that_nobody_knows_is_not_made_up() -> None:
    out, clock = Terminal(), Hands()
    progress = Progress(out, clock)
    clock.now_s = 1
    progress("files listed", 12_345, None)
    assert out.getvalue() == "\r\x1b[K12,345 files listed"


def test_a_log_gets_a_line_every_two_seconds() -> None:
    out, clock = io.StringIO(), Hands()
    progress = Progress(out, clock)
    for second in range(5):
        clock.now_s = second
        progress("objects looked at", second, 5)
    progress.end()
    assert out.getvalue() == "… 2 of 5 objects looked at\n… 4 of 5 objects looked at\n"
