"""A service of one's own: ready when it says so, ended by its own handle, and loud when it cannot start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools.service_process import ServiceStartError, find_free_port, start_process

ANSWERS = """
import http.server, os, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(os.environ.get("HEADGATE_DATABASE"), os.environ.get("GIVEN"), flush=True)
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def answering(port: int) -> list[str]:
    """A small server of the shape that is asked for."""
    return [sys.executable, "-c", ANSWERS, str(port)]


def test_a_started_service_is_ready_and_ends_when_told(tmp_path: Path) -> None:
    service = start_process(answering, log=tmp_path / "service.log")
    assert service.process.poll() is None
    assert service.uri == f"http://127.0.0.1:{service.port}"
    assert service.stop() != 0  # ended by the signal, not by itself
    assert service.stop() != 0  # a second time is no error


def test_settings_of_the_developer_do_not_reach_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_DATABASE", "precious")
    service = start_process(answering, log=tmp_path / "service.log", env={"GIVEN": "on purpose"})
    service.kill()
    assert "None on purpose" in service.log_tail()


def test_a_service_that_ends_too_early_shows_its_log(tmp_path: Path) -> None:
    def failing(port: int) -> list[str]:
        return [sys.executable, "-c", "print('no such database'); raise SystemExit(7)"]

    with pytest.raises(ServiceStartError, match=r"code 7 too early:\nno such database"):
        start_process(failing, log=tmp_path / "service.log")


def test_a_free_port_is_one_that_can_be_taken(tmp_path: Path) -> None:
    port = find_free_port()
    service = start_process(answering, log=tmp_path / "service.log", port=port)
    service.kill()
    assert service.port == port
