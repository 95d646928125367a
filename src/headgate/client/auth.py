"""Tokens: one that was given, or fresh ones by the client credentials grant (RFC 6749, 4.4). Prints no secret."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from urllib.parse import quote_plus

import msgspec

from headgate.client.refusals import is_worth_resending, retry_after_s
from headgate.client.transport import AnswerLost, NotSent, Transport
from headgate.errors import BadInput, Overloaded, Unauthenticated

_TOKENS = "/v1/oauth/tokens"
_MARGIN_S = 30.0  # a token is renewed before it ends, so that it does not end on the way
_LIFETIME_DEFAULT_S = 3600


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: int = _LIFETIME_DEFAULT_S


class _Denied(msgspec.Struct):
    error: str = ""
    error_description: str = ""


class Credentials:
    """What proves who asks. Without token and credential, nothing does."""

    def __init__(
        self,
        *,
        token: str | None,
        credential: tuple[str, str] | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if token is not None and credential is not None:
            raise BadInput("token and credential exclude each other", field="credential")
        self._credential, self._now_s = credential, now_s
        self._token = token
        self._good_until_s = float("inf")
        self._lock = threading.Lock()

    def header(self, transport: Transport) -> dict[str, str]:
        """The Authorization header; asks for a token when there is none that is good."""
        with self._lock:
            if self._credential is not None and (self._token is None or self._now_s() >= self._good_until_s):
                self._token, lifetime_s = _grant(transport, self._credential)
                self._good_until_s = self._now_s() + max(lifetime_s - _MARGIN_S, lifetime_s / 2)
            return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    def drop_token(self) -> bool:
        """Forget a token that was refused; False when there is no way to get another."""
        with self._lock:
            if self._credential is None:
                return False
            self._token = None
            return True


def _grant(transport: Transport, credential: tuple[str, str]) -> tuple[str, int]:
    """A token and its lifetime. A lost answer does no harm: the caller asks for another."""
    pair = ":".join(quote_plus(part) for part in credential)
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    try:
        answer = transport.send("POST", _TOKENS, headers, b"grant_type=client_credentials")
    except AnswerLost as error:
        # The request that needs the token was not sent, so nothing is in doubt.
        raise NotSent(str(error)) from error
    if is_worth_resending(answer):
        raise Overloaded(
            "the service gives no tokens at the moment", retry_after_s=round(retry_after_s(answer) or 1)
        )
    try:
        if answer.status < 300:
            granted = msgspec.json.decode(answer.body, type=_Granted)
            return granted.access_token, granted.expires_in
        denied = msgspec.json.decode(answer.body, type=_Denied)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        denied = _Denied(error=f"status {answer.status}")
    raise Unauthenticated(f"no token: {denied.error} {denied.error_description}".rstrip())
