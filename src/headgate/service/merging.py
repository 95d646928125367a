"""Merges manifests that commits left behind, as a background commit of operation `replace`.

A commit merges what its budget allows (`core.manifest_merge`). What is beyond that, and what a table is left with when
its writers stop, is merged here: for tables that were committed to lately, and never more than a bounded part with one
commit, so that writers who queue behind it hardly notice. A busy table is left alone unless its rules want a merge; a
quiet one gets the rest merged for its readers. The commit goes through the gate like any other, by the principal
`headgate`.
"""

from __future__ import annotations

import logging
import threading
import time
from http import HTTPStatus

from headgate.core.change import Replace
from headgate.core.commit import TableCommit, Target
from headgate.core.manifest_merge import background_change, parse_policy
from headgate.core.updates import AssertTableUuid
from headgate.errors import HeadgateError
from headgate.service.commit_records import Work
from headgate.service.commits import run_commit
from headgate.service.logs import log
from headgate.service.roles import Caller, Role
from headgate.service.services import Services

PRINCIPAL = "headgate"
_EVERY_S = 1.0
_QUIET_S = 3.0  # so long after its last commit a table is quiet
_LEAST = 25  # manifests that a quiet table must have before its readers are worth a commit
_COMMITS_MAX = (
    100  # of one table in one round: with a bounded part each, more are needed only by a foreign mess
)


class Merger:
    """One background thread. `start` it, `close` it; or `run_round` in a thread of one's own."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._seen: dict[Target, float] = {}  # tables to look at, and when they were last committed to
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="headgate-merger", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the commit that is being made, if any."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_round(self, *, quiet_s: float = _QUIET_S) -> int:
        """Look at every table that was committed to lately; returns how many commits were made."""
        self._seen |= self._services.gates.take_recent()
        made = 0
        for target, last in list(self._seen.items()):
            is_quiet = time.monotonic() - last >= quiet_s
            try:
                made += self._merge_table(target, is_quiet=is_quiet)
            except HeadgateError as error:  # whoever won the race has its own commits to look at
                name = ".".join((*target[0], target[1]))
                log(logging.WARNING, "manifests were not merged", table=name, error=str(error))
            if is_quiet:
                self._seen.pop(target, None)
        return made

    def _merge_table(self, target: Target, *, is_quiet: bool) -> int:
        for made in range(_COMMITS_MAX):
            if self._stop.is_set() or not self._wants_merge(target, is_quiet=is_quiet):
                return made
            self._commit(target)
            if not is_quiet:
                return made + 1  # one a round: writers go first
        return _COMMITS_MAX

    def _wants_merge(self, target: Target, *, is_quiet: bool) -> bool:
        (head,) = self._services.heads.load((target,))
        if head is None or head.metadata.envelope.current_snapshot_id is None:
            return False
        snapshot = head.metadata.find_snapshot(head.metadata.envelope.current_snapshot_id)
        if snapshot is None or snapshot.manifest_list is None:
            return False
        policy = parse_policy(head.metadata.envelope.properties)
        if not policy.enabled:
            return False
        manifests = self._services.manifests.read_list(snapshot.manifest_list)
        if len(manifests) < _LEAST:
            return False
        return background_change(manifests, policy, idle=is_quiet) is not None

    def _commit(self, target: Target) -> None:
        (head,) = self._services.heads.load((target,))
        if head is None:
            return
        commit = TableCommit(
            target,
            (AssertTableUuid(uuid=head.metadata.envelope.table_uuid),),
            (Replace(rewrite_manifests=True),),
        )
        run_commit(
            self._services,
            Work(
                caller=Caller(PRINCIPAL, Role.ADMIN, request_id=self._services.new_uuid()),
                key=self._services.new_uuid(),
                commits=(commit,),
                replay={"kind": "table", "role": Role.MODIFY.value},
                status=HTTPStatus.OK,
                event="commit-table",
            ),
        )

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.run_round()


def start(services: Services) -> Merger:
    """Merge in the background until the services are closed."""
    merger = Merger(services)
    services.housekeeper.adopt(merger)
    merger.start()
    return merger
