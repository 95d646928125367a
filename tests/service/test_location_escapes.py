"""No location that comes in over HTTP leaves the allowed roots, whichever field it comes in by.

Every vector of tests/core/test_locations goes through every input. What is refused names its field, and leaves
database, warehouse and everything around it as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.core.test_locations import ESCAPED_VALUES, ESCAPES, table
from tests.service.app_client import AppClient, app_client
from tests.service.table_calls import (
    SCHEMA,
    commit,
    create,
    created,
    error_of,
    field_of,
    files_below,
    local,
    make_namespace,
    path,
    picture_of,
    ref,
    snapshot,
    touch,
    write_data,
)
from tests.service.test_tables import VIEW, drain, staged_updates

VECTORS_MIN = 100
INSIDE = "given.metadata.json"  # the file of this test's own making that a registration reads


def vectors(root: str, *, chosen: bool) -> dict[str, str]:
    """Escapes by name, around the real root; of places that a client chooses, some more are refused."""
    rows = table(ESCAPES) + (table(ESCAPED_VALUES) if chosen else [])
    return {name: location.replace("/wh/main", root) for name, location in rows}


@dataclass(frozen=True)
class Lake:
    """A service with a table of version 2, one of version 1, and a view."""

    client: AppClient
    folder: Path
    metadata: dict[str, Any]

    @property
    def root(self) -> str:
        return str(self.folder / "warehouse")

    def post(self, to: str, body: dict[str, Any]) -> httpx.Response:
        """As ASCII JSON: httpx would refuse to send a lone surrogate."""
        content = json.dumps(body).encode()
        return self.client.request("POST", to, content=content, headers={"Content-Type": "application/json"})

    def update(self, update: dict[str, Any], name: str = "t") -> httpx.Response:
        return self.post(path(name), {"requirements": [], "updates": [update]})

    def register(self, metadata: dict[str, Any], to: str = "register") -> httpx.Response:
        file = touch(f"{self.client.services.locations.roots[0]}/{INSIDE}", json.dumps(metadata).encode())
        return self.post(f"/v1/namespaces/a/{to}", {"name": "new", "metadata-location": file})

    def picture(self) -> tuple[object, object]:
        files = {name: data for name, data in files_below(self.folder).items() if INSIDE not in name}
        return picture_of(self.client.services.store), files


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with app_client(tmp_path, allowed_locations=("s3://lake/wh",)) as client:
        make_namespace(client)
        created(client, "old", properties={"format-version": "1"})
        assert client.post("/v1/namespaces/a/views", VIEW).status_code == 200
        metadata = created(client, location=f"{client.services.locations.roots[0]}/place")["metadata"]
        yield Lake(client, tmp_path, metadata)


def set_properties(**properties: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": properties}


def statistics(location: str) -> dict[str, Any]:
    return {
        "snapshot-id": 1,
        "statistics-path": location,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }


def partition_statistics(location: str) -> dict[str, Any]:
    return {"snapshot-id": 1, "statistics-path": location, "file-size-in-bytes": 1}


def inside(lake: Lake, **fields: Any) -> httpx.Response:
    """Register a metadata file whose inside points outside."""
    elsewhere = lake.metadata["location"].replace("/place", "/elsewhere")
    metadata = {**lake.metadata, "location": elsewhere, "last-sequence-number": 1}
    return lake.register({**metadata, **{k.replace("_", "-"): v for k, v in fields.items()}})


def inside_snapshot(lake: Lake, manifest_list: str | None, **fields: Any) -> httpx.Response:
    return inside(lake, snapshots=[snapshot(lake.client, manifest_list, **fields)["snapshot"]])


def inside_view(lake: Lake, **fields: Any) -> httpx.Response:
    loaded = lake.client.get("/v1/namespaces/a/views/v").json()["metadata"]
    return lake.register({**loaded, **fields}, "register-view")


def property_of(lake: Lake, name: str, location: str) -> httpx.Response:
    return lake.post(
        "/v1/namespaces/a/tables", {"name": "new", "schema": SCHEMA, "properties": {name: location}}
    )


def transact(lake: Lake, *updates: dict[str, Any]) -> httpx.Response:
    changes = [
        {"identifier": {"namespace": ["a"], "name": name}, "requirements": [], "updates": list(some)}
        for name, some in (("old", [set_properties(x="y")]), ("t", updates))
    ]
    return lake.post("/v1/transactions/commit", {"table-changes": changes})


def staged(lake: Lake, location: str) -> httpx.Response:
    updates = [u for u in staged_updates(lake.metadata) if u["action"] != "set-location"]
    moved = [*updates, {"action": "set-location", "location": location}]
    return lake.post(path("new"), {"requirements": [{"type": "assert-create"}], "updates": moved})


@dataclass(frozen=True)
class Input:
    """One way in: how a location is sent, the field that a refusal names, and who chooses the location."""

    name: str
    field: str
    send: Callable[[Lake, str], httpx.Response]
    chosen: bool = True


def named_property(name: str) -> list[Input]:
    view = "/v1/namespaces/a/views"
    return [
        Input(f"create with {name}", f"properties.{name}", lambda lake, to: property_of(lake, name, to)),
        Input(
            f"commit of {name}",
            f"properties.{name}",
            lambda lake, to: lake.update(set_properties(**{name: to})),
        ),
        Input(
            f"view with {name}",
            f"properties.{name}",
            lambda lake, to: lake.post(view, {**VIEW, "name": "new", "properties": {name: to}}),
        ),
        Input(
            f"commit to a view of {name}",
            f"properties.{name}",
            lambda lake, to: lake.post(f"{view}/v", {"updates": [set_properties(**{name: to})]}),
        ),
        Input(
            f"registered {name}",
            f"properties.{name}",
            lambda lake, to: inside(lake, properties={name: to}),
        ),
    ]


INPUTS = [
    Input(
        "create",
        "location",
        lambda lake, to: lake.post(path("")[:-1], {"name": "new", "schema": SCHEMA, "location": to}),
    ),
    Input(
        "stage-create",
        "location",
        lambda lake, to: lake.post(
            path("")[:-1], {"name": "new", "schema": SCHEMA, "location": to, "stage-create": True}
        ),
    ),
    Input("commit of a staged table", "updates.location", staged),
    Input(
        "register",
        "metadata-location",
        lambda lake, to: lake.post("/v1/namespaces/a/register", {"name": "new", "metadata-location": to}),
    ),
    Input(
        "register over",
        "metadata-location",
        lambda lake, to: lake.post(
            "/v1/namespaces/a/register", {"name": "t", "metadata-location": to, "overwrite": True}
        ),
    ),
    Input(
        "set-location",
        "updates.location",
        lambda lake, to: lake.update({"action": "set-location", "location": to}),
    ),
    Input(
        "set-location in a transaction",
        "updates.location",
        lambda lake, to: transact(lake, {"action": "set-location", "location": to}),
    ),
    *named_property("write.data.path"),
    *named_property("write.metadata.path"),
    *named_property("write.object-storage.path"),
    *named_property("write.folder-storage.path"),
    Input(
        "namespace location",
        "properties.location",
        lambda lake, to: lake.post("/v1/namespaces", {"namespace": ["new"], "properties": {"location": to}}),
    ),
    Input(
        "namespace location set later",
        "properties.location",
        lambda lake, to: lake.post("/v1/namespaces/a/properties", {"updates": {"location": to}}),
    ),
    Input(
        "view location",
        "location",
        lambda lake, to: lake.post("/v1/namespaces/a/views", {**VIEW, "name": "new", "location": to}),
    ),
    Input(
        "set-location of a view",
        "updates.location",
        lambda lake, to: lake.post(
            "/v1/namespaces/a/views/v", {"updates": [{"action": "set-location", "location": to}]}
        ),
    ),
    Input(
        "register-view",
        "metadata-location",
        lambda lake, to: lake.post(
            "/v1/namespaces/a/register-view", {"name": "new", "metadata-location": to}
        ),
    ),
    Input("registered view's location", "metadata.location", lambda lake, to: inside_view(lake, location=to)),
    Input(
        "manifest list",
        "updates.snapshot.manifest-list",
        lambda lake, to: lake.update(snapshot(lake.client, to)),
        chosen=False,
    ),
    Input(
        "manifest list in a transaction",
        "updates.snapshot.manifest-list",
        lambda lake, to: transact(lake, snapshot(lake.client, to)),
        chosen=False,
    ),
    Input(
        "manifests of version 1",
        "updates.snapshot.manifests",
        lambda lake, to: lake.update(snapshot(lake.client, None, sequence=0, manifests=[to]), name="old"),
        chosen=False,
    ),
    Input(
        "statistics",
        "updates.statistics.statistics-path",
        lambda lake, to: lake.update({"action": "set-statistics", "statistics": statistics(to)}),
        chosen=False,
    ),
    Input(
        "partition statistics",
        "updates.partition-statistics.statistics-path",
        lambda lake, to: lake.update(
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(to)}
        ),
        chosen=False,
    ),
    Input("registered location", "metadata.location", lambda lake, to: inside(lake, location=to)),
    Input(
        "registered metadata log",
        "metadata.metadata-log",
        lambda lake, to: inside(lake, metadata_log=[{"metadata-file": to, "timestamp-ms": 1}]),
        chosen=False,
    ),
    Input(
        "registered manifest list",
        "metadata.snapshots.manifest-list",
        inside_snapshot,
        chosen=False,
    ),
    Input(
        "registered manifests",
        "metadata.snapshots.manifests",
        lambda lake, to: inside_snapshot(lake, None, manifests=[to]),
        chosen=False,
    ),
    Input(
        "registered statistics",
        "metadata.statistics",
        lambda lake, to: inside(lake, statistics=[statistics(to)]),
        chosen=False,
    ),
    Input(
        "registered partition statistics",
        "metadata.statistics",
        lambda lake, to: inside(lake, partition_statistics=[partition_statistics(to)]),
        chosen=False,
    ),
]


def is_no_json(location: str) -> bool:
    """A lone surrogate is no Unicode, so the text around it is no JSON."""
    return any("\ud800" <= char <= "\udfff" for char in location)


def test_the_matrix_has_the_promised_size() -> None:
    assert len(vectors("/r", chosen=False)) >= VECTORS_MIN
    assert len({way.name for way in INPUTS}) == len(INPUTS) >= 30


@pytest.mark.parametrize("way", INPUTS, ids=lambda way: way.name)
def test_no_escape_gets_in_by(lake: Lake, way: Input) -> None:
    before = lake.picture()
    faults = []
    for name, location in vectors(lake.root, chosen=way.chosen).items():
        answer = way.send(lake, location)
        if answer.status_code != 400:
            faults.append(f"{name}: {answer.status_code} {answer.text[:200]}")
        elif is_no_json(location):
            assert "not valid JSON" in error_of(answer)["message"]
        elif field_of(answer) != way.field or way.field.split(".")[0] not in error_of(answer)["message"]:
            faults.append(f"{name}: {error_of(answer)}")
    assert not faults, f"{len(faults)}\n" + "\n".join(faults[:10])
    assert lake.picture() == before


@pytest.mark.parametrize("way", INPUTS, ids=lambda way: way.name)
def test_a_location_inside_is_not_refused_as_an_escape_by(lake: Lake, way: Input) -> None:
    """Otherwise the matrix above would prove nothing."""
    file = touch(f"{lake.client.services.locations.roots[0]}/fine/x.avro", b"{}")
    answer = way.send(lake, file.replace("x.avro", "new") if way.chosen else file)
    if answer.status_code >= 400:
        assert error_of(answer)["headgate"]["code"] != "location-refused", answer.text


# --- symlinks, which no text shows --------------------------------------------------------------------------


@pytest.fixture
def outside(lake: Lake) -> Path:
    """A folder beside the warehouse, and a symlink to it inside; also one to a file in it."""
    outside = lake.folder / "outside"
    outside.mkdir()
    (outside / "secret.metadata.json").write_text(json.dumps(lake.metadata))
    (outside / "list.avro").write_bytes(b"x")
    Path(lake.root, "link").symlink_to(outside)
    Path(lake.root, "file.metadata.json").symlink_to(outside / "secret.metadata.json")
    Path(lake.root, "list.avro").symlink_to(outside / "list.avro")
    return outside


def symlinked(lake: Lake, name: str) -> str:
    return f"{lake.client.services.locations.roots[0]}/{name}"


SYMLINKED: dict[str, Callable[[Lake], httpx.Response]] = {
    "create": lambda lake: create(lake.client, "new", location=symlinked(lake, "link/t")),
    "create at the link": lambda lake: create(lake.client, "new", location=symlinked(lake, "link")),
    "create with a metadata path": lambda lake: create(
        lake.client, "new", properties={"write.metadata.path": symlinked(lake, "link/m")}
    ),
    "create through a link to a file": lambda lake: create(
        lake.client, "new", location=symlinked(lake, "list.avro/t")
    ),
    "commit of a staged table": lambda lake: staged(lake, symlinked(lake, "link/t")),
    "set-location": lambda lake: commit(
        lake.client, {"action": "set-location", "location": symlinked(lake, "link/t")}
    ),
    "commit of a metadata path": lambda lake: commit(
        lake.client, set_properties(**{"write.metadata.path": symlinked(lake, "link/m")})
    ),
    "register in a linked folder": lambda lake: lake.post(
        "/v1/namespaces/a/register",
        {"name": "new", "metadata-location": symlinked(lake, "link/secret.metadata.json")},
    ),
    "register of a linked file": lambda lake: lake.post(
        "/v1/namespaces/a/register",
        {"name": "new", "metadata-location": symlinked(lake, "file.metadata.json")},
    ),
    "register-view": lambda lake: lake.post(
        "/v1/namespaces/a/register-view",
        {"name": "new", "metadata-location": symlinked(lake, "link/secret.metadata.json")},
    ),
    "manifest list in a linked folder": lambda lake: commit(
        lake.client, snapshot(lake.client, symlinked(lake, "link/list.avro")), ref()
    ),
    "linked manifest list": lambda lake: commit(
        lake.client, snapshot(lake.client, symlinked(lake, "list.avro")), ref()
    ),
    "create of a view": lambda lake: lake.post(
        "/v1/namespaces/a/views", {**VIEW, "name": "new", "location": symlinked(lake, "link/v")}
    ),
    "set-location of a view": lambda lake: lake.post(
        "/v1/namespaces/a/views/v",
        {"updates": [{"action": "set-location", "location": symlinked(lake, "link/v")}]},
    ),
}


@pytest.mark.parametrize("way", SYMLINKED)
def test_a_symlink_that_leads_outside_is_refused_in(lake: Lake, outside: Path, way: str) -> None:
    before = lake.picture()
    answer = SYMLINKED[way](lake)
    assert answer.status_code == 400, answer.text
    assert "symlink" in error_of(answer)["message"] or "does not exist" in error_of(answer)["message"]
    if "register" in way:
        assert field_of(answer) == "metadata-location"
    assert lake.picture() == before


def test_a_purge_follows_no_symlink_out_of_the_table(lake: Lake, outside: Path) -> None:
    location = created(lake.client, "doomed")["metadata"]["location"]
    (outside / "0.parquet").write_bytes(b"theirs")
    local(f"{location}/data").symlink_to(outside)
    touch(f"{location}/more/1.parquet")
    file = write_data(
        f"{location}/metadata", [f"{location}/data/0.parquet", f"{location}/more/1.parquet"], id=1
    )
    assert commit(lake.client, snapshot(lake.client, file), ref(), name="doomed").status_code == 200
    lake.client.delete(path("doomed") + "?purgeRequested=true")
    drain(lake.client)
    assert (outside / "0.parquet").read_bytes() == b"theirs"
