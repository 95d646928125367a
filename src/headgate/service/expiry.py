"""Expires snapshots of tables that ask for it, as a background commit, and has the files left behind deleted.

One round, every `expire_interval_s`, for every table that asks:

    load ─▶ find_expired ─▶ find_left_behind ─▶ commit, with PutDoomed in its swap ─▶ … grace … ─▶ sweep

Files are doomed by the transaction that lets their snapshots go, so a crash leaves none behind unnamed. To be doomed
deletes nothing: when the grace time is over the sweep asks the head of then (`service.sweep`). A commit that loses
a race is not repeated; the next round finds what is still to do.

The commit goes through the gate like any other, by the principal `headgate`, with an event. Never waits for it in a
request. Two replicas may do the same round: the second commit changes nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from headgate.core.commit import Head, TableCommit, Target
from headgate.core.expire import EXPIRED_MAX, Expiry, build_expiry, find_expired, read_terms, wants_expiry
from headgate.core.reach import find_left_behind
from headgate.errors import CommitUnknown, HeadgateError, NotFound, Retry
from headgate.service.cold_reads import ColdReader
from headgate.service.commit_records import Work
from headgate.service.commits import run_commit
from headgate.service.logs import log, log_crash
from headgate.service.roles import Caller, Role
from headgate.service.services import Services
from headgate.service.sweep import sweep
from headgate.store.base import (
    DoomedFile,
    DropFootprints,
    EntryHeader,
    EntryId,
    Kind,
    Operation,
    PutDoomed,
)

PRINCIPAL = "headgate"
_COMMITS_MAX = 20  # of one table in one round
_LOADED_MAX = 200  # tables whose properties are read at once
_DOOMED_MAX = 5_000  # rows of one write: others wait for it
_SKIPS_MAX = 5  # rounds that a busy table is left alone
_REST_MAX_MS = 3_600_000
_REST_PER_AGE = 100  # a table that nobody writes is looked at again when a hundredth of its age has passed
_REST_PER_SWEEP = 20.0
_NO_ITEMS = 1 << 62  # a position behind every item: the head without its logs is wanted


class _Properties(msgspec.Struct):
    """As much of an envelope as tells whether a table asks."""

    properties: dict[str, str]


_PROPERTIES = msgspec.json.Decoder(_Properties)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last look at a table found, true while its version is this one."""

    version: int
    asks: bool
    quiet_until_ms: int = 0


class _Stopped(Exception):  # noqa: N818 — it never leaves this module: the work ends in the middle, and is done again
    """The service stops."""


class Expirer:
    """One background thread. `start` it, `close` it; or `run_round` and `sweep` in a thread of one's own."""

    def __init__(
        self,
        services: Services,
        *,
        is_busy: Callable[[Target], bool] = lambda _: False,
        expired_max: int = EXPIRED_MAX,
    ) -> None:
        """`is_busy` says that writers queue for a table: it is left alone for a few rounds.

        `expired_max` is how many snapshots go with one commit.
        """
        self._services = services
        self._is_busy = is_busy
        self._expired_max = expired_max
        self._reader = ColdReader(services.files, pause_s=self._pause)
        self._known: dict[EntryId, _Known] = {}
        self._skips: dict[EntryId, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with the first round after about one interval."""
        self._thread = threading.Thread(target=self._run, name="headgate-expirer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop where it stands; what was begun is found again by the next process."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_round(self) -> int:
        """Look at every table that asks; returns how many snapshots were expired."""
        expired = 0
        for header in self._find_asking():
            target = (header.namespace, header.name)
            skips = self._skips.get(header.id, 0)
            if skips < _SKIPS_MAX and self._is_busy(target):
                self._skips[header.id] = skips + 1
                continue
            self._skips.pop(header.id, None)
            try:
                expired += self._expire_table(header, target)
            except HeadgateError as error:
                self._log_failure(target, error)
        return expired

    def sweep(self) -> int:
        """Delete files whose grace time is over; returns how many were there."""
        return sweep(self._services, self._reader)

    def _run(self) -> None:
        interval_s = self._services.settings.expire_interval_s
        sweep_at = 0.0
        # Replicas that were started together need not look together.
        while not self._stop.wait(interval_s * random.uniform(0.8, 1.2)):
            try:
                self.run_round()
                started = time.monotonic()
                if started >= sweep_at:
                    self.sweep()
                    sweep_at = started + _REST_PER_SWEEP * (time.monotonic() - started)
            except _Stopped:
                return
            except HeadgateError as error:
                log(logging.WARNING, "expiry was not finished; will try again", error=str(error))
            except Exception as error:  # outermost edge of this thread: the next round may pass
                log_crash("expiry failed", error)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _Stopped

    # --- which tables ----------------------------------------------------------------------------------------

    def _find_asking(self) -> list[EntryHeader]:
        """Tables that ask for it and may have something to expire now."""
        tables = [header for header in self._services.store.iter_headers() if header.kind is Kind.TABLE]
        self._known = {h.id: known for h in tables if (known := self._known.get(h.id)) is not None}
        unknown = [header for header in tables if not self._is_known(header)]
        for begin in range(0, len(unknown), _LOADED_MAX):
            some = unknown[begin : begin + _LOADED_MAX]
            for header, asks in zip(some, self._load_asks(some), strict=True):
                self._known[header.id] = _Known(header.version, asks)
        now_ms = self._services.clock_ms()
        return [h for h in tables if (k := self._known[h.id]).asks and k.quiet_until_ms <= now_ms]

    def _is_known(self, header: EntryHeader) -> bool:
        known = self._known.get(header.id)
        return known is not None and known.version == header.version

    def _load_asks(self, headers: Sequence[EntryHeader]) -> Iterator[bool]:
        entries = self._services.store.load_entries(
            [(header.namespace, header.name) for header in headers],
            known={header.id: (header.epoch, _NO_ITEMS, _NO_ITEMS) for header in headers},
        )
        default = self._services.settings.expire_snapshots
        for header, entry in zip(headers, entries, strict=True):
            if entry is None or entry.header.id != header.id:
                yield False  # dropped or renamed since; its new name is looked at in the next round
                continue
            yield wants_expiry(_PROPERTIES.decode(entry.envelope).properties, default=default)

    # --- one table -------------------------------------------------------------------------------------------

    def _expire_table(self, header: EntryHeader, target: Target) -> int:
        services = self._services
        expired = 0
        for _ in range(_COMMITS_MAX):
            (head,) = services.heads.load((target,))
            if head is None or head.id != header.id:
                break
            properties = head.metadata.envelope.properties
            if not wants_expiry(properties, default=services.settings.expire_snapshots):
                break
            terms = read_terms(properties)
            now_ms = services.clock_ms()
            expiry = find_expired(head.metadata, terms, now_ms=now_ms, expired_max=self._expired_max)
            if expiry is None:
                rest_ms = min(_REST_MAX_MS, terms.snapshot_age_max_ms // _REST_PER_AGE)
                self._known[header.id] = _Known(head.version, asks=True, quiet_until_ms=now_ms + rest_ms)
                break
            also = self._doom(head, expiry)
            if self._stop.is_set():
                raise _Stopped
            self._commit(target, head, expiry, also)
            expired += len(expiry.snapshot_ids)
            if len(expiry.snapshot_ids) < self._expired_max:
                break
        services.metrics.expired_snapshots.inc(expired)
        return expired

    def _doom(self, head: Head, expiry: Expiry) -> tuple[Operation, ...]:
        """What the commit's own transaction is to put on record about what it leaves behind."""
        services = self._services
        try:
            left = self._reader.run(find_left_behind(head.metadata, expiry.snapshot_ids))
        except HeadgateError as error:
            if error.retry is Retry.LATER:
                raise
            # A broken manifest must not make the metadata grow for ever. Files too many do no harm.
            location = head.metadata.envelope.location
            log(logging.WARNING, "expired files will stay", location=location, error=str(error))
            return ()
        due_at_ms = services.clock_ms() + round(services.settings.expire_grace_s * 1000)
        id_ = EntryId(head.id)
        files = [DoomedFile(location, id_, due_at_ms) for location in left.files]
        # More than one write may hold go before it. If the commit never comes, the sweep finds them in use.
        for begin in range(_DOOMED_MAX, len(files), _DOOMED_MAX):
            services.store.write((PutDoomed(tuple(files[begin : begin + _DOOMED_MAX])),))
        return PutDoomed(tuple(files[:_DOOMED_MAX])), DropFootprints(id_, left.forgotten)

    def _commit(self, target: Target, head: Head, expiry: Expiry, also: tuple[Operation, ...]) -> None:
        requirements, updates = build_expiry(head.metadata, expiry)
        run_commit(
            self._services,
            Work(
                caller=Caller(PRINCIPAL, Role.ADMIN, request_id=self._services.new_uuid()),
                key=self._services.new_uuid(),
                commits=(TableCommit(target, requirements, updates),),
                replay={"kind": "table", "role": Role.MODIFY.value},
                status=HTTPStatus.OK,
                event="commit-table",
                also=also,
            ),
        )

    def _log_failure(self, target: Target, error: HeadgateError) -> None:
        # A lost race is daily business; what a person must mend is not.
        lost = error.retry is Retry.REFRESH or isinstance(error, CommitUnknown | NotFound)
        level = logging.DEBUG if lost else logging.WARNING
        log(level, "snapshots were not expired", table=".".join((*target[0], target[1])), error=str(error))


def start(services: Services) -> Expirer:
    """Expire in the background until the services are closed."""
    expirer = Expirer(services, is_busy=services.gates.is_busy)
    services.housekeeper.adopt(expirer)
    expirer.start()
    return expirer
