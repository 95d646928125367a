"""Requests that are acknowledged first and carried out afterwards: asynchronous commits, and streamed appends.

A job's id is the key that it commits under. So it lands once however often it is carried out, its verdict is the
key's record, and who repeats the request with its key finds the job or the verdict, never a second job.

What is wrong with a request at the head of now is refused before it is acknowledged. Afterwards it is judged like any
other commit, at the head of then, with the lesser of the roles that its principal had and has.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from uuid import UUID, uuid5

import msgspec

from headgate.core.change import Append
from headgate.core.commit import Committed, Head, Refused, TableCommit, Target, Verdict
from headgate.core.own_properties import STREAM_LINGER_MS
from headgate.core.updates import AssertTableUuid, TableRequirement
from headgate.core.value import Value
from headgate.errors import BadInput, CommitRefused, Forbidden, HeadgateError, NotFound, without_frames
from headgate.format.strict_json import decode_into
from headgate.service import idempotency
from headgate.service.commit_records import Work
from headgate.service.commit_requests import (
    EVENT,
    check_at_head,
    dotted,
    plan_table,
    plan_transaction,
    refuse_impossible,
)
from headgate.service.commits import run_commit, submit_commit
from headgate.service.exchange import Reply, Request
from headgate.service.gate import to_committed
from headgate.service.http_errors import KeyTaken, error_reply, is_terminal
from headgate.service.job_queue import STREAM, Try
from headgate.service.logs import log
from headgate.service.roles import Caller, Role, parse_role, require
from headgate.service.services import Services
from headgate.service.settings import LINGER_MS_MAX
from headgate.service.table_requests import AppendRequest, CommitTableRequest, CommitTransactionRequest
from headgate.store.base import DropJob, EntryHeader, EntryId, Job, KeyRecord, Kind, PutJob, PutKey

ASYNC = "async"
APPEND_REPLAY = "append"
COMMITS = "/v1/commits"
_TRANSACTION: Target = ((), "")  # a job of several tables has no name of its own
_DEPTH_MAX = (
    512  # the depth was checked by whoever acknowledged the job, under a setting that may differ from ours
)
_RACES_MAX = 5  # attempts after which "it keeps changing" is the verdict
_ROLES = tuple(Role)
_KEY_FIELD = "Idempotency-Key"
_VERSION_7, _VARIANT = 0x7 << 76, 0x2 << 62


class StreamJob(Value):
    """The body of a job that appends: the very table that was looked at, whatever its name becomes."""

    entry_id: str
    table_uuid: str
    append: msgspec.Raw  # an AppendRequest


def start(services: Services) -> None:
    """Begin to carry out jobs, also those that an earlier process left behind."""
    services.jobs.start(partial(carry_out, services))


def run_due(services: Services) -> int:
    """Carry out the jobs that are due now, and wait for them; returns how many there were."""
    return services.jobs.run_due(partial(carry_out, services))


# --- to acknowledge --------------------------------------------------------------------------------------


def accept_table(services: Services, request: Request, target: Target, body: CommitTableRequest) -> Reply:
    """202 for one table's commit; raises what it would be refused for already."""
    if (known := _find_pending(services, request.caller)) is not None:
        return known
    check_at_head(services, plan_table(services, request.caller, target, body))
    return _put(services, _job_of(services, request, ASYNC, target), request.caller)


def accept_transaction(services: Services, request: Request, changes: Sequence[CommitTableRequest]) -> Reply:
    """202 for a commit of several tables; raises what it would be refused for already."""
    if (known := _find_pending(services, request.caller)) is not None:
        return known
    check_at_head(services, plan_transaction(services, request.caller, changes))
    return _put(services, _job_of(services, request, ASYNC, _TRANSACTION), request.caller)


def accept_append(services: Services, request: Request, target: Target, body: AppendRequest) -> Reply:
    """202 for files that will be added within the table's linger; raises what they would be refused for already."""
    if (known := _find_pending(services, request.caller)) is not None:
        return known
    try:
        (head,) = check_at_head(services, _append_work(services, request.caller, target, body))
    except HeadgateError as error:
        raise _in_terms_of_append(error) from None
    if head is None:
        raise NotFound(f"Table does not exist: {dotted(target)}", kind="table")
    stored = StreamJob(
        entry_id=head.id,
        table_uuid=head.metadata.envelope.table_uuid,
        append=msgspec.Raw(request.body),
    )
    job = replace(
        _job_of(services, request, STREAM, target),
        body=msgspec.json.encode(stored),
        due_at_ms=_end_of_linger(services, head),
    )
    return _put(services, job, request.caller)


def _find_pending(services: Services, caller: Caller) -> Reply | None:
    """The answer of the job that the caller's key stands for already."""
    job = None if caller.key is None else services.store.load_job(caller.principal, caller.key)
    if job is None:
        return None
    if job.fingerprint == caller.fingerprint:
        return _acknowledge(services, job)
    # Not raised: a refusal that is raised becomes the verdict of the key, and that is for the job to get.
    return error_reply(
        BadInput(
            "Idempotency-Key: the key was used for another request; make a new key for new work",
            field=_KEY_FIELD,
        )
    )


def _job_of(services: Services, request: Request, kind: str, target: Target) -> Job:
    """The request as a job that is due now."""
    caller, now_ms = request.caller, services.clock_ms()
    mark = caller.fingerprint or idempotency.fingerprint(
        method=request.method, target=request.path, body=request.body
    )
    return Job(
        id=caller.key or _new_id(now_ms),
        kind=kind,
        namespace=target[0],
        name=target[1],
        principal=caller.principal,
        role=caller.role.value,
        fingerprint=mark,
        body=request.body,
        due_at_ms=now_ms,
        created_at_ms=now_ms,
    )


def _put(services: Services, job: Job, caller: Caller) -> Reply:
    """Have the job durable, then say so."""
    services.jobs.admit()
    if services.store.write((PutJob(job),)) is not None:
        # The same key, sent twice at once. Its job is there, or done in the meantime.
        known = _find_pending(services, caller)
        if known is None:
            raise KeyTaken
        return known
    services.jobs.expect(job.due_at_ms)
    return _acknowledge(services, job)


def _acknowledge(services: Services, job: Job) -> Reply:
    headers: tuple[tuple[str, str], ...] = (("location", f"{COMMITS}/{job.id}"),)
    shown: dict[str, object] = {"id": job.id, "status": "pending"}
    if job.kind == STREAM:
        left_ms = max(0, job.due_at_ms - services.clock_ms())
        shown = {"id": job.id, "status": "acknowledged", "commit-within-ms": left_ms}
    else:
        headers = (*headers, ("preference-applied", "respond-async"))
    return Reply(HTTPStatus.ACCEPTED, (msgspec.json.encode(shown),), headers)


def _end_of_linger(services: Services, head: Head) -> int:
    """When files that come now are committed: at the end of the linger that all who come now share.

    Lingers are cut from time itself, so that replicas agree without a word. Tables begin theirs at different times.
    """
    now_ms = services.clock_ms()
    linger_ms = _linger_ms(head.metadata.envelope.properties, services.settings.stream_linger_ms)
    if linger_ms == 0:
        return now_ms
    phase_ms = zlib.crc32(head.id.encode())
    return now_ms + linger_ms - (now_ms + phase_ms) % linger_ms


def _linger_ms(properties: Mapping[str, str], default_ms: int) -> int:
    """What the table asks for; text that is no number, of a table that came with it, counts as nothing."""
    text = properties.get(STREAM_LINGER_MS, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        return default_ms
    return min(int(text), LINGER_MS_MAX)


def _new_id(now_ms: int) -> str:
    """A UUIDv7 (RFC 9562), as keys are."""
    random = secrets.randbits(74)
    high, low = random >> 62, random & (2**62 - 1)
    return str(UUID(int=(now_ms << 80) | _VERSION_7 | (high << 64) | _VARIANT | low))


# --- to carry out ----------------------------------------------------------------------------------------


def carry_out(services: Services, batch: Sequence[Try]) -> list[bool]:
    """Bring jobs to their verdicts and out of the store; False for one that has to be tried again.

    Jobs that come together are appends to one table, and are committed together.
    """
    keys = [(one.job.principal, one.job.id) for one in batch]
    try:
        records = services.store.load_keys(keys)
    except HeadgateError as error:
        return [_try_again(services, one, error) for one in batch]
    begun = [_begin(services, one.job, records.get(key)) for one, key in zip(batch, keys, strict=True)]
    outcomes = iter(_run_all(services, [found for found in begun if isinstance(found, Work)]))
    return [
        _settle(services, one, next(outcomes) if isinstance(found, Work) else found)
        for one, found in zip(batch, begun, strict=True)
    ]


def _begin(services: Services, job: Job, record: KeyRecord | None) -> Work | KeyRecord | HeadgateError:
    """What is to be run for a job, or the verdict that it has already, or why it is not run now."""
    try:
        key = _key_of(job, record)
        if record is not None and key != job.id:
            log(logging.WARNING, "a pending job's key was used for another request", job=job.id, key=key)
            record = services.store.load_key(job.principal, key)
        return record or replace(_work_of(services, job, key), also=(DropJob(job.principal, job.id),))
    except HeadgateError as error:
        return error


def _key_of(job: Job, record: KeyRecord | None) -> str:
    """The key to commit under: the job's id, unless its owner broke the rule and used that for another request.

    What was acknowledged is carried out all the same, under a key that follows from the job, so that it lands once.
    """
    if record is None or record.fingerprint == job.fingerprint:
        return job.id
    return str(uuid5(UUID(job.id), job.fingerprint))


def _run_all(services: Services, works: Sequence[Work]) -> list[Committed | HeadgateError]:
    """Commit them; several go through their table's gate as one group."""
    waiting: list[Future[Verdict]] = [Future() for _ in works]
    outcomes: list[Committed | HeadgateError] = []
    if len(works) > 1:
        with services.gates.hold(sorted({work.commits[0].target for work in works})):
            for work, future in zip(works, waiting, strict=True):
                try:
                    submit_commit(services, work, future.set_result)
                except HeadgateError as error:
                    future.set_result(Refused(error))
    for work, future in zip(works, waiting, strict=True):
        try:
            outcomes.append(run_commit(services, work) if len(works) == 1 else to_committed(future.result()))
        except HeadgateError as error:
            outcomes.append(without_frames(error))
    return outcomes


def _settle(services: Services, one: Try, outcome: Committed | KeyRecord | HeadgateError) -> bool:
    """Have the verdict stored and the job dropped, as far as the commit has not seen to that."""
    job = one.job
    verdict = "committed"
    try:
        if isinstance(outcome, HeadgateError):
            if isinstance(outcome, KeyTaken) or _is_final(services, one, outcome):
                verdict = _settle_refused(services, job, outcome)
            else:
                raise outcome
        elif isinstance(outcome, KeyRecord) or outcome.replayed:
            verdict = "repeated"  # by another replica, or by the same request without the preference
            services.store.write((DropJob(job.principal, job.id),))
    except HeadgateError as error:
        return _try_again(services, one, error)
    services.metrics.jobs_done.labels(verdict).inc()
    return True


def _settle_refused(services: Services, job: Job, error: HeadgateError) -> str:
    """Store a refusal and drop the job at once, unless there is a verdict already."""
    key = _key_of(job, services.store.load_key(job.principal, job.id))
    if not isinstance(error, KeyTaken):
        reply = error_reply(_in_terms_of_append(error) if job.kind == STREAM else error)
        record = KeyRecord(
            key=key,
            principal=job.principal,
            fingerprint=job.fingerprint,
            status=int(reply.status),
            body=reply.body,
            created_at_ms=services.clock_ms(),
        )
        if services.store.write((PutKey(record), DropJob(job.principal, job.id))) is None:
            return "refused"
    if services.store.load_key(job.principal, key) is None:
        raise error
    services.store.write((DropJob(job.principal, job.id),))
    return "repeated"


def _try_again(services: Services, one: Try, error: HeadgateError) -> bool:
    services.metrics.job_retries.inc()
    log(
        logging.WARNING,
        "a job was not carried out; it will be tried again",
        job=one.job.id,
        kind=one.job.kind,
        attempt=one.attempt,
        code=error.code,
        error=error.message,
    )
    return False


def _is_final(services: Services, one: Try, error: HeadgateError) -> bool:
    """Whether the same job would be refused again, whenever it is tried."""
    job, is_last = one.job, one.attempt >= _RACES_MAX
    if type(error) is CommitRefused:  # it lost too many races
        return is_last
    if isinstance(error, BadInput) and error.field == _KEY_FIELD:
        return False  # the key was taken by another request just now, and the next attempt has one of its own
    if isinstance(error, NotFound) and error.kind == "table" and job.kind == STREAM and not is_last:
        return (
            _find_table(services, _stream_of(job)) is None
        )  # renamed while it was carried out, if it is there
    return is_terminal(error) or isinstance(error, Forbidden)


def _work_of(services: Services, job: Job, key: str) -> Work:
    """What the job asks for. Everything is checked anew: roles and tables may have changed."""
    caller = Caller(job.principal, _role_now(services, job), job.id, key, job.fingerprint)
    target = (job.namespace, job.name)
    if job.kind == STREAM:
        stored = _stream_of(job)
        header = _find_table(services, stored)
        if header is None:
            raise NotFound(f"Table does not exist: {dotted(target)}", kind="table")
        body = decode_into(AppendRequest, bytes(stored.append), max_depth=_DEPTH_MAX)
        same = (AssertTableUuid(uuid=stored.table_uuid),)
        return _append_work(services, caller, (header.namespace, header.name), body, requirements=same)
    if target == _TRANSACTION:
        changes = decode_into(CommitTransactionRequest, job.body, max_depth=_DEPTH_MAX).table_changes
        return plan_transaction(services, caller, changes)
    return plan_table(
        services, caller, target, decode_into(CommitTableRequest, job.body, max_depth=_DEPTH_MAX)
    )


def _role_now(services: Services, job: Job) -> Role:
    """The lesser of what the principal might do when it was acknowledged and what it may do now."""
    role = Role(job.role)
    if not services.settings.auth_is_on:
        return role
    principal = services.store.load_principal(job.principal)
    if principal is None:
        raise Forbidden("the principal that sent this request does not exist any more")
    return min(role, parse_role(principal.role), key=_ROLES.index)


def _stream_of(job: Job) -> StreamJob:
    return msgspec.json.decode(job.body, type=StreamJob)


def _find_table(services: Services, stored: StreamJob) -> EntryHeader | None:
    header = services.store.load_header_by_id(EntryId(stored.entry_id))
    return header if header is not None and header.kind is Kind.TABLE else None


def _append_work(
    services: Services,
    caller: Caller,
    target: Target,
    body: AppendRequest,
    *,
    requirements: tuple[TableRequirement, ...] = (),
) -> Work:
    require(caller, Role.INSERT)
    refuse_impossible(target)
    if not body.files:
        raise BadInput("files: an append needs files", field="files")
    update = Append(add_data_files=body.files, branch=body.branch, summary=body.summary)
    return Work(
        caller=caller,
        key=caller.key or services.new_uuid(),
        commits=(TableCommit(target, requirements, (update,)),),
        replay={"kind": APPEND_REPLAY, "role": Role.INSERT.value},
        status=HTTPStatus.OK,
        event=EVENT,
        fold=True,
    )


def _in_terms_of_append(error: HeadgateError) -> HeadgateError:
    """The same error with the field's name as this request has it."""
    if isinstance(error, BadInput) and error.field is not None:
        error.field = _as_in_append(error.field)
    elif "field" in error.evidence:
        error.evidence["field"] = _as_in_append(str(error.evidence["field"]))
    return error


def _as_in_append(field: str) -> str:
    return field.replace("updates[0].add-data-files", "files").removeprefix("updates[0].")
