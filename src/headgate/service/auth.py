"""Who a request comes from: bearer tokens that we signed, or a client's own id and secret.

The signature is checked before the body is read; that the principal still exists, with which role, is checked
in the worker thread against the store, with a short memory. Never tells an unknown client from a bad secret.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headgate.errors import Unauthenticated
from headgate.service import tokens
from headgate.service.rate_limit import Rate, RateLimit
from headgate.service.roles import Role, parse_role
from headgate.service.settings import TOKEN_LIFETIME_S_MAX
from headgate.store.base import Principal, Store

_K = TypeVar("_K")
_V = TypeVar("_V")

ANONYMOUS = "anonymous"
PRINCIPAL_MEMORY_MS = 5_000  # how long a dropped principal's tokens may go on working
_REMEMBERED_BYTES_MAX = (
    1024  # a header of ours has some 300; one with spaces for a kilobyte is somebody's joke
)
_REMEMBERED_MAX = 10_000
_TRIES_EACH = Rate(per_s=2, burst=20)
_TRIES_ALL = Rate(per_s=20, burst=60)  # a scrypt check costs about 50 ms of one core


@dataclass(frozen=True, slots=True)
class Signed:
    """A token whose signature and times are good; whether its principal exists is not known yet."""

    principal: str


@dataclass(frozen=True, slots=True)
class Unproved:
    """A client id and secret used as a bearer token; nothing is proved yet."""

    client_id: str
    secret: str


Credential = Signed | Unproved


class Authenticator:
    """Checks credentials and issues tokens. Thread-safe."""

    def __init__(self, store: Store, *, clock_ms: Callable[[], int], token_lifetime_s: int) -> None:
        self._store, self._clock_ms, self._lifetime_s = store, clock_ms, token_lifetime_s
        self._key = store.load_secret(tokens.SIGNING_SECRET, create=tokens.new_signing_key())
        self._limit = RateLimit(each=_TRIES_EACH, everyone=_TRIES_ALL, clock_ms=clock_ms)
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, Principal | None]] = OrderedDict()
        self._proved: OrderedDict[bytes, int] = OrderedDict()
        self._signed: OrderedDict[str, tuple[Signed, int]] = (
            OrderedDict()
        )  # by header; good until then, in seconds

    def read_header(self, header: str | None) -> Credential:
        """What the Authorization header claims, without asking the store."""
        now_s = self._clock_ms() // 1000
        known = self._signed.get(header or "")
        if known is not None and now_s < known[1]:
            return known[0]
        scheme, _, value = (header or "").strip().partition(" ")
        value = value.strip()
        if scheme.lower() != "bearer" or not value:
            raise Unauthenticated("a bearer token is needed in the Authorization header")
        client_id, colon, secret = value.partition(":")
        if colon:
            return Unproved(client_id, secret)
        claims = tokens.verify_token(self._key, value, now_s=now_s, lifetime_max_s=self._lifetime_max_s())
        signed = Signed(claims.principal)
        if header is not None and len(header) <= _REMEMBERED_BYTES_MAX:
            with self._lock:
                _remember(self._signed, header, (signed, claims.expires_at_s))
        return signed

    def identify(self, credential: Credential, address: str) -> tuple[str, Role]:
        """The principal and its role now; Unauthenticated when it is gone or proved nothing."""
        if isinstance(credential, Unproved):
            return self._identify_client(credential, address)
        principal = self._load(credential.principal)
        if principal is None:
            raise Unauthenticated("the token's principal does not exist any more")
        return principal.client_id, parse_role(principal.role)

    def issue(self, client_id: str, secret: str, address: str) -> tuple[str, int]:
        """A token and its lifetime in seconds, for a client that knows its secret."""
        self._limit.take(address)
        principal = self._prove(client_id, secret)
        now_s = self._clock_ms() // 1000
        token = tokens.sign_token(
            self._key,
            principal=principal.client_id,
            role=principal.role,
            now_s=now_s,
            lifetime_s=self._lifetime_s,
        )
        return token, self._lifetime_s

    def _lifetime_max_s(self) -> int:
        # A token of a replica with another setting is good too, as long as it obeys the bound for all.
        return TOKEN_LIFETIME_S_MAX

    def _identify_client(self, credential: Unproved, address: str) -> tuple[str, Role]:
        # Bound to the stored hash: a new secret ends the memory of the old one.
        known = self._load(credential.client_id)
        stored = "" if known is None else known.secret_hash
        mark = hashlib.sha256(f"{credential.client_id}\0{credential.secret}\0{stored}".encode()).digest()
        with self._lock:
            proved_until_ms = self._proved.get(mark, 0)
        if known is not None and proved_until_ms > self._clock_ms():
            return known.client_id, parse_role(known.role)
        self._limit.take(address)
        principal = self._prove(credential.client_id, credential.secret)
        with self._lock:
            _remember(self._proved, mark, self._clock_ms() + 60_000)
        return principal.client_id, parse_role(principal.role)

    def _prove(self, client_id: str, secret: str) -> Principal:
        principal = self._store.load_principal(client_id) if _is_plain(client_id) else None
        stored = tokens.UNKNOWN_CLIENT_HASH if principal is None else principal.secret_hash
        if not tokens.secret_matches(secret, stored) or principal is None:
            raise Unauthenticated("unknown client, or wrong secret")
        return principal

    def _load(self, client_id: str) -> Principal | None:
        now_ms = self._clock_ms()
        with self._lock:
            remembered = self._known.get(client_id)
        if remembered is not None and remembered[0] > now_ms:
            return remembered[1]
        principal = self._store.load_principal(client_id) if _is_plain(client_id) else None
        with self._lock:
            _remember(self._known, client_id, (now_ms + PRINCIPAL_MEMORY_MS, principal))
        return principal


def _is_plain(client_id: str) -> bool:
    """Whether the text can be a client id at all: a database need not be asked about NUL bytes."""
    return 0 < len(client_id) <= 255 and client_id.isprintable()


def _remember(memory: OrderedDict[_K, _V], name: _K, value: _V) -> None:
    memory[name] = value
    memory.move_to_end(name)
    if len(memory) > _REMEMBERED_MAX:
        memory.popitem(last=False)
