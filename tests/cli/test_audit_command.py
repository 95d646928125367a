"""`headgate audit` on tables that PyIceberg made: sound ones pass, damage is named, usage is taught."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from headgate.cli.audit import register

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "s", StringType(), required=False)
)
UNPARTITIONED = PartitionSpec()
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s_part"))


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "s": pa.array(["x"] * len(ids), pa.string())})


def make_table(folder: Path, *, version: int = 2, spec: PartitionSpec = UNPARTITIONED) -> Table:
    """Appends, a delete that rewrites, an overwrite, a branch and a tag."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")
    try:
        catalog.create_namespace("sales")
        table = catalog.create_table(
            "sales.orders", SCHEMA, partition_spec=spec, properties={"format-version": str(version)}
        )
        for n in range(3):
            table.append(rows(*range(10 * n, 10 * n + 8)))
        head = table.current_snapshot()
        assert head is not None
        table.manage_snapshots().create_tag(head.snapshot_id, "before").commit()
        table.manage_snapshots().create_branch(head.snapshot_id, "side").commit()
        table.delete("id == 3")
        table.overwrite(rows(100), overwrite_filter="id >= 20")
        table.append(rows(7), branch="side")
        return table
    finally:
        catalog.engine.dispose()


def headgate(*args: str) -> int:
    parser = argparse.ArgumentParser(prog="headgate")
    register(parser.add_subparsers(required=True))
    parsed = parser.parse_args(["audit", *args])
    code = parsed.run(parsed)
    assert isinstance(code, int)
    return code


def metadata_of(table: Table) -> dict[str, Any]:
    with open(table.metadata_location.removeprefix("file://")) as file:
        decoded: dict[str, Any] = json.load(file)
    return decoded


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", [UNPARTITIONED, SPEC], ids=["unpartitioned", "partitioned"])
def test_a_table_that_pyiceberg_made_is_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int, spec: PartitionSpec
) -> None:
    table = make_table(tmp_path, version=version, spec=spec)
    ids = [argument for s in table.snapshots() for argument in ("--expect", str(s.snapshot_id))]
    location = table.metadata_location
    assert headgate("t", "--metadata", location, "--files", "--all-snapshots", "--json", *ids) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["sound"], report["findings"]) == (True, [])
    assert report["checked"]["branches and tags"] == 3
    assert report["checked"]["snapshots read in full"] == len(table.snapshots())
    assert report["checked"]["data and delete files"] > 4


def test_the_report_says_what_was_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = make_table(tmp_path)
    assert headgate("sales.orders", "--metadata", table.metadata_location) == 0
    out = capsys.readouterr().out
    assert "audit of sales.orders" in out
    assert "manifest lists" in out
    assert out.rstrip().endswith("sound")


def test_objects_that_are_gone_or_broken_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_table(tmp_path)
    head = table.current_snapshot()
    assert head is not None
    manifest, other = head.manifests(table.io)[:2]
    os.remove(manifest.manifest_path.removeprefix("file://"))
    Path(other.manifest_path.removeprefix("file://")).write_bytes(b"Obj\x01 but no more")
    assert headgate("t", "--metadata", table.metadata_location) == 1
    out = capsys.readouterr().out
    assert f"manifest-readable snapshot={head.snapshot_id} {manifest.manifest_path}" in out
    assert f"manifest-readable snapshot={head.snapshot_id} {other.manifest_path}" in out
    assert "NOT sound" in out


def test_missing_data_files_are_looked_for_only_when_asked(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    path = table.inspect.files()["file_path"][0].as_py()
    os.remove(path.removeprefix("file://"))
    assert headgate("t", "--metadata", table.metadata_location) == 0
    assert headgate("t", "--metadata", table.metadata_location, "--files") == 1


def test_a_whole_folder_that_is_gone_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = metadata_of(make_table(tmp_path))
    for snapshot in metadata["snapshots"]:
        snapshot["manifest-list"] = f"file:///no-such-folder/{snapshot['snapshot-id']}.avro"
    (tmp_path / "m.json").write_text(json.dumps(metadata))
    assert headgate("t", "--metadata", str(tmp_path / "m.json"), "--json") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["rule"] for finding in findings} == {"manifest-list-readable"}
    assert len(findings) == len(metadata["snapshots"])


def test_expected_and_forbidden_snapshots_are_checked(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    known = str(table.snapshots()[0].snapshot_id)
    for arguments, code in (
        (("--expect", known), 0),
        (("--expect", "99"), 1),
        (("--forbid", "99"), 0),
        (("--forbid", known), 1),
    ):
        assert headgate("t", "--metadata", table.metadata_location, *arguments) == code


def test_gzipped_metadata_is_read(tmp_path: Path) -> None:
    text = json.dumps(metadata_of(make_table(tmp_path))).encode()
    (tmp_path / "m.gz.metadata.json").write_bytes(gzip.compress(text))
    assert headgate("t", "--metadata", str(tmp_path / "m.gz.metadata.json")) == 0


def test_control_characters_of_a_table_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = metadata_of(make_table(tmp_path))
    metadata["refs"]["\x1b[31mred\n"] = {"type": "tag", "snapshot-id": 99}
    (tmp_path / "m.json").write_text(json.dumps(metadata))
    assert headgate("t", "--metadata", str(tmp_path / "m.json")) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format-version": 2, "snapshots": 7}', "{" * 100_000])
def test_a_file_that_is_not_table_metadata_is_exit_two(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert headgate("t", "--metadata", str(tmp_path / "m.json")) == 2


@pytest.mark.parametrize("location", ["/no/such.json", "/", "gs://b/m.json", "file://host/m.json", "a\0b"])
def test_metadata_that_cannot_be_read_is_exit_two(location: str) -> None:
    assert headgate("t", "--metadata", location) == 2


@pytest.mark.parametrize(
    "arguments", [("one",), ("a..b",), (".t",), ("a.t", "--uri", "file:///etc"), ("a.t", "--uri", "x")]
)
def test_a_bad_table_name_or_address_is_exit_two(arguments: tuple[str, ...]) -> None:
    assert headgate(*arguments) == 2


def test_the_command_line_is_checked_and_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((("--help",), 0), ((), 2), (("t", "--uri", "http://x", "--metadata", "y"), 2)):
        with pytest.raises(SystemExit) as stopped:
            headgate(*arguments)
        assert stopped.value.code == code
        if code == 0:
            text = capsys.readouterr().out
            assert "exit codes" in text
            assert "live-once" in text


# --- over REST -------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """Answers by path; remembers the paths asked for and the tokens sent."""

    answers: dict[str, tuple[int, dict[str, str], bytes]]
    asked: list[tuple[str, str | None]]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, headers, body = self.server.answers.get(self.path, (404, {}, b"{}"))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(answers: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, _Server]]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.answers, server.asked = answers, []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server
        finally:
            server.shutdown()
            thread.join()


def test_a_table_is_loaded_from_a_catalog_with_its_prefix_and_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"metadata": metadata_of(make_table(tmp_path))}).encode()
    config = json.dumps({"overrides": {"prefix": "my lake"}, "defaults": {}}).encode()
    path = "/v1/my%20lake/namespaces/a%1Fb/tables/t"
    with serving({"/v1/config": (200, {}, config), path: (200, {}, body)}) as (uri, server):
        assert headgate("a.b.t", "--uri", uri + "/", "--token", "given") == 0
        monkeypatch.setenv("HEADGATE_TOKEN", "ambient")
        assert headgate("a.b.t", "--uri", uri) == 0
    assert [token for _, token in server.asked] == ["Bearer given"] * 2 + ["Bearer ambient"] * 2


def test_a_catalog_without_a_config_route_has_no_prefix(tmp_path: Path) -> None:
    body = json.dumps({"metadata": metadata_of(make_table(tmp_path))}).encode()
    with serving({"/v1/namespaces/a/tables/t": (200, {}, body)}) as (uri, _):
        assert headgate("a.t", "--uri", uri) == 0


@pytest.mark.parametrize("answer", [(404, b""), (500, b""), (401, b""), (200, b"no json"), (200, b"{}")])
def test_a_catalog_that_gives_no_table_is_exit_two(
    answer: tuple[int, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving({"/v1/namespaces/a/tables/t": (answer[0], {}, answer[1])}) as (uri, _):
        assert headgate("a.t", "--uri", uri) == 2
    assert "headgate audit: " in capsys.readouterr().err


def test_a_redirect_is_not_followed_so_the_token_stays_here() -> None:
    with serving({}) as (elsewhere, other):
        moved = (302, {"Location": f"{elsewhere}/v1/config"}, b"")
        with serving({"/v1/config": moved}) as (uri, _):
            assert headgate("a.t", "--uri", uri, "--token", "secret") == 2
    assert other.asked == []
