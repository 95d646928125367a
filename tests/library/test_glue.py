"""Glue by PyIceberg's own catalog and the real AWS client, against a stand-in: what its errors mean, and exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (  # type: ignore[import-untyped] # it has no types
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from pyiceberg.catalog.glue import GlueCatalog
from tools.service_process import HOST, find_free_port

import headgate
from headgate.errors import CommitRefused, HeadgateError, NotFound
from headgate.library import Policy
from headgate.library.adapters import AWS_CODES, Heard, hear
from headgate.library.table import Table
from tests.library.glue_server import Ending, Glue, running_glue
from tests.library.lake import ARROW, path_of, quick, rivals, rows

NAME = "db.t"


class GlueLake:
    """A Glue, its tables' files, and catalogs that reach it."""

    def __init__(self, folder: Path, uri: str, glue: Glue, clients: dict[int, Any]) -> None:
        self.folder, self.uri, self.glue, self._clients = folder, uri, glue, clients
        catalog = self.connect()
        catalog.create_namespace("db")
        catalog.create_table(NAME, ARROW, location=f"file://{folder}/t")

    def connect(self, *, attempts: int = 1) -> GlueCatalog:
        """A catalog whose client sends every request so many times at most; clients are slow to make, so one is kept."""
        properties = {
            "glue.endpoint": self.uri,
            "glue.region": "us-east-1",
            "glue.access-key-id": "x",
            "glue.secret-access-key": "x",
            "glue.max-retries": attempts - 1,
            "warehouse": f"file://{self.folder}",
        }
        catalog = GlueCatalog("glue", self._clients.get(attempts), **properties)
        self._clients[attempts] = catalog.glue
        return catalog

    def open(self, policy: Policy | None = None, *, attempts: int = 1) -> Table:
        """The library's table, over a connection of its own."""
        return headgate.open(NAME, self.connect(attempts=attempts), policy=policy or quick())

    def ids(self) -> list[int]:
        """The ids of all rows."""
        found = self.connect().load_table(NAME).scan().to_arrow()
        return sorted(found["id"].to_pylist())

    def files(self) -> set[str]:
        """Every file of the table but metadata files: PyIceberg leaves one of those for every swap that is lost."""
        every = path_of(f"file://{self.folder}/t").rglob("*")
        return {str(file) for file in every if file.is_file() and file.suffix != ".json"}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Glue, dict[int, Any]]]:
    """The stand-in, and the clients that were made for it."""
    with running_glue() as (uri, glue):
        yield uri, glue, {}


@pytest.fixture
def lake(tmp_path: Path, served: tuple[str, Glue, dict[int, Any]]) -> GlueLake:
    served[1].reset()
    return GlueLake(tmp_path, *served)


def test_a_lost_race_for_the_version_is_judged_and_tried_again(lake: GlueLake) -> None:
    rival = lake.open()
    table = lake.open(quick(observer=rivals(lambda: rival.append(rows(9, part="b")))))
    assert table.append(rows(1)).sent == 2
    assert lake.ids() == [1, 9]
    assert (
        len(lake.files()) == 2 * 3
    )  # of each commit its data, manifest and list; nothing of the lost attempt


@pytest.mark.parametrize(
    "ending",
    [
        Ending(lands=True, status=500, code="InternalServiceException"),
        Ending(lands=True, status=503, code="ServiceUnavailable"),
        Ending(lands=True, code=None, status=0),
        Ending(lands=False, status=500, code="InternalServiceException"),
        Ending(lands=False, status=400, code="OperationTimeoutException"),
        Ending(lands=False, code=None, status=0),
        Ending(lands=False, status=400, code="ThrottlingException"),
        Ending(lands=False, status=400, code="ConcurrentModificationException"),
    ],
    ids=["500+", "503+", "lost-reply", "500", "timeout", "lost-request", "throttled", "lost-race"],
)
def test_whatever_glue_says_the_rows_are_there_once(lake: GlueLake, ending: Ending) -> None:
    lake.glue.endings.append(ending)
    lake.open().append(rows(1))
    assert lake.ids() == [1]
    assert len(lake.files()) == 3


def test_a_request_that_the_client_itself_sends_again_is_not_taken_for_lost(lake: GlueLake) -> None:
    lake.glue.endings.append(Ending(lands=True, code=None, status=0))
    lake.open(attempts=2).append(rows(1))
    assert lake.glue.updates == 2  # the second was refused, since the first had landed
    assert lake.ids() == [1]
    assert len(lake.files()) == 3


@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidInputException", "ExpiredTokenException"])
def test_a_refusal_of_glue_is_not_tried_again_and_leaves_nothing(lake: GlueLake, code: str) -> None:
    lake.glue.endings += [Ending(lands=False, code=code)] * 2
    with pytest.raises(HeadgateError, match=code) as refused:
        lake.open().append(rows(1))
    assert isinstance(refused.value, CommitRefused)
    assert lake.glue.updates == 1
    assert lake.files() == set()


def test_a_table_that_was_dropped_meanwhile_is_not_found_and_not_made_again(lake: GlueLake) -> None:
    table = lake.open(quick(observer=rivals(lake.glue.tables.clear)))
    with pytest.raises(NotFound) as refused:
        table.append(rows(1))
    assert refused.value.evidence["in_doubt"]  # renamed, it would hold the files
    assert not lake.glue.tables


def test_a_glue_that_cannot_be_reached_is_busy_and_a_reply_that_is_late_is_unknown() -> None:
    nowhere = f"http://{HOST}:{find_free_port()}"
    unreached = EndpointConnectionError(endpoint_url=nowhere, error="refused")
    late = ReadTimeoutError(endpoint_url=nowhere, error="late")
    assert (hear(unreached, sent=True), hear(late, sent=True)) == (Heard.BUSY, Heard.UNKNOWN)
    assert hear(NoCredentialsError(), sent=True) is Heard.REFUSED


def test_every_code_of_the_table_is_heard_through_the_client(lake: GlueLake) -> None:
    catalog = lake.connect()
    for code, heard in AWS_CODES.items():
        lake.glue.endings.append(Ending(lands=False, code=code))
        with pytest.raises(catalog.glue.exceptions.ClientError) as raised:
            catalog.glue.update_table(DatabaseName="db", TableInput={"Name": "t"}, VersionId="0")
        assert hear(raised.value, sent=True) is heard, code
