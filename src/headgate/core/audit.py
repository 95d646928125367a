"""The structural audit of a table: is what its metadata says true of the files it names? Pure.

`audit` is a generator: it yields what it wants to know (a manifest list, a manifest, whether an object is
there), is sent the answer, and returns a Report. What cannot be read is a finding, not an exception, so one
audit shows all that is wrong. Metadata rules come first and cost nothing; then every snapshot that a branch
or tag points at (or every snapshot, if asked) is read in full. The rules are listed in `audit_findings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from headgate.core.audit_files import LiveFiles
from headgate.core.audit_findings import Finding, Ledger, Rule, Severity
from headgate.core.audit_metadata import AuditedMetadata, check_metadata, check_outcomes, decode_metadata
from headgate.core.manifest import ManifestEntry, ManifestFile
from headgate.core.table import Snapshot
from headgate.errors import InvariantBroken


@dataclass(frozen=True, slots=True)
class ReadManifestList:
    """Wants a tuple of ManifestFile, or Unreadable."""

    location: str


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Wants a tuple of ManifestEntry, or Unreadable."""

    manifest: ManifestFile


@dataclass(frozen=True, slots=True)
class Exists:
    """Wants a bool, or Unreadable."""

    location: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The object is missing, cannot be read or does not parse."""

    detail: str


Effect = ReadManifestList | ReadManifest | Exists
Reply = tuple[ManifestFile, ...] | tuple[ManifestEntry, ...] | bool | Unreadable
Audit = Generator[Effect, Reply, "Report"]


@dataclass(frozen=True, slots=True)
class Options:
    """How deep to look, and what the caller knows must or must not be there."""

    all_snapshots: bool = False
    files: bool = False  # ask for every live data and delete file
    expected_snapshot_ids: frozenset[int] = frozenset()
    forbidden_snapshot_ids: frozenset[int] = frozenset()
    findings_per_rule_max: int = 100


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, what was looked at, and how many findings of a rule were left out."""

    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    omitted: Mapping[Rule, int]

    @property
    def is_sound(self) -> bool:
        """Whether no finding is an error; notes are allowed."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


_DEFAULT = Options()


def audit(metadata: Mapping[str, object], options: Options = _DEFAULT) -> Audit:
    """Audit a table, given its decoded metadata JSON. Raises BadInput if that is not table metadata."""
    known = decode_metadata(metadata)
    ledger = Ledger(per_rule_max=options.findings_per_rule_max)
    checked = Counter({"snapshots": len(known.all_snapshots()), "branches and tags": len(known.heads())})
    check_metadata(known, ledger)
    check_outcomes(
        known, ledger, expected=options.expected_snapshot_ids, forbidden=options.forbidden_snapshot_ids
    )
    yield from _check_named_files(known, ledger, checked)
    asked: set[str] = set()
    heads = frozenset(known.heads().values())
    for snapshot in known.all_snapshots():
        if options.all_snapshots or snapshot.snapshot_id in heads:
            live = yield from _read_snapshot(snapshot, known, ledger, checked)
            if live is not None and options.files:
                yield from _check_files(live, asked, ledger, checked)
        elif snapshot.manifest_list is not None:
            checked["manifest lists"] += 1
            if (missing := (yield from _find_missing(snapshot.manifest_list))) is not None:
                ledger.add(
                    Rule.MANIFEST_LIST_READABLE,
                    snapshot.manifest_list,
                    missing,
                    snapshot_id=snapshot.snapshot_id,
                )
    return Report(ledger.findings(), dict(checked), ledger.omitted())


def _check_named_files(
    known: AuditedMetadata, ledger: Ledger, checked: Counter[str]
) -> Generator[Effect, Reply, None]:
    for entry in known.metadata_log or ():
        checked["metadata files"] += 1
        if (missing := (yield from _find_missing(entry.metadata_file))) is not None:
            ledger.add(Rule.METADATA_LOG_EXISTS, entry.metadata_file, missing)
    for statistics in (*(known.statistics or ()), *(known.partition_statistics or ())):
        checked["statistics files"] += 1
        if (missing := (yield from _find_missing(statistics.statistics_path))) is not None:
            ledger.add(
                Rule.STATISTICS_EXIST,
                statistics.statistics_path,
                missing,
                snapshot_id=statistics.snapshot_id,
            )


def _find_missing(location: str) -> Generator[Effect, Reply, str | None]:
    """Why an object counts as missing, or None when it is there."""
    match (yield Exists(location)):
        case True:
            return None
        case False:
            return "not there"
        case Unreadable(detail):
            return detail
        case _:
            raise InvariantBroken("the driver answered Exists with something else")


def _read_snapshot(
    snapshot: Snapshot, known: AuditedMetadata, ledger: Ledger, checked: Counter[str]
) -> Generator[Effect, Reply, LiveFiles | None]:
    checked["snapshots read in full"] += 1
    manifests = yield from _read_manifest_list(snapshot, ledger, checked)
    if manifests is None:
        return None
    specs = known.spec_ids()
    live = LiveFiles(snapshot, known, ledger)
    for manifest in manifests:
        checked["manifests"] += 1
        if manifest.partition_spec_id not in specs:
            ledger.add(
                Rule.SPEC_KNOWN,
                manifest.partition_spec_id,
                f"used by {manifest.manifest_path}",
                snapshot_id=snapshot.snapshot_id,
            )
        entries = yield ReadManifest(manifest)
        if isinstance(entries, Unreadable):
            live.complete = False
            ledger.add(
                Rule.MANIFEST_READABLE,
                manifest.manifest_path,
                entries.detail,
                snapshot_id=snapshot.snapshot_id,
            )
            continue
        found = _entries(entries)
        checked["entries"] += len(found)
        live.add(manifest, found)
    live.check()
    checked["live files"] += len(live.identities)
    return live


def _read_manifest_list(
    snapshot: Snapshot, ledger: Ledger, checked: Counter[str]
) -> Generator[Effect, Reply, tuple[ManifestFile, ...] | None]:
    if snapshot.manifest_list is None:
        ledger.add(
            Rule.MANIFEST_LIST_READABLE,
            snapshot.snapshot_id,
            "the snapshot lists its manifests inline, as v1 allowed: not audited",
            snapshot_id=snapshot.snapshot_id,
            severity=Severity.NOTE,
        )
        return None
    checked["manifest lists"] += 1
    reply = yield ReadManifestList(snapshot.manifest_list)
    if isinstance(reply, Unreadable):
        ledger.add(
            Rule.MANIFEST_LIST_READABLE,
            snapshot.manifest_list,
            reply.detail,
            snapshot_id=snapshot.snapshot_id,
        )
        return None
    if isinstance(reply, bool):
        raise InvariantBroken("the driver answered ReadManifestList with something else")
    return tuple(item for item in reply if isinstance(item, ManifestFile))


def _entries(reply: Reply) -> tuple[ManifestEntry, ...]:
    if isinstance(reply, bool | Unreadable):
        raise InvariantBroken("the driver answered ReadManifest with something else")
    return tuple(item for item in reply if isinstance(item, ManifestEntry))


def _check_files(
    live: LiveFiles, asked: set[str], ledger: Ledger, checked: Counter[str]
) -> Generator[Effect, Reply, None]:
    for path in live.paths():
        if path in asked:
            continue
        asked.add(path)
        checked["data and delete files"] += 1
        if (missing := (yield from _find_missing(path))) is not None:
            ledger.add(Rule.FILE_EXISTS, path, missing, snapshot_id=live.snapshot.snapshot_id)
