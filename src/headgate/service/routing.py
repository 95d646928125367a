"""From a raw path to a route. Segments are split before they are decoded, and decoded once.

So `a%2Fb` is one name with a slash in it, not two segments, and `%252F` is the text `%2F`. Java and Rust
clients encode a space as `+` and a plus as `%2B` (form encoding), others as `%20`: both are understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from headgate.errors import BadInput, HeadgateError, invariant
from headgate.service.exchange import Route
from headgate.service.http_errors import NoSuchRoute, WrongMethod

PATH_SEGMENTS_MAX = 12
QUERY_PARAMETERS_MAX = 32
_RECENT_MAX = 4096  # paths whose match is remembered: writers send to the same few again and again


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request and the decoded parameters of its path."""

    route: Route
    params: Mapping[str, str]


class Router:
    """All routes, by the number of segments and the first literal that differs."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._by_shape: dict[int, dict[tuple[str, ...], dict[str, Route]]] = {}
        self._recent: dict[tuple[str, bytes], Match] = {}
        for route in routes:
            segments = tuple(route.template.split("/")[1:])
            methods = self._by_shape.setdefault(len(segments), {}).setdefault(_pattern(segments), {})
            invariant(route.method not in methods, f"one route for {route.method} {route.template}")
            methods[route.method] = route

    def match(self, method: str, raw_path: bytes) -> Match:
        """The route of a method and path; NoSuchRoute or WrongMethod when there is none."""
        found = self._recent.get((method, raw_path))
        if found is None:
            found = self._match(method, raw_path)
            if len(self._recent) >= _RECENT_MAX:
                self._recent.clear()
            self._recent[method, raw_path] = found
        return found

    def find(self, method: str, raw_path: bytes) -> Match | None:
        """As `match`, but None when there is none."""
        try:
            return self.match(method, raw_path)
        except HeadgateError:
            return None

    def _match(self, method: str, raw_path: bytes) -> Match:
        raw = raw_path.decode("latin-1").split("/")[1:]
        found: dict[str, Route] | None = None
        if len(raw) <= PATH_SEGMENTS_MAX:
            for pattern, methods in self._by_shape.get(len(raw), {}).items():
                if all(want == have if want else have for want, have in zip(pattern, raw, strict=True)):
                    found = methods
                    break
        if found is None:
            raise NoSuchRoute("no such route")
        route = found.get(method)
        if route is None:
            allowed = ", ".join(sorted(found))
            raise WrongMethod(f"the route does not take {method}; allowed={allowed}", allowed=allowed)
        names = route.template.split("/")[1:]
        params = {
            name[1:-1]: _decode(text, field=name[1:-1])
            for name, text in zip(names, raw, strict=True)
            if name.startswith("{")
        }
        return Match(route, params)


def parse_query(raw: bytes) -> dict[str, str]:
    """Query parameters; one that comes twice is refused, because readers disagree on which counts."""
    query: dict[str, str] = {}
    if not raw:
        return query
    pairs = [pair for pair in raw.decode("latin-1").split("&") if pair]
    if len(pairs) > QUERY_PARAMETERS_MAX:
        raise BadInput(f"more than {QUERY_PARAMETERS_MAX} query parameters", field="query")
    for pair in pairs:
        name, _, text = pair.partition("=")
        name = _decode(name, field="query")
        if name in query:
            raise BadInput(f"{name}: the query parameter comes twice", field=name)
        query[name] = _decode(text, field=name)
    return query


def _pattern(segments: tuple[str, ...]) -> tuple[str, ...]:
    """Literals as they are; a parameter is the empty text, which stands for anything but nothing."""
    return tuple("" if segment.startswith("{") else segment for segment in segments)


def _decode(text: str, *, field: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{field}: the percent-encoded text is not UTF-8", field=field) from error
