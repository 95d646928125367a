"""The Iceberg jar is never used unchecked, and Java reads the trust store we write."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from tools import iceberg_jar, java_trust


def test_a_cached_jar_with_a_wrong_hash_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # no Java there, so nothing can be fetched
    broken = tmp_path / "jars" / iceberg_jar.FILE_NAME
    broken.parent.mkdir()
    broken.write_bytes(b"half a jar")
    with pytest.raises(iceberg_jar.JarError, match="no Java"):
        iceberg_jar.load_iceberg_jar(tmp_path)


def test_java_lists_every_certificate_of_the_trust_store(tmp_path: Path) -> None:
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("no keytool on PATH")
    certificates = java_trust.load_authorities()[:3]
    if not certificates:
        pytest.skip("this machine has no bundle of certificate authorities")
    file = tmp_path / "trust.jks"
    file.write_bytes(java_trust.encode_trust_store(certificates, password=java_trust.PASSWORD))
    command = [keytool, "-list", "-rfc", "-keystore", str(file), "-storepass", java_trust.PASSWORD]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for certificate in certificates:
        assert ssl.DER_cert_to_PEM_cert(certificate).split("\n")[1] in listed
    assert listed.count("BEGIN CERTIFICATE") == len(certificates)
