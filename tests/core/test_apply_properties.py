"""Random requests: one by one or at once the same table, always a table that can be stored and read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.apply import apply
from headgate.core.table import MAIN, Envelope, TableMetadata
from headgate.core.updates import (
    AddEncryptionKey,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AssignUuid,
    RemoveEncryptionKey,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetStatistics,
    TableUpdate,
    UpgradeFormatVersion,
)
from headgate.errors import HeadgateError
from headgate.format.table_metadata import decode_envelope, decode_metadata, encode_envelope, encode_parts
from tests.core.builders import (
    COLUMNS,
    T0,
    UUID,
    column,
    encryption_key,
    list_of,
    order,
    part,
    partition_statistics,
    point,
    schema,
    snapshot,
    sort,
    spec,
    statistics,
    struct,
    table,
)

NOW = T0 + 30_000
BASES = [table(version=version, snapshots=n) for version in (1, 2, 3) for n in (0, 3)]
NAMES = st.sampled_from(["a", "b", "city", "id", "", "x.y", "city_bucket"])
SNAPSHOT_IDS = st.integers(-1, 8)
SMALL = st.integers(-2, 4)
LONGS = st.one_of(st.integers(0, 60), st.sampled_from([2**63 - 1, 2**62]))
TYPES = st.sampled_from(
    ["long", "string", "double", "variant", "nope", "unknown", struct(column(9, "x")), list_of("int", 8)]
)
TRANSFORMS = st.sampled_from(["identity", "void", "bucket[4]", "day", "truncate[3]", "zorder", "bucket[0]"])
FIELDS = st.builds(
    column,
    st.integers(-1, 6) | st.just(2**31 - 1),
    NAMES,
    TYPES,
    required=st.booleans(),
    doc=st.none() | NAMES,
)
SCHEMAS = st.builds(
    schema,
    st.just(COLUMNS[0]) | FIELDS,
    FIELDS,
    identifiers=st.just(()) | st.tuples(st.integers(0, 4)),
) | st.just(schema(*COLUMNS, column(4, "extra")))
SPECS = st.lists(
    st.builds(
        part,
        st.none() | st.integers(0, 6),
        TRANSFORMS,
        st.none() | NAMES,
        field_id=st.none() | st.integers(998, 1003) | st.just(2**31 - 1),
        source_ids=st.just(()) | st.just((1,)),
    ),
    max_size=2,
).map(lambda fields: spec(*fields))
ORDERS = st.lists(
    st.builds(sort, st.none() | st.integers(0, 5), TRANSFORMS, direction=st.sampled_from(["asc", "up"])),
    max_size=2,
).map(lambda fields: order(*fields))
SNAPSHOTS = st.builds(
    snapshot,
    st.integers(1, 8),
    version=st.sampled_from([1, 2, 3]),
    timestamp_ms=st.integers(T0 - 1000, NOW) | st.sampled_from([-1, 0, 2**63 - 1]),
    sequence_number=LONGS,
    parent_snapshot_id=st.none() | SNAPSHOT_IDS,
    first_row_id=st.none() | LONGS,
    added_rows=st.none() | LONGS,
    schema_id=st.none() | SMALL,
)
REFS = st.builds(
    point,
    st.sampled_from([MAIN, "b", "t", ""]),
    SNAPSHOT_IDS,
    st.sampled_from(["branch", "tag", "Branch", "x"]),
    min_snapshots_to_keep=st.none() | SMALL,
)
UPDATES: st.SearchStrategy[TableUpdate] = st.one_of(
    st.builds(AssignUuid, uuid=st.sampled_from([UUID, "x"])),
    st.builds(UpgradeFormatVersion, format_version=SMALL),
    st.builds(AddSchema, schema=SCHEMAS, last_column_id=st.none() | st.integers(0, 9)),
    st.builds(SetCurrentSchema, schema_id=SMALL),
    st.builds(AddSpec, spec=SPECS),
    st.builds(SetDefaultSpec, spec_id=SMALL),
    st.builds(AddSortOrder, sort_order=ORDERS),
    st.builds(SetDefaultSortOrder, sort_order_id=SMALL),
    st.builds(AddSnapshot, snapshot=SNAPSHOTS),
    REFS,
    st.builds(RemoveSnapshots, snapshot_ids=st.tuples(SNAPSHOT_IDS)),
    st.builds(RemoveSnapshotRef, ref_name=st.sampled_from([MAIN, "b", "t"])),
    st.builds(SetLocation, location=st.sampled_from(["", "file:///w/t", "file:///w/u"])),
    st.builds(SetProperties, updates=st.dictionaries(NAMES, NAMES, max_size=2)),
    st.builds(
        SetProperties,
        updates=st.builds(
            lambda v: {"write.metadata.previous-versions-max": v}, st.sampled_from(["0", "9" * 5000, "x"])
        ),
    ),
    st.builds(RemoveProperties, removals=st.tuples(NAMES)),
    st.builds(
        SetStatistics, statistics=st.builds(statistics, SNAPSHOT_IDS), snapshot_id=st.none() | SNAPSHOT_IDS
    ),
    st.builds(RemoveStatistics, snapshot_id=SNAPSHOT_IDS),
    st.builds(SetPartitionStatistics, partition_statistics=st.builds(partition_statistics, SNAPSHOT_IDS)),
    st.builds(RemovePartitionStatistics, snapshot_id=SNAPSHOT_IDS),
    st.builds(RemovePartitionSpecs, spec_ids=st.tuples(SMALL)),
    st.builds(RemoveSchemas, schema_ids=st.tuples(SMALL)),
    st.builds(AddEncryptionKey, encryption_key=st.builds(encryption_key, NAMES, NAMES)),
    st.builds(RemoveEncryptionKey, key_id=NAMES),
)


def attempt(base: TableMetadata | None, *updates: TableUpdate) -> TableMetadata | None:
    """The table after the request, None when it was refused; anything but our own errors is a failure."""
    try:
        return apply(base, updates, now_ms=NOW) or base
    except HeadgateError:
        return None


def check_readable(metadata: TableMetadata) -> None:
    assert decode_envelope(encode_envelope(metadata.envelope)) == metadata.envelope
    again = decode_metadata(b"".join(encode_parts(metadata)), location="x", uuid=UUID)
    assert again.envelope == metadata.envelope
    assert list(again.iter_snapshots()) == list(metadata.iter_snapshots())
    assert list(again.iter_history()) == list(metadata.iter_history())


def check_sound(metadata: TableMetadata) -> None:
    envelope = metadata.envelope
    main = envelope.refs.get(MAIN)
    assert envelope.current_snapshot_id == (None if main is None else main.snapshot_id)
    assert all(ref.snapshot_id in metadata.snapshots for ref in envelope.refs.values())
    times = [entry.timestamp_ms for entry in metadata.iter_history()]
    assert all(later - earlier >= -60_000 for earlier, later in pairwise(times))
    assert not times or envelope.last_updated_ms >= times[-1]
    history = [entry.snapshot_id for entry in metadata.iter_history()]
    if main is not None:
        assert history[-1] == main.snapshot_id
    for several in (
        [one.schema_id for one in envelope.schemas],
        [one.spec_id for one in envelope.partition_specs],
        [one.order_id for one in envelope.sort_orders],
    ):
        assert len(several) == len(set(several))
    for one in envelope.partition_specs:
        numbers = [field.field_id for field in one.fields]
        assert None not in numbers
        assert len(numbers) == len(set(numbers))


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(BASES) | st.none(), st.lists(UPDATES, max_size=6))
def test_any_well_typed_request_gives_a_sound_table_or_one_of_our_refusals(
    base: TableMetadata | None, updates: list[TableUpdate]
) -> None:
    made = attempt(base, *updates)
    if made is not None and made is not base:
        check_sound(made)
        check_readable(made)


def comparable(metadata: TableMetadata) -> dict[str, Any]:
    # Time and the metadata log count commits; both are the same here but need not be.
    dropped = {"last_updated_ms", "metadata_log"}
    names = [name for name in Envelope.__struct_fields__ if name not in dropped]
    return {name: getattr(metadata.envelope, name) for name in names}


def options(head: TableMetadata) -> list[tuple[TableUpdate, ...]]:
    """Requests that a careful client, who has just read this head, may send."""
    envelope = head.envelope
    version, there = envelope.format_version, [item.key for item in head.snapshots]
    new = max((*there, 0)) + 1
    numbers: dict[str, Any] = {
        "schema_id": envelope.current_schema_id,
        "sequence_number": 0 if version == 1 else envelope.last_sequence_number + 1,
        "timestamp_ms": envelope.last_updated_ms,
    }
    if version >= 3:
        numbers |= {"first_row_id": envelope.next_row_id, "added_rows": 5}
    added = AddSnapshot(snapshot=snapshot(new, parent_snapshot_id=envelope.current_snapshot_id, **numbers))
    used = {ref.snapshot_id for ref in envelope.refs.values()}
    wider = schema(*head.schema().fields, column(envelope.last_column_id + 1))
    return [
        (added, point(MAIN, new)),
        (added, point("b", new)),
        (added,),
        *((point(name, id_),) for name in (MAIN, "b") for id_ in there[-3:]),
        *((point("t", id_, "tag"),) for id_ in there[:1]),
        *((RemoveSnapshotRef(ref_name=name),) for name in envelope.refs),
        *((RemoveSnapshots(snapshot_ids=(id_,)),) for id_ in there if id_ not in used),
        (AddSchema(schema=wider), SetCurrentSchema(schema_id=-1)),
        (AddSchema(schema=schema()), SetCurrentSchema(schema_id=-1)),
        (AddSpec(spec=spec(part(3))), SetDefaultSpec(spec_id=-1)),
        (AddSpec(spec=spec(part(3), part(1, "bucket[4]"))), SetDefaultSpec(spec_id=-1)),
        (AddSortOrder(sort_order=order(sort(1))), SetDefaultSortOrder(sort_order_id=-1)),
        (AddSortOrder(sort_order=order()), SetDefaultSortOrder(sort_order_id=-1)),
        (
            RemoveSchemas(
                schema_ids=tuple({s.schema_id for s in envelope.schemas} - {envelope.current_schema_id})
            ),
        ),
        (SetProperties(updates={"n": str(new)}),),
        *((SetStatistics(statistics=statistics(id_)),) for id_ in there[:2]),
        *((SetPartitionStatistics(partition_statistics=partition_statistics(id_)),) for id_ in there[:2]),
        (UpgradeFormatVersion(format_version=min(3, version + 1)),),
    ]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BASES), st.data())
def test_requests_that_pass_one_by_one_give_the_same_table_at_once(
    base: TableMetadata, data: st.DataObject
) -> None:
    head = base
    sent: list[TableUpdate] = []
    for _ in range(data.draw(st.integers(1, 12), label="requests")):
        request = data.draw(st.sampled_from(options(head)), label="request")
        after = apply(head, request, now_ms=NOW) or head
        check_sound(after)
        head = after
        sent.extend(request)
    whole = attempt(base, *sent)
    assert whole is not None
    assert comparable(whole) == comparable(head)
    assert list(whole.iter_snapshots()) == list(head.iter_snapshots())
    check_sound(whole)
    check_readable(whole)
    if any(isinstance(update, RemoveSnapshots) for update in sent):
        return  # a snapshot that came and went in one request leaves no gap in the history
    # What was current only inside the one request is not history; all else is, in the same order.
    apart, at_once = ([entry.snapshot_id for entry in one.iter_history()] for one in (head, whole))
    rest = iter(apart)
    assert all(id_ in rest for id_ in at_once)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BASES), st.lists(UPDATES, max_size=6))
def test_a_delta_of_the_logs_rebuilds_the_new_head_from_the_old(
    base: TableMetadata, updates: list[TableUpdate]
) -> None:
    made = attempt(base, *updates)
    if made is None:
        return
    for old, new in ((base.snapshots, made.snapshots), (base.history, made.history)):
        delta = new.since(old)
        stored = {item.position: item for item in old if item.position not in delta.removed}
        stored |= {item.position: item for item in delta.added}
        assert [stored[position] for position in sorted(stored)] == list(new)


def test_every_kind_of_update_is_drawn_and_written_as_it_was_read() -> None:
    seen: set[str] = set()

    @settings(max_examples=300, database=None, derandomize=True)
    @given(UPDATES)
    def collect(update: TableUpdate) -> None:
        seen.add(type(update).__name__)
        assert msgspec.json.decode(msgspec.json.encode(update), type=TableUpdate) == update

    collect()
    assert seen == {kind.__name__ for kind in get_args(TableUpdate)}
