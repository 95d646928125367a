"""`headgate version`."""

from __future__ import annotations

import argparse

from headgate import __version__


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    commands.add_parser("version", help="print the version").set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print it."""
    print(__version__)
    return 0
