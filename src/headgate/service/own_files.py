"""Which files a table may delete: those below its own folders, and below no other's location.

A table's location is its own, because locations do not overlap. The folders that its properties name are not: a
property, or a metadata file from elsewhere, may point into another table. Never deletes outside; what it leaves
is a file too many, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.core.locations import PATH_PROPERTIES
from headgate.core.table import Envelope
from headgate.errors import LocationRefused
from headgate.service.services import Services
from headgate.store.base import EntryHeader, Kind


class OwnFiles:
    """The files of one table. Looks at the other tables once, and only if a file asks for it."""

    def __init__(self, services: Services, envelope: Envelope, *, entry_id: str, exclusive: bool) -> None:
        """`exclusive` says that the table is live, so that nobody else is below its location."""
        properties = envelope.properties
        folders = (envelope.location, *(properties[name] for name in PATH_PROPERTIES if name in properties))
        allowed = [services.locations.allow(folder, field="location") for folder in folders]
        self._services = services
        self._id = entry_id
        self._prefixes = tuple(f"{folder}/" for folder in allowed)
        self._exclusive = self._prefixes[:1] if exclusive else ()
        self._others: frozenset[str] | None = None

    def delete(self, files: Iterable[str]) -> int:
        """Delete those of the files that are the table's own; returns how many were there."""
        allowed = (self._find_allowed(file) for file in sorted(set(files)))
        return self._services.files.delete(
            [file for file in allowed if file is not None and self._owns(file)]
        )

    def _owns(self, file: str) -> bool:
        if not file.startswith(self._prefixes):
            return False
        return file.startswith(self._exclusive) or not self._is_anothers(file)

    def _is_anothers(self, file: str) -> bool:
        if self._others is None:
            headers = self._services.store.iter_headers()
            self._others = frozenset(header.location for header in headers if self._is_other(header))
        parts = file.split("/")
        return any("/".join(parts[:i]) in self._others for i in range(3, len(parts)))

    def _is_other(self, header: EntryHeader) -> bool:
        # A view may stand anywhere, also above a table: that makes the table's files no less its own.
        above = self._prefixes[0].startswith(f"{header.location}/")
        return header.id != self._id and not (header.kind is Kind.VIEW and above)

    def _find_allowed(self, file: str) -> str | None:
        try:
            return self._services.locations.allow_file(file, field="file")
        except LocationRefused:
            return None
