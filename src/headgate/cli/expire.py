"""`headgate expire`: old snapshots go, and the files that only they reached."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

from headgate.cli.lake_options import add_command, add_lake, need_packages, read_lake, read_table
from headgate.cli.summary import print_summary
from headgate.errors import BadInput

_DESCRIPTION = """\
Let snapshots go that are older than a time, but the last ones of every branch; what is not said is taken from the
table's history.expire.* properties. Branches and tags keep what they point at. Needs no Spark.
"""
_EXAMPLES = """\
  headgate expire shop.payments --older-than 5d --keep 10
  headgate expire shop.payments                              by the table's own properties
"""
_AGE = re.compile(r"(\d{1,9})\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "expire",
        help="let old snapshots of a table go",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("table", metavar="TABLE", help="namespace.table")
    parser.add_argument("--older-than", metavar="AGE", help="as in 5d, 12h, 30m or 90s")
    parser.add_argument(
        "--keep", metavar="N", type=int, help="snapshots of every branch that stay, at least 1"
    )
    parser.add_argument("--keep-files", action="store_true", help="delete no files")
    add_lake(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Expire, and say what went."""
    need_packages("pyarrow", "pyiceberg")
    from headgate.spark.maintain import expire  # optional extra

    name, age = read_table(parsed.table), read_age("--older-than", parsed.older_than)
    done = expire(
        read_lake(parsed).table(name),
        older_than=age,
        keep=parsed.keep,
        delete_files=not parsed.keep_files,
    )
    facts = {"snapshots expired": len(done.snapshot_ids), "files deleted": len(done.files)}
    print_summary(f"expiry of {parsed.table}", facts, as_json=parsed.json)
    return 0


def read_age(option: str, text: str | None) -> timedelta | None:
    """An age: `5d`, `12h`, `30m`, `90s`."""
    if text is None:
        return None
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{option}: expected an age, as in 5d, 12h, 30m or 90s, got {text!r}", field=option)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
