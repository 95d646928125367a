"""The JDBC driver of SQLite, so that the Iceberg jar shares a SqlCatalog with PyIceberg in tests: fetched once, checked."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from tools.iceberg_jar import ROOT, JarError, fetch_packages, find_java

COORDINATES = "org.xerial:sqlite-jdbc:3.46.1.3"
FILE_NAME = "sqlite-jdbc-3.46.1.3.jar"
EXCLUDED = ("org.slf4j:slf4j-api",)  # one of Spark's own jars
SHA256 = "4a4832720a65eaf7f4d6fd7ede52087b994dc5633c076f9e994dc0c8b4b0b4fa"


def load_sqlite_driver(cache: Path = ROOT / ".cache") -> Path:
    """The path of the checked jar; the first call on a machine downloads 14 MB. Raises JarError."""
    jar = cache / "jars" / FILE_NAME
    if jar.exists() and _sha256(jar) == SHA256:
        return jar
    if find_java() is None:
        raise JarError(
            "no Java to fetch SQLite's JDBC driver with was found; run through ./dev, which gets one"
        )
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=cache) as folder:
        (fetched,) = fetch_packages(Path(folder), [COORDINATES], exclude=EXCLUDED)
        if (found := _sha256(fetched)) != SHA256:
            raise JarError(f"{COORDINATES} is not what was pinned; expected={SHA256} found={found}")
        fetched.replace(jar)
    return jar


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
