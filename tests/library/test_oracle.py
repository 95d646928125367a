"""Every scenario of the oracle through the library on a SqlCatalog: verdicts and tables as Java's, as for the service."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

import headgate
from headgate.core.create import TableDefinition, build_table
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema
from headgate.errors import BadInput, CommitRefused
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.format.table_metadata import encode_file
from headgate.library.proof import KEY
from tests.library.lake import path_of, quick
from tests.oracle.scenarios import (
    ON_PURPOSE,
    Line,
    Outcome,
    judge,
    lines_of_changes,
    load_setups,
    to_request,
    to_update,
)


class LibraryReplay:
    """One table of a catalog that commits what the oracle says, in its order."""

    def __init__(self, catalog: InMemoryCatalog, folder: Path, name: str, setup: Line) -> None:
        self.place, self.uuid = f"file://{folder}/{name}", str(uuid4())
        definition = TableDefinition(
            schema=msgspec.convert(setup["schema"], Schema),
            location=self.place,
            uuid=self.uuid,
            spec=msgspec.convert(setup["partition-spec"], PartitionSpec),
            properties={"format-version": str(setup["format-version"])},
        )
        file = folder / name / "metadata" / f"00000-{uuid4()}.metadata.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(encode_file(build_table(definition, now_ms=1_700_000_000_000))))
        catalog.register_table(f"oracle.{name}", f"file://{file}")
        self._table = headgate.open(f"oracle.{name}", catalog, policy=quick())
        self.snapshot_ids: dict[str, int] = {}
        for operation in setup["commits"]:
            assert self.commit(operation) is None

    def commit(self, operation: Line) -> Outcome:
        """Commit one operation; what refused it, or None."""
        try:
            if operation["kind"] == "metadata":
                request = to_request(operation, self.snapshot_ids, self.uuid)
                self._table.commit(request["updates"], requirements=request["requirements"])
                return None
            done = self._table.commit([to_update(operation, self.snapshot_ids, self.place)])
        except (BadInput, CommitRefused) as error:
            return str(error.evidence.get("rule", error.code)), error.message
        if "label" in operation and done.snapshot_id is not None:
            self.snapshot_ids[operation["label"]] = done.snapshot_id
        return None

    def result(self) -> Line:
        """The table as the oracle describes one, read from the files that the library wrote."""
        location = self._table.refresh().metadata_location
        metadata = msgspec.json.decode(path_of(location).read_bytes())
        snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
        found: Line = {}
        for name, ref in metadata["refs"].items():
            if ref["type"] == "branch":
                snapshot = snapshots[ref["snapshot-id"]]
                files = _read_files(snapshot["manifest-list"])
                found[name] = {
                    "operation": snapshot["summary"]["operation"],
                    "sequence-number": snapshot.get("sequence-number", 0),
                    "data-files": files[0],
                    "delete-files": files[1],
                    "summary": {k: v for k, v in snapshot["summary"].items() if k != KEY},
                }
        return found


def _read_files(manifest_list: str) -> tuple[list[Line], list[Line]]:
    files: tuple[list[Line], list[Line]] = ([], [])
    for manifest in decode_manifest_list(path_of(manifest_list).read_bytes(), location=manifest_list):
        path = manifest.manifest_path
        for entry in decode_manifest(path_of(path).read_bytes(), manifest, location=path):
            row: Line = {
                "file-path": entry.file.file_path,
                "data-sequence-number": entry.data_sequence_number,
                "file-sequence-number": entry.file_sequence_number,
            }
            if entry.file.first_row_id is not None:
                row["first-row-id"] = entry.file.first_row_id
            if entry.is_live:
                files[manifest.content].append(row)
    return files


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_library_gives_javas_verdict_and_table_for_every_scenario(tmp_path: Path) -> None:
    wrong: list[str] = []
    meant: Counter[str] = Counter()
    agreed = 0
    catalog = InMemoryCatalog("oracle", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("oracle")
    for number, line in enumerate(lines_of_changes()):
        replay = LibraryReplay(catalog, tmp_path, f"t{number}", load_setups()[line["setup"]])
        for operation in line["concurrent"]:
            assert replay.commit(operation) is None, line["id"]
        outcome = replay.commit(line["operation"])
        verdict = judge(line, outcome, replay.result, replay.place)
        if verdict is None:
            agreed += 1
        elif verdict in ON_PURPOSE:
            meant[verdict] += 1
        else:
            wrong.append(f"{line['id']}: {verdict}")
    assert not wrong, f"{len(wrong)} wrong, {agreed} agreed:\n" + "\n".join(wrong[:20])
    assert agreed > 1200
