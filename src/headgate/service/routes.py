"""The table of all routes. A new module of routes adds one line here."""

from __future__ import annotations

from headgate.service import (
    routes_feed,
    routes_jobs,
    routes_namespaces,
    routes_openapi,
    routes_service,
    routes_tables,
    routes_views,
)
from headgate.service.exchange import RouteTable

_ROUTES = (
    *routes_service.ROUTES,
    *routes_namespaces.ROUTES,
    *routes_tables.ROUTES,
    *routes_views.ROUTES,
    *routes_feed.ROUTES,
    *routes_jobs.ROUTES,
    *routes_openapi.ROUTES,
)


def all_routes() -> RouteTable:
    """Every route, the config that lists them, and every replayer of stored successes."""
    return RouteTable(
        routes=(routes_service.config_route(_ROUTES), *_ROUTES),
        replayers={**routes_tables.REPLAYERS, **routes_views.REPLAYERS, **routes_jobs.REPLAYERS},
    )
