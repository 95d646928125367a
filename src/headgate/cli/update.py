"""`headgate update`: columns of rows that satisfy a condition get new values, by one commit."""

from __future__ import annotations

import argparse

from headgate.cli.delete import add_mode
from headgate.cli.lake_options import (
    add_command,
    add_commit_options,
    add_connection,
    commit_options,
    need_spark,
    open_job,
    read_lake,
    read_pairs,
    read_table,
    was_done_before,
)
from headgate.cli.summary import commit_facts, print_summary

_DESCRIPTION = """\
Set columns to values where a condition is true. A value is SQL over the row as it was.
"""
_EXAMPLES = """\
  headgate update shop.payments --set "amount = amount * 1.1" --where "country = 'fr'"
  headgate update shop.payments --set "country = upper(country)" --set "checked = true" --where "id < 100"
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands, "update", help="change rows of a table", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument("table", metavar="TABLE", help="namespace.table")
    parser.add_argument(
        "--set",
        metavar="COLUMN=SQL",
        action="append",
        required=True,
        dest="values",
        help="a column and its new value; may be repeated",
    )
    parser.add_argument("--where", metavar="SQL", required=True, help='which rows; "true" is all')
    add_mode(parser, "update")
    add_commit_options(parser, attempts=True)
    add_connection(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Update, and say how many."""
    need_spark()
    from headgate.spark.updates import update  # optional extra

    name, options = read_table(parsed.table), commit_options(parsed)
    values = read_pairs("--set", parsed.values)
    title, lake = f"update of {parsed.table}", read_lake(parsed)
    if was_done_before(lake.table(name), options["key"], title, as_json=parsed.json):
        return 0
    with open_job(parsed, f"headgate update {parsed.table}", lake) as job:
        done = update(
            job.lake.table(name), values, parsed.where, mode=parsed.mode, spark=job.spark, **options
        )
    facts = {
        "rows updated": done.updated,
        "files added": len(done.added),
        "files removed": len(done.removed),
        "attempts": done.attempts,
        **commit_facts(done.committed),
    }
    print_summary(title, facts, as_json=parsed.json)
    return 0
