"""A service that starts under load: its first requests come at once, from many threads."""

from __future__ import annotations

import subprocess
import sys
import threading

from headgate.format.strict_json import decode_into, prepare_kinds
from headgate.service.table_requests import CommitTransactionRequest

THREADS = 16


def decode_in_many_threads() -> None:
    """In a fresh process, which has decoded nothing yet, with threads that change places at every step."""
    sys.setswitchinterval(1e-6)
    prepare_kinds()
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
