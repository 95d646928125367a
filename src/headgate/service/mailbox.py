"""Verdicts on their way to the event loop, where whoever waits for one is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from headgate.core.commit import Verdict

W = TypeVar("W")
# Called on the event loop with who waits; a verdict of None: the request's time is over.
Settle = Callable[[W, Verdict | None], None]


class Mailbox:
    """Brings verdicts from the gates' threads to the event loop: many that come together wake it once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._posted: list[tuple[Settle[Any], Any, Verdict]] = []
        self._home: int | None = None  # the event loop's thread, once it is known

    def live_in(self, thread: int) -> None:
        """Verdicts that come in this thread are given at once."""
        self._home = thread

    def post(self, loop: asyncio.AbstractEventLoop, settle: Settle[W], waiter: W, verdict: Verdict) -> None:
        """Give a waiting request its verdict; from any thread."""
        if threading.get_ident() == self._home:
            settle(waiter, verdict)
            return
        with self._lock:
            self._posted.append((settle, waiter, verdict))
            if len(self._posted) > 1:
                return  # the event loop has been woken for the first of them
        loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, []
        for settle, waiter, verdict in posted:
            settle(waiter, verdict)
