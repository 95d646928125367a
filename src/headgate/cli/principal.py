"""`headgate principal create|list|delete`: who may ask for tokens. A secret is shown once, when made."""

from __future__ import annotations

import argparse
import re

from headgate.cli.options import CATALOG_SETTINGS, add_settings, read_settings
from headgate.errors import AlreadyExists, BadInput, NotFound
from headgate.service.auth import ANONYMOUS
from headgate.service.roles import Role, parse_role
from headgate.service.services import wall_clock_ms
from headgate.service.tokens import hash_secret, new_secret
from headgate.store.base import Principal
from headgate.store.open import open_store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")  # no colon: HTTP Basic ends the id at one


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    parser = commands.add_parser("principal", help="create, list and delete those who may ask for tokens")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a principal and print its secret, once")
    create.add_argument("name", metavar="NAME", help="the client id")
    roles = ", ".join(role.value for role in Role)
    create.add_argument("--role", required=True, help=f"one of {roles}")
    show = actions.add_parser("list", help="list principals and their roles")
    delete = actions.add_parser("delete", help="delete a principal; its tokens stop working within seconds")
    delete.add_argument("name", metavar="NAME", help="the client id")
    for action, run in ((create, run_create), (show, run_list), (delete, run_delete)):
        add_settings(action, CATALOG_SETTINGS)
        action.set_defaults(run=run)


def run_create(parsed: argparse.Namespace) -> int:
    """Create one; never replace one, because its secret may be in use."""
    role = parse_role(parsed.role)
    if _NAME.fullmatch(parsed.name) is None or parsed.name == ANONYMOUS:
        raise BadInput(f"NAME: expected letters, digits and . _ @ -, got {parsed.name!r}", field="name")
    store = open_store(read_settings(parsed).database_url)
    try:
        if store.load_principal(parsed.name) is not None:
            raise AlreadyExists(f"principal already exists: {parsed.name}", kind="principal")
        secret = new_secret()
        store.put_principal(Principal(parsed.name, hash_secret(secret), role.value, wall_clock_ms()))
    finally:
        store.close()
    print(f"client_id={parsed.name}\nclient_secret={secret}\nrole={role.value}")
    return 0


def run_list(parsed: argparse.Namespace) -> int:
    """One line each: id and role."""
    store = open_store(read_settings(parsed).database_url)
    try:
        for principal in store.list_principals():
            print(f"{principal.client_id}\t{principal.role}")
    finally:
        store.close()
    return 0


def run_delete(parsed: argparse.Namespace) -> int:
    """Delete one."""
    store = open_store(read_settings(parsed).database_url)
    try:
        if not store.drop_principal(parsed.name):
            raise NotFound(f"no such principal: {parsed.name}", kind="principal")
    finally:
        store.close()
    return 0
