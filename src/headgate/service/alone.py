"""A blind append that nobody else's commit waits beside: judged, built and swapped in one go, at the remembered head.

Theory. The conversation of `core.flow` depends on nothing but its replies. For one blind append at a remembered head it asks
for four things: that head, its manifest list, the two files, the swap. Nearly always they are there, and the swap is made;
so they are carried out here without it, which is half of what such a commit took (docs/adr/0016). What is judged and
built is what the conversation would judge and build: by the same functions of the core, from the same values.

- *Whatever is not so plain goes the general way from its beginning*, and nothing has been written then.
- *Whatever becomes of the swap but success* goes the general way too: the conversation is begun, told the replies that were
  given here, and goes on from its swap (`GroupRun.take_over`). So nothing of retries, proofs and clean-up is here.
- A remembered head never refuses: what is wrong with an append is for the general way to find, and to say.

Used on the event loop, for groups of one. Never waits for anything but the write itself, never deletes a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headgate.core.append_at_once import AtOnce, append_at_once, is_blind_append
from headgate.core.build import AppendFiles
from headgate.core.change import ChangeUpdate
from headgate.core.commit import (
    Candidate,
    Committed,
    Head,
    Loaded,
    Reply,
    Share,
    Swap,
    SwapUnknown,
    TableCommit,
    Verdict,
)
from headgate.core.intake import take_in
from headgate.core.requirements import find_failed
from headgate.core.snapshot_ids import seed_of
from headgate.core.taken import Change
from headgate.core.window import ReadManifestList
from headgate.errors import CommitUnknown, HeadgateError, WouldWait
from headgate.service.append_files import WrittenAppend
from headgate.service.commit_records import Work
from headgate.service.gate import GroupUnderWay, Pause
from headgate.service.group_run import GroupRun
from headgate.service.journal import Tail
from headgate.service.logs import CommitLine, log_commits
from headgate.service.outbox import Write, are_small
from headgate.service.publishing import Prepared, cleans_up, name_head, records_of, settle_swapped
from headgate.service.services import Services
from headgate.service.swaps import swap_operation, to_reply
from headgate.store.base import PutFile

_NOBODY: frozenset[int] = frozenset()


def begin_group(
    services: Services, works: Sequence[Work], answer: Callable[[int, Verdict], None], trusts_cache: bool
) -> GroupUnderWay:
    """The conversation of a group; who is alone may do without."""
    if trusts_cache and len(works) == 1 and not works[0].also:
        commit = works[0].commits[0]
        if len(works[0].commits) == 1 and is_blind_append(commit):
            return AloneRun(services, works[0], commit, answer)
    return GroupRun(services, works, answer, trusts_cache)


class _Built(NamedTuple):
    """What is to be swapped, and what the conversation would have been told up to here."""

    candidate: Candidate
    prepared: Prepared
    now_ms: int
    made: WrittenAppend


class AloneRun:
    """One append, as a group of its own."""

    def __init__(
        self, services: Services, work: Work, commit: TableCommit, answer: Callable[[int, Verdict], None]
    ) -> None:
        self._services, self._work, self._commit, self._answer = services, work, commit, answer
        self._general: GroupRun | None = None  # once it goes that way

    def go_on(self, *, may_wait: bool) -> bool | Pause:
        """To its end, or where it may not wait to a pause."""
        if self._general is None:
            if not may_wait and (ended := self._try()) is not None:
                return ended
            self._general = self._general or self._begin()
        return self._general.go_on(may_wait=may_wait)

    def _try(self) -> bool | Pause | None:
        """True: it has landed. None: it goes on in a conversation, which was begun if a swap was sent."""
        started = time.perf_counter()
        services, built = self._services, self._build()
        if built is None:
            return None
        answer: Reply = None
        sent = time.perf_counter()
        try:
            with services.store.at_once():
                refused = services.store.write(built.prepared.operations)
        except WouldWait:
            self._general = self._take_over(built, None)
            return Pause.HAS_TO_WAIT
        except CommitUnknown:
            answer = SwapUnknown()
        except HeadgateError:
            pass  # nothing was written: the conversation sends it once more, and says what befell it
        else:
            if refused is None:
                self._tell(built, started, swap_s=time.perf_counter() - sent)
                return True
            answer = to_reply(refused, (built.candidate,))
        services.metrics.store_seconds.find("swap").observe(time.perf_counter() - sent)
        self._general = self._take_over(built, answer)
        return None

    def _begin(self) -> GroupRun:
        return GroupRun(self._services, (self._work,), self._answer, trusts_cache=True)

    def _take_over(self, built: _Built, answer: Reply) -> GroupRun:
        run, made = self._begin(), built.made
        self._services.manifests.keep_append(made)
        loaded = Loaded((built.candidate.base,), _NOBODY, built.now_ms, is_hint=True)
        run.take_over((loaded, made.parent, made.reply), built.prepared, answer)
        return run

    # --- building ----------------------------------------------------------------------------------------

    def _build(self) -> _Built | None:
        """None: it is for the general way, and nothing was written."""
        services, commit = self._services, self._commit
        head, journal, update = services.heads.find_hint(commit.target), services.journal, commit.updates[0]
        if head is None or not isinstance(update, ChangeUpdate) or cleans_up(head.metadata):
            return None
        if not (journal.takes(0) and journal.takes_late(0)):
            return None
        if commit.requirements and find_failed(commit.requirements, head.metadata) is not None:
            return None
        now_ms, late, journalled = services.clock_ms(), list[tuple[str, bytes]](), list[PutFile]()

        def write(location: str, data: bytes, tail: Tail | None = None) -> None:
            late.append((location, data))
            journalled.append(journal.entry(location, data, tail))

        try:
            change = take_in(
                update, head.metadata, field=commit.path("updates[0]"), policy=services.locations
            )
            planned = self._plan(change, head, now_ms, write)
            if planned is None:
                return None
            done, made = planned
            size_bytes = sum([len(data) for _, data in late])
            if not (are_small(journalled, size_bytes) and journal.takes_late(size_bytes)):
                services.manifests.drop_append(made)
                return None
            journal.late.add(late)
        except HeadgateError:
            return None
        candidate = Candidate(commit.target, head, done.metadata, done.written, done.updates)
        return _Built(candidate, self._prepare(candidate, head, journalled), now_ms, made)

    def _plan(
        self, change: Change, head: Head, now_ms: int, write: Write
    ) -> tuple[AtOnce, WrittenAppend] | None:
        """The table with one more snapshot, and the files that it needs."""
        planning = append_at_once(
            change,
            head.metadata,
            seed=seed_of(self._work.key, self._commit.target),
            now_ms=now_ms,
            previous_file=head.checkpoint,
        )
        manifests, made = self._services.manifests, None
        try:
            effect = next(planning)
            if not isinstance(effect, ReadManifestList) or not manifests.holds_list(effect.location):
                return None
            effect = planning.send(manifests.read_list(effect.location))
            if not isinstance(effect, AppendFiles):
                return None
            made = manifests.make_append(effect, write)
            planning.send(None if made is None else made.reply)
        except StopIteration as stop:
            done: AtOnce | None = stop.value
            if done is not None and made is not None:
                return done, made
        return None

    def _prepare(self, candidate: Candidate, base: Head, journalled: list[PutFile]) -> Prepared:
        """The one write that is left."""
        head = name_head(self._services, candidate, base)
        swap = Swap((candidate,), (), 1, (Share(0, ((candidate.target, candidate.updates),)),))
        operations = [
            swap_operation(candidate, head, checkpointed=False),
            *records_of(self._services, (self._work,), swap, (head,)),
            *journalled,
        ]
        return Prepared(operations, [head], set(), journalled)

    # --- when it has landed ------------------------------------------------------------------------------

    def _tell(self, built: _Built, started: float, *, swap_s: float) -> None:
        """Whoever waits is told first; then what is left to do is done."""
        services, candidate, head = self._services, built.candidate, built.prepared.heads[0]
        services.metrics.count_commit("committed")
        self._answer(0, Committed((head,), (candidate,)))
        elapsed_ms = (time.perf_counter() - started) * 1000
        services.metrics.store_seconds.find("swap").observe(swap_s)
        services.metrics.group_size.observe(1)
        services.manifests.keep_append(built.made)
        settle_swapped(services, built.prepared, (candidate,))
        (namespace, name), base = candidate.target, candidate.base
        line = CommitLine(
            table=".".join((*namespace, name)),
            key=self._work.key,
            attempt=1,
            base=None if base is None else base.metadata.envelope.current_snapshot_id,
            head=head.metadata.envelope.current_snapshot_id,
            verdict="committed",
            elapsed_ms=elapsed_ms,
        )
        log_commits((line,))
