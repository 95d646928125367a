"""Which files a compaction rewrites, and with which others. Pure; sizes and counts in, groups of paths out.

The rules are those of Iceberg's `rewrite_data_files`: a file is taken when it is far from the target size or has
lost many rows to delete files; files of one partition are packed into groups of a bounded size; a group is worth
its while when it has enough files, enough bytes for a full file, or deletes to get rid of.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from pyiceberg.utils.bin_packing import ListPacker

from headgate.errors import BadInput

_SMALL, _LARGE = 0.75, 1.8  # of the target size: outside, a file is rewritten
_FULL = 1.1  # files may come out so much larger, if a small one at the end is saved by it
TARGET_BYTES = 512 * 1024 * 1024
GROUP_BYTES_MAX = 100 * 1024 * 1024 * 1024
FILES_MIN = 5
DELETE_RATIO = 0.3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data file. `place` is its partition; `deleted_rows` those that delete files name, at least."""

    path: str
    place: Hashable
    size_bytes: int
    rows: int
    deleted_rows: int = 0
    is_misplaced: bool = False  # written under a partition spec that the table has no longer


@dataclass(frozen=True, slots=True)
class Sizing:
    """What is worth rewriting."""

    target_bytes: int = TARGET_BYTES
    files_min: int = FILES_MIN
    group_bytes_max: int = GROUP_BYTES_MAX
    delete_ratio: float = DELETE_RATIO
    takes_all: bool = False

    def __post_init__(self) -> None:
        for name in ("target_bytes", "files_min", "group_bytes_max"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name}: expected at least 1, got {getattr(self, name)}", field=name)
        if not 0 < self.delete_ratio <= 1:
            raise BadInput(
                f"delete_ratio: expected above 0 and up to 1, got {self.delete_ratio}", field="delete_ratio"
            )

    def wants(self, file: Candidate) -> bool:
        """Whether a file is not as it should be."""
        is_fitting = _SMALL * self.target_bytes <= file.size_bytes <= _LARGE * self.target_bytes
        return self.takes_all or not is_fitting or file.is_misplaced or self.lost_much(file)

    def lost_much(self, file: Candidate) -> bool:
        """Whether delete files name a large part of the rows."""
        return file.deleted_rows > 0 and file.deleted_rows >= self.delete_ratio * file.rows

    def is_worth(self, group: Sequence[Candidate]) -> bool:
        """Whether rewriting these files together makes something better."""
        total = sum(file.size_bytes for file in group)
        many = len(group) > 1 and (len(group) >= self.files_min or total > self.target_bytes)
        return (
            self.takes_all
            or many
            or total > _LARGE * self.target_bytes
            or any(file.is_misplaced or self.lost_much(file) for file in group)
        )

    def files_out(self, size_bytes: int) -> int:
        """Into how many files so many bytes go."""
        full, rest = divmod(size_bytes, self.target_bytes)
        if full == 0:
            return 1
        if rest > _SMALL * self.target_bytes:
            return int(full) + 1
        if size_bytes / full <= _FULL * self.target_bytes or rest == 0:
            return int(full)
        return int(full) + 1


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition that are rewritten together."""

    files: tuple[Candidate, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the files are."""
        return tuple(file.path for file in self.files)

    @property
    def size_bytes(self) -> int:
        """How much is read."""
        return sum(file.size_bytes for file in self.files)


def find_groups(files: Iterable[Candidate], sizing: Sizing) -> tuple[Group, ...]:
    """The groups, in the order of their first files."""
    places: dict[Hashable, list[Candidate]] = {}
    for file in files:
        if sizing.wants(file):
            places.setdefault(file.place, []).append(file)
    groups = []
    for wanted in places.values():
        packer: ListPacker[Candidate] = ListPacker(
            target_weight=sizing.group_bytes_max, lookback=1, largest_bin_first=False
        )
        for packed in packer.pack(wanted, lambda file: file.size_bytes):
            if sizing.is_worth(packed):
                groups.append(Group(tuple(packed)))
    return tuple(groups)


def find_dangling(
    applies_to: Mapping[Hashable, Set[str]], *, removed: frozenset[str], gone: frozenset[str]
) -> tuple[Hashable, ...]:
    """Delete files that apply to nothing any more once these data files are removed too.

    `applies_to` has the data files of every delete file, as the base saw them; `gone` were removed before. Files that
    came later are younger than every delete of the base, which so applies to none of them.
    """
    return tuple(
        delete for delete, files in applies_to.items() if files & removed and files <= removed | gone
    )
