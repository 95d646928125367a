"""The routes that are about the service itself: config, tokens, metrics reports, health, numbers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote_plus

import msgspec

from headgate.core.names import check_name
from headgate.errors import BadInput, HeadgateError, NotFound, Unauthenticated
from headgate.format.strict_json import decode_into
from headgate.service import metrics
from headgate.service.exchange import Body, Reply, Request, Route, json_reply, no_content, text_reply
from headgate.service.http_errors import not_ready_reply, oauth_error_reply
from headgate.service.namespaces import dotted, existing_levels
from headgate.service.roles import Role
from headgate.service.services import Services
from headgate.store.base import Kind

_CLIENT_CREDENTIALS = "client_credentials"
_FORM_FIELDS_MAX = 16


class MetricsReport(msgspec.Struct, rename="kebab"):
    """What scan and commit reports share; the rest is the engine's own."""

    report_type: str
    table_name: str
    snapshot_id: int
    metrics: dict[str, object]


class BadForm(Exception):  # noqa: N818 — becomes the token endpoint's own error model, below
    """A token request that cannot be read."""


def config_route(routes: Iterable[Route]) -> Route:
    """GET /v1/config, which lists the routes. Accepts any `warehouse`: there is only one."""
    endpoints = sorted(route.endpoint for route in routes if route.advertised)

    def load_config(services: Services, request: Request) -> Reply:
        # A Java client would refresh its token by token exchange, which we do not have.
        defaults = {"token-exchange-enabled": "false"} if services.settings.auth_is_on else {}
        return json_reply(
            {
                "defaults": defaults,
                "overrides": {},
                "endpoints": endpoints,
                "idempotency-key-lifetime": _duration(services.settings.key_lifetime_s),
            }
        )

    return Route("GET", "/v1/config", load_config, Role.READ, advertised=False)


def _duration(seconds: int) -> str:
    """ISO 8601: PT30M, or PT90S where minutes do not divide it."""
    return f"PT{seconds // 60}M" if seconds % 60 == 0 else f"PT{seconds}S"


def issue_token(services: Services, request: Request) -> Reply:
    """POST /v1/oauth/tokens: the client credentials grant (RFC 6749, 4.4), and no other."""
    try:
        form = _read_form(request.body)
        if "grant_type" not in form:
            raise BadForm("grant_type is needed")
        if form["grant_type"] != _CLIENT_CREDENTIALS:
            return oauth_error_reply(
                "unsupported_grant_type", f"this service has the grant {_CLIENT_CREDENTIALS} only"
            )
        client_id, secret = _read_client(form, request.headers.get("authorization"))
    except BadForm as error:
        return oauth_error_reply("invalid_request", str(error))
    if not services.settings.auth_is_on:
        return oauth_error_reply("invalid_request", "auth is off: this service needs no tokens")
    try:
        token, lifetime_s = services.authenticator.issue(client_id, secret, request.client_address)
    except Unauthenticated as error:
        return oauth_error_reply("invalid_client", error.message, client_failed=True)
    answer = {
        "access_token": token,
        "token_type": "bearer",
        "expires_in": lifetime_s,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }
    return json_reply(answer, headers=(("cache-control", "no-store"),))


def _read_form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise BadForm("the body is not a form") from error
    if len({name for name, _ in pairs}) != len(pairs):
        raise BadForm("a field comes twice")
    return dict(pairs)


def _read_client(form: dict[str, str], header: str | None) -> tuple[str, str]:
    """From HTTP Basic, which RFC 6749 prefers, or from the form; not from both."""
    scheme, _, encoded = (header or "").strip().partition(" ")
    # A Java client that refreshes sends its old bearer token along; it proves nothing here.
    if scheme.lower() == "basic":
        if "client_secret" in form:
            raise BadForm("credentials come in the header and in the form")
        try:
            client_id, colon, secret = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadForm("the Authorization header is not Basic credentials") from error
        if not colon:
            raise BadForm("the Authorization header has no secret")
        return unquote_plus(client_id), unquote_plus(secret)
    if not form.get("client_id") or not form.get("client_secret"):
        raise BadForm("client_id and client_secret are needed")
    return form["client_id"], form["client_secret"]


def report_metrics(services: Services, request: Request) -> Reply:
    """POST …/metrics: counted, not kept."""
    report = decode_into(MetricsReport, request.body, max_depth=request.json_depth_max)
    kind = {"scan-report": "scan", "commit-report": "commit"}.get(report.report_type)
    if kind is None:
        raise BadInput("report-type: expected scan-report or commit-report", field="report-type")
    levels, name = existing_levels(request.namespace), request.params["table"]
    try:
        header = services.store.load_header(levels, check_name(name, field="table"))
    except BadInput:
        header = None
    if header is None or header.kind is not Kind.TABLE:
        raise NotFound(f"Table does not exist: {dotted(levels)}.{name}", kind="table")
    services.metrics.client_reports.labels(kind).inc()
    return no_content()


def is_alive(services: Services, request: Request) -> Reply:
    """GET /healthz: the process answers."""
    return json_reply({"alive": True})


def is_ready(services: Services, request: Request) -> Reply:
    """GET /readyz: the database and the files answer."""
    try:
        services.store.ping()
        services.files.exists(f"{services.locations.roots[0]}/.headgate-ready")
    except HeadgateError as error:
        return not_ready_reply(error.code)
    return json_reply({"ready": True})


def print_metrics(services: Services, request: Request) -> Reply:
    """GET /metrics, for Prometheus."""
    return text_reply(services.metrics.print(), metrics.CONTENT_TYPE)


ROUTES = (
    Route("POST", "/v1/oauth/tokens", issue_token, None, Body.FORM, advertised=False),
    Route("POST", "/v1/namespaces/{namespace}/tables/{table}/metrics", report_metrics, Role.READ, Body.JSON),
    Route("GET", "/healthz", is_alive, None, advertised=False, inline=True),
    Route("GET", "/readyz", is_ready, None, advertised=False),
    Route("GET", "/metrics", print_metrics, Role.READ, advertised=False),
)
