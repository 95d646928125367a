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
from headgate.core.build import AppendFiles, PlanReply
from headgate.core.change import ChangeUpdate
from headgate.core.commit import Candidate, Committed, Head, Loaded, Reply, Share, Swap, TableCommit, Verdict
from headgate.core.intake import take_in
from headgate.core.requirements import find_failed
from headgate.core.window import ReadManifestList
from headgate.errors import CommitUnknown, HeadgateError
from headgate.service.commit_records import Work
from headgate.service.gate import GroupUnderWay, Pause
from headgate.service.group_run import GroupRun
from headgate.service.journal import Tail
from headgate.service.logs import CommitLine, log_commits
from headgate.service.publishing import Prepared, cleans_up, name_head, records_of, settle_swapped
from headgate.service.services import Services
from headgate.service.swaps import swap_operation
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
    head: Head
    prepared: Prepared
    replies: tuple[Reply, ...]


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
            started = time.perf_counter()
            built = None if may_wait else self._build()
            if built is not None:
                try:
                    with self._services.metrics.time_store("swap"), self._services.store.at_once():
                        refused = self._services.store.write(built.prepared.operations)
                except HeadgateError as error:
                    self._general = self._take_over(built, in_doubt=isinstance(error, CommitUnknown))
                else:
                    if refused is None:
                        self._tell(built, started)
                        return True
                    self._general = self._take_over(built, in_doubt=False)
            else:
                self._general = self._begin()
        return self._general.go_on(may_wait=may_wait)

    def _begin(self) -> GroupRun:
        return GroupRun(self._services, (self._work,), self._answer, trusts_cache=True)

    def _take_over(self, built: _Built, *, in_doubt: bool) -> GroupRun:
        run = self._begin()
        run.take_over(built.replies, built.prepared, in_doubt=in_doubt)
        return run

    # --- building ----------------------------------------------------------------------------------------

    def _build(self) -> _Built | None:
        """None: it is for the general way, and nothing was written."""
        services, commit = self._services, self._commit
        hint, journal = services.heads.peek((commit.target,)), services.journal
        if hint is None or cleans_up(hint[0].metadata) or not (journal.takes(0) and journal.takes_late(0)):
            return None
        head, now_ms = hint[0], services.clock_ms()
        files: list[tuple[str, bytes, Tail | None]] = []
        try:
            planned = self._plan(head, now_ms, files)
            if planned is None:
                return None
            done, replies = planned
            late = [(location, data) for location, data, _ in files]
            if not journal.takes_late(sum([len(data) for _, data in late])):
                return None
            journal.late.add(late)
        except HeadgateError:
            return None
        candidate = Candidate(commit.target, head, done.metadata, done.written, done.updates)
        return self._prepare(candidate, head, [journal.entry(*file) for file in files], replies)

    def _plan(
        self, head: Head, now_ms: int, files: list[tuple[str, bytes, Tail | None]]
    ) -> tuple[AtOnce, tuple[Reply, ...]] | None:
        """The table with one more snapshot, what the conversation would have been told, and the files that it needs."""
        services, commit = self._services, self._commit
        metadata, manifests = head.metadata, services.manifests
        update = commit.updates[0]
        failed = find_failed(commit.requirements, metadata) if commit.requirements else None
        if failed is not None or not isinstance(update, ChangeUpdate):
            return None
        change = take_in(update, metadata, field=commit.path("updates[0]"), policy=services.locations)
        name = ".".join((*commit.target[0], commit.target[1]))
        planning = append_at_once(
            change, metadata, seed=f"{self._work.key}/{name}/0", now_ms=now_ms, previous_file=head.checkpoint
        )

        def write(location: str, data: bytes, tail: Tail | None = None) -> None:
            files.append((location, data, tail))

        told: list[Reply] = [Loaded((head,), _NOBODY, now_ms, is_hint=True)]
        reply: PlanReply = None
        try:
            while True:
                effect = planning.send(reply)
                if isinstance(effect, AppendFiles):
                    reply = manifests.append(effect, write)
                elif isinstance(effect, ReadManifestList) and manifests.holds_list(effect.location):
                    reply = manifests.read_list(effect.location)
                else:
                    return None
                told.append(reply)
        except StopIteration as stop:
            done: AtOnce | None = stop.value
        return None if done is None else (done, tuple(told))

    def _prepare(
        self, candidate: Candidate, base: Head, journalled: list[PutFile], replies: tuple[Reply, ...]
    ) -> _Built:
        """The one write that is left."""
        head = name_head(self._services, candidate, base)
        swap = Swap((candidate,), (), 1, (Share(0, ((candidate.target, candidate.updates),)),))
        operations = [
            swap_operation(candidate, head, checkpointed=False),
            *records_of(self._services, (self._work,), swap, (head,)),
            *journalled,
        ]
        return _Built(candidate, head, Prepared(operations, [head], set(), journalled), replies)

    # --- when it has landed ------------------------------------------------------------------------------

    def _tell(self, built: _Built, started: float) -> None:
        """Whoever waits is told first; then what is left to do is done."""
        services, candidate, head, base = self._services, built.candidate, built.head, built.candidate.base
        services.metrics.count_commit("committed")
        self._answer(0, Committed((head,), (candidate,)))
        services.metrics.group_size.observe(1)
        elapsed_ms = (time.perf_counter() - started) * 1000
        settle_swapped(services, built.prepared, (candidate,))
        log_commits(
            (
                CommitLine(
                    table=".".join((*candidate.target[0], candidate.target[1])),
                    key=self._work.key,
                    attempt=1,
                    base=None if base is None else base.metadata.envelope.current_snapshot_id,
                    head=head.metadata.envelope.current_snapshot_id,
                    verdict="committed",
                    elapsed_ms=elapsed_ms,
                ),
            )
        )
