"""A run that is repeated under its key, because nobody knew how the first one ended."""

from __future__ import annotations

from headgate.client import Committed
from headgate.errors import BadInput, CommitRefused, NotFound
from headgate.spark.catalog_table import CatalogTable
from headgate.spark.fates import Fate, find_fate
from headgate.spark.lake import LakeTable


def is_settled(table: LakeTable, key: str) -> bool:
    """Whether the commit under a key has landed; BadInput when a refusal has used the key up."""
    fate = find_fate(table, key)
    if fate is Fate.REFUSED:
        raise BadInput(f"key: {key} was refused before; start again without a key", field="key")
    return fate is Fate.LANDED


def find_landed(table: LakeTable, key: str) -> Committed | None:
    """The commit that landed under this key already: a job that is started again must not do its work twice."""
    if isinstance(table.client, CatalogTable):
        return table.client.find(key)
    with table.lake.client() as client:
        try:
            return client.pending(key).look()
        except (NotFound, CommitRefused, BadInput):
            return None  # never asked for, or refused: then the commit will say so
