"""The kinds of lake that the jobs commit to: the service, and a catalog that is not Headgate."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

SERVICE, SQL = "service", "sql"
OTHER = "other"  # the name of the SqlCatalog, for PyIceberg and for the jar

BOTH = pytest.mark.parametrize("kind", [SERVICE, SQL], indirect=True)


def on_kinds(
    cells: Sequence[tuple[str, str]], *, elsewhere: Sequence[tuple[str, str]]
) -> pytest.MarkDecorator:
    """All cells on the service, some of them on the other catalog too."""
    every = [(*cell, kind) for kind, part in ((SERVICE, cells), (SQL, elsewhere)) for cell in part]
    return pytest.mark.parametrize(("layout", "mode", "kind"), every, indirect=["kind"])
