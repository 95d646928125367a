"""How to reach S3: fixed when the service starts, from settings or AWS_* variables, never from a request.

A client that could choose the endpoint could make this service call any host (SSRF).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class S3Config:
    """What the S3 client needs. Without keys it asks the machine's role; without endpoint it means AWS."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool = True  # virtual-host style needs a DNS name per bucket, which most other servers lack
    allow_http: bool = False
    timeout_s: int = 30
    retries_max: int = 4

    def with_environment(self, environ: Mapping[str, str]) -> S3Config:
        """The same with unset fields taken from AWS_* variables. A key pair is taken whole or not at all."""
        config = replace(
            self,
            endpoint=self.endpoint or _first(environ, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
            region=self.region or _first(environ, "AWS_REGION", "AWS_DEFAULT_REGION"),
        )
        if self.access_key_id is not None or self.secret_access_key is not None:
            return config
        return replace(
            config,
            access_key_id=_first(environ, "AWS_ACCESS_KEY_ID"),
            secret_access_key=_first(environ, "AWS_SECRET_ACCESS_KEY"),
            session_token=_first(environ, "AWS_SESSION_TOKEN"),
        )


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)
