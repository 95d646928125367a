"""Commits as the service makes them: queued at the gate of their table, or with the gates of all their tables held.

Never decides anything about a commit itself: that is `core.flow`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from headgate.core.commit import Committed, Verdict
from headgate.service.alone import begin_group
from headgate.service.commit_records import Work
from headgate.service.gate import to_committed
from headgate.service.group_run import run_group
from headgate.service.services import Services

_TOTAL_TIMEOUT = "commit.retry.total-timeout-ms"
_TOTAL_TIMEOUT_MS_MIN = (
    1000  # with less, a table could refuse the very commit that would correct its property
)


def run_commit(services: Services, work: Work) -> Committed:
    """Commit and wait for the verdict; raises the error of a refusal.

    A commit of one table goes through its gate. One of several tables holds their gates while it runs.
    """
    targets = [commit.target for commit in work.commits]
    if len(targets) == 1 and not work.commits[0].creates():
        waiting: Future[Verdict] = Future()
        submit_commit(services, work, waiting.set_result)
        return to_committed(waiting.result())
    verdicts: list[Verdict] = []
    with services.gates.hold(targets):
        run_group(services, (work,), lambda _, verdict: verdicts.append(verdict))
    return to_committed(verdicts[0])


def submit_commit(
    services: Services,
    work: Work,
    done: Callable[[Verdict], None],
    *,
    deadline: float | None = None,
    is_small: bool = False,
) -> None:
    """Queue a commit of one table at its gate; `done` is told the verdict, by some thread."""
    begin = partial(begin_group, services)
    hint = services.heads.peek((work.commits[0].target,))
    if (
        hint is not None
        and (text := hint[0].metadata.envelope.properties.get(_TOTAL_TIMEOUT, "")).isdecimal()
    ):
        bound = time.monotonic() + max(_TOTAL_TIMEOUT_MS_MIN, int(text[:12])) / 1000
        deadline = bound if deadline is None else min(deadline, bound)
    services.gates.submit(work, done, begin=begin, deadline=deadline, is_small=is_small)
