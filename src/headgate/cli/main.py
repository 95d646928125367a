"""The `headgate` command. Every module of this package that has `register` adds its subcommands.

Exit codes: 0 done; 1 the work failed; 2 what was asked is wrong (argparse's code for that, too).
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence

import headgate.cli
from headgate.errors import BadInput, HeadgateError


def build_parser() -> argparse.ArgumentParser:
    """The parser, with the subcommands of every module of the package."""
    parser = argparse.ArgumentParser(prog="headgate", description="The gate of every commit to a table.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for found in sorted(pkgutil.iter_modules(headgate.cli.__path__), key=lambda item: item.name):
        if found.name == "main":
            continue
        module = importlib.import_module(f"headgate.cli.{found.name}")
        if hasattr(module, "register"):
            module.register(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its function returns the exit code."""
    parsed = build_parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except BadInput as error:
        print(f"headgate: {error.message}", file=sys.stderr)
        return 2
    except HeadgateError as error:
        print(f"headgate: {error.code}: {error.message}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
