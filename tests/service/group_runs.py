"""Groups of a gate that are driven by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.core.commit import Verdict
from headgate.service.commit_records import Work
from headgate.service.gate import BeginGroup, Pause

Answer = Callable[[int, Verdict], None]
Run = Callable[[Sequence[Work], Answer, bool], bool]


@dataclass
class _Begun:
    run: Run
    works: Sequence[Work]
    answer: Answer
    trusts_cache: bool

    def go_on(self, *, may_wait: bool) -> bool | Pause:
        return self.run(self.works, self.answer, self.trusts_cache)


def begin_by(run: Run) -> BeginGroup:
    """Groups that this drives from beginning to end, wherever that is."""
    return lambda works, answer, trusts_cache: _Begun(run, works, answer, trusts_cache)
