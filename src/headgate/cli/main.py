"""The `headgate` command. Every module of this package that has `register` adds its subcommands.

Exit codes: 0 done; 1 refused, in conflict or failed; 2 what was asked is wrong (argparse's code for that, too);
3 nobody knows whether the commit landed; 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence

import headgate.cli
from headgate.errors import BadInput, CommitUnknown, HeadgateError

DONE, FAILED, WRONG, UNKNOWN, INTERRUPTED = 0, 1, 2, 3, 130


def build_parser() -> argparse.ArgumentParser:
    """The parser, with the subcommands of every module of the package."""
    parser = argparse.ArgumentParser(prog="headgate", description="The gate of every commit to a table.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for found in sorted(pkgutil.iter_modules(headgate.cli.__path__), key=lambda item: item.name):
        if found.name == "main":
            continue
        try:
            module = importlib.import_module(f"headgate.cli.{found.name}")
        except ModuleNotFoundError as error:
            if (error.name or "headgate").split(".")[0] == "headgate":
                raise
            _register_absent(commands, found.name, str(error.name))
            continue
        if hasattr(module, "register"):
            module.register(commands)
    return parser


def _register_absent(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, missing: str
) -> None:
    """A command of an extra that is not installed: all others work."""

    def refuse(parsed: argparse.Namespace) -> int:
        raise BadInput(f"{name} needs {missing}, which is not installed: pip install 'headgate[service]'")

    # No word is an option to it, so that whatever is asked gets the same answer.
    parser = commands.add_parser(
        name, help=f"not installed: needs {missing}", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=refuse)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its function returns the exit code."""
    parsed = build_parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except BadInput as error:
        print(f"headgate: {error.message}", file=sys.stderr)
        return WRONG
    except CommitUnknown as error:
        key = error.evidence.get("key")
        known = "" if key is None or str(key) in error.message else f"; key={key}"
        print(f"headgate: {error.code}: {error.message}{known}", file=sys.stderr)
        return UNKNOWN
    except HeadgateError as error:
        print(f"headgate: {error.code}: {error.message}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("headgate: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
