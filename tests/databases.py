"""Real database servers for tests: each started once, on a free port of the loopback interface, and stopped by its pid.

Where a server cannot be had, the test that wants it is skipped and says why; `scripts/servers` installs them.
"""

import contextlib
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pymysql
import pytest

USER, PASSWORD, DATABASE = "tailrace", "p@ss:w/rd", "sink"
READY_S = 100
PORT_MIN = 10_000
MEMORY = Path("/dev/shm")
"""Where the files of the servers are, if it is there: tests restart sinks, not machines."""


class Server:
    """One server process with a directory of its own."""

    scheme = ""
    driver = ""
    account = ""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-db-", dir=MEMORY if MEMORY.is_dir() else None))
        self.port = free_port()
        self.process = None
        self.looking = None

    @property
    def url(self):
        return f"{self.scheme}://{USER}:p%40ss%3Aw%2Frd@127.0.0.1:{self.port}/{DATABASE}"

    def metadata_url(self):
        """Return the SQLAlchemy URL of a new database."""
        name = f"meta_{secrets.token_hex(4)}"
        connection = self.connect()
        self.autocommit(connection)
        connection.cursor().execute(f"CREATE DATABASE {name}")
        connection.close()
        return f"{self.scheme}+{self.driver}{self.url.removeprefix(self.scheme).removesuffix(DATABASE)}{name}"

    def start(self):
        self.process = self.spawn(self.command())
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self.connect().close()
                return self
            except (psycopg.OperationalError, pymysql.OperationalError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.directory / "log").read_text()[-2000:]
                    raise RuntimeError(f"{type(self).__name__} did not start: {log}") from None
                time.sleep(0.05)

    def shared(self, database):
        """Return a connection for whoever wants to look, on which each statement is a transaction."""
        if self.looking is None:
            self.looking = self.connect(database)
            self.autocommit(self.looking)
        return self.looking

    def stop(self):
        if self.looking is not None:
            self.looking.close()
        if self.process is not None:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, command):
        done = subprocess.run(
            self.as_user(command), capture_output=True, text=True, timeout=READY_S, check=False, **self.surroundings
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[:2000]}{done.stderr[-2000:]}")

    def spawn(self, command):
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(self.as_user(command), stdout=log, stderr=log, **self.surroundings)

    @property
    def surroundings(self):
        """A place of its own for temporary files: a MariaDB that starts removes those of all others that share it."""
        return {"cwd": self.directory, "env": {**os.environ, "TMPDIR": str(self.directory)}}

    def as_user(self, command):
        """Database servers do not run as root: there the command runs as the server's own user."""
        if os.getuid() != 0:
            return command
        shutil.chown(self.directory, self.account, self.account)
        return ["setpriv", f"--reuid={self.account}", f"--regid={self.account}", "--clear-groups", *command]


class Postgres(Server):
    scheme, driver, account, stop_signal = "postgresql", "psycopg", "postgres", signal.SIGINT

    def program(self, name):
        return program(name)

    def start(self):
        secret = self.directory / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command = [
            self.program("initdb"),
            "-D",
            "data",
            "-U",
            USER,
            "--auth=scram-sha-256",
            "--pwfile=secret",
            "-N",
            "-E",
            "UTF8",
        ]
        self.run([*command, "--locale=C.UTF-8"])
        super().start()
        with self.connect() as connection:
            connection.autocommit = True
            connection.execute(f"CREATE DATABASE {DATABASE}")
        return self

    def command(self):
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=100"]
        return [
            self.program("postgres"),
            "-D",
            "data",
            "-p",
            str(self.port),
            *(part for one in options for part in ("-c", one)),
        ]

    def connect(self, database="postgres"):
        return psycopg.connect(host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=database)

    def autocommit(self, connection):
        connection.autocommit = True


class MariaDb(Server):
    scheme, driver, account, stop_signal = "mysql", "pymysql", "mysql", signal.SIGTERM

    def start(self):
        setup = [
            f"CREATE DATABASE {DATABASE};",
            f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';",
            f"GRANT ALL ON *.* TO '{USER}'@'%';",
        ]
        (self.directory / "setup.sql").write_text("\n".join(setup) + "\n")
        self.run([program("mariadb-install-db"), "--no-defaults", f"--datadir={self.directory}/data", "--skip-test-db"])
        return super().start()

    def command(self):
        names = ["data", "socket", "setup.sql"]
        data, local, setup = (f"{self.directory}/{name}" for name in names)
        command = [
            program("mariadbd"),
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={local}",
            f"--init-file={setup}",
        ]
        return [*command, f"--port={self.port}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=2"]

    def connect(self, database=None):
        return pymysql.connect(host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database=database)

    def autocommit(self, connection):
        connection.autocommit(True)


class Servers:
    """The servers of a test session, started when the first test asks for them."""

    def __init__(self):
        self._servers = {}

    def get(self, kind):
        """Return a running server, or skip the test."""
        needed = {Postgres: ("initdb", "postgres"), MariaDb: ("mariadb-install-db", "mariadbd")}.get(kind, ())
        missing = [name for name in needed if program(name) is None]
        if missing:
            pytest.skip(f"{missing[0]} is not installed: run scripts/servers as root")
        if needed and os.getuid() == 0 and not has_account(kind.account):
            pytest.skip(f"there is no user {kind.account} to run the server as")
        if kind not in self._servers:
            server = kind()
            try:
                self._servers[kind] = server.start()
            except BaseException:
                server.stop()
                raise
        return self._servers[kind]

    def stop(self):
        for server in self._servers.values():
            server.stop()


def program(name):
    """Return the path of a server's program; None where there is none."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    return found or next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)


def has_account(name):
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def free_port():
    """Return a port that nobody has, and that no connection is given by chance before, or between, uses of it."""
    while True:
        port = random.SystemRandom().randrange(PORT_MIN, _chance_ports_begin())  # all tests have the same seed
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port


def _chance_ports_begin():
    """Return the first port that connections, and servers that ask for any port, are given."""
    with contextlib.suppress(OSError):
        begin = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        return begin if begin > PORT_MIN + 1000 else 65536
    return 32768
