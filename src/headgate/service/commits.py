"""The service's driver of the commit conversation: effects of `core.flow` carried out on store and files.

Never decides anything about a commit itself; never deletes but when the flow says that a load has proved it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Generator, Iterable, Sequence

from headgate.core.encoded_log import LogDelta
from headgate.core.flow import (
    Candidate,
    Committed,
    Discard,
    Effect,
    Head,
    Load,
    Loaded,
    Refused,
    Reply,
    Swap,
    SwapLost,
    Swapped,
    SwapRefused,
    SwapUnknown,
    Target,
    Unknown,
    Verdict,
    Wait,
    commit_flow,
)
from headgate.core.live import FindLive
from headgate.core.locations import canonical
from headgate.core.plan import PlanEffect, WriteManifest, WriteManifestList
from headgate.core.table import Envelope, MetadataLogEntry
from headgate.core.window import ReadManifest, ReadManifestList
from headgate.errors import (
    AlreadyExists,
    BadInput,
    CommitRefused,
    CommitUnknown,
    HeadgateError,
    NotFound,
)
from headgate.format.table_metadata import encode_envelope, encode_file
from headgate.service.commit_records import Work, event_operation, key_operation
from headgate.service.evidence import name_other
from headgate.service.http_errors import is_failure
from headgate.service.idempotency import KeyTaken
from headgate.service.logs import log, log_commit
from headgate.service.own_files import OwnFiles
from headgate.service.placement import metadata_location
from headgate.service.services import Services
from headgate.store import base as store
from headgate.store.base import EntryId, Kind, Reason, Stream

_WAIT_MAX_S = 0.2
_DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"


def run_commit(services: Services, work: Work) -> Committed:
    """Drive the conversation to its verdict; raises the error of a refusal."""
    driver = _Driver(services, work)
    verdict: Verdict
    try:
        verdict = _converse(driver, commit_flow(work.commits, key=work.key, policy=services.locations))
    except HeadgateError as error:
        if not driver.is_in_doubt:
            raise
        # Whatever failed now has done nothing, but what was swapped before may have landed.
        verdict = Unknown(CommitUnknown(f"the outcome of this commit is not known: {error.message}"))
    driver.log(verdict)
    if not isinstance(verdict, Committed):
        name_other(verdict.error, driver.heads, services.store)
        raise verdict.error
    if not verdict.candidates and not verdict.replayed:
        driver.store_unchanged(verdict)
    driver.ask_for_checkpoints(verdict)
    driver.clean_up(verdict)
    return verdict


def _converse(driver: _Driver, conversation: Generator[Effect, Reply, Verdict]) -> Verdict:
    """Carry out one effect after the other. Raises when the heads cannot be loaded or the swap not be sent."""
    reply: Reply = None
    failed: HeadgateError | None = None
    while True:
        try:
            effect = conversation.send(reply) if failed is None else conversation.throw(failed)
        except StopIteration as stop:
            verdict: Verdict = stop.value
            return verdict
        failed = None
        try:
            reply = driver.carry_out(effect)
        except HeadgateError as error:
            if not isinstance(effect, PlanEffect):
                raise
            failed = error  # the flow knows what it had written before, and has it discarded


class _Driver:
    """State of one conversation: the files written for each candidate."""

    def __init__(self, services: Services, work: Work) -> None:
        self._services = services
        self._work = work
        self._written: dict[int, list[str]] = {}
        self._started = time.perf_counter()
        self._attempt = 0
        self.is_in_doubt = False  # a swap was sent, and nobody knows whether it landed
        self.heads: tuple[Head | None, ...] = ()  # as last loaded

    def carry_out(self, effect: Effect) -> Reply:
        match effect:
            case Load():
                return self._load(effect)
            case Swap():
                return self._swap(effect)
            case Discard():
                self._discard(effect.candidates)
            case ReadManifestList():
                return self._services.manifests.read_list(effect.location)
            case ReadManifest():
                return self._services.manifests.read_entries(effect.manifest)
            case FindLive():
                return self._services.manifests.find_live(effect)
            case WriteManifest():
                return self._services.manifests.write_manifest(effect)
            case WriteManifestList():
                return self._services.manifests.write_list(effect)
            case Wait():
                self._services.metrics.swap_retries.inc()
                time.sleep(random.uniform(0, min(_WAIT_MAX_S, 0.002 * 2**effect.attempt)))
        return None

    def _load(self, effect: Load) -> Loaded:
        self._attempt = effect.attempt
        heads = self._services.heads.load(effect.targets)
        # Heads first: a swap of ours that lands between the two looks has then stored the key we find. The other
        # way round we would see the head it made without its key, and discard the files of a live commit.
        landed = effect.attempt > 1 and self._find_landed()
        if landed:
            heads = self._services.heads.load(effect.targets)
        self.heads = heads
        return Loaded(heads, landed, self._services.clock_ms())

    def _find_landed(self) -> bool:
        """Whether our key is stored by a commit; raises KeyTaken when it is stored by a refusal."""
        work = self._work
        record = self._services.store.load_key(work.caller.principal, work.key)
        if record is None:
            return False
        if record.fingerprint != work.caller.fingerprint:
            raise BadInput("the key was used for another request", field="Idempotency-Key")
        if is_failure(record.status):  # the same request, sent twice at once: its twin has been refused
            raise KeyTaken
        return True

    def _swap(self, effect: Swap) -> Reply:
        services = self._services
        operations: list[store.Operation] = []
        heads: list[Head] = []
        for candidate in effect.candidates:
            head, inline = self._write_file(candidate)
            heads.append(head)
            operations.append(swap_operation(candidate, head, checkpointed=inline))
        operations.extend(store.CheckEntry(EntryId(head.id), head.version) for head in effect.unchanged)
        operations.extend(self._records(effect.candidates, heads))
        try:
            with services.metrics.time_store("swap"):
                refused = services.store.write(operations)
        except CommitUnknown:
            self.is_in_doubt = True
            for candidate in effect.candidates:  # it may have landed, and we may never hear of it
                services.housekeeper.checkpoint_soon(candidate.target)
            return SwapUnknown()
        if refused is not None:
            return _refusal(refused, effect.candidates)
        for candidate, head in zip(effect.candidates, heads, strict=True):
            self._remember(candidate, head)
        return Swapped(tuple(heads))

    def _write_file(self, candidate: Candidate) -> tuple[Head, bool]:
        """Name the metadata file, and write it now if it is small; a large one is a checkpoint's work."""
        services = self._services
        base, metadata = candidate.base, candidate.metadata
        version = 1 if base is None else base.version + 1
        envelope = metadata.envelope
        location = metadata_location(
            envelope.location, envelope.properties, version=version, uuid=services.new_uuid()
        )
        inline = base is None or metadata.size_bytes() <= services.settings.metadata_inline_bytes
        if inline:
            with services.metrics.time_files("write-metadata"):
                services.files.write_new(location, encode_file(metadata))
            self._written.setdefault(id(candidate), []).append(location)
        written = MetadataLogEntry(metadata_file=location, timestamp_ms=envelope.last_updated_ms)
        checkpoint = written if inline or base is None else base.checkpoint
        id_ = services.new_uuid() if base is None else base.id
        return Head(id_, version, metadata, location, checkpoint), inline

    def _records(self, candidates: Sequence[Candidate], heads: Sequence[Head]) -> Iterable[store.Operation]:
        work, now_ms, count = self._work, self._services.clock_ms(), len(candidates)
        yield key_operation(work, candidates, heads, now_ms=now_ms)
        for candidate, head in zip(candidates, heads, strict=True):
            yield event_operation(work, candidate, head, now_ms=now_ms, event_count=count)

    def _remember(self, candidate: Candidate, head: Head) -> None:
        removes = any(delta.removed for delta in swap_logs(candidate).values())
        self._services.heads.put_swapped(candidate.target, head, base=candidate.base, removes=removes)

    def _discard(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            written = (*self._written.pop(id(candidate), ()), *candidate.written)
            if not written:
                continue
            try:
                self._services.files.delete(written)
            except HeadgateError as error:  # the verdict stands, and a file too many does no harm
                location = candidate.metadata.envelope.location
                log(logging.WARNING, "discarded files were not deleted", location=location, error=str(error))

    def store_unchanged(self, verdict: Committed) -> None:
        """Keep the verdict of a commit that changes nothing, which no swap has stored, under the client's key."""
        if self._work.caller.key is None:
            return
        now_ms = self._services.clock_ms()
        refused = self._services.store.write((key_operation(self._work, (), verdict.heads, now_ms=now_ms),))
        if refused is not None:
            raise KeyTaken

    def ask_for_checkpoints(self, verdict: Committed) -> None:
        """Have the metadata files written that the swap left behind, whoever found that it landed."""
        for commit, head in zip(self._work.commits, verdict.heads, strict=True):
            if head is None:
                continue
            if head.checkpoint is None or head.checkpoint.metadata_file != head.metadata_location:
                self._services.housekeeper.checkpoint_soon(commit.target)

    def clean_up(self, verdict: Committed) -> None:
        """Delete metadata files that fell off the log, for tables that ask for it, after the commit."""
        for candidate in verdict.candidates:
            base, envelope = candidate.base, candidate.metadata.envelope
            if base is None or envelope.properties.get(_DELETE_AFTER_COMMIT, "").lower() != "true":
                continue
            kept = {entry.metadata_file for entry in envelope.metadata_log}
            gone = [
                e.metadata_file for e in base.metadata.envelope.metadata_log if e.metadata_file not in kept
            ]
            if gone:
                self._try_delete(gone, base.id, envelope)

    def _try_delete(self, files: list[str], entry_id: str, envelope: Envelope) -> None:
        try:
            OwnFiles(self._services, envelope, entry_id=entry_id, exclusive=True).delete(files)
        except HeadgateError as error:  # the commit has landed, and a file too many does no harm
            log(logging.WARNING, "old metadata was not deleted", location=envelope.location, error=str(error))

    def log(self, verdict: Committed | Refused | Unknown) -> None:
        """One structured line and one count for every table of the commit."""
        word = {Committed: "committed", Refused: "refused", Unknown: "unknown"}[type(verdict)]
        self._services.metrics.count_commit(word)
        elapsed_ms = (time.perf_counter() - self._started) * 1000
        built = {c.target: c for c in verdict.candidates} if isinstance(verdict, Committed) else {}
        for commit in self._work.commits:
            candidate = built.get(commit.target)
            base = candidate.base if candidate is not None else None
            log_commit(
                table=".".join((*commit.target[0], commit.target[1])),
                key=self._work.key,
                attempt=self._attempt,
                base=None if base is None else base.metadata.envelope.current_snapshot_id,
                head=None if candidate is None else candidate.metadata.envelope.current_snapshot_id,
                verdict=word,
                elapsed_ms=elapsed_ms,
            )


def swap_logs(candidate: Candidate) -> dict[Stream, LogDelta]:
    """What a swap changes in the two logs."""
    base, new = candidate.base, candidate.metadata
    if base is None:
        return {}
    return {
        Stream.SNAPSHOTS: new.snapshots.since(base.metadata.snapshots),
        Stream.HISTORY: new.history.since(base.metadata.history),
    }


def swap_operation(
    candidate: Candidate, head: Head, *, checkpointed: bool
) -> store.CreateEntry | store.SwapEntry:
    """The operation that publishes a candidate."""
    base, metadata = candidate.base, candidate.metadata
    envelope = metadata.envelope
    if base is None:
        return store.CreateEntry(
            id=EntryId(head.id),
            namespace=candidate.target[0],
            name=candidate.target[1],
            kind=Kind.TABLE,
            uuid=envelope.table_uuid,
            location=canonical(envelope.location, field="location"),
            metadata_location=head.metadata_location,
            checkpointed=checkpointed,
            envelope=encode_envelope(envelope),
            logs={Stream.SNAPSHOTS: tuple(metadata.snapshots), Stream.HISTORY: tuple(metadata.history)},
        )
    return store.SwapEntry(
        id=EntryId(base.id),
        expected_version=base.version,
        uuid=envelope.table_uuid,
        location=canonical(envelope.location, field="location"),
        metadata_location=head.metadata_location,
        checkpointed=checkpointed,
        envelope=encode_envelope(envelope),
        logs=swap_logs(candidate),
    )


def _refusal(refused: store.Refused, candidates: Sequence[Candidate]) -> Reply:
    """What a refused write means for the conversation."""
    match refused.reason:
        case Reason.ENTRY_CHANGED | Reason.ENTRY_MISSING | Reason.KEY_EXISTS:
            return SwapLost()
        case Reason.NAME_TAKEN if refused.kind is Kind.TABLE:
            return SwapLost()
        case _:
            return SwapRefused(
                describe_refusal(refused, candidates[min(refused.index, len(candidates) - 1)].target)
            )


def describe_refusal(refused: store.Refused, target: Target) -> HeadgateError:
    """A store's refusal in the words that clients know."""
    name = ".".join((*target[0], target[1]))
    match refused.reason:
        case Reason.NAMESPACE_MISSING:
            return NotFound(f"Namespace does not exist: {'.'.join(target[0])}", kind="namespace")
        case Reason.NAME_TAKEN if refused.kind is Kind.VIEW:
            return AlreadyExists(f"View with same name already exists: {name}", kind="view")
        case Reason.NAME_TAKEN:
            return AlreadyExists(f"Table already exists: {name}", kind="table")
        case Reason.LOCATION_TAKEN:
            return BadInput(
                f"the location overlaps another table's: {refused.detail}; choose another", field="location"
            )
        case Reason.DUPLICATE_TAG:
            return BadInput(
                "the snapshot's manifest list is already used by another snapshot of the table",
                field="updates.snapshot.manifest-list",
            )
        case Reason.ENTRY_MISSING:
            return NotFound(f"Table does not exist: {name}", kind="table")
        case _:
            return CommitRefused(f"{name}: {refused.reason.value}; refresh and try again")
