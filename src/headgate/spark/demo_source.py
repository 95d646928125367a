"""`spark.readStream.format("headgate-demo")`: payments out of nothing, at a steady rate, the same ones every time.

Row `n` of a seed is always the same row, so that a stream that is killed and started again reads exactly what it read
before, and who wants to check the result can make the input anew (`payments`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType, TimestampType

from headgate.errors import BadInput

FORMAT = "headgate-demo"
_START = datetime(2026, 1, 1, tzinfo=UTC)
_COUNTRIES = ("at", "de", "es", "fr", "it", "nl", "pl", "se")
_SCHEMA = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("customer", LongType(), nullable=False),
        StructField("country", StringType(), nullable=False),
        StructField("amount", DecimalType(12, 2), nullable=False),
        StructField("at", TimestampType(), nullable=False),
    ]
)
_WORDS = ("rows-per-second", "rows-per-batch", "rows", "seed", "first-id")

Payment = tuple[int, int, str, Decimal, datetime]


@dataclass(frozen=True, slots=True)
class Demo:
    """What is to come: how many rows a second, in a batch and in all, of which seed, and the first id."""

    rows_per_second: int = 1_000
    rows_per_batch: int = 10_000
    rows: int = 2**62
    seed: int = 0
    first_id: int = 0


def payments(demo: Demo, start: int, end: int) -> Iterator[Payment]:
    """The rows from one number up to another."""
    for number in range(start, end):
        draw = random.Random(demo.seed * 1_000_003 + number)
        yield (
            demo.first_id + number,
            draw.randrange(1_000),
            draw.choice(_COUNTRIES),
            Decimal(draw.randrange(1, 1_000_000)).scaleb(-2),
            _START + timedelta(seconds=number),
        )


class DemoSource(DataSource):
    """The source. Options: `rows-per-second`, `rows-per-batch`, `rows` (in all), `seed`, `first-id`."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """A payment."""
        return _SCHEMA

    def simpleStreamReader(self, schema: StructType) -> DemoReader:  # noqa: N802 — Spark's name
        """Rows as they come."""
        return DemoReader(_read_demo({name.lower(): value for name, value in self.options.items()}))


class DemoReader(SimpleDataSourceStreamReader):
    """Hands out as many rows as the time that has passed allows."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._asked_at_s = time.monotonic()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 — Spark's name
        """Before the first row."""
        return {"row": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Payment], dict[str, int]]:
        """The rows that are due."""
        now_s = time.monotonic()
        due = int((now_s - self._asked_at_s) * self._demo.rows_per_second)
        if due:
            self._asked_at_s = now_s
        end = min(start["row"] + min(due, self._demo.rows_per_batch), max(self._demo.rows, start["row"]))
        # A list's iterator, because Spark copies it, and a generator cannot be copied.
        return iter(list(payments(self._demo, start["row"], end))), {"row": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Payment]:  # noqa: N802 — Spark's name
        """The same rows again."""
        return iter(list(payments(self._demo, start["row"], end["row"])))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept, so there is nothing to forget."""


def _read_demo(options: dict[str, str]) -> Demo:
    if unknown := sorted(set(options) - set(_WORDS)):
        raise BadInput(f"option {unknown[0]}: not known; known are {', '.join(_WORDS)}", field=unknown[0])
    for name, text in options.items():
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise BadInput(f"option {name}: expected a whole number, got {text[:40]!r}", field=name)
    return Demo(**{name.replace("-", "_"): int(text) for name, text in options.items()})
