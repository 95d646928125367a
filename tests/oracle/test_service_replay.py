"""Every scenario of the oracle through the service: HTTP in, Avro on disk, SQLite; verdicts and tables as Java's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headgate.core.manifest import ManifestContent
from headgate.format.manifests import decode_manifest, decode_manifest_list
from headgate.store.sqlite import SqliteStore
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
from tests.service.app_client import AppClient, app_client

_TABLES = "/v1/namespaces/oracle/tables"


class ServiceReplay:
    """One table of a running service that commits what the oracle says, in its order."""

    def __init__(self, client: AppClient, name: str, setup: Line) -> None:
        self._client = client
        self._path = f"{_TABLES}/{name}"
        self.snapshot_ids: dict[str, int] = {}
        properties = {"format-version": str(setup["format-version"])}
        body = {
            "name": name,
            "schema": setup["schema"],
            "partition-spec": setup["partition-spec"],
            "properties": properties,
        }
        made = client.post(_TABLES, body)
        assert made.status_code == 200, made.text
        self.uuid = made.json()["metadata"]["table-uuid"]
        self.place = made.json()["metadata"]["location"]
        for operation in setup["commits"]:
            assert self.commit(operation) is None

    def commit(self, operation: Line) -> Outcome:
        """Commit one operation; what refused it, or None."""
        if operation["kind"] == "metadata":
            body = to_request(operation, self.snapshot_ids, self.uuid)
        else:
            update = to_update(operation, self.snapshot_ids, self.place)
            body = {"requirements": [], "updates": [update]}
        before = self._snapshot_ids() if "label" in operation else set()
        answer = self._client.post(self._path, body)
        if answer.status_code == 200:
            if "label" in operation and operation["kind"] == "snapshot":
                (self.snapshot_ids[operation["label"]],) = self._snapshot_ids() - before
            return None
        error = answer.json()["error"]
        assert answer.status_code in (400, 409), answer.text
        rule = (
            error.get("conflict", {}).get("rule")
            or error["headgate"].get("rule")
            or error["headgate"]["code"]
        )
        return rule, error["message"]

    def _metadata(self) -> Line:
        found: Line = self._client.get(self._path).json()["metadata"]
        return found

    def _snapshot_ids(self) -> set[int]:
        return {snapshot["snapshot-id"] for snapshot in self._metadata()["snapshots"]}

    def result(self) -> Line:
        """The table as the oracle describes one, read from the files that the service wrote."""
        metadata = self._metadata()
        snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
        found: Line = {}
        for name, ref in metadata["refs"].items():
            if ref["type"] == "branch":
                snapshot = snapshots[ref["snapshot-id"]]
                data, deletes = _read_files(snapshot["manifest-list"])
                found[name] = {
                    "operation": snapshot["summary"]["operation"],
                    "sequence-number": snapshot.get("sequence-number", 0),
                    "data-files": data,
                    "delete-files": deletes,
                    "summary": snapshot["summary"],
                }
        return found


def _read(location: str) -> bytes:
    return Path(location.removeprefix("file://")).read_bytes()


def _read_files(manifest_list: str) -> tuple[list[Line], list[Line]]:
    files: dict[ManifestContent, list[Line]] = {content: [] for content in ManifestContent}
    for manifest in decode_manifest_list(_read(manifest_list), location=manifest_list):
        path = manifest.manifest_path
        for entry in decode_manifest(_read(path), manifest, location=path):
            row: dict[str, Any] = {
                "file-path": entry.file.file_path,
                "data-sequence-number": entry.data_sequence_number,
                "file-sequence-number": entry.file_sequence_number,
            }
            if entry.file.first_row_id is not None:
                row["first-row-id"] = entry.file.first_row_id
            if entry.is_live:
                files[manifest.content].append(row)
    return files[ManifestContent.DATA], files[ManifestContent.DELETES]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_service_gives_javas_verdict_and_table_for_every_scenario(tmp_path: Path) -> None:
    wrong: list[str] = []
    meant: Counter[str] = Counter()
    agreed = 0
    store = SqliteStore(tmp_path / "catalog.db")
    with app_client(tmp_path, store=store) as client:
        assert client.post("/v1/namespaces", {"namespace": ["oracle"]}).status_code == 200
        for number, line in enumerate(lines_of_changes()):
            replay = ServiceReplay(client, f"t{number}", load_setups()[line["setup"]])
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
