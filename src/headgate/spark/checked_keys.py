"""Tables of a pipeline file, read key by key: whatever nobody asked for is refused, with the nearest known name.

Every refusal names the file and the key, as `payments.toml: target.mode`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.errors import BadInput


class Keys:
    """One table. Ask for each key that there can be, then call `end`."""

    def __init__(self, raw: object, *, file: str, path: str = "") -> None:
        self._file, self._path = file, path
        if not isinstance(raw, Mapping):
            raise self._wrong(path or "pipeline", "a table", raw)
        self._raw: Mapping[object, Any] = raw
        self._asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        self._asked.append(name)
        return name in self._raw

    def error(self, name: str, text: str) -> BadInput:
        """What to raise when the value of a key is wrong."""
        where = self.place(name)
        return BadInput(f"{self._file}: {where}: {text}", field=where)

    def place(self, name: str) -> str:
        """The key with the names of the tables that it is in."""
        return ".".join(part for part in (self._path, name) if part)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text that is not empty."""
        found = self._take(name, default)
        if found is not None and (not isinstance(found, str) or not found.strip()):
            raise self._wrong(name, "text", found)
        return found

    def needed(self, name: str, example: str) -> str:
        """A text that must be there."""
        if (found := self.text(name)) is None:
            raise self.error(name, f"needed, as in {name.rpartition('.')[2]} = {example}")
        return found

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        """One of a few words."""
        found = self.text(name, default)
        if found not in known:
            raise self.error(
                name, f"expected one of {', '.join(known)}, got {found!r}{nearest(found, known)}"
            )
        return str(found)

    def flag(self, name: str) -> bool:
        """True or false; false when it is not there."""
        found = self._take(name, False)
        if not isinstance(found, bool):
            raise self._wrong(name, "true or false", found)
        return found

    def number(self, name: str) -> int | None:
        """A whole number from zero on."""
        found = self._take(name, None)
        if found is not None and (type(found) is not int or found < 0):
            raise self._wrong(name, "a whole number", found)
        return found

    def words(self, name: str) -> tuple[str, ...]:
        """Texts; a single one may stand for a list of one."""
        found = self._take(name, ())
        if isinstance(found, str):
            found = [found]
        if not isinstance(found, list | tuple) or not all(isinstance(one, str) and one for one in found):
            raise self._wrong(name, "a list of texts", found)
        return tuple(found)

    def texts(self, name: str) -> dict[str, str]:
        """A table of texts, for Spark or for the lake; numbers and flags are spelt as these want them."""
        raw = self._take(name, {})
        if not isinstance(raw, Mapping):
            raise self._wrong(name, "a table", raw)
        return {str(key): self._spelt(f"{name}.{key}", value) for key, value in raw.items()}

    def tables(self, name: str) -> dict[str, Keys]:
        """Tables by their names."""
        return {str(key): self._below(f"{name}.{key}", raw) for key, raw in self._mapping(name).items()}

    def table(self, name: str) -> Keys:
        """A table, which is empty when it is not there."""
        return self._below(name, self._mapping(name))

    def raw(self, name: str) -> object:
        """A value that may be of several kinds; None when it is not there."""
        return self._take(name, None)

    def end(self) -> None:
        """Refuse what nobody asked for."""
        for key in self._raw:
            if key not in self._asked:
                known = f"; known are {', '.join(sorted(self._asked))}"
                raise self.error(str(key), f"no such key{nearest(str(key), self._asked) or known}")

    def _mapping(self, name: str) -> Mapping[object, Any]:
        raw = self._take(name, {})
        if not isinstance(raw, Mapping):
            raise self._wrong(name, "a table", raw)
        return raw

    def _below(self, name: str, raw: object) -> Keys:
        return Keys(raw, file=self._file, path=self.place(name))

    def _take(self, name: str, default: Any) -> Any:
        self._asked.append(name)
        return self._raw.get(name, default)

    def _spelt(self, name: str, value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            return str(value)
        raise self._wrong(name, "text, a number, true or false", value)

    def _wrong(self, name: str, wanted: str, got: object) -> BadInput:
        return self.error(name, f"expected {wanted}, got {str(got)[:80]!r}")


def nearest(name: str | None, known: Sequence[str]) -> str:
    """A hint at the name that was probably meant; nothing when none is near."""
    found = difflib.get_close_matches(name or "", known, n=1)
    return f"; did you mean {found[0]}?" if found else ""
