"""The REST specification as a generator of requests: whatever it allows or forbids, no answer is a failure of ours.

Requests are made by schemathesis, valid and invalid ones, from fixed seeds. Part of them is grounded: pointed at
tables, views and namespaces that exist, so that they reach the code behind the checks. What may vanish by a
request is a spare, made again when it is gone; what must stay is audited at the end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import requests
import schemathesis
import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from tools.service_process import Service, running_service

from tests.compat.lake import audit_table, catalog_of

_ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("HEADGATE_SHARED", _ROOT.parent / "shared"))
SPECIFICATION = SHARED / "rest-catalog-open-api.yaml"
AnyCase = Case[Any]
SEED = 20240229
CASES_MIN = 2_000
CASES_EACH = 31  # of each operation, valid and invalid requests each
CASES_OF = {"POST /v1/transactions/commit": 14}  # a transaction of generated commits takes a second to make
KEPT_TABLES = ("orders", "days")
KEPT_VIEW = "by_day"
# As generated; on a path that exists; and with a body that may pass the checks.
RAW, PLACED, GROUNDED = range(3)
NUMBERS = count(1)  # for names and keys that nobody has used
TRANSACTIONS = count()
NOT_SERVED = {404, 405, 406}
# Operations that generated requests do not get through: tokens are off, and no view's file is lying about.
NEVER_DONE = {"POST /v1/oauth/tokens", "POST /v1/namespaces/{namespace}/register-view"}

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
VIEW = {
    "name": KEPT_VIEW,
    "schema": SCHEMA,
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "test"},
        "default-namespace": ["kept"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    },
    "properties": {},
}

pytestmark = pytest.mark.skipif(
    not SPECIFICATION.is_file(), reason=f"the specification is not here: {SPECIFICATION}"
)


@dataclass
class Tally:
    """What was asked and what was wrong with the answers."""

    statuses: Counter[int] = field(default_factory=Counter)
    by_operation: dict[str, Counter[int]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.statuses.total()

    def add(self, label: str, status: int) -> None:
        self.statuses[status] += 1
        self.by_operation.setdefault(label, Counter())[status] += 1


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that no other test uses: these requests leave much behind."""
    with running_service(tmp_path_factory.mktemp("specification")) as running:
        yield running


@pytest.fixture(scope="module")
def http(own_service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own_service.uri, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def kept(own_service: Service, http: httpx.Client) -> Mapping[str, str]:
    """What must outlive every request: tables with rows, a view; returns their metadata files."""
    catalog = catalog_of(own_service.uri)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": pa.array([1, 1, 2], pa.int32())})
    for levels in (["kept"], ["kept", "inner"], ["spare"]):
        assert http.post("/v1/namespaces", json={"namespace": levels}).status_code == 200
    for name in KEPT_TABLES:
        table = catalog.create_table(f"kept.{name}", rows.schema)
        for _ in range(2):
            table.append(rows)
    assert http.post("/v1/namespaces/kept/views", json=VIEW).status_code == 200
    return {name: catalog.load_table(f"kept.{name}").metadata_location for name in KEPT_TABLES}


@pytest.mark.timeout(900)
def test_no_request_of_the_specification_is_answered_by_a_failure(
    own_service: Service,
    http: httpx.Client,
    kept: Mapping[str, str],
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    record_property: Any,
) -> None:
    served = {line.replace("{prefix}/", "") for line in http.get("/v1/config").json()["endpoints"]}
    tally = Tally()
    with requests.Session() as session:
        for operation in operations():
            # What the service has without advertising it, it answers like the rest.
            is_served = operation.label in served | {"GET /v1/config", "POST /v1/oauth/tokens"}
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                for case in cases(operation, mode, kept):
                    prepare(case, operation.label, http)
                    answer = case.call(base_url=own_service.uri, session=session, timeout=60)
                    tally.add(operation.label, answer.status_code)
                    if (fault := find_fault(operation.label, answer, is_served=is_served)) is not None:
                        tally.faults.append(f"{fault}\n    {case.as_curl_command()[:1500]}")
    summary = f"specification: {tally.cases:,} cases, {dict(sorted(tally.statuses.items()))}"
    record_property("cases", tally.cases)
    if (terminal := request.config.pluginmanager.get_plugin("terminalreporter")) is not None:
        with capsys.disabled():
            terminal.write_line(f"\n{summary}")
    assert not tally.faults, f"{len(tally.faults)} faults; {summary}\n" + "\n".join(tally.faults[:20])
    assert tally.cases >= CASES_MIN
    # Not everything was refused at the door: of each operation, some requests did what they are for.
    done = {label for label, statuses in tally.by_operation.items() if statuses[200] + statuses[204]}
    asked = (
        served & tally.by_operation.keys()
    ) - NEVER_DONE  # what we serve beyond the specification is not in it
    assert asked <= done, asked - done
    assert "crashed" not in own_service.log.read_text()
    check_kept(own_service, http)


def check_kept(own_service: Service, http: httpx.Client) -> None:
    for name in KEPT_TABLES:
        assert http.get(f"/v1/namespaces/kept/tables/{name}").status_code == 200
        audit_table(own_service.uri, f"kept.{name}")
        assert len(catalog_of(own_service.uri).load_table(f"kept.{name}").scan().to_arrow()) == 6
    assert http.get(f"/v1/namespaces/kept/views/{KEPT_VIEW}").status_code == 200
    assert http.get("/v1/namespaces/kept%1Finner").status_code == 200


def operations() -> Iterator[Any]:
    """The operations of the specification without the prefix, which this service does not ask for."""
    raw = yaml.safe_load(SPECIFICATION.read_text())
    raw["paths"] = {path.replace("/{prefix}", ""): item for path, item in raw["paths"].items()}
    for item in raw["paths"].values():
        if "parameters" in item:
            item["parameters"] = [p for p in item["parameters"] if not p.get("$ref", "").endswith("/prefix")]
    for found in schemathesis.openapi.from_dict(raw).get_all_operations():
        operation: Any = found
        yield operation.ok()


def cases(operation: Any, mode: GenerationMode, kept: Mapping[str, str]) -> list[AnyCase]:
    """Requests of one operation, always the same ones."""
    made: list[AnyCase] = []

    @seed(SEED)
    @settings(
        max_examples=CASES_OF.get(operation.label, CASES_EACH),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def collect(case: AnyCase) -> None:
        depth = (RAW, PLACED, GROUNDED, GROUNDED)[len(made) % 4]
        if depth != RAW:
            place(case, operation.label)
            # The specification allows any UUID as a key, this service those of version 7.
            case.headers.pop("Idempotency-Key", None)
        if depth == GROUNDED and mode is GenerationMode.POSITIVE:
            case.headers["Idempotency-Key"] = f"017f22e2-79b0-7cc3-98c4-{next(NUMBERS):012x}"
            if isinstance(case.body, dict):
                ground(case.body, operation.label, kept)
        made.append(case)

    collect()
    return made


def is_destructive(label: str) -> bool:
    return label.startswith("DELETE") or label.endswith(("/unregister", "/rename"))


def place(case: AnyCase, label: str) -> None:
    """Point the path at something that exists: a spare where the request would take it away."""
    table, view = ("t", "v") if is_destructive(label) else (KEPT_TABLES[0], KEPT_VIEW)
    real = {"namespace": "spare" if is_destructive(label) else "kept", "table": table, "view": view}
    case.path_parameters = {
        name: real.get(name, value) for name, value in (case.path_parameters or {}).items()
    }


def ground(body: dict[str, Any], label: str, kept: Mapping[str, str]) -> None:
    """Leave the generated content, but take out what would stop it before it is looked at."""
    fresh = f"n{next(NUMBERS)}"
    match label.split(" ", 1)[1].rsplit("/", 1)[-1]:
        case "rename":
            body["source"] = {"namespace": ["spare"], "name": "v" if "views" in label else "t"}
            body["destination"] = {"namespace": ["spare"], "name": fresh}
        case "commit":
            changes = body.get("table-changes", [])[: len(kept)]
            for name, change in zip(kept, changes, strict=False):
                change.update(identifier={"namespace": ["kept"], "name": name}, requirements=[])
                change["updates"] = change.get("updates", [])[:1]
            if next(TRANSACTIONS) % 2 == 0:
                # Generated updates of all tables seldom fit, and beside them stands what no JSON of ours may hold
                # (which numbers are made depends on all the code there is), so every second one is sure to pass.
                body.clear()
                sure = [{"action": "set-properties", "updates": {fresh: ""}}]
                changes = [
                    {
                        "identifier": {"namespace": ["kept"], "name": name},
                        "requirements": [],
                        "updates": sure,
                    }
                    for name in kept
                ]
            body["table-changes"] = changes
        case "{table}" | "{view}":
            body.pop("identifier", None)
            body.update(requirements=[], updates=body.get("updates", [])[:1])
        case "tables":
            body.update(name=fresh, schema=SCHEMA)
            for name in ("location", "partition-spec", "write-order"):
                body.pop(name, None)
        case "views":
            body.update({**VIEW, "name": fresh, "properties": body.get("properties", {})})
            body.pop("location", None)
        case "namespaces":
            body.update(namespace=["kept", fresh])
        case "register":
            name, place = next(iter(kept.items()))
            body.update({"name": name, "metadata-location": place, "overwrite": True})
        case "metrics":
            body["report-type"] = "scan-report"


def prepare(case: AnyCase, label: str, http: httpx.Client) -> None:
    """Make the spare again, if this request could take it away."""
    if not is_destructive(label):
        return
    where = "/v1/namespaces/spare/views" if "view" in label else "/v1/namespaces/spare/tables"
    http.post("/v1/namespaces", json={"namespace": ["spare"]})
    if label != "DELETE /v1/namespaces/{namespace}":
        body = {**VIEW, "name": "v"} if "view" in label else {"name": "t", "schema": SCHEMA}
        assert http.post(where, json=body).status_code in (200, 409)


def find_fault(label: str, answer: Any, *, is_served: bool) -> str | None:
    """What is wrong with an answer, or None."""
    status, what = answer.status_code, f"{label} → {answer.status_code} {answer.content[:300]!r}"
    if status >= 500:
        return f"a failure of ours: {what}"
    if not is_served and status not in NOT_SERVED:
        return f"an operation that is not served: {what}"
    if status < 400 or label.startswith("HEAD"):
        return None
    if "oauth" in label and status in (400, 401):  # RFC 6749 has an error model of its own
        return None if isinstance(answer.json().get("error"), str) else f"not the OAuth error model: {what}"
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return f"not the error model: {what}"
    sound = isinstance(error.get("message"), str) and error["message"] and isinstance(error.get("type"), str)
    return None if sound and error.get("code") == status else f"not the error model: {what}"
