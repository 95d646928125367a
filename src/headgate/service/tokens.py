"""Bearer tokens and client secrets: made, signed and checked. Pure but for the random bytes of new secrets.

A token is a JWT with one possible header, compared as bytes: there is no algorithm to choose, so none to
confuse. It says who (`sub`), with which role, from whom, for whom and until when; it holds no secret.
Secrets are stored as scrypt hashes. Every comparison takes the same time wherever it differs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass

import msgspec

from headgate.errors import Unauthenticated

ISSUER = "headgate"
AUDIENCE = "headgate-catalog"
SIGNING_SECRET = "token-signing-key"
SIGNING_KEY_BYTES = 32
TOKEN_BYTES_MAX = 2048
_CLOCK_SKEW_S = 60  # replicas' clocks may differ by this: a token from the near future is not refused

# 16 MiB and tens of milliseconds a guess; generated secrets have 256 bits, so this is for copied databases.
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 1 << 14, 8, 1
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Claims:
    """What a good token says."""

    principal: str
    role: str
    expires_at_s: int


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    iss: str
    aud: str
    sub: str
    role: str
    iat: int
    exp: int


def _encode64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


_HEADER = _encode64(b'{"alg":"HS256","typ":"JWT"}')


def sign_token(key: bytes, *, principal: str, role: str, now_s: int, lifetime_s: int) -> str:
    """A token for a principal that has proved who it is."""
    payload = _Payload(iss=ISSUER, aud=AUDIENCE, sub=principal, role=role, iat=now_s, exp=now_s + lifetime_s)
    signed = _HEADER + b"." + _encode64(msgspec.json.encode(payload))
    return (signed + b"." + _mac(key, signed)).decode("ascii")


def verify_token(key: bytes, token: str, *, now_s: int, lifetime_max_s: int) -> Claims:
    """What the token says, if we signed it and it is still good; Unauthenticated otherwise."""
    payload = _open(key, token)
    if payload.iss != ISSUER or payload.aud != AUDIENCE:
        raise Unauthenticated("the token is not for this service")
    if payload.exp <= now_s:
        raise Unauthenticated("the token has expired; ask for a new one", expired=True)
    if payload.iat > now_s + _CLOCK_SKEW_S or payload.exp - payload.iat > lifetime_max_s:
        raise Unauthenticated("the token's times are not ones that this service gives")
    return Claims(payload.sub, payload.role, payload.exp)


def _open(key: bytes, token: str) -> _Payload:
    refused = Unauthenticated("the token is not one of this service")
    if len(token) > TOKEN_BYTES_MAX or not token.isascii():
        raise refused
    signed, _, mac = token.encode("ascii").rpartition(b".")
    # The signature comes first: nothing that we did not sign is parsed.
    if not hmac.compare_digest(mac, _mac(key, signed)):
        raise refused
    header, _, body = signed.partition(b".")
    if header != _HEADER:
        raise refused
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)), type=_Payload)
    except (msgspec.DecodeError, binascii.Error) as error:
        raise refused from error


def _mac(key: bytes, signed: bytes) -> bytes:
    return _encode64(hmac.digest(key, signed, "sha256"))


def new_secret() -> str:
    """A client secret, shown once."""
    return secrets.token_urlsafe(32)


def new_signing_key() -> bytes:
    """A signing key, for a store that has none yet."""
    return os.urandom(SIGNING_KEY_BYTES)


def hash_secret(secret: str) -> str:
    """What is stored of a secret: parameters, salt and scrypt hash."""
    salt = os.urandom(_SALT_BYTES)
    digest = _scrypt(secret, salt, n=_SCRYPT_N, r=_SCRYPT_R, p=_SCRYPT_P)
    return f"scrypt${_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${salt.hex()}${digest.hex()}"


# Nobody's secret: checked when the client id is unknown, so that both answers take the same time.
UNKNOWN_CLIENT_HASH = f"scrypt${_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${'00' * _SALT_BYTES}${'00' * 32}"


def secret_matches(secret: str, stored: str) -> bool:
    """Whether this is the secret that was hashed."""
    scheme, n, r, p, salt, digest = stored.split("$")
    computed = _scrypt(secret, bytes.fromhex(salt), n=int(n), r=int(r), p=int(p))
    return scheme == "scrypt" and hmac.compare_digest(computed, bytes.fromhex(digest))


def _scrypt(secret: str, salt: bytes, *, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        secret.encode("utf-8", "surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=64 << 20, dklen=32
    )
