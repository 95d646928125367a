"""The kinds that bodies are read as."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

import headgate.service


def find_kinds() -> dict[str, type[msgspec.Struct]]:
    """What the service asks `decode_into` for, by name."""
    kinds: dict[str, type[msgspec.Struct]] = {}
    for found in pkgutil.iter_modules(headgate.service.__path__):
        text = (Path(headgate.service.__path__[0]) / f"{found.name}.py").read_text()
        for name in re.findall(r"\bdecode_into\((\w+),", text):
            kinds[name] = getattr(importlib.import_module(f"headgate.service.{found.name}"), name)
    return kinds


KINDS = find_kinds()


def parts_of(seen: dict[int, object], part: object) -> None:
    """All that a description of a type is made of."""
    if id(part) in seen:
        return
    seen[id(part)] = part
    if isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            if name != "cls":
                parts_of(seen, getattr(part, name))
    elif isinstance(part, tuple):
        for inner in part:
            parts_of(seen, inner)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_kind_of_a_body_prints_what_it_holds_as_it_came(name: str) -> None:
    """A text that is its value's own print is taken to have no key twice; `Raw` would let one through."""
    seen: dict[int, object] = {}
    parts_of(seen, inspect.type_info(KINDS[name]))
    assert any(isinstance(part, inspect.StructType) for part in seen.values())
    assert not any(isinstance(part, inspect.RawType) for part in seen.values())


def test_the_kinds_of_commits_are_among_those_looked_at() -> None:
    assert {"CommitTableRequest", "CommitTransactionRequest", "AppendRequest"} <= KINDS.keys()
