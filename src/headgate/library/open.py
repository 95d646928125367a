"""The way in: `headgate.open`. Importing it is cheap; PyIceberg is loaded when a table is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headgate.errors import BadInput
from headgate.library.policy import Policy

if TYPE_CHECKING:
    from headgate.library.table import Table


def open(table: Any, catalog: Any = None, *, policy: Policy | None = None, send: bool | None = None) -> Table:
    """A table by PyIceberg's own table, or by its name (`ns.table`, or the parts) in a catalog.

    `catalog` is one of PyIceberg's, or the name of one that its configuration knows. `policy` says how commits are tried
    again. `send`: whether changes are sent to the catalog, which must be Headgate; None finds out.
    """
    try:
        from headgate.library.opening import open_table  # optional extra
    except ImportError as error:
        raise BadInput(
            f"headgate.open needs PyIceberg and PyArrow: pip install 'headgate[library]'; {error}",
            field="catalog",
        ) from error
    if not isinstance(table, str | Sequence) and not hasattr(table, "metadata_location"):
        raise BadInput(f"table: expected a table or its name, got {type(table).__name__}", field="table")
    return open_table(table, catalog, policy or Policy(), send)
