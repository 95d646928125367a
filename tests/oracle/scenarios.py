"""The oracle's scenarios: lines of ../shared/oracle as values, what they ask on the wire, and how results compare.

Differences that are meant are kinds with a name, each explained in docs/adr/0006; anything else is a failure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PLACE = "mem://bucket/t"
SHARED = Path(os.environ.get("HEADGATE_SHARED", Path(__file__).parents[3] / "shared"))
ADR = Path(__file__).parents[2] / "docs" / "adr" / "0006-where-changes-differ-from-java.md"

_NOT_ON_THE_WIRE = frozenset(
    ("java", "kind", "label", "validations", "base-snapshot", "stale-request", "client-rederives-on-retry")
)
# Counters that the oracle leaves out of its summaries.
_UNRECORDED = frozenset(
    ("operation", "changed-partition-count", "added-files-size", "removed-files-size", "total-files-size")
)

_OLD_BRANCHES = frozenset(("main", "audit"))  # those that a setup has

Line = dict[str, Any]
Outcome = tuple[str, str] | None  # rule and message of a refusal; None: committed


@cache
def load_setups() -> dict[str, Any]:
    """The tables that scenarios start from."""
    found: dict[str, Any] = json.loads(_file("setups.json").read_text())
    return found


@cache
def load_lines() -> tuple[Line, ...]:
    """All scenarios."""
    return tuple(json.loads(line) for line in _file("verdicts.jsonl").read_text().splitlines())


def _file(name: str) -> Path:
    path = SHARED / "oracle" / name
    if not path.exists():
        pytest.skip(f"the oracle is not here: {path} is missing; HEADGATE_SHARED names its folder")
    return path


def lines_of_changes() -> Iterator[Line]:
    """Scenarios whose operation is a change; plain requests of other engines are the rest."""
    return (line for line in load_lines() if line["operation"]["kind"] == "snapshot")


def to_update(operation: Line, snapshot_ids: dict[str, int], place: str) -> Line:
    """The fine-grained update of an operation, with files below `place`."""
    wire = {key: value for key, value in operation.items() if key not in _NOT_ON_THE_WIRE}
    for name in ("add-data-files", "add-delete-files", "remove-delete-files"):
        if name in wire:
            wire[name] = [{k: v for k, v in file.items() if not k.startswith("x-")} for file in wire[name]]
    wire["commit-validations"] = operation["validations"]
    if operation.get("base-snapshot"):
        wire["base-snapshot-id"] = snapshot_ids[operation["base-snapshot"]]
    wire["create-branch"] = True
    moved: Line = json.loads(json.dumps(wire).replace(PLACE, place))
    return moved


def to_request(operation: Line, snapshot_ids: dict[str, int], uuid: str) -> Line:
    """The plain request of a metadata operation, with labels replaced by ids."""

    def replace(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("$"):
            return uuid if value == "$UUID" else snapshot_ids[value[1:]]
        if isinstance(value, dict):
            return {key: replace(inner) for key, inner in value.items()}
        return [replace(inner) for inner in value] if isinstance(value, list) else value

    found: Line = replace(operation.get("request") or operation["stale-request"])
    return found


def find_difference(expected: Line, got: Line, place: str) -> str | None:
    """Where a table differs from what Java left, or None."""
    if set(got) != set(expected["branches"]):
        return f"branches: want {sorted(expected['branches'])}, got {sorted(got)}"
    for name, want in expected["branches"].items():
        have = got[name]
        for key in ("operation", "sequence-number"):
            if want[key] != have[key]:
                return f"{name}.{key}: want {want[key]}, got {have[key]}"
        for key in ("data-files", "delete-files"):
            moved = json.loads(json.dumps(want[key]).replace(PLACE, place))
            if _sorted(moved) != _sorted(have[key]):
                return f"{name}.{key}: want {_sorted(moved)}, got {_sorted(have[key])}"
        summary = {k: v for k, v in have["summary"].items() if k not in _UNRECORDED}
        if summary != want["summary"]:
            return f"{name}.summary: want {want['summary']}, got {summary}"
    return None


def _sorted(files: list[Line]) -> list[Line]:
    return sorted(files, key=lambda file: (file["file-path"], file["data-sequence-number"]))


def judge(line: Line, outcome: Outcome, result: Callable[[], Line], place: str) -> str | None:
    """None when we agree with Java, the name of a difference that is meant, or `WRONG: …`."""
    want = line["verdict"]
    if want["outcome"] == "error":
        return "java-defect"
    if want["outcome"] == "rejected":
        if outcome is not None and outcome[0] == want["rule"]:
            return None
        return f"WRONG: want {want['rule']}, got {outcome}"
    if outcome is not None:
        if outcome[0] in ("already-live", "second-deletion-vector", "vector-without-data-file"):
            return outcome[0]
        if outcome[0] == "missing-required-removes" and line["operation"]["action"] == "overwrite":
            return "overwrite-of-a-missing-file"
        return f"WRONG: want committed, got {outcome}"
    difference = find_difference(line["result"], result(), place)
    branch = line["operation"]["branch"]
    if (
        difference is not None
        and branch not in _OLD_BRANCHES
        and difference.startswith(f"{branch}.summary: ")
    ):
        return "totals-of-a-new-branch"
    return None if difference is None else f"WRONG: {difference}"


ON_PURPOSE = (
    "already-live",
    "java-defect",
    "overwrite-of-a-missing-file",
    "second-deletion-vector",
    "totals-of-a-new-branch",
    "vector-without-data-file",
)
