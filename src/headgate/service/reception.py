"""What is checked of a request before its handler sees it: its head, who sends it, and whether they may.

A head is checked once. When it comes again, byte for byte (`known_heads`), what depends on nothing else is not looked at
again; the credential, the key and the caller's role always are.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from headgate.core.value import Record
from headgate.errors import Unauthenticated
from headgate.service import idempotency
from headgate.service.auth import ANONYMOUS, Credential
from headgate.service.body import check_media_type
from headgate.service.exchange import Body, Later, Reply, Request, Route
from headgate.service.http_wire import Scope, check_header_size, find_request_id
from headgate.service.roles import Caller, Role, require
from headgate.service.routing import Match, parse_query
from headgate.service.services import Services
from headgate.service.settings import Settings

Answer = Callable[[Reply, str], None]  # takes a reply and the request's id

_NOBODY = Caller(ANONYMOUS, Role.READ, "")
_NO_QUERY: dict[str, str] = {}
# Of the headers, those that differ from one request to the next under a head that is known.
_ITS_OWN = ("content-length", idempotency.HEADER)


class Call(Record, frozen=False, eq=False, gc=True):  # type: ignore[misc]  # a dataclass could not; msgspec can
    """A request on its way to its handler. One that was taken without a task has an `answer` to call."""

    route: Route
    request: Request
    query_string: bytes  # as sent
    credential: Credential | None = None
    is_identified: bool = False
    answer: Answer | None = None
    started_s: float = 0.0
    later: Later | None = None


class Opened(Record, gc=True):
    """What a head that passed its checks says, for when it comes again. Handlers do not see `_ITS_OWN` then."""

    route: Route
    request: Request  # but for its body and its caller
    query_string: bytes
    given_id: str | None


class Reception:
    """The checks, in their order. Thread-safe."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self._settings, self._new_uuid = settings, services.new_uuid
        self._authenticator, self.auth_is_on = services.authenticator, settings.auth_is_on

    def begin(self, scope: Scope, match: Match, headers: dict[str, str], request_id: str) -> Call:
        """A call whose request has been asked nothing yet."""
        request = Request(
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1"),
            params=match.params,
            query=_NO_QUERY,
            headers=headers,
            body=b"",
            caller=Caller(ANONYMOUS, Role.ADMIN, request_id),
            client_address=(scope.get("client") or ("",))[0],
            json_depth_max=self._settings.json_depth_max,
        )
        return Call(match.route, request, scope["query_string"])

    def check(self, call: Call, scope: Scope) -> None:
        """Everything that can be checked before the body is read."""
        route, request = call.route, call.request
        check_header_size(scope, self._settings.header_limit_bytes)
        self.check_again(call, request.headers.get(idempotency.HEADER))
        request.query = parse_query(call.query_string)
        if route.body is not Body.NONE:
            check_media_type(route.body, request.headers)

    def keep(self, call: Call) -> Opened:
        """What there is to remember of a call that passed."""
        request = call.request
        headers = {name: value for name, value in request.headers.items() if name not in _ITS_OWN}
        request = replace(request, headers=headers, body=b"", caller=_NOBODY)
        return Opened(call.route, request, call.query_string, find_request_id(headers))

    def begin_again(self, opened: Opened, body: bytes, answer: Answer) -> Call:
        """A call by a head that passed before."""
        caller = Caller(ANONYMOUS, Role.ADMIN, opened.given_id or self._new_uuid())
        request = replace(opened.request, body=body, caller=caller)
        return Call(opened.route, request, opened.query_string, None, False, answer, time.perf_counter())

    def check_again(self, call: Call, key: str | None) -> None:
        """What may differ between two requests of one head: whether its token is good by now, and its key.

        Without authentication and without a key there is nothing to check.
        """
        route, request = call.route, call.request
        if self.auth_is_on and route.role is not None:
            call.credential = self._authenticator.read_header(request.headers.get("authorization"))
        if key is not None and route.takes_key:
            key = idempotency.parse_key(key)
            request.caller = Caller(ANONYMOUS, Role.ADMIN, request.caller.request_id, key)

    def identify(self, call: Call) -> None:
        """Who is it, and may they?"""
        route, request = call.route, call.request
        if call.is_identified or route.role is None:
            return
        caller = request.caller
        if call.credential is not None:
            principal, role = self._authenticator.identify(call.credential, request.client_address)
            caller = Caller(principal, role, caller.request_id, caller.key)
        elif self.auth_is_on:
            raise Unauthenticated("a bearer token is needed in the Authorization header")
        if caller.key is not None:
            mark = idempotency.fingerprint(
                method=request.method,
                target=f"{request.path}?{call.query_string.decode('latin-1')}",
                body=request.body,
            )
            caller = Caller(caller.principal, caller.role, caller.request_id, caller.key, mark)
        require(caller, route.role)
        request.caller = caller
        call.is_identified = True
