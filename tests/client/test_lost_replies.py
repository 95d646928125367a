"""Answers that are lost after the commit landed: every append of the client is in the table exactly once."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.service_process import HOST, running_service

from headgate.client import HeadgateClient
from headgate.client.resend import Time

COMMITS = 100
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}


@contextmanager
def losing_proxy(port: int) -> Iterator[tuple[str, list[str]]]:
    """Passes everything on; the first answer to every key is lost, after the service gave it."""
    lost: list[str] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            upstream = http.client.HTTPConnection(HOST, port, timeout=30)
            try:
                upstream.request(self.command, self.path, body or None, dict(self.headers))
                answer = upstream.getresponse()
                content = answer.read()
            finally:
                upstream.close()
            key = self.headers.get("Idempotency-Key")
            with lock:
                drop = key is not None and key not in lost
                if drop:
                    lost.append(str(key))
            if drop:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = forward  # noqa: N815 — the names that http.server looks for

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}", lost
        finally:
            server.shutdown()
            thread.join()


def test_a_commit_whose_answer_is_lost_lands_exactly_once(tmp_path: Path) -> None:
    with running_service(tmp_path) as service, losing_proxy(service.port) as (uri, lost):
        connection = http.client.HTTPConnection(HOST, service.port, timeout=30)
        for path, body in (
            ("/v1/namespaces", {"namespace": ["a"]}),
            ("/v1/namespaces/a/tables", {"name": "t", "schema": SCHEMA}),
        ):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            assert connection.getresponse().read()
        connection.close()
        with HeadgateClient(uri, world=Time(wait_s=lambda _: None)) as client:
            table = client.table("a.t")
            location = table.load().location
            done = [
                table.append(
                    [
                        {
                            "content": "data",
                            "file-path": f"{location}/data/{number}.parquet",
                            "file-format": "parquet",
                            "spec-id": 0,
                            "partition": [],
                            "file-size-in-bytes": 10,
                            "record-count": 1,
                        }
                    ]
                )
                for number in range(COMMITS)
            ]
            metadata = table.load(all_snapshots=True).metadata
    assert len(lost) == COMMITS
    assert all(one.sent == 2 for one in done)
    snapshots = metadata["snapshots"]
    appended = [one for one in snapshots if one["summary"]["operation"] == "append"]  # others merge manifests
    assert [one.snapshot_id for one in done] == [one["snapshot-id"] for one in appended]
    assert [one.sequence_number for one in done] == [one["sequence-number"] for one in appended]
    assert snapshots[-1]["summary"]["total-data-files"] == str(COMMITS)
