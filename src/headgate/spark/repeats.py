"""A run that is repeated under its key, because nobody knew how the first one ended."""

from __future__ import annotations

from headgate.errors import BadInput
from headgate.spark.fates import Fate, find_fate
from headgate.spark.lake import Lake


def is_settled(lake: Lake, key: str) -> bool:
    """Whether the commit under a key has landed; BadInput when a refusal has used the key up."""
    fate = find_fate(lake, key)
    if fate is Fate.REFUSED:
        raise BadInput(f"key: {key} was refused before; start again without a key", field="key")
    return fate is Fate.LANDED
