"""`headgate remove-orphans`: files below a table that nothing reaches go."""

from __future__ import annotations

import argparse

from headgate.cli.expire import read_age
from headgate.cli.lake_options import add_command, add_lake, need_packages, read_lake, read_table
from headgate.cli.summary import Fact, print_summary, shown_size

_DESCRIPTION = """\
Delete files below the table's locations that no snapshot reaches and that are older than a time: what killed jobs have
left behind. Jobs write first and commit later, so less than a day is refused. Needs no Spark.
"""
_EXAMPLES = """\
  headgate remove-orphans shop.payments --dry-run            only list them
  headgate remove-orphans shop.payments --older-than 7d
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "remove-orphans",
        help="delete files of a table that nothing reaches",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("table", metavar="TABLE", help="namespace.table")
    parser.add_argument(
        "--older-than", metavar="AGE", default="3d", help="as in 5d or 48h (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="delete nothing; list what would go")
    add_lake(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Remove them, and say how many."""
    need_packages("pyarrow", "pyiceberg")
    from headgate.spark.maintain import ORPHAN_AGE, remove_orphans  # optional extra

    name, age = read_table(parsed.table), read_age("--older-than", parsed.older_than)
    done = remove_orphans(
        read_lake(parsed).table(name), older_than=ORPHAN_AGE if age is None else age, dry_run=parsed.dry_run
    )
    if parsed.dry_run and not parsed.json:
        for file in done.files:
            print(file)
    facts: dict[str, Fact] = {
        "files deleted" if done.are_deleted else "files found": len(done.files),
        "size": shown_size(done.size_bytes),
    }
    print_summary(f"orphans of {parsed.table}", facts, as_json=parsed.json)
    return 0
