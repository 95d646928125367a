"""`headgate refresh`: an incremental view brought up to date, and made first if its query is given."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headgate.cli.lake_options import add_command, add_connection, need_spark, open_job, read_table, say
from headgate.cli.summary import commit_facts, print_summary, shown_size
from headgate.errors import BadInput

_DESCRIPTION = """\
Bring a view up to date by what changed in its sources since the last refresh; only the files that changed are read. A
change that the query cannot follow is answered by building the result anew, and the reason is told. With --query and
--source a view that is not there is made first.
"""
_EXAMPLES = """\
  headgate refresh shop.by_country
  headgate refresh shop.by_country --full
  headgate refresh shop.by_country --source shop.payments \\
      --query "SELECT country, count(*) AS payments, sum(amount) AS total FROM payments GROUP BY country"
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "refresh",
        help="bring an incremental view up to date",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("view", metavar="VIEW", help="the result table of the view: namespace.table")
    parser.add_argument("--full", action="store_true", help="build the result anew")
    parser.add_argument("--query", metavar="SELECT", help="make the view of this query if it is not there")
    parser.add_argument(
        "--source",
        metavar="[ALIAS=]TABLE",
        action="append",
        default=[],
        help="a table that the query reads; without an alias it is known by the last part of its name",
    )
    add_connection(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Refresh, and say how it went."""
    need_spark()
    from headgate.spark.views import create_view_job, refresh  # optional extra

    name, sources = read_table(parsed.view, "VIEW"), _read_sources(parsed.source)
    if bool(parsed.query) != bool(sources):
        raise BadInput("--query: goes with --source, and --source with --query", field="--query")
    with open_job(parsed, f"headgate refresh {parsed.view}") as job:
        is_new = bool(parsed.query) and not job.lake.catalog().table_exists(name)
        if is_new:
            made = create_view_job(job.lake, name, parsed.query, sources, spark=job.spark)
            if made.reason is not None:
                say(f"every refresh will build it anew: {made.reason}")
        done = refresh(job.lake, name, full=parsed.full, spark=job.spark)
    facts = {
        "view was made": True if is_new else None,
        "refresh": done.kind.value,
        "reason": done.reason,
        "files read": done.files_read,
        "size read": shown_size(done.bytes_read),
        **({} if done.committed is None else commit_facts(done.committed)),
    }
    print_summary(f"refresh of {parsed.view}", facts, as_json=parsed.json)
    return 0


def _read_sources(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        alias, equals, table = text.partition("=")
        levels = read_table(table if equals else text, "--source")
        alias = alias.strip() if equals else levels[-1]
        if alias in found:
            raise BadInput(f"--source: two are called {alias}; give one another alias", field="--source")
        found[alias] = ".".join(levels)
    return found
