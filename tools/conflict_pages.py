"""The tables of docs/conflicts.md: the rules of `core.conflicts`, and those that no validation has to ask for.

Rules about the head and about the change itself stand where they are judged; a test holds this table against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headgate.core.conflicts import RULES
from headgate.core.isolation import CLAUSES, Isolation, Producer, Scope


class Verdict(Enum):
    """How a rule's refusal is answered."""

    CONFLICT = "409 `conflict-found`"
    DIVERGED = "409 `diverged`"
    INVALID = "400 `bad-input`"


@dataclass(frozen=True, slots=True)
class HeadRule:
    """A rule that is judged at the head, or on the change alone."""

    slug: str
    refuses_when: str
    asked_by: str  # the validation that asks for it; empty: always on
    verdict: Verdict


HEAD_RULES: tuple[HeadRule, ...] = (
    HeadRule(
        "missing-required-removes",
        "a file is not live at the head; for an overwrite, always on for the data files that it removes",
        "`required-data-files`, `required-delete-files`",
        Verdict.CONFLICT,
    ),
    HeadRule("append-only", "the change would remove a file", "`must-not-remove-any-file`", Verdict.CONFLICT),
    HeadRule(
        "added-file-outside-filter",
        "an added file is not provably inside `delete-row-filter`",
        "`added-data-files-match-row-filter`",
        Verdict.INVALID,
    ),
    HeadRule(
        "removed-and-referenced",
        "a removed data file is the target of an added delete file",
        "`removed-data-files-must-not-be-referenced`",
        Verdict.INVALID,
    ),
    HeadRule(
        "unknown-history",
        "the history between base and head has a gap: snapshots expired, or the branch was rolled back",
        "every validation that looks at the window",
        Verdict.DIVERGED,
    ),
    HeadRule(
        "partial-row-filter-match",
        "some rows of a live data file may match `delete-row-filter`, and not all of them must",
        "",
        Verdict.CONFLICT,
    ),
    HeadRule("already-live", "an added path is live in the table", "", Verdict.CONFLICT),
    HeadRule(
        "second-deletion-vector",
        "a data file would have two deletion vectors",
        "",
        Verdict.CONFLICT,
    ),
    HeadRule(
        "vector-without-data-file",
        "a deletion vector is for a data file that is not live at the head",
        "",
        Verdict.CONFLICT,
    ),
    HeadRule("replace-adds-records", "a `replace` adds more records than it removes", "", Verdict.INVALID),
    HeadRule("malformed-operation", "the files do not fit the action", "", Verdict.INVALID),
    HeadRule(
        "format-version",
        "delete files in v1, deletion vectors in v2, position delete files in v3",
        "",
        Verdict.INVALID,
    ),
    HeadRule("ref-is-a-tag", "the branch is a tag", "", Verdict.INVALID),
)


def window_table() -> str:
    """The rules over the window, one row for each validation."""
    rows = ["| validation | refused when | their operations that count | `rule` |", "|---|---|---|---|"]
    for kind, rule in RULES.items():
        tag = kind.__struct_config__.tag  # type: ignore[attr-defined]  # a msgspec struct
        operations = ", ".join(sorted(rule.operations)) or "–"
        rows.append(f"| `{tag}` | {rule.refuses_when} | {operations} | `{rule.slug}` |")
    return "\n".join(rows)


def head_table() -> str:
    """The rules at the head and on the change."""
    rows = ["| `rule` | refused when | asked for by | answer |", "|---|---|---|---|"]
    rows += [
        f"| `{rule.slug}` | {rule.refuses_when} | {rule.asked_by or 'always on'} | {rule.verdict.value} |"
        for rule in HEAD_RULES
    ]
    return "\n".join(rows)


def isolation_table() -> str:
    """The validations of every producer at every level, as the client sends them."""
    rows = [f"| producer | {' | '.join(Isolation)} |", "|---|---|---|---|"]
    for producer in Producer:
        cells = [_cell(producer, level) for level in Isolation]
        rows.append(f"| {producer.value} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(producer: Producer, level: Isolation) -> str:
    everything = Scope(
        row_filter=True,
        partitions=({},),
        removed_data=("f",),
        removed_deletes=("d",),
        referenced_data=("f",),
        vectors_for=("f",),
    )
    found = [clause(everything) or {} for clause in CLAUSES[producer, level]]
    return "<br>".join(f"`{clause['type']}`" for clause in found) or "–"
