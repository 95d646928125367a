"""What handlers work with: the store, the files, the rules for locations, time and ids, numbers.

Built once when the service starts, closed once when it stops. Never global: whoever needs it is given it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from time import time_ns

from headgate.core.commit import Target
from headgate.core.locations import LocationPolicy, canonical
from headgate.files.allowed import AllowedFiles
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.files.s3_config import S3Config
from headgate.format.strict_json import prepare_kinds
from headgate.service.auth import Authenticator
from headgate.service.gate import Gates
from headgate.service.heads import HeadCache
from headgate.service.housekeeping import Housekeeper
from headgate.service.job_queue import JobQueue
from headgate.service.journal import Journal
from headgate.service.late_files import LateFiles, Unwritten, never
from headgate.service.manifest_store import ManifestStore
from headgate.service.metrics import Metrics
from headgate.service.settings import Settings
from headgate.service.whole_files import WholeFiles
from headgate.store.base import EntryId, Store
from headgate.store.open import open_store

_TURN_S = 1.0  # how long a group waits for another replica's
_ROOM_BYTES = (
    1 << 30
)  # with less left on a disk, a commit writes its files before its swap, and is refused when it cannot


@dataclass(frozen=True)
class Services:
    """The parts of a running service."""

    settings: Settings
    store: Store
    files: Files
    locations: LocationPolicy
    clock_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    metrics: Metrics
    authenticator: Authenticator
    heads: HeadCache
    journal: Journal
    housekeeper: Housekeeper
    manifests: ManifestStore
    unwritten: Unwritten  # files that commits under way have not written yet
    jobs: JobQueue
    gates: Gates
    writers: ThreadPoolExecutor  # parallel PUTs to an object store
    background: ThreadPoolExecutor  # work that outlives its request: purges

    @property
    def is_near(self) -> bool:
        """Whether a commit waits for nothing but this machine's disk."""
        roots = (self.settings.warehouse_location, *self.settings.allowed_locations)
        return self.store.is_near and all(
            canonical(root, field="warehouse").startswith("file:") for root in roots
        )

    def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        self.jobs.close()
        self.housekeeper.dismiss()
        self.gates.close()
        self.writers.shutdown(wait=True)
        self.background.shutdown(wait=True)
        self.housekeeper.close()
        self.journal.close()
        self.store.close()


def wall_clock_ms() -> int:
    """The time of day."""
    return time_ns() // 1_000_000


_RANDOM = random.Random(os.urandom(32))
_TAILS: list[str] = []  # of the next ids: many at once take a third of the time
_take_tail = _TAILS.pop
_TAILS_MADE = 64
_TAIL_DIGITS = 20  # of which the last is not used
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _begin_anew() -> None:
    _TAILS.clear()
    _RANDOM.seed(os.urandom(32))


# A forked process would go on with its parent's numbers, as its siblings do: the same ids and file names in all of them.
os.register_at_fork(after_in_child=_begin_anew)


def fresh_uuid() -> str:
    """A fresh uuid7: those of one time are neighbours, so that the keys of a group land on one page of an index.

    Unique and no secret: asking the system for each would hand the interpreter to another thread.
    """
    try:
        tail = _take_tail()
    except IndexError:
        tail, *more = _draw_tails(_TAILS_MADE)
        _TAILS.extend(more)
    # Eight digits of the time, a dash, four more.
    return (time_ns() // 1_000_000).to_bytes(6, "big").hex("-", -4) + tail


def _draw_tails(count: int) -> list[str]:
    """Each of 74 random bits; the other two of a variant's digit are fixed."""
    digits = _RANDOM.randbytes(count * _TAIL_DIGITS // 2).hex()
    return [
        f"-7{digits[at : at + 3]}-{_VARIANTS[digits[at + 3]]}{digits[at + 4 : at + 7]}-{digits[at + 7 : at + 19]}"
        for at in range(0, count * _TAIL_DIGITS, _TAIL_DIGITS)
    ]


def build_services(
    settings: Settings,
    *,
    store: Store,
    files: Files,
    clock_ms: Callable[[], int] = wall_clock_ms,
    new_uuid: Callable[[], str] = fresh_uuid,
) -> Services:
    """Services over a store and files that are open already."""
    prepare_kinds()  # before the first thread: one that finds a job of the last process decodes at once
    locations = location_policy(settings)
    allowed = AllowedFiles(files, locations)
    heads = HeadCache(store, limit_bytes=settings.cache_bytes)
    unwritten: Unwritten = {}
    late = LateFiles(
        allowed,
        unwritten,
        allow=partial(locations.allow_file, field="location"),
        has_room=find_room(settings) if files.is_soft else never,
    )
    journal = Journal(allowed, store, clock_ms, late=late)
    files = WholeFiles(allowed, unwritten, journal)
    housekeeper = Housekeeper(
        store,
        files,
        heads,
        journal,
        interval_s=settings.checkpoint_interval_s,
        key_lifetime_ms=settings.key_lifetime_s * 2000,  # a grace as long as the promise: clocks differ
        clock_ms=clock_ms,
    )
    metrics = Metrics()

    def take_turn(target: Target) -> AbstractContextManager[object]:
        hint = heads.peek((target,))
        return nullcontext() if hint is None else store.turn(EntryId(hint[0].id), timeout_s=_TURN_S)

    gates = Gates(
        leaders=settings.gate_leaders,
        queue_max=settings.gate_queue_max,
        group_max=settings.group_max,
        metrics=metrics,
        take_turn=take_turn,
        seeks_company=not files.is_soft,
    )
    metrics.gate_depth.set_function(lambda: gates.depth)
    metrics.cache_bytes.labels("heads").set_function(lambda: heads.size_bytes)
    manifests = ManifestStore(
        files,
        limit_bytes=settings.manifest_cache_bytes,
        new_uuid=new_uuid,
    )
    metrics.cache_bytes.labels("manifests").set_function(lambda: manifests.size_bytes)
    return Services(
        settings=settings,
        store=store,
        files=files,
        locations=locations,
        clock_ms=clock_ms,
        new_uuid=new_uuid,
        metrics=metrics,
        authenticator=Authenticator(store, clock_ms=clock_ms, token_lifetime_s=settings.token_lifetime_s),
        heads=heads,
        journal=journal,
        housekeeper=housekeeper,
        manifests=manifests,
        unwritten=unwritten,
        jobs=JobQueue(store, settings, metrics, clock_ms=clock_ms, owner=new_uuid()),
        gates=gates,
        writers=ThreadPoolExecutor(settings.put_parallel_max, thread_name_prefix="headgate-put"),
        background=ThreadPoolExecutor(max_workers=2, thread_name_prefix="headgate-background"),
    )


def open_services(settings: Settings) -> Services:
    """Open what the settings name, and prove that the files keep their promises."""
    files, _ = open_files(
        settings.warehouse_location, s3_config(settings), extra_roots=settings.allowed_locations
    )
    files.check()
    services = build_services(settings, store=open_store(settings.database_url), files=files)
    services.housekeeper.start()
    return services


def find_room(settings: Settings) -> Callable[[], bool]:
    """Tells whether the disks of the warehouse have room to spare."""
    roots = (settings.warehouse_location, *settings.allowed_locations)
    paths = [canonical(root, field="warehouse").removeprefix("file://") for root in roots]

    def has_room() -> bool:
        try:
            found = [os.statvfs(path) for path in paths]
        except OSError:
            return False
        return all(one.f_bavail * one.f_frsize >= _ROOM_BYTES for one in found)

    return has_room


def location_policy(settings: Settings) -> LocationPolicy:
    """The warehouse, and what the operator added."""
    return LocationPolicy((settings.warehouse_location, *settings.allowed_locations))


def s3_config(settings: Settings) -> S3Config:
    """How to reach S3; what the settings leave open comes from AWS_* variables."""
    config = S3Config(
        endpoint=settings.s3_endpoint or None,
        region=settings.s3_region or None,
        access_key_id=settings.s3_access_key_id or None,
        secret_access_key=settings.s3_secret_access_key or None,
        session_token=settings.s3_session_token or None,
        path_style=settings.s3_path_style,
        allow_http=settings.s3_endpoint.startswith("http://"),
    )
    return config.with_environment(os.environ)
