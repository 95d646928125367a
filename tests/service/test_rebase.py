"""Plain commits that lost their head, over HTTP: rebased where the table asks for it, or refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.app_client import AppClient, app_client
from tests.service.change_calls import NOTHING_ADDED, change, commit_change, data_file, head_id, live_paths
from tests.service.job_calls import accepted, commit_later, run, verdict
from tests.service.table_calls import (
    created,
    error_of,
    load,
    make_namespace,
    path,
    ref,
    set_properties,
    snapshot,
    write_data,
)

OURS = 77
Wire = dict[str, Any]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    with app_client(tmp_path) as made:
        make_namespace(made)
        yield made


def overtaken(client: AppClient, *, rebase: str | None = "append", operation: str = "append") -> Wire:
    """The first commit of a client to a table that somebody else has filled meanwhile: its body."""
    created(client, properties={} if rebase is None else {"headgate.rebase": rebase})
    metadata = load(client)["metadata"]
    location = metadata["location"]
    manifest_list = write_data(f"{location}/metadata", [f"{location}/data/ours.parquet"], id=OURS)
    ours = snapshot(client, manifest_list, id=OURS, sequence=1, summary={"operation": operation})
    theirs = change("append", add_data_files=[data_file(f"{location}/data/theirs.parquet")])
    assert commit_change(client, theirs).status_code == 200
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        ],
        "updates": [ours, ref(OURS)],
    }


def send(client: AppClient, body: Wire) -> httpx.Response:
    return client.post(path(), body)


def why_not(answer: httpx.Response) -> object:
    """The reason that a refusal gives."""
    assert answer.status_code == 409, answer.text
    return error_of(answer)["headgate"].get("not-rebased")


def test_an_append_that_was_overtaken_lands_under_the_id_that_its_client_gave_it(client: AppClient) -> None:
    answer = send(client, overtaken(client))
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["current-snapshot-id"] == OURS
    assert live_paths(client, "t") == ["ours.parquet", "theirs.parquet"]


def test_the_same_request_again_lands_no_second_time(client: AppClient) -> None:
    body = overtaken(client)
    first, again = send(client, body), send(client, body)
    assert (first.status_code, again.status_code) == (200, 200)
    assert len(load(client)["metadata"]["snapshots"]) == 2


def test_a_refusal_says_why_the_commit_was_not_rebased(client: AppClient) -> None:
    answer = send(client, overtaken(client, operation="overwrite"))
    assert why_not(answer) == "headgate.rebase does not allow the operation overwrite"
    assert live_paths(client, "t") == ["theirs.parquet"]


def test_a_refusal_says_what_is_odd_about_the_updates(client: AppClient) -> None:
    body = overtaken(client)
    body["updates"].append(set_properties(a="b"))
    assert why_not(send(client, body)) == "the updates are not one snapshot and one branch moved to it"


def test_a_refusal_says_what_is_wrong_with_the_files_of_the_client(client: AppClient) -> None:
    body = overtaken(client)
    location = load(client)["metadata"]["location"]
    Path(f"{location.removeprefix('file://')}/metadata/m-{OURS}.avro").unlink()
    assert "cannot be read" in str(why_not(send(client, body)))


def test_a_refusal_does_not_speak_of_a_rebase_that_nobody_asked_for(client: AppClient) -> None:
    answer = send(client, overtaken(client, rebase=None))
    assert why_not(answer) is None
    assert error_of(answer)["headgate"]["requirement"] == "assert-ref-snapshot-id"


def test_validations_of_the_request_itself_are_not_lost_by_a_rebase(client: AppClient) -> None:
    body = overtaken(client) | {"commit-validations": [NOTHING_ADDED], "base-snapshot-id": None}
    assert "validations of its own" in str(why_not(send(client, body)))
    assert live_paths(client, "t") == ["theirs.parquet"]


def test_an_append_that_was_overtaken_is_taken_for_later_too(client: AppClient) -> None:
    body = overtaken(client)
    later = accepted(commit_later(client, *body["updates"], requirements=body["requirements"]))
    run(client)
    assert verdict(client, later)["status"] == "committed"
    assert head_id(client, "t") == OURS
    assert live_paths(client, "t") == ["ours.parquet", "theirs.parquet"]


def test_what_cannot_be_rebased_is_refused_before_it_is_taken_for_later(client: AppClient) -> None:
    body = overtaken(client, operation="overwrite")
    answer = commit_later(client, *body["updates"], requirements=body["requirements"])
    assert answer.status_code == 409
