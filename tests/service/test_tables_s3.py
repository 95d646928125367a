"""The service on a real S3 warehouse, as a process of its own, over HTTP. Skips where there is no S3 server."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from tools.service_process import HOST, Service, sqlite_url, start_process

from headgate.files.s3 import S3Files
from tests.s3_server import S3Server
from tests.service.table_calls import SCHEMA, error_of, ref
from tests.service.test_tables import staged_updates

pytestmark = pytest.mark.s3
LIMIT = 1 << 20
TABLES = "/v1/namespaces/a/tables"


class Warehouse:
    """A running service, its warehouse, and the objects in it."""

    def __init__(self, server: S3Server, service: Service, root: str) -> None:
        self.server, self.service, self.root = server, service, root
        self.http = httpx.Client(base_url=service.uri, timeout=60)
        self.files = S3Files([root], server.config())

    def post(self, path: str, body: object) -> dict[str, Any]:
        """A request that passes."""
        answer = self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return dict(answer.json()) if answer.content else {}

    def create(self, name: str = "t", **fields: Any) -> dict[str, Any]:
        return self.post(TABLES, {"name": name, "schema": SCHEMA, **fields})

    def commit(self, *updates: dict[str, Any], name: str = "t", **fields: Any) -> dict[str, Any]:
        body = {"requirements": [], "updates": list(updates), **fields}
        return self.post(f"{TABLES}/{name}", body)

    def put(self, location: str, data: bytes = b"x") -> str:
        self.files.write_new(location, (data,))
        return location

    def objects(self, prefix: str) -> set[str]:
        return {found.location for found in self.files.list(prefix)}

    def read_json(self, location: str) -> Any:
        data = self.files.read(location, limit_bytes=LIMIT)
        return json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)

    def catalog(self) -> RestCatalog:
        """PyIceberg, which writes data of its own to the same bucket."""
        return RestCatalog(
            "s3",
            uri=self.service.uri,
            **{
                "s3.endpoint": self.server.endpoint,
                "s3.access-key-id": self.server.access_key_id,
                "s3.secret-access-key": self.server.secret_access_key,
                "s3.region": "us-east-1",
            },
        )


def environment(server: S3Server) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def serving(server: S3Server, folder: Path, *options: str) -> Iterator[Warehouse]:
    """A service with a warehouse of its own in the bucket, stopped in good order at the end."""
    root = f"s3://{server.bucket}/{uuid4().hex}"

    def command(port: int) -> list[str]:
        place = ["--warehouse", root, "--database", sqlite_url(folder / "catalog.db")]
        address = ["--host", HOST, "--port", str(port), "--s3-endpoint", server.endpoint]
        return [sys.executable, "-m", "headgate.cli.main", "serve", *address, *place, *options]

    service = start_process(command, log=folder / "service.log", env=environment(server))
    warehouse = Warehouse(server, service, root)
    try:
        warehouse.post("/v1/namespaces", {"namespace": ["a"]})
        yield warehouse
    finally:
        warehouse.http.close()
        service.stop()


@pytest.fixture(scope="module")
def lake(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with serving(s3_server, tmp_path_factory.mktemp("s3-service")) as warehouse:
        yield warehouse


def snapshot(manifest_list: str, id: int = 1) -> dict[str, Any]:
    return {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": id,
            "sequence-number": id,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": manifest_list,
            "summary": {"operation": "append"},
        },
    }


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def test_a_table_in_s3_is_created_loaded_and_committed_to(lake: Warehouse) -> None:
    made = lake.create("plain")
    assert made["metadata"]["location"].startswith(f"{lake.root}/a/plain-")
    assert lake.read_json(made["metadata-location"]) == made["metadata"]
    file = lake.put(f"{made['metadata']['location']}/metadata/snap-1.avro")
    after = lake.commit(snapshot(file), ref(1), name="plain")
    assert after["metadata"]["current-snapshot-id"] == 1
    loaded = lake.http.get(f"{TABLES}/plain").json()
    assert (loaded["metadata"], loaded["metadata-location"]) == (
        after["metadata"],
        after["metadata-location"],
    )
    assert lake.read_json(after["metadata-location"]) == after["metadata"]  # a load has its file written
    assert [entry["metadata-file"] for entry in after["metadata"]["metadata-log"]] == [
        made["metadata-location"]
    ]


def test_a_manifest_list_that_is_not_in_s3_is_refused(lake: Warehouse) -> None:
    made = lake.create("missing")
    update = snapshot(f"{made['metadata']['location']}/metadata/nothing.avro")
    answer = lake.http.post(f"{TABLES}/missing", json={"requirements": [], "updates": [update]})
    assert answer.status_code == 400
    assert error_of(answer)["headgate"]["field"] == "updates.snapshot.manifest-list"


def test_a_staged_table_leaves_nothing_in_s3_before_its_commit(lake: Warehouse) -> None:
    before = lake.objects(lake.root)
    staged = lake.create("staged", **{"stage-create": True})["metadata"]
    assert lake.objects(lake.root) == before
    lake.commit(*staged_updates(staged), name="staged", requirements=[{"type": "assert-create"}])
    assert len(lake.objects(staged["location"])) == 1


@pytest.mark.parametrize(
    "place", ["s3://other/x", "s3://{bucket}/other", "{root}/../x", "file:///tmp/x", "/tmp/x"]
)
def test_a_location_outside_of_the_s3_warehouse_is_refused(lake: Warehouse, place: str) -> None:
    before = lake.objects(lake.root)
    location = place.format(bucket=lake.server.bucket, root=lake.root)
    answer = lake.http.post(TABLES, json={"name": "escape", "schema": SCHEMA, "location": location})
    assert (answer.status_code, error_of(answer)["headgate"]["code"]) == (400, "location-refused")
    assert lake.objects(lake.root) == before


def test_gzipped_metadata_in_s3_is_read_back_by_a_registration(lake: Warehouse) -> None:
    made = lake.create("zipped", properties={"write.metadata.compression-codec": "gzip"})
    assert made["metadata-location"].endswith(".gz.metadata.json")
    assert lake.read_json(made["metadata-location"]) == made["metadata"]
    assert lake.http.delete(f"{TABLES}/zipped").status_code == 204
    body = {"name": "zipped_again", "metadata-location": made["metadata-location"]}
    assert lake.post("/v1/namespaces/a/register", body)["metadata"] == made["metadata"]


def test_a_dropped_table_leaves_its_objects_and_can_be_registered(lake: Warehouse) -> None:
    made = lake.create("dropped")
    before = lake.objects(made["metadata"]["location"])
    assert lake.http.delete(f"{TABLES}/dropped").status_code == 204
    assert lake.objects(made["metadata"]["location"]) == before
    missing = lake.http.post(
        "/v1/namespaces/a/register",
        json={"name": "x", "metadata-location": f"{lake.root}/none.metadata.json"},
    )
    assert missing.status_code == 404
    body = {"name": "back", "metadata-location": made["metadata-location"]}
    assert lake.post("/v1/namespaces/a/register", body)["metadata"] == made["metadata"]


def audited(warehouse: Warehouse, table: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headgate.cli.main", "audit", table, "--uri", warehouse.service.uri]
    return subprocess.run(
        [*command, "--files", "--all-snapshots"],
        env={**os.environ, **environment(warehouse.server)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_audit_reads_s3_and_finds_what_is_missing(lake: Warehouse) -> None:
    table = lake.catalog().create_table("a.audited", rows().schema)
    table.append(rows(1, 2))
    table.append(rows(3))
    assert lake.catalog().load_table("a.audited").scan().to_arrow().num_rows == 3
    sound = audited(lake, "a.audited")
    assert sound.returncode == 0, sound.stdout + sound.stderr
    (data, *_) = sorted(o for o in lake.objects(table.metadata.location) if o.endswith(".parquet"))
    assert lake.files.delete((data,)) == 1
    damaged = audited(lake, "a.audited")
    assert damaged.returncode == 1, damaged.stdout + damaged.stderr
    assert data in damaged.stdout


def test_a_purge_removes_the_tables_objects_and_no_others(s3_server: S3Server, tmp_path: Path) -> None:
    with serving(s3_server, tmp_path) as lake:
        catalog = lake.catalog()
        for name in ("doomed", "other"):
            table = catalog.create_table(f"a.{name}", rows().schema)
            table.append(rows(1, 2))
            table.append(rows(3))
        doomed, other = (catalog.load_table(f"a.{n}").metadata.location for n in ("doomed", "other"))
        stranger = lake.put(f"{doomed}/data/stranger.parquet")
        kept = lake.objects(other)
        assert len(lake.objects(doomed)) > 8
        catalog.purge_table("a.doomed")
        lake.service.stop()  # it finishes the purge first
        assert lake.objects(doomed) == {stranger}
        assert lake.objects(other) == kept


def test_metadata_that_was_not_written_with_its_commit_is_in_s3_after_a_stop(
    s3_server: S3Server, tmp_path: Path
) -> None:
    options = ("--metadata-inline-bytes", "0", "--checkpoint-interval-s", "3600")
    with serving(s3_server, tmp_path, *options) as lake:
        made = lake.create()
        for i in range(3):
            after = lake.commit({"action": "set-properties", "updates": {"step": str(i)}})
        log = [entry["metadata-file"] for entry in after["metadata"]["metadata-log"]]
        assert log == [made["metadata-location"]]
        assert not lake.files.exists(after["metadata-location"])
        assert lake.http.get(f"{TABLES}/t").json()["metadata"] == after["metadata"]
        lake.service.stop()
        assert lake.read_json(after["metadata-location"]) == after["metadata"]
