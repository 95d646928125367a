"""Read ahead at start: the heads of the tables that were changed last, and what their last snapshots brought.

A change whose window holds a thousand commits is then judged as fast right after a restart as later. From the store,
but for the newest manifest list of each table. What fails here fails nothing: it is read when it is needed.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from itertools import islice

import msgspec

from headgate.core.window import find_list
from headgate.errors import HeadgateError
from headgate.service.logs import log
from headgate.service.services import Services
from headgate.store.base import EntryHeader

_TABLES_MAX = 64
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
    services.manifests.warm_up(snapshots, partial(services.store.load_footprints, header.id))
