"""The options of `format("headgate")`, read once: an unknown or missing one is named, none is ignored in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.client.results import MAIN
from headgate.errors import BadInput
from headgate.spark.lake import Lake, LakeTable

# What Spark itself puts among a source's options.
_SPARKS_OWN = frozenset(("checkpointlocation", "path", "queryname"))
_STORAGE = ("s3.", "client.", "py-io-impl")
_SUMMARY = "summary."
_CATALOG = "catalog."
_WORDS = (
    "uri",
    "table",
    "catalog",
    "token",
    "credential",
    "branch",
    "key",
    "replace-partitions",
    "fold",
    "snapshot-id",
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a job says about the table that it reads or writes."""

    table: LakeTable
    branch: str = MAIN
    key: str | None = None
    replace_partitions: bool = False
    fold: bool = False
    snapshot_id: int | None = None
    summary: Mapping[str, str] | None = None


def read_options(said: Mapping[str, str]) -> SourceOptions:
    """The options as values; BadInput names the one at fault."""
    options = {name.lower(): value for name, value in said.items()}
    storage = {name: value for name, value in options.items() if name.startswith(_STORAGE)}
    summary = {
        name.removeprefix(_SUMMARY): value for name, value in options.items() if name.startswith(_SUMMARY)
    }
    properties = {
        name.removeprefix(_CATALOG): value for name, value in options.items() if name.startswith(_CATALOG)
    }
    known = {
        *_WORDS,
        *_SPARKS_OWN,
        *storage,
        *(f"{_SUMMARY}{name}" for name in summary),
        *(f"{_CATALOG}{name}" for name in properties),
    }
    if unknown := sorted(set(options) - known):
        raise BadInput(
            f"option {unknown[0]}: not known; known are {', '.join(_WORDS)}, catalog.*, summary.* and s3.*",
            field=unknown[0],
        )
    return SourceOptions(
        table=_read_lake(options, storage, properties).table(_needed(options, "table")),
        branch=options.get("branch", MAIN),
        key=options.get("key"),
        replace_partitions=_read_flag(options, "replace-partitions"),
        fold=_read_flag(options, "fold"),
        snapshot_id=_read_id(options.get("snapshot-id")),
        summary=summary or None,
    )


def _read_lake(options: Mapping[str, str], storage: Mapping[str, str], properties: Mapping[str, str]) -> Lake:
    """The service, or with `catalog` a catalog that is not ours, of which `catalog.…` are the properties."""
    if "catalog" not in options:
        if properties:
            raise BadInput(
                'option catalog: needed with its properties, as in .option("catalog", …)', field="catalog"
            )
        return Lake(
            _needed(options, "uri"),
            token=options.get("token"),
            credential=_read_credential(options.get("credential")),
            storage=storage,
        )
    for name in ("uri", "token", "credential"):
        if name in options:
            raise BadInput(f"option {name}: goes without catalog; say catalog.{name} instead", field=name)
    return Lake.over(_needed(options, "catalog"), {**properties, **storage})


def _needed(options: Mapping[str, str], name: str) -> str:
    if not options.get(name):
        raise BadInput(f'option {name}: needed, as in .option("{name}", …)', field=name)
    return options[name]


def _read_flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadInput(f"option {name}: expected true or false, got {text[:40]!r}", field=name)
    return text == "true"


def _read_id(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise BadInput(f"option snapshot-id: expected a number, got {text[:40]!r}", field="snapshot-id")
    return int(text)


def _read_credential(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, secret = text.partition(":")
    if not colon:
        raise BadInput("option credential: expected id:secret", field="credential")
    return name, secret
