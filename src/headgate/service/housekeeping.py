"""What the service does beside requests: checkpoints of large metadata, and forgetting old keys.

The store holds the head of every table; a metadata file is a checkpoint of it (docs/adr/0002). Small tables
have theirs written before every swap. For large ones this thread writes the newest head's file within about
`interval_s` of a commit, and before a table is dropped or the service stops. A crash loses no head: at start
the store is asked which files are behind.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from headgate.core.flow import Head, Target
from headgate.errors import AlreadyExists, HeadgateError
from headgate.files.base import Files
from headgate.format.table_metadata import encode_file
from headgate.service.heads import HeadCache
from headgate.service.logs import log
from headgate.store.base import EntryId, MarkCheckpoint, Store

_ROUND_INTERVAL_S = 60.0
_KEYS_PER_ROUND_MAX = 10_000
_STALE_MAX = 10_000
_BYTES_PER_S = 16 * 1024 * 1024  # a table of 64 MB of metadata is checkpointed every four seconds at most


class Housekeeper:
    """One background thread. `start` it, `close` it; `checkpoint_soon` from any thread."""

    def __init__(
        self,
        store: Store,
        files: Files,
        heads: HeadCache,
        *,
        interval_s: float,
        key_lifetime_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._files = files
        self._heads = heads
        self._interval_s = interval_s
        self._key_lifetime_ms = key_lifetime_ms
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._due: dict[Target, float] = {}  # when its checkpoint may be written, by the monotonic clock
        self._rested: dict[Target, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Find what an earlier process left behind, and begin."""
        self._find_stale()
        self._thread = threading.Thread(target=self._run, name="headgate-housekeeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and write every checkpoint that is due."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            targets = list(self._due)
        for target in targets:
            self._try_checkpoint(target)

    def checkpoint_soon(self, target: Target) -> None:
        """The table's metadata file is behind its head."""
        now = time.monotonic()
        with self._lock:
            self._due.setdefault(target, max(now + self._interval_s, self._rested.get(target, 0.0)))

    def checkpoint(self, head: Head) -> None:
        """Write the file of this head now, unless it is written."""
        if head.checkpoint is not None and head.checkpoint.metadata_file == head.metadata_location:
            return
        # Names are unique to a head: one that exists was written by an earlier try of ours or another replica.
        with contextlib.suppress(AlreadyExists):
            self._files.write_new(head.metadata_location, encode_file(head.metadata))
        self._store.write((MarkCheckpoint(EntryId(head.id), head.version, head.metadata_location),))

    def _run(self) -> None:
        next_round = time.monotonic() + _ROUND_INTERVAL_S
        while not self._stop.wait(min(0.1, self._interval_s)):
            now = time.monotonic()
            with self._lock:
                ripe = [target for target, at in self._due.items() if at <= now]
            for target in ripe:
                self._try_checkpoint(target)
            if now >= next_round:
                next_round = now + _ROUND_INTERVAL_S
                self._try_round()

    def _try_checkpoint(self, target: Target) -> None:
        with self._lock:
            self._due.pop(target, None)  # a commit from here on makes it due again
        try:
            (head,) = self._heads.load((target,))
            if head is None:
                return
            self.checkpoint(head)
        except HeadgateError as error:
            log(
                logging.WARNING,
                "checkpoint failed; will try again",
                table=".".join((*target[0], target[1])),
                error=str(error),
            )
            self.checkpoint_soon(target)
            return
        with self._lock:
            self._rested[target] = time.monotonic() + head.metadata.size_bytes() / _BYTES_PER_S
            if len(self._rested) > _STALE_MAX:
                self._rested.clear()

    def _try_round(self) -> None:
        """Forget old keys; take over the checkpoints of a replica that died."""
        try:
            before_ms = self._clock_ms() - self._key_lifetime_ms
            self._store.expire_keys(before_ms=before_ms, limit=_KEYS_PER_ROUND_MAX)
            self._find_stale()
        except HeadgateError as error:
            log(logging.WARNING, "housekeeping was not finished; will try again", error=str(error))

    def _find_stale(self) -> None:
        for header in self._store.stale_checkpoints(limit=_STALE_MAX):
            self.checkpoint_soon((header.namespace, header.name))
