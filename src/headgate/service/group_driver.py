"""Carries out what the commit conversation asks for, for one group: effects of `core.flow` on store and files.

Never decides anything about a commit itself; never deletes but when the flow says that a load has proved it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from headgate.core.build import AppendFiles, WriteManifest, WriteManifestList
from headgate.core.change import ChangeUpdate
from headgate.core.commit import (
    Answer,
    Candidate,
    Committed,
    Discard,
    Effect,
    Enough,
    Head,
    Load,
    Loaded,
    Refused,
    Reply,
    Share,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
    Target,
    Unknown,
    Verdict,
    Wait,
)
from headgate.core.live import FindLive, FoundLive
from headgate.core.manifest_merge import MergeManifests
from headgate.core.table import MetadataLogEntry
from headgate.core.window import ReadChanges, ReadManifest, ReadManifestList, ReadOwn
from headgate.errors import (
    BadInput,
    CommitUnknown,
    HeadgateError,
    InvariantBroken,
    WouldWait,
    without_frames,
)
from headgate.format.table_metadata import encode_file
from headgate.service.commit_records import Work
from headgate.service.evidence import name_other
from headgate.service.http_errors import KeyTaken, is_failure
from headgate.service.late_verdicts import store_again, store_unchanged
from headgate.service.logs import CommitLine, log, log_commits
from headgate.service.outbox import Outbox
from headgate.service.own_files import OwnFiles
from headgate.service.placement import folder_of
from headgate.service.publishing import Prepared, cleans_up, name_head, records_of, settle_swapped
from headgate.service.services import Services
from headgate.service.swaps import kind_of, swap_operation, to_reply
from headgate.store import base as store
from headgate.store.base import EntryId

TRIES_FOR = 0.5  # of `request_timeout_s`: so long a group goes on losing its swaps to others
_WAIT_MAX_S = 0.2
_NOBODY: frozenset[int] = frozenset()


class HasToWait:
    """Instead of a reply: this effect may take its time."""


class GroupDriver:
    """State of one conversation: whom it is for, what was written, and what is still to be written."""

    def __init__(
        self,
        services: Services,
        works: Sequence[Work],
        answer: Callable[[int, Verdict], None],
        *,
        trusts_cache: bool,
    ) -> None:
        self._services = services
        self._works = works
        self._answer = answer
        self._answered: set[int] = set()
        # To be logged, with the attempt and the seconds that each took.
        self._told: list[tuple[Work, Verdict, int, float]] = []
        self._trusts_cache = trusts_cache
        self._outbox = Outbox(services.files, services.journal, services.writers, services.unwritten)
        self._metadata_files: dict[int, tuple[Candidate, str]] = {}  # the candidate keeps its id its own
        self._prepared: Prepared | None = None  # a swap that has to wait
        self._swapped: tuple[Swap, Prepared] | None = None  # one that landed, and is to be settled
        self._started = time.perf_counter()
        self._attempt = 0
        # Members of a swap that was sent, and nobody knows whether it landed; of one that did.
        self._in_doubt: set[int] = set()
        self._stored: set[int] = set()
        self.heads: tuple[Head | None, ...] = ()  # as last loaded or swapped in
        self.met_others = False  # another replica commits to the same tables

    def take_over(self, effect: Swap, prepared: Prepared, answer: Reply) -> None:
        """Go on from a swap that was prepared elsewhere, at remembered heads; without an answer it is still to be sent."""
        self.heads, self._attempt = tuple([candidate.base for candidate in effect.candidates]), effect.attempt
        if answer is None:
            self._prepared = prepared
        elif isinstance(answer, SwapUnknown):
            self._doubt(effect)

    def carry_out(self, effect: Effect) -> Reply:
        match effect:
            case ReadManifestList():
                return self._services.manifests.read_list(effect.location)
            case AppendFiles():
                return self._services.manifests.append(effect, self._outbox.put)
            case FindLive():
                return self._services.manifests.find_live(effect, self._load_footprints)
            case WriteManifest():
                return self._services.manifests.write_manifest(effect, self._outbox.put)
            case MergeManifests():
                return self._services.manifests.merge_manifests(effect, self._outbox.put)
            case WriteManifestList():
                return self._services.manifests.write_list(effect, self._outbox.put)
            case ReadManifest():
                return self._services.manifests.read_entries(effect.manifest)
            case ReadOwn():
                return self._services.manifests.read_own(effect.snapshots, self._load_footprints)
            case ReadChanges():
                return self._services.manifests.read_changes(effect.manifests)
            case Load():
                return self._load(effect)
            case Swap():
                reply = self._swap(effect)
                if isinstance(reply, HasToWait):
                    raise InvariantBroken("invariant broken: a swap that may wait did not")
                return reply
            case Discard():
                self._discard(effect.candidates)
            case Answer():
                self.answer(effect.member, effect.verdict)
            case Wait():
                self._services.metrics.swap_retries.inc()
                self.met_others = True
                if (
                    time.perf_counter() - self._started
                    > self._services.settings.request_timeout_s * TRIES_FOR
                ):
                    return Enough("others won every race for the table until time was up; try again")
                time.sleep(random.uniform(0, min(_WAIT_MAX_S, 0.002 * 2 ** min(effect.attempt, 10))))
        return None

    def carry_out_at_once(self, effect: Effect) -> Reply | HasToWait:
        """As `carry_out`, for what needs no more than memory, or is the swap of a store that is near."""
        manifests = self._services.manifests
        match effect:  # a blind append asks for the first four
            case AppendFiles():
                return manifests.append(effect, self._outbox.put)
            case ReadManifestList() if manifests.holds_list(effect.location):
                return manifests.read_list(effect.location)
            case Load():
                return self._find_hint(effect) or HasToWait()
            case Swap() if not self._outbox.waits and not any(
                cleans_up(c.metadata) for c in effect.candidates
            ):
                return self._swap(effect, at_once=True)
            case WriteManifest():
                return manifests.write_manifest(effect, self._outbox.put)
            case WriteManifestList():
                return manifests.write_list(effect, self._outbox.put)
            case FindLive() if manifests.holds_none(effect):
                return FoundLive(())
            case MergeManifests() if manifests.holds_sources(effect):
                return self.carry_out(effect)
            case Answer():
                return self.carry_out(effect)
        return HasToWait()

    def _load_footprints(self, snapshot_ids: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for head in self.heads:
            if head is not None and head.id:
                found |= self._services.store.load_footprints(EntryId(head.id), snapshot_ids)
        return found

    # --- loads -------------------------------------------------------------------------------------------

    def _load(self, effect: Load) -> Loaded:
        if (hint := self._find_hint(effect)) is not None:
            return hint
        services = self._services
        self._attempt = effect.attempt
        now_ms = services.clock_ms()
        remembered = services.heads.peek(effect.targets) or ()
        heads = services.heads.load(effect.targets)
        if any(new and old.version != new.version for old, new in zip(remembered, heads, strict=False)):
            self.met_others = True
        # Heads first: a swap of ours that lands between the two looks has then stored the key we find. The other
        # way round we would see the head it made without its key, and discard the files of a live commit.
        landed, settled = self._find_landed(only_clients=effect.attempt == 1)
        if landed:
            heads = services.heads.load(effect.targets)
        self.heads = heads
        return Loaded(heads, landed, now_ms, settled)

    def _find_hint(self, effect: Load) -> Loaded | None:
        """The heads that are remembered, where those will do."""
        self.settle()  # or what was remembered is behind a swap of this very conversation
        if effect.fresh or not self._trusts_cache:
            return None
        heads = self._services.heads.peek(effect.targets)
        if heads is None:
            return None
        self.heads, self._attempt = heads, effect.attempt
        return Loaded(heads, _NOBODY, self._services.clock_ms(), is_hint=True)

    def _find_landed(self, *, only_clients: bool) -> tuple[frozenset[int], dict[int, HeadgateError]]:
        """Members whose key is stored by a commit, and those whose key was stored by something else."""
        wanted = {
            (work.caller.principal, work.key): member
            for member, work in enumerate(self._works)
            if work.caller.key is not None or not only_clients
        }
        landed: set[int] = set()
        settled: dict[int, HeadgateError] = {}
        if not wanted:
            return frozenset(), settled
        for identity, record in self._services.store.load_keys(tuple(wanted)).items():
            member = wanted[identity]
            if record.fingerprint != self._works[member].caller.fingerprint:
                settled[member] = BadInput("the key was used for another request", field="Idempotency-Key")
            elif is_failure(record.status):  # the same request, sent twice at once: its twin has been refused
                settled[member] = KeyTaken()
            else:
                landed.add(member)
        return frozenset(landed), settled

    # --- the swap ----------------------------------------------------------------------------------------

    def _swap(self, effect: Swap, *, at_once: bool = False) -> Reply | HasToWait:
        services = self._services
        prepared = self._prepared or self._prepare(effect)
        if isinstance(prepared, SwapRefused):
            return prepared
        self._prepared, heads = prepared, prepared.heads
        try:
            with services.metrics.time_store("swap"), services.store.at_once() if at_once else nullcontext():
                refused = services.store.write(prepared.operations)
        except WouldWait:
            return HasToWait()
        except CommitUnknown:
            self._doubt(effect)
            return SwapUnknown()
        self._prepared = None
        if refused is not None:
            return to_reply(refused, effect.candidates)
        services.metrics.group_size.observe(len(effect.shares))
        self._swapped = effect, prepared
        for candidate in effect.candidates:
            self._clean_up(candidate)
        self._stored.update([share.member for share in effect.shares])
        new = {head.id: head for head in heads}
        self.heads = tuple([None if head is None else new.get(head.id, head) for head in self.heads])
        return Swapped(tuple(heads))

    def _doubt(self, effect: Swap) -> None:
        """A swap was sent, and nobody knows whether it landed."""
        self._prepared = None
        self._in_doubt.update([share.member for share in effect.shares])
        for candidate in effect.candidates:  # it may have landed, and we may never hear of it
            self._services.housekeeper.checkpoint_soon(candidate.target)

    def settle(self) -> None:
        """What is left to do for a swap that landed, when those who wait have been told."""
        if self._swapped is None:
            return
        (effect, prepared), self._swapped = self._swapped, None
        settle_swapped(self._services, prepared, effect.candidates)

    def _prepare(self, effect: Swap) -> Prepared | SwapRefused:
        """Have the files written; what is left is the one write."""
        operations: list[store.Operation] = []
        heads: list[Head] = []
        removing: set[Target] = set()
        plain = self._find_plain(effect.shares)
        try:
            if plain:
                self._have_files_stand(effect.candidates)
        except HeadgateError as error:
            return SwapRefused(without_frames(error))
        for candidate in effect.candidates:
            head, inline = self._write_file(candidate, is_plain=candidate.target in plain)
            heads.append(head)
            swap = swap_operation(candidate, head, checkpointed=inline)
            if isinstance(swap, store.SwapEntry) and any(delta.removed for delta in swap.logs.values()):
                removing.add(candidate.target)
            operations.append(swap)
        operations.extend(store.CheckEntry(EntryId(head.id), head.version) for head in effect.unchanged)
        operations.extend(records_of(self._services, self._works, effect, heads))
        try:
            with self._services.metrics.time_files("write-manifests"):
                journalled = self._outbox.flush(may_be_late=not plain)
        except HeadgateError as error:
            return SwapRefused(without_frames(error))
        return Prepared([*operations, *journalled], heads, removing, journalled)

    def _have_files_stand(self, candidates: Iterable[Candidate]) -> None:
        """Metadata files may come with this swap, and refer to what commits before it brought."""
        for candidate in candidates:
            if candidate.base is not None:
                self._services.journal.stand(folder_of(candidate.base.metadata))

    def _find_plain(self, shares: Iterable[Share]) -> set[Target]:
        """Tables that some member changes by plain updates: its engine expects a metadata file for them."""
        plain: set[Target] = set()
        for share in shares:
            for commit in self._works[share.member].commits:
                for update in commit.updates:
                    if not isinstance(update, ChangeUpdate):
                        plain.add(commit.target)
                        break
        return plain

    def _write_file(self, candidate: Candidate, *, is_plain: bool) -> tuple[Head, bool]:
        """Name the metadata file, and have it written with a plain commit if it is small; else it is a checkpoint's."""
        services = self._services
        base, metadata = candidate.base, candidate.metadata
        small = metadata.size_bytes() <= services.settings.metadata_inline_bytes
        if base is not None and not (is_plain and small):
            return name_head(services, candidate, base), False
        base = base or Head(services.new_uuid(), 0, metadata, "", None)
        head = name_head(services, candidate, base)
        self._outbox.put(head.metadata_location, b"".join(encode_file(metadata)))
        self._metadata_files[id(candidate)] = (candidate, head.metadata_location)
        written = MetadataLogEntry(
            metadata_file=head.metadata_location, timestamp_ms=metadata.envelope.last_updated_ms
        )
        return Head(head.id, head.version, metadata, head.metadata_location, written), True

    def _discard(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            metadata = self._metadata_files.pop(id(candidate), None)
            files = candidate.written if metadata is None else (*candidate.written, metadata[1])
            written = self._outbox.recall(files)
            if not written:
                continue
            try:
                self._services.files.delete(written)
            except HeadgateError as error:  # the verdict stands, and a file too many does no harm
                location = candidate.metadata.envelope.location
                log(logging.WARNING, "discarded files were not deleted", location=location, error=str(error))

    def _clean_up(self, candidate: Candidate) -> None:
        """Delete metadata files that fell off the log, for tables that ask for it, after the commit."""
        base, envelope = candidate.base, candidate.metadata.envelope
        if base is None or not cleans_up(candidate.metadata):
            return
        kept = {entry.metadata_file for entry in envelope.metadata_log}
        gone = [e.metadata_file for e in base.metadata.envelope.metadata_log if e.metadata_file not in kept]
        if not gone:
            return
        try:
            OwnFiles(self._services, envelope, entry_id=base.id, exclusive=True).delete(gone)
        except HeadgateError as error:  # the commit has landed, and a file too many does no harm
            log(logging.WARNING, "old metadata was not deleted", location=envelope.location, error=str(error))

    # --- verdicts ----------------------------------------------------------------------------------------

    def describe_failure(self, member: int, error: HeadgateError) -> Verdict:
        """What an error that ended the conversation means for a member."""
        if member in self._in_doubt:
            return Unknown(CommitUnknown(f"the outcome of this commit is not known: {error.message}"))
        return Refused(error)

    def answer(self, member: int, verdict: Verdict) -> None:
        """Hand out a verdict, once."""
        if member in self._answered:
            return
        self._answered.add(member)
        work = self._works[member]
        if isinstance(verdict, Committed) and verdict.replayed:
            for commit in work.commits:  # whoever's swap it was may have died before its checkpoint
                self._services.housekeeper.checkpoint_soon(commit.target)
            if verdict.candidates:
                verdict = store_again(self._services, work, verdict)
        elif isinstance(verdict, Committed) and not verdict.candidates and member not in self._stored:
            verdict = store_unchanged(self._services, work, verdict)
        if not isinstance(verdict, Committed):
            name_other(verdict.error, self.heads, self._services.store)
        word = "committed" if isinstance(verdict, Committed) else kind_of(verdict.error)
        self._services.metrics.count_commit(word)
        self._told.append((work, verdict, self._attempt, time.perf_counter() - self._started))
        self._answer(member, verdict)

    def close(self) -> None:
        """The conversation is over."""
        self._outbox.close()

    def log_verdicts(self) -> None:
        """One structured line for every table of the commits that were answered."""
        lines: list[CommitLine] = []
        for work, verdict, attempt, elapsed_s in self._told:
            word = {Committed: "committed", Refused: "refused", Unknown: "unknown"}[type(verdict)]
            built = {c.target: c for c in verdict.candidates} if isinstance(verdict, Committed) else {}
            for commit in work.commits:
                candidate = built.get(commit.target)
                base = candidate.base if candidate is not None else None
                lines.append(
                    CommitLine(
                        table=".".join((*commit.target[0], commit.target[1])),
                        key=work.key,
                        attempt=attempt,
                        base=None if base is None else base.metadata.envelope.current_snapshot_id,
                        head=None if candidate is None else candidate.metadata.envelope.current_snapshot_id,
                        verdict=word,
                        elapsed_ms=elapsed_s * 1000,
                    )
                )
        self._told.clear()
        log_commits(lines)
