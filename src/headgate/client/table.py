"""One table: load it, change it now or later. Retries are in `resend`; what a change looks like is in `changes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from headgate.client.changes import Changes, File
from headgate.client.feed import SnapshotChanges, read_changes
from headgate.client.keys import new_key
from headgate.client.pending import Pending, async_headers
from headgate.client.resend import Ask, Resender
from headgate.client.results import MAIN, Committed, LoadedTable, minimal_headers, read_committed
from headgate.core.isolation import Wire
from headgate.errors import BadInput, CommitRefused, Retry

_LEVEL_SEPARATOR = "\x1f"
_REFRESHES_MAX = 4

Name = str | Sequence[str]  # "a.b.table", or the levels and the name one by one


class TableClient(Changes[Committed]):
    """A table of the catalog, by name."""

    def __init__(
        self,
        name: Name,
        resender: Resender,
        *,
        pause: Callable[[int], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._commit_one, self._load_properties)
        self.identifier = identifier_of(name)
        self._resender, self._pause, self._now_s = resender, pause, now_s
        self._loaded: LoadedTable | None = None

    def load(self, *, all_snapshots: bool = False) -> LoadedTable:
        """The table as it is now; unless all are wanted, with the snapshots that refs point at only."""
        query = "" if all_snapshots else "?snapshots=refs"
        sure = self._resender.settle(Ask("GET", self._path() + query))
        raw = msgspec.json.decode(sure.answer.body, type=dict[str, Any])
        self._loaded = LoadedTable(raw["metadata"], raw["metadata-location"], raw.get("config") or {})
        return self._loaded

    def commit(
        self,
        updates: Sequence[Mapping[str, Any]],
        *,
        requirements: Sequence[Mapping[str, Any]] = (),
        key: str | None = None,
        fold: bool = False,
    ) -> Committed:
        """Updates as they are, plain ones and changes, all or none; nothing is refreshed on refusal.

        With `fold` an append may share its snapshot with others that arrive together.
        """
        body = {"requirements": list(requirements), "updates": list(updates)}
        return self._post(body, key or new_key(), updates[-1] if updates else {}, fold=fold)

    def changes_of(self, snapshot_id: int) -> SnapshotChanges:
        """The files that a snapshot added and removed; NotFound when it has expired."""
        path = f"{self._path()}/snapshots/{snapshot_id}/changes"

        def load(cursor: str | None) -> Mapping[str, Any]:
            query = "" if cursor is None else f"?cursor={quote(cursor, safe='')}"
            sure = self._resender.settle(Ask("GET", path + query))
            page: dict[str, Any] = msgspec.json.decode(sure.answer.body, type=dict[str, Any])
            return page

        return read_changes(load)

    def later(self) -> Changes[Pending]:
        """The same changes, acknowledged durably at once and made afterwards: each gives a `Pending` to wait for."""
        return Changes(self._commit_later, self._load_properties)

    def stream(
        self,
        files: Sequence[File],
        *,
        branch: str = MAIN,
        summary: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Pending:
        """Have data files added within the table's linger, together with those of others; durable when this returns."""
        said = {"branch": branch if branch != MAIN else None, "summary": summary}
        body = {"files": list(files), **{name: value for name, value in said.items() if value}}
        return self._post_later(f"{self._path()}/append", body, key, {})

    def _commit_later(self, update: Wire, key: str | None) -> Pending:
        return self._post_later(self._path(), {"requirements": [], "updates": [update]}, key, async_headers())

    def _post_later(
        self, path: str, body: Mapping[str, Any], key: str | None, headers: Mapping[str, str]
    ) -> Pending:
        key = key or new_key()
        self._resender.settle(Ask("POST", path, msgspec.json.encode(body), key, headers))
        return Pending(key, self._resender, self._now_s)

    def _commit_one(self, update: Wire, key: str | None) -> Committed:
        """One change. A refusal that a newer head cures is asked for again, if the change has no base of its own.

        A refusal is stored under its key, so the next try has a new one; a key of the caller's stands for one try.
        """
        body = {"requirements": [], "updates": [update]}
        refreshes = 0 if "base-snapshot-id" in update or key is not None else _REFRESHES_MAX
        for attempt in range(1, refreshes + 1):
            try:
                return self._post(body, new_key(), update)
            except CommitRefused as error:
                if error.retry is not Retry.REFRESH:
                    raise
            self._pause(attempt)
            self._refresh()
        return self._post(body, key or new_key(), update)

    def _refresh(self) -> None:
        """Load again, and make sure that it is still the same table: the files were written for that one."""
        before = self._loaded
        after = self.load()
        if before is not None and before.metadata["table-uuid"] != after.metadata["table-uuid"]:
            raise CommitRefused(
                f"another table has this name now: {'.'.join(self.identifier)}; "
                f"was={before.metadata['table-uuid']} is={after.metadata['table-uuid']}"
            )

    def _post(
        self, body: Mapping[str, Any], key: str, update: Mapping[str, Any], *, fold: bool = False
    ) -> Committed:
        headers = minimal_headers(fold=fold)
        ask = Ask("POST", self._path(), msgspec.json.encode(body), key, headers)
        return read_committed(
            self._resender.settle(ask),
            key=key,
            branch=str(update.get("branch", MAIN)),
            stage_only=bool(update.get("stage-only", False)),
        )

    def _load_properties(self) -> Mapping[str, str]:
        return (self._loaded or self.load()).properties

    def _path(self) -> str:
        *levels, name = self.identifier
        return f"/v1/namespaces/{quote(_LEVEL_SEPARATOR.join(levels), safe='')}/tables/{quote(name, safe='')}"


def identifier_of(name: Name) -> tuple[str, ...]:
    """The levels of the namespace and the name of the table. A name with a dot in it comes as a sequence."""
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if len(parts) < 2 or not all(parts):
        raise BadInput(f"table: expected namespace and name, as in a.b.table, got {name!r}", field="table")
    return parts
