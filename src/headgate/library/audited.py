"""A table of any PyIceberg catalog as an audit looks at it: its metadata file as it is, and the objects it names.

Reads only.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.typedef import Identifier

from headgate.errors import BadInput, StorageFailed
from headgate.format.table_metadata import inflate
from headgate.library.adapters import to_error
from headgate.library.orphans import see
from headgate.library.pending_files import read_file
from headgate.library.unreached import Seen


class AuditedTable:
    """One table, and its objects by location."""

    def __init__(self, catalog: Catalog, identifier: Identifier) -> None:
        self._catalog, self._identifier = catalog, identifier
        try:
            table = catalog.load_table(identifier)
        except Exception as error:  # outermost edge: of foreign code; a load changes nothing
            raise to_error(error, ".".join(identifier)) from error
        self._io, self.metadata_location = table.io, table.metadata_location

    def see(self) -> Seen:
        """The table as the catalog has it now."""
        return see(self._catalog, self._identifier)

    def metadata(self) -> dict[str, Any]:
        """The metadata file, decoded; BadInput when it is not JSON."""
        location = self.metadata_location
        text = inflate(read_file(self._io, location), location=location)
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadInput(f"not a JSON object: {location} ({error})") from error

    def read(self, location: str, *, limit_bytes: int) -> bytes:
        """The whole object. NotFound, TooLarge or StorageFailed otherwise."""
        return read_file(self._io, location, limit_bytes=limit_bytes)

    def exists(self, location: str) -> bool:
        """Whether the object is there."""
        try:
            return bool(self._io.new_input(location).exists())
        except (OSError, ValueError) as error:
            raise StorageFailed(f"{location}: {error}") from error
