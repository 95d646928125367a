"""A group's conversation driven to its end: `core.flow` decides, and what it asks for is `group_driver`'s to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headgate.core.build import PlanEffect
from headgate.core.commit import Effect, Member, Reply, Swap, Swapped, Verdict, Wait
from headgate.core.flow import group_flow
from headgate.errors import HeadgateError, invariant, without_frames
from headgate.service.commit_records import Work
from headgate.service.gate import Pause
from headgate.service.group_driver import GroupDriver, HasToWait
from headgate.service.publishing import Prepared
from headgate.service.services import Services

# A swap that another replica won says nothing of the change, so it is tried for as long as there is time (`GroupDriver`).
_ATTEMPTS_MAX = 10_000
_STRETCH_S = 0.004  # where others wait to have their turn, so much is done at a time


def run_group(
    services: Services,
    works: Sequence[Work],
    answer: Callable[[int, Verdict], None],
    *,
    trusts_cache: bool = False,
) -> bool:
    """Drive one conversation for all of them; `answer` is told each verdict once. False when others commit there too.

    `trusts_cache`: heads that are remembered may be built on, since nobody else is known to commit to the tables.
    """
    run = GroupRun(services, works, answer, trusts_cache)
    calm = run.go_on(may_wait=True)
    if calm is Pause.TRIES_AGAIN:
        with services.gates.turns_at([commit.target for work in works for commit in work.commits]):
            while calm is Pause.TRIES_AGAIN:
                calm = run.go_on(may_wait=True)
    return calm is True


class GroupRun:
    """One conversation for a group. It may begin where nothing may be waited for, and go on elsewhere."""

    def __init__(
        self,
        services: Services,
        works: Sequence[Work],
        answer: Callable[[int, Verdict], None],
        trusts_cache: bool,
    ) -> None:
        self._driver = GroupDriver(services, works, answer, trusts_cache=trusts_cache)
        self._works = works
        members = tuple([Member(work.key, work.commits, work.fold) for work in works])
        self._conversation = group_flow(members, policy=services.locations, attempts_max=_ATTEMPTS_MAX)
        self._next: Effect | None = None  # which has to wait
        self._reply: tuple[Reply, HeadgateError | None] = (None, None)  # what the conversation is told next

    def take_over(self, replies: Sequence[Reply], prepared: Prepared, answer: Reply = None) -> None:
        """Begin at a swap that was prepared without the conversation, which is told the replies up to there.

        `answer` is what became of it when it was sent; None: it is still to be sent.
        """
        swap = self._conversation.send(None)
        for reply in replies:
            swap = self._conversation.send(reply)
        invariant(isinstance(swap, Swap), "the conversation comes to the swap that was prepared without it")
        if isinstance(swap, Swap):
            self._driver.take_over(swap, prepared, answer)
        if answer is None:
            self._next = swap
        else:
            self._reply = answer, None

    def go_on(self, *, may_wait: bool) -> bool | Pause:
        """As `run_group`, or to a pause: nobody has been told anything that the rest could change."""
        driver, is_over = self._driver, True
        try:
            try:
                verdicts = self._converse(may_wait)
            except HeadgateError as error:
                # Whatever failed now has done nothing, but what was swapped before may have landed.
                without_frames(error)
                verdicts = tuple(driver.describe_failure(member, error) for member in range(len(self._works)))
            if isinstance(verdicts, Pause):
                is_over = False
                return verdicts
            for member, verdict in enumerate(verdicts):
                driver.answer(member, verdict)
        finally:
            if is_over:
                driver.close()
            driver.settle()  # who waits was told first
            driver.log_verdicts()
        return not driver.met_others

    def _converse(self, may_wait: bool) -> tuple[Verdict, ...] | Pause:
        """Carry out one effect after the other. Raises when the heads cannot be loaded or the swap not be sent."""
        carry_out = self._driver.carry_out if may_wait else self._driver.carry_out_at_once
        conversation, effect, self._next = self._conversation, self._next, None
        (reply, failed), self._reply = self._reply, (None, None)
        pause_at = float("inf") if may_wait else time.monotonic() + _STRETCH_S
        while True:
            if effect is None:
                try:
                    effect = conversation.send(reply) if failed is None else conversation.throw(failed)
                except StopIteration as stop:
                    verdicts: tuple[Verdict, ...] = stop.value
                    return verdicts
            failed = None
            try:
                found = carry_out(effect)
            except HeadgateError as error:
                if not isinstance(effect, PlanEffect):
                    raise
                failed = error  # the flow knows what it had written before, and has it discarded
            else:
                if isinstance(found, HasToWait):
                    self._next = effect
                    return Pause.HAS_TO_WAIT
                reply = found
            if isinstance(effect, Wait) and reply is None:
                self._reply = None, None
                return Pause.TRIES_AGAIN
            effect = None
            if time.monotonic() > pause_at and not isinstance(reply, Swapped):
                self._reply = reply, failed
                return Pause.HAS_MORE
