"""The values of the commit conversation: what is committed, what is asked of the driver, and the verdicts. No rules.

The conversation itself is in `flow`, the judging of its members in `group`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headgate.core.build import PlanEffect, PlanReply
from headgate.core.change import ChangeUpdate
from headgate.core.table import MetadataLogEntry, TableMetadata
from headgate.core.updates import AssertCreate, TableRequirement, TableUpdate
from headgate.core.value import Record
from headgate.errors import CommitUnknown, HeadgateError

Target = tuple[tuple[str, ...], str]  # namespace levels and name


class TableCommit(Record):
    """The commit of one table: what must hold, and what to change, by plain updates and by changes, in order.

    `reads` is a read set: validations without a change. A table with a read set alone is judged, not written.
    `field` is where the commit stands in its request, as the names of its fields begin. `properties` are those that
    the writer changes, as he read them: a property that somebody else changed meanwhile is a conflict.
    """

    target: Target
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate | ChangeUpdate, ...]
    reads: ChangeUpdate | None = None
    field: str = ""
    properties: Mapping[str, str | None] = msgspec.field(default_factory=dict)

    def path(self, part: str) -> str:
        """A field of this commit as errors name it."""
        return f"{self.field}.{part}" if self.field else part

    def creates(self) -> bool:
        """Whether it makes the table."""
        return any(isinstance(requirement, AssertCreate) for requirement in self.requirements)


class Member(Record):
    """One request of a group. `fold`: its append may share a snapshot with others'; None: as the table says."""

    key: str
    commits: tuple[TableCommit, ...]
    fold: bool | None = None


class Head(Record):
    """A table as it is now. `version` is the token that a swap expects."""

    id: str
    version: int
    metadata: TableMetadata
    metadata_location: str
    checkpoint: MetadataLogEntry | None  # the newest metadata file known to be written


class Candidate(Record):
    """Built metadata that nobody can see yet. `base` is None for a table being created."""

    target: Target
    base: Head | None
    metadata: TableMetadata
    written: tuple[str, ...] = ()  # manifests and lists written for it
    updates: tuple[TableUpdate, ...] = ()  # what was applied, changes as the plain updates they amount to


# --- effects and replies --------------------------------------------------------------------------------


class Load(Record):
    """Read all heads at one point in time, and which members' keys are stored. Answered by `Loaded`.

    Unless `fresh`, heads that the driver remembers will do.
    """

    targets: tuple[Target, ...]
    attempt: int
    fresh: bool = True


class Loaded(Record, gc=True):
    """Heads in the order asked; members whose key is stored (`landed`), or was stored by a refusal (`settled`)."""

    heads: tuple[Head | None, ...]
    landed: frozenset[int]
    now_ms: int
    settled: Mapping[int, HeadgateError] = msgspec.field(default_factory=dict)
    is_hint: bool = False


class Share(Record):
    """What one member has in a swap, by table; `shares_with` is the member whose snapshot it was folded into."""

    member: int
    parts: tuple[tuple[Target, tuple[TableUpdate, ...]], ...]
    shares_with: int | None = None


class Refusal(Record, gc=True):
    """Why a member is refused, and whether that rests on what others of its group are about to publish."""

    error: HeadgateError
    rests_on_group: bool


class Judged(Record, gc=True):
    """A group judged: candidates by table, each member's share of them, heads that were only read, refusals."""

    candidates: tuple[Candidate, ...]
    unchanged: tuple[Head, ...] = ()
    shares: tuple[Share, ...] = ()
    refusals: Mapping[int, Refusal] = msgspec.field(default_factory=dict)
    unwanted: tuple[Candidate, ...] = ()  # what was written for members that were refused


class Swap(Record):
    """Write what must be written before, then publish all candidates in one transaction with the members' keys.

    `unchanged` are heads that were only read: the same transaction must find them as they were.
    """

    candidates: tuple[Candidate, ...]
    unchanged: tuple[Head, ...]
    attempt: int
    shares: tuple[Share, ...] = ()


class Swapped(Record):
    """The transaction committed. `heads` are the new ones, in the order of the candidates."""

    heads: tuple[Head, ...]


class SwapLost(Record):
    """Refused: some head was no longer the expected one."""


class SwapRefused(Record, gc=True):
    """Refused for a reason that trying again does not cure (a name taken, a location that overlaps)."""

    error: HeadgateError


class SwapUnknown(Record):
    """No answer, or an error from COMMIT itself."""


class Discard(Record):
    """Delete the files written for these candidates: never sent, or a load proved that they missed for good."""

    candidates: tuple[Candidate, ...]


class Wait(Record):
    """Back off before attempt number `attempt`; the driver knows how long that is. May be answered by `Enough`."""

    attempt: int


class Enough(Record):
    """The driver may not try again: time or retries are used up. One more load, then the verdict."""

    reason: str


class Answer(Record, gc=True):
    """A member's verdict, which is certain already: its client need not wait for the others."""

    member: int
    verdict: Verdict


Effect = Load | Swap | Discard | Wait | Answer | PlanEffect
Reply = Loaded | Swapped | SwapLost | SwapRefused | SwapUnknown | Enough | PlanReply | None


# --- verdicts -------------------------------------------------------------------------------------------


class Committed(Record):
    """All of it is published. `heads` in the order of the commits; `replayed` when a load found that out.

    Then `candidates` are there only if what they published was found, and not the key.
    """

    heads: tuple[Head | None, ...]
    candidates: tuple[Candidate, ...] = ()
    replayed: bool = False


class Refused(Record, gc=True):
    """Nothing of it is published, and that is certain."""

    error: HeadgateError


class Unknown(Record, gc=True):
    """Nobody knows yet; nothing was deleted."""

    error: CommitUnknown


Verdict = Committed | Refused | Unknown
