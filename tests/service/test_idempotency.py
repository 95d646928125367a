"""Idempotency-Key: the first verdict again, whatever happened since."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headgate.errors import CommitUnknown, Overloaded, StorageFailed
from headgate.service.exchange import Body, Reply, Request, Route, RouteTable, json_reply
from headgate.service.idempotency import key_operations, raise_if_key_taken
from headgate.service.roles import Caller, Role
from headgate.service.routes import all_routes
from headgate.service.services import Services
from headgate.service.table_lifecycle import drop_table, rename_table
from headgate.store.base import CreateNamespace, KeyRecord, Operation, Refused, SwapEntry
from headgate.store.memory import MemoryStore
from tests.service.app_client import AppClient, app_client, bearer
from tests.service.table_calls import commit, created, load, make_namespace, ref, snapshot, touch

KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
OTHER_KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c073990"
A = {"namespace": ["a"], "properties": {"k": "v"}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as made:
        yield made


def with_key(key: str = KEY) -> dict[str, str]:
    return {"Idempotency-Key": key}


def test_a_repeated_success_is_the_first_answer_again(client: AppClient) -> None:
    first = client.post("/v1/namespaces", A, headers=with_key())
    client.delete("/v1/namespaces/a")
    again = client.post("/v1/namespaces", A, headers=with_key())
    assert (again.status_code, again.json()) == (200, first.json())
    assert client.get("/v1/namespaces/a").status_code == 404


def test_a_repeated_drop_is_no_content_again(client: AppClient) -> None:
    client.post("/v1/namespaces", A)
    for _ in range(2):
        assert client.delete("/v1/namespaces/a", headers=with_key()).status_code == 204


def test_a_repeated_refusal_is_the_first_refusal_again(client: AppClient) -> None:
    first = client.delete("/v1/namespaces/a", headers=with_key())
    client.post("/v1/namespaces", A)
    again = client.delete("/v1/namespaces/a", headers=with_key())
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert client.get("/v1/namespaces/a").status_code == 200


def test_a_repeated_property_update_changes_nothing_more(client: AppClient) -> None:
    client.post("/v1/namespaces", A)
    change = {"removals": ["k"]}
    answers = [
        client.post("/v1/namespaces/a/properties", change, headers=with_key()).json() for _ in range(2)
    ]
    assert answers == [{"updated": [], "removed": ["k"], "missing": []}] * 2


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/namespaces", {"namespace": ["b"]}),
        ("POST", "/v1/namespaces?x=1", A),
        ("POST", "/v1/namespaces/a/properties", A),
        ("DELETE", "/v1/namespaces/a", None),
    ],
)
def test_a_key_used_for_other_work_is_refused(
    client: AppClient, method: str, path: str, body: object
) -> None:
    client.post("/v1/namespaces", A, headers=with_key())
    answer = client.request(method, path, body, headers=with_key())
    assert answer.status_code == 400
    assert answer.json()["error"]["headgate"]["field"] == "Idempotency-Key"
    assert client.get("/v1/namespaces/a").status_code == 200


@pytest.mark.parametrize(
    "key",
    ["", "x", "017f22e279b07cc398c4dc0c0c07398f", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", KEY + "0",
     "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}", "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f"],
)  # fmt: skip
def test_a_key_that_is_no_uuid7_is_refused_before_anything(client: AppClient, key: str) -> None:
    answer = client.post("/v1/namespaces", A, headers=with_key(key))
    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.json()["error"]["message"]
    assert client.get("/v1/namespaces/a").status_code == 404


def test_a_key_is_the_same_in_upper_case(client: AppClient) -> None:
    client.post("/v1/namespaces", A, headers=with_key())
    assert client.post("/v1/namespaces", A, headers=with_key(KEY.upper())).status_code == 200


def test_reads_do_not_look_at_the_header(client: AppClient) -> None:
    assert client.get("/v1/namespaces", headers=with_key("x")).status_code == 200


def test_one_key_sent_many_times_at_once_works_once(client: AppClient) -> None:
    answers: list[tuple[int, bytes]] = []

    def send() -> None:
        answer = client.post("/v1/namespaces", A, headers=with_key())
        answers.append((answer.status_code, answer.content))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    assert answers[0][0] == 200
    assert len(client.services.store.read_events(after=0, limit=10)) == 1


def test_a_loser_of_the_race_gets_the_winners_answer(tmp_path: Path) -> None:
    """Deterministic: the handler lets another request with its key win before its own write."""

    def create(services: Services, request: Request) -> Reply:
        def write(name: str, body: int) -> Refused | None:
            stored = key_operations(services, request.caller, {"kind": "json", "body": body})
            return services.store.write((CreateNamespace((name,), {}), *stored))

        assert write("won", 1) is None
        refused = write("ours", 2)
        assert refused is not None
        raise_if_key_taken(refused)
        raise AssertionError("the key was taken")

    table = RouteTable((Route("POST", "/race", create, Role.ADMIN, Body.JSON, takes_key=True),))
    with app_client(tmp_path, table=table) as client:
        assert client.post("/race", {}, headers=with_key()).json() == 1
        assert client.services.store.load_namespace(("ours",)) is None


@pytest.mark.parametrize("error", [StorageFailed("x"), CommitUnknown("x"), ValueError("x")])
def test_a_failure_of_ours_is_never_stored(tmp_path: Path, error: Exception) -> None:
    faults = [error]

    def work(services: Services, request: Request) -> Reply:
        if faults:
            raise faults.pop()
        return json_reply("done")

    table = RouteTable((Route("POST", "/work", work, Role.ADMIN, Body.JSON, takes_key=True),))
    with app_client(tmp_path, table=table) as client:
        assert client.post("/work", {}, headers=with_key()).status_code >= 500
        assert client.post("/work", {}, headers=with_key()).json() == "done"


def test_a_replayer_rebuilds_an_answer_from_what_was_stored(tmp_path: Path) -> None:
    def work(services: Services, request: Request) -> Reply:
        stored = {"kind": "thing", "id": "7"}
        services.store.write((CreateNamespace(("a",), {}), *key_operations(services, request.caller, stored)))
        return json_reply({"id": "7", "fresh": True})

    def replay(services: Services, request: Request, stored: object) -> Reply:
        return json_reply(stored)

    route = Route("POST", "/work", work, Role.ADMIN, Body.JSON, takes_key=True)
    with app_client(tmp_path, table=RouteTable((route,), {"thing": replay})) as client:
        assert client.post("/work", {}, headers=with_key()).json()["fresh"] is True
        assert client.post("/work", {}, headers=with_key()).json() == {
            "kind": "thing",
            "id": "7",
            "role": "read",
        }


@pytest.mark.parametrize("error", [StorageFailed("away"), Overloaded("busy")])
def test_a_success_whose_answer_cannot_be_rebuilt_now_is_not_said_to_have_done_nothing(
    tmp_path: Path, error: Exception
) -> None:
    def work(services: Services, request: Request) -> Reply:
        services.store.write(key_operations(services, request.caller, {"kind": "thing"}))
        return json_reply("done")

    def replay(services: Services, request: Request, stored: object) -> Reply:
        raise error

    route = Route("POST", "/work", work, Role.ADMIN, Body.JSON, takes_key=True)
    with app_client(tmp_path, table=RouteTable((route,), {"thing": replay})) as client:
        assert client.post("/work", {}, headers=with_key()).json() == "done"
        again = client.post("/work", {}, headers=with_key())
        assert (again.status_code, again.json()["error"]["type"]) == (500, "CommitStateUnknownException")


class Unheard(MemoryStore):
    """Its next write lands, is not heard of, and its key cannot be looked up one by one."""

    is_on = False

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        done = super().write(operations)
        if self.is_on and any(isinstance(operation, SwapEntry) for operation in operations):
            raise CommitUnknown("the connection broke after COMMIT")
        return done

    def load_key(self, principal: str, key: str) -> KeyRecord | None:
        if self.is_on and super().load_key(principal, key) is not None:
            raise StorageFailed("the database is away")
        return super().load_key(principal, key)


@pytest.mark.parametrize("key", [None, KEY])
def test_a_commit_that_landed_unheard_is_unknown_while_its_verdict_cannot_be_read(
    tmp_path: Path, key: str | None
) -> None:
    store = Unheard()
    with app_client(tmp_path, store=store) as client:
        make_namespace(client)
        created(client)
        store.is_on = True
        update = {"action": "set-properties", "updates": {"x": "y"}}
        answer = commit(client, update, key=key)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
        assert load(client)["metadata"]["properties"]["x"] == "y"


def test_a_key_belongs_to_its_principal(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        tokens = {name: client.token(name, client.add_principal(name, "admin")) for name in ("x", "y")}
        first = client.post("/v1/namespaces", A, headers=with_key() | bearer(tokens["x"]))
        other = client.post("/v1/namespaces", A, headers=with_key() | bearer(tokens["y"]))
        assert (first.status_code, other.status_code) == (200, 409)


def test_a_replay_is_authorised_again(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        token = client.token("x", client.add_principal("x", "admin"))
        assert client.post("/v1/namespaces", A, headers=with_key() | bearer(token)).status_code == 200
        client.add_principal("x", "read")
        client.clock.pass_s(6)
        assert client.post("/v1/namespaces", A, headers=with_key() | bearer(token)).status_code == 403


def test_a_replay_needs_the_role_that_its_body_needed(tmp_path: Path) -> None:
    def work(services: Services, request: Request) -> Reply:
        stored = key_operations(services, request.caller, {"kind": "none"}, role=Role.MODIFY)
        services.store.write((CreateNamespace(("a",), {}), *stored))
        return json_reply(None)

    table = RouteTable(
        (*_token_routes(), Route("POST", "/work", work, Role.INSERT, Body.JSON, takes_key=True))
    )
    with app_client(tmp_path, table=table, auth="on") as client:
        token = client.token("x", client.add_principal("x", "modify"))
        assert client.post("/work", {}, headers=with_key() | bearer(token)).status_code == 200
        client.add_principal("x", "insert")
        client.clock.pass_s(6)
        assert client.post("/work", {}, headers=with_key() | bearer(token)).status_code == 403


def test_an_unauthorised_request_stores_nothing_under_its_key(tmp_path: Path) -> None:
    with app_client(tmp_path, auth="on") as client:
        token = client.token("x", client.add_principal("x", "read"))
        assert client.post("/v1/namespaces", A, headers=with_key() | bearer(token)).status_code == 403
        assert client.services.store.load_key("x", KEY) is None


def _token_routes() -> tuple[Route, ...]:
    return tuple(route for route in all_routes().routes if route.template == "/v1/oauth/tokens")


class Busy(MemoryStore):
    """It can be told to take nothing."""

    is_on = False

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        if self.is_on:
            raise Overloaded("the database is busy; nothing was written")
        return super().write(operations)


def test_a_commit_that_is_there_already_is_unknown_while_its_key_cannot_be_stored(tmp_path: Path) -> None:
    store = Busy()
    with app_client(tmp_path, store=store) as client:
        make_namespace(client)
        location = created(client)["metadata"]["location"]
        updates = (snapshot(client, touch(f"{location}/metadata/snap-1.avro"), id=1), ref(1))
        first = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
        assert commit(client, *updates, requirements=first).status_code == 200
        store.is_on = True
        answer = commit(client, *updates, requirements=first, key=KEY)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
        store.is_on = False
        assert commit(client, *updates, requirements=first, key=KEY).status_code == 200


class Unseen(MemoryStore):
    """Its next write lands, is not heard of, and somebody else does something before anyone looks."""

    then: Callable[[], object] | None = None

    def write(self, operations: Sequence[Operation]) -> Refused | None:
        done = super().write(operations)
        then, self.then = self.then, None
        if then is not None:
            then()
            raise CommitUnknown("the connection broke after COMMIT")
        return done


def test_a_commit_that_landed_unheard_is_never_said_to_miss_its_table(tmp_path: Path) -> None:
    store = Unseen()
    admin = Caller("x", Role.ADMIN, "r")
    with app_client(tmp_path, store=store) as client:
        make_namespace(client)
        created(client)
        update = {"action": "set-properties", "updates": {"x": "y"}}
        store.then = lambda: rename_table(client.services, admin, (("a",), "t"), (("a",), "u"))
        renamed = commit(client, update)
        assert (renamed.status_code, renamed.json()["metadata"]["properties"]["x"]) == (200, "y")
        store.then = lambda: drop_table(client.services, admin, (("a",), "u"), purge=False)
        dropped = commit(client, update | {"updates": {"x": "z"}}, name="u")
        assert (dropped.status_code, dropped.json()["error"]["type"]) == (500, "CommitStateUnknownException")
        assert "landed" in dropped.json()["error"]["message"]


@pytest.mark.parametrize("taken", [False, True], ids=["dropped", "another in its place"])
def test_a_table_that_goes_while_its_commit_is_answered_again_is_no_verdict(
    tmp_path: Path, taken: bool
) -> None:
    with app_client(tmp_path) as client:
        make_namespace(client)
        created(client)
        update = {"action": "set-properties", "updates": {"x": "y"}}
        assert commit(client, update, key=KEY).status_code == 200
        store = client.services.store
        found = store.load_header(("a",), "t")
        assert found is not None
        client.delete("/v1/namespaces/a/tables/t")
        if taken:
            created(client)
        store.load_header_by_id = lambda _: found  # type: ignore[method-assign]
        answer = commit(client, update, key=KEY)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
