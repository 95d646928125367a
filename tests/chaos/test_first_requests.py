"""A service that starts under load: its first requests, and jobs that the last process left, come at once."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading

from headgate.files.open import open_files
from headgate.format.strict_json import decode_into
from headgate.service.services import build_services
from headgate.service.settings import Settings
from headgate.service.table_requests import CommitTransactionRequest
from headgate.store.memory import MemoryStore

THREADS = 16


def decode_in_many_threads() -> None:
    """In a fresh process, which has services and nothing decoded yet, with threads that change places at every step."""
    sys.setswitchinterval(1e-6)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(warehouse=folder)
        files, _ = open_files(settings.warehouse_location)
        build_services(
            settings, store=MemoryStore(), files=files
        )  # its job queue may begin before there is an app
    start = threading.Barrier(THREADS)

    def work() -> None:
        start.wait()
        decode_into(CommitTransactionRequest, b'{"table-changes":[]}')

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_first_requests_of_a_process_may_come_at_once() -> None:
    ended = subprocess.run([sys.executable, "-m", __name__], check=False, capture_output=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


if __name__ == "__main__":
    decode_in_many_threads()
