"""Where log lines go: a descriptor that is written to only while it takes more.

Commits are made where their lines are logged, so a pipe or terminal that nobody reads (a pager, a log collector that hangs)
would stop the service. What the descriptor does not take is kept, up to a bound; what is beyond is dropped and counted,
and the next line that gets through says so. A thread that lives only while something is kept writes it when the reader
goes on. Never waits, but for a moment in `close`. Never cuts a line short but where the reader has gone.

A collection of garbage or a signal may log in the middle of a write, in the same thread. So the lock can be taken again,
and it is to be the logging handler's lock too: two of them would be taken in either order. What is written from within is
kept, and leaves with the rest.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time
import weakref
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
        self.lock = threading.RLock()
        self.dropped = 0  # lines, in all
        self._say_dropped, self._kept_bytes_max = say_dropped, kept_bytes_max
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        # A pipe that is ready takes so much at once without waiting, and not mixed with what others write.
        self._packet_bytes = sys.maxsize if is_file else select.PIPE_BUF
        self._descriptor = descriptor if is_file else _open_again(descriptor)
        if self._descriptor != descriptor:
            weakref.finalize(self, os.close, self._descriptor)
        self._waits = self._descriptor == descriptor and not is_file  # so it is asked before each write
        self._kept: deque[bytes] = deque()  # packets
        self._kept_bytes = 0
        self._unsaid = 0  # lines dropped since a line said so
        self._is_busy = False  # further up in this very thread
        self._is_drained = False  # by a thread
        self._is_stuck = False  # on an error, a full disk say: the next line tries again
        _STREAMS.add(self)

    def write(self, text: str) -> None:
        """As `write_bytes`, for text."""
        self.write_bytes(text.encode("utf-8", "replace"))

    def write_bytes(self, data: bytes) -> None:
        """Write whole lines, now or when the reader takes them, or drop them."""
        with self.lock:
            if self._is_busy:
                self._take(data)
                return
            self._is_busy = True
            try:
                if self._kept or self._unsaid or len(data) > self._packet_bytes or (data := self._send(data)):
                    self._take(data)
                    self._drain()
            finally:
                self._is_busy = False
            if not (self._kept or self._unsaid):
                return
            begins = not self._is_drained and not self._is_stuck
            self._is_drained |= begins
        if begins:
            self._begin_to_drain()

    @property
    def is_behind(self) -> bool:
        """Whether its reader has not been given everything yet."""
        with self.lock:
            return self._has_more

    def flush(self) -> None:
        """Nothing is held back that could be written."""

    def close(self) -> None:
        """Give the reader a last moment. What it does not take then is lost with the process."""
        deadline = time.monotonic() + _CLOSE_S
        while (left_s := deadline - time.monotonic()) > 0 and self._drain_once():
            self._poll(left_s * 1000)

    def forget(self) -> None:
        """In a process that was forked: what is kept is the other's to write, and its thread is not here."""
        getattr(self.lock, "_at_fork_reinit")()  # noqa: B009  as logging does it with its own
        self._kept.clear()
        self._kept_bytes = self._unsaid = 0
        self._is_busy = self._is_drained = False

    # --- with the lock held ------------------------------------------------------------------------------

    @property
    def _has_more(self) -> bool:
        return bool(self._kept or self._unsaid)

    def _take(self, data: bytes) -> None:
        """Keep lines, behind the word of those that were dropped before; or drop them."""
        lines = data.splitlines(keepends=True)
        if self._kept_bytes + len(data) > self._kept_bytes_max:
            self.dropped += len(lines)
            self._unsaid += len(lines)
            return
        self._say()
        self._keep(lines)

    def _say(self) -> None:
        if self._unsaid:
            said, self._unsaid = self._unsaid, 0
            self._keep([self._say_dropped(said).encode() + b"\n"])

    def _keep(self, lines: list[bytes]) -> None:
        """As packets, each of whole lines where a line is not longer."""
        packets = [b""]
        for line in lines:
            if len(packets[-1]) + len(line) > self._packet_bytes:
                packets.append(b"")
            packets[-1] += line
            while len(packets[-1]) > self._packet_bytes:
                packets[-1:] = packets[-1][: self._packet_bytes], packets[-1][self._packet_bytes :]
        self._kept.extend(filter(None, packets))  # at once: see above
        self._kept_bytes += sum(map(len, packets))

    def _drain(self) -> None:
        """Write what is kept, as far as that goes without waiting."""
        while self._has_more:
            if not self._kept:
                self._say()
            packet = self._kept.popleft()
            rest = self._send(packet)
            self._kept_bytes -= len(packet) - len(rest)
            if rest:
                self._kept.appendleft(rest)
            if len(rest) == len(packet):
                return

    def _send(self, packet: bytes) -> bytes:
        """What is left of it, because it would have to wait."""
        self._is_stuck = False
        try:
            if self._waits and not self._poll(0):
                return packet
            return packet[os.write(self._descriptor, packet) :]
        except BlockingIOError:
            return packet
        except BrokenPipeError:
            self.dropped += packet.count(b"\n")  # and nobody is left to be told
            self._unsaid = 0
            return b""
        except OSError:
            self._is_stuck = True
            return packet

    # --- without it --------------------------------------------------------------------------------------

    def _poll(self, timeout_ms: float | None) -> bool:
        """Whether it takes more; None waits for that."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        return bool(poller.poll(timeout_ms))

    def _begin_to_drain(self) -> None:
        try:
            threading.Thread(target=self._go_on, name="headgate-log", daemon=True).start()
        except RuntimeError:  # no thread to be had: the next line tries again
            self._is_drained = False

    def _go_on(self) -> None:
        while True:
            self._poll(None)
            if not self._drain_once():
                return

    def _drain_once(self) -> bool:
        """Whether something is left that its reader may take."""
        with self.lock:
            if not self._is_busy:
                self._is_busy = True
                try:
                    self._drain()
                finally:
                    self._is_busy = False
            goes_on = self._has_more and not self._is_stuck
            self._is_drained &= goes_on
            return goes_on


def _open_again(descriptor: int) -> int:
    """A way of our own to the same pipe or terminal, that does not wait; the descriptor itself where there is none.

    Not to wait is a property of what is opened, so the other one's may not be changed: it is shared with other processes.
    """
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # a socket, a pipe of another user, one without a reader, a system that is not Linux
        return descriptor


_STREAMS: weakref.WeakSet[LogStream] = weakref.WeakSet()


def _forget_all() -> None:
    for stream in list(_STREAMS):
        stream.forget()


os.register_at_fork(after_in_child=_forget_all)
