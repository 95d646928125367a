"""Every setting of the service: its type, its default, its bounds and its help text, in one place.

A value that exists is valid. Values come from `settings_sources`; docs/settings.md is made from this module.
Never reads the environment, a file or the network.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from headgate.core.locations import canonical
from headgate.errors import BadInput

TOKEN_LIFETIME_S_MAX = 3600
LINGER_MS_MAX = 60_000


def _setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    one_of: tuple[str, ...] | None = None,
    secret: bool = False,
    private: bool = False,
) -> Any:
    """A field with its help and bounds. A secret has no flag: a command line is visible to other users."""
    metadata = {"help": help, "low": low, "high": high, "one_of": one_of, "secret": secret}
    # A printed Settings may end in a log or a traceback.
    return field(default=default, metadata=metadata, repr=not (secret or private))


@dataclass(frozen=True)
class Settings:
    """What `headgate serve` may be told."""

    host: str = _setting("127.0.0.1", "address to listen on; beyond this machine, `auth` must be on")
    port: int = _setting(8181, "port to listen on; 0 takes a free one", low=0, high=65535)
    warehouse: str = _setting(
        "./headgate-warehouse",
        "where tables are placed: a folder, a `file://` or an `s3://bucket/prefix` location",
    )
    database: str = _setting(
        "",
        "where the catalog's state lives: `sqlite:///path`, `postgresql://…` or `memory:`; "
        "empty means a SQLite file beside a local warehouse (`<warehouse>.db`), else `sqlite:///headgate.db`",
        private=True,  # it may hold a password
    )
    allowed_locations: tuple[str, ...] = _setting(
        (), "further locations that tables may be placed under, beside the warehouse"
    )
    auth: str = _setting("off", "whether requests need a token", one_of=("off", "on"))
    insecure_no_auth: bool = _setting(
        False, "listen beyond this machine without asking for tokens: everybody who can connect is admin"
    )
    token_lifetime_s: int = _setting(3600, "how long a token is good for", low=1, high=TOKEN_LIFETIME_S_MAX)
    key_lifetime_s: int = _setting(
        1800, "how long a client may repeat a request with its Idempotency-Key", low=60, high=30 * 86400
    )
    body_limit_bytes: int = _setting(32 << 20, "largest request body", low=1024, high=1 << 30)
    json_depth_max: int = _setting(64, "deepest nesting of a request's JSON", low=8, high=512)
    header_limit_bytes: int = _setting(16 << 10, "largest request line and headers", low=1024, high=1 << 20)
    header_timeout_s: float = _setting(
        10.0, "how long a connection may take to send its headers", low=0.1, high=600
    )
    body_timeout_s: float = _setting(30.0, "how long a request may take to send its body", low=0.1, high=3600)
    request_timeout_s: float = _setting(
        60.0,
        "how long a request may take to be answered; a change that takes longer is answered as unknown",
        low=0.1,
        high=3600,
    )
    stop_timeout_s: float = _setting(
        30.0, "how long a stopping service waits for its last requests", low=0, high=600
    )
    workers: int = _setting(16, "threads that do the work of requests", low=1, high=256)
    gate_leaders: int = _setting(
        8, "threads that judge and publish groups of commits, each of another table", low=1, high=256
    )
    gate_queue_max: int = _setting(
        512, "commits of one table that may wait; over it, 503 with Retry-After", low=1, high=1 << 20
    )
    group_max: int = _setting(64, "most commits that one swap publishes", low=1, high=1024)
    put_parallel_max: int = _setting(128, "files written to an object store at once", low=1, high=1024)
    in_flight_max: int = _setting(
        1024, "requests in the service at once; over it, 429 with Retry-After", low=1, high=65536
    )
    waiters_max: int = _setting(
        128, "requests that wait for an event at once; over it, 429 with Retry-After", low=0, high=65536
    )
    jobs_max: int = _setting(
        10_000,
        "requests acknowledged and not carried out yet, of all replicas, about; over it, 503 with Retry-After",
        low=1,
        high=1_000_000,
    )
    job_workers: int = _setting(16, "threads that carry out acknowledged requests", low=1, high=256)
    job_lease_s: float = _setting(
        15.0,
        "how long a replica has an acknowledged request to itself; one that died in it is stood in for afterwards",
        low=0.1,
        high=3600,
    )
    stream_linger_ms: int = _setting(
        1000,
        "how long streamed files may wait for others; the table property `headgate.stream.linger-ms` wins",
        low=0,
        high=LINGER_MS_MAX,
    )
    connections_max: int = _setting(1024, "open connections; over it, new ones are closed", low=1, high=65536)
    page_size_max: int = _setting(1000, "most items in one page of a listing", low=1, high=100_000)
    s3_endpoint: str = _setting("", "URL of the S3 service, when it is not AWS")
    s3_region: str = _setting("", "region of the S3 buckets")
    s3_access_key_id: str = _setting("", "S3 access key", secret=True)
    s3_secret_access_key: str = _setting("", "S3 secret key", secret=True)
    s3_session_token: str = _setting("", "S3 session token", secret=True)
    s3_path_style: bool = _setting(True, "address buckets by path; off means by host name")
    log_level: str = _setting(
        "info",
        "least severe log line to print; `debug` prints one per request",
        one_of=("debug", "info", "warning", "error"),
    )
    metadata_inline_bytes: int = _setting(
        65536,
        "metadata up to this size is written as a file with each plain commit; other metadata by checkpoints",
        low=0,
        high=1 << 30,
    )
    cache_bytes: int = _setting(
        256 << 20, "memory for parsed heads of tables; the least recently used go first", low=0, high=1 << 40
    )
    manifest_cache_bytes: int = _setting(
        256 << 20, "memory for parsed manifests; the least recently used go first", low=0, high=1 << 40
    )
    warm_up_s: float = _setting(
        1.0, "at start, how long the tables that were changed last may be read ahead", low=0, high=60
    )
    checkpoint_interval_s: float = _setting(
        1.0, "how often metadata files of tables that moved are written", low=0.01, high=3600
    )

    expire_snapshots: bool = _setting(
        False, "expire old snapshots of every table; the table property `headgate.expire.enabled` wins"
    )
    expire_interval_s: float = _setting(
        60.0, "how often tables are looked at for snapshots to expire", low=0.05, high=86400
    )
    expire_grace_s: float = _setting(
        86400.0,
        "how long files of expired snapshots stay, for readers that still scan them",
        low=0,
        high=365 * 86400,
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            _check_value(item.name, getattr(self, item.name), dict(item.metadata))
        if self.auth == "off" and not self.insecure_no_auth and not is_loopback(self.host):
            raise BadInput(
                f"host: listening on {self.host} without auth lets everybody in; "
                "set auth=on, or insecure_no_auth if that is meant",
                field="host",
            )
        _ = self.warehouse_location  # refuses what is no location
        for location in self.allowed_locations:
            canonical(location, field="allowed_locations")
        if self.s3_endpoint and not self.s3_endpoint.startswith(("http://", "https://")):
            raise BadInput("s3_endpoint: expected an http:// or https:// URL", field="s3_endpoint")
        if bool(self.s3_access_key_id) != bool(self.s3_secret_access_key):
            raise BadInput(
                "s3_access_key_id: the access key and the secret key come together", field="s3_access_key_id"
            )

    @property
    def warehouse_location(self) -> str:
        """The warehouse in its canonical form: a location with a scheme, without a trailing slash."""
        place = self.warehouse if "://" in self.warehouse else str(Path(self.warehouse).resolve())
        return canonical(place, field="warehouse")

    @property
    def database_url(self) -> str:
        """The database, with the default worked out."""
        if self.database:
            return self.database
        location = self.warehouse_location
        if location.startswith("file://"):
            # Beside, not inside: what is inside the warehouse is a location that clients may name.
            return f"sqlite:///{location.removeprefix('file://')}.db"
        return "sqlite:///headgate.db"

    @property
    def auth_is_on(self) -> bool:
        """Whether requests need a token."""
        return self.auth == "on"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_value(name: str, value: object, bounds: dict[str, Any]) -> None:
    low, high, one_of = bounds["low"], bounds["high"], bounds["one_of"]
    if one_of is not None and value not in one_of:
        raise BadInput(f"{name}: expected one of {', '.join(one_of)}, got {value!r}", field=name)
    if low is not None and isinstance(value, int | float) and not low <= value <= high:
        raise BadInput(f"{name}: expected {low} to {high}, got {value!r}", field=name)
    if isinstance(value, str) and "\x00" in value:
        raise BadInput(f"{name}: a NUL character is not allowed", field=name)
    if name in ("host", "warehouse") and not value:
        raise BadInput(f"{name}: may not be empty", field=name)
