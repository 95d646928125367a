"""A lake whose tables are in a bucket of a real S3 server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tools.service_process import HOST, sqlite_url, start_process

from headgate.spark.lake import Lake
from tests.s3_server import S3Server

REGION = "us-east-1"


@contextmanager
def running_s3_lake(server: S3Server, folder: Path, *, database: str | None = None) -> Iterator[Lake]:
    """A service with a warehouse of its own in the bucket; on SQLite unless told otherwise."""

    def command(port: int) -> list[str]:
        place = ["--warehouse", f"s3://{server.bucket}/{uuid4().hex}", "--s3-endpoint", server.endpoint]
        serve = [sys.executable, "-m", "headgate.cli.main", "serve", "--host", HOST, "--port", str(port)]
        return [*serve, *place, "--database", database or sqlite_url(folder / "catalog.db")]

    service = start_process(command, log=folder / "service.log", env=environment_of(server))
    try:
        yield Lake(service.uri, storage=storage_of(server))
    finally:
        service.stop()


def environment_of(server: S3Server) -> dict[str, str]:
    """The same for a process that asks its environment."""
    return {
        "AWS_ACCESS_KEY_ID": server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


def storage_of(server: S3Server) -> dict[str, str]:
    """How the bucket is reached, by PyIceberg's names."""
    return {
        "s3.endpoint": server.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": server.access_key_id,
        "s3.secret-access-key": server.secret_access_key,
    }
