"""Settings: which source wins, and how each refusal names its source and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.make_docs import DOCS, security_page, settings_page

from headgate.errors import BadInput
from headgate.service.settings import Settings, is_loopback
from headgate.service.settings_sources import load_settings


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headgate.toml"
    path.write_text(text)
    return path


def test_a_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = config(tmp_path, "port = 1\nworkers = 2\npage_size_max = 3\n")
    environment = {"HEADGATE_PORT": "4", "HEADGATE_WORKERS": "5", "PATH": "x"}
    settings = load_settings({"port": "6", "workers": None}, environment, file)
    assert (settings.port, settings.workers, settings.page_size_max) == (6, 5, 3)
    assert settings.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("flags", "environment", "file", "named"),
    [
        ({"port": "x"}, {}, "", "--port"),
        ({"port": "70000"}, {}, "", "--port"),
        ({"auth": "maybe"}, {}, "", "--auth"),
        ({"token_lifetime_s": "3601"}, {}, "", "--token-lifetime-s"),
        ({"request_timeout_s": "nan"}, {}, "", "--request-timeout-s"),
        ({}, {"HEADGATE_PRT": "1"}, "", "HEADGATE_PRT"),
        ({}, {"HEADGATE_S3_PATH_STYLE": "maybe"}, "", "HEADGATE_S3_PATH_STYLE"),
        ({}, {"HEADGATE_WAREHOUSE": "ftp://x/y"}, "", "HEADGATE_WAREHOUSE"),
        ({}, {"HEADGATE_ALLOWED_LOCATIONS": "s3://ok/x,ftp://x/y"}, "", "HEADGATE_ALLOWED_LOCATIONS"),
        ({"s3_endpoint": "localhost:9000"}, {}, "", "--s3-endpoint"),
        ({}, {}, "prt = 1", "prt"),
        ({}, {}, 'port = "1"', "port"),
        ({}, {}, "insecure_no_auth = 1", "insecure_no_auth"),
        ({}, {}, 'allowed_locations = "s3://x/y"', "allowed_locations"),
        ({}, {}, "port = ", "TOML"),
        ({}, {"HEADGATE_S3_ACCESS_KEY_ID": "id"}, "", "HEADGATE_S3_ACCESS_KEY_ID"),
    ],
)
def test_a_bad_value_names_its_source(
    tmp_path: Path, flags: dict[str, str], environment: dict[str, str], file: str, named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        load_settings(flags, environment, config(tmp_path, file))


def test_a_bad_value_is_refused_even_when_another_source_wins() -> None:
    with pytest.raises(BadInput, match="HEADGATE_PORT"):
        load_settings({"port": "1"}, {"HEADGATE_PORT": "x"}, None)


def test_a_config_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.toml"):
        load_settings({}, {}, tmp_path / "nowhere.toml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", "localhost.example.org"])
def test_listening_beyond_the_machine_needs_auth_or_a_word(host: str) -> None:
    with pytest.raises(BadInput, match="auth"):
        Settings(host=host)
    assert Settings(host=host, auth="on").auth_is_on
    assert Settings(host=host, insecure_no_auth=True).host == host
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_no_auth(host: str) -> None:
    assert not Settings(host=host).auth_is_on


def test_the_database_stands_beside_a_local_warehouse(tmp_path: Path) -> None:
    settings = Settings(warehouse=str(tmp_path / "wh"))
    assert settings.warehouse_location == f"file://{tmp_path}/wh"
    assert settings.database_url == f"sqlite:///{tmp_path}/wh.db"
    assert Settings(warehouse="s3://bucket/wh/").database_url == "sqlite:///headgate.db"


def test_a_printed_settings_shows_no_secret() -> None:
    settings = Settings(
        s3_access_key_id="AK", s3_secret_access_key="canary", s3_session_token="canary",
        database="postgresql://u:canary@h/d",
    )  # fmt: skip
    assert "canary" not in repr(settings)


def test_the_pages_made_from_code_are_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page()
    page = (DOCS / "security.md").read_text()
    assert page == security_page(page)
