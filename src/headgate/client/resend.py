"""One request until its answer is sure: the same bytes under the same key, within a bound.

This is not the commit conversation (`core/flow.py`, which the service drives): nothing is judged or built here.
A change carries an Idempotency-Key, so that a request whose answer was lost may be sent again; the service does
the work once and repeats its first verdict. What is still not known at the bound is reported as unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headgate.client.auth import Credentials
from headgate.client.refusals import is_certain, is_verdict, is_worth_resending, retry_after_s, to_error
from headgate.client.transport import Answer, AnswerLost, NotSent, Transport
from headgate.core.backoff import BackoffPolicy, Spread, delay_ms
from headgate.errors import CommitUnknown, HeadgateError, Overloaded, StorageFailed, Unauthenticated

# A question fails after some ten seconds: the address may be wrong. The work behind a commit is done, so it is sent for
# as long as a service may take to come back, well inside the half hour for which the service remembers a key.
ASKS = BackoffPolicy(
    spread=Spread.FULL, retries_max=10, wait_min_ms=50, wait_max_ms=5_000, total_max_ms=120_000
)
COMMITS = replace(ASKS, retries_max=1_000)


@dataclass(frozen=True, slots=True)
class Time:
    """What a driver needs of the world: a clock, a way to wait, and draws."""

    now_s: Callable[[], float] = time.monotonic
    wait_s: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. With a key it is a change; without one it may be repeated as often as one likes."""

    method: str
    path: str
    body: bytes | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sure:
    """An answer of success, and how often the request had to be sent."""

    answer: Answer
    sent: int


class Resender:
    """Sends until the answer is sure, or the bound is reached."""

    def __init__(
        self, transport: Transport, credentials: Credentials, policy: BackoffPolicy | None, world: Time
    ) -> None:
        self._transport, self._credentials = transport, credentials
        self._asks, self._commits, self._time = policy or ASKS, policy or COMMITS, world

    def settle(self, ask: Ask) -> Sure:
        """The answer of success; raises the error of a refusal, or that nobody knows."""
        policy = self._asks if ask.key is None else self._commits
        deadline_s = self._time.now_s() + policy.total_max_ms / 1000
        in_doubt, wait_ms, renewed = False, 0, False
        problem: HeadgateError = StorageFailed("the service did not answer")
        for attempt in range(1, policy.retries_max + 2):
            asked_for_s, at_once = None, False
            try:
                answer = self._send(ask)
            except NotSent as error:
                problem = StorageFailed(str(error))
            except Unauthenticated as error:  # no token any more; tells nothing of an earlier copy
                problem = error
                if not in_doubt:
                    raise
                break
            except Overloaded as error:  # no token at the moment, so nothing was sent
                problem, asked_for_s = error, float(error.retry_after_s)
            except AnswerLost as error:
                in_doubt = in_doubt or ask.key is not None
                problem = StorageFailed(str(error))
                at_once = error.stale
            else:
                if answer.status < 300:
                    return Sure(answer, attempt)
                problem = to_error(answer)
                if answer.status == 401 and not renewed and self._credentials.drop_token():
                    renewed = at_once = True
                elif not is_worth_resending(answer):
                    if in_doubt and not is_verdict(answer):
                        break
                    raise problem
                else:
                    in_doubt = in_doubt or (ask.key is not None and not is_certain(answer))
                    asked_for_s = retry_after_s(answer)
            if attempt > policy.retries_max:
                break
            wait_ms = delay_ms(attempt, self._time.draw(), policy, previous_ms=wait_ms)
            # Never less than the service asks for, and never at once only because it asks for nothing.
            pause_s = 0.0 if at_once else wait_ms / 1000 + (asked_for_s or 0.0)
            if self._time.now_s() + pause_s > deadline_s:
                break
            self._time.wait_s(pause_s)
        raise self._give_up(ask, problem, in_doubt=in_doubt)

    def _send(self, ask: Ask) -> Answer:
        headers = {"Accept": "application/json", **ask.headers, **self._credentials.header(self._transport)}
        if ask.body is not None:
            headers.setdefault("Content-Type", "application/json")
        if ask.key is not None:
            headers["Idempotency-Key"] = ask.key
        return self._transport.send(ask.method, ask.path, headers, ask.body)

    @staticmethod
    def _give_up(ask: Ask, problem: HeadgateError, *, in_doubt: bool) -> HeadgateError:
        if in_doubt:
            return CommitUnknown(
                f"the outcome of this commit is not known: {problem.message}; key={ask.key}; "
                "send the same change with the same key again, or load the table",
                key=ask.key,
            )
        if ask.key is not None:
            problem.evidence["key"] = ask.key  # what the error says holds for this commit: it did nothing
            return problem
        # Asked for nothing but to look, so nothing happened, whatever the answer was.
        return StorageFailed(problem.message) if isinstance(problem, CommitUnknown) else problem
