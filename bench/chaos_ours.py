"""The chaos workload by `headgate.spark`: every job under a key, and run again under the same key when it fails."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery
from tools.demo_story import Row

from bench.chaos_spark_errors import name_of
from bench.chaos_story import STAMP, Job, Problem, Source
from bench.chaos_world import Snapshot, World, data_folder, recent
from headgate.client import Committed
from headgate.errors import BadInput, CommitRefused, HeadgateError
from headgate.spark import compact, delete, merge, stream, write
from headgate.spark.fates import Fate, find_fate, is_key_taken

_MIN_FILES = 4
_ATTEMPT = re.compile(r"/_temporary/attempt_\w+_(\d+)(?:/|$)")


class Ours:
    """Headgate's own jobs."""

    name = "ours"

    def __init__(self, world: World) -> None:
        self._world, self._spark = world, world.spark
        self.table = world.lake.table(f"chaos.{self.name}")

    @cached_property
    def _data(self) -> Path:
        return data_folder(self.table)

    def append(self, rows: Sequence[Row], job: Job) -> int | None:
        """`write` under the job's key."""
        frame = self._world.rows(self._spark, rows)
        return _snapshot(write(frame, self.table, key=job.key, summary={STAMP: job.id}).committed)

    def delete(self, customer: int, job: Job) -> int | None:
        """`delete` under the job's key."""
        done = delete(
            self.table, f"customer = {customer}", spark=self._spark, key=job.key, summary={STAMP: job.id}
        )
        return _snapshot(done.committed)

    def merge(self, amounts: dict[int, Decimal], region: str, job: Job) -> int | None:
        """`merge` under the job's key; the range of its ids is found by itself."""
        done = merge(
            self.table,
            self._world.corrections(self._spark, amounts),
            ["id"],
            when_matched_update={"amount": "source.amount"},
            spark=self._spark,
            key=job.key,
            summary={STAMP: job.id},
        )
        return _snapshot(done.committed)

    def compact(self) -> None:
        """`compact`, group by group."""
        done = compact(self.table, min_files=_MIN_FILES, spark=self._spark)
        self._world.book.note_compacted(len(done.landed))
        for group in done.skipped:
            rule = str(group.evidence.get("rule", "skipped"))
            self._world.book.note(
                "compaction", Problem(rule, is_refusal=True, evidence=str(group.evidence.get("theirs", "")))
            )

    def start_stream(self, source: Source) -> StreamingQuery:
        """`stream`: the key is made of checkpoint and batch."""
        return stream(
            self._world.stream(self._spark, source),
            self.table,
            checkpoint=str(self._world.checkpoint(source)),
            trigger="1 second",
            summary={STAMP: f"stream-{source.number}"},
        )

    def judge(self, error: BaseException, job: Job | None) -> Problem:
        """Refusals have a rule and the other commit; a key that a refusal used up is one, told late."""
        if isinstance(error, CommitRefused):
            rule = str(error.evidence.get("rule", error.code))
            return Problem(rule, is_refusal=True, evidence=str(error.evidence.get("theirs", "")))
        if isinstance(error, BadInput) and is_key_taken(error) and job is not None:
            refused = find_fate(self.table, job.key) is Fate.REFUSED
            return Problem("key taken", is_refusal=refused, evidence=error.message)
        return Problem(type(error).__name__ if isinstance(error, HeadgateError) else name_of(error))

    def settle(self, job: Job) -> bool:
        """The service knows by the key."""
        return find_fate(self.table, job.key) is Fate.LANDED

    def find_batches(
        self, source: Source, batches: Sequence[int], snapshots: Sequence[Snapshot]
    ) -> dict[int, list[Snapshot]]:
        """Batches land one after the other, each once: the n-th snapshot of a stream is its n-th batch."""
        own = [one for one in snapshots if one.summary.get(STAMP) == f"stream-{source.number}"]
        found = {batch: [snapshot] for batch, snapshot in zip(batches, own, strict=False)}
        if len(own) > len(batches) and batches:
            found[batches[-1]] += own[len(batches) :]
        return found

    def find_writing(self) -> set[int]:
        """A task writes in a folder that ends with its number, until it has ended."""
        found = set()
        for run in recent(self._data):
            for folder, _, files in os.walk(run):  # passes over what goes meanwhile
                attempt = _ATTEMPT.search(folder)
                if attempt is not None and any(file.endswith(".parquet") for file in files):
                    found.add(int(attempt[1]))
        return found


def _snapshot(committed: Committed | None) -> int | None:
    return None if committed is None else committed.snapshot_id
