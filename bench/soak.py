"""Ten minutes of mixed changes by 64 clients: is memory flat, is every acknowledged change there, is the table sound?

    ./dev bench soak [--minutes 10] [--clients 64] [--seed 1] [--cache-mib 48] [--expire client] [--file FILE]

One table by identity of `part`. 70 % appends of a file; 10 % deletes of files by path; 10 % overwrites, half of them by
filter (a whole partition, judged from a base unless luck says otherwise), half by paths; 10 % replaces of two files by one.
Most files are taken by one client only, one in ten by whoever comes, so that there are conflicts of several rules.

Every acknowledged change has a sequence number. At the end they are replayed in that order: what must be live is compared
with the files that PyIceberg finds. Old snapshots are removed as the table goes, by a client or by the service
(`--expire service`: by table properties); else metadata would grow and memory with it. The mix keeps the number of live
files steady. Memory is flat when the mean of its last third is at most 1.1 of that of the middle third: the cache of
manifests has a bound (`--cache-mib`) that it reaches in the first third, and what grows afterwards would be a leak.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.service_process import Service, running_service

from bench.common import (
    INT,
    LONG,
    ROWS,
    Answer,
    Json,
    Link,
    Shape,
    append_of,
    audit,
    create_namespace,
    create_table,
    describe_file,
    load_metadata,
    open_table,
    pick_cache_metrics,
    read_metrics,
    read_rss_bytes,
    says,
    summarise,
    table_path,
    write_result,
)
from bench.ground import fresh_folder
from bench.measurements_page import write_page

FLAT_MAX = 1.1
_TABLE = "soak"
_PARTITIONS = 64
_MIX = (("append", 70), ("delete", 10), ("overwrite-filter", 5), ("overwrite-paths", 5), ("replace", 10))
_SHARED = 0.1  # how often a file is taken without the others knowing
_BLIND = 0.3  # how often an overwrite by filter asks for no validation
_KEEP_SNAPSHOTS = 2_000
_EXPIRE_EVERY_S = 5.0
_SERVICE_EXPIRY = {"headgate.expire.enabled": "true", "headgate.expire.max-snapshots": str(_KEEP_SNAPSHOTS)}
_SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "part", "required": True, "type": "int"},
    ],
}
_SPEC: Json = {"fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}]}


@dataclass(frozen=True, slots=True)
class Held:
    """A file that somebody has seen acknowledged."""

    path: str
    part: int
    records: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What an acknowledged change does to the live set. Kept until the end, so it must be small."""

    kind: str
    adds: tuple[Held, ...] = ()
    removes: tuple[Held, ...] = ()
    empties: int | None = None  # a partition, of everything that is live in it


@dataclass(slots=True)
class Pool:
    """Files that may be taken: a view of the live set that is good enough to choose from. Thread-safe."""

    files: dict[int, dict[str, Held]] = field(default_factory=lambda: defaultdict(dict))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, count: int, luck: random.Random) -> list[Held]:
        """Up to so many files of one partition, kept from others most of the time."""
        with self.lock:
            part = self.files[luck.randrange(_PARTITIONS)]
            chosen = luck.sample(list(part.values()), min(count, len(part)))
            if luck.random() >= _SHARED:
                for held in chosen:
                    del part[held.path]
            return chosen

    def apply(self, effect: Effect) -> None:
        """An acknowledged change."""
        with self.lock:
            if effect.empties is not None:
                self.files[effect.empties].clear()
            for held in effect.removes:
                self.files[held.part].pop(held.path, None)
            for held in effect.adds:
                self.files[held.part][held.path] = held


class Maker:
    """Makes changes of one client."""

    def __init__(self, location: str, pool: Pool, seed: int) -> None:
        self._location, self._pool, self._luck = location, pool, random.Random(seed)
        self._kinds = [kind for kind, _ in _MIX]
        self._weights = [weight for _, weight in _MIX]

    def make(self, base: int | None) -> tuple[Json, Effect]:
        """The next change and what it will have done; an append where there is nothing to take yet."""
        kind = self._luck.choices(self._kinds, self._weights)[0]
        if kind == "append" or base is None:
            return self._append()
        if kind == "overwrite-filter":
            return self._overwrite_filter(base)
        taken = tuple(self._pool.take(2, self._luck))
        if len(taken) < 2:
            return self._append()
        paths = [held.path for held in taken]
        update: Json = {"base-snapshot-id": base, "remove-data-files": paths}
        live = {"type": "required-data-files", "file-paths": paths}
        if kind == "delete":
            update |= {"action": "delete", "commit-validations": [live]}
            return update, Effect(kind, removes=taken)
        no_deletes = {"type": "not-allowed-new-deletes-for-data-files", "file-paths": paths}
        added, file = self._file(taken[0].part, sum(held.records for held in taken))
        update |= {
            "action": "replace" if kind == "replace" else "overwrite",
            "add-data-files": [file],
            "commit-validations": [no_deletes, live],
        }
        return update, Effect(kind, adds=(added,), removes=taken)

    def _append(self) -> tuple[Json, Effect]:
        added, file = self._file(self._luck.randrange(_PARTITIONS), ROWS)
        return append_of(file), Effect("append", adds=(added,))

    def _overwrite_filter(self, base: int) -> tuple[Json, Effect]:
        part = self._luck.randrange(_PARTITIONS)
        wanted = {"type": "eq", "term": "part", "value": part}
        added, file = self._file(part, ROWS)
        update: Json = {"action": "overwrite", "delete-row-filter": wanted, "add-data-files": [file]}
        if self._luck.random() >= _BLIND:
            update["base-snapshot-id"] = base
            update["commit-validations"] = [
                {"type": "not-allowed-added-data-files", "filter": wanted},
                {"type": "not-allowed-added-delete-files", "filter": wanted},
            ]
        return update, Effect("overwrite-filter", adds=(added,), empties=part)

    def _file(self, part: int, records: int) -> tuple[Held, Json]:
        bounds = {1: (LONG.pack(1), LONG.pack(records)), 2: (INT.pack(part), INT.pack(part))}
        file = describe_file(self._location, partition=[part], bounds=bounds, records=records)
        return Held(file["file-path"], part, records), file


@dataclass(slots=True)
class Log:
    """What was answered. Each client has its own; they are joined at the end."""

    acknowledged: list[tuple[int, Effect]] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    conflicts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def join(self, other: Log) -> None:
        """Take in another one."""
        self.acknowledged += other.acknowledged
        self.conflicts += other.conflicts
        self.failures += other.failures
        for kind, times in other.times.items():
            self.times[kind] += times


def note(log: Log, effect: Effect, answer: Answer) -> int | None:
    """Write down one answer; the snapshot that it made."""
    log.times[effect.kind].append(answer.seconds)
    said = answer.json()
    if answer.status == 200:
        log.acknowledged.append((said["sequence-number"], effect))
        made: int = said["snapshot-id"]
        return made
    error = said["error"]
    if answer.status == 409:
        rule = error.get("conflict", {}).get("rule") or error.get("headgate", {}).get("code", "unnamed")
        log.conflicts[f"{effect.kind}: {rule}"] += 1
    else:
        log.failures.append(f"{effect.kind}: {answer.status}: {error.get('message', '')[:200]}")
    return None


def work(port: int, maker: Maker, pool: Pool, log: Log, stop: threading.Event) -> None:
    """One client until told to stop. An error of the bench itself ends all."""
    link, base = Link(port), None
    try:
        while not stop.is_set():
            update, effect = maker.make(base)
            answer = link.settle(_TABLE, [update])
            made = note(log, effect, answer)
            if made is not None:
                base = made
                pool.apply(effect)
            elif answer.status == 409:
                base = head_of(link)  # as a writer would: read again
    except BaseException as error:
        log.failures.append(f"client ended: {type(error).__name__}: {error}")
        stop.set()
        raise
    finally:
        link.close()


def head_of(link: Link) -> int:
    """The head of the table now."""
    answer = link.call("GET", f"{table_path(_TABLE)}?snapshots=refs")
    head: int = answer["metadata"]["current-snapshot-id"]
    return head


def expire(port: int, keep: int) -> int:
    """Remove all snapshots but the newest; how many."""
    snapshots = sorted(load_metadata(port, _TABLE)["snapshots"], key=lambda one: int(one["sequence-number"]))
    old = [one["snapshot-id"] for one in snapshots[:-keep]]
    if old:
        link = Link(port)
        link.settle(_TABLE, [{"action": "remove-snapshots", "snapshot-ids": old}])
        link.close()
    return len(old)


def replay(acknowledged: Sequence[tuple[int, Effect]]) -> tuple[set[str], list[str]]:
    """What must be live after these changes in the order of their sequence numbers, and what is impossible."""
    live: dict[str, int] = {}
    wrong: list[str] = []
    for number, effect in sorted(acknowledged, key=lambda one: one[0]):
        for held in effect.removes:
            if live.pop(held.path, None) is None:
                wrong.append(
                    f"{effect.kind} at {number} removed what was not live: {held.path.rsplit('/', 1)[-1]}"
                )
        if effect.empties is not None:
            live = {path: part for path, part in live.items() if part != effect.empties}
        live |= {held.path: held.part for held in effect.adds}
    return set(live), wrong


def is_flat(rss: Sequence[int]) -> tuple[float, bool]:
    """The mean of the last third over that of the middle third, and whether that is flat."""
    third = max(1, len(rss) // 3)
    middle, last = rss[-2 * third : -third] or rss[-third:], rss[-third:]
    ratio = statistics.mean(last) / statistics.mean(middle)
    return ratio, ratio <= FLAT_MAX


def soak(service: Service, asked: argparse.Namespace) -> tuple[Log, list[int]]:
    """Let the clients run; what they saw, and memory over time."""
    properties = _SERVICE_EXPIRY if asked.expire == "service" else {}
    location = create_table(service.port, _TABLE, Shape(schema=_SCHEMA, spec=_SPEC, properties=properties))
    pool, stop = Pool(), threading.Event()
    logs = [Log() for _ in range(asked.clients)]
    threads = [
        threading.Thread(
            target=work, args=(service.port, Maker(location, pool, asked.seed * 1000 + i), pool, log, stop)
        )
        for i, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    rss: list[int] = []
    started = time.monotonic()
    ends, sampled, expired = started + asked.minutes * 60, started, started
    while (now := time.monotonic()) < ends and not stop.wait(min(1.0, asked.sample_s, ends - now)):
        now = time.monotonic()
        if now - sampled >= asked.sample_s:
            sampled = now
            rss.append(read_rss_bytes(service.process.pid))
            done = sum(len(log.acknowledged) for log in logs)
            print(
                f"  {now - started:6.0f} s   memory {rss[-1] / 2**20:7.1f} MiB   {done:9,d} changes",
                flush=True,
            )
        if asked.expire == "client" and now - expired >= _EXPIRE_EVERY_S:
            expired = now
            expire(service.port, _KEEP_SNAPSHOTS)
    stop.set()
    for thread in threads:
        thread.join()
    joined = Log()
    for log in logs:
        joined.join(log)
    return joined, rss


def run(service: Service, asked: argparse.Namespace) -> Json:
    """Soak, verify, print."""
    started = time.perf_counter()
    log, rss = soak(service, asked)
    elapsed = time.perf_counter() - started
    expected, wrong = replay(log.acknowledged)
    there = {task.file.file_path for task in open_table(service, _TABLE).scan().plan_files()}
    ratio, flat = is_flat(rss or [read_rss_bytes(service.process.pid)])
    found: Json = {
        "minutes": asked.minutes,
        "clients": asked.clients,
        "expire": asked.expire,
        "manifest_cache_bytes_max": asked.cache_mib << 20,
        "acknowledged": len(log.acknowledged),
        "changes_per_s": len(log.acknowledged) / elapsed,
        "kinds": {kind: summarise(times) for kind, times in sorted(log.times.items())},
        "conflicts": dict(sorted(log.conflicts.items())),
        "failures": len(log.failures),
        "first_failures": log.failures[:5],
        "rss_bytes": rss,
        "rss_last_to_middle": ratio,
        "flat": flat,
        "live_expected": len(expected),
        "live_missing": len(expected - there),
        "live_unexpected": len(there - expected),
        "impossible": wrong[:5],
        "exact": expected == there and not wrong,
        "cache": pick_cache_metrics(read_metrics(service.port)),
        "audit": audit(service, _TABLE),
    }
    found["correct"] = found["exact"] and not log.failures and found["audit"]["sound"]
    found["reached"] = flat and found["correct"]
    _print(found)
    return found


def _print(found: Json) -> None:
    print(
        f"{found['acknowledged']:,} changes acknowledged, {found['changes_per_s']:.0f}/s, {found['failures']} failures"
    )
    for kind, row in found["kinds"].items():
        print(f"  {kind:18s}{row['count']:8.0f}   p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms")
    for rule, count in found["conflicts"].items():
        print(f"  conflict {rule:46s}{count:8d}")
    for failure in found["first_failures"] + found["impossible"] + found["audit"]["first_errors"]:
        print(f"  {failure}")
    for metric, value in found["cache"].items():
        print(f"  {metric} {value:,.0f}")
    print(
        f"memory: last third {found['rss_last_to_middle']:.2f} of the middle third, goal at most {FLAT_MAX}:"
        f" {says(found['flat'])}\n"
        f"live files: {found['live_expected']} expected, {found['live_missing']} missing,"
        f" {found['live_unexpected']} unexpected: {says(found['exact'])}\n"
        f"audit: {'clean' if found['audit']['sound'] else 'NOT CLEAN'}"
    )


def make_parser() -> argparse.ArgumentParser:
    """The words of the command line."""
    parser = argparse.ArgumentParser(prog="bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1, help="of the changes; their order is the machine's")
    parser.add_argument("--cache-mib", type=int, default=48, help="bound of the service's cache of manifests")
    parser.add_argument("--sample-s", type=float, default=10.0, help="seconds between two looks at memory")
    parser.add_argument(
        "--expire", choices=("client", "service"), default="client", help="who removes snapshots"
    )
    parser.add_argument("--file", type=Path, help="where the figures go, instead of bench/results/soak.json")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Soak, print, keep the figures; 1 when something acknowledged is not as it should be."""
    asked = make_parser().parse_args(words)
    options = ["--manifest-cache-bytes", str(asked.cache_mib << 20)]
    if asked.expire == "service":
        options += ["--expire-interval-s", str(_EXPIRE_EVERY_S)]
    with fresh_folder() as folder, running_service(folder, options=options) as service:
        create_namespace(service.port)
        found = run(service, asked)
    write_result("soak", found, file=asked.file)
    if asked.file is None:
        write_page()
    return 0 if found["correct"] else 1


if __name__ == "__main__":
    sys.exit(main())
