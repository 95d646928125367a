"""Opens a table: finds its catalog, and the road to it. Headgate's own catalog is known by a route that no other has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchPropertyException, NotInstalledError
from pyiceberg.table import Table as IcebergTable

from headgate.client.connect import HeadgateClient
from headgate.errors import BadInput
from headgate.library.adapters import to_error
from headgate.library.handle import Handle
from headgate.library.policy import Policy
from headgate.library.requests import Sender
from headgate.library.roads import CatalogRoad, Road, SqlRoad, identifier_of
from headgate.library.table import Table

_STREAMED_APPEND = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/append"


def open_table(
    given: IcebergTable | str | Sequence[str],
    catalog: Catalog | str | None,
    policy: Policy,
    send: bool | None,
) -> Table:
    """A table of the library."""
    identifier = identifier_of(given)
    if isinstance(given, IcebergTable):
        found = given.catalog if catalog is None else catalog
    elif catalog is None:
        raise BadInput("a table that is given by its name needs a catalog", field="catalog")
    else:
        found = catalog
    used = open_catalog(found) if isinstance(found, str) else found
    try:
        table = given if isinstance(given, IcebergTable) else used.load_table(identifier)
    except Exception as error:  # outermost edge: of foreign code; nothing has begun
        raise to_error(error, ".".join(identifier)) from error
    sender = _find_sender(used, identifier, send)
    return Table(Handle(_find_road(used, identifier, table), policy, sender))


def open_catalog(name: str, properties: Mapping[str, str] | None = None) -> Catalog:
    """A catalog by its name in PyIceberg's configuration and further properties. Errors are ours."""
    try:
        return load_catalog(name, **(properties or {}))
    except (ValueError, NotInstalledError, NoSuchPropertyException) as error:
        raise BadInput(f"catalog {name}: {error}", field="catalog") from error
    except Exception as error:  # outermost edge: of foreign code; nothing has begun
        raise to_error(error, name) from error


def _find_road(catalog: Catalog, identifier: tuple[str, ...], table: IcebergTable) -> Road:
    try:
        from pyiceberg.catalog.sql import SqlCatalog  # optional extra

        from headgate.library.sql_rows import SqlRow  # optional extra
        from headgate.library.turns import find_turner  # optional extra
    except ImportError:
        return CatalogRoad(catalog, identifier, table.io)
    if isinstance(catalog, SqlCatalog):
        row, turner = SqlRow(catalog, identifier), find_turner(catalog, identifier)
        return SqlRoad(row, identifier, table.io, turner, is_of_one_thread=row.is_of_one_thread)
    return CatalogRoad(catalog, identifier, table.io)


def _find_sender(catalog: Catalog, identifier: tuple[str, ...], send: bool | None) -> Sender | None:
    """The client of a Headgate catalog; None for any other."""
    if not isinstance(catalog, RestCatalog):
        if send:
            raise BadInput("changes are sent to a REST catalog only", field="send")
        return None
    if send is None:
        send = any(str(endpoint) == _STREAMED_APPEND for endpoint in catalog._supported_endpoints)
    if not send:
        return None
    properties = catalog.properties
    credential = properties.get("credential")
    pair = None if credential is None else tuple(credential.split(":", 1))
    client = HeadgateClient(
        str(properties.get("uri")),
        token=properties.get("token"),
        credential=None if pair is None or len(pair) != 2 else (pair[0], pair[1]),
    )
    return Sender(client, identifier)
