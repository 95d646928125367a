"""Bad fine-grained changes, one line each: what they are answered, which field is named, and that nothing changes.

Each is sent alone and in a transaction beside a good table. `$T` stands for the table's location.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.core.intake import FILES_MAX
from headgate.files.base import Files
from headgate.files.open import open_files
from headgate.store.open import open_store
from tests.service.app_client import AppClient, app_client, bearer
from tests.service.change_calls import change, commit_change, data_file, kebab, table_change, transact
from tests.service.table_calls import (
    commit,
    committed,
    created,
    error_of,
    field_of,
    files_below,
    load,
    local,
    make_namespace,
    path,
    picture_of,
)
from tests.service.test_tables import staged_updates

TYPES = {
    "id": "long",
    "category": "string",
    "ratio": "float",
    "amount": "decimal(9,2)",
    "at": "timestamp",
    "day": "date",
    "code": "fixed[4]",
    "uid": "uuid",
    "whole": "int",
    "real": "double",
    "tags": {"type": "list", "element-id": 12, "element": "string", "element-required": False},
}
FIELDS = [
    {"id": i + 1, "name": name, "type": type_, "required": name == "id"}
    for i, (name, type_) in enumerate(TYPES.items())
]
SCHEMA = {"type": "struct", "fields": FIELDS}
# Spec 0 has no fields, and spec 1 is by category; 3 has a field for each type that a partition value may have.
SPECS: dict[int, tuple[tuple[int, str], ...]] = {
    1: ((2, "identity"),),
    2: ((1, "bucket[16]"),),
    3: tuple((id_, "identity") for id_ in range(3, 11)),
    4: ((5, "day"), (2, "truncate[3]")),
}
LARGE = "01" * 8
LONG_MAX = 2**63 - 1

Wire = dict[str, Any]


class CountingFiles:
    """`Files` that count what is written."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write_new(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        self.written += 1
        self._files.write_new(location, parts)

    def write_soft(self, location: str, parts: Iterable[bytes]) -> None:
        """See `Files`."""
        self.written += 1
        self._files.write_soft(location, parts)

    def write_soft_many(self, files: Sequence[tuple[str, Sequence[bytes]]], *, keeps: bool = False) -> None:
        """See `Files`."""
        self.written += len(files)
        self._files.write_soft_many(files, keeps=keeps)


class World:
    """One service for all cases: tables v1, v2, v3 and `good`, each with a file; no request here changes them."""

    def __init__(self, client: AppClient, files: CountingFiles) -> None:
        self.client, self.files = client, files
        self.places: dict[str, str] = {}
        make_namespace(client)
        for name, version in (("v1", 1), ("v2", 2), ("v3", 3), ("good", 2)):
            made = created(client, name, schema=SCHEMA, properties={"format-version": str(version)})
            self.places[name] = made["metadata"]["location"]
            if name != "good":
                self.must(name, *map(add_spec, SPECS))
        for name in ("v1", "v2", "v3"):
            live = change("append", add_data_files=[file("live"), file("other", partition=["b"])])
            self.must(name, self.place(live, name))
            head = load(client, name)["metadata"]["current-snapshot-id"]
            for ref, kind in (("audit", "branch"), ("release", "tag")):
                self.must(
                    name,
                    {"action": "set-snapshot-ref", "ref-name": ref, "type": kind, "snapshot-id": head},
                )
        deletes = {"v2": deletes_file("live-deletes"), "v3": vector("live-vector")}
        for name, delete in deletes.items():
            self.must(name, self.place(change("delete", add_delete_files=[delete]), name))

    def must(self, name: str, *updates: Wire) -> None:
        committed(self.client, *updates, name=name)

    def place(self, wire: Wire, name: str) -> Wire:
        moved: Wire = json.loads(json.dumps(wire).replace("$T", self.places[name]))
        return moved

    def picture(self) -> tuple[object, object]:
        root = local(self.client.services.locations.roots[0])
        return picture_of(self.client.services.store), files_below(root)


def add_spec(spec_id: int) -> Wire:
    fields = [
        {"source-id": source, "name": f"p{spec_id}_{i}", "transform": how}
        for i, (source, how) in enumerate(SPECS[spec_id])
    ]
    return {"action": "add-spec", "spec": {"spec-id": spec_id, "fields": fields}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("bad-changes")
    store = open_store(f"sqlite:///{folder / 'catalog.db'}")
    opened, _ = open_files(f"file://{folder / 'warehouse'}")
    files: Any = CountingFiles(opened)
    with app_client(folder, store=store, files=files) as client:
        yield World(client, files)


# --- builders: files of the category "a" unless told otherwise ---------------------------------------------


def file(name: str = "new", **fields: Any) -> Wire:
    return data_file(f"$T/data/{name}", **{"spec_id": 1, "partition": ["a"], **fields})


def without(wire: Wire, *names: str) -> Wire:
    return {name: value for name, value in wire.items() if name not in names}


def deletes_file(name: str = "new-deletes", **fields: Any) -> Wire:
    return file(name, **{"content": "position-deletes", "record_count": 1, **fields})


def equality(**fields: Any) -> Wire:
    return deletes_file(**{"content": "equality-deletes", "equality_ids": [1], **fields})


def vector(name: str = "new-vector", **fields: Any) -> Wire:
    puffin = {
        "file_format": "puffin",
        "referenced_data_file": "$T/data/live",
        "content_offset": 4,
        "content_size_in_bytes": 40,
    }
    return deletes_file(name, **{**puffin, **fields})


def append(*files: Wire, **fields: Any) -> Wire:
    return change("append", add_data_files=list(files), **fields)


def one(**fields: Any) -> Wire:
    """An append of one file with these fields."""
    return append(file(**fields))


def deleting(*files: Wire, **fields: Any) -> Wire:
    return change("delete", add_delete_files=list(files), **fields)


def overwrite(**fields: Any) -> Wire:
    return change("overwrite", add_data_files=[file()], **fields)


def replacing(*files: Wire, removed: Any = ("$T/data/live",), **fields: Any) -> Wire:
    return change("replace", add_data_files=list(files), remove_data_files=list(removed), **fields)


def valid(**validation: Any) -> Wire:
    """A good append under one validation."""
    return append(file(), commit_validations=[kebab(validation)])


def filtered(expression: Any) -> Wire:
    return change("delete", delete_row_filter=expression)


def eq(term: Any = "id", value: Any = 1, **more: Any) -> Wire:
    return {"type": "eq", "term": term, "value": value, **more}


def deep(levels: int) -> Wire:
    found = eq()
    for _ in range(levels):
        found = {"type": "not", "child": found}
    return found


def wide(nodes: int) -> Wire:
    return {"type": "in", "term": "id", "values": list(range(nodes))}


def counts(*pairs: tuple[Any, Any]) -> Wire:
    return {"keys": [key for key, _ in pairs], "values": [value for _, value in pairs]}


FILE, DELETE = "add-data-files[0]", "add-delete-files[0]"
VALIDATION = "commit-validations[0]"
ADDED = "not-allowed-added-data-files"
REQUIRED = "required-data-files"
PARTITION = f"{FILE}.partition"

# name | table | update | status | the field inside the update, or a rule
BAD: list[tuple[str, str, Wire, int, str]] = [
    # --- partitions
    ("partition with a value too few", "v2", one(partition=[]), 400, PARTITION),
    ("partition with a value too many", "v2", one(partition=["a", "b"]), 400, PARTITION),
    ("partition missing", "v2", append(without(file(), "partition")), 400, PARTITION),
    ("partition is null", "v2", one(partition=None), 400, PARTITION),
    ("partition is an object", "v2", one(partition={"category": "a"}), 400, PARTITION),
    ("partition value of another type", "v2", one(partition=[7]), 400, f"{PARTITION}[0]"),
    ("partition value is an object", "v2", one(partition=[{"a": 1}]), 400, f"{PARTITION}[0]"),
    ("partition value is a boolean for a number", "v2", one(spec_id=2, partition=[True]), 400, f"{PARTITION}[0]"),
    ("bucket is text", "v2", one(spec_id=2, partition=["3"]), 400, f"{PARTITION}[0]"),
    ("bucket over 32 bits", "v2", one(spec_id=2, partition=[2**31]), 400, f"{PARTITION}[0]"),
    ("bucket beyond its number", "v2", one(spec_id=2, partition=[16]), 400, f"{PARTITION}[0]"),
    ("bucket below zero", "v2", one(spec_id=2, partition=[-1]), 400, f"{PARTITION}[0]"),
    ("text longer than its truncation", "v2", one(spec_id=4, partition=["2024-01-01", "abcd"]), 400, f"{PARTITION}[1]"),
    ("day that is no day", "v2", one(spec_id=4, partition=["2024-02-30", "abc"]), 400, f"{PARTITION}[0]"),
    ("spec that the table does not have", "v2", one(spec_id=77), 400, f"{FILE}.spec-id"),
    ("spec below zero", "v2", one(spec_id=-1), 400, f"{FILE}.spec-id"),
    ("spec is text", "v2", one(spec_id="0"), 400, f"{FILE}.spec-id"),
    # --- bounds and counts
    ("bound too short", "v2", one(lower_bounds=counts((1, "01"))), 400, f"{FILE}.lower-bounds"),
    ("bound too long", "v2", one(upper_bounds=counts((1, "00" * 9))), 400, f"{FILE}.upper-bounds"),
    ("bound not hexadecimal", "v2", one(lower_bounds=counts((1, "zz"))), 400, f"{FILE}.lower-bounds"),
    ("bound of half a byte", "v2", one(lower_bounds=counts((1, "012"))), 400, f"{FILE}.lower-bounds"),
    ("bound not UTF-8", "v2", one(lower_bounds=counts((2, "ff"))), 400, f"{FILE}.lower-bounds"),
    ("bound of an unknown column", "v2", one(lower_bounds=counts((99, LARGE))), 400, f"{FILE}.lower-bounds"),
    ("bound of a list", "v2", one(upper_bounds=counts((11, LARGE))), 400, f"{FILE}.upper-bounds"),
    ("bound of a fixed of another length", "v2", one(upper_bounds=counts((7, "00"))), 400, f"{FILE}.upper-bounds"),
    ("bound is a number", "v2", one(lower_bounds=counts((1, 7))), 400, f"{FILE}.lower-bounds.values[0]"),
    ("lower bound above the upper", "v2", one(lower_bounds=counts((1, "02" + "00" * 7)), upper_bounds=counts((1, "01" + "00" * 7))), 400, f"{FILE}.lower-bounds"),  # noqa: E501
    ("bounds that do not pair", "v2", one(lower_bounds={"keys": [1, 2], "values": [LARGE]}), 400, f"{FILE}.lower-bounds"),
    ("bounds with a column twice", "v2", one(upper_bounds=counts((1, LARGE), (1, LARGE))), 400, f"{FILE}.upper-bounds"),
    ("counts that do not pair", "v2", one(value_counts={"keys": [1], "values": []}), 400, f"{FILE}.value-counts"),
    ("counts with a column twice", "v2", one(column_sizes=counts((1, 1), (1, 2))), 400, f"{FILE}.column-sizes"),
    ("counts of an unknown column", "v2", one(value_counts=counts((99, 1))), 400, f"{FILE}.value-counts"),
    ("count below zero", "v2", one(null_value_counts=counts((1, -1))), 400, f"{FILE}.null-value-counts.values[0]"),
    ("count is a fraction", "v2", one(nan_value_counts=counts((3, 1.5))), 400, f"{FILE}.nan-value-counts.values[0]"),
    ("counts without keys", "v2", one(value_counts={"values": [1]}), 400, f"{FILE}.value-counts.keys"),
    ("more nulls than values", "v2", one(value_counts=counts((1, 5)), null_value_counts=counts((1, 6))), 400, f"{FILE}.null-value-counts"),  # noqa: E501
    ("more NaNs than values", "v2", one(value_counts=counts((3, 5)), nan_value_counts=counts((3, 6))), 400, f"{FILE}.nan-value-counts"),  # noqa: E501
    ("records below zero", "v2", one(record_count=-1), 400, f"{FILE}.record-count"),
    ("records of a fraction", "v2", one(record_count=0.5), 400, f"{FILE}.record-count"),
    ("records missing", "v2", append(without(file(), "record-count")), 400, f"{FILE}.record-count"),
    ("size below zero", "v2", one(file_size_in_bytes=-5), 400, f"{FILE}.file-size-in-bytes"),
    ("records past 64 bits together", "v2", append(file(record_count=LONG_MAX), file("second", record_count=1)), 400, "add-data-files"),  # noqa: E501
    ("sizes past 64 bits together", "v2", append(file(file_size_in_bytes=LONG_MAX), file("second")), 400, "add-data-files"),
    ("split offset below zero", "v2", one(split_offsets=[4, -1]), 400, f"{FILE}.split-offsets[1]"),
    ("key metadata not hexadecimal", "v2", one(key_metadata="xy"), 400, f"{FILE}.key-metadata"),
    ("unknown sort order", "v2", one(sort_order_id=5), 400, f"{FILE}.sort-order-id"),
    # --- content and format
    ("unknown content", "v2", one(content="dreams"), 400, f"{FILE}.content"),
    ("deletes among the data", "v2", append(deletes_file()), 400, f"{FILE}.content"),
    ("data among the deletes", "v2", deleting(file()), 400, f"{DELETE}.content"),
    ("unknown format", "v2", one(file_format="csv"), 400, f"{FILE}.file-format"),
    ("empty format", "v2", one(file_format=""), 400, f"{FILE}.file-format"),
    ("data in Puffin", "v2", one(file_format="puffin"), 400, f"{FILE}.file-format"),
    ("equality deletes in Puffin", "v3", deleting(equality(file_format="puffin")), 400, f"{DELETE}.file-format"),
    # --- paths
    ("empty path", "v2", one(file_path=""), 400, f"{FILE}.file-path"),
    ("path outside the warehouse", "v2", one(file_path="file:///etc/passwd"), 400, f"{FILE}.file-path"),
    ("path in another bucket", "v2", one(file_path="s3://other/x"), 400, f"{FILE}.file-path"),
    ("path of another scheme", "v2", one(file_path="https://example.org/x"), 400, f"{FILE}.file-path"),
    ("relative path", "v2", one(file_path="data/x.parquet"), 400, f"{FILE}.file-path"),
    ("path in the folder beside", "v2", one(file_path="$T-2/data/x"), 400, f"{FILE}.file-path"),
    ("path is the table's folder", "v2", one(file_path="$T"), 400, f"{FILE}.file-path"),
    ("path that climbs out", "v2", one(file_path="$T/data/../../../x"), 400, f"{FILE}.file-path"),
    ("path that climbs by escapes", "v2", one(file_path="$T/data/%2e%2e/x"), 400, f"{FILE}.file-path"),
    ("path with NUL", "v2", one(file_path="$T/data/\x00"), 400, f"{FILE}.file-path"),
    ("path too long", "v2", one(file_path="$T/data/" + "x" * 300), 400, f"{FILE}.file-path"),
    ("deletes outside the table", "v2", deleting(deletes_file(file_path="file:///tmp/x")), 400, f"{DELETE}.file-path"),
    ("path twice", "v2", append(file(), file()), 400, "add-data-files[1].file-path"),
    ("path of data and of deletes", "v2", change("overwrite", add_data_files=[file()], add_delete_files=[deletes_file("new")]), 400, f"{DELETE}.file-path"),  # noqa: E501
    ("path added and removed", "v2", overwrite(remove_data_files=["$T/data/new"]), 400, "remove-data-files"),
    ("deletes added and removed", "v2", deleting(deletes_file(), remove_delete_files=["$T/data/new-deletes"]), 400, "remove-delete-files"),  # noqa: E501
    ("path live already", "v2", append(file("live")), 409, "rule:already-live"),
    ("deletes live already", "v2", deleting(deletes_file("live-deletes")), 409, "rule:already-live"),
    ("file to remove without a path", "v2", overwrite(remove_data_files=[{}]), 400, "remove-data-files[0].file-path"),
    ("file to remove is a number", "v2", overwrite(remove_data_files=[1]), 400, "remove-data-files[0]"),
    ("file to overwrite is not there", "v2", overwrite(remove_data_files=["$T/data/ghost"]), 409, "rule:missing-required-removes"),  # noqa: E501
    # --- what an action may hold
    ("append of deletes", "v2", append(add_delete_files=[deletes_file()]), 400, "add-delete-files"),
    ("append that removes data", "v2", append(remove_data_files=["$T/data/live"]), 400, "remove-data-files"),
    ("append that removes deletes", "v2", append(remove_delete_files=["$T/data/live-deletes"]), 400, "remove-delete-files"),
    ("append with a filter", "v2", append(delete_row_filter=eq()), 400, "delete-row-filter"),
    ("append that drops partitions", "v2", append(drop_partitions=[]), 400, "drop-partitions"),
    ("append that rewrites manifests", "v2", append(rewrite_manifests=True), 400, "rewrite-manifests"),
    ("append of old rows", "v2", append(file(), add_data_files_sequence_number=1), 400, "add-data-files-sequence-number"),
    ("delete that adds data", "v2", change("delete", add_data_files=[file()]), 400, "add-data-files"),
    ("replace of nothing", "v2", replacing(file(), removed=()), 400, "remove-data-files"),
    ("replace by filter", "v2", replacing(file(), delete_row_filter=eq()), 400, "delete-row-filter"),
    ("replace by partition", "v2", replacing(file(), drop_partitions=[]), 400, "drop-partitions"),
    ("replace with more records", "v2", replacing(file(record_count=11)), 400, "add-data-files"),
    ("replace of deletes by data", "v2", replacing(file(), removed=(), remove_delete_files=["$T/data/live-deletes"]), 400, "add-data-files"),  # noqa: E501
    ("replace of data by deletes", "v2", replacing(add_delete_files=[deletes_file()]), 400, "add-delete-files"),
    ("replace of a file that is not there", "v2", replacing(removed=["$T/data/ghost"], commit_validations=[{"type": REQUIRED, "file-paths": ["$T/data/ghost"]}]), 409, "rule:missing-required-removes"),  # noqa: E501
    ("rewrite of manifests that adds a file", "v2", replacing(file(), rewrite_manifests=True), 400, "rewrite-manifests"),
    ("sequence number beyond the head", "v2", replacing(file(), add_data_files_sequence_number=3), 400, "add-data-files-sequence-number"),  # noqa: E501
    ("sequence number of deletes beyond the head", "v2", replacing(removed=(), add_delete_files=[deletes_file()], remove_delete_files=["$T/data/live-deletes"], add_delete_files_sequence_number=LONG_MAX), 400, "add-delete-files-sequence-number"),  # noqa: E501
    ("sequence number below zero", "v2", replacing(file(), add_data_files_sequence_number=-1), 400, "add-data-files-sequence-number"),  # noqa: E501
    ("filter that matches a file in part", "v2", filtered(eq()), 409, "rule:partial-row-filter-match"),
    ("summary with the operation", "v2", append(file(), summary={"operation": "replace"}), 400, "summary"),
    ("summary with a number", "v2", append(file(), summary={"x": 1}), 400, "summary[...]"),
    ("summary is a list", "v2", append(file(), summary=[]), 400, "summary"),
    ("summary that makes up a total", "v2", append(file(), summary={"total-records": "1"}), 400, "summary"),
    ("summary that makes up a count", "v2", append(file(), summary={"deleted-data-files": "1"}), 400, "summary"),
    # --- delete files and versions
    ("deletes in v1", "v1", deleting(deletes_file()), 400, DELETE),
    ("equality deletes in v1", "v1", deleting(equality()), 400, DELETE),
    ("deletion vector in v2", "v2", deleting(vector()), 400, DELETE),
    ("position deletes in v3", "v3", deleting(deletes_file()), 400, DELETE),
    ("two vectors for a file", "v3", deleting(vector(), vector("second")), 400, "add-delete-files[1].referenced-data-file"),
    ("a second vector for a file", "v3", deleting(vector()), 409, "rule:second-deletion-vector"),
    ("vector without an offset", "v3", deleting(without(vector(), "content-offset")), 400, f"{DELETE}.content-offset"),
    ("vector without a size", "v3", deleting(without(vector(), "content-size-in-bytes")), 400, f"{DELETE}.content-size-in-bytes"),  # noqa: E501
    ("vector for no file", "v3", deleting(without(vector(), "referenced-data-file")), 400, f"{DELETE}.referenced-data-file"),
    ("vector for an empty path", "v3", deleting(vector(referenced_data_file="")), 400, f"{DELETE}.referenced-data-file"),
    ("vector past the end of its file", "v3", deleting(vector(content_offset=90)), 400, f"{DELETE}.content-offset"),
    ("vector with an offset below zero", "v3", deleting(vector(content_offset=-4)), 400, f"{DELETE}.content-offset"),
    ("equality deletes without columns", "v2", deleting(without(equality(), "equality-ids")), 400, f"{DELETE}.equality-ids"),
    ("equality deletes of no column", "v2", deleting(equality(equality_ids=[])), 400, f"{DELETE}.equality-ids"),
    ("equality deletes by an unknown column", "v2", deleting(equality(equality_ids=[1, 99])), 400, f"{DELETE}.equality-ids"),
    ("equality deletes by a list", "v2", deleting(equality(equality_ids=[11])), 400, f"{DELETE}.equality-ids"),
    ("data with equality columns", "v2", one(equality_ids=[1]), 400, f"{FILE}.equality-ids"),
    # --- branches and bases
    ("unknown branch", "v2", append(file(), branch="nowhere"), 404, "branch"),
    ("tag as branch", "v2", append(file(), branch="release"), 400, "branch"),
    ("tag as a branch to be made", "v2", append(file(), branch="release", create_branch=True), 400, "branch"),
    ("branch without a name", "v2", append(file(), branch=""), 400, "branch"),
    ("branch is null", "v2", append(file(), branch=None), 400, "branch"),
    ("create-branch is text", "v2", append(file(), create_branch="yes"), 400, "create-branch"),
    ("stage-only is a number", "v2", append(file(), stage_only=1), 400, "stage-only"),
    ("base that never was", "v2", append(file(), base_snapshot_id=12345, commit_validations=[{"type": ADDED}]), 409, "rule:unknown-history"),  # noqa: E501
    ("base that is no ancestor", "v2", append(file(), base_snapshot_id=12345, commit_validations=[{"type": "base-snapshot-must-be-ancestor"}]), 409, "rule:base-not-ancestor"),  # noqa: E501
    ("base is text", "v2", append(file(), base_snapshot_id="1"), 400, "base-snapshot-id"),
    ("unknown snapshot-action", "v2", change("produce-snapshot", snapshot_action="explode"), 400, "snapshot-action"),
    ("no snapshot-action", "v2", change("produce-snapshot", add_data_files=[file()]), 400, "snapshot-action"),
    ("snapshot-action is null", "v2", change("produce-snapshot", snapshot_action=None), 400, "snapshot-action"),
    ("misspelt field", "v2", append(file(), commit_validation=[{"type": ADDED}]), 400, ""),
    # --- filters
    ("filter of an unknown column", "v2", filtered(eq("nope")), 400, "delete-row-filter"),
    ("filter in another case", "v2", filtered(eq("ID")), 400, "delete-row-filter"),
    ("filter with a literal of another type", "v2", filtered(eq("id", "x")), 400, "delete-row-filter"),
    ("filter with an object as literal", "v2", filtered(eq("id", {"a": 1})), 400, "delete-row-filter"),
    ("filter with null as literal", "v2", filtered(eq("id", None)), 400, "delete-row-filter"),
    ("filter with a day that is none", "v2", filtered(eq("day", "2024-02-30")), 400, "delete-row-filter"),
    ("filter on a list", "v2", filtered(eq("tags", "x")), 400, "delete-row-filter"),
    ("filter inside a list", "v2", filtered(eq("tags.element", "x")), 400, "delete-row-filter"),
    ("filter that begins with a number", "v2", filtered({"type": "starts-with", "term": "id", "value": "1"}), 400, "delete-row-filter"),  # noqa: E501
    ("filter for NaN in text", "v2", filtered({"type": "is-nan", "term": "category"}), 400, "delete-row-filter"),
    ("filter of an unknown kind", "v2", filtered({"type": "like", "term": "category", "value": "a"}), 400, "delete-row-filter"),  # noqa: E501
    ("filter without a kind", "v2", filtered({"term": "id", "value": 1}), 400, "delete-row-filter"),
    ("filter without a term", "v2", filtered({"type": "eq", "value": 1}), 400, "delete-row-filter"),
    ("filter with half an and", "v2", filtered({"type": "and", "left": eq()}), 400, "delete-row-filter"),
    ("filter as text", "v2", filtered("id = 1"), 400, "delete-row-filter"),
    ("filter as a number", "v2", filtered(1), 400, "delete-row-filter"),
    ("filter as a list", "v2", filtered([eq()]), 400, "delete-row-filter"),
    ("filter on a transform", "v2", filtered(eq({"type": "transform", "transform": "bucket[4]", "term": "id"})), 400, "delete-row-filter"),  # noqa: E501
    ("filter too large", "v2", filtered(wide(10_001)), 400, "delete-row-filter"),
    ("filter too deep", "v2", filtered(deep(65)), 400, "message:nested"),
    ("validation with a bad filter", "v2", valid(type=ADDED, filter=eq("nope")), 400, f"{VALIDATION}.filter"),
    ("validation with a filter as text", "v2", valid(type=ADDED, filter="true"), 400, f"{VALIDATION}.filter"),
    # --- validations
    ("filter and partitions", "v2", valid(type=ADDED, filter=eq(), partitions=[]), 400, VALIDATION),
    ("validation of an unknown type", "v2", valid(type="be-nice"), 400, f"{VALIDATION}.type"),
    ("validation without a type", "v2", valid(), 400, f"{VALIDATION}.type"),
    ("validation is null", "v2", append(file(), commit_validations=[None]), 400, VALIDATION),
    ("validations is an object", "v2", append(file(), commit_validations={}), 400, "commit-validations"),
    ("validation with a misspelt field", "v2", valid(type=ADDED, filters=eq()), 400, VALIDATION),
    ("validation of files without files", "v2", valid(type="not-allowed-added-dvs"), 400, f"{VALIDATION}.file-paths"),
    ("validation with a partition of no spec", "v2", valid(type=ADDED, partitions=[{"spec-id": 77, "partition": []}]), 400, f"{VALIDATION}.partitions[0].spec-id"),  # noqa: E501
    ("validation with a partition too short", "v2", valid(type=ADDED, partitions=[{"spec-id": 1, "partition": []}]), 400, f"{VALIDATION}.partitions[0].partition"),  # noqa: E501
    ("unknown mode", "v2", valid(type=REQUIRED, mode="maybe"), 400, f"{VALIDATION}.mode"),
    ("unknown mode of deletes", "v2", valid(type="required-delete-files", mode="not-removed-since-base"), 400, f"{VALIDATION}.mode"),  # noqa: E501
    ("unknown allowed operation", "v2", valid(type=REQUIRED, allowed_remove_operations=["delete", "vanish"]), 400, f"{VALIDATION}.allowed-remove-operations"),  # noqa: E501
    ("allowed operations as text", "v2", valid(type=REQUIRED, allowed_remove_operations="delete"), 400, f"{VALIDATION}.allowed-remove-operations"),  # noqa: E501
    ("required file that is not there", "v2", valid(type=REQUIRED, file_paths=["$T/data/ghost"]), 409, "rule:missing-required-removes"),  # noqa: E501
    ("added file outside the filter", "v2", overwrite(delete_row_filter=eq("category", "z"), commit_validations=[{"type": "added-data-files-match-row-filter"}]), 400, "add-data-files"),  # noqa: E501
    ("removed file that new deletes are for", "v2", change("overwrite", remove_data_files=["$T/data/live"], add_delete_files=[deletes_file()], commit_validations=[{"type": "removed-data-files-must-not-be-referenced", "file-paths": ["$T/data/live"]}]), 400, "remove-data-files"),  # noqa: E501
    ("partition to drop of no spec", "v2", change("overwrite", drop_partitions=[{"spec-id": 77, "partition": []}]), 400, "drop-partitions[0].spec-id"),  # noqa: E501
    # --- types
    ("files is an object", "v2", change("append", add_data_files={}), 400, "add-data-files"),
    ("files is null", "v2", change("append", add_data_files=None), 400, "add-data-files"),
    ("file is text", "v2", change("append", add_data_files=["$T/data/new"]), 400, FILE),
    ("file is null", "v2", change("append", add_data_files=[None]), 400, FILE),
    ("path is a number", "v2", one(file_path=1), 400, f"{FILE}.file-path"),
    ("content is null", "v2", one(content=None), 400, f"{FILE}.content"),
    ("sequence number is text", "v2", append(file(), add_data_files_sequence_number="1"), 400, "add-data-files-sequence-number"),  # noqa: E501
]  # fmt: skip

# Values of the fields of spec 3, in their order, that do not fit their type.
GOOD_VALUES: tuple[Any, ...] = (1.5, "1.25", "2024-01-01T00:00:00", "2024-01-01", "00010203", "0" * 8 + "-0000-0000-0000-" + "0" * 12, 1, 2.5)  # noqa: E501  # fmt: skip
BAD_VALUES: dict[str, tuple[int, Any]] = {
    "float over 32 bits": (0, 1e300),
    "float in text": (0, "1.5"),
    "float past all numbers": (0, "infinity"),
    "decimal of another scale": (1, "1.2"),
    "decimal beyond its precision": (1, "12345678901.25"),
    "decimal that is a number": (1, 1.25),
    "decimal that is not finite": (1, "NaN"),
    "timestamp with a zone": (2, "2024-01-01T00:00:00+00:00"),
    "timestamp that is a date": (2, "yesterday"),
    "date past the calendar": (3, "99999-01-01"),
    "date that is a fraction": (3, 1.5),
    "fixed of another length": (4, "00"),
    "fixed not in hexadecimal": (4, "zzzzzzzz"),
    "uuid too short": (5, "123"),
    "int over 32 bits": (6, 2**31),
    "int with a fraction": (6, 1.0),
    "double in text": (7, "1.0"),
}


def value_case(name: str) -> tuple[str, str, Wire, int, str]:
    at, value = BAD_VALUES[name]
    values = [value if i == at else good for i, good in enumerate(GOOD_VALUES)]
    return f"partition: {name}", "v2", one(spec_id=3, partition=values), 400, f"{PARTITION}[{at}]"


CASES = [*BAD, *map(value_case, BAD_VALUES)]


def said(answer: httpx.Response) -> str:
    """Everything an answer names: field, rule, message."""
    error = error_of(answer)
    rule = error.get("conflict", {}).get("rule") or error["headgate"].get("rule")
    return f"field={error['headgate'].get('field')} rule={rule} message={error['message']}"


def check_refusal(answer: httpx.Response, status: int, names: str, place: str) -> None:
    assert answer.status_code == status, answer.text
    kind, _, text = names.rpartition(":")
    if kind == "rule":
        assert error_of(answer)["conflict"]["rule"] == text
    elif kind == "message":
        assert text in error_of(answer)["message"]
    else:
        assert field_of(answer) == f"{place}.{names}".rstrip("."), said(answer)


def test_no_two_cases_have_one_name_and_there_are_enough() -> None:
    names = [name for name, *_ in CASES]
    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize(
    ("table", "update", "status", "names"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_bad_change_is_refused_by_name_and_writes_nothing(
    world: World, table: str, update: Wire, status: int, names: str
) -> None:
    before, written = world.picture(), world.files.written
    answer = commit_change(world.client, world.place(update, table), name=table)
    check_refusal(answer, status, names, "updates[0]")
    assert world.files.written == written
    assert world.picture() == before


@pytest.mark.parametrize(
    ("table", "update", "status", "names"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_bad_change_beside_a_good_table_is_refused_by_name_and_nothing_stays(
    world: World, table: str, update: Wire, status: int, names: str
) -> None:
    before = world.picture()
    good = world.place(append(file("fine", spec_id=0, partition=[])), "good")
    bad = world.place(update, table)
    answer = transact(world.client, table_change("good", good), table_change(table, bad))
    check_refusal(answer, status, names, "table-changes[1].updates[0]")
    assert world.picture() == before


# --- what is good, so that the cases above are bad for their own reason ------------------------------------


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[World]:
    opened, _ = open_files(f"file://{tmp_path / 'warehouse'}")
    files: Any = CountingFiles(opened)
    with app_client(tmp_path, files=files) as client:
        yield World(client, files)


GOOD: list[tuple[str, str, Wire]] = [
    ("append", "v2", append(file())),
    ("append to a table of v1", "v1", append(file())),
    ("append to a table of v3", "v3", append(file())),
    ("values of every type", "v2", one(spec_id=3, partition=list(GOOD_VALUES))),
    ("no value at all", "v2", one(spec_id=3, partition=[None] * len(GOOD_VALUES))),
    ("values that are no numbers", "v2", one(spec_id=3, partition=["NaN", *GOOD_VALUES[1:-1], "-Infinity"])),
    ("the last bucket", "v2", one(spec_id=2, partition=[15])),
    ("day and truncated text", "v2", one(spec_id=4, partition=["2024-01-01", "abc"])),
    ("bounds and counts", "v2", one(lower_bounds=counts((1, LARGE)), upper_bounds=counts((1, LARGE)), value_counts=counts((1, 5)), null_value_counts=counts((1, 5)))),  # noqa: E501
    ("counts inside a list", "v2", one(value_counts=counts((11, 5), (12, 9)))),
    ("position deletes", "v2", deleting(deletes_file())),
    ("equality deletes", "v2", deleting(equality())),
    ("deletion vector", "v3", deleting(vector(referenced_data_file="$T/data/other"))),
    ("overwrite", "v2", overwrite(remove_data_files=["$T/data/live"])),
    ("replace", "v2", replacing(file(), add_data_files_sequence_number=2)),
    ("new branch", "v2", append(file(), branch="new", create_branch=True)),
    ("filter of whole files", "v2", filtered(eq("category", "a"))),
    ("filter of 9,996 values", "v2", valid(type="not-allowed-removed-data-files", filter=wide(9_996))),
    ("filter that is deep", "v2", valid(type="not-allowed-removed-data-files", filter=deep(50))),
    ("allowed operations", "v2", valid(type=REQUIRED, mode="not-removed-since-base", allowed_remove_operations=["DELETE"])),
    ("summary of its own", "v2", append(file(), summary={"engine": "x", "added-love": "1"})),
    ("alias", "v2", change("produce-snapshot", snapshot_action="append", add_data_files=[file()])),
]  # fmt: skip


def test_the_good_twins_of_the_bad_changes_commit(fresh: World) -> None:
    for number, (name, table, update) in enumerate(GOOD):
        # Each on a branch of its own, from the same start.
        apart = {"branch": f"b{number}", "create-branch": True} if "branch" not in update else {}
        answer = commit_change(fresh.client, fresh.place({**update, **apart}, table), name=table)
        assert answer.status_code == 200, (name, answer.text)


# --- size, several changes in one request, and who may -------------------------------------------------------


def test_a_change_of_more_files_than_the_limit_is_refused(world: World) -> None:
    before = world.picture()
    files = [f"$T/data/{number}" for number in range(FILES_MAX + 1)]
    for name in ("remove-data-files", "remove-delete-files"):
        answer = commit_change(world.client, world.place(change("delete", **{name: files}), "v2"), name="v2")
        check_refusal(answer, 400, "", "updates[0]")
        assert str(FILES_MAX) in error_of(answer)["message"]
    assert world.picture() == before


def test_a_number_past_64_bits_is_refused_before_anything_else(world: World) -> None:
    text = json.dumps({"requirements": [], "updates": [one(record_count=LONG_MAX)]})
    body = text.replace(str(LONG_MAX), str(LONG_MAX + 1)).encode()
    before = world.picture()
    answer = world.client.post(path("v2"), content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "64 bits" in error_of(answer)["message"]
    assert world.picture() == before


def test_a_file_added_by_two_changes_of_one_request_is_refused_and_nothing_stays(world: World) -> None:
    before = world.picture()
    twice = [world.place(append(file()), "v2")] * 2
    answer = commit(world.client, *twice, name="v2")
    check_refusal(answer, 409, "rule:already-live", "")
    assert world.picture() == before


def test_a_bad_change_behind_good_ones_is_named_by_its_place_and_nothing_is_written(world: World) -> None:
    before, written = world.picture(), world.files.written
    good, bad = world.place(append(file()), "v2"), world.place(one(record_count=1, spec_id=77), "v2")
    properties = {"action": "set-properties", "updates": {"x": "y"}}
    answer = commit(world.client, properties, good, bad, name="v2")
    assert (answer.status_code, field_of(answer)) == (400, f"updates[2].{FILE}.spec-id")
    assert world.files.written == written
    assert world.picture() == before


def test_a_plain_update_that_fails_behind_a_change_takes_the_change_with_it(world: World) -> None:
    before = world.picture()
    bad = {"action": "set-default-spec", "spec-id": 77}
    answer = commit(world.client, world.place(append(file()), "v2"), bad, name="v2")
    assert answer.status_code == 400
    assert world.picture() == before


def test_a_table_made_with_changes_that_are_refused_leaves_no_file(world: World) -> None:
    staged = created(world.client, "new", schema=SCHEMA, stage_create=True)["metadata"]
    place, before = staged["location"], world.picture()
    new = data_file(f"{place}/data/new")
    twice = [change("append", add_data_files=[new])] * 2
    answer = commit(
        world.client,
        *staged_updates(staged),
        *twice,
        name="new",
        requirements=[{"type": "assert-create"}],
    )
    check_refusal(answer, 409, "rule:already-live", "")
    left = [name for name, data in files_below(local(place)).items() if data is not None]
    assert (left, world.picture()[0]) == ([], before[0])


PROGRESS = "headgate.stream.0f8fad5b-d9cb-469f-a165-70867728950e"


def setting(name: str) -> Wire:
    """A property set."""
    return {"action": "set-properties", "updates": {name: "1"}}


PROPERTIES = {"action": "set-properties", "updates": {"x": "y"}}
REMOVED = {"action": "remove-snapshots", "snapshot-ids": [1]}
# role | updates | status
MAY: list[tuple[str, str, list[Wire], int]] = [
    ("append", "read", [append(file())], 403),
    ("nothing at all", "read", [], 403),
    ("append", "insert", [append(file())], 200),
    ("append by its alias", "insert", [change("produce-snapshot", snapshot_action="append")], 200),
    ("files with their stream's progress", "insert", [append(file()), setting(PROGRESS)], 200),
    ("a stream's progress alone", "insert", [setting(PROGRESS)], 403),
    ("files with another property", "insert", [append(file()), setting("owner")], 403),
    ("files with what looks like progress", "insert", [append(file()), setting(f"{PROGRESS}x")], 403),
    ("overwrite", "insert", [overwrite()], 403),
    ("overwrite by its alias", "insert", [change("produce-snapshot", snapshot_action="overwrite")], 403),
    ("unknown action", "insert", [change("produce-snapshot", snapshot_action="explode")], 403),
    ("delete", "insert", [deleting(deletes_file())], 403),
    ("replace", "insert", [replacing(file())], 403),
    ("append that removes", "insert", [append(remove_data_files=["$T/data/live"])], 400),
    ("append to a new branch", "insert", [append(file(), branch="new", create_branch=True)], 403),
    ("append and overwrite", "insert", [append(file()), overwrite()], 403),
    ("append and expire", "insert", [append(file()), REMOVED], 403),
    ("append and set properties", "insert", [append(file()), PROPERTIES], 403),
    ("overwrite", "modify", [overwrite()], 200),
    ("replace", "modify", [replacing(file())], 200),
    ("overwrite and set properties", "modify", [overwrite(), PROPERTIES], 403),
    ("overwrite and set properties", "admin", [overwrite(), PROPERTIES], 200),
]  # fmt: skip


def test_each_role_may_change_what_its_intent_allows_and_a_refusal_changes_nothing(tmp_path: Path) -> None:
    opened, _ = open_files(f"file://{tmp_path / 'warehouse'}")
    files: Any = CountingFiles(opened)
    with app_client(tmp_path, files=files) as open_client:
        world = World(open_client, files)
        store = open_client.services.store
        with app_client(tmp_path, store=store, files=files, auth="on") as client:
            tokens = {}
            for role in ("read", "insert", "modify", "admin"):
                tokens[role] = bearer(client.token(role, client.add_principal(role, role)))
            for name, role, updates, status in MAY:
                before = world.picture()
                body = {"requirements": [], "updates": [world.place(update, "v2") for update in updates]}
                staged = [{**u, "stage-only": True} if "add-data-files" in u else u for u in body["updates"]]
                answer = client.post(path("v2"), {**body, "updates": staged}, headers=tokens[role])
                assert answer.status_code == status, (role, name, answer.text)
                if status >= 400:
                    assert world.picture() == before, (role, name)
                changes = {"table-changes": [{**table_change("v2"), **body}]}
                if status == 403:
                    good = table_change(
                        "good", world.place(append(file("x", spec_id=0, partition=[])), "good")
                    )
                    changes["table-changes"].insert(0, good)
                    answer = client.post("/v1/transactions/commit", changes, headers=tokens[role])
                    assert answer.status_code == 403, (role, name, answer.text)
                    assert world.picture() == before, (role, name)
