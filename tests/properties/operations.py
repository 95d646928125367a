"""What writers do: each operation as a meaning for rows, and as the change that a real engine would send.

`after` is the meaning: the rows afterwards, from the rows *now* and the rows that the operation *saw*. A serial
execution sees what is there now; a writer under isolation `snapshot` saw its base. `write` reads a base, makes
files and asks for the validations of its isolation level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headgate.core.change import Append, ChangeUpdate, Delete, Overwrite, Replace, Validation
from headgate.core.isolation import Isolation, Producer, validations
from headgate.core.isolation import Scope as Reads
from headgate.core.manifest import FileContent
from tests.properties.lake import Lake, Row, Seen

State = dict[str, Row]
SERIALIZABLE, SNAPSHOT = Isolation.SERIALIZABLE, Isolation.SNAPSHOT


class LostUpdateError(Exception):
    """A commit wrote rows that somebody else had changed since it read them."""


@dataclass(frozen=True)
class Scope:
    """Which rows: an equality, a range and a limit; each may be left out."""

    cat: str | None = None
    ids: tuple[int, int] | None = None
    amount_max: int | None = None

    def holds(self, row: Row) -> bool:
        """Whether a row is in scope."""
        return (
            (self.cat is None or row.cat == self.cat)
            and (self.ids is None or self.ids[0] <= row.id <= self.ids[1])
            and (self.amount_max is None or row.amount <= self.amount_max)
        )

    def filter(self) -> Any:
        """The scope as an expression of the specification."""
        parts: list[Any] = []
        if self.cat is not None:
            parts.append({"type": "eq", "term": "cat", "value": self.cat})
        if self.ids is not None:
            parts.append({"type": "gt-eq", "term": "id", "value": self.ids[0]})
            parts.append({"type": "lt-eq", "term": "id", "value": self.ids[1]})
        if self.amount_max is not None:
            parts.append({"type": "lt-eq", "term": "amount", "value": self.amount_max})
        whole: Any = True
        for part in parts:
            whole = part if whole is True else {"type": "and", "left": whole, "right": part}
        return whole


@dataclass(frozen=True)
class Operation:
    """One writer's work. `how` is the physical way; `rows` what it brings; `picks` chooses files to compact."""

    kind: str
    how: str = ""
    scope: Scope = Scope()
    rows: tuple[Row, ...] = ()
    isolation: Isolation = SERIALIZABLE
    statistics: bool = True
    scoped: bool = False
    picks: int = 0

    def after(self, now: State, saw: State, lake: Lake) -> State:
        """The rows after this operation on `now`, if it read `saw`. Serially they are the same."""
        brought = {row.tag: row for row in self.rows}
        match self.kind, self.how:
            case "append", _:
                return now | brought
            case "compact", _:
                return now
            case "delete", "keys" | "filter":  # by what is there when it lands
                return {tag: row for tag, row in now.items() if not self.scope.holds(row)}
            case "delete", _:
                gone = self._written(now, saw, lake)
                return {tag: row for tag, row in now.items() if tag not in gone}
            case "update", _:
                return now | {tag: _more(row) for tag, row in self._written(now, saw, lake).items()}
            case "upsert", "keys":
                return {tag: row for tag, row in now.items() if not self._touches(row, lake)} | brought
            case "upsert", _:
                gone = self._written(now, saw, lake)
                return {tag: row for tag, row in now.items() if tag not in gone} | brought
            case "recompute", _:
                made = {tag: _more(row) for tag, row in self._written(now, saw, lake).items()}
                return {tag: row for tag, row in now.items() if not self._touches(row, lake)} | made
        raise AssertionError(self.kind)

    def _written(self, now: State, saw: State, lake: Lake) -> State:
        """The rows that it changes, as it saw them: nobody may have changed them since; deleting twice is fine.

        A DELETE by positions says nothing of new versions: under `snapshot` they are rows that somebody added.
        """
        found = {tag: row for tag, row in saw.items() if self._touches(row, lake)}
        if self.kind == "delete" and self.how == "mor" and lake.variant.version == 2:
            return {tag: row for tag, row in found.items() if now.get(tag) == row}
        for tag, row in found.items():
            deleted_twice = self.kind == "delete" and tag not in now
            if now.get(tag) != row and not deleted_twice:
                raise LostUpdateError(f"{self.kind} wrote {row}, which is {now.get(tag)} by now")
        return found

    def _touches(self, row: Row, lake: Lake) -> bool:
        if self.kind == "upsert":
            return (row.id, row.cat) in {(new.id, new.cat) for new in self.rows}
        if self.kind == "recompute" and self.how == "partition":
            # The partitions of the scope's category and lowest id, whatever else is in them.
            ids = self.scope.ids or (0, 0)
            wanted = lake.variant.partition_of(Row("", ids[0], self.scope.cat or "a", 0))
            return lake.variant.partition_of(row) == wanted
        return self.scope.holds(row)

    # --- as a change --------------------------------------------------------------------------------------

    def write(self, lake: Lake, base: int | None) -> ChangeUpdate | None:
        """Read the base, write files, and say what changed; None when there is nothing to do."""
        seen = lake.read(base)
        hits = [one for one in seen if self._touches(one.row, lake)]
        match self.kind, self.how:
            case "append", _:
                files = lake.put_data(self.rows, statistics=self.statistics)
                return Append(add_data_files=files, base_snapshot_id=base)
            case "delete", "filter":
                return Delete(delete_row_filter=self.scope.filter(), base_snapshot_id=base)
            case "delete", "keys":
                ids = self.scope.ids or (0, 0)
                keys = [(id_, str(self.scope.cat)) for id_ in range(ids[0], ids[1] + 1)]
                return Delete(add_delete_files=lake.put_keys(keys), base_snapshot_id=base)
            case "upsert", "keys":
                return Overwrite(
                    add_data_files=lake.put_data(self.rows, statistics=self.statistics),
                    add_delete_files=lake.put_keys([(row.id, row.cat) for row in self.rows]),
                    base_snapshot_id=base,
                )
            case "compact", _:
                return self._compact(lake, base, seen)
            case "recompute", _:
                return self._recompute(lake, base, hits)
            case _, "cow":
                return self._copy_on_write(lake, base, seen, hits)
            case _, "mor":
                return self._merge_on_read(lake, base, hits)
        raise AssertionError(self.kind)

    def _read_filter(self) -> Any:
        if self.kind != "upsert":
            return self.scope.filter()
        return {"type": "in", "term": "id", "values": sorted({row.id for row in self.rows})}

    def _copy_on_write(
        self, lake: Lake, base: int | None, seen: list[Seen], hits: list[Seen]
    ) -> ChangeUpdate | None:
        paths = {hit.path for hit in hits}
        kept = [one.row for one in seen if one.path in paths and one not in hits]
        if self.kind == "update":
            kept += [_more(hit.row) for hit in hits]
        files = lake.put_data([*kept, *self.rows], statistics=self.statistics)
        if not paths and not files:
            return None
        removed = tuple(sorted(paths))
        reads = Reads(conflict_filter=self._read_filter(), removed_data=removed)
        action: Any = Overwrite if files else Delete
        made: ChangeUpdate = action(
            add_data_files=files,
            remove_data_files=removed,
            base_snapshot_id=base,
            commit_validations=self._checks(Producer.OVERWRITE, reads),
        )
        return made

    def _merge_on_read(self, lake: Lake, base: int | None, hits: list[Seen]) -> ChangeUpdate | None:
        if not hits:
            return None
        places = {(hit.path, hit.position) for hit in hits}
        paths = tuple(sorted({hit.path for hit in hits}))
        old = {path: file for path, file in lake.vectors(base).items() if path in paths}
        for file in old.values():
            places |= lake.positions[file.file_path]
        deletes = lake.put_positions(places, scoped=self.scoped)
        data = lake.put_data([_more(hit.row) for hit in hits]) if self.kind == "update" else ()
        removed = tuple(sorted(file.file_path for file in old.values()))
        reads = Reads(
            conflict_filter=self._read_filter(),
            removed_deletes=removed,
            referenced_data=paths,
            vectors_for=paths if lake.variant.version >= 3 else (),
        )
        producer = Producer.ROW_UPDATE if self.kind == "update" else Producer.ROW_DELETE
        action: Any = Overwrite if data else Delete
        made: ChangeUpdate = action(
            add_data_files=data,
            add_delete_files=deletes,
            remove_delete_files=removed,
            base_snapshot_id=base,
            commit_validations=self._checks(producer, reads),
        )
        return made

    def _compact(self, lake: Lake, base: int | None, seen: list[Seen]) -> ChangeUpdate | None:
        snapshot = None if base is None else lake.table.find_snapshot(base)
        live = sorted(entry.file.file_path for _, entry in lake.entries(base) if _is_data(entry.file.content))
        paths = tuple(path for n, path in enumerate(live) if self.picks >> n & 1)
        if snapshot is None or not paths:
            return None
        files = lake.put_data([one.row for one in seen if one.path in paths], statistics=self.statistics)
        keeps_number = self.how == "keeps number"
        reads = Reads(removed_data=paths, keeps_sequence_number=keeps_number)
        return Replace(
            add_data_files=files,
            remove_data_files=paths,
            add_data_files_sequence_number=snapshot.sequence_number if keeps_number else None,
            base_snapshot_id=base,
            commit_validations=self._checks(Producer.REWRITE, reads),
        )

    def _recompute(self, lake: Lake, base: int | None, hits: list[Seen]) -> ChangeUpdate | None:
        if not hits:
            return None
        files = lake.put_data([_more(hit.row) for hit in hits], statistics=self.statistics)
        if self.how == "partition":
            key = lake.key_of(lake.variant.partition_of(hits[0].row))
            wire = {"spec-id": key.spec_id, "partition": list(key.partition)}
            checks = self._checks(
                Producer.REPLACE_PARTITIONS, Reads(partitions=(wire,) if key.partition else ())
            )
            what: dict[str, Any] = {"drop_partitions": (key,)}
        else:
            checks = self._checks(Producer.OVERWRITE, Reads(row_filter=self.scope.filter()))
            what = {"delete_row_filter": self.scope.filter()}
        return Overwrite(add_data_files=files, base_snapshot_id=base, commit_validations=checks, **what)

    def _checks(self, producer: Producer, reads: Reads) -> tuple[Validation, ...]:
        return msgspec.convert(validations(producer, self.isolation, reads), tuple[Validation, ...])


def _more(row: Row) -> Row:
    return row._replace(amount=row.amount + 1)


def _is_data(content: FileContent) -> bool:
    return content is FileContent.DATA
