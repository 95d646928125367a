"""`headgate audit`: is a table sound? Prints what was checked, then what was found. Deletes orphans only when told to."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.cli.audit_source import Driver, ObjectReader, Objects, load_table, read_metadata_file
from headgate.cli.expire import read_age
from headgate.cli.lake_options import need_packages, read_catalog_properties, read_table
from headgate.cli.progress import Progress
from headgate.cli.summary import shown_size
from headgate.core.audit import Effect, Options, Reply, Report, audit
from headgate.core.audit_findings import RULES, Finding, Severity
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.errors import BadInput, HeadgateError

if TYPE_CHECKING:
    from headgate.library.audited import AuditedTable
    from headgate.library.orphans import Orphans

URI_DEFAULT = "http://127.0.0.1:8181"
SOUND, UNSOUND, NOT_AUDITED = 0, 1, 2
_ORPHANS = "orphans"
_SHOWN_MAX = 100

_DESCRIPTION = """\
Check the structure of a table: that its snapshots, manifests and files are what its metadata says.
By default the snapshots that branches and tags point at are read in full, and the manifest lists of all
others are looked for. Nothing is written, and nothing is deleted without --fix.
"""

_EPILOG = """\
examples:
  headgate audit sales.orders                      the catalog at http://127.0.0.1:8181
  headgate audit sales.orders --uri https://catalog.example.org --token "$TOKEN" --files
  headgate audit sales.orders --catalog prod       any catalog that PyIceberg's configuration knows
  headgate audit sales.orders --catalog lake --catalog-property type=sql --catalog-property uri=sqlite:///lake.db
  headgate audit sales.orders --orphans            also list old files that nothing reaches
  headgate audit sales.orders --fix orphans        and delete them, if the table is sound
  headgate audit orders --metadata /lake/orders/metadata/00042-5c1e.metadata.json

exit codes:
  0  sound (there may be notes and orphans)      1  errors were found, or orphans could not be deleted
  2  not audited: bad usage, or no metadata

Orphans are files below the table's location that no snapshot, manifest, statistics or metadata log names and that are
older than --older-than: jobs write first and commit later, so less than a day is refused. What lies elsewhere
(write.data.path) is not looked at, since other tables may have files there.

Objects are read from local paths, file: and s3: locations; for S3, set the AWS_* variables
(AWS_ALLOW_HTTP=true for an endpoint without TLS). With --catalog they are read as the catalog's properties say.

rules:
""" + "\n".join(f"  {rule.value:24}{text}" for rule, text in RULES.items())


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "audit",
        help="check that a table is sound",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "table", metavar="TABLE", help="namespace.table; with --metadata only a name to print"
    )
    _add_source(parser)
    parser.add_argument("--files", action="store_true", help="also look for every live data and delete file")
    parser.add_argument("--all-snapshots", action="store_true", help="read every snapshot in full")
    parser.add_argument(
        "--expect", metavar="ID", type=int, action="append", default=[], help="a snapshot that must be there"
    )
    parser.add_argument(
        "--forbid",
        metavar="ID",
        type=int,
        action="append",
        default=[],
        help="a snapshot that must not be there",
    )
    parser.add_argument("--orphans", action="store_true", help="also list old files that nothing reaches")
    parser.add_argument("--fix", choices=(_ORPHANS,), help="delete them")
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        default="1d",
        help="how old an orphan must be, as in 5d or 48h (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.set_defaults(run=run)


def _add_source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--uri", default=URI_DEFAULT, help="the REST catalog (default: %(default)s)")
    source.add_argument(
        "--metadata", metavar="FILE", help="audit this metadata.json instead of asking a catalog"
    )
    source.add_argument(
        "--catalog", metavar="NAME", help="any other catalog, as PyIceberg's configuration calls it"
    )
    parser.add_argument(
        "--catalog-property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a property of it: type=sql, uri=sqlite:///…, warehouse=…; may be repeated",
    )
    parser.add_argument(
        "--token", metavar="T", help="bearer token for the catalog (default: $HEADGATE_TOKEN)"
    )


def run(args: argparse.Namespace) -> int:
    """Audit one table and print the report; the exit code says how it went."""
    progress = Progress(sys.stderr)
    try:
        try:
            report, orphans = _audit(args, progress)
        finally:
            progress.end()
    except HeadgateError as error:
        field = f" ({error.field})" if isinstance(error, BadInput) and error.field else ""
        print(f"headgate audit: {_printable(error.message)}{field}", file=sys.stderr)
        return NOT_AUDITED
    print((_as_json if args.json else _as_text)(args.table, report, orphans))
    return SOUND if report.is_sound and (orphans is None or not orphans.failed) else UNSOUND


def _audit(args: argparse.Namespace, progress: Progress) -> tuple[Report, Orphans | None]:
    options = Options(
        all_snapshots=args.all_snapshots,
        files=args.files,
        expected_snapshot_ids=frozenset(args.expect),
        forbidden_snapshot_ids=frozenset(args.forbid),
    )
    wants_orphans = bool(args.orphans or args.fix)
    age = read_age("--older-than", args.older_than)
    properties = read_catalog_properties(args.catalog, args.catalog_property)
    if wants_orphans and args.metadata is not None:
        raise BadInput(
            "orphans are found by asking a catalog: a metadata file cannot tell what was committed since",
            field="--metadata",
        )
    table = _open(args, properties) if wants_orphans or args.catalog is not None else None
    objects: ObjectReader = Objects()
    if args.catalog is not None and table is not None:
        objects, metadata = table, table.metadata()
    elif args.metadata is not None:
        metadata = read_metadata_file(args.metadata, Objects())
    else:
        metadata = load_table(args.uri, args.table, _token(args))
    report = Driver(objects, _Count(progress, options)).run(audit(metadata, options))
    if not wants_orphans or table is None:
        return report, None
    if not report.is_sound:  # nobody knows what it should reach
        progress.end()
        print("headgate audit: orphans are not looked for, since the table is not sound", file=sys.stderr)
        return report, None
    from headgate.library.orphans import AGE_MIN, remove_orphans  # optional extra

    dry_run = args.fix != _ORPHANS
    found = remove_orphans(table.see, older_than=age or AGE_MIN, dry_run=dry_run, tick=progress)
    return report, found


def _open(args: argparse.Namespace, properties: dict[str, str]) -> AuditedTable:
    need_packages("pyarrow", "pyiceberg", extra="library")
    from headgate.library.audited import AuditedTable  # optional extra
    from headgate.library.opening import open_catalog  # optional extra

    name = read_table(args.table)
    if args.catalog is None:
        token = _token(args)
        properties = {"type": "rest", "uri": args.uri, **({} if token is None else {"token": token})}
    return AuditedTable(open_catalog(args.catalog or "headgate", properties), name)


def _token(args: argparse.Namespace) -> str | None:
    return args.token or os.environ.get("HEADGATE_TOKEN")


class _Count:
    """Counts what an audit has looked at, and what it is known to look at yet."""

    def __init__(self, progress: Progress, options: Options) -> None:
        self._progress, self._options = progress, options
        self._done = self._known = 0

    def __call__(self, effect: Effect, reply: Reply) -> None:
        self._done += 1
        if isinstance(reply, tuple):
            self._known += sum(
                isinstance(one, ManifestFile)
                or (self._options.files and isinstance(one, ManifestEntry) and one.is_live)
                for one in reply
            )
        self._progress("objects looked at", self._done, max(self._known, self._done))


# --- the report ---------------------------------------------------------------------------------------------


def _as_json(table: str, report: Report, orphans: Orphans | None) -> str:
    value: dict[str, Any] = {
        "table": table,
        "sound": report.is_sound,
        "checked": dict(report.checked),
        "findings": [_finding_value(finding) for finding in report.findings],
        "omitted": {rule.value: count for rule, count in report.omitted.items()},
    }
    if orphans is not None:
        value["orphans"] = {
            "files": orphans.files,
            "size-bytes": orphans.size_bytes,
            "deleted": orphans.are_deleted,
            "failed": dict(orphans.failed),
        }
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _finding_value(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule.value,
        "severity": finding.severity.value,
        "snapshot-id": finding.snapshot_id,
        "subject": finding.subject,
        "detail": finding.detail,
    }


def _as_text(table: str, report: Report, orphans: Orphans | None) -> str:
    lines = [f"audit of {table}", "", "checked"]
    lines += [f"  {count:>12,}  {what}" for what, count in report.checked.items()]
    lines += [f"  {len(RULES):>12,}  rules", ""]
    for severity, title in ((Severity.ERROR, "errors"), (Severity.NOTE, "notes")):
        found = [finding for finding in report.findings if finding.severity is severity]
        if found:
            lines += [title, *(_as_line(finding) for finding in found), ""]
    lines += [f"and {count:,} more of {rule.value}" for rule, count in report.omitted.items()]
    if orphans is not None:
        lines += [*_orphan_lines(orphans), ""]
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    lines.append("sound" if report.is_sound else f"NOT sound: {errors} errors")
    return "\n".join(lines)


def _orphan_lines(orphans: Orphans) -> list[str]:
    count, size = len(orphans.files), shown_size(orphans.size_bytes)
    end = "deleted" if orphans.are_deleted else "--fix orphans deletes them"
    lines = [f"orphans: {count:,} files, {size}{f'; {end}' if count else ''}"]
    lines += [f"  {_printable(name)}" for name in orphans.files[:_SHOWN_MAX]]
    if count > _SHOWN_MAX:
        lines.append(f"  and {count - _SHOWN_MAX:,} more; --json has them all")
    lines += [f"  NOT deleted: {_printable(name)}: {_printable(why)}" for name, why in orphans.failed.items()]
    return lines


def _as_line(finding: Finding) -> str:
    where = "" if finding.snapshot_id is None else f" snapshot={finding.snapshot_id}"
    return f"  {finding.rule.value}{where} {_printable(finding.subject)}\n      {_printable(finding.detail)}"


def _printable(text: str) -> str:
    # Paths and summaries come from the table: an escape code or a line break must not reach a terminal.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
