"""Hadoop's S3 file system for Spark's own readers and writers: fetched once by Maven coordinates, checked, kept in .cache.

Its usual dependency is all of Amazon's SDK in one jar of 640 MB; the modules that it really needs are 18 MB.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from tools.iceberg_jar import ROOT, JarError, fetch_packages, find_java

HADOOP_VERSION = "3.4.2"  # that of PySpark's own Hadoop jars
SDK_VERSION = "2.29.52"
PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    *(f"software.amazon.awssdk:{name}:{SDK_VERSION}" for name in ("s3", "sts", "s3-transfer-manager")),
    f"software.amazon.awssdk:apache-client:{SDK_VERSION}",
)
EXCLUDED = ("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api")  # the second is one of Spark's own jars
SHA256 = "6f3b61ddc64cd0e096601779358c4c2804e52cdd009bf4fef8ab257f9ef25539"  # of a line `sha256 name` for each jar, sorted


def load_s3_jars(cache: Path = ROOT / ".cache") -> tuple[Path, ...]:
    """The checked jars; the first call on a machine downloads 18 MB. Raises JarError."""
    place = cache / "jars" / f"hadoop-s3-{HADOOP_VERSION}"
    if _digest(place) == SHA256:
        return tuple(sorted(place.glob("*.jar")))
    if find_java() is None:
        raise JarError("no Java to fetch Hadoop's S3 jars with was found; run through ./dev, which gets one")
    place.parent.mkdir(parents=True, exist_ok=True)
    # Below the cache, so that the last step is a rename on one disk: two processes may fetch at once.
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=cache) as folder:
        fetched = fetch_packages(Path(folder), PACKAGES, exclude=EXCLUDED)[0].parent
        if (found := _digest(fetched)) != SHA256:
            raise JarError(f"{PACKAGES[0]} is not what was pinned; expected={SHA256} found={found}")
        shutil.rmtree(place, ignore_errors=True)
        try:
            fetched.rename(place)
        except OSError as error:
            if _digest(place) != SHA256:  # else another process was faster
                raise JarError(f"the jars could not be kept in {place}: {error}") from error
    return tuple(sorted(place.glob("*.jar")))


def _digest(folder: Path) -> str:
    lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()} {jar.name}" for jar in folder.glob("*.jar")]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
