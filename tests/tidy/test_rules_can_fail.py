"""Each tidy rule on small samples that break it and that keep it: a rule that cannot fail is none."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests.tidy import source_rules as rules
from tests.tidy.repository import MACHINE_PATHS, REGISTRY_HOSTS, find_unwanted_names
from tests.tidy.source_rules import Module, Rule

CORE = "src/headgate/core/plan.py"
FORMAT = "src/headgate/format/avro.py"
STORE = "src/headgate/store/sqlite.py"
SERVICE = "src/headgate/service/routes.py"
CLI = "src/headgate/cli/main.py"
PACKAGE = "src/headgate/core/__init__.py"
TEST = "tests/core/test_plan.py"
_OPEN = "TO" + "DO"  # in halves, so that this file passes

CATCH = rules.everything_is_caught_at_the_edge_only
EXPORT = rules.packages_only_export
STATUS = rules.error_statuses_live_in_one_table

BROKEN: list[tuple[Rule, str, str]] = [
    # rule, path, source
    (rules.imports_go_down, CORE, "from headgate.store.base import Kind"),
    (rules.imports_go_down, CORE, "from headgate.format import avro"),
    (rules.imports_go_down, CORE, "from headgate import service"),
    (rules.imports_go_down, CORE, "from ..store import base"),
    (rules.imports_go_down, CORE, "import headgate.cli.main"),
    (rules.imports_go_down, CORE, "def f():\n    from headgate.service import app"),
    (rules.imports_go_down, FORMAT, "from headgate.files.base import Files"),
    (rules.imports_go_down, STORE, "from headgate.files.base import Files"),
    (rules.imports_go_down, "src/headgate/client/http.py", "from headgate.service.app import app"),
    (rules.imports_go_down, SERVICE, "from headgate.cli.main import main"),
    (rules.imports_go_down, SERVICE, "import pyspark"),
    (rules.imports_go_down, "src/headgate/attic/old.py", ""),
    *((rules.imports_go_down, CORE, f"import {module}") for module in (
        "time", "random", "secrets", "logging", "threading", "os", "pathlib", "socket", "subprocess",
        "asyncio", "gzip", "sqlite3", "pyiceberg.io", "pyiceberg.table", "urllib.request", "starlette",
    )),
    (rules.imports_go_down, CORE, "from pyiceberg.io import FileIO"),
    (rules.imports_go_down, CORE, "from uuid import uuid4"),
    (rules.imports_go_down, CORE, "import os.path"),
    (rules.imports_go_down, FORMAT, "from pathlib import Path"),
    (rules.imports_go_down, "src/headgate/errors.py", "from headgate.core import plan"),
    (rules.imports_go_down, "src/headgate/errors.py", "import logging"),
    (rules.pure_rooms_are_pure, CORE, "from datetime import datetime\nat = datetime.now()"),
    (rules.pure_rooms_are_pure, CORE, "import datetime\nat = datetime.datetime.utcnow()"),
    (rules.pure_rooms_are_pure, CORE, "import uuid\nkey = uuid.uuid4()"),
    (rules.pure_rooms_are_pure, CORE, "text = open('x').read()"),
    (rules.pure_rooms_are_pure, FORMAT, "import gzip\nstream = gzip.open('x')"),
    (CATCH, STORE, "try:\n    f()\nexcept Exception:\n    pass"),
    (CATCH, STORE, "try:\n    f()\nexcept:\n    raise"),
    (CATCH, STORE, "try:\n    f()\nexcept (OSError, Exception) as e:\n    g()"),
    (CATCH, STORE, "try:\n    f()\nexcept BaseException:\n    g()"),
    (CATCH, STORE, "try:\n    f()\nexcept Exception:\n    g()\n    raise"),
    (rules.imports_stand_at_the_top, STORE, "def f():\n    import json"),
    (rules.imports_stand_at_the_top, STORE, "async def f():\n    if x:\n        from a import b"),
    (rules.only_the_command_line_prints, SERVICE, "print('hello')"),
    (EXPORT, PACKAGE, '"""Doc."""\n\n\ndef f(): ...'),
    (EXPORT, PACKAGE, "app = make()"),
    (EXPORT, PACKAGE, "if x:\n    import json"),
    (EXPORT, PACKAGE, "start()"),
    (rules.modules_are_small, CORE, "x = 1\n" * (rules.LINES_MAX + 1)),
    (rules.modules_say_what_they_are_for, CORE, "x = 1"),
    (rules.nothing_is_left_open, CORE, f"x = 1  # {_OPEN}: two"),
    (rules.names_say_something, "src/headgate/core/utils.py", ""),
    (rules.names_say_something, "src/headgate/helpers/plan.py", ""),
    (rules.names_say_something, CORE, "class TableManager: ..."),
    (rules.names_say_something, CORE, "class PathUtil: ..."),
    (rules.private_names_stay_at_home, TEST, "from headgate.core.plan import _plan"),
    (rules.private_names_stay_at_home, CORE, "from .window import _Window"),
    (STATUS, SERVICE, "JSONResponse({}, status_code=404)"),
    (STATUS, SERVICE, "responses.JSONResponse({}, 503)"),
    (STATUS, SERVICE, "raise HTTPException(400, 'no')"),
    (STATUS, SERVICE, "send({'type': 'http.response.start', 'status': 500})"),
    (STATUS, SERVICE, "Response(status_code=HTTPStatus.CONFLICT)"),
    (STATUS, SERVICE, "Response(status_code=status.HTTP_409_CONFLICT)"),
    (rules.names_of_tests_are_sentences, TEST, "def test_commit_retry_2(): ..."),
    (rules.names_of_tests_are_sentences, TEST, "class TestPlan:\n    async def test_it(self): ..."),
    (rules.no_test_sleeps, TEST, "import time\ntime.sleep(1)"),
    (rules.no_test_sleeps, TEST, "from time import sleep"),
]  # fmt: skip

KEPT: list[tuple[Rule, str, str]] = [
    (rules.imports_go_down, CORE, "from headgate.errors import BadInput\nimport headgate.core.window"),
    (rules.imports_go_down, CORE, "from ..errors import BadInput\nfrom .window import Window"),
    (rules.imports_go_down, CORE, "import msgspec\nfrom uuid import UUID\nfrom urllib.parse import unquote"),
    (rules.imports_go_down, CORE, "from pyiceberg.types import LongType\nfrom pyiceberg import types"),
    (rules.imports_go_down, FORMAT, "import gzip, io\nfrom headgate.core.plan import plan"),
    (rules.imports_go_down, SERVICE, "from headgate import __version__\nimport asyncio"),
    (rules.imports_go_down, "src/headgate/spark/session.py", "import pyspark"),
    (rules.imports_go_down, "src/headgate/__init__.py", "from headgate.client import Client"),
    (rules.pure_rooms_are_pure, CORE, "import uuid\nkey = uuid.UUID(text)\nnow = clock.now()"),
    (rules.pure_rooms_are_pure, STORE, "text = open('x').read()"),
    (CATCH, SERVICE, "try:\n    f()\nexcept Exception:  # outermost edge\n    g()"),
    (CATCH, STORE, "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
    (CATCH, STORE, "try:\n    f()\nexcept OSError:\n    g()"),
    (rules.imports_stand_at_the_top, STORE, "import json\ndef f():\n    import psycopg  # optional extra"),
    (rules.only_the_command_line_prints, CLI, "print('hello')"),
    (EXPORT, PACKAGE, '"""Doc."""\nfrom a import b\n__all__ = ["b"]'),
    (EXPORT, CORE, "app = make()"),
    (rules.modules_are_small, CORE, "x = 1\n" * rules.LINES_MAX),
    (rules.modules_say_what_they_are_for, CORE, '"""Plans."""'),
    (rules.nothing_is_left_open, CORE, "to_do = 1"),
    (rules.names_say_something, CORE, "class Utility: ..."),
    (rules.private_names_stay_at_home, TEST, "from headgate import __version__\nfrom other import _private"),
    (STATUS, SERVICE, "JSONResponse({}, status_code=200)\nlimit = f(500)"),
    (STATUS, "src/headgate/service/http_errors.py", "Response(status_code=404)"),
    (rules.names_of_tests_are_sentences, TEST, "def test_a_refusal_deletes_nothing(): ...\ndef add(): ..."),
    (rules.no_test_sleeps, TEST, "import time\ntime.monotonic()"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_a_broken_rule_is_a_finding(rule: Rule, path: str, source: str) -> None:
    findings = list(rule(Module(PurePosixPath(path), source)))
    assert findings
    assert all(finding.startswith(path) for finding in findings)


@pytest.mark.parametrize(("rule", "path", "source"), KEPT)
def test_a_kept_rule_is_no_finding(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(PurePosixPath(path), source))) == []


def test_every_rule_has_a_sample_of_both_kinds() -> None:
    every = {*rules.SOURCE, *rules.TESTS, *rules.EVERYWHERE}
    assert {rule for rule, _, _ in BROKEN} == every
    assert {rule for rule, _, _ in KEPT} == every


@pytest.mark.parametrize("name", [*REGISTRY_HOSTS, *MACHINE_PATHS])
def test_a_registry_or_machine_path_is_found(name: bytes) -> None:
    content = b"one\nindex = https://" + name.upper() + b"/simple\n"
    assert list(find_unwanted_names(PurePosixPath("x.toml"), content)) == [f"x.toml:2: names {name.decode()}"]


def test_an_ordinary_file_names_nothing_unwanted() -> None:
    assert list(find_unwanted_names(PurePosixPath("x.toml"), b"msgspec==0.20\n/work/elsewhere\n")) == []
