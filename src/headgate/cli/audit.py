"""`headgate audit`: is a table sound? Reads only; prints what was checked, then what was found."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TextIO

import msgspec

from headgate.cli.audit_source import Driver, Objects, load_table, read_metadata_file
from headgate.core.audit import Effect, Options, Report, audit
from headgate.core.audit_findings import RULES, Finding, Severity
from headgate.errors import BadInput, HeadgateError

URI_DEFAULT = "http://127.0.0.1:8181"
SOUND, UNSOUND, NOT_AUDITED = 0, 1, 2
_PROGRESS_EVERY_S = 2.0

_DESCRIPTION = """\
Check the structure of a table: that its snapshots, manifests and files are what its metadata says.
Nothing is written. By default the snapshots that branches and tags point at are read in full, and the
manifest lists of all others are looked for.
"""

_EPILOG = """\
examples:
  headgate audit sales.orders                      the catalog at http://127.0.0.1:8181
  headgate audit sales.orders --uri https://catalog.example.org --token "$TOKEN" --files
  headgate audit orders --metadata /lake/orders/metadata/00042-5c1e.metadata.json

exit codes:
  0  sound (there may be notes)      1  errors were found      2  not audited: bad usage, or no metadata

Objects are read from local paths, file: and s3: locations; for S3, set the AWS_* variables
(AWS_ALLOW_HTTP=true for an endpoint without TLS).

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
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--uri", default=URI_DEFAULT, help="the REST catalog (default: %(default)s)")
    source.add_argument(
        "--metadata", metavar="FILE", help="audit this metadata.json instead of asking a catalog"
    )
    parser.add_argument(
        "--token", metavar="T", help="bearer token for the catalog (default: $HEADGATE_TOKEN)"
    )
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
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit one table and print the report; the exit code says how it went."""
    objects = Objects()
    options = Options(
        all_snapshots=args.all_snapshots,
        files=args.files,
        expected_snapshot_ids=frozenset(args.expect),
        forbidden_snapshot_ids=frozenset(args.forbid),
    )
    try:
        if args.metadata is not None:
            metadata = read_metadata_file(args.metadata, objects)
        else:
            metadata = load_table(args.uri, args.table, args.token or os.environ.get("HEADGATE_TOKEN"))
        report = Driver(objects, _Progress(sys.stderr)).run(audit(metadata, options))
    except HeadgateError as error:
        field = f" ({error.field})" if isinstance(error, BadInput) and error.field else ""
        print(f"headgate audit: {error.message}{field}", file=sys.stderr)
        return NOT_AUDITED
    print(_as_json(args.table, report) if args.json else _as_text(args.table, report))
    return SOUND if report.is_sound else UNSOUND


class _Progress:
    """Says every two seconds how far a long audit has come."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._asked = 0
        self._due = time.monotonic() + _PROGRESS_EVERY_S

    def __call__(self, effect: Effect) -> None:
        self._asked += 1
        if (now := time.monotonic()) >= self._due:
            self._due = now + _PROGRESS_EVERY_S
            print(
                f"… {self._asked} objects looked at, now {type(effect).__name__}", file=self._out, flush=True
            )


def _as_json(table: str, report: Report) -> str:
    value = {
        "table": table,
        "sound": report.is_sound,
        "checked": dict(report.checked),
        "findings": [_finding_value(finding) for finding in report.findings],
        "omitted": {rule.value: count for rule, count in report.omitted.items()},
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


def _as_text(table: str, report: Report) -> str:
    lines = [f"audit of {table}", "", "checked"]
    lines += [f"  {count:>12,}  {what}" for what, count in report.checked.items()]
    lines += [f"  {len(RULES):>12,}  rules", ""]
    for severity, title in ((Severity.ERROR, "errors"), (Severity.NOTE, "notes")):
        found = [finding for finding in report.findings if finding.severity is severity]
        if found:
            lines += [title, *(_as_line(finding) for finding in found), ""]
    lines += [f"and {count:,} more of {rule.value}" for rule, count in report.omitted.items()]
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    lines.append("sound" if report.is_sound else f"NOT sound: {errors} errors")
    return "\n".join(lines)


def _as_line(finding: Finding) -> str:
    where = "" if finding.snapshot_id is None else f" snapshot={finding.snapshot_id}"
    return f"  {finding.rule.value}{where} {_printable(finding.subject)}\n      {_printable(finding.detail)}"


def _printable(text: str) -> str:
    # Paths and summaries come from the table: an escape code or a line break must not reach a terminal.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
