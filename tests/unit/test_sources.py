"""Facts about source URLs, their kinds and their options."""

from pathlib import Path

import pytest

from tailrace.model.errors import ConfigError, SourceOptionError, UnknownSchemeError
from tailrace.source.sqlite.kind import sqlite_path
from tailrace.sources import IN_URL, KINDS, create_embedded, resolve, without_password


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
        "sqlite:///a.db#b",
        "sqlite://[a/b.db",
        "oracle://u:p@h/db",
        "sqlite:///a?b=c",
    ],
)
def test_other_urls_are_refused_and_show_no_password(url):
    with pytest.raises(ConfigError) as caught:
        resolve(url)
    assert ":p@" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("oracle://h/db", "there is no source for 'oracle' URLs; known are postgres://, postgresql://, sqlite://"),
        ("mysql://h/db", "this version cannot capture MySQL yet; known are postgres://, postgresql://, sqlite://"),
        ("mariadb://h/db", "this version cannot capture MariaDB yet; known are postgres://, postgresql://, sqlite://"),
    ],
)
def test_an_unknown_scheme_lists_the_known_ones(url, message):
    with pytest.raises(UnknownSchemeError) as caught:
        resolve(url)
    assert (str(caught.value), caught.value.known) == (message, tuple(sorted(KINDS)))


def test_options_come_from_the_url_or_from_beside_it():
    in_url = resolve("sqlite:///a.db?busy_timeout=10s&wal_bytes_max=64MiB")
    beside = resolve("sqlite:///a.db", {"busy_timeout": "10s", "wal_bytes_max": 64 << 20})
    assert in_url.url == beside.url == "sqlite:///a.db"
    assert in_url.options.tuned() == beside.options.tuned()
    assert in_url.options.tuned().busy_timeout_ms == 10_000
    assert in_url.options.tuned().hold_bytes_max == 64 << 20


@pytest.mark.parametrize(
    ("query", "given", "option", "origin", "reason"),
    [
        ("?busytimeout=1s", {}, "busytimeout", IN_URL, "did you mean 'busy_timeout'"),
        ("", {"slot": "x"}, "slot", "here", "is unknown; known are busy_timeout"),
        ("?busy_timeout=soon", {}, "busy_timeout", IN_URL, "'soon' is not a duration"),
        ("", {"busy_timeout": 5}, "busy_timeout", "here", "5 is not a text"),
        ("", {"trim_interval": "none"}, "trim_interval", "here", "there must be a limit"),
        ("", {"wal_bytes_max": "1MiB"}, "wal_bytes_max", "here", "at least 8MiB"),
        ("?busy_timeout=1s", {"busy_timeout": "1s"}, "busy_timeout", "here", "in the URL as well; give it once"),
        ("?busy_timeout=1s&busy_timeout=2s", {}, "busy_timeout", IN_URL, "it is given twice"),
    ],
)
def test_a_wrong_option_says_where_it_came_from(query, given, option, origin, reason):
    with pytest.raises(SourceOptionError, match=reason) as caught:
        resolve(f"sqlite:///a.db{query}", given, "here")
    assert (caught.value.option, caught.value.origin) == (option, origin)
    assert str(caught.value).startswith(f"{origin}: option '{option}'")


def test_the_embedded_database_can_be_in_any_directory(tmp_path):
    path = tmp_path / "a b?c#d%20" / "data.db"
    path.parent.mkdir()
    url = create_embedded(path)
    assert path.exists()
    assert sqlite_path(resolve(url).url) == path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h:5/db", "postgresql://u:***@h:5/db"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("sqlite:///a.db?busy_timeout=1s", "sqlite:///a.db?busy_timeout=1s"),
        ("mysql://h/db?ssl_password=secret&a=b", "mysql://h/db?ssl_password=***&a=b"),
    ],
)
def test_a_password_is_not_shown(url, shown):
    assert without_password(url) == shown
