"""The cache of heads beside threads and replicas that move, shorten and push out what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.core.commit import Head, Target
from headgate.service.heads import HeadCache
from headgate.store.base import Entry, EntryId, Levels, Stream
from headgate.store.memory import MemoryStore
from tests.chaos.raw_commits import build_commit
from tests.core.builders import metadata_file, table
from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import change, commit_change, data_file, live_paths
from tests.service.table_calls import committed, created, load, make_namespace, path, snapshot, touch

T: Target = (("a",), "t")
OTHER: Target = (("a",), "other")


class InterruptedStore:
    """A store in which things happen between its answer and the caller's next step."""

    def __init__(self) -> None:
        self.real = MemoryStore()
        self.after_load: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def load_entries(
        self,
        names: Sequence[tuple[Levels, str]],
        *,
        known: Mapping[EntryId, tuple[int, int, int]] | None = None,
    ) -> list[Entry | None]:
        """See `Store`."""
        found = self.real.load_entries(names, known=known)
        if self.after_load:
            self.after_load.pop(0)()
        return found


@pytest.fixture
def store() -> InterruptedStore:
    return InterruptedStore()


@pytest.fixture
def replica(tmp_path: Path, store: InterruptedStore) -> Iterator[AppClient]:
    """Another replica on the same store, by which the table is changed."""
    with app_client(tmp_path, store=store.real) as client:
        make_namespace(client)
        created(client, "other")
        created(client, "t")
        for _ in range(3):
            add_snapshot(client)
        yield client


def cache_over(store: InterruptedStore, *, limit_bytes: int = 1 << 20) -> HeadCache:
    given: Any = store
    return HeadCache(given, limit_bytes=limit_bytes)


def add_snapshot(client: AppClient) -> None:
    commit = build_commit("t", load(client)["metadata"]).body
    assert (
        client.post(
            path(), {name: value for name, value in commit.items() if name != "identifier"}
        ).status_code
        == 200
    )


def remove_oldest(client: AppClient) -> None:
    oldest = load(client)["metadata"]["snapshots"][0]["snapshot-id"]
    body = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [oldest]}]}
    assert client.post(path(), body).status_code == 200


def ids(client: AppClient) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in load(client)["metadata"]["snapshots"]]


def stage_and_remove(client: AppClient, name: str = "t") -> None:
    """One request whose snapshot does not outlive it."""
    metadata = load(client, name)["metadata"]
    parent, sequence = metadata["current-snapshot-id"], metadata["last-sequence-number"] + 1
    list_ = touch(f"{metadata['location']}/metadata/staged.avro")
    staged = snapshot(client, list_, id=999, sequence=sequence, parent_snapshot_id=parent)
    committed(client, staged, {"action": "remove-snapshots", "snapshot-ids": [999]}, name=name)


def rename(client: AppClient, source: str, destination: str) -> None:
    names = {"source": source, "destination": destination}
    body = {role: {"namespace": ["a"], "name": name} for role, name in names.items()}
    assert client.post("/v1/tables/rename", body).status_code == 204


def delete_all(client: AppClient, name: str = "t") -> int:
    return commit_change(client, change("delete", delete_row_filter=True), name=name).status_code


def append(client: AppClient, name: str, location: str, file: str) -> int:
    files = [data_file(f"{location}/data/{file}.parquet")]
    return commit_change(client, change("append", add_data_files=files), name=name).status_code


def load_one(cache: HeadCache, target: Target = T) -> Head:
    (head,) = cache.load((target,))
    assert head is not None
    return head


def ids_of(head: Head) -> list[int]:
    return [snapshot.snapshot_id for snapshot in head.metadata.iter_snapshots()]


def test_a_head_pushed_out_while_the_store_is_read_is_still_whole(
    replica: AppClient, store: InterruptedStore
) -> None:
    cache = cache_over(store, limit_bytes=1)
    load_one(cache)
    add_snapshot(replica)
    store.after_load = [lambda: load_one(cache, OTHER)]
    assert ids_of(load_one(cache)) == ids(replica)


def test_a_head_shortened_while_the_store_is_read_is_the_one_that_was_read(
    replica: AppClient, store: InterruptedStore
) -> None:
    cache = cache_over(store)
    load_one(cache)
    add_snapshot(replica)
    before = ids(replica)

    def shorten() -> None:
        remove_oldest(replica)
        load_one(cache)

    store.after_load = [shorten]
    assert ids_of(load_one(cache)) == before
    assert ids_of(load_one(cache)) == ids(replica) == before[1:]


def test_a_removal_that_another_thread_saw_first_does_not_hide_the_next_one(
    replica: AppClient, store: InterruptedStore
) -> None:
    cache = cache_over(store)
    base = load_one(cache)
    remove_oldest(replica)  # let this be our own swap, which another thread loads before we remember it
    swapped = load_one(cache_over(store))
    load_one(cache)
    cache.put_swapped(T, swapped, base=base, removes=True)
    remove_oldest(replica)
    assert ids_of(load_one(cache)) == ids(replica)


def test_a_swapped_head_is_remembered_with_its_epoch(replica: AppClient, store: InterruptedStore) -> None:
    cache = cache_over(store)
    base = load_one(cache)
    remove_oldest(replica)
    swapped = load_one(cache_over(store))
    cache.put_swapped(T, swapped, base=base, removes=True)
    assert load_one(cache) is swapped
    add_snapshot(replica)
    remove_oldest(replica)
    assert ids_of(load_one(cache)) == ids(replica)


def test_a_replica_that_added_and_removed_a_snapshot_at_once_sees_what_others_add(
    replica: AppClient, store: InterruptedStore, tmp_path: Path
) -> None:
    with app_client(tmp_path, store=store.real) as first:
        stage_and_remove(first)
        with first.services.gates.hold(
            (T,)
        ):  # the group is over: the answer comes before the head is remembered
            (head,) = first.services.heads.peek((T,)) or (None,)
        (entry,) = store.load_entries((T,))
        assert head is not None
        assert entry is not None
        metadata = head.metadata
        assert entry.next_positions == {
            Stream.SNAPSHOTS: metadata.snapshots.next_position,
            Stream.HISTORY: metadata.history.next_position,
        }
        for _ in range(2):
            add_snapshot(replica)
            assert ids(first) == ids(replica)


def test_a_commit_after_an_abandoned_snapshot_keeps_what_others_added(
    replica: AppClient, store: InterruptedStore, tmp_path: Path
) -> None:
    location = created(replica, "u")["metadata"]["location"]

    with app_client(tmp_path, store=store.real) as first:
        assert append(first, "u", location, "1") == 200
        stage_and_remove(first, "u")
        assert append(replica, "u", location, "2") == 200
        assert append(first, "u", location, "3") == 200
        assert live_paths(replica, "u") == ["1.parquet", "2.parquet", "3.parquet"]


def test_a_store_that_is_behind_the_cache_is_read_whole(replica: AppClient, store: InterruptedStore) -> None:
    cache = cache_over(store)
    head = load_one(cache)
    ahead = replace(head.metadata.snapshots, next_position=head.metadata.snapshots.next_position + 2)
    metadata = replace(head.metadata, snapshots=ahead)
    cache.put(T, replace(head, metadata=metadata), epoch=0)
    add_snapshot(replica)
    assert ids_of(load_one(cache)) == ids(replica)


def test_a_head_loaded_under_a_new_name_answers_no_longer_to_the_old_one(
    replica: AppClient, store: InterruptedStore
) -> None:
    cache = cache_over(store)
    head = load_one(cache)
    rename(replica, "t", "t_old")
    moved = load_one(cache, (("a",), "t_old"))
    assert moved.id == head.id
    assert cache.peek((T,)) is None
    assert cache.peek(((("a",), "t_old"),)) == (moved,)


def test_a_late_load_under_the_old_name_does_not_bring_it_back(
    replica: AppClient, store: InterruptedStore
) -> None:
    cache = cache_over(store)

    def move() -> None:
        rename(replica, "t", "t_old")
        load_one(cache, (("a",), "t_old"))

    store.after_load = [move]
    load_one(cache)
    assert cache.peek((T,)) is None


def test_a_name_at_which_nothing_stands_is_forgotten(replica: AppClient, store: InterruptedStore) -> None:
    cache = cache_over(store)
    load_one(cache)
    size_bytes = cache.size_bytes
    assert replica.delete(path()).status_code == 204
    assert cache.load((T,)) == (None,)
    assert cache.peek((T,)) is None
    assert size_bytes > cache.size_bytes == 0


def test_a_name_that_another_table_took_is_that_tables(replica: AppClient, store: InterruptedStore) -> None:
    cache = cache_over(store)
    old = load_one(cache)
    rename(replica, "t", "t_old")
    created(replica, "t")
    new = load_one(cache)
    assert new.id != old.id
    assert cache.peek((T,)) == (new,)
    assert cache.size_bytes == new.metadata.size_bytes()
    load_one(cache, (("a",), "t_old"))
    assert cache.peek((T,)) == (new,)


def test_heads_pushed_out_take_their_names_along(replica: AppClient, store: InterruptedStore) -> None:
    cache = cache_over(store, limit_bytes=1)
    load_one(cache)
    other = load_one(cache, OTHER)
    assert cache.peek((T,)) is None
    assert cache.size_bytes == other.metadata.size_bytes()
    assert ids_of(load_one(cache)) == ids(replica)


def test_a_commit_to_the_old_name_of_a_renamed_table_finds_nothing(replica: AppClient) -> None:
    location = created(replica, "u")["metadata"]["location"]
    assert append(replica, "u", location, "1") == 200
    rename(replica, "u", "u_old")
    load(replica, "u_old")
    assert append(replica, "u", location, "2") == 404
    assert live_paths(replica, "u_old") == ["1.parquet"]


@pytest.mark.parametrize("way", ["rename", "drop", "unregister"])
def test_a_replica_forgets_a_name_that_it_takes_away(replica: AppClient, way: str) -> None:
    heads = replica.services.heads
    load(replica)
    assert heads.peek((T,)) is not None
    if way == "rename":
        rename(replica, "t", "t_old")
    else:
        body = {"namespace": ["a"], "name": "t"}
        answer = replica.delete(path()) if way == "drop" else replica.post(f"{path()}/unregister", body)
        assert answer.status_code in (200, 204), answer.text
    assert heads.peek((T,)) is None


def test_a_delete_goes_to_the_table_that_took_the_name(replica: AppClient) -> None:
    first, second = (created(replica, name)["metadata"]["location"] for name in ("u", "u_new"))
    assert append(replica, "u", first, "old") == append(replica, "u_new", second, "new") == 200
    rename(replica, "u", "u_bak")
    load(replica, "u_bak")
    rename(replica, "u_new", "u")
    assert delete_all(replica, "u") == 200
    assert (live_paths(replica, "u"), live_paths(replica, "u_bak")) == ([], ["old.parquet"])


def test_a_delete_goes_to_the_table_that_took_the_name_at_another_replica(
    replica: AppClient, store: InterruptedStore, tmp_path: Path
) -> None:
    with app_client(tmp_path, store=store.real) as second:
        assert append(replica, "u", created(replica, "u")["metadata"]["location"], "old") == 200
        load(second, "u")
        rename(replica, "u", "u_bak")
        assert append(replica, "u", created(replica, "u")["metadata"]["location"], "new") == 200
        load(second, "u_bak")
        assert delete_all(second, "u") == 200
        assert (live_paths(replica, "u"), live_paths(replica, "u_bak")) == ([], ["old.parquet"])


def made_head(id_: str, version: int, *, snapshots: int = 0) -> Head:
    return Head(id_, version, table(snapshots=snapshots), f"s3://{id_}/{version}.json", None)


def remembered(cache: HeadCache, *targets: Target) -> list[Head | None]:
    return [(cache.peek((target,)) or (None,))[0] for target in targets]


def test_a_swapped_head_is_counted_and_pushed_out_as_one_that_was_put(store: InterruptedStore) -> None:
    first, second, other = made_head("t", 1), made_head("t", 2, snapshots=9), made_head("o", 1)
    both = second.metadata.size_bytes() + other.metadata.size_bytes()
    for limit_bytes in (both, both - 1):
        by_swap, by_put = (cache_over(store, limit_bytes=limit_bytes) for _ in range(2))
        for cache in (by_swap, by_put):
            cache.put(T, first, epoch=0)
            cache.put(OTHER, other, epoch=0)
        by_swap.put_swapped(T, second, base=first, removes=False)
        by_put.put(T, second, epoch=0)
        assert by_swap.size_bytes == by_put.size_bytes
        expected = [second, other if limit_bytes == both else None]
        assert remembered(by_swap, T, OTHER) == remembered(by_put, T, OTHER) == expected


def test_a_swapped_head_has_the_name_that_it_was_swapped_at(store: InterruptedStore) -> None:
    cache, first, second = cache_over(store), made_head("t", 1), made_head("t", 2)
    cache.put(OTHER, first, epoch=0)
    cache.put_swapped(T, second, base=first, removes=False)
    assert remembered(cache, T, OTHER) == [second, None]
    assert cache.peek((T, OTHER)) is None
    assert cache.peek((T, T)) == (second, second)


def test_a_checkpoint_that_was_noted_meanwhile_stays_with_the_next_head(store: InterruptedStore) -> None:
    cache, first, second = cache_over(store), made_head("t", 1), made_head("t", 2)
    noted = replace(first, checkpoint=metadata_file(1))
    cache.put(T, noted, epoch=0)
    cache.put_swapped(T, second, base=first, removes=False)
    assert remembered(cache, T) == [replace(second, checkpoint=metadata_file(1))]
    cache.put_swapped(T, made_head("t", 3), base=first, removes=False)  # a base that is no longer remembered
    assert remembered(cache, T) == [replace(second, checkpoint=metadata_file(1))]
