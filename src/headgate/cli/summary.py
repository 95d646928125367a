"""The end of a command: what it did, as a table for people or as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Fact = str | int | float | bool | None


def print_summary(title: str, facts: Mapping[str, Fact], *, as_json: bool) -> None:
    """Print the facts; those that are None only in JSON."""
    if as_json:
        named = {name.replace(" ", "-"): value for name, value in facts.items()}
        print(msgspec.json.encode({"command": title, **named}).decode())
        return
    known = {name: _shown(value) for name, value in facts.items() if value is not None}
    width = max((len(name) for name in known), default=0)
    print("\n".join([title, *(f"  {name:{width}}  {text}" for name, text in known.items())]))


def commit_facts(committed: Any) -> dict[str, Fact]:
    """What a commit of ours tells of itself; a `Committed`, or None when there was nothing to commit."""
    if committed is None:
        return {"commit": "nothing to commit"}
    return {"snapshot": str(committed.snapshot_id), "key": committed.key}


def shown_size(size_bytes: int) -> str:
    """A size for people."""
    size, unit = float(size_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _shown(value: Fact) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else _printable(str(value))


def _printable(text: str) -> str:
    # Reasons and names come from tables: an escape code or a line break must not reach a terminal.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
