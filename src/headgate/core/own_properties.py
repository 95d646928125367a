"""The table properties that are Headgate's own: what they may say, checked when somebody sets them. Pure.

A misspelt name or a value that nobody understands would turn something off without a sound, so it is refused. What a
table has already is read leniently by whoever uses it: another catalog may have let it in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from headgate.core.expire import ENABLED, SNAPSHOTS_MAX
from headgate.core.group import CHAIN, FOLD, GROUP_PROPERTY
from headgate.core.rebase import PROPERTY as REBASE
from headgate.core.rebase import check_rebase_property
from headgate.core.stream_progress import is_progress_name
from headgate.errors import BadInput

PREFIX = "headgate."
STREAM_LINGER_MS = "headgate.stream.linger-ms"
VIEW_DEFINITION = "headgate.view.definition"
VIEW_PROGRESS = "headgate.view.progress"


def _is_one_of(*words: str) -> Callable[[str], str | None]:
    return lambda value: None if value.lower() in words else f"expected {' or '.join(words)}"


def _is_number(value: str) -> str | None:
    return None if re.fullmatch("[0-9]{1,12}", value) else "expected a whole number"


def _is_object(value: str) -> str | None:
    try:
        return None if isinstance(json.loads(value), dict) else "expected a JSON object"
    except ValueError:
        return "expected a JSON object"


_CHECKS: dict[str, Callable[[str], str | None]] = {
    GROUP_PROPERTY: _is_one_of(CHAIN, FOLD),
    ENABLED: _is_one_of("true", "false"),
    SNAPSHOTS_MAX: _is_number,
    STREAM_LINGER_MS: _is_number,
    VIEW_DEFINITION: _is_object,
    VIEW_PROGRESS: _is_object,
}
NAMES = tuple(sorted((*_CHECKS, REBASE)))


def check_own_properties(properties: Mapping[str, str], *, field: str) -> None:
    """Refuse a property of ours that has an unknown name or a value that means nothing."""
    for name, value in properties.items():
        if not name.startswith(PREFIX):
            continue
        if is_progress_name(name):
            if (fault := _is_number(value)) is not None:
                raise BadInput(f"{name}: {fault}, got {value[:40]!r}", field=f"{field}.{name}")
            continue
        if name not in NAMES:
            raise BadInput(
                f"{name[:80]} is no property of Headgate; known are {', '.join(NAMES)}",
                field=f"{field}.{name[:80]}",
            )
        check = _CHECKS.get(name)
        if check is not None and (fault := check(value)) is not None:
            raise BadInput(f"{name}: {fault}, got {value[:40]!r}", field=f"{field}.{name}")
    check_rebase_property(properties, field=field)
