"""Options of every command that connects to a lake and runs Spark; secrets come from the environment or a file.

A flag would show a secret to everybody who lists the processes of the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from headgate.cli.summary import print_summary
from headgate.client.changes import FROM_TABLE
from headgate.client.results import MAIN
from headgate.client.table import identifier_of
from headgate.core.isolation import Isolation
from headgate.errors import BadInput

if TYPE_CHECKING:
    from headgate.spark.lake import Lake, LakeTable

URI_DEFAULT = "http://127.0.0.1:8181"
CODES = """\
exit codes:
  0  done
  1  refused, in conflict, or failed: the message has the evidence, and what to do next
  2  bad input: the message names the option, the key, the column or the file
  3  unknown: the commit may have landed; run the same again with the --key that is printed

The service is found by --uri or $HEADGATE_URI; a catalog that is not Headgate by --catalog, with --catalog-property or what
PyIceberg's configuration has of it (.pyiceberg.yaml, $PYICEBERG_CATALOG__<NAME>__URI). Who asks is told by $HEADGATE_TOKEN
or $HEADGATE_CREDENTIAL (id:secret), or by a file. Keys of S3 are taken from $AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY
and $AWS_SESSION_TOKEN.
"""
_AWS = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
}
_PROPERTY = "--catalog-property"
_SECRETS = ("secret", "token", "access-key", "password", "credential")
_SPARK = ("pyspark", "pyarrow", "pyiceberg")


@dataclass(frozen=True)
class Job:
    """A session and the lake that it works on."""

    spark: Any  # a SparkSession, which only headgate.spark may name
    lake: Lake


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    *,
    help: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """A command with examples in its help; `add_connection` gives it the options of all that run Spark."""
    return commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=f"examples:\n{examples}\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_lake(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """The lake, behind the options of the command's own."""
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    lake = parser.add_argument_group("the lake")
    lake.add_argument("--uri", metavar="URI", help=f"the service (default: $HEADGATE_URI, or {URI_DEFAULT})")
    lake.add_argument(
        "--catalog",
        metavar="NAME",
        help="a catalog that is not Headgate, as PyIceberg's configuration calls it; commits are judged here then",
    )
    lake.add_argument(
        "--catalog-property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a property of it: type=sql, uri=sqlite:///…, warehouse=…; may be repeated",
    )
    lake.add_argument("--token-file", metavar="FILE", help="a file that holds a bearer token")
    lake.add_argument("--credential-file", metavar="FILE", help="a file that holds id:secret")
    lake.add_argument(
        "--storage",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="how files are reached, by PyIceberg's names: s3.endpoint=…, s3.region=…; may be repeated",
    )


def add_connection(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """The lake and the Spark session."""
    add_lake(parser, run)
    spark = parser.add_argument_group("Spark")
    spark.add_argument(
        "--master",
        metavar="URL",
        help="where it runs: local[4], spark://…, k8s://…, yarn (default: Spark's own)",
    )
    spark.add_argument(
        "--jar",
        metavar="PATH",
        help="the Iceberg runtime jar; only tables with equality deletes, or of Avro or ORC files, need it",
    )
    spark.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Spark; may be repeated",
    )
    spark.add_argument("--verbose", action="store_true", help="show what Spark logs")


def add_commit_options(
    parser: argparse.ArgumentParser, *, isolation: bool = True, attempts: bool = False
) -> None:
    """How a commit is made: where, how strictly, how often it is tried, under which key."""
    group = parser.add_argument_group("the commit")
    group.add_argument("--branch", default=MAIN, help="the branch that is written (default: %(default)s)")
    if isolation:
        group.add_argument(
            "--isolation",
            choices=(FROM_TABLE, *(level.value for level in Isolation)),
            default=FROM_TABLE,
            help="what other commits may have done meanwhile (default: what the table says)",
        )
    if attempts:
        group.add_argument(
            "--attempts",
            metavar="N",
            type=int,
            default=1,
            help="do the work anew, N times in all at most, when others were in its way (default: %(default)s)",
        )
    group.add_argument(
        "--key", metavar="UUID", help="commit under this key, once; only to repeat a run whose end is unknown"
    )
    group.add_argument(
        "--summary",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="noted in the snapshot's summary; may be repeated",
    )


def commit_options(parsed: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of our jobs."""
    options: dict[str, Any] = {
        "branch": parsed.branch,
        "key": read_key(parsed.key),
        "summary": read_pairs("--summary", parsed.summary) or None,
    }
    if "isolation" in parsed:
        options["isolation"] = None if parsed.isolation == Isolation.NONE else parsed.isolation
    if "attempts" in parsed:
        options["attempts"] = parsed.attempts
        if parsed.attempts < 1:
            raise BadInput(
                f"--attempts: expected a number from 1 on, got {parsed.attempts}", field="--attempts"
            )
        if parsed.attempts > 1 and options["key"] is not None:
            raise BadInput(
                "--attempts: a key stands for one attempt; leave --key or --attempts out", field="--attempts"
            )
    return options


def read_key(text: str | None) -> str | None:
    """A key that a caller gave."""
    try:
        return None if text is None else str(UUID(text))
    except ValueError as error:
        raise BadInput(f"--key: expected a UUID, got {text!r}", field="--key") from error


def read_table(text: str, option: str = "TABLE") -> tuple[str, ...]:
    """The name of a table; BadInput names the argument that it came by."""
    try:
        return identifier_of(text)
    except BadInput as error:
        raise BadInput(f"{option}: expected namespace.table, got {text!r}", field=option) from error


def read_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; the value may hold further equals signs."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"{option}: expected KEY=VALUE, got {text!r}", field=option)
        if key.strip() in found:
            raise BadInput(f"{option}: {key.strip()} is given twice", field=option)
        found[key.strip()] = value.strip()
    return found


def need_spark() -> None:
    """Refuse to go on where Spark is not installed, and say how to get it."""
    need_packages(*_SPARK)


def need_packages(*names: str, extra: str = "spark") -> None:
    """Refuse to go on without packages of the extra that has them."""
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise BadInput(
            f"this command needs {', '.join(missing)}: pip install 'headgate[{extra}]'", field=extra
        )


def read_lake(
    parsed: argparse.Namespace, *, uri: str | None = None, storage: Mapping[str, str] | None = None
) -> Lake:
    """The lake by flags, environment and (last) what a pipeline file says."""
    from headgate.spark.lake import Lake  # optional extra

    given = read_pairs("--storage", parsed.storage)
    for name in given:
        if any(word in name for word in _SECRETS):
            raise BadInput(
                f"--storage: {name} is a secret; set {', '.join(_AWS)} in the environment instead",
                field="--storage",
            )
    keys = {ours: os.environ[theirs] for theirs, ours in _AWS.items() if os.environ.get(theirs)}
    properties = _read_properties(parsed)
    if parsed.catalog is not None:
        return Lake.over(parsed.catalog, {**keys, **(storage or {}), **given, **properties})
    token = _secret("HEADGATE_TOKEN", "--token-file", parsed.token_file)
    credential = _secret("HEADGATE_CREDENTIAL", "--credential-file", parsed.credential_file)
    if token and credential:
        raise BadInput("a token and a credential are given; one of them is enough", field="--token-file")
    return Lake(
        parsed.uri or os.environ.get("HEADGATE_URI") or uri or URI_DEFAULT,
        token=token,
        credential=_pair(credential),
        storage={**keys, **(storage or {}), **given},
    )


def _read_properties(parsed: argparse.Namespace) -> dict[str, str]:
    """The properties of another catalog; BadInput for what a catalog that is no service has no use for."""
    if parsed.catalog is not None:
        for option, value in (("--uri", parsed.uri), ("--token-file", parsed.token_file)):
            if value is not None:
                raise BadInput(
                    f"{option}: is for a service, and --catalog says that there is none", field=option
                )
    return read_catalog_properties(parsed.catalog, parsed.catalog_property)


def read_catalog_properties(catalog: str | None, texts: Sequence[str]) -> dict[str, str]:
    """The properties of a catalog; BadInput for one without it, and for a secret that everybody would see."""
    properties = read_pairs(_PROPERTY, texts)
    if catalog is None:
        if properties:
            raise BadInput(f"{_PROPERTY}: goes with --catalog NAME", field=_PROPERTY)
        return properties
    for name, value in properties.items():
        if any(word in name for word in _SECRETS) or urlsplit(value).password is not None:
            raise BadInput(
                f"{_PROPERTY}: {name} has a secret; set $PYICEBERG_CATALOG__{catalog.upper()}__"
                f"{name.upper().replace('.', '__').replace('-', '_')}, or write it into .pyiceberg.yaml",
                field=_PROPERTY,
            )
    return properties


@contextmanager
def open_job(
    parsed: argparse.Namespace,
    name: str,
    lake: Lake | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    py_files: tuple[str, ...] = (),
) -> Iterator[Job]:
    """A session for one command, which tells its progress; stopped afterwards if it was started here."""
    from headgate.spark.job_progress import progress_told  # optional extra
    from headgate.spark.job_session import SessionOptions, job_session  # optional extra

    options = SessionOptions(
        master=parsed.master,
        jar=parsed.jar,
        conf={**(conf or {}), **read_pairs("--conf", parsed.conf)},
        py_files=py_files,
        verbose=parsed.verbose,
    )
    if parsed.jar is not None and "://" not in parsed.jar and not Path(parsed.jar).is_file():
        raise BadInput(f"--jar: no such file: {parsed.jar}", field="--jar")
    lake = lake or read_lake(parsed)
    with job_session(name, lake, options) as spark, progress_told(spark, say):
        yield Job(spark, lake)


def was_done_before(table: LakeTable, key: str | None, title: str, *, as_json: bool) -> bool:
    """Whether what is asked for has landed under its key already; says so if it has."""
    from headgate.spark.repeats import is_settled  # optional extra

    if key is None or not is_settled(table, key):
        return False
    print_summary(title, {"commit": "landed before, under the same key", "key": key}, as_json=as_json)
    return True


def say(text: str) -> None:
    """One line of progress; results go to standard output, all else to standard error."""
    print(f"… {text}", file=sys.stderr, flush=True)


def _secret(variable: str, option: str, file: str | None) -> str | None:
    if file is None:
        return os.environ.get(variable) or None
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{option}: cannot read {file}: {error}", field=option) from error
    if not text:
        raise BadInput(f"{option}: {file} is empty", field=option)
    return text


def _pair(credential: str | None) -> tuple[str, str] | None:
    if credential is None:
        return None
    name, colon, secret = credential.partition(":")
    if not (name and colon and secret):
        raise BadInput("credential: expected id:secret", field="--credential-file")
    return name, secret
