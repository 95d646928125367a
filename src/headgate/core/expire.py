"""Which snapshots and refs of a table its own properties let go now. Pure; commits nothing and deletes nothing.

The rule is Java's (`RemoveSnapshots`): a ref other than `main` goes when its snapshot is older than the ref may
be. A branch that stays keeps its newest ancestors, at least `min-snapshots-to-keep` of them and then as long as
each is young enough; a tag that stays keeps its snapshot. What no ref that stays leads to (staged for audit, the
source of a cherry-pick, rolled back) is kept until it is older than the table's `max-snapshot-age-ms`. Ours is
the bound by count, `headgate.expire.max-snapshots`, and that a table must ask at all, `headgate.expire.enabled`.

Cost. With one age for all branches, and none over its bound, a snapshot older than that age goes unless it is
among the newest of a branch or a ref's own: no ancestry is needed to know. So the log is read from its oldest end
only as far as snapshots are old. Otherwise (a branch with an age of its own, a table over its bound) the whole
log is outlined once. Either way the oldest go first: what is left of a branch has no gap.

Races. Removing old snapshots commutes with a branch that moves on: what is kept for the old head covers what is
kept for its descendants. So branches are not asserted (on a busy table the expiry would lose every race), only
refs that go. `apply` refuses to remove a snapshot that a ref points at by then, whoever made it point there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from headgate.core.encoded_log import EncodedLog
from headgate.core.table import MAIN, SnapshotRef, TableMetadata
from headgate.core.updates import (
    AssertRefSnapshotId,
    AssertTableUuid,
    RemoveSnapshotRef,
    RemoveSnapshots,
    TableRequirement,
    TableUpdate,
)
from headgate.core.value import LONG_MAX
from headgate.errors import BadInput

ENABLED = "headgate.expire.enabled"
SNAPSHOTS_MAX = "headgate.expire.max-snapshots"
SNAPSHOT_AGE_MAX = "history.expire.max-snapshot-age-ms"
SNAPSHOTS_MIN = "history.expire.min-snapshots-to-keep"
REF_AGE_MAX = "history.expire.max-ref-age-ms"
GC_ENABLED = "gc.enabled"

SNAPSHOT_AGE_DEFAULT_MS = 5 * 24 * 60 * 60 * 1000
EXPIRED_MAX = 1000  # of one commit: each costs the reading of a manifest list
# Engines' clocks differ by up to a minute, so a snapshot may stand that much before an older one (see `apply`).
_DISORDER_MS = 120_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a table's properties say; a ref may have its own."""

    snapshot_age_max_ms: int = SNAPSHOT_AGE_DEFAULT_MS
    snapshots_min: int = 1
    ref_age_max_ms: int = LONG_MAX
    snapshots_max: int | None = None


@dataclass(frozen=True, slots=True)
class Expiry:
    """What goes: snapshots, oldest first, and refs with the snapshot that each points at."""

    snapshot_ids: tuple[int, ...]
    refs: tuple[tuple[str, int], ...] = ()


def wants_expiry(properties: Mapping[str, str], *, default: bool) -> bool:
    """Whether the service is to expire snapshots of this table; never where deleting files is ruled out."""
    if properties.get(GC_ENABLED, "true").lower() == "false":
        return False
    asked = properties.get(ENABLED, "").lower()
    return default if asked not in ("true", "false") else asked == "true"


def read_terms(properties: Mapping[str, str]) -> Terms:
    """The terms of a table. A value that is no number is BadInput: to guess would be to delete by a guess."""
    return Terms(
        snapshot_age_max_ms=_number(properties, SNAPSHOT_AGE_MAX, SNAPSHOT_AGE_DEFAULT_MS),
        snapshots_min=max(1, _number(properties, SNAPSHOTS_MIN, 1)),
        ref_age_max_ms=_number(properties, REF_AGE_MAX, LONG_MAX),
        snapshots_max=max(1, _number(properties, SNAPSHOTS_MAX, 1)) if SNAPSHOTS_MAX in properties else None,
    )


def find_expired(
    table: TableMetadata, terms: Terms, *, now_ms: int, expired_max: int = EXPIRED_MAX
) -> Expiry | None:
    """What may go now, the oldest `expired_max` snapshots of it; None when nothing may."""
    kept, gone = _judge_refs(table, terms, now_ms)
    cutoff_ms = now_ms - terms.snapshot_age_max_ms
    branches = [_Branch.of(ref, terms, now_ms) for ref in kept.values() if ref.type == "branch"]
    pinned = {ref.snapshot_id for ref in kept.values()}
    count = len(table.snapshots)
    if all(branch.cutoff_ms == cutoff_ms and branch.snapshots_max >= count for branch in branches):
        found = _find_old(table, branches, pinned, cutoff_ms)
    else:
        found = _find_outlined(table, branches, pinned, cutoff_ms)
    ids = tuple(id_ for id_, _ in zip(found, range(expired_max), strict=False))
    return Expiry(ids, tuple(sorted(gone.items()))) if ids or gone else None


def build_expiry(
    table: TableMetadata, expiry: Expiry
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """The plain commit that lets them go; `apply` drops the statistics of what is gone."""
    requirements: list[TableRequirement] = [AssertTableUuid(uuid=table.envelope.table_uuid)]
    # A ref that moved is young again; a branch that stays may move on, see above.
    requirements += [AssertRefSnapshotId(ref=name, snapshot_id=id_) for name, id_ in expiry.refs]
    updates: list[TableUpdate] = [RemoveSnapshotRef(ref_name=name) for name, _ in expiry.refs]
    if expiry.snapshot_ids:
        updates.append(RemoveSnapshots(snapshot_ids=expiry.snapshot_ids))
    return tuple(requirements), tuple(updates)


class _Outline(msgspec.Struct, frozen=True, gc=False, rename="kebab"):
    """As much of a snapshot as the rule looks at: a third of the cost of decoding it whole."""

    snapshot_id: int
    timestamp_ms: int
    parent_snapshot_id: int | None = None


_OUTLINE = msgspec.json.Decoder(_Outline)
_OUTLINES = msgspec.json.Decoder(list[_Outline])


@dataclass(frozen=True, slots=True)
class _Branch:
    """What one branch keeps: from its head on, the first `snapshots_min`, then the young ones up to a bound."""

    head_id: int
    cutoff_ms: int
    snapshots_min: int
    snapshots_max: int

    @staticmethod
    def of(ref: SnapshotRef, terms: Terms, now_ms: int) -> _Branch:
        age_ms = terms.snapshot_age_max_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
        least = terms.snapshots_min if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        most = LONG_MAX if terms.snapshots_max is None else max(terms.snapshots_max, least)
        return _Branch(ref.snapshot_id, now_ms - age_ms, least, most)

    def keeps(self, number: int, timestamp_ms: int) -> bool:
        """Whether the ancestor of this number stays, the head being number 0."""
        return number < self.snapshots_min or (timestamp_ms >= self.cutoff_ms and number < self.snapshots_max)


def _judge_refs(
    table: TableMetadata, terms: Terms, now_ms: int
) -> tuple[dict[str, SnapshotRef], dict[str, int]]:
    """Refs that stay, and refs that go with what they point at."""
    kept: dict[str, SnapshotRef] = {}
    gone: dict[str, int] = {}
    for name, ref in table.envelope.refs.items():
        age_max_ms = terms.ref_age_max_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        outline = _find_outline(table.snapshots, ref.snapshot_id)
        if name == MAIN or outline is None or now_ms - outline.timestamp_ms <= age_max_ms:
            kept[name] = ref
        else:
            gone[name] = ref.snapshot_id
    return kept, gone


def _find_old(
    table: TableMetadata, branches: list[_Branch], pinned: set[int], cutoff_ms: int
) -> Iterator[int]:
    """Snapshots older than the one age of all branches that none of them keeps by number."""
    kept: set[int] | None = None
    for item in table.snapshots:
        timestamp_ms = _OUTLINE.decode(item.body).timestamp_ms
        if timestamp_ms >= cutoff_ms + _DISORDER_MS:
            return
        if timestamp_ms >= cutoff_ms or item.key in pinned:
            continue
        if kept is None:
            kept = {id_ for branch in branches for id_ in _newest(table.snapshots, branch)}
        if item.key not in kept:
            yield item.key


def _newest(log: EncodedLog, branch: _Branch) -> Iterator[int]:
    outline = _find_outline(log, branch.head_id)
    for _ in range(min(branch.snapshots_min, len(log))):
        if outline is None:
            return
        yield outline.snapshot_id
        parent = outline.parent_snapshot_id
        outline = None if parent is None else _find_outline(log, parent)


def _find_outlined(
    table: TableMetadata, branches: list[_Branch], pinned: set[int], cutoff_ms: int
) -> Iterator[int]:
    """The whole rule, over an outline of the whole log."""
    parts = table.snapshots.parts()  # blocks, each decoded whole
    outlines = {o.snapshot_id: o for part in parts for o in _OUTLINES.decode(b"[%b]" % part)}
    kept, referenced = set(pinned), set[int]()
    for branch in branches:
        kept.update(_kept_by(branch, outlines))
        for outline in _walk(outlines, branch.head_id):
            if outline.snapshot_id in referenced:
                break  # another branch has led here, and to all before it
            referenced.add(outline.snapshot_id)
    for id_, outline in outlines.items():
        if id_ not in kept and (id_ in referenced or outline.timestamp_ms < cutoff_ms):
            yield id_


def _kept_by(branch: _Branch, outlines: Mapping[int, _Outline]) -> Iterator[int]:
    for number, outline in enumerate(_walk(outlines, branch.head_id)):
        if not branch.keeps(number, outline.timestamp_ms):
            return
        yield outline.snapshot_id


def _walk(outlines: Mapping[int, _Outline], id_: int | None) -> Iterator[_Outline]:
    """A snapshot and its ancestors, as far as they are there; a history with a cycle ends too."""
    for _ in outlines:
        if id_ is None or (outline := outlines.get(id_)) is None:
            return
        yield outline
        id_ = outline.parent_snapshot_id


def _find_outline(log: EncodedLog, id_: int) -> _Outline | None:
    item = log.find(id_)
    return None if item is None else _OUTLINE.decode(item.body)


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if re.fullmatch("[0-9]{1,18}", text) is None and text != str(LONG_MAX):
        raise BadInput(f"{name} is not a number that can be used: {text[:80]!r}", field=name)
    return int(text)
