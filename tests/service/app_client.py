"""An in-process client of the service over a warehouse in a temporary folder. No network, no sleeping.

    with app_client(tmp_path) as client:
        assert client.post("/v1/namespaces", {"namespace": ["a"]}).status_code == 200

The application runs in an event loop of its own thread, so that several test threads may ask at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.service.app import build_app
from headgate.service.exchange import RouteTable
from headgate.service.routes import all_routes
from headgate.service.services import Services, build_services, wall_clock_ms
from headgate.service.settings import Settings
from headgate.service.tokens import hash_secret, new_secret
from headgate.store.base import Principal, Store
from headgate.store.memory import MemoryStore

WAIT_S = 30


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_ms = wall_clock_ms()

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)


@dataclass(frozen=True)
class AppClient:
    """Sends requests to the application."""

    services: Services
    clock: Clock
    _http: httpx.AsyncClient
    _loop: asyncio.AbstractEventLoop

    def request(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        """One request; `json` becomes the body."""
        if json is not None:
            options["json"] = json
        asked = self._http.request(method, path, **options)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(WAIT_S)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """GET."""
        return self.request("GET", path, **options)

    def head(self, path: str, **options: Any) -> httpx.Response:
        """HEAD."""
        return self.request("HEAD", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        """POST of a JSON body."""
        return self.request("POST", path, json, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        """DELETE."""
        return self.request("DELETE", path, **options)

    def add_principal(self, name: str, role: str) -> str:
        """A principal in the store; returns its secret."""
        secret = new_secret()
        self.services.store.put_principal(Principal(name, hash_secret(secret), role, self.clock()))
        return secret

    def token(self, name: str, secret: str) -> str:
        """A token from the token endpoint."""
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        token: str = self.request("POST", "/v1/oauth/tokens", data=form).json()["access_token"]
        return token


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def app_client(
    tmp_path: Path,
    *,
    store: Store | None = None,
    files: Files | None = None,
    table: RouteTable | None = None,
    address: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[AppClient]:
    """A client over a fresh application; the store is in memory unless one is given."""
    made = Settings(warehouse=str(tmp_path / "warehouse"), **{"metadata_inline_bytes": 65536, **settings})
    opened, _ = open_files(made.warehouse_location)
    clock = Clock()
    services = build_services(
        made, store=MemoryStore() if store is None else store, files=files or opened, clock_ms=clock
    )
    app = build_app(services, made, table or all_routes())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="app-client")
    thread.start()
    transport = httpx.ASGITransport(app, client=(address, 1))
    http = httpx.AsyncClient(transport=transport, base_url="http://headgate", headers=dict(headers or {}))
    try:
        yield AppClient(services, clock, http, loop)
    finally:
        asyncio.run_coroutine_threadsafe(http.aclose(), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()
        app.close()
