"""The rows that `ingest` and `merge` take: files, or a table of the lake, perhaps through a query."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.cli.lake_options import read_pairs, read_table
from headgate.errors import BadInput

if TYPE_CHECKING:
    from headgate.spark.pipeline_spec import SourceSpec, TransformSpec

INPUT = "input"  # what the rows are called in --sql


def add_source(parser: argparse.ArgumentParser) -> None:
    """Where rows come from, and what is done to them."""
    group = parser.add_argument_group("the rows")
    group.add_argument("paths", metavar="PATH", nargs="*", help="files or folders; patterns are for Spark")
    group.add_argument("--from-table", metavar="TABLE", help="a table of the lake instead of files")
    group.add_argument(
        "--format", metavar="NAME", help="parquet, csv, json or another of Spark's (default: by the ending)"
    )
    group.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[], help="an option of the format"
    )
    group.add_argument("--schema", metavar="COLUMNS", help='columns and types: "id BIGINT, name STRING"')
    group.add_argument(
        "--sql", metavar="SELECT", help=f"a query over the rows, which it knows as the table {INPUT}"
    )


def read_source(parsed: argparse.Namespace) -> tuple[SourceSpec, TransformSpec]:
    """The same as parts of a pipeline; BadInput names the option."""
    from headgate.spark.pipeline_spec import (  # optional extra
        SourceSpec,
        TransformSpec,
        check_source,
        format_of,
        located,
    )

    if bool(parsed.paths) == (parsed.from_table is not None) and not parsed.format:
        raise BadInput("PATH: give files, or a table by --from-table", field="PATH")
    table = None if parsed.from_table is None else ".".join(read_table(parsed.from_table, "--from-table"))
    source = SourceSpec(
        table=table,
        format=parsed.format or format_of(parsed.paths),
        paths=tuple(located(path, Path.cwd()) for path in parsed.paths),
        schema=parsed.schema,
        options=read_pairs("--option", parsed.option),
    )
    check_source(source, _error)
    return source, TransformSpec(sql=parsed.sql)


_OPTIONS = {"path": "PATH", "options": "--option", "table": "--from-table"}


def _error(key: str, text: str) -> BadInput:
    option = _OPTIONS.get(key, f"--{key}")
    return BadInput(f"{option}: {text}", field=option)
