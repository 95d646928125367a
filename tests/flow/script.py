"""Plays the commit conversation against a script: loads and swaps are answered from a list, the rest from memory.

script = play(commit_flow((appends(lake),), key="k"), [at(lake, 3), SwapLost()])
assert not script.yielded(Discard)
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.core.build import AppendFiles, WriteManifest, WriteManifestList
from headgate.core.change import Append, ChangeUpdate
from headgate.core.commit import (
    Answer,
    Discard,
    Head,
    Load,
    Loaded,
    Member,
    Swap,
    Swapped,
    TableCommit,
    Target,
    Verdict,
    Wait,
)
from headgate.core.live import FindLive
from headgate.core.manifest_merge import MergeManifests
from headgate.core.updates import TableRequirement, TableUpdate
from headgate.core.window import ReadChanges, ReadOwn, find_list
from headgate.errors import HeadgateError, StorageFailed
from tests.properties.lake import Lake, Row, Variant, new_lake

E = TypeVar("E")
TARGET: Target = (("db",), "t")
NOW_MS = 1_700_000_100_000
LANDS = "lands"  # answers a swap as a store that published it does


@dataclass
class Script:
    """What the conversation asked for, in order, and how it ended; no verdict: the script ran out.

    `verdict` is of a commit, `verdicts` are of a group.
    """

    effects: list[Any] = field(default_factory=list)
    verdict: Verdict | None = None
    verdicts: tuple[Verdict, ...] = ()

    def yielded(self, kind: type[E]) -> list[E]:
        """All effects of a kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def steps(self) -> list[str]:
        """The steps of the protocol by name, without what it took to judge and build."""
        return [
            type(effect).__name__
            for effect in self.effects
            if isinstance(effect, Load | Swap | Discard | Wait)
        ]

    @property
    def group_steps(self) -> list[str]:
        """As `steps`, with the members that are answered before the end."""
        return [
            f"Answer {effect.member}" if isinstance(effect, Answer) else type(effect).__name__
            for effect in self.effects
            if isinstance(effect, Load | Swap | Discard | Wait | Answer)
        ]

    @property
    def written(self) -> set[str]:
        """Files of all candidates that were sent."""
        return {path for swap in self.yielded(Swap) for c in swap.candidates for path in c.written}

    @property
    def discarded(self) -> set[str]:
        """Files that were given up."""
        return {path for discard in self.yielded(Discard) for c in discard.candidates for path in c.written}


def play(
    conversation: Generator[Any, Any, Verdict | tuple[Verdict, ...]],
    replies: Iterable[Any],
    *lakes: Lake,
    failing: tuple[type[Any], int] | None = None,
) -> Script:
    """Answer loads and swaps from the script, reads and writes of manifests from the tables' memory.

    A reply may be a function of what was asked so far.
    `failing` is a kind of effect and which one of that kind, from 1 on, fails.
    """
    script, answers, reply = Script(), list(replies), None
    failed = False
    while True:
        try:
            effect = conversation.throw(StorageFailed("disk full")) if failed else conversation.send(reply)
        except StopIteration as stop:
            if isinstance(stop.value, tuple):
                script.verdicts = stop.value
            else:
                script.verdict = stop.value
            assert not answers, f"the conversation ended with replies left: {answers}"
            return script
        script.effects.append(effect)
        failed = (type(effect), len(script.yielded(type(effect)))) == failing
        if failed:
            continue
        if isinstance(effect, Load | Swap):
            if not answers:
                return script
            reply = answers.pop(0)
            reply = reply(script) if callable(reply) else reply
            reply = publish(effect) if reply == LANDS and isinstance(effect, Swap) else reply
        elif isinstance(effect, Discard | Wait | Answer):
            reply = None
        else:
            reply = _answer(effect, lakes)


def _answer(effect: Any, lakes: tuple[Lake, ...]) -> Any:
    if isinstance(effect, AppendFiles | WriteManifest | WriteManifestList):
        return lakes[0].world.answer(effect)
    for lake in lakes:
        path = _path_of(effect)
        if path in lake.world.lists or path in lake.world.manifests:
            return lake.world.answer(effect)
    raise AssertionError(f"nobody wrote {effect}")


def _path_of(effect: Any) -> str:
    """A file that the effect is about, to know whose it is."""
    if isinstance(effect, ReadOwn):
        return find_list(effect.snapshots[0])
    if isinstance(effect, ReadChanges | MergeManifests):
        return effect.manifests[0].manifest_path
    if isinstance(effect, FindLive):
        return next(iter(effect.manifests)).manifest_path
    return str(getattr(effect, "location", None) or effect.manifest.manifest_path)


def publish(swap: Swap) -> Swapped:
    """The answer of a store that published all candidates."""
    return Swapped(
        tuple(
            Head(
                "new" if c.base is None else c.base.id,
                1 if c.base is None else c.base.version + 1,
                c.metadata,
                "m",
                None,
            )
            for c in swap.candidates
        )
    )


def head(lake: Lake, version: int, id_: str = "t") -> Head:
    """The table as it is now, under this version."""
    return Head(id_, version, lake.table, f"v{version}.json", None)


def at(lake: Lake, version: int, *, landed: bool = False, now_ms: int = NOW_MS) -> Loaded:
    """A load that finds the table at this version."""
    return Loaded((head(lake, version),), frozenset({0} if landed else ()), now_ms)


def at_group(
    lake: Lake,
    version: int,
    *,
    landed: Iterable[int] = (),
    settled: Mapping[int, HeadgateError] | None = None,
    is_hint: bool = False,
) -> Loaded:
    """A load for a group that finds the table at this version, and these members' keys."""
    return Loaded((head(lake, version),), frozenset(landed), NOW_MS, settled or {}, is_hint)


def member(*updates: TableUpdate | ChangeUpdate, key: str, fold: bool | None = None, **more: Any) -> Member:
    """A request of a group, about one table."""
    return Member(key, (commit_of(*updates, **more),), fold)


def lake_of(rows: int = 1, *, version: int = 2, spec: str = "unpartitioned") -> Lake:
    """A table with some rows, each in a file and a commit of its own."""
    lake = new_lake(Variant(version, spec))
    for n in range(rows):
        append(lake, n)
    return lake


def append(lake: Lake, id_: int) -> None:
    """Somebody else commits a row."""
    added = Append(add_data_files=lake.put_data([Row(f"theirs.{id_}", id_, "a", 0)]))
    lake.commit(added, key=f"theirs {lake.made}")


def adds(lake: Lake, *ids: int, **more: Any) -> Append:
    """An append of rows in one file."""
    return Append(add_data_files=lake.put_data([Row(f"ours.{id_}", id_, "a", 0) for id_ in ids]), **more)


def commit_of(
    *updates: TableUpdate | ChangeUpdate,
    target: Target = TARGET,
    requirements: tuple[TableRequirement, ...] = (),
    reads: ChangeUpdate | None = None,
) -> TableCommit:
    """One table's part."""
    return TableCommit(target, requirements, updates, reads)


def candidate_rows(lake: Lake, swap: Swap, index: int = 0) -> list[str]:
    """The rows that a reader would see if this swap landed."""
    seen = Lake(
        lake.variant, swap.candidates[index].metadata, lake.world, lake.rows, lake.positions, lake.keys
    )
    return sorted(one.row.tag for one in seen.read(seen.head))
