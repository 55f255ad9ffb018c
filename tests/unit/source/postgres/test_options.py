"""Options of PostgreSQL sources."""

import pytest

from tailrace.model.errors import ConfigError, SourceOptionError
from tailrace.source.postgres.options import PostgresSettings, slot_name
from tailrace.source.reader import Reader
from tailrace.sources import resolve, without_password

URL = "postgresql://ada:secret@db.example:5433/shop"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("slot=Upper", "option 'slot': it has up to 63 lower-case letters"),
        ("sslmode=maybe", "option 'sslmode': it is one of disable"),
        ("status_interval=soon", "option 'status_interval'"),
        ("silence_timeout=0s", "option 'silence_timeout'"),
        ("publication=", "option 'publication': it must have a name"),
        ("slots=a", "option 'slots' is unknown; did you mean 'slot'"),
    ],
)
def test_wrong_options_are_named(query, message):
    with pytest.raises(SourceOptionError, match=message):
        resolve(f"{URL}?{query}")


@pytest.mark.parametrize("url", ["postgresql://h/a/b", "postgresql://h:port/db"])
def test_wrong_urls_are_refused(url):
    with pytest.raises(ConfigError, match="a PostgreSQL URL is"):
        resolve(url)


def test_a_source_is_had_by_its_url_and_options():
    found = resolve(f"{URL}?publication=mine&streaming=false&sslmode=verify-full&sslrootcert=/ca.pem")
    assert (found.url, found.kind.title, found.kind.dialect) == (URL, "PostgreSQL", "postgresql")
    assert found.options == PostgresSettings(
        publication="mine", streaming=False, sslmode="verify-full", sslrootcert="/ca.pem"
    )
    assert found.options.conninfo(URL)["sslrootcert"] == "/ca.pem"
    assert "dbname" not in found.options.conninfo(URL)
    assert found.options.conninfo("postgresql://h")["dbname"] == "postgres"
    assert "secret" not in without_password(URL)


def test_each_log_has_a_slot_of_its_own_unless_one_is_named():
    assert slot_name(PostgresSettings(), Reader("5F0c-1")) == "tailrace_5f0c_1"
    assert slot_name(PostgresSettings(slot="mine"), Reader("5f0c")) == "mine"
    assert slot_name(PostgresSettings(slot="mine"), Reader("tail-1", ephemeral=True)) == "tailrace_tail_1"
    assert len(slot_name(PostgresSettings(), Reader("x" * 99))) == 63
