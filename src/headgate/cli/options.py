"""Settings as command-line options: the same flags for every command that opens the catalog."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from headgate.service.settings import Settings
from headgate.service.settings_sources import flag_name, load_settings

CATALOG_SETTINGS = ("warehouse", "database", "allowed_locations", "s3_endpoint", "s3_region", "s3_path_style")
CONFIG_VARIABLE = "HEADGATE_CONFIG"


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str] | None = None) -> None:
    """Add a flag for each setting, or for the named ones. Secrets have none."""
    wanted = None if names is None else frozenset(names)
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings")
    for item in fields(Settings):
        if item.metadata["secret"] or (wanted is not None and item.name not in wanted):
            continue
        help = item.metadata["help"].replace("%", "%%")
        flag, default = flag_name(item.name), item.default
        if isinstance(default, bool):
            parser.add_argument(
                flag, dest=item.name, action=argparse.BooleanOptionalAction, default=None, help=help
            )
        elif isinstance(default, tuple):
            parser.add_argument(flag, dest=item.name, action="append", metavar="VALUE", help=help)
        else:
            shown = f"{help} (default: {default})" if default != "" else help
            parser.add_argument(flag, dest=item.name, metavar="VALUE", help=shown)


def read_settings(parsed: argparse.Namespace) -> Settings:
    """Settings from the parsed flags, the environment and the file."""
    given = vars(parsed)
    flags = {item.name: given[item.name] for item in fields(Settings) if item.name in given}
    config = parsed.config or os.environ.get(CONFIG_VARIABLE)
    return load_settings(flags, os.environ, Path(config) if config else None)
