"""What the service answers, as values: a loaded table, a commit that landed. Reads full and minimal answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.client.resend import Sure
from headgate.errors import CommitUnknown, NotFound

MAIN = "main"
_MINIMAL = "return=minimal"


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as it was at one point in time. `metadata` is the table metadata of the specification."""

    metadata: Mapping[str, Any]
    metadata_location: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)  # how its files are reached

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        found: Mapping[str, str] = self.metadata.get("properties", {})
        return found

    @property
    def location(self) -> str:
        """Where the table's files are."""
        return str(self.metadata["location"])

    def snapshot_id(self, branch: str = MAIN) -> int | None:
        """The head of a branch: the base of work that begins now. None for a table without snapshots."""
        ref = self.metadata.get("refs", {}).get(branch)
        if ref is not None:
            return int(ref["snapshot-id"])
        if branch != MAIN:
            raise NotFound(f"Branch does not exist: {branch}", kind="branch")
        current = self.metadata.get("current-snapshot-id")
        return None if current in (None, -1) else int(current)


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that landed, once. `sent` is how often it had to be asked for.

    From a service that answers in full instead of `return=minimal`, `snapshot_id` is the branch's head at the
    time of the answer; after a resend somebody's later commit may stand there.
    """

    key: str
    metadata_location: str | None = None
    snapshot_id: int | None = None
    sequence_number: int | None = None
    sent: int = 1


def read_committed(sure: Sure, *, key: str, branch: str = MAIN, stage_only: bool = False) -> Committed:
    """The result of one table's commit."""
    try:
        raw = msgspec.json.decode(sure.answer.body, type=dict[str, Any]) if sure.answer.body else {}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # some proxy's page
        raise CommitUnknown(
            f"the outcome of this commit is not known: the answer was {sure.answer.status}, and no JSON; key={key}",
            key=key,
        ) from error
    snapshot: Mapping[str, Any] = raw
    if "metadata" in raw:  # the whole table, from a service or proxy that does not know the preference
        snapshot = _head_snapshot(raw["metadata"], branch, stage_only=stage_only) or {}
    return Committed(
        key=key,
        metadata_location=raw.get("metadata-location"),
        snapshot_id=snapshot.get("snapshot-id"),
        sequence_number=snapshot.get("sequence-number"),
        sent=sure.sent,
    )


def minimal_headers(*, fold: bool = False) -> dict[str, str]:
    """Ask for the snapshot and the metadata location only, not for the whole table; with `fold`, for a shared snapshot."""
    return {"Prefer": f"{_MINIMAL}, group=fold" if fold else _MINIMAL}


def _head_snapshot(metadata: Mapping[str, Any], branch: str, *, stage_only: bool) -> Mapping[str, Any] | None:
    snapshots = metadata.get("snapshots") or []
    if stage_only:
        return max(snapshots, key=lambda one: one.get("sequence-number", 0), default=None)
    ref = metadata.get("refs", {}).get(branch)
    wanted = metadata.get("current-snapshot-id") if ref is None else ref["snapshot-id"]
    return next((one for one in snapshots if one["snapshot-id"] == wanted), None)
