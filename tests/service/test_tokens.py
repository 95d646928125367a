"""Tokens and secrets: tampering in every part, times at their bounds."""

from __future__ import annotations

import base64
import hmac
import json

import pytest

from headgate.errors import Overloaded, Unauthenticated
from headgate.service.rate_limit import Rate, RateLimit
from headgate.service.tokens import hash_secret, secret_matches, sign_token, verify_token

KEY = b"k" * 32
NOW_S = 1_700_000_000


def good(**changes: int) -> str:
    values = {"now_s": NOW_S, "lifetime_s": 3600} | changes
    return sign_token(KEY, principal="etl", role="modify", **values)


def encode(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=")


def forged(header: object, payload: dict[str, object], *, key: bytes = KEY) -> str:
    signed = encode(header) + b"." + encode(payload)
    mac = base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256")).rstrip(b"=")
    return (signed + b"." + mac).decode()


HEADER = {"alg": "HS256", "typ": "JWT"}
PAYLOAD: dict[str, object] = {
    "iss": "headgate",
    "aud": "headgate-catalog",
    "sub": "etl",
    "role": "modify",
    "iat": NOW_S,
    "exp": NOW_S + 10,
}


def verify(token: str, *, now_s: int = NOW_S) -> str:
    return verify_token(KEY, token, now_s=now_s, lifetime_max_s=3600).principal


def test_a_good_token_says_who_it_is() -> None:
    assert verify(good()) == "etl"
    assert verify(forged(HEADER, PAYLOAD)) == "etl"


def test_a_token_ends_exactly_at_its_time() -> None:
    assert verify(good(), now_s=NOW_S + 3599) == "etl"
    with pytest.raises(Unauthenticated, match="expired"):
        verify(good(), now_s=NOW_S + 3600)


def test_changing_any_character_breaks_the_token() -> None:
    token = good()
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(Unauthenticated):
            verify(changed)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "é.é.é",
        "x" * 5000,
        good().rsplit(".", 1)[0] + ".",
        good().rsplit(".", 1)[0],
        good() + "=",
        forged({"alg": "none", "typ": "JWT"}, PAYLOAD),
        forged({"typ": "JWT", "alg": "HS256"}, PAYLOAD),
        forged(HEADER, PAYLOAD, key=b"other"),
        forged(HEADER, PAYLOAD, key=b""),
        forged(HEADER, PAYLOAD | {"aud": "other"}),
        forged(HEADER, PAYLOAD | {"iss": "other"}),
        forged(HEADER, PAYLOAD | {"exp": NOW_S + 7200}),
        forged(HEADER, PAYLOAD | {"iat": NOW_S + 3600, "exp": NOW_S + 3700}),
        forged(HEADER, PAYLOAD | {"exp": "9999999999"}),
        forged(HEADER, PAYLOAD | {"admin": True}),
        forged(HEADER, {"sub": "etl"}),
        encode({"alg": "none"}).decode() + "." + encode(PAYLOAD).decode() + ".",
    ],
)
def test_a_token_that_is_not_ours_is_refused(token: str) -> None:
    with pytest.raises(Unauthenticated):
        verify(token)


def test_a_secret_matches_its_own_hash_only() -> None:
    stored = hash_secret("s3cret")
    assert "s3cret" not in stored
    assert secret_matches("s3cret", stored)
    assert not secret_matches("s3cres", stored)
    assert hash_secret("s3cret") != stored


def test_tries_are_limited_per_address_and_in_all() -> None:
    now = [0]
    limit = RateLimit(each=Rate(1, 2), everyone=Rate(1, 3), clock_ms=lambda: now[0])
    limit.take("a")
    limit.take("a")
    with pytest.raises(Overloaded) as caught:
        limit.take("a")
    assert caught.value.retry_after_s == 1
    limit.take("b")
    with pytest.raises(Overloaded):
        limit.take("c")
    now[0] = 1000
    limit.take("c")
