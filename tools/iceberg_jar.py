"""The Iceberg runtime jar for Spark: fetched once by its Maven coordinates, checked, kept in .cache.

Spark's own resolver fetches it, so a machine's usual settings apply. Never hands out an unchecked jar.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parent.parent
COORDINATES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
FILE_NAME = "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
SHA256 = "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
FETCH_WAIT_S = 240


class JarError(RuntimeError):
    """The jar cannot be had here; the message says why and what to do."""


def find_java() -> Path | None:
    """The `java` that Spark's launcher will run, if there is one."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    found = shutil.which("java")
    return Path(found) if found else None


def load_iceberg_jar(cache: Path = ROOT / ".cache") -> Path:
    """The path of the checked jar; the first call on a machine downloads 48 MB. Raises JarError."""
    jar = cache / "jars" / FILE_NAME
    if jar.exists() and _sha256(jar) == SHA256:
        return jar
    if find_java() is None:
        raise JarError("no Java to fetch the Iceberg jar with was found; run through ./dev, which gets one")
    jar.parent.mkdir(parents=True, exist_ok=True)
    # Below the cache, so that the last step is a rename on one disk: two processes may fetch at once.
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=cache) as folder:
        (fetched,) = fetch_packages(Path(folder), [COORDINATES])
        if (found := _sha256(fetched)) != SHA256:
            raise JarError(f"{COORDINATES} is not what was pinned; expected={SHA256} found={found}")
        fetched.replace(jar)
    return jar


def fetch_packages(folder: Path, packages: Sequence[str], *, exclude: Sequence[str] = ()) -> list[Path]:
    """The jars of Maven packages and of all that they need, put into a folder; whoever asks checks them."""
    nothing = folder / "nothing.py"  # packages are resolved before the program runs; it has nothing to do
    nothing.touch()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", "--conf", f"spark.jars.ivy={folder}"]
    command += ["--packages", ",".join(packages)]
    command += ["--exclude-packages", ",".join(exclude)] if exclude else []
    try:
        done = subprocess.run(
            [*command, str(nothing)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FETCH_WAIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarError(f"{packages[0]} did not arrive in {FETCH_WAIT_S} s") from error
    jars = sorted(folder.glob("jars/*.jar"))
    if done.returncode != 0 or not jars:
        tail = "\n".join(done.stdout.decode(errors="replace").splitlines()[-15:])
        raise JarError(f"{packages[0]} could not be fetched; is a Maven repository reachable?\n{tail}")
    return jars


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
