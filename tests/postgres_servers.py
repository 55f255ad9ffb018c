"""PostgreSQL servers whose changes tests capture: one of each version for a test session, ended by its pid.

Version 15 is the one of the machine, the others are those that `scripts/servers` unpacks. Tests run on 15 and 18, and
on all that are there with `LONG_TESTS=1`. Each test has a database of its own.
"""

import os
import secrets
import signal
import subprocess
from pathlib import Path

import pytest

from databases import PASSWORD, USER, Postgres, has_account

FOLDER = Path(
    os.environ.get("TAILRACE_SERVERS")
    or ("/var/cache/tailrace-servers" if os.getuid() == 0 else Path.home() / ".cache" / "tailrace-servers")
)
VERSIONS = [14, 15, 16, 17, 18] if os.environ.get("LONG_TESTS") else [15, 18]
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": 40,
    "max_wal_senders": 40,
    "max_connections": 100,
    "logical_decoding_work_mem": "64kB",
    "wal_sender_timeout": "20s",
    "max_prepared_transactions": 5,
    "autovacuum": "off",
}

_running = {}


def home_of(version):
    """Return the folder of a version's programs; None where there is none."""
    for folder in (Path(f"/usr/lib/postgresql/{version}"), FOLDER / f"postgresql-{version}"):
        if (folder / "bin" / "postgres").exists():
            return folder
    return None


class LogicalPostgres(Postgres):
    """A server with `wal_level = logical` of one version."""

    def __init__(self, version, **settings):
        super().__init__()
        self.version = version
        self.home = home_of(version)
        self.settings = {**SETTINGS, **settings}

    def program(self, name):
        return str(self.home / "bin" / name)

    @property
    def surroundings(self):
        given = super().surroundings
        lib = self.home / "lib"
        return (
            {**given, "env": {**given["env"], "LD_LIBRARY_PATH": str(lib)}}
            if self.home.is_relative_to(FOLDER)
            else given
        )

    def command(self):
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", **self.settings}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return [self.program("postgres"), "-D", "data", "-p", str(self.port), *words]

    def sql_url(self, database, user=USER, password=PASSWORD):
        return f"postgresql://{user}:{psycopg_quote(password)}@127.0.0.1:{self.port}/{database}"

    def new_database(self):
        """Make a database of its own for a test; return its name."""
        name = f"t_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name):
        """Remove a database with all slots in it."""
        with self.connect() as connection:
            connection.autocommit = True
            connection.execute(
                "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots "
                "WHERE database = %s AND active_pid IS NOT NULL",
                [name],
            )
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [name]
            )
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, sql, database="postgres"):
        with self.connect(database) as connection:
            connection.autocommit = True
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else None

    def crash(self):
        """End the server at once, as `pg_ctl stop -m immediate` does."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(60)

    def go_on(self):
        """Start it again."""
        return Postgres.__mro__[1].start(self)


def psycopg_quote(text):
    return "".join(f"%{ord(one):02X}" if not one.isalnum() else one for one in text)


def why_not(version):
    """Return why a version cannot be had; nothing where it can."""
    if home_of(version) is None:
        return f"PostgreSQL {version} is not installed: run scripts/servers"
    if os.getuid() == 0 and not has_account("postgres"):
        return "there is no user postgres to run the server as"
    return ""


def shared(version):
    """Return the server of a version, started when it is first asked for; skip the test where there is none."""
    if reason := why_not(version):
        pytest.skip(reason)
    if version not in _running:
        _running[version] = started(version)
    return _running[version]


def started(version, **settings):
    """Start a server for the caller alone, who stops it."""
    server = LogicalPostgres(version, **settings)
    try:
        return server.start()
    except BaseException:
        server.stop()
        raise


def stop_all():
    while _running:
        _running.popitem()[1].stop()


def run_program(server, name, *words, **options):
    """Run a client program of a server's version."""
    return subprocess.Popen([server.program(name), *map(str, words)], **options)
