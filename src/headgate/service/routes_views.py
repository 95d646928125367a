"""The routes of views: JSON to values and back. The work is in `views`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headgate.core.names import check_levels
from headgate.core.schema import Schema
from headgate.core.value import Value
from headgate.core.view import ViewVersion
from headgate.errors import BadInput
from headgate.format.strict_json import decode_into
from headgate.format.view_metadata import decode_commit
from headgate.service import views
from headgate.service.exchange import Body, Reply, Request, Route, json_reply, no_content, parts_reply
from headgate.service.paging import read_page
from headgate.service.roles import Role
from headgate.service.services import Services
from headgate.service.table_requests import RenameRequest
from headgate.service.view_entries import REPLAY_KIND, LoadedView, Target


class CreateViewBody(Value, frozen=True):
    """CreateViewRequest of the specification."""

    name: str
    schema: Schema
    view_version: ViewVersion
    location: str | None = None
    properties: dict[str, str] | None = None


class RegisterViewBody(Value, frozen=True):
    """RegisterViewRequest of the specification."""

    name: str
    metadata_location: str


def list_views(services: Services, request: Request) -> Reply:
    """GET …/views"""
    namespace = request.namespace
    page = read_page(
        request.query, listing=views.listing_of(namespace), size_max=services.settings.page_size_max
    )
    names, token = views.list_views(services, namespace, page)
    found = [{"namespace": namespace, "name": name} for name in names]
    return json_reply({"identifiers": found, "next-page-token": token})


def create_view(services: Services, request: Request) -> Reply:
    """POST …/views"""
    body = decode_into(CreateViewBody, request.body, max_depth=request.json_depth_max)
    wanted = views.NewView(body.name, body.schema, body.view_version, body.properties or {}, body.location)
    return _answer(views.create_view(services, request.caller, request.namespace, wanted))


def load_view(services: Services, request: Request) -> Reply:
    """GET …/views/{view}"""
    return _answer(views.load_view(services, _target(request)))


def view_exists(services: Services, request: Request) -> Reply:
    """HEAD …/views/{view}"""
    views.check_exists(services, _target(request))
    return no_content()


def replace_view(services: Services, request: Request) -> Reply:
    """POST …/views/{view}"""
    commit = decode_commit(request.json())
    target = _target(request)
    named = commit.identifier
    if named is not None and (named.namespace, named.name) != target:
        raise BadInput("identifier: not the view in the path of the request", field="identifier")
    return _answer(views.commit_view(services, request.caller, target, commit))


def drop_view(services: Services, request: Request) -> Reply:
    """DELETE …/views/{view}"""
    views.drop_view(services, request.caller, _target(request))
    return no_content()


def rename_view(services: Services, request: Request) -> Reply:
    """POST /v1/views/rename"""
    body = decode_into(RenameRequest, request.body, max_depth=request.json_depth_max)
    check_levels(body.destination.namespace, field="destination.namespace")
    views.rename_view(
        services,
        request.caller,
        source=(body.source.namespace, body.source.name),
        destination=(body.destination.namespace, body.destination.name),
    )
    return no_content()


def register_view(services: Services, request: Request) -> Reply:
    """POST …/register-view"""
    body = decode_into(RegisterViewBody, request.body, max_depth=request.json_depth_max)
    return _answer(
        views.register_view(
            services, request.caller, request.namespace, name=body.name, location=body.metadata_location
        )
    )


def replay_view(services: Services, request: Request, stored: Mapping[str, object]) -> Reply:
    """The answer to a key that comes again: the view as that commit left it."""
    return _answer(views.load_stored(services, str(stored["metadata-location"])))


def _target(request: Request) -> Target:
    return request.namespace, request.params["view"]


def _answer(loaded: LoadedView) -> Reply:
    location = msgspec.json.encode(loaded.metadata_location)
    return parts_reply(
        (b'{"metadata-location":', location, b',"metadata":', loaded.metadata, b',"config":{}}')
    )


_ALL = "/v1/namespaces/{namespace}/views"
_ONE = "/v1/namespaces/{namespace}/views/{view}"

ROUTES = (
    Route("GET", _ALL, list_views, Role.READ),
    Route("POST", _ALL, create_view, Role.ADMIN, Body.JSON, takes_key=True),
    Route("GET", _ONE, load_view, Role.READ),
    Route("HEAD", _ONE, view_exists, Role.READ),
    Route("POST", _ONE, replace_view, Role.ADMIN, Body.JSON, takes_key=True),
    Route("DELETE", _ONE, drop_view, Role.ADMIN, takes_key=True),
    Route("POST", "/v1/views/rename", rename_view, Role.ADMIN, Body.JSON, takes_key=True),
    Route(
        "POST",
        "/v1/namespaces/{namespace}/register-view",
        register_view,
        Role.ADMIN,
        Body.JSON,
        takes_key=True,
    ),
)
REPLAYERS = {REPLAY_KIND: replay_view}
