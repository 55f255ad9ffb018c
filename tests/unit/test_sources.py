"""Facts about source URLs."""

from pathlib import Path

import pytest

from tailrace.model.errors import ConfigError
from tailrace.sources import sqlite_path, without_password


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////srv/app.db", Path("/srv/app.db")),
        ("sqlite:///app.db", Path.cwd() / "app.db"),
        ("sqlite:////srv/a%20b.db", Path("/srv/a b.db")),
    ],
)
def test_an_sqlite_url_names_a_file(url, path):
    assert sqlite_path(url) == path


@pytest.mark.parametrize(
    "url",
    [
        "app.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/a.db",
        "oracle://u:p@h/db",
        "sqlite:///a?b=c",
    ],
)
def test_other_urls_are_refused_and_show_no_password(url):
    with pytest.raises(ConfigError) as caught:
        sqlite_path(url)
    assert ":p@" not in str(caught.value)


def test_a_password_is_not_shown():
    assert without_password("postgresql://u:secret@h:5/db") == "postgresql://u:***@h:5/db"
    assert without_password("sqlite:///a.db") == "sqlite:///a.db"
