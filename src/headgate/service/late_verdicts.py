"""Verdicts that no swap has stored under their key: of a commit that changes nothing, or that was found to have landed.

Nothing of a table is changed here. What cannot be stored is unknown to the client, who asks again.
"""

from __future__ import annotations

from headgate.core.commit import Committed, Refused, Share, Unknown, Verdict
from headgate.errors import HeadgateError
from headgate.service.commit_records import Published, Work, key_operation
from headgate.service.http_errors import KeyTaken
from headgate.service.idempotency import unread
from headgate.service.services import Services


def store_unchanged(services: Services, work: Work, verdict: Committed) -> Verdict:
    """Keep the verdict of a commit that changes nothing under the client's key."""
    if work.caller.key is None and not work.also:
        return verdict
    # It may change nothing because it landed before, unheard: so a failure here is unknown, too.
    stored = _store(services, work, Share(0, ()), {}, verdict)
    if isinstance(stored, Unknown):
        return stored
    return verdict if stored else Refused(KeyTaken())


def store_again(services: Services, work: Work, verdict: Committed) -> Verdict:
    """Keep the verdict of a commit that was found by what it published: its key was forgotten, or was another's."""
    told = Committed(verdict.heads, verdict.candidates)
    if work.caller.key is None and not work.also:
        return told
    heads = {commit.target: head for commit, head in zip(work.commits, verdict.heads, strict=True)}
    published = {c.target: (c, head) for c in verdict.candidates if (head := heads[c.target]) is not None}
    share = Share(0, tuple((c.target, c.updates) for c, _ in published.values()))
    stored = _store(services, work, share, published, verdict)
    if isinstance(stored, Unknown):
        return stored
    return told if stored else verdict  # under its key it is told already


def _store(
    services: Services, work: Work, share: Share, published: Published, verdict: Committed
) -> Unknown | bool:
    """Store it, with what belongs to it; False when there is a verdict under the key."""
    key = key_operation(work, share, published, now_ms=services.clock_ms(), heads=verdict.heads)
    try:
        return services.store.write((key, *work.also)) is None
    except HeadgateError as error:
        return Unknown(unread(error, work.caller.key))
