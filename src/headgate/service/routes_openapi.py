"""The route of our own OpenAPI document: what this service adds to the Iceberg REST specification.

The document is made by tools/make_docs.py from the structs that decode requests, and is part of the package.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from headgate.service.exchange import JSON, Reply, Request, Route, text_reply
from headgate.service.roles import Role
from headgate.service.services import Services


@cache
def _document() -> bytes:
    return files("headgate.service").joinpath("openapi.json").read_bytes()


def load_openapi(services: Services, request: Request) -> Reply:
    """GET /v1/openapi.json"""
    return text_reply(_document(), JSON)


ROUTES = (Route("GET", "/v1/openapi.json", load_openapi, Role.READ, advertised=False),)
