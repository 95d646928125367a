"""Writes src/headgate/service/openapi.json: what this service adds to the Iceberg REST specification.

The schemas of requests come from the structs that decode them, so that document and service cannot differ; the rest
of the API is the specification's, and is referred to, not copied.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec

from headgate import __version__
from headgate.core.change import ChangeUpdate, Validation
from headgate.service.feed import EventsRequest
from headgate.service.table_requests import AppendRequest
from tools import openapi_examples as examples

FILE = Path(__file__).resolve().parent.parent / "src" / "headgate" / "service" / "openapi.json"
SPECIFICATION = "Apache Iceberg REST Catalog API (open-api/rest-catalog-open-api.yaml of Apache Iceberg 1.12)"
_PREFIX = "#/components/schemas/"
_TABLE = "/v1/namespaces/{namespace}/tables/{table}"
Json = dict[str, Any]

_EXPRESSION = {
    "description": f"A row filter: true, false, or an Expression of the {SPECIFICATION}.",
    "type": ["boolean", "object"],
}
_LONG = {"type": "integer", "format": "int64"}
_TEXT = {"type": "string"}
_MAYBE_LONG = {"type": ["integer", "null"], "format": "int64"}
_MAYBE_TEXT = {"type": ["string", "null"]}


def openapi_document() -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate: fine-grained commits, verdicts and the change feed",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": f"What Headgate adds to the {SPECIFICATION}. Everything that is not here is as it says.",
        },
        "externalDocs": {
            "description": SPECIFICATION,
            "url": "https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml",
        },
        "security": [{"bearer": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "parameters": _parameters(),
            "responses": _responses(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def openapi_text() -> str:
    """The document as it is written to the file."""
    return json.dumps(openapi_document(), indent=1, ensure_ascii=False) + "\n"


def _ref(name: str) -> Json:
    return {"$ref": _PREFIX + name}


def _object(properties: Json, description: str, required: tuple[str, ...] = ()) -> Json:
    shape: Json = {"type": "object", "description": description, "properties": properties}
    return {**shape, "required": list(required)} if required else shape


def _schemas() -> Json:
    changes, clauses = get_args(ChangeUpdate), get_args(Validation)
    _, made = msgspec.json.schema_components(
        [*changes, *clauses, EventsRequest, AppendRequest], ref_template=_PREFIX + "{name}"
    )
    for schema in made.values():
        for name in ("filter", "delete-row-filter"):
            if name in schema.get("properties", {}):
                schema["properties"][name] = _ref("Expression")
    return {
        **made,
        "Expression": _EXPRESSION,
        "Change": {
            "description": "A change of a table's files. The service judges it, and builds the snapshot.",
            "oneOf": [_ref(kind.__name__) for kind in changes],
        },
        "CommitValidation": {
            "description": "What must hold when the change is published; every clause of the list must.",
            "oneOf": [_ref(kind.__name__) for kind in clauses],
        },
        **_wire_schemas(),
    }


def _wire_schemas() -> Json:
    """Shapes that no single struct stands for."""
    commit: Json = {
        "identifier": {"type": "object", "description": "TableIdentifier of the specification."},
        "requirements": {
            "type": "array",
            "items": {"type": "object", "description": "TableRequirement of the specification."},
        },
        "updates": {
            "type": "array",
            "items": {
                "anyOf": [
                    _ref("Change"),
                    {"type": "object", "description": "TableUpdate of the specification."},
                ]
            },
        },
        "commit-validations": {"type": "array", "items": _ref("CommitValidation")},
        "base-snapshot-id": _MAYBE_LONG,
        "branch": {"type": "string", "default": "main"},
    }
    theirs: Json = {
        "snapshot-id": _LONG,
        "operation": _MAYBE_TEXT,
        "timestamp-ms": _LONG,
        "committed-by": _MAYBE_TEXT,
        "key": _MAYBE_TEXT,
    }
    conflict: Json = {
        "rule": {"type": "string", "description": "A slug of docs/conflicts.md."},
        "theirs": {
            "description": "The other commit; null when the table itself refuses.",
            "anyOf": [_object(theirs, "A commit of the window."), {"type": "null"}],
        },
        "files": {"type": "array", "maxItems": 20, "items": _TEXT},
        "file-count": {"type": "integer"},
        "filter": {
            "description": "What was read, as the client sent it; null for none, and above 10,000 bytes.",
            "anyOf": [
                _ref("Expression"),
                _object({"partitions": {"type": "array", "items": _ref("PartitionKey")}}, "Partitions."),
                {"type": "null"},
            ],
        },
        "next": {"type": "string", "description": "What to do now."},
    }
    error: Json = {
        "message": _TEXT,
        "type": _TEXT,
        "code": {"type": "integer", "description": "The HTTP status."},
        "stack": {"type": "array", "items": _TEXT},
        "headgate": _object(
            {
                "code": {"type": "string", "description": "Stable; a class of headgate.errors."},
                "retry": {"enum": ["never", "refresh", "later", "probe"]},
                "field": {"type": "string", "description": "Where in the request, for a bad one."},
            },
            "What a program may branch on.",
        ),
        "conflict": _ref("Conflict"),
    }
    minimal: Json = {
        "metadata-location": _TEXT,
        "snapshot-id": _MAYBE_LONG,
        "sequence-number": _LONG,
        "snapshots": {"type": "array", "items": {"type": "object"}},
    }
    verdict: Json = {
        "key": _TEXT,
        "status": {"enum": ["pending", "committed", "refused"]},
        "http-status": {"type": "integer", "description": "Of a verdict."},
        "created-at-ms": _LONG,
        "due-at-ms": {**_LONG, "description": "Of a pending request: when it is carried out."},
        "table": {"type": "object", "description": "Of a commit of one table."},
        "metadata-location": _TEXT,
        "snapshot-id": _MAYBE_LONG,
        "snapshot-ids": {"type": "array", "items": _LONG},
        "tables": {"type": "array", "items": {"type": "object"}},
        "error": {"type": "object", "description": "Of a refusal: the error as it was answered."},
    }
    return {
        "CommitTableRequest": _object(
            commit,
            "The specification's request, whose updates may be changes. Validations beside the updates are a read "
            "set: they are judged without a change.",
            ("requirements", "updates"),
        ),
        "CommitTransactionRequest": _object(
            {"table-changes": {"type": "array", "items": _ref("CommitTableRequest")}},
            "Several tables: all of it is published, or nothing.",
            ("table-changes",),
        ),
        "MinimalCommit": _object(minimal, "The answer under `Prefer: return=minimal`.", tuple(minimal)),
        "Conflict": {
            **_object(conflict, "Why a commit was refused.", tuple(conflict)),
            "examples": [examples.CONFLICT],
        },
        "Error": _object(
            {"error": _object(error, "The specification's error model and more.")}, "A refusal."
        ),
        "Verdict": _object(
            verdict, "What became of a commit, or that it is pending.", ("key", "status", "created-at-ms")
        ),
        "Acknowledged": _object(
            {
                "id": {"type": "string", "description": "The key of the commit: GET /v1/commits/{id}."},
                "status": {"enum": ["pending", "acknowledged", "committed"]},
                "commit-within-ms": {**_LONG, "description": "Of streamed files: until they are committed."},
            },
            "A request that is durable, and will be carried out whatever happens to the service.",
            ("id", "status"),
        ),
        "EventsPage": _object(
            {
                "continuation-token": _TEXT,
                "highest-processed-timestamp-ms": _LONG,
                "events": {"type": "array", "items": {"type": "object"}},
            },
            "Events in the order in which their commits were published.",
            ("continuation-token", "highest-processed-timestamp-ms", "events"),
        ),
    }


def _parameters() -> Json:
    def path(name: str, description: str) -> Json:
        return {"name": name, "in": "path", "required": True, "description": description, "schema": _TEXT}

    def query(name: str, description: str) -> Json:
        return {"name": name, "in": "query", "description": description, "schema": _TEXT}

    def header(name: str, description: str) -> Json:
        return {"name": name, "in": "header", "description": description, "schema": _TEXT}

    return {
        "namespace": path("namespace", "Levels, separated by the unit separator (%1F)."),
        "table": path("table", "The table's name."),
        "key": path("key", "The Idempotency-Key of the commit."),
        "snapshot-id": path("snapshot-id", "A snapshot of the table."),
        "idempotency-key": header(
            "Idempotency-Key", "A UUIDv7: the same request again gets the first verdict."
        ),
        "prefer": header(
            "Prefer",
            "`return=minimal` answers with what the commit brought, not with the table; `respond-async` with an "
            "acknowledgement. `group=fold` lets an append share its snapshot with others, `group=chain` does not; "
            "`wait=N` is how many seconds a commit may wait for its turn.",
        ),
        "cursor": query("cursor", "Where the page before ended."),
        "limit": query("limit", "How many at most."),
        "wait": query("wait", "How many seconds to wait for a verdict when there is none."),
        "wait-ms": query("wait-ms", "How long to wait for an event when there is none."),
    }


def _responses() -> Json:
    def response(description: str, schema: str) -> Json:
        return {"description": description, "content": _json(_ref(schema))}

    return {
        "BadInput": response("The request is wrong; `error.headgate.field` says where.", "Error"),
        "Forbidden": response("The caller's role does not allow it.", "Error"),
        "NotFound": response("It is not there.", "Error"),
        "Conflict": response("Refused, for certain; `error.conflict` says why.", "Error"),
        "Acknowledged": response(
            "It is durable, and will be carried out; Location says where to ask.", "Acknowledged"
        ),
        "Overloaded": response("Nothing happened; Retry-After says when to ask again.", "Error"),
        "Unknown": response("Nobody knows yet: ask again under the same key.", "Error"),
    }


def _paths() -> Json:
    commit = _operation(
        "commitTable",
        "Commit to a table: plain updates and changes, all or none. An append needs the role insert, other changes "
        "modify, updates of schema and properties admin.",
        parameters=("namespace", "table", "idempotency-key", "prefer"),
        answer=("The table, or under `Prefer: return=minimal` what the commit brought.", "MinimalCommit"),
    )
    commit["requestBody"] = _body("CommitTableRequest", examples.COMMITS)
    append = _operation(
        "appendFiles",
        "Append data files soon, together with those of others, within the table's `headgate.stream.linger-ms`.",
        parameters=("namespace", "table", "idempotency-key"),
        answer=("The files are committed already: a repeat under the same key.", "Acknowledged"),
    )
    append["requestBody"] = _body("AppendRequest", {"stream": examples.APPEND})
    transaction = _operation(
        "commitTransaction",
        "Commit to several tables at once. A table with validations and no updates is a read set.",
        parameters=("idempotency-key", "prefer"),
        answer=None,
    )
    transaction["requestBody"] = _body("CommitTransactionRequest", {"read-set": examples.TRANSACTION})
    events = _operation("readEvents", "The change feed of the catalog.", answer=("A page.", "EventsPage"))
    events["requestBody"] = _body("EventsRequest", {"tables": examples.EVENTS})
    for operation in (commit, transaction, append):
        operation["responses"]["202"] = {"$ref": "#/components/responses/Acknowledged"}
    return {
        _TABLE: {"post": commit},
        f"{_TABLE}/append": {"post": append},
        "/v1/transactions/commit": {"post": transaction},
        "/v1/commits/{key}": {
            "get": _operation(
                "loadVerdict",
                "What became of a commit that the caller sent under this key, or that it is pending.",
                parameters=("key", "wait", "prefer"),
                answer=("The verdict.", "Verdict"),
            )
        },
        "/v1/events": {"post": events},
        f"{_TABLE}/events": {
            "get": _operation(
                "readTableEvents",
                "The change feed of one table.",
                parameters=("namespace", "table", "cursor", "limit", "wait-ms"),
                answer=("A page.", "EventsPage"),
            )
        },
        f"{_TABLE}/snapshots/{{snapshot-id}}/changes": {
            "get": _operation(
                "loadChanges",
                "The files that a snapshot added and removed, page by page.",
                parameters=("namespace", "table", "snapshot-id", "cursor", "limit"),
                answer=("A page.", None),
            )
        },
        "/v1/openapi.json": {
            "get": _operation("loadOpenApi", "This document.", answer=("This document.", None))
        },
    }


def _operation(
    id_: str,
    summary: str,
    *,
    parameters: tuple[str, ...] = (),
    answer: tuple[str, str | None] | None,
) -> Json:
    responses: Json = {"204": {"description": "Committed."}}
    if answer is not None:
        text, schema = answer
        responses = {
            "200": {"description": text, "content": _json(_ref(schema) if schema else {"type": "object"})}
        }
    for status, name in (
        ("400", "BadInput"),
        ("403", "Forbidden"),
        ("404", "NotFound"),
        ("409", "Conflict"),
        ("429", "Overloaded"),
        ("5XX", "Unknown"),
    ):
        if name == "Conflict" and not id_.startswith("commit"):
            continue
        responses[status] = {"$ref": f"#/components/responses/{name}"}
    return {
        "operationId": id_,
        "summary": summary,
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters],
        "responses": responses,
    }


def _body(schema: str, shown: Json) -> Json:
    values = {name: {"value": value} for name, value in shown.items()}
    return {"required": True, "content": {"application/json": {"schema": _ref(schema), "examples": values}}}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
