"""`headgate run`: a pipeline from a file, once or as a stream."""

from __future__ import annotations

import argparse

from headgate.cli.lake_options import add_command, add_connection, need_spark, read_key
from headgate.cli.pipeline_run import run_and_print

_DESCRIPTION = """\
Run a pipeline: sources, a transform in SQL or Python, a target table, once or as a stream. The file says all of it;
docs/pipelines.md has every key. A stream runs until it is told to stop (Ctrl-C, SIGTERM), finishes its batch, and ends
with code 0; started again, it goes on where it was, and every row is in the table once.
"""
_EXAMPLES = """\
  headgate run payments.toml
  headgate run payments.toml --check                                      only read and check the file
  headgate run payments.py --master spark://cluster:7077 --conf spark.executor.memory=4g
  headgate run payments.toml --master k8s://https://cluster:6443 --conf spark.kubernetes.container.image=…

  # payments.toml
  [sources.raw]
  path = "landing/*.csv"

  [transform]
  sql = "SELECT id, customer, CAST(amount AS DECIMAL(12,2)) AS amount FROM raw WHERE amount > 0"

  [target]
  table = "shop.payments"
  create = true
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = add_command(
        commands, "run", help="run a pipeline from a file", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument("file", metavar="FILE", help="a pipeline in TOML or Python")
    parser.add_argument("--check", action="store_true", help="read and check the file, and run nothing")
    parser.add_argument(
        "--key", metavar="UUID", help="commit under this key, once; only to repeat a run whose end is unknown"
    )
    add_connection(parser, run)


def run(parsed: argparse.Namespace) -> int:
    """Run it."""
    need_spark()
    from headgate.spark.pipeline_file import read_pipeline  # optional extra

    key = read_key(parsed.key)
    pipeline = read_pipeline(parsed.file)
    if parsed.check:
        print(f"{parsed.file}: {', '.join(pipeline.sources)} → {pipeline.target.table}: no faults found")
        return 0
    parsed.master = parsed.master or pipeline.master
    return run_and_print(parsed, pipeline, key=key)
