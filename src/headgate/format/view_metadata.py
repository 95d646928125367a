"""View metadata and commits to views: JSON bytes to values and back. No I/O.

Decoding is for registrations, which bring files that we did not write; it is strict and bounded, and what it
returns is whole: every id that the metadata mentions is in it.
"""

from __future__ import annotations

import gzip

import msgspec

from headgate.core.schema import check_schema
from headgate.core.value import Value
from headgate.core.view import (
    TABLE_ONLY_ACTIONS,
    TABLE_ONLY_REQUIREMENTS,
    VIEW_FORMAT_VERSION,
    ViewMetadata,
    ViewRequirement,
    ViewUpdate,
)
from headgate.core.view_apply import check_representations
from headgate.errors import BadInput, TooLarge
from headgate.format.strict_json import convert_into, decode
from headgate.format.table_metadata import inflate, is_gzipped

VIEW_BYTES_MAX = 32 * 1024 * 1024  # a view is text that people wrote
_ENCODER = msgspec.json.Encoder()
_VIEW = msgspec.json.Decoder(ViewMetadata)
_DEPTH_MAX = 128
_TYPES_OF_FORMAT = 3


class ViewIdentifier(Value, frozen=True):
    """A view by name, as a commit may repeat it."""

    namespace: tuple[str, ...]
    name: str


class ViewCommit(Value, frozen=True):
    """What a client sends to change a view."""

    updates: tuple[ViewUpdate, ...]
    requirements: tuple[ViewRequirement, ...] = ()
    identifier: ViewIdentifier | None = None


def encode_view(view: ViewMetadata) -> bytes:
    """What the store keeps and clients are answered."""
    text = _ENCODER.encode(view)
    if len(text) > VIEW_BYTES_MAX:
        raise TooLarge(
            f"the view's metadata is over {VIEW_BYTES_MAX} bytes", field="updates", limit=VIEW_BYTES_MAX
        )
    return text


def encode_file(view: ViewMetadata) -> bytes:
    """The bytes of a metadata file, gzipped if the view asks for it."""
    text = encode_view(view)
    return gzip.compress(text, compresslevel=1, mtime=0) if is_gzipped(view.properties) else text


def decode_stored(text: bytes) -> ViewMetadata:
    """What `encode_view` made."""
    return _VIEW.decode(text)


def decode_view(data: bytes, *, location: str) -> ViewMetadata:
    """A whole metadata file of another writer; BadInput that names `metadata-location` otherwise."""
    text = inflate(data, location=location)
    if len(text) > VIEW_BYTES_MAX:
        raise TooLarge(f"view metadata is over {VIEW_BYTES_MAX} bytes: {location}", field="metadata-location")
    try:
        view = convert_into(ViewMetadata, decode(text, max_depth=_DEPTH_MAX))
        _check_whole(view)
    except BadInput as error:
        raise BadInput(
            f"invalid view metadata: {location}: {error.message}", field="metadata-location"
        ) from error
    return view


def _check_whole(view: ViewMetadata) -> None:
    if view.format_version != VIEW_FORMAT_VERSION:
        raise BadInput(f"Unsupported format version: {view.format_version}")
    if not view.view_uuid:
        raise BadInput("view-uuid is empty")
    schema_ids = [schema.schema_id for schema in view.schemas]
    version_ids = [version.version_id for version in view.versions]
    for what, ids in (("schema", schema_ids), ("version", version_ids)):
        if len(set(ids)) != len(ids):
            raise BadInput(f"two {what}s have one id")
        if any(id_ < 0 for id_ in ids):
            raise BadInput(f"a {what} has a negative id")
    if view.current_version_id not in version_ids:
        raise BadInput(
            f"Cannot find current version {view.current_version_id} in view versions: {version_ids}"
        )
    for schema in view.schemas:
        check_schema(schema, format_version=_TYPES_OF_FORMAT)
    for version in view.versions:
        if version.schema_id not in schema_ids:
            raise BadInput(f"version {version.version_id} has an unknown schema: {version.schema_id}")
        check_representations(version, field="versions.representations")


def decode_commit(body: object) -> ViewCommit:
    """A commit to a view; what only a table knows is refused by its name."""
    if isinstance(body, dict):
        _refuse_foreign(body, "updates", "action", TABLE_ONLY_ACTIONS)
        _refuse_foreign(body, "requirements", "type", TABLE_ONLY_REQUIREMENTS)
    return convert_into(ViewCommit, body)


def _refuse_foreign(body: dict[str, object], name: str, tag: str, foreign: frozenset[str]) -> None:
    items = body.get(name)
    for at, item in enumerate(items if isinstance(items, list) else ()):
        word = item.get(tag) if isinstance(item, dict) else None
        if isinstance(word, str) and word in foreign:
            raise BadInput(f"{word} is for tables, and this is a view", field=f"{name}[{at}].{tag}")
