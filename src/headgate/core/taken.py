"""A change that is well made, as a value: its files, its filter and its validations fit the table. `intake` makes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.core.change import Action, Validation
from headgate.core.filters import RowFilter
from headgate.core.manifest import ContentFile, ManifestFile, PartitionValue
from headgate.core.value import Record

Partition = tuple[int, tuple[PartitionValue, ...]]  # spec id and values
Identity = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A validation with its scope made ready: a filter, a set of partitions, or neither."""

    validation: Validation
    filter: RowFilter | None = None
    partitions: frozenset[Partition] | None = None

    @property
    def in_scope(self) -> Callable[[ContentFile], bool]:
        """Tells whether a file is something that this validation cares about."""
        if (partitions := self.partitions) is not None:
            return lambda file: partition_of(file) in partitions
        return _is_any if self.filter is None else self.filter.may_match

    @property
    def may_hold(self) -> Callable[[ManifestFile], bool] | None:
        """Tells whether a manifest may list something that this validation cares about; None: every one may."""
        return None if self.filter is None else self.filter.may_hold


def _is_any(_: ContentFile) -> bool:
    return True


class Change(Record):
    """What a writer wants, checked against its table."""

    action: Action
    branch: str
    create_branch: bool
    stage_only: bool
    base_snapshot_id: int | None
    added_data: tuple[ContentFile, ...]
    added_deletes: tuple[ContentFile, ...]
    removed_data: frozenset[str]
    removed_deletes: frozenset[Identity]
    row_filter: RowFilter | None
    drop_partitions: frozenset[Partition]
    data_sequence_number: int | None
    delete_sequence_number: int | None
    summary: Mapping[str, str]
    checks: tuple[Check, ...]
    field: str = ""  # where it stands in its request
    rewrites_manifests: bool = False


def partition_of(file: ContentFile) -> Partition:
    """Which partition a file is in."""
    return partition_key(file.spec_id, file.partition)


def partition_key(spec_id: int, partition: tuple[tuple[int, PartitionValue], ...]) -> Partition:
    """A partition that equals itself: NaN is a value like others here, so it is always the same object."""
    return spec_id, tuple([math.nan if value != value else value for _, value in partition])
