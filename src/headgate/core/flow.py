"""The commit conversation: a generator that yields effects and is sent replies. No I/O, clock or logging.

    Load ─▶ (landed? done) ─▶ judge ─▶ Swap ─▶ Swapped: done
      ▲                                  │
      └───── Wait ◀── SwapLost / SwapUnknown

Theory. A reply is a hint; a load is proof. `Swapped` comes from the transaction that moved the heads, so it
is proof too; `SwapLost` and `SwapUnknown` are not. After either, the next `Load` tells: the key is stored
(committed; so is a snapshot that is there, should the key be forgotten), or it is not and the heads a candidate
expected are gone (that candidate missed for good, and only then are its files discarded), or the heads still
stand (the swap may be sent again: the key and the version predicate let at most one of them land). The last
step is always a load; what it cannot decide is reported as unknown, never as failed.

A **group** is several requests that share one swap: each is judged against the head as the ones before it leave
it, and gets a verdict of its own. A request refused because of a group mate that is not published yet waits for the
swap: if that is lost, both are judged again. A head that was not loaded but remembered (a hint) may be built on,
since the swap proves it; it never refuses anybody.

Service, library and simulator drive this same generator; there is no second retry loop anywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from headgate.core.build import PlanEffect, PlanReply
from headgate.core.commit import (
    Answer,
    Candidate,
    Committed,
    Discard,
    Effect,
    Enough,
    Head,
    Judged,
    Load,
    Loaded,
    Member,
    Refused,
    Reply,
    Share,
    Swap,
    Swapped,
    SwapRefused,
    TableCommit,
    Target,
    Unknown,
    Verdict,
    Wait,
)
from headgate.core.group import Group
from headgate.core.locations import LocationPolicy
from headgate.core.updates import AddSnapshot
from headgate.errors import CommitRefused, CommitUnknown, HeadgateError, InvariantBroken

ATTEMPTS_MAX = 20


def commit_flow(
    commits: tuple[TableCommit, ...],
    *,
    key: str,
    policy: LocationPolicy | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> Generator[Effect, Reply, Verdict]:
    """Judge the commits against the heads, and publish them all by one swap."""
    verdicts = yield from group_flow((Member(key, commits),), policy=policy, attempts_max=attempts_max)
    return verdicts[0]


def group_flow(
    members: tuple[Member, ...],
    *,
    policy: LocationPolicy | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> Generator[Effect, Reply, tuple[Verdict, ...]]:
    """Judge the members one after the other, and publish those that stand by one swap; a verdict for each."""
    verdicts: dict[int, Verdict] = {}
    waiting = list(range(len(members)))
    alone = False
    while waiting:
        batch = waiting[:1] if alone else waiting
        conversation = _Conversation(members, tuple(batch), policy)
        found = yield from conversation.run(attempts_max)
        for member, verdict in found.items():
            verdicts[member] = verdict
        waiting = [member for member in waiting if member not in verdicts]
        if waiting:
            for member, verdict in found.items():
                yield Answer(member, verdict)
        alone = True  # what is left was in a group that somebody spoilt: one by one, only he is refused
    return tuple([verdicts[member] for member in range(len(members))])


class _Conversation:
    """The attempts of one batch of members."""

    def __init__(
        self, members: tuple[Member, ...], batch: tuple[int, ...], policy: LocationPolicy | None
    ) -> None:
        self._members, self._waiting, self._policy = members, list(batch), policy
        commits = [commit for member in batch for commit in members[member].commits]
        self._targets = tuple(dict.fromkeys([commit.target for commit in commits]))
        # What only reads is proved by no swap, so a head that is remembered will not do.
        self._only_reads = not any(commit.updates for commit in commits)
        self._sent: list[Judged] = []
        self._verdicts: dict[int, Verdict] = {}

    def run(self, attempts_max: int) -> Generator[Effect, Reply, dict[int, Verdict]]:
        refusal: HeadgateError | None = None
        fresh, reason = self._only_reads, ""
        for attempt in range(1, attempts_max + 2):
            loaded = yield Load(self._targets, attempt, fresh)
            if not isinstance(loaded, Loaded):
                raise InvariantBroken(f"invariant broken: a load was answered by {type(loaded).__name__}")
            if self._sent or loaded.landed or loaded.settled:
                settled = self._settle(loaded)
                if self._waiting:  # whatever becomes of the others, these have landed
                    for member in settled:
                        yield Answer(member, self._verdicts[member])
                yield from self._discard_missed(loaded, refusal)
            if refusal is not None:
                if len(self._waiting) > 1 and not self._sent:
                    return self._verdicts  # each alone finds out whom the refusal is for
                return self._give_up(refusal)
            if not self._waiting or attempt > attempts_max:
                break
            judged = yield from self._judge(loaded)
            if loaded.is_hint and (judged.refusals or not judged.candidates):
                if unwanted := (*judged.candidates, *judged.unwanted):
                    yield Discard(unwanted)
                fresh = True
                continue
            fresh = True
            if judged.unwanted or judged.refusals:
                yield from self._answer(judged)
            if not judged.candidates:
                if judged.shares:  # nothing to change
                    heads = dict(zip(self._targets, loaded.heads, strict=True))
                    self._publish(judged, heads, frozenset())
                self._refuse(judged)
                break
            self._sent.append(judged)
            reply = yield Swap(judged.candidates, judged.unchanged, attempt, judged.shares)
            if isinstance(reply, Swapped):
                heads = dict(zip(self._targets, loaded.heads, strict=True))
                new = {c.target: head for c, head in zip(judged.candidates, reply.heads, strict=True)}
                self._sent.clear()  # it moved the heads that any earlier one expected
                self._publish(judged, {**heads, **new}, frozenset(new))
                self._refuse(judged)
                break
            if isinstance(reply, SwapRefused):
                refusal = reply.error
                continue  # look once more before answering: an earlier swap of ours may have landed
            if isinstance(enough := (yield Wait(attempt)), Enough):
                attempts_max, reason = attempt, enough.reason  # the next load is the last
        if not self._waiting:
            return self._verdicts
        return self._give_up(
            CommitRefused(reason or f"the table changed {attempts_max} times while committing; try again")
        )

    def _settle(self, loaded: Loaded) -> list[int]:
        """End the members of which the load tells; by its key, or else by what their swap published."""
        heads = dict(zip(self._targets, loaded.heads, strict=True))
        seen: dict[int, tuple[Candidate, ...]] = {}
        for judged in self._sent:
            _, proved = _find_seen(judged, heads)
            seen |= {
                share.member: _find_own(judged, share) for share in judged.shares if share.member in proved
            }
        settled: list[int] = []
        for member in tuple(self._waiting):
            if member in loaded.landed or member in seen:
                mine = tuple(heads[commit.target] for commit in self._members[member].commits)
                own = () if member in loaded.landed else seen[member]
                self._end(member, Committed(mine, own, replayed=True))
            elif member in loaded.settled:
                self._end(member, Refused(loaded.settled[member]))
            else:
                continue
            settled.append(member)
        return settled

    def _end(self, member: int, verdict: Verdict) -> None:
        self._verdicts[member] = verdict
        self._waiting.remove(member)

    def _discard_missed(
        self, loaded: Loaded, refusal: HeadgateError | None
    ) -> Generator[Effect, Reply, None]:
        """Have the files of swaps deleted that missed for good; forget those that landed."""
        heads = dict(zip(self._targets, loaded.heads, strict=True))
        standing = [judged for judged in self._sent if _stands(judged, self._targets, loaded)]
        if refusal is not None and self._sent and self._sent[-1] in standing:
            standing.remove(self._sent[-1])
        kept: list[Judged] = []
        for judged in self._sent:
            # All keys of a swap are stored with it, or none: one that is missing tells that it did not land, unless
            # it was forgotten since, and what the swap published is there.
            is_seen, members = _find_seen(judged, heads)
            if all(share.member in loaded.landed | members for share in judged.shares):
                continue
            if is_seen or judged in standing:
                kept.append(judged)
            else:
                yield Discard(judged.candidates)
        self._sent = kept

    def _judge(self, loaded: Loaded) -> Generator[PlanEffect, PlanReply, Judged]:
        heads = dict(zip(self._targets, loaded.heads, strict=True))
        group = Group(heads, self._policy, loaded.now_ms, folds=len(self._waiting) > 1)
        for member in self._waiting:
            yield from group.judge(member, self._members[member])
        return (yield from group.close())

    def _answer(self, judged: Judged) -> Generator[Effect, Reply, None]:
        """Tell those whose refusal rests on what is published; discard what was written for nobody."""
        if judged.unwanted:
            yield Discard(judged.unwanted)
        for member, refused in judged.refusals.items():
            if not refused.rests_on_group:
                self._end(member, self._to_verdict(member, refused.error))
                yield Answer(member, self._verdicts[member])

    def _publish(self, judged: Judged, heads: Mapping[Target, Head | None], new: frozenset[Target]) -> None:
        for share in judged.shares:
            commits = self._members[share.member].commits
            own = tuple([candidate for candidate in _find_own(judged, share) if candidate.target in new])
            self._end(share.member, Committed(tuple([heads[commit.target] for commit in commits]), own))

    def _refuse(self, judged: Judged) -> None:
        for member, refused in judged.refusals.items():
            if member in self._waiting:
                self._end(member, self._to_verdict(member, refused.error))

    def _give_up(self, error: HeadgateError) -> dict[int, Verdict]:
        for member in tuple(self._waiting):
            self._end(member, self._to_verdict(member, error))
        return self._verdicts

    def _to_verdict(self, member: int, error: HeadgateError) -> Verdict:
        """Refused, unless a swap that it was part of may yet have landed."""
        if any(share.member == member for judged in self._sent for share in judged.shares):
            return Unknown(CommitUnknown(f"the outcome of this commit is not known: {error.message}"))
        return Refused(error)


def _stands(judged: Judged, targets: tuple[Target, ...], loaded: Loaded) -> bool:
    """Whether every head that this swap expected, to change or only read, is still the head: it might yet land."""
    heads = dict(zip(targets, loaded.heads, strict=True))
    tokens = {_token(head) for head in loaded.heads}
    return all(
        _token(candidate.base) == _token(heads[candidate.target]) for candidate in judged.candidates
    ) and all(_token(head) in tokens for head in judged.unchanged)


def _find_own(judged: Judged, share: Share) -> tuple[Candidate, ...]:
    """What a member has of a swap, table by table."""
    bases = {candidate.target: candidate for candidate in judged.candidates}
    return tuple(
        [
            Candidate(target, bases[target].base, bases[target].metadata, (), updates)
            for target, updates in share.parts
            if target in bases
        ]
    )


def _find_seen(judged: Judged, heads: Mapping[Target, Head | None]) -> tuple[bool, frozenset[int]]:
    """Whether anything that this swap would publish is there, and whose commits that proves to have landed.

    A list that was written for the swap proves all of it. One that a client wrote proves that client's commit, which
    may have been sent twice.
    """
    written = {path for candidate in judged.candidates for path in candidate.written}
    is_seen, proved = False, set[int]()
    for share in judged.shares:
        found: list[bool] = []
        for target, updates in share.parts:
            head = heads[target]
            for added in updates:
                if not isinstance(added, AddSnapshot):
                    continue
                there = None if head is None else head.metadata.find_snapshot(added.snapshot.snapshot_id)
                found.append(there is not None and there.manifest_list == added.snapshot.manifest_list)
                if found[-1] and added.snapshot.manifest_list in written:
                    return True, frozenset(one.member for one in judged.shares)
        is_seen = is_seen or any(found)
        if found and all(found):
            proved.add(share.member)
    return is_seen, frozenset(proved)


def _token(head: Head | None) -> tuple[str, int] | None:
    return None if head is None else (head.id, head.version)
