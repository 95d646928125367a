"""Requests about tables with everything defaulted, files that real tables have, and a picture of all state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile, write_manifest, write_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from headgate.store.base import Store
from tests.format.manifest_files import SNAPSHOT_ID, entry
from tests.service.app_client import AppClient

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
OTHER_KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c073990"


def make_namespace(client: AppClient, *levels: str, properties: Mapping[str, str] | None = None) -> None:
    """A namespace, `a` unless told otherwise."""
    answer = client.post(
        "/v1/namespaces", {"namespace": list(levels or ("a",)), "properties": dict(properties or {})}
    )
    assert answer.status_code == 200, answer.text


def create(client: AppClient, name: str = "t", *, namespace: str = "a", **fields: Any) -> httpx.Response:
    """POST …/tables. `stage_create=True` becomes `stage-create`."""
    options = {"headers": fields.pop("headers")} if "headers" in fields else {}
    body = {"name": name, "schema": SCHEMA, **{k.replace("_", "-"): v for k, v in fields.items()}}
    return client.post(f"/v1/namespaces/{namespace}/tables", body, **options)


def created(client: AppClient, name: str = "t", **fields: Any) -> dict[str, Any]:
    """A table that is there; the answer's body."""
    answer = create(client, name, **fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def path(name: str = "t", *, namespace: str = "a") -> str:
    """The path of a table."""
    return f"/v1/namespaces/{quote(namespace, safe='')}/tables/{quote(name, safe='')}"


def load(client: AppClient, name: str = "t", **options: Any) -> dict[str, Any]:
    """GET of a table that is there."""
    answer = client.get(path(name), **options)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def commit(
    client: AppClient,
    *updates: dict[str, Any],
    name: str = "t",
    requirements: list[dict[str, Any]] | None = None,
    key: str | None = None,
) -> httpx.Response:
    """POST of updates to a table."""
    options = {} if key is None else {"headers": {"Idempotency-Key": key}}
    return client.post(path(name), {"requirements": requirements or [], "updates": list(updates)}, **options)


def committed(client: AppClient, *updates: dict[str, Any], name: str = "t") -> dict[str, Any]:
    """A commit that passes; the answer's body."""
    answer = commit(client, *updates, name=name)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def set_properties(**updates: str) -> dict[str, Any]:
    """An update; `_` in a name stands for a dot."""
    return {"action": "set-properties", "updates": {k.replace("_", "."): v for k, v in updates.items()}}


def snapshot(
    client: AppClient, manifest_list: str | None, *, id: int = 1, sequence: int | None = None, **fields: Any
) -> dict[str, Any]:
    """An add-snapshot update."""
    return {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": id,
            "sequence-number": id if sequence is None else sequence,
            "timestamp-ms": client.clock(),
            "manifest-list": manifest_list,
            "summary": {"operation": "append"},
            "schema-id": 0,
            **{k.replace("_", "-"): v for k, v in fields.items()},
        },
    }


def ref(id: int = 1, *, name: str = "main", type: str = "branch") -> dict[str, Any]:
    """A set-snapshot-ref update."""
    return {"action": "set-snapshot-ref", "ref-name": name, "type": type, "snapshot-id": id}


def append(client: AppClient, *, id: int = 1, name: str = "t", branch: str = "main") -> httpx.Response:
    """A commit of one snapshot with a manifest list that exists and says nothing."""
    location = load(client, name)["metadata"]["location"]
    file = touch(f"{location}/metadata/snap-{id}.avro")
    parent = {"parent_snapshot_id": id - 1} if id > 1 else {}
    return commit(client, snapshot(client, file, id=id, **parent), ref(id, name=branch), name=name)


def local(location: str) -> Path:
    """The path of a file:// location."""
    return Path(urlsplit(location).path)


def touch(location: str, data: bytes = b"not looked at") -> str:
    """A file that exists; its location."""
    file = local(location)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return location


def write_data(folder: str, names: list[str], *, id: int = SNAPSHOT_ID) -> str:
    """Data files, their manifest and its manifest list below a folder; the list's location."""
    local(folder).mkdir(parents=True, exist_ok=True)
    io, schema = PyArrowFileIO(), Schema(NestedField(1, "id", LongType(), required=False))
    with write_manifest(
        2, UNPARTITIONED_PARTITION_SPEC, schema, io.new_output(f"{folder}/m-{id}.avro"), id, "deflate"
    ) as writer:
        for name in names:
            writer.add_entry(entry(name, snapshot_id=id, partition=Record()))
    return write_list(folder, [writer.to_manifest_file()], id=id)


def write_list(folder: str, manifests: list[ManifestFile], *, id: int = SNAPSHOT_ID) -> str:
    """A manifest list of these manifests; its location."""
    file = f"{folder}/snap-{id}.avro"
    with write_manifest_list(2, PyArrowFileIO().new_output(file), id, None, id, "deflate") as writer:
        writer.add_manifests(manifests)
    return file


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer in the model of the specification."""
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["message"]
    assert error["type"]
    return error


def field_of(answer: httpx.Response) -> str:
    """Which field an error is about; empty when it says none."""
    return str(error_of(answer)["headgate"].get("field", ""))


def files_below(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, every folder and symlink with none."""
    return {
        str(found.relative_to(folder)): found.read_bytes()
        if found.is_file() and not found.is_symlink()
        else None
        for found in sorted(folder.rglob("*"))
    }


def picture_of(store: Store) -> list[object]:
    """All rows of a store: namespaces, entries with their heads, events. Keys come with effects or refusals."""
    rows: list[object] = []
    levels: list[tuple[str, ...]] = [()]
    while levels:
        parent = levels.pop()
        children = store.list_namespaces(parent, after=None, limit=1_000_000)
        rows += [store.load_namespace(child) for child in children]
        levels += children
    headers = list(store.iter_headers())
    rows += store.load_entries([(header.namespace, header.name) for header in headers])
    return [*rows, *store.read_events(after=0, limit=1_000_000)]
