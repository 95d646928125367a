"""A table with real rows in real files, a service over SQLite, and an expirer that goes when it is told to."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from headgate.cli.main import main
from headgate.client import describe_parquet
from headgate.files.base import Files
from headgate.service.expiry import Expirer
from headgate.store.open import open_store
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import Wire, change, commit_change
from tests.service.table_calls import created, load, local, make_namespace

ASKED = {"headgate.expire.enabled": "true", "history.expire.max-snapshot-age-ms": "10000"}
GRACE_S = 100
_ARROW = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])


@dataclass
class Lake:
    """One table `a.t`. Every change is a second after the one before."""

    client: AppClient
    expirer: Expirer
    described: dict[str, Wire] = field(default_factory=dict)

    # --- changes ---------------------------------------------------------------------------------------------

    def write(self, name: str, *ids: int) -> Wire:
        """A data file of these rows."""
        metadata = load(self.client)["metadata"]
        location = f"{metadata['location']}/data/{name}.parquet"
        local(location).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table([list(ids)], schema=_ARROW), local(location))
        self.described[name] = describe_parquet(local(location), metadata, location=location)
        return self.described[name]

    def append(self, name: str, *ids: int, **fields: Any) -> int:
        """Commit a file of these rows; returns the snapshot."""
        return self._commit(change("append", add_data_files=[self.write(name, *ids)], **fields))

    def remove(self, *names: str) -> int:
        """Commit the removal of files."""
        gone = [{"file-path": self.described[name]["file-path"]} for name in names]
        return self._commit(change("delete", remove_data_files=gone))

    def _commit(self, update: Wire) -> int:
        self.client.clock.pass_s(1)
        before = {s["snapshot-id"] for s in load(self.client)["metadata"].get("snapshots", [])}
        answer = commit_change(self.client, update)
        assert answer.status_code == 200, answer.text
        (new,) = {s["snapshot-id"] for s in load(self.client)["metadata"]["snapshots"]} - before
        return int(new)

    # --- what there is -----------------------------------------------------------------------------------------

    def snapshots(self) -> list[int]:
        """Ids, oldest first."""
        found = load(self.client)["metadata"].get("snapshots", [])
        return [s["snapshot-id"] for s in found]

    def data(self) -> list[str]:
        """Names of the data files that are on disk."""
        folder = local(load(self.client)["metadata"]["location"]) / "data"
        return sorted(file.stem for file in folder.glob("*.parquet"))

    def avro(self) -> int:
        """How many manifests and lists are on disk."""
        return len(list((local(load(self.client)["metadata"]["location"]) / "metadata").glob("*.avro")))

    def rows(self, **scan: Any) -> list[int]:
        """What PyIceberg reads from the metadata file."""
        table = StaticTable.from_metadata(load(self.client)["metadata-location"])
        return sorted(table.scan(**scan).to_arrow()["id"].to_pylist())

    def check(self) -> None:
        """The structural audit, down to every file of every snapshot."""
        output = io.StringIO()
        place = str(local(load(self.client)["metadata-location"]))
        with redirect_stdout(output):
            code = main(["audit", "a.t", "--metadata", place, "--files", "--all-snapshots"])
        assert code == 0, output.getvalue()

    # --- time ----------------------------------------------------------------------------------------------------

    def round(self, *, after_s: float = 0) -> int:
        """One round of the expirer."""
        self.client.clock.pass_s(after_s)
        return self.expirer.run_round()

    def sweep(self, *, after_s: float = 0) -> int:
        """One sweep."""
        self.client.clock.pass_s(after_s)
        return self.expirer.sweep()


@contextmanager
def lake(
    tmp_path: Path,
    *,
    properties: dict[str, str] | None = None,
    again: bool = False,
    files: Files | None = None,
    **settings: Any,
) -> Iterator[Lake]:
    """A lake over SQLite; `again` opens the one that an earlier process left."""
    store = open_store(f"sqlite:///{tmp_path}/headgate.db")
    settings = {"expire_grace_s": GRACE_S, **settings}
    with app_client(tmp_path, store=store, files=files, **settings) as client:
        if not again:
            make_namespace(client)
            created(client, properties=ASKED if properties is None else properties)
        yield Lake(client, Expirer(client.services))
