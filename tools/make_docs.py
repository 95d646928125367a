"""Writes what is made from code: settings.md, conflicts.md, the roles in security.md, and the OpenAPI document.

`python tools/make_docs.py` writes them; a test compares them with what this module would write.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from headgate.service.exchange import Route
from headgate.service.routes import all_routes
from headgate.service.settings import Settings
from headgate.service.settings_sources import environment_name, flag_name
from tools import make_openapi
from tools.conflict_pages import head_table, isolation_table, window_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
_BEGIN, _END = "<!-- roles: made by tools/make_docs.py -->", "<!-- end of roles -->"


def settings_page() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Made by `tools/make_docs.py` from `src/headgate/service/settings.py`; do not edit.",
        "",
        "A setting comes from the first of these that has it: the flag of `headgate serve`, the environment",
        "variable, the TOML file named by `--config` (or `HEADGATE_CONFIG`), the default. An unknown key,",
        "a wrong type or a bad value stops the start with exit code 2 and names its source. Secrets have no",
        "flag, because a command line is visible to other users of the machine. Lists are repeated flags, or",
        "comma-separated in the environment.",
        "",
        "| in the file | flag | environment | default | range | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for item in fields(Settings):
        meta = item.metadata
        flag = "" if meta["secret"] else f"`{flag_name(item.name)}`"
        bounds = (
            f"{meta['low']}–{meta['high']}" if meta["low"] is not None else ", ".join(meta["one_of"] or ())
        )
        default = f"`{item.default}`" if item.default not in ("", ()) else ""
        variable = f"`{environment_name(item.name)}`"
        cells = (f"`{item.name}`", flag, variable, default, bounds, meta["help"].replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def roles_table() -> str:
    """The routes and the role that each needs."""
    routes = sorted(all_routes().routes, key=lambda route: (route.template, route.method))
    rows = [f"| `{route.method} {route.template}` | {_role(route)} |" for route in routes]
    return "\n".join([_BEGIN, "", "| route | role |", "|---|---|", *rows, "", _END])


def security_page(current: str) -> str:
    """docs/security.md with its table of roles made anew."""
    before, _, rest = current.partition(_BEGIN)
    return before + roles_table() + rest.partition(_END)[2]


def conflicts_page() -> str:
    """docs/conflicts.md."""
    return "\n".join(
        [
            "# Conflicts",
            "",
            "Made by `tools/make_docs.py` from `src/headgate/core/conflicts.py` and `core/isolation.py`; do not edit.",
            "",
            "The *window* is the commits after the change's `base-snapshot-id` up to the head of its branch; all of",
            "them when no base is given. *In scope* is a file that may match the validation's `filter` (by its",
            "partition and its column bounds), or that is in one of its `partitions`. The wire is described in",
            "[fine-grained-commits.md](fine-grained-commits.md).",
            "",
            "## Validations over the window",
            "",
            window_table(),
            "",
            "All of these are answered by 409 `conflict-found`, but `base-not-ancestor`, which is 409 `diverged`.",
            "",
            "## Rules at the head and on the change itself",
            "",
            head_table(),
            "",
            "## Isolation levels",
            "",
            "What `headgate.client` sends for each of Java's producers; clauses that speak of nothing (no row filter, no",
            "removed files) are left out. `row-delete` is a merge-on-read DELETE, `row-update` an UPDATE or MERGE.",
            "",
            isolation_table(),
            "",
        ]
    )


def _role(route: Route) -> str:
    return "everybody" if route.role is None else route.role.value


def main() -> None:
    """Write the pages."""
    (DOCS / "settings.md").write_text(settings_page(), encoding="utf-8")
    (DOCS / "conflicts.md").write_text(conflicts_page(), encoding="utf-8")
    make_openapi.FILE.write_text(make_openapi.openapi_text(), encoding="utf-8")
    page = DOCS / "security.md"
    page.write_text(security_page(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
