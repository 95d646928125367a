"""Where log lines go: a descriptor that is written to only while it takes more.

Commits are made where their lines are logged, so a pipe that nobody reads (a pager, a log collector that hangs) would
stop the service. What the descriptor does not take is kept, up to a bound; what is beyond is dropped and counted, and the
next line that gets through says so. A thread that lives only while something is kept writes it when the reader goes on.
Never waits, but for a moment in `close`. Never cuts a line short of its end but where the reader has gone.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable

KEPT_BYTES_MAX = 1 << 20
_CLOSE_S = 1.0

SayDropped = Callable[[int], str]  # the line for so many dropped ones


class LogStream:
    """A text stream of whole lines over a descriptor that others may write to as well. Thread-safe."""

    def __init__(
        self, descriptor: int, say_dropped: SayDropped, *, kept_bytes_max: int = KEPT_BYTES_MAX
    ) -> None:
        self._descriptor, self._say_dropped, self._kept_bytes_max = descriptor, say_dropped, kept_bytes_max
        # A pipe that is ready takes so much at once without waiting, and not mixed with what others write.
        self._packet_bytes = 1 << 20 if stat.S_ISREG(os.fstat(descriptor).st_mode) else select.PIPE_BUF
        self._poller = self._make_poller()  # used with the lock held: it is for one thread at a time
        self._lock = threading.Lock()
        self._kept: deque[bytes] = deque()  # packets
        self._kept_bytes = 0
        self._unsaid = 0  # lines dropped since a line said so
        self._drainer: threading.Thread | None = None
        self.dropped = 0  # lines, in all

    def write(self, text: str) -> None:
        """Write whole lines, now or when the reader takes them, or drop them."""
        data = text.encode("utf-8", "replace")
        with self._lock:
            if not self._has_more and len(data) <= self._packet_bytes and not (data := self._send(data)):
                return
            lines = data.splitlines(keepends=True)
            if self._kept_bytes + len(data) > self._kept_bytes_max:
                self.dropped += len(lines)
                self._unsaid += len(lines)
            else:
                self._keep(lines)
            self._drain()
            if self._has_more and self._drainer is None:
                self._drainer = threading.Thread(target=self._go_on, name="headgate-log", daemon=True)
                self._drainer.start()

    @property
    def is_behind(self) -> bool:
        """Whether its reader has not been given everything yet."""
        with self._lock:
            return self._has_more

    @property
    def _has_more(self) -> bool:
        """With the lock held."""
        return bool(self._kept or self._unsaid)

    def flush(self) -> None:
        """Nothing is held back that could be written."""

    def close(self) -> None:
        """Give the reader a last moment. What it does not take then is lost with the process."""
        deadline = time.monotonic() + _CLOSE_S
        while (left_s := deadline - time.monotonic()) > 0 and self.is_behind:
            self._make_poller().poll(left_s * 1000)
            with self._lock:
                self._drain()

    def _make_poller(self) -> select.poll:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        return poller

    def _keep(self, lines: list[bytes]) -> None:
        """With the lock held: as packets, each of whole lines where a line is not longer."""
        packet = b""
        for line in lines:
            if packet and len(packet) + len(line) > self._packet_bytes:
                self._append(packet)
                packet = b""
            packet += line
            while len(packet) > self._packet_bytes:
                self._append(packet[: self._packet_bytes])
                packet = packet[self._packet_bytes :]
        self._append(packet)

    def _append(self, packet: bytes) -> None:
        if packet:
            self._kept.append(packet)
            self._kept_bytes += len(packet)

    def _drain(self) -> None:
        """With the lock held: write what is kept, as far as that goes without waiting."""
        while self._kept:
            packet = self._kept.popleft()
            rest = self._send(packet)
            self._kept_bytes -= len(packet) - len(rest)
            if rest:
                self._kept.appendleft(rest)
            if rest == packet:
                return
        if self._unsaid:
            said, self._unsaid = self._unsaid, 0
            self._keep([self._say_dropped(said).encode() + b"\n"])
            self._drain()

    def _send(self, packet: bytes) -> bytes:
        """With the lock held: what is left of it, because it would have to wait."""
        try:
            return packet[os.write(self._descriptor, packet) :] if self._poller.poll(0) else packet
        except BlockingIOError:
            return packet
        except OSError:
            self.dropped += packet.count(b"\n")  # nobody reads any more, or the disk is full
            return b""

    def _go_on(self) -> None:
        poller = self._make_poller()
        while True:
            poller.poll()
            with self._lock:
                self._drain()
                if not self._has_more:
                    self._drainer = None
                    return
