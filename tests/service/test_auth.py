"""Who may do what: the token endpoint, and every route with every role."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.service.exchange import Body
from headgate.service.roles import Role, includes
from headgate.service.routes import all_routes
from headgate.service.services import build_services
from tests.service.app_client import AppClient, app_client, bearer

TOKENS = "/v1/oauth/tokens"
CREDENTIALS = {"grant_type": "client_credentials"}
GUARDED = [route for route in all_routes().routes if route.role is not None]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path, auth="on") as made:
        yield made


def ask(client: AppClient, **form: str) -> tuple[int, dict[str, object]]:
    answer = client.request("POST", TOKENS, data={**CREDENTIALS, **form})
    return answer.status_code, answer.json()


def test_client_credentials_give_a_token_that_works(client: AppClient) -> None:
    secret = client.add_principal("etl", "read")
    status, body = ask(client, client_id="etl", client_secret=secret, scope="catalog")
    assert (status, body["token_type"], body["expires_in"]) == (200, "bearer", 3600)
    assert client.get("/v1/namespaces", headers=bearer(str(body["access_token"]))).status_code == 200


def test_basic_credentials_give_a_token_too(client: AppClient) -> None:
    secret = client.add_principal("etl", "read")
    basic = base64.b64encode(f"etl:{secret}".encode()).decode()
    answer = client.request("POST", TOKENS, data=CREDENTIALS, headers={"Authorization": f"Basic {basic}"})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


def test_an_unknown_client_and_a_wrong_secret_look_the_same(client: AppClient) -> None:
    client.add_principal("etl", "read")
    wrong = ask(client, client_id="etl", client_secret="x")
    unknown = ask(client, client_id="nobody", client_secret="x")
    assert wrong == unknown
    assert (wrong[0], wrong[1]["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token=x",
            "unsupported_grant_type",
        ),
        ("grant_type=password&username=a", "unsupported_grant_type"),
        ("client_id=a&client_secret=b", "invalid_request"),
        ("grant_type=client_credentials&client_id=a", "invalid_request"),
        ("grant_type=client_credentials&client_id=a&client_id=b&client_secret=c", "invalid_request"),
        ("{}", "invalid_request"),
        ("", "invalid_request"),
        ("&".join(f"f{n}=1" for n in range(40)), "invalid_request"),
    ],
)
def test_other_grants_are_refused_in_the_oauth_model(client: AppClient, body: str, error: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.request("POST", TOKENS, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


def test_many_tries_are_slowed_down(client: AppClient) -> None:
    answers = [
        client.request("POST", TOKENS, data={**CREDENTIALS, "client_id": "a", "client_secret": "b"})
        for _ in range(25)
    ]
    assert answers[0].status_code == 401
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    client.clock.pass_s(5)
    assert ask(client, client_id="a", client_secret="b")[0] == 401


def test_guessing_bearer_secrets_is_slowed_down_too(client: AppClient) -> None:
    client.add_principal("etl", "read")
    answers = [client.get("/v1/namespaces", headers=bearer(f"etl:{n}")) for n in range(25)]
    assert {answer.status_code for answer in answers} == {401, 429}


def test_a_client_id_and_secret_work_as_a_bearer_token(client: AppClient) -> None:
    secret = client.add_principal("etl", "read")
    for _ in range(30):  # more than the limit of tries: a proof is remembered
        assert client.get("/v1/namespaces", headers=bearer(f"etl:{secret}")).status_code == 200
    client.add_principal("etl", "read")
    client.clock.pass_s(6)
    assert client.get("/v1/namespaces", headers=bearer(f"etl:{secret}")).status_code == 401


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic eDp5", "Bearer x", "Token x", "Bearer x y"]
)
def test_without_a_good_token_nothing_is_served(client: AppClient, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = client.get("/v1/namespaces", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["error"]["type"] == "NotAuthorizedException"


def test_a_token_in_the_query_is_not_one(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "read"))
    assert client.get(f"/v1/namespaces?access_token={token}").status_code == 401


def test_an_expired_token_is_refused(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "read"))
    client.clock.pass_s(3601)
    assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 401


def test_a_token_that_was_good_before_is_refused_once_it_has_expired(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "read"))
    assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 200
    client.clock.pass_s(3599)
    assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 200
    client.clock.pass_s(2)
    assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 401


def test_a_deleted_principals_token_stops_working(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "read"))
    assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 200
    client.services.store.drop_principal("etl")
    client.clock.pass_s(6)
    assert client.get("/v1/namespaces", headers=bearer(token)).status_code == 401


def test_a_changed_role_counts_for_tokens_given_before(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "admin"))
    client.add_principal("etl", "read")
    client.clock.pass_s(6)
    assert client.post("/v1/namespaces", {"namespace": ["a"]}, headers=bearer(token)).status_code == 403


def test_replicas_share_the_signing_key(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "read"))
    services = client.services
    other = build_services(
        services.settings, store=services.store, files=services.files, clock_ms=client.clock
    )
    assert other.authenticator.identify(other.authenticator.read_header(f"Bearer {token}"), "") == (
        "etl",
        Role.READ,
    )


def test_no_route_is_open_but_those_that_must_be() -> None:
    opened = {route.template for route in all_routes().routes if route.role is None}
    assert opened == {TOKENS, "/healthz", "/readyz"}


def test_what_changes_something_needs_more_than_read() -> None:
    for route in all_routes().routes:
        if route.takes_key:
            assert route.role in (Role.INSERT, Role.MODIFY, Role.ADMIN), route.template
        if route.method in ("GET", "HEAD") and route.role is not None:
            assert route.role is Role.READ, route.template


def test_each_route_is_closed_to_every_role_below_its_own(client: AppClient) -> None:
    tokens = {role: client.token(role.value, client.add_principal(role.value, role.value)) for role in Role}
    for route in GUARDED:
        path = route.template.replace("{namespace}", "a").replace("{table}", "t").replace("{view}", "v")
        options: dict[str, Any] = {"json": {}} if route.body is Body.JSON else {}
        assert client.request(route.method, path, **options).status_code == 401, path
        for role, token in tokens.items():
            status = client.request(route.method, path, headers=bearer(token), **options).status_code
            assert route.role is not None
            assert (status == 403) is not includes(role, route.role), (route.method, path, role, status)


def test_without_auth_the_caller_is_an_anonymous_admin(tmp_path: Path) -> None:
    with app_client(tmp_path) as client:
        assert client.post("/v1/namespaces", {"namespace": ["a"]}).status_code == 200
        assert client.services.store.read_events(after=0, limit=1)[0].event.principal == "anonymous"
        assert (
            client.request(
                "POST", TOKENS, data={**CREDENTIALS, "client_id": "a", "client_secret": "b"}
            ).status_code
            == 400
        )


def test_java_clients_are_told_not_to_exchange_tokens(client: AppClient) -> None:
    token = client.token("etl", client.add_principal("etl", "read"))
    answer = client.get("/v1/config", headers=bearer(token))
    assert answer.json()["defaults"] == {"token-exchange-enabled": "false"}
