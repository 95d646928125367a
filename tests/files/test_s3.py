"""What only S3 can get wrong: lost answers, stores that ignore conditions, wrong keys and buckets."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
from uuid import uuid4

import obstore.exceptions
import pytest

from headgate.errors import AlreadyExists, StorageFailed
from headgate.files.s3 import S3Files
from headgate.files.s3_config import S3Config
from tests.s3_server import S3Server

pytestmark = pytest.mark.s3


class Proxy(ThreadingHTTPServer):
    """Stands between client and server, and spoils the answers to PUT as told."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = urlsplit(upstream).netloc
        self.faults: list[str] = []
        self.puts = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Forwards one request with its headers untouched, since they are signed."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = ""
        if self.command == "PUT":
            self.server.puts += 1
            fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault == "lose request":
            self._hang_up()
            return
        status, headers, answer = self._forward(body)
        if fault == "lose answer":
            self._hang_up()
            return
        if fault == "say 503":
            status, headers, answer = 503, {}, b""
        if fault == "ignore the condition" and status == 412:
            status, headers, answer = 200, {"ETag": '"x"'}, b""
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(answer)

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=10)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, dict(response.headers.items()), response.read()
        finally:
            connection.close()

    def _hang_up(self) -> None:
        self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815 - the names the base class looks up

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the base class prints to stderr."""


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    server = Proxy(s3_server.endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def root(s3_server: S3Server) -> str:
    return f"s3://{s3_server.bucket}/{uuid4()}"


def spoiled(proxy: Proxy, s3_server: S3Server, root: str, *faults: str) -> S3Files:
    proxy.faults = list(faults)
    return S3Files([root], s3_server.config(endpoint=proxy.endpoint))


@pytest.mark.parametrize(
    "faults",
    [
        ("lose answer",),
        ("say 503",),
        ("say 503", "say 503"),
        ("lose answer", "lose answer"),
        ("say 503", "lose answer"),
    ],
)
def test_a_create_whose_answer_was_lost_counts_as_written(
    proxy: Proxy, s3_server: S3Server, root: str, faults: tuple[str, ...]
) -> None:
    spoiled(proxy, s3_server, root, *faults).write_new(f"{root}/a", [b"ours"])
    assert S3Files([root], s3_server.config()).read(f"{root}/a", limit_bytes=10) == b"ours"


@pytest.mark.parametrize("fault", ["lose answer", "say 503"])
def test_a_lost_answer_never_hides_that_somebody_else_has_the_name(
    proxy: Proxy, s3_server: S3Server, root: str, fault: str
) -> None:
    direct = S3Files([root], s3_server.config())
    direct.write_new(f"{root}/a", [b"theirs"])
    with pytest.raises(AlreadyExists):
        spoiled(proxy, s3_server, root, fault).write_new(f"{root}/a", [b"ours, and longer"])
    assert direct.read(f"{root}/a", limit_bytes=100) == b"theirs"


def test_a_request_that_never_arrives_is_a_failure_and_writes_nothing(
    proxy: Proxy, s3_server: S3Server, root: str
) -> None:
    with pytest.raises(StorageFailed, match="/a"):
        spoiled(proxy, s3_server, root, *["lose request"] * 20).write_new(f"{root}/a", [b"ours"])
    assert not S3Files([root], s3_server.config()).exists(f"{root}/a")


def test_retries_of_a_request_are_bounded(proxy: Proxy, s3_server: S3Server, root: str) -> None:
    files = spoiled(proxy, s3_server, root, *["say 503"] * 20)
    files.write_new(f"{root}/a", [b"ours"])
    assert proxy.puts <= s3_server.config().retries_max + 1


def test_a_store_that_ignores_the_condition_fails_the_check_and_keeps_no_probe(
    proxy: Proxy, s3_server: S3Server, root: str
) -> None:
    with pytest.raises(StorageFailed, match="If-None-Match"):
        spoiled(proxy, s3_server, root, "", "ignore the condition").check()
    assert list(S3Files([root], s3_server.config()).list(root)) == []


def test_the_library_has_no_error_that_escapes_our_table() -> None:
    kinds = [kind for kind in vars(obstore.exceptions).values() if isinstance(kind, type)]
    assert len(kinds) > 5
    assert [
        kind for kind in kinds if not issubclass(kind, (obstore.exceptions.BaseError, OSError, ValueError))
    ] == []


def test_a_server_that_is_not_there_is_a_storage_failure(root: str) -> None:
    config = S3Config(
        endpoint="http://127.0.0.1:1",
        access_key_id="a",
        secret_access_key="b",
        allow_http=True,
        retries_max=0,
    )
    files = S3Files([root], config)
    for ask in (
        lambda: files.exists(f"{root}/a"),
        lambda: files.read(f"{root}/a", limit_bytes=1),
        lambda: files.write_new(f"{root}/a", [b"x"]),
        lambda: files.delete([f"{root}/a"]),
        lambda: list(files.list(root)),
        files.check,
    ):
        with pytest.raises(StorageFailed, match=root):
            ask()


def test_plain_http_needs_a_setting(s3_server: S3Server, root: str) -> None:
    config = S3Config(endpoint=s3_server.endpoint, access_key_id="a", secret_access_key="b", retries_max=0)
    with pytest.raises(StorageFailed):
        S3Files([root], config).exists(f"{root}/a")


def test_wrong_keys_are_a_storage_failure_that_shows_no_secret(s3_server: S3Server, root: str) -> None:
    config = S3Config(
        endpoint=s3_server.endpoint,
        access_key_id="headgate",
        secret_access_key="canary-0147",
        allow_http=True,
    )
    with pytest.raises(StorageFailed, match="credentials") as failed:
        S3Files([root], config).check()
    assert "canary" not in f"{failed.value} {failed.value.__cause__!r} {config!r}"


def test_a_bucket_that_is_not_there_is_a_storage_failure(s3_server: S3Server) -> None:
    files = S3Files(["s3://no-such-bucket/x"], s3_server.config())
    with pytest.raises(StorageFailed):
        files.check()
    with pytest.raises(StorageFailed):
        list(files.list("s3://no-such-bucket/x"))


def test_more_objects_than_one_request_may_carry_are_listed_and_deleted(
    s3_server: S3Server, root: str
) -> None:
    files = S3Files([root], s3_server.config())
    locations = [f"{root}/many/{number}" for number in range(1_050)]
    for location in locations:
        files.write_new(location, [b""])
    assert sorted(info.location for info in files.list(root)) == sorted(locations)
    files.delete(locations)
    assert list(files.list(root)) == []


def test_a_whole_bucket_may_be_the_root(s3_server: S3Server) -> None:
    files = S3Files([f"s3://{s3_server.bucket}"], s3_server.config())
    location = f"s3://{s3_server.bucket}/{uuid4()}"
    files.write_new(location, [b"x"])
    assert location in {info.location for info in files.list(f"s3://{s3_server.bucket}")}
    files.delete([location])


def test_settings_come_first_and_the_environment_fills_in() -> None:
    environ = {
        "AWS_ENDPOINT_URL": "http://general",
        "AWS_ENDPOINT_URL_S3": "http://s3",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "env-key",
        "AWS_SECRET_ACCESS_KEY": "env-secret",
        "AWS_SESSION_TOKEN": "env-token",
    }
    filled = S3Config().with_environment(environ)
    assert (filled.endpoint, filled.region) == ("http://s3", "eu-west-1")
    assert (filled.access_key_id, filled.secret_access_key, filled.session_token) == (
        "env-key",
        "env-secret",
        "env-token",
    )
    own = S3Config(endpoint="http://own", region="r", access_key_id="k", secret_access_key="s")
    assert own.with_environment(environ) == own  # above all, no foreign session token joins our own keys
    assert S3Config().with_environment({}) == S3Config()
