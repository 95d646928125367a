"""`headgate compact`: the same rows in better files, group by group, in nobody's way."""

from __future__ import annotations

import argparse
import re
from typing import Any

from headgate.cli.expire import read_age
from headgate.cli.lake_options import add_command, add_connection, need_spark, open_job, read_table, say
from headgate.cli.summary import Fact, print_summary, shown_size
from headgate.client.results import MAIN
from headgate.errors import BadInput

_DESCRIPTION = """\
Rewrite files that are too small, too large, or full of deleted rows. Every group of files is a commit of its own, so
what is done stays done. A compaction conflicts with nobody but those who remove or delete from the very files that it
rewrites; a group that lost such a race is left out, told with the evidence, and found by the next compaction. Deletes and
merges that are under way lose as well when a rewrite takes away their files first: --older-than leaves young files alone.
"""
_EXAMPLES = """\
  headgate compact shop.payments
  headgate compact shop.payments --where "at >= DATE '2026-01-01'" --target-size 256MB
  headgate compact shop.payments --older-than 10m
  headgate compact shop.payments --strategy sort --sort-by customer --sort-by "at DESC"
"""
_SIZE = re.compile(r"(\d{1,15})\s*([kMGT]?)B?")
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "compact",
        help="rewrite small files of a table into larger ones",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("table", metavar="TABLE", help="namespace.table")
    parser.add_argument("--where", metavar="SQL", help="only files that may hold such rows")
    parser.add_argument(
        "--strategy",
        choices=("binpack", "sort"),
        default="binpack",
        help="join files, or sort their rows too",
    )
    parser.add_argument(
        "--sort-by",
        metavar="TERM",
        action="append",
        help="for --strategy sort (default: the table's sort order)",
    )
    parser.add_argument("--target-size", metavar="SIZE", help="of a file, as in 128MB (default: the table's)")
    parser.add_argument("--min-files", metavar="N", type=int, help="a group needs so many to be worth it")
    parser.add_argument("--max-group", metavar="SIZE", help="a group is at most so large, as in 10GB")
    parser.add_argument(
        "--at-once", metavar="N", type=int, help="groups written at the same time (default: 5)"
    )
    parser.add_argument(
        "--older-than", metavar="AGE", help="only files that were added before, as in 5d, 12h, 30m or 90s"
    )
    parser.add_argument("--all", action="store_true", dest="rewrite_all", help="rewrite good files, too")
    parser.add_argument("--all-or-nothing", action="store_true", help="one commit for all groups")
    parser.add_argument("--branch", default=MAIN, help="the branch that is written (default: %(default)s)")
    add_connection(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Compact, and say how much better it is."""
    need_spark()
    from headgate.spark.compaction import compact  # optional extra

    name = read_table(parsed.table)
    if parsed.sort_by and parsed.strategy != "sort":
        raise BadInput("--sort-by: only goes with --strategy sort", field="--sort-by")
    limits: dict[str, Any] = {
        "target_size_bytes": read_size("--target-size", parsed.target_size),
        "max_group_bytes": read_size("--max-group", parsed.max_group),
        "min_files": parsed.min_files,
        "at_once": parsed.at_once,
        "older_than": read_age("--older-than", parsed.older_than),
    }
    given = {key: value for key, value in limits.items() if value is not None}
    with open_job(parsed, f"headgate compact {parsed.table}") as job:
        done = compact(
            job.lake.table(name),
            where=parsed.where,
            strategy=parsed.strategy,
            sort_by=parsed.sort_by,
            rewrite_all=parsed.rewrite_all,
            partial_progress=not parsed.all_or_nothing,
            branch=parsed.branch,
            spark=job.spark,
            **given,
        )
    for group in done.skipped:
        say(f"left out: {group.files_before} files of partition {dict(group.partition)}: {group.reason}")
    landed = done.landed
    facts: dict[str, Fact] = {
        "groups": len(landed),
        "groups left out": len(done.skipped),
        "files before": sum(group.files_before for group in landed),
        "files after": sum(group.files_after for group in landed),
        "size before": shown_size(sum(group.bytes_before for group in landed)),
        "size after": shown_size(sum(group.bytes_after for group in landed)),
        "delete files removed": sum(group.deletes_removed for group in landed),
    }
    print_summary(f"compaction of {parsed.table}", facts, as_json=parsed.json)
    return 0


def read_size(option: str, text: str | None) -> int | None:
    """A size in bytes; `128MB` counts by thousands."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise BadInput(f"{option}: expected a size, as in 128MB, got {text!r}", field=option)
    return int(found[1]) * _UNITS[found[2]]
