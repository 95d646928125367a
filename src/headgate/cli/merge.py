"""`headgate merge`: rows meet those of a table and update, delete or insert, by one commit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headgate.cli.delete import add_mode
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

_ALL = "all"
_DESCRIPTION = """\
Rows that meet one of the table's, by columns or a condition, update or delete it; the others are inserted. A row of the
table that two rows meet is refused. In SQL the table is called target, and the rows source.
"""
_EXAMPLES = """\
  headgate merge corrections.csv --into shop.payments --on id --update all --insert all
  headgate merge gone.parquet --into shop.payments --on id --delete-when true
  headgate merge rates.json --into shop.payments --on "target.country = source.country" \\
      --update "amount = target.amount * source.rate"
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "merge",
        help="update, delete and insert rows of a table by other rows",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument("--into", metavar="TABLE", required=True, help="namespace.table")
    parser.add_argument(
        "--on",
        metavar="COLUMNS|SQL",
        required=True,
        help="which rows meet: columns with commas between, or a condition",
    )
    parser.add_argument(
        "--update", metavar="all|COLUMN=SQL", action="append", default=[], help="what a met row becomes"
    )
    parser.add_argument("--update-if", metavar="SQL", help="which met rows are updated (default: all)")
    parser.add_argument("--delete-when", metavar="SQL", help='which met rows go instead; "true" is all')
    parser.add_argument(
        "--insert", metavar="all|COLUMN=SQL", action="append", default=[], help="what an unmet row adds"
    )
    parser.add_argument("--insert-if", metavar="SQL", help="which unmet rows are inserted (default: all)")
    add_mode(parser, "merge")
    add_commit_options(parser, attempts=True)
    add_connection(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Merge, and say what became of the rows."""
    need_spark()
    from headgate.spark.pipeline_spec import MERGE, MergeSpec, Pipeline, TargetSpec  # optional extra

    source, transform = read_source(parsed)
    options = commit_options(parsed)
    wish = MergeSpec(
        on=_read_on(parsed.on),
        when_matched_update=_assignments("--update", parsed.update),
        when_matched_update_if=parsed.update_if,
        when_matched_delete=parsed.delete_when,
        when_not_matched_insert=_assignments("--insert", parsed.insert),
        when_not_matched_insert_if=parsed.insert_if,
        mode=parsed.mode,
        attempts=options["attempts"],
    )
    if not (parsed.update or parsed.delete_when or parsed.insert):
        raise BadInput(
            "--update: needed, or --delete-when or --insert: this merge would do nothing", field="--update"
        )
    target = TargetSpec(
        table=".".join(read_table(parsed.into, "--into")),
        mode=MERGE,
        branch=options["branch"],
        isolation=options["isolation"],
        summary=options["summary"] or {},
        merge=wish,
    )
    pipeline = Pipeline(f"headgate merge {parsed.into}", {INPUT: source}, target, transform)
    return run_and_print(parsed, pipeline, key=options["key"])


def _read_on(text: str) -> str | tuple[str, ...]:
    columns = tuple(part.strip() for part in text.split(","))
    return columns if all(part.replace("_", "a").isalnum() for part in columns) else text


def _assignments(option: str, texts: Sequence[str]) -> dict[str, str] | str | None:
    if list(texts) == [_ALL]:
        return _ALL
    return read_pairs(option, texts) or None
