"""Bad requests, one line each: what they are answered, what the answer names, and that nothing has changed."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.format.table_metadata import METADATA_BYTES_MAX
from headgate.store.open import open_store
from tests.service.app_client import AppClient, app_client
from tests.service.table_calls import (
    SCHEMA,
    append,
    created,
    error_of,
    field_of,
    files_below,
    load,
    local,
    make_namespace,
    path,
    picture_of,
    ref,
    set_properties,
    snapshot,
    touch,
)
from tests.service.test_tables import CREATES, VIEW, drain, staged_updates

TABLES, TABLE = "/v1/namespaces/a/tables", "/v1/namespaces/a/tables/t"
VIEWS, ONE_VIEW = "/v1/namespaces/a/views", "/v1/namespaces/a/views/v"
REGISTER, REGISTER_VIEW = "/v1/namespaces/a/register", "/v1/namespaces/a/register-view"
RENAME, TRANSACTION = "/v1/tables/rename", "/v1/transactions/commit"
NAMESPACES, PROPERTIES = "/v1/namespaces", "/v1/namespaces/a/properties"
BODY_LIMIT = 200_000
NEW = {"name": "new", "schema": SCHEMA}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    """One service for all: no request here changes anything."""
    folder = tmp_path_factory.mktemp("bad")
    store = open_store(f"sqlite:///{folder / 'catalog.db'}")
    with app_client(folder, store=store, body_limit_bytes=BODY_LIMIT) as made:
        make_namespace(made)
        for name in ("t", "u"):
            created(made, name)
        assert append(made).status_code == 200
        assert made.post(VIEWS, VIEW).status_code == 200
        yield made


def root_of(client: AppClient) -> Path:
    return local(client.services.locations.roots[0])


def unchanged(client: AppClient) -> tuple[object, object]:
    return picture_of(client.services.store), files_below(root_of(client))


def updates(*some: object, requirements: object = ()) -> dict[str, object]:
    return {"requirements": list(requirements) if requirements == () else requirements, "updates": list(some)}


def schema(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**NEW, "schema": {"type": "struct", "fields": list(fields), **more}}


def column(**changes: Any) -> dict[str, Any]:
    return {"id": 1, "name": "id", "type": "long", "required": False, **changes}


def nested(depth: int) -> dict[str, Any]:
    kind: Any = "long"
    for i in range(depth):
        kind = {"type": "list", "element-id": i + 2, "element": kind, "element-required": False}
    return column(type=kind)


def naming(source: object = ("a", "t"), destination: object = ("a", "new")) -> dict[str, Any]:
    def one(name: object) -> object:
        return {"namespace": list(name[:-1]), "name": name[-1]} if isinstance(name, tuple) else name

    return {"source": one(source), "destination": one(destination)}


def changes(*names: str, **fields: Any) -> dict[str, Any]:
    good = {"requirements": [], "updates": [set_properties(x="y")], **fields}
    return {"table-changes": [{"identifier": {"namespace": ["a"], "name": name}, **good} for name in names]}


def view_version(**fields: Any) -> dict[str, Any]:
    version: dict[str, Any] = VIEW["view-version"]  # type: ignore[assignment]
    return {**VIEW, "name": "new", "view-version": {**version, **fields}}


def raw(text: str) -> bytes:
    return text.encode()


SNAPSHOT = {"snapshot-id": 9, "sequence-number": 9, "timestamp-ms": 1, "manifest-list": "LIST", "summary": {}}

# name | where | body | status | what its field or message says
BAD: list[tuple[str, str, object, int, str]] = [
    # --- text that is no JSON, or too much of it
    ("empty body", TABLES, b"", 400, "JSON"),
    ("cut off", TABLES, raw('{"name": "x"'), 400, "JSON"),
    ("two values", TABLES, raw("{} {}"), 400, "JSON"),
    ("trailing comma", TABLES, raw('{"name": "x",}'), 400, "JSON"),
    ("comment", TABLES, raw('{"name": "x"} // x'), 400, "JSON"),
    ("single quotes", TABLES, raw("{'name': 'x'}"), 400, "JSON"),
    ("not a number", TRANSACTION, raw('{"table-changes": NaN}'), 400, "JSON"),
    ("not UTF-8", TABLES, b'{"name": "\xff"}', 400, "UTF-8"),
    ("UTF-16", TABLES, '{"name": "x"}'.encode("utf-16"), 400, "UTF-8"),
    ("lone surrogate", TABLES, raw('{"name": "\\ud800"}'), 400, "JSON"),
    ("duplicate key", TABLES, raw('{"name": "x", "name": "y"}'), 400, "name"),
    ("duplicate key deep inside", TABLE, raw('{"updates": [{"a": {"b": 1, "b": 2}}]}'), 400, "b"),
    ("nested arrays", TABLES, raw("[" * 5_000 + "]" * 5_000), 400, "nested"),
    ("nested objects", TABLES, raw('{"a":' * 200 + "1" + "}" * 200), 400, "nested"),
    ("brackets that never close", TABLES, raw("[" * 90_000), 400, "nested"),
    ("huge integer", TABLE, raw('{"requirements": [], "updates": [], "x": 1' + "0" * 400 + "}"), 400, "64 bits"),
    ("body over the limit", TABLES, raw('{"name": "' + "x" * BODY_LIMIT + '"}'), 413, "body"),
    ("an array", TABLES, [], 400, "object"),
    ("a string", TABLES, "x", 400, "object"),
    ("null", TABLES, raw("null"), 400, "object"),
    # --- create table
    ("no name", TABLES, {"schema": SCHEMA}, 400, "name"),
    ("name is null", TABLES, {**NEW, "name": None}, 400, "name"),
    ("name is a number", TABLES, {**NEW, "name": 1}, 400, "name"),
    ("name is empty", TABLES, {**NEW, "name": ""}, 400, "name"),
    ("name with a slash", TABLES, {**NEW, "name": "a/b"}, 400, "name"),
    ("name with a backslash", TABLES, {**NEW, "name": "a\\b"}, 400, "name"),
    ("name with NUL", TABLES, {**NEW, "name": "a\x00b"}, 400, "name"),
    ("name with a newline", TABLES, {**NEW, "name": "a\nb"}, 400, "name"),
    ("name with the separator of levels", TABLES, {**NEW, "name": "a\x1fb"}, 400, "name"),
    ("name with a wildcard", TABLES, {**NEW, "name": "*"}, 400, "name"),
    ("name with a quote", TABLES, {**NEW, "name": "a'b"}, 400, "name"),
    ("name that is not normal", TABLES, {**NEW, "name": "e\u0301"}, 400, "name"),
    ("name that turns text around", TABLES, {**NEW, "name": "a\u202eb"}, 400, "name"),
    ("name too long", TABLES, {**NEW, "name": "x" * 256}, 400, "name"),
    ("no schema", TABLES, {"name": "new"}, 400, "schema"),
    ("schema is null", TABLES, {**NEW, "schema": None}, 400, "schema"),
    ("schema of another type", TABLES, {**NEW, "schema": {"type": "list", "fields": []}}, 400, "schema"),
    ("fields is an object", TABLES, {**NEW, "schema": {"type": "struct", "fields": {}}}, 400, "schema.fields"),
    ("column without a name", TABLES, schema({"id": 1, "type": "long", "required": False}), 400, "name"),
    ("column with an empty name", TABLES, schema(column(name="")), 400, "schema.fields.name"),
    ("column twice", TABLES, schema(column(), column(id=2)), 400, "schema.fields.name"),
    ("column id twice", TABLES, schema(column(), column(name="b")), 400, "schema.fields.id"),
    ("column id out of range", TABLES, schema(column(id=2**31)), 400, "schema.fields[0].id"),
    ("column id is a string", TABLES, schema(column(id="1")), 400, "schema.fields[0].id"),
    ("column of an unknown type", TABLES, schema(column(type="money")), 400, "schema.fields.type"),
    ("decimal too wide", TABLES, schema(column(type="decimal(99,2)")), 400, "schema.fields.type"),
    ("type of a later version", TABLES, schema(column(type="variant")), 400, "schema.fields.type"),
    ("types nested deep", TABLES, schema(nested(40)), 400, "nested"),
    ("identifier that is no column", TABLES, schema(column(), **{"identifier-field-ids": [7]}), 400, "identifier"),
    ("unknown transform", TABLES, {**NEW, "partition-spec": {"fields": [{"source-id": 1, "name": "p", "transform": "hash"}]}}, 400, "transform"),  # noqa: E501
    ("partition of no column", TABLES, {**NEW, "partition-spec": {"fields": [{"source-id": 9, "name": "p", "transform": "identity"}]}}, 400, "source-id"),  # noqa: E501
    ("order of no column", TABLES, {**NEW, "write-order": {"order-id": 1, "fields": [{"source-id": 9, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}}, 400, "source-id"),  # noqa: E501
    ("format version of tomorrow", TABLES, {**NEW, "properties": {"format-version": "9"}}, 400, "format-version"),
    ("format version that is no number", TABLES, {**NEW, "properties": {"format-version": "two"}}, 400, "format-version"),
    ("property that is a number", TABLES, {**NEW, "properties": {"x": 1}}, 400, "properties"),
    ("property that is null", TABLES, {**NEW, "properties": {"x": None}}, 400, "properties"),
    ("stage-create is a string", TABLES, {**NEW, "stage-create": "true"}, 400, "stage-create"),
    ("in no namespace", "/v1/namespaces/nowhere/tables", NEW, 404, "nowhere"),
    # --- commit
    ("commit without updates", TABLE, {"requirements": []}, 400, "updates"),
    ("requirements is null", TABLE, {"updates": [], "requirements": None}, 400, "requirements"),
    ("updates is null", TABLE, {"requirements": [], "updates": None}, 400, "updates"),
    ("update is null", TABLE, updates(None), 400, "updates[0]"),
    ("update without an action", TABLE, updates({"location": "x"}), 400, "action"),
    ("unknown update", TABLE, updates({"action": "explode"}), 400, "explode"),
    ("action is a number", TABLE, updates({"action": 1}), 400, "action"),
    ("unknown requirement", TABLE, updates(requirements=[{"type": "assert-luck"}]), 400, "assert-luck"),
    ("requirement without its field", TABLE, updates(requirements=[{"type": "assert-table-uuid"}]), 400, "uuid"),
    ("create among other requirements", TABLE, updates(requirements=[*CREATES, {"type": "assert-table-uuid", "uuid": "x"}]), 400, "requirements"),  # noqa: E501
    ("another uuid", TABLE, updates({"action": "assign-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}), 400, "uuid"),
    ("downgrade", TABLE, updates({"action": "upgrade-format-version", "format-version": 1}), 400, "format-version"),
    ("upgrade to tomorrow", TABLE, updates({"action": "upgrade-format-version", "format-version": 9}), 400, "format-version"),  # noqa: E501
    ("unknown current schema", TABLE, updates({"action": "set-current-schema", "schema-id": 7}), 400, "schema-id"),
    ("last schema without one", TABLE, updates({"action": "set-current-schema", "schema-id": -1}), 400, "schema-id"),
    ("unknown default spec", TABLE, updates({"action": "set-default-spec", "spec-id": 7}), 400, "spec-id"),
    ("unknown default order", TABLE, updates({"action": "set-default-sort-order", "sort-order-id": 7}), 400, "sort-order-id"),  # noqa: E501
    ("removal of the current schema", TABLE, updates({"action": "remove-schemas", "schema-ids": [0]}), 400, "schema-ids"),
    ("removal of the default spec", TABLE, updates({"action": "remove-partition-specs", "spec-ids": [0]}), 400, "spec-ids"),
    ("ref to an unknown snapshot", TABLE, updates(ref(77)), 400, "snapshot-id"),
    ("ref of an unknown type", TABLE, updates(ref(1, name="x", type="twig")), 400, "type"),
    ("main as a tag", TABLE, updates(ref(1, type="tag")), 400, "type"),
    ("ref without a name", TABLE, updates(ref(1, name="")), 400, "ref-name"),
    ("ref kept for no time", TABLE, updates({**ref(1, name="x"), "max-ref-age-ms": 0}), 400, "max-ref-age-ms"),
    ("removal of the head", TABLE, updates({"action": "remove-snapshots", "snapshot-ids": [1]}), 409, "main"),
    ("snapshot without an id", TABLE, updates({"action": "add-snapshot", "snapshot": {"timestamp-ms": 1}}), 400, "snapshot-id"),  # noqa: E501
    ("snapshot id out of range", TABLE, raw('{"requirements":[],"updates":[{"action":"add-snapshot","snapshot":{"snapshot-id":9223372036854775808}}]}'), 400, "64 bits"),  # noqa: E501
    ("snapshot id below zero", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "snapshot-id": -1}}), 400, "snapshot-id"),  # noqa: E501
    ("sequence number below zero", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "sequence-number": -1}}), 400, "sequence-number"),  # noqa: E501
    ("snapshot that is there", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "snapshot-id": 1, "summary": {"operation": "append"}, "timestamp-ms": "NOW"}}), 400, "snapshot-id"),  # noqa: E501
    ("snapshot without a manifest list", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "manifest-list": None}}), 400, "manifest-list"),  # noqa: E501
    ("snapshot without an operation", TABLE, updates({"action": "add-snapshot", "snapshot": SNAPSHOT}), 400, "summary"),
    ("snapshot of an unknown schema", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "summary": {"operation": "append"}, "schema-id": 9}}), 400, "schema-id"),  # noqa: E501
    ("snapshot of long ago", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "summary": {"operation": "append"}}}), 400, "timestamp-ms"),  # noqa: E501
    ("snapshot of the far future", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "summary": {"operation": "append"}, "timestamp-ms": 2**62}}), 400, "timestamp-ms"),  # noqa: E501
    ("summary with a number", TABLE, updates({"action": "add-snapshot", "snapshot": {**SNAPSHOT, "summary": {"added-records": 1}}}), 400, "summary"),  # noqa: E501
    ("commit for another table", TABLE, {**updates(), "identifier": {"namespace": ["a"], "name": "u"}}, 400, "identifier"),
    ("commit to no table", f"{TABLES}/nothing", updates(), 404, "a.nothing"),
    ("commit to a view", f"{TABLES}/v", updates(), 404, "a.v"),
    # --- transactions
    ("transaction of nothing", TRANSACTION, {"table-changes": []}, 400, "table-changes"),
    ("transaction without changes", TRANSACTION, {}, 400, "table-changes"),
    ("change without an identifier", TRANSACTION, {"table-changes": [updates()]}, 400, "identifier"),
    ("table twice", TRANSACTION, changes("t", "u", "t"), 400, "table-changes[2].identifier"),
    ("last table missing", TRANSACTION, changes("t", "u", "nothing"), 404, "a.nothing"),
    ("name that cannot be", TRANSACTION, changes("t", "a*"), 400, "table-changes[1].identifier.name"),
    ("namespace that cannot be", TRANSACTION, {"table-changes": [{"identifier": {"namespace": [], "name": "t"}, **updates()}]}, 400, "identifier.namespace"),  # noqa: E501
    ("requirement that does not hold", TRANSACTION, changes("t", requirements=[{"type": "assert-default-spec-id", "default-spec-id": 5}]), 409, "default partition spec"),  # noqa: E501
    # --- rename
    ("rename without a source", RENAME, {"destination": {"namespace": ["a"], "name": "x"}}, 400, "source"),
    ("rename without a destination", RENAME, {"source": {"namespace": ["a"], "name": "t"}}, 400, "destination"),
    ("rename to a bad name", RENAME, naming(destination=("a", "x/y")), 400, "destination.name"),
    ("rename to no levels", RENAME, naming(destination=("new",)), 400, "destination.namespace"),
    ("rename of nothing", RENAME, naming(source=("a", "nothing")), 404, "a.nothing"),
    ("rename of a name that cannot be", RENAME, naming(source=("a", "x\x00y")), 404, "Table does not exist"),
    ("rename of a view as a table", RENAME, naming(source=("a", "v")), 404, "a.v"),
    ("rename to nowhere", RENAME, naming(destination=("nowhere", "t")), 404, "nowhere"),
    ("rename onto a table", RENAME, naming(destination=("a", "u")), 409, "a.u"),
    ("rename with levels as a string", RENAME, naming(source={"namespace": "a", "name": "t"}), 400, "source.namespace"),
    ("rename of a table as a view", "/v1/views/rename", naming(), 404, "a.t"),
    # --- namespaces
    ("namespace of no levels", NAMESPACES, {"namespace": []}, 400, "namespace"),
    ("namespace that is a string", NAMESPACES, {"namespace": "b"}, 400, "namespace"),
    ("level that is null", NAMESPACES, {"namespace": [None]}, 400, "namespace"),
    ("level that is empty", NAMESPACES, {"namespace": ["a", ""]}, 400, "namespace[1]"),
    ("level with the separator", NAMESPACES, {"namespace": ["a\x1fb"]}, 400, "namespace[0]"),
    ("level with a control character", NAMESPACES, {"namespace": ["a\x07"]}, 400, "namespace[0]"),
    ("too many levels", NAMESPACES, {"namespace": ["a"] * 33}, 400, "namespace"),
    ("namespace that is there", NAMESPACES, {"namespace": ["a"]}, 409, "a"),
    ("namespace without its parent", NAMESPACES, {"namespace": ["x", "y"]}, 404, "x"),
    ("namespace property that is a list", NAMESPACES, {"namespace": ["b"], "properties": {"x": []}}, 400, "properties"),
    ("property with NUL", PROPERTIES, {"updates": {"x": "a\x00"}}, 400, "properties.x"),
    ("property without a name", PROPERTIES, {"updates": {"": "x"}}, 400, "properties"),
    ("property set and removed", PROPERTIES, {"updates": {"x": "y"}, "removals": ["x"]}, 422, "removals"),
    ("too many properties", PROPERTIES, {"updates": {str(i): "" for i in range(1001)}}, 400, "properties"),
    # --- views
    ("view without a version", VIEWS, {k: v for k, v in VIEW.items() if k != "view-version"}, 400, "view-version"),
    ("view without a schema", VIEWS, {k: v for k, v in VIEW.items() if k != "schema"}, 400, "schema"),
    ("view with a bad name", VIEWS, {**VIEW, "name": "a%"}, 400, "name"),
    ("view without representations", VIEWS, view_version(representations=[]), 400, "representations"),
    ("view with one dialect twice", VIEWS, view_version(representations=[{"type": "sql", "sql": "1", "dialect": d} for d in ("spark", "SPARK")]), 400, "representations"),  # noqa: E501
    ("view that is there", VIEWS, VIEW, 409, "a.v"),
    ("view in the place of a table", VIEWS, {**VIEW, "name": "t"}, 409, "a.t"),
    ("view with an unknown update", ONE_VIEW, {"updates": [{"action": "add-snapshot"}]}, 400, "add-snapshot"),
    ("view with an unknown requirement", ONE_VIEW, {"requirements": [{"type": "assert-create"}], "updates": []}, 400, "assert-create"),  # noqa: E501
    ("view with an unknown version", ONE_VIEW, {"updates": [{"action": "set-current-view-version", "view-version-id": 9}]}, 400, "view-version-id"),  # noqa: E501
    # --- register
    ("register without a place", REGISTER, {"name": "new"}, 400, "metadata-location"),
    ("register of nothing", REGISTER, {"name": "new", "metadata-location": None}, 400, "metadata-location"),
    ("register with a bad name", REGISTER, {"name": "a\tb", "metadata-location": "ROOT/x.json"}, 400, "name"),
    ("register of a missing file", REGISTER, {"name": "new", "metadata-location": "ROOT/x.json"}, 404, "x.json"),
    ("register of a folder", REGISTER, {"name": "new", "metadata-location": "ROOT/a"}, 400, "metadata-location"),
    ("register-view of a table's metadata", REGISTER_VIEW, {"name": "new", "metadata-location": "TABLE"}, 400, "metadata-location"),  # noqa: E501
    ("register of a view's metadata", REGISTER, {"name": "new", "metadata-location": "VIEW"}, 400, "metadata-location"),
]  # fmt: skip


def test_the_table_of_bad_requests_has_the_promised_size() -> None:
    assert len(BAD) >= 80
    assert len({row[0] for row in BAD}) == len(BAD)


def filled(client: AppClient, value: Any) -> Any:
    """Words in capitals stand for places and times of this service."""
    if isinstance(value, dict):
        return {name: filled(client, one) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(client, one) for one in value]
    if (isinstance(value, str) and value.isupper()) or str(value).startswith("ROOT/"):
        places: dict[str, Callable[[], object]] = {
            "LIST": lambda: f"{load(client)['metadata']['location']}/metadata/snap-1.avro",
            "NOW": client.clock,
            "TABLE": lambda: load(client)["metadata-location"],
            "VIEW": lambda: client.get(ONE_VIEW).json()["metadata-location"],
        }
        if value.startswith("ROOT/"):
            return client.services.locations.roots[0] + value.removeprefix("ROOT")
        return places[value]() if value in places else value
    return value


def send(client: AppClient, to: str, body: object) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(filled(client, body)).encode()
    return client.request("POST", to, content=content, headers=JSON)


@pytest.mark.parametrize(("name", "to", "body", "status", "says"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_request_is_refused_by_name_and_changes_nothing(
    client: AppClient, name: str, to: str, body: object, status: int, says: str
) -> None:
    before = unchanged(client)
    answer = send(client, to, body)
    error = error_of(answer)
    assert answer.status_code == status, answer.text[:500]
    assert says in field_of(answer) or says in error["message"], error
    assert len(error["message"]) < 2_000
    assert unchanged(client) == before


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({}, "Content-Type"),
        ({"Content-Type": "text/plain"}, "Content-Type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "Content-Type"),
        ({"Content-Type": "application/json; charset=utf-16"}, "Content-Type"),
        ({**JSON, "Content-Encoding": "gzip"}, "Content-Encoding"),
    ],
)
@pytest.mark.parametrize("to", [TABLES, TABLE, VIEWS, REGISTER, RENAME, TRANSACTION, NAMESPACES])
def test_a_body_of_another_type_is_not_read(
    client: AppClient, to: str, headers: dict[str, str], field: str
) -> None:
    before = unchanged(client)
    answer = client.request("POST", to, content=json.dumps(NEW).encode(), headers=headers)
    assert (answer.status_code, field_of(answer)) == (415, field)
    assert unchanged(client) == before


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?pageSize=0", "pageSize"),
        ("?pageSize=-1", "pageSize"),
        ("?pageSize=x", "pageSize"),
        ("?pageToken=x", "pageToken"),
        ("?pageToken=%ff", "pageToken"),
        ("?pageSize=1&pageSize=2", "pageSize"),
    ],
)
@pytest.mark.parametrize("listing", [TABLES, VIEWS, NAMESPACES])
def test_a_bad_page_is_refused_by_name(client: AppClient, listing: str, query: str, field: str) -> None:
    answer = client.get(listing + query)
    assert (answer.status_code, field_of(answer)) == (400, field)


def test_a_purge_flag_that_is_no_boolean_drops_nothing(client: AppClient) -> None:
    answer = client.delete(f"{TABLE}?purgeRequested=maybe")
    assert (answer.status_code, field_of(answer)) == (400, "purgeRequested")
    assert client.head(TABLE).status_code == 204


# --- all or nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ({"requirements": [{"type": "assert-table-uuid", "uuid": "x"}]}, 409),
        ({"updates": [{"action": "set-current-schema", "schema-id": 9}]}, 400),
        ({"updates": [{"action": "set-location", "location": "/etc"}]}, 400),
        ({"updates": [{"action": "add-snapshot", "snapshot": SNAPSHOT}]}, 400),
        ({"requirements": CREATES}, 409),
    ],
)
def test_a_transaction_whose_last_table_is_bad_changes_none(
    client: AppClient, bad: dict[str, Any], status: int
) -> None:
    before = unchanged(client)
    body = changes("t", "u")
    body["table-changes"][1].update(bad)
    assert send(client, TRANSACTION, body).status_code == status
    assert unchanged(client) == before


def test_a_commit_whose_last_update_is_bad_changes_nothing(client: AppClient) -> None:
    before = unchanged(client)
    answer = send(client, TABLE, updates(set_properties(x="y"), ref(77)))
    assert answer.status_code == 400
    assert unchanged(client) == before


def test_a_transaction_takes_a_thousand_tables_and_no_more(client: AppClient) -> None:
    before = unchanged(client)
    answer = send(client, TRANSACTION, changes(*(f"t{i}" for i in range(1001))))
    assert (answer.status_code, field_of(answer)) == (400, "table-changes")
    assert "1000" in error_of(answer)["message"]
    allowed = send(client, TRANSACTION, changes(*(f"t{i}" for i in range(1000))))
    assert (allowed.status_code, error_of(allowed)["type"]) == (404, "NoSuchTableException")
    assert unchanged(client) == before


# --- metadata files that a client brings --------------------------------------------------------------------


def metadata_of(client: AppClient, **fields: Any) -> dict[str, Any]:
    """Good metadata of a table elsewhere, with fields replaced; None takes a field out."""
    elsewhere = f"{client.services.locations.roots[0]}/elsewhere"
    made = {**load(client)["metadata"], "location": elsewhere, **fields}
    return {name: value for name, value in made.items() if value is not None}


def text_of(client: AppClient, **fields: Any) -> bytes:
    return json.dumps(metadata_of(client, **{k.replace("_", "-"): v for k, v in fields.items()})).encode()


def repeated(client: AppClient) -> bytes:
    return text_of(client, snapshots=load(client)["metadata"]["snapshots"] * 2)


def bomb() -> bytes:
    """A gzip file of about 256 kB that inflates to more than the limit."""
    deflater = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    parts = [deflater.compress(zeros) for _ in range((METADATA_BYTES_MAX >> 20) + 1)]
    return b"".join([*parts, deflater.flush()])


MAIN_ELSEWHERE = {"main": {"snapshot-id": 404, "type": "branch"}}
UNKNOWN_TAG = {
    **MAIN_ELSEWHERE,
    "main": {"snapshot-id": 1, "type": "branch"},
    "x": {"snapshot-id": 7, "type": "tag"},
}
FILES: dict[str, tuple[Callable[[AppClient], bytes], str]] = {
    "empty": (lambda client: b"", "JSON"),
    "no JSON": (lambda client: b"PAR1", "JSON"),
    "a list": (lambda client: b"[]", "metadata"),
    "cut off": (lambda client: text_of(client)[:-20], "JSON"),
    "not UTF-8": (lambda client: b'{"x": "\xff"}', "UTF-8"),
    "a key twice": (lambda client: b'{"format-version": 2, "format-version": 3}', "format-version"),
    "nested deep": (lambda client: b"[" * 1000 + b"]" * 1000, "nested"),
    "cut off gzip": (lambda client: gzip.compress(text_of(client))[:-20], "gzip"),
    "broken gzip": (lambda client: b"\x1f\x8b" + b"x" * 100, "gzip"),
    "gzip with a tail": (lambda client: gzip.compress(text_of(client)) + b"tail", "gzip"),
    "gzip bomb": (lambda client: bomb(), "inflates"),
    "no version": (lambda client: text_of(client, format_version=None), "format-version"),
    "version of tomorrow": (lambda client: text_of(client, format_version=9), "format-version"),
    "version as text": (lambda client: text_of(client, format_version="2"), "format-version"),
    "no location": (lambda client: text_of(client, location=None), "location"),
    "no schemas": (lambda client: text_of(client, schemas=None), "schema"),
    "schemas of null": (lambda client: text_of(client, schemas=[{"type": "struct"}]), "fields"),
    "unknown current schema": (lambda client: text_of(client, current_schema_id=9), "current-schema-id"),
    "unknown default spec": (lambda client: text_of(client, default_spec_id=9), "default-spec-id"),
    "unknown default order": (
        lambda client: text_of(client, default_sort_order_id=9),
        "default-sort-order-id",
    ),
    "unknown current snapshot": (
        lambda client: text_of(client, current_snapshot_id=9),
        "current-snapshot-id",
    ),
    "main on an unknown snapshot": (
        lambda client: text_of(client, refs=MAIN_ELSEWHERE, current_snapshot_id=404),
        "404",
    ),
    "tag on an unknown snapshot": (lambda client: text_of(client, refs=UNKNOWN_TAG), "unknown snapshot 7"),
    "snapshot twice": (repeated, "twice"),
    "snapshots as an object": (lambda client: text_of(client, snapshots={"x": 1}), "metadata"),
    "snapshot from ahead": (lambda client: text_of(client, last_sequence_number=0), "last-sequence-number"),
    "column twice": (
        lambda client: text_of(client, schemas=[{**SCHEMA, "schema-id": 0, "fields": [column(), column()]}]),
        "key",
    ),
    "properties that are numbers": (lambda client: text_of(client, properties={"x": 1}), "properties"),
    "log entry without a file": (
        lambda client: text_of(client, metadata_log=[{"timestamp-ms": 1}]),
        "metadata-file",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_metadata_file_is_not_registered(client: AppClient, name: str) -> None:
    make, says = FILES[name]
    place = touch(f"{client.services.locations.roots[0]}/brought/x.metadata.json", make(client))
    before = unchanged(client)
    for body in ({"name": "new"}, {"name": "t", "overwrite": True}):
        answer = client.post(REGISTER, {**body, "metadata-location": place})
        assert answer.status_code == 400, answer.text[:500]
        assert field_of(answer) == "metadata-location", answer.text[:500]
        assert says in error_of(answer)["message"]
    assert unchanged(client) == before


def test_a_good_metadata_file_is_registered(client: AppClient) -> None:
    """Otherwise the files above might be refused for another reason than their own."""
    place = touch(f"{client.services.locations.roots[0]}/brought/good.metadata.json", text_of(client))
    answer = client.post(REGISTER, {"name": "good", "metadata-location": place})
    assert answer.status_code == 200, answer.text
    assert client.delete(f"{TABLES}/good").status_code == 204


def test_a_manifest_that_is_a_bomb_is_not_opened_by_a_commit_nor_followed_by_a_purge(tmp_path: Path) -> None:
    with app_client(tmp_path) as own:
        make_namespace(own)
        location = created(own)["metadata"]["location"]
        bomb_list = touch(f"{location}/metadata/bomb.avro", b"Obj\x01" + b"\xff" * 1000)
        body = updates(snapshot(own, bomb_list), ref())
        assert own.post(path(), body).status_code == 200
        assert own.delete(path() + "?purgeRequested=true").status_code == 204
        drain(own)
        assert not local(bomb_list).exists()
        assert own.get("/healthz").status_code == 200


def test_a_table_is_created_by_commit_only_with_all_its_parts(client: AppClient) -> None:
    staged = client.post(TABLES, {**NEW, "stage-create": True}).json()["metadata"]
    before = unchanged(client)
    needed = staged_updates(staged)
    optional = {"upgrade-format-version", "set-properties"}
    for left_out in (u["action"] for u in needed if u["action"] not in optional):
        some = [u for u in needed if u["action"] != left_out]
        answer = send(client, f"{TABLES}/new", updates(*some, requirements=CREATES))
        assert answer.status_code == 400, left_out
        assert field_of(answer).startswith("updates"), left_out
    assert unchanged(client) == before
