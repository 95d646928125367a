"""What encoding a manifest costs beside fastavro and PyIceberg: `python -m bench.manifest_encode [SECONDS]`.

The same entries (v2, one partition field, statistics of ten columns) in turns in the same run, because the
machine drifts; ratios are medians over the turns. fastavro gets ready-made dicts, a parsed schema and deflate
level 1, as we do; PyIceberg gets ready-made entries and writes to a temporary folder (its file costs some
0.05 ms of a one-entry manifest).
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import fastavro
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.manifest import (
    ManifestEntry as TheirEntry,
)
from pyiceberg.partitioning import PartitionField as TheirField
from pyiceberg.partitioning import PartitionSpec as TheirSpec
from pyiceberg.schema import Schema as TheirSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, StringType

from headgate.core.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, Metrics, NewEntry
from headgate.core.partitioning import PartitionField, PartitionSpec
from headgate.core.schema import Field, Schema
from headgate.format.manifest_encode import encode_manifest

COLUMNS = range(1, 11)
SNAPSHOT_ID = 7_000_000_000_000_001
METRICS = Metrics(
    column_sizes={n: 10_000 + n for n in COLUMNS},
    value_counts=dict.fromkeys(COLUMNS, 50_000),
    null_value_counts=dict.fromkeys(COLUMNS, 0),
    nan_value_counts={},
    lower_bounds={n: bytes((n,)) * 8 for n in COLUMNS},
    upper_bounds={n: bytes((255 - n,)) * 8 for n in COLUMNS},
)
TURN_S = 0.25


def path_of(n: int) -> str:
    """Paths that compress as real ones do."""
    return f"s3://bucket/warehouse/db/events/data/day=2024-01-{n % 28:02}/00000-{n}-{n * 7919:032x}.parquet"


def encode(count: int) -> Callable[[], bytes]:
    """Ours."""
    columns = tuple(Field(id=n, name=f"c{n}", type="string", required=False) for n in COLUMNS[1:])
    schema = Schema(fields=(Field(id=1, name="day", type="date", required=False), *columns), schema_id=0)
    field = PartitionField(name="day", transform="identity", source_id=1, field_id=1000)
    spec = PartitionSpec(fields=(field,), spec_id=0)
    entries = [
        NewEntry(
            EntryStatus.ADDED,
            ContentFile(
                FileContent.DATA, path_of(n), "PARQUET", 0, ((1000, 19_000 + n % 28),), 50_000, 5_000_000,
                sort_order_id=0, split_offsets=(4,), metrics=METRICS,
            ),
            SNAPSHOT_ID,
            None,
            None,
        )
        for n in range(count)
    ]  # fmt: skip
    kind = ManifestContent.DATA
    return lambda: encode_manifest(entries, spec=spec, schema=schema, format_version=2, content=kind).data


def encode_by_fastavro(count: int) -> Callable[[], bytes]:
    """The same records, read back from ours."""
    reader = fastavro.reader(io.BytesIO(encode(count)()))
    records, schema = list(reader), fastavro.parse_schema(json.loads(reader.metadata["avro.schema"]))
    metadata = {key: text for key, text in reader.metadata.items() if not key.startswith("avro.")}
    options = {"codec": "deflate", "codec_compression_level": 1, "sync_interval": 256 * 1024}

    def step() -> bytes:
        out = io.BytesIO()
        fastavro.writer(out, schema, records, metadata=metadata, **options)
        return out.getvalue()

    return step


def encode_by_pyiceberg(count: int, folder: str) -> Callable[[], bytes]:
    """The same files through PyIceberg's writer."""
    columns = [NestedField(n, f"c{n}", StringType(), required=False) for n in COLUMNS[1:]]
    schema = TheirSchema(NestedField(1, "day", DateType(), required=False), *columns)
    spec = TheirSpec(TheirField(1, 1000, IdentityTransform(), "day"), spec_id=0)
    stats = {name: getattr(METRICS, name) for name in Metrics.__struct_fields__}
    entries = [
        TheirEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=SNAPSHOT_ID,
            data_file=DataFile.from_args(
                content=DataFileContent.DATA, file_path=path_of(n), file_format=FileFormat.PARQUET,
                partition=Record(19_000 + n % 28), record_count=50_000, file_size_in_bytes=5_000_000,
                sort_order_id=0, split_offsets=[4], **stats,
            ),
        )
        for n in range(count)
    ]  # fmt: skip
    files, path = PyArrowFileIO(), f"{folder}/manifest.avro"

    def step() -> bytes:
        with write_manifest(2, spec, schema, files.new_output(path), SNAPSHOT_ID, "deflate") as writer:
            for entry in entries:
                writer.add_entry(entry)
        with open(path, "rb") as file:
            return file.read()

    return step


def run_turn(step: Callable[[], bytes]) -> float:
    """Microseconds of processor time a call, over one turn: what others run meanwhile counts less."""
    started, count = time.process_time(), 0
    while (elapsed := time.process_time() - started) < TURN_S:
        step()
        count += 1
    return elapsed / count * 1e6


def main() -> None:
    """Measure in turns and print, for one entry and for many, microseconds an entry, bytes and ratios."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12.0
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 1000):
            steps = {
                "ours": encode(count),
                "fastavro": encode_by_fastavro(count),
                "pyiceberg": encode_by_pyiceberg(count, folder),
            }
            rounds = max(3, int(seconds / 2 / len(steps) / TURN_S))
            turns = [{name: run_turn(step) for name, step in steps.items()} for _ in range(rounds)]
            print(f"manifest of {count}: us per entry, and per entry of ours; bytes, and per byte of ours")
            size = len(steps["ours"]())
            for name, step in steps.items():
                took = statistics.median(turn[name] for turn in turns) / count
                ratio = statistics.median(turn[name] / turn["ours"] for turn in turns)
                bytes_ = len(step())
                print(f"  {name:9} {took:8.1f} us {ratio:6.2f} x   {bytes_:8} bytes {bytes_ / size:5.2f} x")


if __name__ == "__main__":
    main()
