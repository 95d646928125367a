"""What one write is to stage: put together to as few rows of `staged_rows` as hold it all. Runs no SQL."""

from __future__ import annotations

from itertools import zip_longest

from headgate.store.base import EntryId, PutEvent, PutFile, PutKey, Reason, Refused
from headgate.store.rows import Row, event_row, file_row, key_row
from headgate.store.sqlite_entries import refuse
from headgate.store.sqlite_facts import FactsRow, Footprints, facts_of

Tag = tuple[EntryId, int, int]  # entry, stream, tag

# The parts of a row, in the order in which `Batch.rows` puts them together.
_PARTS = (
    "key, principal, fingerprint, status, key_body, created_at_ms",
    "sequence, kind, namespace, name, event_entry_id, event_principal, event_key, at_ms, payload",
    "facts_entry_id, snapshot_id, facts_sequence, footprint",
    "a_entry_id, a_stream, a_position, a_key, a_tag, a_body",
    "b_entry_id, b_stream, b_position, b_key, b_tag, b_body",
    "a_location, a_data, a_created_at_ms, a_base, a_tail_bytes",
    "b_location, b_data, b_created_at_ms, b_base, b_tail_bytes",
)
_WIDTHS = [part.count(",") + 1 for part in _PARTS]
_NO_KEY, _NO_EVENT, _NO_FACTS, _NO_ITEM, _, _NO_FILE, _ = [(None,) * width for width in _WIDTHS]

STAGE = f"INSERT INTO staged_rows ({', '.join(_PARTS)}) VALUES ({', '.join('?' * sum(_WIDTHS))})"


class Batch:
    """What one write is to stage."""

    def __init__(self) -> None:
        self.items: list[Row] = []
        self.tags: set[Tag] = set()
        self.keys: dict[tuple[str, str], tuple[int, PutKey]] = {}  # with the indexes of their operations
        self.events: list[PutEvent] = []
        self.footprints: Footprints = {}
        self.files: list[PutFile] = []

    def add_key(self, index: int, put: PutKey) -> Refused | None:
        """Refused if it is here already."""
        pair = (put.record.principal, put.record.key)
        if pair in self.keys:
            return refuse(Reason.KEY_EXISTS, put.record.key)
        self.keys[pair] = (index, put)
        return None

    def rows(self, sequence: int) -> list[Row]:
        """The rows to be staged, if the first event gets this sequence: as few as hold it all."""
        facts: list[FactsRow] = facts_of(self.events, self.footprints, first=sequence)
        if self.footprints:
            facts += [(id, snapshot_id, None, body) for (id, snapshot_id), body in self.footprints.items()]
        files = [file_row(put.file) for put in self.files]
        parts = zip_longest(
            [key_row(put.record) for _, put in self.keys.values()],
            [(number, *event_row(put.event)) for number, put in enumerate(self.events, sequence)],
            facts,
            self.items[::2],
            self.items[1::2],
            files[::2],
            files[1::2],
        )
        return [
            (
                *(key or _NO_KEY),
                *(event or _NO_EVENT),
                *(known or _NO_FACTS),
                *(item or _NO_ITEM),
                *(another_item or _NO_ITEM),
                *(file or _NO_FILE),
                *(another_file or _NO_FILE),
            )
            for key, event, known, item, another_item, file, another_file in parts
        ]
