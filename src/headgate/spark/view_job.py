"""A view as its result table remembers it: the definition, and how far the result has come.

Both are table properties. Progress is set in the very commit that changes the result, so neither is ever ahead of
the other, whoever dies when.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from headgate.client.table import identifier_of
from headgate.core.own_properties import VIEW_DEFINITION, VIEW_PROGRESS
from headgate.errors import BadInput
from headgate.spark.view_sources import Place

_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
RUN_SUMMARY = "headgate.view.run"  # in the summary of every snapshot that a refresh makes


@dataclass(frozen=True)
class Definition:
    """What a view is: a query over sources, which it knows by their aliases."""

    query: str
    sources: Mapping[str, str]

    @property
    def hash(self) -> str:
        """The same for the same query over the same sources."""
        return hashlib.sha256(self.encode().encode()).hexdigest()

    def encode(self) -> str:
        """As the property has it."""
        return json.dumps({"query": self.query, "sources": dict(self.sources)}, sort_keys=True)


@dataclass(frozen=True)
class Progress:
    """How far a result has come. `run` made its last snapshot; without state it can only be built anew."""

    definition: str
    sources: Mapping[str, Place] = field(default_factory=dict)
    run: str | None = None
    stateless: str | None = None  # why the result has no state to go on from

    def encode(self) -> str:
        """As the property has it."""
        raw = {**asdict(self), "sources": {alias: asdict(place) for alias, place in self.sources.items()}}
        return json.dumps(raw, sort_keys=True)


def define(query: str, sources: Mapping[str, str] | Sequence[str]) -> Definition:
    """A definition from what a caller says. A source without an alias is known by the last part of its name."""
    named = sources if isinstance(sources, Mapping) else {identifier_of(name)[-1]: name for name in sources}
    if not named or (not isinstance(sources, Mapping) and len(named) != len(sources)):
        raise BadInput("sources: expected tables under different names", field="sources")
    for alias, name in named.items():
        if not _ALIAS.fullmatch(alias):
            raise BadInput(f"sources: expected a plain word as an alias, got {alias!r}", field="sources")
        identifier_of(name)
    if not query.strip():
        raise BadInput("query: expected a SELECT, got nothing", field="query")
    return Definition(query, dict(named))


def read_definition(properties: Mapping[str, str], table: str) -> Definition:
    """The definition of a result table; BadInput for any other table."""
    if VIEW_DEFINITION not in properties:
        raise BadInput(f"{table} is no view: it has no property {VIEW_DEFINITION}", field="name")
    try:
        raw = json.loads(properties[VIEW_DEFINITION])
        return define(str(raw["query"]), {str(k): str(v) for k, v in raw["sources"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{table}: {VIEW_DEFINITION} cannot be read ({error})", field=VIEW_DEFINITION
        ) from error


def read_progress(properties: Mapping[str, str]) -> Progress | None:
    """How far the result has come; None when nothing was built, or when nobody can read how far."""
    try:
        raw = json.loads(properties[VIEW_PROGRESS])
        return Progress(
            definition=raw["definition"],
            sources={alias: Place(**place) for alias, place in raw["sources"].items()},
            run=raw["run"],
            stateless=raw["stateless"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
