"""Requests that are acknowledged first, and a world to carry them out in: replicas over one store, a clock of its own.

Nothing is carried out unless a test says so (`run`), or starts the threads that a real service has (`jobs.start`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from headgate.service import jobs
from headgate.store.base import Store
from headgate.store.memory import MemoryStore
from headgate.store.open import open_store
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import TRANSACTION, change, data_file, kebab
from tests.service.table_calls import created, load, make_namespace, path

COMMITS = "/v1/commits"
ASYNC = {"Prefer": "respond-async"}
Wire = dict[str, Any]


class World:
    """Services over one store; each call of `service` is one more replica, or the next life of the first."""

    def __init__(self, folder: Path, open_one: Callable[[], Store]) -> None:
        self._folder, self._open_one = folder, open_one
        self._stack = ExitStack()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def service(self, **settings: Any) -> AppClient:
        """One more service, closed at the end unless it was before."""
        return self._stack.enter_context(app_client(self._folder, store=self._open_one(), **settings))


def opener_of(kind: str, folder: Path, postgres_url: Callable[[], str]) -> Callable[[], Store]:
    """How to open the store again and again; the one in memory is always the same."""
    match kind:
        case "memory":
            kept = MemoryStore()
            return lambda: kept
        case "sqlite":
            return lambda: open_store(f"sqlite:///{folder / 'catalog.db'}")
        case _:
            url = postgres_url()
            return lambda: open_store(url)


def with_table(client: AppClient, *names: str) -> AppClient:
    """The namespace `a` with its tables, `t` unless told otherwise."""
    make_namespace(client)
    for name in names or ("t",):
        created(client, name)
    return client


def file_of(client: AppClient, name: str, table: str = "t", **fields: Any) -> Wire:
    """A data file of a table."""
    return data_file(f"{load(client, table)['metadata']['location']}/data/{name}", **fields)


def append(client: AppClient, name: str, table: str = "t", **fields: Any) -> Wire:
    """An update that adds one file."""
    return change("append", add_data_files=[file_of(client, name, table)], **fields)


def commit_later(client: AppClient, *updates: Wire, key: str | None = None, **fields: Any) -> httpx.Response:
    """POST of updates to `t`, to be carried out later."""
    headers = {**ASYNC, **fields.pop("headers", {}), **({} if key is None else {"Idempotency-Key": key})}
    body = {"requirements": fields.pop("requirements", []), "updates": list(updates), **kebab(fields)}
    return client.post(path(), body, headers=headers)


def transact_later(client: AppClient, *changes: Wire) -> httpx.Response:
    """POST of several tables, to be carried out later."""
    return client.post(TRANSACTION, {"table-changes": list(changes)}, headers=ASYNC)


def stream(
    client: AppClient, *files: Wire, table: str = "t", key: str | None = None, **fields: Any
) -> httpx.Response:
    """POST of files to be appended soon."""
    headers = {**fields.pop("headers", {}), **({} if key is None else {"Idempotency-Key": key})}
    return client.post(f"{path(table)}/append", {"files": list(files), **kebab(fields)}, headers=headers)


def accepted(answer: httpx.Response) -> str:
    """The id of a request that was acknowledged."""
    assert answer.status_code == 202, answer.text
    id_: str = answer.json()["id"]
    assert answer.headers["location"] == f"{COMMITS}/{id_}"
    return id_


def verdict(client: AppClient, id_: str, **options: Any) -> Wire:
    """What became of it so far."""
    answer = client.get(f"{COMMITS}/{id_}", **options)
    assert answer.status_code == 200, answer.text
    found: Wire = answer.json()
    return found


def run(client: AppClient) -> int:
    """Carry out what is due; how many jobs that were."""
    return jobs.run_due(client.services)


def pending(client: AppClient) -> int:
    """How many jobs the store holds."""
    return client.services.store.count_jobs()
