"""A trust store for the packaged Java, which brings its own list of authorities: this writes the machine's.

`python -m tools.java_trust FILE` writes a JKS file, or exits with 1 where the machine has no bundle; then
Java's own list has to do. Format: sun.security.provider.JavaKeyStore, version 2, which every Java reads.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

PASSWORD = "changeit"  # Java's customary one: the file holds public certificates, there is nothing to hide
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def load_authorities() -> list[bytes]:
    """The machine's certificate authorities (DER): those of SSL_CERT_FILE, if set, as for Python itself."""
    files = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    bundle = next((file for file in files if file is not None and Path(file).is_file()), None)
    if bundle is None:
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=bundle)
    return context.get_ca_certs(binary_form=True)


def encode_trust_store(certificates: Sequence[bytes], *, password: str) -> bytes:
    """The certificates as a JKS key store."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        trusted_certificate, created_at_ms = 2, 0
        body += struct.pack(">I", trusted_certificate) + _text(f"authority-{number}")
        body += (
            struct.pack(">Q", created_at_ms)
            + _text("X.509")
            + struct.pack(">I", len(certificate))
            + certificate
        )
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")


if __name__ == "__main__":
    found = load_authorities()
    if not found:
        sys.exit(1)
    Path(sys.argv[1]).write_bytes(encode_trust_store(found, password=PASSWORD))
