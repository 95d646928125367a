"""One request, one answer, over connections that are kept. Knows nothing of tables, tokens or retries.

What cannot be answered raises one of two: `NotSent` when the service certainly did not hear the request,
`AnswerLost` when it may have. Redirects are not followed: a credential goes to the host that was named, only.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from headgate import __version__
from headgate.errors import BadInput

ANSWER_BYTES_MAX = 1 << 30
_IDLE_MAX = 8


class NotSent(Exception):  # noqa: N818 — it never leaves the client: `resend` turns it into one of our errors
    """No connection could be made: nothing happened."""


class AnswerLost(Exception):  # noqa: N818 — as above
    """The request was sent, and its answer did not arrive. `stale` when a kept connection had been closed."""

    def __init__(self, message: str, *, stale: bool) -> None:
        super().__init__(message)
        self.stale = stale


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in lower case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to one service. May be shared by threads: each request has a connection to itself."""

    def __init__(self, uri: str, *, timeout_s: float) -> None:
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"uri: expected http:// or https:// and a host, got {uri[:200]!r}", field="uri")
        if parts.username is not None or parts.query or parts.fragment:
            raise BadInput("uri: credentials, query and fragment do not belong there", field="uri")
        self._host, self._timeout_s = parts.hostname, timeout_s
        self._port = parts.port
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None  # verifies, always
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """One request, sent once."""
        connection, kept = self._take()
        try:
            if not kept:
                connection.connect()
        except OSError as error:
            connection.close()
            raise NotSent(f"no connection to {self._host}: {error}") from error
        try:
            connection.request(
                method, self._prefix + path, body, {"User-Agent": f"headgate-client/{__version__}", **headers}
            )
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX)
            if response.length:  # asked for a number of bytes, http.client takes a short body for a whole one
                raise http.client.IncompleteRead(content, response.length)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            stale = kept and isinstance(error, ConnectionError)  # RemoteDisconnected is one
            if stale:
                self.close()  # the others were kept as long
            raise AnswerLost(f"no answer from {self._host}: {error!r}", stale=stale) from error
        except BaseException:
            connection.close()
            raise
        if response.isclosed() and not response.will_close:
            self._give_back(connection)
        else:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, content)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_lock"):  # one whose address was refused has nothing to close
            self.close()

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._tls
            ), False
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s), False

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()
