"""The way in: a service by its address, and who asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import msgspec

from headgate.client.auth import Credentials
from headgate.client.pending import Pending
from headgate.client.resend import ASKS, Ask, Resender, Time
from headgate.client.table import Name, TableClient
from headgate.client.transaction import Transaction
from headgate.client.transport import Transport
from headgate.core.backoff import BackoffPolicy, delay_ms

TIMEOUT_S = 60.0
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")


class HeadgateClient:
    """A catalog. May be shared by threads.

    `timeout_s` bounds each wait for the network; `retry` bounds how often and how long one request is sent again
    (as a rule: a question for some ten seconds, a commit for two minutes).
    """

    def __init__(
        self,
        uri: str,
        *,
        token: str | None = None,
        credential: tuple[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        retry: BackoffPolicy | None = None,
        world: Time | None = None,
    ) -> None:
        self._transport = Transport(uri, timeout_s=timeout_s)
        self._time, self._retry = world or Time(), retry or ASKS
        credentials = Credentials(token=token, credential=credential, now_s=self._time.now_s)
        self._resender = Resender(self._transport, credentials, retry, self._time)

    def table(self, name: Name) -> TableClient:
        """A table by its name (`ns.sub.table`); nothing is asked of the service yet."""
        return TableClient(name, self._resender, pause=self._pause, now_s=self._time.now_s)

    def transaction(self) -> Transaction:
        """A commit of several tables, to be filled and then committed."""
        return Transaction(self._resender, self._properties_of)

    def pending(self, key: str) -> Pending:
        """A request that was acknowledged under this key, perhaps to another process."""
        return Pending(key, self._resender, self._time.now_s)

    def key_lifetime_s(self) -> int:
        """How long the service remembers what became of a key, at least."""
        sure = self._resender.settle(Ask("GET", "/v1/config"))
        told = msgspec.json.decode(sure.answer.body, type=dict[str, Any]).get("idempotency-key-lifetime", "")
        found = _DURATION.fullmatch(str(told))
        if found is None:
            return 0  # it does not say that it remembers any
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + seconds

    def close(self) -> None:
        """Close the connections that were kept."""
        self._transport.close()

    def __enter__(self) -> HeadgateClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _properties_of(self, name: Name) -> Mapping[str, str]:
        return self.table(name).load().properties

    def _pause(self, attempt: int) -> None:
        self._time.wait_s(delay_ms(attempt, self._time.draw(), self._retry) / 1000)
