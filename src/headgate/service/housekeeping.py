"""What the service does beside requests: checkpoints of large metadata, files of a crash, and forgetting old keys.

The store holds the head of every table; a metadata file is a checkpoint of it (docs/adr/0002). This thread
writes the newest head's file within about `interval_s` of a commit, and before a table is dropped or the service
stops. A crash loses no head: at start the store is asked which files are behind.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from headgate.core.commit import Head, Target
from headgate.core.table import MetadataLogEntry
from headgate.errors import AlreadyExists, HeadgateError
from headgate.files.base import Files
from headgate.format.table_metadata import encode_file
from headgate.service.heads import HeadCache
from headgate.service.journal import ABANDONED_AFTER_MS, Journal
from headgate.service.logs import log
from headgate.service.placement import folder_of
from headgate.store.base import EntryId, MarkCheckpoint, Store

_ROUND_INTERVAL_S = 60.0
_KEYS_PER_BATCH = 2_000
_KEY_BATCHES_MAX = 500
_BATCH_PAUSE_S = 0.02
_STALE_MAX = 10_000
_NOTES_MAX = 5
_BYTES_PER_S = 16 * 1024 * 1024  # a table of 64 MB of metadata is checkpointed every four seconds at most


class Worker(Protocol):
    """Background work with a thread of its own, because it may take minutes."""

    def close(self) -> None:
        """Stop, and return when nothing of it runs any more."""


class Housekeeper:
    """One background thread. `start` it, `close` it; `checkpoint_soon` from any thread."""

    def __init__(
        self,
        store: Store,
        files: Files,
        heads: HeadCache,
        journal: Journal,
        *,
        interval_s: float,
        key_lifetime_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._files = files
        self._heads = heads
        self._journal = journal
        self._interval_s = interval_s
        self._key_lifetime_ms = key_lifetime_ms
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._due: dict[Target, float] = {}  # when its checkpoint may be written, by the monotonic clock
        self._rested: dict[Target, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._workers: list[Worker] = []

    def start(self) -> None:
        """Find what an earlier process left behind, files first: everything else reads them; and begin."""
        self._journal.recover()
        self._journal.claim()
        self._journal.start()
        self._find_stale()
        self._thread = threading.Thread(target=self._run, name="headgate-housekeeper", daemon=True)
        self._thread.start()

    def adopt(self, worker: Worker) -> None:
        """Have a worker closed with this one."""
        self._workers.append(worker)

    def dismiss(self) -> None:
        """Close the workers, while the gates that they commit through are still open."""
        while self._workers:
            self._workers.pop().close()

    def close(self) -> None:
        """Stop, and write every checkpoint that is due."""
        self.dismiss()
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
        self._journal.stand(folder_of(head.metadata))
        # Names are unique to a head: one that exists was written by an earlier try of ours or another replica.
        with contextlib.suppress(AlreadyExists):
            self._files.write_new(head.metadata_location, encode_file(head.metadata))
        self._store.write((MarkCheckpoint(EntryId(head.id), head.version, head.metadata_location),))
        self._note_checkpoint(EntryId(head.id))

    def _note_checkpoint(self, id_: EntryId) -> None:
        """Have the remembered head know its newest file, so that the next commit puts it into the metadata log."""
        for _ in range(_NOTES_MAX):
            header = self._store.load_header_by_id(id_)
            if header is None or header.checkpoint_location is None:
                return
            target = (header.namespace, header.name)
            (head,) = self._heads.peek((target,)) or (None,)
            if head is None or head.id != id_:
                return  # whoever loads it next sees the file
            if head.version != header.version:
                continue  # a commit came between the two looks
            file = MetadataLogEntry(
                metadata_file=header.checkpoint_location, timestamp_ms=head.metadata.envelope.last_updated_ms
            )
            self._heads.put(target, replace(head, checkpoint=file), epoch=header.epoch)
            return

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
        """Forget old keys; take over the checkpoints and the new files of a replica that died."""
        try:
            before_ms = self._clock_ms() - self._key_lifetime_ms
            for _ in range(_KEY_BATCHES_MAX):  # a busy service makes more keys a minute than one batch holds
                if self._store.expire_keys(before_ms=before_ms, limit=_KEYS_PER_BATCH) < _KEYS_PER_BATCH:
                    break
                if self._stop.wait(_BATCH_PAUSE_S):  # commits wait for the same lock
                    return
            self._find_stale()
            self._journal.recover(before_ms=self._clock_ms() - ABANDONED_AFTER_MS)
            self._journal.claim()
        except HeadgateError as error:
            log(logging.WARNING, "housekeeping was not finished; will try again", error=str(error))

    def _find_stale(self) -> None:
        for header in self._store.stale_checkpoints(limit=_STALE_MAX):
            self.checkpoint_soon((header.namespace, header.name))
