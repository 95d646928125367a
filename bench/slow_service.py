"""`headgate serve` over files with the latencies of an object store.

./dev bench slow_service --put-ms 30 [--put-ms-per-mib 20] [--get-ms 15] [options of headgate serve]
"""

from __future__ import annotations

import argparse
import sys

from bench.slow_files import Latencies, SlowFiles
from headgate.cli.options import add_settings, read_settings
from headgate.files.open import open_files
from headgate.service.app import build_app
from headgate.service.logs import set_up_logs
from headgate.service.routes import all_routes
from headgate.service.server import open_socket, serve
from headgate.service.services import Services, build_services
from headgate.service.settings import Settings
from headgate.store.open import open_store


def open_slow_services(settings: Settings, latencies: Latencies | None) -> Services:
    """Services as `headgate serve` has them, but for their files."""
    files, _ = open_files(settings.warehouse_location)
    files.check()
    if latencies is not None:
        files = SlowFiles(files, latencies)
    return build_services(settings, store=open_store(settings.database_url), files=files)


def main() -> int:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="bench slow_service", description=__doc__.partition("\n")[0])
    Latencies.add_options(parser)
    add_settings(parser)
    parsed = parser.parse_args()
    settings = read_settings(parsed)
    set_up_logs(settings.log_level)
    with open_socket(settings) as listener:
        services = open_slow_services(settings, Latencies.read(parsed))
        services.housekeeper.start()
        serve(build_app(services, settings, all_routes()), settings, listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
