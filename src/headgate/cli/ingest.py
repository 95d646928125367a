"""`headgate ingest`: files, or rows of another table, into a table, by one commit."""

from __future__ import annotations

import argparse

from headgate.cli.lake_options import (
    add_command,
    add_commit_options,
    add_connection,
    commit_options,
    need_spark,
    read_pairs,
    read_table,
)
from headgate.cli.pipeline_run import run_and_print
from headgate.cli.row_source import INPUT, add_source, read_source
from headgate.errors import BadInput

MODES = ("append", "overwrite", "replace_partitions")
_DESCRIPTION = """\
Put the rows of files (or of a table) into a table. Columns go by their names; a column that the table does not have, one
that it needs and the rows have not, and one whose values may not fit are refused by name before anything is written.
A line of a CSV or JSON file that cannot be read stops the job. CSV has its column names in the first line unless
--option header=false says otherwise, and its types are guessed unless --schema names them.
"""
_EXAMPLES = """\
  headgate ingest landing/*.parquet --into shop.payments
  headgate ingest payments.csv --into shop.payments --create --partition-by "day(at)"
  headgate ingest day.json --into shop.payments --mode overwrite --filter "at >= TIMESTAMP '2026-01-01'"
  headgate ingest raw.csv --into shop.payments --sql "SELECT id, CAST(amount AS DECIMAL(12,2)) amount FROM input"
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "ingest",
        help="put the rows of files into a table",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument("--into", metavar="TABLE", required=True, help="namespace.table")
    parser.add_argument(
        "--mode",
        choices=MODES,
        default=MODES[0],
        help="add rows, put them in the place of those that --filter matches, or of the partitions they are in",
    )
    parser.add_argument(
        "--filter", metavar="SQL", help="what --mode overwrite replaces (default: everything)"
    )
    parser.add_argument("--road", choices=("native", "python"), help="who writes the files (default: Spark)")
    add_shape(parser)
    add_commit_options(parser)
    add_connection(parser, run)


def add_shape(parser: argparse.ArgumentParser) -> None:
    """How a table is made that is not there."""
    group = parser.add_argument_group("a table that is not there")
    group.add_argument("--create", action="store_true", help="make it, with the columns of the rows")
    group.add_argument(
        "--partition-by",
        metavar="TERM",
        action="append",
        default=[],
        help='country, "day(at)", "bucket(16, id)"',
    )
    group.add_argument("--sort-by", metavar="TERM", action="append", default=[], help='id, "at desc"')
    group.add_argument(
        "--property", metavar="KEY=VALUE", action="append", default=[], help="a table property"
    )


def run(parsed: argparse.Namespace) -> int:
    """Ingest, and say what was written."""
    need_spark()
    from headgate.spark.pipeline_spec import Pipeline, TableShape, TargetSpec  # optional extra

    source, transform = read_source(parsed)
    options = commit_options(parsed)
    shape = TableShape(
        tuple(parsed.partition_by), tuple(parsed.sort_by), read_pairs("--property", parsed.property)
    )
    if parsed.filter is not None and parsed.mode != "overwrite":
        raise BadInput("--filter: only goes with --mode overwrite", field="--filter")
    if shape != TableShape() and not parsed.create:
        given = next(name for name in ("partition_by", "sort_by", "property") if getattr(parsed, name))
        option = f"--{given.replace('_', '-')}"
        raise BadInput(f"{option}: only goes with --create", field=option)
    target = TargetSpec(
        table=".".join(read_table(parsed.into, "--into")),
        mode=parsed.mode,
        filter=parsed.filter,
        branch=options["branch"],
        isolation=options["isolation"],
        road=parsed.road,
        summary=options["summary"] or {},
        create=shape if parsed.create else None,
    )
    pipeline = Pipeline(f"headgate ingest {parsed.into}", {INPUT: source}, target, transform)
    return run_and_print(parsed, pipeline, key=options["key"])
