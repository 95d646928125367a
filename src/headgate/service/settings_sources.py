"""Where settings come from: flag, then environment, then TOML file, then default. The first that speaks wins.

Whatever a source says is checked for its key and type, also when another source wins, and a refusal names
the source. Never guesses a unit and never ignores a key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from headgate.errors import BadInput
from headgate.service.settings import Settings

ENVIRONMENT_PREFIX = "HEADGATE_"
# Ours, but not settings of the service: its file, what client commands connect by, a folder of the dev tools.
_NOT_SETTINGS = frozenset(
    {"HEADGATE_CONFIG", "HEADGATE_CREDENTIAL", "HEADGATE_SHARED", "HEADGATE_TOKEN", "HEADGATE_URI"}
)
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def flag_name(name: str) -> str:
    """`body_limit_bytes` → `--body-limit-bytes`."""
    return "--" + name.replace("_", "-")


def environment_name(name: str) -> str:
    """`body_limit_bytes` → `HEADGATE_BODY_LIMIT_BYTES`."""
    return ENVIRONMENT_PREFIX + name.upper()


def load_settings(
    flags: Mapping[str, str | list[str] | bool | None],
    environment: Mapping[str, str],
    config: Path | None,
) -> Settings:
    """Settings from the three sources. `flags` holds what was given, by setting name."""
    known = {item.name: item for item in fields(Settings)}
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    layers = (
        _from_file(config, known),
        _from_environment(environment, known),
        _from_flags(flags, known),
    )
    for layer in layers:
        for name, (source, value) in layer.items():
            values[name], sources[name] = value, source
    try:
        return Settings(**values)  # type: ignore[arg-type]  # each value was parsed to its field's type
    except BadInput as error:
        source = sources.get(error.field or "", "default")
        raise BadInput(f"{source}: {error.message}", field=error.field) from error


Layer = dict[str, tuple[str, object]]
Known = Mapping[str, "Field[Any]"]


def _from_flags(flags: Mapping[str, str | list[str] | bool | None], known: Known) -> Layer:
    layer: Layer = {}
    for name, given in flags.items():
        if given is not None:
            source = flag_name(name)
            value = tuple(given) if isinstance(given, list) else given
            layer[name] = (
                source,
                _parse_text(source, known[name], value) if isinstance(value, str) else value,
            )
    return layer


def _from_environment(environment: Mapping[str, str], known: Known) -> Layer:
    layer: Layer = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name not in known:
            raise BadInput(f"{variable}: no such setting", field=name)
        layer[name] = (variable, _parse_text(variable, known[name], text))
    return layer


def _from_file(config: Path | None, known: Known) -> Layer:
    if config is None:
        return {}
    try:
        table = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"--config: cannot read {config}: {error.strerror}", field="config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{config}: not valid TOML: {error}", field="config") from error
    layer: Layer = {}
    for name, value in sorted(table.items()):
        source = f"{config}: {name}"
        if name not in known:
            raise BadInput(f"{source}: no such setting", field=name)
        layer[name] = (source, _check_type(source, known[name], value))
    return layer


def _check_type(source: str, item: Field[Any], value: object) -> object:
    wanted: type[Any] = type(item.default)
    if wanted is tuple and isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        kind = "a list of strings" if wanted is tuple else wanted.__name__
        raise BadInput(f"{source}: expected {kind}, got {type(value).__name__}", field=item.name)
    return value


def _parse_text(source: str, item: Field[Any], text: str) -> object:
    wanted: type[Any] = type(item.default)
    if wanted is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise BadInput(f"{source}: expected true or false, got {text!r}", field=item.name)
    if wanted is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError as error:
            raise BadInput(f"{source}: expected {wanted.__name__}, got {text!r}", field=item.name) from error
    return text
