"""The journal of new files: a commit on a local disk pays for one durable write, the one of its swap.

The files of a commit are written softly (`Files.write_soft`: visible, not synced), before its swap or a little after it
(`late_files`), and their bytes are put into the swap's own transaction (`entry`). Once that landed, `settle` has a
background thread write what is late, sync the files, many at a time, and then drop their rows. After a crash, `recover`
writes the files again from the rows that were not dropped.

Invariant: while a head refers to a file, its bytes are durable at its location, or in its row.
- The row is committed with the head that first refers to the file, so neither is there without the other.
- A row is dropped only after its file was written, and a `sync` or a `restore` of it succeeded. A file whose sync failed
  is never synced again but restored, because a second sync after a failed one proves nothing (the kernel has let go of
  the pages).
- A row may hold the front of a file only, and name an older file whose last bytes follow: a manifest list of thousands
  differs from its parent's in its first block. The older one is published by the same transaction or before, so it is
  durable, or has a row in front of this one; rows are restored in order, and none whose base was not.
- A file's name is used once, and its bytes never change, so whoever writes a row's bytes to its location writes what
  is there already, or what ought to be.

Several replicas may share a database, so `recover` may meet rows of a living one. It writes bytes equal to those that
the owner wrote or will write, by a rename that readers do not notice. It may drop a row whose owner has not synced
yet: what the row stood for, the bytes at the location, is durable then; the owner's sync and drop find nothing to do.
If the owner syncs and drops first, the name stands for the owner's synced file or for the restored one, which was
synced before it got the name. A file that was deleted meanwhile, its row read before `forget`, comes back as one that
nothing refers to: a file too many, which does no harm.

Where another process may be late, `stand` writes its files from their rows before a head is handed out here.

Never deletes a file. Never holds bytes but those of late files: what it has queued is names.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.core.value import Record
from headgate.errors import HeadgateError, LocationRefused, NotFound, StorageFailed, TooLarge, without_frames
from headgate.files.base import Files
from headgate.service.late_files import LateFiles
from headgate.service.logs import log
from headgate.store.base import JournalledFile, PutFile, Store

ROW_BYTES_MAX = 1 << 20  # a larger one costs more to write twice than to sync once
FILE_BYTES_MAX = 32 << 20  # with what follows from another file
ABANDONED_AFTER_MS = (
    60_000  # a living replica drops a row within a second, unless its disk or database is in trouble
)

_INTERVAL_S = 0.2
_BATCH_FROM = 384  # files are settled at once: the rows of many more keep commits waiting when they are moved
_BATCH_MAX = 1024  # settled together, when the disk cannot keep up
_DROP_MAX = 256  # rows dropped in one transaction, which commits wait for
_QUEUE_MAX = 16_384
_QUEUED_BYTES_MAX = 256 << 20  # written and not synced
_PAGE = 64  # rows, of up to ROW_BYTES_MAX each, in memory at once
_PAGES_MAX = 10_000
_PAGES_A_ROUND = 100  # the housekeeper has other work
_KEPT_MAX = 1000
_YOUNG_MAX = 2048
_EVER_MS = (1 << 63) - 1
_SYNC_BYTES = 16


class Tail(Record):
    """The last bytes of a file are those of another one, which the same swap or an earlier one publishes."""

    base: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` did: files that are durable now, and files that could not be restored and keep their rows."""

    restored: int
    kept: int


class Journal:
    """One background thread. `start` it, `close` it; everything else from any thread."""

    def __init__(
        self,
        files: Files,
        store: Store,
        clock_ms: Callable[[], int],
        *,
        late: LateFiles | None = None,
        interval_s: float = _INTERVAL_S,
        queue_max: int = _QUEUE_MAX,
    ) -> None:
        self.is_soft = files.is_soft  # whether it takes files at all
        self.late = late or LateFiles(files)
        self._is_claimed: bool | None = False
        self._completing = threading.Lock()  # one at a time: rows hold the bytes of files
        self._files = files
        self._store = store
        self._clock_ms = clock_ms
        self._interval_s = interval_s
        self._queue_max, self._soft_max = queue_max, queue_max // 2
        self._queue: deque[str] = deque()
        self._queued_bytes = 0
        self._lock = threading.RLock()  # of the queue
        self._changed = threading.Condition(self._lock)
        self._stopping = False
        self._is_failing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to settle in the background."""
        self._thread = threading.Thread(target=self._run, name="headgate-journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and settle everything that is queued. Safe to call twice."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        while batch := self._take():
            self._settle_late(batch)
        self.late.write_out()  # of swaps of which nobody knows whether they landed

    @property
    def depth(self) -> int:
        """How many files wait for the background."""
        return len(self._queue)

    def takes(self, size_bytes: int, *, row_bytes: int | None = None) -> bool:
        """Whether a file of this size is to be written softly now; otherwise it is to be written durably.

        `row_bytes` are those that its row would hold, if not all.

        While the disk cannot keep up, or after a failed sync until the next recovery, new files are written
        durably: that slows commits down to what the disk can do, and the rows in the database stay few.
        """
        if self._is_failing or not self.is_soft:
            return False
        if len(self._queue) >= self._soft_max or self._queued_bytes >= _QUEUED_BYTES_MAX:
            return False
        return size_bytes <= FILE_BYTES_MAX and (row_bytes or size_bytes) <= ROW_BYTES_MAX

    def takes_late(self, size_bytes: int) -> bool:
        """Whether files of so many bytes that `entry` takes may be written after their swap (see `late_files`)."""
        return self._is_claimed is True and self.late.takes(size_bytes)

    def stand(self, folder: str) -> None:
        """Have all files below this folder stand to which a head refers that was loaded before; raises StorageFailed.

        Whoever hands out a head, or writes a file that refers to its files, does this first.
        """
        for location, error in self.write_late().items():
            if location.startswith(f"{folder}/"):
                raise StorageFailed(
                    f"a file of the table could not be written yet; its bytes are kept, try again: {error.message}",
                    location=location,
                )

    def write_late(self) -> Mapping[str, HeadgateError]:
        """As `stand`, for all folders; those that could not be written, and why."""
        stuck = self.late.write_out()
        return stuck if self._is_claimed is not False else {**stuck, **self.claim()}

    def claim(self) -> Mapping[str, HeadgateError]:
        """Try to be the one that may be late; files of others that do not stand and could not be written.

        While another may be, its files are completed here by everybody who asks for late ones. Who takes over from it
        completes them once more: it may have died. Only when all of them stand is nobody else's file missing.
        """
        if self._is_claimed is not False:
            return {}
        claimed = self._store.claim()
        failed = {} if claimed is None else self._complete()
        if not (claimed and failed):
            self._is_claimed = claimed
        return failed

    def _complete(self) -> dict[str, HeadgateError]:
        """Have the files of all rows stand with their bytes, and leave the rows to their owner; those that do not."""
        failed: dict[str, HeadgateError] = {}
        with self._completing, self.late.standing():
            for row in self._store.read_journal(before_ms=_EVER_MS, limit=_QUEUE_MAX):
                try:
                    if (error := failed.get(row.base or "")) is not None:
                        raise error
                    self._complete_one(row)
                except HeadgateError as error:
                    failed[row.location] = without_frames(error)
        return failed

    def _complete_one(self, row: JournalledFile) -> None:
        data = self._assemble(row)
        try:
            if self._files.read(row.location, limit_bytes=FILE_BYTES_MAX) == data:
                return
        except (NotFound, TooLarge):
            pass
        self._files.restore(row.location, data)  # missing, or torn by a kill

    def let_go(self, locations: Sequence[str]) -> None:
        """These files are about to be deleted: none of them comes afterwards."""
        if self.write_late():
            self.late.recall_places(frozenset(locations))
        if self._is_claimed is False:
            self.forget(locations)  # or they would be completed again

    def entry(self, location: str, data: bytes, tail: Tail | None = None) -> PutFile:
        """What goes into the swap's transaction for a file that was written softly."""
        now_ms = self._clock_ms()
        if tail is None:
            return PutFile(JournalledFile(location, data, now_ms))
        front = data[: len(data) - tail.size_bytes]
        return PutFile(JournalledFile(location, front, now_ms, tail.base, tail.size_bytes))

    def settle(self, locations: Sequence[str], *, size_bytes: int = 0) -> None:
        """The transaction with these files' rows landed: have them synced, and the rows dropped, before long."""
        queue = self._queue
        with self._lock:
            queued = len(queue)
            room = self._queue_max - queued
            queue.extend(locations if len(locations) <= room else locations[:room])
            self._queued_bytes += size_bytes
            if not queued or len(queue) >= _BATCH_FROM:
                self._changed.notify_all()
        if len(locations) > room:
            # Their rows stay, so they are as safe as before; a later round restores them.
            log(
                logging.WARNING,
                "the journal is full; files are left to recovery",
                files=len(locations) - room,
            )

    def forget(self, locations: Sequence[str]) -> None:
        """These files are about to be deleted: drop their rows first, so that no recovery brings them back."""
        self._drop(locations)

    def recover(self, *, before_ms: int | None = None) -> Recovered:
        """Write the files of rows put before this time again, or of all rows; raises only what the store raises.

        A file that cannot be restored (its location is no longer allowed, the disk is full) keeps its row for the
        next time, and does not keep others from being restored.
        """
        restored = young = 0
        started_at_ms = self._clock_ms()
        kept: dict[str, HeadgateError] = {}
        for _ in range(_PAGES_MAX if before_ms is None else _PAGES_A_ROUND):
            # The oldest come first, so those that were kept are read again in front of the next ones.
            rows = self._store.read_journal(
                before_ms=_EVER_MS if before_ms is None else before_ms, limit=_PAGE + len(kept)
            )
            fresh = [row for row in rows if row.location not in kept]
            if not fresh or len(kept) > _KEPT_MAX or young > _YOUNG_MAX:
                break
            with self.late.standing():
                failed = self._restore_page(fresh, kept)
            kept.update(failed)
            restored += len(fresh) - len(failed)
            # A living replica puts rows faster than they are restored here, so this must end before it does. Not at the
            # first young row: a clock may have been set back by what made us start.
            young += sum(row.created_at_ms >= started_at_ms for row in fresh)
        if not kept:
            self._is_failing = False
        self._log_recovery(restored, kept)
        return Recovered(restored, len(kept))

    def _log_recovery(self, restored: int, kept: Mapping[str, HeadgateError]) -> None:
        if restored:
            log(logging.INFO, "files restored from the journal", files=restored)
        if kept:
            location, error = next(iter(kept.items()))
            log(
                logging.ERROR,
                "files of the journal could not be restored; their bytes are kept, will try again",
                files=len(kept),
                location=location,
                error=str(error),
            )

    def _restore_page(
        self, rows: Iterable[JournalledFile], kept: Mapping[str, HeadgateError]
    ) -> dict[str, HeadgateError]:
        failed: dict[str, HeadgateError] = {}
        durable: list[str] = []
        for row in rows:
            try:
                if (error := kept.get(row.base or "") or failed.get(row.base or "")) is not None:
                    raise error  # what stands at the base's place may be anything
                self._files.restore(row.location, self._assemble(row))
            except HeadgateError as error:
                failed[row.location] = error
            else:
                durable.append(row.location)
        self._drop(durable)
        return failed

    def _assemble(self, row: JournalledFile) -> bytes:
        """The whole bytes of a file. Those of two files meet behind a sync marker of Avro."""
        if row.base is None:
            return row.data
        base = self._files.read(row.base, limit_bytes=FILE_BYTES_MAX)
        cut = len(base) - row.tail_bytes
        if cut < _SYNC_BYTES or base[cut - _SYNC_BYTES : cut] != row.data[-_SYNC_BYTES:]:
            raise StorageFailed(f"{row.base} does not end as {row.location} needs; size={len(base)}")
        return row.data + base[cut:]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._queue)
                self._changed.wait_for(
                    lambda: self._stopping or len(self._queue) >= _BATCH_FROM, timeout=self._interval_s
                )
                if self._stopping:
                    return
            self._settle_late(self._take())

    def _take(self) -> list[str]:
        with self._changed:
            taken = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_MAX))]
            # Which file had how many is not kept: a bound may be off by the difference between files.
            self._queued_bytes = (
                self._queued_bytes * len(self._queue) // max(1, len(self._queue) + len(taken))
            )
        return taken

    def _settle_late(self, batch: Sequence[str]) -> None:
        """Write what is late, and settle the batch but for what could not be written: that is not synced by any sync."""
        if stuck := self.late.write_out():
            self._is_failing = True
            left = [location for location in batch if location in stuck]
            if left:
                self._leave(left, stuck[left[0]])
            batch = [location for location in batch if location not in stuck]
        if batch:
            self._settle_batch(batch)

    def _settle_batch(self, batch: Sequence[str]) -> None:
        try:
            self._files.sync(batch)
            self._drop(batch)
        except LocationRefused as error:
            # Somebody put a symlink in the way of one folder. No sync failed, so the others may be synced again.
            folders: dict[str, list[str]] = {}
            for location in batch:
                folders.setdefault(location.rpartition("/")[0], []).append(location)
            if len(folders) == 1:
                self._leave(batch, error)
            else:
                for group in folders.values():
                    self._settle_batch(group)
        except HeadgateError as error:
            self._is_failing = True
            self._leave(batch, error)

    def _leave(self, batch: Sequence[str], error: HeadgateError) -> None:
        """Not queued again: rows that are left are restored by `recover`, which trusts no earlier sync."""
        log(
            logging.WARNING,
            "journalled files were not settled; left to recovery",
            files=len(batch),
            location=batch[0],
            error=str(error),
        )

    def _drop(self, locations: Sequence[str]) -> None:
        for start in range(0, len(locations), _DROP_MAX):
            self._store.drop_files(locations[start : start + _DROP_MAX])
