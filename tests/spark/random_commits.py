"""A source that changes at random: appends, overwrites, deletes and compactions, made without Spark, so quickly.

Keeps the rows of every live file, so that each commit is what an engine would make of them: an overwrite rewrites a
file for a few of its rows, a compaction puts the same rows into other files.
"""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.client import describe_parquet
from headgate.client.changes import File
from headgate.spark.lake import LakeTable

KINDS = tuple(f"kind-{number}" for number in range(12))
Row = tuple[int, str, Decimal]


class RandomSource:
    """A table (id, kind, amount) and the rows of each of its files."""

    def __init__(self, table: LakeTable, *, seed: int, rows_per_file: int) -> None:
        self._table, self._state = table, table.load()
        self._random = random.Random(seed)
        self._rows_per_file = rows_per_file
        self._schema = self._state.schema.as_arrow()
        self._folder = Path(unquote(urlsplit(self._state.data_location).path))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._next_id = self._next_file = 0
        self.files: dict[str, list[Row]] = {}
        self.sizes: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        """How large the live files are together."""
        return sum(self.sizes[path] for path in self.files)

    def fill(self, files: int) -> None:
        """The first commit: so many files."""
        self._table.client.append([self._write(self._fresh()) for _ in range(files)])

    def step(self) -> str:
        """One random commit; its name."""
        steps = (self.append, self.overwrite, self.delete, self.compact)
        (step,) = self._random.choices(steps, weights=(5, 2, 1, 2))
        step()
        return step.__name__

    def append(self) -> None:
        """A file more."""
        self._table.client.append([self._write(self._fresh())])

    def overwrite(self) -> None:
        """A file is rewritten: some rows go, some get another amount."""
        path = self._pick(1)[0]
        rows = [row for row in self.files[path] if self._random.random() > 0.02]
        changed = [(row[0], row[1], self._amount()) if self._random.random() < 0.02 else row for row in rows]
        before = self._table.load().snapshot_id()
        removed = self._forget([path])
        self._table.client.overwrite(add=[self._write(changed)], remove=removed, base_snapshot_id=before)

    def delete(self) -> None:
        """A file goes with all its rows."""
        self._table.client.delete(remove=self._forget(self._pick(1)))

    def compact(self) -> None:
        """A few files become one."""
        paths = self._pick(3)
        rows = [row for path in paths for row in self.files[path]]
        before = self._table.load().snapshot_id()
        removed = self._forget(paths)
        self._table.client.replace(add=[self._write(rows)], remove=removed, base_snapshot_id=before)

    def _pick(self, count: int) -> list[str]:
        return self._random.sample(sorted(self.files), count)

    def _forget(self, paths: list[str]) -> list[str]:
        for path in paths:
            del self.files[path]
        return paths

    def _fresh(self) -> list[Row]:
        first = self._next_id
        self._next_id += self._rows_per_file
        return [(id_, self._random.choice(KINDS), self._amount()) for id_ in range(first, self._next_id)]

    def _amount(self) -> Decimal:
        return Decimal(self._random.randrange(100_000)) / 100

    def _write(self, rows: list[Row]) -> File:
        name = f"{self._next_file:05}.parquet"
        self._next_file += 1
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        path, location = self._folder / name, f"{self._state.data_location}/{name}"
        pq.write_table(pa.table(columns, schema=self._schema), path)
        described = describe_parquet(path, self._state.raw, location=location)
        self.files[location], self.sizes[location] = rows, described["file-size-in-bytes"]
        return described
