"""Where things are put: default locations of tables and views, names of metadata files."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.core.names import path_segment
from headgate.core.table import TableMetadata
from headgate.format.table_metadata import is_gzipped

METADATA_PATH = "write.metadata.path"


def default_location(
    root: str,
    namespace: tuple[str, ...],
    name: str,
    uuid: str,
    namespace_properties: Mapping[str, str],
) -> str:
    """A place of its own for every table: the suffix keeps a table made anew apart from files of the old one."""
    parent = namespace_properties.get("location")
    if parent is None:
        parent = "/".join((root, *(path_segment(level) for level in namespace)))
    return f"{parent.rstrip('/')}/{path_segment(name)}-{uuid[-8:]}"


def metadata_folder(location: str, properties: Mapping[str, str]) -> str:
    """Where a table's metadata files, manifest lists and manifests are put."""
    return properties.get(METADATA_PATH, f"{location.rstrip('/')}/metadata").rstrip("/")


def folder_of(metadata: TableMetadata) -> str:
    """The same, of a table."""
    return metadata_folder(metadata.envelope.location, metadata.envelope.properties)


def metadata_location(location: str, properties: dict[str, str], *, version: int, uuid: str) -> str:
    """The name of the metadata file of a version; unique for every attempt."""
    folder = metadata_folder(location, properties)
    middle = ".gz" if is_gzipped(properties) else ""
    return f"{folder}/{version - 1:05d}-{uuid}{middle}.metadata.json"
