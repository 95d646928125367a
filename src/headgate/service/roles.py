"""Who asks, and what they may do. Default deny: a route without a role does not exist.

    read < insert < modify < admin

read      look at everything; report metrics of scans and commits
insert    add files to tables, nothing else
modify    every change of a table's data: deletes, overwrites, rewrites, branches
admin     the rest: create, drop, rename, register, schemas, properties, namespaces, views
"""

from __future__ import annotations

from enum import Enum

from headgate.core.value import Record
from headgate.errors import BadInput, Forbidden


class Role(Enum):
    """What a principal may do; each role includes the ones before it."""

    READ = "read"
    INSERT = "insert"
    MODIFY = "modify"
    ADMIN = "admin"

    __hash__ = object.__hash__  # each is one object; Enum would hash its name, by a call of Python


_ORDER = {role: at for at, role in enumerate(Role)}


class Caller(Record):
    """Who sent a request, and under which idempotency key."""

    principal: str
    role: Role
    request_id: str
    key: str | None = None
    fingerprint: str = ""


def includes(role: Role, needed: Role) -> bool:
    """Whether `role` may do what `needed` may."""
    return _ORDER[role] >= _ORDER[needed]


def require(caller: Caller, needed: Role) -> None:
    """Refuse a caller whose role is below the one needed."""
    if _ORDER[caller.role] < _ORDER[needed]:
        raise Forbidden(
            f"not allowed: principal={caller.principal} role={caller.role.value} needs={needed.value}",
            needs=needed.value,
        )


def parse_role(text: str) -> Role:
    """A role by its name."""
    try:
        return Role(text)
    except ValueError as error:
        names = ", ".join(role.value for role in Role)
        raise BadInput(f"role: expected one of {names}, got {text!r}", field="role") from error
