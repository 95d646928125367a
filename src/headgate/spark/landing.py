"""The end of a job: one commit under the run's key, and what becomes of its files when that fails.

A refusal is settled by the client: the same verdict holds for every copy of the request, so the files of the run can
go. So can those of a commit that never left; the error names its key then. Whatever else happens (an answer that was
lost, a job that is interrupted) deletes nothing: a commit that landed must never lose its files. `headgate audit` finds
what is left over then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from headgate.client.changes import File
from headgate.errors import (
    BadInput,
    CommitRefused,
    CommitUnknown,
    Forbidden,
    HeadgateError,
    NotFound,
    Overloaded,
    StorageFailed,
    Unauthenticated,
    Unsupported,
)
from headgate.spark.data_files import discard_files
from headgate.spark.lake import LakeTable, TableState
from headgate.spark.runs import Run

_T = TypeVar("_T")
_ALREADY_LIVE = "already-live"
# Each of them says that the request did nothing; the client turns what is in doubt into CommitUnknown.
CERTAIN = (BadInput, CommitRefused, Forbidden, NotFound, Unauthenticated, Unsupported)


def land(
    table: LakeTable,
    run: Run,
    files: Sequence[File],
    commit: Callable[[str], _T],
    *,
    state: TableState | None = None,
) -> _T:
    """Commit under the run's key. A certain refusal removes the run's files; an unknown outcome leaves all of them.

    `state` is the table as the files were written for it; without it the table is loaded when files must go.
    """
    try:
        return commit(run.key)
    except CommitUnknown as error:
        raise CommitUnknown(
            f"{error.message}; run={run.id} table={table.name}: its files were left where they are; "
            "run the same job with the same key again, or look for the run in the table's files",
            **{**error.evidence, "key": run.key, "run": run.id, "files": len(files)},
        ) from error
    except CERTAIN as error:
        if leaves_no_doubt(error):
            discard_quietly(table, run, files, state)
        raise
    except (Overloaded, StorageFailed) as error:
        if (
            error.evidence.get("key") == run.key
        ):  # it never left; without the key, only a question may have failed
            discard_quietly(table, run, files, state)
        raise


def leaves_no_doubt(error: HeadgateError) -> bool:
    """Whether the files of a commit that was refused so are in no table.

    A run's files have names of their own. If they are live, it landed before, and its key is forgotten.
    """
    return not error.evidence.get("in_doubt") and error.evidence.get("rule") != _ALREADY_LIVE


def discard_quietly(
    table: LakeTable, run: Run, files: Sequence[File] = (), state: TableState | None = None
) -> None:
    """Remove what a run has written, if that can be done: the error that brought us here matters more."""
    try:
        discard_files(state or table.load(), run, files)
    except (OSError, HeadgateError):
        return  # what is left is found by its run's name
