"""Read ahead at start: the heads of the tables that were changed last, and what their last snapshots brought.

A change whose window holds a thousand commits is then judged as fast right after a restart as later. From the store,
but for the newest manifest list of each table. And each of them is judged once, by a filter that nobody asked for: code
that runs for the first time takes twice as long. What fails here fails nothing: it is read when it is needed.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from itertools import islice

import msgspec

from headgate.core.build import PlanReply
from headgate.core.change import Append, NoAddedDataFiles
from headgate.core.intake import take_in
from headgate.core.plan import judge_only
from headgate.core.table import Snapshot, TableMetadata
from headgate.core.window import ReadChanges, ReadManifestList, ReadOwn, find_list
from headgate.errors import HeadgateError
from headgate.service.logs import log
from headgate.service.manifest_store import ManifestStore
from headgate.service.services import Services
from headgate.store.base import EntryHeader

_TABLES_MAX = 64
_VALUES: dict[str, object] = {"int": 0, "long": 0, "string": ""}  # of columns that most tables have
_SNAPSHOTS_MAX = 1000  # of each table: longer windows are rare, and read when they are asked for


def warm_up(services: Services, *, budget_s: float) -> int:
    """Read until all is read or the time is over, which is looked at between tables; how many tables were."""
    deadline, count = time.monotonic() + budget_s, 0
    for header in _find_tables(services) if budget_s else ():
        if time.monotonic() > deadline:
            break
        try:
            _read_ahead(services, header)
            count += 1
        except (HeadgateError, msgspec.MsgspecError) as error:  # the latter: a footprint that is damaged
            table = ".".join((*header.namespace, header.name))
            log(logging.WARNING, "a table was not read ahead", table=table, error=str(error))
    return count


def _find_tables(services: Services) -> list[EntryHeader]:
    try:
        return services.store.recent_tables(limit=_TABLES_MAX)
    except HeadgateError as error:
        log(logging.WARNING, "nothing was read ahead", error=str(error))
        return []


def _read_ahead(services: Services, header: EntryHeader) -> None:
    (head,) = services.heads.load(((header.namespace, header.name),))
    if head is None or head.metadata.envelope.current_snapshot_id is None:
        return
    walk = head.metadata.walk_back(head.metadata.envelope.current_snapshot_id, until=None)
    snapshots = list(islice(walk, _SNAPSHOTS_MAX))
    if not snapshots:
        return
    services.manifests.read_list(find_list(snapshots[0]))
    if services.manifests.warm_up(snapshots, partial(services.store.load_footprints, header.id)):
        _rehearse(services.manifests, head.metadata, base=snapshots[-1])


def _rehearse(manifests: ManifestStore, table: TableMetadata, *, base: Snapshot) -> None:
    """Judge whether data of some value was added since the base, of which all is remembered. Whatever comes out."""
    columns = [(one.name, one.type) for one in table.schema().fields if isinstance(one.type, str)]
    column, type_ = next((column for column in columns if column[1] in _VALUES), ("", ""))
    if not column:
        return
    wanted = {"type": "eq", "term": column, "value": _VALUES[type_]}
    reads = Append(base_snapshot_id=base.snapshot_id, commit_validations=(NoAddedDataFiles(filter=wanted),))
    judging = judge_only(take_in(reads, table, field=""), table)
    reply: PlanReply = None
    with suppress(StopIteration):
        while True:
            match judging.send(reply):
                case ReadManifestList() as effect:
                    reply = manifests.read_list(effect.location)
                case ReadOwn() as effect:
                    reply = manifests.read_own(effect.snapshots, lambda _: {})
                case ReadChanges() as effect:
                    reply = manifests.find_changes(effect.manifests)
                case _:
                    return
