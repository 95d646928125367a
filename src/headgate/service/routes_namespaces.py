"""The routes of namespaces: JSON to values and back. The work is in `namespaces`."""

from __future__ import annotations

import msgspec

from headgate.format.strict_json import decode_into
from headgate.service import namespaces
from headgate.service.exchange import Body, Reply, Request, Route, json_reply, no_content, split_levels
from headgate.service.paging import read_page
from headgate.service.roles import Role
from headgate.service.services import Services


class CreateNamespaceBody(msgspec.Struct):
    """CreateNamespaceRequest of the specification."""

    namespace: list[str]
    properties: dict[str, str] | None = None


class UpdatePropertiesBody(msgspec.Struct):
    """UpdateNamespacePropertiesRequest of the specification."""

    removals: list[str] | None = None
    updates: dict[str, str] | None = None


def list_namespaces(services: Services, request: Request) -> Reply:
    """GET /v1/namespaces"""
    parent = split_levels(request.query.get("parent", ""))
    page = read_page(
        request.query, listing=namespaces.listing_of(parent), size_max=services.settings.page_size_max
    )
    found, token = namespaces.list_namespaces(services, parent, page)
    return json_reply({"namespaces": found, "next-page-token": token})


def create_namespace(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces"""
    body = decode_into(CreateNamespaceBody, request.body, max_depth=request.json_depth_max)
    made = namespaces.create_namespace(services, request.caller, tuple(body.namespace), body.properties or {})
    return json_reply({"namespace": made.levels, "properties": made.properties})


def load_namespace(services: Services, request: Request) -> Reply:
    """GET /v1/namespaces/{namespace}"""
    found = namespaces.load_namespace(services, request.namespace)
    return json_reply({"namespace": found.levels, "properties": found.properties})


def namespace_exists(services: Services, request: Request) -> Reply:
    """HEAD /v1/namespaces/{namespace}"""
    namespaces.load_namespace(services, request.namespace)
    return no_content()


def drop_namespace(services: Services, request: Request) -> Reply:
    """DELETE /v1/namespaces/{namespace}"""
    namespaces.drop_namespace(services, request.caller, request.namespace)
    return no_content()


def update_properties(services: Services, request: Request) -> Reply:
    """POST /v1/namespaces/{namespace}/properties"""
    body = decode_into(UpdatePropertiesBody, request.body, max_depth=request.json_depth_max)
    changes = namespaces.update_properties(
        services,
        request.caller,
        request.namespace,
        updates=body.updates or {},
        removals=tuple(body.removals or ()),
    )
    return json_reply({"updated": changes.updated, "removed": changes.removed, "missing": changes.missing})


_ALL = "/v1/namespaces"
_ONE = "/v1/namespaces/{namespace}"

ROUTES = (
    Route("GET", _ALL, list_namespaces, Role.READ),
    Route("POST", _ALL, create_namespace, Role.ADMIN, Body.JSON, takes_key=True),
    Route("GET", _ONE, load_namespace, Role.READ),
    Route("HEAD", _ONE, namespace_exists, Role.READ),
    Route("DELETE", _ONE, drop_namespace, Role.ADMIN, takes_key=True),
    Route("POST", f"{_ONE}/properties", update_properties, Role.ADMIN, Body.JSON, takes_key=True),
)
