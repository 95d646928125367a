"""All tests in two processes side by side, those of Spark and the others; what is named runs in one, as pytest does it.

./dev test [ARGUMENTS OF PYTEST]

Tests of Spark wait for the JVM most of the time, the others for the disk: together they take about as long as the longer
half. What that of Spark says is shown when it has ended, so that lines do not mix.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_PYTEST = (sys.executable, "-m", "pytest")
_NOTHING_COLLECTED = 5
# Every JVM of the tests lives for seconds to minutes, on two cores: the second compiler costs more than it gives.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def is_whole(words: Sequence[str]) -> bool:
    """Whether these arguments leave it to us which tests run: they name no place and choose none."""
    chosen = any(word.startswith(("-k", "-m", "--lf", "--ff", "--sw", "--collect")) for word in words)
    return not chosen and not any(os.path.exists(word.partition("::")[0]) for word in words)


def run_halves(words: Sequence[str], *, pytest: Sequence[str] = _PYTEST) -> int:
    """Run both; 0 when both are well."""
    with tempfile.TemporaryFile() as told:
        started = time.monotonic()
        spark = subprocess.Popen([*pytest, "-m", "spark", *words], stdout=told, stderr=told)
        try:
            print("The tests of Spark run beside these; what they say follows at the end.", flush=True)
            others = subprocess.run([*pytest, "-m", "not spark", *words], check=False).returncode
            minutes = (time.monotonic() - started) / 60
            print(f"\nThe others ended after {minutes:.1f} min; the tests of Spark:", flush=True)
            ended = spark.wait()
        finally:
            if spark.poll() is None:
                spark.terminate()
                spark.wait()
        told.seek(0)
        sys.stdout.buffer.write(told.read())
        sys.stdout.buffer.flush()
    print(f"All after {(time.monotonic() - started) / 60:.1f} min.", flush=True)
    return next((code for code in (others, ended) if code not in (0, _NOTHING_COLLECTED)), 0)


def main(words: Sequence[str]) -> int:
    """What pytest says of these arguments."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _JAVA)
    if is_whole(words):
        return run_halves(words)
    os.execv(sys.executable, [*_PYTEST, *words])


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main(sys.argv[1:]))
