"""The base of every value that crosses the wire: frozen, kebab-case in JSON, defaults left out.

msgspec decodes and checks these straight from bytes and names the JSON path of what is wrong
(docs/adr/0001). Holds no behaviour.
"""

from __future__ import annotations

from typing import Annotated, dataclass_transform

import msgspec

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT_MAX)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=LONG_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A frozen value with kebab-case field names on the wire."""
