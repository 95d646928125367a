"""What a table's `write.*` properties ask of Spark's own Parquet writer, in its words and Parquet's."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import BadInput

TARGET_SIZE = "write.target-file-size-bytes"
TARGET_SIZE_DEFAULT_BYTES = 512 * 1024 * 1024
_FORMAT = "write.format.default"
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_CODECS = {  # Iceberg's name, and Spark's; its own `lz4` is framed in a way that only Hadoop reads
    "brotli": "brotli",
    "gzip": "gzip",
    "lz4": "lz4_raw",
    "snappy": "snappy",
    "uncompressed": "none",
    "zstd": "zstd",
}
_LEVELS = {"gzip": "zlib.compress.level", "zstd": "parquet.compression.codec.zstd.level"}
_NUMBERS = (  # Iceberg's name, Parquet's, Iceberg's default
    ("write.parquet.row-group-size-bytes", "parquet.block.size", 128 * 1024 * 1024),
    ("write.parquet.page-size-bytes", "parquet.page.size", 1024 * 1024),
    ("write.parquet.page-row-limit", "parquet.page.row.count.limit", 20_000),
    ("write.parquet.dict-size-bytes", "parquet.dictionary.page.size", 2 * 1024 * 1024),
    ("write.parquet.bloom-filter-max-bytes", "parquet.bloom.filter.max.bytes", 1024 * 1024),
)
_BY_COLUMN = (
    ("write.parquet.bloom-filter-enabled.column.", "parquet.bloom.filter.enabled#"),
    ("write.parquet.bloom-filter-fpp.column.", "parquet.bloom.filter.fpp#"),
    ("write.parquet.bloom-filter-ndv.column.", "parquet.bloom.filter.expected.ndv#"),
    ("write.parquet.stats-enabled.column.", "parquet.column.statistics.enabled#"),
)


def writer_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of `DataFrame.write.parquet`; BadInput names a property that cannot be followed."""
    format_ = properties.get(_FORMAT, "parquet").lower()
    if format_ != "parquet":
        raise BadInput(f"{_FORMAT}: this writer makes parquet, the table asks for {format_!r}", field=_FORMAT)
    codec = properties.get(_CODEC, "zstd").lower()
    if codec not in _CODECS:
        raise BadInput(f"{_CODEC}: expected one of {', '.join(_CODECS)}, got {codec!r}", field=_CODEC)
    options = {
        "compression": _CODECS[codec],
        # A table knows its files; a marker would be an orphan.
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # The other algorithm publishes while tasks commit, so that a repeated one could leave rows twice.
        "mapreduce.fileoutputcommitter.algorithm.version": "1",
    }
    if properties.get(_LEVEL) and codec in _LEVELS:
        options[_LEVELS[codec]] = str(number_of(properties, _LEVEL, 0))
    for name, option, default in _NUMBERS:
        options[option] = str(number_of(properties, name, default))
    for prefix, option in _BY_COLUMN:
        for name, value in properties.items():
            if name.startswith(prefix):
                options[option + name.removeprefix(prefix)] = value
    return options


def number_of(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property that is a whole number."""
    text = properties.get(name, str(default))
    if not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise BadInput(f"{name}: expected a whole number, got {text[:40]!r}", field=name)
    return int(text)
