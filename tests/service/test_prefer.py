"""Prefer: return=minimal on table commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.service.preferences import wants_minimal
from tests.service.app_client import AppClient, app_client
from tests.service.table_calls import KEY, OTHER_KEY, created, load, make_namespace, path, set_properties
from tests.service.test_feed import change

MINIMAL = {"Prefer": "return=minimal"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as found:
        make_namespace(found)
        created(found)
        yield found


def send(client: AppClient, *updates: dict[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(path(), {"requirements": [], "updates": list(updates)}, headers=named)


def test_a_minimal_answer_has_what_the_commit_brought_and_nothing_else(client: AppClient) -> None:
    assert change(client, add=("a.parquet",)).status_code == 200
    answer = change(client, add=("b.parquet",), headers=MINIMAL)
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "return=minimal"
    table = load(client)
    newest = table["metadata"]["snapshots"][-1]
    assert answer.json() == {
        "metadata-location": table["metadata-location"],
        "snapshot-id": table["metadata"]["current-snapshot-id"],
        "snapshots": [newest],
        "sequence-number": 2,
    }


def test_a_staged_snapshot_is_the_one_answered_not_the_current_one(client: AppClient) -> None:
    assert change(client, add=("a.parquet",)).status_code == 200
    current = load(client)["metadata"]["current-snapshot-id"]
    body = change(client, add=("b.parquet",), stage_only=True, headers=MINIMAL).json()
    assert load(client)["metadata"]["current-snapshot-id"] == current
    assert body["snapshot-id"] == body["snapshots"][0]["snapshot-id"] != current


def test_a_commit_without_snapshots_answers_with_the_current_one(client: AppClient) -> None:
    assert change(client, add=("a.parquet",)).status_code == 200
    body = send(client, set_properties(x="1"), Prefer="return=minimal").json()
    table = load(client)
    assert body == {
        "metadata-location": table["metadata-location"],
        "snapshot-id": table["metadata"]["current-snapshot-id"],
        "snapshots": [],
        "sequence-number": 1,
    }


def test_a_repeat_under_the_same_key_gets_the_same_minimal_answer_after_others_committed(
    client: AppClient,
) -> None:
    headers = {**MINIMAL, "Idempotency-Key": KEY}
    first = change(client, add=("a.parquet",), headers=headers)
    assert change(client, add=("b.parquet",)).status_code == 200
    again = change(client, add=("a.parquet",), headers=headers)
    assert again.status_code == 200
    assert again.headers["preference-applied"] == "return=minimal"
    assert again.json() == first.json()
    whole = change(client, add=("a.parquet",), headers={"Idempotency-Key": KEY})
    assert len(whole.json()["metadata"]["snapshots"]) == 2


def test_a_commit_that_changes_nothing_answers_minimally_too_and_again(client: AppClient) -> None:
    headers = {"Prefer": "return=minimal", "Idempotency_Key": OTHER_KEY}
    first, again = (send(client, **headers) for _ in range(2))
    assert first.json() == again.json()
    assert first.json()["snapshots"] == []


@pytest.mark.parametrize("prefer", ["", "return=representation", "wait=1", "minimal", "handling=strict"])
def test_other_preferences_are_ignored(client: AppClient, prefer: str) -> None:
    answer = send(client, set_properties(x="1"), Prefer=prefer)
    assert answer.status_code == 200
    assert "preference-applied" not in answer.headers
    assert answer.json()["metadata"]["properties"]["x"] == "1"


@pytest.mark.parametrize(
    ("prefer", "minimal"),
    [
        ("return=minimal", True),
        ("Return=Minimal", True),
        ('return="minimal"', True),
        ("respond-async, return=minimal; foo=bar", True),
        ("return=representation, return=minimal", False),
        ("returns=minimal", False),
        ("return", False),
    ],
)
def test_the_header_is_read_as_rfc_7240_says(prefer: str, minimal: bool) -> None:
    assert wants_minimal({"prefer": prefer}) is minimal
