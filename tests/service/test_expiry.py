"""Snapshots expired by the service, over SQLite and local files: what goes, when, and what must not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.format.manifests import decode_manifest_list
from headgate.service.expiry import Expirer
from tests.service.change_calls import change, commit_change
from tests.service.expiring_table import ASKED, GRACE_S, Lake, lake
from tests.service.table_calls import (
    append,
    committed,
    created,
    load,
    local,
    path,
    ref,
    set_properties,
    snapshot,
    touch,
    write_data,
    write_list,
)

LONG_AFTER_S = 1_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Lake]:
    with lake(tmp_path) as made:
        yield made


# --- what goes, and when ---------------------------------------------------------------------------------------


def test_old_snapshots_go_and_their_files_go_after_the_grace_time(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    table.remove("a")
    head = table.append("c", 3)
    files = table.avro()
    assert table.round(after_s=LONG_AFTER_S) == 3
    assert table.snapshots() == [head]
    assert table.data() == ["a", "b", "c"]
    assert table.sweep(after_s=GRACE_S - 1) == 0
    assert table.avro() == files
    assert table.sweep(after_s=2) > 0
    assert table.data() == ["b", "c"]
    assert table.avro() < files
    assert table.rows() == [2, 3]
    table.check()


def test_a_reader_of_an_expired_snapshot_is_not_disturbed_in_the_grace_time(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    held = load(table.client)
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    table.sweep(after_s=GRACE_S - 1)
    names = {s["manifest-list"] for s in held["metadata"]["snapshots"]}
    assert all(local(name).is_file() for name in names)
    assert "a" in table.data()


def test_snapshots_that_are_young_stay(table: Lake) -> None:
    kept = [table.append("a", 1), table.append("b", 2)]
    assert table.round(after_s=5) == 0
    assert table.snapshots() == kept


def test_rows_deleted_long_ago_and_merged_manifests_leave_no_file_too_many(table: Lake) -> None:
    for n in range(12):
        table.append(f"f{n}", n)
    table.remove(*(f"f{n}" for n in range(0, 12, 2)))
    table.round(after_s=LONG_AFTER_S)
    table.sweep(after_s=GRACE_S + 1)
    assert table.data() == sorted(f"f{n}" for n in range(1, 12, 2))
    assert table.rows() == list(range(1, 12, 2))
    head = load(table.client)["metadata"]["snapshots"]
    assert len(head) == 1
    table.check()
    assert table.avro() == 1 + len(_manifests(head[0]["manifest-list"]))


def _manifests(manifest_list: str) -> list[str]:
    found = decode_manifest_list(local(manifest_list).read_bytes(), location=manifest_list)
    return [manifest.manifest_path for manifest in found]


def test_a_branch_is_held_to_its_bound_by_count_however_young(tmp_path: Path) -> None:
    asked = {"headgate.expire.enabled": "true", "headgate.expire.max-snapshots": "3"}
    with lake(tmp_path, properties=asked) as table:
        made = [table.append(f"f{n}", n) for n in range(6)]
        assert table.round() == 3
        assert table.snapshots() == made[3:]
        assert table.rows() == list(range(6))


def test_more_than_one_commit_holds_goes_in_one_round(table: Lake) -> None:
    for n in range(6):
        table.append(f"f{n}", n)
    table.expirer = Expirer(table.client.services, expired_max=2)
    assert table.round(after_s=LONG_AFTER_S) == 5
    events = table.client.services.store.read_events(after=0, limit=100)
    assert [e.event.principal for e in events].count("headgate") == 3


def test_the_expiry_is_a_commit_with_an_event_of_its_own_principal(table: Lake) -> None:
    gone = table.append("a", 1)
    table.append("b", 2)
    table.round(after_s=LONG_AFTER_S)
    last = table.client.services.store.read_events(after=0, limit=100)[-1].event
    assert (last.principal, last.kind) == ("headgate", "commit-table")
    updates = json.loads(last.payload)["updates"]
    assert updates == [{"action": "remove-snapshots", "snapshot-ids": [gone]}]


# --- who asks ----------------------------------------------------------------------------------------------------


def test_a_table_that_does_not_ask_keeps_its_snapshots(tmp_path: Path) -> None:
    with lake(tmp_path, properties={"history.expire.max-snapshot-age-ms": "1"}) as table:
        table.append("a", 1)
        table.append("b", 2)
        assert table.round(after_s=LONG_AFTER_S) == 0
        assert len(table.snapshots()) == 2


def test_the_service_may_be_told_to_expire_tables_that_do_not_ask(tmp_path: Path) -> None:
    aged = {"history.expire.max-snapshot-age-ms": "1"}
    with lake(tmp_path, properties=aged, expire_snapshots=True) as table:
        table.append("a", 1)
        table.append("b", 2)
        created(table.client, "refuses", properties={**aged, "headgate.expire.enabled": "false"})
        for n in (1, 2):
            assert append(table.client, id=n, name="refuses").status_code == 200
        assert table.round(after_s=LONG_AFTER_S) == 1
        assert len(load(table.client, "refuses")["metadata"]["snapshots"]) == 2


def test_a_table_that_begins_to_ask_is_heard_in_the_next_round(tmp_path: Path) -> None:
    with lake(tmp_path, properties={}) as table:
        table.append("a", 1)
        table.append("b", 2)
        assert table.round(after_s=LONG_AFTER_S) == 0
        committed(table.client, {"action": "set-properties", "updates": ASKED})
        assert table.round() == 1


def test_a_table_whose_files_are_shared_is_left_alone(tmp_path: Path) -> None:
    with lake(tmp_path, properties={**ASKED, "gc.enabled": "false"}) as table:
        table.append("a", 1)
        table.append("b", 2)
        assert table.round(after_s=LONG_AFTER_S) == 0


def test_files_stay_when_they_come_to_be_shared_in_the_grace_time(table: Lake) -> None:
    table.append("a", 1)
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    committed(table.client, set_properties(gc_enabled="false"))
    assert table.sweep(after_s=GRACE_S + 1) == 0
    committed(table.client, set_properties(gc_enabled="true"))
    assert table.sweep(after_s=LONG_AFTER_S) == 0
    assert table.data() == ["a"]


def test_a_table_with_a_property_that_is_no_number_does_not_keep_others_waiting(table: Lake) -> None:
    created(
        table.client,
        "broken",
        properties={**ASKED, "history.expire.min-snapshots-to-keep": "many"},
    )
    for n in (1, 2):
        assert append(table.client, id=n, name="broken").status_code == 200
    table.append("a", 1)
    table.append("b", 2)
    assert table.round(after_s=LONG_AFTER_S) == 1
    assert len(load(table.client, "broken")["metadata"]["snapshots"]) == 2


def test_a_quiet_table_is_not_loaded_again_until_something_may_be_old(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    assert table.round() == 0
    loads = _CountingHeads(table.client.services.heads)
    table.expirer = Expirer(_with_heads(table.client.services, loads))
    assert table.round() == 0
    assert loads.count == 1
    assert table.round() == 0
    assert loads.count == 1
    assert table.round(after_s=LONG_AFTER_S) == 1


class _CountingHeads:
    """Heads that count how often they are asked for."""

    def __init__(self, heads: Any) -> None:
        self._heads = heads
        self.count = 0

    def load(self, targets: Any) -> Any:
        self.count += 1
        return self._heads.load(targets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._heads, name)


def _with_heads(services: Any, heads: Any) -> Any:
    return dataclasses.replace(services, heads=heads)


# --- what must not go ----------------------------------------------------------------------------------------------


def test_a_tagged_snapshot_is_kept_with_all_its_rows(table: Lake) -> None:
    table.append("a", 1)
    tagged = table.append("b", 2)
    committed(table.client, ref(tagged, name="v1", type="tag"))
    table.remove("a")
    head = table.append("c", 3)
    assert table.round(after_s=LONG_AFTER_S) == 2
    table.sweep(after_s=GRACE_S + 1)
    assert table.snapshots() == [tagged, head]
    assert table.rows() == [2, 3]
    assert table.rows(snapshot_id=tagged) == [1, 2]
    table.check()


def test_a_staged_snapshot_is_kept_until_it_is_old(table: Lake) -> None:
    table.append("a", 1)
    table.client.clock.pass_s(30)
    head = table.append("b", 2)
    staged = table.append("audited", 9, stage_only=True, summary={"wap.id": "w1"})
    assert table.round() == 1
    assert table.snapshots() == [head, staged]
    committed(table.client, ref(staged))  # published: it is a child of the head
    assert table.round(after_s=LONG_AFTER_S) == 1
    table.sweep(after_s=GRACE_S + 1)
    assert table.rows() == [1, 2, 9]
    table.check()


def test_a_staged_snapshot_that_nobody_published_goes_with_its_files(table: Lake) -> None:
    table.append("a", 1)
    table.append("audited", 9, stage_only=True, summary={"wap.id": "w1"})
    table.append("b", 2)
    assert table.round(after_s=LONG_AFTER_S) == 2
    table.sweep(after_s=GRACE_S + 1)
    assert table.data() == ["a", "b"]
    table.check()


def test_a_file_that_was_added_again_in_the_grace_time_is_kept(table: Lake) -> None:
    table.append("a", 1)
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    again = change("append", add_data_files=[table.described["a"]])
    assert commit_change(table.client, again).status_code == 200
    table.sweep(after_s=GRACE_S + 1)
    assert table.rows() == [1]
    table.check()


def test_what_a_registration_brought_back_is_kept(table: Lake) -> None:
    table.append("a", 1)
    table.append("b", 2)
    before = load(table.client)["metadata-location"]
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    body = {"name": "t", "metadata-location": before, "overwrite": True}
    assert table.client.post("/v1/namespaces/a/register", body).status_code == 200
    table.sweep(after_s=GRACE_S + 1)
    assert table.rows() == [1, 2]
    table.check()


def test_a_file_outside_the_tables_own_folders_is_never_deleted(table: Lake) -> None:
    root = table.client.services.locations.roots[0]
    victim = created(table.client, "victim")["metadata"]["location"]
    outside = [touch(f"{victim}/data/x.parquet"), touch(f"{root}/elsewhere/y.parquet")]
    folder = f"{load(table.client)['metadata']['location']}/metadata"
    lists = [write_data(folder, outside, id=1), write_list(folder, [], id=2)]
    for n, manifest_list in enumerate(lists, start=1):
        table.client.clock.pass_s(1)
        parent = {"parent_snapshot_id": n - 1} if n > 1 else {}
        committed(table.client, snapshot(table.client, manifest_list, id=n, **parent), ref(n))
    assert table.round(after_s=LONG_AFTER_S) == 1
    doomed = table.client.services.store.read_doomed(now_ms=1 << 62, limit=10)
    assert set(outside) < {file.location for file in doomed}
    assert table.sweep(after_s=GRACE_S + 1) == 2  # the list and the manifest
    assert all(local(place).is_file() for place in outside)


def test_files_of_a_table_that_was_dropped_stay_for_it_to_come_back(table: Lake) -> None:
    table.append("a", 1)
    old = load(table.client)["metadata-location"]
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    data = local(table.described["a"]["file-path"])
    assert table.client.delete(path()).status_code == 204
    assert table.sweep(after_s=GRACE_S + 1) == 0
    assert data.is_file()
    body = {"name": "t", "metadata-location": old}
    assert table.client.post("/v1/namespaces/a/register", body).status_code == 200
    assert table.sweep(after_s=LONG_AFTER_S) == 0
    assert table.rows() == [1]


def test_a_purge_takes_what_is_in_its_grace_time_too(table: Lake) -> None:
    table.append("a", 1)
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    folder = local(load(table.client)["metadata"]["location"])
    assert table.client.delete(f"{path()}?purgeRequested=true").status_code == 204
    table.client.services.background.shutdown(wait=True)
    assert [file for file in folder.rglob("*") if file.is_file()] == []
    store = table.client.services.store
    assert store.read_doomed(now_ms=1 << 62, limit=10) == []


def test_a_renamed_table_is_swept_under_its_new_name(table: Lake) -> None:
    table.append("a", 1)
    table.remove("a")
    table.round(after_s=LONG_AFTER_S)
    names = {
        "source": {"namespace": ["a"], "name": "t"},
        "destination": {"namespace": ["a"], "name": "u"},
    }
    assert table.client.post("/v1/tables/rename", names).status_code == 204
    assert table.sweep(after_s=GRACE_S + 1) > 0
    assert not local(table.described["a"]["file-path"]).exists()
