"""The bases of values: of those that cross the wire, and of those that a commit makes by the dozen. No behaviour.

Values of the wire are frozen, kebab-case in JSON, defaults left out: msgspec decodes and checks them straight from
bytes and names the JSON path of what is wrong (docs/adr/0001). The others could be frozen dataclasses, but making
one of those takes ten times as long. Frozen values form no cycles, so the garbage collector, which would walk all
that the caches hold again and again, is told to leave them alone. But for those that hold an error (`gc=True`): an error
holds the frames that it was raised through, and they hold the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, make_dataclass
from functools import cache
from typing import Annotated, dataclass_transform

import msgspec

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT_MAX)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=LONG_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, gc=False):
    """A frozen value with kebab-case field names on the wire."""


class _DataclassFields:
    """What `dataclasses.replace` and `fields` ask a class for."""

    def __get__(self, _: object, owner: type[msgspec.Struct]) -> Mapping[str, Field[object]]:
        return _describe(owner)


@cache
def _describe(owner: type[msgspec.Struct]) -> Mapping[str, Field[object]]:
    return {field.name: field for field in fields(make_dataclass(owner.__name__, owner.__struct_fields__))}


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A frozen value that stays inside, and is made with every commit: a dataclass, but for how it is made.

    Where the store keeps one (`format.footprints`), it is an array of its fields in their order.
    """

    __dataclass_fields__ = _DataclassFields()
