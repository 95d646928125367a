"""`headgate delete`: rows that satisfy a condition go, by one commit."""

from __future__ import annotations

import argparse

from headgate.cli.lake_options import (
    add_command,
    add_commit_options,
    add_connection,
    commit_options,
    need_spark,
    open_job,
    read_lake,
    read_table,
    was_done_before,
)
from headgate.cli.summary import commit_facts, print_summary

ROW_MODES = ("copy-on-write", "merge-on-read")
_DESCRIPTION = """\
Delete the rows for which a condition is true; where it is false or null they stay. Files that go as a whole are not
read. The commit is refused, with the evidence, when others changed rows of the condition meanwhile.
"""
_EXAMPLES = """\
  headgate delete shop.payments --where "customer = 17"
  headgate delete shop.payments --where "at < DATE '2020-01-01'" --mode merge-on-read
  headgate delete shop.payments --where "country IN ('fr', 'de')" --isolation snapshot
  headgate delete shop.payments --where "customer = 17" --attempts 5
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands, "delete", help="delete rows of a table", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument("table", metavar="TABLE", help="namespace.table")
    parser.add_argument(
        "--where", metavar="SQL", required=True, help='which rows, by the columns of the table; "true" is all'
    )
    add_mode(parser, "delete")
    add_commit_options(parser, attempts=True)
    add_connection(parser, run)


def add_mode(parser: argparse.ArgumentParser, command: str) -> None:
    """Copy-on-write or merge-on-read."""
    parser.add_argument(
        "--mode",
        choices=ROW_MODES,
        help=f"write files anew, or hide rows by delete files (default: the table's write.{command}.mode)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Delete, and say how many."""
    need_spark()
    from headgate.spark.deletes import delete  # optional extra

    name, options = read_table(parsed.table), commit_options(parsed)
    title, lake = f"delete from {parsed.table}", read_lake(parsed)
    if was_done_before(lake.table(name), options["key"], title, as_json=parsed.json):
        return 0
    with open_job(parsed, f"headgate delete {parsed.table}", lake) as job:
        done = delete(job.lake.table(name), parsed.where, mode=parsed.mode, spark=job.spark, **options)
    facts = {
        "rows deleted": done.deleted,
        "files added": len(done.added),
        "files removed": len(done.removed),
        "attempts": done.attempts,
        **commit_facts(done.committed),
    }
    print_summary(title, facts, as_json=parsed.json)
    return 0
