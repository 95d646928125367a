"""The least that a commit can cost behind HTTP: the service's own server, a decoded body, the floor's write, an answer.

./dev bench bare_service --port 8181 --folder FOLDER --bytes 9000

No token is checked, nothing is judged, built or remembered: what a commit takes beyond this is ours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from bench.fine import Step, make_floor
from headgate.service.exchange import Reply
from headgate.service.http_wire import Scope
from headgate.service.reception import Answer
from headgate.service.server import configure, tune_interpreter
from headgate.service.settings import Settings

_ANSWER_BYTES = 300  # about those of a minimal answer


def make_take(step: Step) -> Any:
    """Takes every request: its body is decoded, the write made, the answer given."""
    reply = Reply(200, (b'{"x":"%b"}' % (b"x" * _ANSWER_BYTES),))

    def take(scope: Scope, body: bytes, answer: Answer) -> bool:
        if scope["method"] == "POST":
            msgspec.json.decode(body)
            step()
        answer(reply, "bare")
        return True

    return take


async def _live(scope: dict[str, Any], receive: Any, send: Any) -> None:
    for word in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{word}.complete"})


def main() -> int:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="bench bare_service", description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True, help="on the loopback address")
    parser.add_argument("--folder", type=Path, required=True, help="where its database is made")
    parser.add_argument("--bytes", type=int, required=True, help="that each request has written")
    parsed = parser.parse_args()
    take = make_take(make_floor(parsed.folder, parsed.bytes))
    settings = Settings(warehouse=str(parsed.folder), port=parsed.port)
    tune_interpreter()
    uvicorn.Server(configure(_live, take, settings)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
