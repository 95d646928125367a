"""Our own OpenAPI document: up to date, served, complete; every example decodes and is accepted by the service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools import openapi_examples as examples
from tools.make_openapi import FILE, openapi_document, openapi_text

from headgate.core.change import ChangeUpdate, Validation
from headgate.format.strict_json import decode_into
from headgate.service.feed import EventsRequest
from headgate.service.routes import all_routes
from headgate.service.table_requests import AppendRequest, CommitTableRequest, CommitTransactionRequest
from tests.service.app_client import AppClient, app_client, bearer

REQUESTS = {
    "AppendRequest": AppendRequest,
    "CommitTableRequest": CommitTableRequest,
    "CommitTransactionRequest": CommitTransactionRequest,
    "EventsRequest": EventsRequest,
}
TABLE = "/v1/namespaces/lake/tables/events"


def shown_requests() -> Iterator[tuple[str, str, str, Any]]:
    """Path, schema, name and value of every example of a request."""
    for path, methods in openapi_document()["paths"].items():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for name, example in content.get("examples", {}).items():
                yield path, content["schema"]["$ref"].rsplit("/", 1)[1], name, example["value"]


def test_the_document_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == openapi_text()


def test_the_document_is_served_to_readers(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        assert client.get("/v1/openapi.json").status_code == 401
        token = client.token("r", client.add_principal("r", "read"))
        answer = client.get("/v1/openapi.json", headers=bearer(token))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == json.loads(openapi_text())


def test_every_reference_of_the_document_leads_somewhere() -> None:
    document = openapi_document()

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    found = set(walk(document))
    assert found
    for ref in found:
        place: Any = document
        for part in ref.removeprefix("#/").split("/"):
            assert part in place, ref
            place = place[part]


def test_every_path_of_the_document_is_a_route_of_the_service() -> None:
    routes = {(route.method.lower(), route.template) for route in all_routes().routes}
    shown = {(method, path) for path, methods in openapi_document()["paths"].items() for method in methods}
    assert shown <= routes


def test_every_change_and_validation_of_the_wire_is_in_the_document() -> None:
    schemas = openapi_document()["components"]["schemas"]
    for kind in (*ChangeUpdate.__args__, *Validation.__args__):
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert fields <= set(schemas[kind.__name__]["properties"]), kind


@pytest.mark.parametrize(("path", "schema", "name", "value"), list(shown_requests()))
def test_every_example_decodes_as_the_service_decodes_it(
    path: str, schema: str, name: str, value: Any
) -> None:
    assert decode_into(REQUESTS[schema], json.dumps(value).encode()) is not None, (path, name)


def test_the_service_accepts_every_example_in_order(tmp_path: Path) -> None:
    with app_client(tmp_path) as client:
        _make_tables(client)
        for path, _, name, value in shown_requests():
            real = path.replace("{namespace}", "lake").replace("{table}", "events")
            answer = client.post(real, _localise(client, value), headers={"Prefer": "return=minimal"})
            assert answer.status_code in (200, 202, 204), (name, answer.text)


def test_the_conflict_of_the_document_has_the_fields_of_a_real_one(tmp_path: Path) -> None:
    with app_client(tmp_path) as client:
        _make_tables(client)
        append = examples.COMMITS["append"]
        base = client.post(TABLE, _localise(client, append)).json()["metadata"]["current-snapshot-id"]
        overwrite = _localise(client, examples.COMMITS["copy-on-write"], base=base)
        late = json.loads(json.dumps(append).replace("/a1", "/a9").replace("/b1", "/b9"))
        assert client.post(TABLE, _localise(client, late)).status_code == 200
        refused = client.post(TABLE, overwrite)
    assert refused.status_code == 409
    conflict = refused.json()["error"]["conflict"]
    assert conflict.keys() == examples.CONFLICT.keys()
    assert conflict["theirs"].keys() == examples.CONFLICT["theirs"].keys()
    for name in ("rule", "next", "filter"):
        assert conflict[name] == examples.CONFLICT[name]


def _make_tables(client: AppClient) -> None:
    client.post("/v1/namespaces", {"namespace": ["lake"]})
    for name in examples.TABLES:
        body = {"name": name, "schema": examples.SCHEMA, "partition-spec": examples.SPEC}
        assert client.post("/v1/namespaces/lake/tables", body).status_code == 200


def _localise(client: AppClient, value: Any, *, base: int | None = None) -> Any:
    """The example with this table's location, and its head as the base."""
    metadata = client.get(TABLE).json()["metadata"]
    head = base or metadata.get("current-snapshot-id")
    text = json.dumps(value).replace(examples.LOCATION, metadata["location"])
    return json.loads(text.replace(str(examples.SNAPSHOT_ID), str(head)))
