"""The edge: routes, bodies, limits, overload, crashes, health."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from headgate.errors import StorageFailed
from headgate.service.app import App, build_app
from headgate.service.exchange import Body, Reply, Request, Route, RouteTable, json_reply, parts_reply
from headgate.service.roles import Role
from headgate.service.services import Services
from headgate.store.memory import MemoryStore
from tests.service.app_client import WAIT_S, AppClient, app_client

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path, body_limit_bytes=2048, header_limit_bytes=1024) as made:
        yield made


def error_of(answer: object) -> tuple[int, str]:
    body = answer.json()["error"]  # type: ignore[attr-defined]
    return body["code"], body["type"]


def echo(services: Services, request: Request) -> Reply:
    return json_reply(
        {"params": dict(request.params), "query": dict(request.query), "size": len(request.body)}
    )


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/nope", "/v1/namespaces/", "/v1//namespaces", "/V1/namespaces", "/v1/namespaces/a/b"],
)
def test_an_unknown_route_is_an_iceberg_error(client: AppClient, path: str) -> None:
    assert error_of(client.get(path)) == (404, "NoSuchRouteException")


def test_a_wrong_method_names_the_right_ones(client: AppClient) -> None:
    answer = client.request("PUT", "/v1/namespaces")
    assert error_of(answer) == (405, "MethodNotAllowedException")
    assert answer.headers["allow"] == "GET, POST"


def test_a_head_of_an_error_has_no_body(client: AppClient) -> None:
    answer = client.head("/v1/namespaces/a")
    assert (answer.status_code, answer.content) == (404, b"")


def test_a_request_id_is_echoed_or_made(client: AppClient) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for bad in ("x" * 65, "a b", "a;b"):
        assert client.get("/healthz", headers={"X-Request-Id": bad}).headers["x-request-id"] != bad


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "application/json; charset=latin-1",
        "application/jsonx",
    ],
)
def test_a_body_of_another_type_is_refused(client: AppClient, content_type: str) -> None:
    answer = client.request(
        "POST", "/v1/namespaces", content=b'{"namespace":["a"]}', headers={"Content-Type": content_type}
    )
    assert answer.status_code == 415
    assert client.get("/v1/namespaces/a").status_code == 404


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'],
)
def test_json_with_a_charset_is_read(client: AppClient, content_type: str) -> None:
    answer = client.request(
        "POST", "/v1/namespaces", content=b'{"namespace":["a"]}', headers={"Content-Type": content_type}
    )
    assert answer.status_code == 200


def test_a_compressed_body_is_refused(client: AppClient) -> None:
    answer = client.request(
        "POST", "/v1/namespaces", content=b"x", headers=JSON | {"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 415


def test_a_body_over_the_limit_is_refused_declared_or_streamed(client: AppClient) -> None:
    body = b'{"namespace":["' + b"a" * 4000 + b'"]}'

    async def stream() -> object:
        for at in range(0, len(body), 500):
            yield body[at : at + 500]

    for content in (body, stream()):
        answer = client.request("POST", "/v1/namespaces", content=content, headers=JSON)
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("length", ["-1", "x", "1.5", "²"])
def test_a_content_length_that_is_no_number_is_refused(client: AppClient, length: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", length.encode("utf-8"))]
    answer = client.request("POST", "/v1/namespaces", content=b"{}", headers=headers)
    assert answer.status_code == 400


def test_headers_over_the_limit_are_refused(client: AppClient) -> None:
    assert client.get("/v1/namespaces", headers={"X-Long": "x" * 2000}).status_code == 431
    assert client.get("/v1/namespaces?x=" + "y" * 2000).status_code == 431


@pytest.mark.parametrize("query", ["a=1&a=2", "x=%ff", "&".join(f"q{n}=1" for n in range(40))])
def test_a_query_that_readers_disagree_about_is_refused(client: AppClient, query: str) -> None:
    assert client.get(f"/v1/namespaces?{query}").status_code == 400


def test_a_slow_body_is_given_up(tmp_path: Path) -> None:
    table = RouteTable((Route("POST", "/slow", echo, Role.ADMIN, Body.JSON),))
    with app_client(tmp_path, body_timeout_s=0.1) as client:
        app = build_app(client.services, client.services.settings, table)
        assert _raw(app, "/slow")[0]["status"] == 408


def _raw(app: App, path: str) -> list[dict[str, object]]:
    """Drive ASGI by hand with a client that sends half a body and then nothing."""
    sent: list[dict[str, object]] = []

    async def play() -> None:
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])

        async def receive() -> dict[str, object]:
            for message in messages:
                return message
            await asyncio.Event().wait()
            raise AssertionError("nothing more comes")

        async def send(message: object) -> None:
            sent.append(message)  # type: ignore[arg-type]

        scope = {
            "type": "http", "method": "POST", "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
        }  # fmt: skip
        await app(scope, receive, send)

    asyncio.run(play())
    return sent


def test_over_the_in_flight_limit_requests_are_told_to_slow_down(tmp_path: Path) -> None:
    begun, finish = threading.Semaphore(0), threading.Event()

    def wait(services: Services, request: Request) -> Reply:
        begun.release()
        finish.wait(WAIT_S)
        return json_reply("done")

    table = RouteTable(
        (
            Route("GET", "/wait", wait, Role.READ),
            Route("GET", "/echo", echo, Role.READ),
            Route("GET", "/healthz", echo, None, inline=True),
        )
    )
    with app_client(tmp_path, table=table, in_flight_max=2) as client:
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(client.get("/wait").status_code))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert begun.acquire(timeout=WAIT_S)
        assert begun.acquire(timeout=WAIT_S)
        refused = client.get("/echo")
        assert error_of(refused) == (429, "SlowDownException")
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/healthz").status_code == 200
        finish.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert statuses == [200, 200]
        assert client.get("/echo").status_code == 200


def test_a_late_answer_is_unknown_for_a_change_and_unavailable_for_a_read(tmp_path: Path) -> None:
    finish = threading.Event()

    def wait(services: Services, request: Request) -> Reply:
        finish.wait(WAIT_S)
        return json_reply("done")

    table = RouteTable(
        (
            Route("GET", "/read", wait, Role.READ),
            Route("POST", "/change", wait, Role.ADMIN, Body.JSON, takes_key=True),
        )
    )
    with app_client(tmp_path, table=table, request_timeout_s=0.1, workers=2) as client:
        try:
            assert error_of(client.get("/read")) == (503, "ServiceUnavailableException")
            assert error_of(client.post("/change", {})) == (500, "CommitStateUnknownException")
            # Both workers are taken now: what never began is certain, and is not reported as unknown.
            assert error_of(client.post("/change", {})) == (429, "SlowDownException")
        finally:
            finish.set()


def test_a_crash_shows_an_id_and_nothing_of_the_inside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(services: Services, request: Request) -> Reply:
        raise ValueError("canary-inside")

    with app_client(tmp_path, table=RouteTable((Route("GET", "/crash", crash, Role.READ),))) as client:
        answer = client.get("/crash")
    assert answer.status_code == 500
    assert "canary" not in answer.text
    assert "Traceback" not in answer.text
    error_id = answer.json()["error"]["headgate"]["error-id"]
    assert any(getattr(record, "fields", {}).get("error_id") == error_id for record in caplog.records)


@pytest.mark.parametrize("error", [StopIteration, TimeoutError, CancelledError])
def test_a_crash_that_no_event_loop_can_carry_is_answered_and_frees_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    def crash(services: Services, request: Request) -> Reply:
        raise error("canary-inside")

    table = RouteTable((Route("GET", "/crash", crash, Role.READ), Route("GET", "/echo", echo, Role.READ)))
    with app_client(tmp_path, table=table, request_timeout_s=5, in_flight_max=1) as client:
        answer = client.get("/crash")
        assert error_of(answer) == (500, "InternalServerError")
        assert "canary" not in answer.text
        assert client.get("/echo").status_code == 200
    assert any(record.exc_info and record.exc_info[0] is error for record in caplog.records)


def test_large_answers_are_sent_in_parts_with_their_length(tmp_path: Path) -> None:
    parts = (b'["', b"x" * (2 << 20), b'"]')
    route = Route("GET", "/big", lambda services, request: parts_reply(parts), Role.READ)
    with app_client(tmp_path, table=RouteTable((route,))) as client:
        answer = client.get("/big")
        assert answer.content == b"".join(parts)
        assert int(answer.headers["content-length"]) == len(answer.content)


def test_path_parameters_keep_what_was_encoded(tmp_path: Path) -> None:
    route = Route("GET", "/x/{a}/{b}", echo, Role.READ)
    with app_client(tmp_path, table=RouteTable((route,))) as client:
        params = client.get("/x/a%2Fb%1Fc/%252F+%2B?q=a%26b&e=").json()
    assert params["params"] == {"a": "a/b\x1fc", "b": "%2F +"}
    assert params["query"] == {"q": "a&b", "e": ""}


def test_health_readiness_and_metrics_answer(client: AppClient) -> None:
    assert client.get("/healthz").json() == {"alive": True}
    assert client.get("/readyz").json() == {"ready": True}
    client.get("/v1/namespaces/secret-name")
    text = client.get("/metrics").text
    assert (
        'headgate_http_requests_total{method="GET",route="/v1/namespaces/{namespace}",status="404"} 1.0'
        in text
    )
    assert "secret-name" not in text


def test_a_service_without_its_database_is_alive_but_not_ready(tmp_path: Path) -> None:
    class Broken(MemoryStore):
        def ping(self) -> None:
            raise StorageFailed("canary: no database")

    with app_client(tmp_path, store=Broken()) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "canary" not in answer.text


def test_the_config_lists_every_route_of_the_specification(client: AppClient) -> None:
    config = client.get("/v1/config?warehouse=anything").json()
    assert config["idempotency-key-lifetime"] == "PT30M"
    assert "GET /v1/{prefix}/namespaces" in config["endpoints"]
    assert "HEAD /v1/{prefix}/namespaces/{namespace}" in config["endpoints"]
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics" in config["endpoints"]
    assert not any("oauth" in endpoint or "config" in endpoint for endpoint in config["endpoints"])


REPORT = {"report-type": "scan-report", "table-name": "t", "snapshot-id": 1, "metrics": {}}


@pytest.mark.parametrize(
    ("path", "report", "status"),
    [
        ("a", REPORT, 404),
        ("%00", REPORT, 404),
        ("a", REPORT | {"report-type": "x"}, 400),
        ("a", {"report-type": "scan-report"}, 400),
        ("a", [], 400),
    ],
)
def test_a_metrics_report_is_checked_lightly(
    client: AppClient, path: str, report: object, status: int
) -> None:
    answer = client.post(f"/v1/namespaces/{path}/tables/t/metrics", report)
    assert answer.status_code == status
