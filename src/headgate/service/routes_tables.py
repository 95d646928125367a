"""The routes of tables: JSON to values and back. The work is in `tables` and `table_lifecycle`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from headgate.core.commit import Committed, Head, Target, Verdict
from headgate.core.table import TableMetadata
from headgate.core.value import Record
from headgate.errors import BadInput, HeadgateError, Unsupported
from headgate.format.strict_json import decode_into
from headgate.format.table_metadata import METADATA_BYTES_MAX, encode_parts, inflate
from headgate.service import jobs, table_lifecycle, tables
from headgate.service.commit_records import Landed, Work, landed_in
from headgate.service.commit_requests import check_target, plan_table, plan_transaction
from headgate.service.commits import run_commit, submit_commit
from headgate.service.exchange import (
    Body,
    Reply,
    Request,
    Route,
    json_reply,
    later,
    no_content,
    not_modified,
    parts_reply,
    split_levels,
)
from headgate.service.namespaces import load_namespace
from headgate.service.paging import read_page
from headgate.service.placement import folder_of
from headgate.service.preferences import Preferences, find_deadline, read_preferences, wants_minimal
from headgate.service.roles import Role
from headgate.service.services import Services
from headgate.service.table_requests import (
    CommitTableRequest,
    CommitTransactionRequest,
    CreateTableRequest,
    RegisterTableRequest,
    RenameRequest,
)


def _target(request: Request) -> Target:
    params = request.params
    return split_levels(params["namespace"]), params["table"]


def _etag(head: Head, *, refs_only: bool = False) -> str:
    return f'"{head.id}-{head.version}{"-refs" if refs_only else ""}"'


def _table_reply(
    head: Head | None, metadata: TableMetadata, *, refs_only: bool = False, with_config: bool = True
) -> Reply:
    """A LoadTableResult; without a head (staged) it has no metadata location and no etag."""
    opening = b'{"metadata":'
    headers: tuple[tuple[str, str], ...] = ()
    if head is not None:
        opening = b'{"metadata-location":' + msgspec.json.encode(head.metadata_location) + b',"metadata":'
        headers = (("etag", _etag(head, refs_only=refs_only)),)
    closing = b',"config":{}}' if with_config else b"}"
    return parts_reply((opening, *encode_parts(metadata, refs_only=refs_only), closing), headers=headers)


def _minimal_reply(head: Head, landed: Landed | None) -> Reply:
    """What a commit brought and nothing of what was there before; expired snapshots are left out."""
    metadata = head.metadata
    envelope = metadata.envelope
    ids = () if landed is None else landed.snapshot_ids
    added = [snapshot for id_ in ids if (snapshot := metadata.find_snapshot(id_)) is not None]
    body = {
        "metadata-location": head.metadata_location if landed is None else landed.metadata_location,
        "snapshot-id": ids[-1] if ids else envelope.current_snapshot_id,
        "snapshots": added,
        "sequence-number": added[-1].sequence_number if added else envelope.last_sequence_number,
    }
    return json_reply(body, headers=_IS_MINIMAL)


def list_tables(services: Services, request: Request) -> Reply:
    """GET /v1/namespaces/{namespace}/tables"""
    levels = request.namespace
    page = read_page(
        request.query, listing=tables.listing_of(levels), size_max=services.settings.page_size_max
    )
    names, token = tables.list_tables(services, levels, page)
    found = [{"namespace": levels, "name": name} for name in names]
    return json_reply({"identifiers": found, "next-page-token": token})


def create_table(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/tables"""
    body = decode_into(CreateTableRequest, request.body, max_depth=request.json_depth_max)
    levels = load_namespace(services, request.namespace).levels
    target = check_target(levels, body.name, field="")
    if body.stage_create:
        return _table_reply(None, tables.stage_table(services, target, body))
    head = tables.create_table(services, request.caller, target, body)
    return _table_reply(head, head.metadata)


def register_table(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/register"""
    body = decode_into(RegisterTableRequest, request.body, max_depth=request.json_depth_max)
    levels = load_namespace(services, request.namespace).levels
    target = check_target(levels, body.name, field="")
    head = table_lifecycle.register_table(services, request.caller, target, body)
    return _table_reply(head, head.metadata)


def load_table(services: Services, request: Request) -> Reply:
    """GET /v1/namespaces/{namespace}/tables/{table}"""
    mode = request.query.get("snapshots", "all").lower()
    if mode not in ("all", "refs"):
        raise BadInput(f"Invalid snapshot mode: {mode[:50]}", field="snapshots")
    head = tables.load_table(services, _target(request))
    etag = _etag(head, refs_only=mode == "refs")
    if etag in request.headers.get("if-none-match", ""):
        return not_modified(etag)
    tables.ensure_file(services, head)
    return _table_reply(head, head.metadata, refs_only=mode == "refs")


def table_exists(services: Services, request: Request) -> Reply:
    """HEAD /v1/namespaces/{namespace}/tables/{table}"""
    tables.load_table(services, _target(request))
    return no_content()


class _Commit(Record, gc=True):
    """A commit of one table that is queued, and what answers it."""

    services: Services
    work: Work
    preferences: Preferences
    deadline: float | None
    is_small: bool

    def start(self, done: Callable[[Verdict], None]) -> None:
        """Queue it."""
        submit_commit(self.services, self.work, done, deadline=self.deadline, is_small=self.is_small)

    def finish(self, verdict: Committed) -> Reply:
        """The answer to a commit that landed."""
        head, landed = tables.describe_commit(self.services, self.work, verdict)
        if self.preferences.is_minimal:
            return _minimal_reply(head, landed)
        tables.write_late(self.services)
        return _table_reply(head, head.metadata, with_config=False)


def commit_table(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/tables/{table}"""
    return _commit_table(services, request, read_preferences(request.headers))


def _commit_table(services: Services, request: Request, preferences: Preferences) -> Reply:
    body = decode_into(CommitTableRequest, request.body, max_depth=request.json_depth_max)
    target = _target(request)
    if preferences.is_async:
        return jobs.accept_table(services, request, target, body)
    work = plan_table(services, request.caller, target, body, fold=preferences.fold)
    deadline = None if preferences.wait_s is None else find_deadline(preferences)
    commit = _Commit(services, work, preferences, deadline, len(request.body) <= _QUICK_BYTES_MAX)
    if body.requirements and work.commits[0].creates():
        return commit.finish(run_commit(services, work))
    return later(commit.start, commit.finish)


def commit_quickly(services: Services, request: Request) -> Reply | None:
    """As `commit_table`, on the event loop: for small requests of changes, which need nothing but their head."""
    body, preferences = request.body, read_preferences(request.headers)
    if (
        len(body) > _QUICK_BYTES_MAX
        or preferences.is_async  # to acknowledge it is to write it
        # Words of requests that look at files or namespaces before they are queued, or are answered by another road.
        or b"add-snapshot" in body
        or b"assert-create" in body
        or b"statistics" in body
        or b"\\u" in body  # an escape, which may spell such a word
    ):
        return None
    try:
        return _commit_table(services, request, preferences)
    except HeadgateError:
        if request.caller.key is None:
            raise
        return None  # a worker finds the same, and stores the refusal under the key


def drop_table(services: Services, request: Request) -> Reply:
    """DELETE /v1/namespaces/{namespace}/tables/{table}"""
    purge = request.flag("purgeRequested")
    table_lifecycle.drop_table(services, request.caller, _target(request), purge=purge)
    return no_content()


def unregister_table(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/tables/{table}/unregister"""
    head = table_lifecycle.unregister_table(services, request.caller, _target(request))
    return _table_reply(head, head.metadata, with_config=False)


def rename_table(services: Services, request: Request) -> Reply:
    """POST /v1/tables/rename"""
    body = decode_into(RenameRequest, request.body, max_depth=request.json_depth_max)
    source = (tuple(body.source.namespace), body.source.name)
    destination = check_target(body.destination.namespace, body.destination.name, field="destination")
    table_lifecycle.rename_table(services, request.caller, source, destination)
    return no_content()


def commit_transaction(services: Services, request: Request) -> Reply:
    """POST /v1/transactions/commit"""
    body = decode_into(CommitTransactionRequest, request.body, max_depth=request.json_depth_max)
    if read_preferences(request.headers).is_async:
        return jobs.accept_transaction(services, request, body.table_changes)
    run_commit(services, plan_transaction(services, request.caller, body.table_changes))
    return no_content()


def load_credentials(services: Services, request: Request) -> Reply:
    """GET /v1/namespaces/{namespace}/tables/{table}/credentials: clients bring their own."""
    tables.load_table(services, _target(request))
    return json_reply({"storage-credentials": []})


def sign_request(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/tables/{table}/sign"""
    raise Unsupported("this service does not sign storage requests; give the engine credentials of its own")


def replay_table(services: Services, request: Request, stored: Mapping[str, object]) -> Reply:
    """The answer to a key whose commit landed: the table as it is now, whatever its name."""
    head = tables.load_landed(services, str(stored["id"]), key=request.caller.key)
    is_commit = request.method == "POST" and "table" in request.params
    if is_commit and wants_minimal(request.headers):
        return _minimal_reply(head, landed_in(stored))
    services.journal.stand(folder_of(head.metadata))
    return _table_reply(head, head.metadata)


def replay_unregistered(services: Services, request: Request, stored: Mapping[str, object]) -> Reply:
    """The answer to a key whose table is gone from the catalog: its last metadata file, as it was left."""
    location = str(stored["metadata-location"])
    text = inflate(services.files.read(location, limit_bytes=METADATA_BYTES_MAX), location=location)
    return parts_reply((b'{"metadata-location":', msgspec.json.encode(location), b',"metadata":', text, b"}"))


_QUICK_BYTES_MAX = 64 << 10
_IS_MINIMAL = (("preference-applied", "return=minimal"),)
_ALL = "/v1/namespaces/{namespace}/tables"
_ONE = "/v1/namespaces/{namespace}/tables/{table}"

ROUTES = (
    Route("GET", _ALL, list_tables, Role.READ),
    Route("POST", _ALL, create_table, Role.ADMIN, Body.JSON, takes_key=True),
    Route(
        "POST", "/v1/namespaces/{namespace}/register", register_table, Role.ADMIN, Body.JSON, takes_key=True
    ),
    Route("GET", _ONE, load_table, Role.READ),
    Route("HEAD", _ONE, table_exists, Role.READ),
    Route("POST", _ONE, commit_table, Role.INSERT, Body.JSON, takes_key=True, quick=commit_quickly),
    Route("DELETE", _ONE, drop_table, Role.ADMIN, takes_key=True),
    Route("POST", f"{_ONE}/unregister", unregister_table, Role.ADMIN, takes_key=True),
    Route("GET", f"{_ONE}/credentials", load_credentials, Role.READ),
    Route("POST", f"{_ONE}/sign", sign_request, Role.READ, Body.JSON, advertised=False),
    Route("POST", "/v1/tables/rename", rename_table, Role.ADMIN, Body.JSON, takes_key=True),
    Route("POST", "/v1/transactions/commit", commit_transaction, Role.INSERT, Body.JSON, takes_key=True),
)
REPLAYERS = {"table": replay_table, "unregistered": replay_unregistered}
