"""`headgate serve`: run the service until it is told to stop."""

from __future__ import annotations

import argparse
import sys

from headgate.cli.options import add_settings, read_settings
from headgate.service import expiry, jobs, merging
from headgate.service.allocator import tune_allocator
from headgate.service.app import build_app
from headgate.service.logs import redact, set_up_logs
from headgate.service.routes import all_routes
from headgate.service.server import open_socket, serve
from headgate.service.services import open_services
from headgate.service.warm_up import warm_up


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("serve", help="run the catalog service", allow_abbrev=False)
    add_settings(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Open everything, say so in one line, serve."""
    tune_allocator()
    settings = read_settings(parsed)
    set_up_logs(settings.log_level)
    with open_socket(settings) as listener:
        services = open_services(settings)
        warm_up(services, budget_s=settings.warm_up_s)
        jobs.start(services)
        expiry.start(services)
        merging.start(services)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        print(
            f"headgate: http://{host}:{listener.getsockname()[1]} warehouse={settings.warehouse_location}"
            f" database={redact(settings.database_url)} auth={settings.auth}",
            file=sys.stderr,
            flush=True,
        )
        serve(build_app(services, settings, all_routes()), settings, listener)
    return 0
