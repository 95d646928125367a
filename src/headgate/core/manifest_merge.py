"""Manifest compaction: which manifests a commit merges. Values only, no I/O; what they become is `merged_entries`.

Two strategies, tried in this order (docs/manifests.md):

- full: manifests that are small or carry entries of removed files are merged once they add up to a threshold;
- minor: small manifests are merged in tiers. A tier holds manifests of about the same number of entries, each
  tier a fan-in larger than the one before; when one is full, its manifests become one of the next tier. So an
  entry is merged once per tier and not, as where all small manifests become one again and again, once per merge.

A commit merges what its budget allows and leaves the rest, as `deferred`, to a background commit. Manifests that a
commit writes itself are merged by later commits: so a merged manifest holds what was there before, does not depend
on the attempt that wrote it, and brings no file that a judge of the window would have to look for in it.

What must hold: merging changes neither which files are live nor their sequence numbers, snapshot ids and row ids.
"""

from __future__ import annotations

import re
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice, takewhile

from headgate.core.manifest import ManifestContent, ManifestFile
from headgate.core.table import TableMetadata
from headgate.core.value import Record

MERGE_ENABLED = "commit.manifest-merge.enabled"
TARGET_SIZE_BYTES = "commit.manifest.target-size-bytes"
MIN_COUNT = "commit.manifest.min-count-to-merge"
FULL_SIZE_BYTES = "commit.manifest.full-compaction-threshold-bytes"

_MIB = 1024 * 1024
_TIERS = 4  # how many a table has before its manifests reach the target, with the defaults: 1, 25, 625, 15,625 entries
_LOOK_MAX = 1024
_ENTRY_BYTES = 256  # of an entry whose manifest does not say how many it has, roughly
_IDLE_OTHERS_MIN = 8
_IDLE_SHARE = 8

Bin = tuple[ManifestFile, ...]  # manifests to be merged into one, newest first


class MergeKind(StrEnum):
    """Which rule wants a merge."""

    FULL = "full"
    MINOR = "minor"


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """What a table's properties say about merging."""

    enabled: bool = True
    target_size_bytes: int = 8 * _MIB
    min_count: int = 100
    full_size_bytes: int = 16 * _MIB

    @property
    def fan_in(self) -> int:
        """How many manifests of one tier become one of the next: all tiers together stay below `min_count`."""
        return max(2, self.min_count // _TIERS)


def parse_policy(properties: Mapping[str, str]) -> MergePolicy:
    """The policy of a table; a value that is no number counts as the default.

    Refusing it here would refuse every commit to the table for what another engine once let pass.
    """
    default = MergePolicy()
    return MergePolicy(
        enabled=properties.get(MERGE_ENABLED, "true").lower() == "true",  # as Java reads it
        target_size_bytes=_number(properties, TARGET_SIZE_BYTES, default.target_size_bytes),
        min_count=_number(properties, MIN_COUNT, default.min_count),
        full_size_bytes=_number(properties, FULL_SIZE_BYTES, default.full_size_bytes),
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else default


@dataclass(frozen=True, slots=True)
class Budget:
    """What one commit may spend on merging.

    `entries` are those to be encoded anew; `size_bytes` are all that is read and written, also by copying blocks;
    `look` is how many manifests are looked at, so that planning costs the same whatever the table holds.
    """

    entries: int
    size_bytes: int
    look: int

    def without(self, merged: Bin) -> Budget:
        """What is left after one merge; less than nothing when it was not allowed."""
        entries, size_bytes = _cost(merged)
        return Budget(self.entries - entries, self.size_bytes - size_bytes, self.look)

    @property
    def is_kept(self) -> bool:
        """Whether no more was spent than there was."""
        return self.entries >= 0 and self.size_bytes >= 0


COMMIT_BUDGET = Budget(entries=128, size_bytes=512 * 1024, look=128)
BACKGROUND_BUDGET = Budget(entries=5_000, size_bytes=32 * _MIB, look=1_000_000)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What to merge now. `deferred`: a rule wants more than the budget allows; a background commit should do it."""

    kind: MergeKind | None = None
    bins: tuple[Bin, ...] = ()
    deferred: MergeKind | None = None


class Rest(Record):
    """How much may come in front of manifests of which `plan_merge` merges nothing, until it may merge something.

    Counted in manifests of the lowest tier: they lengthen no run but the one at the front.
    """

    policy: MergePolicy
    manifests: int
    size_bytes: int

    def after(self, new: Iterable[ManifestFile]) -> Rest | None:
        """What is left of it when these have come; None when it is time to plan again."""
        manifests, size_bytes = self.manifests, self.size_bytes
        for manifest in new:
            if _entries(manifest) >= self.policy.fan_in:
                return None  # of a higher tier: what stands behind it may be its neighbours now
            manifests -= 1
            size_bytes -= manifest.manifest_length
        return Rest(self.policy, manifests, size_bytes) if manifests >= 0 and size_bytes > 0 else None


@dataclass(frozen=True, slots=True)
class AddedTwice:
    """Files that are live in more than one entry, so that merging would have to choose between them."""

    files: tuple[str, ...]

    @property
    def message(self) -> str:
        """For people."""
        return f"files were added twice, so their manifests are not merged: {', '.join(self.files)}"


@dataclass(frozen=True, slots=True)
class MergeManifests:
    """Write one manifest of what these manifests hold, as `merge_entries` says.

    Answered by its `ManifestFile`, by None when nothing is left to hold, or by a finding when they may not be merged.
    """

    manifests: Bin
    spec_id: int
    content: ManifestContent
    snapshot_id: int
    sequence_number: int
    table: TableMetadata


MergeReply = ManifestFile | AddedTwice | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Manifests that may not be merged, and why. Planning leaves them out when told so."""

    manifests: Bin
    reason: AddedTwice


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a plan: by path, what stands in a manifest's place; None: it is left out.

    The merged manifest stands where the newest of those it holds stood.
    """

    replaced: Mapping[str, ManifestFile | None]
    written: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    entries_processed: int

    def count_manifests(self, *, new: int, listed: int) -> dict[str, str]:
        """Java's counters for a summary: `listed` manifests in the list, `new` of them written by the change itself."""
        created = len(self.written) + new
        return {
            "manifests-created": str(created),
            "manifests-kept": str(listed - created),
            "manifests-replaced": str(len(self.replaced)),
        }

    def count_rewrite(self, *, listed: int) -> dict[str, str]:
        """The summary of a background commit, whose operation is `replace`."""
        return self.count_manifests(new=0, listed=listed) | {"entries-processed": str(self.entries_processed)}


# --- what to merge --------------------------------------------------------------------------------------


def plan_merge(
    kept: Iterable[ManifestFile],
    policy: MergePolicy,
    *,
    budget: Budget = COMMIT_BUDGET,
    skip: Container[str] = frozenset(),
) -> MergePlan:
    """What a commit merges of the manifests that it takes over unchanged, newest first.

    `skip` holds paths of manifests that were refused before.
    """
    if not policy.enabled:
        return MergePlan()
    groups = _group(islice(kept, _look(budget, policy)), skip)
    full = _find_full(groups, policy)
    if full and budget.without(tuple(m for part in full for m in part)).is_kept:
        return MergePlan(MergeKind.FULL, full)
    deferred = MergeKind.FULL if full else None
    bins: list[Bin] = []
    for group in groups:
        for run in _find_runs(group, policy):
            part = _largest_part(run, budget, policy)
            if len(part) < len(run) and deferred is None:
                deferred = MergeKind.MINOR
            if part:
                bins.append(part)
                budget = budget.without(part)
                break  # one merge of a group at a time: the next tier has the next commit
    return MergePlan(MergeKind.MINOR if bins else None, tuple(bins), deferred)


def find_rest(
    kept: Iterable[ManifestFile], policy: MergePolicy, *, budget: Budget = COMMIT_BUDGET
) -> Rest | None:
    """For how long `plan_merge` merges nothing, given that it merges nothing of these; None when that is not known.

    What it looks at only shrinks at the old end meanwhile, and of fewer manifests it does not merge more.
    """
    groups = _group(islice(kept, _look(budget, policy)), frozenset())
    size_bytes = policy.full_size_bytes - _find_size_bytes(_find_candidates(groups, policy))
    front = max(
        (sum(1 for _ in takewhile(partial(_is_lowest, policy), group)) for group in groups), default=0
    )
    manifests = policy.fan_in - 1 - front
    return Rest(policy, manifests, size_bytes) if manifests >= 0 and size_bytes > 0 else None


def _look(budget: Budget, policy: MergePolicy) -> int:
    return min(max(budget.look, 2 * policy.fan_in), _LOOK_MAX)


def _is_lowest(policy: MergePolicy, manifest: ManifestFile) -> bool:
    return manifest.manifest_length < policy.target_size_bytes and _entries(manifest) < policy.fan_in


def background_change(
    manifests: Iterable[ManifestFile],
    policy: MergePolicy,
    *,
    idle: bool,
    budget: Budget = BACKGROUND_BUDGET,
    skip: Container[str] = frozenset(),
) -> MergePlan | None:
    """What a background commit of operation `replace` merges of a head's manifests, newest first, or None.

    `idle`: no writer came for a while, so that what they would merge themselves may be merged for the readers.
    `deferred` says that another such commit has more to do.
    """
    if not policy.enabled:
        return None
    groups = _group(islice(manifests, budget.look), skip)
    if full := _find_full(groups, policy):
        return _within(MergeKind.FULL, full, budget, policy)
    wanted: list[Bin] = []
    for group in groups:
        *closed, remainder = _pack(group, policy)
        wanted += closed
        if len(remainder) > policy.min_count or (idle and _is_scattered(group, policy)):
            wanted.append(remainder)
        else:
            wanted += islice(_find_runs(remainder, policy), 1)
    return _within(MergeKind.MINOR, tuple(part for part in wanted if len(part) > 1), budget, policy)


def _within(
    kind: MergeKind, wanted: tuple[Bin, ...], budget: Budget, policy: MergePolicy
) -> MergePlan | None:
    """As much as the budget allows; if that is nothing, then the least that is something, or it would stay for ever."""
    bins: list[Bin] = []
    for part in wanted:
        fits = budget.without(part).is_kept
        if taken := part if fits else _largest_part(part, budget, policy):
            bins.append(taken)
            budget = budget.without(taken)
    if wanted and not bins:
        bins = [wanted[0][-2:]]
    if not bins:
        return None
    return MergePlan(kind, tuple(bins), None if tuple(bins) == wanted else kind)


def _group(manifests: Iterable[ManifestFile], skip: Container[str]) -> tuple[Bin, ...]:
    """Manifests that may share one, in order: those of one spec and content."""
    groups: dict[tuple[int, ManifestContent], list[ManifestFile]] = {}
    for manifest in manifests:
        # An encrypted one cannot be read here.
        if manifest.key_metadata is None and manifest.manifest_path not in skip:
            groups.setdefault((manifest.partition_spec_id, manifest.content), []).append(manifest)
    return tuple(map(tuple, groups.values()))


def _find_full(groups: tuple[Bin, ...], policy: MergePolicy) -> tuple[Bin, ...]:
    """The bins of a full compaction, if there is enough to do. Big manifests without removed files stay as they are."""
    candidates = _find_candidates(groups, policy)
    if _find_size_bytes(candidates) < policy.full_size_bytes:
        return ()
    bins = (part for group in candidates if group for part in _pack(group, policy))
    return tuple(part for part in bins if len(part) > 1 or part[0].deleted_files_count)


def _find_candidates(groups: tuple[Bin, ...], policy: MergePolicy) -> list[Bin]:
    return [
        tuple(m for m in group if m.manifest_length < policy.target_size_bytes or m.deleted_files_count)
        for group in groups
    ]


def _find_size_bytes(groups: Iterable[Bin]) -> int:
    return sum(m.manifest_length for group in groups for m in group)


def _pack(group: Bin, policy: MergePolicy) -> list[Bin]:
    """Neighbours up to the target size, filled from the oldest on: the one that may be half empty is the last here.

    Two neighbours are never smaller than the target together, so a packed group has less than twice the bins it needs.
    """
    bins: list[Bin] = []
    part: list[ManifestFile] = []
    size_bytes = 0
    for manifest in reversed(group):
        if part and size_bytes + manifest.manifest_length > policy.target_size_bytes:
            bins.append(tuple(reversed(part)))
            part, size_bytes = [], 0
        part.append(manifest)
        size_bytes += manifest.manifest_length
    return [*bins, tuple(reversed(part))]


def _find_runs(group: Bin, policy: MergePolicy) -> Iterator[Bin]:
    """Runs of neighbours that fill a tier, smallest tier first; smaller ones that are caught between them go along."""
    fan_in = policy.fan_in
    tiers: list[int] = []
    for manifest in group:
        if manifest.manifest_length >= policy.target_size_bytes:
            break  # nothing is merged across what is big enough
        tiers.append(_tier(_entries(manifest), fan_in))
    for tier in sorted(set(tiers)):
        start = next(n for n, other in enumerate(tiers) if other >= tier)
        end = next((n for n in range(start, len(tiers)) if tiers[n] > tier), len(tiers))
        if end - start >= fan_in:
            yield group[start:end]


def _tier(entries: int, fan_in: int) -> int:
    tier = 0
    while entries >= fan_in:  # at most 63 turns
        entries //= fan_in
        tier += 1
    return tier


def _largest_part(run: Bin, budget: Budget, policy: MergePolicy) -> Bin:
    """The most neighbours of a run that budget and target size allow, the older the better; fewer than two are none."""
    size_max = min(budget.size_bytes, policy.target_size_bytes)
    costs = [_cost((manifest,)) for manifest in run]
    best, start, entries, size_bytes = run[:0], 0, 0, 0
    for end, (more_entries, more_bytes) in enumerate(costs, start=1):
        entries, size_bytes = entries + more_entries, size_bytes + more_bytes
        while start < end and (entries > budget.entries or size_bytes > size_max):
            entries, size_bytes = entries - costs[start][0], size_bytes - costs[start][1]
            start += 1
        if end - start >= max(2, len(best)):
            best = run[start:end]
    return best


def _is_scattered(group: Bin, policy: MergePolicy) -> bool:
    """Whether readers open more than twice the manifests that are needed, and merging does not redo all for a few.

    Without the second, a writer that commits every few seconds would be followed by a rewrite each time.
    """
    size_bytes = sum(m.manifest_length for m in group)
    ideal = max(1, -(-size_bytes // max(1, policy.target_size_bytes)))
    if len(group) <= 2 * ideal:
        return False
    largest = max(map(_entries, group))
    others = sum(map(_entries, group)) - largest
    return len(group) > _IDLE_OTHERS_MIN or others * _IDLE_SHARE >= largest


def _entries(manifest: ManifestFile) -> int:
    added, existing = manifest.added_files_count, manifest.existing_files_count
    deleted = manifest.deleted_files_count
    if added is None or existing is None or deleted is None:
        return max(1, manifest.manifest_length // _ENTRY_BYTES)
    return added + existing + deleted


def _cost(merged: Bin) -> tuple[int, int]:
    """Entries to be encoded anew, and bytes. Where all entries are existing ones, their blocks can be copied."""
    anew = (m for m in merged if m.added_files_count != 0 or m.deleted_files_count != 0)
    return sum(map(_entries, anew)), sum(m.manifest_length for m in merged)


# --- carrying out a plan --------------------------------------------------------------------------------


def merge(
    plan: MergePlan, table: TableMetadata, *, snapshot_id: int, sequence_number: int
) -> Generator[MergeManifests, MergeReply, Merged]:
    """Carry out a plan. Manifests that may not be merged stay: an old fault is no reason to refuse a commit."""
    replaced: dict[str, ManifestFile | None] = {}
    written: list[str] = []
    refusals: list[Refusal] = []
    entries = 0
    for merged in plan.bins:
        newest = merged[0]
        reply = yield MergeManifests(
            merged, newest.partition_spec_id, newest.content, snapshot_id, sequence_number, table
        )
        if isinstance(reply, AddedTwice):
            refusals.append(Refusal(merged, reply))
            continue
        if reply is not None:
            written.append(reply.manifest_path)
        replaced.update(dict.fromkeys(m.manifest_path for m in merged))
        replaced[newest.manifest_path] = reply
        entries += sum(map(_entries, merged))
    return Merged(replaced, tuple(written), tuple(refusals), entries)
